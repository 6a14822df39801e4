"""How a proved lemma is brought into another proof: its text, which ones, in which order, and what is left of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from pipeline.jobs.specs import Lemma
from pipeline.lean.client.messages import Goal, Variable
from pipeline.lean.source.forbidden import complaints
from pipeline.lean.source.splice import Script, Step
from pipeline.prove.effort import Effort
from pipeline.prove.graph import Candidate, Proposer, TacticRequest
from pipeline.prove.lemmas import (
    CITING_MOST,
    CitingProposer,
    CitingResult,
    contents_of,
    name_of,
    nearest,
    texts_of,
)


def lemma(
    name: str = "Demo.swap",
    statement: str = "(p q : Prop) (h : p ∧ q) : q ∧ p",
    goal: str = "",
    tactics: tuple[str, ...] = ("exact ⟨h.2, h.1⟩",),
    proof: str = "1a2b3c4d5e6f7788",
) -> Lemma:
    return Lemma(f"sorry of {name}", proof, name, statement, goal, tactics)


def goal(target: str, **hypotheses: str) -> Goal:
    variables = tuple(
        Variable(name, name, inaccessible=False, type=text) for name, text in hypotheses.items()
    )
    return Goal("g", target, variables)


# --- the text


def test_a_lemma_is_stated_as_lean_printed_it_or_else_as_its_source() -> None:
    message = "p q : Prop\nh : p ∧ q\n⊢ q ∧ p"
    (from_the_goal,) = texts_of(lemma(goal=message))
    assert from_the_goal == "have swap_1a2b3c4d (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  exact ⟨h.2, h.1⟩"
    shorter = lemma(statement=": q ∧ p", goal=message)
    assert [text.partition(" := ")[0] for text in texts_of(shorter)] == [
        "have swap_1a2b3c4d (p q : Prop) (h : p ∧ q) : q ∧ p",
        "have swap_1a2b3c4d : q ∧ p",
    ]
    assert texts_of(lemma()) == (from_the_goal,)


def test_every_line_of_the_proof_keeps_its_layout_below_the_statement() -> None:
    cases = "cases h with\n| intro a b =>\n  exact ⟨b, a⟩"
    (text,) = texts_of(lemma(tactics=("skip", cases)))
    assert text.split("\n")[1:] == ["  skip", "  cases h with", "  | intro a b =>", "    exact ⟨b, a⟩"]
    assert complaints(text) == ()


@pytest.mark.parametrize(
    ("goal", "binders"),
    [
        (
            "α : Type u_1\ninst✝ : Group α\na b : α\n⊢ a * b = b * a",
            "(α : Type _) [Group α] (a b : α) : a * b = b * a",
        ),
        ("p : Prop\na✝ : p\n⊢ p", "(p : Prop) (_ : p) : p"),
        ("case inl\nα : Sort (max u v)\nβ : Type 1\n⊢ True", "(α : Sort _) (β : Type 1) : True"),
        ("f : Nat →\n    Nat\n⊢ f 0 =\n    f 0", "(f : Nat → Nat) : f 0 = f 0"),
    ],
)
def test_lean_s_output_becomes_binders_that_it_reads_elsewhere(goal: str, binders: str) -> None:
    assert texts_of(lemma(statement="", goal=goal))[0].startswith(f"have swap_1a2b3c4d {binders} := by\n")


@pytest.mark.parametrize(
    "goal",
    ["x : Nat := 3\n⊢ x = 3", "h✝ : p\n⊢ q h✝", "⊢ p\n\n⊢ q", "| p", ""],
    ids=["a local definition", "a hidden name", "two goals", "conv", "not said"],
)
def test_a_goal_that_cannot_be_stated_leaves_the_source_s_word(goal: str) -> None:
    assert texts_of(lemma(goal=goal)) == texts_of(lemma())
    assert texts_of(lemma(statement="", goal=goal)) == ()


@pytest.mark.parametrize(
    "tactics",
    [("exact sorryAx _",), ("native_decide",), ("skip -- and no more",), ("simp?",), ("skip",) * 1000],
    ids=["a sorry", "no proof", "a comment that swallows", "a search", "too long"],
)
def test_a_lemma_that_the_gate_would_refuse_is_not_brought_in(tactics: tuple[str, ...]) -> None:
    text = "p q : Prop\nh : p ∧ q\n⊢ q ∧ p"
    assert texts_of(lemma(goal=text, tactics=tactics)) == ()


@pytest.mark.parametrize(
    ("declaration", "name"),
    [
        ("Demo.swap'", "swap_1a2b3c4d"),
        ("«odd name».«x y»", "x_y_1a2b3c4d"),
        ("_example", "example_1a2b3c4d"),
        ("α.β", "known_1a2b3c4d"),
        ("Nat.add_comm_3", "add_comm_1a2b3c4d"),
    ],
)
def test_its_name_tells_which_proof_it_is_and_is_one_that_every_lean_reads(
    declaration: str, name: str
) -> None:
    assert name_of(lemma(declaration)) == name


# --- which


def test_contents_are_constants_and_symbols_without_variables() -> None:
    read = contents_of(
        lemma(statement="(f : ℝ → ℝ) (hf : Continuous f) : ∀ x, 0 < x → Tendsto f atTop = (x + 1)")
    )
    assert read.conclusion == {"Tendsto", "atTop", "=", "+", "1"}
    assert read.all == read.conclusion | {"ℝ", "Continuous", "0", "<"}
    text = "case h\nf : ℝ → ℝ\nhf : Continuous f\n⊢ ∀ x, 0 < x → Tendsto f atTop = (x + 1)"
    assert contents_of(lemma(goal=text)) == read


def test_the_nearest_few_are_taken_of_equals_the_first_and_each_statement_once() -> None:
    far = lemma("far", "(n : Nat) : Even n")
    alike = [
        lemma(f"alike{at}", f"(f{at} : ℝ → ℝ) : Continuous f{at} ↔ Tendsto f{at}")
        for at in range(CITING_MOST + 2)
    ]
    alike.insert(1, lemma("again", "(f0 : ℝ → ℝ) : Continuous f0 ↔ Tendsto f0"))
    same = lemma("same", "(f : ℝ → ℝ) : Continuous f")
    chosen = nearest([far, *alike, same], goal("Continuous g", g="ℝ → ℝ"))
    assert [one.declaration for one in chosen] == ["same", *(f"alike{at}" for at in range(CITING_MOST - 1))]


def test_unrelated_and_unwritable_lemmas_are_not_offered() -> None:
    wanted = goal("q ∧ p", p="Prop", q="Prop")
    assert nearest([lemma("other", "(n : Nat) : 0 < n")], wanted) == ()
    assert nearest([lemma("nothing", "(p : Prop) (h : p) : p")], wanted) == ()
    assert nearest([lemma("written", tactics=("exact sorryAx _",)), lemma()], wanted) == (lemma(),)


# --- the steps


class Rung(Proposer):
    """A rung that proposes one tactic and writes down what it hears of."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def propose(self, asked: TacticRequest) -> Iterable[Candidate]:
        return [Candidate("own", "own")]

    def saw(self, candidate: Candidate, *, parsed: bool) -> None:
        self.heard.append(candidate.text)


FIRST = lemma("first", "(p q : Prop) (h : p ∧ q) : q ∧ p", goal="p q : Prop\nh : p ∧ q\n⊢ q ∧ p")
SECOND = lemma("second", "(n m : Nat) : n + m = m + n", tactics=("omega",))
BOTH = (FIRST, SECOND)
BRING_FIRST, BRING_SECOND = texts_of(FIRST)[0], texts_of(SECOND)[0]


def proposed(steps: tuple[str, ...], target: str = "a ∧ b") -> list[str]:
    request = TacticRequest((goal(target),), steps, 0)
    return [one.text for one in asyncio.run(CitingProposer(Rung(), BOTH).propose(request))]


def test_lemmas_come_in_one_after_the_other_before_anything_else_is_done() -> None:
    assert proposed(()) == [BRING_FIRST, BRING_SECOND]
    assert proposed((BRING_FIRST,))[0] == BRING_SECOND
    assert BRING_FIRST not in proposed((BRING_SECOND,)), "what failed before is not tried again"
    assert not {BRING_FIRST, BRING_SECOND} & set(proposed((BRING_FIRST, "own")))


def test_a_fitting_lemma_is_used_before_the_rung_s_steps_and_another_one_after() -> None:
    steps = (BRING_FIRST, BRING_SECOND)
    first = "apply first_1a2b3c4d"
    second = ["apply second_1a2b3c4d", "rw [second_1a2b3c4d]", "rw [← second_1a2b3c4d]"]
    assert proposed(steps) == [first, "own", *second]
    assert proposed(steps, "x + y = z") == [*second, "own", first]


def test_a_rung_hears_of_its_own_steps_alone() -> None:
    rung = Rung()
    citing = CitingProposer(rung, BOTH)
    request = TacticRequest((goal("a ∧ b"),), (BRING_FIRST,), 0)
    for candidate in asyncio.run(citing.propose(request)):
        citing.saw(candidate, parsed=True)
    assert rung.heard == ["own"]


# --- what is found


def cited(*tactics: str) -> CitingResult:
    script = Script(tuple(Step(tactic, 1, int(at < len(tactics))) for at, tactic in enumerate(tactics, 1)))
    return CitingResult(Effort("found", script=script), BOTH)


def test_a_lemma_that_no_step_names_is_left_out_if_lean_takes_that() -> None:
    result = cited(BRING_FIRST, BRING_SECOND, "intro h", "exact second_1a2b3c4d 1 2")
    without, whole = result.scripts()
    assert without.tactics == (BRING_SECOND, "intro h", "exact second_1a2b3c4d 1 2")
    assert whole.tactics[0] == BRING_FIRST
    assert result.citation(without) == "brings in second (proof 1a2b3c4d5e6f7788)"
    assert result.citation(whole) == (
        "brings in first (proof 1a2b3c4d5e6f7788) and second (proof 1a2b3c4d5e6f7788)"
    )


def test_a_proof_that_needs_no_lemma_cites_none() -> None:
    result = cited(BRING_FIRST, "rfl")
    assert [script.tactics for script in result.scripts()] == [("rfl",), (BRING_FIRST, "rfl")]
    assert result.citation(result.scripts()[0]) == ""
    assert len(cited(BRING_FIRST, "exact first_1a2b3c4d _ _ h").scripts()) == 1
