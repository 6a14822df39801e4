"""Results of an agent's calls and their printed form: the outcome of each sorry, the quality of a model."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from daemon.planning.proving import Rung
from pipeline.models.chain import begun
from store.view import model_queries, queries
from store.view.rows import AttemptRow, CheckpointRow, ProofRow, SorryRow

Verdict = Literal["proved", "simulated", "unjudged", "conditional", "rejected", "not found", "not tried"]
"""proved: Lean checked it, by the whole gate. simulated: the simulator took it, which proves nothing. unjudged: nothing
failed, and not everything could be checked here. conditional: it rests on other sorries. The rest are no proofs."""

TACTICS = "tactics"
"""The kind of model that HFAgent's trainers make."""

_BEST: Mapping[str, int] = {"verified": 0, "candidate": 1, "conditional": 2, "rejected": 3}


def count_sorries(number: int, what: str = "") -> str:
    """Return how many there are, in words: "1 open sorry", "2 open sorries"."""
    return f"{number} {what}sorry{'' if number == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class SorryResult:
    """The outcome of one sorry.

    Attributes:
        sorry, declaration, path, line: which one, as `unsorry sorries` names it.
        verdict: the gate's.
        proof: the text that was found for it; "" where none was.
        proof_id: for `unsorry proofs show`; "" where there is no proof.
        detail: why, for people.
        tried_now: whether it was tried in this call; what was tried before in the same way is not tried again.
    """

    sorry: str
    declaration: str
    path: str
    line: int
    verdict: Verdict
    proof: str
    proof_id: str
    detail: str
    tried_now: bool

    def __str__(self) -> str:
        head = f"{self.path}:{self.line} {self.declaration}: {self.detail}"
        if self.verdict == "not found" and not self.tried_now:
            head += " (tried before)"
        return "\n".join([head, *(f"    {line}" for line in self.proof.splitlines())])


@dataclass(frozen=True, slots=True)
class ProveResult:
    """The outcomes of the open sorries, in the order of the source."""

    sorries: tuple[SorryResult, ...]

    @property
    def proved(self) -> tuple[SorryResult, ...]:
        """Those that Lean itself has checked."""
        return tuple(item for item in self.sorries if item.verdict == "proved")

    def __str__(self) -> str:
        if not self.sorries:
            return "No sorry found to prove."
        counted = Counter(item.verdict for item in self.sorries)
        told = ", ".join(f"{number} {verdict}" for verdict, number in counted.most_common())
        return f"{count_sorries(len(self.sorries))}: {told}"


@dataclass(frozen=True, slots=True)
class Measured:
    """A checkpoint measured on one repository's split: `metrics` by name, over `n` examples."""

    repository: str
    split: str
    checkpoint: str
    metrics: Mapping[str, float]
    n: int
    simulated: bool

    def __str__(self) -> str:
        shown = ", ".join(
            f"{name} {value:.4g}"
            for name, value in self.metrics.items()
            if not name.endswith(("_low", "_high"))
        )
        by = " (from the simulator's traces)" if self.simulated else ""
        return f"{self.repository}, {self.split}: {shown} of {self.n}, checkpoint {self.checkpoint}{by}"


def recorded(view: sqlite3.Connection, folder: Path) -> CheckpointRow | None:
    """Return the checkpoint whose weights a model's folder has; None where the store knows of none."""
    weights = begun(folder)
    rows = model_queries.checkpoints(view, model=TACTICS) if weights else []
    return next((row for row in rows if row.weights == weights), None)


def became(row: CheckpointRow) -> str:
    """Say what became of a checkpoint, for people."""
    if row.promoted:
        return f"checkpoint {row.checkpoint}: in use ({row.reason})"
    why = row.refused_reason or "no decision on it yet"
    return f"checkpoint {row.checkpoint}: not in use ({why})"


def results_of(
    view: sqlite3.Connection,
    sorries: Iterable[SorryRow],
    *,
    jobs: frozenset[str],
    rungs: Sequence[Rung],
) -> tuple[SorryResult, ...]:
    """Return what the store has of these sorries, as they stand in their files now.

    Args:
        sorries: the ones to be told of.
        jobs: those of this call.
        rungs: whose attempts count where there is no proof.
    """
    wanted = {(rung.prover, rung.number, rung.model, rung.budget) for rung in rungs}
    told = []
    for row in sorries:
        proofs = [proof for proof in queries.proofs(view, sorry=row.sorry) if proof.blob == row.blob]
        attempts = [
            attempt
            for attempt in queries.attempts(view, sorry=row.sorry)
            if attempt.blob == row.blob
            and (attempt.prover, attempt.rung, attempt.model, attempt.budget) in wanted
        ]
        told.append(_result(row, proofs, attempts, jobs))
    return tuple(told)


def _result(
    row: SorryRow, proofs: list[ProofRow], attempts: list[AttemptRow], jobs: frozenset[str]
) -> SorryResult:
    last = attempts[-1] if attempts else None
    now = last is not None and last.job in jobs
    best = min(proofs, key=lambda proof: _BEST[proof.state], default=None)
    if best is None:
        verdict: Verdict = "not tried" if last is None else "not found"
        detail = "not tried" if last is None else f"not found: {_how_far(last)}"
    else:
        verdict, detail = _judged(best)
    return SorryResult(
        sorry=row.sorry,
        declaration=row.declaration,
        path=row.path,
        line=row.line,
        verdict=verdict,
        proof="" if best is None else best.replacement,
        proof_id="" if best is None else best.proof,
        detail=detail,
        tried_now=now,
    )


def _how_far(attempt: AttemptRow) -> str:
    said = "; ".join(filter(None, (attempt.detail or attempt.outcome.replace("_", " "), attempt.best)))
    return f"{said} ({attempt.nodes} nodes, {attempt.seconds:.1f} s)"


def _judged(proof: ProofRow) -> tuple[Verdict, str]:
    match proof.state:
        case "verified":
            axioms = ", ".join(proof.axioms) or "no axioms"
            return "proved", f"proved: Lean checked it ({axioms})"
        case "conditional":
            return "conditional", f"not proved: it rests on other sorries ({', '.join(proof.conditional_on)})"
        case "rejected":
            return "rejected", f"found, and rejected: {proof.reason}"
    if proof.checked_at is None:
        return "unjudged", "found, and not checked yet"
    if proof.simulated:
        return "simulated", "found, and the simulator takes it: that is not Lean, and proves nothing"
    missing = ", ".join(proof.not_checked) or "something"
    return "unjudged", f"found, and not judged in full: no check of {missing}"
