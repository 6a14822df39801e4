"""Train one task: from one checkpoint's weights to the next one's, and after a kill from the last saved step.

A step's data and random numbers follow from its number (`batches`), so on a CPU an interrupted run ends with exactly
the weights of an uninterrupted one. Several processes share each step, and only dropout depends on their number: a run
may be continued by another number.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric.loggers.logger import Logger
from lightning_fabric.loggers.tensorboard import TensorBoardLogger
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm
from transformers import get_constant_schedule_with_warmup, get_cosine_schedule_with_warmup

from pipeline.jobs import preemption
from pipeline.models.curve import LOSS, Curve
from pipeline.models.errors import ConfigError
from pipeline.models.libraries import (
    check_finite,
    computes_in_bfloat16,
    device_of,
    diverged,
    quiet_libraries,
)
from pipeline.models.measures import METRICS, rate
from pipeline.models.ranks import any_of, is_first, of_first, place, world
from pipeline.models.retriever.batches import Batch, Batches, Lesson, asked_of
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import (
    Encoder,
    has_adapter,
    load_encoder,
    load_tokens,
    train_adapter,
)
from pipeline.models.retriever.ewc import ElasticWeights, Part, estimated, parameters_of
from pipeline.models.retriever.index import Retriever
from pipeline.models.retriever.losses import row_losses
from pipeline.models.retriever.replay import Draw, ReplayRows
from pipeline.models.retriever.saving import SavedSteps

OnStep = Callable[[int, int], object]
_WARMUP_SHARE = 0.1
"""Of a run: a small task would never leave a longer warm-up."""
_EWC_EVERY = 10
"""Steps between two measurements of EWC, which cost some passes over the weights; the last step has one too."""
_READ_EVERY = 50
"""Steps between two reads of the losses from the device, which stops it each time."""
_BASE = "the model before this task"
"""The part of the past without rows, by its name in a warning: the model shows it on the new task's texts."""
_ASKED = 64
"""Rows of each earlier task in `remembered`, and their number at a time."""
_DROPOUT = 0x0D0F
"""Separates the random numbers of dropout from those of the batches."""


def tensorboard(folder: Path) -> Logger:
    """Return a logger that writes a run's curve into a folder, as TensorBoard's files.

    Raises:
        ConfigError: TensorBoard is not installed.
    """
    # It loads the trainer of transformers, unused elsewhere here.
    from pipeline.models.running import trackers

    trackers("tensorboard")
    return TensorBoardLogger(folder.parent, name="", version=folder.name)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The summary of a run: optimiser steps, seconds of this process, the device, warnings, the curve."""

    steps: int
    seconds: float
    device: str
    warnings: Sequence[str]
    curve: Curve


def train_task(
    start: str | Path,
    lesson: Lesson,
    config: RetrieverConfig,
    *,
    run: Path,
    rows: ReplayRows | None = None,
    on_step: OnStep = lambda _done, _total: None,
    on_held: OnStep = lambda _done, _total: None,
    loggers: Sequence[Logger] = (),
) -> tuple[Encoder, RunSummary]:
    """Train a task and return the encoder, and the run's summary.

    Args:
        start: the folder or hub name of the weights to begin with.
        lesson: the task's.
        config: how.
        run: the run's own folder; an interrupted run of the same arguments in it is continued.
        rows: of earlier tasks, for replay and EWC.
        on_step: takes (optimiser steps done, in all) after each.
        on_held: takes (groups done, in all) while EWC estimates.
        loggers: Lightning's, which are given the run's curve.

    Raises:
        LearningError: the dataset or a checkpoint cannot be used, a loss was no finite number, or the disk is full.
        Yielded: the job was preempted, and its progress is saved in `run`.
    """
    started = time.monotonic()
    device = _device(config)
    encoder, tokens = load_encoder(start), load_tokens(start)
    nn.Module.to(encoder, device)
    retriever = Retriever(encoder, tokens, config.document_length, config.data_max_seq_len)
    batches = Batches(lesson.corpus, lesson.train, tokens, config)
    past = {} if rows is None else rows.batches(tokens, config)
    if config.lora_by_repository or has_adapter(encoder):
        train_adapter(encoder, rank=config.lora_rank, seed=config.seed)
    losses = row_losses(config.loss, temperature=config.temperature)
    kept = parameters_of(encoder) if "average" in config.ways else {}
    before = {name: value.cpu().clone() for name, value in kept.items()}

    def before_group(done: int, groups: int) -> None:
        if preemption.wanted() and world() == 1:
            # One of several would leave the others waiting: they end when the estimate does.
            raise preemption.Yielded("nothing is learned yet")
        on_held(done, groups)

    elastic, warnings = ElasticWeights({}, {}, share=0.0), tuple[str, ...]()
    if "ewc" in config.ways and config.lambda_value > 0:
        parts = [*(Part(name, made) for name, made in past.items()), Part(_BASE, batches, sampled=True)]
        with preemption.region(any_of):
            fisher, warnings = estimated(encoder, parts, config, losses, before_group)
        elastic = ElasticWeights(fisher, parameters_of(encoder), share=config.lambda_value)
    replays = rows is not None and "replay" in config.ways and config.replay_share > 0
    training = _Training(
        retriever,
        lesson,
        batches,
        config,
        elastic=elastic,
        past=past,
        replay=partial(rows.draw, past, config) if rows and replays else None,
        loggers=loggers,
    )
    status = "failed"
    try:
        with preemption.region(any_of), quiet_libraries(), _deterministic(device):
            training.run(run / "steps", on_step)
        status = "success"
    finally:
        # Those with a buffer write it now: a preempted run goes on without the steps before it.
        for logger in loggers:
            logger.finalize(status)
    check_finite(encoder)
    encoder.train(False)
    average(encoder, before, config.average_weight)
    seconds = time.monotonic() - started
    return encoder, RunSummary(training.step, seconds, str(device), warnings, training.curve)


class _Training:
    """A run: its state at a step, which is saved, and its way to the next one."""

    def __init__(
        self,
        retriever: Retriever,
        lesson: Lesson,
        batches: Batches,
        config: RetrieverConfig,
        *,
        elastic: ElasticWeights,
        past: Mapping[str, Batches],
        replay: Draw | None,
        loggers: Sequence[Logger],
    ) -> None:
        self.step = 0
        """Of the optimiser."""
        self.curve = Curve()
        self._unread: list[tuple[int, dict[str, float], Tensor]] = []
        self._best: dict[str, Any] = {"score": -math.inf, "waited": 0, "weights": {}}
        self._retriever, self._lesson, self._batches = retriever, lesson, batches
        self._elastic, self._past, self._replay = elastic, past, replay
        self._config, self._loggers = config, loggers
        self._steps_per_epoch = batches.steps_per_epoch // batches.accumulate
        self._total = config.max_epochs * self._steps_per_epoch
        encoder = self._encoder = retriever.encoder
        self._optimizer = torch.optim.AdamW(encoder.parameters(), lr=config.lr)
        self._schedule = schedule_of(self._optimizer, config, self._total)
        self._scaler = torch.amp.GradScaler(encoder.device.type, enabled=config.precision == "16-mixed")
        self._loss: nn.Module = _Loss(encoder, config)
        self._rank, world = place()
        if world > 1:
            self._loss = DistributedDataParallel(self._loss)

    def run(self, folder: Path, on_step: OnStep) -> None:
        """Go on from the newest step saved in a folder to the end.

        Args:
            folder: of the saved steps.
            on_step: takes (optimiser steps done, in all) after each.

        Raises:
            DivergedError: a loss or a saved weight is no finite number.
            CheckpointError: the disk is full.
            Yielded: the job was preempted, and the last step is saved.
        """
        with ThreadPoolExecutor(1, "saving") as thread:
            saved = SavedSteps(folder, thread)
            state = saved.newest()
            if state is not None:
                self._resume(state)
            self._encoder.train()
            begun, many = self.step, self._batches.accumulate
            loader = DataLoader(
                Parts(self._batches, self._replay),
                batch_size=None,
                sampler=range(begun * many, self._total * many),
                num_workers=self._config.num_workers,
                pin_memory=self._encoder.device.type == "cuda",
            )
            parts = iter(loader)
            interval_s = 60 * self._config.save_minutes
            next_save = time.monotonic() + interval_s
            steps = range(begun + 1, self._total + 1)
            for self.step in tqdm(steps, initial=begun, file=sys.stdout, disable=not sys.stdout.isatty()):
                self._learn(parts)
                if not preemption.wanted():
                    # After a preemption saving comes first: the reader of these lines may have exited.
                    on_step(self.step, self._total)
                if self.step % self._steps_per_epoch == 0:
                    self._end_epoch()
                if self._best["waited"] >= self._config.early_stopping_patience:
                    break
                due = preemption.wanted() or time.monotonic() >= next_save
                if self.step < self._total and any_of(due):
                    self._save(saved)
                    next_save = time.monotonic() + interval_s
            saved.wait()
        self._read()
        if self._best["weights"]:
            self._encoder.load_state_dict(self._best["weights"])

    def _save(self, saved: SavedSteps) -> None:
        check_finite(self._encoder)
        self._read()
        if is_first():
            saved.save(self.step, self._state())
        if any_of(preemption.wanted()):
            saved.wait()
            raise preemption.Yielded(f"step {self.step} is saved")

    def _learn(self, parts: Iterator[Batch]) -> None:
        """Do the step of the optimiser with the present number."""
        device, many = self._encoder.device, self._batches.accumulate
        losses = []
        for number in range(many):
            # The generator's state is not saved: its seed follows from the step.
            part = (self.step - 1) * many + number
            entropy = np.random.SeedSequence([self._config.seed, _DROPOUT, part, self._rank])
            torch.manual_seed(int(entropy.generate_state(1)[0]))
            batch = next(parts).to(device, non_blocking=True)
            together = isinstance(self._loss, DistributedDataParallel)
            # The processes add up their gradients once.
            with self._loss.no_sync() if together and number + 1 < many else nullcontext():  # type: ignore[operator]
                with mixed_precision(self._config, device):
                    loss = self._loss(batch)
                self._scaler.scale(loss / many).backward()
            losses.append(loss.detach())
        self._scaler.unscale_(self._optimizer)
        rate_now = float(self._schedule.get_last_lr()[0])
        measured = self.step % _EWC_EVERY == 0 or self.step == self._total
        self._elastic.on_gradients(self._encoder, rate_now / self._config.lr, measured=measured)
        if self._config.gradient_clip_val:
            nn.utils.clip_grad_norm_(self._encoder.parameters(), self._config.gradient_clip_val)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._schedule.step()
        self._optimizer.zero_grad()
        known = {**self._elastic.measured, "learning_rate": rate_now}
        self._unread.append((self.step, known, torch.stack(losses).double().mean()))
        if len(self._unread) == _READ_EVERY:
            self._read()

    def _read(self) -> None:
        """Complete the curve.

        Raises:
            DivergedError: a loss is no finite number.
        """
        unread, self._unread = self._unread, []
        if not unread:
            return
        losses = torch.stack([loss for *_, loss in unread])
        if place()[1] > 1:
            distributed.all_reduce(losses, op=distributed.ReduceOp.SUM)
            losses /= place()[1]
        for (step, known, _), loss in zip(unread, losses.tolist(), strict=True):
            if not math.isfinite(loss):
                raise diverged(f"the loss of step {step} is {loss}")
            self._note(step, {LOSS: loss, **known})

    def _note(self, step: int, measured: Mapping[str, float]) -> None:
        self.curve.add(step, measured)
        for logger in self._loggers if is_first() else ():
            logger.log_metrics(dict(measured), step)

    def _end_epoch(self) -> None:
        """Keep the weights if the validation likes them best.

        The memory of earlier tasks counts as much as the result on the new one: else the most forgetful epoch would
        win.
        """
        # A single epoch is kept whatever a validation says, and a validation embeds every premise.
        if self._config.max_epochs == 1 or not self._lesson.val:
            return
        self._encoder.eval()
        measured = validate(self._retriever, self._lesson, retrieved=self._config.num_retrieved)
        score = measured["Recall@10_val"] / 100 + (remembered(self._encoder, self._past, self._config) or 0.0)
        self._encoder.train()
        # Two kinds of GPU may round them differently, and all processes have to keep the same epoch.
        measured, score = of_first((measured, score))
        self._read()
        self._note(self.step, measured)
        if score > self._best["score"]:
            weights = {name: value.cpu().clone() for name, value in self._encoder.state_dict().items()}
            self._best = {"score": score, "waited": 0, "weights": weights}
        else:
            self._best["waited"] += 1

    def _state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "weights": self._encoder.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "schedule": self._schedule.state_dict(),
            "scaler": self._scaler.state_dict(),
            "elastic": self._elastic.progress(),
            "best": self._best,
            "curve": self.curve.measured,
        }

    def _resume(self, state: dict[str, Any]) -> None:
        self.step, self._best, self.curve = state["step"], state["best"], Curve(state["curve"])
        self._encoder.load_state_dict(state["weights"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._schedule.load_state_dict(state["schedule"])
        self._scaler.load_state_dict(state["scaler"])
        self._elastic.resume(state["elastic"])


class Parts(Dataset[Batch]):
    """One process's batches by number, each with its replayed rows. A loader's processes make them."""

    def __init__(self, batches: Batches, replay: Draw | None) -> None:
        self._batches, self._replay = batches, replay
        self._rank, self._world = place()

    def __getitem__(self, number: int) -> Batch:
        batch = self._batches.at(number, rank=self._rank, world=self._world)
        if self._replay is None:
            return batch
        return replace(batch, replayed=self._replay(number, rank=self._rank, world=self._world))


class _Loss(nn.Module):
    """The mean loss of a batch's rows, with that of its replayed ones."""

    def __init__(self, encoder: Encoder, config: RetrieverConfig) -> None:
        super().__init__()
        self.encoder = encoder
        self._losses = row_losses(config.loss, temperature=config.temperature)
        self._replay_share = config.replay_share
        auto = config.gradient_checkpointing == "auto" and encoder.device.type == "cuda"
        self._recompute = auto or config.gradient_checkpointing == "on"

    def forward(self, batch: Batch) -> Tensor:
        loss = self._mean(batch)
        return (
            loss
            if batch.replayed is None
            else torch.lerp(loss, self._mean(batch.replayed), self._replay_share)
        )

    def _mean(self, batch: Batch) -> Tensor:
        scores = batch.cosines(self.encoder, recompute=self._recompute)
        return self._losses(scores, batch.label, batch.ignore).mean() * batch.scale


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


def validate(retriever: Retriever, lesson: Lesson, *, retrieved: int) -> dict[str, float]:
    """Return the measures of the val split by LeanDojo's names: recalls in percent, MRR in 0..1.

    `retrieved`: the length of a ranking.

    Raises:
        DivergedError: the encoder's weights are no finite numbers.
    """
    vectors, _ = retriever.premises(lesson.corpus)
    rankings = retriever.rank(vectors, asked_of(lesson.val, lesson.corpus), retrieved)
    rated = [rate(example.positives, ranked) for example, ranked in zip(lesson.val, rankings, strict=True)]
    mean = dict(zip(METRICS, np.mean(rated, axis=0).tolist(), strict=True))
    return {
        "Recall@1_val": 100 * mean["recall@1"],
        "Recall@10_val": 100 * mean["recall@10"],
        "MRR": mean["mrr"],
    }


def _device(config: RetrieverConfig) -> torch.device:
    device = device_of(config.device)
    if device.type != "cuda" and config.precision == "16-mixed":
        raise ConfigError("precision is '16-mixed', which needs a GPU: take 'bf16-mixed' or '32-true'")
    return device


def mixed_precision(config: RetrieverConfig, device: torch.device) -> torch.autocast:
    """Return the context in which matrix products are in the configuration's type beside float32, if it has one."""
    bfloat16 = config.precision == "bf16-mixed" or (
        config.precision == "auto" and computes_in_bfloat16(device)
    )
    dtype = torch.bfloat16 if bfloat16 else torch.float16
    # A kept copy of a weight would add up the gradients of a step's many passes in its own few digits.
    mixed = bfloat16 or config.precision == "16-mixed"
    return torch.autocast(device.type, dtype, enabled=mixed, cache_enabled=False)


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
