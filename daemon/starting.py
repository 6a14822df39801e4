"""A daemon that finds no room on its disk when it starts waits for it, says so, and goes on when there is some.

One that ended would be started again and again, until the service manager gives up. Room alone is waited for: a disk
that is read-only or fails is told at once. Nothing is ready meanwhile, and nothing listens: `unsorry status` says of
itself that the disk is full, the service manager is told that we wait.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import structlog

from daemon.ledger import Ledger, NoRoomError, StoreFailedError
from daemon.room import no_room
from daemon.systemd import Notifier
from store.log.errors import DatabaseFullError

_FIRST_S = 1.0
_LONGEST_S = 60.0
_SAID_EVERY_S = 5.0
_TURN_S = 0.5
_PATIENCE_S = 60.0
"""The service manager ends a start of which it hears nothing for so long."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})

Made = TypeVar("Made")

log = structlog.get_logger("daemon.starting")


class RoomToStart:
    """What one start waits for.

    Args:
        ending: whether somebody wants the end meanwhile.
        look: why a disk takes nothing (`daemon.room.no_room`).
    """

    def __init__(
        self,
        notifier: Notifier,
        *,
        ending: Callable[[], bool],
        look: Callable[[Path], OSError | None] = no_room,
    ) -> None:
        self._notifier = notifier
        self._ending = ending
        self._look = look
        self._pause_s = _FIRST_S
        self._said_at = float("-inf")

    async def outlasted(
        self, step: Callable[[], Awaitable[Made]], folder: Path, *refused: type[Exception]
    ) -> Made:
        """Take a step of the start, and take it again when there is room where there was none; return what it made.

        Args:
            folder: where it makes something.
            refused: how it fails where there is no room. What fails for another reason, fails as it does.
        """
        while True:
            try:
                return await step()
            except refused as error:
                if not await self.regained(folder, error):
                    raise

    async def regained(self, folder: Path, error: Exception) -> bool:
        """Wait until there is room where a step of the start failed; return whether it is worth another try.

        It is not where something else than room was missing, or where somebody wants the end.
        """
        if not (_is_for_room(error) or _is_for_room(await asyncio.to_thread(self._look, folder))):
            return False
        log.error("disk_full", reason=str(error), looked_for_again_after_s=self._pause_s)
        look_at = time.monotonic() + self._pause_s
        while not self._ending():
            self._say(str(error))
            await asyncio.sleep(_TURN_S)
            if time.monotonic() < look_at:
                continue
            look_at = time.monotonic() + self._pause_s
            if await asyncio.to_thread(self._look, folder) is None:
                # Room that is not enough is not asked for each second.
                self._pause_s = min(2 * self._pause_s, _LONGEST_S)
                log.info("disk_has_room_again")
                return True
        return False

    async def watch(self, ledger: Ledger) -> None:
        """Have what waits in the ledger for room go on when there is some, as the main loop will do later."""
        while True:
            await asyncio.sleep(_TURN_S)
            try:
                await ledger.check()
            except StoreFailedError:
                ledger.hurry()  # whoever waits meets the failure
                return
            if ledger.room.problem:
                self._say(ledger.room.problem)
                if self._ending():
                    ledger.hurry()

    def _say(self, reason: str) -> None:
        if time.monotonic() - self._said_at >= _SAID_EVERY_S:
            self._said_at = time.monotonic()
            self._notifier.starting(f"waits for room on the disk to start: {reason}", patience_s=_PATIENCE_S)


def _is_for_room(error: BaseException | None) -> bool:
    """Whether an error, or what led to it, is that a disk is full."""
    while error is not None:
        if isinstance(error, DatabaseFullError | NoRoomError):
            return True
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return True
        error = error.__cause__
    return False
