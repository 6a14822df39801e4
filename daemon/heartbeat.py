"""Whether the daemon is well, told to the service manager by the main loop and by nobody else.

A ping says: the loop turns, the store's writer answers, the control socket is served. Where one of these does not hold
no ping is sent, and the service manager ends the daemon and starts it again when its patience is over (WatchdogSec).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import structlog

from daemon.ledger import Ledger
from daemon.systemd import Notifier

Answer = TypeVar("Answer")

_BUSY_SHARE = 0.05
_BUSY_AT_MOST_S = 900.0

log = structlog.get_logger("daemon.heartbeat")


class Heartbeat:
    """Pings for the main loop.

    Args:
        serves: whether the control socket is served.
    """

    def __init__(self, notifier: Notifier, ledger: Ledger, *, serves: Callable[[], bool]) -> None:
        self._notifier = notifier
        self._ledger = ledger
        self._serves = serves
        self._said = ""

    async def beat(self) -> None:
        """Ping, if everything that the daemon rests on is well.

        Raises:
            StoreFailedError: the store has failed; the daemon stops.
        """
        await self.during(self._ledger.check())
        if not self._serves():
            self._not_well("the control socket is not served any more")
            return
        self._said = ""
        self._notifier.watchdog()

    async def during(self, step: Coroutine[Any, Any, Answer]) -> Answer:
        """Wait for a step of the loop; while the store's writer computes, the service manager hears so.

        A large commit may keep the writer longer than the watchdog has patience, and a daemon that is killed for it
        would begin it again for ever. A writer that hangs computes nothing.
        """
        interval_s = self._notifier.watchdog_interval_s
        if interval_s is None:
            return await step
        # The last ping may have been an interval ago, and two are all the patience that there is.
        look_s = interval_s / 4
        task = asyncio.ensure_future(step)
        began, spent_s = time.monotonic(), self._ledger.writer_cpu_s()
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=look_s)
                before_s, spent_s = spent_s, self._ledger.writer_cpu_s()
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
