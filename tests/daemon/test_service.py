"""The whole daemon as a process: start, watch, scan, reload, stop, be killed, start again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
from pathlib import Path

import psutil
import pytest

from daemon.place.control_client import ControlError, DaemonNotRunningError, request
from daemon.place.lock import holder
from daemon.settings import Settings
from store.view import queries
from store.view.rebuild import verify
from tests.support.daemon import warm
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.remote import Remote

LEAN = "theorem one : 1 = 1 := by\n  sorry\n"


@pytest.fixture
def remote(deployment: Deployment) -> Remote:
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": LEAN})
    return remote


def ready(deployment: Deployment, settings: Settings, *, times: int = 1) -> None:
    deployment.wait_for(
        lambda: deployment.log().count('"daemon_ready"') == times, what="the daemon to be ready"
    )
    assert request(settings.paths, "GET", "/health")[0] in (200, 503)


def stop(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(timeout=20)


def test_a_commit_is_observed_and_scanned_and_its_sorry_is_in_the_database(
    deployment: Deployment, remote: Remote
) -> None:
    settings = deployment.write(repos=[remote.path])
    with deployment.daemon() as process:
        ready(deployment, settings)
        deployment.wait_for(lambda: deployment.events("commit_scanned"), what="the baseline to be scanned")
        remote.commit("second", {"B.lean": "theorem two : 2 = 2 := sorry\n"})
        status, answer = request(settings.paths, "POST", "/poll", {"repository": settings.repos[0].key})
        assert (status, answer) == (202, {"polling": ["local/remotes/demo"]})
        deployment.wait_for(
            lambda: len(deployment.events("commit_scanned")) == 2, what="the new commit to be scanned"
        )
        deployment.wait_for(lambda: len(deployment.events("job_succeeded")) == 2, what="the jobs' ends")
        assert stop(process) == 0
    view = queries.connect(settings.paths.database_db)
    assert sorted(row.declaration for row in queries.sorries(view, state="open")) == ["one", "two"]
    assert [row.state for row in queries.jobs(view)] == ["succeeded", "succeeded"]
    view.close()
    assert [event.type for event in deployment.events()][:3] == [
        "daemon_started",
        "config_loaded",
        "repository_watched",
    ]
    assert [event.type for event in deployment.events()][-1] == "daemon_stopped"
    assert verify(settings.paths.events_db, settings.paths.database_db).differences == ()
    assert list((settings.paths.cache / "worktrees").glob("*")) == []


def test_without_git_the_daemon_does_not_start_and_says_what_to_install(
    deployment: Deployment, remote: Remote, tmp_path: Path
) -> None:
    deployment.write(repos=[remote.path])
    with deployment.daemon(environment={"PATH": str(tmp_path / "empty")}) as process:
        assert process.wait(timeout=20) == 1
    assert "not started: git: not on PATH; install git 2.31 or newer" in deployment.log()
    assert deployment.events() == []


def test_s18_a_second_daemon_is_refused_and_the_first_is_small_answers_its_group_and_shows_its_threads(
    deployment: Deployment, remote: Remote
) -> None:
    settings = deployment.write(repos=[remote.path])
    with deployment.daemon() as process:
        ready(deployment, settings)
        deployment.wait_for(lambda: deployment.events("commit_scanned"), what="the baseline to be scanned")
        # As files and not as modules: what was imported is mapped or was read.
        mapped = {entry.path for entry in psutil.Process(process.pid).memory_maps()}
        assert not [path for path in mapped if "/torch/" in path or "/numpy/" in path]
        assert psutil.Process(process.pid).memory_info().rss < 120 * 2**20
        assert stat.S_IMODE(settings.paths.socket.stat().st_mode) == 0o660
        assert request(settings.paths, "POST", "/poll", {"repository": "no/such/one"})[0] == 404
        assert request(settings.paths, "POST", "/poll", {"repository": 7})[0] == 400
        assert request(settings.paths, "GET", "/status")[1]["pid"] == process.pid
        process.send_signal(signal.SIGUSR1)
        deployment.wait_for(lambda: "most recent call last" in deployment.log(), what="the stacks")
        assert holder(settings.paths.lock) == process.pid
        program = (
            "import sys, pathlib\n"
            "from daemon.place.lock import AlreadyRunningError\n"
            "from daemon.process.run import run\n"
            "try: run(pathlib.Path(sys.argv[1]))\n"
            "except AlreadyRunningError as error: print(error.pid); sys.exit(75)"
        )
        output = deployment.folder / "second.log"
        second = warm.start(program, str(deployment.config), output=output)
        assert second.wait(timeout=60) == 75
        assert output.read_text(encoding="utf-8").strip() == str(process.pid)
        assert request(settings.paths, "GET", "/health")[0] == 200
        assert stop(process) == 0
    assert holder(settings.paths.lock) is None
    with pytest.raises(DaemonNotRunningError, match="everlean run"):
        request(settings.paths, "GET", "/health")


def test_a_bad_configuration_is_refused_whole_and_a_good_one_taken_whole(
    deployment: Deployment, remote: Remote
) -> None:
    settings = deployment.write(repos=[remote.path])
    good = deployment.config.read_text(encoding="utf-8")
    other = deployment.remote("other")
    other.commit("first")
    with deployment.daemon() as process:
        ready(deployment, settings)
        deployment.config.write_text(
            good + "\n[poll2]\nevery = 1\n[jobs]\nmax_running = 0\n", encoding="utf-8"
        )
        process.send_signal(signal.SIGHUP)
        deployment.wait_for(lambda: deployment.events("config_rejected"), what="the rejection")
        deployment.wait_for(lambda: request(settings.paths, "GET", "/health")[0] == 503, what="the problem")
        health, answer = request(settings.paths, "GET", "/health")
        assert health == 503
        assert any("max_running" in line for one in answer["problems"] for line in one["errors"] or ())
        assert request(settings.paths, "GET", "/status")[1]["config"]["digest"] == settings.digest
        deployment.config.write_text(good + f'\n[[repos]]\nurl = "{other.path}"\n', encoding="utf-8")
        deployment.wait_for(
            lambda: len(deployment.events("repository_watched")) == 2, what="the new entry, by inotify"
        )
        deployment.wait_for(lambda: len(deployment.events("branch_created")) == 2, what="its first poll")
        deployment.wait_for(lambda: request(settings.paths, "GET", "/health")[0] == 200, what="health")
        deployment.config.write_text(good, encoding="utf-8")
        request(settings.paths, "POST", "/reload")
        deployment.wait_for(lambda: deployment.events("repository_unwatched"), what="the entry to leave")
        assert stop(process) == 0
    assert len(deployment.events("config_rejected")) == 1


def test_a_lost_view_is_made_again_from_the_log(deployment: Deployment, remote: Remote) -> None:
    settings = deployment.write(repos=[remote.path])
    with deployment.daemon() as process:
        deployment.wait_for(lambda: deployment.events("job_succeeded"), what="the first scan")
        stop(process)
    settings.paths.database_db.write_bytes(b"this is no database" * 1000)
    with deployment.daemon() as process:
        deployment.wait_for(lambda: deployment.log().count('"daemon_ready"') == 2, what="the second start")
        stop(process)
    assert "view_rebuilt" in deployment.log()
    assert verify(settings.paths.events_db, settings.paths.database_db).differences == ()


def test_when_the_log_cannot_be_written_the_daemon_ends_with_the_reason(
    deployment: Deployment, remote: Remote
) -> None:
    """RLIMIT_FSIZE plays the full disk: the kernel refuses the write."""
    settings = deployment.write(repos=[remote.path], every="1s")
    with deployment.daemon() as process:
        ready(deployment, settings)
        deployment.wait_for(lambda: deployment.events("job_succeeded"), what="the first scan")
        # As far as the log's files reach by now, which leaves room for the daemon's last words.
        full = Path(f"{settings.paths.events_db}-wal").stat().st_size
        psutil.Process(process.pid).rlimit(psutil.RLIMIT_FSIZE, (full, full))
        remote.commit("second", {"B.lean": LEAN.replace("one", "b")})
        request(settings.paths, "POST", "/poll", {"repository": None})
        assert process.wait(timeout=20) == 1
    assert "the store failed" in deployment.log()
    before = len(deployment.events("commit_observed"))
    with deployment.daemon() as process:
        deployment.wait_for(
            lambda: len(deployment.events("commit_observed")) == 2, what="the commit, now that there is room"
        )
        stop(process)
    assert before == 1


def test_systemd_hears_of_each_step(deployment: Deployment, remote: Remote) -> None:
    settings = deployment.write(repos=[remote.path])
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        address = str(deployment.folder / "notify")
        manager.bind(address)
        manager.settimeout(60)
        heard: list[str] = []

        def hear(word: str) -> None:
            while not any(word in datagram for datagram in heard):
                heard.append(manager.recv(4096).decode())

        with deployment.daemon(environment={"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"}) as process:
            hear("READY=1")
            assert request(settings.paths, "GET", "/health")[0] == 200
            hear("WATCHDOG=1")
            process.send_signal(signal.SIGHUP)
            hear("RELOADING=1")
            heard.clear()
            hear("READY=1")
            process.send_signal(signal.SIGTERM)
            hear("STOPPING=1")
            assert process.wait(timeout=20) == 0


def test_the_socket_of_a_killed_daemon_is_no_obstacle_but_a_file_is(
    deployment: Deployment, remote: Remote
) -> None:
    settings = deployment.write(repos=[remote.path])
    with deployment.daemon() as process:
        ready(deployment, settings)
        process.kill()
    assert settings.paths.socket.exists()
    with pytest.raises(DaemonNotRunningError):
        request(settings.paths, "GET", "/health")
    with deployment.daemon() as process:
        deployment.wait_for(lambda: deployment.log().count('"daemon_ready"') == 2, what="the second start")
        stop(process)
    settings.paths.socket.write_text("a file of somebody else", encoding="utf-8")
    with deployment.daemon() as process:
        assert process.wait(timeout=20) == 1
    assert "no socket; move it elsewhere" in deployment.log()


def test_another_users_socket_is_an_error_and_no_nonsense(deployment: Deployment, remote: Remote) -> None:
    settings = deployment.write(repos=[remote.path])
    settings.paths.runtime.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(settings.paths.socket))
        other.listen()
        with pytest.raises(ControlError, match="did not answer"):
            request(settings.paths, "GET", "/health", timeout_s=0.2)


def test_the_token_is_in_no_log_and_no_file(deployment: Deployment, remote: Remote) -> None:
    token = "ghp_" + "s3cr3t" * 6
    settings = deployment.write(repos=[remote.path, "https://127.0.0.1:1/owner/name"])
    with deployment.daemon(environment={"EVERLEAN_GITHUB_TOKEN": token}) as process:
        ready(deployment, settings)
        deployment.wait_for(lambda: deployment.events("repository_failed"), what="the failing repository")
        deployment.wait_for(lambda: deployment.events("job_succeeded"), what="the other repository's scan")
        for child in [process.pid, *(p.pid for p in psutil.Process(process.pid).children(recursive=True))]:
            assert token not in Path(f"/proc/{child}/cmdline").read_text(encoding="utf-8", errors="replace")
        stop(process)
    assert token not in deployment.log()
    for file in (deployment.folder / "state").rglob("*"):
        assert not file.is_file() or token.encode() not in file.read_bytes()
    assert os.environ.get("EVERLEAN_GITHUB_TOKEN") is None


def job_processes(daemon: int) -> list[psutil.Process]:
    """The daemon's children that are jobs: not a poll's git, and not a fork that is still to become one."""
    result = []
    for child in psutil.Process(daemon).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "--spec" in child.cmdline():
                result.append(child)
    return result


@pytest.mark.slow
def test_a_second_signal_ends_at_once_and_the_next_start_records_what_was_left(
    deployment: Deployment, remote: Remote
) -> None:
    settings = deployment.write(repos=[remote.path], extra='[jobs]\ntimeout = "1h"\n')
    text = deployment.config.read_text(encoding="utf-8")
    deployment.config.write_text(
        text.replace('shutdown_timeout = "5s"', 'shutdown_timeout = "1h"'), encoding="utf-8"
    )
    with deployment.daemon() as process:
        ready(deployment, settings)
        deployment.wait_for(lambda: deployment.events("job_succeeded"), what="the first scan")
        remote.commit("second", {"B.lean": "-- long\n" * 1_000_000})
        request(settings.paths, "POST", "/poll", {"repository": None})
        deployment.wait_for(lambda: len(deployment.events("job_started")) == 2, what="a job")
        deployment.wait_for(lambda: job_processes(process.pid), what="its process")
        (child,) = job_processes(process.pid)
        child.suspend()  # it will not end when it is asked to
        # Of two signals that wait for it the kernel gives it the lower number first, and that is SIGTERM.
        deployment.wait_for(lambda: child.status() == psutil.STATUS_STOPPED, what="its standstill")
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert deployment.events("daemon_stopped") == []
    with deployment.daemon() as process:
        deployment.wait_for(
            lambda: len(deployment.events("job_succeeded")) == 2, what="the scan, again", seconds=60
        )
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
        stop(process)
    assert [event.data["attempt"] for event in deployment.events("job_interrupted")] == [1]


def test_newly_excluded_and_included_files_are_scanned_for_at_once_and_once(
    deployment: Deployment, remote: Remote
) -> None:
    remote.commit("more", {"Old/B.lean": "theorem two : 2 = 2 := sorry\n"})
    settings = deployment.write(repos=[remote.path])
    with deployment.daemon() as process:
        ready(deployment, settings)
        deployment.wait_for(lambda: deployment.events("commit_scanned"), what="the baseline")
        deployment.write(repos=[remote.path], entry='exclude = ["Old/**"]')
        deployment.wait_for(
            lambda: len(deployment.events("commit_scanned")) == 2, what="the scan without Old"
        )
        assert [event.data["path"] for event in deployment.events("file_removed")] == ["Old/B.lean"]
        assert len(deployment.events("sorry_removed")) == 1
        deployment.write(repos=[remote.path])
        deployment.wait_for(lambda: len(deployment.events("commit_scanned")) == 3, what="the scan with Old")
        assert deployment.events("file_scanned")[-1].data["path"] == "Old/B.lean"
        assert deployment.events("sorry_opened")[-1].data["reopened"] is True
        assert stop(process) == 0
    with deployment.daemon() as process:
        ready(deployment, settings, times=2)
        assert stop(process) == 0
    assert len(deployment.events("commit_scanned")) == 3


def test_a_changed_choice_of_branches_is_polled_at_once(deployment: Deployment, remote: Remote) -> None:
    remote.git("branch", "topic")
    settings = deployment.write(repos=[remote.path])
    with deployment.daemon() as process:
        ready(deployment, settings)
        deployment.wait_for(lambda: deployment.events("branch_created"), what="the first poll")
        deployment.write(repos=[remote.path], entry='branches = ["topic"]')
        deployment.wait_for(lambda: deployment.events("branch_unwatched"), what="the second poll")
        stop(process)


def test_a_log_that_lost_all_its_bytes_is_not_begun_anew_over_the_view_that_is_left(
    deployment: Deployment, remote: Remote
) -> None:
    settings = deployment.write(repos=[remote.path], every="1s")
    with deployment.daemon() as process:
        ready(deployment, settings)
        assert stop(process) == 0
    view = settings.paths.database_db.read_bytes()
    os.truncate(settings.paths.events_db, 0)
    with deployment.daemon() as process:
        assert process.wait(timeout=20) == 1
    assert "missing or empty" in deployment.log()
    assert settings.paths.events_db.stat().st_size == 0
    assert settings.paths.database_db.read_bytes() == view


def test_a_log_that_is_removed_under_the_daemon_is_saved_and_the_daemon_ends(
    deployment: Deployment, remote: Remote
) -> None:
    settings = deployment.write(repos=[remote.path], every="1s")
    with deployment.daemon() as process:
        ready(deployment, settings)
        deployment.wait_for(lambda: deployment.events("job_succeeded"), what="the scan")
        before = [event.event_id for event in deployment.events()]
        settings.paths.events_db.unlink()
        assert process.wait(timeout=20) == 1
    (rescued,) = settings.paths.state.glob("events.db.rescued-*")
    assert rescued.name in deployment.log()
    with deployment.daemon() as process:
        assert process.wait(timeout=20) == 1  # it would have emptied the database
    assert "restore the last backup" in deployment.log()
    rescued.rename(settings.paths.events_db)
    assert [event.event_id for event in deployment.events()] == before
    with deployment.daemon() as process:
        ready(deployment, settings, times=2)
        assert stop(process) == 0
    assert verify(settings.paths.events_db, settings.paths.database_db).differences == ()
