"""Copies of the log that are whole, and the check that a log is.

`backup` is one consistent file, taken while the daemon writes. To restore: stop the daemon, move the state folder's
events.db, events.db-wal and events.db-shm away, put the backup in events.db's place, `unsorry db rebuild`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from store import blobs
from store.errors import BlobCorruptError, DatabaseCorruptError, LogError, translated
from store.reader import LogReader, check_identity
from store.readonly import BUSY_TIMEOUT_S, connect_readonly, uri
from store.sql import script


@dataclass(frozen=True, slots=True)
class BackupReport:
    """A finished backup: everything up to event `position`."""

    path: Path
    position: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check of a log found; `problems` is empty where all is well."""

    events: int
    blobs: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


def backup(log_path: Path, target: Path) -> BackupReport:
    """Write a copy of the log to `target`, which must not exist; a killed backup leaves only a temporary name.

    Raises:
        LogError: the target exists, its folder cannot be written, or the log cannot be read.
    """
    LogReader.open(log_path).close()  # refuses what is no log, with the reason
    with _new_file(target) as temporary:
        position = _copy(log_path, temporary)
    return BackupReport(target, position, target.stat().st_size)


def save_view(view: sqlite3.Connection, target: Path) -> int:
    """Write what a connection to a view sees to `target`, which must not exist; return its size in bytes.

    Raises:
        LogError: the target exists, or its folder cannot be written.
    """
    with _new_file(target) as temporary:
        copy = sqlite3.connect(temporary)
        try:
            view.backup(copy)
        finally:
            copy.close()
        _sync(temporary, os.O_RDONLY)
    return target.stat().st_size


@contextmanager
def _new_file(target: Path) -> Iterator[Path]:
    """A temporary name to write to, which gets the target's name if all goes well and never replaces a file."""
    if target.exists():
        raise LogError(f"{target}: exists already; name a new file, nothing is ever overwritten")
    if not target.parent.is_dir():
        raise LogError(f"{target}: its folder does not exist; create {target.parent}")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with translated(target):
        temporary.unlink(missing_ok=True)
        try:
            yield temporary
            # A link, unlike a rename, fails if somebody made the target meanwhile.
            try:
                os.link(temporary, target)
            except FileExistsError as error:
                raise LogError(f"{target}: exists already; name a new file") from error
            _sync(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        finally:
            temporary.unlink(missing_ok=True)


def _copy(log_path: Path, temporary: Path) -> int:
    # query_only would refuse VACUUM INTO, although it writes another file; mode=ro protects the log, and keeps
    # this connection from checkpointing it.
    connection = sqlite3.connect(
        uri(log_path, mode="ro"), uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_S
    )
    try:
        connection.execute("VACUUM INTO ?", (str(temporary),))
    finally:
        connection.close()
    position = _check_copy(temporary)
    _sync(temporary, os.O_RDONLY)
    return position


def check(log_path: Path) -> CheckReport:
    """Check a log as a whole: SQLite's own check, the gapless order, and every blob against its hash.

    Raises:
        LogError: it cannot be opened at all.
    """
    connection = connect_readonly(log_path)
    try:
        with translated(log_path):
            check_identity(connection, log_path)
            problems = [
                f"SQLite: {row[0]}" for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"
            ]
            if problems:
                # Reading on in a damaged file would only raise.
                return CheckReport(0, 0, tuple(problems))
            problems += _changed_schema(connection)
            events = connection.execute("SELECT count(*), coalesce(max(seq), 0) FROM events").fetchone()
            if events[0] != events[1]:
                problems.append(
                    f"events: {events[0]} rows, but the last seq is {events[1]}: rows are missing"
                )
            given = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
            if given is not None and given[0] != events[1]:
                problems.append(f"events: seqs up to {given[0]} were given, but the last row is {events[1]}")
            problems += [
                f"stream {row[0]}: {row[1]} events, versions {row[2]} to {row[3]}"
                for row in connection.execute(
                    "SELECT stream, count(*) n, min(version) low, max(version) high FROM events GROUP BY stream "
                    "HAVING low <> 1 OR high <> n"
                )
            ]
            n_blobs, broken = _check_blobs(connection, log_path)
    finally:
        connection.close()
    return CheckReport(events[0], n_blobs, (*problems, *broken))


def _changed_schema(connection: sqlite3.Connection) -> list[str]:
    """What differs from the tables, indices and triggers that a new log is made with."""
    statement = "SELECT type || ' ' || name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"
    fresh = sqlite3.connect(":memory:")
    try:
        fresh.executescript(script("log"))
        wanted = dict(fresh.execute(statement).fetchall())
    finally:
        fresh.close()
    found = {row[0]: row[1] for row in connection.execute(statement)}
    return [
        f"{name} is {'gone' if name not in found else 'not what it should be'}: rows may have been changed"
        for name in sorted(wanted)
        if found.get(name) != wanted[name]
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
    held = {row[0] for row in connection.execute("SELECT sha256 FROM blobs")}
    for row in connection.execute(
        "SELECT seq, type, data FROM events WHERE data LIKE '%\"sha256\"%' ORDER BY seq"
    ):
        problems += [
            f"event {row[0]} ({row[1]}): its blob {digest} is not in the log"
            for digest in sorted(blobs.cited(row[2]) - held)
        ]
    return number, problems


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


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
