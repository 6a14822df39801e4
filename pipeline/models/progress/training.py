"""Train a progress model: a regression head on any text model, on the steps of whole proofs.

    from pipeline.models.progress import ProgressTrainer

    ProgressTrainer("progress.jsonl", model_name="bert-base-uncased", output_dir="outputs-progress").train()

LeanDojo-v2's constructor and template. Rows are split by proof; the epoch with the least squared error on the proofs
held out is kept; an interrupted run continues from its last epoch when it is started again. transformers' Trainer
drives, so that Accelerate's launcher, bf16 and gradient checkpointing work as they do with it.

    <output_dir>/                the model: config.json, model.safetensors, the tokenizer, checkpoint.json
    <output_dir>/.run-<id>/      the files of a run in progress; removed once its model exists
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    EvalPrediction,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
)

from pipeline.models.config import BetweenZeroAndOne, Config, Number, Positive, PositiveNumber
from pipeline.models.libraries import computes_in_bfloat16, quiet_libraries, tensors_digest
from pipeline.models.model_files import versions
from pipeline.models.progress.model import batch_of, ids_of, load_model, text_length
from pipeline.models.progress.steps import Dataset, Row, TrainValidation, read_dataset, split
from pipeline.models.ranks import is_first
from pipeline.models.running import CHECKPOINTING, LibraryTrainer, OnStep, Saves, wait
from pipeline.models.trainer_folder import lock_folder, publish


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors of predictions, in steps: the mean absolute error, and the mean of its square."""

    mae: float
    mse: float


@dataclass(frozen=True, slots=True)
class TrainedProgress:
    """A trained progress model; `checkpoint.json` beside the weights has the same fields.

    Attributes:
        base: what it was trained from.
        data: the SHA-256 of the dataset's file.
        proofs, rows: how many were trained on and held out, as [trained on, held out].
        by_side: the rows named their sides.
        incomplete: lines of the dataset that lack a field.
        cut: rows whose text was too long for the model.
        max_length: tokens of a text.
        settings: the trainer's arguments.
        epochs: the errors on what was held out, after each epoch.
        best_epoch: the one that is kept, from 1.
        held_out: its errors.
        constant: the errors of the best constants: the median for mae, the mean for mse. A model that is no better
            has learned nothing.
        steps: of the optimiser.
        digest: the SHA-256 of the weights by name and value (`pipeline.models.libraries.tensors_digest`).
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


def collated(rows: Sequence[Mapping[str, Any]], *, pad: int) -> dict[str, Tensor]:
    labels = torch.tensor([row["labels"] for row in rows], dtype=torch.float32)
    return {**batch_of([row["input_ids"] for row in rows], pad), "labels": labels}


def logits_of(given: Any, _labels: Tensor) -> Tensor:
    numbers: Tensor = given[0] if isinstance(given, tuple) else given
    return numbers


def error_metrics(prediction: EvalPrediction) -> dict[str, float]:
    predictions: Any = prediction.predictions
    labels: Any = prediction.label_ids
    off = predictions.reshape(-1).astype("float64") - labels.reshape(-1)
    return {"mae": float(abs(off).mean()), "mse": float((off * off).mean())}


def constant_errors(halves: TrainValidation) -> Errors:
    """Return the errors on the held out rows of the constants that are best on the training rows."""
    known = [row.steps_remaining for row in halves.train]
    median, mean = statistics.median(known), statistics.fmean(known)
    return Errors(
        mae=statistics.fmean(abs(row.steps_remaining - median) for row in halves.held_out),
        mse=statistics.fmean((row.steps_remaining - mean) ** 2 for row in halves.held_out),
    )


def proofs_of(rows: Sequence[Row]) -> int:
    return len({row.proof for row in rows})


_log = logging.getLogger(__name__)
_RUN = ".run-"
_WEIGHT_DECAY = 0.01
LIBRARIES = ("torch", "transformers", "accelerate")


@dataclass(frozen=True, slots=True)
class Settings(Config):
    """Settings of a training: a model follows from them, what it begins with and its data."""

    batch_size: Positive
    epochs: PositiveNumber
    learning_rate: PositiveNumber
    weight_decay: Number
    eval_ratio: BetweenZeroAndOne
    seed: int
    bf16: bool
    gradient_checkpointing: bool
    max_length: Positive

    def __post_init__(self) -> None:
        self.checked()


class ProgressTrainer(LibraryTrainer):
    """Trains a model that predicts how many steps of a proof remain. LeanDojo-v2's trainer of that name.

    `tokenizer` and `model` are loaded by the constructor, as there; after `train` the model is the one that was kept.
    """

    def __init__(
        self,
        data_path: str | Path,
        model_name: str = "bert-base-uncased",
        output_dir: str | Path = "outputs",
        max_length: int = 512,
        batch_size: int = 8,
        epochs: float = 3.0,
        learning_rate: float = 1e-5,
        eval_ratio: float = 0.2,
        seed: int = 42,
        *,
        device: str = "auto",
        bf16: bool | None = None,
        gradient_checkpointing: bool = False,
        report_to: str | Sequence[str] = "none",
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        """Args:
        data_path: a JSONL file of steps, as `everlean export progress OUT` writes it.
        output_dir: the model's folder; an earlier model in it is replaced once the new one is complete.
        max_length: tokens of a text; fewer where the model takes fewer.
        batch_size: rows at once, on each device.
        epochs: how often every row is seen.
        learning_rate: of AdamW, falling to 0.
        eval_ratio: the share of the proofs that is held out, where the rows have no `side`.
        seed: of the split, a new head, and the order of the rows.
        bf16: compute in bfloat16; None: where the GPU does.
        gradient_checkpointing: less memory, more time.
        model_name, device, report_to, callbacks: as `LibraryTrainer`'s.

        Raises:
            ConfigError: a number is out of range.
            ModelError: the model cannot be loaded.
        """
        self.data_path = str(data_path)
        super().__init__(model_name, output_dir, device, report_to, callbacks)
        self.settings = Settings(
            batch_size,
            epochs,
            learning_rate,
            _WEIGHT_DECAY,
            eval_ratio,
            seed,
            computes_in_bfloat16(self.device) if bf16 is None else bf16,
            gradient_checkpointing,
            max_length,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.tokenizer, self.model = load_model(model_name, new_head=True)
        self._begun = tensors_digest(self.model.state_dict())
        self.max_length = text_length(self.tokenizer, self.model, max_length)

    def train(self, on_step: OnStep = lambda _done, _total: None) -> TrainedProgress:
        """Train, keep the best epoch, write it to `output_dir`, and return how well it does.

        `on_step` takes (optimiser steps done, in all) after each. The run is saved after every epoch.

        Raises:
            DatasetError: the dataset cannot be used. DivergedError: a loss was no finite number.
            CheckpointError: the disk refused; the saved steps stay, and a repeated run continues.
            Yielded: the job was preempted, and the run is saved.
        """
        place = Path(self.output_dir)
        # Under `accelerate launch` every process comes here; the first one writes.
        with lock_folder(place) if is_first() else nullcontext():
            data = read_dataset(self.data_path)
            made = self.fit(data, on_step, Saves(place / f"{_RUN}{self._id(data)}"))
            if is_first():
                publish(place, self.write, asdict(made))
                # Those of other data or settings too: their model is replaced.
                for old in place.glob(f"{_RUN}*"):
                    shutil.rmtree(old, ignore_errors=True)
            wait(self.model.device)
        return made

    def fit(self, data: Dataset, on_step: OnStep, saves: Saves) -> TrainedProgress:
        """Train on a dataset and keep the best epoch; write nothing but the run's saves.

        Raises:
            LearningError: as `train`.
        """
        started = time.monotonic()
        if data.incomplete:
            _log.warning("%s: %d lines lack a field and are left out", self.data_path, data.incomplete)
        halves = split(data.rows, eval_ratio=self.settings.eval_ratio, seed=self.settings.seed)
        cut = 0
        examples: list[list[dict[str, Any]]] = []
        for rows in (halves.train, halves.held_out):
            texts, long = ids_of(self.tokenizer, [row.step for row in rows], self.max_length)
            numbers = [row.steps_remaining for row in rows]
            examples.append(
                [{"input_ids": ids, "labels": number} for ids, number in zip(texts, numbers, strict=True)]
            )
            cut += long
        trainer = self._trainer(*examples)
        self.drive(trainer, on_step, saves)
        kept: Any = trainer.model
        self.model = kept
        return self._described(trainer.state, data, halves, cut, time.monotonic() - started)

    def write(self, folder: Path) -> None:
        """Write the model, its tokenizer and the curve of its training into a folder.

        Raises:
            OSError, SafetensorError: the disk refused.
        """
        self.write_files(folder, self.model, self.tokenizer)

    def _trainer(self, train: list[dict[str, Any]], held_out: list[dict[str, Any]]) -> Trainer:
        with quiet_libraries():
            return Trainer(
                model=self.model,
                args=TrainingArguments(
                    **{**self.arguments(), CHECKPOINTING: self.settings.gradient_checkpointing},
                    learning_rate=self.settings.learning_rate,
                    per_device_train_batch_size=self.settings.batch_size,
                    per_device_eval_batch_size=self.settings.batch_size,
                    num_train_epochs=self.settings.epochs,
                    weight_decay=self.settings.weight_decay,
                    eval_strategy="epoch",
                    save_strategy="epoch",
                    load_best_model_at_end=True,
                    metric_for_best_model="mse",
                    # Without it transformers keeps the worst epoch.
                    greater_is_better=False,
                    remove_unused_columns=False,
                    seed=self.settings.seed,
                    bf16=self.settings.bf16,
                    # The loss is a mean, which would count as many times as there are processes.
                    average_tokens_across_devices=False,
                    dataloader_pin_memory=self.device.type != "cpu",
                ),
                data_collator=partial(collated, pad=int(self.model.config.pad_token_id)),
                train_dataset=train,
                eval_dataset=held_out,
                compute_metrics=error_metrics,
                # Some models return their hidden states too, and the trainer would keep them for every row.
                preprocess_logits_for_metrics=logits_of,
            )

    def _described(
        self,
        state: TrainerState,
        data: Dataset,
        halves: TrainValidation,
        cut: int,
        seconds: float,
    ) -> TrainedProgress:
        epochs = tuple(
            Errors(row["eval_mae"], row["eval_mse"]) for row in state.log_history if "eval_mse" in row
        )
        best = min(range(len(epochs)), key=lambda number: epochs[number].mse)
        return TrainedProgress(
            base=self.model_name,
            data=data.digest,
            proofs=(proofs_of(halves.train), proofs_of(halves.held_out)),
            rows=(len(halves.train), len(halves.held_out)),
            by_side=halves.by_side,
            incomplete=data.incomplete,
            cut=cut,
            max_length=self.max_length,
            settings=self.settings.to_dict(),
            epochs=epochs,
            best_epoch=best + 1,
            held_out=epochs[best],
            constant=constant_errors(halves),
            steps=state.global_step,
            digest=tensors_digest(self.model.state_dict()),
            versions=versions(LIBRARIES),
            device=str(self.model.device.type),
            seconds=seconds,
        )

    def _id(self, data: Dataset) -> str:
        about = [self.model_name, self._begun, data.digest, self.max_length, self.settings.to_dict()]
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
