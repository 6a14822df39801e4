"""Train a progress model: a regression head on any text model, on the steps of whole proofs.

    from pipeline.models.progress.training import ProgressTrainer

    ProgressTrainer("progress.jsonl", model_name="bert-base-uncased", output_dir="outputs-progress").train()

LeanDojo-v2's constructor and template. Rows are split by proof; the epoch with the least squared error on the held-out
proofs is kept; an interrupted run started again continues from its last epoch. transformers' Trainer drives, so
Accelerate's launcher, bf16 and gradient checkpointing work as usual.

    <output_dir>/                the model: config.json, model.safetensors, the tokenizer, checkpoint.json
    <output_dir>/.run-<id>/      the files of a run in progress; removed once its model exists
"""

from __future__ import annotations

import hashlib
import json
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import dataclasses
from torch import Tensor
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainingArguments

from pipeline.models.config import STRICT, BetweenZeroAndOne, Config, Positive, PositiveNumber
from pipeline.models.libraries import computes_in_bfloat16, quiet_libraries
from pipeline.models.progress.model import batch_of, ids_of, load_model, text_length
from pipeline.models.progress.steps import Dataset, Row, read_dataset
from pipeline.models.ranks import is_first
from pipeline.models.running import FitResult, LibraryTrainer, OnStep, Saves, wait
from pipeline.models.trainer_folder import lock_folder, publish

_RUN = ".run-"


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


def constant_errors(data: Dataset) -> dict[str, float]:
    """Return the errors of the training rows' best constants on the held-out rows.

    A model must beat them to have learned anything.
    """
    known = [row.steps_remaining for row in data.train]
    median, mean = statistics.median(known), statistics.fmean(known)
    return {
        "constant_mae": statistics.fmean(abs(row.steps_remaining - median) for row in data.held_out),
        "constant_mse": statistics.fmean((row.steps_remaining - mean) ** 2 for row in data.held_out),
    }


@dataclasses.dataclass(frozen=True, slots=True, config=STRICT)
class Settings(Config):
    """Settings of a training: a model follows from them, its start and its data."""

    batch_size: Positive
    epochs: PositiveNumber
    learning_rate: PositiveNumber
    eval_ratio: BetweenZeroAndOne
    seed: int
    max_length: Positive


class ProgressTrainer(LibraryTrainer):
    """Trains a model to predict the number of steps left in a proof. LeanDojo-v2's trainer of that name.

    `tokenizer` and `model` are loaded by the constructor, as there; after `train` the model is the kept one.
    """

    kind = "progress"
    libraries = ("torch", "transformers", "accelerate")
    settings: Settings

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
        report_to: str | Sequence[str] = "none",
        callbacks: Sequence[TrainerCallback] = (),
        on_step: OnStep = lambda _done, _total: None,
    ) -> None:
        """Args:
        data_path: a JSONL file of steps, from `everlean export progress OUT`.
        output_dir: the model's folder; an earlier model in it is replaced once the new one is complete.
        max_length: tokens of a text; fewer if the model takes fewer.
        batch_size: rows at once, on each device.
        epochs: the number of passes over the rows.
        learning_rate: of AdamW, falling to 0.
        eval_ratio: the share of the proofs to hold out, if the rows have no `side`.
        seed: of the split, a new head, and the order of the rows.
        on_step: takes (optimiser steps done, in all) after each.
        model_name, device, report_to, callbacks: as `LibraryTrainer`'s.

        Raises:
            ConfigError: a number is out of range.
            ModelError: the model cannot be loaded.
        """
        self.data_path, self.on_step = str(data_path), on_step
        super().__init__(model_name, output_dir, device, report_to, callbacks)
        self.settings = Settings(batch_size, epochs, learning_rate, eval_ratio, seed, max_length)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.tokenizer, self.model = load_model(model_name, new_head=True)
        self.max_length = text_length(self.tokenizer, self.model, max_length)

    def train(self) -> FitResult:
        """Train, keep the best epoch, write it to `output_dir`, and return its errors.

        The run is saved after every epoch.

        Raises:
            DatasetError: the dataset cannot be used. DivergedError: a loss was no finite number.
            CheckpointError: the disk refused; the saved steps stay, and a repeated run continues.
            Yielded: the job was preempted, and the run is saved.
        """
        started, place = time.monotonic(), Path(self.output_dir)
        # Under `accelerate launch` every process comes here; the first one writes.
        with lock_folder(place) if is_first() else nullcontext():
            data = read_dataset(self.data_path, eval_ratio=self.settings.eval_ratio, seed=self.settings.seed)
            about = json.dumps([self.follows_from(), data.digest], sort_keys=True)
            run = place / f"{_RUN}{hashlib.sha256(about.encode()).hexdigest()[:16]}"
            made = self.fit(data, Saves(run))
            if is_first():
                seconds = time.monotonic() - started
                publish(place, self.write, self.description(data.digest, made, seconds))
                # Those of other data or settings too: their model is replaced.
                for old in place.glob(f"{_RUN}*"):
                    shutil.rmtree(old, ignore_errors=True)
            wait(self.model.device)
        return made

    def fit(self, rows: Dataset, saves: Saves | None = None) -> FitResult:
        """Train on a dataset and keep the best epoch; write nothing but the run's saves.

        Measures are of the held-out rows: "mae" and "mse", in steps and the square of them, of the "best_epoch" (from
        1); those of the best constants, "constant_mae" and "constant_mse"; and "cut", the number of all rows with too
        long a text.

        Raises:
            LearningError: as `train`.
        """
        trained, cut = self._examples(rows.train)
        held_out, cut_too = self._examples(rows.held_out)
        trainer = self._trainer(trained, held_out)
        steps = self.drive(trainer, self.on_step, saves)
        kept: Any = trainer.model
        self.model = kept
        epochs = [row for row in trainer.state.log_history if "eval_mse" in row]
        best = min(range(len(epochs)), key=lambda number: epochs[number]["eval_mse"])
        measures = {
            "mae": epochs[best]["eval_mae"],
            "mse": epochs[best]["eval_mse"],
            "best_epoch": best + 1,
            "cut": cut + cut_too,
            **constant_errors(rows),
        }
        return FitResult(len(trained), 0, steps, measures)

    def write(self, folder: Path) -> None:
        """Write the model, its tokenizer and the curve of its training into a folder.

        Raises:
            OSError, SafetensorError: the disk refused.
        """
        self.write_files(folder, self.model, self.tokenizer)

    def about(self) -> dict[str, Any]:
        """Return the length of a text, for `ProgressModel`."""
        return {"max_length": self.max_length}

    def _examples(self, rows: Sequence[Row]) -> tuple[list[dict[str, Any]], int]:
        texts, cut = ids_of(self.tokenizer, [row.step for row in rows], self.max_length)
        numbers = [row.steps_remaining for row in rows]
        return [{"input_ids": ids, "labels": number} for ids, number in zip(texts, numbers, strict=True)], cut

    def _trainer(self, train: list[dict[str, Any]], held_out: list[dict[str, Any]]) -> Trainer:
        with quiet_libraries():
            return Trainer(
                model=self.model,
                args=TrainingArguments(
                    **self.arguments(),
                    learning_rate=self.settings.learning_rate,
                    per_device_train_batch_size=self.settings.batch_size,
                    per_device_eval_batch_size=self.settings.batch_size,
                    num_train_epochs=self.settings.epochs,
                    weight_decay=0.01,
                    eval_strategy="epoch",
                    save_strategy="epoch",
                    load_best_model_at_end=True,
                    metric_for_best_model="mse",
                    # Without it transformers keeps the worst epoch.
                    greater_is_better=False,
                    remove_unused_columns=False,
                    seed=self.settings.seed,
                    bf16=computes_in_bfloat16(self.device),
                    # The loss is a mean; every process would count it again.
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
