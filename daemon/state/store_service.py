"""Async facade over the store: one writer thread, one reader thread.

The writer appends to the log, then to the view, so an awaited append is in the view. A caller's mistake (an
id with other content, a missing payload) is raised to the caller. A full disk mends without us: an append
with `wait` waits for room, others are refused, and work resumes afterwards. Any other error of the store
(damaged file, failing disk, an event that cannot be projected) ends this daemon: `failure` is set, every
later append is refused, and the service stops with the reason.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import structlog

from daemon.place.paths import Paths
from daemon.state.disk import FULL_BYTES
from daemon.state.standby import require_own
from store.backoff import Backoff
from store.errors import (
    BlobMissingError,
    DatabaseFullError,
    DatabaseIOError,
    LogError,
)
from store.log.anchor import anchor_path, check_end, check_newest, check_part
from store.log.envelope import Appended, Expect, NewEvent
from store.log.log import CALLERS_MISTAKES, Batch, EventLog
from store.log.reader import LogReader
from store.sqlite import translate_os
from store.view import queries
from store.view.checking import ViewCheck
from store.view.rebuild import opened, rebuild
from store.view.view import View, refuse_lost_end

# ---- Room on the disk after none: the waits for it, and the looks for it
# A full disk mends without us. Until then nothing is recorded and nothing begins; work under way waits with
# its events, and records them as soon as there is room.


LOOK_FOR_ROOM = Backoff(1.0, 60.0)
"""Between looks at a full disk, after each time the room was not enough."""
_SOON_S = 120.0

_FOLDED_IN_EVERY_S = 10.0
"""Shortest time between two checkpoints of the log's -wal, made in turns without an append."""
_CHECKED_AT_START_S = 2.0
_CHECKED_AT_REST_S = 0.05
_PARTS_EVERY_S = 5.0
_REST_S = 1.0
"""The seconds without an append after which the log is checked."""
_CHECKED_EVERY_S = 86_400.0
"""Between two whole checks of the log against its chain. It is checked before the daemon is ready, then part
by part in turns without an append; each part begins at the end of the last one."""

log = structlog.get_logger("daemon.state.store_service")


def no_room(folder: Path) -> OSError | None:
    """Return why the disk refuses a file of a good size; None if it takes one: free bytes say nothing of
    quotas."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent  # making it found no room
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, FULL_BYTES)
    except OSError as error:
        return error
    return None


def takes_some(folder: Path) -> bool:
    """Return whether the disk has space for a file of a good size."""
    return no_room(folder) is None


class DiskSpace:
    """The folders without room. `lost`, `found` and `look` are for the store's writer, the rest for the
    loop."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        has_room: Callable[[Path], bool] = takes_some,
    ) -> None:
        self._clock = clock
        self._has_room = has_room
        self._full: dict[Path, str] = {}
        self._waiting = 0
        self._again = asyncio.Event()
        self._in_vain = 0
        self._pause_s = 0.0
        self._look_at = 0.0
        self._found_at = float("-inf")

    @property
    def problem(self) -> str:
        """The folders without room, for people; empty if there is some."""
        reasons = "; ".join([*self._full.values()])
        return f"nothing new is begun until there is room on the disk: {reasons}" if reasons else ""

    def lost(self, reason: str, folder: Path) -> None:
        """Record a write below `folder` that found no room."""
        now = self._clock()
        if not self._full:
            # Room lost at once was not enough for the waiting work; trying each second would fill the log
            # with attempts.
            gone_at_once = now - self._found_at < _SOON_S
            self._in_vain = self._in_vain + 1 if gone_at_once else 1
            self._pause_s = LOOK_FOR_ROOM.wait_s(self._in_vain)
            log.error("disk_full", reason=reason, looked_for_again_after_s=self._pause_s)
        self._full[folder] = reason
        self._look_at = now + self._pause_s

    def found(self, folder: Path) -> None:
        """Record that a write below `folder` succeeded, or is expected to."""
        if self._full.pop(folder, None) is not None and not self._full:
            self._found_at = self._clock()
            log.info("disk_has_room_again")

    def look(self) -> list[Path]:
        """Return the folders with room again: asks the disk, at most once a pause."""
        now = self._clock()
        if not self._full or now < self._look_at:
            return []
        self._look_at = now + self._pause_s
        return [folder for folder in list(self._full) if self._has_room(folder)]

    @property
    def waited_for(self) -> bool:
        """Return whether something waits to be recorded."""
        return self._waiting > 0

    @property
    def moment(self) -> asyncio.Event:
        """The event for `regained`; take it before the try that may fail, to miss nothing."""
        return self._again

    async def regained(self, moment: asyncio.Event) -> None:
        """Wait for the first `try_again` after `moment` was taken."""
        self._waiting += 1
        try:
            await moment.wait()
        finally:
            self._waiting -= 1

    def try_again(self) -> None:
        """Retry everything that waits."""
        before, self._again = self._again, asyncio.Event()
        before.set()


Answer = TypeVar("Answer")

_GROUP_EVENTS, _GROUP_BLOBS = 2_000, 64
"""The most events and payloads after which a transaction takes no further batch."""
_SHARED_S = 2.0
"""The time a shared append waits for others, as with PostgreSQL's commit_delay."""


@dataclass(slots=True)
class _Waiting:
    """A pending batch, its outcome, and the future that wakes its caller."""

    batch: Batch
    told: asyncio.Future[None]
    outcome: Appended | Exception | None = None


_NO_FILE = (0, 0)


def _identity(path: Path) -> tuple[int, int]:
    try:
        result = path.stat()
    except OSError:
        return _NO_FILE
    return result.st_dev, result.st_ino


def _of_the_log(paths: Paths) -> tuple[Path, ...]:
    return paths.events_db, paths.events_db.with_name(f"{paths.events_db.name}-wal")


def _watched(paths: Paths) -> list[Path]:
    """Return the folder of the store, its files, SQLite's and our own beside them, and the locks."""
    databases = (paths.events_db, paths.database_db)
    beside = [
        path.with_name(path.name + suffix) for path in databases for suffix in ("-wal", "-shm", ".lock")
    ]
    return [*databases, *beside, anchor_path(paths.events_db), paths.lock, paths.state]


def _name_now(identity: tuple[int, int]) -> Path | None:
    """Return the name of a file open in this process, wherever it was moved; None if it has none left."""
    for descriptor in Path("/proc/self/fd").iterdir():
        name = descriptor.readlink() if _identity(descriptor) == identity else None
        if name is not None and _identity(name) == identity:
            return name
    return None


class StoreFailedError(Exception):
    """The store cannot be written any more; the daemon must stop."""


class NoRoomError(StoreFailedError):
    """The disk is full: nothing was recorded, and nothing is until there is room; then the daemon goes on."""


class StoreService:
    """The open store of one daemon. Made with `open`, ended with `close`; use it from one event loop.

    `room` holds the folders without room on the disk. With `patient=False` a full disk is a failure like any
    other.
    """

    def __init__(self, paths: Paths, *, patient: bool = False) -> None:
        self.room = DiskSpace()
        self._patient = patient
        self._behind = False
        """Whether the view found no room for events of the log."""
        self._hurried = False
        self._busy = False
        """Whether something was appended since the last turn of the loop."""
        self._checked_at = 0
        """The log's end when its next part was last due for a check."""
        self._view_check: ViewCheck | None = None
        """The check of the view, after that of the log."""
        self.check_pause_s = _REST_S
        """The seconds until `check_next_part` is due: a day after a whole check."""
        self._folded_in = 0
        """The log's end when its -wal was last folded in."""
        self._fold_in_at = 0.0
        self._writer_thread = 0
        self._paths = paths
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="store-write")
        self._asker = ThreadPoolExecutor(1, thread_name_prefix="store-read")
        self._log: EventLog | None = None
        self._reader: LogReader | None = None
        self._database: View | None = None
        self._view: sqlite3.Connection | None = None
        self._files: dict[Path, tuple[int, int]] = {}
        self._pending: deque[_Waiting] = deque()
        self._soon: asyncio.TimerHandle | None = None
        """Begins a transaction for the waiting shared appends."""
        self._listeners: list[Callable[[Sequence[NewEvent]], None]] = []
        self.failure: Exception | None = None
        self.failed = asyncio.Event()
        self.rebuilt = ""
        """Why the view was built anew at the start; empty if it was in order."""

    @classmethod
    async def open(cls, paths: Paths, *, patient: bool = False) -> StoreService:
        """Open the log and bring the view up to date, or build it anew if it cannot be used.

        Args:
            patient: outlast a full disk; the owner calls `check` now and then.

        Raises:
            LogError: the log cannot be opened, or an event in it cannot be read.
        """
        store = cls(paths, patient=patient)
        try:
            await store._in(store._writer, store._open)
            await store._in(store._asker, store._open_view)
        except BaseException:
            await store.close()
            raise
        return store

    def subscribe(self, listener: Callable[[Sequence[NewEvent]], None]) -> None:
        """Call `listener` in the event loop after every append with new events."""
        self._listeners.append(listener)

    async def append(
        self,
        events: Sequence[NewEvent],
        *,
        expect: Mapping[str, int | Expect] | None = None,
        blobs: Mapping[str, Path] | None = None,
        wait: bool = False,
        shared: bool = False,
    ) -> Appended:
        """Record events, all or nothing; when this returns they are durable and in the view.

        Streams outside `expect` may be at any version. Only with a full disk may the view be behind, and then
        no plan is made from it (`room`).

        Args:
            wait: with a full disk, wait for room without a limit. Not for the main loop.
            shared: share a transaction with other appends within two seconds, or before `record_now`.

        Raises:
            ConcurrencyError, IdempotencyError, BlobMissingError, BlobCorruptError, InvalidAppendError: the
                batch is at fault; nothing was written.
            NoRoomError: the disk is full, without `wait`; nothing was written.
            StoreFailedError: the store is at fault; the daemon stops.
        """
        expectations: dict[str, int | Expect] = {event.stream: Expect.ANY for event in events}
        expectations.update(expect or {})
        batch = Batch(list(events), expectations, dict(blobs or {}))
        while True:
            moment = self.room.moment
            self._loop = asyncio.get_running_loop()
            waiting = _Waiting(batch, self._loop.create_future())
            self._pending.append(waiting)
            if not shared or self._hurried:
                self._writer.submit(self._append_pending)
            elif self._soon is None:
                self._soon = self._loop.call_later(_SHARED_S, self.record_now)
            await waiting.told
            if isinstance(appended := waiting.outcome, Appended):
                break
            assert appended is not None
            if not isinstance(appended, NoRoomError) or self._hurried or not wait:
                raise appended
            await self.room.regained(moment)
        if self.room.waited_for:
            self.room.try_again()
        return appended

    def record_now(self) -> None:
        """Record the shared appends now, without waiting for others."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
            self._writer.submit(self._append_pending)

    async def ask(self, question: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """Run a query on the view (one of `store.view.queries`, usually)."""

        def run() -> Answer:
            if self._view is None:
                raise StoreFailedError("the view is closed")
            return question(self._view)

        return await self._in(self._asker, run)

    async def look_up(self, question: Callable[[LogReader], Answer]) -> Answer:
        """Run a query on the log itself."""

        def run() -> Answer:
            if self._reader is None:
                raise StoreFailedError("the log is closed")
            return question(self._reader)

        return await self._in(self._asker, run)

    async def set_poll_state(
        self, repository: str, *, checked_at: str, next_due_at: str, outcome: str, etag: str | None
    ) -> None:
        """Remember a repository's last poll and next one. No event: see `store.view.tables.PollStateRow`."""

        def run() -> None:
            if self._database is None or self.failure is not None:
                raise StoreFailedError("the store is closed or has failed")
            self._check_files()
            try:
                self._database.set_poll_state(
                    repository,
                    checked_at=checked_at,
                    next_due_at=next_due_at,
                    outcome=outcome,
                    etag=etag,
                )
            except (LogError, sqlite3.Error, OSError) as error:
                raise self._refused(error) from error

        await self._in(self._writer, run)

    async def check(self) -> None:
        """Check that the files are still the opened ones, and look for room again; fold the -wal in.

        Nothing may be appended for hours, so call this in each turn of the loop. An append has looked at the
        files, and the view follows it, so only a turn without one asks the writer.

        Raises:
            StoreFailedError: they were taken away; the daemon stops.
        """

        def run() -> bool:
            if self.failure is not None or self._log is None:
                return False
            self._check_files()
            self._busy = False
            self._fold_in(self._log)
            return self._use_room()

        if self._busy and self.failure is None and not self.room.problem:
            self._busy = False
            return
        if await self._in(self._writer, run):
            self.room.try_again()

    async def check_next_part(self) -> None:
        """Check the next part of the log against its chain, or then of the view against the log.

        Only if nothing was appended since the last call. A view that contradicts the log is made anew.

        Raises:
            StoreFailedError: the log was changed; the daemon stops.
        """

        def run() -> None:
            if self.failure is not None or self._log is None:
                return
            before, self._checked_at = self._checked_at, self._log.head.seq
            if before != self._checked_at:
                self.check_pause_s = _REST_S
                return
            try:
                if self._view_check is None:
                    self._check_part(_CHECKED_AT_REST_S)
                else:
                    self._check_view(self._view_check)
            except (LogError, sqlite3.Error, OSError) as error:
                raise self._fail(error) from error

        await self._in(self._writer, run)

    def hurry(self) -> None:
        """Fail appends that wait for room: the daemon ends, and the next start resumes from the log."""
        self._hurried = True
        self.room.try_again()

    def give_up(self, error: Exception) -> None:
        """Record nothing more, for a reason outside the store; the daemon stops. From any thread."""
        self._fail(error)

    def writer_cpu_s(self) -> float:
        """Return the seconds of CPU used by the writing thread: a hung one gets none."""
        return time.clock_gettime(time.pthread_getcpuclockid(self._writer_thread))

    def refused(self, error: OSError, folder: Path) -> StoreFailedError:
        """Record that the disk refused a write below `folder`, outside the log.

        A full disk keeps everything from beginning until there is room; a failing one stops the daemon.
        Returns the error.
        """
        return self._refused(translate_os(error, folder), folder)

    async def close(self) -> None:
        """Finish the queue and close everything; `failure` holds the error, if any. Safe to repeat."""
        self._hurried = True
        self.record_now()
        await asyncio.to_thread(self._asker.shutdown)
        await asyncio.to_thread(self._writer.shutdown)
        first: Exception | None = None
        await asyncio.to_thread(self._end_view_check)
        for thing in (self._view, self._reader, self._database, self._log):
            try:
                if thing is not None:
                    await asyncio.to_thread(thing.close)
            except (LogError, sqlite3.Error) as error:
                # Closing checkpoints, which a full disk refuses; the -wal file has everything for the next
                # start.
                first = first or error
        self._view = self._reader = self._database = self._log = None
        if first is not None and self.failure is None and not isinstance(first, DatabaseFullError):
            self.failure = first

    def _open(self) -> None:
        # Before anything is opened for writing: the files may be the only copy of the acknowledged events.
        require_own(self._paths)
        check_end(self._paths.events_db)
        refuse_lost_end(self._paths.events_db, self._paths.database_db)
        self._writer_thread = threading.get_ident()
        unanchored = self._paths.events_db.exists() and not anchor_path(self._paths.events_db).exists()
        self._log = EventLog.open(self._paths.events_db)
        if unanchored:
            reason = "it was not there: whether the log had lost its end, only the view could tell"
            log.warning("anchor_made", position=self._log.head.seq, reason=reason)
        check_newest(self._paths.events_db, seconds=_CHECKED_AT_START_S / 2)
        self._check_part(_CHECKED_AT_START_S)
        self._reader = self._log.reader()
        self._database, self.rebuilt = opened(self._paths.database_db, self._reader)

    def _check_part(self, seconds: float) -> None:
        """Check the next part of the log against its chain; the view comes behind the last one."""
        self.check_pause_s = _PARTS_EVERY_S
        if check_part(self._paths.events_db, seconds=seconds):
            paths = self._paths
            self._view_check = ViewCheck(paths.events_db, paths.database_db, paths.second_view)

    def _check_view(self, check: ViewCheck) -> None:
        """Check the next part of the view; after the last one, make anew a wrong view and rest for a day."""
        try:
            if not check.check_part(_CHECKED_AT_REST_S):
                return
        except LogError as error:
            # There is no room for the second view, or the cache fails: tries again tomorrow.
            log.warning("view_not_checked", reason=str(error))
        self._end_view_check()
        if check.differences and self._database is not None and self._reader is not None:
            wrong = "; ".join(map(str, check.differences))[:2000]
            log.error("view_rebuilt", reason=f"it was not what the log says: {wrong}")
            self._database.close()
            rebuild(self._paths.events_db, self._paths.database_db)
            self._database, _ = opened(self._paths.database_db, self._reader)
            self.rebuilt = wrong
            self._asker.submit(self._open_view).result()

    def _end_view_check(self) -> None:
        self.check_pause_s = _CHECKED_EVERY_S
        if self._view_check is not None:
            self._view_check.close()
            self._view_check = None

    def _open_view(self) -> None:
        if self._view is not None:
            self._view.close()
        self._view = queries.connect(self._paths.database_db)
        result = {path: _identity(path) for path in _watched(self._paths)}
        self._files = {path: identity for path, identity in result.items() if identity != _NO_FILE}

    def _append_pending(self) -> None:
        """Record every pending batch, in as many transactions as it takes; a call without any does
        nothing."""
        while group := self._next_group():
            try:
                for one, outcome in zip(group, self._append([one.batch for one in group]), strict=True):
                    one.outcome = outcome
                # The events are durable from here on, whatever becomes of the view.
                if any(isinstance(one.outcome, Appended) for one in group):
                    self._follow()
            except Exception as error:  # noqa: BLE001 - `append` raises it to each caller
                for one in group:
                    if not isinstance(one.outcome, CALLERS_MISTAKES):
                        one.outcome = error
            self._loop.call_soon_threadsafe(self._tell, group)

    def _next_group(self) -> list[_Waiting]:
        """Take as many pending batches as fit into one transaction."""
        group: list[_Waiting] = []
        events = blobs = 0
        while self._pending and events < _GROUP_EVENTS and blobs < _GROUP_BLOBS:
            group.append(self._pending.popleft())
            events += len(group[-1].batch.events)
            blobs += len(group[-1].batch.blobs)
        return group

    def _tell(self, group: Sequence[_Waiting]) -> None:
        """Wake the callers, and call the listeners first, also for a caller cancelled meanwhile."""
        if self._soon is not None and not self._pending:
            self._soon.cancel()
            self._soon = None
        for one in group:
            if not one.told.done():
                # Its caller goes on in the loop's next iteration, after the listeners.
                one.told.set_result(None)
        for one in group:
            if isinstance(one.outcome, Appended) and not one.outcome.repeated:
                for listener in self._listeners:
                    listener(one.batch.events)

    def _append(self, batches: Sequence[Batch]) -> list[Appended | Exception]:
        """Append batches; return the outcome of each.

        Raises:
            StoreFailedError: the store is at fault, for all of them.
        """
        if self.failure is not None:
            raise StoreFailedError(f"nothing is recorded any more: {self.failure}")
        if self._log is None or self._database is None:
            raise StoreFailedError("the store is closed")
        self._check_files()
        self._busy = True
        try:
            outcomes: list[Appended | Exception] = [*self._log.append_all(batches)]
        except (LogError, sqlite3.Error, OSError) as error:
            if len(batches) == 1:
                return [self._refused(error)]
            return [outcome for batch in batches for outcome in self._alone(batch)]
        for at, outcome in enumerate(outcomes):
            # The payload may have come with a batch before it.
            if isinstance(outcome, BlobMissingError) and at:
                outcomes[at] = self._alone(batches[at])[0]
        return outcomes

    def _alone(self, batch: Batch) -> list[Appended | Exception]:
        """Append a batch by itself after all together were refused: a smaller one may still find room."""
        try:
            return self._append([batch])
        except StoreFailedError as error:
            return [error]

    def _follow(self) -> None:
        """Bring the view up to the log; without room for that now, `check` does so later."""
        if self._database is None:
            return
        try:
            self._database.catch_up()
        except DatabaseFullError as error:
            self._behind = True
            if not self._patient:
                raise self._fail(error) from error
            self._refused(error)
        except Exception as error:
            # A plan made from a view that does not follow would be wrong.
            raise self._fail(error) from error
        else:
            self._behind = False
            self.room.found(self._paths.state)

    def _use_room(self) -> bool:
        """Use the regained room; return whether waiting appends may try again."""
        tried = False
        for folder in self.room.look():
            if folder != self._paths.state:
                self.room.found(folder)
            elif self.room.waited_for and not self._behind:
                tried = True  # they will find out whether it is enough
            else:
                self._follow()
                tried = not self._behind
        return tried

    def _fold_in(self, log: EventLog) -> None:
        if self._folded_in == log.head.seq or time.monotonic() < self._fold_in_at:
            return
        self._fold_in_at = time.monotonic() + _FOLDED_IN_EVERY_S
        try:
            if log.fold_in():
                self._folded_in = log.head.seq
        except (LogError, sqlite3.Error, OSError) as error:
            self._refused(error)

    def _check_files(self) -> None:
        """Refuse to write into removed files: SQLite would write on without an error.

        Without its -wal a log lacks the events not folded in; without a lock file another daemon may begin on
        it.
        """
        gone = [path for path, identity in self._files.items() if _identity(path) != identity]
        if not gone:
            return
        text = f"{' and '.join(map(str, gone))} removed or replaced while the daemon runs"
        if self._log is not None:
            text += f"; {self._saved(self._log)}"
        raise self._fail(DatabaseIOError(f"{text}; start the daemon again"))

    def _saved(self, log: EventLog) -> str:
        """Return the path of the recorded log; write it to a new file if no name leads to it and its -wal any
        more."""
        moved = [_name_now(self._files[path]) for path in _of_the_log(self._paths) if path in self._files]
        if None not in moved:
            if moved[0] == self._paths.events_db:
                return "the log itself is all there"
            return f"the log is now {moved[0]}: put it back"
        refused = ""
        for folder in (
            self._paths.state,
            self._paths.cache,
            self._paths.runtime,
            Path(tempfile.gettempdir()),
        ):
            rescued = folder / f"events.db.rescued-{os.getpid()}"
            try:
                # Ours alone, and never a name prepared by another user in a folder that all may write.
                os.close(os.open(rescued, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                log.copy_to(rescued)
            except (LogError, OSError) as error:
                refused = refused or str(error)
            else:
                return (
                    f"everything recorded is in {rescued}: where `everlean db check` finds events.db damaged or gone, "
                    "move all events.db* away and put it in their place"
                )
        return f"the log could not be saved: {refused}"

    def _refused(self, error: Exception, folder: Path | None = None) -> StoreFailedError:
        if not (self._patient and isinstance(error, DatabaseFullError)):
            return self._fail(error)
        self.room.lost(str(error), folder or self._paths.state)
        return NoRoomError(f"nothing was recorded: {error}")

    def _fail(self, error: Exception) -> StoreFailedError:
        self.failure = error
        self._loop.call_soon_threadsafe(self.failed.set)
        return StoreFailedError(f"the store cannot be written: {error}")

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[..., Answer], *arguments: object) -> Answer:
        self._loop = asyncio.get_running_loop()
        future: Awaitable[Answer] = self._loop.run_in_executor(pool, work, *arguments)
        # A cancelled waiter must not leave a half-observed append: the thread finishes in any case.
        return await asyncio.shield(future)
