"""Whole copies of the log, and the check of a whole log.

`backup` is one consistent file, taken while the daemon writes. To restore: stop the daemon, move the state
folder's events.db and all events.db-* away, put the backup in events.db's place, `everlean db rebuild`.
"""

from __future__ import annotations

import itertools
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from store.errors import (
    BlobCorruptError,
    DatabaseCorruptError,
    LogDamagedError,
    LogError,
    MalformedEventError,
    UnknownEventError,
)
from store.files import sync
from store.log import blobs, chain
from store.log.anchor import check_end
from store.log.envelope import COLUMNS
from store.log.identity import damaged_header
from store.log.reader import LogReader, connect, stored
from store.log.upcast import read_body
from store.sqlite import connect_readonly, in_memory, script, translated

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class BackupReport:
    """A finished backup: everything up to event `position`."""

    path: Path
    position: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of checking a log; `problems` is empty for a sound one."""

    events: int
    blobs: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


def backup(log_path: Path, target: Path) -> BackupReport:
    """Write a copy of the log to `target`, a new file; a killed backup leaves only a temporary name.

    Raises:
        LogError: the target exists, its folder cannot be written, or the log cannot be read.
    """
    LogReader.open(log_path).close()  # refuses other files, with the reason
    with new_file(target) as temporary:
        position = _copy(log_path, temporary)
    return BackupReport(target, position, target.stat().st_size)


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Give a temporary name to write to; on success it gets the target's name and never replaces a file."""
    if target.exists():
        raise LogError(f"{target}: exists already; name a new file, nothing is ever overwritten")
    if not target.parent.is_dir():
        raise LogError(f"{target}: its folder does not exist; create {target.parent}")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with translated(target):
        temporary.unlink(missing_ok=True)
        try:
            yield temporary
            # A link, unlike a rename, fails if someone made the target meanwhile.
            try:
                os.link(temporary, target)
            except FileExistsError as error:
                raise LogError(f"{target}: exists already; name a new file") from error
            sync(target.parent)
        finally:
            temporary.unlink(missing_ok=True)


def _copy(log_path: Path, temporary: Path) -> int:
    connection = connect_readonly(log_path)
    try:
        # Both would refuse VACUUM INTO: it writes (another file, and mode=ro protects the log and keeps this connection
        # from checkpointing it), and the tables' checks use json_valid.
        connection.execute("PRAGMA query_only = OFF")
        connection.execute("PRAGMA trusted_schema = ON")
        connection.execute("VACUUM INTO ?", (str(temporary),))
    finally:
        connection.close()
    position = _check_copy(temporary)
    sync(temporary)
    return position


def check(log_path: Path) -> CheckReport:
    """Check a log as a whole: SQLite's own check, the gapless order, every event's shape, every blob's hash.

    An event of a newer version of this program is no damage; it is counted and not looked into.

    Raises:
        LogError: it cannot be opened at all.
    """
    connection = _connect(log_path)
    try:
        with translated(log_path):
            problems = list(_damaged_pages(connection))
            if problems:
                # Reading on in a damaged file would only raise.
                return CheckReport(0, 0, tuple(problems))
            problems += _changed_tables(connection)
            events = connection.execute("SELECT count(*) FROM events").fetchone()[0]
            problems += [
                f"stream {row[0]}: {row[1]} events, versions {row[2]} to {row[3]}"
                for row in connection.execute(
                    "SELECT stream, count(*) n, min(version) low, max(version) high FROM events GROUP BY stream "
                    "HAVING low <> 1 OR high <> n"
                )
            ]
            n_blobs, broken = _check_blobs(connection, log_path)
            problems += broken
            problems += _check_events(connection)
    finally:
        connection.close()
    problems += _check_chain(log_path)
    return CheckReport(events, n_blobs, tuple(problems))


def _connect(log_path: Path) -> sqlite3.Connection:
    if wrong := damaged_header(log_path):  # also one SQLite accepts
        raise LogDamagedError(log_path, None, wrong)
    return connect(log_path)


def damaged_file(log_path: Path) -> str:
    """Return the first fault of the file as a log, apart from its events; empty: none.

    Raises:
        LogError: it cannot be opened at all.
    """
    with closing(_connect(log_path)) as connection, translated(log_path):
        return next(itertools.chain(_damaged_pages(connection), _changed_tables(connection)), "")


def _damaged_pages(connection: sqlite3.Connection) -> Iterator[str]:
    rows = connection.execute("PRAGMA integrity_check")
    yield from (f"SQLite: {row[0]}" for row in rows if row[0] != "ok")


def _changed_tables(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield the faults of tables, triggers and the count of events; the pages are sound."""
    yield from _changed_schema(connection)
    number, last = connection.execute("SELECT count(*), coalesce(max(seq), 0) FROM events").fetchone()
    if number != last:
        yield f"events: {number} rows, but the last seq is {last}: rows are missing"
    counter = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    if last and (counter is None or counter[0] != last):
        up_to = "none" if counter is None else f"seqs up to {counter[0]}"
        yield f"events: {up_to} were given, but the last row is {last}"


def damage(log_path: Path) -> str:
    """Return the first difference of a log from its record, by its chain and its anchor; empty: none.

    Raises:
        LogError: it cannot be opened at all.
    """
    return next(iter(_check_chain(log_path)), "")


def _check_chain(log_path: Path) -> Iterator[str]:
    """Yield the events with another hash than the recorded one, and a missing end."""
    with chain.raw(log_path) as connection:
        link = chain.START
        while (walked := chain.walk(connection, after=link)).damage is not None:
            yield str(walked.damage)
            link = chain.link_at(connection, walked.damage.seq) or chain.last(connection)
            if link.seq < walked.damage.seq:
                break
        else:
            last = chain.last(connection)
            if last.seq != walked.link.seq:
                yield f"the chain ends at event {last.seq}, and the log at event {walked.link.seq}"
            elif left := chain.covered(connection, last.blobs):
                yield f"payload {left[0][0]!s}: no event covers it"
    try:
        check_end(log_path)
    except LogDamagedError as error:
        yield error.what


def _changed_schema(connection: sqlite3.Connection) -> list[str]:
    """Return the differences from the tables, indices and triggers of a new log."""
    statement = "SELECT type || ' ' || name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"
    fresh = in_memory(script("log/schema"))
    try:
        should = dict(fresh.execute(statement).fetchall())
    finally:
        fresh.close()
    result = {row[0]: row[1] for row in connection.execute(statement)}
    return [
        f"{name} is {'gone' if name not in result else 'not what it should be'}: rows may have been changed"
        for name in sorted(should)
        if result.get(name) != should[name]
    ]


def _check_blobs(connection: sqlite3.Connection, log_path: Path) -> tuple[int, list[str]]:
    problems = []
    number = 0
    for row in connection.execute("SELECT sha256, size_bytes, content FROM blobs ORDER BY id"):
        number += 1
        try:
            blobs.unpack(row[0], row[1], row[2], where=str(log_path))
        except BlobCorruptError as error:
            problems.append(str(error))
    return number, problems


def _check_events(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield the faults of single events: invalid text, data without its type's shape, a missing blob."""
    held = {row[0] for row in connection.execute("SELECT sha256 FROM blobs")}
    connection.text_factory = bytes  # decoded below: one damaged byte would else end the whole reading
    try:
        for row in connection.execute(f"SELECT {', '.join(COLUMNS)} FROM events ORDER BY seq"):
            try:
                event = stored([value.decode() if isinstance(value, bytes) else value for value in row])
                if not _TIME.fullmatch(event.recorded_at):
                    yield f"event {event.seq}: its text is damaged (recorded_at is {event.recorded_at!r})"
                read_body(event)
                yield from (
                    f"event {event.seq} ({event.type}): its blob {digest} is not in the log"
                    for digest in sorted(blobs.cited(event.data_json) - held)
                )
            except UnknownEventError:
                continue
            except MalformedEventError as error:
                yield str(error)
            except ValueError as error:
                yield f"event {row[0]}: its text is damaged ({error})"
    finally:
        connection.text_factory = str


def _check_copy(path: Path) -> int:
    with LogReader.open(path) as reader:
        position = reader.position()
    connection = connect_readonly(path)
    try:
        with translated(path):
            verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    finally:
        connection.close()
    if verdict != "ok":
        raise DatabaseCorruptError(
            f"{path}: the copy is damaged ({verdict}); look at the disk it was written to"
        )
    return position
