"""Train a progress model with transformers' Trainer: a regression head on any text model, on steps of whole proofs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import EvalPrediction, Trainer, TrainingArguments

from pipeline.models.config import ProgressConfig
from pipeline.models.libraries import quiet_libraries
from pipeline.models.progress.model import batch_of, ids_of, load_model, text_length
from pipeline.models.progress.steps import Dataset, Row
from pipeline.models.ranks import world
from pipeline.models.running import NO_REPORTS, FitResult, Reports, Saves, Training


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


class ProgressTraining(Training[ProgressConfig]):
    """A training of a progress model; the epoch with the least squared error on the held-out proofs is kept.

    Its measures are of the held-out rows: "mae" and "mse", in steps and the square of them, of the "best_epoch" (from
    1); those of the best constants, "constant_mae" and "constant_mse"; and "cut", the number of all rows with too
    long a text.
    """

    libraries = ("torch", "transformers", "accelerate")

    def __init__(self, config: ProgressConfig, start: str, reports: Reports = NO_REPORTS) -> None:
        """Args:
        config: how to train.
        start: the model's folder or hub name; one without a head for a number gets a new one.
        reports: of the run.

        Raises:
            ConfigError: there is no GPU. ModelError: the model cannot be loaded.
        """
        super().__init__(config, reports)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.tokenizer, self.model = load_model(start, new_head=True)
        self.max_length = text_length(self.tokenizer, self.model, config.max_seq_len)

    def fit(self, rows: Dataset, saves: Saves) -> FitResult:
        trained, cut = self._examples(rows.train)
        held_out, cut_too = self._examples(rows.held_out)
        trainer = self._trainer(trained, held_out, saves)
        steps = self.drive(trainer, saves)
        self.model = trainer.model
        epochs = [row for row in trainer.state.log_history if "eval_mse" in row]
        best = min(range(len(epochs)), key=lambda number: epochs[number]["eval_mse"])
        measures = {
            "mae": epochs[best]["eval_mae"],
            "mse": epochs[best]["eval_mse"],
            "best_epoch": best + 1,
            "cut": cut + cut_too,
            **constant_errors(rows),
        }
        warnings: tuple[str, ...] = ()
        if measures["mse"] >= measures["constant_mse"]:
            text = (
                f"on the proofs held out its squared error is {measures['mse']:.3g}, and that of the best constant "
                f"{measures['constant_mse']:.3g}: it has learned nothing that a search could use"
            )
            warnings = (text,)
        # The length of a text is for `ProgressModel`.
        return FitResult(len(trained), 0, steps, measures, warnings, {"max_length": self.max_length})

    def _examples(self, rows: Sequence[Row]) -> tuple[list[dict[str, Any]], int]:
        texts, cut = ids_of(self.tokenizer, [row.step for row in rows], self.max_length)
        numbers = [row.steps_remaining for row in rows]
        return [{"input_ids": ids, "labels": number} for ids, number in zip(texts, numbers, strict=True)], cut

    def _trainer(self, train: list[dict[str, Any]], held_out: list[dict[str, Any]], saves: Saves) -> Trainer:
        with quiet_libraries():
            return Trainer(
                model=self.model,
                args=TrainingArguments(
                    **self.arguments(saves),
                    per_device_eval_batch_size=self.config.batch_size // world(),
                    weight_decay=0.01,
                    eval_strategy="epoch",
                    save_strategy="epoch",
                    load_best_model_at_end=True,
                    metric_for_best_model="mse",
                    # Without it transformers keeps the worst epoch.
                    greater_is_better=False,
                    remove_unused_columns=False,
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
