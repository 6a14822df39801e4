"""The clocks of a daemon's process, set from outside: what it takes for the time of day jumps where a test says.

clock = Clock(tmp_path / "clock")
with deployment.daemon(prelude=clock.prelude) as process:
    clock.set_by(-3600)      # the clock is set back
    clock.sleep(8 * 3600)    # the lid is closed and opened again

What a process sees of a suspended machine is just that: afterwards the time of day and the clock that counts sleep are
hours on, and the monotonic clock is where it was. Covered: `time.time`, `datetime.now`, and `time.clock_gettime` of
these two clocks, in Python code of that one process. Not covered: its children, and the waiting itself.
"""

from __future__ import annotations

import datetime as dt
import mmap
import struct
import sys
import time
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

_OFFSETS = struct.Struct("dd")


class Clock:
    """A file with two offsets in seconds, which the process under test reads at every look at a clock."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._wall_s = self._always_s = 0.0
        self._write()

    @property
    def prelude(self) -> str:
        """What the process runs before all else."""
        return f"from tests.support.daemon.clock import install; install({str(self._file)!r})"

    def set_by(self, seconds: float) -> None:
        """Set the clock."""
        self._wall_s += seconds
        self._write()

    def sleep(self, seconds: float) -> None:
        """The machine sleeps for so long."""
        self._wall_s += seconds
        self._always_s += seconds
        self._write()

    def _write(self) -> None:
        # In one call and never shorter: the process has the file mapped.
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(_OFFSETS.pack(self._wall_s, self._always_s))


def install(file: str) -> None:
    """Make this process take its time from the file, from now on and in every module that is loaded."""
    with Path(file).open("rb") as opened:
        offsets = mmap.mmap(opened.fileno(), _OFFSETS.size, prot=mmap.PROT_READ)
    real_time, real_gettime, real = time.time, time.clock_gettime, datetime

    def wall_s() -> float:
        return float(_OFFSETS.unpack(offsets[:])[0])

    def gettime(clock: int) -> float:
        wall, always = _OFFSETS.unpack(offsets[:])
        shift = {time.CLOCK_REALTIME: wall, time.CLOCK_BOOTTIME: always}.get(clock, 0.0)
        return float(real_gettime(clock) + shift)

    class Meta(type):
        def __instancecheck__(cls, thing: object) -> bool:
            return isinstance(thing, real)

    class Shifted(datetime, metaclass=Meta):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            # A zone says itself what it makes of the moment.
            shift = timedelta(seconds=wall_s())
            return real.now() + shift if tz is None else (real.now(UTC) + shift).astimezone(tz)

    time.time = lambda: real_time() + wall_s()
    time.clock_gettime = gettime
    for module in [*sys.modules.values()]:
        if module is not dt and getattr(module, "datetime", None) is real:
            module.datetime = Shifted  # type: ignore[attr-defined] # whatever module it is
    dt.datetime = Shifted  # type: ignore[misc] # for what is imported from here on
