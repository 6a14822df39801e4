"""What a progress model is trained and measured with: rows as tokens, errors in steps, and what is said of it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import EvalPrediction, PreTrainedTokenizerBase

from pipeline.progress.model import batch_of, ids_of
from pipeline.progress.rows import Halves, Row


@dataclass(frozen=True, slots=True)
class Errors:
    """How far predictions are off, in steps: the mean absolute error, and the mean of its square."""

    mae: float
    mse: float


@dataclass(frozen=True, slots=True)
class TrainedProgress:
    """A trained progress model; `checkpoint.json` beside the weights says the same.

    Attributes:
        base: what it was trained from.
        data: the SHA-256 of the dataset's file.
        proofs, rows: how many were trained on and held out, as [trained on, held out].
        by_side: the rows said which are held out.
        incomplete: lines of the dataset that lack a field.
        cut: rows whose text was too long for the model.
        max_length: tokens of a text.
        settings: the trainer's arguments.
        epochs: the errors on what was held out, after each epoch.
        best_epoch: the one that is kept, from 1.
        held_out: its errors.
        constant: the errors of the best constant answers: the median for mae, the mean for mse. A model that is no
            better has learned nothing.
        steps: of the optimiser.
        digest: the SHA-256 of the weights by name and value (`pipeline.retrieval.encoder.weights_digest`).
        versions: of the libraries.
        device: what it was trained on.
        seconds: how long the last run took.
    """

    base: str
    data: str
    proofs: tuple[int, int]
    rows: tuple[int, int]
    by_side: bool
    incomplete: int
    cut: int
    max_length: int
    settings: dict[str, Any]
    epochs: tuple[Errors, ...]
    best_epoch: int
    held_out: Errors
    constant: Errors
    steps: int
    digest: str
    versions: dict[str, str]
    device: str
    seconds: float


class Steps(Dataset[dict[str, Any]]):
    """Rows as tokens; `cut` counts those that were too long."""

    def __init__(self, rows: Sequence[Row], tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
        self._ids, self.cut = ids_of(tokenizer, [row.step for row in rows], max_length)
        self._labels = [row.steps_remaining for row in rows]

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {"input_ids": self._ids[number], "labels": self._labels[number]}


class Collated:
    def __init__(self, pad: int) -> None:
        self._pad = pad

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        labels = torch.tensor([row["labels"] for row in rows], dtype=torch.float32)
        return {**batch_of([row["input_ids"] for row in rows], self._pad), "labels": labels}


def numbers_of(given: Any, _labels: Tensor) -> Tensor:
    numbers: Tensor = given[0] if isinstance(given, tuple) else given
    return numbers


def measured(prediction: EvalPrediction) -> dict[str, float]:
    predictions: Any = prediction.predictions
    labels: Any = prediction.label_ids
    off = predictions.reshape(-1).astype("float64") - labels.reshape(-1)
    return {"mae": float(abs(off).mean()), "mse": float((off * off).mean())}


def constant_errors(halves: Halves) -> Errors:
    """Return the errors, on what is held out, of the constants that are best on what is trained on."""
    known = [row.steps_remaining for row in halves.train]
    median, mean = statistics.median(known), statistics.fmean(known)
    return Errors(
        mae=statistics.fmean(abs(row.steps_remaining - median) for row in halves.held_out),
        mse=statistics.fmean((row.steps_remaining - mean) ** 2 for row in halves.held_out),
    )


def proofs_of(rows: Sequence[Row]) -> int:
    return len({row.proof for row in rows})
