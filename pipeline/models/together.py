"""The processes of a job with several GPUs, which learn together: the job itself, and its program again for each
further GPU.

Unlike torchrun's agent, which takes a process that has saved and ended for a failed one and kills the others meanwhile,
nothing stands between them: they agree on when to save (`pipeline.models.ranks`), so one SIGTERM is enough.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.jobs.child import DAEMON_PID, key_pipe
from pipeline.jobs.protocol import JobKey
from pipeline.jobs.spec import HUB_KEY
from pipeline.models.ranks import join, leave, start, stop


@contextmanager
def helped(count: int, spec: Path, device: str) -> Iterator[None]:
    """Be the first of several processes that learn together, to the end of the block; the others end with it.

    Args:
        count: of all, at least two.
        spec: the job's specification, for all.
        device: of the training.
    """

    def launch(environment: dict[str, str]) -> subprocess.Popen[bytes]:
        # The hub's key goes by a pipe.
        key = environment.pop(HUB_KEY.variable, None)
        with key_pipe(JobKey(key, hub=True)) as handed:
            return subprocess.Popen(
                # Its lines go to the job's log: standard output is that already (`run_job`).
                [sys.executable, "-P", "-m", "pipeline.models", "--spec", str(spec)],
                stdin=subprocess.DEVNULL,
                # With this process it ends, as this one does with the daemon.
                env={**environment, **handed.variables, DAEMON_PID: str(os.getpid())},
                pass_fds=handed.descriptors,
            )

    helpers: list[subprocess.Popen[bytes]] = []
    try:
        start(helpers, count, spec.with_name("ranks"), launch)
        join(device)
        yield
        leave()
    finally:
        stop(helpers)
