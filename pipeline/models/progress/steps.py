"""Steps of proofs that a progress model learns from: a dataset's rows, and a job's exported dataset.

A dataset is a JSONL file of steps, split by proof and not by row. `everlean export progress` writes one; LeanProgress's
own, without `proof` and `side`, are read too. Which of their rows are of one proof is then read off the rows: those
that follow on one another, and those of one statement.

A training job's dataset (`pipeline.models.datasets`):

    <chain>/.datasets/<job>/learn.jsonl     the sides train and val, as `ProgressTrainer` reads them
    <chain>/.datasets/<job>/test.jsonl      the side test
    <chain>/.datasets/<job>/metadata.json   {"position": of the log}

Those two are in `novel_premises/` where the training is on that split.

Imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.lean.tactic_text import Step
from pipeline.models.errors import DatasetError
from store.domain.splits import SIDES, Split

_NEEDED = ("goal", "tactic", "steps_remaining")
_SIDES = ("train", "val")


@dataclass(frozen=True, slots=True)
class Row:
    """A step and how many steps its proof took after it; `proof` is the same for rows that must stay together."""

    step: Step
    steps_remaining: float
    proof: Hashable
    side: str | None


@dataclass(frozen=True, slots=True)
class Dataset:
    """A file's rows; `incomplete` counts the lines that lack a field, `digest` is the SHA-256 of the file."""

    rows: tuple[Row, ...]
    incomplete: int
    digest: str


@dataclass(frozen=True, slots=True)
class TrainValidation:
    """The training rows and those that choose the best epoch, split by proof. `by_side`: the rows name their sides."""

    train: tuple[Row, ...]
    held_out: tuple[Row, ...]
    by_side: bool


def read_dataset(path: str | Path) -> Dataset:
    """Read a JSONL file of steps. A line without a goal, a tactic or its number is left out and counted.

    Raises:
        DatasetError: it cannot be read, a line is no JSON object, a field has another type, or there is no row.
    """
    try:
        data = Path(path).read_bytes()
        lines = data.decode("utf-8").split("\n")
    except OSError as error:
        raise DatasetError(
            f"{path} cannot be read ({error.strerror}). `everlean export progress OUT` writes such a file"
        ) from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is no UTF-8 text ({error})") from error
    rows: list[Row] = []
    incomplete = 0
    proofs = _ProofGroups()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        record = _record(line, f"{path}, line {number}")
        if record is None:
            incomplete += 1
            continue
        rows.append(_row(record, f"{path}, line {number}", proofs))
    if not rows:
        raise DatasetError(
            f"{path} has no row with {', '.join(_NEEDED)} ({incomplete} without). `everlean export progress OUT` "
            "writes such a file"
        )
    return Dataset(tuple(rows), incomplete, hashlib.sha256(data).hexdigest())


def split(rows: Sequence[Row], *, eval_ratio: float, seed: int) -> TrainValidation:
    """Split rows by proof.

    By the rows' `side` if all have one and both sides have rows; else `eval_ratio` of the proofs, drawn by hash and
    seed, are held out: at least one, and never all.

    Raises:
        DatasetError: all rows are of one proof, or a proof has rows of both sides.
    """
    sides = {side: tuple(row for row in rows if row.side == side) for side in _SIDES}
    if all(sides.values()) and sum(map(len, sides.values())) == len(rows):
        both = {row.proof for row in sides["train"]} & {row.proof for row in sides["val"]}
        if both:
            raise DatasetError(
                f"{len(both)} proofs have rows on the side train and on the side val, so that what is measured was "
                "trained on. Write the file anew, or leave `side` out: it is then split by proof"
            )
        return TrainValidation(sides["train"], sides["val"], by_side=True)
    proofs = sorted({row.proof for row in rows}, key=lambda proof: _drawn(proof, seed))
    if len(proofs) < 2:
        raise DatasetError(
            f"all {len(rows)} rows are of one proof, which cannot be trained on and measured with at once. Take rows "
            "of at least two"
        )
    out = set(proofs[: min(max(1, round(eval_ratio * len(proofs))), len(proofs) - 1)])
    return TrainValidation(
        tuple(row for row in rows if row.proof not in out),
        tuple(row for row in rows if row.proof in out),
        by_side=False,
    )


class _ProofGroups:
    """Groups rows into proofs where the rows do not name their proof.

    A row follows the one before it if fewer steps remain and its prefix, if any, continues that one's. The first row
    of a proof has its statement for a goal: two proofs of one statement are one.
    """

    def __init__(self) -> None:
        self._before: tuple[Step, float] | None = None
        self._proof: Hashable = None

    def of(self, step: Step, remaining: float) -> Hashable:
        if self._before is None or not _follows(*self._before, step, remaining):
            self._proof = ("begins", step.goal.strip())
        self._before = (step, remaining)
        return self._proof


def _follows(before: Step, had: float, step: Step, remaining: float) -> bool:
    if remaining >= had:
        return False
    prefix = step.prefix.strip()
    if not (prefix or before.prefix.strip()):
        return True
    so_far = f"{before.prefix.strip()}\n{before.tactic.strip()}".strip()
    return prefix == so_far


def _record(line: str, where: str) -> Mapping[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{where}: is no JSON ({error})") from error
    if not isinstance(record, dict):
        raise DatasetError(
            f"{where}: is a {type(record).__name__}, and takes an object with {', '.join(_NEEDED)}"
        )
    return record if all(record.get(key) is not None for key in _NEEDED) else None


def _row(record: Mapping[str, Any], where: str, proofs: _ProofGroups) -> Row:
    texts = {key: record.get(key) or "" for key in ("goal", "tactic", "prefix")}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise DatasetError(f"{where}: {key} is {value!r}, and takes a text")
    remaining = record["steps_remaining"]
    # `type`, not `isinstance`: true is an int to Python.
    if type(remaining) not in (int, float) or not math.isfinite(remaining) or remaining < 0:
        raise DatasetError(f"{where}: steps_remaining is {remaining!r}, and takes a number from 0")
    side = record.get("side")
    if side is not None and side not in _SIDES:
        raise DatasetError(
            f"{where}: side is {side!r}, and takes {' or '.join(_SIDES)}: no other is to be learned from"
        )
    step = Step(texts["goal"], texts["tactic"], texts["prefix"])
    named = record.get("proof")
    if named is not None and not isinstance(named, str | int):
        raise DatasetError(f"{where}: proof is {named!r}, and takes a text")
    proof = ("named", named) if named is not None else proofs.of(step, float(remaining))
    return Row(step, float(remaining), proof, side)


def _drawn(proof: Hashable, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}/{proof!r}".encode("utf-8", "surrogatepass")).digest()


LEARN = "learn.jsonl"
TEST = "test.jsonl"
_METADATA = "metadata.json"
_EXPORTED = "exported.jsonl"


def file_of(dataset: Path, split: Split, name: str) -> Path:
    """Return a file of a job's dataset, LEARN or TEST, there or not."""
    return (dataset if split == "random" else dataset / split) / name


def write_steps(
    out: Path,
    view: sqlite3.Connection,
    *,
    repository: str,
    trace: str | None,
    split: Split,
) -> None:
    """Write a dataset of a repository's newest trace, or of the named one, with a split's sides, into a new folder.

    Raises:
        NothingToExportError: there is no such trace, or no proof to learn from.
        LogError: the view cannot be read, or the disk refused.
    """
    # Not before: a search reads steps, and exports would take a sixth of the time in which it starts.
    from store.leandojo.progress import export_progress

    out.mkdir(parents=True)
    result = export_progress(
        out / _EXPORTED,
        view=view,
        repositories=(repository,),
        trace=trace,
        split=split,
        sides=SIDES,
    )
    _divide(out, split)
    (out / _METADATA).write_text(json.dumps({"position": result.position}), encoding="utf-8")


def _divide(folder: Path, split: Split) -> None:
    """Move the test side into a file of its own, which training never reads."""
    exported = folder / _EXPORTED
    paths = [file_of(folder, split, name) for name in (LEARN, TEST)]
    paths[0].parent.mkdir(exist_ok=True)
    with (
        exported.open(encoding="utf-8") as lines,
        paths[0].open("w", encoding="utf-8") as learn,
        paths[1].open("w", encoding="utf-8") as test,
    ):
        for line in lines:
            row = json.loads(line)
            if row["side"] == "test":
                # Readers treat its rows as rows without a side.
                del row["side"]
                test.write(json.dumps(row, ensure_ascii=False) + "\n")
            else:
                learn.write(line)
    exported.unlink()
