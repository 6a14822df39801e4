"""What each engine must do: real attempts of a job that behaves well and badly, on every engine that there is."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest

from daemon.jobs.engine import (
    Attempt,
    Commit,
    DiskRefusedError,
    Engine,
    Order,
    StartError,
)
from daemon.jobs.local import LocalEngine
from daemon.jobs.runner import last_words, make_folder
from daemon.place.paths import Paths
from daemon.polling.git import Git
from daemon.process.service import engine_of
from pipeline.jobs import preemption
from pipeline.jobs.child import Exit, LineTooLongError, kill_marked
from pipeline.jobs.protocol import JobSpec
from tests.support.daemon import warm
from tests.support.daemon.bench import bench, until
from tests.support.daemon.cluster import NO_RAY, Cluster, launcher_settings
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.job import Behaving
from tests.support.daemon.nvml import FakeGpu, FakeNvml, gpus_of

Kind = Literal["local", "launch", "ray"]


class World:
    """A state folder with the mirror of a repository of one commit, and engines of one kind on it.

    Args:
        engine: its section of config.toml.
    """

    def __init__(self, deployment: Deployment, engine: str, commit: Commit) -> None:
        self.deployment = deployment
        self.paths: Paths = deployment.settings().paths
        self.worktrees = self.paths.worktrees
        self.commit = commit
        self.nvml = FakeNvml(FakeGpu("GPU-a"))
        self.extra = engine
        self._orders = 0

    @contextlib.asynccontextmanager
    async def engine(self, *, forked: bool = True) -> AsyncIterator[Engine]:
        gpus = gpus_of(self.paths.runtime / "gpus", self.nvml)
        git = Git(timeout_s=20.0)
        local = LocalEngine(self.paths, git, gpus=gpus)
        repository = self.deployment.folder / "remotes" / "demo"
        settings = self.deployment.write(repos=[repository], extra=self.extra)
        with warm.forked_jobs() if forked else contextlib.nullcontext():
            async with contextlib.aclosing(engine_of(settings, local, git)) as engine:
                yield engine

    def order(self, behave: str, *, commit: Commit | None = None, whole_bytes: int = 2**32) -> Order:
        """Return an attempt that will do so, with its folder made."""
        self._orders += 1
        repository, sha = self.commit.repository, self.commit.sha
        job = f"scan-{behave}"
        spec = JobSpec(
            job=job,
            kind="scan",
            attempt=self._orders,
            directory=self.paths.jobs / job / str(self._orders),
            parameters=Behaving(
                behave=behave,
                repository=repository,
                branch="main",
                sha=sha,
                base=None,
                include=("**/*.lean",),
                exclude=(),
            ),
        )
        make_folder(spec)
        return Order(spec, "tests.support.daemon.job", 2**31, whole_bytes, commit=commit, away=True)

    @contextlib.asynccontextmanager
    async def started(self, order: Order, *, forked: bool = True) -> AsyncIterator[Attempt]:
        """Start an attempt that uses less memory than it may, and close it."""
        async with self.engine(forked=forked) as engine:
            attempt = await engine.start(order, over=pytest.fail)
            try:
                yield attempt
            finally:
                await attempt.close()

    def run(self, order: Order) -> tuple[list[dict[str, Any]], Exit]:
        """Run an attempt to its end; return its lines and how it ended."""

        async def go() -> tuple[list[dict[str, Any]], Exit]:
            lines: list[dict[str, Any]] = []

            async def hear(raw: bytes) -> None:
                lines.append(json.loads(raw))

            async with self.started(order) as attempt:
                return lines, await attempt.run(hear)

        return asyncio.run(go())


@pytest.fixture(scope="module")
def polled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Deployment, Commit]:
    """A deployment that has polled the one commit of its one repository; what tests add, they add to its folders."""
    deployment = Deployment(tmp_path_factory.mktemp("polled"))
    remote = deployment.remote("demo")
    sha = remote.commit("first", {"A.lean": "theorem a : True := by\n  sorry\n"})
    deployment.write(repos=[remote.path])

    async def poll() -> str:
        async with deployment.opened() as parts:
            await parts.poller.poll(parts.repo)
            return parts.repo.key

    return deployment, Commit(asyncio.run(poll()), sha, built=False)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(
    params=[
        "local",
        "launch",
        pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.skipif(bool(NO_RAY), reason=NO_RAY)]),
    ]
)
def kind(request: pytest.FixtureRequest) -> Kind:
    param: Kind = request.param
    return param


@pytest.fixture
def world(polled: tuple[Deployment, Commit], kind: Kind, request: pytest.FixtureRequest) -> World:
    deployment, commit = polled
    extra = ""
    if kind == "launch":
        extra = launcher_settings(deployment.folder)
    elif kind == "ray":
        extra = request.getfixturevalue("cluster").settings()
    return World(deployment, extra, commit)


@pytest.fixture
def local(polled: tuple[Deployment, Commit]) -> World:
    return World(polled[0], "", polled[1])


async def deaf(_raw: bytes) -> None:
    """Hear a line and forget it."""


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def family(order: Order) -> list[int]:
    """The processes that an attempt started, by its log: one in its group, and one that left it."""
    text = order.spec.log.read_text(encoding="utf-8") if order.spec.log.exists() else ""
    lines = [line for line in text.splitlines() if line.startswith("children")]
    return [int(word) for line in lines for word in line.split()[1:]]


# ---- Lines, payloads, log


def test_lines_arrive_whole_and_in_the_jobs_order_and_then_the_end(world: World) -> None:
    lines, end = world.run(world.order("count"))
    assert [line["done"] for line in lines[1:-1]] == list(range(2000))
    assert all(len(line["note"]) == line["done"] * 7 % 600 for line in lines[1:-1])
    assert lines[-1]["line"] == "result"
    assert (end.status, end.signal) == (0, None)


async def test_a_payload_is_there_before_the_line_that_cites_it(world: World) -> None:
    order = world.order("succeed")
    result: list[str] = []

    async def hear(raw: bytes) -> None:
        for event in json.loads(raw).get("events", ()):
            if event["type"] == "file_scanned":
                payload = (order.spec.staging / event["data"]["scan"]["sha256"]).read_bytes()
                result.append(hashlib.sha256(payload).hexdigest())
                assert result[-1] == event["data"]["scan"]["sha256"]

    async with world.started(order) as attempt:
        await attempt.run(hear)
    assert len(result) == 1


def test_the_log_of_an_attempt_is_kept_after_its_end(world: World) -> None:
    order = world.order("defect")
    _, end = world.run(order)
    assert end.status == 1
    assert "a stray print of a library" in order.spec.log.read_text(encoding="utf-8")
    assert last_words(order.spec.log) == "RuntimeError: boom"


def test_a_line_beyond_the_bound_is_refused(world: World) -> None:
    with pytest.raises(LineTooLongError):
        world.run(world.order("far_too_long"))


async def test_an_attempt_whose_lines_are_refused_is_gone_once_it_is_closed(world: World) -> None:
    async def refuse(_raw: bytes) -> None:
        raise ValueError("no")

    async with world.started(world.order("hang")) as attempt:
        with pytest.raises(ValueError, match="no"):
            await attempt.run(refuse)
        assert alive(attempt.pid), "whoever started it decides when it is over"
        result = attempt.pid
    assert not alive(result)


# ---- The end


async def test_the_end_of_the_lines_is_not_the_end_of_the_attempt(world: World) -> None:
    order = world.order("close")
    begun = asyncio.Event()

    async def hear(_raw: bytes) -> None:
        begun.set()

    async with world.started(order) as attempt:
        whole = asyncio.create_task(attempt.run(hear))
        await begun.wait()
        await asyncio.sleep(0.3)
        assert not whole.done()
        await attempt.stop(grace_s=5.0)
        result = await whole
    assert result.status == 128 + signal.SIGTERM


def test_a_last_line_without_its_end_is_no_line(world: World) -> None:
    lines, end = world.run(world.order("unfinished"))
    assert [line["line"] for line in lines] == ["progress"]
    assert end.status == 0


async def test_an_attempt_that_ends_with_status_0_and_without_its_last_line_has_not_succeeded(
    tmp_path: Path, world: World
) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem a : True := by\n  sorry\n"})
    deployment.write(repos=[remote.path], extra=world.extra)
    async with bench(deployment) as b:
        row = await b.run(b.due("unfinished"))
    assert (row.state, row.reason) == ("failed", "crashed")
    assert "ended with status 0 and no last line" in row.message


@pytest.mark.parametrize(("first_alone", "saved"), [(True, "with its helper"), (False, "alone")])
async def test_a_soft_stop_lets_it_save_with_or_without_what_it_started(
    world: World, *, first_alone: bool, saved: str
) -> None:
    order = world.order("yield")
    works = asyncio.Event()

    async def hear(raw: bytes) -> None:
        if b"in the region" in raw:
            works.set()

    async with world.started(order) as attempt:
        whole = asyncio.create_task(attempt.run(hear))
        await works.wait()
        await attempt.stop(grace_s=10.0, first_alone=first_alone)
        end = await whole
    assert (end.status, end.signal) == (preemption.STATUS, None)
    assert last_words(order.spec.log) == f"preempted: {saved}"


async def test_an_attempt_ends_when_it_is_told_also_where_its_lines_are_not_taken(world: World) -> None:
    order = world.order("stubborn")

    async def stuck(_raw: bytes) -> None:
        await asyncio.Event().wait()

    async with world.started(order) as attempt:
        whole = asyncio.create_task(attempt.run(stuck))
        await until(lambda: len(family(order)) == 2)
        await attempt.stop(grace_s=0.2)
        pids = [attempt.pid, *family(order)]
        whole.cancel()
        end = (await attempt.close()).exit
        assert end is not None
    assert end.signal == signal.SIGKILL
    assert not any(alive(pid) for pid in pids)


async def test_closing_an_attempt_leaves_no_process_of_it_and_no_worktree(world: World) -> None:
    order = world.order("stubborn", commit=world.commit)
    async with world.engine() as engine:
        attempt = await engine.start(order, over=pytest.fail)
        whole = asyncio.create_task(attempt.run(deaf))
        await until(lambda: len(family(order)) == 2)
        assert list(world.worktrees.iterdir())
        before = time.monotonic()
        end = await attempt.close()
        assert end.exit == await whole
        assert end.exit.signal == signal.SIGKILL
        assert list(world.worktrees.iterdir()) == []
        pids, seconds = [attempt.pid, *family(order)], time.monotonic() - before
    assert not any(alive(pid) for pid in pids)
    assert seconds < 5, "it waits for nothing to save"


def test_what_a_killed_daemon_left_of_an_attempt_is_reaped(world: World) -> None:
    order = world.order("stubborn")
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):

            async def daemon() -> None:
                async with world.started(order, forked=False) as attempt:
                    await attempt.run(deaf)

            asyncio.run(daemon())
        os._exit(0)

    async def next_daemon() -> tuple[list[int], int, int]:
        await until(lambda: len(family(order)) == 2)
        os.kill(child, signal.SIGKILL)
        await asyncio.to_thread(os.waitpid, child, 0)
        left = [pid for pid in family(order) if alive(pid)]
        async with world.engine() as engine:
            first, second = await engine.reap(order.spec.directory), await engine.reap(order.spec.directory)
            # On another machine it ends by itself once it reads that it shall.
            await until(lambda: not any(alive(pid) for pid in left), seconds=40)
            return left, first, second

    left, first, second = asyncio.run(next_daemon())
    assert left, "something was left"
    assert first >= len(left) or world.extra
    assert second == 0
    assert not any(alive(pid) for pid in left)


async def test_one_that_holds_too_much_memory_is_told_of_once_and_goes_on_until_it_is_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.jobs.limits.LOOK_EVERY_S", 0.05)
    lines: list[str] = []
    async with world.engine() as engine:
        attempt = await engine.start(world.order("hang", whole_bytes=2**20), over=lines.append)
        whole = asyncio.create_task(attempt.run(deaf))
        await until(lambda: lines)
        await asyncio.sleep(0.2)
        assert not whole.done()
        end = await attempt.close()
        await whole
        seen_bytes = end.seen_bytes
    assert seen_bytes > 2**20
    assert len(lines) == 1
    assert lines[0].startswith("with all that it started it held ")


# ---- The beginning


def test_an_attempt_has_the_files_of_its_commit_and_no_secret_of_the_daemon(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = (
        "EVERLEAN_GITHUB_TOKEN",
        "EVERLEAN_MODEL_KEY",
        "CREDENTIALS_DIRECTORY",
        "AWS_SECRET_ACCESS_KEY",
    )
    for name in (*secrets, "NOTIFY_SOCKET"):
        monkeypatch.setenv(name, "canary")
    order = world.order("environment", commit=world.commit)
    lines, _ = world.run(order)
    about = lines[-1]["summary"]
    assert [name for name in about["files"] if name.endswith(".lean")] == ["A.lean"]
    assert order.spec.job in about["spec"]
    assert "canary" not in json.dumps(about), "neither in its environment nor in its specification"
    assert about["environment"]["CUDA_VISIBLE_DEVICES"] == "", "without a GPU of its own it sees none"
    assert about["environment"]["PATH"] == os.environ["PATH"]
    assert (about["stdin"], about["cwd"]) == ("", str(order.spec.directory))
    assert list(world.worktrees.iterdir()) == []


def _no_commit(world: World) -> Order:
    return world.order("hang", commit=Commit(world.commit.repository, "1" * 40, built=False))


def _no_build(world: World) -> Order:
    return world.order("hang", commit=Commit(world.commit.repository, world.commit.sha, built=True))


def _no_folder(world: World) -> Order:
    order = world.order("hang", commit=world.commit)
    order.spec.staging.rmdir()
    order.spec.directory.rmdir()
    return order


@pytest.mark.parametrize(("order", "reason"), [(_no_commit, "worktree"), (_no_build, "build_missing")])
def test_an_attempt_that_cannot_be_started_says_why_and_leaves_nothing(
    world: World, order: Callable[[World], Order], reason: str
) -> None:
    refused = refusal(world, order(world))
    assert refused.reason == reason
    assert str(refused)
    assert refused.remedy


def test_an_attempt_without_its_folder_is_not_started(local: World) -> None:
    refused = refusal(local, _no_folder(local))
    assert (refused.reason, bool(refused.remedy)) == ("spawn", True)


def test_a_disk_that_refuses_an_attempt_is_no_fault_of_the_job(
    local: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = local

    def full(_spec: object) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    order = world.order("hang", commit=world.commit)
    monkeypatch.setattr(JobSpec, "write", full)
    refused = refusal(world, order)
    assert isinstance(refused, DiskRefusedError)
    assert refused.folder == world.paths.jobs


def refusal(world: World, order: Order) -> StartError:
    async def go() -> StartError:
        async with world.engine() as engine:
            with pytest.raises(StartError) as refused:
                await engine.start(order, over=pytest.fail)
        return refused.value

    result = asyncio.run(go())
    assert not world.worktrees.exists() or list(world.worktrees.iterdir()) == []
    assert kill_marked(order.spec.directory) == 0
    return result


async def test_a_start_that_is_cancelled_once_the_process_exists_leaves_nothing(
    local: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the daemon does with what is not over when its time to stop is; of the local engine, whose process it is."""
    world = local
    order = world.order("stubborn", commit=world.commit)
    begun: list[int] = []
    async with world.engine() as engine:
        starting = asyncio.create_task(engine.start(order, over=pytest.fail))

        def cancel(pid: int, *, memory_bytes: int) -> None:
            begun.append(pid)
            starting.cancel()

        monkeypatch.setattr("pipeline.jobs.child.hold_to", cancel)
        with pytest.raises(asyncio.CancelledError):
            await starting
    assert [alive(pid) for pid in begun] == [False]
    assert list(world.paths.worktrees.iterdir()) == []


# ---- Slots and GPUs


async def test_it_is_known_which_job_has_a_gpu(world: World) -> None:
    async with world.engine() as engine:
        await until(lambda: not engine.problem)
        (free,) = await engine.look({})
        (lent,) = await engine.look({free.uuid: "prove A.lean"})
        assert free.state == "free"
        assert engine.room in (None, 3)
        assert (lent.state, lent.detail) == ("lent", "prove A.lean")
