"""Room on the disk, once there was none: what waits for it, and when it is looked for again.

A full disk mends without us. Until then nothing is recorded and nothing is begun; what was under way waits with what it
has to say, and says it as soon as there is room. Owned by the ledger; see `daemon.ledger`.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from daemon.disk import FULL_BYTES

_FIRST_S = 1.0
_LONGEST_S = 60.0
_SOON_S = 120.0

log = structlog.get_logger("daemon.room")


def no_room(folder: Path) -> OSError | None:
    """Return why the disk takes no other file of a good size; None where it does: free bytes say nothing of quotas."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent  # to make it was what found no room
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, FULL_BYTES)
    except OSError as error:
        return error
    return None


def takes_some(folder: Path) -> bool:
    """Say whether the disk takes another file of a good size."""
    return no_room(folder) is None


class Room:
    """The folders that found none. `lost`, `found` and `look` are for the ledger's writer, the rest for the loop."""

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
        self._pause_s = _FIRST_S
        self._look_at = 0.0
        self._found_at = float("-inf")

    @property
    def problem(self) -> str:
        """What finds no room, for people; empty where there is some."""
        reasons = "; ".join([*self._full.values()])
        return f"nothing new is begun until there is room on the disk: {reasons}" if reasons else ""

    def lost(self, reason: str, folder: Path) -> None:
        """A write below `folder` found no room."""
        now = self._clock()
        if not self._full:
            # Room that was gone at once was not enough for what waits; to try each second would fill the log with
            # attempts.
            gone_at_once = now - self._found_at < _SOON_S
            self._pause_s = min(2 * self._pause_s, _LONGEST_S) if gone_at_once else _FIRST_S
            log.error("disk_full", reason=reason, looked_for_again_after_s=self._pause_s)
        self._full[folder] = reason
        self._look_at = now + self._pause_s

    def found(self, folder: Path) -> None:
        """A write below `folder` succeeded, or is expected to."""
        if self._full.pop(folder, None) is not None and not self._full:
            self._found_at = self._clock()
            log.info("disk_has_room_again")

    def look(self) -> list[Path]:
        """Return the folders for which there is room again: asks the disk, at most once a pause."""
        now = self._clock()
        if not self._full or now < self._look_at:
            return []
        self._look_at = now + self._pause_s
        return [folder for folder in list(self._full) if self._has_room(folder)]

    @property
    def waited_for(self) -> bool:
        """Whether something waits to be recorded."""
        return self._waiting > 0

    @property
    def moment(self) -> asyncio.Event:
        """What `regained` waits for; ask for it before the try that may fail, so that nothing is missed."""
        return self._again

    async def regained(self, moment: asyncio.Event) -> None:
        """Wait for the first `try_again` after `moment` was asked for."""
        self._waiting += 1
        try:
            await moment.wait()
        finally:
            self._waiting -= 1

    def try_again(self) -> None:
        """Have everything that waits try again."""
        before, self._again = self._again, asyncio.Event()
        before.set()
