"""The locks of leased GPUs. The job takes them itself: the kernel releases them at its death, of whatever kind."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.jobs.protocol import JobError, JobSpec, Reporter
from store.files import HeldError, Lock, lock

PATIENCE_S = 15.0
"""The wait for a killed job still being torn down."""

_held: list[Lock] = []
"""Open until the end of the process, and not only of its module: until then it may still be on the GPU."""


def take(path: Path, *, patience_s: float = PATIENCE_S) -> Lock:
    """Acquire a GPU's lock, and write our process id into it.

    Raises:
        JobError: another process holds it; or the file cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        held = lock(path, wait_s=patience_s)
    except OSError as error:
        raise JobError(
            "gpu_lock",
            f"{path}: {error.strerror or error}",
            remedy="give the daemon's user write permission there",
        ) from error
    except HeldError as error:
        raise JobError(
            "gpu_taken",
            f"{path.stem} is {error} ({path})",
            remedy="nothing: it is tried again",
        ) from error
    held.leave_note(f"{os.getpid()}")
    return held


def arrive(words: Sequence[str]) -> bool:
    """Acquire the locks of the leased GPUs of the job with this command line; False: if refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", type=Path, required=True)
    spec = JobSpec.read(parser.parse_args(words).spec)
    try:
        _held.extend(map(take, spec.gpu_locks))
    except JobError as error:
        Reporter(spec, sys.stdout).failure(error)
        return False
    return True
