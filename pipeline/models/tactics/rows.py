"""Rows that a tactic model learns from: a proof state and the tactic that people ran on it, step by step.

Read from a dataset that LeanDojo or `unsorry export leandojo` wrote, or from the view of a log. Tactics are whole,
however many lines they have, and read as a model's answers are (`answer.read_tactic`), so that what is trained is what
generation gives back. Steps that teach nothing good are left out and counted. Imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from pipeline.lean.goal_text import NO_GOALS
from pipeline.models.errors import DatasetError, NothingToLearnError
from pipeline.models.tactics.requests import read_tactic
from pipeline.models.text import without_marks
from store.domain.records import Position, TracedTactic, holds_sorry
from store.domain.splits import Side, Split
from store.errors import LogError
from store.leandojo.records import Flaw, ImportFormatError, items, theorem
from store.view.trace_queries import training_proofs

SORRY = "sorry"
EMPTY = "empty"
UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Row:
    """One step of a proof: `tactic` was run on `state`, which has no marks. `step` counts from 0 in the proof.

    `url` and `commit` are "" and `start` is None where the source does not say them, as a view does not.
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
        skipped: how many steps were left out, by why: SORRY (the tactic holds one), EMPTY (no tactic, or no goal
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
    gathered = _Gathered()
    try:
        for number, data in enumerate(items(path)):
            try:
                file_path, proved = theorem(data, form="dataset")
            except Flaw as flaw:
                place = "".join((f"theorem {number}", *flaw.place))
                raise DatasetError(f"{path}: {place}: {flaw.reason}. Export the dataset again") from flaw
            gathered.add(
                proved.tactics,
                theorem=proved.full_name,
                path=file_path,
                url=proved.url or "",
                commit=proved.commit or "",
                start=proved.start,
            )
    except ImportFormatError as error:
        raise DatasetError(f"{path}: {error.place}: {error.reason}. Export the dataset again") from error
    except LogError as error:
        raise DatasetError(str(error)) from error
    return gathered.rows(str(path))


def rows_of_view(
    db: sqlite3.Connection,
    side: Side,
    *,
    split: Split = "random",
    traces: Sequence[str] | None = None,
    simulated: bool = False,
) -> Rows:
    """Return the rows of the theorems on one side of a split, from a view
    (`store.view.queries.connect`).

    Args:
        db: the view.
        side: "train", "val" or "test".
        split: "random" or "novel_premises".
        traces: ids of traces; None for the newest of each repository.
        simulated: whether the simulator's traces count.

    Raises:
        NothingToLearnError: there is no step to learn from.
    """
    gathered = _Gathered()
    for proof in training_proofs(db, split, side, traces=traces, simulated=simulated):
        gathered.add(proof.steps, theorem=proof.theorem, path=proof.path)
    return gathered.rows(f"the {side} side of the split {split}")


class _Gathered:
    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._proofs = 0
        self._skipped: Counter[str] = Counter()

    def add(
        self,
        steps: Iterable[TracedTactic],
        *,
        theorem: str,
        path: str,
        url: str = "",
        commit: str = "",
        start: Position | None = None,
    ) -> None:
        self._proofs += 1
        for number, (state, tactic) in enumerate(self._read(steps)):
            if tactic:
                self._rows.append(Row(state, tactic, theorem, path, number, url, commit, start))

    def rows(self, source: str) -> Rows:
        made = Rows(tuple(self._rows), self._proofs, dict(self._skipped))
        if not made.rows:
            raise NothingToLearnError(
                f"{source} has no step to learn from: {made}. Export it again once theorems with tactic proofs are "
                "traced"
            )
        return made

    def _read(self, steps: Iterable[TracedTactic]) -> Iterator[tuple[str, str]]:
        """Yield each step's state and tactic; the tactic is "" where the step is left out, for a reason counted."""
        for step in steps:
            state = without_marks(step.state_before).strip()
            text = without_marks(step.tactic)
            answer = read_tactic(text)
            why = None
            if holds_sorry(text):
                why = SORRY
            elif not state or state == NO_GOALS or answer.flaw == "empty":
                why = EMPTY
            elif answer.flaw is not None:
                why = UNREADABLE
            if why is not None:
                self._skipped[why] += 1
            yield state, "" if why is not None else answer.tactic
