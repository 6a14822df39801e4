"""Make a view anew from the log, beside the old one, and compare two.

The new file replaces the old one by a rename: a kill at any moment leaves one whole view.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store.errors import DatabaseCorruptError, DatabaseFullError, LogError, ViewError
from store.files import sync
from store.log.anchor import check_end
from store.log.reader import LogReader
from store.sqlite import (
    REPLACED,
    UNFINISHED,
    WriterLock,
    connect_readonly,
    connect_writable,
    translated,
)
from store.view import tables
from store.view.schema import Table
from store.view.view import STATEMENTS, View, catch_up, check_log, check_schema, read_checkpoint

PollRow = tuple[str, str, str, str, str | None]

_BATCH = 10_000

DEFERRED_INDEXES = frozenset(
    {
        "commits_by_state",
        "ix_declarations_name",
        "ix_proofs_state",
        "ix_sorries_state",
        "jobs_by_start",
        "jobs_by_state",
        "premises_by_name",
        "sorries_by_branch",
        "sorries_by_path",
        "traced_theorems_by_name",
    }
)
"""The indexes for queries alone, not for projections: a rebuild makes them at its end, from sorted rows."""


def build(
    target: Path, log: LogReader, *, upto: int, polls: list[PollRow], most_bytes: int | None = None
) -> str | None:
    """Build a view as of event `upto` in a new file; return the reason for an earlier end, if any.

    The file is complete and fsynced on return, and has no -wal. It grows to `most_bytes` and no further.
    """
    with translated(target):
        remove(target)
        with _new_view(target) as connection:
            if most_bytes is not None:
                (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
                connection.execute(f"PRAGMA max_page_count = {max(1, most_bytes // page_bytes)}")
            deferred = _defer_indexes(connection)
            _keep_polls(connection, polls)
            stopped = _fill(connection, log, upto=upto)
            for statement in deferred:
                connection.execute(statement)
        sync(target)
    return stopped


def remove(temporary: Path) -> None:
    """Remove a temporary database and SQLite's files beside it."""
    for suffix in ("", "-journal", "-wal", "-shm"):
        temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)


@contextmanager
def _new_view(target: Path) -> Iterator[sqlite3.Connection]:
    connection = connect_writable(target, pragmas=UNFINISHED, cached_statements=STATEMENTS)
    try:
        tables.create(connection)
        yield connection
    finally:
        connection.close()


def _fill(connection: sqlite3.Connection, log: LogReader, *, upto: int) -> str | None:
    """Apply the events; return the reason for an earlier end, if any."""
    was_on = gc.isenabled()
    # A projection makes no cycles, and looking for them is a twentieth of its work.
    gc.disable()
    try:
        catch_up(connection, log, upto=upto, batch=_BATCH)
    except LogError as stop:
        if read_checkpoint(connection).stopped_seq is None:
            raise  # the log itself or the disk failed, not a projection
        return str(stop)
    finally:
        if was_on:
            gc.enable()
    return None


def _defer_indexes(connection: sqlite3.Connection) -> list[str]:
    """Drop the indexes unused by the projections; return the statements to make them again."""
    result = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
    )
    deferred = {name: sql for name, sql in result if name in DEFERRED_INDEXES}
    for name in deferred:
        connection.execute(f'DROP INDEX "{name}"')
    return list(deferred.values())


def _keep_polls(connection: sqlite3.Connection, polls: list[PollRow]) -> None:
    connection.executemany("INSERT INTO poll_states VALUES (?, ?, ?, ?, ?)", polls)


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """The result of a rebuild. `stopped` is the reason for an end before the log's, else None."""

    position: int
    seconds: float
    poll_states: int
    stopped: str | None


def rebuild(log_path: Path, database_path: Path) -> RebuildReport:
    """Make the view anew; keep the poll states if they are readable.

    Raises:
        LogDamagedError: the log ends before its anchor.
        DatabaseLockedError: a daemon has the view open; stop it first.
        LogError: the log cannot be read, or not as far as the old view goes, or the disk refused; the old
            view is untouched.
    """
    started = time.monotonic()
    check_end(log_path)  # if the log lost its end, the old view is the last witness
    lock = WriterLock.take(database_path)
    temporary = beside(database_path)
    try:
        with translated(database_path), LogReader.open(log_path) as log:
            sweep(database_path)
            polls = _poll_states(database_path)
            stopped = build(temporary, log, upto=log.position(), polls=polls)
            position = _position(temporary)
            if stopped is not None and (reached := _last_event(database_path, log)) > position:
                # For a damaged log the old view may be the best one left.
                raise LogError(
                    f"{database_path}: left as it is, up to event {reached}; a new one would end at event {position}: "
                    f"{stopped}. To make that one all the same, move the old one away first"
                )
            _install(temporary, database_path)
    finally:
        remove(temporary)
        lock.release()
    return RebuildReport(position, time.monotonic() - started, len(polls), stopped)


def projects(log_path: Path, *, scratch: Path) -> bool:
    """Return whether a view can be made of the whole log; the trial view at `scratch` is removed.

    Raises:
        LogError: the log cannot be read, or the disk refused.
    """
    try:
        with LogReader.open(log_path) as log:
            return build(scratch, log, upto=log.position(), polls=[]) is None
    finally:
        remove(scratch)


def opened(database_path: Path, log: LogReader) -> tuple[View, str]:
    """Open a view and bring it up to its log; if it is unusable make it anew, and return why, else "".

    Raises:
        LogError: an event cannot be read, or the disk refuses.
    """
    try:
        return _caught_up(database_path, log), ""
    except (ViewError, DatabaseCorruptError) as error:
        # It is only a view: whatever its fault, the log can make it again.
        rebuild(log.path, database_path)
        return _caught_up(database_path, log), f"{type(error).__name__}: {error}"


def _caught_up(database_path: Path, log: LogReader) -> View:
    view = View.open(database_path, log)
    try:
        view.catch_up()
    except BaseException:
        view.close()
        raise
    return view


def beside(database_path: Path) -> Path:
    """Return the name of this process's temporary file in the view's folder."""
    return database_path.with_name(f"{database_path.name}.rebuild-{os.getpid()}")


def sweep(database_path: Path) -> None:
    """Remove the files of killed rebuilds; those of living processes stay."""
    for path in database_path.parent.glob(f"{database_path.name}.rebuild-*"):
        owner = path.name.partition(".rebuild-")[2].partition(".")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            remove(path)


def _install(temporary: Path, database_path: Path) -> None:
    if database_path.exists() and _replace_pages(temporary, database_path):
        return
    for suffix in ("-wal", "-shm"):
        database_path.with_name(database_path.name + suffix).unlink(missing_ok=True)
    temporary.replace(database_path)
    sync(database_path.parent)


def _replace_pages(temporary: Path, database_path: Path) -> bool:
    """Put the new content into the old file in one transaction; False if the old file is no sound database."""
    new = connect_readonly(temporary)
    try:
        old = connect_writable(database_path, mode="rw")
        try:
            for pragma in REPLACED:  # here, as the first of them detects a file of another kind
                old.execute(f"PRAGMA {pragma}")
            new.backup(old)
            return str(old.execute("PRAGMA quick_check(1)").fetchone()[0]) == "ok"
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
                return False
            raise
        finally:
            old.close()
    finally:
        new.close()


def _position(path: Path) -> int:
    connection = connect_readonly(path)
    try:
        with translated(path):
            return read_checkpoint(connection).seq
    finally:
        connection.close()


def _last_event(database_path: Path, log: LogReader) -> int:
    """Return the last event of the old view, 0 if there is no view of this version and this log."""
    try:
        connection = connect_readonly(database_path)
    except LogError:
        return 0
    try:
        check_schema(connection, database_path)
        check_log(connection, log)
        return read_checkpoint(connection).seq
    except (LogError, sqlite3.Error):
        return 0
    finally:
        connection.close()


def _poll_states(database_path: Path) -> list[PollRow]:
    """Read the poll states of the old view. Losing them costs one poll each, so a broken view has none."""
    try:
        connection = connect_readonly(database_path)
    except LogError:
        return []
    try:
        return [
            tuple(row)
            for row in connection.execute(
                "SELECT repository, checked_at, next_due_at, outcome, etag FROM poll_states"
            )
        ]
    except sqlite3.Error:
        return []
    finally:
        connection.close()


SHOWN_PER_TABLE = 20
COMPARED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Difference:
    """A row on which view and log differ. `what`: missing, surplus, changed, or a reason."""

    table: str
    key: tuple[Any, ...]
    what: str
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = f" ({', '.join(self.columns)})" if self.columns else ""
        return f"{self.table} {' '.join(str(part) for part in self.key)}: {self.what}{names}"


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The outcome; `differences` is empty if the view agrees with the log.

    `rows` and `hashes` are by table (of the log's side); at most 20 differences are named of each table, and
    `n_differences` counts them all.
    """

    position: int
    rows: dict[str, int]
    hashes: dict[str, str]
    differences: tuple[Difference, ...]
    n_differences: int
    seconds: float

    @property
    def ok(self) -> bool:
        return self.n_differences == 0


_SCRATCH = "everlean-verify-"
_LEFT_FREE_BYTES = 256 * 2**20
"""The part of a disk a verification never uses, whosever it is."""


def verify(log_path: Path, database_path: Path, *, scratch: Path | None = None) -> VerifyReport:
    """Compare the live view with the log at the view's own position.

    The second view is made in a folder of its own in `scratch`, by default the system's temporary folder, and never in
    the daemon's: it takes as much as the live one.

    Raises:
        DatabaseMissingError: there is no view, or no log.
        DatabaseFullError: there is not room enough in `scratch`.
        LogError: one of them cannot be read, or the folder cannot take the temporary file.
    """
    started = time.monotonic()
    with ExitStack() as after, LogReader.open(log_path) as log, translated(database_path):
        live = connect_readonly(database_path)
        after.callback(live.close)
        live.execute("BEGIN")  # one snapshot for the whole comparison
        try:
            check_schema(live, database_path)
            check_log(live, log)
        except ViewError as error:
            difference = Difference("view_position", (tables.PROJECTION,), str(error))
            return VerifyReport(0, {}, {}, (difference,), 1, time.monotonic() - started)
        position = read_checkpoint(live).seq
        folder = _scratch_folder(Path(tempfile.gettempdir()) if scratch is None else scratch, after)
        most_bytes = require_room(folder.parent, for_view=database_path)
        temporary = folder / database_path.name
        after.callback(remove, temporary)
        stopped = build(temporary, log, upto=position, polls=[], most_bytes=most_bytes)
        result = connect_readonly(temporary)
        after.callback(result.close)
        return _compare(live, result, position=position, stopped=stopped, started=started)


def _scratch_folder(scratch: Path, after: ExitStack) -> Path:
    """Make a folder, to be removed at the end; remove those of killed verifications beside it."""
    try:
        for left in scratch.glob(f"{_SCRATCH}*"):
            owner = left.name.removeprefix(_SCRATCH).partition("-")[0]
            if owner.isdigit() and not Path("/proc", owner).exists():
                shutil.rmtree(left, ignore_errors=True)  # another user's stays
        directory = tempfile.TemporaryDirectory(prefix=f"{_SCRATCH}{os.getpid()}-", dir=scratch)
    except OSError as error:
        raise LogError(
            f"{scratch}: {error.strerror or error}, so no second view can be made there; name a folder that this user"
            " may write to with --scratch"
        ) from error
    return Path(after.enter_context(directory))


def require_room(folder: Path, *, for_view: Path) -> int:
    """Return the bytes available there for a second view.

    Raises:
        DatabaseFullError: less than it needs.
    """
    needed_bytes = _size(for_view) * 5 // 4
    room = shutil.disk_usage(folder).free - _LEFT_FREE_BYTES
    if room < needed_bytes:
        raise DatabaseFullError(
            f"{folder}: a second view needs {needed_bytes:,} bytes, and {max(0, room):,} are to be had there"
            f" ({_LEFT_FREE_BYTES:,} stay free); name a folder on another disk with --scratch"
        )
    return room


def _size(database_path: Path) -> int:
    """Return a database's size, with the possible growth from its -wal."""
    names = (database_path, database_path.with_name(f"{database_path.name}-wal"))
    return sum(path.stat().st_size for path in names if path.exists())


def _compare(
    live: sqlite3.Connection,
    second: sqlite3.Connection,
    *,
    position: int,
    stopped: str | None,
    started: float,
) -> VerifyReport:
    rows: dict[str, int] = {}
    hashes: dict[str, str] = {}
    named: list[Difference] = list(_schema_differences(live, second))
    if stopped is not None:
        named.append(
            Difference("view_position", (tables.PROJECTION,), f"the log could not be read so far: {stopped}")
        )
    total = len(named)
    broken = {difference.key[0] for difference in named if difference.table == "sqlite_schema"}
    for table in tables.table_list():
        if table.name in tables.NOT_PROJECTED or table.name in broken:
            continue
        comparison, differ = Comparison(table), 0
        while not comparison.ended:
            result = comparison.compare(live, comparison.next_rows(second))
            named += result[: max(0, SHOWN_PER_TABLE - differ)]
            differ += len(result)
        total += differ
        rows[table.name] = comparison.rows
        hashes[table.name] = comparison.digest.hexdigest()
    return VerifyReport(position, rows, hashes, tuple(named), total, time.monotonic() - started)


def _schema_differences(live: sqlite3.Connection, second: sqlite3.Connection) -> Iterator[Difference]:
    def read(connection: sqlite3.Connection) -> dict[str, str]:
        return {row[0]: row[1] or "" for row in connection.execute("SELECT name, sql FROM sqlite_schema")}

    is_, should = read(live), read(second)
    for name in sorted(is_.keys() | should.keys()):
        if is_.get(name) != should.get(name):
            what = "missing" if name not in is_ else "surplus" if name not in should else "changed"
            yield Difference("sqlite_schema", (name,), what)


Rows = dict[tuple[Any, ...], tuple[Any, ...]]
"""Rows of a table by their keys."""


class Comparison:
    """The comparison of one table, some rows at a time: few are in memory, and a damaged key has no order."""

    def __init__(self, table: Table) -> None:
        self.name = table.name
        self.columns = (*table.key, *(name for name in table.columns if name not in table.key))
        self.key = tuple(table.key)
        self.rows = 0
        self.digest = hashlib.sha256()
        self.ended = False
        self._after: tuple[Any, ...] | None = None
        self._upto: tuple[Any, ...] | None = None

    def next_rows(self, second: sqlite3.Connection) -> Rows:
        """Return the next rows as they should be."""
        self._after = self._upto
        should = self._rows(second, limit=COMPARED_AT_ONCE)
        self._upto = [*should][-1] if len(should) == COMPARED_AT_ONCE else None
        self.ended = self._upto is None
        self.rows += len(should)
        for row in should.values():
            self.digest.update(repr(row).encode())
        return should

    def compare(self, live: sqlite3.Connection, should: Rows) -> list[Difference]:
        """Return the live view's differences in these rows."""
        is_ = self._rows(live)
        return [
            self._difference(key, is_.get(key), should.get(key))
            for key in should | is_
            if is_.get(key) != should.get(key)
        ]

    def _difference(
        self, key: tuple[Any, ...], is_: tuple[Any, ...] | None, should: tuple[Any, ...] | None
    ) -> Difference:
        if is_ is None or should is None:
            return Difference(self.name, key, "missing" if is_ is None else "surplus")
        names = zip(self.columns, is_, should, strict=True)
        return Difference(self.name, key, "changed", tuple(name for name, a, b in names if a != b))

    def _rows(self, connection: sqlite3.Connection, *, limit: int = -1) -> Rows:
        key, columns = (", ".join(f'"{name}"' for name in names) for names in (self.key, self.columns))
        bounds = {">": self._after} if limit > 0 else {">": self._after, "<=": self._upto}
        options = {sign: bound for sign, bound in bounds.items() if bound is not None}
        conditions = [f"({key}) {sign} ({', '.join('?' * len(self.key))})" for sign in options]
        result = connection.execute(
            f'SELECT {columns} FROM "{self.name}" WHERE {" AND ".join(conditions) or "1"} ORDER BY {key} LIMIT ?',
            (*itertools.chain(*options.values()), limit),
        )
        return {row[: len(self.key)]: row for row in map(tuple, result)}
