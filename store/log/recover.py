"""Go on from what is sound of a damaged log: a new branch of history, and the damaged files kept.

The new log is made beside the old one and is whole before it gets its place. The old files, the view among them, get
a second name in a folder of their own before they lose the first: a kill at any moment leaves them all there, and the
next recovery goes on where that one ended.

The first page of the file says where its tables are: where it is damaged, nothing else can be read. It is the same in
each log but for some counters, so a copy of the file gets a new one, and what the chain then confirms is kept.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from store.errors import LogDamagedError, LogError, is_damage, without_remedy
from store.files import sync
from store.log import chain
from store.log.anchor import anchor_path, check_end, read_anchor
from store.log.backup import damaged_file
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.log.reader import APPLICATION_ID, LOG_VERSION, LogReader
from store.sqlite import (
    WriterLock,
    connect_readonly,
    connect_writable,
    in_memory,
    script,
    translated,
)

_TABLES = (("blobs", "id", 4), ("events", "seq", 12), ("chain", "seq", 3))
_BATCH = 500
_PAGE_BYTES = 4096


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
        LogVersionError: a newer version of this program wrote it; nothing was done.
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
            sound = _assess(log_path, _spare(fresh))
            reason = sound.reason
            if not reason and reached > sound.last:
                reason = f"it ends at event {sound.last}, and {view_path.name} stands at event {reached}"
            if not reason:
                return None
            aside = log_path.with_name(f"damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
            kept = sound.kept.seq
            lost = max(sound.last, reached, _acknowledged(log_path))
            found = Recovered(kept, lost if lost > kept else 0, reason, aside)
            _copy(sound, fresh)
            _remove(_spare(fresh))
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


@dataclass(frozen=True, slots=True)
class _Sound:
    """What is sound of a log: the events of `source` up to `kept`. `last` is the last that can be read.

    `reason` says what is wrong; "" if nothing is.
    """

    source: Path
    kept: chain.Link
    last: int
    reason: str


def _assess(path: Path, spare: Path) -> _Sound:
    """Return what is sound of a log. `spare` is where a copy may be made."""
    wrong = ""
    try:
        wrong = damaged_file(path)
    except LogError as error:
        if not is_damage(error):
            raise
        wrong = without_remedy(error)
    sound = _walked(path)
    for restored in (False, True) if path.exists() and path.stat().st_size else ():
        if not wrong or sound.kept.seq:
            break
        _copy_with_a_new_first_page(path, spare, restored=restored)
        again = _walked(spare)
        if again.kept.seq:
            sound = again
    reason = sound.reason
    if not reason or not sound.last:  # that nothing can be read is said with how much there was
        try:
            check_end(path)
        except LogDamagedError as error:
            reason = error.what
    return replace(sound, reason=reason or wrong)


def _walked(path: Path) -> _Sound:
    """Follow the chain from the first event to the last one that is what was recorded."""
    try:
        with chain.raw(path) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'events'").fetchone():
                return _Sound(path, chain.START, 0, "")
            last = connection.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0]
            walked = chain.walk(connection)
            return _Sound(path, walked.link, last, str(walked.damage or ""))
    except LogError as error:
        return _Sound(path, chain.START, 0, without_remedy(error))


def _copy_with_a_new_first_page(path: Path, spare: Path, *, restored: bool) -> None:
    """Copy a log's file and -wal; the copy's first page is that of a new log, with the size of this one.

    In a log that was restored from a backup the tables lie in another order.
    """
    _remove(spare)
    shutil.copyfile(path, spare)
    wal = path.with_name(f"{path.name}-wal")
    if wal.exists():
        shutil.copyfile(wal, spare.with_name(f"{spare.name}-wal"))
    with closing(in_memory(script("log/schema"))) as new:
        new.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        new.execute(f"PRAGMA user_version = {LOG_VERSION}")
        if restored:
            new.execute("VACUUM")
        page = bytearray(new.serialize()[:_PAGE_BYTES])
    page[18:20] = b"\2\2"  # WAL, which a database in memory has not
    page[28:32] = (path.stat().st_size // _PAGE_BYTES).to_bytes(4, "big")
    page[92:96] = page[24:28]  # or the size would not count
    with spare.open("r+b") as file:
        file.write(page)


def _acknowledged(path: Path) -> int:
    try:
        anchor = read_anchor(path)
    except LogError:
        return 0
    return 0 if anchor is None else anchor.seq


def _copy(sound: _Sound, target: Path) -> None:
    """Write the sound rows into a new log's tables."""
    kept = sound.kept
    with closing(connect_writable(target)) as new:
        new.executescript(script("log/schema"))
        new.execute("BEGIN")
        if kept.seq:
            with closing(connect_readonly(sound.source)) as old:
                for table, key, width in _TABLES:
                    upto = kept.blobs if table == "blobs" else kept.seq
                    rows = old.execute(f"SELECT * FROM {table} WHERE {key} <= ? ORDER BY {key}", (upto,))
                    while batch := rows.fetchmany(_BATCH):
                        new.executemany(
                            f"INSERT INTO {table} VALUES ({', '.join('?' * width)})",
                            [tuple(row) for row in batch],
                        )
        new.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        new.execute(f"PRAGMA user_version = {LOG_VERSION}")
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
        sync(aside)
        sync(aside.parent)
        # A -wal that is left would be folded into the new log. Until that is in its place the log is behind its anchor
        # and is refused; the whole of it is in the folder.
        for path in olds:
            if path.name not in {log_path.name, anchor_path(log_path).name}:
                path.unlink()
        fresh.replace(log_path)
    anchor_path(fresh).replace(anchor_path(log_path))
    _clear(fresh)
    sync(log_path.parent)


def _put_aside(path: Path, aside: Path) -> None:
    try:
        os.link(path, aside / path.name)
    except OSError:
        shutil.copy2(path, aside / path.name)


def _clear(fresh: Path) -> None:
    """Remove what an earlier recovery left of a new log that is not needed."""
    _remove(fresh)
    _remove(_spare(fresh))
    fresh.with_name(f"{fresh.name}.lock").unlink(missing_ok=True)


def _spare(fresh: Path) -> Path:
    """Return where the old log is copied to, if that is needed to read it."""
    return fresh.with_name(f"{fresh.name}-source")


def _remove(path: Path) -> None:
    for each in _with_companions(path):
        each.unlink(missing_ok=True)


def _with_companions(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", "-anchor")]
