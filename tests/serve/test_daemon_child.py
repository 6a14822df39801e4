"""The daemon's server as a real process: kept running, changed, found out about, and gone with its daemon."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from daemon.control_client import ControlError, request
from daemon.gpus import Gpus
from daemon.serving import PROBLEM, Patience, Serving
from daemon.settings import Settings, load
from daemon.testing.house import House
from daemon.testing.nvml import FakeGpu, FakeNvml

TOKEN = "s3cret-of-the-server"
KEY = "k3y-of-the-endpoint"
ENDPOINT = """
[[serve.models]]
name = "far"
kind = "endpoint"
model = "m"
base_url = "http://127.0.0.1:9/v1"
key_variable = "SOME_MODELS_VARIABLE"
"""
PATIENCE_S = 100.0


@pytest.fixture
def ports() -> Iterator[Callable[[], int]]:
    """Ports for servers of ours: bound, so that nobody else is given one, and not listened on."""
    with ExitStack() as held:

        def reserved() -> int:
            holder = held.enter_context(socket.socket())
            # The server's own socket has the same option: Linux lets both bind it, and one listen.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
            port: int = holder.getsockname()[1]
            return port

        yield reserved


@dataclass
class Kept:
    """A server that is being kept, and what is said of it."""

    house: House
    gpus: Gpus
    problems: dict[str, str] = field(default_factory=dict)
    settings: Settings = field(init=False)
    serving: Serving = field(init=False)
    asked: int = 0
    """How often the settings were read."""

    def read(self) -> Settings:
        self.asked += 1
        return self.settings

    async def looked(self) -> None:
        """Have it look at the settings again, and wait until it has found that nothing has changed for it.

        A look begins when the one before has come to its end, and reads them twice, and once more in a thread.
        """
        for reads in (1, 2):
            enough = self.asked + reads
            self.serving.reload()
            await self.until(partial(self._was_asked, enough), "a look at the settings")

    def _was_asked(self, enough: int) -> bool:
        return self.asked >= enough

    def write(self, serve: str) -> None:
        self.settings = self.house.write(repos=[], extra=f"[serve]\n{serve}\n")

    async def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            log = self.house.folder / "state" / "serve" / "server.log"
            said = log.read_text() if log.exists() else ""
            assert time.monotonic() < deadline, f"{what}: {self.serving.status()}\n{said}"
            await asyncio.sleep(0.02)

    async def up(self) -> int:
        await self.until(lambda: self.serving.is_up, "the server listens")
        pid: int = self.serving.status()["pid"]
        return pid


@asynccontextmanager
async def kept(house: House, serve: str, *, nvml: FakeNvml | None = None) -> AsyncIterator[Kept]:
    (house.folder / "state").mkdir(exist_ok=True)
    gpus = Gpus(
        house.folder / "gpus", library=lambda: nvml, is_there=lambda: nvml is not None, visible="GPU-a,GPU-b"
    )
    one = Kept(house, gpus)
    one.write(serve)
    one.serving = Serving(
        settings=one.read, gpus=gpus, problems=one.problems, patience=Patience(0.05, 0.3, 60.0)
    )
    task = asyncio.create_task(one.serving.run())
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gpus.close()
        assert one.serving.status()["state"] == "off"


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_it_is_started_again_when_it_is_killed_and_has_no_secret_where_others_can_read(
    house: House, monkeypatch: pytest.MonkeyPatch, ports: Callable[[], int]
) -> None:
    token = house.folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    monkeypatch.setenv("SOME_MODELS_VARIABLE", KEY)

    async def main() -> None:
        port = ports()
        async with kept(house, f'enabled = true\nport = {port}\ntoken_file = "token"\n{ENDPOINT}') as one:
            pid = await one.up()
            process = psutil.Process(pid)
            open_to_all = [*process.cmdline(), *process.environ().values()]
            open_to_all += [path.read_text() for path in (house.folder / "state" / "serve").iterdir()]
            assert [text for text in open_to_all if TOKEN in text or KEY in text] == []
            assert process.rlimit(psutil.RLIMIT_CORE) == (0, 0)
            assert process.rlimit(psutil.RLIMIT_DATA)[0] == one.settings.serve.memory_bytes
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                assert (await client.get("/models")).status_code == 401
                allowed = await client.get("/models", headers={"Authorization": f"Bearer {TOKEN}"})
                assert [model["name"] for model in allowed.json()["models"]] == ["far"]
            assert one.problems == {}
            os.kill(pid, signal.SIGKILL)
            await one.until(lambda: one.problems, "its end is a problem")
            assert "signal 9" in one.problems[PROBLEM]
            assert "server.log" in one.problems[PROBLEM]
            assert await one.up() != pid
            await one.until(lambda: not one.problems, "it runs well")
            assert one.serving.restarts == 1
            last = await one.up()
        assert not psutil.pid_exists(last), "it ends with its daemon"

    asyncio.run(main())


def test_what_changes_what_it_is_told_starts_it_anew_and_nothing_else_does(
    house: House, ports: Callable[[], int]
) -> None:
    async def main() -> None:
        first, second = ports(), ports()
        async with kept(house, f"enabled = true\nport = {first}") as one:
            pid = await one.up()
            await one.looked()
            one.write(f"enabled = true\nport = {first}")
            await one.looked()
            assert (one.serving.is_up, one.serving.status()["pid"]) == (True, pid)
            one.write(f"enabled = true\nport = {second}")
            one.serving.reload()
            await one.until(
                lambda: one.serving.status()["address"] == f"127.0.0.1:{second}", "the other port"
            )
            assert not psutil.pid_exists(pid)
            assert (one.serving.restarts, one.problems) == (0, {})
            last = await one.up()
            one.write("enabled = false")
            one.serving.reload()
            await one.until(lambda: one.serving.status()["state"] == "off", "it is off")
            assert not psutil.pid_exists(last)

    asyncio.run(main())


@pytest.mark.slow
def test_one_that_ends_at_once_is_a_problem_that_names_the_reason_and_is_tried_again_more_and_more_slowly(
    house: House,
) -> None:
    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            async with kept(house, f"enabled = true\nport = {port}") as one:
                await one.until(lambda: "2 times in a row" in one.problems.get(PROBLEM, ""), "two ends")
                assert f"127.0.0.1:{port} cannot be listened on" in one.serving.status()["reason"]
                assert "exit status 2" in one.serving.status()["reason"]
                taken.close()
                await one.up()
                await one.until(lambda: not one.problems, "it runs well")
                assert one.serving.restarts >= 2

    asyncio.run(main())


def test_one_that_others_could_reach_without_a_token_is_not_started_and_says_why(house: House) -> None:
    async def main() -> None:
        async with kept(house, 'enabled = true\nhost = "0.0.0.0"') as one:
            await one.until(lambda: one.problems, "a problem")
            status = one.serving.status()
            assert (status["state"], status["pid"]) == ("blocked", None)
            assert "there is no token" in status["reason"]
            assert "token_file" in status["remedy"]

    asyncio.run(main())


@pytest.mark.slow
def test_a_gpu_is_locked_by_the_server_itself_and_is_no_jobs_meanwhile(
    house: House, ports: Callable[[], int]
) -> None:
    nvml = FakeNvml(FakeGpu("GPU-a", users={1: 2**30}), FakeGpu("GPU-b", users={1: 2**30}))

    async def main() -> None:
        async with kept(house, f'enabled = true\nport = {ports()}\ndevice = "cuda"', nvml=nvml) as one:
            await one.until(lambda: one.problems, "both are somebody else's")
            assert "no GPU is free" in one.serving.status()["reason"]
            nvml.gpus[1].users = {}
            one.serving.reload()
            pid = await one.up()
            assert one.gpus.lock("GPU-b").read_text() == str(pid)
            assert psutil.Process(pid).environ()["CUDA_VISIBLE_DEVICES"] == "GPU-b"
            states = {gpu.uuid: (gpu.state, gpu.detail) for gpu in await one.gpus.look({})}
            assert states["GPU-b"] == ("lent", "the server ([serve] device)")
            await one.looked()
            assert (one.serving.is_up, one.serving.status()["pid"]) == (True, pid), (
                "that its own GPU is not free any more changes nothing"
            )
            one.write("enabled = false")
            one.serving.reload()
            await one.until(lambda: one.serving.status()["state"] == "off", "it is off")
            assert {gpu.uuid: gpu.state for gpu in await one.gpus.look({})}["GPU-b"] == "free"

    asyncio.run(main())


def test_a_whole_daemon_shows_it_in_its_status_and_its_numbers_and_takes_it_along_when_it_dies(
    house: House, ports: Callable[[], int]
) -> None:
    port = ports()
    house.write(repos=[], extra=f"[serve]\nenabled = true\nport = {port}\n")
    paths = load(house.config).paths
    sock = paths.socket

    def told() -> dict[str, Any]:
        try:
            found: dict[str, Any] = request(paths, "GET", "/status")[1]["serve"]
        except ControlError:
            return {"state": ""}
        return found

    with house.daemon() as daemon:
        house.wait_for(lambda: told()["state"] == "running", what="a server")
        serve = told()
        assert serve["address"] == f"127.0.0.1:{port}"
        with httpx2.Client(
            transport=httpx2.HTTPTransport(uds=str(sock)), base_url="http://unsorry"
        ) as client:
            assert "unsorry_serve_up 1.0" in client.get("/metrics").text
        assert psutil.Process(serve["pid"]).environ()["CUDA_VISIBLE_DEVICES"] == ""
        daemon.kill()
        daemon.wait()
        house.wait_for(lambda: not psutil.pid_exists(serve["pid"]), what="its end")
