"""Jobs behind a launcher: what only that has. `test_engines.py` has what every engine must do."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from daemon.jobs.carrier import CONTROL, Carried, Control
from daemon.jobs.cluster import LAUNCHER_LOG, Launcher, RayTasks, cluster_engine
from daemon.jobs.engine import Attempt, AttemptLostError, Engine, Order
from daemon.jobs.local import LocalEngine
from daemon.jobs.runner import make_folder
from daemon.planning.admission import admit
from daemon.planning.plan import Plan
from daemon.polling.git import Git
from daemon.settings import ConfigError
from daemon.settings.schema import Engine as EngineSettings
from pipeline.jobs.child import job_environment
from pipeline.jobs.protocol import JobSpec
from pipeline.jobs.spec import KeyPlace
from tests.support.daemon.bench import bench, until
from tests.support.daemon.cluster import NO_RAY, Cluster, launcher_settings
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.job import Behaving


class Site:
    """A deployment whose jobs go behind a launcher, and the orders of attempts that behave as told."""

    def __init__(self, folder: Path, *, extra: str = "", lease_s: float = 8.0) -> None:
        self.deployment = Deployment(folder)
        self.remote = self.deployment.remote("demo")
        self.sha = self.remote.commit("first", {"A.lean": "theorem a : True := by\n  sorry\n"})
        self.extra = extra or launcher_settings(folder, lease_s=lease_s)
        self.settings = self.deployment.write(repos=[self.remote.path], extra=self.extra)

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[Engine]:
        paths, git = self.settings.paths, Git(timeout_s=20.0)
        local = LocalEngine(paths, git)
        async with aclosing(cluster_engine(self.settings.engine, local, paths=paths, git=git)) as engine:
            yield engine

    def order(self, behave: str) -> Order:
        directory = self.settings.paths.jobs / f"scan-{behave}" / "1"
        parameters = Behaving(
            behave=behave,
            repository="local/remotes/demo",
            branch="main",
            sha=self.sha,
            base=None,
            include=("**/*.lean",),
            exclude=(),
        )
        spec = JobSpec(f"scan-{behave}", "scan", 1, directory, parameters)
        make_folder(spec)
        return Order(spec, "tests.support.daemon.job", 2**31, 2**32, away=True)

    def run(self, order: Order) -> dict[str, object]:
        """Run an attempt to its end; return its result."""
        lines: list[bytes] = []

        async def hear(raw: bytes) -> None:
            lines.append(raw)

        async def go() -> None:
            async with self.engine() as engine:
                attempt = await engine.start(order, over=pytest.fail)
                await attempt.run(hear)
                await attempt.close()

        asyncio.run(go())
        summary: dict[str, object] = json.loads(lines[-1])["summary"]
        return summary


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def deaf(_raw: bytes) -> None:
    """Hear a line and forget it."""


def family(order: Order) -> list[int]:
    """The processes that an attempt started, by its log."""
    text = order.spec.log.read_text(encoding="utf-8") if order.spec.log.exists() else ""
    return [
        int(word) for line in text.splitlines() if line.startswith("children") for word in line.split()[1:]
    ]


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# ---- What is handed over


async def test_folders_of_jobs_may_be_links_to_a_disk_that_all_machines_see(tmp_path: Path) -> None:
    site, shared = Site(tmp_path), tmp_path / "shared"
    for folder in (site.settings.paths.jobs, site.settings.paths.inputs):
        folder.parent.mkdir(parents=True, exist_ok=True)
        (shared / folder.name).mkdir(parents=True)
        folder.symlink_to(shared / folder.name)
    async with bench(site.deployment) as b:
        reason = (await b.run(b.due("succeed", kind="train", job="train-1"))).reason
    assert reason == "protocol", "it ran to its end, and a training may not record a scan"
    assert (shared / "jobs" / "train-1" / "1" / CONTROL).is_file()


def with_gpus(order: Order, count: int) -> Order:
    """Return an order with so many GPUs of the launcher's."""
    return replace(
        order, spec=replace(order.spec, gpus=tuple(f"launcher-{number}" for number in range(count)))
    )


def test_a_launcher_is_told_what_the_job_needs_and_its_own_words_are_kept_apart(site: Site) -> None:
    for order in (site.order("succeed"), with_gpus(site.order("environment"), 2)):
        site.run(order)
        text = (order.spec.directory / LAUNCHER_LOG).read_text(encoding="utf-8")
        assert text == f"asked for gpus={len(order.spec.gpus)} memory=4096 scan {order.spec.job}\n"


def test_a_key_goes_by_standard_input_and_into_no_file_and_no_environment(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "canary-of-an-endpoint")
    order = replace(site.order("environment"), key=KeyPlace("", "MY_KEY"))
    about = site.run(order)
    files = [path for path in order.spec.directory.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"canary" in path.read_bytes()]
    environment = about["environment"]
    assert isinstance(environment, dict)
    assert "canary" not in json.dumps(about)
    assert any(name.endswith("KEY_PIPE") for name in environment), "it is there to be read once"


# ---- What ends an attempt


def end_of(
    site: Site, what: Callable[[Attempt, Order], Awaitable[None]]
) -> tuple[AttemptLostError, Order, str]:
    """Do something to an attempt that ignores SIGTERM; return how it was lost, and the engine's problem then."""
    order = site.order("stubborn")

    async def go() -> tuple[AttemptLostError, str]:
        async with site.engine() as engine, AsyncExitStack() as stack:
            attempt = await engine.start(order, over=pytest.fail)
            stack.push_async_callback(attempt.close)
            whole = asyncio.create_task(attempt.run(deaf))
            await until(lambda: len(family(order)) == 2)
            await what(attempt, order)
            with pytest.raises(AttemptLostError) as lost:
                await whole
            return lost.value, engine.problem

    lost, problem = asyncio.run(go())
    return lost, order, problem


def test_an_attempt_whose_launcher_is_killed_is_lost_and_ends_there(site: Site) -> None:
    async def kill(attempt: Attempt, _order: Order) -> None:
        os.kill(attempt.pid, signal.SIGKILL)

    lost, order, problem = end_of(site, kill)
    assert "launcher ended with signal 9" in str(lost)
    assert lost.suspect, "the job may be why"
    assert not problem
    deadline = time.monotonic() + 30
    while any(alive(pid) for pid in family(order)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in family(order))


async def test_an_attempt_that_does_not_hear_of_the_daemon_ends_by_itself(tmp_path: Path) -> None:
    site = Site(tmp_path, lease_s=5.0)
    order = site.order("stubborn")
    async with site.engine() as engine:
        attempt = await engine.start(order, over=pytest.fail)
        whole = asyncio.create_task(attempt.run(deaf))
        await until(lambda: len(family(order)) == 2)
        # As if the file were on a disk that this machine has lost.
        (order.spec.directory / CONTROL).unlink()
        (order.spec.directory / CONTROL).mkdir()
        with pytest.raises(AttemptLostError, match="did not hear of the daemon for 5 s") as lost:
            await asyncio.wait_for(whole, 60)
        assert not lost.value.suspect, "it is the file system's fault"
        await attempt.close()
    assert not any(alive(pid) for pid in family(order))


async def test_a_launcher_that_starts_nothing_is_asked_again_after_a_minute_and_the_job_is_not_at_fault(
    tmp_path: Path,
) -> None:
    words = json.dumps([sys.executable, "-c", "import sys; sys.exit('no such partition: lean')"])
    site = Site(tmp_path, extra=f"[engine]\nlaunch = {words}\n")
    async with bench(site.deployment) as b:
        due = b.due("succeed", kind="trace", job="trace-1")
        row = await b.run(due)
        assert (row.state, row.reason) == ("interrupted", row.reason)
        assert "no such partition: lean" in row.reason
        assert "no such partition: lean" in b.engine.problem
        plan, here = Plan.of([due]), Plan.of([b.due("succeed")])
        waits = admit(plan, running=(), max_running=3, no_cluster=b.engine.problem)
        assert waits.why(due) == b.engine.problem
        assert admit(here, running=(), max_running=3, no_cluster=b.engine.problem).start, "a scan stays"


async def test_what_a_dead_daemon_left_elsewhere_is_told_to_end_and_no_process_here_is_killed_for_its_number(
    site: Site,
) -> None:
    order = site.order("hang")
    order.spec.lock.write_text(str(os.getpid()), encoding="ascii")
    Control().write(order.spec.directory)
    async with site.engine() as engine:
        result = await engine.reap(order.spec.directory)
    assert result == 0
    control = Control.read(order.spec.directory)
    assert control is not None
    assert control.wish == "kill"


def script(folder: Path, text: str) -> str:
    """Write a launcher; return the section of config.toml."""
    launcher = folder / "launcher"
    launcher.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    launcher.chmod(0o755)
    return f"[engine]\nlaunch = {json.dumps([str(launcher)])}\n"


async def test_a_job_that_waits_for_a_machine_is_cancelled_at_once_and_its_launcher_is_asked_to_end(
    tmp_path: Path,
) -> None:
    text = "trap 'echo gave it back >&2; exit 1' TERM\nwhile :; do sleep 0.05; done"
    site = Site(tmp_path, extra=script(tmp_path, text))
    async with bench(site.deployment) as b:
        due = b.due("succeed", kind="trace", job="trace-1")
        b.runner.start(due)
        log = b.parts.settings.paths.jobs / "trace-1" / "1" / LAUNCHER_LOG
        await until(log.exists)
        await asyncio.sleep(0.5)  # until the script has its trap
        b.runner.cancel("trace-1", by="someone")
        await until(lambda: not b.runner.running(), seconds=15)
        assert (await b.row("trace-1")).state == "cancelled"
        assert "gave it back" in log.read_text(encoding="utf-8")
        assert not b.engine.problem, "the launcher is not at fault"


def test_what_a_launcher_says_before_the_job_and_after_it_is_no_line_of_the_job(tmp_path: Path) -> None:
    text = 'echo Welcome to the cluster; printf prompt; "$@"; echo Goodbye'
    site = Site(tmp_path, extra=script(tmp_path, text))
    assert "environment" in site.run(site.order("environment"))


def test_a_launcher_that_does_not_end_with_the_job_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.jobs.cluster._ENDS_S", 0.5)
    site = Site(tmp_path, extra=script(tmp_path, '"$@"\nexec sleep 600'))
    assert "environment" in site.run(site.order("environment"))


async def test_a_launcher_that_starts_nothing_is_at_fault_also_where_the_jobs_inputs_were_frozen_before(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, extra=script(tmp_path, "echo no such partition; exit 1"))
    order = site.order("succeed")
    order.spec.log.touch()
    async with site.engine() as engine:
        attempt = await engine.start(order, over=pytest.fail)
        with pytest.raises(AttemptLostError, match="no such partition") as lost:
            await attempt.run(deaf)
        await attempt.close()
        assert not lost.value.suspect
        assert "no such partition" in engine.problem


def test_what_the_daemon_sees_of_gpus_is_not_said_of_another_machine(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    environment = site.run(with_gpus(site.order("environment"), 1))["environment"]
    assert isinstance(environment, dict)
    assert "CUDA_VISIBLE_DEVICES" not in environment


def carrier(order: Order, *, lease_s: float) -> subprocess.Popen[bytes]:
    """Start a carrier whose lines nobody takes."""
    order.spec.write()
    given = Carried(
        module=order.module,
        directory=order.spec.directory,
        memory_bytes=order.memory_bytes,
        whole_bytes=order.whole_bytes,
        lease_s=lease_s,
        environment=job_environment(order.spec.directory),
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "daemon.jobs.carrier"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    with process.stdin as to:
        to.write(given.model_dump_json().encode())
    return process


def test_a_carrier_whose_lines_nobody_takes_ends_with_its_lease(site: Site) -> None:
    order = site.order("count")
    Control().write(order.spec.directory)
    with carrier(order, lease_s=2.0) as process:
        assert process.wait(60) == 0


def test_an_attempt_that_was_given_up_before_it_had_a_machine_does_not_begin(site: Site) -> None:
    order = site.order("succeed")
    Control(wish="kill").write(order.spec.directory)
    with carrier(order, lease_s=60.0) as process:
        assert process.stdout is not None
        assert process.stdout.read() == b""
        assert process.wait(60) == 0


def test_a_launcher_is_told_to_end_when_the_daemon_is_killed() -> None:
    program = (
        "import os, subprocess, sys, time; os.environ['EVERLEAN_DAEMON_PID'] = str(os.getpid());"
        "print(subprocess.Popen([sys.executable, '-P', '-m', 'daemon.jobs.tied', 'sh', '-c',"
        " 'echo runs; exec sleep 600']).pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        said = {daemon.stdout.readline().strip(), daemon.stdout.readline().strip()}
        daemon.kill()
    (pid,) = said - {"runs"}
    deadline = time.monotonic() + 30
    while alive(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(int(pid))


# ---- What there is to lease


async def test_gpus_that_are_lent_count_also_where_others_have_taken_some(site: Site) -> None:
    async with site.engine() as engine:
        states = [(one.uuid, one.state) for one in await engine.look({"launcher-3": "train"})]
        assert states == [("launcher-3", "lent")], "the one that there is; none is free beside it"


async def test_a_full_cluster_keeps_no_scan_waiting(tmp_path: Path) -> None:
    site = Site(tmp_path)
    async with bench(site.deployment) as b:
        trace, scan = b.due("succeed", kind="trace", job="trace-1"), b.due("succeed")
        result = admit(Plan.of([trace, scan]), running=["train"], max_running=3, room=1)
        assert result.start == (scan,)
        assert "room on the cluster" in (result.why(trace) or "")


def test_ray_s_own_jobs_and_other_people_s_are_told_apart(tmp_path: Path) -> None:
    ray = RayTasks(EngineSettings(kind="ray", address="10.0.0.5:6379"), tmp_path)
    launcher: Launcher = ray
    assert "was not yet looked at" in launcher.problem
    ray.note(attempts=2, gpus=1)
    ray._saw({"cpus": 8, "free_cpus": 3, "gpus": 4, "free_gpus": 1})  # others have three CPUs and two GPUs
    assert (launcher.problem, launcher.gpus, launcher.room) == ("", 2, 5)
    ray.note(attempts=0, gpus=0)
    ray._saw({"cpus": 8, "free_cpus": 0, "gpus": 0, "free_gpus": 0})
    assert "others use its 8 CPUs" in launcher.problem


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ('launch = ["srun", "--mem={megabytes}"]', "{memory}"),
        ('launch = ["srun", "{"]', "{memory}"),
        ('kind = "ray"', "needs an address"),
        ('kind = "ray"\naddress = "a:1"\nlaunch = ["srun"]', "keep one"),
    ],
)
def test_a_launcher_that_cannot_be_is_refused_with_its_line(tmp_path: Path, section: str, says: str) -> None:
    with pytest.raises(ConfigError, match=r"config.toml:\d+: engine") as refused:
        Site(tmp_path, extra=f"[engine]\n{section}\n")
    assert says in str(refused.value)


# ---- Ray itself


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(bool(NO_RAY), reason=NO_RAY)
def test_on_two_nodes_a_job_with_a_gpu_goes_where_one_is_and_one_whose_node_dies_is_begun_anew(
    tmp_path: Path,
) -> None:
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        site = Site(tmp_path, extra=cluster.settings())

        async def go() -> None:
            async with bench(site.deployment) as b:
                await until(lambda: not b.engine.problem, seconds=240)
                leases = await b.engine.look({})
                row = await b.run(b.due("succeed", kind="train", leases=leases, job="train-1"))
                assert row.reason == "protocol", "it ran to its end, and a training may not record a scan"
                hanging = b.due("hang", kind="trace", job="trace-1")
                b.runner.start(hanging)
                log = b.parts.settings.paths.jobs / "trace-1" / "1" / "stderr.log"
                await until(lambda: log.exists() and "children" in log.read_text(encoding="utf-8"))
                for number in range(2):
                    cluster.kill_node(number)
                await until(lambda: not b.runner.running(), seconds=240)
                assert (await b.row("trace-1")).state == "interrupted"

        asyncio.run(go())
