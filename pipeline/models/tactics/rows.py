"""Rows that a tactic model learns from: a proof state and the tactic that people ran on it, step by step.

Read from a dataset that LeanDojo or `unsorry export leandojo` wrote. Tactics are whole,
however many lines they have, and read like a model's answers (`requests.read_tactic`), so that training sees what
generation returns. Bad steps are left out and counted. Imports no torch.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from pipeline.lean.goal_text import NO_GOALS
from pipeline.models.datasets import theorems
from pipeline.models.errors import NothingToLearnError
from pipeline.models.tactics.requests import read_tactic
from pipeline.models.text import without_marks
from store.domain.records import Position, TracedTactic, holds_sorry

SORRY = "sorry"
EMPTY = "empty"
UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Row:
    """One step of a proof: `tactic` was run on `state`, which has no marks. `step` counts from 0 in the proof.

    `url` and `commit` are "" if the source lacks them, and `start` is then None.
    """

    state: str
    tactic: str
    theorem: str
    path: str
    step: int
    url: str = ""
    commit: str = ""
    start: Position | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a side, in its order.

    Attributes:
        rows: the steps that are learned from.
        proofs: how many theorems were read, those without a step among them.
        skipped: how many steps were left out, by reason: SORRY (the tactic holds one), EMPTY (no tactic, or no goal
            before it), UNREADABLE (the tactic would not be read as a model's answer).
    """

    rows: tuple[Row, ...]
    proofs: int
    skipped: Mapping[str, int]

    @property
    def digest(self) -> str:
        """The SHA-256 of the rows, order included."""
        digest = hashlib.sha256()
        for row in self.rows:
            digest.update(json.dumps(astuple(row)).encode())
        return digest.hexdigest()

    def __str__(self) -> str:
        left_out = ", ".join(f"{number} {why}" for why, number in sorted(self.skipped.items()))
        return f"{len(self.rows)} steps of {self.proofs} theorems" + (
            f" ({left_out} left out)" if left_out else ""
        )


def read_rows(path: Path) -> Rows:
    """Read a split file of a dataset: train.json, val.json or test.json.

    Raises:
        DatasetError: it is not there, or is no split file. NothingToLearnError: it has no step to learn from.
    """
    rows: list[Row] = []
    skipped: Counter[str] = Counter()
    proofs = 0
    for file_path, proved in theorems(path):
        proofs += 1
        url, commit = proved.url or "", proved.commit or ""
        for at, (state, tactic, flaw) in enumerate(map(_read, proved.tactics)):
            if flaw is None:
                rows.append(Row(state, tactic, proved.full_name, file_path, at, url, commit, proved.start))
            else:
                skipped[flaw] += 1
    found = Rows(tuple(rows), proofs, dict(skipped))
    if not rows:
        raise NothingToLearnError(
            f"{path} has no step to learn from: {found}. Export it again once theorems with tactic proofs are traced"
        )
    return found


def _read(step: TracedTactic) -> tuple[str, str, str | None]:
    """Return a step's state, its tactic, and the reason for leaving it out, if any."""
    state = without_marks(step.state_before).strip()
    text = without_marks(step.tactic)
    answer = read_tactic(text)
    reason = None
    if holds_sorry(text):
        reason = SORRY
    elif not state or state == NO_GOALS or answer.flaw == "empty":
        reason = EMPTY
    elif answer.flaw is not None:
        reason = UNREADABLE
    return state, answer.tactic, reason
