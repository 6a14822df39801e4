"""Measure how waiting jobs scale with slots, and the control plane's processor time for each job.

    python -m benchmarks.engines [--slots 1 2 4 8 16] [--waves 3] [--sorries 15] [--engines local launch ray]
        [--json FILE]

A whole daemon watches real git repositories, and its own scans find their sorries. Then it proves in three
times as many of them as there are slots, one job each: a process with a checkout, inputs and fifteen batches
of events that sleeps for thirty seconds (`benchmarks.engines_job`) in place of an endpoint (2 s an answer)
and a REPL (20 ms). The engines `local`, `launch` (a script that starts the command) and `ray` run the same,
one after the other; Ray's cluster is a head and two nodes, all of them processes of this machine.

Processor time is the kernel's count, of the daemon's own process, of git and its other children without jobs
(launchers and carriers among them), of the jobs, and of Ray's processes without the jobs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

import psutil

from benchmarks.store_bench import BenchmarkError, machine, say
from daemon.place.control_client import request
from daemon.settings import load
from pipeline.lean.toolchain.standins import SWITCH
from store.events.jobs import WorkPaused
from store.log.envelope import Expect, NewEvent, StoredEvent
from store.log.log import EventLog
from tests.support.daemon.cluster import NO_RAY, Cluster, launcher_settings
from tests.support.daemon.deployment import Deployment, LeanOfTests

Engine = Literal["local", "launch", "ray"]
NODES = 2
_PRELUDE = """
from dataclasses import replace
from pipeline.jobs.kinds import KINDS
KINDS["prove"] = replace(KINDS["prove"], module="benchmarks.engines_job")
"""
_PATIENCE_S = 600.0
_REST_S = 2.0
"""After this time without work everything belonging to it has ended."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amounts: `slots` of each stage, jobs for each slot, sorries (of two seconds each) of a job."""

    slots: tuple[int, ...] = (1, 2, 4, 8, 16)
    waves: int = 3
    sorries: int = 15


@dataclass(frozen=True, slots=True)
class Stage:
    """The measurements of one stage: jobs per minute, and CPU milliseconds per job by process."""

    engine: Engine
    slots: int
    jobs: int
    per_minute: float
    job_s: float
    control_ms: float
    helpers_ms: float
    jobs_ms: float
    ray_ms: float
    load: float


@dataclass(frozen=True, slots=True)
class Used:
    """Processor seconds so far."""

    control: float
    children: float
    cluster: float

    @classmethod
    def now(cls, daemon: psutil.Process, cluster: Cluster | None) -> Used:
        """Read the seconds of the daemon and of the processes of a cluster."""
        own = daemon.cpu_times()
        control, children = own.user + own.system, own.children_user + own.children_system
        return cls(control, children, 0.0 if cluster is None else cluster.processor_s())


class Trial:
    """A daemon on one engine, with enough waiting proof jobs."""

    def __init__(
        self, engine: Engine, sizes: Sizes, folder: Path, lean: LeanOfTests, cluster: Cluster | None
    ) -> None:
        self.engine: Engine = engine
        self.sizes = sizes
        self.cluster = cluster
        self.deployment = Deployment(folder)
        self._lean = lean
        self._watched: list[Path] = []
        self._text = "".join(f"theorem t{at} : True := by\n  sorry\n\n" for at in range(sizes.sorries))
        self._write(1)
        paths = load(self.deployment.config).paths
        paths.state.mkdir(mode=0o700)
        with EventLog.open(paths.events_db) as log:
            paused = NewEvent("work", WorkPaused(work="prove", by="benchmark", reason=""))
            log.append([paused], expect={"work": Expect.ANY})

    def run(self) -> list[Stage]:
        """Run the stages in their order."""
        # Jobs are started as in production: their start is a part of the measurement.
        with self.deployment.daemon(
            environment=self._lean.environment, prelude=_PRELUDE, forked_jobs=False
        ) as process:
            ready = "daemon_ready" if self.cluster is None else "ray_cluster"
            self._wait(lambda: ready in self.deployment.log(), "the daemon and its cluster")
            result = [self._stage(slots, process) for slots in self.sizes.slots]
            process.terminate()
            process.wait(timeout=60)
        return result

    def _stage(self, slots: int, process: subprocess.Popen[bytes]) -> Stage:
        say(f"{self.engine}: {slots} slots")
        before = {event.seq for event in self._events("job_started")}
        for _ in range(slots * self.sizes.waves):
            # Each has one job, so that a stage has exactly this number.
            remote = self.deployment.remote(f"r{len(self._watched):03}")
            remote.commit("first", {"Waits.lean": self._text})
            self._watched.append(remote.path)
        self._write(slots)
        self._ask("/reload")
        daemon = psutil.Process(process.pid)
        scanned = len(self._watched)
        self._wait(lambda: len(self._events("job_succeeded", of="scan")) == scanned, "the scans")
        time.sleep(_REST_S)
        used = Used.now(daemon, self.cluster)
        self._ask("/resume", work="prove")
        self._wait(lambda: len(self._events("job_succeeded")) == scanned, "the jobs")
        time.sleep(_REST_S)
        now = Used.now(daemon, self.cluster)
        begun = [event for event in self._events("job_started") if event.seq not in before]
        jobs = {str(event.data["job"]) for event in begun}
        ended = [event for event in self._events("job_succeeded") if event.data["job"] in jobs]
        if len(ended) != len(begun):
            raise BenchmarkError(f"{len(begun) - len(ended)} of {len(begun)} attempts did not succeed")
        self._ask("/pause", work="prove", reason="the next repositories are scanned first")
        away = self.cluster is not None
        whole_s = (_at(ended[-1]) - _at(begun[0])).total_seconds()
        jobs_s = sum(float(event.data["summary"]["processor_s"]) for event in ended)
        here_s = now.children - used.children
        stage = Stage(
            engine=self.engine,
            slots=slots,
            jobs=len(ended),
            per_minute=60 * len(ended) / whole_s,
            job_s=sum(float(event.data["seconds"]) for event in ended) / len(ended),
            control_ms=1000 * (now.control - used.control) / len(ended),
            helpers_ms=1000 * (here_s - (0.0 if away else jobs_s)) / len(ended),
            jobs_ms=1000 * jobs_s / len(ended),
            ray_ms=1000 * (now.cluster - used.cluster - jobs_s) / len(ended) if away else 0.0,
            load=os.getloadavg()[0],
        )
        say(f"{stage}")
        return stage

    def _events(self, kind: str, *, of: str = "prove") -> list[StoredEvent]:
        """Return the events of a type about jobs of this kind."""
        return [event for event in self.deployment.events(kind) if event.data["job"].startswith(f"{of}-")]

    def _write(self, slots: int) -> None:
        extra = (
            f"{self._lean.settings}[jobs]\nmax_running = {slots + 1}\n"
            f"[prove]\nsorries_per_job = {self.sizes.sorries}\n"
        )
        if self.cluster is not None:
            extra += self.cluster.settings()
        elif self.engine == "launch":
            extra += launcher_settings(self.deployment.folder, lease_s=60.0)
        self.deployment.write(repos=self._watched, extra=extra)

    def _ask(self, route: str, **body: str) -> None:
        status, answer = request(load(self.deployment.config).paths, "POST", route, body, timeout_s=60.0)
        if status >= 300:
            raise BenchmarkError(f"{route}: {status} {answer}")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise BenchmarkError(
                    f"waited in vain for {what}; the daemon said:\n{self.deployment.log()[-3000:]}"
                )
            time.sleep(1.0)


def _at(event: StoredEvent) -> datetime:
    return datetime.fromisoformat(event.recorded_at)


def measure(sizes: Sizes, engines: Sequence[Engine]) -> list[Stage]:
    """Run all stages on each engine."""
    result: list[Stage] = []
    for engine in engines:
        if engine == "ray" and NO_RAY:
            say(NO_RAY)
            continue
        with tempfile.TemporaryDirectory(prefix="everlean-engines-") as scratch, ExitStack() as stack:
            folder = Path(scratch)
            lean = LeanOfTests.scripted(folder)
            cluster = None
            if engine == "ray":
                each = -(-max(sizes.slots) // NODES)
                cluster = stack.enter_context(
                    Cluster(folder / "cluster", nodes=NODES, slots=each, lease_s=60.0)
                )
            (folder / "daemon").mkdir()
            result += Trial(engine, sizes, folder / "daemon", lean, cluster).run()
    return result


def shown(stages: Sequence[Stage]) -> str:
    """Return a table of Markdown, one row a stage, with the ratios of the targets."""
    lines = [
        "| engine | slots | jobs | jobs/min | to one | s a job | control plane, ms a job | git | job | Ray | load |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for stage in stages:
        one = next(first.per_minute for first in stages if first.engine == stage.engine)
        lines.append(
            f"| {stage.engine} | {stage.slots} | {stage.jobs} | {stage.per_minute:.2f} "
            f"| {stage.per_minute / one:.2f} | {stage.job_s:.1f} | {stage.control_ms:.0f} | {stage.helpers_ms:.0f} "
            f"| {stage.jobs_ms:.0f} | {stage.ray_ms:.0f} | {stage.load:.1f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slots", type=int, nargs="+", default=[*Sizes().slots])
    parser.add_argument("--waves", type=int, default=Sizes().waves)
    parser.add_argument(
        "--sorries", type=int, default=Sizes().sorries, help="of a job; each takes two seconds"
    )
    parser.add_argument("--engines", nargs="+", choices=["local", "ray"], default=["local", "ray"])
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    os.environ[SWITCH] = "1"
    # Its daemon and its cluster end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    on = machine()
    stages = measure(Sizes(tuple(chosen.slots), chosen.waves, chosen.sorries), chosen.engines)
    print(shown(stages))
    if chosen.json is not None:
        chosen.json.write_text(
            json.dumps({"on": on, "stages": [asdict(stage) for stage in stages]}, indent=1)
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
