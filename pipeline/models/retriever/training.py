"""Train a retriever on one task: from one checkpoint's weights to the next one's.

A step's data follow from its number (`batches`). Several processes share each step, and only dropout depends on their
number: a run may be continued by another number.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import (
    EarlyStoppingCallback,
    Trainer,
    TrainingArguments,
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
)

from pipeline.jobs import preemption
from pipeline.models.libraries import computes_in_bfloat16, tensors_digest
from pipeline.models.measures import METRICS, RETRIEVED, rate
from pipeline.models.ranks import any_of, of_first, place, world
from pipeline.models.retriever.batches import Batch, Batches, Lesson, asked_of
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import (
    Encoder,
    has_adapter,
    load_encoder,
    load_tokens,
    save_encoder,
    train_adapter,
)
from pipeline.models.retriever.ewc import ElasticWeights, Part, estimated, parameters_of
from pipeline.models.retriever.index import Retriever
from pipeline.models.retriever.losses import row_losses
from pipeline.models.retriever.replay import batches_of, draw
from pipeline.models.running import NO_REPORTS, FitResult, OnStep, Reports, Saves, Training, mean_loss

_WARMUP_SHARE = 0.1
"""Of a run: a small task would never leave a longer warm-up."""
_MEASURED_EVERY = 10
"""Steps between two measurements of EWC, which cost some passes over the weights; the last step has one too."""
_LONG = 100
"""Steps of a run whose losses are read from the device, which stops it, with EWC's measures; of a shorter one after
each step.
"""
_BASE = "the model before this task"
"""The part of the past without rows, by its name in a warning: the model shows it on the new task's texts."""
_ASKED = 64
"""Rows of each earlier task in `remembered`, and their number at a time."""


class RetrieverTraining(Training[RetrieverConfig]):
    """A training of a retriever; its measure is "loss", the mean over the run.

    Attributes:
        encoder: the trained one.
    """

    libraries = ("torch", "transformers", "numpy")

    def __init__(
        self,
        config: RetrieverConfig,
        start: str | Path,
        reports: Reports = NO_REPORTS,
        *,
        rows: Mapping[str, Lesson] | None = None,
        on_held: OnStep = lambda _done, _total: None,
    ) -> None:
        """Args:
        config: how to train.
        start: the folder or hub name of the weights to begin with.
        reports: of the run.
        rows: of earlier tasks, by the task's name, for replay and EWC.
        on_held: takes (groups done, in all) while EWC estimates.

        Raises:
            ConfigError: there is no GPU. ModelError: the weights cannot be loaded.
        """
        super().__init__(config, reports)
        self._start, self._rows, self._on_held = start, rows or {}, on_held
        self.encoder, self._tokens = load_encoder(start), load_tokens(start)
        nn.Module.to(self.encoder, self.device)

    def fit(self, rows: Lesson, saves: Saves) -> FitResult:
        lesson, config, encoder = rows, self.config, self.encoder
        retriever = Retriever(encoder, self._tokens, config.document_length, config.data_max_seq_len)
        batches = Batches(lesson.corpus, lesson.train, self._tokens, config)
        past = batches_of(self._rows, self._tokens, config)
        if config.lora_by_repository or has_adapter(encoder):
            train_adapter(encoder, rank=config.lora_rank, seed=config.seed)
        kept = parameters_of(encoder) if "average" in config.ways else {}
        before = {name: value.cpu().clone() for name, value in kept.items()}
        elastic, warnings = self._elastic(batches, past)
        trainer = self._trainer(retriever, lesson, batches, elastic, past, saves)
        with _deterministic(self.device):
            steps = self.drive(trainer, saves)
        encoder.train(False)
        average(encoder, before, config.average_weight)
        measures = {"loss": mean_loss(trainer.state.log_history)}
        digest = tensors_digest(encoder.state_dict())
        return FitResult(len(batches.pairs), 0, steps, measures, warnings, {"digest": digest})

    def write(self, folder: Path) -> None:
        save_encoder(self.encoder, self._start, folder)
        self.curve.write(folder)

    def _elastic(
        self, batches: Batches, past: Mapping[str, Batches]
    ) -> tuple[ElasticWeights, tuple[str, ...]]:
        """Return the weights to hold, and warnings of parts of the past without any."""
        config = self.config
        if "ewc" not in config.ways or config.lambda_value == 0:
            return ElasticWeights({}, {}, share=0.0), ()

        def before_group(done: int, groups: int) -> None:
            if preemption.wanted() and world() == 1:
                # One of several would leave the others waiting: they end when the estimate does.
                raise preemption.Yielded("nothing is learned yet")
            self._on_held(done, groups)

        parts = [*(Part(name, made) for name, made in past.items()), Part(_BASE, batches, sampled=True)]
        losses = row_losses(config.loss, temperature=config.temperature)
        with preemption.region(any_of):
            fisher, warnings = estimated(self.encoder, parts, config, losses, before_group)
        return ElasticWeights(fisher, parameters_of(self.encoder), share=config.lambda_value), warnings

    def _trainer(
        self,
        retriever: Retriever,
        lesson: Lesson,
        batches: Batches,
        elastic: ElasticWeights,
        past: Mapping[str, Batches],
        saves: Saves,
    ) -> Trainer:
        config = self.config
        steps_per_epoch = batches.steps_per_epoch // batches.accumulate
        total = config.max_epochs * steps_per_epoch
        # A single epoch is kept whatever a validation says, and a validation embeds every premise.
        validates = config.max_epochs > 1 and bool(lesson.val)
        epochs: dict[str, Any] = {
            "eval_strategy": "steps",
            "eval_steps": steps_per_epoch,
            "save_strategy": "steps",
            "save_steps": steps_per_epoch,
            "load_best_model_at_end": True,
            "metric_for_best_model": "score",
            "greater_is_better": True,
            "restore_callback_states_from_checkpoint": True,
        }
        ours: dict[str, Any] = {
            # A row of the loader is a step's batch, and its number has the epoch.
            "num_train_epochs": 1,
            "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": batches.accumulate,
            "max_grad_norm": config.gradient_clip_val,
            "logging_steps": _MEASURED_EVERY if total >= _LONG else 1,
            # `mixed_precision` is our own.
            "bf16": False,
            "remove_unused_columns": False,
            **(epochs if validates else {"save_strategy": "no"}),
        }
        arguments = TrainingArguments(**{**self.arguments(saves), **ours})
        # PyTorch's DataParallel, on a machine with several GPUs, cannot divide a batch of ours.
        arguments._n_gpu = min(arguments.n_gpu, 1)
        optimizer = torch.optim.AdamW(self.encoder.parameters(), lr=config.lr)
        return _Trainer(
            _Loss(self.encoder, config),
            arguments,
            parts=Parts(batches, past, config),
            config=config,
            elastic=elastic,
            validate=partial(_validated, retriever, lesson, past, config),
            eval_dataset=lesson.val,
            optimizers=(optimizer, schedule_of(optimizer, config, total)),
            callbacks=[EarlyStoppingCallback(config.early_stopping_patience)] if validates else [],
        )


class _Trainer(Trainer):  # type: ignore[misc]
    """transformers' trainer with EWC, with batches of its own, and with the validation of an epoch."""

    control: Any

    def __init__(
        self,
        model: nn.Module,
        arguments: TrainingArguments,
        *,
        parts: Parts,
        config: RetrieverConfig,
        elastic: ElasticWeights,
        validate: Callable[[], tuple[dict[str, float], float]],
        **others: Any,
    ) -> None:
        super().__init__(model, arguments, train_dataset=parts, **others)
        self._config, self._elastic, self._validate = config, elastic, validate

    def get_train_dataloader(self) -> DataLoader[Batch]:
        return DataLoader(
            self.train_dataset,
            collate_fn=_alone,
            num_workers=self._config.num_workers,
            pin_memory=self.args.device.type == "cuda",
        )

    def training_step(self, model: nn.Module, inputs: dict[str, Any], items: Any = None) -> Tensor:
        loss: Tensor = super().training_step(model, inputs, items)
        if self.accelerator.sync_gradients:
            step = self.state.global_step + 1
            measured = step % _MEASURED_EVERY == 0 or step == self.state.max_steps
            full = self.lr_scheduler.get_last_lr()[0] / self._config.lr
            self._elastic.on_gradients(self.model.encoder, full, measured=measured)
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log({**logs, **self._elastic.measured} if "loss" in logs else logs, start_time)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        self.model.eval()
        measured, score = self._validate()
        self.log(measured)
        metrics = {"eval_score": score}
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    # The encoder's weights with an adapter's beside them, and the state of EWC: transformers knows neither.

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:  # noqa: ARG002
        assert output_dir is not None
        folder = Path(output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(self.model.state_dict(), folder / _WEIGHTS)
        (folder / _ELASTIC).write_text(json.dumps(self._elastic.progress()))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:  # noqa: ARG002
        folder = Path(resume_from_checkpoint)
        self.model.load_state_dict(torch.load(folder / _WEIGHTS, map_location="cpu"))
        self._elastic.resume(json.loads((folder / _ELASTIC).read_text()))

    def _load_best_model(self) -> None:
        self._load_from_checkpoint(self.state.best_model_checkpoint)


_WEIGHTS, _ELASTIC = "weights.pt", "elastic.json"


def _alone(rows: Sequence[Batch]) -> dict[str, Batch]:
    """Return the loader's only row: the forward pass's argument."""
    (batch,) = rows
    return {"batch": batch}


class Parts(Dataset[Batch]):
    """One process's batches of a run by number, each with its replayed rows. A loader's processes make them."""

    def __init__(self, batches: Batches, past: Mapping[str, Batches], config: RetrieverConfig) -> None:
        self._batches, self._past, self._config = batches, past, config
        self._replays = bool(past) and "replay" in config.ways and config.replay_share > 0
        self._rank, self._world = place()

    def __len__(self) -> int:
        return self._config.max_epochs * self._batches.steps_per_epoch

    def __getitem__(self, number: int) -> Batch:
        batch = self._batches.at(number, rank=self._rank, world=self._world)
        if not self._replays:
            return batch
        replayed = draw(self._past, self._config, number, rank=self._rank, world=self._world)
        return replace(batch, replayed=replayed)


class _Loss(nn.Module):
    """The mean loss of a batch's rows, with that of its replayed ones."""

    def __init__(self, encoder: Encoder, config: RetrieverConfig) -> None:
        super().__init__()
        self.encoder = encoder
        self._config = config
        self._losses = row_losses(config.loss, temperature=config.temperature)
        auto = config.gradient_checkpointing == "auto" and encoder.device.type == "cuda"
        self._recompute = auto or config.gradient_checkpointing == "on"

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        device = self.encoder.device
        batch = batch.to(device, non_blocking=True)
        with mixed_precision(self._config, device):
            loss = self._mean(batch)
            if batch.replayed is not None:
                loss = torch.lerp(loss, self._mean(batch.replayed), self._config.replay_share)
        return {"loss": loss}

    def _mean(self, batch: Batch) -> Tensor:
        scores = batch.cosines(self.encoder, recompute=self._recompute)
        return self._losses(scores, batch.label, batch.ignore).mean() * batch.scale


def _validated(
    retriever: Retriever, lesson: Lesson, past: Mapping[str, Batches], config: RetrieverConfig
) -> tuple[dict[str, float], float]:
    """Return an epoch's measures, and its score.

    The memory of earlier tasks counts as much as the result on the new one: else the most forgetful epoch would win.
    """
    measured = validate(retriever, lesson)
    score = measured["Recall@10_val"] / 100 + (remembered(retriever.encoder, past, config) or 0.0)
    # Two kinds of GPU may round them differently, and all processes have to keep the same epoch.
    return of_first((measured, score))


@torch.no_grad()
def remembered(encoder: Encoder, past: Mapping[str, Batches], config: RetrieverConfig) -> float | None:
    """Return the share of rows of earlier tasks with a premise of theirs first among those beside it.

    Each task counts alike; None without any.
    """
    result = []
    for batches in past.values():
        rows = np.arange(min(_ASKED, len(batches.pairs)))
        batch = batches.of(rows, np.random.default_rng(config.seed)).to(encoder.device)
        best = batch.cosines(encoder).masked_fill(batch.ignore, -torch.inf).argmax(dim=1, keepdim=True)
        result.append(float(batch.label.gather(1, best).mean()))
    return statistics.fmean(result) if result else None


@torch.no_grad()
def average(encoder: Encoder, before: Mapping[str, Tensor], share: float) -> None:
    """Average an encoder's weights with those before a task: (1 - share) * before + share * after, weight by weight.

    The cheap rival of a penalty: WiSE-FT (Wortsman et al. 2021, arXiv:2109.01903), used by Goedel-Prover-V2 (Lin et al.
    2025, arXiv:2508.03613) between its base model and its trained one. Along a chain each task begins at the average
    before it, so a task k tasks back has a share of share * (1 - share)^k in the weights. A share of 0 is the weights
    before bit for bit, 1 those after. Weights without any in `before` stay.
    """
    for name, weight in encoder.named_parameters():
        if name in before:
            weight.copy_(torch.lerp(before[name].to(weight.device), weight, share))


def schedule_of(
    optimizer: torch.optim.Optimizer, config: RetrieverConfig, total: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """Return the schedule of the learning rate over a run of `total` steps."""
    # Rounded down: the first step of a warm-up changes no weight, and a tiny task may have only one step.
    warmup = min(config.warmup_steps, int(total * _WARMUP_SHARE))
    schedule: torch.optim.lr_scheduler.LambdaLR = (
        get_cosine_schedule_with_warmup(optimizer, warmup, total)
        if config.schedule == "cosine"
        else get_constant_schedule_with_warmup(optimizer, warmup)
    )
    return schedule


def validate(retriever: Retriever, lesson: Lesson) -> dict[str, float]:
    """Return the measures of the val split by LeanDojo's names: recalls in percent, MRR in 0..1.

    Raises:
        DivergedError: the encoder's weights are no finite numbers.
    """
    vectors = retriever.premises(lesson.corpus)
    rankings = retriever.rank(vectors, asked_of(lesson.val, lesson.corpus), RETRIEVED)
    rated = [rate(example.positives, ranked) for example, ranked in zip(lesson.val, rankings, strict=True)]
    mean = dict(zip(METRICS, np.mean(rated, axis=0).tolist(), strict=True))
    return {
        "Recall@1_val": 100 * mean["recall@1"],
        "Recall@10_val": 100 * mean["recall@10"],
        "MRR": mean["mrr"],
    }


def mixed_precision(config: RetrieverConfig, device: torch.device) -> torch.autocast:
    """Return the context in which matrix products are in bfloat16, if the configuration has it."""
    bfloat16 = config.precision == "bf16-mixed" or (
        config.precision == "auto" and computes_in_bfloat16(device)
    )
    # A kept copy of a weight would add up the gradients of a step's many passes in its own few digits.
    return torch.autocast(device.type, torch.bfloat16, enabled=bfloat16, cache_enabled=False)


@contextmanager
def _deterministic(device: torch.device) -> Iterator[None]:
    """Take PyTorch's deterministic algorithms; on a GPU where there is one."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.get_deterministic_debug_mode()
    torch.use_deterministic_algorithms(True, warn_only=device.type == "cuda")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)
