"""Starts the processes of one common training, each on a GPU of its own, as torchrun would.

A job with several GPUs starts its own program again for each and computes nothing meanwhile: it passes on the reports
of the first one, tells all to save at a preemption, and ends all if one fails (`pipeline.models.ranks`). torchrun's own
agent takes a process that has saved and ended for a failed one, and kills the others meanwhile.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from pipeline.jobs.child import DAEMON_PID, key_pipe
from pipeline.jobs.preemption import STATUS, Yielded
from pipeline.jobs.protocol import JobError, JobKey
from pipeline.jobs.spec import HUB_KEY
from pipeline.models.ranks import MEETING


def learn_together(count: int, spec: Path, report: Callable[[int, int, str], object]) -> None:
    """Run this job's program in several processes to their end.

    Args:
        count: at least two.
        spec: the job's specification, for all of them.
        report: takes (steps done, steps in all, a note).

    Raises:
        JobError: one of them failed; the others are ended.
        Yielded: they were preempted, and the run is saved.
    """
    ranks = _Ranks(report)
    before = signal.signal(signal.SIGTERM, ranks.tell)
    try:
        with ThreadPoolExecutor(count) as listeners:
            try:
                _start(ranks.processes, count, spec)
                if ranks.told:  # before all were there
                    ranks.send(signal.SIGTERM)
                for heard in as_completed([listeners.submit(ranks.hear, one) for one in ranks.processes]):
                    heard.result()
            finally:
                ranks.send(signal.SIGKILL)
    finally:
        signal.signal(signal.SIGTERM, before)
    ranks.raise_end()


class _Ranks:
    """The processes, and their reports."""

    def __init__(self, report: Callable[[int, int, str], object]) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self.told = False
        """Whether they have the order to save and end."""
        self._report = report
        self._failures: list[JobError] = []

    def send(self, number: int) -> None:
        for one in self.processes:
            one.send_signal(number)

    def tell(self, number: int, _frame: object) -> None:
        """Pass a SIGTERM on, once: the second one ends a job at once."""
        if self.told:
            raise SystemExit(128 + number)
        self.told = True
        self.send(number)

    def hear(self, one: subprocess.Popen[bytes]) -> None:
        """Read a process's lines to its end; if it failed, end the others, which would wait for it."""
        assert one.stdout is not None
        with one.stdout as lines:
            for raw in lines:
                if raw.endswith(b"\n"):  # else it was killed meanwhile
                    self._take(json.loads(raw))
        if one.wait() not in (0, STATUS):
            self.send(signal.SIGKILL)

    def _take(self, line: dict[str, Any]) -> None:
        if line["line"] == "progress":
            self._report(line["done"], line["total"], line["note"])
        elif line["line"] == "failure":
            reason, message, remedy = (line[name] for name in ("reason", "message", "remedy"))
            self._failures.append(
                JobError(reason, message, remedy=remedy, deterministic=line["deterministic"])
            )

    def raise_end(self) -> None:
        """Raise the common error unless all have done their work.

        Raises:
            JobError, Yielded, SystemExit: see `learn_together`; the last, preempted and not saved.
        """
        ends = [one.returncode for one in self.processes]
        ended_well = set(ends) <= {0, STATUS}
        if self.told and not ended_well:
            # A process ending without saving leaves the others a broken connection, which is no failure of the job.
            raise SystemExit(128 + signal.SIGTERM)
        if self._failures:
            # If one fails with a reason, the others may crash.
            raise min(self._failures, key=lambda failure: failure.reason == "crashed")
        if not ended_well:
            raise JobError(
                "crashed", f"of {len(ends)} processes that learned together one ended by itself: {ends}"
            )
        if STATUS in ends:
            raise Yielded(f"all {len(ends)} processes have saved")


def _start(processes: list[subprocess.Popen[bytes]], count: int, spec: Path) -> None:
    """Start the processes, each in the list at once."""
    environment = {
        # The hub's key goes by a pipe.
        **{name: value for name, value in os.environ.items() if name != HUB_KEY.variable},
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        MEETING: str(spec.with_name("ranks")),
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        # With this process they end, as it does with the daemon.
        DAEMON_PID: str(os.getpid()),
    }
    for rank in map(str, range(count)):
        with key_pipe(JobKey(os.environ.get(HUB_KEY.variable), hub=True)) as handed:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-P", "-m", "pipeline.models", "--spec", str(spec)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    env={**environment, **handed.variables, "RANK": rank, "LOCAL_RANK": rank},
                    pass_fds=handed.descriptors,
                )
            )
