"""Trouble from outside that passes: clocks that jump, a laptop that sleeps, names that do not resolve, a token that is
revoked. `everlean status` reports each with its remedy, and none needs a restart of the daemon.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from daemon.place.control_client import request
from daemon.settings import load
from tests.support.daemon.clock import Clock
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.github import GitHubServer
from tests.support.daemon.remote import Remote

LEAN = "theorem one : 1 = 1 := by\n  sorry\n"
HOUR_S = 3600.0
NO_NAMES = """
import socket
from pathlib import Path

def getaddrinfo(host, *arguments, **options):
    if Path({down!r}).exists():
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    return look_up("127.0.0.1", *arguments, **options)

look_up, socket.getaddrinfo = socket.getaddrinfo, getaddrinfo
"""

Ask = Callable[[Deployment], dict[str, Any]]

pytestmark = pytest.mark.timeout(300)


def watched(deployment: Deployment, *, extra: str = "") -> Remote:
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": LEAN})
    deployment.write(repos=[remote.path], every="1s", slowest="1s", extra=extra)
    return remote


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0


def scanned(deployment: Deployment, tip: str) -> bool:
    return any(event.data["sha"] == tip for event in deployment.events("commit_scanned"))


def told(answer: dict[str, Any], code: str) -> dict[str, Any] | None:
    return next((problem for problem in answer["problems"] if problem["code"] == code), None)


@pytest.mark.slow
def test_the_clock_jumps_an_hour_back_and_forward_and_the_daemon_goes_on_in_its_rhythm(
    deployment: Deployment, status: Ask
) -> None:
    remote = watched(deployment)
    clock = Clock(deployment.folder / "clock")
    with deployment.daemon(prelude=clock.prelude) as process:
        deployment.wait_for(lambda: deployment.events("job_succeeded"), what="the first scan")
        for number, seconds in enumerate([-HOUR_S, HOUR_S, HOUR_S, -HOUR_S]):
            clock.set_by(seconds)
            deployment.wait_for(
                lambda n=number: deployment.log().count('"clock_jumped"') == n + 1,  # type: ignore[misc] # bound early
                what="the jump to be noticed",
            )
            tip = remote.commit(f"after jump {number}", {"A.lean": f"-- {number}\n{LEAN}"})
            deployment.wait_for(lambda t=tip: scanned(deployment, t), what="the next commit")  # type: ignore[misc] # bound early
            if number < 2:
                problem = told(status(deployment), "clock_set")
                assert problem is not None
                assert ("back" in problem["message"]) == (seconds < 0)
                assert problem["remedy"]
        assert process.poll() is None
        stop(process)
    assert deployment.events("job_failed", "repository_failed") == []


DAY_S = 24 * HOUR_S


@pytest.mark.harness
@pytest.mark.parametrize("begins", ["now", "in 1970"])
def test_however_far_the_clock_jumps_the_daemon_answers_at_once_and_grows_by_nothing(
    deployment: Deployment, begins: str, tell: Callable[[str, str], None]
) -> None:
    remote = watched(deployment)
    clock = Clock(deployment.folder / "clock")
    if begins == "in 1970":
        clock.set_by(-time.time() + 60)
    paths = load(deployment.config).paths
    with deployment.daemon(prelude=clock.prelude) as process:
        deployment.wait_for(lambda: deployment.events("job_succeeded"), what="the first scan")
        before = psutil.Process(process.pid).memory_info().rss
        for number, seconds in enumerate([180 * DAY_S, 10 * 365 * DAY_S, -DAY_S, -11 * 365 * DAY_S + DAY_S]):
            if begins == "in 1970" and seconds < -DAY_S:
                break  # no earlier: before 1970 there is no time
            clock.set_by(seconds)
            tip = remote.commit(f"after jump {number}", {"A.lean": f"-- {number}\n{LEAN}"})
            asked = time.monotonic()
            assert request(paths, "GET", "/health")[0] == 200
            assert time.monotonic() - asked < 2
            deployment.wait_for(lambda t=tip: scanned(deployment, t), what="the next commit")  # type: ignore[misc] # bound early
        grown = psutil.Process(process.pid).memory_info().rss - before
        assert grown < 10 * 2**20
        stop(process)
    assert deployment.events("job_failed", "repository_failed") == []
    tell(
        f"the clock set by days and years, begun {begins}",
        f"commits missed: 0; memory {grown / 2**20:+.1f} MB",
    )


@pytest.mark.slow
def test_a_laptop_that_slept_all_night_goes_on_with_its_job_and_polls_at_once(
    deployment: Deployment, status: Ask
) -> None:
    remote = watched(deployment, extra='[jobs]\ntimeout = "1h"\n')
    remote.commit(
        "long", {"Long.lean": "-- long\n" * 1_000_000}
    )  # the one job lasts long enough to be stopped
    text = deployment.config.read_text(encoding="utf-8").replace('slowest = "1s"', "")
    deployment.config.write_text(text.replace('every = "1s"', 'every = "10m"'), encoding="utf-8")
    clock = Clock(deployment.folder / "clock")
    with deployment.daemon(prelude=clock.prelude) as process:
        deployment.wait_for(lambda: job_processes(process.pid), what="a job")
        (job,) = job_processes(process.pid)
        job.suspend()
        pushed = remote.commit("in the evening", {"B.lean": "theorem two : 2 = 2 := sorry\n"})
        clock.sleep(8 * HOUR_S)
        deployment.wait_for(
            lambda: any(event.data["sha"] == pushed for event in deployment.events("commit_observed")),
            what="the poll that was due meanwhile",
        )
        problem = told(status(deployment), "machine_slept")
        assert problem is not None
        assert "8h" in problem["message"]
        assert problem["remedy"]
        # Eight times as long as its limit have passed, and it has all its time left.
        assert deployment.events("job_failed", "job_interrupted") == []
        job.resume()
        deployment.wait_for(lambda: len(deployment.events("job_succeeded")) == 2, what="both scans")
        stop(process)
    assert deployment.events("job_failed", "job_interrupted") == []


def job_processes(daemon: int) -> list[psutil.Process]:
    """The daemon's children that are jobs."""
    found = []
    for child in psutil.Process(daemon).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "--spec" in child.cmdline():
                found.append(child)
    return found


@pytest.mark.slow
def test_names_that_do_not_resolve_for_an_hour_are_a_problem_that_heals_by_itself(
    deployment: Deployment, status: Ask
) -> None:
    down = deployment.folder / "down"
    clock = Clock(deployment.folder / "clock")
    with GitHubServer() as github:
        remote = deployment.remote("demo")
        remote.commit("first", {"A.lean": LEAN})
        github.add("remotes/demo", remote.path)
        url = github.url.replace("127.0.0.1", "localhost")
        deployment.write(repos=[remote.path], every="1s", extra=f'[github]\napi_url = "{url}"\n')
        prelude = f"{clock.prelude}\n{NO_NAMES.format(down=str(down))}"
        # From the start: a connection that stands needs no name.
        down.touch()
        with deployment.daemon(prelude=prelude) as process:
            deployment.wait_for(lambda: deployment.events("repository_failed"), what="the failure")
            problem = told(status(deployment), "repository_unreachable")
            assert problem is not None
            assert "the daemon tries again" in problem["remedy"]
            tip = remote.commit("meanwhile", {"A.lean": f"-- more\n{LEAN}"})
            for _ in range(6):
                clock.sleep(HOUR_S / 6)
                time.sleep(0.6)
            assert len(deployment.events("repository_failed")) == 1  # one fact, however often it was tried
            down.unlink()
            # The wait between two tries has grown to an hour at most.
            clock.sleep(1.3 * HOUR_S)
            deployment.wait_for(lambda: scanned(deployment, tip), what="the commit, once names resolve")
            deployment.wait_for(lambda: deployment.events("repository_recovered"), what="the recovery")
            assert told(status(deployment), "repository_unreachable") is None
            stop(process)
    assert len(deployment.events("repository_failed")) == len(deployment.events("repository_recovered")) == 1
    assert len(deployment.events("daemon_started")) == 1


def test_a_revoked_token_is_told_and_a_new_one_in_its_file_is_picked_up(
    deployment: Deployment, status: Ask
) -> None:
    old, new = (f"ghp_{letter * 36}" for letter in "ab")
    token = deployment.folder / "token"
    write_secret(token, old)
    with GitHubServer(token=old) as github:
        remote = deployment.remote("demo")
        remote.commit("first", {"A.lean": LEAN})
        github.add("remotes/demo", remote.path, private=True)
        deployment.write(
            repos=[remote.path],
            every="1s",
            slowest="1s",
            extra=f'[github]\napi_url = "{github.url}"\nlocal_repositories = true\ntoken_file = "{token}"\n',
        )
        with deployment.daemon() as process:
            deployment.wait_for(lambda: deployment.events("job_succeeded"), what="the first scan")
            github.token = new  # the old one is revoked
            deployment.wait_for(lambda: deployment.events("repository_failed"), what="the refusal")
            problem = told(status(deployment), "repository_auth_failed")
            assert problem is not None
            assert "token" in problem["remedy"]
            tip = remote.commit("meanwhile", {"A.lean": f"-- more\n{LEAN}"})
            write_secret(token, new)
            deployment.wait_for(lambda: scanned(deployment, tip), what="the commit, with the new token")
            assert told(status(deployment), "repository_auth_failed") is None
            stop(process)
    assert len(deployment.events("daemon_started")) == 1
    assert old not in deployment.log()
    assert new not in deployment.log()


def write_secret(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
