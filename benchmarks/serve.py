"""Measure the server's requests/s and answers' seconds for 1, 16 and 64 clients, batched and one at a time.

    python benchmarks/serve.py [--quick] [--json FILE] [--folder FOLDER] [--seconds S] [--repeats N]

Two servers run at once, each a process of its own, started as by `everlean serve`: they differ in
`Limits.batch` alone, 32 and 1. They get requests in turns, for a while each, so that other load on the
machine slows both. A client keeps its connection and sends its next request after the last answer; no two
requests are the same. The clients are in this process, on the same machine: their cost is in the figures.

    generate, tiny      /generate of a causal model of 91,000 parameters: the cost of the server itself
    generate, larger    /generate of one of 26 million, with random weights: the cost of a model
    encode              /encode of a tiny retriever

Prints a table; --json writes it with the machine and the versions. --quick takes a fraction and only tests
this program.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.support.ladder import ladder

if __name__ == "__main__":
    # As a script this file's folder comes first on the path, where `store` is a file of the benchmarks.
    here = Path(__file__).resolve().parent
    sys.path[:] = [str(here.parent), *(entry for entry in sys.path if Path(entry).resolve() != here)]

from benchmarks.store_bench import BenchmarkError, Row, machine, say, table
from pipeline.serve.spec import LeanSpec, Limits, ModelSpec, ServeSpec
from store.log.log import EventLog
from store.view.view import View
from tests.support.tiny_models import make_tiny_causal, make_tiny_retriever

ROOT = Path(__file__).resolve().parents[1]
BATCHED, ALONE = "batched", "one at a time"
_START_S = 300.0
_STATE = "n : Nat\nh : n + {number} = {number} + n\n⊢ {number} + n = n + {number}"


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amounts: clients, their seconds of requests, the turns of each server."""

    clients: tuple[int, ...] = (1, 16, 64)
    seconds: float = 10.0
    repeats: int = 3
    asked: tuple[str, ...] = ("generate, tiny", "generate, larger", "encode")
    candidates: int = 4
    tokens: int = 16
    batch: int = 32


QUICK = Sizes(clients=(1, 4), seconds=0.3, repeats=1, asked=("generate, tiny", "encode"), tokens=4)

_ROUTES = {"generate, tiny": "/generate", "generate, larger": "/generate", "encode": "/encode"}


@dataclass(slots=True)
class Turn:
    """A server's answers in one turn: the seconds of each, and of the turn."""

    answers: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.answers) / self.seconds

    def percentile_ms(self, percent: int) -> float:
        """Return a percentile of the answers' durations, by nearest rank, in milliseconds."""
        ranked = sorted(self.answers)
        return 1000 * ranked[math.ceil(len(ranked) * percent / 100) - 1]


@contextmanager
def server(folder: Path, spec: ServeSpec) -> Iterator[subprocess.Popen[str]]:
    """Run a server as a process of its own; `listening` waits for its port."""
    folder.mkdir()
    spec = replace(spec, lean=replace(spec.lean, scratch=folder / "scratch"))
    path = folder / "order.json"
    spec.write(path)
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pipeline.serve", str(path)],
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
            process.communicate()


async def listening(folder: Path, process: subprocess.Popen[str]) -> int:
    """Wait until the models of a server are loaded; return its port."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise BenchmarkError(f"the server did not start: {(folder / 'stderr').read_text()[-2000:]}")
    port: int = json.loads(line)["listening"]["port"]
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        client = await Client.connect(port)
        status, answer = await client.ask("GET", "/ready", b"")
        client.close()
        if status == 200:
            return port
        await asyncio.sleep(0.1)
    raise BenchmarkError(f"the server's models were not ready: {answer.decode()[:2000]}")


class Client:
    """One lasting connection, with one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, method: str, route: str, body: bytes) -> tuple[int, bytes]:
        """Return the status and the body of the answer."""
        head = (
            f"{method} {route} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode("ascii") + body)
        answered = await self._reader.readuntil(b"\r\n\r\n")
        status, *lines = answered.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return int(status.split()[1]), await self._reader.readexactly(int(headers["content-length"]))

    def close(self) -> None:
        self._writer.close()


async def turn(port: int, what: str, clients: int, seconds: float, *, first: int) -> Turn:
    """Have `clients` clients ask a server for a while. `first` numbers the requests."""
    result = Turn()
    numbers = iter(range(first, first + 10**9))
    connected = [await Client.connect(port) for _ in range(clients)]
    began = time.perf_counter()

    async def one(client: Client) -> None:
        while time.perf_counter() - began < seconds:
            request: dict[str, Any] = {"name": what, "input": _STATE.format(number=next(numbers))}
            if _ROUTES[what] == "/generate":
                request["prefix"] = ""
            body = json.dumps(request).encode()
            at = time.perf_counter()
            status, answer = await client.ask("POST", _ROUTES[what], body)
            if status != 200:
                raise BenchmarkError(f"{what}: {status}: {answer.decode('utf-8', 'replace')[:500]}")
            result.answers.append(time.perf_counter() - at)

    try:
        await asyncio.gather(*(one(client) for client in connected))
    finally:
        for client in connected:
            client.close()
    result.seconds = time.perf_counter() - began
    return result


def measure(folder: Path, sizes: Sizes) -> Iterator[Row]:
    """Yield the figures, each for both servers, and their ratios."""
    spec = make_order(folder, sizes)
    orders = {
        BATCHED: spec,
        ALONE: replace(spec, limits=replace(spec.limits, batch=1)),
    }
    number = 0
    with ExitStack() as open_:
        say("starting two servers")
        folders = {way: folder / way.replace(" ", "-") for way in orders}
        started = {way: open_.enter_context(server(folders[way], one)) for way, one in orders.items()}
        ports = {way: asyncio.run(listening(folders[way], process)) for way, process in started.items()}
        for what in sizes.asked:
            for clients in sizes.clients:
                say(f"{what}, {clients} clients")
                turns: dict[str, list[Turn]] = {BATCHED: [], ALONE: []}
                for port in ports.values():  # the preparations of a first request do not count
                    asyncio.run(turn(port, what, clients, min(1.0, sizes.seconds), first=number))
                    number += 10**6
                for _ in range(sizes.repeats):
                    for way, port in ports.items():
                        turns[way].append(asyncio.run(turn(port, what, clients, sizes.seconds, first=number)))
                        number += 10**6
                yield from _rows(what, clients, turns)


def _rows(what: str, clients: int, turns: dict[str, list[Turn]]) -> Iterator[Row]:
    of = f"{what}, {clients} client{'s' if clients > 1 else ''}"
    medians = {}
    figures: tuple[tuple[str, str, Callable[[Turn], float]], ...] = (
        ("requests", "1/s", lambda one: one.rate),
        ("p50", "ms", lambda one: one.percentile_ms(50)),
        ("p99", "ms", lambda one: one.percentile_ms(99)),
    )
    for name, unit, value in figures:
        for way, result in turns.items():
            samples = tuple(value(one) for one in result)
            medians[name, way] = statistics.median(samples)
            yield Row(of, f"{name}, {way}", medians[name, way], unit, samples=samples)
    ratio = medians["requests", BATCHED] / medians["requests", ALONE]
    yield Row(of, "requests, batched to one at a time", ratio, "x")


def make_order(folder: Path, sizes: Sizes) -> ServeSpec:
    """Make the models, and an empty store for the server to read."""
    folder.mkdir(parents=True, exist_ok=True)
    log = EventLog.open(folder / "events.db")
    reader = log.reader()
    View.open(folder / "database.db", reader).close()
    reader.close()
    log.close()
    result = {
        "generate, tiny": lambda: make_tiny_causal(folder / "tiny"),
        "generate, larger": lambda: make_tiny_causal(folder / "larger", hidden=512, layers=12),
        "encode": lambda: make_tiny_retriever(folder / "encoder"),
    }
    models = tuple(
        ModelSpec(
            what,
            "encoder" if what == "encode" else "tactics",
            str(result[what]()),
            candidates=sizes.candidates,
            max_tokens=sizes.tokens,
        )
        for what in sizes.asked
    )
    return ServeSpec(
        host="127.0.0.1",
        port=0,
        view=folder / "database.db",
        events=folder / "events.db",
        checkpoints=folder / "models",
        indices=folder / "embeddings",
        models=models,
        lean=LeanSpec("none", "", "none", folder, folder / "scratch", ladder(folder)),
        limits=Limits(queue=1024, seconds=600.0, batch=sizes.batch),
    )


def about() -> dict[str, Any]:
    """Return the machine and the versions of the run."""
    packages = {name: metadata.version(name) for name in ("fastapi", "uvicorn", "torch", "transformers")}
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return {**machine(), "peer": None, "packages": packages, "threads": threads}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--quick", action="store_true", help="a fraction of everything: only tests this program"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the figures and what they were measured on"
    )
    parser.add_argument("--folder", type=Path, help="work here instead of in a temporary folder")
    parser.add_argument("--seconds", type=float, help="how long each turn is")
    parser.add_argument("--repeats", type=int, help="turns of each server; their median is reported")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else Sizes()
    sizes = replace(sizes, seconds=options.seconds or sizes.seconds, repeats=options.repeats or sizes.repeats)
    measured_on = about()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="serve-") as folder:
        rows = list(measure(Path(folder), sizes))
    print(table(rows))
    if options.json:
        document = {
            "quick": options.quick,
            "sizes": asdict(sizes),
            "machine": measured_on,
            "rows": [asdict(row) for row in rows],
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchmarkError as error:
        sys.exit(f"benchmark: {error}")
