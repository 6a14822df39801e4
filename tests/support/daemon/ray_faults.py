"""Bring attempts on a node of a cluster to named points of their lives, and kill the node there.

async with ground(deployment, cluster) as g:
    jobs = await g.kill_at(POINTS, node=0)        # a job for each point: what the log says of its attempt
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from unittest import mock

import psutil

from daemon.jobs.engine import Order
from daemon.jobs.remote import RayEngine, RemoteAttempt
from daemon.jobs.wire import (
    Beat,
    Begin,
    Ended,
    FromDaemon,
    FromNode,
    NodeSeen,
    Payload,
    Plain,
    Started,
    Stop,
    Taken,
)
from pipeline.jobs.child import MARK
from pipeline.jobs.protocol import JobSpec, Reporter
from store.view.rows import JobRow
from tests.support.daemon.bench import Bench, bench, until
from tests.support.daemon.cluster import Cluster
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.job import Behaving, long_batch

PATIENCE_S = 300.0
_AT_ONCE = 3
"""So many attempts are started side by side: a worker of Ray takes a second of processor to start."""
_STOP, _SENT = "the stop was asked for", "the order was sent"
POINTS = {
    "before the order is sent": "stay",
    "an artifact is under way": "stay",
    "the process was started": "stay",
    "before its first line": "stay_before_the_first_line",
    "after its first line": "stay",
    "a payload is under way": "stay",
    "a line was sent and not taken": "stay",
    "a line was recorded and not acknowledged": "stay",
    "a line was acknowledged": "stay",
    "after its last line": "stay_after_the_last_line",
    "its exit was sent and not taken": "stay_until_all_is_said",
    _STOP: "stay",
    _SENT: "stay",
}
"""What has just happened, and how the job behaves that it happens to (`.job`)."""


class Aims:
    """At which point each job's attempt on a node is held, until `release`."""

    def __init__(self) -> None:
        self.points: dict[str, str] = {}
        """Of each job that is aimed at."""
        self.reached: set[str] = set()
        self.acknowledged: set[str] = set()
        """The facts of each line that a node was told was taken."""
        self.then: Callable[[str], object] = lambda job: None
        """Called with each job that reaches its point."""
        self.released = threading.Event()
        self.folder = Path()
        """The node's."""

    def at(self, job: str, point: str) -> bool:
        """Note that an attempt is at a point; return whether it is to be held there."""
        if self.points.get(job) != point or job in self.reached:
            return False
        self.reached.add(job)
        self.then(job)
        return not self.released.is_set()

    async def hold(self, job: str, point: str) -> None:
        """As `at`, and hold it there."""
        if self.at(job, point):
            await until(self.released.is_set, PATIENCE_S)

    def with_a_pipe_for(self, job: str, artifact: Path) -> None:
        """Put a pipe in an artifact's place until the release: the node waits for what it can read there."""
        point = "an artifact is under way"
        if self.points.get(job) != point or job in self.reached:
            return
        kept = artifact.with_suffix(".kept")
        artifact.rename(kept)
        os.mkfifo(artifact)

        def wait() -> None:
            seen: set[Path] = set()
            while not (now := {one for one in self.folder.rglob("pack/.*") if _is_empty(one)}) & seen:
                seen = now
                if self.released.wait(0.5):
                    break
            self.at(job, point)
            self.released.wait(PATIENCE_S)
            kept.rename(artifact)

        threading.Thread(target=wait, daemon=True).start()


def _is_empty(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except FileNotFoundError:
        return False


class _AimedAttempt(RemoteAttempt):
    """Says where it is, and is held there: the daemon then hears no more than that the node lives."""

    aims: Aims

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._recorded: set[str] = set()
        self._held = False
        self._later: list[FromNode] = []
        send = options.pop("send")
        super().__init__(*arguments, send=lambda message: self._sent(message, send), **options)

    def _at(self, point: str) -> None:
        if self.aims.at(self._spec.job, point):
            self._held = True
            self._letting_go = asyncio.create_task(self._let_go())

    def _sent(self, message: FromDaemon, send: Callable[[FromDaemon], None]) -> None:
        send(message)
        match message:
            case Begin():
                self._at(_SENT)
            case Stop():
                self._at(_STOP)
            case Taken(lines=1) if self._recorded:
                self.aims.acknowledged |= self._recorded
                self._recorded = set()
                self._at("a line was acknowledged")

    def _take(self, message: FromNode) -> None:
        match message:
            case Plain(what="line") if b'"line": "events"' in message.body:
                self._at("a line was sent and not taken")
            case Ended(what="ended"):
                self._at("its exit was sent and not taken")
        if (self._held or self._later) and not isinstance(message, Beat):
            self._later.append(message)
            return
        super()._take(message)
        match message:
            case Started():
                self._at("the process was started")
            case Plain(what="said") if b"children" in message.body:
                self._at("before its first line")

    async def _let_go(self) -> None:
        """Take what came while it was held, once that is over: it was under way when the node died."""
        await until(self.aims.released.is_set, PATIENCE_S)
        self._held = False
        while self._later and not self._is_closed:
            super()._take(self._later.pop(0))

    async def run(self, hear: Callable[[bytes], Awaitable[None]]) -> Any:
        async def hear_aimed(raw: bytes) -> None:
            await hear(raw)
            job = self._spec.job
            self._recorded = facts_of(raw)
            match json.loads(raw)["line"]:
                case "progress":
                    await self.aims.hold(job, "after its first line")
                case "events":
                    await self.aims.hold(job, "a line was recorded and not acknowledged")
                case "result":
                    await self.aims.hold(job, "after its last line")

        return await super().run(hear_aimed)

    def _taken(self) -> None:
        super()._taken()
        self._tell_taken()  # each by itself, so that the node can be killed right after it

    def _put(self, part: Payload) -> None:
        super()._put(part)
        if not part.last and self.aims.at(self._spec.job, "a payload is under way"):
            self.aims.released.wait(PATIENCE_S)


@contextlib.contextmanager
def _aimed(aims: Aims) -> Iterator[None]:
    begin, put = RayEngine._begin, RayEngine._put

    async def begin_aimed(self: RayEngine, order: Order, lease: str) -> Begin:
        await aims.hold(order.spec.job, "before the order is sent")
        return await begin(self, order, lease)

    async def put_aimed(self: RayEngine, order: Order) -> Any:
        packs, trees = await put(self, order)
        for pack in packs:
            aims.with_a_pipe_for(order.spec.job, Path(self._artifacts_url) / pack)
        return packs, trees

    attempt = type("_Aimed", (_AimedAttempt,), {"aims": aims})
    with (
        mock.patch("daemon.jobs.remote.RemoteAttempt", attempt),
        mock.patch.object(RayEngine, "_begin", begin_aimed),
        mock.patch.object(RayEngine, "_put", put_aimed),
    ):
        yield


def orphans(folder: Path) -> list[int]:
    """The processes of any attempt in the folder of a node."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            mark = process.environ().get(MARK, "")
            if mark and Path(mark).is_relative_to(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


@dataclass
class Ground:
    """A runner, its engine, and the cluster whose nodes are killed under it."""

    bench: Bench
    cluster: Cluster
    aims: Aims
    orphaned_s: list[float] = field(default_factory=list)
    """How long after each kill the last process of a job was gone."""

    @property
    def nodes(self) -> tuple[NodeSeen, ...]:
        """The nodes as the engine saw them last."""
        return cast(RayEngine, self.bench.engine)._nodes

    def problem(self, node: str) -> str:
        """Why a node gets no jobs."""
        return next((one.problem for one in self.bench.engine.now if one.id == node), "it is not there")

    async def node(self, number: int) -> str:
        """Wait until a node can work; return what it is named by."""
        engine = self.bench.engine
        folder = str(self.cluster.node_folder(number))
        deadline = time.monotonic() + PATIENCE_S
        while True:
            usable = {node.id for node in await engine.nodes({}) if node.id and not node.problem}
            for seen in self.nodes:
                if seen.node in usable and seen.report is not None and seen.report.folder == folder:
                    return seen.node
            assert time.monotonic() < deadline, f"node {number} gets no jobs: {engine.now}"
            await asyncio.sleep(0.05)

    def start(self, behave: str, *, job: str, sha: str, attempt: int = 1, node: str = "") -> None:
        """Begin an attempt."""
        self.bench.sha = sha
        self.bench.runner.start(self.bench.due(behave, attempt=attempt, job=job), None, node)

    async def at(
        self, point: str, then: Callable[[], object], *, job: str, sha: str, node: int, stays: bool = True
    ) -> JobRow:
        """Run an attempt on a node, do something once it is at a point, and return what the log says of it.

        Args:
            stays: whether the job goes on for ever once it has said all.
        """
        self.aims.points, self.aims.reached, self.aims.released = {job: point}, set(), threading.Event()
        self.aims.released.set()  # it is not held
        self.aims.then = lambda _job: then()
        behave = POINTS[point] if stays else "stay_until_all_is_said"
        self.start(behave, job=job, sha=sha, node=await self.node(node))
        row = await self.ended(job)
        assert job in self.aims.reached, (point, row)
        return row

    async def ended(self, job: str) -> JobRow:
        """Wait until an attempt is over; return what the log says of it."""
        await until(lambda: job not in {one.job for one in self.bench.runner.running()}, PATIENCE_S)
        return await self.bench.row(job)

    async def kill_at(self, jobs: dict[str, tuple[str, str]], *, node: int) -> dict[str, JobRow]:
        """Run an attempt of each job, hold it at its point, and kill the node; return what the log says of each.

        The node is started anew once nothing of them is left there.

        Args:
            jobs: the point of each, and the commit that it is about.
        """
        aims, runner = self.aims, self.bench.runner
        aims.points = {job: point for job, (point, _) in jobs.items()}
        aims.reached, aims.released = set(), threading.Event()
        aims.folder = self.cluster.node_folder(node)
        named = await self.node(node)
        (stopped,) = (job for job, (point, _) in jobs.items() if point == _STOP)
        (ordered,) = (job for job, (point, _) in jobs.items() if point == _SENT)
        struck: list[float] = []

        def then(job: str) -> None:
            if job == ordered:
                runner.preempt(stopped, "a test")
            elif job == stopped:
                self.cluster.signal_ray(node, signal.SIGKILL)
                struck.append(time.monotonic())
                aims.released.set()

        aims.then = then
        waiting = [job for job in jobs if job != ordered]
        coming: set[str] = set()
        deadline = time.monotonic() + PATIENCE_S
        while waiting or coming:
            saved = {job for job, live in runner._live.items() if live.saved}
            coming -= aims.reached | (saved & {stopped})
            if waiting and len(coming) < _AT_ONCE:
                job = waiting.pop(0)
                coming.add(job)
                self.start(POINTS[jobs[job][0]], job=job, sha=jobs[job][1], node=named)
            over = (set(jobs) - {ordered, *waiting}) - {one.job for one in runner.running()}
            assert not over, [(jobs[job][0], await self.bench.row(job)) for job in over]
            assert time.monotonic() < deadline, f"these never came: {[jobs[job][0] for job in coming]}"
            await asyncio.sleep(0.05)
        self.start(POINTS[_SENT], job=ordered, sha=jobs[ordered][1], node=named)
        await until(lambda: struck, PATIENCE_S)
        await self.nothing_left(node, since=struck[0])
        anew = asyncio.create_task(asyncio.to_thread(self.cluster.start_node, node))
        rows = {job: await self.ended(job) for job in jobs}
        await anew
        return rows

    async def nothing_left(self, node: int, *, since: float, kill_s: float = 0.0) -> None:
        """Wait until nothing of a job runs on a node, no longer than its lease, and what a kill after it takes."""
        while left := await asyncio.to_thread(orphans, self.cluster.node_folder(node)):
            took_s = time.monotonic() - since
            within_s = self.cluster.lease_s + kill_s
            assert took_s < within_s, f"processes of jobs on a node after the lease: {left}"
            await asyncio.sleep(0.05)
        self.orphaned_s.append(round(time.monotonic() - since, 2))

    def said_by(self, job: str, sha: str) -> set[str]:
        """What a job says that nothing happens to, as `facts` names it."""
        due = self.bench.due("stay", job=job)
        assert isinstance(due.spec, Behaving)
        folder = self.bench.parts.settings.paths.state / "said"
        spec = JobSpec(job, "scan", 1, folder, due.spec.model_copy(update={"sha": sha}))
        out = io.StringIO()
        reporter = Reporter(spec, out)
        reporter.events(long_batch(spec, reporter))
        return facts_of(out.getvalue())


def fact(stream: str, data: object) -> str:
    """Name what a job found out, without when and by which attempt."""
    return json.dumps([stream, data], sort_keys=True)


def facts_of(line: str | bytes) -> set[str]:
    """Name what a line of a job says that it found out."""
    return {fact(event["stream"], event["data"]) for event in json.loads(line).get("events", ())}


@contextlib.asynccontextmanager
async def ground(deployment: Deployment, cluster: Cluster, **limits: Any) -> AsyncIterator[Ground]:
    """Open one; `limits` are fields of [jobs]."""
    aims = Aims()
    with _aimed(aims):
        async with bench(deployment, **limits) as opened:
            yield Ground(opened, cluster, aims)
