"""One check's result on its way to the verdict, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StepName = Literal["text", "shape", "compile", "axioms", "statement", "kernel"]
CheckVerdict = Literal["passed", "failed", "not_checked"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. `axioms` and, of them that use sorry themselves, `sorried` where Lean named them."""

    step: StepName
    verdict: CheckVerdict
    by: str
    evidence: str
    axioms: tuple[str, ...] | None = None
    sorried: tuple[str, ...] = ()
