"""Whole proofs with repair turns: against authors and judges made here, and before Lean itself."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from pipeline.endpoint.errors import Usage
from pipeline.lean.pool.session import Session
from pipeline.lean.source.splice import Replacement, splice
from pipeline.prove.effort import Effort
from pipeline.prove.whole_proof import (
    LEAST_CHECK_S,
    AuthorAnswers,
    Check,
    WholeAsk,
    WholeProofMethod,
    check_in,
    prove_whole,
)
from tests.support.prove import Searches, asked, declared
from tests.support.trace import lean_itself

ASK = asked("theorem t (p q : Prop) : p ∧ q → q ∧ p := by\n  sorry\n", seed=5)
RIGHT = "by\n  intro h\n  exact ⟨h.2, h.1⟩"


class Author:
    """An author with fixed turns, which records its requests."""

    def __init__(self, *turns: AuthorAnswers | Sequence[str]) -> None:
        self.asked: list[WholeAsk] = []
        self._turns = turns

    async def write(self, ask: WholeAsk) -> AuthorAnswers:
        turn = self._turns[min(len(self.asked), len(self._turns) - 1)]
        self.asked.append(ask)
        return turn if isinstance(turn, AuthorAnswers) else AuthorAnswers(tuple(turn), Usage(10, 5, 0.5))


class Judge:
    """A check that accepts one proof and records its requests."""

    def __init__(self, right: str = RIGHT) -> None:
        self.asked: list[str] = []
        self._right = right

    async def __call__(self, proof: str, _seconds: float) -> Replacement | tuple[str, ...]:
        self.asked.append(proof)
        return Replacement(0, 0, proof) if proof == self._right else (f"error in {proof!r}",)


def prove(
    author: Author,
    check: Check | None = None,
    *,
    repairs: int = 2,
    clock: Callable[[], float] = lambda: 0.0,
) -> Effort:
    method = WholeProofMethod(author.write, proofs=2, repairs=repairs)
    return asyncio.run(prove_whole(ASK, method, check or Judge(), seconds=60, clock=clock))


def test_lean_s_errors_go_back_to_the_author_until_a_proof_is_taken() -> None:
    author = Author(["by simp", "by omega"], [RIGHT, "by never"])
    judge = Judge()
    effort = prove(author, judge)
    assert (effort.outcome, effort.written, effort.detail) == ("found", (RIGHT, Replacement(0, 0, RIGHT)), "")
    assert judge.asked == ["by\n  simp", "by\n  omega", RIGHT], "what comes after a proof is not judged"
    assert author.asked[0].earlier == ()
    assert [(one.text, one.errors) for one in author.asked[1].earlier] == [
        ("by\n  simp", ("error in 'by\\n  simp'",)),
        ("by\n  omega", ("error in 'by\\n  omega'",)),
    ]
    assert [(one.count, one.seed) for one in author.asked] == [(2, 5), (2, 6)]
    assert (effort.nodes, effort.cost) == (3, Usage(20, 10, 1.0))
    assert effort.best == "found with text 3 of those judged, in turn 2"


@pytest.mark.parametrize(
    "text",
    [
        "by sorry",
        "by\n  intro h\n  admit",
        "by native_decide",
        "by exact?",
        "by\n  run_tac IO.println 1",
        "axiom cheat : q ∧ p\ntheorem t : p ∧ q → q ∧ p := sorryAx _ false",
        "by\n  exact h\nend N\naxiom x : False",
    ],
)
def test_a_text_that_the_gate_would_refuse_never_reaches_lean_and_the_author_gets_the_reason(
    text: str,
) -> None:
    author, judge = Author([text], [RIGHT]), Judge()
    prove(author, judge)
    assert judge.asked == [RIGHT]
    assert "not allowed in a proof" in author.asked[1].earlier[0].errors[0]


def test_an_answer_without_a_proof_goes_back_to_the_author() -> None:
    author = Author(["I am sorry, I cannot.\n```lean\n```"], [RIGHT])
    assert prove(author).outcome == "found"
    assert author.asked[1].earlier[0].errors == ("the answer has no proof in it",)


def test_the_same_proof_is_judged_once_however_it_is_written() -> None:
    author = Author(
        ["by simp", "```lean\ntheorem t (p q : Prop) : p ∧ q → q ∧ p := by\n    simp\n```"], ["by simp"]
    )
    judge = Judge()
    prove(author, judge, repairs=1)
    assert judge.asked == ["by\n  simp"]


def test_a_turn_without_new_proofs_repeats_the_failures_before() -> None:
    author = Author(["by simp"], ["by simp"], [RIGHT])
    assert prove(author).outcome == "found"
    assert author.asked[2].earlier == author.asked[1].earlier != ()


def test_when_the_turns_are_used_up_it_says_how_far_it_got() -> None:
    async def check(proof: str, _seconds: float) -> tuple[str, ...]:
        return ("unsolved goals\n⊢ p",) if "rfl" in proof else ("first", "second")

    effort = prove(Author(["by simp"], ["by rfl"], ["by omega"]), check)
    assert (effort.outcome, effort.written) == ("exhausted", None)
    assert effort.detail == "none of 3 turns brought a proof"
    assert effort.best == "the best of 3 texts has 1 error: unsolved goals ⊢ p"


def test_no_repairs_is_one_turn() -> None:
    author = Author(["by simp"])
    prove(author, repairs=0)
    assert len(author.asked) == 1


def test_an_author_without_answers_gets_another_request_and_is_reported() -> None:
    effort = prove(Author(AuthorAnswers((), Usage(3, 4), missing="answers of no use: 2 empty")))
    assert (effort.outcome, effort.cost, effort.best) == ("exhausted", Usage(9, 12), "no text was written")
    assert effort.detail == "none of 3 turns brought a proof; answers of no use: 2 empty"


def test_a_failing_author_ends_the_work_with_its_cost() -> None:
    failing = AuthorAnswers((), Usage(7, 8, 0.25), error="the endpoint answers HTML", reason="not_understood")
    effort = prove(Author(["by simp"], failing))
    assert (effort.outcome, effort.written, effort.detail) == ("error", None, "the endpoint answers HTML")
    assert (effort.cost, effort.nodes) == (Usage(17, 13, 0.75), 1)


def test_dollars_are_unknown_without_prices() -> None:
    assert prove(Author(AuthorAnswers((RIGHT,), Usage(1, 2)))).cost == Usage(1, 2, None)


def test_the_budget_of_seconds_ends_it_and_the_author_hears_of_it() -> None:
    times = iter([0.0, 0.0, 10.0, 50.0, 61.0, 61.0])
    author = Author(["by simp"], ["by omega"])
    judge = Judge()
    effort = prove(author, judge, clock=lambda: next(times), repairs=9)
    assert effort.outcome == "budget"
    assert [one.seconds for one in author.asked] == [60.0, 10.0]
    assert judge.asked == ["by\n  simp"]


def test_lean_has_for_a_text_what_is_left_of_the_time() -> None:
    given = []

    async def check(_: str, seconds: float) -> tuple[str, ...]:
        given.append(seconds)
        return ("error",)

    times = iter([0.0, 0.0, 20.0, 55.0, 60.0, 60.0])
    prove(Author(["by simp", "by omega"]), check, clock=lambda: next(times))
    assert given == [40.0, LEAST_CHECK_S]


def test_errors_for_the_author_are_bounded() -> None:
    async def check(_: str, _seconds: float) -> tuple[str, ...]:
        return tuple("x" * 10_000 for _ in range(50))

    texts = [f"by exact {'x' * 9000}{n}" for n in range(20)]
    author = Author(texts, ["by simp"])
    prove(author, check, repairs=1)
    earlier = author.asked[1].earlier
    assert sum(len(one.text) + sum(map(len, one.errors)) for one in earlier) < 70_000


# ---- before Lean itself


@pytest.fixture(scope="module")
def lean(real_lean: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searches]:
    with Searches(tmp_path_factory.mktemp("project"), lean_itself(real_lean)) as made:
        yield made


PLACES = [
    "theorem t (p q : Prop) : p ∧ q → q ∧ p := sorry\n",
    "theorem t (p q : Prop) : p ∧ q → q ∧ p := by\n  sorry\n",
    "theorem t (p q : Prop) : p ∧ q → q ∧ p := (sorry)\n",
    "theorem t (p q : Prop) : p ∧ q → q ∧ p := by exact (sorry)\n",
    "theorem t (p q : Prop) : p ∧ q → q ∧ p := by\n  first\n  | sorry\n",
    "theorem t (p q : Prop) : True ∧ (p ∧ q → q ∧ p) := by\n  constructor\n  · trivial\n  · sorry\n",
    "theorem t (p q : Prop) : (p ∧ q → q ∧ p) ∧ True := ⟨sorry, trivial⟩\n",
    "theorem t (p q : Prop) : p ∧ q → q ∧ p := by\r\n  sorry\r\n",
]
ANSWERS = [RIGHT, "fun h => ⟨h.2, h.1⟩", "fun h =>\n  And.intro\n    h.2\n    h.1"]


def test_a_written_proof_fits_into_every_place(lean: Searches) -> None:
    async def use(session: Session) -> dict[tuple[str, str], tuple[str, ...]]:
        refused = {}
        for place, answer in itertools.product(PLACES, ANSWERS):
            declaration = declared(place)
            fits = await check_in(session, declaration, declaration.sorries[0])(answer, 60)
            if not isinstance(fits, Replacement):
                refused[place, answer] = fits
                continue
            patched = splice(declaration.data, fits)
            assert b"sorry" not in patched
            assert patched.count(b"\r\n") in (0, patched.count(b"\n"))
        return refused

    assert lean.use(use) == {}


def filled(lean: Searches, *answers: str) -> tuple[Effort, Author]:
    author = Author(*([one] for one in answers))

    async def use(session: Session) -> Effort:
        check = check_in(session, ASK.declaration, ASK.sorry)
        return await prove_whole(ASK, WholeProofMethod(author.write, repairs=1), check, seconds=600)

    return lean.use(use), author


def test_a_wrong_proof_comes_back_with_the_line_that_is_wrong_and_is_mended(lean: Searches) -> None:
    wrong = "by\n  intro h\n  exact ⟨h.1, h.2⟩"
    effort, author = filled(lean, wrong, RIGHT)
    assert (written := effort.written) is not None, effort
    (failed,) = author.asked[1].earlier
    assert failed.text == wrong
    assert "at `exact ⟨h.1, h.2⟩`: " in failed.errors[0]
    assert written.replacement.text == "intro h\n  exact ⟨h.2, h.1⟩"


def test_a_proof_that_leaves_goals_open_is_not_taken(lean: Searches) -> None:
    effort, _ = filled(lean, "by\n  intro h\n  constructor")
    assert (effort.outcome, effort.written) == ("exhausted", None)
