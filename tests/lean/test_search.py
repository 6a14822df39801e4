"""The search, the frame and the placing of proofs, on the simulator as a real process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from pipeline.jobs.specs import Budget
from pipeline.lean.backend import simulator
from pipeline.lean.pool.pool import ReplKey, ReplPool
from pipeline.lean.pool.session import Session
from pipeline.lean.source.scanner import parse
from pipeline.lean.source.splice import Declaration, Replacement, splice
from pipeline.prove.curated import CuratedTactics
from pipeline.prove.declaration import CannotAttempt, SearchMethod, _complaint, prove_declaration
from pipeline.prove.effort import DeclarationResult
from pipeline.prove.search import Search, SearchResult

T = TypeVar("T")
BUDGET = Budget(nodes=300, seconds=20, tactic_timeout_s=5)
BARE = ("rfl", "assumption")
"""So little automation that the search has to do the work."""


def with_session(project: Path, use: Callable[[Session], Awaitable[T]]) -> T:
    async def main() -> T:
        backend = simulator()
        async with ReplPool() as pool, Session(pool, ReplKey(backend, project, ("Init",))) as session:
            return await use(session)

    return asyncio.run(main())


def search(project: Path, statement: str, *, budget: Budget = BUDGET) -> tuple[SearchResult, int]:
    """Search for a proof of a closed statement; also return how many states the REPL still holds."""

    async def use(session: Session) -> tuple[SearchResult, int]:
        state = await session.start(statement)
        ladder = CuratedTactics(core_only=True, closers=BARE)
        result = await Search(session, ladder, budget=budget).run(state)
        return result, await session.stat()

    return with_session(project, use)


PROVABLE = [
    "∀ p : Prop, p → p",
    "∀ p q : Prop, p ∧ q → q ∧ p",
    "∀ p q : Prop, p ∨ q → q ∨ p",
    "∀ p q r : Prop, (p ∨ q) ∨ r → p ∨ (q ∨ r)",
    "∀ p q r : Prop, p ∧ (q ∨ r) → (p ∧ q) ∨ (p ∧ r)",
    "∀ p q r : Prop, (p → q ∧ r) → (p → q) ∧ (p → r)",
    "∀ p q : Prop, ¬(p ∨ q) ↔ ¬p ∧ ¬q",
    "∀ p q : Prop, (p → q) → ¬q → ¬p",
    "∀ p : Prop, ¬¬(p ∨ ¬p)",
    "∀ p : Prop, ¬¬¬p → ¬p",
    "(∀ p : Prop, p) → False",
    "∀ p q : Prop, p ∧ ¬p → q",
]

UNPROVABLE = [
    "∀ p : Prop, p",
    "∀ p q : Prop, p → q",
    "∀ p : Prop, p ∨ ¬p",
    "∀ p : Prop, ¬¬p → p",
    "∀ p q : Prop, (p → q) → q → p",
    "∀ p q : Prop, ((p → q) → p) → p",
    "2 + 2 = 5",
]


@pytest.mark.parametrize("statement", PROVABLE)
def test_a_provable_statement_is_proved_without_automation(tmp_path: Path, statement: str) -> None:
    result, _ = search(tmp_path, statement)
    assert result.outcome == "found", result
    assert result.script is not None


@pytest.mark.parametrize("statement", UNPROVABLE)
def test_a_goal_without_a_constructive_proof_is_given_up(tmp_path: Path, statement: str) -> None:
    result, _ = search(tmp_path, statement)
    assert result.outcome == "exhausted", result
    assert result.script is None


@pytest.mark.parametrize("statement", [PROVABLE[3], UNPROVABLE[3]])
def test_only_the_root_is_left_in_the_process(tmp_path: Path, statement: str) -> None:
    _, states = search(tmp_path, statement)
    assert states == 1


def test_the_budget_of_nodes_ends_a_search(tmp_path: Path) -> None:
    budget = Budget(nodes=2, seconds=20, tactic_timeout_s=5)
    result, states = search(tmp_path, PROVABLE[3], budget=budget)
    assert result.outcome == "budget"
    assert result.nodes == 2
    assert states == 1


def test_the_budget_of_seconds_ends_a_search(tmp_path: Path) -> None:
    budget = Budget(nodes=100, seconds=0, tactic_timeout_s=5)
    result, _ = search(tmp_path, PROVABLE[3], budget=budget)
    assert result.outcome == "budget"
    assert result.nodes == 0


def test_the_same_statement_gives_the_same_script(tmp_path: Path) -> None:
    first, _ = search(tmp_path, PROVABLE[4])
    second, _ = search(tmp_path, PROVABLE[4])
    assert first.script == second.script


def prove(
    project: Path, text: str, *, closers: tuple[str, ...] = BARE
) -> tuple[DeclarationResult, Declaration]:
    declaration = declared(text)

    async def use(session: Session) -> DeclarationResult:
        ladder = CuratedTactics(core_only=True, closers=closers)
        return await prove_declaration(session, declaration, method=SearchMethod(ladder), budget=BUDGET)

    return with_session(project, use), declaration


def declared(text: str) -> Declaration:
    data = text.encode()
    source = parse(data)
    command = source.command_at(source.scanned.sorries[0].byte_start)
    assert command is not None
    return Declaration.cut(data, source, command)


PLACES = [
    "theorem t (p q : Prop) : p ∨ q → q ∨ p := sorry\n",
    "theorem t (p q : Prop) : p ∨ q → q ∨ p :=\n  sorry\n",
    "theorem t (p q : Prop) : p ∨ q → q ∨ p := by sorry\n",
    "theorem t (p q : Prop) : p ∨ q → q ∨ p := by\n  sorry\n",
    "theorem t (p q : Prop) : p ∨ q → q ∨ p := by\n  intro h\n  sorry\n",
    "theorem t (p q : Prop) : p ∨ q → q ∨ p := by intro h; sorry\n",
    "theorem t (p q : Prop) : p ∨ q → q ∨ p := fun h => sorry\n",
    "theorem t (p q : Prop) : p ∨ q → q ∨ p := by\n  exact sorry\n",
    "theorem t (p q : Prop) : p ∨ q → q ∨ p := by\n  have h : p ∨ q → q ∨ p := sorry\n  exact h\n",
    "theorem t (p q : Prop) : p ∨ q → q ∨ p := by\n  have h : p ∨ q → q ∨ p := by sorry\n  exact h\n",
    "theorem t (p q : Prop) : (p → p) ∧ (q → q) := by\n  constructor <;> sorry\n",
    "theorem t (p q : Prop) : (p → p) ∧ (q → q) := ⟨sorry, fun h => h⟩\n",
    "theorem t (p : Prop) (h : p ∨ p) : p := by\n  cases h with\n  | inl a => sorry\n  | inr b => exact b\n",
    "theorem t (p q : Prop) : (p → p) ∧ (q → q) := by\n  constructor\n  · sorry\n  · sorry\n",
    "example (p q : Prop) : p ∨ q → q ∨ p := sorry\n",
    "namespace N\nvariable (p q : Prop)\ntheorem t : p ∨ q → q ∨ p := sorry\nend N\n",
    "theorem t (p q : Prop) : p ∨ q → q ∨ p := by\r\n  intro h\r\n  sorry\r\n",
    "theorem t (p : Prop) : p → p := by\n  intro h\n  admit -- and sorry\n".replace(
        "-- and sorry", "/- sorry -/"
    ),
]


@pytest.mark.parametrize("text", PLACES)
def test_a_proof_fits_at_any_place_of_a_sorry(tmp_path: Path, text: str) -> None:
    worked, declaration = prove(tmp_path, text)
    assert len(worked.solved) == len(declaration.sorries), worked
    joint = worked.joint_of(0)
    replacement = joint.replacement if joint else worked.solved[0].replacement
    patched = splice(declaration.data, replacement)

    async def use(session: Session) -> tuple[bool, bool]:
        units = await session.process(patched.decode())
        return any(unit.errors for unit in units), any(unit.uses_sorry for unit in units)

    assert with_session(tmp_path, use) == (False, False), patched.decode()
    assert (b"\r\n" in patched) == ("\r\n" in text)
    assert patched.count(b"\n") == patched.count(b"\r\n") or "\r\n" not in text


def test_a_text_that_compiles_with_a_sorry_in_it_is_no_proof(tmp_path: Path) -> None:
    """Whatever tactic left it there: the search's own look at the states is not the last."""
    declaration = declared("theorem t (p q : Prop) : p → q := sorry\n")
    (sorry,) = declaration.sorries
    text = Replacement(sorry.byte_start, sorry.byte_end, "by\n  intro h\n  sorry")
    complaint = with_session(tmp_path, lambda session: _complaint(session, declaration, text))
    assert complaint == "Lean says that the proof uses sorry"


def test_one_of_two_sorries_is_filled_alone_where_the_other_cannot_be(tmp_path: Path) -> None:
    text = "theorem t (p q : Prop) : (p → p) ∧ (p → q) := by\n  constructor\n  · sorry\n  · sorry\n"
    worked, _ = prove(tmp_path, text)
    assert set(worked.solved) == {0}
    assert worked.joint == []
    assert [effort.outcome for _, effort in worked.unsolved] == ["exhausted"]


def test_a_declaration_that_does_not_compile_is_not_attempted(tmp_path: Path) -> None:
    with pytest.raises(CannotAttempt, match="no goal"):
        prove(tmp_path, "theorem t (p : Prop) : p → nonsense := sorry\n")
