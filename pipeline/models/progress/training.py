"""Train a progress model with transformers' Trainer: a regression head on any text model, on steps of whole proofs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

from pipeline.models.config import ProgressConfig
from pipeline.models.libraries import quiet_libraries
from pipeline.models.progress.model import load_model, step_ids
from pipeline.models.progress.steps import Dataset, Row
from pipeline.models.running import NO_REPORTS, FitResult, Reports, Saves, Training


class ProgressTraining(Training[ProgressConfig]):
    """A training of a progress model; the epoch with the least squared error on the held-out proofs is kept.

    Its measures are this error, "mse", and that of the training rows' mean, "constant_mse": a model must beat it to
    have learned anything.
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
            self.tokenizer, self.model = load_model(start, new_head=True, longest=config.max_seq_len)

    def fit(self, rows: Dataset, saves: Saves) -> FitResult:
        with quiet_libraries():
            trainer = Trainer(
                model=self.model,
                args=TrainingArguments(
                    **self.arguments(saves),
                    num_train_epochs=self.config.epochs,
                    weight_decay=0.01,
                    eval_strategy="epoch",
                    save_strategy="epoch",
                    load_best_model_at_end=True,
                    # The loss is a mean; every process would count it again.
                    average_tokens_across_devices=False,
                ),
                # It pads the rows of a batch.
                processing_class=self.tokenizer,
                train_dataset=self._examples(rows.train),
                eval_dataset=self._examples(rows.held_out),
            )
        steps = self.drive(trainer, saves)
        self.model = trainer.model
        mean = statistics.fmean(row.steps_remaining for row in rows.train)
        error = float(trainer.state.best_metric)
        constant = statistics.fmean((row.steps_remaining - mean) ** 2 for row in rows.held_out)
        warnings: tuple[str, ...] = ()
        if error >= constant:
            text = (
                f"on the proofs held out its squared error is {error:.3g}, and that of the best constant "
                f"{constant:.3g}: it has learned nothing that a search could use"
            )
            warnings = (text,)
        return FitResult(len(rows.train), 0, steps, {"mse": error, "constant_mse": constant}, warnings)

    def _examples(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        return [
            {"input_ids": step_ids(row.step, self.tokenizer), "labels": row.steps_remaining} for row in rows
        ]
