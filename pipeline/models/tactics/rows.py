"""Rows for a tactic model: a proof state and people's tactic on it, step by step.

They come from a dataset of LeanDojo or `everlean export leandojo`. Tactics are whole, however many lines they have, and
read like a model's answers (`tactic_text.read_tactic`), so training sees texts as generation returns them. Bad steps
are left out and counted. Imports no torch.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from pipeline.lean.goal_text import NO_GOALS
from pipeline.lean.tactic_text import read_tactic
from pipeline.models.datasets import Position, TaskData, theorems
from pipeline.models.errors import NothingToLearnError
from pipeline.models.text import without_marks
from store.domain.records import holds_sorry

SORRY = "sorry"
EMPTY = "empty"
UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Row:
    """One step of a proof: `tactic` was run on `state`, which has no marks. `step` counts from 0 in the proof.

    `url` and `commit` are "" if the source lacks them, and `start` is then None. `premises` are shown beside the state:
    marked code, the nearest first. `proof` is the id of the step's accepted proof of our own; "" for a trace.
    """

    state: str
    tactic: str
    theorem: str
    path: str
    step: int
    url: str = ""
    commit: str = ""
    start: Position | None = None
    premises: tuple[str, ...] = ()
    proof: str = ""


_CONTENT = 8
"""The number of a row's fields in its digest: all before `premises`."""
FindPremises = Callable[[Sequence[Row]], Sequence[tuple[str, ...]]]
"""Returns for each row the marked code of the accessible premises nearest to its state."""


@dataclass(frozen=True, slots=True)
class RowPremises:
    """The source of rows' premises: its name, and a function from a task to the lookup in its dataset."""

    name: str
    of: Callable[[TaskData], FindPremises]

    def shown(
        self, rows: Sequence[Row], task: TaskData, *, dropout: float = 0.0, seed: int = 0
    ) -> tuple[Row, ...]:
        """Return rows of a task with their premises; a share of them, drawn by contents and seed, has none."""
        kept = [row for row in rows if _fraction(row, seed) >= dropout]
        found = dict(zip(map(id, kept), self.of(task)(kept), strict=True))
        return tuple(replace(row, premises=found.get(id(row), ())) for row in rows)


NO_PREMISES = RowPremises("", lambda _task: lambda rows: [()] * len(rows))


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a side, in its order.

    Attributes:
        rows: the steps to learn from.
        proofs: the number of theorems, those without a step among them.
        skipped: the numbers of steps left out, by reason: SORRY (the tactic holds one), EMPTY (no tactic, or no goal
            before it), UNREADABLE (the tactic would not be read as a model's answer).
    """

    rows: tuple[Row, ...]
    proofs: int
    skipped: Mapping[str, int]

    def __str__(self) -> str:
        left_out = ", ".join(f"{number} {why}" for why, number in sorted(self.skipped.items()))
        return f"{len(self.rows)} steps of {self.proofs} theorems" + (
            f" ({left_out} left out)" if left_out else ""
        )


def digest_of(rows: Iterable[Row]) -> str:
    """Return the SHA-256 of rows, order included, without the premises beside their states."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(astuple(row)[:_CONTENT]).encode())
    return digest.hexdigest()


def drawn(row: Row, seed: int) -> bytes:
    """Return a hash for drawing a row: it depends on the row and the seed alone."""
    text = "\0".join((str(seed), row.path, row.theorem, str(row.step), row.state))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _fraction(row: Row, seed: int) -> float:
    return int.from_bytes(drawn(row, seed)[:8]) / 2**64


def read_rows(path: Path) -> Rows:
    """Read a split file of a dataset: train.json, val.json or test.json.

    Raises:
        DatasetError: it is missing, or is no split file. NothingToLearnError: it has no step to learn from.
    """
    rows: list[Row] = []
    skipped: Counter[str] = Counter()
    proofs = 0
    for proved in theorems(path):
        proofs += 1
        where = proved.full_name, proved.file_path, 0, proved.url or "", proved.commit or "", proved.start
        steps = [(one.state_before, one.tactic) for one in proved.traced_tactics]
        rows += of_steps(steps, Row("", "", *where), skipped)
    result = Rows(tuple(rows), proofs, dict(skipped))
    if not rows:
        raise NothingToLearnError(
            f"{path} has no step to learn from: {result}. Export it again once theorems with tactic proofs are traced"
        )
    return result


def of_steps(steps: Iterable[tuple[str, str]], like: Row, skipped: Counter[str]) -> list[Row]:
    """Return the rows of a proof's steps, from its states and tactics; unusable ones are counted by reason."""
    rows: list[Row] = []
    for at, (before, text) in enumerate(steps):
        state, tactic = without_marks(before).strip(), without_marks(text)
        answer = read_tactic(tactic)
        if holds_sorry(tactic):
            skipped[SORRY] += 1
        elif not state or state == NO_GOALS or answer.flaw == "empty":
            skipped[EMPTY] += 1
        elif answer.flaw is not None:
            skipped[UNREADABLE] += 1
        else:
            rows.append(replace(like, state=state, tactic=answer.tactic, step=at))
    return rows
