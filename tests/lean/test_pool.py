"""The pool of REPL processes and a search's session on it, against a REPL program that fails as it is told."""

from __future__ import annotations

import asyncio
import os
import sys
import tracemalloc
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pytest

from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.errors import ReplDied, ReplStartError, ReplTimeout
from pipeline.lean.client.messages import TacticFailed, TacticParseError
from pipeline.lean.client.repl import Repl
from pipeline.lean.pool import PoolLimits, pool
from pipeline.lean.pool.pool import PoolClosed, PooledRepl, ReplKey, ReplPool, Setup
from pipeline.lean.pool.session import (
    ReplayDied,
    ReplayDiverged,
    Session,
    SetupFailed,
    State,
    Stepped,
    TacticKilled,
)
from tests.support.lean import scripted
from tests.support.lean.scripted_repl import goal_text

T = TypeVar("T")
MIB = 1024 * 1024


class Place:
    """A pool in a folder, and what its processes are asked to be."""

    def __init__(self, folder: Path, pool: ReplPool, backend: LeanBackend) -> None:
        self.folder = folder
        self.pool = pool
        self.backend = backend

    def key(self, *imports: str) -> ReplKey:
        return ReplKey(self.backend, self.folder, imports or ("Init",))

    def session(self, *imports: str, setup: Setup | None = None) -> Session:
        return Session(self.pool, self.key(*imports), setup)


def on_pool(
    folder: Path,
    use: Callable[[Place], Awaitable[T]],
    *,
    processes: int = 2,
    memory_bytes: int = 512 * MIB,
    recycle_bytes: int | None = None,
    calls: int = 100_000,
    call_timeout_s: float = 20.0,
    backend: LeanBackend | None = None,
    real: bool = False,
) -> T:
    """Use a pool in a folder; `real`: of processes, otherwise of objects that answer as these do."""
    limits = PoolLimits(
        processes=processes,
        memory_bytes=memory_bytes,
        recycle_bytes=recycle_bytes,
        calls=calls,
        ready_timeout_s=30,
        call_timeout_s=call_timeout_s,
        grace_s=0.3,
    )

    async def main() -> T:
        start = None if real or backend else scripted.starts()
        async with ReplPool(limits, start=start) as pool:
            return await use(Place(folder, pool, backend or scripted.backend()))

    return asyncio.run(main())


def is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def stepped(session: Session, state: State, *tactics: str, timeout_s: float | None = None) -> State:
    for tactic in tactics:
        answer = await session.tactic(state, tactic, timeout_s=timeout_s)
        assert isinstance(answer, Stepped), answer
        state = answer.state
    return state


def targets(state: State) -> list[str]:
    return [goal.target for goal in state.goals]


# ---- the pool


def test_no_more_processes_than_the_bound_exist_at_once(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        most = 0

        async def search(number: int) -> None:
            nonlocal most
            async with place.session() as session:
                state = await session.start(f"p{number}")
                for step in range(3):
                    await session.tactic(state, f"step {step}")
                    most = max(most, len(processes_with(str(tmp_path))))

        await asyncio.gather(*(search(number) for number in range(12)))
        assert most == 3
        assert place.pool.stats.started == 3

    on_pool(tmp_path, use, real=True, processes=3)


def test_the_memory_of_all_together_bounds_the_number_too() -> None:
    limits = PoolLimits(processes=16, memory_bytes=4 * MIB, total_memory_bytes=10 * MIB)
    assert limits.capacity == 2
    with pytest.raises(ValueError, match="no room for one process"):
        PoolLimits(memory_bytes=4 * MIB, total_memory_bytes=3 * MIB)


def test_a_process_that_is_given_back_serves_the_next_search_of_its_key(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        pids = set()
        for _ in range(3):
            process = await place.pool.take(place.key())
            pids.add(process.repl.pid)
            place.pool.give_back(process)
        assert len(pids) == 1
        assert (place.pool.stats.started, place.pool.stats.reused) == (1, 2)

    on_pool(tmp_path, use, real=True)


def test_processes_of_other_imports_or_projects_are_not_shared(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()

    async def use(place: Place) -> None:
        keys = [place.key("A"), place.key("B"), ReplKey(place.backend, tmp_path / "other", ("A",))]
        taken = [await place.pool.take(key) for key in keys]
        assert len({process.repl.pid for process in taken}) == 3
        for process in taken:
            place.pool.give_back(process)

    on_pool(tmp_path, use, real=True, processes=3)


def test_a_process_that_knows_more_than_the_search_may_know_is_not_used(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session(setup=Setup(prefix=("def a", "theorem t"))) as session:
            state = await session.start("p")
            assert targets(state) == [goal_text(["def a", "theorem t"], "p")]
        async with place.session(setup=Setup(prefix=("def a",))) as session:
            state = await session.start("p")
            assert targets(state) == [goal_text(["def a"], "p")]
        assert place.pool.stats.started == 2

    on_pool(tmp_path, use)


def test_a_process_that_knows_a_part_of_it_is_told_the_rest(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        for prefix in (("def a",), ("def a", "def b"), ("def a", "def b", "def c")):
            async with place.session(setup=Setup(prefix=prefix)) as session:
                assert targets(await session.start("p")) == [goal_text(prefix, "p")]
        assert place.pool.stats.started == 1

    on_pool(tmp_path, use)


def test_the_one_idle_longest_makes_room_for_another_key(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        pids = {}
        for name in ("A", "B", "A"):
            process = await place.pool.take(place.key(name))
            pids[name] = process.repl.pid
            place.pool.give_back(process)
        third = await place.pool.take(place.key("C"))
        assert not is_running(pids["B"])
        assert is_running(pids["A"])
        assert place.pool.stats.evicted == 1
        place.pool.give_back(third)

    on_pool(tmp_path, use, real=True)


def test_who_waits_longest_is_served_first(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        served: list[int] = []

        async def taker(number: int) -> None:
            process = await place.pool.take(place.key("A" if number % 2 else "B"))
            served.append(number)
            await asyncio.sleep(0)
            place.pool.give_back(process)

        first = await place.pool.take(place.key("A"))
        pool = []
        for number in range(6):
            pool.append(asyncio.create_task(taker(number)))
            await asyncio.sleep(0)
        place.pool.give_back(first)
        await asyncio.gather(*pool)
        assert served == list(range(6))

    on_pool(tmp_path, use, processes=1)


def test_a_process_is_replaced_after_so_many_calls_also_within_a_search(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as session:
            state = await session.start("p")
            for number in range(150):
                state = await stepped(session, state, f"step {number}")
        assert targets(state) == [goal_text([], "p", [f"step {number}" for number in range(150)])]
        assert session.lives > 2
        assert place.pool.stats.recycled >= session.lives - 1
        assert place.pool.stats.died == 0

    on_pool(tmp_path, use, calls=40)


def test_a_process_that_has_grown_is_replaced(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as session:
            state = await stepped(session, await session.start("p"), "grow 200")
            await stepped(session, state, *(f"step {number}" for number in range(16)))
        assert place.pool.stats.recycled == 1
        assert place.pool.stats.idle == 0

    on_pool(tmp_path, use, real=True, recycle_bytes=150 * MIB)


def test_a_tactic_that_eats_memory_ends_its_process_at_the_cap_and_has_failed(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as session:
            root = await session.start("p")
            answer = await session.tactic(root, "grow 400")
            assert isinstance(answer, TacticKilled)
            assert "memory cap" in answer.reason
            await stepped(session, root, "a")

    on_pool(tmp_path, use, real=True, memory_bytes=200 * MIB)


def test_a_process_that_ended_while_idle_is_not_handed_out(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        process = await place.pool.take(place.key())
        place.pool.give_back(process)
        os.kill(process.repl.pid, 9)
        while process.repl.alive:  # noqa: ASYNC110 - the end of a process is polled for
            await asyncio.sleep(0.01)
        again = await place.pool.take(place.key())
        assert again.repl.pid != process.repl.pid
        assert await again.repl.stat() == 0
        place.pool.give_back(again)

    on_pool(tmp_path, use, real=True)


def test_a_start_that_fails_gives_its_place_to_the_next(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        with pytest.raises(ReplStartError, match="the dice fell"):
            await place.pool.take(place.key())
        good = ReplKey(scripted.backend(), place.folder, ("Init",))
        place.pool.give_back(await place.pool.take(good))
        assert place.pool.stats.busy == 0

    on_pool(tmp_path, use, processes=1, backend=scripted.backend(start_fault=1.0))


def test_whoever_gives_up_waiting_leaves_the_queue_intact(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        first = await place.pool.take(place.key())
        tasks = [asyncio.create_task(place.pool.take(place.key())) for _ in range(4)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.sleep(0)
        # The next one is cancelled in the very moment in which it is its turn.
        place.pool.give_back(first)
        tasks[1].cancel()
        second = await tasks[2]
        place.pool.give_back(second)
        place.pool.give_back(await tasks[3])
        await asyncio.gather(*tasks[:2], return_exceptions=True)
        assert (place.pool.stats.busy, place.pool.stats.waiting) == (0, 0)
        assert place.pool.stats.started == 1

    on_pool(tmp_path, use, processes=1)


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 20])
def test_whoever_gives_up_while_a_process_starts_leaves_none(tmp_path: Path, turns: int) -> None:
    async def use(place: Place) -> None:
        task = asyncio.create_task(place.pool.take(place.key()))
        for _ in range(turns):
            await asyncio.sleep(0.002)
        task.cancel()
        [outcome] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(outcome, PooledRepl):
            place.pool.give_back(outcome)
        assert place.pool.stats.busy == 0

    on_pool(tmp_path, use, real=True, processes=1)
    assert processes_with(str(tmp_path)) == []


def test_closing_ends_every_process_and_refuses_who_waits(tmp_path: Path) -> None:
    async def use(place: Place) -> list[int]:
        busy, idle = await place.pool.take(place.key("A")), await place.pool.take(place.key("B"))
        place.pool.give_back(idle)
        held = await place.pool.take(place.key("B"))
        pool = asyncio.create_task(place.pool.take(place.key()))
        await asyncio.sleep(0)
        await place.pool.close()
        with pytest.raises(PoolClosed):
            await pool
        with pytest.raises(PoolClosed):
            await place.pool.take(place.key())
        with pytest.raises(ReplDied):
            await busy.repl.stat()
        return [busy.repl.pid, held.repl.pid]

    assert not any(is_running(pid) for pid in on_pool(tmp_path, use, real=True))


def test_a_pool_closes_though_its_last_process_is_gone_in_the_step_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(_: Repl) -> None:
        """Its process is gone already."""

    async def use(place: Place) -> None:
        process = await place.pool.take(place.key())
        await process.repl.close()
        monkeypatch.setattr(Repl, "close", at_once)
        # Two steps that follow on each other: the process's end, and the pool's closing.
        place.pool.retire(process)
        closing = asyncio.create_task(place.pool.close())
        await closing
        assert (place.pool.stats.busy, place.pool.stats.idle) == (0, 0)

    on_pool(tmp_path, use)


def test_closing_ends_also_what_is_being_started(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        starting = asyncio.create_task(place.pool.take(place.key()))
        await asyncio.sleep(0.01)
        await place.pool.close()
        with pytest.raises((PoolClosed, ReplStartError)):
            await starting

    on_pool(tmp_path, use, real=True)
    assert processes_with(str(tmp_path)) == []


def test_closing_ends_a_search_in_the_middle_of_a_call(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        session = place.session()
        root = await session.start("p")
        call = asyncio.create_task(session.tactic(root, "sleep 10000"))
        await asyncio.sleep(0.2)
        before = asyncio.get_running_loop().time()
        await place.pool.close()
        assert asyncio.get_running_loop().time() - before < 5
        with pytest.raises(PoolClosed):
            await call
        assert place.pool.stats.busy == 0

    on_pool(tmp_path, use, real=True)
    assert processes_with(str(tmp_path)) == []


# Reads its input to the end and does not end.
STUBBORN = """
import os, sys, time
os.write(1, b"ready.\\n")
for line in sys.stdin:
    os.write(1, b'{"error":"command","desc":"Unable to parse json"}\\n')
time.sleep(60)
"""
# Answers one request and then talks without end.
TALKATIVE = """
import os, sys, time
os.write(1, b"ready.\\n")
sys.stdin.readline()
os.write(1, b'{"nGoals":0}\\n')
time.sleep(1.0)
while True:
    os.write(1, b"more\\n" * 10_000)
"""


def program(folder: Path, body: str) -> LeanBackend:
    script = folder / "script.py"
    script.write_text(body.replace("\\\\n", "\\n"), "utf-8")
    argv = (sys.executable, "-I", "-S", str(script))
    return LeanBackend("pantograph", argv, "a script", "", sandbox="none")


def test_whoever_gives_up_while_room_is_made_does_not_raise_the_bound(tmp_path: Path) -> None:
    stubborn = ReplKey(program(tmp_path, STUBBORN), tmp_path, ("Init",))

    async def use(place: Place) -> None:
        place.pool.give_back(await place.pool.take(stubborn))
        task = asyncio.create_task(place.pool.take(place.key()))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        # The stubborn one is killed after two seconds; until then there is no room for another.
        process = await place.pool.take(place.key())
        assert processes_with(str(tmp_path)) == [process.repl.pid]
        place.pool.give_back(process)
        assert place.pool.stats.busy == 0

    on_pool(tmp_path, use, real=True, processes=1)


def test_an_idle_process_that_talks_without_end_costs_no_memory_and_no_search(tmp_path: Path) -> None:
    talkative = program(tmp_path, TALKATIVE)

    async def use(place: Place) -> None:
        repl = await Repl.start(talkative, imports=(), project=tmp_path, dialect="newer")
        process = PooledRepl(repl, place.key())
        assert await repl.stat() == 0
        before = tracemalloc.get_traced_memory()[0]
        place.pool._busy.add(process)
        place.pool._tickets += 1
        place.pool.give_back(process)
        await asyncio.sleep(3.0)
        assert tracemalloc.get_traced_memory()[0] - before < 10 * MIB
        async with place.session() as session:
            await session.start("p")
            assert session.lives == 1
            assert session.process_id != repl.pid

    tracemalloc.start()
    try:
        on_pool(tmp_path, use, real=True)
    finally:
        tracemalloc.stop()
    assert processes_with(str(tmp_path)) == []


def test_a_pool_serves_one_event_loop_and_says_so(tmp_path: Path) -> None:
    pool = ReplPool(PoolLimits(processes=1))
    key = ReplKey(scripted.backend(), tmp_path, ("Init",))

    async def use() -> None:
        async with pool:
            await pool.take(key)
            with pytest.raises(RuntimeError, match="another event loop; make one for each"):
                await asyncio.to_thread(asyncio.run, pool.take(key))

    asyncio.run(use())


def test_a_process_that_has_grown_does_not_wait_for_the_next_search(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as session:
            await stepped(session, await session.start("p"), "grow 200")
        assert (place.pool.stats.idle, place.pool.stats.recycled) == (0, 1)

    on_pool(tmp_path, use, real=True, recycle_bytes=150 * MIB)


def processes_with(folder: str) -> list[int]:
    """Return the processes whose working directory is the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str((entry / "cwd").readlink()) == folder and is_running(int(entry.name)):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


# ---- the session


def test_the_answers_are_lean_s(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as session:
            root = await session.start("p")
            state = await stepped(session, root, "a", "split")
            assert targets(state) == [goal_text([], "p", ["a", f"split {side}"]) for side in (0, 1)]
            second = await session.tactic(state, "close", goal=1)
            assert isinstance(second, Stepped)
            assert second.state.goals == state.goals[:1]
            assert isinstance(await session.tactic(root, "fail"), TacticFailed)
            assert isinstance(await session.tactic(root, "("), TacticParseError)
            (unit,) = await session.process("text")
            assert unit.errors == ()
            states = await session.distil("theorem a : p := sorry\ntheorem b : q := sorry")
            assert [len(state.goals) for state in states] == [2]

    on_pool(tmp_path, use)


CRASHES = ["crash", "hang", "broken", "panic", "cut", "close_output", "orphan"]


@pytest.mark.parametrize("fault", CRASHES)
def test_after_a_death_the_search_goes_on_with_the_same_answers(tmp_path: Path, fault: str) -> None:
    async def search(session: Session, *trouble: str) -> list[list[str]]:
        root = await session.start("p")
        left = await stepped(session, root, "a", "b", timeout_s=1.0)
        right = await stepped(session, root, "split", "c", timeout_s=1.0)
        for tactic in trouble:
            assert isinstance(await session.tactic(left, tactic, timeout_s=1.0), Stepped)
        left = await stepped(session, left, "d", timeout_s=1.0)
        right = await stepped(session, right, "close", "e", timeout_s=1.0)
        return [targets(state) for state in (root, left, right)]

    async def use(place: Place) -> None:
        setup = Setup(prefix=("def a",))
        async with place.session(setup=setup) as session:
            calm = await search(session)
            assert session.lives == 1
        async with place.session(setup=setup) as session:
            assert await search(session, f"fault {fault} once") == calm
            assert session.lives == 2
            assert session.replayed >= 4
        assert place.pool.stats.died == 1

    on_pool(tmp_path, use, real=True, processes=1)
    assert processes_with(str(tmp_path)) == []


def test_a_goal_keeps_its_name_across_processes(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as session:
            state = await stepped(session, await session.start("p"), "split")
            (first, second) = state.goals
            await session.tactic(state, "fault crash once")
            state = await stepped(session, state, "a")
            assert state.goals[1].name == second.name
            assert state.goals[0].name not in (first.name, second.name)

    on_pool(tmp_path, use)


@pytest.mark.parametrize("fault", ["crash", "hang"])
def test_a_tactic_that_kills_twice_has_failed_and_is_not_tried_again(tmp_path: Path, fault: str) -> None:
    async def use(place: Place) -> None:
        async with place.session() as session:
            state = await stepped(session, await session.start("p"), "a")
            for _ in range(3):
                answer = await session.tactic(state, f"fault {fault}", timeout_s=0.5)
                assert isinstance(answer, TacticKilled)
                assert place.pool.stats.died == 2
            assert isinstance(answer, TacticKilled)
            assert ("no answer" if fault == "hang" else "exit status") in answer.reason
            assert targets(await stepped(session, state, "b")) == [goal_text([], "p", ["a", "b"])]

    on_pool(tmp_path, use, real=True)


def test_a_text_that_kills_twice_is_an_error_and_is_not_tried_again(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as session:
            for _ in range(2):
                with pytest.raises(ReplDied):
                    await session.process("x")
            assert place.pool.stats.died == 2

    on_pool(tmp_path, use, backend=scripted.backend(faults={"crash": 1.0}))


def test_a_state_that_comes_out_otherwise_is_lost_and_says_where(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as session:
            root = await session.start("p")
            drifted = await stepped(session, root, "a", "drift", "b")
            answer = await session.tactic(root, "fault crash")
            assert isinstance(answer, TacticKilled)
            for _ in range(2):
                with pytest.raises(
                    ReplayDiverged, match="replaying 'drift': the goals are not what they were"
                ):
                    await session.tactic(drifted, "c")
            assert targets(await stepped(session, root, "a")) == [goal_text([], "p", ["a"])]

    on_pool(tmp_path, use)


def test_what_one_state_lost_the_others_of_its_text_keep(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as session:
            (state,) = await session.distil("sorry sorry")
            left, right = [await stepped(session, state, tactic) for tactic in ("drift", "a")]
            session.release([state])
            other = await session.start("q")
            assert isinstance(await session.tactic(other, "fault crash"), TacticKilled)
            with pytest.raises(ReplayDiverged):
                await session.tactic(left, "b")
            assert targets(await stepped(session, right, "b"))[0] == goal_text(
                [], "sorry sorry", ["0", "a", "b"]
            )

    on_pool(tmp_path, use)


def test_a_replay_that_keeps_killing_is_given_up(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as session:
            state = await stepped(session, await session.start("p"), "late bloomer", "a")
            # From now on the second tactic of the way kills whoever replays it.
            state.tactic = "fault crash"
            await session.tactic(await session.start("q"), "fault crash")
            with pytest.raises(ReplayDied, match="6 processes ended"):
                await session.tactic(state, "b")
            died = place.pool.stats.died
            with pytest.raises(ReplayDied):
                await session.tactic(state, "b")
            assert place.pool.stats.died == died

    on_pool(tmp_path, use)


def test_one_search_s_crash_does_not_touch_another(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as calm, place.session() as wild:
            state = await calm.start("p")
            other = await wild.start("q")
            for number in range(3):
                assert isinstance(await wild.tactic(other, f"fault crash {number} x"), Stepped)
                assert isinstance(await wild.tactic(other, "fault crash"), TacticKilled)
                state = await stepped(calm, state, f"step {number}")
            assert calm.lives == 1
            assert calm.replayed == 0
            assert wild.lives > 1

    on_pool(tmp_path, use)


def test_states_are_freed_when_they_are_released(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as session:
            root = await session.start("p")
            states = [await stepped(session, root, f"step {number}") for number in range(50)]
            assert await session.stat() == 51
            session.release(states[:40])
            session.release(states[:40])
            assert await session.stat() == 11
            with pytest.raises(ValueError, match="released already"):
                await session.tactic(states[0], "a")
        process = await place.pool.take(place.key())
        assert await process.repl.stat() == 0
        place.pool.give_back(process)

    on_pool(tmp_path, use)


def test_a_replay_frees_what_was_released_on_the_way_when_nothing_hangs_on_it(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as session:
            root = await session.start("p")
            middle = await stepped(session, root, "a")
            leaf = await stepped(session, middle, "b")
            session.release([middle])
            await session.tactic(root, "fault crash")
            after = await stepped(session, leaf, "c")
            assert await session.stat() == 4
            session.release([leaf, after])
            assert await session.stat() == 1

    on_pool(tmp_path, use)


def test_a_parked_search_finds_its_states_again(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as session:
            state = await stepped(session, await session.start("p"), "a")
            session.park()
            assert place.pool.stats.busy == 0
            await stepped(session, state, "b")
            assert (session.lives, session.replayed) == (1, 0)

    on_pool(tmp_path, use)


def test_searches_of_one_setup_share_a_process_and_replay_nothing(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as session:
            state = await stepped(session, await session.start("p"), "a")
            session.park()
            async with place.session() as other:
                beside = await other.start("q")
                assert targets(beside) == [goal_text([], "q")]
                assert await other.stat() == 3
                other.park()
                assert targets(await stepped(session, state, "b")) == [goal_text([], "p", ["a", "b"])]
                session.park()
                assert targets(await stepped(other, beside, "c")) == [goal_text([], "q", ["c"])]
            # What the other one leaves is freed, and only that.
            assert await session.stat() == 3
            assert (session.lives, session.replayed, other.replayed) == (1, 0, 0)
        process = await place.pool.take(place.key())
        assert await process.repl.stat() == 0
        place.pool.give_back(process)
        assert place.pool.stats.started == 1

    on_pool(tmp_path, use, processes=1)


def test_a_search_that_ends_while_parked_leaves_no_states_behind(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as session:
            await session.start("p")
            session.park()
            async with place.session() as other:
                await stepped(other, await other.start("q"), "a", "b")
                other.park()
            assert await session.stat() == 1

    on_pool(tmp_path, use, processes=1)


def test_a_process_that_is_brought_to_another_setup_has_no_states_of_others(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as session:
            state = await stepped(session, await session.start("p"), "a")
            session.park()
            async with place.session(setup=Setup(prefix=("def a",))) as other:
                await other.start("q")
                assert await other.stat() == 1
            # The process cannot go back: another one is made.
            assert targets(await stepped(session, state, "b")) == [goal_text([], "p", ["a", "b"])]
            assert session.replayed == 1
        assert place.pool.stats.started == 2

    on_pool(tmp_path, use, processes=1)


def test_when_a_shared_process_dies_each_search_goes_on_by_itself(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as calm, place.session() as wild:
            state = await stepped(calm, await calm.start("p"), "a")
            calm.park()
            other = await wild.start("q")
            assert wild.process_id is not None
            assert isinstance(await wild.tactic(other, "fault crash"), TacticKilled)
            wild.park()
            assert targets(await stepped(calm, state, "b")) == [goal_text([], "p", ["a", "b"])]
            assert calm.replayed == 1
            calm.park()
            assert isinstance(await wild.tactic(other, "c"), Stepped)

    on_pool(tmp_path, use, processes=1)


def test_many_searches_take_turns_on_few_processes_and_stay_where_their_states_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "PATIENCE_S", 10.0)

    async def use(place: Place) -> None:
        sessions = [place.session() for _ in range(9)]

        async def search(number: int) -> None:
            async with sessions[number] as session:
                state = await session.start(f"p{number}")
                for step in range(10):
                    session.park()
                    await asyncio.sleep(0.001 * (number % 3))
                    state = await stepped(session, state, f"s{step}")
                    session.release([] if state.parent is None else [state.parent])
                assert targets(state) == [goal_text([], f"p{number}", [f"s{step}" for step in range(10)])]

        await asyncio.gather(*map(search, range(9)))
        assert place.pool.stats.started == 3
        # Moving to a process that is free costs a replay; most turns are taken at home.
        assert sum(session.lives for session in sessions) < 60
        for process in [await place.pool.take(place.key()) for _ in range(3)]:
            await process.free()
            assert await process.repl.stat() == 0
            place.pool.give_back(process)

    on_pool(tmp_path, use, processes=3)


def test_a_call_that_is_cancelled_costs_the_process_and_not_the_search(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session() as session:
            state = await stepped(session, await session.start("p"), "a")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await session.tactic(state, "sleep 10000")
            assert targets(await stepped(session, state, "b")) == [goal_text([], "p", ["a", "b"])]
            assert session.lives == 2

    on_pool(tmp_path, use, real=True)


def test_a_hang_is_killed_shortly_after_its_limit(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        process = await place.pool.take(place.key())
        state = await process.repl.goal_start("p")
        with pytest.raises(ReplTimeout):
            await process.repl.goal_tactic(state, "fault hang", timeout_s=0.2)
        place.pool.give_back(process)
        assert (place.pool.stats.idle, place.pool.stats.died) == (0, 1)

    on_pool(tmp_path, use, real=True)


def test_a_prefix_that_lean_refuses_is_said_and_spoils_no_process(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session(setup=Setup(prefix=("def a", "def b #error"))) as session:
            for _ in range(2):
                with pytest.raises(SetupFailed, match="the text says #error") as caught:
                    await session.start("p")
                assert caught.value.refused
        assert place.pool.stats.idle == 0
        assert place.pool.stats.started == 1

    on_pool(tmp_path, use)


def test_a_prefix_that_kills_is_tried_twice(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        async with place.session(setup=Setup(prefix=("def a",))) as session:
            with pytest.raises(SetupFailed) as caught:
                await session.start("p")
            assert not caught.value.refused
            assert place.pool.stats.died == 2

    on_pool(tmp_path, use, backend=scripted.backend(faults={"crash": 1.0}))


def test_a_closed_session_asks_nothing_more(tmp_path: Path) -> None:
    async def use(place: Place) -> None:
        session = place.session()
        state = await session.start("p")
        await session.close()
        with pytest.raises(PoolClosed):
            await session.tactic(state, "a")

    on_pool(tmp_path, use)


def test_setups_are_compared_by_what_cannot_be_undone() -> None:
    def fits(wanted: Iterable[str], have: Iterable[str]) -> bool:
        return Setup(prefix=tuple(wanted)).begins_with(Setup(prefix=tuple(have)))

    assert fits("ab", "a")
    assert fits("ab", "")
    assert not fits("a", "ab")
    assert not fits("ab", "b")
