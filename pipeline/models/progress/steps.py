"""Steps of proofs for a progress model, each with the number of steps after it.

A job reads them off its dataset in LeanDojo's format, `ProgressTrainer` a JSONL file of steps, as `everlean export
progress` writes it; LeanProgress's own, without `proof`, are read too. Rows are split by proof, not by row.

Imports no torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.lean.tactic_text import Step
from pipeline.models.datasets import theorems
from pipeline.models.errors import DatasetError, flaw_of
from pipeline.models.text import without_marks
from store.domain.records import holds_sorry

_NEEDED = ("goal", "tactic", "steps_remaining")


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


def read_split(path: Path) -> list[Row]:
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
    return list(result.values())


class _Line(BaseModel):
    """A line of a JSONL file."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    goal: str
    tactic: str
    steps_remaining: Annotated[float, Field(ge=0)]
    prefix: str | None = None
    proof: str | int | None = None


def read_dataset(path: str | Path, *, eval_ratio: float, seed: int) -> Dataset:
    """Read a JSONL file of steps. A line without a goal, a tactic or its number is left out, as LeanProgress does.

    `held_back` divides the rows.

    Raises:
        DatasetError: it cannot be read, a line is no JSON object, a field has another type, there is no row, or all
            rows are of one proof.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise DatasetError(
            f"{path} cannot be read ({error.strerror}). `everlean export progress OUT` writes such a file"
        ) from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is no UTF-8 text ({error})") from error
    rows: list[Row] = []
    before: _Line | None = None
    begun = ""
    for number, text in enumerate(lines, start=1):
        line = _line(text, f"{path}, line {number}") if text.strip() else None
        if line is None:
            continue
        if before is None or not _follows(before, line):
            begun = line.goal.strip()
        before = line
        # A proof without a name has its statement for its first goal.
        proof = ("begins", begun) if line.proof is None else ("named", str(line.proof))
        step = Step(line.goal, line.tactic, line.prefix or "")
        rows.append(Row(step, line.steps_remaining, proof))
    if not rows:
        raise DatasetError(
            f"{path} has no row with {', '.join(_NEEDED)}. `everlean export progress OUT` writes such a file"
        )
    return held_back(rows, eval_ratio=eval_ratio, seed=seed)


def held_back(rows: Sequence[Row], *, eval_ratio: float, seed: int) -> Dataset:
    """Hold out a share of the proofs, drawn by hash and seed: at least one, and never all.

    Raises:
        DatasetError: all rows are of one proof.
    """
    proofs = sorted({row.proof for row in rows}, key=lambda proof: _drawn(proof, seed))
    if len(proofs) < 2:
        raise DatasetError(
            f"all {len(rows)} rows are of one proof, which cannot be trained on and measured with at once. Take rows "
            "of at least two"
        )
    out = set(proofs[: min(max(1, round(eval_ratio * len(proofs))), len(proofs) - 1)])
    return Dataset(
        tuple(row for row in rows if row.proof not in out), tuple(row for row in rows if row.proof in out)
    )


def _line(text: str, where: str) -> _Line | None:
    try:
        content: Any = json.loads(text)
        if isinstance(content, dict) and any(content.get(key) is None for key in _NEEDED):
            return None
        return _Line.model_validate(content)
    except (ValidationError, RecursionError) as error:
        raise DatasetError(f"{where}{flaw_of(error)}") from error
    except ValueError as error:
        raise DatasetError(f"{where}: is no JSON ({error})") from error


def _follows(before: _Line, line: _Line) -> bool:
    """Return whether a line continues another: fewer steps are left, and its prefix, if any, is longer by it."""
    prefix, earlier = ((one.prefix or "").strip() for one in (line, before))
    goes_on = prefix == f"{earlier}\n{before.tactic.strip()}".strip() or not (prefix or earlier)
    return line.steps_remaining < before.steps_remaining and goes_on


def _drawn(proof: tuple[str, ...], seed: int) -> bytes:
    return hashlib.sha256(f"{seed}/{proof!r}".encode("utf-8", "surrogatepass")).digest()
