"""Steps of proofs for a progress model, each with the number of steps after it.

A job reads them off its dataset in LeanDojo's format, `ProgressTrainer` a JSONL file of steps: `everlean export
progress` writes it, or LeanProgress, without `proof`. Rows are split by proof, not by row.

Imports no torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.lean.tactic_text import Step
from pipeline.models.datasets import theorems
from pipeline.models.errors import DatasetError, flaw_of
from pipeline.models.text import without_marks
from store.domain.identity import short_hash
from store.domain.records import holds_sorry

_AGAIN = "`everlean export progress OUT` writes such a file"


@dataclass(frozen=True, slots=True)
class Row:
    """A step and the number of steps after it in its proof; rows with the same `proof` must stay together."""

    step: Step
    steps_remaining: float
    proof: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dataset:
    """The training rows, and those for choosing the best epoch, of other proofs."""

    train: tuple[Row, ...]
    held_out: tuple[Row, ...]

    @property
    def digest(self) -> str:
        """The SHA-256 of the rows."""
        return hashlib.sha256(f"{digest_of(self.train)} {digest_of(self.held_out)}".encode()).hexdigest()


def digest_of(rows: Iterable[Row]) -> str:
    """Return the SHA-256 of steps and their numbers, in order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps([*astuple(row.step), row.steps_remaining]).encode())
    return digest.hexdigest()


def read_split(path: Path) -> dict[Step, Row]:
    """Return the steps of the proofs in a split file (train.json, val.json or test.json), each different one once.

    Proofs that hold a sorry are left out.

    Raises:
        DatasetError: it is missing, or is no split file.
    """
    result: dict[Step, Row] = {}
    for theorem in theorems(path):
        tactics = [without_marks(one.tactic) for one in theorem.traced_tactics]
        if any(map(holds_sorry, tactics)):
            continue
        for number, one in enumerate(theorem.traced_tactics):
            step = Step(without_marks(one.state_before), tactics[number], "\n".join(tactics[:number]))
            remaining = float(len(tactics) - 1 - number)
            result.setdefault(step, Row(step, remaining, (theorem.file_path, theorem.full_name)))
    return result


class _Line(BaseModel):
    """A line of a JSONL file."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    goal: str
    tactic: str
    steps_remaining: Annotated[float, Field(ge=0)]
    prefix: str = ""
    proof: str = ""


def read_dataset(path: str | Path, *, eval_ratio: float, seed: int) -> Dataset:
    """Read a JSONL file of steps, and divide them (`held_back`).

    A line without `proof` goes on with that of the line before if it has a prefix and fewer steps remain.

    Raises:
        DatasetError: it cannot be read, a line is no step, or all rows are of one proof.
    """
    rows: list[Row] = []
    begun = ""
    try:
        with Path(path).open(encoding="utf-8") as file:
            for number, text in enumerate(file, start=1):
                if not text.strip():
                    continue
                try:
                    line = _Line.model_validate_json(text)
                except ValidationError as error:
                    raise DatasetError(f"{path}, line {number}{flaw_of(error)}. {_AGAIN}") from error
                goes_on = rows and line.prefix.strip() and line.steps_remaining < rows[-1].steps_remaining
                if not goes_on:
                    begun = line.goal.strip()
                step = Step(line.goal, line.tactic, line.prefix)
                # A proof without a name has its statement for its first goal.
                rows.append(Row(step, line.steps_remaining, (line.proof or begun,)))
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror}). {_AGAIN}") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is no UTF-8 text ({error}). {_AGAIN}") from error
    return held_back(rows, eval_ratio=eval_ratio, seed=seed)


def held_back(rows: Sequence[Row], *, eval_ratio: float, seed: int) -> Dataset:
    """Hold out a share of the proofs, drawn by hash and seed: at least one, and never all.

    Raises:
        DatasetError: there are not two proofs.
    """
    proofs = sorted({row.proof for row in rows}, key=lambda proof: short_hash(str(seed), *map(repr, proof)))
    if len(proofs) < 2:
        raise DatasetError(
            f"the {len(rows)} rows are of fewer than two proofs: one is to train on, another to measure with. Take more"
        )
    out = set(proofs[: min(max(1, round(eval_ratio * len(proofs))), len(proofs) - 1)])
    return Dataset(
        tuple(row for row in rows if row.proof not in out), tuple(row for row in rows if row.proof in out)
    )
