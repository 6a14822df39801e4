"""A repository leaves the watchlist while a job of it runs, and comes back: nothing is lost or done twice."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path

import psutil

from daemon.place.control_client import request
from store.view import queries
from store.view.rebuild import verify
from tests.support.daemon.deployment import Deployment

KEY = "local/remotes/demo"


def suspended(daemon: int, sha: str) -> psutil.Process | None:
    """The daemon's job on a commit, held where it is; None where there is none, or it had ended."""
    for child in psutil.Process(daemon).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            words = child.cmdline()
            if "--spec" in words and sha in Path(words[-1]).read_text("utf-8"):
                child.suspend()
                if child.status() == psutil.STATUS_STOPPED:
                    return child
    return None


def _end(job: psutil.Process) -> None:
    # Where the test failed: what sleeps does not hear that its daemon is gone.
    with contextlib.suppress(psutil.NoSuchProcess):
        job.kill()


def test_a_repository_that_leaves_the_watchlist_while_its_job_runs_has_it_ended_well_and_goes_on_when_it_is_back(
    tmp_path: Path,
) -> None:
    deployment = Deployment(tmp_path)
    remote, other = deployment.remote("demo"), deployment.remote("other")
    first = remote.commit("first", {"A.lean": "theorem one : 1 = 1 := by\n  sorry\n"})
    other.commit("first", {"B.lean": "theorem two : 2 = 2 := rfl\n"})
    settings = deployment.write(repos=[remote.path], every="1s", slowest="1s")

    def watch(process: subprocess.Popen[bytes], *repos: Path) -> None:
        deployment.write(repos=repos, every="1s", slowest="1s")
        process.send_signal(signal.SIGHUP)

    def scanned(sha: str) -> bool:
        return any(event.data["sha"] == sha for event in deployment.events("commit_scanned"))

    def mine() -> set[tuple[str, int]]:
        began = deployment.events("job_started")
        return {(one.data["job"], one.data["attempt"]) for one in began if one.data["repository"] == KEY}

    def ended_well() -> set[tuple[str, int]]:
        return {(one.data["job"], one.data["attempt"]) for one in deployment.events("job_succeeded")}

    # Jobs that are forks would have ended before they are held.
    with deployment.daemon(forked_jobs=False) as process, contextlib.ExitStack() as at_the_end:
        held: list[psutil.Process] = []
        commits = [first]

        def holds_one() -> bool:
            if scanned(commits[-1]):  # it was quicker than we are
                commits.append(remote.commit("again", {"notes.md": f"{len(commits)}\n"}))
            held.extend(filter(None, [suspended(process.pid, commits[-1])]))
            return bool(held)

        deployment.wait_for(holds_one, what="a job")
        (job,) = held
        at_the_end.callback(_end, job)
        watch(process, other.path)
        deployment.wait_for(
            lambda: deployment.events("repository_unwatched"), what="the watchlist without it"
        )
        pushed = remote.commit("meanwhile", {"C.lean": "theorem three : 3 = 3 := sorry\n"})
        later = other.commit("second", {"B.lean": "theorem two : 2 = 2 := by\n  rfl\n"})
        deployment.wait_for(lambda: scanned(later), what="the work of the others")
        status = request(settings.paths, "GET", "/status")[1]
        assert (KEY, job.pid) in [(one["repository"], one["pid"]) for one in status["jobs"]], "it goes on"
        assert not deployment.events("job_interrupted", "job_failed", "job_cancelled")
        job.resume()
        deployment.wait_for(lambda: scanned(commits[-1]), what="what the job found")
        assert pushed not in {event.data["sha"] for event in deployment.events("commit_observed")}
        watch(process, other.path, remote.path)
        deployment.wait_for(lambda: scanned(pushed), what="the commit that was pushed meanwhile")
        deployment.wait_for(lambda: mine() <= ended_well(), what="the end of its job")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    of_it = [event for event in deployment.events() if event.stream == f"repository:{KEY}"]
    assert [event.data["sha"] for event in of_it if event.type == "commit_scanned"] == [*commits, pushed]
    assert [event.type for event in of_it if event.type.startswith("repository_")] == [
        "repository_watched",
        "repository_unwatched",
        "repository_watched",
    ]
    assert len(mine()) == len(commits) + 1, "one for each commit, and each in its first attempt"
    assert mine() <= ended_well()
    view = queries.connect(settings.paths.database_db)
    try:
        rows = queries.sorries(view, repository=KEY)
        assert sorted((row.declaration, row.state) for row in rows) == [("one", "open"), ("three", "open")]
    finally:
        view.close()
    assert verify(settings.paths.events_db, settings.paths.database_db).differences == ()
