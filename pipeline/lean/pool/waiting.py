"""Who waits for a REPL process, and whose turn it is when one is free.

First come, first served, but where goal states lie counts. Whoever has states in the process that is free goes first.
Whoever has them in another one, which is busy, waits a moment for that: elsewhere they would have to be made again.
And nobody is overtaken more often than a few dozen times.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

PATIENCE_S = 0.1
_OVERTAKEN_AT_MOST = 32


class Home(Enum):
    """Where the goal states of somebody who waits lie."""

    NOWHERE = "nowhere"
    FREE = "in a process that is free"
    BUSY = "in a process that is busy"


W = TypeVar("W")


@dataclass(slots=True, eq=False)
class _Waiter(Generic[W]):
    turn: asyncio.Future[None]
    wanted: W
    owner: object | None
    since: float = field(default_factory=time.monotonic)
    overtaken: int = 0


class Line(Generic[W]):
    """The waiters, in the order in which they came. `W` is what each of them wants."""

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], _Waiter[W]] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def join(self, wanted: W, owner: object | None) -> asyncio.Future[None]:
        """Come last; the future is done when it is the owner's turn."""
        turn = asyncio.get_running_loop().create_future()
        self._waiters[turn] = _Waiter(turn, wanted, owner)
        return turn

    def leave(self, turn: asyncio.Future[None]) -> None:
        """Wait no more; who is not in the line is none of its business."""
        self._waiters.pop(turn, None)

    def wants_only(self, wanted: W) -> bool:
        """Say whether somebody waits, and everybody who does for just this."""
        waiting = [one for one in self._waiters.values() if not one.turn.done()]
        return bool(waiting) and all(one.wanted == wanted for one in waiting)

    def call(self, home: Callable[[object], Home]) -> bool:
        """Give the turn to whoever is next now that a process is free; False when nobody waits, or all have patience.

        `home`: where an owner's states lie.
        """
        for turn in [turn for turn in self._waiters if turn.done()]:
            del self._waiters[turn]
        chosen = self._next(home)
        if chosen is None:
            return False
        for one in self._waiters.values():
            if one is chosen:
                break
            one.overtaken += 1
        del self._waiters[chosen.turn]
        chosen.turn.set_result(None)
        return True

    def _next(self, home: Callable[[object], Home]) -> _Waiter[W] | None:
        now, found = time.monotonic(), None
        for one in self._waiters.values():
            if one.overtaken >= _OVERTAKEN_AT_MOST:
                return one
            lies = Home.NOWHERE if one.owner is None else home(one.owner)
            if lies is Home.FREE:
                return one
            if found is None and (lies is Home.NOWHERE or now - one.since >= PATIENCE_S):
                found = one
        return found

    def refuse(self, error: Callable[[], BaseException]) -> None:
        """Send everybody away with an error."""
        for turn in self._waiters:
            if not turn.done():
                turn.set_exception(error())
        self._waiters.clear()
