"""Rung 0's tactics with premises, as Lean 4.35.0 itself reads them."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

from pipeline.lean.client.messages import Goal, Variable
from pipeline.models.retriever.corpus import Premise
from pipeline.prove.curated import CuratedTactics
from pipeline.prove.graph import TacticRequest
from pipeline.prove.premises import ShownPremises

AXIOMS = "axiom Q : Nat → Prop\naxiom Demo.«a b» : Q 3\naxiom Demo.step (n : Nat) (h : n = n) : Q n\n"
PREMISES = [
    Premise("A.lean", name, (1, 1), (1, 9), f"axiom {name} : Q 3") for name in ("Demo.a b", "Demo.step")
]


def offered(*hypotheses: str) -> list[str]:
    """Return the tactics with premises for the goal `Q 3`."""

    async def find(_state: str) -> tuple[Premise, ...]:
        return tuple(PREMISES)

    variables = tuple(Variable(name, name, False, "Nat") for name in hypotheses)
    request = TacticRequest((Goal("g", "Q 3", variables),), (), 0)
    proposer = CuratedTactics(core_only=True, shown=ShownPremises(find))
    return [one.text for one in asyncio.run(proposer.propose(request)) if "Demo" in one.text]


def errors(lean: Path, tactics: list[str], binders: str = "") -> dict[str, list[str]]:
    """Return Lean's errors with each tactic as the whole proof of `Q 3`."""
    text = AXIOMS + "".join(f"example {binders} : Q 3 := by {tactic}\n" for tactic in tactics)
    said = subprocess.run(
        [lean / "bin" / "lean", "--json", "--stdin"],
        input=text,
        env={},
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    messages = [json.loads(line) for line in said.splitlines()]
    first = AXIOMS.count("\n") + 1
    return {
        tactic: [
            str(one["data"])
            for one in messages
            if one["severity"] == "error" and one["pos"]["line"] == first + number
        ]
        for number, tactic in enumerate(tactics)
    }


def test_lean_reads_every_tactic_that_names_premises_and_a_quoted_name(real_lean: Path) -> None:
    said = errors(real_lean, offered())
    assert len(said) == 15
    for tactic, found in said.items():
        assert not any("unexpected token" in one or "nknown identifier" in one for one in found), (
            tactic,
            found,
        )
    quoted = [f"{tactic}" for tactic in said if "«a b»" in tactic and not tactic.startswith(("rw", "grind"))]
    assert len(quoted) == 5
    assert [said[tactic] for tactic in quoted] == [[]] * 5, "each of them closes the goal"


def test_a_hypothesis_of_a_premise_s_name_does_not_stand_for_it(real_lean: Path) -> None:
    tactics = [one for one in offered("Demo") if one.startswith("exact")]
    assert tactics[0] == "exact _root_.Demo.«a b» .."
    assert errors(real_lean, tactics[:1], "(Demo : Nat)") == {tactics[0]: []}
