"""The life of a job: real child processes that behave well and badly."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest

from daemon.jobs.engine import AttemptLostError, End, Order
from daemon.jobs.local import LocalAttempt, LocalEngine
from daemon.jobs.recovery import recover
from pipeline.jobs import checkout
from pipeline.jobs.child import Exit
from pipeline.jobs.kinds import Kind
from pipeline.jobs.specs import SorryToProve
from store.errors import LogError
from store.log.envelope import Appended
from store.log.log import Batch, EventLog
from store.view import queries
from store.view.rows import JobRow
from tests.support.daemon.bench import bench, until
from tests.support.daemon.deployment import Deployment, Parts
from tests.support.daemon.remote import Remote
from tests.support.events import BRANCH, REPOSITORY, attempt, declaration, place, scanned, sha
from tests.support.specs import search_spec


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Remote:
    """A repository with one commit, which no test of this module changes."""
    remote = Deployment(tmp_path_factory.mktemp("remote")).remote("demo")
    remote.commit("first", {"A.lean": "theorem a : True := by\n  sorry\n"})
    return remote


@pytest.fixture
def deployment(tmp_path: Path, remote: Remote) -> Deployment:
    deployment = Deployment(tmp_path)
    deployment.write(repos=[remote.path])
    return deployment


def run(deployment: Deployment, behave: str, *, kind: Kind = "scan", **limits: Any) -> JobRow:
    async def go() -> JobRow:
        async with bench(deployment, **limits) as b:
            return await b.run(b.due(behave, kind=kind))

    return asyncio.run(go())


def types(deployment: Deployment) -> list[str]:
    return [event.type for event in deployment.events() if event.stream.startswith(("job:", "repository:"))][
        3:
    ]


def attempt_folder(deployment: Deployment, behave: str, attempt: int = 1) -> Path:
    return deployment.folder / "state" / "jobs" / f"scan-{behave}" / str(attempt)


def children(deployment: Deployment, behave: str) -> list[int]:
    text = (attempt_folder(deployment, behave) / "stderr.log").read_text(encoding="utf-8")
    line = next((line for line in text.splitlines() if line.startswith("children")), "")
    return [int(word) for word in line.split()[1:]]


SCAN = scanned("A.lean", [declaration("a")], with_sorry=["a"])
SPOT = place(SCAN, SCAN.sorries[0], blob=sha("blob"))
SEARCH = search_spec(
    *(SorryToProve(sha(n)[:16], "A.lean", SPOT.blob, 0, 5, "a", "theorem", 0) for n in range(200)), sha=sha(1)
)


@dataclass
class Search:
    """An attempt that reports a failure for each sorry, without a pause, and then ends in the given way."""

    end: Exit
    says_so: bool
    pid: int = 1

    async def run(self, hear: Callable[[bytes], Awaitable[None]]) -> Exit:
        for number, one in enumerate(SEARCH.sorries):
            body = attempt(one.sorry, SPOT, commit=sha(1), outcome="exhausted")
            item = {
                "stream": f"repository:{REPOSITORY}",
                "event_id": str(UUID(int=number + 1)),
                "type": body.type,
                "schema_version": body.schema_version,
                "data": body.model_dump(mode="json"),
            }
            await hear(json.dumps({"line": "events", "events": [item]}).encode())
        if self.says_so:
            await hear(json.dumps({"line": "result", "summary": {}}).encode())
        return self.end

    async def stop(self, *, grace_s: float, first_alone: bool = False) -> None:
        pass

    async def close(self) -> End:
        return End(self.end, None, 0)


@pytest.mark.parametrize("killed", [False, True])
async def test_what_a_search_gave_up_is_recorded_before_the_end_of_its_job_in_few_transactions(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    search = Search(Exit(0, signal.SIGKILL if killed else None, 0), says_so=not killed)
    transactions: list[int] = []
    append_all = EventLog.append_all

    def counted(log: EventLog, batches: Sequence[Batch]) -> list[Appended | LogError]:
        transactions.append(len(batches))
        return append_all(log, batches)

    async def begins(_engine: LocalEngine, _order: Order, *, over: object) -> Search:
        return search

    monkeypatch.setattr(LocalEngine, "start", begins)
    monkeypatch.setattr(EventLog, "append_all", counted)
    async with bench(deployment) as b:
        job = b.due("search", kind="prove", job="prove-0000000000000000")
        b.runner.start(replace(job, repository=REPOSITORY, branch=BRANCH, sha=sha(1), spec=SEARCH))
        await until(lambda: not b.runner.running())
    sorries = [event.data["sorry"] for event in deployment.events("attempt_finished")]
    assert sorries == [one.sorry for one in SEARCH.sorries]
    last = deployment.events()[-1]
    assert last.type == ("job_failed" if killed else "job_succeeded"), last.data
    assert len(transactions) < 20


async def test_a_job_that_loses_one_machine_after_the_other_is_parked_with_the_reason(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspect = True

    async def lost(_attempt: LocalAttempt, _hear: object) -> Exit:
        raise AttemptLostError("node-1 was lost: it has not answered for 60 s", suspect=suspect)

    monkeypatch.setattr(LocalAttempt, "run", lost)
    rows = []
    async with bench(deployment, max_attempts=2) as b:
        for attempt in range(1, 5):
            suspect = attempt != 2  # as from a node that is drained
            rows.append(await b.run(b.due("hang", attempt=attempt)))
    *before, last = rows
    assert [row.state for row in before] == ["interrupted"] * 3
    assert (last.state, last.reason, last.retry_at) == ("failed", "nodes_lost", None)
    assert "2 times in a row, the last time so: node-1 was lost" in last.message
    assert "everlean jobs retry" in last.remedy


async def test_a_job_whose_inputs_cannot_be_looked_at_has_failed_and_says_so(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/the/inputs")

    async with bench(deployment) as b:
        monkeypatch.setattr("daemon.jobs.runner.contents", refused)
        due = b.due("succeed")
        b.runner.start(due)
        await until(lambda: not b.runner.running(), seconds=5)
        row = await b.row(due.job)
    assert (row.state, row.reason, row.attempt) == ("failed", "spawn", 1)


async def recovered(parts: Parts) -> int:
    paths = parts.settings.paths
    async with contextlib.aclosing(LocalEngine(paths, parts.git)) as engine:
        return await recover(store=parts.store, engine=engine, paths=paths)


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_s16_a_job_that_succeeds_has_both_ends_and_its_events_between_them(deployment: Deployment) -> None:
    row = run(deployment, "succeed")
    assert types(deployment) == ["job_started", "file_scanned", "commit_scanned", "job_succeeded"]
    assert row.state == "succeeded"
    assert row.summary == {"behaved": "succeed"}
    folder = attempt_folder(deployment, "succeed")
    assert not (folder / "staging").exists()
    assert "a stray print" in (folder / "stderr.log").read_text(encoding="utf-8")
    started, scanned = deployment.events("job_started", "commit_scanned")
    assert scanned.causation_id == started.event_id, "the job is the cause of what it recorded"
    assert scanned.correlation_id == "scan-succeed"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says what a process held")
async def test_the_memory_of_a_job_is_its_own_and_not_that_of_the_daemon_that_started_it(
    deployment: Deployment,
) -> None:
    ballast = b"x" * 2**28
    async with bench(deployment, forked=False) as b:
        rows = [await b.run(b.due(behave)) for behave in ("succeed", "fail")]
    assert [row.state for row in rows] == ["succeeded", "failed"]
    for row in rows:
        assert row.peak_rss_bytes is not None
        assert 2**20 < row.peak_rss_bytes < len(ballast)


def test_a_deterministic_failure_is_recorded_without_a_retry(deployment: Deployment) -> None:
    row = run(deployment, "fail")
    assert (row.state, row.reason, row.deterministic, row.retry_at) == ("failed", "broken_input", True, None)
    assert row.remedy == "mend it"


async def test_other_failures_are_tried_again_later_and_later_and_at_most_max_attempts_times(
    deployment: Deployment,
) -> None:
    async with bench(deployment, max_attempts=3) as b:
        for attempt in (1, 2, 3):
            await b.run(b.due("fail_for_now", attempt=attempt))
    first, second, third = deployment.events("job_failed")
    assert first.data["retry_at"] is not None
    assert second.data["retry_at"] is not None
    assert third.data["retry_at"] is None


def test_a_defect_in_a_job_is_recorded_as_a_crash(deployment: Deployment) -> None:
    row = run(deployment, "defect")
    assert (row.state, row.reason) == ("failed", "crashed")
    assert "boom" in row.message


@pytest.mark.parametrize(("behave", "said"), [("crash", "signal 11"), ("exit", "status 3")])
def test_a_crash_is_recorded_with_how_it_ended(deployment: Deployment, behave: str, said: str) -> None:
    row = run(deployment, behave)
    assert (row.state, row.reason) == ("failed", "crashed")
    assert said in row.message
    assert f"everlean jobs logs scan-{behave}" in row.remedy


def test_events_before_a_crash_stay_recorded_and_the_job_is_still_a_failure(deployment: Deployment) -> None:
    run(deployment, "crash_after_events")
    assert types(deployment) == ["job_started", "file_scanned", "commit_scanned", "job_failed"]


@pytest.mark.parametrize("behave", ["garbage", "forbidden", "forge"])
def test_a_job_that_says_what_it_must_not_is_ended_and_nothing_of_it_recorded(
    deployment: Deployment, behave: str
) -> None:
    started = time.monotonic()
    row = run(deployment, behave)
    assert (row.state, row.reason) == ("failed", "protocol")
    assert types(deployment) == ["job_started", "job_failed"]
    assert time.monotonic() - started < 30


async def test_what_waits_for_room_on_the_disk_is_not_ended_for_its_time_and_is_once_there_is_room(
    deployment: Deployment,
) -> None:
    async with bench(deployment, timeout_s=0.6) as b:
        room = b.parts.store.room
        room.lost("full", deployment.folder)
        b.runner.start(b.due("hang"))
        await until(lambda: b.runner.running()[0].pid)
        began = time.monotonic()
        await asyncio.sleep(1.6)  # more than twice its time
        assert b.runner.running()
        room.found(deployment.folder)
        await until(lambda: not b.runner.running())
        seconds, row = time.monotonic() - began, await b.row("scan-hang")
    assert (row.state, row.reason) == ("failed", "deadline")
    assert 1.6 < seconds < 10.0


@pytest.mark.parametrize("behave", ["hang", "stubborn"])
def test_a_deadline_kills_the_whole_family(
    deployment: Deployment, behave: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.jobs.runner._GRACE_S", 0.5)
    row = run(deployment, behave, timeout_s=5.0)
    assert (row.state, row.reason) == ("failed", "deadline")
    family = children(deployment, behave)
    assert len(family) == 2
    wait_until(lambda: not any(alive(pid) for pid in family))


def test_a_job_that_wants_more_memory_than_its_limit_fails_alone(deployment: Deployment) -> None:
    row = run(deployment, "memory", memory_bytes=2**29)
    assert (row.state, row.reason) == ("failed", "out_of_memory")
    assert "MemoryError" in row.message
    assert "a process of it reached its 0.5G" in row.message
    assert "raise [jobs] memory" in row.remedy


async def test_what_goes_wrong_while_its_worktree_is_taken_back_changes_no_job_s_end(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starts_nothing(_folder: Path) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(checkout, "remove_tree", starts_nothing)
    async with bench(deployment) as b:
        rows = [await b.run(b.due(behave, kind="prove")) for behave in ("environment", "fail")]
    assert [(row.state, row.reason) for row in rows] == [("succeeded", ""), ("failed", "broken_input")]


def test_compiled_files_that_a_commit_brings_along_are_in_no_jobs_worktree(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    forged = {".lake/build/lib/lean/Forged.olean": "whatever", "Forged.lean": "theorem forged : False\n"}
    remote.commit("forged", forged)
    deployment.write(repos=[remote.path])
    row = run(deployment, "environment", kind="prove")
    assert row.state == "succeeded"
    files = row.summary["files"]
    assert "Forged.lean" in files
    assert not [name for name in files if name.startswith(".lake")]


def test_c06_what_a_killed_daemon_left_is_ended_recorded_and_swept_by_the_next_one(
    deployment: Deployment,
) -> None:
    # The daemon is forked here, so that it can die as daemons die: at once, with a job running.
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):

            async def go() -> None:
                async with bench(deployment, forked=False) as b:
                    b.runner.start(b.due("stubborn"))
                    await asyncio.sleep(60)

            asyncio.run(go())
        os._exit(0)
    wait_until((attempt_folder(deployment, "stubborn") / "stderr.log").exists)
    wait_until(lambda: children(deployment, "stubborn"))
    orphan = int((attempt_folder(deployment, "stubborn") / "lock").read_text(encoding="ascii"))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    stale = deployment.folder / "state" / "cache" / "worktrees" / "old-1"
    stale.mkdir(parents=True)
    assert alive(orphan)

    async def next_start() -> tuple[int, JobRow]:
        async with deployment.opened() as parts:
            count = await recovered(parts)
            (row,) = await parts.store.ask(queries.jobs)
            return count, row

    count, row = asyncio.run(next_start())
    assert count == 1
    assert row.state == "interrupted"
    wait_until(lambda: not alive(orphan))
    assert not any(alive(pid) for pid in children(deployment, "stubborn"))
    assert not stale.exists()
    assert asyncio.run(next_start())[0] == 0


async def test_a_mirror_that_a_killed_daemon_had_only_begun_to_make_is_swept(deployment: Deployment) -> None:
    half = deployment.settings().paths.mirrors / "demo.git.4711.tmp"
    half.mkdir(parents=True)
    async with deployment.opened() as parts:
        result = await recovered(parts)
    assert result == 0
    assert not half.exists()


def test_c06_a_job_asks_to_die_with_its_daemon(deployment: Deployment) -> None:
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):

            async def go() -> None:
                async with bench(deployment, forked=False) as b:
                    b.runner.start(b.due("hang"))
                    await asyncio.sleep(60)

            asyncio.run(go())
        os._exit(0)
    wait_until((attempt_folder(deployment, "hang") / "stderr.log").exists)
    wait_until(lambda: children(deployment, "hang"))
    job = int((attempt_folder(deployment, "hang") / "lock").read_text(encoding="ascii"))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_until(lambda: not alive(job))
    for pid in children(deployment, "hang"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def test_c08_a_job_killed_while_it_writes_an_artifact_leaves_nothing_and_can_be_run_again(
    deployment: Deployment,
) -> None:
    """No trainer stands yet; a checkpoint will be staged as every artifact is (`Reporter.stage`)."""
    async with bench(deployment) as b:
        crashed = await b.run(b.due("crash_while_staging"))
        left = (attempt_folder(deployment, "crash_while_staging") / "staging").exists()
        again = await b.run(b.due("succeed", attempt=2))
    assert (crashed.state, crashed.reason) == ("failed", "crashed")
    assert "signal 9" in crashed.message
    assert not left
    assert again.state == "succeeded"
    assert types(deployment)[:2] == ["job_started", "job_failed"]


def test_c08_an_artifact_half_written_when_the_daemon_was_killed_is_swept_and_never_used(
    deployment: Deployment,
) -> None:
    """No trainer stands yet; a checkpoint will be staged as every artifact is (`Reporter.stage`)."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):

            async def go() -> None:
                async with bench(deployment, forked=False) as b:
                    b.runner.start(b.due("hang_while_staging"))
                    await asyncio.sleep(60)

            asyncio.run(go())
        os._exit(0)
    staging = attempt_folder(deployment, "hang_while_staging") / "staging"
    wait_until(lambda: staging.exists() and list(staging.iterdir()))
    (half,) = staging.iterdir()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert half.suffix == ".tmp"  # not under the name by which an event could cite it

    async def next_start() -> int:
        async with deployment.opened() as parts:
            return await recovered(parts)

    assert asyncio.run(next_start()) == 1
    assert not staging.exists()
    assert types(deployment) == ["job_started", "job_interrupted"]


async def test_old_job_folders_go_beyond_the_number_that_is_kept(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.jobs.recovery.KEPT", 2)
    async with bench(deployment) as b:
        for behave in ("fail", "defect", "succeed"):
            await b.run(b.due(behave))
    assert {folder.name for folder in (deployment.folder / "state" / "jobs").iterdir()} == {
        "scan-defect",
        "scan-succeed",
    }


def test_a_line_without_end_is_a_broken_protocol(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.jobs.child.LONGEST_LINE_BYTES", 1000)
    row = run(deployment, "endless")
    assert (row.state, row.reason) == ("failed", "protocol")
