"""Thousands of tactics through a pool of REPLs that fail in every way at random: nothing is lost, mixed up or left."""

from __future__ import annotations

import asyncio
import collections
import gc
import os
import random
import uuid
from pathlib import Path

import pytest

from pipeline.lean.client.errors import ReplDied, ReplStartError
from pipeline.lean.client.messages import TacticFailed, TacticParseError
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.pool import ReplKey, ReplPool, Setup
from pipeline.lean.pool.session import Session, SetupFailed, State, StateLost, Stepped, TacticKilled
from tests.support.lean import scripted
from tests.support.lean.scripted_repl import HUGE_BYTES, goal_text

TACTICS = 10_000
FEWER = 2_000
"""Enough for every fault; the nightly run has all of them."""
SEARCHES = 16
PROCESSES = 6
SEED = 20_251
MIB = 1024 * 1024
# Per request, those of replays and setups included: about a hundred deaths, and a line of 100 MB now and then.
FAULTS = {
    "crash": 0.002,
    "hang": 0.0004,
    "flood": 0.0005,
    "broken": 0.001,
    "huge": 0.0001,
    "panic": 0.001,
    "late": 0.0004,
    "cut": 0.001,
    "close_output": 0.0004,
    "orphan": 0.0004,
}


class Searcher:
    """One of the searches: walks at random, remembers how it came to each state, and counts what it hears."""

    def __init__(self, number: int, pool: ReplPool, key: ReplKey, *, huge: float) -> None:
        self.number = number
        self.huge = huge
        self.pool = pool
        self.key = key
        self.dice = random.Random(SEED + number)
        self.counts: collections.Counter[str] = collections.Counter()
        self.unopened = 0

    async def run(self, tactics: int) -> None:
        while (asked := sum(self.counts.values())) < tactics:
            # Some share what comes before, some do not, and one in a while asks the pool for something else.
            prefix = ("common",) if self.number % 8 else ("common", f"own {self.number}")
            async with Session(self.pool, self.key, Setup(prefix=prefix)) as session:
                await self._search(session, list(prefix), min(tactics - asked, 209))

    async def _search(self, session: Session, env: list[str], tactics: int) -> None:
        statement = f"statement {self.number} {self.dice.random()}"
        try:
            root = await session.start(statement)
        except (ReplDied, ReplStartError, SetupFailed):
            # Not a tactic, and one typed error all the same.
            self.unopened += 1
            assert self.unopened < 100, "the pool never gets anywhere"
            return
        assert [goal.target for goal in root.goals] == [goal_text(env, statement)]
        states: list[tuple[State, list[list[str]]]] = [(root, [[]])]
        for number in range(tactics):
            state, ways = self.dice.choice(states)
            tactic = self.dice.choice(["split", "close", "fail", "(", *(f"step {number}",) * 6])
            if (chance := self.dice.random()) < 0.0036 + self.huge:
                # What ends every process, and what only seems to.
                tactic = (
                    "fault huge" if chance < self.huge else self.dice.choice(("fault crash", "fault broken"))
                )
            site = self.dice.randrange(len(ways))
            try:
                answer = await session.tactic(state, tactic, goal=site or None, timeout_s=1.0)
            except (ReplDied, ReplStartError, StateLost, SetupFailed) as error:
                self.counts[type(error).__name__] += 1
                states = [(root, [[]])]
                if isinstance(error, StateLost) and state is root:
                    return
                continue
            self.counts[type(answer).__name__] += 1
            self._judge(answer, tactic, env, statement, ways[site])
            if isinstance(answer, Stepped):
                new = {"close": [], "split": [["split 0"], ["split 1"]]}.get(tactic, [[tactic]])
                after = [*([*ways[site], *steps] for steps in new), *ways[:site], *ways[site + 1 :]]
                shown = [goal.target for goal in answer.state.goals]
                assert shown == [goal_text(env, statement, way) for way in after]
                if after:
                    states.append((answer.state, after))
                else:
                    session.release([answer.state])
            if len(states) > 12:
                session.release([states.pop(1)[0]])
            if self.dice.random() < 0.01:
                session.park()

    def _judge(self, answer: object, tactic: str, env: list[str], statement: str, way: list[str]) -> None:
        if isinstance(answer, TacticKilled):
            assert answer.reason
        elif tactic in ("fault crash", "fault broken"):
            raise AssertionError(f"{tactic}: {answer}")
        elif tactic == "fail":
            assert isinstance(answer, TacticFailed)
            assert answer.reason == f"no progress on {goal_text(env, statement, way)}"
        elif tactic == "(":
            assert isinstance(answer, TacticParseError)
        else:
            assert isinstance(answer, Stepped), answer


def processes_with(marker: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if marker.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def children_with(marker: str) -> int:
    """Count the processes that we have started ourselves and that still run."""
    count = 0
    for mine in Path("/proc/self/task").glob("*/children"):
        for pid in mine.read_text("utf-8").split():
            try:
                # A zombie has no command line any more.
                count += marker.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
    return count


def memory(field: str) -> int:
    for line in Path("/proc/self/status").read_text("utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(field)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("tactics", [FEWER, pytest.param(TACTICS, marks=pytest.mark.slow)])
def test_thousands_of_tactics_each_get_one_answer_or_one_typed_error(tmp_path: Path, tactics: int) -> None:
    marker = uuid.uuid4().hex
    backend = scripted.backend(seed=SEED, marker=marker, faults=FAULTS, start_fault=0.02)
    limits = PoolLimits(
        processes=PROCESSES,
        memory_bytes=512 * MIB,
        calls=150,
        ready_timeout_s=30,
        call_timeout_s=1.0,
        grace_s=1.0,
        setup_timeout_s=1.0,
    )
    searchers: list[Searcher] = []
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, children_with(marker))
            await asyncio.sleep(0.05)

    async def main() -> None:
        watching = asyncio.create_task(watch())
        async with ReplPool(limits) as pool:
            key = ReplKey(backend, tmp_path, ("Init",))
            searchers.extend(Searcher(number, pool, key, huge=4 / tactics) for number in range(SEARCHES))
            async with asyncio.TaskGroup() as tasks:
                for searcher in searchers:
                    tasks.create_task(searcher.run(tactics // SEARCHES))
            assert pool.stats.busy == 0
            assert pool.stats.idle <= PROCESSES
            assert pool.stats.died > tactics / 350, "the faults did not happen"
            assert pool.stats.recycled > tactics / 1_000
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        assert 1 < most <= PROCESSES
        assert processes_with(marker) == []
        assert len(asyncio.all_tasks()) == 1

    gc.collect()
    # The peak so far is of other tests in this process.
    Path("/proc/self/clear_refs").write_text("5", "utf-8")
    before, descriptors = memory("VmRSS"), open_files()
    asyncio.run(main())
    gc.collect()
    peak = memory("VmHWM")
    counts = sum((searcher.counts for searcher in searchers), collections.Counter[str]())
    assert sum(counts.values()) == tactics, counts
    assert counts["Stepped"] > 0.6 * tactics
    assert counts["TacticKilled"] > tactics / 1_000
    assert peak - before > HUGE_BYTES, "no huge line was read"
    # A line of 100 MB is held a few times over while it is read and decoded, and two may come at once.
    assert peak - before < 1500 * MIB
    assert memory("VmRSS") - before < 200 * MIB
    assert open_files() <= descriptors + 2
