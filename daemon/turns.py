"""The main loop: what is done in each turn, in which order, and what is wanted of the next one.

Signal handlers, watchers and events only say what is wanted; here it is done. What the parts are is `daemon.service`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from daemon.desk import Desk
from daemon.heartbeat import Heartbeat
from daemon.jumps import Jumps
from daemon.ledger import Ledger, StoreFailedError
from daemon.living import Living
from daemon.systemd import Notifier
from daemon.upkeep import Upkeep
from daemon.work import Work

_LOOP_S = 5.0
_SHORTEST_S = 0.1

log = structlog.get_logger("daemon.turns")


@dataclass(slots=True)
class Wanted:
    """What the next turn is to do."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    reload: bool = False
    plan: bool = True
    patches: set[str] = field(default_factory=set)
    """The proofs whose patches are to be written."""

    def reload_soon(self) -> None:
        """Read config.toml again."""
        self.reload = True
        self.wake.set()

    def plan_soon(self) -> None:
        """Make a plan, and begin what is due."""
        self.plan = True
        self.wake.set()


@dataclass(frozen=True, slots=True)
class Turns:
    """The loop and what it turns. `ending` says whether it is to end, `reload` takes up the configuration."""

    wanted: Wanted
    notifier: Notifier
    heart: Heartbeat
    ledger: Ledger
    jumps: Jumps
    work: Work
    desk: Desk
    upkeep: Upkeep
    living: Living
    reload: Callable[[], Awaitable[None]]
    ending: Callable[[], bool]

    async def run(self) -> None:
        """Turn until the end is wanted."""
        while not self.ending():
            pause = min(self.notifier.watchdog_interval_s or _LOOP_S, _LOOP_S, self.work.until_due_s())
            with contextlib.suppress(TimeoutError):
                # What is due and cannot be begun, for want of room, stays due: no reason to turn without a pause.
                async with asyncio.timeout(max(pause, _SHORTEST_S)):
                    await self.wanted.wake.wait()
            self.wanted.wake.clear()
            if self.ending():
                return
            try:
                await self.heart.beat()
                await self.heart.during(self._turn())
            except StoreFailedError:
                # The turn that follows says so and ends; where only room is missing, it says so and waits.
                self.wanted.plan = True

    async def _turn(self) -> None:
        wanted, jump = self.wanted, self.jumps.look()
        if jump is not None:
            log.warning("clock_jumped", set_s=round(jump.set_s), slept_s=round(jump.slept_s))
            wanted.plan = True
        if self.ledger.room.problem:
            wanted.plan = True
            self.notifier.status(self.living.sentence())
            return
        if wanted.reload:
            wanted.reload = False
            await self.reload()
        if wanted.patches:
            proofs, wanted.patches = frozenset(wanted.patches), set()
            await self.upkeep.write_patches(proofs)
        if wanted.plan or self.work.until_due_s() <= 0:
            wanted.plan = False
            # First, as what is to be learned next starts from the checkpoint in use.
            await self.upkeep.settle_models()
            await self.work.start_due()
            await self.desk.end_in_vain()
            self.notifier.status(self.living.sentence())
