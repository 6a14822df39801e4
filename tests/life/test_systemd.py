"""systemd's side of the daemon (`tests.support.daemon.systemd`): when it says what, and what wedging leads to."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from daemon.place.control_client import request
from daemon.settings import Settings
from store.view.rebuild import verify
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.systemd import Manager

WATCHDOG_S = 10.0
"""Six daemons at once on two busy cores: a well one of them must still come to ping."""
SLOW = """
import asyncio, time
from daemon.http.control import ControlServer
from daemon.state.store_service import StoreService
from store.view.view import View

def told(name):
    with open("steps", "a") as file:
        file.write(f"{name} {time.monotonic_ns() // 1000}\\n")

opened, started, catch_up = StoreService.open.__func__, ControlServer.start.__func__, View.catch_up

async def slowly_opened(cls, *arguments, **options):
    store = await opened(cls, *arguments, **options)
    await asyncio.sleep(0.4)
    told("log")
    return store

def slowly_caught_up(self):
    position = catch_up(self)
    told("view")
    return position

async def slowly_started(cls, *arguments, **options):
    server = await started(cls, *arguments, **options)
    await asyncio.sleep(0.4)
    told("socket")
    return server

StoreService.open, View.catch_up = classmethod(slowly_opened), slowly_caught_up
ControlServer.start = classmethod(slowly_started)
"""
ARMED = """
import asyncio, os, time
from pathlib import Path
from daemon.state.store_service import StoreService
from daemon.scheduling.scheduler import Scheduler

def armed():
    # Once: the process that comes after is well.
    try:
        os.unlink(Path.cwd() / "armed")
    except FileNotFoundError:
        return False
    return True

start_due, check_files = Scheduler.start_due, StoreService._check_files
"""
WEDGES = {
    "a call that blocks the loop": """
async def blocked(self):
    if armed():
        time.sleep(600)
    await start_due(self)
Scheduler.start_due = blocked
""",
    "a turn that waits for ever": """
async def waits(self):
    if armed():
        await asyncio.Event().wait()
    await start_due(self)
Scheduler.start_due = waits
""",
    "a writer that hangs": """
def hangs(self):
    if armed():
        time.sleep(600)
    check_files(self)
StoreService._check_files = hangs
""",
    "a control server that is gone": """
async def ended(self):
    if armed():
        next(task for task in asyncio.all_tasks() if task.get_name() == "control").cancel()
    await start_due(self)
Scheduler.start_due = ended
""",
    "a process that is stopped": "",
}
BUSY = f"""
def computes(self):
    if armed():
        end = time.monotonic() + {2 * WATCHDOG_S}
        while time.monotonic() < end:
            sum(range(10000))
    check_files(self)
StoreService._check_files = computes
"""

pytestmark = pytest.mark.timeout(300)


@contextmanager
def managed(folder: Path, *, prelude: str = "") -> Iterator[tuple[Deployment, Settings, Manager]]:
    """A daemon under a service manager, in a folder of its own."""
    folder.mkdir()
    deployment = Deployment(folder)
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem one : 1 = 1 := sorry\n"})
    settings = deployment.write(repos=[remote.path], every="1s")
    prelude = f"import os; os.chdir({str(folder)!r})\n{prelude}"
    with Manager(
        folder / "notify",
        start=lambda environment: deployment.start(environment=environment, prelude=prelude),
        watchdog_s=WATCHDOG_S,
    ) as systemd:
        yield deployment, settings, systemd


def test_it_is_ready_when_log_view_and_socket_stand_and_says_when_it_reloads_and_stops(
    tmp_path: Path,
) -> None:
    with managed(tmp_path / "one", prelude=SLOW) as (deployment, settings, systemd):
        systemd.start()
        systemd.until(lambda: systemd.ready, what="READY=1")
        assert request(settings.paths, "GET", "/status")[0] == 200
        (ready,) = [said for said in systemd.said if "READY" in said.fields]
        done = [
            line.split() for line in (deployment.folder / "steps").read_text(encoding="utf-8").splitlines()
        ]
        assert {name for name, _ in done} == {"log", "view", "socket"}
        before = [int(at_us) for _, at_us in done if int(at_us) < ready.at_us]
        # The view moves on with the first poll; the steps of the start are the first of each name.
        assert {name for name, at_us in done if int(at_us) in before} == {"log", "view", "socket"}
        assert "1 repositories" in ready.fields["STATUS"]

        systemd.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr] # it runs
        asked_us = time.monotonic_ns() // 1000
        systemd.until(lambda: systemd.words().count("READY") == 2, what="the end of the reload")
        (reloading,) = [said for said in systemd.said if "RELOADING" in said.fields]
        # systemd takes the reload's READY=1 for an earlier one unless this is from after the signal.
        assert asked_us - 1_000_000 < int(reloading.fields["MONOTONIC_USEC"]) <= reloading.at_us
        systemd.until(lambda: any("WATCHDOG" in said.fields for said in systemd.said), what="a ping")

        systemd.stop()
        systemd.until(lambda: systemd.ended, what="the end")
        words = [word for word in systemd.words() if word != "STATUS"]
        assert words == ["READY", "RELOADING", "READY", "STOPPING"]
        assert [status for _, status in systemd.ended] == [0]
        assert systemd.expired == []


@pytest.mark.slow
def test_a_daemon_that_is_wedged_in_any_way_stops_pinging_is_restarted_and_has_lost_nothing(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        wedged = []
        for number, (name, wedge) in enumerate(WEDGES.items()):
            parts = stack.enter_context(managed(tmp_path / str(number), prelude=ARMED + wedge))
            wedged.append((name, *parts))
        busy, _, patient = stack.enter_context(managed(tmp_path / "busy", prelude=ARMED + BUSY))
        managers = [patient, *(systemd for _, _, _, systemd in wedged)]
        for systemd in managers:
            systemd.start()

        def turn_all_until(condition: object, *, what: str) -> None:
            assert callable(condition)
            deadline = time.monotonic() + 120
            while not condition():
                assert time.monotonic() < deadline, (
                    f"{what}; {[(one.expired, one.ended) for one in managers]}"
                )
                for systemd in managers:
                    systemd.turn(slice_s=0.01)

        turn_all_until(lambda: all(systemd.ready for systemd in managers), what="READY=1 of each")
        first = {systemd: systemd.process.pid for systemd in managers if systemd.process}
        for name, deployment, _, systemd in wedged:
            if name == "a process that is stopped":
                assert systemd.process is not None
                systemd.process.send_signal(signal.SIGSTOP)
            else:
                (deployment.folder / "armed").touch()
        (busy.folder / "armed").touch()
        told = len(patient.said)
        turn_all_until(
            lambda: all(systemd.expired and systemd.ready for _, _, _, systemd in wedged),
            what="each wedged one to be killed, and its successor to be ready",
        )
        for name, _, _, systemd in wedged:
            assert systemd.expired == [first[systemd]], name
            assert systemd.ended[0][0] == first[systemd]
            assert systemd.ended[0][1] < 0
        # A writer that computes for longer than the watchdog's patience is no dead one.
        turn_all_until(lambda: not (busy.folder / "armed").exists(), what="the long computation")
        end = time.monotonic() + 2.2 * WATCHDOG_S
        turn_all_until(lambda: time.monotonic() > end, what="its end")
        assert patient.expired == []
        assert sum("WATCHDOG" in said.fields for said in patient.said[told:]) >= 2
        for systemd in managers:
            systemd.stop()
        turn_all_until(
            lambda: all(systemd.ended and systemd.ended[-1][1] == 0 for systemd in managers), what="the ends"
        )
        for _, deployment, settings, _ in wedged:
            assert len(deployment.events("daemon_started")) == 2
            assert verify(settings.paths.events_db, settings.paths.database_db).differences == ()


def test_why_it_does_not_ping_is_in_its_status_line_and_its_log(tmp_path: Path) -> None:
    gone = ARMED + WEDGES["a control server that is gone"]
    with managed(tmp_path / "one", prelude=gone) as (deployment, _, systemd):
        systemd.start()
        systemd.until(lambda: systemd.ready, what="READY=1")
        (deployment.folder / "armed").touch()
        # On a busy machine a turn that takes long may be said before.
        reason = "the control socket is not served any more"
        systemd.until(
            lambda: any(said.fields.get("STATUS") == f"NOT WELL: {reason}" for said in systemd.said),
            what="why",
        )
    assert reason in deployment.log()
