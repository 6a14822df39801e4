"""The ladder for readers: each rung's method and cost, its place, its model, and why it is not climbed.

The settings, the plan, `everlean status` and `docs/proving.md` use these words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class RungKind(NamedTuple):
    """The kind of a rung, whatever the settings. `needs` is a missing one's requirement."""

    number: int
    prover: str
    method: str
    costs: str
    needs: str = ""


RUNGS = (
    RungKind(0, "tactics", "a curated list of tactics", "processor time"),
    RungKind(
        1,
        "retrieval",
        "a tactic generator with premises, such as ReProver's",
        "GPU time, or more processor time",
        "a trace; `[prove.generator] model`",
    ),
    RungKind(
        2,
        "generator",
        "the promoted tactic model, or the configured one",
        "GPU time, or more processor time",
        "`[train.tactics] model_name`",
    ),
    RungKind(
        3,
        "whole",
        "whole proofs, repaired with Lean's errors",
        "GPU time, or more processor time",
        "`[prove.whole] model`",
    ),
    RungKind(
        4,
        "external",
        "an OpenAI-compatible endpoint",
        "money, up to the day's cap",
        "`[prove.external]`",
    ),
    RungKind(
        5,
        "program",
        "your programs, such as agents, in their order",
        "money, up to the day's cap",
        "[`[[prove.programs]]`](#programs)",
    ),
)
PROVERS = tuple(one.prover for one in RUNGS)
"""The provers' names, by the number of their rung."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A rung of the settings' ladder, as it stands now."""

    number: int = 0
    prover: str = ""
    model: str = ""
    """its model, empty without one"""
    seconds: float = 0.0
    """of the search for one sorry"""
    costs: str = ""
    """of a search"""
    waits: str = ""
    """why it is not climbed; else empty"""

    def __str__(self) -> str:
        how = f" waits: {self.waits}" if self.waits else f", {self.seconds:g} s of {self.costs}"
        return f"rung {self.number} ({self.prover}){how}"
