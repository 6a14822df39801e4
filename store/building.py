"""Fill a new view's file from the log: in one process, or in two.

What stands in the source (files, declarations, theorems) is most of a rebuild's work, and in tables that nothing else
touches. Of a long log, on a machine with two cores, a second process therefore fills those:

    python -P -m store.building LOG TARGET UPTO

and its rows are taken over at the end. Where an event stops either of them, all is done again by one process, which
ends where it must. Nobody reads a file before it is finished, so there is no care for crashes here.
"""

from __future__ import annotations

import gc
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from store import schema
from store.catchup import STATEMENTS, catch_up, read_checkpoint
from store.errors import LogError, translated
from store.reader import LogReader
from store.readonly import uri
from store.scan_events import FileRemoved, FileScanned, TheoremsFollowed

PollRow = tuple[str, str, str, str, str | None]

SOURCE_EVENTS = frozenset({FileScanned.type, FileRemoved.type, TheoremsFollowed.type})
SOURCE_TABLES = ("files", "declarations", "tallies", "theorems", "theorem_versions")
"""The second process's share: these events write and read these tables, and no other event does."""

TWO_FROM = 50_000
"""How many events are worth a second process: it takes half a second to start."""

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
"""The indexes that only questions use and no projection: a rebuild makes them at its end, from sorted rows."""


def build(
    target: Path, log: LogReader, *, upto: int, polls: list[PollRow], two_from: int = TWO_FROM
) -> str | None:
    """Build a view as of event `upto` in a new file; return what stopped it before, if anything.

    The file is complete and fsynced when this returns, and has no -wal.
    """
    stopped = None
    with translated(target):
        if not (upto >= two_from and _cores() > 1 and _build_in_two(target, log, upto=upto, polls=polls)):
            remove(target)
            with _new_view(target) as connection:
                deferred = _defer_indexes(connection)
                _keep_polls(connection, polls)
                stopped = _fill(connection, log, upto=upto)
                _run(connection, deferred)
        descriptor = os.open(target, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return stopped


def remove(temporary: Path) -> None:
    """Remove a temporary database and what SQLite may have put beside it."""
    for suffix in ("", "-journal", "-wal", "-shm"):
        temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)


def _build_in_two(target: Path, log: LogReader, *, upto: int, polls: list[PollRow]) -> bool:
    """Build as two processes; return whether both came to the end."""
    part = target.with_name(f"{target.name}.source")
    remove(part)
    command = [sys.executable, "-P", "-m", __name__, str(log.path), str(part), str(upto)]
    second = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        with _new_view(target) as connection:
            deferred = _defer_indexes(connection)
            _keep_polls(connection, polls)
            stopped = _fill(connection, log, upto=upto, concerns=lambda kind: kind not in SOURCE_EVENTS)
            if stopped is not None or second.wait() != 0:
                return False
            connection.execute("ATTACH ? AS source", (uri(part, mode="ro"),))
            for table in SOURCE_TABLES:
                connection.execute(f"INSERT INTO main.{table} SELECT * FROM source.{table}")
            connection.execute("DETACH source")
            _run(connection, deferred)
    finally:
        second.kill()
        second.wait()
        remove(part)
    return True


def _cores() -> int:
    return len(os.sched_getaffinity(0))


@contextmanager
def _new_view(target: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(
        uri(target, mode="rwc"), uri=True, isolation_level=None, cached_statements=STATEMENTS
    )
    try:
        # The journal is needed, in memory, because an event that cannot be applied rolls its batch back.
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA cache_size = -32768")
        schema.create(connection)
        yield connection
    finally:
        connection.close()


def _fill(
    connection: sqlite3.Connection,
    log: LogReader,
    *,
    upto: int,
    concerns: Callable[[str], bool] | None = None,
) -> str | None:
    """Apply the events (those whose type `concerns`); return what stopped it, if anything."""
    was_on = gc.isenabled()
    # A projection makes no cycles, and looking for them is a twentieth of its work.
    gc.disable()
    try:
        catch_up(connection, log, upto=upto, batch=_BATCH, concerns=concerns)
    except LogError as stop:
        if read_checkpoint(connection).stopped_seq is None:
            raise  # not an event that cannot be projected: the log itself, or the disk
        return str(stop)
    finally:
        if was_on:
            gc.enable()
    return None


def _defer_indexes(connection: sqlite3.Connection) -> list[str]:
    """Drop the indexes that the projections do not read; return the statements that make them again."""
    found = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
    deferred = {name: sql for name, sql in found if name in DEFERRED_INDEXES}
    for name in deferred:
        connection.execute(f'DROP INDEX "{name}"')
    return list(deferred.values())


def _keep_polls(connection: sqlite3.Connection, polls: list[PollRow]) -> None:
    connection.executemany("INSERT INTO poll_states VALUES (?, ?, ?, ?, ?)", polls)


def _run(connection: sqlite3.Connection, statements: list[str]) -> None:
    for statement in statements:
        connection.execute(statement)


def _main(log_path: str, target: str, upto: str) -> int:
    with LogReader.open(Path(log_path)) as log, _new_view(Path(target)) as connection:
        _defer_indexes(connection)
        stopped = _fill(connection, log, upto=int(upto), concerns=SOURCE_EVENTS.__contains__)
    return 0 if stopped is None else 1


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
