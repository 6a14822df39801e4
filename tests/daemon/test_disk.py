"""Disks that fill up, fail, or vanish under the whole daemon. Nothing recorded is lost.

A full disk it outlasts: it waits, says so, and goes on. Of what does not mend while files are open, it ends with the
reason.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from daemon.place.control_client import ControlError, request
from daemon.place.paths import Paths
from daemon.settings import Settings, load
from daemon.state.disk import refusals
from store.log.envelope import StoredEvent
from store.view.rebuild import verify
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.disk import Disk, failing_disk, may_mount, may_unshare, small_disk
from tests.support.daemon.remote import Remote
from tests.support.daemon.systemd import Manager

LEAN = "theorem one : 1 = 1 := by\n  sorry\n"


def with_mounts(test: Callable[..., None]) -> Callable[..., None]:
    """Run the test where it may mount: here, or once more in a namespace of its own; else as it is."""

    @functools.wraps(test)
    def run(request: pytest.FixtureRequest, tmp_path: Path) -> None:
        (tmp_path / "probe").mkdir()
        if may_mount(tmp_path / "probe") or not may_unshare():
            test(request, tmp_path)
            return
        again = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", request.node.nodeid]
        result = subprocess.run(
            ["unshare", "-Urm", *again],
            capture_output=True,
            text=True,
            check=False,
            cwd=request.config.rootpath,
        )
        assert result.returncode == 0, result.stdout + result.stderr

    return run


class Watched:
    """A daemon's folder with one repository; only `state` lies on the disk under test."""

    def __init__(self, folder: Path) -> None:
        self.deployment = Deployment(folder)
        self.remote: Remote = self.deployment.remote("demo")
        self.remote.commit("first", {"A.lean": LEAN})
        self.deployment.write(repos=[self.remote.path], every="1s")
        text = self.deployment.config.read_text(encoding="utf-8")
        elsewhere = 'state_dir = "state"\ncache_dir = "cache"\nruntime_dir = "run"'
        self.deployment.config.write_text(text.replace('state_dir = "state"', elsewhere), encoding="utf-8")
        self.settings: Settings = load(self.deployment.config)

    @contextmanager
    def daemon(self) -> Iterator[subprocess.Popen[bytes]]:
        """The daemon, ready."""
        before = (
            self.deployment.log().count('"daemon_ready"')
            if (self.deployment.folder / "daemon.log").exists()
            else 0
        )
        with self.deployment.daemon() as process:
            self.deployment.wait_for(
                lambda: self.deployment.log().count('"daemon_ready"') > before, what="the daemon to be ready"
            )
            yield process

    @contextmanager
    def starting(self) -> Iterator[subprocess.Popen[bytes]]:
        """The daemon, which waits for room to start, and says so."""
        before = self.deployment.log().count('"disk_full"')
        with self.deployment.daemon() as process:
            self.deployment.wait_for(
                lambda: self.deployment.log().count('"disk_full"') > before, what="the start to find no room"
            )
            time.sleep(1.5)
            assert process.poll() is None
            yield process

    def job_runs(self, process: subprocess.Popen[bytes]) -> bool:
        """Return whether a job has its output, which a forked one opens itself, or has ended."""
        if not self.deployment.events("job_started"):
            return False
        children = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        with contextlib.suppress(ProcessLookupError):
            if any(os.getsid(child) == child for child in children):
                return True
        return bool(self.deployment.events("job_succeeded"))

    def work_until_it_ends(self, process: subprocess.Popen[bytes]) -> list[StoredEvent]:
        """Commit and poll until the daemon has ended; return the events that could be read before."""
        acknowledged: list[StoredEvent] = []
        numbers = iter(range(10**6))

        def ended() -> bool:
            acknowledged[:] = self.deployment.events()
            number = next(numbers)
            self.remote.commit(f"c{number}", {f"F{number}.lean": LEAN})
            try:
                request(self.settings.paths, "POST", "/poll", {})
            except ControlError:
                return process.poll() is not None  # it is on its way down, or there
            return process.poll() is not None

        self.deployment.wait_for(ended, what="the daemon to end", seconds=60.0)
        return acknowledged

    def commit_until_it_waits(self) -> set[str]:
        """Commit and poll until the daemon says that it finds no room; return the commits."""
        tips: set[str] = set()

        def waits() -> bool:
            number = len(tips)
            tips.add(self.remote.commit(f"c{number}", {f"F{number}.lean": LEAN * 50}))
            request(self.settings.paths, "POST", "/poll", {})
            return any("until there is room" in text for text in problems(self.settings))

        self.deployment.wait_for(waits, what="the daemon to find no room", seconds=40.0)
        return tips

    def last_words(self) -> dict[str, Any]:
        """The last line of the daemon's log."""
        line = self.deployment.log().strip().splitlines()[-1]
        words = json.loads(line)
        assert isinstance(words, dict)
        return words

    def goes_on(self, acknowledged: list[StoredEvent]) -> None:
        """Everything acknowledged is there, in order, and a daemon records the next commit."""
        assert self.deployment.events()[: len(acknowledged)] == acknowledged
        tip = self.remote.commit("after", {"After.lean": LEAN})
        with self.daemon() as process:
            self.deployment.wait_for(
                lambda: any(event.data["sha"] == tip for event in self.deployment.events("commit_observed")),
                what="the commit made afterwards",
            )
            process.terminate()
            assert process.wait(timeout=30) == 0
        assert self.deployment.events()[: len(acknowledged)] == acknowledged
        assert json.loads(self.deployment.everlean("db", "check", "--json").stdout)["sound"]
        paths = self.settings.paths
        assert verify(paths.events_db, paths.database_db).differences == ()


def problems(settings: Settings) -> list[str]:
    """What the daemon says is wrong, with the remedies."""
    result = request(settings.paths, "GET", "/health")[1]["problems"]
    return [f"{one['message']}; {one['remedy']}" for one in result]


def is_healthy(settings: Settings) -> bool:
    return request(settings.paths, "GET", "/health")[1]["healthy"] is True


def refuses(watched: Watched, disk: Disk, *, code: str) -> None:
    """The whole course, for a disk that takes nothing more while the daemon works."""
    with watched.daemon() as process:
        watched.deployment.wait_for(lambda: watched.job_runs(process), what="the first job")
        disk.refuse(process.pid)
        acknowledged = watched.work_until_it_ends(process)
    assert process.returncode == 1
    words = watched.last_words()
    assert (words["event"], words["level"]) == ("daemon_stopped", "error")
    assert str(watched.settings.paths.state) in words["failure"]
    assert "Traceback" not in watched.deployment.log()
    status = watched.deployment.everlean("status", "--json")
    assert status.returncode == 3, status.stderr
    codes = [problem["code"] for problem in json.loads(status.stdout)["problems"]]
    assert "daemon_not_running" in codes
    checked = watched.deployment.everlean("db", "check", "--json")
    assert (checked.returncode, json.loads(checked.stdout)["sound"]) == (0, True)
    assert watched.deployment.events()[: len(acknowledged)] == acknowledged
    if disk.real:
        assert code in codes
        again = watched.deployment.everlean("run")
        assert again.returncode == 1
        assert "Traceback" not in again.stderr
    disk.mend()
    watched.goes_on(acknowledged)


@with_mounts
def test_a_disk_that_fills_up_is_waited_for_and_nothing_is_lost_or_begun_meanwhile(
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    watched = Watched(tmp_path)
    deployment, paths = watched.deployment, watched.settings.paths
    with small_disk(paths.state, size_bytes=4 * 2**20) as disk:
        if not disk.real:
            pytest.skip("a disk that can be full and empty again needs a mount")
        with watched.daemon() as process:
            deployment.wait_for(lambda: deployment.events("job_succeeded"), what="the first scan")
            disk.refuse(process.pid)
            acknowledged = deployment.events()
            tips = watched.commit_until_it_waits()
            # It turns, answers and stays; what it met is told with the remedy, and nothing new was begun.
            status = json.loads(watched.deployment.everlean("status", "--json").stdout)
            (full,) = [problem for problem in status["problems"] if problem["code"] == "disk_full"]
            assert "free some space" in full["remedy"]
            assert any("until there is room" in problem["message"] for problem in status["problems"])
            polled = watched.deployment.everlean("poll")
            assert polled.returncode == 1
            assert "nothing new is begun until there is room on the disk" in polled.stderr
            begun = len(deployment.events("job_started"))
            with deployment.config.open("a", encoding="utf-8") as config:
                config.write("# a change that has to wait for room\n")
            process.send_signal(signal.SIGHUP)
            time.sleep(2.5)
            assert process.poll() is None
            assert len(deployment.events("job_started")) == begun
            assert deployment.events()[: len(acknowledged)] == acknowledged
            disk.mend()
            deployment.wait_for(
                lambda: tips <= {event.data["sha"] for event in deployment.events("commit_scanned")},
                what="what was pushed meanwhile",
            )
            deployment.wait_for(
                lambda: len(deployment.events("config_loaded")) == 2, what="the changed configuration"
            )
            deployment.wait_for(lambda: is_healthy(watched.settings), what="health")
            process.terminate()
            assert process.wait(timeout=30) == 0
        observed = [event.data["sha"] for event in deployment.events("commit_observed")]
        assert len(observed) == len(set(observed))
        assert "Traceback" not in deployment.log()
        watched.goes_on(acknowledged)


@pytest.mark.slow
@with_mounts
def test_a_daemon_is_stopped_while_its_disk_is_full_and_the_next_one_waits_for_room_and_goes_on(
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    watched = Watched(tmp_path)
    deployment = watched.deployment
    with small_disk(watched.settings.paths.state, size_bytes=4 * 2**20) as disk:
        if not disk.real:
            pytest.skip("a disk that can be full and empty again needs a mount")
        with watched.daemon() as process:
            deployment.wait_for(lambda: deployment.events("job_succeeded"), what="the first scan")
            disk.refuse(process.pid)
            acknowledged = deployment.events()
            tips = watched.commit_until_it_waits()
            process.terminate()
            process.wait(timeout=60)
        assert deployment.log().count('"daemon_stopped"') == 1
        # Asked to end while it waits it does so, and well: no one has to let it start again.
        with watched.starting() as process:
            process.terminate()
            assert process.wait(timeout=60) == 0
        with watched.starting() as process:
            status = json.loads(watched.deployment.everlean("status", "--json").stdout)
            remedies = {problem["code"]: problem["remedy"] for problem in status["problems"]}
            assert "free some space" in remedies["disk_full"]
            assert "waits for it, and then starts" in remedies["daemon_silent"]
            assert deployment.events()[: len(acknowledged)] == acknowledged
            disk.mend()
            deployment.wait_for(
                lambda: tips <= {event.data["sha"] for event in deployment.events("commit_scanned")},
                what="what was pushed meanwhile",
            )
            assert is_healthy(watched.settings)
            process.terminate()
            assert process.wait(timeout=30) == 0
        assert "Traceback" not in deployment.log()
        watched.goes_on(acknowledged)


@with_mounts
def test_a_first_start_on_a_full_disk_waits_tells_the_service_manager_and_is_ready_when_there_is_room(
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    watched = Watched(tmp_path)
    with small_disk(watched.settings.paths.state, size_bytes=4 * 2**20) as disk:
        if not disk.real:
            pytest.skip("a disk that can be full and empty again needs a mount")
        disk.refuse(0)
        with Manager(
            tmp_path / "notify",
            start=lambda environment: watched.deployment.start(environment=environment),
            watchdog_s=60.0,
        ) as systemd:
            systemd.start()
            systemd.until(
                lambda: any("EXTEND_TIMEOUT_USEC" in one.fields for one in systemd.said), what="the wait"
            )
            assert "No space left on device" in systemd.said[-1].fields["STATUS"]
            assert not systemd.ready
            disk.mend()
            systemd.until(lambda: systemd.ready, what="READY=1")
            systemd.stop()
            systemd.until(lambda: systemd.ended, what="the end")
            assert [status for _, status in systemd.ended] == [0]
        assert len(watched.deployment.events("daemon_started")) == 1


@with_mounts
def test_a_disk_that_turns_read_only_ends_the_daemon_and_loses_nothing(
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    watched = Watched(tmp_path)
    with failing_disk(watched.settings.paths.state, size_bytes=32 * 2**20) as disk:
        refuses(watched, disk, code="disk_read_only")


@with_mounts
def test_a_full_disk_of_the_cache_or_of_the_runtime_folder_is_told_with_what_to_do_there(
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    watched = Watched(tmp_path)
    paths = watched.settings.paths
    paths.state.mkdir()
    assert refusals(paths) == []
    with (
        small_disk(paths.cache, size_bytes=2 * 2**20) as cache,
        small_disk(paths.runtime, size_bytes=2 * 2**20) as runtime,
    ):
        if not (cache.real and runtime.real):
            pytest.skip("a disk that can be full and empty again needs a mount")
        assert refusals(paths) == [], "there is room"
        cache.refuse(0)
        runtime.refuse(0)
        told = {
            problem["subject"]: problem
            for problem in json.loads(watched.deployment.everlean("status", "--json").stdout)["problems"]
            if problem["code"] == "disk_full"
        }
        assert set(told) == {str(paths.cache), str(paths.runtime)}
        of_cache, of_runtime = told[str(paths.cache)], told[str(paths.runtime)]
        assert "the disk of the cache folder is full (0 bytes are free)" in of_cache["message"]
        assert "all files there may be removed" in of_cache["remedy"]
        assert "the disk of the runtime folder is full" in of_runtime["message"]
        assert "a daemon that starts waits" in of_runtime["remedy"]
        cache.mend()
        assert [refused.folder for refused in refusals(paths)] == [paths.runtime]


@with_mounts
def test_folders_on_one_disk_are_told_of_once(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size_bytes=2**20) as disk:
        if not disk.real:
            pytest.skip("a disk that can be full needs a mount")
        paths = Paths(*(tmp_path / "disk" / name for name in ("state", "cache", "run")))
        for folder in (paths.state, paths.cache):
            folder.mkdir()
        disk.refuse(0)
        (refused,) = refusals(paths)
        assert refused.folder == paths.state
        assert "the disk of the state and cache folder is full" in refused.message


def test_a_state_folder_that_is_renamed_ends_the_daemon_which_says_where_it_is(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    state = watched.settings.paths.state
    with watched.daemon() as process:
        watched.deployment.wait_for(lambda: watched.deployment.events("job_started"), what="the first job")
        acknowledged = watched.deployment.events()
        state.rename(tmp_path / "moved")
        # With nothing to do: it looks by itself.
        assert process.wait(timeout=30) == 1
    assert (
        f"the log is now {tmp_path / 'moved' / 'events.db'}: put it back" in watched.last_words()["failure"]
    )
    if state.exists():  # a job that was at work has made it again
        shutil.rmtree(state)
    (tmp_path / "moved").rename(state)
    watched.goes_on(acknowledged)


def test_a_state_folder_that_is_removed_ends_the_daemon_which_saves_the_log(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    paths = watched.settings.paths
    with watched.daemon() as process:
        watched.deployment.wait_for(lambda: watched.deployment.events("job_started"), what="the first job")
        acknowledged = watched.deployment.events()
        while paths.state.exists():
            # The job is at work in it, and may make a file in a folder that was just seen empty.
            with contextlib.suppress(OSError):
                shutil.rmtree(paths.state)
        assert process.wait(timeout=30) == 1
    failure = watched.last_words()["failure"]
    saved = next(path for folder in (paths.state, paths.cache) for path in folder.glob("events.db.rescued-*"))
    assert str(saved) in failure
    assert saved.stat().st_mode & 0o077 == 0
    paths.state.mkdir(exist_ok=True)
    saved.replace(paths.events_db)
    rebuilt = watched.deployment.everlean("db", "rebuild")
    assert rebuilt.returncode == 0, rebuilt.stderr
    watched.goes_on(acknowledged)


@pytest.mark.slow
@with_mounts
def test_a_job_whose_folder_finds_no_room_is_interrupted_not_failed_and_done_when_there_is(
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    watched = Watched(tmp_path)
    deployment = watched.deployment
    with small_disk(watched.settings.paths.jobs, size_bytes=2**22) as disk:
        if not disk.real:
            pytest.skip("a folder of its own needs a mount")
        disk.refuse(0)
        with deployment.daemon() as process:
            deployment.wait_for(
                lambda: deployment.events("job_interrupted"), what="the job that finds no room"
            )
            deployment.wait_for(
                lambda: any("room" in text for text in problems(watched.settings)),
                what="the problem to be told",
            )
            time.sleep(2.5)
            assert len(deployment.events("job_started")) == 1
            disk.mend()
            deployment.wait_for(
                lambda: deployment.events("job_succeeded"), what="the job, now that there is room"
            )
            process.terminate()
            assert process.wait(timeout=30) == 0
    (interrupted,) = deployment.events("job_interrupted")
    assert "No space left" in interrupted.data["reason"]
    assert deployment.events("job_failed") == []
    started = deployment.events("job_started")
    assert [event.data["attempt"] for event in started] == [1, 2]
