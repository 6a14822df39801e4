"""Kill the whole daemon, with SIGKILL, at the numbered crash points of jobs and polls, and start it again.

The daemon is the real one, in a process of its own that dies where the test says: one of its functions is
replaced by death. What C5 to C7 call "planned" is derived from the log here and stored nowhere
(`daemon.planning.plan`), and an attempt is recorded before its process exists; so each point is the moment that
corresponds. C8 is in test_jobs.py, C1 to C4, C9, C11 and C12 in tests/store/test_crash.py.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from daemon.settings import Settings
from pipeline.jobs.child import MARK
from store.log.envelope import StoredEvent
from store.view.rebuild import verify
from tests.support.daemon import warm
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.remote import Remote

LEAN = "theorem one : 1 = 1 := by\n  sorry\n"
PROGRAM = """
import os, pathlib, signal, sys
from daemon.polling.git import Git
from daemon.jobs.runner import JobRunner
from pipeline.jobs.child import JobProcess
from daemon.process.run import run

def die(*_arguments, **_options):
    os.kill(os.getpid(), signal.SIGKILL)

PLACE
sys.exit(run(pathlib.Path(sys.argv[1])))
"""


@pytest.fixture
def remote(deployment: Deployment) -> Remote:
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": LEAN})
    return remote


def run_until_killed(deployment: Deployment, place: str) -> None:
    """Start a daemon that dies at `place`, and wait for its death."""
    log = deployment.folder / "daemon.log"
    with warm.start(PROGRAM.replace("PLACE", place), str(deployment.config), output=log) as died:
        died.wait(timeout=60)
    assert died.returncode == -signal.SIGKILL, deployment.log()


def start_again(deployment: Deployment, settings: Settings, *, commits: int = 1) -> None:
    """Start the daemon as it is, let it do what is due, stop it; then nothing may be amiss or open."""
    with deployment.daemon() as process:
        deployment.wait_for(
            lambda: len(deployment.events("commit_scanned")) == commits, what="every commit's scan"
        )
        deployment.wait_for(lambda: not open_attempts(deployment), what="the end of every attempt")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    assert verify(settings.paths.events_db, settings.paths.database_db).differences == ()
    assert all(number == 1 for number in Counter(event.event_id for event in deployment.events()).values())


def open_attempts(deployment: Deployment) -> set[tuple[str, int]]:
    def attempts(*types: str) -> set[tuple[str, int]]:
        return {(event.data["job"], event.data["attempt"]) for event in deployment.events(*types)}

    return attempts("job_started") - attempts("job_succeeded", "job_failed", "job_interrupted")


def ends(deployment: Deployment) -> list[tuple[str, int]]:
    """What became of the attempts, in the log's order."""
    result = deployment.events("job_started", "job_succeeded", "job_failed", "job_interrupted")
    return [(event.type, event.data["attempt"]) for event in result]


def processes_of(settings: Settings, attempt: int) -> list[int]:
    """The processes, wherever they went, that were started for this attempt of any job."""
    result = []
    for process in psutil.process_iter():
        try:
            mark = process.environ().get(MARK, "")
        except (psutil.Error, OSError):
            continue
        folder = Path(mark)
        if mark and folder.is_relative_to(settings.paths.jobs) and folder.name == str(attempt):
            result.append(process.pid)
    return result


def test_c05_killed_before_a_due_job_is_recorded_it_is_started_once_by_the_next_daemon(
    deployment: Deployment, remote: Remote
) -> None:
    settings = deployment.write(repos=[remote.path])
    run_until_killed(deployment, "JobRunner.start = die")
    assert len(deployment.events("commit_observed")) == 1
    assert ends(deployment) == []
    start_again(deployment, settings)
    assert ends(deployment) == [("job_started", 1), ("job_succeeded", 1)]


def test_c05_killed_after_an_attempt_is_recorded_and_before_its_process_exists_it_is_picked_up_once(
    deployment: Deployment, remote: Remote
) -> None:
    settings = deployment.write(repos=[remote.path])
    run_until_killed(deployment, "JobProcess.start = die")
    assert ends(deployment) == [("job_started", 1)]
    start_again(deployment, settings)
    assert ends(deployment) == [
        ("job_started", 1),
        ("job_interrupted", 1),
        ("job_started", 2),
        ("job_succeeded", 2),
    ]


def test_c06_killed_right_after_the_spawn_the_child_is_gone_and_the_attempt_gets_a_new_number(
    deployment: Deployment, remote: Remote
) -> None:
    settings = deployment.write(repos=[remote.path])
    run_until_killed(
        deployment,
        """
spawn = JobProcess.start.__func__
async def start(cls, *arguments, **options):
    await spawn(cls, *arguments, **options)
    die()
JobProcess.start = classmethod(start)
""",
    )
    assert ends(deployment) == [("job_started", 1)]
    start_again(deployment, settings)
    assert ends(deployment)[1:] == [("job_interrupted", 1), ("job_started", 2), ("job_succeeded", 2)]
    assert processes_of(settings, 1) == []


def test_c07_killed_with_artifacts_staged_and_not_recorded_they_are_swept_and_the_work_is_done_once(
    deployment: Deployment, remote: Remote
) -> None:
    settings = deployment.write(repos=[remote.path])
    run_until_killed(deployment, "JobRunner._append = die")
    assert ends(deployment) == [("job_started", 1)]
    (staging,) = settings.paths.jobs.glob("*/1/staging")
    artifacts = [path for path in staging.iterdir() if len(path.name) == 64]
    assert artifacts  # complete, each under the hash of its content
    assert deployment.events("file_scanned", "commit_scanned") == []
    start_again(deployment, settings)
    assert not staging.exists()
    assert ends(deployment)[1:] == [("job_interrupted", 1), ("job_started", 2), ("job_succeeded", 2)]
    assert len(deployment.events("file_scanned")) == len(deployment.events("commit_scanned")) == 1


def test_c07_killed_with_artifacts_recorded_and_before_job_succeeded_the_work_is_not_done_again(
    deployment: Deployment, remote: Remote
) -> None:
    settings = deployment.write(repos=[remote.path])
    run_until_killed(deployment, "JobRunner._verdict = die")
    assert ends(deployment) == [("job_started", 1)]
    before = facts(deployment.events())
    start_again(deployment, settings)
    time.sleep(0.1)
    assert ends(deployment) == [("job_started", 1), ("job_interrupted", 1)]
    assert facts(deployment.events()) == before


def facts(events: list[StoredEvent]) -> list[str]:
    """The ids of what was learnt of the repository, which the log must hold once and in one order."""
    return [event.event_id for event in events if event.stream.startswith("repository:")]


def test_c10_killed_between_fetch_and_record_the_next_poll_sees_the_same_range_under_the_same_ids(
    tmp_path: Path, deployment: Deployment, remote: Remote
) -> None:
    settings = deployment.write(repos=[remote.path], every="1s")
    start_again(deployment, settings)
    twin = Deployment(tmp_path / "twin")
    twin.folder.mkdir()
    twin_settings = twin.write(repos=[remote.path], every="1s")
    start_again(twin, twin_settings)
    for number in range(3):
        remote.commit(f"c{number}", {"A.lean": f"-- {number}\n{LEAN}"})
    run_until_killed(
        deployment,
        """
fetch = Git.fetch
async def fetch_and_die(self, *arguments, **options):
    await fetch(self, *arguments, **options)
    die()
Git.fetch = fetch_and_die
""",
    )
    assert len(deployment.events("commit_observed")) == 1  # fetched, and not recorded
    start_again(deployment, settings, commits=4)
    start_again(twin, twin_settings, commits=4)
    observed = deployment.events("commit_observed")
    assert [event.data["subject"] for event in observed] == ["first", "c0", "c1", "c2"]
    assert [event.event_id for event in observed] == [e.event_id for e in twin.events("commit_observed")]
