"""The best-first search with a model's kind of proposer, on the simulator as a real process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pipeline.jobs.specs import Budget
from pipeline.lean.backend import LeanBackend, simulator
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.pool import ReplKey, ReplPool, Setup
from pipeline.lean.pool.session import Session, StateLost
from pipeline.models.progress.steps import Step as ProgressStep
from pipeline.prove.curated import CuratedTactics
from pipeline.prove.graph import Candidate, Failures, ModelScoring, Proposer, TacticRequest
from pipeline.prove.journal import Journal
from pipeline.prove.search import Search, SearchResult
from pipeline.prove.tree import Tree

T = TypeVar("T")
BUDGET = Budget(nodes=60, seconds=20, tactic_timeout_s=5)
SWAPS_BOTH = "∀ p q : Prop, p ∧ q → q ∧ p"
SWAPS = "∀ p q : Prop, p ∨ q → q ∨ p"
STUCK = "∀ p q : Prop, (p → q) → q ∨ p"


class Listing:
    """Proposes the same tactics for every goal, with log-probabilities that fall, as a model would."""

    def __init__(self, *texts: str, wait_s: float = 0.0) -> None:
        self.candidates = [
            Candidate(text, text, log_probability=-0.1 * at, tokens=3) for at, text in enumerate(texts)
        ]
        self.wait_s = wait_s
        self.asked: list[TacticRequest] = []
        self.at_once = self.most_at_once = 0

    async def propose(self, asked: TacticRequest) -> Iterable[Candidate]:
        self.asked.append(asked)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.wait_s)
        finally:
            self.at_once -= 1
        return list(self.candidates)

    def saw(self, candidate: Candidate, *, parsed: bool) -> None:
        pass


def logic() -> Listing:
    """What it takes for a little logic; no name is given twice."""
    apart = ("rcases h with a | a", "obtain ⟨a, b⟩ := h")
    return Listing("assumption", "intro p q h", *apart, "constructor", "left", "right", "nope (")


async def run(session: Session, statement: str, proposer: Proposer, **more: Any) -> SearchResult:
    """Search for a proof; keyword arguments as `Search` has them."""
    state = await session.start(statement)
    options = {"budget": BUDGET, "scoring": ModelScoring(), **more}
    return await Search(session, proposer, **options).run(state)


class Lean:
    """One process of the simulator for all tests: what a search leaves behind in it would show in the next one."""

    def __init__(self, runner: asyncio.Runner, project: Path) -> None:
        self.runner = runner
        self.key = ReplKey(simulator(), project, ("Init",))
        self.pool = ReplPool(PoolLimits(processes=1))

    def session(self) -> Session:
        return Session(self.pool, self.key)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def search(self, statement: str, proposer: Proposer, **more: Any) -> SearchResult:
        async def use() -> SearchResult:
            async with self.session() as session:
                result = await run(session, statement, proposer, **more)
                assert await session.stat() == 1, "more than the root is left in the process"
                return result

        return self.do(use())


@pytest.fixture(scope="module")
def lean(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lean]:
    with asyncio.Runner() as runner:
        made = Lean(runner, tmp_path_factory.mktemp("project"))
        yield made
        runner.run(made.pool.close())


def test_a_model_s_tactics_find_a_proof_and_the_tree_tells_how(lean: Lean) -> None:
    result = lean.search(SWAPS, logic())
    assert result.outcome == "found", result
    assert result.script is not None
    way = [result.tree.node(number) for number in result.tree.proof]
    assert tuple(node.tactic for node in way[1:]) == result.script.tactics
    assert way[-1].goals == ()
    assert {node.outcome for node in way} == {"proved"}
    assert result.best == f"proved with {len(result.script.steps)} tactics"
    assert Tree.from_json(json.loads(json.dumps(result.tree.as_json()))) == result.tree


def test_an_unprovable_goal_ends_with_every_state_dead(lean: Lean) -> None:
    result = lean.search(STUCK, logic())
    assert result.outcome == "exhausted"
    assert {node.outcome for node in result.tree.nodes} == {"dead"}
    assert result.best.startswith("1 of 1 goal left after ")


def test_a_state_is_expanded_once_on_whichever_way_it_is_reached(lean: Lean) -> None:
    proposer = Listing("intro p q h", "left", "right", "skip", "revert h")
    result = lean.search("∀ p q : Prop, p → q ∨ q", proposer)
    shown = [node.goals for node in result.tree.nodes]
    assert len(set(shown)) == len(shown)
    assert any(one.outcome == "repeated" for node in result.tree.nodes for one in node.tried)
    assert len(proposer.asked) == result.nodes == len(result.tree.nodes)


def test_states_that_only_read_the_same_stay_apart(lean: Lean) -> None:
    """Three hypotheses are called h, and two of them print as `h✝`: left and right leave the same text."""
    proposer = Listing("intro h", "assumption", "cases h", "left", "right", "skip")
    result = lean.search(SWAPS, proposer)
    assert result.outcome == "found", result
    skipped = [one for node in result.tree.nodes for one in node.tried if one.tactic == "skip"]
    assert {one.outcome for one in skipped} == {"repeated"}


def test_a_better_way_to_an_open_state_is_taken(lean: Lean) -> None:
    class Doubled(Listing):
        async def propose(self, asked: TacticRequest) -> Iterable[Candidate]:
            await super().propose(asked)
            if asked.at_start:
                bad, worse = (
                    Candidate("intro p; skip", "", log_probability=-5.0),
                    Candidate("skip; intro p", ""),
                )
                worse = dataclasses.replace(worse, log_probability=-9.0)
                return [bad, Candidate("intro p", "", log_probability=-0.5), worse]
            return []

    result = lean.search("∀ p : Prop, p", Doubled())
    child = result.tree.node(1)
    assert (child.tactic, child.log_probability) == ("intro p", -0.5)
    assert [one.outcome for one in result.tree.node(0).tried] == ["step", "repeated", "repeated"]


def test_the_same_tactic_written_twice_is_tried_once(lean: Lean) -> None:
    result = lean.search("∀ p : Prop, p", Listing("intro  p", "intro p", " intro p\n"))
    assert [one.tactic for one in result.tree.node(0).tried] == ["intro  p"]


GARBAGE = [
    "", " \n ", "sorry", "exact sorry", "admit", "(", "intro h -- and", "/- ", "\x00", "\x1b[2J", "\ud800",
    "a" * 100_000, "intro h\n/-", "#eval 1", "run_tac", "exact (by", "⟨", "»", "theorem x : p := by trivial",
    "simp (", "?", "exact?", "intro «", "cases h with\n| inl", "'", '"', "\u202e intro", "native_decide",
]  # fmt: skip


def test_a_model_s_garbage_fails_and_the_proof_behind_it_is_found(lean: Lean) -> None:
    result = lean.search("∀ p : Prop, p → p", Listing(*GARBAGE, "intro p h", "assumption"))
    assert result.outcome == "found", result
    tried = [one for node in result.tree.nodes for one in node.tried]
    assert {one.tactic for one in tried if one.outcome in ("step", "proved")} == {"intro p h", "assumption"}
    assert all(one.reason for one in tried if one.outcome in ("failed", "unparsed", "sorry"))
    json.dumps(result.tree.as_json()).encode("ascii")


@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        (Budget(nodes=2, seconds=20, tactic_timeout_s=5), "nodes"),
        (Budget(nodes=60, seconds=20, tactic_timeout_s=5, calls=4), "calls"),
        (Budget(nodes=60, seconds=0, tactic_timeout_s=5), "seconds"),
    ],
)
def test_a_stopped_search_says_which_limit_ended_it(lean: Lean, budget: Budget, limit: str) -> None:
    result = lean.search(SWAPS, logic(), budget=budget)
    assert (result.outcome, result.limit, result.tree.limit) == ("budget", limit, limit)
    assert sum(len(node.tried) for node in result.tree.nodes) == 4 or limit != "calls"
    assert any(node.outcome == "open" for node in result.tree.nodes)


def test_a_proposer_that_never_answers_is_given_up_at_the_end_of_the_time(lean: Lean) -> None:
    proposer = Listing("intro h", wait_s=60)
    budget = Budget(nodes=60, seconds=0.2, tactic_timeout_s=5)
    result = lean.search(SWAPS, proposer, budget=budget)
    assert (result.outcome, result.limit, proposer.at_once) == ("budget", "seconds", 0)
    assert result.seconds < 5


def test_a_progress_model_that_never_answers_is_given_up_at_the_end_of_the_time(lean: Lean) -> None:
    class Silent(Counting):
        async def remaining(self, steps: Sequence[ProgressStep]) -> list[float]:
            await asyncio.sleep(60)
            return []

    budget = Budget(nodes=60, seconds=3, tactic_timeout_s=5)
    result = lean.search(SWAPS, logic(), budget=budget, remaining=Silent())
    assert (result.outcome, result.limit, result.nodes) == ("budget", "seconds", 1)
    # What was found is in the picture all the same.
    assert [node.tactic for node in result.tree.nodes] == ["", "intro p q h"]


def test_a_failure_on_a_goal_is_not_sent_again_for_another_state_with_it(lean: Lean) -> None:
    statement = "∀ p q r : Prop, p ∧ (q ∧ r)"
    proposer = Listing("intro p q r", "constructor", "assumption", "cases h", "nonsense")

    async def use(new: Callable[[], Session]) -> tuple[SearchResult, SearchResult, SearchResult]:
        failures = Failures()
        async with new() as session:
            first = await run(session, statement, proposer, failures=failures)
            again = await run(session, statement, proposer, failures=failures)
            alone = await run(session, statement, proposer)
        return first, again, alone

    first, again, alone = lean.do(use(lean.session))
    assert first.tree == again.tree == alone.tree
    assert again.repl_calls < first.repl_calls == alone.repl_calls


def test_a_seed_is_the_state_s_own_and_the_same_in_every_search(lean: Lean) -> None:
    first, second, other = logic(), logic(), logic()
    lean.search(SWAPS, first, seed=1)
    lean.search(SWAPS, second, seed=1)
    lean.search(SWAPS, other, seed=2)
    seeds = [asked.seed for asked in first.asked]
    assert seeds == [asked.seed for asked in second.asked]
    assert len(set(seeds)) == len(seeds)
    assert not {asked.seed for asked in other.asked} & set(seeds)


class Counting:
    """A progress model that says how many goals are left, and what was put to it in one go."""

    def __init__(self, wrong: float | None = None) -> None:
        self.batches: list[list[ProgressStep]] = []
        self.wrong = wrong

    async def remaining(self, steps: Sequence[ProgressStep]) -> list[float]:
        self.batches.append(list(steps))
        return [self.wrong if self.wrong is not None else float(len(step.tactic)) for step in steps]


def test_a_progress_model_gets_one_request_for_an_expansion(lean: Lean) -> None:
    progress, proposer = Counting(), Listing("intro p", "intro q", "intro p q")
    result = lean.search("∀ p q : Prop, p → q", proposer, remaining=progress)
    first = progress.batches[0]
    assert [step.tactic for step in first] == ["intro p", "intro q", "intro p q"]
    assert {step.prefix for step in first} == {""}
    assert "⊢ ∀" in first[0].goal
    assert result.tree.node(1).remaining == len("intro p")
    assert any(step.prefix == "intro p" for batch in progress.batches for step in batch)


def test_a_progress_model_without_hope_does_not_end_the_search(lean: Lean) -> None:
    for wrong in (float("inf"), float("nan")):
        result = lean.search(SWAPS, logic(), remaining=Counting(wrong))
        assert result.outcome == "found", wrong


def test_a_process_is_parked_for_waiting_searches_during_a_slow_request(lean: Lean) -> None:
    async def use(new: Callable[[], Session]) -> tuple[Listing, list[SearchResult]]:
        slow = Listing(*[one.text for one in logic().candidates], wait_s=0.5)

        async def one() -> SearchResult:
            async with new() as session:
                return await run(session, "∀ p q : Prop, p ∧ q → p", slow)

        return slow, list(await asyncio.gather(one(), one(), one()))

    slow, results = lean.do(use(lean.session))
    assert [result.outcome for result in results] == ["found"] * 3
    assert results[0].script == results[1].script == results[2].script
    # One process: without lending it, one search would think after the other.
    assert slow.most_at_once > 1


def test_a_process_is_kept_where_coming_back_would_cost_more(lean: Lean) -> None:
    async def lives(new: Callable[[], Session], wait_s: float, searches: int) -> list[tuple[int, int]]:
        quick = Listing(*[one.text for one in logic().candidates], wait_s=wait_s)

        async def one() -> tuple[int, int]:
            async with new() as session:
                await run(session, "∀ p q : Prop, p ∧ q → p", quick)
                return session.lives, session.replayed

        return list(await asyncio.gather(*(one() for _ in range(searches))))

    async def use(new: Callable[[], Session]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        return await lives(new, 0.0, 2), await lives(new, 0.05, 1)

    nobody_slow, nobody_waiting = lean.do(use(lean.session))
    assert nobody_slow == [(1, 0), (1, 0)]
    assert nobody_waiting == [(1, 0)]


def test_a_process_is_not_parked_for_a_search_at_another_place(lean: Lean) -> None:
    """Getting back to where it was takes far longer than this proposer thinks."""
    other = Setup(prefix=("theorem before : True := True.intro",))

    async def one(session: Session, proposer: Listing) -> int:
        async with session:
            await run(session, SWAPS_BOTH, proposer)
            return session.lives

    async def use() -> list[int]:
        slow = Listing(*[one.text for one in logic().candidates], wait_s=0.01)
        first, second = lean.session(), Session(lean.pool, lean.key, other)
        return list(await asyncio.gather(one(first, slow), one(second, slow)))

    assert lean.do(use()) == [1, 1]


# What Lean does and the simulator does not: it searches, and it warns that something rests on a sorry.
ORACLE = """
say("ready.")
goal = {"name":"g","target":{"pp":"p"},"vars":[]}
for command, payload in requests():
    tactic = payload.get("tactic", "")
    said = {"exact?": "Try this: [apply]   exact h", "simp?": "Try this:\\n  simp only\\n    [h]"}
    after = {"messages": [], "nextStateId": 1, "goals": [],
             "hasSorry": tactic == "aesop", "hasUnsafe": tactic == "decide"}
    if tactic in said:
        after["messages"] = [{"severity":"information","data":said[tactic],"kind":"x","pos":{"line":1,"column":0},
                              "fileName":"","keepFullRange":False,"isSilent":False,"caption":"","endPos":None}]
    if command == "goal.tactic":
        say(json.dumps({"parseError": "no"} if tactic == "exact h" and OUTCAST else after))
    elif command == "goal.start":
        say('{"stateId":0,"root":"r"}')
    elif command == "goal.print":
        say(json.dumps({"goals":[goal],"extraMVars":[],"rootHasSorry":False,"rootHasUnsafe":False,"rootHasMVar":False}))
    else:
        say("{}")
"""


def of_oracle(
    make: Callable[[str], LeanBackend], project: Path, *texts: str, outcast: bool = False
) -> SearchResult:
    async def use() -> SearchResult:
        backend = make(ORACLE.replace("OUTCAST", str(outcast)))
        async with ReplPool() as pool, Session(pool, ReplKey(backend, project, ("Init",))) as session:
            return await run(session, "p", Listing(*texts))

    return asyncio.run(use())


def test_the_suggestion_of_a_search_tactic_is_the_proof(
    fake_repl: Callable[[str], LeanBackend], tmp_path: Path
) -> None:
    result = of_oracle(fake_repl, tmp_path, "exact?")
    assert result.script is not None
    assert result.script.tactics == ("exact h",)
    result = of_oracle(fake_repl, tmp_path, "exact?", "simp?", outcast=True)
    assert result.script is not None
    assert result.script.tactics == ("simp only [h]",)
    assert [one.outcome for one in result.tree.node(0).tried] == ["unparsed", "proved"]


def test_a_proof_on_a_sorry_or_unsafe_code_does_not_count(
    fake_repl: Callable[[str], LeanBackend], tmp_path: Path
) -> None:
    result = of_oracle(fake_repl, tmp_path, "aesop", "decide", "rfl")
    assert [(one.tactic, one.outcome, one.reason) for one in result.tree.node(0).tried] == [
        ("aesop", "sorry", "it rests on a sorry"),
        ("decide", "sorry", "it rests on unsafe code"),
        ("rfl", "proved", ""),
    ]


# ---- going on after a kill


class Killed(BaseException):
    pass


class Fragile(Journal):
    """A journal whose process is killed after so many lines, sometimes in the middle of the next."""

    def __init__(self, path: Path, lines: int) -> None:
        super().__init__(path, prover="listing", model="m")
        self.lines = lines

    def _write(self, entry: Mapping[str, Any]) -> None:
        super()._write(entry)
        self.lines -= 1
        if not self.lines:
            with self.path.open("ab") as torn:
                torn.write(b'{"node":0,"tried"')
            raise Killed


@pytest.mark.slow
@pytest.mark.parametrize("statement", [SWAPS, STUCK, SWAPS_BOTH])
@pytest.mark.parametrize("kind", ["model", "ladder"])
def test_a_search_that_is_killed_again_and_again_ends_as_one_that_is_not(
    lean: Lean, tmp_path: Path, statement: str, kind: str
) -> None:
    def proposer() -> Any:
        return logic() if kind == "model" else CuratedTactics(core_only=True, closers=("rfl", "assumption"))

    async def use(new: Callable[[], Session]) -> None:
        async with new() as session:
            whole = await run(session, statement, proposer(), remaining=Counting())
        for lines in (2, 3, 7):
            path, asked, runs = tmp_path / f"{lines}.jsonl", [], 0
            result = None
            while result is None:
                runs += 1
                mind = proposer()
                async with new() as session:
                    with contextlib.suppress(Killed):
                        result = await run(
                            session, statement, mind, remaining=Counting(), journal=Fragile(path, lines)
                        )
                    asked += [one.steps for one in getattr(mind, "asked", [])]
            assert runs > 2
            assert result.tree == whole.tree
            assert (result.outcome, result.script, result.nodes) == (whole.outcome, whole.script, whole.nodes)
            assert len(set(asked)) == len(asked), "a state was put to the model twice"
            assert not path.with_name(path.name + ".aside").exists()

    lean.do(use(lean.session))


def test_a_search_cancelled_during_a_request_resumes(lean: Lean, tmp_path: Path) -> None:
    class Cancelling(Fragile):
        def _write(self, entry: Mapping[str, Any]) -> None:
            Journal._write(self, entry)
            self.lines -= 1
            task = asyncio.current_task()
            if not self.lines and task is not None:
                task.cancel()

    async def use() -> None:
        async with lean.session() as session:
            whole = await run(session, SWAPS, logic())
        result, runs = None, 0
        while result is None:
            runs += 1
            journal = Cancelling(tmp_path / "one.jsonl", 30)
            async with lean.session() as session:
                task = asyncio.create_task(run(session, SWAPS, logic(), journal=journal))
                with contextlib.suppress(asyncio.CancelledError):
                    result = await task
        assert runs > 2
        assert (result.tree, result.nodes) == (whole.tree, whole.nodes)

    lean.do(use())


def test_the_cost_before_a_restart_counts(lean: Lean, tmp_path: Path) -> None:
    budget = Budget(nodes=60, seconds=20, tactic_timeout_s=5, calls=12)
    path, trees = tmp_path / "one.jsonl", []
    for _ in range(2):
        result = lean.search(SWAPS, logic(), budget=budget, journal=Journal(path, prover="listing"))
        trees.append(result.tree)
        assert result.limit == "calls"
    assert trees[0] == trees[1]
    done = lean.search(SWAPS, logic(), journal=Journal(tmp_path / "two.jsonl", prover="listing"))
    again = lean.search(SWAPS, logic(), journal=Journal(tmp_path / "two.jsonl", prover="listing"))
    assert (again.script, again.tree, again.nodes) == (done.script, done.tree, done.nodes)
    assert again.seconds > done.seconds


def test_a_journal_of_another_search_is_set_aside(lean: Lean, tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    lean.search(SWAPS, logic(), journal=Journal(path, prover="listing"), seed=1)
    before = path.read_bytes()
    journal = Journal(path, prover="listing")
    result = lean.search(SWAPS, logic(), journal=journal, seed=2)
    assert journal.refused == "it is of other work, with another seed"
    assert path.with_name("one.jsonl.aside").read_bytes() == before
    assert result.outcome == "found"


def test_a_damaged_journal_is_set_aside_and_the_search_begins_anew(lean: Lean, tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    whole = lean.search(SWAPS, logic(), journal=Journal(path, prover="listing"))
    lines = path.read_bytes().splitlines(keepends=True)
    for damage in (b"\x00\x00\n", b"{}\n", b'{"node":99,"expanded":true,"remaining":null,"spent":[0,0,0]}\n'):
        path.write_bytes(b"".join([*lines[:4], damage, *lines[4:]]))
        journal = Journal(path, prover="listing")
        result = lean.search(SWAPS, logic(), journal=journal)
        assert journal.refused.startswith("line 5 ")
        assert result.tree == whole.tree


def test_a_state_that_changes_after_a_restart_is_lost_and_reported(lean: Lean, tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    with contextlib.suppress(Killed):
        lean.search(SWAPS, logic(), journal=Fragile(path, 12))
    text = path.read_text("utf-8")
    assert text.count('"expanded":true') == 1
    path.write_text(text.replace('{"pp":"q \\u2228 p"}', '{"pp":"q \\u2228 q"}'), "utf-8")
    journal = Journal(path, prover="listing", model="m")
    with pytest.raises(StateLost, match="the goals are not what they were before the restart"):
        lean.search(SWAPS, logic(), journal=journal)
    assert journal.refused == ""
