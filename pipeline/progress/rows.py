"""The dataset of the progress model: a JSONL file of steps, and how it is split, by proof and not by row.

`unsorry export progress` writes one; LeanProgress's own, without `proof` and `side`, are read too. Which of their rows
are of one proof is then read off the rows: those that follow on one another, and those of one statement. Imports no
torch.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.progress.text import Step
from pipeline.tactics.errors import RowsError

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
class Halves:
    """What is trained on and what chooses the best epoch; no proof is in both. `by_side`: the rows said it."""

    train: tuple[Row, ...]
    held_out: tuple[Row, ...]
    by_side: bool


def read_dataset(path: str | Path) -> Dataset:
    """Read a JSONL file of steps. A line without a goal, a tactic or its number is left out and counted.

    Raises:
        RowsError: it cannot be read, a line is no JSON object or has a field that is no such thing, or there is no row.
    """
    try:
        data = Path(path).read_bytes()
        lines = data.decode("utf-8").split("\n")
    except OSError as error:
        raise RowsError(
            f"{path} cannot be read ({error.strerror}). `unsorry export progress OUT` writes such a file"
        ) from error
    except UnicodeDecodeError as error:
        raise RowsError(f"{path} is no UTF-8 text ({error})") from error
    rows: list[Row] = []
    incomplete = 0
    proofs = _Proofs()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        record = _record(line, f"{path}, line {number}")
        if record is None:
            incomplete += 1
            continue
        rows.append(_row(record, f"{path}, line {number}", proofs))
    if not rows:
        raise RowsError(
            f"{path} has no row with {', '.join(_NEEDED)} ({incomplete} without). `unsorry export progress OUT` writes "
            "such a file"
        )
    return Dataset(tuple(rows), incomplete, hashlib.sha256(data).hexdigest())


def split(rows: Sequence[Row], *, eval_ratio: float, seed: int) -> Halves:
    """Split rows by proof.

    Where the rows say their side, by that; else, and where one side has none, `eval_ratio` of the proofs, drawn by
    hash and seed, are held out: at least one, and never all.

    Raises:
        RowsError: all rows are of one proof, or a proof has rows of both sides.
    """
    sides = {side: tuple(row for row in rows if row.side == side) for side in _SIDES}
    if all(sides.values()) and sum(map(len, sides.values())) == len(rows):
        both = {row.proof for row in sides["train"]} & {row.proof for row in sides["val"]}
        if both:
            raise RowsError(
                f"{len(both)} proofs have rows on the side train and on the side val, so that what is measured was "
                "trained on. Write the file anew, or leave `side` out: it is then split by proof"
            )
        return Halves(sides["train"], sides["val"], by_side=True)
    proofs = sorted({row.proof for row in rows}, key=lambda proof: _drawn(proof, seed))
    if len(proofs) < 2:
        raise RowsError(
            f"all {len(rows)} rows are of one proof, which cannot be trained on and measured with at once. Take rows "
            "of at least two"
        )
    out = set(proofs[: min(max(1, round(eval_ratio * len(proofs))), len(proofs) - 1)])
    return Halves(
        tuple(row for row in rows if row.proof not in out),
        tuple(row for row in rows if row.proof in out),
        by_side=False,
    )


class _Proofs:
    """Finds which rows are of one proof where they do not say it.

    A row follows on the one before it if fewer steps remain and, where there is a prefix to tell by, its prefix goes on
    from that one's. The first row of a proof has its statement for a goal: two proofs of one statement are one.
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
        raise RowsError(f"{where}: is no JSON ({error})") from error
    if not isinstance(record, dict):
        raise RowsError(
            f"{where}: is a {type(record).__name__}, and takes an object with {', '.join(_NEEDED)}"
        )
    return record if all(record.get(key) is not None for key in _NEEDED) else None


def _row(record: Mapping[str, Any], where: str, proofs: _Proofs) -> Row:
    texts = {key: record.get(key) or "" for key in ("goal", "tactic", "prefix")}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise RowsError(f"{where}: {key} is {value!r}, and takes a text")
    remaining = record["steps_remaining"]
    # `type`, not `isinstance`: true is an int to Python.
    if type(remaining) not in (int, float) or not math.isfinite(remaining) or remaining < 0:
        raise RowsError(f"{where}: steps_remaining is {remaining!r}, and takes a number from 0")
    side = record.get("side")
    if side is not None and side not in _SIDES:
        raise RowsError(
            f"{where}: side is {side!r}, and takes {' or '.join(_SIDES)}: no other is to be learned from"
        )
    step = Step(texts["goal"], texts["tactic"], texts["prefix"])
    named = record.get("proof")
    if named is not None and not isinstance(named, str | int):
        raise RowsError(f"{where}: proof is {named!r}, and takes a text")
    proof = ("named", named) if named is not None else proofs.of(step, float(remaining))
    return Row(step, float(remaining), proof, side)


def _drawn(proof: Hashable, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}/{proof!r}".encode("utf-8", "surrogatepass")).digest()
