"""Faults of a real cluster of Ray on this machine: nodes in processes, jobs that are deaf to the soft stop.

What is killed of a node is Ray's raylet and workers, with SIGKILL; the jobs there are left to end by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from daemon.paths import Paths
from store.log.envelope import StoredEvent
from tests.support.daemon import kills, warm, witness
from tests.support.daemon.bench import until
from tests.support.daemon.cluster import NO_RAY, CannotLinkError, Cluster, Link
from tests.support.daemon.deployment import Deployment, LeanOfTests
from tests.support.daemon.ray_faults import PATIENCE_S, POINTS, Ground, fact, ground, orphans
from tests.support.daemon.remote import Remote
from tests.support.lean.real_gate import TOOLCHAIN

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(NO_RAY), reason=NO_RAY),
    pytest.mark.timeout(7200),
]
JOB_EVENTS = ("file_scanned", "commit_scanned")


def assert_sound(deployment: Deployment, paths: Paths, seen: Path) -> list[StoredEvent]:
    """Nothing that was read before is lost, nothing is there twice, the view follows from the log."""
    events = kills.read(paths)
    assert kills.faults(events, before=[]) == []
    assert kills.open_attempts(events) == set()
    assert kills.differences(paths) == []
    assert witness.missing(seen, paths.events_db) == []
    arguments = ("db", "verify", "--config", str(deployment.config))
    done = warm.everlean(*arguments, environment=os.environ, folder=deployment.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return events


@pytest.mark.parametrize("rounds", [1, 20])
def test_a_node_that_is_killed_at_any_point_of_an_attempts_life_loses_and_doubles_nothing(
    tmp_path: Path, rounds: int
) -> None:
    """In each round one node dies with an attempt at every point; the next attempt is the daemon's own machine's, or
    another node's."""
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem a : True := by\n  sorry\n"})
    outcomes: Counter[str] = Counter()

    async def go(cluster: Cluster, paths: Paths) -> tuple[set[str], set[str], list[float]]:
        expected: set[str] = set()
        with witness.watching(paths.events_db, tmp_path / "seen"):
            async with ground(deployment, cluster) as g:
                for number in range(rounds):
                    jobs = {}
                    for place, point in enumerate(POINTS):
                        text = f"theorem a : {number} = {place} := by\n  sorry\n"
                        jobs[f"scan-{number:02}-{place:02}"] = point, remote.commit(point, {"A.lean": text})
                    await g.bench.observe()
                    elsewhere = await g.node((number + 1) % 3)
                    rows = await g.kill_at(jobs, node=number % 3)
                    for place, (job, (point, sha)) in enumerate(jobs.items()):
                        expected |= g.said_by(job, sha)
                        outcomes[f"{point}: {rows[job].state}"] += 1
                        if rows[job].state != "succeeded":
                            assert rows[job].state == "interrupted", (point, rows[job])
                            node = elsewhere if place == number % len(POINTS) else ""
                            g.start("stay_until_all_is_said", job=job, sha=sha, attempt=2, node=node)
                    again = {(await g.ended(job)).state for job in jobs}
                    assert again == {"succeeded"}
                await asyncio.sleep(2.0)  # the reader sees the end
                return expected, g.aims.acknowledged, g.orphaned_s

    with Cluster(tmp_path / "cluster", nodes=3, slots=len(POINTS), lease_s=120.0) as cluster:
        paths = deployment.write(repos=[remote.path], extra=cluster.settings()).paths
        expected, acknowledged, orphaned_s = asyncio.run(go(cluster, paths))
    events = assert_sound(deployment, paths, tmp_path / "seen")
    recorded = [fact(one.stream, one.data) for one in events if one.type in JOB_EVENTS]
    assert acknowledged <= set(recorded), "nothing that was acknowledged is lost"
    assert sorted(recorded) == sorted(expected), "once each, what jobs say that nothing happens to"
    measured = {"outcomes": outcomes, "seconds until no process of a job was left": orphaned_s}
    (tmp_path / "measured.json").write_text(json.dumps(measured, indent=1), "utf-8")


# ---- Nodes that are cut off, slow, full, or of another version


@dataclass
class Place:
    """A deployment on a cluster of two nodes, with a commit for each attempt."""

    deployment: Deployment
    remote: Remote
    cluster: Cluster
    commits: int = 0

    def commit(self) -> str:
        self.commits += 1
        text = f"theorem a : {self.commits} = {self.commits} := by\n  sorry\n"
        return self.remote.commit(f"c{self.commits}", {"A.lean": text})

    @contextlib.asynccontextmanager
    async def ground(self, *, lease_s: float) -> AsyncIterator[Ground]:
        """Open one, and look at what it leaves."""
        self.cluster.lease_s = lease_s
        paths = self.deployment.write(repos=[self.remote.path], extra=self.cluster.settings()).paths
        notes = self.deployment.folder / f"seen-{self.commits}"
        with witness.watching(paths.events_db, notes):
            async with ground(self.deployment, self.cluster) as g:
                yield g
            await asyncio.sleep(1.0)
        await asyncio.to_thread(assert_sound, self.deployment, paths, notes)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    deployment = Deployment(tmp_path_factory.mktemp("place"))
    with Cluster(deployment.folder / "cluster", nodes=2) as cluster:
        yield Place(deployment, deployment.remote("demo"), cluster)


def test_a_node_that_was_cut_off_for_longer_than_its_lease_appends_nothing_afterwards(place: Place) -> None:
    """All that Ray runs of it is frozen; the job goes on, and what it says is there when the node thaws."""
    cluster, sha = place.cluster, place.commit()

    async def go() -> None:
        async with place.ground(lease_s=15.0) as g:
            await g.bench.observe()
            frozen_at: list[float] = []

            def freeze() -> None:
                cluster.signal_ray(0, signal.SIGSTOP)
                frozen_at.append(time.monotonic())

            row = await g.at("after its first line", freeze, job="scan-cut", sha=sha, node=0)
            assert (row.state, "was lost" in row.reason) == ("interrupted", True), row
            g.start("stay_until_all_is_said", job="scan-cut", sha=sha, attempt=2, node=await g.node(1))
            assert (await g.ended("scan-cut")).state == "succeeded"
            await asyncio.sleep(max(0.0, frozen_at[0] + 2 * cluster.lease_s - time.monotonic()))
            before = kills.read(g.bench.parts.settings.paths)
            thawed_at = time.monotonic()
            cluster.signal_ray(0, signal.SIGCONT)
            await g.nothing_left(0, since=thawed_at)
            assert kills.read(g.bench.parts.settings.paths) == before
            # Ray has given the node up, and its processes end; started again, it works.
            await asyncio.to_thread(cluster.nodes[0].wait)
            await asyncio.to_thread(cluster.start_node, 0)
            g.start("succeed", job="scan-back", sha=sha, node=await g.node(0))
            assert (await g.ended("scan-back")).state == "succeeded"

    asyncio.run(go())


@pytest.fixture
def link() -> Iterator[Link]:
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(Link())
        except CannotLinkError as error:
            pytest.skip(f"no link that can be cut can be made here: {error}")
        yield made


def test_a_node_whose_link_is_cut_for_longer_than_its_lease_ends_its_job_and_appends_nothing_afterwards(
    tmp_path: Path, link: Link
) -> None:
    """Ray and the job go on at the other end; what they send does not arrive before the link is mended."""
    deployment = Deployment(tmp_path)
    with Cluster(tmp_path / "cluster", nodes=2, link=link) as cluster:
        place = Place(deployment, deployment.remote("demo"), cluster)
        sha = place.commit()

        async def go() -> None:
            async with place.ground(lease_s=15.0) as g:
                await g.bench.observe()
                cut_at: list[float] = []

                def cut() -> None:
                    link.cut()
                    cut_at.append(time.monotonic())

                row = await g.at("after its first line", cut, job="scan-cut", sha=sha, node=0)
                assert (row.state, "was lost" in row.reason) == ("interrupted", True), row
                # The node does that by itself, since nothing reaches it.
                await g.nothing_left(0, since=cut_at[0], kill_s=5.0)
                g.start("stay_until_all_is_said", job="scan-cut", sha=sha, attempt=2, node=await g.node(1))
                assert (await g.ended("scan-cut")).state == "succeeded"
                await asyncio.sleep(max(0.0, cut_at[0] + 2 * cluster.lease_s - time.monotonic()))
                before = kills.read(g.bench.parts.settings.paths)
                link.mend()
                # Ray has given the node up, and its processes end; started again, it works.
                await asyncio.to_thread(cluster.nodes[0].wait)
                assert kills.read(g.bench.parts.settings.paths) == before
                await asyncio.to_thread(cluster.start_node, 0)
                g.start("succeed", job="scan-back", sha=sha, node=await g.node(0))
                assert (await g.ended("scan-back")).state == "succeeded"

        asyncio.run(go())


def test_a_slow_node_keeps_its_attempts(place: Place) -> None:
    cluster, sha = place.cluster, place.commit()
    stop = threading.Event()

    def slow() -> None:
        while not stop.is_set():
            cluster.signal_ray(0, signal.SIGSTOP)
            time.sleep(0.5)
            cluster.signal_ray(0, signal.SIGCONT)
            time.sleep(0.2)

    async def go() -> None:
        async with place.ground(lease_s=30.0) as g:
            await g.bench.observe()
            slowing = threading.Thread(target=slow)
            try:
                row = await g.at(
                    "the process was started", slowing.start, job="scan-slow", sha=sha, node=0, stays=False
                )
            finally:
                stop.set()
                await asyncio.to_thread(slowing.join)
            assert row.state == "succeeded", row

    asyncio.run(go())


def test_a_node_whose_disk_is_full_fails_no_job_for_good(place: Place) -> None:
    """Its folder is a file system of its own that has no room left, before an attempt and in the middle of one."""
    cluster, shas = place.cluster, [place.commit(), place.commit()]
    folder = cluster.node_folder(0)
    folder.mkdir(exist_ok=True)
    mounted = ["mount", "-t", "tmpfs", "-o", "size=3g", "tmpfs", str(folder)]
    if subprocess.run(mounted, check=False, capture_output=True).returncode:
        pytest.skip("no file system of its own can be mounted here")

    def fill() -> None:
        used = shutil.disk_usage(folder).used
        subprocess.run(["mount", "-o", f"remount,size={used + 2**20}", str(folder)], check=True)

    async def go() -> None:
        async with place.ground(lease_s=30.0) as g:
            await g.bench.observe()
            row = await g.at("the process was started", fill, job="scan-0", sha=shas[0], node=0, stays=False)
            assert "No space left on device" in row.message, row
            assert (row.state, row.deterministic, bool(row.retry_at)) == ("failed", False, True)
            with contextlib.suppress(OSError), (folder / "filling").open("wb", buffering=0) as rest:
                while True:
                    rest.write(bytes(4096))
            node = next(one.node for one in g.nodes if one.report and one.report.folder == str(folder))
            g.start("stay_until_all_is_said", job="scan-1", sha=shas[1], node=node)
            row = await g.ended("scan-1")
            assert (row.state, "No space left on device" in row.reason) == ("interrupted", True), row
            other = await g.node(1)
            for job, sha in zip(("scan-0", "scan-1"), shas, strict=True):
                g.start("stay_until_all_is_said", job=job, sha=sha, attempt=2, node=other)
                assert (await g.ended(job)).state == "succeeded"
            await until(lambda: "MiB free" in g.problem(node) or "No space" in g.problem(node), 90)

    try:
        asyncio.run(go())
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_node_of_another_version_gets_no_job(place: Place, tmp_path: Path) -> None:
    about = tmp_path / "everlean-99.0.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text("Metadata-Version: 2.1\nName: everlean\nVersion: 99.0\n", encoding="utf-8")
    cluster = place.cluster
    cluster.environment["PYTHONPATH"] = str(tmp_path)
    number = len(cluster.nodes)
    place.commit()

    async def go() -> None:
        async with place.ground(lease_s=30.0) as g:
            await asyncio.to_thread(cluster.start_node, number)
            await g.node(1)
            folder = str(cluster.node_folder(number))

            def why() -> str:
                found = [one for one in g.nodes if one.report is not None and one.report.folder == folder]
                return "".join(g.problem(one.node) for one in found)

            await until(why, PATIENCE_S)
            assert "it has everlean 99.0" in why()
            assert "install the same version on both" in why()

    try:
        asyncio.run(go())
    finally:
        del cluster.environment["PYTHONPATH"]


# ---- The whole daemon


def project(number: int) -> dict[str, str]:
    """A commit with two sorries more."""
    return {
        "lean-toolchain": f"{TOOLCHAIN}\n",
        "lakefile.toml": 'name = "demo"\ndefaultTargets = ["Demo"]\n\n[[lean_lib]]\nname = "Demo"\n',
        "Demo.lean": "".join(f"import Demo.P{one}\n" for one in range(number + 1)),
        f"Demo/P{number}.lean": (
            f"theorem swap{number} (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  sorry\n\n"
            f"theorem wrong{number} : 17 * 17 = {number} := by\n  sorry\n"
        ),
    }


def found(paths: Paths) -> set[tuple[str, ...]]:
    """What the log says of commits, sorries and proofs, without when, where and at which of the commits."""
    named = {"commit_scanned": ("sha",)}
    events = [
        event
        for event in kills.read(paths)
        if event.type.startswith(("sorry_", "proof_", "attempt_")) or event.type in named
    ]
    return {
        (
            event.type,
            *(
                str(event.data.get(name))
                for name in named.get(event.type, ("sorry", "proof", "outcome", "declaration"))
            ),
        )
        for event in events
    }


@pytest.mark.usefixtures("real_lean")
def test_a_daemon_that_is_stopped_and_killed_and_loses_the_head_finds_what_one_without_faults_does(
    tmp_path: Path,
) -> None:
    lean = LeanOfTests.itself(tmp_path)
    settings = f'{lean.settings}[jobs]\nretry_base = "1s"\n'
    faults, calm = Deployment(tmp_path / "faults"), Deployment(tmp_path / "calm")
    for one in (faults, calm):
        one.folder.mkdir()
    remote = faults.remote("demo")
    tips = [remote.commit("c0", project(0))]
    lease_s = 20.0
    with Cluster(tmp_path / "cluster", nodes=2, lease_s=lease_s, environment=lean.environment) as cluster:
        extra = settings + cluster.settings()
        faults.write(repos=[remote.path], every="1s", slowest="1s", shutdown="30s", extra=extra)
        calm.write(repos=[remote.path], every="1s", slowest="1s", shutdown="30s", extra=settings)
        paths, calm_paths = faults.settings().paths, calm.settings().paths

        def on_nodes() -> list[int]:
            return [pid for number in range(2) for pid in orphans(cluster.node_folder(number))]

        def looked() -> int:
            """How often a daemon said which nodes there are."""
            return faults.log().count("ray_nodes") if (faults.folder / "daemon.log").exists() else 0

        def jobs_out(before: int) -> None:
            """A commit, of which something runs on a node."""
            faults.wait_for(lambda: looked() > before, what="the nodes", seconds=PATIENCE_S)
            tips.append(remote.commit(f"c{len(tips)}", project(len(tips))))
            faults.wait_for(on_nodes, what="a job on a node", seconds=PATIENCE_S)

        def worked_off(one: Deployment, process: subprocess.Popen[bytes]) -> None:
            of = one.settings().paths
            one.wait_for(lambda: kills.settled(of, tips[-1]), what=f"{len(tips)} commits", seconds=PATIENCE_S)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=40) == 0, one.log()

        def nothing_on_nodes() -> None:
            faults.wait_for(lambda: not on_nodes(), what="the end of the jobs on nodes", seconds=lease_s)

        with calm.daemon(environment=lean.environment) as process:
            worked_off(calm, process)
        with witness.watching(paths.events_db, tmp_path / "seen"):
            before = looked()
            with faults.daemon(environment=lean.environment) as process:
                jobs_out(before)
                process.send_signal(signal.SIGTERM)
                assert process.wait(timeout=40) == 0, faults.log()
                nothing_on_nodes()
            assert kills.open_attempts(kills.read(paths)) == set()
            before = looked()
            with faults.daemon(environment=lean.environment) as process:
                jobs_out(before)
                kills.kill(process)
                nothing_on_nodes()
            before = looked()
            with faults.daemon(environment=lean.environment) as process:
                jobs_out(before)
                cluster.kill_head()
                nothing_on_nodes()
                alone = "the daemon's work without a cluster"
                faults.wait_for(lambda: kills.settled(paths, tips[-1]), what=alone, seconds=PATIENCE_S)
                before = looked()
                cluster.start_head()
                for number in range(2):
                    cluster.nodes[number].wait(timeout=60)
                    cluster.start_node(number)
                jobs_out(before)
                worked_off(faults, process)
            time.sleep(1.0)  # the reader sees the end
    assert_sound(faults, paths, tmp_path / "seen")
    with calm.daemon(environment=lean.environment) as process:
        worked_off(calm, process)
    assert found(paths) == found(calm_paths)
