"""Searches, and the placing of what they find, before Lean itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from pipeline.jobs.specs import Budget
from pipeline.lean.pool.session import Session
from pipeline.lean.source.splice import Replacement
from pipeline.prove.curated import CuratedTactics
from pipeline.prove.declaration import CannotAttempt, DeclarationProver
from pipeline.prove.effort import DeclarationResult, Effort
from pipeline.prove.graph import Candidate, ModelScoring, Proposer, TacticRequest
from pipeline.prove.rungs import Engine
from pipeline.prove.search import Search, SearchMethod
from pipeline.prove.whole_proof import fitting
from tests.support.prove import Searches, declared, tree_of
from tests.support.trace import lean_itself

BUDGET = Budget(nodes=100, seconds=60, tactic_timeout_s=20)


class Listing(Proposer):
    """Proposes the same tactics for every goal."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts

    async def propose(self, asked: TacticRequest) -> Iterable[Candidate]:
        return [Candidate(text, text, log_probability=-0.1 * at) for at, text in enumerate(self._texts)]


def bare() -> CuratedTactics:
    """So little automation that the search has to do the work."""
    return CuratedTactics(core_only=True, closers=("rfl", "assumption"))


@pytest.fixture(scope="module")
def lean(real_lean: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searches]:
    with Searches(tmp_path_factory.mktemp("project"), lean_itself(real_lean)) as made:
        yield made


def search(lean: Searches, statement: str, proposer: Proposer) -> Effort:
    async def use(session: Session) -> Effort:
        state = await session.start(statement)
        return await Search(session, SearchMethod(proposer, ModelScoring()), BUDGET).run(state)

    return lean.use(use)


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("∀ p q r : Prop, (p ∨ q) ∨ r → p ∨ (q ∨ r)", marks=pytest.mark.slow),
        "∀ p q r : Prop, (p → q ∧ r) → (p → q) ∧ (p → r)",
        pytest.param("∀ p q : Prop, ¬(p ∨ q) ↔ ¬p ∧ ¬q", marks=pytest.mark.slow),
        "∀ p : Prop, ¬¬(p ∨ ¬p)",
        "(∀ p : Prop, p) → False",
    ],
)
def test_a_provable_statement_is_proved_without_automation(lean: Searches, statement: str) -> None:
    async def use(session: Session) -> tuple[Effort, int]:
        return await _of_rung_0(session, statement), await session.stat()

    result, states = lean.use(use)
    assert (result.outcome, result.script is None) == ("found", False), result
    assert states == 1, "the root alone is left in the process"


@pytest.mark.parametrize("statement", ["∀ p : Prop, ¬¬p → p", "∀ p q : Prop, ((p → q) → p) → p", "2 + 2 = 5"])
def test_a_goal_without_a_constructive_proof_is_given_up(lean: Searches, statement: str) -> None:
    result = lean.use(lambda session: _of_rung_0(session, statement))
    assert (result.outcome, result.script) == ("exhausted", None), result


async def _of_rung_0(session: Session, statement: str) -> Effort:
    return await Search(session, SearchMethod(bare()), BUDGET).run(await session.start(statement))


def test_states_that_only_read_the_same_stay_apart(lean: Searches) -> None:
    """Three hypotheses are called h, and two of them print as `h✝`: left and right leave the same text."""
    proposer = Listing("intro h", "assumption", "cases h", "left", "right", "skip")
    result = search(lean, "∀ p q : Prop, p ∨ q → q ∨ p", proposer)
    assert result.outcome == "found", result
    skipped = [one for node in tree_of(result).nodes for one in node.tried if one.tactic == "skip"]
    assert {one.outcome for one in skipped} == {"repeated"}


GARBAGE = [
    "", " \n ", "sorry", "exact sorry", "admit", "(", "intro h -- and", "/- ", "\x00", "\x1b[2J", "\ud800",
    "a" * 100_000, "intro h\n/-", "#eval 1", "run_tac", "exact (by", "⟨", "»", "theorem x : p := by trivial",
    "simp (", "?", "exact?", "intro «", "cases h with\n| inl", "'", '"', "\u202e intro", "native_decide",
]  # fmt: skip


def test_a_model_s_garbage_fails_and_the_proof_behind_it_is_found(lean: Searches) -> None:
    result = search(lean, "∀ p : Prop, p → p", Listing(*GARBAGE, "intro p h", "assumption"))
    assert result.outcome == "found", result
    tried = [one for node in tree_of(result).nodes for one in node.tried]
    assert {one.tactic for one in tried if one.outcome in ("step", "proved")} == {"intro p h", "assumption"}
    assert all(one.reason for one in tried if one.outcome in ("failed", "unparsed", "sorry"))
    json.dumps(tree_of(result).as_json()).encode("ascii")


# ---- declarations


def prove(lean: Searches, text: str) -> DeclarationResult:
    method = SearchMethod(bare())
    return lean.use(lambda session: DeclarationProver(session, declared(text), BUDGET, method).prove())


def test_a_text_that_compiles_with_a_sorry_in_it_is_no_proof(lean: Searches) -> None:
    """Whatever tactic left it there: the search's own look at the states is not the last."""
    declaration = declared("theorem t (p q : Prop) : p → q := sorry\n")
    (sorry,) = declaration.sorries
    text = Replacement(sorry.byte_start, sorry.byte_end, "by\n  intro h\n  sorry")
    errors = lean.use(lambda session: fitting(session, declaration, [text]))
    assert errors == ("Lean says that the proof uses sorry",)


def test_one_of_two_sorries_is_filled_alone_where_the_other_cannot_be(lean: Searches) -> None:
    worked = prove(
        lean, "theorem t (p q : Prop) : (p → p) ∧ (p → q) := by\n  constructor\n  · sorry\n  · sorry\n"
    )
    assert set(worked.solved) == {0}
    assert [effort.outcome for _, effort in worked.unsolved] == ["exhausted"]


def test_a_declaration_that_does_not_compile_is_not_attempted(lean: Searches) -> None:
    with pytest.raises(CannotAttempt, match="no goal"):
        prove(lean, "theorem t (p : Prop) : p → nonsense := sorry\n")


def test_an_earlier_sorried_theorem_is_known_to_the_later_ones(lean: Searches) -> None:
    source = (
        "def two : Nat := 2\ntheorem gap : two = 3 := sorry\ntheorem uses : two = 3 ∧ True := by\n  sorry\n"
    )
    cites = Engine(lambda _place, _shown: Listing("exact ⟨gap, trivial⟩"))
    assert lean.attempt(source, cites)["uses"].outcome == "found"


# ---- false statements


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        ("theorem t : 2 + 2 = 5 := sorry\n", "disproved"),
        ("namespace N\n\ntheorem t : 1 = 2 ∧ 3 = 3 := by\n  sorry\n\nend N\n", "disproved"),
        ("example : 2 + 2 = 5 := sorry\n", "disproved"),
        ("theorem t (p : Prop) : ((p → False) → False) → p := sorry\n", "exhausted"),
        ("theorem t : 2 + 2 = 4 := by\n  exact absurd rfl (sorry : ¬(3 = 3))\n", "exhausted"),
    ],
)
def test_a_false_statement_is_disproved_and_no_other(lean: Searches, source: str, outcome: str) -> None:
    tried = list(lean.attempt(source).values())
    assert tried[-1].outcome == outcome, tried
    assert ("false as it stands, by " in tried[-1].detail) == (outcome == "disproved")
    assert tried[-1].proof is None


@pytest.mark.parametrize(
    ("lie", "outcome"),
    [
        ("theorem lie : ¬(1 = 2) := sorry", "exhausted"),
        ("axiom lie : ¬(1 = 2)", "exhausted"),
        ("theorem lie : ¬(1 = 2) := by decide", "disproved"),
    ],
)
def test_a_negation_that_rests_on_another_sorry_or_an_axiom_proves_nothing(
    lean: Searches, lie: str, outcome: str
) -> None:
    cites = Engine(lambda _place, _shown: Listing("exact lie"))
    tried = lean.attempt(f"{lie}\ntheorem t : 1 = 2 := sorry\n", cites)
    assert tried["t"].outcome == outcome, tried["t"]
