"""Export proofs as LeanProgress's dataset: for each step of a proof, the number of later steps.

A line is one step, in the form of LeanDojo-v2's `ProgressTrainer`, with its proof:

    {"goal": …, "prefix": …, "tactic": …, "steps_remaining": …, "proof": …, "theorem": …}

`goal` is the state before the step, `prefix` the steps before it, one below the other, and `steps_remaining`
the number after it: 0 for the last one. `proof` is the same for all proofs of one statement: training on one
and measuring with another would be wrong. Theorems of the test side are left out.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store.domain.splits import Side
from store.errors import LogError
from store.leandojo.choosing import NothingToExportError, choose
from store.leandojo.exporting import one_moment
from store.leandojo.folder import NotReplaceableError, replaced_file
from store.sqlite import translated
from store.view import queries
from store.view.rows import TrainingProof
from store.view.trace_queries import training_proofs

SIDES: tuple[Side, ...] = ("train", "val")
"""The sides to learn from."""


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """The result of an export. `position` is the log's."""

    path: Path
    position: int
    proofs: int
    steps: int
    repeated: int
    """proofs left out because another has the same statement and steps"""
    seconds: float


def export_progress(
    out: Path,
    *,
    view: sqlite3.Connection,
    repositories: Collection[str] = (),
) -> ProgressReport:
    """Write the dataset to a file, in the place of an earlier one. The daemon may be running.

    Args:
        out: the file to make.
        view: a connection for queries (`store.view.queries.connect`), or one to the view as of an earlier
            time.
        repositories: keys, or the ends of them; none means all. The newest trace of each is taken.

    Raises:
        NothingToExportError: there is no trace, or none with a proof to learn from.
        NotReplaceableError: `out` exists and is no such dataset.
        LogError: the disk refused; `out` is unchanged.
    """
    started = time.monotonic()
    _check_replaceable(out)
    seen: set[int] = set()
    steps = repeated = 0
    with one_moment(view), translated(out):
        chosen = [item.row for item in choose(view, repositories, every_commit=False) if item.in_dataset]
        traces = [row.trace for row in chosen]
        position = queries.position(view)
        with replaced_file(out) as file:
            for side in SIDES:
                for proof in training_proofs(view, "random", side, traces=traces):
                    key = hash((proof.split_key, *((step.state_before, step.tactic) for step in proof.steps)))
                    if key in seen:
                        repeated += 1
                        continue
                    seen.add(key)
                    steps += len(proof.steps)
                    file.writelines(
                        f"{json.dumps(row, ensure_ascii=False)}\n".encode() for row in rows_of(proof)
                    )
            if not steps:
                raise NothingToExportError(
                    "no traced proof has steps to learn from: each is by a term, holds a sorry, or is on the test side"
                )
    return ProgressReport(
        path=out,
        position=position,
        proofs=len(seen),
        steps=steps,
        repeated=repeated,
        seconds=time.monotonic() - started,
    )


def rows_of(proof: TrainingProof) -> Iterator[dict[str, Any]]:
    """Yield a proof's steps as lines of the dataset."""
    before: list[str] = []
    for number, step in enumerate(proof.steps):
        yield {
            "goal": step.state_before,
            "prefix": "\n".join(before),
            "tactic": step.tactic,
            "steps_remaining": len(proof.steps) - 1 - number,
            "proof": proof.split_key,
            "theorem": proof.theorem,
        }
        before.append(step.tactic)


def _check_replaceable(out: Path) -> None:
    if not out.parent.is_dir():
        raise LogError(f"{out}: its folder does not exist; create {out.parent}")
    if not out.exists():
        return
    with translated(out):
        try:
            with out.open("rb") as file:
                first: Any = json.loads(file.readline() or b"null")
        except (IsADirectoryError, ValueError):
            first = None
    if not (isinstance(first, Mapping) and {"steps_remaining", "proof"} <= first.keys()):
        raise NotReplaceableError(f"{out}: is no earlier export; name a file that does not exist yet")
