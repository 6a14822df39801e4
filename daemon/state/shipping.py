"""Ship the log: copy new events to the store of `[log] ship`, as segments.

Neither the event loop nor the store's writer waits for it. Nothing is remembered between two daemons: the
store's own end is the position, so a kill at any moment loses and doubles nothing. Failures are retried.
Before each segment the store is asked for a take-over by another machine (`daemon.state.standby`): then the
daemon ends.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial

import structlog

from daemon.state.context import Context
from daemon.state.standby import FencedError, epoch_of, note_fenced, require_unfenced
from pipeline.redact import redact
from store.backoff import Backoff
from store.errors import LogError
from store.log import segments
from store.log.segments import End, Segment, SegmentStore

log = structlog.get_logger("daemon.state.shipping")

BEHIND_S = 60.0
"""A copy this long behind the log, or ten intervals, is a problem."""
SEGMENT_BYTES = 2**24
"""The approximate end of a segment, before compression: a store takes it in one request, and memory holds
it."""
_LONGEST_PAUSE_S = 60.0
"""While shipping fails. Otherwise the pause is a setting, `[log] every`; the back-off begins at twice
that."""
_AT_THE_END_S = 5.0


class Shipping:
    """Ships one daemon's log: `ship` again and again, `stop` at the end.

    Args:
        secrets: the values to keep out of messages.
        fenced: ends the daemon after another one's take-over; called on the thread.
    """

    def __init__(
        self,
        context: Context,
        secrets: Callable[[], tuple[str, ...]],
        fenced: Callable[[FencedError], None],
    ) -> None:
        self._context = context
        self._fenced = fenced
        self._epoch = 0
        self._secrets = secrets
        self._path = context.settings.paths.events_db
        self._spool = self._path.with_name(f"{self._path.name}-segment")
        self._one = threading.Lock()
        """Held during a pass: one under way when the daemon ends is not the last."""
        self._store: SegmentStore | None = None
        self._end: End | None = None
        self._unmerged = segments.MOST_SEGMENTS
        """The most segments that can be unmerged; unknown at first."""
        self._refused = ""
        self._current_at = time.monotonic()
        self._failures = 0
        self.pause_s = context.settings.log.every_s
        """The seconds until the next pass: [log] every, or more after failures."""

    @property
    def shipped(self) -> int | None:
        """The last event known to be in the store; None if none is, or the store was not asked yet."""
        end = self._end
        return end.link.seq if end is not None else None

    @property
    def problem(self) -> str:
        """Why the copy of the log is out of date, for people; "" if it is not."""
        settings = self._context.settings.log
        if not settings.ship:
            return ""
        if self._refused:
            return f"the log is not shipped: {self._refused}"
        behind_s = time.monotonic() - self._current_at
        if behind_s < max(BEHIND_S, 10 * settings.every_s):
            return ""
        return (
            f"the log's copy at {settings.ship} has been behind for {behind_s:.0f} s, at event {self.shipped or 0}; "
            "it goes on, a faster network or store would help"
        )

    async def ship(self) -> None:
        """Ship new events, on a thread."""
        await asyncio.to_thread(self._run)

    async def stop(self) -> None:
        """Ship the rest, for some seconds."""
        try:
            # This pass ships the events recorded during the one under way.
            await asyncio.wait_for(self.ship(), _AT_THE_END_S)
        except TimeoutError:
            log.warning("log_not_shipped_to_its_end", shipped=self.shipped)

    def _run(self) -> None:
        with self._one:
            settings = self._context.settings.log
            self._failures = 0 if self._pass(settings.ship) else self._failures + 1
            backoff = Backoff(2 * settings.every_s, _LONGEST_PAUSE_S)
            self.pause_s = backoff.wait_s(self._failures) if self._failures else settings.every_s

    def _pass(self, url: str) -> bool:
        """Ship new events; return whether that went well."""
        if not url:
            self._store, self._end, self._refused, self._current_at = None, None, "", time.monotonic()
            return True
        try:
            self._ship(url)
        except FencedError as error:
            self._refused = str(error)
            note_fenced(self._context.settings.paths, url, error)
            self._fenced(error)
            return False
        except (LogError, OSError) as error:
            # The next try asks the store for its end: the last segment may have arrived.
            self._end = None
            refused = redact(str(error), secrets=self._secrets())[:1000]
            if refused != self._refused:
                log.warning("log_not_shipped", reason=refused)
            self._refused = refused
            return False
        if self._refused:
            log.info("log_shipped_again", shipped=self.shipped)
        self._refused, self._current_at = "", time.monotonic()
        return True

    def _ship(self, url: str) -> None:
        if self._store is None or self._store.url != url:
            store = SegmentStore(url)
            self._epoch = epoch_of(store, self._context.settings.paths)
            self._store, self._end = store, None
        require_unfenced(self._store, self._epoch, self._path)
        end = self._end
        if end is None:
            self._store.clear()
            end = segments.end(self._store, self._path)
        self._end = end
        while (result := self._written(end)) is not None:
            require_unfenced(self._store, self._epoch, self._path)
            segment, end = result
            self._store.put(segment, self._spool)
            self._end = end
            self._spool.unlink()
            self._unmerged += 1
            log.debug("segment_shipped", segment=segment.name)
        if self._unmerged >= segments.MOST_SEGMENTS:
            self._merge(self._store)

    def _merge(self, store: SegmentStore) -> None:
        """Merge some of the oldest segments: one group a pass, as new events wait for it.

        The copy is whole without a merge. A failure, as in a store that denies removal, is logged; the next
        try comes after as many segments again.
        """
        may = partial(require_unfenced, store, self._epoch, self._path)
        try:
            there = len(store.segments())
            if there < segments.MOST_SEGMENTS:
                self._unmerged = there
            elif not segments.merge(store, self._path, self._spool, epoch=self._epoch, may=may):
                self._unmerged = 0
        except FencedError:
            raise
        except (LogError, OSError) as error:
            self._unmerged = 0
            log.warning("segments_not_merged", reason=redact(str(error), secrets=self._secrets())[:1000])

    def _written(self, end: End) -> tuple[Segment, End] | None:
        return segments.write(self._path, end, self._spool, most_bytes=SEGMENT_BYTES, epoch=self._epoch)
