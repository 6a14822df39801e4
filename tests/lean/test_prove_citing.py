"""A lemma that is proved and still a sorry upstream, cited by a later search: it comes in with its proof, and the gate
takes the whole. The simulator stands in for Lean; the view is a real one, made of events."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.gate import check
from pipeline.jobs.protocol import JobSpec, Reporter
from pipeline.jobs.specs import Budget, CheckSpec, Lemma
from pipeline.lean.backend import simulator
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.pool import ReplPool
from pipeline.lean.source.scanner import scan_source
from pipeline.prove.effort import Attempt
from pipeline.prove.file import FileProver
from pipeline.prove.graph import Candidate, ModelScoring, TacticRequest
from pipeline.prove.rungs import Engine, ladder
from pipeline.prove.tree import Tree
from pipeline.prove.whole_declaration import WholeProofMethod
from pipeline.prove.whole_proof import AuthorAnswers, WholeAsk
from store.domain.identity import git_blob, short_hash
from store.events.base import EventBody
from store.events.proofs import AttemptFinished, ProofChecked, ProofFound, ProofRejected
from store.events.registry import EVENT_TYPES
from store.events.scans import SorryOpened
from store.events.traces import SorryStated
from store.view.view import catch_up
from tests.support.events import (
    BRANCH,
    PATCH,
    REPOSITORY,
    place,
    proof_found,
    proof_rejected,
    proof_verified,
    record,
)
from tests.support.memory_log import MemoryLog
from tests.support.prove import FILE, attempts, parameters, run, wanted
from tests.support.views import empty_view

SOURCE = """namespace Demo

theorem drop_double (p : Prop) (h : ¬¬p) : p := sorry

variable (a b : Prop)

theorem both (h : ¬¬(a ∧ b)) : a ∧ b := by
  sorry

end Demo
"""
PROOF = ("cases Classical.em p with\n| inl hp => exact hp\n| inr hn => exact absurd hn h",)
"""Of `drop_double`: none that rung 0 finds."""
BROUGHT_IN = """have drop_double_{proof} (p : Prop) (h : ¬¬p) : p := by
    cases Classical.em p with
    | inl hp => exact hp
    | inr hn => exact absurd hn h
"""


class Project:
    """One file in a folder, and a view that knows its sorries and what became of them."""

    def __init__(self, folder: Path, source: str = SOURCE) -> None:
        self.folder = folder
        self.view = folder / "view.db"
        self.db = empty_view(self.view)
        self.log = MemoryLog()
        self.reader = self.log.reader()
        data = source.encode()
        scanned = scan_source(data, path=FILE)
        blob = git_blob(data, like="0" * 40)
        self.places = {one.declaration: place(scanned, one, blob=blob) for one in scanned.sorries}
        self.given = parameters(folder, source, repository=REPOSITORY, branch=BRANCH, database_db=self.view)
        for sorry in self.given["sorries"]:
            name = sorry["declaration"]
            sorry["sorry"] = short_hash(name)
            about = {"repository": REPOSITORY, "branch": BRANCH, "sha": "a" * 40, "sorry": short_hash(name)}
            self.tell(SorryOpened.model_validate(about | {"place": self.places[name], "reopened": False}))

    def tell(self, *bodies: EventBody) -> None:
        record(self.log, bodies, folder=self.folder / "staging", payloads=(PATCH,))
        catch_up(self.db, self.reader)

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
        given = CheckSpec(lean=simulator(), proof=found)
        spec = JobSpec("check-1", "check", 1, self.folder / "check", given, worktree=self.folder)
        out = io.StringIO()
        check.work(spec, Reporter(spec, out))
        (batch,) = [line for line in map(json.loads, out.getvalue().splitlines()) if line["line"] == "events"]
        (event,) = batch["events"]
        return EVENT_TYPES[event["type"]].model_validate(event["data"])

    def tree(self, attempt: AttemptFinished, *, at: str = "job") -> Tree:
        assert attempt.tree is not None
        staged = self.folder / at / "staging" / attempt.tree.sha256
        return Tree.from_json(json.loads(staged.read_bytes()))


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path)
    with closing(project.db):
        yield project


def test_a_sorry_that_only_another_sorry_s_proof_fills_is_filled_with_that_proof_in_it(
    project: Project,
) -> None:
    alone, nothing = project.prove("Demo.both", at="before")
    assert (alone.outcome, nothing) == ("exhausted", None)

    known = project.proved("Demo.drop_double", PROOF)
    attempt, found = project.prove("Demo.both")
    assert attempt.outcome == "found", attempt
    assert found is not None
    assert found.replacement.startswith(BROUGHT_IN.format(proof=known.proof[:8]))
    assert attempt.detail == f"brings in Demo.drop_double (proof {known.proof})"
    verdict = project.judged(found)
    assert isinstance(verdict, ProofChecked), verdict
    assert verdict.not_checked == ("compile", "axioms", "kernel")

    tree = project.tree(attempt)
    brought = next(node for node in tree.nodes if node.number == tree.proof[1])
    assert brought.tactic.startswith(f"have drop_double_{known.proof[:8]} ")
    assert attempt.nodes > alone.nodes, "what the search without lemmas took counts"
    again, same = project.prove("Demo.both", at="again")
    assert (same, again.nodes, again.repl_calls) == (found, attempt.nodes, attempt.repl_calls)


def test_to_cite_it_by_its_name_would_rest_on_the_sorry(project: Project) -> None:
    where, by_name = project.places["Demo.both"], "exact drop_double _ h"
    data = (project.folder / FILE).read_bytes()
    patched = data[: where.byte_start] + by_name.encode() + data[where.byte_end :]
    hashes = {one.name: one.text_hash for one in scan_source(patched, path=FILE).declarations}
    found = proof_found(short_hash("Demo.both"), where, commit="a" * 40)
    cited = found.model_copy(
        update={"replacement": by_name, "declaration_text_hash": hashes["Demo.both"], "toolchain": ""}
    )
    verdict = project.judged(cited)
    assert isinstance(verdict, ProofRejected)
    assert verdict.conditional_on == ("Demo.drop_double",)


@pytest.mark.parametrize("case", ["conditional", "another repository"])
def test_lemmas_that_failed_the_gate_or_are_of_another_branch_are_not_brought_in(
    project: Project, case: str
) -> None:
    found = project.proved("Demo.drop_double", PROOF, checked=case != "conditional")
    if case == "conditional":
        project.tell(proof_rejected(found, conditional_on=("Demo.x",)))
    where = {} if case == "conditional" else {"repository": "x/y/z"}
    attempt, nothing = project.prove("Demo.both", **where)
    assert (attempt.outcome, nothing) == ("exhausted", None)


def test_variables_of_a_lemma_come_in_with_it_once_lean_printed_its_goal(tmp_path: Path) -> None:
    stated = "theorem drop_double (p : Prop) (h"
    assert stated in SOURCE
    source = SOURCE.replace(stated, "variable (p : Prop)\n\ntheorem drop_double (h")
    with closing((project := Project(tmp_path, source)).db):
        project.proved("Demo.drop_double", PROOF)
        assert project.prove("Demo.both", at="before")[0].outcome == "exhausted"
        project.stated("Demo.drop_double", "p : Prop\nh : ¬¬p\n⊢ p")
        _, found = project.prove("Demo.both")
        assert found is not None
        assert isinstance(project.judged(found), ProofChecked)


def test_a_wrong_lemma_costs_its_tactics_and_the_right_one_is_cited_all_the_same(tmp_path: Path) -> None:
    false = "theorem lie (p : Prop) (h : ¬¬(p ∧ p)) : p ∧ p := sorry\n\n"
    with closing((project := Project(tmp_path, SOURCE.replace("variable", f"{false}variable"))).db):
        project.proved("Demo.lie", ("exact h",))
        known = project.proved("Demo.drop_double", PROOF)
        attempt, found = project.prove("Demo.both")
        assert found is not None
        assert attempt.detail == f"brings in Demo.drop_double (proof {known.proof})"
        root = project.tree(attempt).nodes[0]
        assert [one.outcome for one in root.tried] == ["failed", "step"]
        assert [one.tactic.split(" ")[1].rpartition("_")[0] for one in root.tried] == ["lie", "drop_double"]


# --- on the other rungs


SWAP = Lemma(
    "s" * 16, "1a2b3c4d5e6f7788", "swap", "(p q : Prop) (h : p ∧ q) : q ∧ p", "", ("exact ⟨h.2, h.1⟩",)
)
DOUBLE = Lemma("d" * 16, "99aabbccddeeff00", "drop_double", "(p : Prop) (h : ¬¬p) : p", "", PROOF)
SWAPPED = "theorem t (a b : Prop) (h : a ∧ b) : b ∧ a := sorry\n"
CLASSICAL = "theorem t (a b : Prop) (h : ¬¬(a ∧ b)) : a ∧ b := sorry\n"


class Assuming:
    """A model of one idea."""

    def __init__(self) -> None:
        self.asked = self.failed = 0

    async def propose(self, asked: TacticRequest) -> Iterable[Candidate]:
        self.asked += 1
        return [Candidate("assumption", "assumption", log_probability=-0.5, tokens=2)]

    def saw(self, candidate: Candidate, *, parsed: bool) -> None: ...


class Wrong:
    """An author whose proofs are none."""

    name, model = "whole", "m"

    async def write(self, ask: WholeAsk) -> AuthorAnswers:
        return AuthorAnswers(("by\n  assumption",), 100, 10)


def attempt_with(folder: Path, engine: Engine, source: str, *lemmas: Lemma) -> Attempt:
    (folder / FILE).write_text(source, encoding="utf-8")
    done: list[Attempt] = []

    async def main() -> None:
        async with ReplPool(PoolLimits(processes=1)) as pool:
            prover = FileProver(
                simulator(),
                pool=pool,
                project=folder,
                path=FILE,
                budget=Budget(nodes=50, seconds=20, tactic_timeout_s=5),
                done=done.append,
                engine=engine,
                lemmas=lemmas,
            )
            await prover.run(wanted(source))

    asyncio.run(main())
    (attempt,) = done
    return attempt


def test_a_model_s_search_is_offered_the_lemma_s_use_beside_the_model_s_steps(tmp_path: Path) -> None:
    model = Assuming()
    engine = Engine(lambda _: lambda _shown: model, scoring=ModelScoring())
    attempt = attempt_with(tmp_path, engine, SWAPPED, SWAP)
    assert attempt.proof is not None, attempt
    assert attempt.proof.tactics[1:] == ("apply swap_1a2b3c4d", "assumption")
    assert model.asked == 3, "the goal without the lemma, with it, and what `apply` leaves"


def test_whole_proofs_that_fail_leave_the_lemma_to_the_curated_tactics(tmp_path: Path) -> None:
    engine = Engine(ladder().propose, wholly=WholeProofMethod(Wrong(), proofs=1, repairs=0))
    attempt = attempt_with(tmp_path, engine, CLASSICAL, DOUBLE)
    assert attempt.proof is not None, attempt
    assert attempt.detail == "brings in drop_double (proof 99aabbccddeeff00); the steps are rung 0's"
    assert attempt.effort.cost.prompt_tokens == 100
    assert attempt.effort.tree is not None


def test_a_proof_without_a_lemma_does_not_count_for_an_author(tmp_path: Path) -> None:
    engine = Engine(ladder().propose, wholly=WholeProofMethod(Wrong(), proofs=1, repairs=0))
    attempt = attempt_with(tmp_path, engine, SWAPPED, SWAP)
    assert (attempt.outcome, attempt.proof) == ("exhausted", None)


@pytest.mark.parametrize(
    "also",
    [replace(DOUBLE, sorry="e" * 16, proof="55aabbccddeeff00", declaration="twice"),
     Lemma("h" * 16, "77aabbccddeeff00", "had", "(p q : Prop) (h : p ∧ q) : p ∧ q", "", ("exact h",))],
    ids=["another lemma", "a hypothesis"],
)  # fmt: skip
@pytest.mark.parametrize("first", [True, False])
def test_a_lemma_that_repeats_another_hides_no_third_one(tmp_path: Path, also: Lemma, first: bool) -> None:
    source = CLASSICAL.replace("(h :", "(k : ∀ p q : Prop, p ∧ q → p ∧ q) (h :")
    lemmas = (also, DOUBLE) if first else (DOUBLE, also)
    attempt = attempt_with(tmp_path, Engine(ladder().propose), source, *lemmas)
    assert attempt.proof is not None, attempt


def test_nothing_is_brought_in_where_each_question_is_paid_for_nor_for_a_sorry_s_own_proof(
    tmp_path: Path,
) -> None:
    paid = Assuming()
    engine = Engine(lambda _: lambda _shown: paid, again=False)
    assert attempt_with(tmp_path, engine, SWAPPED, SWAP).outcome == "exhausted"
    assert paid.asked == 1
    own = Lemma("t", SWAP.proof, "swap", SWAP.statement, "", SWAP.tactics)
    free = Engine(lambda _: lambda _shown: Assuming())
    assert attempt_with(tmp_path, free, SWAPPED, own).outcome == "exhausted"
