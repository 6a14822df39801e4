"""Which of our own proofs a tactic model learns from: those that the gate accepted, of no theorem that is held out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.models.tactics.accepted import AcceptedProofs, accepted, read_accepted, write_accepted
from pipeline.prove.tree import Tree
from store.domain.identity import split_key
from store.domain.records import TracedFile, TracedTactic, TracedTheorem
from store.domain.splits import drawn_side
from store.events.proofs import ProofFound
from store.events.scans import SorryOpened
from store.recording import record_trace
from tests.support.events import (
    BRANCH,
    REPOSITORY,
    attempt,
    declaration,
    digest,
    place,
    proof_checked,
    proof_found,
    proof_rejected,
    proof_verified,
    scanned,
    sha,
)
from tests.support.prove import parameters, run
from tests.support.trace import lean_itself
from tests.support.traced_repository import head
from tests.support.views import LoggedView

GOAL = "p q : Prop\nh : p ∧ q\n⊢ q ∧ p"
STEPS = (
    (GOAL, "constructor"),
    ("case right\np : Prop\n⊢ p", "exact h.1"),
)


def statement_on(side: str, *, but: str = "") -> str:
    """Return a statement that would be drawn on a side."""
    statements = (f": {but}{number} = {number}" for number in range(1000))
    return next(
        one for one in statements if (drawn_side(split_key("t", one)) == "train") == (side == "train")
    )


def tree_of(steps: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return a search's tree as its event has it: the way of a proof, beside a state that led nowhere."""
    node = {"depth": 0, "score": 0.0, "log_probability": 0.0, "remaining": None, "outcome": "proved"}
    states = [[state] for state, _ in steps] + [[]]
    tactics = ["", *(tactic for _, tactic in steps)]
    nodes = [
        {"number": at, "parent": at - 1 if at else None, "tactic": tactics[at], "goals": goals, **node}
        for at, goals in enumerate(states)
    ]
    return {
        "version": 1,
        "outcome": "found",
        "limit": "",
        "best": "proved",
        "nodes": nodes,
        "proof": [one["number"] for one in nodes],
    }


class World(LoggedView):
    """A log with sorries and our proofs of them, and its view."""

    def traced(self, name: str, statement: str, goal: str) -> None:
        """Have a theorem traced, whose proof begins at this goal."""
        step = TracedTactic("simp", "simp", (), goal, "no goals")
        theorem = TracedTheorem(name, f"theorem {name} {statement} :=", (1, 1), (2, 1), (step,))
        file = TracedFile(path=f"{name}.lean", imports=(), premises=(), theorems=(theorem,))
        record_trace(self.log, trace=head(sha(name)), files=[file], stage=self.folder / "stage")
        self.catch_up()

    def proved(
        self,
        name: str = "swap",
        statement: str | None = None,
        *,
        steps: Sequence[tuple[str, str]] = STEPS,
        tree: bool | dict[str, Any] = True,
        known: bool = True,
    ) -> ProofFound:
        """Have a sorry of a theorem, and a candidate for it with its search. `known`: the view has the sorry."""
        said = statement_on("train") if statement is None else statement
        scan = scanned(f"{name}.lean", [declaration(name, statement=said)], with_sorry=[name])
        (sorry,) = scan.sorries
        where = place(scan, sorry, blob=sha("blob", name))
        identity = sha("sorry", name)[:16]
        life = {"repository": REPOSITORY, "branch": BRANCH, "sha": sha(1), "sorry": identity}
        payload = json.dumps(tree_of(steps) if tree is True else tree).encode()
        tactics = tuple(tactic for _, tactic in steps)
        found = proof_found(identity, where, commit=sha(1)).model_copy(update={"tactics": tactics})
        ended = attempt(identity, where, commit=sha(1)).model_copy(
            update={"tree": digest(payload) if tree else None}
        )
        opened = SorryOpened.model_validate(life | {"place": where, "reopened": False})
        self.tell(*([opened] if known else []), found, ended, payloads=[payload])
        return found

    def learned(self) -> AcceptedProofs:
        return accepted(self.db, self.reader, repositories=[REPOSITORY])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# ---- what counts


def test_a_verified_proof_is_learned_step_by_step_and_says_where_it_is_from(world: World) -> None:
    found = world.proved()
    assert world.learned() == AcceptedProofs(), "a candidate is not known to be right"
    world.tell(proof_verified(found))
    rows = world.learned().rows[REPOSITORY]
    assert [(row.state, row.tactic, row.step) for row in rows] == [
        (GOAL, "constructor", 0),
        ("case right\np : Prop\n⊢ p", "exact h.1", 1),
    ]
    assert {(row.proof, row.theorem, row.path) for row in rows} == {(found.proof, "swap", "swap.lean")}
    assert accepted(world.db, world.reader, repositories=["another/one"]) == AcceptedProofs()


def test_a_proof_whose_sorry_the_view_does_not_have_is_learned_with_no_place(world: World) -> None:
    gone, there = world.proved("gone", known=False), world.proved("there", steps=((GOAL, "exact h.symm"),))
    world.tell(proof_verified(gone), proof_verified(there))
    places = {row.theorem: row.start is None for row in world.learned().rows[REPOSITORY]}
    assert places == {"gone": True, "there": False}
    write_accepted(world.folder, world.learned())
    assert read_accepted(world.folder) == world.learned()


def test_what_was_rejected_later_is_not_learned_from(world: World) -> None:
    found = world.proved()
    world.tell(proof_verified(found), proof_rejected(found))
    assert world.learned() == AcceptedProofs()


def test_what_could_not_be_judged_whole_is_not_learned_from(world: World) -> None:
    world.tell(proof_checked(world.proved()))
    assert world.learned() == AcceptedProofs()


# ---- what is held out


def test_a_theorem_of_val_or_test_is_never_learned_by_its_statement_or_its_name(world: World) -> None:
    test = statement_on("test")
    world.traced("held", test, "⊢ 1 = 1")
    world.traced("trained", statement_on("train"), "⊢ 2 = 2")
    for name, statement in (("again", test), ("held", statement_on("train", but="x + ")), ("trained", None)):
        world.tell(proof_verified(world.proved(name, statement)))
    learned = world.learned()
    assert {row.theorem for row in learned.rows[REPOSITORY]} == {"trained"}
    assert learned.left_out == {"held_out": 2}


def test_a_theorem_that_no_trace_has_is_on_the_side_on_which_it_would_be_drawn(world: World) -> None:
    for side in ("train", "test"):
        world.tell(proof_verified(world.proved(side, statement_on(side))))
    learned = world.learned()
    assert {row.theorem for row in learned.rows[REPOSITORY]} == {"train"}
    assert learned.left_out == {"held_out": 1}


def test_a_theorem_of_test_restated_with_other_names_is_known_by_its_goal(world: World) -> None:
    world.traced("held", statement_on("test"), "a b : Prop\nboth : a ∧ b\n⊢ b ∧ a")
    world.tell(proof_verified(world.proved()))
    assert world.learned() == AcceptedProofs({}, {"held_out": 1})


def test_a_proof_that_comes_by_the_goal_of_a_theorem_of_test_is_left_out(world: World) -> None:
    world.traced("held", statement_on("test"), "n : ℕ\n⊢ n = n")
    world.tell(proof_verified(world.proved(steps=(("⊢ ∀ m, m = m", "intro k"), ("k : ℕ\n⊢ k = k", "rfl")))))
    assert world.learned() == AcceptedProofs({}, {"held_out": 1})


def test_a_proof_that_brings_in_another_one_is_learned_only_if_that_one_is(world: World) -> None:
    lemma, held = world.proved("lemma"), world.proved("held", statement_on("test"))
    refuted = world.proved("refuted", statement_on("test"))
    world.tell(proof_verified(lemma), proof_verified(held), proof_rejected(refuted))
    for name, brought in (("a", lemma.proof), ("b", held.proof), ("c", refuted.proof), ("d", "0123abcd")):
        have = f"have lemma_{brought[:8]} : 1 = 1 := by\n  rfl"
        world.tell(proof_verified(world.proved(name, steps=((GOAL, have), (GOAL, "exact h.symm")))))
    learned = world.learned()
    assert {row.theorem for row in learned.rows[REPOSITORY]} == {"lemma", "a"}
    assert learned.left_out == {"held_out": 4}


# ---- what has no states


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        (False, "no_states"),
        (tree_of(STEPS[:1]), "no_states"),
        (tree_of((STEPS[0], (STEPS[1][0], "another"))), "no_states"),
        (tree_of((("h : very lo…", "constructor"), STEPS[1])), "shortened"),
    ],
)
def test_a_proof_whose_states_are_not_all_known_is_counted_and_left_out(
    world: World, tree: bool | dict[str, Any], reason: str
) -> None:
    world.tell(proof_verified(world.proved(tree=tree)))
    assert world.learned() == AcceptedProofs({}, {reason: 1})


def test_a_tree_is_what_a_search_s_is(world: World) -> None:
    assert [node.goals for node in Tree.from_json(tree_of(STEPS)).nodes] == [
        (STEPS[0][0],),
        (STEPS[1][0],),
        (),
    ]


def test_a_search_s_own_states_are_read_as_lean_prints_them(
    world: World, real_lean: Path, tmp_path: Path
) -> None:
    names = (f"swap{number}" for number in range(100))
    name = next(one for one in names if drawn_side(split_key(one, None)) == "train")
    source = f"theorem {name} (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  sorry\n"
    folder = tmp_path / "job"
    folder.mkdir()
    bodies, _ = run(parameters(tmp_path, source, repository=REPOSITORY, lean=lean_itself(real_lean)), folder)
    payloads = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    (found,) = [body for body in bodies if isinstance(body, ProofFound)]
    world.tell(*bodies, proof_verified(found), payloads=payloads)
    rows = world.learned().rows[REPOSITORY]
    assert [row.tactic for row in rows] == list(found.tactics)
    assert rows[0].state == GOAL


# ---- the file


def test_what_is_written_beside_a_dataset_is_read_again(world: World, tmp_path: Path) -> None:
    assert read_accepted(tmp_path) == AcceptedProofs(), "nothing was written"
    world.tell(proof_verified(world.proved()))
    write_accepted(tmp_path, world.learned())
    assert read_accepted(tmp_path) == world.learned()
