"""A log that was damaged while no daemon ran: refused in words, nothing destroyed, recovered, and gone on."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from store.log.anchor import read_anchor
from store.log.backup import check
from store.view.rebuild import verify
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.remote import Remote


@pytest.fixture
def remote(deployment: Deployment) -> Remote:
    """A repository that a daemon watched until it was killed: its log lies in the -wal."""
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem one : 1 = 1 := by sorry\n"})
    deployment.write(repos=[remote.path], every="1s")
    in_the_wal = "import daemon.state.store_service as s\ns.StoreService._fold_in = lambda *_: None"
    with deployment.daemon(prelude=in_the_wal) as process:
        deployment.wait_for(lambda: deployment.events("commit_scanned"), what="the first commit's scan")
        log = deployment.settings().paths.events_db
        deployment.wait_for(
            lambda: (anchor := read_anchor(log)) is not None and anchor.seq == len(deployment.events()),
            what="all of it to be acknowledged",
        )
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
    return remote


def state(deployment: Deployment) -> dict[str, bytes]:
    """The files of the store, but for locks and what SQLite shares in memory."""
    names = ("events.db", "events.db-wal", "events.db-anchor", "database.db", "database.db-wal")
    paths = [deployment.settings().paths.state / name for name in names]
    return {path.name: path.read_bytes() for path in paths if path.exists() and path.stat().st_size}


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


def refused(deployment: Deployment) -> str:
    """Start the daemon, which ends; return its reason."""
    with deployment.daemon() as process:
        assert process.wait(timeout=60) == 1
    lines = [json.loads(line) for line in (deployment.folder / "daemon.log").read_text().splitlines()]
    (reason,) = {line["reason"] for line in lines if line["event"] == "daemon_not_started"}
    return str(reason)


@pytest.mark.parametrize("hurt", ["one bit of the -wal", "no -wal"])
def test_a_log_that_lost_its_end_is_refused_and_recovered_and_the_daemon_finds_things_again(
    deployment: Deployment, remote: Remote, hurt: str
) -> None:
    paths = deployment.settings().paths
    recorded = deployment.events()
    wal = paths.state / "events.db-wal"
    if hurt == "no -wal":
        wal.unlink()
    else:
        flip(wal, wal.stat().st_size // 2)
    orphan = paths.patches / "local-remotes-demo" / "one-0123.patch"
    orphan.parent.mkdir(parents=True)
    orphan.write_text("a patch whose proof is gone\n")
    before = state(deployment)
    for _ in range(2):  # a service manager starts it again
        reason = refused(deployment)
        assert f"event {len(recorded)} was acknowledged" in reason, reason
        assert "everlean db recover" in reason
        assert state(deployment) == before
    assert deployment.everlean("db", "check").returncode == 1
    assert state(deployment) == before

    result = deployment.everlean("db", "recover", "--json")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["recovered"] is True
    assert answer["kept"] + answer["lost"] == len(recorded)
    assert answer["patches_without_proof"] == [str(orphan)]
    aside = Path(answer["aside"])
    assert {name: (aside / name).read_bytes() for name in before} == before
    assert deployment.events()[:-1] == recorded[: answer["kept"]]
    event = deployment.events()[-1]
    assert (event.type, event.data["kept"]) == ("log_recovered", answer["kept"])
    assert event.data["lost"] == (len(recorded) if answer["lost"] else 0)

    ready = deployment.log().count('"daemon_ready"')
    with deployment.daemon() as process:
        deployment.wait_for(lambda: deployment.log().count('"daemon_ready"') > ready, what="the daemon")
        deployment.wait_for(
            lambda: (
                [event for event in deployment.events("commit_scanned") if event.seq > answer["kept"]]
                or (answer["kept"] and deployment.events("commit_scanned"))
            ),
            what="the scan to be there again",
        )
        process.terminate()
        assert process.wait(timeout=30) == 0
    assert check(paths.events_db).ok
    assert verify(paths.events_db, paths.database_db).ok
    assert json.loads(deployment.everlean("db", "recover", "--json").stdout)["recovered"] is False


def test_a_bit_that_flips_in_an_events_text_is_found_before_the_daemon_is_ready_and_told_from_a_wrong_view(
    deployment: Deployment, remote: Remote
) -> None:
    paths = deployment.settings().paths
    with deployment.daemon() as process:
        remote.commit("second", {"A.lean": "theorem two : 2 = 2 := by sorry\n"})
        deployment.wait_for(lambda: len(deployment.events("commit_scanned")) > 1, what="the second scan")
        process.terminate()
        assert process.wait(timeout=30) == 0
    (opened, *_) = deployment.events("commit_observed")
    content = paths.events_db.read_bytes()
    flip(paths.events_db, content.index(opened.data_json.encode()) + 30)
    checked, verified = deployment.everlean("db", "check"), deployment.everlean("db", "verify")
    assert (checked.returncode, verified.returncode) == (1, 1)
    assert f"event {opened.seq}: its content" in checked.stdout
    assert "the log is damaged, so that the view cannot be judged by it" in verified.stderr
    assert f"event {opened.seq}: its content" in verified.stderr
    began = time.monotonic()
    assert f"event {opened.seq}: its content" in refused(deployment)
    assert time.monotonic() - began < 30
    assert json.loads(deployment.everlean("db", "recover", "--json").stdout)["kept"] == opened.seq - 1
    with deployment.daemon() as process:
        deployment.wait_for(
            lambda: deployment.events("commit_scanned"), what="the commit to be scanned again"
        )
        process.terminate()
        assert process.wait(timeout=30) == 0
    assert check(paths.events_db).ok


def test_a_running_daemon_ends_at_damage_that_its_check_at_rest_finds_and_is_refused_until_it_is_recovered(
    deployment: Deployment, remote: Remote
) -> None:
    paths = deployment.settings().paths
    with deployment.daemon() as process:
        remote.commit("second", {"A.lean": "theorem two : 2 = 2 := by sorry\n"})
        deployment.wait_for(lambda: len(deployment.events("commit_scanned")) > 1, what="the second scan")
        process.terminate()
        assert process.wait(timeout=30) == 0
    (opened, *_) = deployment.events("commit_observed")
    deployment.write(repos=[remote.path], every="1h")
    often = (
        "import daemon.state.store_service as store\n"
        "store._REST_S = store._PARTS_EVERY_S = store._CHECKED_EVERY_S = 0.2"
    )
    starts = deployment.log().count('"daemon_ready"')
    with deployment.daemon(prelude=often) as process:
        deployment.wait_for(
            lambda: deployment.log().count('"daemon_ready"') > starts, what="the daemon to be ready"
        )
        with paths.events_db.open("r+b", buffering=0) as file:
            at = file.readall().index(opened.data_json.encode()) + 30
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 4]))
        assert process.wait(timeout=60) == 1
    stopped = json.loads(deployment.log().splitlines()[-1])
    assert stopped["event"] == "daemon_stopped"
    assert f"event {opened.seq}: its content" in stopped["failure"]
    assert "everlean db recover" in stopped["failure"]
    assert f"event {opened.seq}: its content" in refused(deployment), "nothing mended it"
    assert json.loads(deployment.everlean("db", "recover", "--json").stdout)["kept"] == opened.seq - 1
