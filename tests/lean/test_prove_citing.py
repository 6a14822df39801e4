"""A lemma that is proved and still a sorry upstream, cited by a later search: it comes in with its proof, and the gate
takes the whole. Lean is Lean itself, and the view a real one, made of events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.endpoint.errors import Usage
from pipeline.gate import lake_checks
from pipeline.gate.second_kernel import OFF
from pipeline.jobs.protocol import JobSpec
from pipeline.jobs.specs import CheckSpec, Lemma
from pipeline.lean.source.scanner import scan_source
from pipeline.prove.graph import Candidate, ModelScoring, Proposer, TacticRequest
from pipeline.prove.rungs import Engine, ladder
from pipeline.prove.tree import Tree
from pipeline.prove.whole_proof import AuthorAnswers, WholeAsk, WholeProofMethod
from store.domain.identity import git_blob, short_hash
from store.events.base import EventBody
from store.events.proofs import AttemptFinished, ProofFound, ProofVerified
from store.events.scans import SorryOpened
from store.events.traces import SorryStated
from tests.support.events import (
    BRANCH,
    REPOSITORY,
    place,
    proof_found,
    proof_rejected,
    proof_verified,
)
from tests.support.lean.real_gate import FIRST_MODULE, RealGate
from tests.support.prove import FILE, Searches, attempts, parameters, run
from tests.support.trace import lean_itself
from tests.support.views import LoggedView

EVEN = """inductive Even : Nat → Prop
  | zero : Even 0
  | more (n : Nat) (h : Even n) : Even (n + 2)
"""
SOURCE = f"""namespace Demo

{EVEN}
theorem four_more (n : Nat) (h : Even n) : Even (n + 4) := sorry

variable (k : Nat)

theorem eight_more (h : Even k) : Even (k + 4 + 4) := by
  sorry

end Demo
"""
PROOF = ("exact .more _ (.more _ h)",)
"""Of `four_more`: none that rung 0 finds."""
BROUGHT_IN = """have four_more_{proof} (n : Nat) (h : Even n) : Even (n + 4) := by
    exact .more _ (.more _ h)
"""


class Project(LoggedView):
    """One file in a folder, and a view that knows its sorries and what became of them."""

    def __init__(self, folder: Path, lean: Path, source: str = SOURCE) -> None:
        super().__init__(folder, at=folder / "view.db")
        self.source = source
        data = source.encode()
        scanned = scan_source(data, path=FILE)
        blob = git_blob(data, like="0" * 40)
        self.places = {one.declaration: place(scanned, one, blob=blob) for one in scanned.sorries}
        where = {"repository": REPOSITORY, "branch": BRANCH, "database_db": folder / "view.db"}
        self.given = parameters(folder, source, lean=lean_itself(lean), **where)
        for sorry in self.given["sorries"]:
            name = sorry["declaration"]
            sorry["sorry"] = short_hash(name)
            about = {"repository": REPOSITORY, "branch": BRANCH, "sha": "a" * 40, "sorry": short_hash(name)}
            self.tell(SorryOpened.model_validate(about | {"place": self.places[name], "reopened": False}))

    def proved(
        self, name: str, tactics: tuple[str, ...], *, checked: bool = True, **changes: Any
    ) -> ProofFound:
        """Record a proof of a sorry, and that nothing was found against it."""
        found = proof_found(short_hash(name), self.places[name], commit="a" * 40)
        found = found.model_copy(update={"tactics": tactics, **changes})
        self.tell(found, *([proof_verified(found)] if checked else []))
        return found

    def stated(self, name: str, goal: str) -> None:
        """Record what Lean says is to be proved at a sorry."""
        where = self.places[name]
        said = {"repository": REPOSITORY, "branch": BRANCH, "sha": "a" * 40, "sorry": short_hash(name)}
        about = {"statement_hash": where.statement_hash, "context_hash": where.context_hash, "goal": goal}
        more = {"before": None, "same_text": True}
        self.tell(SorryStated.model_validate(said | about | more))

    def prove(
        self, name: str, *, at: str = "job", **changes: Any
    ) -> tuple[AttemptFinished, ProofFound | None]:
        wanted = [one for one in self.given["sorries"] if one["declaration"] == name]
        bodies, _ = run(self.given | {"sorries": wanted} | changes, self.folder / at)
        proofs = [body for body in bodies if isinstance(body, ProofFound)]
        return attempts(bodies)[short_hash(name)], proofs[0] if proofs else None

    def judged(self, found: ProofFound) -> EventBody:
        """Return the gate's verdict."""
        court = RealGate(self.folder / "court")
        (court.project / FILE).write_text(self.source, "utf-8")
        given = CheckSpec(lean=court.backend(), proof=found, second_kernel=OFF)
        (verdict,) = court.recorded(
            JobSpec("check-1", "check", 1, self.folder / "check", given, worktree=court.project)
        )
        return verdict

    def tree(self, attempt: AttemptFinished, *, at: str = "job") -> Tree:
        assert attempt.tree is not None
        staged = self.folder / at / "staging" / attempt.tree.sha256
        return Tree.from_json(json.loads(staged.read_bytes()))


@pytest.fixture
def project(tmp_path: Path, real_lean: Path) -> Project:
    return Project(tmp_path, real_lean)


def test_a_sorry_that_only_another_sorry_s_proof_fills_is_filled_with_that_proof_in_it(
    project: Project,
) -> None:
    alone, nothing = project.prove("Demo.eight_more", at="before")
    assert (alone.outcome, nothing) == ("exhausted", None)

    known = project.proved("Demo.four_more", PROOF)
    attempt, found = project.prove("Demo.eight_more")
    assert attempt.outcome == "found", attempt
    assert found is not None
    assert found.replacement.startswith(BROUGHT_IN.format(proof=known.proof[:8]))
    assert attempt.detail == f"brings in Demo.four_more (proof {known.proof})"
    tree = project.tree(attempt)
    brought = next(node for node in tree.nodes if node.number == tree.proof[1])
    assert brought.tactic.startswith(f"have four_more_{known.proof[:8]} ")
    assert attempt.nodes > alone.nodes, "what the search without lemmas took counts"
    again, same = project.prove("Demo.eight_more", at="again")
    assert (same, again.nodes, again.repl_calls) == (found, attempt.nodes, attempt.repl_calls)


@pytest.mark.slow
def test_the_gate_takes_the_proof_with_the_lemma_s_in_it(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_checks, "FIRST_MODULE", FIRST_MODULE)
    project.proved("Demo.four_more", PROOF)
    _, found = project.prove("Demo.eight_more")
    assert found is not None
    assert isinstance(verdict := project.judged(found), ProofVerified), verdict


@pytest.mark.parametrize("case", ["conditional", "another repository"])
def test_lemmas_that_failed_the_gate_or_are_of_another_branch_are_not_brought_in(
    project: Project, case: str
) -> None:
    found = project.proved("Demo.four_more", PROOF, checked=case != "conditional")
    if case == "conditional":
        project.tell(proof_rejected(found, conditional_on=("Demo.x",)))
    where = {} if case == "conditional" else {"repository": "x/y/z"}
    attempt, nothing = project.prove("Demo.eight_more", **where)
    assert (attempt.outcome, nothing) == ("exhausted", None)


def test_variables_of_a_lemma_come_in_with_it_once_lean_printed_its_goal(
    tmp_path: Path, real_lean: Path
) -> None:
    stated = "theorem four_more (n : Nat) (h"
    assert stated in SOURCE
    source = SOURCE.replace(stated, "variable (n : Nat)\n\ntheorem four_more (h")
    project = Project(tmp_path, real_lean, source)
    project.proved("Demo.four_more", PROOF)
    assert project.prove("Demo.eight_more", at="before")[0].outcome == "exhausted"
    project.stated("Demo.four_more", "n : Nat\nh : Even n\n⊢ Even (n + 4)")
    assert project.prove("Demo.eight_more")[1] is not None


def test_a_wrong_lemma_costs_its_tactics_and_the_right_one_is_cited_all_the_same(
    tmp_path: Path, real_lean: Path
) -> None:
    false = "theorem lie (n : Nat) (h : Even n) : Even (n + 4 + 4) := sorry\n\n"
    project = Project(tmp_path, real_lean, SOURCE.replace("variable", f"{false}variable"))
    known = project.proved("Demo.four_more", PROOF)
    project.proved("Demo.lie", ("exact h",))
    attempt, found = project.prove("Demo.eight_more")
    assert found is not None
    assert attempt.detail == f"brings in Demo.four_more (proof {known.proof})"
    root = project.tree(attempt).nodes[0]
    assert [one.outcome for one in root.tried] == ["failed", "step"]
    assert [one.tactic.split(" ")[1].rpartition("_")[0] for one in root.tried] == ["lie", "four_more"]


# --- on the other rungs


SWAP = Lemma(
    "s" * 16, "1a2b3c4d5e6f7788", "swap", "(p q : Prop) (h : p ∧ q) : q ∧ p", "", ("exact ⟨h.2, h.1⟩",)
)
FOUR = Lemma("d" * 16, "99aabbccddeeff00", "four_more", "(n : Nat) (h : Even n) : Even (n + 4)", "", PROOF)
SWAPPED = "theorem t (a b : Prop) (h : a ∧ b) : b ∧ a := sorry\n"
EIGHT = f"{EVEN}\ntheorem t (k : Nat) (h : Even k) : Even (k + 4 + 4) := sorry\n"


class Assuming(Proposer):
    """A model of one idea."""

    async def propose(self, asked: TacticRequest) -> Iterable[Candidate]:
        self.asked += 1
        self.answered += 1
        return [Candidate("assumption", "assumption", log_probability=-0.5)]


async def wrong(_ask: WholeAsk) -> AuthorAnswers:
    """Write proofs that are none."""
    return AuthorAnswers(("by\n  assumption",), Usage(100, 10))


@pytest.fixture(scope="module")
def lean(real_lean: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searches]:
    with Searches(tmp_path_factory.mktemp("project"), lean_itself(real_lean)) as made:
        yield made


def test_a_model_s_search_is_offered_the_lemma_s_use_beside_the_model_s_steps(lean: Searches) -> None:
    model = Assuming()
    engine = Engine(lambda _place, _shown: model, scoring=ModelScoring())
    attempt = lean.attempt(SWAPPED, engine, lemmas=(SWAP,))["t"]
    assert attempt.proof is not None, attempt
    assert attempt.proof.tactics[1:] == ("apply swap_1a2b3c4d", "assumption")
    assert model.asked == 3, "the goal without the lemma, with it, and what `apply` leaves"


def test_whole_proofs_that_fail_leave_the_lemma_to_the_curated_tactics(lean: Searches) -> None:
    engine = Engine(ladder().propose, wholly=WholeProofMethod(wrong, proofs=1, repairs=0))
    attempt = lean.attempt(EIGHT, engine, lemmas=(FOUR,))["t"]
    assert attempt.proof is not None, attempt
    assert attempt.detail == "brings in four_more (proof 99aabbccddeeff00); the steps are rung 0's"
    assert attempt.effort.cost.prompt_tokens == 100
    assert attempt.effort.tree is not None


def test_a_proof_without_a_lemma_does_not_count_for_an_author(lean: Searches) -> None:
    engine = Engine(ladder().propose, wholly=WholeProofMethod(wrong, proofs=1, repairs=0))
    attempt = lean.attempt(SWAPPED, engine, lemmas=(SWAP,))["t"]
    assert (attempt.outcome, attempt.proof) == ("exhausted", None)


@pytest.mark.parametrize(
    "also",
    [replace(FOUR, sorry="e" * 16, proof="55aabbccddeeff00", declaration="twice"),
     Lemma("h" * 16, "77aabbccddeeff00", "had", "(n : Nat) (h : Even n) : Even n", "", ("exact h",))],
    ids=["another lemma", "a hypothesis"],
)  # fmt: skip
@pytest.mark.parametrize("first", [True, False])
def test_a_lemma_that_repeats_another_hides_no_third_one(lean: Searches, also: Lemma, first: bool) -> None:
    source = EIGHT.replace("(k : Nat)", "(k : Nat) (had : ∀ n : Nat, Even n → Even n)")
    lemmas = (also, FOUR) if first else (FOUR, also)
    attempt = lean.attempt(source, Engine(ladder().propose), lemmas=lemmas)["t"]
    assert attempt.proof is not None, attempt


def test_nothing_is_brought_in_where_each_question_is_paid_for_nor_for_a_sorry_s_own_proof(
    lean: Searches,
) -> None:
    paid = Assuming()
    engine = Engine(lambda _place, _shown: paid, again=False)
    assert lean.attempt(SWAPPED, engine, lemmas=(SWAP,))["t"].outcome == "exhausted"
    assert paid.asked == 1
    own = Lemma("t", SWAP.proof, "swap", SWAP.statement, "", SWAP.tactics)
    free = Engine(lambda _place, _shown: Assuming())
    assert lean.attempt(SWAPPED, free, lemmas=(own,))["t"].outcome == "exhausted"
