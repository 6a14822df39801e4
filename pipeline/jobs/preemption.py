"""Preempt a long job: at SIGTERM it saves its state and exits with a status of its own.

Around the part that can save, and in it wherever everything is in a state that can be gone on from:

    with preemption.region():
        for step in steps:
            ...
            if preemption.wanted():
                save()
                raise preemption.Yielded(f"step {step} is saved")

Outside a region SIGTERM ends a job at once, which harms nothing either: it resumes from its last save. So does a
second SIGTERM inside one. Where SIGTERM is not a job's (`pipeline.jobs.protocol.run_job`), as in a program that only
uses these modules, a region changes nothing.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STATUS = 75
"""EX_TEMPFAIL of sysexits.h: what it did is saved, and it shall be started again."""
CLEANUP_S = 10.0
"""A process that SIGTERM ends may clean up for this long; SIGALRM kills it then."""

_asked = False
_inside = False


class Yielded(SystemExit):
    """The job has saved where it is, which `saved` says, and ends. No error: nothing catches it on the way out."""

    def __init__(self, saved: str) -> None:
        super().__init__(STATUS)
        self.saved = saved


def arm() -> None:
    """Let SIGTERM end this process at once, as jobs do outside a region."""
    global _asked, _inside  # noqa: PLW0603 - a signal is the whole process's
    _asked = _inside = False
    signal.signal(signal.SIGTERM, _end)


@contextmanager
def region() -> Iterator[None]:
    """Turn SIGTERM into a request that `wanted` reports, until the end of the block. On the main thread.

    Raises:
        Yielded: someone asked, and the block came to its end.
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
    if wanted():
        raise Yielded("this part is done")


def listen() -> None:
    """Reinstall our SIGTERM handler inside a region, after a library replaced it."""
    if _inside:
        signal.signal(signal.SIGTERM, _ask)


def wanted() -> bool:
    """Return whether this job was preempted."""
    return _asked


def _end(number: int, _frame: FrameType | None) -> None:
    # The exception may break a step of an event loop, whose end then waits for ever for what that step was to do.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, CLEANUP_S)
    raise SystemExit(128 + number)


def _ask(number: int, frame: FrameType | None) -> None:
    global _asked  # noqa: PLW0603
    if _asked:
        _end(number, frame)
    _asked = True
