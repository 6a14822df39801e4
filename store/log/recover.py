"""Go on from what is sound of a damaged log: a new branch of history, and the damaged files kept.

The new log is made beside the old one and is whole before it gets its place. The old files, the view among them, get
a second name in a folder of their own before they lose the first: a kill at any moment leaves them all there, and the
next recovery goes on where that one ended.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from store.errors import LogDamagedError, LogError
from store.log import chain
from store.log.anchor import anchor_path, check_end, read_anchor
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.log.reader import APPLICATION_ID, LogReader
from store.sqlite import WriterLock, connect_readonly, connect_writable, script, sync_folder, translated

_TABLES = (("blobs", "id", 4), ("events", "seq", 12), ("chain", "seq", 3))
_BATCH = 500


@dataclass(frozen=True, slots=True)
class Recovered:
    """The events up to `kept` are in the new log; `lost` is the last that is known to have been there."""

    kept: int
    lost: int
    reason: str
    aside: Path


def recover(log_path: Path, view_path: Path, *, reached: int) -> Recovered | None:
    """Put a log of what is sound in the place of a damaged one; None if nothing is damaged or missing.

    The view is moved aside with the log: it is the last witness, and belongs to another history. `reached` is the event
    at which it stands.

    Raises:
        DatabaseLockedError: a daemon writes the log.
        LogError: the disk refused; the old files are all there.
    """
    lock = WriterLock.take(log_path)
    fresh = log_path.with_name(f"{log_path.name}.recovered")
    try:
        with translated(log_path):
            found = _interrupted(fresh, log_path)
            if found is not None:
                _swap(fresh, log_path, view_path, found.aside)
                return found
            _clear(fresh)
            kept, chained, last, reason = _assess(log_path)
            if not reason and reached > last:
                reason = f"it ends at event {last}, and {view_path.name} stands at event {reached}"
            if not reason:
                return None
            aside = log_path.with_name(f"damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
            acknowledged = _acknowledged(log_path)
            lost = max(last, reached, acknowledged)
            found = Recovered(kept.seq, lost if lost > kept.seq else 0, reason, aside)
            _copy(log_path, fresh, kept, chained=chained)
            _begin(fresh, found)
            _swap(fresh, log_path, view_path, aside)
            return found
    finally:
        lock.release()


def _interrupted(fresh: Path, log_path: Path) -> Recovered | None:
    """Return the recovery that was killed while its log, which is whole, got its place; None if there is none.

    The old log may have lost its -wal by then: what is sound of it is in the new one alone.
    """
    new = fresh if fresh.exists() else log_path
    if not anchor_path(fresh).exists():
        return None
    try:
        with chain.raw(new) as connection:
            end = chain.last(connection)
        with LogReader.open(new) as reader:
            (event,) = reader.read(after=end.seq - 1)
        if event.type != "log_recovered" or read_anchor(fresh) != end:
            return None
        aside = Path(event.data["aside"])
        if new == fresh and not _untouched(log_path, aside, since_ns=fresh.stat().st_mtime_ns):
            return None
    except (LogError, sqlite3.Error, OSError, ValueError):
        return None
    return Recovered(event.data["kept"], event.data["lost"], event.data["reason"], aside)


def _untouched(log_path: Path, aside: Path, *, since_ns: int) -> bool:
    """Return whether the old log is still the one that was put aside, and nobody wrote it since."""
    return log_path.exists() and all(
        path.samefile(aside / path.name) and path.stat().st_mtime_ns <= since_ns
        for path in (log_path, log_path.with_name(f"{log_path.name}-wal"))
        if path.exists() and path.stat().st_size
    )


def _assess(path: Path) -> tuple[chain.Link, bool, int, str]:
    """Return the last sound link, whether there is a chain, the last event that can be read, and what is wrong."""
    reason = ""
    kept, chained, last = chain.START, True, 0
    try:
        with LogReader.open(path) as reader:
            last = reader.position()
        with chain.raw(path) as connection:
            chained = chain.is_chained(connection)
            if chained:
                walked = chain.walk(connection)
                kept, reason = walked.link, str(walked.damage or "")
            else:
                kept = chain.Link(last, 2**62, b"")
    except (LogError, sqlite3.Error) as error:
        reason = str(error)
    if not reason:
        try:
            check_end(path)
        except LogDamagedError as error:
            reason = error.what
    return kept, chained, last, reason


def _acknowledged(path: Path) -> int:
    try:
        anchor = read_anchor(path)
    except LogError:
        return 0
    return 0 if anchor is None else anchor.seq


def _copy(source: Path, target: Path, kept: chain.Link, *, chained: bool) -> None:
    """Write the rows up to a link into a new log's tables; of a log without a chain, its writer makes one."""
    with closing(connect_writable(target)) as new:
        new.executescript(script("log/schema") + (script("log/chain") if chained else ""))
        new.execute("BEGIN")
        if kept.seq:
            with closing(connect_readonly(source)) as old:
                for table, key, width in _TABLES if chained else _TABLES[:2]:
                    upto = kept.blobs if table == "blobs" else kept.seq
                    rows = old.execute(f"SELECT * FROM {table} WHERE {key} <= ? ORDER BY {key}", (upto,))
                    while batch := rows.fetchmany(_BATCH):
                        new.executemany(
                            f"INSERT INTO {table} VALUES ({', '.join('?' * width)})",
                            [tuple(row) for row in batch],
                        )
        new.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        new.execute(f"PRAGMA user_version = {2 if chained else 1}")
        new.execute("COMMIT")


def _begin(path: Path, found: Recovered) -> None:
    from store.events.service import LogRecovered

    with EventLog.open(path) as log:
        body = LogRecovered(
            kept=found.kept,
            hash=log.head.hash.hex(),
            lost=found.lost,
            reason=found.reason,
            aside=str(found.aside),
        )
        log.append([NewEvent("log", body)], expect={"log": Expect.ANY})


def _swap(fresh: Path, log_path: Path, view_path: Path, aside: Path) -> None:
    """Put a new log in the place of the old one, or go on with that."""
    if fresh.exists():
        aside.mkdir(mode=0o700, exist_ok=True)
        olds = [path for path in (*_with_companions(log_path), *_with_companions(view_path)) if path.exists()]
        for path in olds:
            if not (aside / path.name).exists():
                _put_aside(path, aside)
        sync_folder(aside)
        sync_folder(aside.parent)
        # A -wal that is left would be folded into the new log. Until that is in its place the log is behind its anchor
        # and is refused; the whole of it is in the folder.
        for path in olds:
            if path.name not in {log_path.name, anchor_path(log_path).name}:
                path.unlink()
        fresh.replace(log_path)
    anchor_path(fresh).replace(anchor_path(log_path))
    _clear(fresh)
    sync_folder(log_path.parent)


def _put_aside(path: Path, aside: Path) -> None:
    try:
        os.link(path, aside / path.name)
    except OSError:
        shutil.copy2(path, aside / path.name)


def _clear(fresh: Path) -> None:
    """Remove what an earlier recovery left of a new log that is not needed."""
    for path in _with_companions(fresh):
        path.unlink(missing_ok=True)
    fresh.with_name(f"{fresh.name}.lock").unlink(missing_ok=True)


def _with_companions(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", "-anchor")]
