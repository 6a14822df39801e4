"""The main loop: the work of each turn, its order, and the requests for the next one.

Signal handlers, watchers and events only make requests; the loop does the work. `daemon.process.service`
makes the parts.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from daemon.http.control import ControlServer
from daemon.http.status import RuntimeStatus
from daemon.place.systemd import Notifier
from daemon.scheduling.maintenance import Maintenance
from daemon.scheduling.scheduler import Operator, Scheduler
from daemon.state.clock import ClockWatch
from daemon.state.context import Context
from daemon.state.store_service import StoreFailedError, StoreService

# ---- The watchdog: only the main loop reports the daemon's health to the service manager
# A ping means: the loop turns, the store's writer answers, the control socket is served. Otherwise no ping is
# sent, and the service manager restarts the daemon when its patience is over (WatchdogSec).


Answer = TypeVar("Answer")

_BUSY_SHARE = 0.05
_BUSY_AT_MOST_S = 900.0

log = structlog.get_logger("daemon.process.main_loop")


class Heartbeat:
    """Pings for the main loop."""

    def __init__(self, notifier: Notifier, store: StoreService, control: ControlServer) -> None:
        self._notifier = notifier
        self._store = store
        self._control = control
        self._said = ""

    async def beat(self) -> None:
        """Ping, if the store and the control socket are well.

        Raises:
            StoreFailedError: the store has failed; the daemon stops.
        """
        await self.during(self._store.check())
        if not self._control.serves:
            self._not_well("the control socket is not served any more")
            return
        self._said = ""
        self._notifier.watchdog()

    async def during(self, step: Coroutine[Any, Any, Answer]) -> Answer:
        """Wait for a step of the loop; while the store's writer computes, keep the service manager informed.

        A large commit may keep the writer longer than the watchdog has patience, and a daemon killed for it
        would begin it again for ever. A hung writer computes nothing.
        """
        interval_s = self._notifier.watchdog_interval_s
        if interval_s is None:
            return await step
        # The last ping may have been an interval ago, and the whole patience is two.
        look_s = interval_s / 4
        task = asyncio.ensure_future(step)
        began, spent_s = time.monotonic(), self._store.writer_cpu_s()
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=look_s)
                before_s, spent_s = spent_s, self._store.writer_cpu_s()
                if task.done():
                    break
                busy = spent_s - before_s >= _BUSY_SHARE * look_s
                if busy and time.monotonic() - began < _BUSY_AT_MOST_S:
                    self._notifier.watchdog()
                else:
                    self._not_well(
                        "a turn of the main loop does not end, and the store's writer does nothing"
                    )
        finally:
            task.cancel()
        return await task

    def _not_well(self, reason: str) -> None:
        if reason != self._said:
            self._said = reason
            log.error("not_well", reason=reason, remedy="the service manager starts the daemon again")
            self._notifier.status(f"NOT WELL: {reason}")


_LOOP_S = 5.0
_SHORTEST_S = 0.1


@dataclass(frozen=True, slots=True)
class MainLoop:
    """The loop and its parts. `reload` takes up the configuration."""

    context: Context
    notifier: Notifier
    heart: Heartbeat
    store: StoreService
    jumps: ClockWatch
    work: Scheduler
    desk: Operator
    upkeep: Maintenance
    living: RuntimeStatus
    reload: Callable[[], Awaitable[None]]

    async def run(self) -> None:
        """Turn until the end is requested."""
        while not self._ending():
            pause = min(self.notifier.watchdog_interval_s or _LOOP_S, _LOOP_S, self.work.until_due_s())
            with contextlib.suppress(TimeoutError):
                # Due jobs that cannot begin for want of room stay due: no reason to turn without a pause.
                async with asyncio.timeout(max(pause, _SHORTEST_S)):
                    await self.context.requests.wake.wait()
            self.context.requests.wake.clear()
            if self._ending():
                return
            try:
                await self.heart.beat()
                await self.heart.during(self._turn())
            except StoreFailedError:
                # The next turn reports it and ends; if only room is missing, it reports it and waits.
                self.context.requests.plan = self.context.requests.models = True

    def _ending(self) -> bool:
        if self.store.failure is not None:
            self.context.stop_reason = f"the store failed: {self.store.failure}"
        return bool(self.context.stop_reason)

    async def _turn(self) -> None:
        requests, jump = self.context.requests, self.jumps.look()
        if jump is not None:
            log.warning("clock_jumped", set_s=round(jump.set_s), slept_s=round(jump.slept_s))
            self.work.clock_set()
            requests.plan = True
        if self.store.room.problem:
            requests.plan = True
            self.notifier.status(self.living.sentence())
            return
        if requests.reload:
            requests.reload = False
            await self.reload()
        if requests.look:
            await self.work.look_around()
            requests.look = False  # not before: an event without room is looked for again
        if requests.doubts:
            requests.doubts = False
            await self.upkeep.settle_doubts()
        if requests.patches:
            proofs, requests.patches = frozenset(requests.patches), set()
            await self.upkeep.write_patches(proofs)
        if requests.plan or self.work.until_due_s() <= 0:
            requests.plan = False
            if requests.models:
                # First, since the next training starts from the checkpoint in use.
                requests.models = False
                await self.upkeep.settle_models()
            await self.work.start_due()
            await self.desk.end_in_vain()
            self.notifier.status(self.living.sentence())
