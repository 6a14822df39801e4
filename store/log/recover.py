"""Recover the sound part of a damaged log: a new branch of history, with the damaged files kept.

The new log is made beside the old one and is whole before it gets its place. The old files, the view among
them, get a second name in a folder of their own before they lose the first: a kill at any moment leaves them
all, and the next recovery continues from there.

The events are found page by page (`store.log.salvage`). Those before the first damage are unchanged, hashes
included. Later ones keep their numbers and get new hashes, as another event takes the place of the first lost
one.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from store.errors import LogDamagedError, LogError, is_damage, without_remedy
from store.files import sync, write_whole
from store.log import blobs as blob_table
from store.log import chain
from store.log.anchor import anchor_path, check_end, read_anchor
from store.log.backup import damaged_file
from store.log.envelope import Expect, NewEvent, StoredEvent, now_text, uuid7
from store.log.log import EventLog, new_log, put
from store.log.reader import LogReader
from store.log.salvage import Finds
from store.sqlite import WriterLock, translated


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result of a recovery: the new log has the events up to `kept`, and `behind` of the later ones.

    `lost` is the last event known to be lost, 0 without one.
    """

    kept: int
    behind: int
    lost: int
    reason: str
    aside: Path

    @property
    def n_lost(self) -> int:
        """The known number of lost events."""
        return max(0, self.lost - self.kept - self.behind)


def recover(
    log_path: Path, view_path: Path, *, reached: int, projects: Callable[[Path], bool] = lambda _log: True
) -> Recovered | None:
    """Replace a damaged log by a new one of its sound part; None if nothing is damaged or missing.

    The view is moved aside with the log: it is the last witness, and belongs to another history.

    Args:
        reached: the event at which the view stands.
        projects: whether a view can be made of a new log; if events behind a gap prevent it, only the events
            before the gap are kept.

    Raises:
        DatabaseLockedError: a daemon writes the log.
        LogVersionError: a newer version of this program wrote it; nothing was done.
        LogError: the disk refused; the old files are all there.
    """
    lock = WriterLock.take(log_path)
    fresh = log_path.with_name(f"{log_path.name}.recovered")
    try:
        with translated(log_path):
            result = _find_interrupted(fresh, log_path)
            if result is not None:
                _swap(fresh, log_path, view_path, result.aside)
                return result
            _clear(fresh)
            last, reason = _assess(log_path)
            if not reason and reached > last:
                reason = f"it ends at event {last}, and {view_path.name} stands at event {reached}"
            if not reason:
                return None
            aside = log_path.with_name(f"damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
            end = _read_acknowledged(log_path)
            end_seq = max(last, reached, end.seq if end else 0)
            with closing(Finds(log_path, _scratch(fresh))) as finds:
                if not last and end is None:  # neither SQLite nor an anchor knows its end, as for a backup
                    end_seq = max(end_seq, finds.length())
                kept, behind = _write(finds, fresh, end, upto=end_seq, aside=aside)
                if behind and not projects(fresh):
                    _remove(fresh)
                    kept, behind = _write(finds, fresh, end, upto=kept, aside=aside)
            lost = max(end_seq, kept + behind)
            result = Recovered(kept, behind, lost if lost > kept + behind else 0, reason, aside)
            _remove(_scratch(fresh))
            _begin(fresh, result)
            _swap(fresh, log_path, view_path, aside)
            return result
    finally:
        lock.release()


def _find_interrupted(fresh: Path, log_path: Path) -> Recovered | None:
    """Return a recovery killed while its finished log got its place; None without one.

    The old log may have lost its -wal by then: its sound part is in the new one alone.
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
        if new == fresh and not _is_untouched(log_path, aside, since_ns=fresh.stat().st_mtime_ns):
            return None
    except (LogError, sqlite3.Error, OSError, ValueError):
        return None
    data = event.data
    return Recovered(data["kept"], data.get("behind", 0), data["lost"], data["reason"], aside)


def _is_untouched(log_path: Path, aside: Path, *, since_ns: int) -> bool:
    """Return whether the old log is still the file put aside, without a later write."""
    return log_path.exists() and all(
        path.samefile(aside / path.name) and path.stat().st_mtime_ns <= since_ns
        for path in (log_path, log_path.with_name(f"{log_path.name}-wal"))
        if path.exists() and path.stat().st_size
    )


def _assess(path: Path) -> tuple[int, str]:
    """Return the last event readable by SQLite in a log, and the damage; "" without any."""
    last, wrong = 0, ""
    try:
        wrong = damaged_file(path)
        with chain.raw(path) as connection:
            last = connection.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0]
            wrong = str(chain.walk(connection).damage or wrong)
    except LogError as error:
        if not is_damage(error):
            raise
        wrong = wrong or without_remedy(error)
    if not wrong or not last:  # an unreadable log is reported with its known length
        try:
            check_end(path)
        except LogDamagedError as error:
            wrong = error.what
    return last, wrong


def _read_acknowledged(path: Path) -> chain.Link | None:
    try:
        return read_anchor(path)
    except LogError:
        return None


def _write(finds: Finds, target: Path, end: chain.Link | None, *, upto: int, aside: Path) -> tuple[int, int]:
    """Write the sound events up to one into a new log; return the last before a gap and the number behind.

    A stream keeps its events up to its first lost one, and behind it those that stand alone
    (`EventBody.alone`). A number without its event, but with events behind it, gets an `event_lost`: theirs
    stay.
    """
    kept = behind = 0
    gap: list[int] = []
    with new_log(target) as log:
        new = _NewLog(log, finds)
        for sound in finds.sound(upto, end):
            if sound.event is None or not new.takes(event := StoredEvent._make(sound.event)):
                gap.append(sound.seq)
                continue
            for seq in gap:
                new.add(_lost_event(seq, aside, new.recorded_at))
            gap.clear()
            new.add(event, sound.blobs)
            if sound.seq == kept + 1:
                kept = sound.seq
            else:
                behind += 1
    return kept, behind


class _NewLog:
    """A new log, written from the finds of an old one."""

    def __init__(self, log: sqlite3.Connection, finds: Finds) -> None:
        self.recorded_at = now_text()
        self._old: Counter[str] = Counter()
        """By stream, the version up to which the new log has every event of the old one."""
        self._new: Counter[str] = Counter()
        self._finds = finds
        self._link = chain.START
        self._held: set[str] = set()
        self._log = log

    def takes(self, event: StoredEvent) -> bool:
        """Return whether an event continues its stream, or stands alone, and its payloads are there."""
        return (event.version == self._old[event.stream] + 1 or event.type in _alone()) and all(
            digest in self._held or self._finds.blob(digest) for digest in blob_table.cited(event.data_json)
        )

    def add(self, event: StoredEvent, came_with: Sequence[blob_table.Row] = ()) -> None:
        """Add an event with its own payloads and those it cites from a lost event."""
        new = {row[1]: row for row in came_with}
        for digest in sorted(blob_table.cited(event.data_json) - new.keys() - self._held):
            if (row := self._finds.blob(digest)) is not None:
                new[digest] = row
        fresh = [row for digest, row in new.items() if digest not in self._held]
        covered = [(number, *row[1:]) for number, row in enumerate(fresh, start=self._link.blobs + 1)]
        self._held |= new.keys()
        if event.version == self._old[event.stream] + 1:
            self._old[event.stream] += 1
        self._new[event.stream] += 1
        event = event._replace(version=self._new[event.stream])
        self._link = chain.linked(self._link, event, covered)
        put(self._log, self._link, event, covered)
        self.recorded_at = event.recorded_at


def _lost_event(seq: int, aside: Path, recorded_at: str) -> StoredEvent:
    """Return the substitute of a lost event, dated as the one before: times stay in the order of events."""
    from store.events.service import EventLost

    return StoredEvent(
        seq, str(uuid7()), f"lost:{aside.name}", 0, EventLost.type, EventLost.schema_version,
        EventLost(aside=str(aside)).model_dump_json(), recorded_at, None, None, None, "daemon",
    )  # fmt: skip


@cache
def _alone() -> frozenset[str]:
    from store.events.registry import EVENT_TYPES

    return frozenset(name for name, body in EVENT_TYPES.items() if body.alone)


def _begin(path: Path, recovered: Recovered) -> None:
    from store.events.service import LogRecovered

    with EventLog.open(path) as log:
        body = LogRecovered(
            kept=recovered.kept,
            hash=log.head.hash.hex(),
            behind=recovered.behind,
            lost=recovered.lost,
            reason=recovered.reason,
            aside=str(recovered.aside),
        )
        log.append([NewEvent("log", body)], expect={"log": Expect.ANY})


def _swap(fresh: Path, log_path: Path, view_path: Path, aside: Path) -> None:
    """Put a new log in the place of the old one, or continue an interrupted attempt."""
    if fresh.exists():
        aside.mkdir(mode=0o700, exist_ok=True)
        olds = [path for path in (*_with_companions(log_path), *_with_companions(view_path)) if path.exists()]
        ours = anchor_path(fresh).read_bytes()  # given by a killed recovery to an old log without an anchor
        for path in olds:
            if not (aside / path.name).exists() and (
                path != anchor_path(log_path) or path.read_bytes() != ours
            ):
                _put_aside(path, aside)
        sync(aside)
        sync(aside.parent)
        # A remaining -wal would be folded into the new log. Until the new log has its place, the old one is
        # behind its anchor and is refused; without an anchor, by that of the new one. The whole of it is in
        # the folder.
        if not anchor_path(log_path).exists():
            write_whole(anchor_path(log_path), ours)
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
    """Remove an earlier recovery's unfinished log."""
    _remove(fresh)
    _remove(_scratch(fresh))
    fresh.with_name(f"{fresh.name}.lock").unlink(missing_ok=True)


def _scratch(fresh: Path) -> Path:
    """Return the file for the old log's salvaged rows."""
    return fresh.with_name(f"{fresh.name}-found")


def _remove(path: Path) -> None:
    for each in _with_companions(path):
        each.unlink(missing_ok=True)


def _with_companions(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", "-anchor")]
