"""Preempt a long job: at SIGTERM it saves its state and exits with a status of its own.

Around the part that can save, and inside it wherever the state can be resumed:

    with preemption.region():
        for step in steps:
            ...
            if preemption.wanted():
                save()
                raise preemption.Yielded(f"step {step} is saved")

Outside a region SIGTERM ends a job at once, which is harmless: it resumes from its last save. So does a second SIGTERM
inside one. If SIGTERM is not a job's (`pipeline.jobs.protocol.run_job`), as in a program that only uses these modules,
a region changes nothing.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STATUS = 75
"""EX_TEMPFAIL of sysexits.h: the work is saved, and the job shall be started again."""
CLEANUP_S = 10.0
"""Time for a process to clean up after SIGTERM; then SIGALRM kills it."""

_asked = False
_inside = False


class Yielded(SystemExit):
    """The job saved its state, described in `saved`, and ends. No error: nothing catches it on the way out."""

    def __init__(self, saved: str) -> None:
        super().__init__(STATUS)
        self.saved = saved


def arm() -> None:
    """Let SIGTERM end this process at once outside a region, and the second one inside a region."""
    global _asked, _inside
    _asked, _inside = False, False
    signal.signal(signal.SIGTERM, _end)


@contextmanager
def region(of_any: Callable[[bool], bool] = bool) -> Iterator[None]:
    """Turn SIGTERM into a request reported by `wanted`, until the end of the block. On the main thread.

    Args:
        of_any: returns whether the flag is set in any of the processes of the same work; each of them calls it.

    Raises:
        Yielded: the job was preempted, and the block came to its end.
    """
    global _inside  # noqa: PLW0603
    if signal.getsignal(signal.SIGTERM) is not _end:
        yield
        return
    _inside = True
    listen()
    try:
        yield
    finally:
        _inside = False
        signal.signal(signal.SIGTERM, _end)
    if of_any(wanted()):
        raise Yielded("this part is done")


def listen() -> None:
    """Reinstall our SIGTERM handler inside a region, after a library replaced it."""
    if _inside:
        signal.signal(signal.SIGTERM, _ask)


def wanted() -> bool:
    """Return whether the job was preempted."""
    return _asked


def _end(number: int, _frame: FrameType | None) -> None:
    # The exception may break a step of an event loop, and the loop's end would wait forever for it.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, CLEANUP_S)
    raise SystemExit(128 + number)


def _ask(number: int, frame: FrameType | None) -> None:
    global _asked  # noqa: PLW0603
    if _asked:
        _end(number, frame)
    _asked = True
