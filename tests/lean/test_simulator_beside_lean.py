"""The simulator beside Lean 4.35.0 itself: the same statements and tactics give the same states.

What differs is in `plain` and `Pair.explained`: the mark of hidden names, and how much `simp` knows.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.backend import simulator
from pipeline.lean.client.errors import ReplRefused
from pipeline.lean.client.messages import Goal, StateRef, TacticOk, TacticResult
from pipeline.lean.client.repl import Repl
from pipeline.lean.client.server import start_repl
from pipeline.lean.simulator.declarations import initial_environment
from pipeline.lean.simulator.frontend import Modules
from pipeline.lean.simulator.server import Server
from tests.support.trace import lean_itself

RECORDS = Path(__file__).resolve().parents[2].parent / "shared" / "reference" / "lean-dialogues.jsonl"
STATEMENTS = (
    "∀ (p q : Prop), p ∧ q → q ∧ p",
    "∀ (p q r : Prop), (p ∨ q) ∨ r → p ∨ q ∨ r",
    "∀ (p q : Prop), (p → q) ↔ (¬q → ¬p)",
    "∀ (p q : Prop), ¬(p ∨ q) → ¬p ∧ ¬q",
    "∀ (p : Prop), ¬¬(p ∨ ¬p)",
    "∀ (p q r : Prop), p ∧ (q ∨ r) ↔ p ∧ q ∨ p ∧ r",
    "∀ (p q : Prop), p → q",
    "∀ (p : Prop), False → p",
    "∀ (α : Type) (P : α → Prop), (∀ x, P x) → ¬∃ x, ¬P x",
    "∀ (α : Type) (a b : α), a = b → b = a",
    "2 + 2 = 4",
    "2 + 2 = 5",
)
TACTICS = (
    *(
        "intro h",
        "intro h1 h2",
        "intros",
        "constructor",
        "left",
        "right",
        "exact h",
        "exact h.1",
        "exact h.2",
    ),
    *("exact ⟨h.2, h.1⟩", "apply h", "cases h", "cases h with | inl a => ?_ | inr a => ?_", "assumption"),
    *(
        "contradiction",
        "exfalso",
        "trivial",
        "rfl",
        "decide",
        "exact absurd h h",
        "nonsense",
        "exact (",
        "skip",
    ),
    *(
        "obtain ⟨a, b⟩ := h",
        "rcases h with a | a",
        "refine ⟨?_, ?_⟩",
        "rw [h]",
        "subst h",
        "funext x",
        "simp",
    ),
)
STATES = 5
"""From each statement so many states are asked with all tactics."""

State = tuple[StateRef, StateRef]


def shape(goals: tuple[Goal, ...]) -> list[str]:
    """The goals as texts, in any order, for a REPL puts those of the goal that was worked on first."""
    return sorted(
        "\n".join(
            [
                *(
                    f"{one.user_name.partition('✝')[0]} : {'' if one.type is None else plain(one.type.render())}"
                    for one in goal.vars
                ),
                plain(goal.target.render()),
            ]
        )
        for goal in goals
    )


def plain(text: str) -> str:
    """A text as both would write it: the simulator has one mark for all hidden names."""
    return re.sub("✝[⁰¹²³⁴-⁹]*", "✝", text)


class Pair:
    """Lean and the simulator, asked the same."""

    def __init__(self, lean: Repl, simulated: Repl) -> None:
        self.both = (lean, simulated)
        self.asked = 0
        self.differences: list[str] = []

    async def start(self, statement: str) -> State:
        lean, simulated = self.both
        return await lean.goal_start(statement), await simulated.goal_start(statement)

    async def step(self, state: State, tactic: str, goal: int | None = None) -> State | None:
        """Run a tactic in both; return the states if both went on to goals."""
        answers: list[TacticResult | None] = []
        for repl, one in zip(self.both, state, strict=True):
            try:
                answers.append(await repl.goal_tactic(one, tactic, goal=goal, timeout_s=20))
            except ReplRefused:
                answers.append(None)
        self.asked += 1
        lean, simulated = (shape(one.goals) if isinstance(one, TacticOk) else None for one in answers)
        if lean != simulated and not self.explained(tactic, lean, simulated):
            self.differences.append(f"{tactic}: Lean {lean}, the simulator {simulated}")
        if lean and simulated:
            first, second = answers
            assert isinstance(first, TacticOk)
            assert isinstance(second, TacticOk)
            return first.state, second.state
        return None

    def explained(self, tactic: str, lean: list[str] | None, simulated: list[str] | None) -> bool:
        """Its `simp` knows some of Lean's lemmas: it may leave more, and never closes what Lean leaves."""
        return tactic.startswith("simp") and (simulated != [] or lean == [])


@pytest.fixture
def pair(real_lean: Path, tmp_path: Path) -> Any:
    """Run a comparison, and fail with each difference."""

    def compare(work: Any) -> int:
        async def go() -> Pair:
            async with (
                await start_repl(lean_itself(real_lean), imports=("Init",), project=tmp_path) as lean,
                await Repl.start(simulator(), imports=("Init",), project=tmp_path) as simulated,
            ):
                made = Pair(lean, simulated)
                await work(made)
                return made

        made = asyncio.run(go())
        assert made.differences == []
        return made.asked

    return compare


@pytest.mark.parametrize(
    "statement", [*STATEMENTS[:4], *(pytest.param(one, marks=pytest.mark.slow) for one in STATEMENTS[4:])]
)
def test_each_tactic_does_in_the_simulator_what_it_does_in_lean(statement: str, pair: Any) -> None:
    async def work(both: Pair) -> None:
        todo = [await both.start(statement)]
        for _ in range(STATES):
            if not todo:
                return
            state = todo.pop(0)
            for tactic in TACTICS:
                left = await both.step(state, tactic)
                if left is not None and tactic != "skip":
                    todo.append(left)

    assert pair(work) >= len(TACTICS)


@pytest.mark.slow
@pytest.mark.skipif(not RECORDS.is_file(), reason=f"{RECORDS} is not on this machine")
def test_the_recorded_dialogues_go_the_same_way_in_both(pair: Any) -> None:
    dialogues = [json.loads(line) for line in RECORDS.read_text("utf-8").splitlines()]

    async def work(both: Pair) -> None:
        for dialogue in (one for one in dialogues if one.get("kind") == "goal"):
            states: dict[int, State] = {}
            for record in dialogue["records"]:
                request, recorded = record["request"], record["response"]
                if record["command"] == "goal.start":
                    states[recorded["stateId"]] = await both.start(request["expr"])
                elif request.get("stateId") in states and "tactic" in request:
                    left = await both.step(
                        states[request["stateId"]], request["tactic"], request.get("goalId")
                    )
                    if left is not None and "nextStateId" in recorded:
                        states[recorded["nextStateId"]] = left

    assert pair(work) > 1900


def test_statements_are_printed_as_lean_prints_them(real_lean: Path, tmp_path: Path) -> None:
    """Brackets and groups of binders, on statements at random."""
    rng = random.Random(5)
    statements = [_formula(rng, 4, ()) for _ in range(120)]
    head = "(a b c : Prop) (P : Nat → Prop) (Q : Nat → Nat → Prop)"
    file = tmp_path / "Printed.lean"
    file.write_text("\n".join(f"example {head} : {one} := by trace_state; sorry" for one in statements))
    said = subprocess.run([real_lean / "bin" / "lean", file], capture_output=True, text=True, check=False)
    lean = [" ".join(goal.split()) for goal in re.findall(r"⊢ (.*(?:\n  .*)*)", said.stdout)]
    server = Server(Modules(tmp_path), initial_environment())
    ours = []
    for one in statements:
        state = server.answer("goal.start", {"expr": f"∀ {head}, {one}"})["stateId"]
        reply = server.answer("goal.tactic", {"stateId": state, "tactic": "intro a b c P Q"})
        ours.append(reply["goals"][0]["target"]["pp"])  # type: ignore[index] # JSON
    assert ours == lean


def _formula(rng: random.Random, depth: int, bound: tuple[str, ...]) -> str:
    atoms = ["a", "b", "c", *(f"P {x}" for x in bound), *(f"Q {x} {y}" for x in bound for y in bound)]
    kind = rng.choice(("∧", "∨", "→", "↔", "¬", "∃", "∃", "∀", "")) if depth else ""
    if kind in ("∧", "∨", "→", "↔"):
        return f"({_formula(rng, depth - 1, bound)} {kind} {_formula(rng, depth - 1, bound)})"
    if kind == "¬":
        return f"(¬ {_formula(rng, depth - 1, bound)})"
    if kind:
        name = "xyzuv"[len(bound)]
        return f"({kind} {name} : Nat, {_formula(rng, depth - 1, (*bound, name))})"
    return rng.choice(atoms)
