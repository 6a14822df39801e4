"""Measure the REPL's client and the pool with programs without cost, and searches with each Lean here.

    python benchmarks/lean.py [--quick] [--only NAME ...] [--json FILE]

    call      a tactic through session, pool and client, against a bare pipe and the same bytes to the same
        program
    together  16 REPLs from one event loop: calls a second, fairness, processor time of the client
    checkout  a process from the pool: a waiting one, and one to be started
    replay    the next tactic after the process has died, twenty tactics deep
    search    each real Lean here (a REPL, a language server): its start, a tactic in a place below several
        numbers of
              lemmas, going back and forth between two branches, the same tactics in one text, tactics a
                  second of two
              processes, memory

Prints a table; --json writes it with the machine and the versions. Every difference and ratio is of figures
of the same run, taken in turns. --quick does all of it at a fraction of the size: a test of this program, no
measurement.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # As a script this file's folder comes first on the path, where `store` is a file of the benchmarks.
    here = Path(__file__).resolve().parent
    sys.path[:] = [str(here.parent), *(entry for entry in sys.path if Path(entry).resolve() != here)]

from benchmarks.store_bench import Row, machine, say, table
from pipeline.lean.backend import LeanBackend, find_leans
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.pool import ReplKey, ReplPool, Setup
from pipeline.lean.pool.session import Session, State, Stepped
from tests.support.lean import scripted
from tests.support.lean.wheel import backend as wheel
from tests.support.lean.wheel.lean import UnavailableError

PROGRAM = Path(__file__).resolve().with_name("lean_repl.py")
TACTIC = "rcases h with ⟨x, hx⟩"
REPLS = 16


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amount of everything."""

    above: tuple[int, ...] = (0, 30, 300)
    tactics: int = 200
    rounds: int = 30
    calls: int = 300
    seconds: float = 5.0
    checkouts: int = 2_000
    starts: int = 20
    replays: int = 10
    batches: int = 20


QUICK = Sizes(
    above=(0,), tactics=5, rounds=2, calls=10, seconds=0.2, checkouts=10, starts=2, replays=1, batches=1
)


@dataclass(frozen=True, slots=True)
class Bench:
    """The folder, and the amounts."""

    folder: Path
    sizes: Sizes

    def backend(self, reply: bytes, *, think_ms: float = 0.0) -> LeanBackend:
        """Return a program that answers every tactic with these bytes."""
        file = self.folder / f"reply-{len(reply)}.json"
        file.write_bytes(reply)
        argv = (sys.executable, "-I", "-S", str(PROGRAM), f"--reply={file}", f"--think-ms={think_ms}")
        return LeanBackend("pantograph", argv, "always the same answer", "", sandbox="none")

    def key(self, backend: LeanBackend) -> ReplKey:
        return ReplKey(backend, self.folder, ("Init",))


def reply(*, goals: int, hypotheses: int) -> bytes:
    """Return an answer to a tactic in Lean's form, with these numbers of goals and hypotheses of each."""
    variables = [
        {
            "userName": f"h{number}",
            "type": {"pp": f"∀ ε > 0, ∃ δ > 0, ∀ x ∈ s, |f x - f x{number}| < ε"},
            "name": f"_uniq.{100 + number}",
            "isInaccessible": False,
        }
        for number in range(hypotheses)
    ]
    shown = [
        {
            "vars": variables,
            "target": {"pp": f"∃ y ∈ t, ‖g y - g x{number}‖ ≤ 𝓝 ε"},
            "name": f"_uniq.{number}",
            "fragment": "tactic",
        }
        for number in range(goals)
    ]
    answer = {"nextStateId": 1, "messages": [], "hasUnsafe": False, "hasSorry": False, "goals": shown}
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class BarePipe:
    """The same program behind two pipes and nothing else."""

    def __init__(self, backend: LeanBackend) -> None:
        self.process = subprocess.Popen(
            backend.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.write, self.read = self.process.stdin.fileno(), self.process.stdout.fileno()
        self._line()

    def ask(self, line: bytes) -> bytes:
        os.write(self.write, line)
        return self._line()

    def _line(self) -> bytes:
        data = os.read(self.read, 1 << 20)
        while not data.endswith(b"\n"):
            data += os.read(self.read, 1 << 20)
        return data

    def close(self) -> None:
        self.process.communicate()


async def measure_call(bench: Bench) -> AsyncIterator[Row]:
    """Measure a call of the whole client, less the same bytes through a bare pipe."""
    for goals, hypotheses, target in ((1, 4, "at most 0.3"), (3, 8, "at most 0.3"), (8, 20, "")):
        answer = reply(goals=goals, hypotheses=hypotheses)
        backend = bench.backend(answer)
        payload = {"cmd": "goal.tactic", "payload": {"stateId": 0, "tactic": TACTIC}}
        request = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        bare = BarePipe(backend)
        ours: list[float] = []
        theirs: list[float] = []
        spent: list[float] = []
        async with ReplPool() as pool, Session(pool, bench.key(backend)) as session:
            root = await session.start("∀ p : Prop, p → p")
            for _ in range(bench.sizes.rounds):
                began = time.perf_counter()
                for _ in range(bench.sizes.calls):
                    bare.ask(request)
                theirs.append((time.perf_counter() - began) / bench.sizes.calls)
                began, busy = time.perf_counter(), time.process_time()
                for _ in range(bench.sizes.calls):
                    step = await _step(session, root)
                    session.release([step])
                ours.append((time.perf_counter() - began) / bench.sizes.calls)
                spent.append((time.process_time() - busy) / bench.sizes.calls)
        bare.close()
        what = f"{goals} goals of {hypotheses} hypotheses, {len(answer):,} bytes"
        pipe, client = (1000 * statistics.median(samples) for samples in (theirs, ours))
        yield Row("call", f"bare pipe, {what}", pipe, "ms", samples=tuple(theirs))
        yield Row("call", f"whole client, {what}", client, "ms", samples=tuple(ours))
        over = 1000 * statistics.median(one - other for one, other in zip(ours, theirs, strict=True))
        note = "" if target else "far more than Lean usually answers: how the cost grows with the size"
        reached = over <= 0.3 if target else None
        yield Row("call", f"client over pipe, {what}", over, "ms", target, reached, note)
        busy_ms = 1000 * statistics.median(spent)
        yield Row("call", f"processor time of the client, {what}", busy_ms, "ms", samples=tuple(spent))


async def measure_together(bench: Bench) -> AsyncIterator[Row]:
    """Measure one event loop with sixteen REPLs, at five milliseconds a tactic each."""
    think_ms = 5.0
    backend = bench.backend(reply(goals=1, hypotheses=4), think_ms=think_ms)
    calls = [0] * REPLS

    async def search(number: int, pool: ReplPool) -> None:
        async with Session(pool, bench.key(backend)) as session:
            root = await session.start("p")
            await go.wait()
            while time.perf_counter() < until:
                session.release([await _step(session, root)])
                calls[number] += 1

    go = asyncio.Event()
    until = 0.0
    async with ReplPool(PoolLimits(processes=REPLS)) as pool:
        tasks = [asyncio.create_task(search(number, pool)) for number in range(REPLS)]
        while pool.stats.started < REPLS:  # noqa: ASYNC110 - a benchmark's own start line
            await asyncio.sleep(0.01)
        until = time.perf_counter() + bench.sizes.seconds
        spent = time.process_time()
        began = time.perf_counter()
        go.set()
        await asyncio.gather(*tasks)
        took, spent = time.perf_counter() - began, time.process_time() - spent
    total = sum(calls)
    rate, ideal = total / took, REPLS * 1000 / think_ms
    what = f"{REPLS} REPLs that think {think_ms:g} ms"
    yield Row("together", what, rate, "calls/s")
    yield Row("together", f"of what {what} could do at no cost", rate / ideal, "x")
    yield Row("together", "the REPL served least, against the one served most", min(calls) / max(calls), "x")
    yield Row("together", "processor time of the client for a call", 1000 * spent / total, "ms")
    yield Row("together", "processor of the client while they run", 100 * spent / took, "%")


async def measure_checkout(bench: Bench) -> AsyncIterator[Row]:
    """Measure taking a process for a search: an idle one, and a new one (Python's start, not Lean's)."""
    backend = scripted.backend()
    key = bench.key(backend)
    async with ReplPool(PoolLimits(processes=1)) as pool:
        pool.give_back(await pool.take(key))
        began = time.perf_counter()
        for _ in range(bench.sizes.checkouts):
            pool.give_back(await pool.take(key))
        warm = (time.perf_counter() - began) / bench.sizes.checkouts
        yield Row("checkout", "a process that waits in the pool", 1e6 * warm, "µs")
        began = time.perf_counter()
        for _ in range(bench.sizes.checkouts):
            async with Session(pool, key) as session:
                await session.ready()
        session_s = (time.perf_counter() - began) / bench.sizes.checkouts
        yield Row("checkout", "a whole session on it, one reset included", 1e6 * session_s, "µs")
    samples, bare = [], []
    for _ in range(bench.sizes.starts):
        async with ReplPool() as pool:
            began = time.perf_counter()
            pool.give_back(await pool.take(key))
            samples.append(time.perf_counter() - began)
        began = time.perf_counter()
        started = subprocess.Popen(  # noqa: ASYNC220 - what is measured is the bare start
            backend.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=bench.folder
        )
        assert started.stdout is not None
        started.stdout.readline()
        bare.append(time.perf_counter() - began)
        started.communicate()
    cold, nothing = (1000 * statistics.median(some) for some in (samples, bare))
    yield Row("checkout", "a process that has to be started", cold, "ms", samples=tuple(samples))
    yield Row("checkout", "the same program, started and heard of", nothing, "ms", samples=tuple(bare))


async def measure_replay(bench: Bench) -> AsyncIterator[Row]:
    """Measure the tactic after a death: a new process, its setup, and the way to the state."""
    depth = 20
    ordinary, after = [], []
    async with ReplPool() as pool:
        for number in range(bench.sizes.replays):
            async with Session(pool, bench.key(scripted.backend())) as session:
                state = await session.start(f"p{number}")
                for step in range(depth):
                    began = time.perf_counter()
                    state = await _step(session, state, f"step {step}")
                    ordinary.append(time.perf_counter() - began)
                process = session.process_id
                assert process is not None
                os.kill(process, signal.SIGKILL)
                began = time.perf_counter()
                await _step(session, state, "after")
                after.append(time.perf_counter() - began)
                assert session.replayed == depth
    yield Row("replay", "a tactic", 1000 * statistics.median(ordinary), "ms")
    what = f"a tactic {depth} deep after the process died: another process and the way there"
    yield Row("replay", what, 1000 * statistics.median(after), "ms", samples=tuple(after))


_PLACE = "theorem goal (p q r : Prop) (h : p ∧ (q ∨ r)) : (p ∧ q) ∨ (p ∧ r) := by\n  sorry\n"
_SLOW = "sleep 50"
_TRIED = (
    "exact h.1",
    "simp_all",
    "cases h",
    "left",
    "right",
    "constructor",
    "assumption",
    "rcases h with ⟨a, b | c⟩",
    "intro x",
    "apply Or.inl",
    "exact Or.inl ⟨h.1, h.2⟩",
    "refine Or.inr ⟨?_, ?_⟩",
)


def real_leans() -> dict[str, LeanBackend]:
    """Return the real Leans of this machine by kind and version."""
    builds = find_leans(backend="auto", repl="", sandbox="none").builds
    leans = {f"{build.kind} {build.toolchain.rpartition(':')[2]}": build for build in builds}
    with suppress(UnavailableError):
        leans["server v4.35.0, own library"] = wheel.backend()
    return leans


async def measure_search(bench: Bench) -> AsyncIterator[Row]:
    """Measure a search's waits, with each Lean in turn: the same places, the same tactics."""
    leans = real_leans()
    if not leans:
        yield Row("search", "no Lean is here", None, "")
    for name, backend in leans.items():
        for above in bench.sizes.above:
            lemmas = (
                f"theorem lemma_{number} (a b : Nat) : a + b = b + a := by\n  rw [Nat.add_comm]\n"
                for number in range(above)
            )
            setup = Setup(prefix=("".join(lemmas),) if above else ())
            limits = PoolLimits(processes=2)
            key = bench.key(backend)
            async with ReplPool(limits) as pool, Session(pool, key, setup) as session:
                began = time.perf_counter()
                await session.ready()
                ready = time.perf_counter() - began
                where = f"{name}, {above} lemmas above"
                yield Row("search", f"a session's start, {where}", 1000 * ready, "ms")
                samples = await _time_tactics(session, bench.sizes.tactics)
                yield Row(
                    "search",
                    f"a tactic, {where}",
                    1000 * statistics.median(samples),
                    "ms",
                    samples=tuple(samples),
                )
                yield Row(
                    "search",
                    f"one in ten takes longer than, {where}",
                    1000 * sorted(samples)[-len(samples) // 10],
                    "ms",
                )
                jumps = await _jumps(session, bench.sizes.tactics)
                yield Row(
                    "search",
                    f"back and forth, five steps deep, {where}",
                    1000 * statistics.median(jumps),
                    "ms",
                )
                if not above:
                    for way, steps in (
                        ("at the beginning", ()),
                        ("behind five steps of 50 ms", (_SLOW,) * 5),
                    ):
                        alone, together = await _in_one_text(session, steps, bench.sizes.batches)
                        yield Row("search", f"twelve tactics one by one, {way}, {name}", 1000 * alone, "ms")
                        yield Row("search", f"the same in one text, {way}, {name}", 1000 * together, "ms")
                process = session.process_id
                assert process is not None
                async with Session(pool, key, setup) as other:
                    await other.ready()
                    began = time.perf_counter()
                    both = await asyncio.gather(
                        *(_time_tactics(one, bench.sizes.tactics) for one in (session, other))
                    )
                    rate = sum(map(len, both)) / (time.perf_counter() - began)
                yield Row("search", f"tactics of two processes, {where}", rate, "tactics/s")
                yield Row("search", f"memory of one process, {where}", _resident_mib(process), "MiB")


async def _time_tactics(session: Session, count: int) -> list[float]:
    """Return the seconds of each of `count` tactics in one place."""
    (root,) = await session.distil(_PLACE)
    samples = []
    for number in range(count):
        began = time.perf_counter()
        answer = await session.tactic(root, _TRIED[number % len(_TRIED)])
        samples.append(time.perf_counter() - began)
        if isinstance(answer, Stepped):
            session.release([answer.state])
    session.release([root])
    return samples


async def _in_one_text(session: Session, steps: Sequence[str], count: int) -> tuple[float, float]:
    """Return the median seconds of the twelve tactics one by one, and in one text with copies, in turns."""
    (root,) = await session.distil(_PLACE)
    state = root
    for step in steps:
        state = await _step(session, state, step)
    before = "".join(f"  {step}\n" for step in steps)
    alone, together = [], []
    for number in range(count):
        began = time.perf_counter()
        for tactic in _TRIED:
            answer = await session.tactic(state, tactic)
            if isinstance(answer, Stepped):
                session.release([answer.state])
        alone.append(time.perf_counter() - began)
        copies = (
            f"namespace Try{number}_{at}\n{_PLACE.replace('  sorry', before + '  ' + tactic)}end Try{number}_{at}\n"
            for at, tactic in enumerate(_TRIED)
        )
        text = "".join(copies)
        began = time.perf_counter()
        await session.process(text)
        together.append(time.perf_counter() - began)
    session.release([root])
    return statistics.median(alone), statistics.median(together)


async def _jumps(session: Session, count: int) -> list[float]:
    """Return the seconds of tactics in turn on two branches, each five steps deep."""
    (root,) = await session.distil(_PLACE)
    ends = []
    for first in ("left", "right"):
        state = await _step(session, root, first)
        for _ in range(4):
            state = await _step(session, state, "skip")
        ends.append(state)
    samples = []
    for number in range(count):
        began = time.perf_counter()
        session.release([await _step(session, ends[number % 2], "constructor")])
        samples.append(time.perf_counter() - began)
    return samples


def _resident_mib(process: int) -> float:
    """Return the resident memory of a process and its children, shared pages counted in each."""
    result = subprocess.run(
        ["ps", "-o", "rss=", "--pid", str(process), "--ppid", str(process)],
        capture_output=True,
        text=True,
        check=True,
    )
    return sum(map(int, result.stdout.split())) / 1024


async def _step(session: Session, state: State, tactic: str = TACTIC) -> State:
    answer = await session.tactic(state, tactic)
    assert isinstance(answer, Stepped), answer
    return answer.state


MEASUREMENTS: dict[str, Callable[[Bench], AsyncIterator[Row]]] = {
    "call": measure_call,
    "together": measure_together,
    "checkout": measure_checkout,
    "replay": measure_replay,
    "search": measure_search,
}


async def measured(bench: Bench, names: Sequence[str]) -> list[Row]:
    rows = []
    for name in names:
        say(f"{name} …")
        rows += [row async for row in MEASUREMENTS[name](bench)]
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", choices=sorted(MEASUREMENTS), metavar="NAME", help="some of them"
    )
    parser.add_argument("--quick", action="store_true", help="a fraction of the size: does it run?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    options = parser.parse_args()
    names = [name for name in MEASUREMENTS if not options.only or name in options.only]
    about: dict[str, Any] = machine()
    with tempfile.TemporaryDirectory(prefix="everlean-benchmark-") as temporary:
        bench = Bench(Path(temporary).resolve(), QUICK if options.quick else Sizes())
        rows = asyncio.run(measured(bench, names))
    print(table(rows))
    if options.json:
        document = {"quick": options.quick, "machine": about, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
