"""A file's sorries on the pool's REPLs, and what happens when these die. A script answers in Lean's place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.endpoint.errors import Usage
from pipeline.jobs.specs import Budget, KnownProof
from pipeline.lean.client.errors import ReplStartError
from pipeline.lean.pool.pool import PoolStats
from pipeline.lean.pool.session import State, StateLost
from pipeline.lean.source.scanner import parse
from pipeline.lean.source.splice import Replacement
from pipeline.prove.declaration import DeclarationProver
from pipeline.prove.effort import Attempt, Effort, SolvedSorry, found, in_vain
from pipeline.prove.graph import Candidate, Proposer, TacticRequest
from pipeline.prove.rungs import Engine, ladder
from pipeline.prove.search import Search, SearchMethod
from pipeline.prove.whole_proof import AuthorAnswers, WholeAsk, WholeProofMethod
from tests.support.lean.scripted import Script
from tests.support.prove import Searches, declared, wanted

BUDGET = Budget(nodes=20, seconds=60, tactic_timeout_s=20)

SOURCE = """theorem first (p : Prop) : p → p := sorry
theorem poison (p : Prop) : p → p := sorry
theorem last (p q : Prop) : p ∧ q → p := by
  sorry
"""
EASY = Script(
    sorries={
        "theorem first": ["p : Prop\n⊢ p → p"],
        "theorem poison": ["p : Prop\n⊢ p → p"],
        "theorem last": ["p q : Prop\n⊢ p ∧ q → p"],
    },
    tactics={("", "simp_all"): []},
)


def run(
    folder: Path,
    source: str,
    script: Script,
    *,
    deaths: dict[str, int] | None = None,
) -> tuple[dict[str, Attempt], PoolStats]:
    with Searches(folder, script=script, deaths=deaths) as lean:
        return lean.attempt(source), lean.pool.stats


def test_a_crash_costs_the_sorry_it_happened_at_and_no_other(tmp_path: Path) -> None:
    attempts, _ = run(tmp_path, SOURCE, EASY, deaths={"theorem poison": 2})
    assert {name: attempt.outcome for name, attempt in attempts.items()} == {
        "first": "found",
        "poison": "error",
        "last": "found",
    }
    assert "stack overflow" in attempts["poison"].detail


def test_what_another_command_holds_is_given_to_no_prover(tmp_path: Path) -> None:
    source = "#time theorem a (p : Prop) : p → p := sorry\n\nGoal (p : Prop) : p → p := sorry\n"
    attempts, pool = run(tmp_path, source, Script())
    assert {name: (one.outcome, one.detail) for name, one in attempts.items()} == {
        "a": ("unsupported", "a is held by the command #time, which may do anything"),
        "_Goal": ("unsupported", "_Goal is held by the command Goal, which may do anything"),
    }
    assert pool.started == 0


@pytest.mark.parametrize(
    "source",
    [
        "theorem t (h : sorry) : h = h := rfl\n",
        "theorem t : (sorry : Nat) = 3 → True := fun _ => trivial\n",
        "theorem t (h : 1 = 1 := by sorry) : True := trivial\n",
    ],
)
def test_a_sorry_in_a_statement_is_given_to_no_prover(tmp_path: Path, source: str) -> None:
    attempts, pool = run(tmp_path, source, Script())
    said = "t: the sorry is in its statement, which no proof may change"
    assert [(one.outcome, one.detail) for one in attempts.values()] == [("unsupported", said)]
    assert pool.started == 0


def test_beside_a_sorry_in_the_statement_the_proof_s_own_is_asked_for(tmp_path: Path) -> None:
    asked_for: list[tuple[int, str]] = []

    async def write(ask: WholeAsk) -> AuthorAnswers:
        asked_for.append((ask.sorry.ordinal, ask.goal.strip()))
        return AuthorAnswers(("trivial",))

    source = "theorem t (h : 1 = 1 := by sorry) : True := sorry\n"
    engine = Engine(ladder().propose, wholly=WholeProofMethod(write, proofs=1, repairs=0))
    with Searches(tmp_path, script=Script(sorries={"theorem t": ["⊢ True"]})) as lean:
        attempt = lean.attempt(source, engine)["t"]
    assert asked_for == [(1, "⊢ True")]
    assert attempt.proof is not None
    assert attempt.proof.replacement.text == "by trivial"


def test_one_process_serves_all_the_declarations_of_a_file(tmp_path: Path) -> None:
    attempts, pool = run(tmp_path, SOURCE, EASY)
    assert {attempt.outcome for attempt in attempts.values()} == {"found"}
    assert pool.started == 1


HARD = "def two : Nat := 2\n" + "".join(
    f"theorem {name} (p q : Prop) : p ∨ q → q ∨ p := sorry\n" for name in ("first", "last")
)
PROPS = "p q : Prop\n"
STEPS = Script(
    sorries={f"theorem {name}": [f"{PROPS}⊢ p ∨ q → q ∨ p"] for name in ("first", "last")},
    tactics={
        ("p ∨ q → q ∨ p", "intro h"): [f"{PROPS}h : p ∨ q\n⊢ q ∨ p"],
        (f"{PROPS}h : p ∨ q\n⊢ q ∨ p", "rcases h with h1 | h1"): [
            f"{PROPS}h1 : p\n⊢ q ∨ p",
            f"{PROPS}h1 : q\n⊢ q ∨ p",
        ],
        ("q ∨ p", "left"): ["q"],
        ("q ∨ p", "right"): ["p"],
        **{(f"{PROPS}h1 : {one}\n⊢ {one}", "assumption"): [] for one in "pq"},
    },
)
WAY = ("intro h", "rcases h with h1 | h1", "right", "assumption", "left", "assumption")


def test_a_process_that_dies_in_mid_search_loses_nothing_but_time(tmp_path: Path) -> None:
    calm, _ = run(tmp_path, HARD, STEPS)
    deaths = dict.fromkeys(("rcases h with h1 | h1", "simp_all", "trivial"), 1)
    shaken, pool = run(tmp_path, HARD, STEPS, deaths=deaths)
    assert pool.died == 3
    for name, attempt in calm.items():
        assert attempt.proof is not None
        assert attempt.proof.tactics == WAY
        other = shaken[name].proof
        assert other is not None
        assert (attempt.proof.tactics, attempt.proof.replacement) == (other.tactics, other.replacement)
    assert sum(one.effort.repl_calls for one in shaken.values()) > sum(
        one.effort.repl_calls for one in calm.values()
    )


def test_a_tactic_that_kills_lean_counts_as_failed_and_is_reported(tmp_path: Path) -> None:
    source = "theorem open_question (p : Prop) : p ∨ ¬p := sorry\n"
    script = Script(sorries={"theorem open_question": ["p : Prop\n⊢ p ∨ ¬p"]})
    attempts, pool = run(tmp_path, source, script, deaths={"simp_arith": 99})
    assert attempts["open_question"].outcome == "exhausted"
    assert "tactics that ended the process each time" in attempts["open_question"].detail
    assert pool.died == 4, "twice at the goal, and twice at its negation"


def test_a_proof_that_kills_lean_is_tried_in_one_layout(tmp_path: Path) -> None:
    async def write(_: WholeAsk) -> AuthorAnswers:
        return AuthorAnswers(("by\n  poisonous\n  words",))

    engine = Engine(ladder().propose, wholly=WholeProofMethod(write, proofs=1, repairs=0))
    with Searches(tmp_path, script=EASY, deaths={"poisonous": 99}) as lean:
        attempt = lean.attempt(SOURCE.splitlines(keepends=True)[0], engine)["first"]
        assert lean.pool.stats.died == 2
    assert (attempt.outcome, "Lean ends on this text" in attempt.effort.best) == ("exhausted", True)


PAIR = "theorem pair (p q : Prop) (h : p) : p ∧ q := ⟨sorry, sorry⟩\n"
TWO = Script(
    sorries={"theorem pair": ["h : p\n⊢ p", "h : p\n⊢ q"]},
    tactics={("p", "exact h"): []},
    errors={"⟨sorry, (by": "type mismatch"},
)


class Fails(Proposer):
    """Proposes one tactic, and fails at the goals of this target."""

    def __init__(self, at: str, text: str) -> None:
        self._at, self._text = at, text
        self.targets: list[str] = []

    async def propose(self, asked: TacticRequest) -> list[Candidate]:
        self.cost += Usage(10, 1)
        self.targets.append(asked.goals[0].target)
        if asked.goals[0].target == self._at:
            raise StateLost("exact h", "the goals are not what they were")
        return [Candidate(self._text, self._text)]


def test_a_state_that_is_lost_loses_no_other_sorry_s_proof(tmp_path: Path) -> None:
    with Searches(tmp_path, script=TWO) as lean:
        result = lean.use(
            lambda session: DeclarationProver(
                session, declared(PAIR), BUDGET, SearchMethod(Fails("q", "exact h"))
            ).prove()
        )
    assert list(result.solved) == [0]
    ((ordinal, effort),) = result.unsolved
    assert (ordinal, effort.outcome, effort.cost.prompt_tokens) == (1, "error", 10)
    assert "the goals are not what they were" in effort.detail


def test_what_an_author_was_paid_is_told_where_lean_is_lost(tmp_path: Path) -> None:
    async def write(ask: WholeAsk) -> AuthorAnswers:
        if ask.earlier:
            raise StateLost("simp", "the goals are not what they were")
        return AuthorAnswers(("by sorry",), Usage(10, 1, 0.5))

    method, wholly = SearchMethod(Fails("", "skip")), WholeProofMethod(write)
    with Searches(tmp_path, script=EASY) as lean:
        result = lean.use(
            lambda session: DeclarationProver(
                session, declared(SOURCE), BUDGET, method, wholly=wholly
            ).prove()
        )
    assert [(effort.outcome, effort.cost) for _, effort in result.unsolved] == [("error", Usage(10, 1, 0.5))]


def test_the_goal_in_vain_is_that_of_the_sorry_which_is_left(tmp_path: Path) -> None:
    """Lean's goals do not come in the order of the sorries."""
    script = replace(TWO, sorries={"theorem pair": ["h : p\n⊢ q", "h : p\n⊢ p"]})
    with Searches(tmp_path, script=script) as lean:
        result = lean.use(
            lambda session: DeclarationProver(
                session, declared(PAIR), BUDGET, SearchMethod(Fails("q", "exact h"))
            ).prove()
        )
    assert list(result.solved) == [0]
    attempt = in_vain(replace(wanted(PAIR)[1], ordinal=1), result)
    assert (attempt.outcome, attempt.effort.cost.prompt_tokens) == ("error", 10)
    assert "the goals are not what they were" in attempt.detail


def test_a_goal_that_another_one_s_proof_fills_is_not_searched_again(tmp_path: Path) -> None:
    source = PAIR.replace("⟨sorry, sorry⟩", "⟨sorry, sorry, sorry⟩")
    goals = ["h : p\n⊢ p", "h : p\n⊢ p", "h : p\n⊢ q"]
    script = replace(TWO, sorries={"theorem pair": goals}, errors={"sorry, (by exact h)⟩": "type mismatch"})
    proposer = Fails("", "exact h")
    with Searches(tmp_path, script=script) as lean:
        result = lean.use(
            lambda session: DeclarationProver(
                session, declared(source), BUDGET, SearchMethod(proposer)
            ).prove()
        )
    assert sorted(result.solved) == [0, 1]
    assert proposer.targets == ["p", "q"]


def test_a_text_that_declares_more_is_no_proof_and_its_cost_is_told() -> None:
    data = SOURCE.splitlines(keepends=True)[0].encode()
    (one,) = wanted(data.decode())
    more = Replacement(one.byte_start, one.byte_end, "id\n\ntheorem more : True := trivial")
    solved = SolvedSorry((), more, Effort("found", cost=Usage(5, 1)))
    attempt = found(one, solved, data=data, source=parse(data), path="A.lean")
    assert (attempt.outcome, attempt.proof, attempt.effort.cost) == ("error", None, Usage(5, 1))


def test_known_proofs_share_the_seconds_of_one_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    class Slow(Search):
        async def run(self, state: State, *, goal: int = 0) -> Effort:
            given.append(self.budget.seconds)
            return Effort("budget", seconds=25.0)

    monkeypatch.setattr("pipeline.prove.declaration.Search", Slow)
    known = {0: [KnownProof(name, ("skip",)) for name in "abc"]}
    method = SearchMethod(Fails("", "skip"))
    with Searches(tmp_path, script=EASY) as lean:
        lean.use(lambda session: DeclarationProver(session, declared(SOURCE), BUDGET, method, known).prove())
    assert given == [60, 35, 10, 60], "the last is the search itself"


def test_a_text_that_ends_lean_loses_no_proof_that_stood_alone(tmp_path: Path) -> None:
    script = replace(TWO, errors={})
    with Searches(tmp_path, script=script, deaths={"⟨(by exact h), (by exact h)⟩": 99}) as lean:
        result = lean.use(
            lambda session: DeclarationProver(
                session, declared(PAIR), BUDGET, SearchMethod(Fails("", "exact h"))
            ).prove()
        )
    assert [one.replacement.text for one in result.solved.values()] == ["(by exact h)", "(by exact h)"]
    costs = [one.effort.cost.prompt_tokens for one in result.solved.values()]
    assert costs == [10, 0], "what fills both was paid for once"


def test_a_text_that_kills_every_process_is_given_up_after_two(tmp_path: Path) -> None:
    source = "theorem poison : True := trivial\n" + SOURCE.replace("poison", "second")
    attempts, pool = run(tmp_path, source, EASY, deaths={"theorem poison": 99})
    assert {attempt.outcome for attempt in attempts.values()} == {"error"}
    assert "tried twice" in attempts["last"].detail
    assert pool.died == 2


def test_a_lean_that_does_not_start_is_the_caller_s_to_judge(tmp_path: Path) -> None:
    with Searches(tmp_path) as lean, pytest.raises(ReplStartError):
        lean.attempt(SOURCE)


def test_a_file_of_another_version_is_left_alone(tmp_path: Path) -> None:
    with Searches(tmp_path, script=Script()) as lean:
        attempts = lean.attempt(SOURCE, on_disk=SOURCE + "-- changed\n")
    assert {attempt.outcome for attempt in attempts.values()} == {"error"}
    assert all("is not blob" in attempt.detail for attempt in attempts.values())
