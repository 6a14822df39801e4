"""The daemon ships its log by itself; killed at any moment it loses and doubles nothing; what is refused is said."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from daemon.settings import ConfigError, parse
from daemon.state.context import Context
from daemon.state.shipping import Shipping
from store.errors import LogError, SegmentStoreError
from store.events.service import DaemonStopped
from store.log import segments
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.log.segments import SegmentStore
from tests.support.daemon import warm
from tests.support.daemon.deployment import Deployment


def context(tmp_path: Path, ship: str) -> Context:
    text = f'[daemon]\nstate_dir = "{tmp_path}"\n[log]\nship = "{ship}"\nevery = "100ms"\n'
    return Context(parse(text.encode(), path=tmp_path / "config.toml"))


def until(what: object, seconds: float = 30.0) -> None:
    assert callable(what)
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def append(log: EventLog, number: int) -> None:
    log.append([NewEvent("daemon", DaemonStopped(reason="r", pid=number))], expect={"daemon": Expect.ANY})


def test_a_refused_store_is_a_problem_without_secrets_until_it_takes_the_log(tmp_path: Path) -> None:
    folder = tmp_path / "hunter22" / "store"
    folder.parent.write_text("a file in its way")
    with EventLog.open(tmp_path / "events.db") as log:
        append(log, 1)
        shipping = Shipping(context(tmp_path, str(folder)), lambda: ("hunter22",), print)
        for pause_s in (0.2, 0.4):
            asyncio.run(shipping.ship())
            assert shipping.pause_s == pause_s
        assert "the log is not shipped" in shipping.problem
        assert "hunter22" not in shipping.problem
        folder.parent.unlink()
        asyncio.run(shipping.ship())
        assert (shipping.shipped, shipping.pause_s) == (1, 0.1)
        append(log, 2)
        asyncio.run(shipping.stop())
    assert (shipping.problem, shipping.shipped) == ("", 2)
    assert segments.verify(SegmentStore(str(folder))).end.link == log.head


def test_a_copy_that_does_not_come_to_the_end_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipping = Shipping(context(tmp_path, str(tmp_path / "store")), tuple, print)
    assert shipping.problem == ""
    later = time.monotonic() + 61
    monkeypatch.setattr("daemon.state.shipping.time.monotonic", lambda: later)
    assert "has been behind for 6" in shipping.problem


async def test_what_is_recorded_while_the_last_pass_ends_is_shipped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, at_its_end, goes_on = segments.write, threading.Event(), threading.Event()

    def waits(*args: Any, **options: Any) -> object:
        result = write(*args, **options)
        if result is None:
            at_its_end.set()
            goes_on.wait(30)
        return result

    monkeypatch.setattr("daemon.state.shipping.segments.write", waits)
    with EventLog.open(tmp_path / "events.db") as log:
        append(log, 1)
        shipping = Shipping(context(tmp_path, str(tmp_path / "store")), tuple, print)
        passing = asyncio.create_task(shipping.ship())
        await asyncio.to_thread(at_its_end.wait, 30)
        append(log, 2)
        stopping = asyncio.create_task(shipping.stop())
        await asyncio.sleep(0.05)  # it waits for the pass
        goes_on.set()
        await asyncio.gather(passing, stopping)
    assert shipping.shipped == 2


def test_a_store_that_lets_nothing_be_removed_takes_the_log_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a bucket does that keeps what lies in it from whoever broke into this machine."""

    def refuses(_self: SegmentStore) -> None:
        raise SegmentStoreError("removal is denied to hunter22")

    monkeypatch.setattr(SegmentStore, "remove_merged", refuses)
    monkeypatch.setattr(segments, "MOST_SEGMENTS", 10)
    shipping = Shipping(context(tmp_path, str(tmp_path / "store")), lambda: ("hunter22",), print)
    with EventLog.open(tmp_path / "events.db") as log, capture_logs() as output:
        for number in range(1, 13):
            append(log, number)
            asyncio.run(shipping.ship())
            assert (shipping.problem, shipping.shipped) == ("", number)
    ((event, reason),) = ((one["event"], one["reason"]) for one in output if one["log_level"] == "warning")
    assert event == "segments_not_merged"
    assert "removal is denied" in reason
    assert "hunter22" not in reason


def test_a_daemon_that_ships_nothing_loads_neither_fsspec_nor_what_agents_speak(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from tests.daemon.test_shipping import Shipping, context\n"
        f"shipping = Shipping(context(Path({str(tmp_path)!r}), ''), tuple, print)\n"
        "asyncio.run(shipping.ship())\n"
        "asyncio.run(shipping.stop())\n"
        "assert not {'fsspec', 'mcp', 'mcp_types'} & set(sys.modules)\n"
        f"shipping = Shipping(context(Path({str(tmp_path)!r}), {str(tmp_path / 'store')!r}), tuple, print)\n"
        "asyncio.run(shipping.ship())\n"
        "asyncio.run(shipping.stop())\n"
        "assert 'fsspec' in sys.modules\n"
    )
    said = tmp_path / "said"
    assert warm.start(program, output=said).wait(timeout=60) == 0, said.read_text("utf-8")


def test_a_url_with_credentials_is_refused_and_not_shown(tmp_path: Path) -> None:
    for url in ("s3://key:hunter22@bucket/folder", "s3://bucket/folder?secret=hunter22"):
        with pytest.raises(ConfigError) as caught:
            context(tmp_path, url)
        assert "carries credentials (not shown)" in str(caught.value)
        assert "hunter22" not in str(caught.value)


def test_a_daemon_killed_while_it_ships_loses_and_doubles_nothing(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem one : 1 = 1 := by sorry\n"})
    deployment.write(repos=[remote.path], every="1s")
    config, folder = deployment.settings().path, tmp_path / "shipped"
    config.write_text(f'{config.read_text()}\n[log]\nship = "{folder}"\nevery = "100ms"\n')
    few = "import daemon.state.shipping; daemon.state.shipping.SEGMENT_BYTES = 1024"
    with deployment.daemon(prelude=few) as process:
        until(lambda: len(list(folder.glob("*.gz"))) > 1)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
    (folder / f"left{'.part'}").write_text("of an interrupted write")
    with deployment.daemon() as process:
        deployment.wait_for(lambda: deployment.events("commit_scanned"), what="the first commit's scan")
        process.terminate()
        assert process.wait(timeout=30) == 0
    store = SegmentStore(str(folder))
    link = segments.restore(store, tmp_path / "restored.db")
    log_path = deployment.settings().paths.events_db
    with EventLog.open(log_path) as log:
        assert link == log.head, "the end of the daemon is shipped too"
    assert not list(folder.glob("*.part"))
    with pytest.raises(LogError, match="exists already"):
        segments.restore(store, tmp_path / "restored.db")
