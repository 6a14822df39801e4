"""The best-first search with a model's kind of proposer; a script answers in Lean's place."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pipeline.jobs.specs import Budget
from pipeline.lean.client.repl import Repl
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.pool import ReplKey, ReplPool, Setup
from pipeline.lean.pool.session import Session, StateLost
from pipeline.lean.tactic_text import Step as ProgressStep
from pipeline.prove.effort import Effort
from pipeline.prove.graph import Candidate, Failures, ModelScoring, Proposer, TacticRequest
from pipeline.prove.search import Search, SearchMethod
from pipeline.prove.tree import Tree
from tests.support.lean import scripted
from tests.support.lean.scripted import Script
from tests.support.prove import tree_of

T = TypeVar("T")
BUDGET = Budget(nodes=60, seconds=20, tactic_timeout_s=5)
SWAPS = "∀ p q : Prop, p ∨ q → q ∨ p"
STUCK = "∀ p q : Prop, (p → q) → q ∨ p"
BOTH = "∀ p q : Prop, p ∧ q → q ∧ p"
PROPS = "p q : Prop\n"
LOGIC = Script(
    tactics={
        (SWAPS, "intro p q h"): [f"{PROPS}h : p ∨ q\n⊢ q ∨ p"],
        (STUCK, "intro p q h"): [f"{PROPS}h : p → q\n⊢ q ∨ p"],
        (BOTH, "intro p q h"): [f"{PROPS}h : p ∧ q\n⊢ q ∧ p"],
        (f"{PROPS}h : p ∨ q\n⊢ q ∨ p", "rcases h with a | a"): [
            f"{PROPS}a : p\n⊢ q ∨ p",
            f"{PROPS}a : q\n⊢ q ∨ p",
        ],
        ("q ∨ p", "left"): ["q"],
        ("q ∨ p", "right"): ["p"],
        ("q ∧ p", "constructor"): ["q", "p"],
        **{
            (f"{PROPS}h : p ∧ q\n⊢ {goal}", "obtain ⟨a, b⟩ := h"): [f"{PROPS}a : p\nb : q\n⊢ {goal}"]
            for goal in ("q ∧ p", "q", "p")
        },
        **{(f"{PROPS}a : {one}\n⊢ {one}", "assumption"): [] for one in "pq"},
        **{(f"{PROPS}a : p\nb : q\n⊢ {one}", "assumption"): [] for one in "pq"},
    }
)


class Listing(Proposer):
    """Proposes the same tactics for every goal, with log-probabilities that fall, as a model would."""

    def __init__(self, *texts: str, wait_s: float = 0.0) -> None:
        self.candidates = [Candidate(text, text, log_probability=-0.1 * at) for at, text in enumerate(texts)]
        self.wait_s = wait_s
        self.requests: list[TacticRequest] = []
        self.at_once = self.most_at_once = 0

    async def propose(self, asked: TacticRequest) -> Iterable[Candidate]:
        self.requests.append(asked)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.wait_s)
        finally:
            self.at_once -= 1
        return list(self.candidates)


def logic() -> Listing:
    """What it takes for a little logic; no name is given twice."""
    apart = ("rcases h with a | a", "obtain ⟨a, b⟩ := h")
    return Listing("assumption", "intro p q h", *apart, "constructor", "left", "right", "nope (")


async def run(
    session: Session,
    statement: str,
    proposer: Proposer,
    *,
    budget: Budget = BUDGET,
    failures: Failures | None = None,
    **more: Any,
) -> Effort:
    """Search for a proof; `more`: as `SearchMethod` has it."""
    method = SearchMethod(proposer, ModelScoring(), **more)
    known = {} if failures is None else failures
    return await Search(session, method, budget, known).run(await session.start(statement))


New = Callable[..., Session]
"""Makes another session on the process, with a setup."""


def on(script: Script, use: Callable[[New], Awaitable[T]], *, start_s: float = 0.0) -> T:
    """Do something on one process of the script, which takes so many seconds to start."""
    starts = scripted.starts(script)

    async def start(*given: Any, **options: Any) -> Repl:
        await asyncio.sleep(start_s)
        return await starts(*given, **options)

    async def main() -> T:
        async with ReplPool(PoolLimits(processes=1), start=start) as pool:
            key = ReplKey(scripted.NOWHERE, Path("/"), ("Init",))
            return await use(lambda setup=None: Session(pool, key, setup))

    return asyncio.run(main())


def search(statement: str, proposer: Proposer, script: Script = LOGIC, **more: Any) -> Effort:
    async def use(new: New) -> Effort:
        async with new() as session:
            result = await run(session, statement, proposer, **more)
            assert await session.stat() == 1, "more than the root is left in the process"
            return result

    return on(script, use)


def test_a_model_s_tactics_find_a_proof_and_the_tree_tells_how() -> None:
    result = search(SWAPS, logic())
    assert result.outcome == "found", result
    assert result.script is not None
    way = [tree_of(result).node(number) for number in tree_of(result).proof]
    assert tuple(node.tactic for node in way[1:]) == result.script.tactics
    assert way[-1].goals == ()
    assert {node.outcome for node in way} == {"proved"}
    assert result.best == f"proved with {len(result.script.steps)} tactics"
    assert Tree.from_json(json.loads(json.dumps(tree_of(result).as_json()))) == result.tree


def test_an_unprovable_goal_ends_with_every_state_dead() -> None:
    result = search(STUCK, logic())
    assert result.outcome == "exhausted"
    assert {node.outcome for node in tree_of(result).nodes} == {"dead"}
    assert result.best.startswith("1 of 1 goal left after ")


def test_a_state_is_expanded_once_on_whichever_way_it_is_reached() -> None:
    proposer = Listing("intro p q h", "left", "right", "skip", "revert h")
    either, statement = f"{PROPS}h : p\n⊢ q ∨ q", "∀ p q : Prop, p → q ∨ q"
    back = {(either, "revert h"): [f"{PROPS}⊢ p → q ∨ q"], (f"{PROPS}⊢ p → q ∨ q", "intro p q h"): [either]}
    ways = {("q ∨ q", "left"): ["q"], ("q ∨ q", "right"): ["q"], (either, "skip"): [either]}
    result = search(statement, proposer, Script(tactics={(statement, "intro p q h"): [either]} | ways | back))
    shown = [node.goals for node in tree_of(result).nodes]
    assert len(set(shown)) == len(shown)
    assert any(one.outcome == "repeated" for node in tree_of(result).nodes for one in node.tried)
    assert len(proposer.requests) == result.nodes == len(tree_of(result).nodes)


def test_a_better_way_to_an_open_state_is_taken() -> None:
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

    ways = ("intro p; skip", "intro p", "skip; intro p")
    result = search(
        "∀ p : Prop, p", Doubled(), Script(tactics={("", one): ["p : Prop\n⊢ p"] for one in ways})
    )
    child = tree_of(result).node(1)
    assert (child.tactic, child.log_probability) == ("intro p", -0.5)
    assert [one.outcome for one in tree_of(result).node(0).tried] == ["step", "repeated", "repeated"]


def test_the_same_tactic_written_twice_is_tried_once() -> None:
    result = search("∀ p : Prop, p", Listing("intro  p", "intro p", " intro p\n"))
    assert [one.tactic for one in tree_of(result).node(0).tried] == ["intro  p"]


@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        (Budget(nodes=2, seconds=20, tactic_timeout_s=5), "nodes"),
        (Budget(nodes=60, seconds=20, tactic_timeout_s=5, calls=4), "calls"),
        (Budget(nodes=60, seconds=0, tactic_timeout_s=5), "seconds"),
    ],
)
def test_a_stopped_search_says_which_limit_ended_it(budget: Budget, limit: str) -> None:
    result = search(SWAPS, logic(), budget=budget)
    assert (result.outcome, tree_of(result).limit) == ("budget", limit)
    assert sum(len(node.tried) for node in tree_of(result).nodes) == 4 or limit != "calls"
    assert any(node.outcome == "open" for node in tree_of(result).nodes)


def test_a_proposer_that_never_answers_is_given_up_at_the_end_of_the_time() -> None:
    proposer = Listing("intro h", wait_s=60)
    budget = Budget(nodes=60, seconds=0.2, tactic_timeout_s=5)
    result = search(SWAPS, proposer, budget=budget)
    assert (result.outcome, tree_of(result).limit, proposer.at_once) == ("budget", "seconds", 0)
    assert result.seconds < 5


def test_a_progress_model_that_never_answers_is_given_up_at_the_end_of_the_time() -> None:
    class Silent(Counting):
        async def remaining(self, steps: Sequence[ProgressStep]) -> list[float]:
            await asyncio.sleep(60)
            return []

    budget = Budget(nodes=60, seconds=1, tactic_timeout_s=5)
    result = search(SWAPS, logic(), budget=budget, remaining=Silent())
    assert (result.outcome, tree_of(result).limit, result.nodes) == ("budget", "seconds", 1)
    # What was found is in the picture all the same.
    assert [node.tactic for node in tree_of(result).nodes] == ["", "intro p q h"]


def test_a_failure_on_a_goal_is_not_sent_again_for_another_state_with_it() -> None:
    proposer = Listing("skip", "constructor", "assumption", "cases h", "nonsense")
    apart = {("p ∧ (q ∧ p)", "constructor"): ["p", "q ∧ p"], ("q ∧ p", "constructor"): ["q", "p"]}
    script = Script(tactics={**apart, ("p ∧ (q ∧ p)", "skip"): ["p ∧ (q ∧ p)"], ("p", "cases h"): ["q ∧ p"]})

    async def use(new: New) -> tuple[Effort, Effort, Effort]:
        failures: Failures = {}
        async with new() as session:
            first = await run(session, "p ∧ (q ∧ p)", proposer, failures=failures)
            again = await run(session, "p ∧ (q ∧ p)", proposer, failures=failures)
            alone = await run(session, "p ∧ (q ∧ p)", proposer)
        return first, again, alone

    first, again, alone = on(script, use)
    assert first.tree == again.tree == alone.tree
    assert again.repl_calls < first.repl_calls == alone.repl_calls


def test_a_seed_is_the_state_s_own_and_the_same_in_every_search() -> None:
    first, second, other = logic(), logic(), logic()
    search(SWAPS, first, seed=1)
    search(SWAPS, second, seed=1)
    search(SWAPS, other, seed=2)
    seeds = [asked.seed for asked in first.requests]
    assert seeds == [asked.seed for asked in second.requests]
    assert len(set(seeds)) == len(seeds)
    assert not {asked.seed for asked in other.requests} & set(seeds)


class Counting:
    """A progress model that says how many goals are left, and what was put to it in one go."""

    def __init__(self, wrong: float | None = None) -> None:
        self.batches: list[list[ProgressStep]] = []
        self.wrong = wrong

    async def remaining(self, steps: Sequence[ProgressStep]) -> list[float]:
        self.batches.append(list(steps))
        return [self.wrong if self.wrong is not None else float(len(step.tactic)) for step in steps]


def test_a_progress_model_gets_one_request_for_an_expansion() -> None:
    progress, proposer = Counting(), Listing("intro p", "intro q", "intro p q")
    statement = "∀ p q : Prop, p → q"
    both = {(statement, "intro p q"): ["p q : Prop\n⊢ p → q"], (statement, "intro q"): ["q : Prop\n⊢ q → q"]}
    one = {(statement, "intro p"): ["p : Prop\n⊢ ∀ q : Prop, p → q"]}
    further = {("∀ q : Prop, p → q", "intro q"): ["p q : Prop\n⊢ p → q"]}
    result = search(statement, proposer, Script(tactics=one | both | further), remaining=progress)
    first = progress.batches[0]
    assert [step.tactic for step in first] == ["intro p", "intro q", "intro p q"]
    assert {step.prefix for step in first} == {""}
    assert "⊢ ∀" in first[0].goal
    assert tree_of(result).node(1).remaining == len("intro p")
    assert any(step.prefix == "intro p" for batch in progress.batches for step in batch)


def test_a_progress_model_without_hope_does_not_end_the_search() -> None:
    for wrong in (float("inf"), float("nan")):
        result = search(SWAPS, logic(), remaining=Counting(wrong))
        assert result.outcome == "found", wrong


def test_a_process_is_parked_for_waiting_searches_during_a_slow_request() -> None:
    async def use(new: New) -> tuple[Listing, list[Effort]]:
        slow = Listing(*[one.text for one in logic().candidates], wait_s=0.05)

        async def one() -> Effort:
            async with new() as session:
                return await run(session, BOTH, slow)

        return slow, list(await asyncio.gather(one(), one(), one()))

    slow, results = on(LOGIC, use)
    assert [result.outcome for result in results] == ["found"] * 3
    assert results[0].script == results[1].script == results[2].script
    # One process: without lending it, one search would think after the other.
    assert slow.most_at_once > 1


def test_a_process_is_kept_where_coming_back_would_cost_more() -> None:
    async def lives(new: New, wait_s: float, searches: int) -> list[tuple[int, int]]:
        quick = Listing(*[one.text for one in logic().candidates], wait_s=wait_s)

        async def one() -> tuple[int, int]:
            async with new() as session:
                await run(session, BOTH, quick)
                return session.lives, session.replayed

        return list(await asyncio.gather(*(one() for _ in range(searches))))

    async def use(new: New) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        return await lives(new, 0.0, 2), await lives(new, 0.05, 1)

    nobody_slow, nobody_waiting = on(LOGIC, use)
    assert nobody_slow == [(1, 0), (1, 0)]
    assert nobody_waiting == [(1, 0)]


def test_a_process_is_not_parked_for_a_search_at_another_place() -> None:
    """Getting back to where it was takes far longer than this proposer thinks."""
    other = Setup(prefix=("theorem before : True := True.intro",))

    async def one(session: Session, proposer: Listing) -> int:
        async with session:
            await run(session, BOTH, proposer)
            return session.lives

    async def use(new: New) -> list[int]:
        slow = Listing(*[one.text for one in logic().candidates], wait_s=0.01)
        return list(await asyncio.gather(one(new(), slow), one(new(other), slow)))

    assert on(LOGIC, use, start_s=2.0) == [1, 1]


def test_the_suggestion_of_a_search_tactic_is_the_proof() -> None:
    def suggests(text: str) -> dict[str, Any]:
        return {"goals": [], "messages": [f"Try this: {text}"]}

    script = Script(
        tactics={
            ("p", "exact?"): suggests("[apply]   exact h"),
            ("q", "simp?"): suggests("\n  simp only\n    [h]"),
            ("p", "exact h"): [],
            ("q", "exact?"): {"parseError": "<input>:1:1: unknown tactic"},
            ("q", "simp only [h]"): [],
        }
    )
    result = search("p", Listing("exact?"), script)
    assert result.script is not None
    assert result.script.tactics == ("exact h",)
    result = search("q", Listing("exact?", "simp?"), script)
    assert result.script is not None
    assert result.script.tactics == ("simp only [h]",)
    assert [one.outcome for one in tree_of(result).node(0).tried] == ["unparsed", "proved"]


def test_a_proof_on_a_sorry_or_unsafe_code_does_not_count() -> None:
    script = Script(
        tactics={
            ("p", "aesop"): {"goals": [], "hasSorry": True},
            ("p", "decide"): {"goals": [], "hasUnsafe": True},
            ("p", "rfl"): [],
        }
    )
    result = search("p", Listing("aesop", "decide", "rfl"), script)
    assert [(one.tactic, one.outcome, one.reason) for one in tree_of(result).node(0).tried] == [
        ("aesop", "sorry", "it rests on a sorry"),
        ("decide", "sorry", "it rests on unsafe code"),
        ("rfl", "proved", ""),
    ]


def test_a_state_that_cannot_be_made_again_is_lost_and_the_goal_is_not_called_exhausted() -> None:
    """The process dies at one of two states, and the next one comes to another goal there."""
    scripts = [Script(tactics={("p", "left"): [goal], ("p", "right"): ["r"]}) for goal in ("q", "q'", "q'")]
    deaths = {"deadly": 1}
    processes = [scripted.starts(script, deaths=deaths) for script in scripts]

    async def start(*given: Any, **options: Any) -> Repl:
        return await processes.pop(0)(*given, **options)

    async def main() -> None:
        async with (
            ReplPool(start=start) as pool,
            Session(pool, ReplKey(scripted.NOWHERE, Path("/"), ("Init",))) as session,
        ):
            with pytest.raises(StateLost, match="the goals are not what they were"):
                await run(session, "p", Listing("left", "deadly", "right"))

    asyncio.run(main())
