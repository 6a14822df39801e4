"""An attempt on another machine: what crosses, leases and fencing. Both ends are here; between them are bytes, no Ray.

The same over a real cluster are `test_engines.py` (marked slow) and `tests/e2e`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import struct
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from daemon.jobs.artifacts import ArtifactError, Artifacts, pack_folder, sweep_files, unpack_folder
from daemon.jobs.due import DueJob
from daemon.jobs.engine import AttemptLostError, Engine, NodeRefusedError, Order
from daemon.jobs.local import LocalAttempt, LocalEngine
from daemon.jobs.node import Keeper, NodeAttempt, _add_pack
from daemon.jobs.node_files import node_paths, remove_earlier, remove_what_is_left
from daemon.jobs.ray_link import Link
from daemon.jobs.remote import RayEngine, RemoteAttempt
from daemon.jobs.runner import AttemptOutput, JobRunner, RunningAttempt, make_folder, verdict
from daemon.jobs.wire import (
    BEGIN_BYTES,
    FROM_DAEMON,
    REPLY_BYTES,
    SAID_BYTES,
    WINDOW_LINES,
    Beat,
    Begin,
    Decoder,
    FromDaemon,
    Kill,
    Look,
    NodeReport,
    NodeSeen,
    Open,
    Payload,
    Plain,
    Taken,
    WireError,
    WireInput,
    WireLean,
    WireTree,
    encode,
)
from daemon.paths import Paths
from daemon.polling.git import Git
from daemon.settings import Settings
from daemon.settings.schema import Jobs
from daemon.store_service import StoreService
from pipeline.jobs.child import Exit, kill_marked
from pipeline.jobs.protocol import JobSpec
from pipeline.lean.backend import Leans
from store.events.jobs import JobInterrupted
from store.files import written_whole
from tests.support.daemon.bench import until
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.job import Behaving
from tests.support.daemon.remote import Remote

DUE = DueJob("scan-1", "scan", 1, "scan", "local/x/demo", "main", "a" * 40, "scan a", spec=None)


class Pair:
    """The two ends of one attempt. `down` cuts what comes from the daemon, `up` what comes from the node."""

    def __init__(self, folder: Path, behave: str, *, lease_s: float = 20.0) -> None:
        self.node_paths = Paths(folder / "node", folder / "node" / "cache", folder / "node" / "run")
        parameters = Behaving(
            behave=behave,
            repository="local/x/demo",
            branch="main",
            sha="a" * 40,
            base=None,
            include=(),
            exclude=(),
        )
        spec = JobSpec("scan-1", "scan", 1, folder / "daemon" / "jobs" / "scan-1" / "1", parameters)
        make_folder(spec)
        self.spec = spec
        self.order = Order(spec, "tests.support.daemon.job", 2**31, 2**32)
        self.begin = Begin(
            lease="ours",
            lease_s=lease_s,
            artifacts=str(folder / "artifacts"),
            job="scan-1",
            kind="scan",
            attempt=1,
            module=self.order.module,
            memory_bytes=2**31,
            whole_bytes=2**32,
            cache_bytes=2**40,
            parameters=json.loads(parameters.model_dump_json()),
        )
        self.down = self.up = False
        self.released = False
        self.node = NodeAttempt(self.node_paths)
        self.heard: list[bytes] = []
        self.sent: list[FromDaemon] = []

    @contextlib.asynccontextmanager
    async def started(self) -> AsyncIterator[RemoteAttempt]:
        def send(message: FromDaemon) -> None:
            self.sent.append(message)
            if not self.down:
                self.node.feed(encode(message))

        def release() -> None:
            self.released = True
            self.node._close.set()  # where Ray kills the process

        attempt = RemoteAttempt(
            "node",
            self.order,
            lease="ours",
            lease_s=self.begin.lease_s,
            send=send,
            over=pytest.fail,
            release=release,
        )
        self.attempt = attempt

        async def carry() -> None:
            while True:
                said = await self.node.taken()
                if not self.up:
                    attempt.feed(said)

        carrying = asyncio.create_task(carry())
        try:
            await attempt.begin(self.begin)
            yield attempt
        finally:
            await attempt.close()
            await until(lambda: not list(self.node_paths.jobs.glob("*/*")))
            carrying.cancel()
            assert self.released

    async def hear(self, raw: bytes) -> None:
        self.heard.append(raw)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_lines_payloads_log_and_end_cross_in_their_order(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "succeed")

    async def go() -> None:
        async with pair.started() as attempt:
            end = await attempt.run(pair.hear)
            assert (end.status, end.signal) == (0, None)

    asyncio.run(go())
    lines = [json.loads(raw) for raw in pair.heard]
    assert [line["line"] for line in lines] == ["progress", "events", "result"]
    (digest,) = (event["data"]["scan"]["sha256"] for event in lines[1]["events"] if "scan" in event["data"])
    assert hashlib.sha256((pair.spec.staging / digest).read_bytes()).hexdigest() == digest
    assert "a stray print" in pair.spec.log.read_text(encoding="utf-8")
    assert list(pair.node_paths.jobs.glob("*/*")) == [], "nothing of it is left on the node"


def test_a_node_that_does_not_hear_of_the_daemon_ends_the_attempt(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "stubborn", lease_s=0.8)

    async def go() -> None:
        async with pair.started() as attempt:
            pair.down = True
            with pytest.raises(AttemptLostError, match=r"not heard of the daemon|has not answered"):
                await attempt.run(pair.hear)
            await until(lambda: not alive(attempt.pid))
            await until(lambda: not list(pair.node_paths.jobs.glob("*/*")))

    asyncio.run(go())
    assert kill_marked(pair.node_paths.jobs, below=True) == 0, "nor what it had started"


@pytest.mark.slow
def test_what_an_attempt_started_ends_with_its_process_on_a_node_that_does_not_come_back(
    tmp_path: Path,
) -> None:
    pair = Pair(tmp_path, "stubborn")
    node = os.fork()
    if node == 0:
        with contextlib.suppress(BaseException):

            async def live() -> None:
                async with pair.started() as attempt:
                    await attempt.run(pair.hear)

            asyncio.run(live())
        os._exit(0)

    def started() -> list[int]:
        said = pair.spec.log.read_text(encoding="utf-8") if pair.spec.log.exists() else ""
        lines = [line for line in said.splitlines() if line.startswith("children")]
        return [int(word) for line in lines for word in line.split()[1:]]

    async def go() -> None:
        await until(lambda: len(started()) == 2)
        os.kill(node, signal.SIGKILL)
        await asyncio.to_thread(os.waitpid, node, 0)
        await until(lambda: not list(pair.node_paths.jobs.glob("*/*")))

    asyncio.run(go())
    assert not any(alive(pid) for pid in started())
    assert kill_marked(pair.node_paths.jobs, below=True) == 0


def test_a_node_that_comes_back_after_its_lease_can_append_nothing(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "hang_after_events", lease_s=0.8)

    async def go() -> None:
        async with pair.started() as attempt:
            pair.up = True
            with pytest.raises(AttemptLostError, match="has not answered for"):
                await attempt.run(pair.hear)
            before = len(pair.heard)
            pair.up = False
            attempt.feed(encode(Plain(what="line", lease="ours", body=b'{"line": "events", "events": []}')))
            with pytest.raises(AttemptLostError):
                await attempt.run(pair.hear)
            assert len(pair.heard) == before

    asyncio.run(go())


def test_an_exit_that_was_taken_stands_where_the_node_is_lost_before_it_has_tidied_up(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "succeed")

    async def go() -> tuple[Exit, Exit | None]:
        async with pair.started() as attempt:
            end = await attempt.run(pair.hear)
            attempt.lose("it was killed", suspect=False)
            return end, (await attempt.close()).exit

    end, closed = asyncio.run(go())
    assert closed == end


def test_what_comes_with_another_lease_is_not_taken(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "succeed")

    async def go() -> None:
        async with pair.started() as attempt:
            earlier = Plain(what="line", lease="an earlier one", body=b'{"line": "result", "summary": {}}')
            attempt.feed(encode(earlier))
            await attempt.run(pair.hear)

    asyncio.run(go())
    assert [json.loads(raw)["line"] for raw in pair.heard] == ["progress", "events", "result"]


def test_a_payload_that_is_not_what_it_is_named_by_ends_the_attempt(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "hang")

    async def go() -> None:
        async with pair.started() as attempt:
            attempt.feed(encode(Payload(lease="ours", sha256="0" * 64, last=True, body=b"forged")))
            with pytest.raises(AttemptLostError, match="another than its name"):
                await attempt.run(pair.hear)

    asyncio.run(go())
    assert not (pair.spec.staging / ("0" * 64)).exists()


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\x00\x00\x00\x02\x00\x00\x00\x00{}", "no message"),
        (struct.pack(">II", REPLY_BYTES + 1, 0), "a message of 65537 bytes"),
        (encode(Plain(what="said", lease="ours", body=b"x" * (SAID_BYTES + 1))), "beside a message 'said'"),
        (encode(Beat(lease="ours", body=b"x")), "1 bytes beside a message 'beat'"),
        (
            encode(Plain(what="line", lease="ours", body=b"{}")) * (WINDOW_LINES + 2),
            "more than 16 lines before",
        ),
        (encode(Beat(lease="ours")) * 10, "it says what it was not asked"),
    ],
)
def test_what_is_no_message_or_more_than_a_node_may_send_ends_the_attempt(
    tmp_path: Path, sent: bytes, reason: str
) -> None:
    pair = Pair(tmp_path, "hang")

    async def go() -> None:
        async with pair.started() as attempt:
            attempt.feed(sent)
            with pytest.raises(AttemptLostError, match=reason):
                await attempt.run(pair.hear)

    asyncio.run(go())


def test_only_so_many_lines_are_under_way_before_the_daemon_takes_them(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "count")

    async def go() -> int:
        most = 0
        async with pair.started() as attempt:
            taking = asyncio.Event()

            async def hear(raw: bytes) -> None:
                nonlocal most
                await taking.wait()
                most = max(most, attempt._lines.qsize())
                pair.heard.append(raw)

            whole = asyncio.create_task(attempt.run(hear))
            await until(lambda: attempt._lines.qsize() > 0)
            await asyncio.sleep(0.5)
            waiting = attempt._lines.qsize()
            taking.set()
            await whole
            return max(most, waiting)

    assert 0 < asyncio.run(go()) <= WINDOW_LINES
    assert len(pair.heard) == 2002
    told = [message.lines for message in pair.sent if isinstance(message, Taken) and not message.said]
    assert len(told) < len(pair.heard) / 4, "each is a call of Ray's"


def test_an_attempt_that_its_node_s_shutdown_ends_is_lost_and_its_job_no_suspect(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "hang")

    async def go() -> None:
        async with pair.started() as attempt:
            os.kill(attempt.pid, signal.SIGTERM)
            with pytest.raises(AttemptLostError, match="SIGTERM") as lost:
                await attempt.run(pair.hear)
            assert not lost.value.suspect

    asyncio.run(go())


@pytest.mark.parametrize("fails", ["line", "stop"])
def test_an_attempt_that_fails_on_its_node_is_lost_and_waited_for_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def refuse(*_: object, **__: object) -> list[Path]:
        raise PermissionError("the system refused")

    if fails == "line":
        monkeypatch.setattr("daemon.jobs.node._staged", refuse)
    pair = Pair(tmp_path, "hang")

    async def go() -> None:
        async with asyncio.timeout(10), pair.started() as attempt:
            if fails == "stop":
                monkeypatch.setattr(LocalAttempt, "stop", refuse)
                await attempt.stop(grace_s=1.0)
            with pytest.raises(AttemptLostError, match="the system refused"):
                await attempt.run(pair.hear)

    asyncio.run(go())


@pytest.mark.parametrize(("asked", "said"), [("stop", "stopped it"), ("close", "tidied up")])
def test_a_node_that_answers_and_never_does_what_it_was_asked_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, said: str
) -> None:
    monkeypatch.setattr("daemon.jobs.remote._FIRST_WORD_S", 0.1)

    async def go() -> None:
        loop = asyncio.get_running_loop()

        def send(message: FromDaemon) -> None:
            if isinstance(message, Beat):
                loop.call_soon(attempt.feed, encode(Beat(lease="ours")))

        order = Pair(tmp_path, "hang").order
        attempt = RemoteAttempt(
            "node", order, lease="ours", lease_s=0.2, send=send, over=pytest.fail, release=lambda: None
        )
        async with asyncio.timeout(10):
            await (attempt.stop(grace_s=0.1) if asked == "stop" else attempt.close())
        assert f"has not {said}" in attempt.lost
        await attempt.close()

    asyncio.run(go())


def test_an_attempt_that_no_node_starts_in_the_time_of_its_job_is_refused(tmp_path: Path) -> None:
    async def start(_order: Order, **_: object) -> None:
        await asyncio.Event().wait()

    async def go() -> None:
        runner = JobRunner(
            store=cast("StoreService", None),
            engine=cast("Engine", SimpleNamespace(start=start)),
            paths=Paths(tmp_path, tmp_path, tmp_path),
            limits=Jobs(),
            finished=lambda: None,
        )
        due = replace(DUE, timeout_s=0.05)
        mine = cast("asyncio.Task[None]", asyncio.current_task())
        live = RunningAttempt(due, None, "node-1", mine, datetime.now(UTC), time.monotonic())
        order = replace(Pair(tmp_path, "hang").order, node="node-1")
        async with asyncio.timeout(10):
            with pytest.raises(NodeRefusedError, match=r"did not start scan-1 within 0\.05 s"):
                await runner._started(live, order)

    asyncio.run(go())


def test_standard_error_of_a_node_is_kept_up_to_a_bound_and_the_log_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.jobs.remote.MOST_SAID_BYTES", 2**20)
    pair = Pair(tmp_path, "hang")

    async def go() -> int:
        sent: list[FromDaemon] = []
        attempt = RemoteAttempt(
            "node",
            pair.order,
            lease="ours",
            lease_s=20.0,
            send=sent.append,
            over=pytest.fail,
            release=lambda: None,
        )
        for _ in range(40):
            attempt.feed(encode(Plain(what="said", lease="ours", body=b"x" * (SAID_BYTES - 1))))
        attempt.lose("the test ends")
        await attempt.close()
        return len(sent)

    assert asyncio.run(go()) == 40, "the node is not held up"
    said = pair.spec.log.read_bytes()
    assert said == b"x" * 2**20 + b"\neverlean: no more than 1 MiB are kept\n"


def test_an_attempt_that_is_given_up_while_its_node_fetches_waits_for_no_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(tmp_path, "hang")
    pair.begin = pair.begin.model_copy(update={"trees": (WireTree(place="builds/a", sha256="0" * 64),)})
    fetching, done = threading.Event(), threading.Event()

    def fetch(_store: Artifacts, _digest: str, _target: Path) -> None:
        fetching.set()
        done.wait(20)

    monkeypatch.setattr(Artifacts, "get", fetch)

    async def go() -> None:
        async def start() -> None:
            async with pair.started():
                pytest.fail("it was started")

        starting = asyncio.create_task(start())
        await until(fetching.is_set)
        starting.cancel()
        async with asyncio.timeout(5):
            await asyncio.wait({starting})
        assert starting.cancelled()
        assert not pair.attempt.lost
        done.set()

    asyncio.run(go())


def test_the_link_ends_with_what_keeps_it_from_seeing_the_nodes() -> None:
    class Ray:
        def nodes(self) -> list[object]:
            raise RuntimeError("the head is of another version")

    async def go() -> None:
        link = Link(Ray(), cast("asyncio.StreamWriter", None))
        link._look.put_nowait(b"{}")
        async with asyncio.timeout(5):
            await link.serve(asyncio.StreamReader())

    with pytest.raises(RuntimeError, match="another version"):
        asyncio.run(go())


def test_a_node_that_takes_long_to_say_what_it_is_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.jobs.ray_link._REPORT_S", 0.01)
    asked: list[bytes] = []

    async def go() -> str | NodeReport:
        async def report(look: bytes) -> bytes:
            asked.append(look)
            await asyncio.sleep(0.05)
            return b"{}"

        link = Link(
            SimpleNamespace(exceptions=SimpleNamespace(RayError=OSError)), cast("asyncio.StreamWriter", None)
        )
        link._keepers["node"] = SimpleNamespace(report=SimpleNamespace(remote=report))
        await link._ask("node", b"look")
        first = link._reports["node"]
        assert isinstance(first, str)
        assert first.startswith("it has not said")
        while link._asked:
            await link._ask("node", b"look")
        return link._reports["node"]

    assert "it cannot say what it is" in str(asyncio.run(go()))
    assert len(asked) == 1


def test_a_lost_attempt_is_interrupted_and_so_due_again(tmp_path: Path) -> None:
    heard = AttemptOutput(0.0, stopped="lost", fault="node-1 was lost: it has not answered for 60 s")
    body = verdict(DUE, heard, "")
    assert isinstance(body, JobInterrupted)
    assert body.reason == heard.fault


def test_what_a_dead_attempt_left_on_a_node_is_removed_and_a_living_one_is_not(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "hang")
    dead = pair.node_paths.jobs / "scan-dead" / "1"
    dead.mkdir(parents=True)
    (dead / "node.lock").write_bytes(b"held")

    async def go() -> None:
        async with pair.started() as attempt:
            await asyncio.to_thread(remove_what_is_left, pair.node_paths)
            assert alive(attempt.pid)

    asyncio.run(go())
    assert not dead.exists()


def test_what_an_earlier_attempt_of_the_same_name_left_is_removed_once_nobody_holds_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVERLEAN_NODE_FOLDER", "node")
    paths = node_paths()
    assert paths.state == tmp_path / "node", "it stays the same place where the working directory changes"
    directory = paths.jobs / "scan-1" / "1"
    remove_earlier(paths, directory)
    directory.mkdir(parents=True)

    async def go() -> None:
        with (directory / "node.lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            removing = asyncio.create_task(asyncio.to_thread(remove_earlier, paths, directory))
            await asyncio.sleep(0.1)
            assert directory.exists()
        await removing

    asyncio.run(go())
    assert not directory.exists()


def test_an_attempt_that_a_node_cannot_start_is_over_at_once(tmp_path: Path) -> None:
    async def go() -> None:
        pair = Pair(tmp_path, "hang")
        lacking = WireInput(name="known.json", sha256="0" * 64, size_bytes=1)
        pair.begin = pair.begin.model_copy(update={"inputs": (lacking,)})
        with pytest.raises(NodeRefusedError, match=r"node: .*0000"):
            async with asyncio.timeout(10), pair.started():
                raise AssertionError("it was started")
        assert pair.released

    asyncio.run(go())


def test_a_sweep_takes_what_is_long_unused_or_too_much_and_neither_what_is_in_use_nor_no_artifact(
    tmp_path: Path,
) -> None:
    day_s = 24 * 3600.0
    (tmp_path / "names").mkdir()
    with written_whole(tmp_path / ("c" * 64)):
        (of_a_killed_put,) = (path.name for path in tmp_path.glob(".*"))
    (tmp_path / ("c" * 64)).unlink()
    ages = {
        "thesis.tex": 99.0,
        "a" * 64: 15.0,
        f"names/{'b' * 64}": 15.0,
        of_a_killed_put: 15.0,
        "d" * 64: 13.0,
        "e" * 64: 12.0,
        "f" * 64: 1.0,
    }

    def left(most_bytes: int) -> list[str]:
        Artifacts(str(tmp_path)).sweep(most_bytes)
        return [name for name in ages if (tmp_path / name).exists()]

    for name, days in ages.items():
        (tmp_path / name).write_bytes(b"12345")
        os.utime(tmp_path / name, (0, time.time() - days * day_s))
    assert left(15) == ["thesis.tex", "d" * 64, "e" * 64, "f" * 64]
    assert left(10) == ["thesis.tex", "e" * 64, "f" * 64]
    assert left(0) == ["thesis.tex", "f" * 64]


def test_a_message_in_pieces_is_put_together_and_one_of_an_impossible_size_is_refused(tmp_path: Path) -> None:
    begin = Pair(tmp_path, "hang").begin
    decoder, found = Decoder(BEGIN_BYTES), []
    for byte in encode(begin):
        found += list(decoder.feed(bytes([byte]), FROM_DAEMON))
    assert found == [begin]
    with pytest.raises(WireError, match="bytes"):
        list(Decoder(BEGIN_BYTES).feed(b"\xff" * 8, FROM_DAEMON))


# ---- Artifacts


@pytest.fixture(params=["folder", "memory"])
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> Artifacts:
    return Artifacts(str(tmp_path / "store") if request.param == "folder" else f"memory://{tmp_path.name}")


def test_a_content_is_put_once_and_got_by_its_hash(artifacts: Artifacts, tmp_path: Path) -> None:
    digest = artifacts.put(b"content")
    assert artifacts.put(b"content") == digest == hashlib.sha256(b"content").hexdigest()
    artifacts.get(digest, tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b"content"


def test_a_content_that_was_changed_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    store = Artifacts(str(tmp_path / "store"))
    digest = store.put(b"content")
    (tmp_path / "store" / digest).write_bytes(b"forged")
    with pytest.raises(ArtifactError, match="was changed"):
        store.get(digest, tmp_path / "got")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_content_that_is_not_there_is_an_error_with_a_remedy(artifacts: Artifacts, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"cannot be read.*check that this machine reaches it"):
        artifacts.get("0" * 64, tmp_path / "got")


def test_a_named_thing_is_found_by_its_name(artifacts: Artifacts, tmp_path: Path) -> None:
    assert artifacts.named("commits a") == ""
    (tmp_path / "pack").write_bytes(b"a pack")
    digest = artifacts.put_named("commits a", tmp_path / "pack")
    assert artifacts.named("commits a") == digest == hashlib.sha256(b"a pack").hexdigest()
    assert artifacts.named("commits b") == ""


class Daemon:
    """The engine of a daemon that has reached no cluster; `lean` is its [lean]."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lean = folder, 'backend = "none"'
        folder.mkdir()
        self.engine = RayEngine(
            cast("LocalEngine", None), self.settings, Git(timeout_s=20.0), leans=lambda: Leans(None)
        )

    def settings(self) -> Settings:
        engine = '[engine]\nkind = "ray"\naddress = "127.0.0.1:1"\n'
        return Deployment(self.folder).write(repos=[], extra=f"[lean]\n{self.lean}\n{engine}")


def test_a_named_thing_is_made_once_however_many_orders_need_it_at_the_same_time(tmp_path: Path) -> None:
    made: list[Path] = []

    async def make(folder: Path) -> Path:
        made.append(folder / "thing")
        await asyncio.sleep(0.05)
        made[-1].write_bytes(b"a pack")
        return made[-1]

    async def go() -> set[str]:
        engine, orders = (
            Daemon(tmp_path / "daemon").engine,
            [Pair(tmp_path / at, "hang").order for at in "ab"],
        )
        store = await engine._store()
        return set(await asyncio.gather(*(engine._named(store, "commits a", one, make) for one in orders)))

    assert asyncio.run(go()) == {hashlib.sha256(b"a pack").hexdigest()}
    assert len(made) == 1
    assert not made[0].parent.exists()


def test_a_node_starts_no_more_attempts_at_a_time_than_it_has_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [Pair(tmp_path / at, "hang") for at in "abcde"]
    starting: list[RemoteAttempt] = []
    most = 0

    async def ordered(_engine: RayEngine, _order: Order, lease: str) -> Begin:
        return pairs[0].begin.model_copy(update={"lease": lease})

    async def begin(attempt: RemoteAttempt, _begin: Begin) -> None:
        nonlocal most
        starting.append(attempt)
        most = max(most, len(starting))
        await asyncio.sleep(0.02)
        starting.remove(attempt)

    async def go() -> None:
        engine = Daemon(tmp_path / "daemon").engine
        report = NodeReport(
            host="node", version="", schema_version=1, clock=0.0, folder="", free_bytes=0, cores=2, leans=(),
            problems=(),
        )  # fmt: skip
        engine._nodes = (NodeSeen(node="node", name="node", slots=8, report=report),)
        orders = [replace(pair.order, node="node") for pair in pairs]
        for attempt in await asyncio.gather(*(engine.start(order, over=pytest.fail) for order in orders)):
            await attempt.close()

    monkeypatch.setattr(RayEngine, "_begin", ordered)
    monkeypatch.setattr(RemoteAttempt, "begin", begin)
    asyncio.run(go())
    assert most == 2


def test_a_change_of_how_lean_runs_reaches_the_nodes(tmp_path: Path) -> None:
    asked: list[Look | Open | Kill] = []

    class Daemons(RayEngine):
        def _control(self, message: Look | Open | Kill) -> None:
            asked.append(message)

    daemon = Daemon(tmp_path / "daemon")
    daemon.engine.__class__ = Daemons
    daemon.engine._writer = cast("asyncio.StreamWriter", object())
    for sandbox in ("bubblewrap", "bubblewrap", "none"):
        daemon.lean = f'sandbox = "{sandbox}"'
        daemon.engine._ask()
    assert [one.lean.sandbox for one in asked if isinstance(one, Look)] == ["bubblewrap", "none"]


def test_a_node_that_does_not_read_the_artifacts_says_so_before_it_gets_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERLEAN_NODE_FOLDER", str(tmp_path / "node"))
    lean = WireLean(kind="server", toolchain="", sandbox="none")
    asked = Look(lean=lean, artifacts=str(tmp_path / "store")).model_dump_json().encode()

    def problems() -> list[str]:
        said = NodeReport.model_validate_json(Keeper().report(asked)).problems
        return [one for one in said if one.startswith("artifacts: ")]

    (problem,) = problems()
    assert "cannot be read" in problem
    Artifacts(str(tmp_path / "store")).mark()
    assert problems() == []


def test_what_the_nodes_look_for_is_in_the_store_although_it_could_not_be_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("not yours")

    daemon = Daemon(tmp_path / "daemon")
    url = daemon.settings().artifacts
    Path(url).mkdir(parents=True)
    with monkeypatch.context() as failing:
        failing.setattr(Artifacts, "mark", refuse)
        with pytest.raises(PermissionError):
            asyncio.run(daemon.engine._store())
    monkeypatch.setattr("daemon.jobs.artifacts.sweep_files", refuse)
    with pytest.raises(ArtifactError, match="cannot be swept"):
        asyncio.run(daemon.engine._store())
    Artifacts(url).look()
    asyncio.run(daemon.engine._store())


def test_an_attempt_keeps_the_commits_that_it_has_when_its_node_sweeps(tmp_path: Path) -> None:
    remote = Remote(tmp_path / "remote")
    sha = remote.commit("first", {"A.lean": "theorem a : True := by\n  sorry\n"})
    store, kept = Artifacts(str(tmp_path / "store")), tmp_path / "packs" / "pack"
    kept.parent.mkdir()
    git = Git(timeout_s=20.0)

    async def go() -> None:
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        digest = store.put(await git.pack(remote.path / ".git", [sha], scratch))
        for number in (1, 2):
            mirror = tmp_path / f"mirror-{number}"
            await git.ensure_mirror(mirror)
            await _add_pack(git, mirror, store, digest, kept)
            # The second has it of the node.
            shutil.rmtree(tmp_path / "store", ignore_errors=True)
        for path in kept.parent.iterdir():
            os.utime(path, (0, 0))
        sweep_files(kept.parent.iterdir(), 2**40)
        assert list(kept.parent.iterdir()) == []
        assert await git.has_commit(tmp_path / "mirror-1", sha)
        assert await git.has_commit(tmp_path / "mirror-2", sha)

    asyncio.run(go())


def test_a_folder_comes_out_as_it_went_in_and_never_outside(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a").write_bytes(b"x")
    (folder / "link").symlink_to("deep")
    unpack_folder(pack_folder(folder, tmp_path / "tar"), tmp_path / "copy")
    assert (tmp_path / "copy" / "deep" / "a").read_bytes() == b"x"
    assert (tmp_path / "copy" / "link").is_symlink()
