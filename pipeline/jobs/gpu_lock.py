"""The lock of a leased GPU. The job takes it itself, so the kernel releases it when the job dies, however it dies."""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from pipeline.jobs.protocol import JobError, JobSpec, Reporter

PATIENCE_S = 15.0
"""How long a job waits for one before it, which was killed and is still being taken apart."""

_held: list[IO[str]] = []
"""Open until the process is gone, and not only its module: until then it may still be on the GPU."""


def take(lock: Path, *, patience_s: float = PATIENCE_S) -> IO[str]:
    """Lock the file, and write our process id into it; the lock lasts as long as the file stays open.

    Raises:
        JobError: another process has it, and keeps it; or the file cannot be made.
    """
    deadline = time.monotonic() + patience_s
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a+", encoding="ascii")
    except OSError as error:
        raise JobError(
            "gpu_lock",
            f"{lock}: {error.strerror or error}",
            remedy="give the daemon's user write permission there",
        ) from error
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            file.seek(0)
            pid = file.read(20).strip() or "another process"
            file.close()
            raise JobError(
                "gpu_taken", f"{lock.stem} is held by {pid} ({lock})", remedy="nothing: it is tried again"
            ) from error
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def arrive(words: Sequence[str]) -> bool:
    """Acquire the lock of the job whose command line has these words, if it leases a GPU; False: refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", type=Path, required=True)
    spec = JobSpec.read(parser.parse_args(words).spec)
    try:
        if spec.gpu_lock is not None:
            _held.append(take(spec.gpu_lock))
    except JobError as error:
        Reporter(spec, sys.stdout).failure(error)
        return False
    return True
