"""Another machine follows the log that a daemon ships and takes it over; the daemon replaced records nothing."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from daemon.state.shipping import Shipping
from daemon.state.standby import Follower, read
from store.errors import LogError
from store.log.backup import check
from store.log.log import EventLog
from store.log.segments import SegmentStore
from store.view.rebuild import opened, verify
from tests.daemon.test_damaged_log import state
from tests.daemon.test_shipping import append, context, until
from tests.support.daemon.deployment import Deployment

EVERLEAN = Path(sys.executable).parent / "everlean"


def machine(folder: Path, shipped: Path, remote: Path, *, every: str = "100ms") -> Deployment:
    """One of two machines that know the same folder of segments and watch the same repository."""
    folder.mkdir(exist_ok=True)
    deployment = Deployment(folder)
    deployment.write(
        repos=[remote],
        every="1s",
        extra=f'[log]\nship = "{shipped}"\nevery = "{every}"\n[lean]\nbackend = "none"\n',
    )
    return deployment


def problem(at: Deployment) -> tuple[str, str, str]:
    """The problem of `everlean status` that tells of the standby: its code, severity and message."""
    problems = json.loads(at.everlean("status", "--json").stdout)["problems"]
    ((code, severity, message),) = (
        (one["code"], one["severity"], one["message"])
        for one in problems
        if one["code"] in {"standby", "fenced"}
    )
    return code, severity, message


def refused(at: Deployment) -> str:
    """Start the daemon, which another machine replaced; return why it ends."""
    before = state(at)
    with at.daemon() as process:
        assert process.wait(timeout=60) == 75
    assert state(at) == before, "nothing was recorded"
    last = json.loads(at.log().splitlines()[-1])
    assert last["event"] == "daemon_not_started"
    return str(last["reason"])


@pytest.mark.timeout(180)
def test_a_standby_takes_over_from_a_killed_daemon_which_is_refused_when_it_comes_back(
    tmp_path: Path,
) -> None:
    shipped = tmp_path / "shipped"
    remote = Deployment(tmp_path).remote("demo")
    remote.commit("first", {"A.lean": "theorem one : 1 = 1 := by sorry\n"})
    old, new = (machine(tmp_path / name, shipped, remote.path) for name in ("old", "new"))
    with old.daemon() as process:
        old.wait_for(lambda: old.events("commit_scanned"), what="the first commit's scan")
        with subprocess.Popen(
            [EVERLEAN, "standby", "--config", new.config], stdout=subprocess.PIPE
        ) as following:
            until(lambda: new.events("commit_scanned"))
            until(new.settings().paths.database_db.exists)
            until(lambda: problem(new)[1] == "warning")
            said = problem(new)[2]
            assert f"a standby of {shipped}, at event " in said
            assert "all that was shipped when last read" in said
            sorries = new.everlean("sorries", "--json")
            assert [one["declaration"] for one in json.loads(sorries.stdout)["sorries"]] == ["one"]
            assert "this is a standby" in sorries.stderr
            assert new.everlean("run").returncode == 75
            # From here on the old daemon records, and ships nothing more.
            machine(old.folder, shipped, remote.path, every="1d")
            process.send_signal(signal.SIGHUP)
            old.wait_for(lambda: '"config_reloaded"' in old.log(), what="the new settings")
            until(lambda: len(new.events("config_loaded")) == 2)
            kept = len(new.events())
            remote.commit("second", {"B.lean": "theorem two : 1 = 1 := by sorry\n"})
            old.wait_for(lambda: len(old.events()) > kept, what="an event that is not shipped")
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=30)
            following.send_signal(signal.SIGTERM)
            assert following.wait(timeout=30) == 0
    assert "follows" in refused(new)
    assert "nothing follows now" in problem(new)[2]

    result = new.everlean("standby", "--take-over", "--json")
    assert (json.loads(result.stdout)["position"], json.loads(result.stdout)["epoch"]) == (kept, 1)
    lost = len(old.events()) - kept
    reason = refused(old)
    assert f"behind event {kept}; nothing more is recorded or shipped here" in reason
    assert f"{lost} events, {kept + 1} to {kept + lost}, were acknowledged here and not shipped" in reason
    assert problem(old) == ("fenced", "error", reason)

    with new.daemon() as process:
        new.wait_for(lambda: len(new.events("commit_scanned")) == 2, what="the second commit's scan")
        process.terminate()
        assert process.wait(timeout=30) == 0
    for one in (old, new):
        paths = one.settings().paths
        assert check(paths.events_db).ok
        assert verify(paths.events_db, paths.database_db).ok, "the view is what a rebuild makes"
    events = new.events()
    assert len({event.event_id for event in events}) == len(events)
    assert f"up to event {len(events)}" in new.everlean("db", "verify", "--segments", str(shipped)).stdout
    assert {segment.epoch for segment in SegmentStore(str(shipped)).segments()} == {0, 1}
    # With events of its own the old log does not follow; with a copy from the first event on it does.
    assert "to another folder" in old.everlean("standby", "--once").stderr
    aside = old.folder / "aside"
    aside.mkdir()
    for path in [*old.settings().paths.state.glob("*.db*")]:
        path.rename(aside / path.name)
    assert json.loads(old.everlean("standby", "--once", "--json").stdout)["position"] == len(events)
    assert old.events() == events


def test_what_is_shipped_while_a_view_is_made_is_taken_over_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipping = Shipping(context(tmp_path, url := str(tmp_path / "store")), tuple, print)
    paths = machine(tmp_path / "new", tmp_path / "store", tmp_path).settings().paths
    paths.state.mkdir(parents=True, exist_ok=True)

    def made(*arguments: Any) -> Any:
        append(log, 2)
        asyncio.run(shipping.ship())
        return opened(*arguments)

    monkeypatch.setattr("daemon.state.standby.opened", made)
    with EventLog.open(tmp_path / "events.db") as log:
        append(log, 1)
        asyncio.run(shipping.ship())
        with Follower(url, paths) as follower:
            assert follower.take_over().after == log.head
    assert log.head.seq == 2


def test_a_daemon_that_runs_when_another_takes_over_ends_before_it_ships_again(tmp_path: Path) -> None:
    shipped = tmp_path / "shipped"
    remote = Deployment(tmp_path).remote("demo")
    remote.commit("first", {"A.lean": "theorem one : 1 = 1 := by sorry\n"})
    old, new = (machine(tmp_path / name, shipped, remote.path) for name in ("old", "new"))
    with old.daemon() as process:
        old.wait_for(lambda: old.events("commit_scanned"), what="the first commit's scan")
        until(lambda: new.everlean("standby", "--take-over").returncode == 0)
        # Whoever comes second hears of the first, whose daemon has not begun.
        hasty = machine(tmp_path / "third", shipped, remote.path).everlean("standby", "--take-over")
        assert hasty.returncode != 0
        assert (
            "its daemon has shipped nothing yet: start the daemon there, or repeat with --force"
            in hasty.stderr
        )
        assert process.wait(timeout=30) == 75
    assert "took the log over" in old.log()
    code, severity, said = problem(old)
    assert (code, severity, "took the log over" in said) == ("fenced", "error", True)
    assert not old.events("daemon_stopped"), "nothing is recorded behind the take-over"
    assert "took the log over" in refused(old)
    store = SegmentStore(str(shipped))
    assert {segment.epoch for segment in store.segments()} == {0}


def test_the_folder_of_the_daemon_that_ships_is_no_standby_s(tmp_path: Path) -> None:
    from tests.store.test_segments import ship

    at = machine(tmp_path / "one", tmp_path / "shipped", tmp_path)
    paths = at.settings().paths
    paths.state.mkdir()
    assert "no segment lies there" in at.everlean("standby", "--once").stderr
    assert read(paths) is None
    with EventLog.open(paths.events_db) as log:
        append(log, 1)
    ship(paths.events_db, str(tmp_path / "shipped"))
    with pytest.raises(LogError, match="the daemon of this machine ships it"):
        Follower(str(tmp_path / "shipped"), paths)
    assert read(paths) is None


def test_a_standby_says_how_far_behind_it_is_while_the_store_is_damaged(tmp_path: Path) -> None:
    from tests.store.test_segments import ship

    at, shipped = machine(tmp_path / "one", tmp_path / "shipped", tmp_path), tmp_path / "shipped"
    at.settings().paths.state.mkdir()
    path = tmp_path / "events.db"
    with EventLog.open(path) as log:
        append(log, 1)
        ship(path, str(shipped))
        with Follower(str(shipped), at.settings().paths) as follower:
            assert (follower.turn().position, follower.turn().problem) == (1, "")
            append(log, 2)
            append(log, 3)
            store = ship(path, str(shipped))
            damaged = shipped / store.segments()[-1].name
            content = damaged.read_bytes()
            damaged.write_bytes(b"x")
            said = follower.turn()
            assert (said.position, said.shipped) == (1, 3)
            assert "its file was changed" in said.problem
            with pytest.raises(LogError, match="its file was changed"):
                follower.take_over()
            damaged.write_bytes(content)
            assert (follower.turn().position, follower.turn().problem) == (3, "")
    refused = at.everlean("db", "recover")
    assert (refused.returncode, "follows" in refused.stderr) == (1, True)
    code, severity, message = problem(at)
    assert (code, severity) == ("standby", "error")
    assert message.endswith("nothing follows now")
