"""Train one task: from one checkpoint's weights to the next one's, and after a kill from the last saved step.

Lightning drives: precision, accumulation, clipping, processes, validation, early stopping, checkpoints of steps. A
step's data and random numbers follow from its number (`batches`, `retriever`), so on a CPU an interrupted run ends with
exactly the weights of an uninterrupted one. Several processes share each step, and only dropout depends on their
number: a run may be continued by another number.

    <run>/steps/step=N.ckpt   the newest steps; gone with the run's folder when its checkpoint exists
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, EarlyStopping
from pytorch_lightning.loggers import Logger, TensorBoardLogger
from pytorch_lightning.strategies import DDPStrategy
from torch import Tensor, distributed

from pipeline.jobs import preemption
from pipeline.models.curve import LOSS, Curve
from pipeline.models.errors import ConfigError, EmptySplitError
from pipeline.models.libraries import check_finite, computes_in_bfloat16, device_of, diverged, quiet_libraries
from pipeline.models.ranks import any_of, world
from pipeline.models.retriever.batches import Example, RetrievalDataModule
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import has_adapter, train_adapter
from pipeline.models.retriever.index import hard_negatives
from pipeline.models.retriever.replay import ReplayRows
from pipeline.models.retriever.retriever import MEASURES, PremiseRetriever
from pipeline.models.retriever.saving import (
    BestWeights,
    StepCheckpoints,
    WholeFiles,
    newest_step,
)
from pipeline.models.retriever.strategies import Protection

OnStep = Callable[[int, int], object]


@dataclass(frozen=True, slots=True)
class Watchers:
    """A caller's loggers (TensorBoard, W&B, MLflow and so on) and callbacks of Lightning, for each run."""

    loggers: Sequence[Logger] = ()
    callbacks: Sequence[Callback] = ()


NO_WATCHERS = Watchers()


def tensorboard(folder: Path) -> Watchers:
    """Return watchers that write a run's losses and measures into a folder, as TensorBoard's files.

    Raises:
        ConfigError: TensorBoard is not installed.
    """
    # It loads the trainer of transformers, unused elsewhere here.
    from pipeline.models.running import trackers

    trackers("tensorboard")
    return Watchers((TensorBoardLogger(folder.parent, name="", version=folder.name),))


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The summary of a run: optimiser steps, seconds of this process, the device, warnings, the curve.

    `validation` are LeanDojo's measures of the kept epoch (empty for a single epoch, and without a val split).
    """

    steps: int
    seconds: float
    device: str
    validation: Mapping[str, float]
    warnings: Sequence[str]
    curve: Curve


def data_module(
    dataset: Path, config: RetrieverConfig, *, tokens_of: str | Path, learned: Path | None = None
) -> RetrievalDataModule:
    """Return the data module of an exported dataset's split, with a configuration's sizes.

    Args:
        dataset: the folder with corpus.jsonl and the split's folder.
        config: sizes, split, seed and loss.
        tokens_of: the folder or hub name of the model that will read it.
        learned: the folder of an earlier dataset of the same repository, not learned again.

    Raises:
        CorpusError, DatasetError, CheckpointError: something of it cannot be used.
    """
    return RetrievalDataModule(
        dataset / config.split,
        dataset / "corpus.jsonl",
        config.num_negatives,
        config.num_in_file_negatives,
        tokens_of,
        config.batch_size,
        config.eval_batch_size,
        config.data_max_seq_len,
        config.num_workers,
        config=config,
        learned=learned,
    )


def train_task(
    start: str | Path,
    data: RetrievalDataModule,
    config: RetrieverConfig,
    *,
    run: Path,
    rows: ReplayRows | None = None,
    indices: Path | None = None,
    on_step: OnStep = lambda _done, _total: None,
    on_held: OnStep = lambda _done, _total: None,
    watchers: Watchers = NO_WATCHERS,
) -> tuple[PremiseRetriever, RunSummary]:
    """Train a task and return the retriever, and the run's summary.

    Args:
        start: the folder or hub name of the weights to begin with.
        data: the task's.
        config: how.
        run: the run's own folder; an interrupted run of the same arguments in it is continued.
        rows: of earlier tasks, for replay and EWC.
        indices: the folder of embedding indices, for hard negatives; None: embeddings are not stored.
        on_step: takes (optimiser steps done, in all) after each.
        on_held: takes (groups done, in all) while EWC estimates.
        watchers: Lightning's loggers and callbacks.

    Raises:
        LearningError: the dataset or a checkpoint cannot be used, a loss was no finite number, or the disk is full.
        Yielded: the job was preempted, and its progress is saved in `run`.
    """
    started = time.monotonic()
    # A small task has fewer pairs than a step takes.
    pairs = sum(len(example.positives) for example in data.to_learn)
    data.batch_size = max(1, min(config.batch_size, pairs))
    # A task with fewer batches than it accumulates would never change a weight.
    data.accumulate = 1
    data.accumulate = min(config.accumulate_grad_batches, data.batches().steps_per_epoch)
    total = config.max_epochs * data.batches().steps_per_epoch // data.accumulate
    cuda = on_cuda(config)
    model = PremiseRetriever(
        start,
        config,
        total_steps=total,
        recompute=config.gradient_checkpointing == "on" or (config.gradient_checkpointing == "auto" and cuda),
    )
    model.to("cuda" if cuda else "cpu")
    # Look for none without a place for them.
    if min(config.num_hard_negatives, config.num_negatives - config.num_in_file_negatives) > 0:
        found, index = model.retriever, model.retriever.index(indices)
        data.hard = hard_negatives(found, data.corpus, data.to_learn, index)
        if rows is not None:
            rows.hard = [hard_negatives(found, corpus, examples, index) for corpus, examples in rows.steps()]
    if config.lora_by_repository or has_adapter(model.encoder):
        train_adapter(model.encoder, rank=config.lora_rank, seed=config.seed)
    model.protection = Protection(config, rows)

    def before_group(done: int, groups: int) -> None:
        if preemption.wanted() and world() == 1:
            # One of several would leave the others waiting: they end when the estimate does.
            raise preemption.Yielded("nothing is learned yet")
        on_held(done, groups)

    progress = _Progress(lambda done: on_step(done, total))
    best = _best(model, data, config)
    with preemption.region(any_of):
        model.protection.begin(
            model.encoder,
            data.tokens,
            lambda: data.batches(batch_size=1, multiple_of=1),
            model.losses,
            before_group,
        )
    data.replay = model.protection.replay
    # transformers loads models in evaluation mode, and Lightning keeps the mode: without this, no dropout.
    model.cpu().train()
    with preemption.region(any_of), quiet_libraries():
        trainer = _trainer(data, config, run, best=best, progress=progress, watchers=watchers)
        # A file of our own: optimiser states hold more than tensors.
        trainer.fit(model, datamodule=data, ckpt_path=newest_step(run / "steps"), weights_only=False)
    measured = {key: float(value) for key, value in trainer.callback_metrics.items()}
    if best is not None and best.weights:
        model.load_state_dict(best.weights)
        measured = best.measured
    check_finite(model)
    model.eval()
    # Lightning moves it back to the CPU.
    model.to("cuda" if cuda else "cpu")
    model.protection.after_task(model.encoder)
    return model, RunSummary(
        steps=trainer.global_step,
        seconds=time.monotonic() - started,
        device=str(trainer.strategy.root_device),
        validation={key: measured[key] for key in MEASURES if key in measured},
        warnings=model.protection.warnings,
        curve=progress.read(),
    )


def _best(model: PremiseRetriever, data: RetrievalDataModule, config: RetrieverConfig) -> BestWeights | None:
    """Return the keeper of the best epoch; None if nothing chooses one."""
    # A single epoch is kept whatever a validation says, and a validation embeds every premise.
    if config.max_epochs == 1 or not validation_examples(data):
        return None
    return BestWeights(
        monitor=_measure("checkpoint_monitor", config.checkpoint_monitor),
        highest=1.0 if config.checkpoint_monitor == "MRR" else 100.0,
        mode=config.checkpoint_mode,
        every_n_epochs=config.checkpoint_every_n_epochs,
        remembered=lambda: model.protection.remembered(model.encoder),
    )


def _trainer(
    data: RetrievalDataModule,
    config: RetrieverConfig,
    run: Path,
    *,
    best: BestWeights | None,
    progress: _Progress,
    watchers: Watchers,
) -> pl.Trainer:
    processes = _devices(config)
    callbacks: list[Callback] = [progress]
    if best is not None:
        callbacks += [
            EarlyStopping(
                _measure("early_stopping_monitor", config.early_stopping_monitor),
                patience=config.early_stopping_patience,
                mode=config.early_stopping_mode,
            ),
            best,
        ]
    callbacks += watchers.callbacks
    # The last one: it saves the other callbacks' state.
    callbacks.append(StepCheckpoints(run / "steps", every_s=60 * config.save_minutes))
    cuda = on_cuda(config)
    chosen = config.precision
    if chosen == "auto":
        chosen = "bf16-mixed" if computes_in_bfloat16(device_of(config.device)) else "32-true"
    return pl.Trainer(
        precision=chosen,
        plugins=[WholeFiles()],
        accelerator="cuda" if cuda else "cpu",
        devices=processes,
        strategy=DDPStrategy(timeout=timedelta(seconds=config.timeout_seconds)) if processes > 1 else "auto",
        max_epochs=config.max_epochs,
        limit_train_batches=data.batches().steps_per_epoch,
        limit_val_batches=0 if best is None else 1.0,
        accumulate_grad_batches=data.accumulate,
        gradient_clip_val=config.gradient_clip_val or None,
        reload_dataloaders_every_n_epochs=1,  # each begins at the trainer's step
        use_distributed_sampler=False,
        log_every_n_steps=config.log_every_n_steps,
        num_sanity_val_steps=config.num_sanity_val_steps,
        deterministic="warn" if cuda else True,
        callbacks=callbacks,
        logger=list(watchers.loggers) or False,
        enable_progress_bar=sys.stdout.isatty(),  # where Lightning draws it
        enable_model_summary=False,
        default_root_dir=run,
    )


_READ_EVERY = 50
"""Steps between two reads of the losses from the device, which stops it each time."""


class _Progress(Callback):
    """Reports each step, and keeps the run's curve, which is saved with the run; of several processes each its own."""

    def __init__(self, on_step: Callable[[int], object]) -> None:
        self._on_step = on_step
        self._step = 0
        self._losses: list[Tensor] = []
        self._unread: list[tuple[int, dict[str, float], Tensor]] = []
        self._curve = Curve()

    def read(self) -> Curve:
        """Return the curve up to the last step.

        Raises:
            DivergedError: a loss is no finite number.
        """
        unread, self._unread = self._unread, []
        losses = torch.stack([loss for *_, loss in unread]).tolist() if unread else []
        for (step, known, _), loss in zip(unread, losses, strict=True):
            if not math.isfinite(loss):
                raise diverged(f"the loss of step {step} is {loss}")
            self._curve.add(step, {LOSS: loss, **known})
        return self._curve

    def state_dict(self) -> dict[str, Any]:
        return {"curve": self.read().measured}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._curve = Curve(state_dict["curve"])

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        self._step = trainer.global_step

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any, **__: Any
    ) -> None:
        measured = trainer.callback_metrics
        self._losses.append(measured["loss_train"])
        if trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        loss = torch.stack(self._losses).double().mean()
        measures: dict[str, float] = pl_module.protection.elastic.measured  # type: ignore[union-attr,assignment]
        rate = float(trainer.optimizers[0].param_groups[0]["lr"])
        self._unread.append((self._step, {**measures, "learning_rate": rate}, loss))
        self._losses.clear()
        if len(self._unread) == _READ_EVERY:
            self.read()
        # After a preemption saving comes first: the reader of these lines may have exited.
        if not preemption.wanted():
            self._on_step(self._step)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        measured = trainer.callback_metrics
        if not trainer.sanity_checking:
            self.read().add(
                trainer.global_step, {name: float(measured[name]) for name in MEASURES if name in measured}
            )


def validation_examples(data: RetrievalDataModule) -> tuple[Example, ...]:
    """Return the val split's steps with a premise; none if the split is empty."""
    try:
        return data.examples("val")
    except EmptySplitError:
        return ()


def _measure(field: str, name: str) -> str:
    if name not in MEASURES:
        raise ConfigError(f"{field} is {name!r}: validation measures {', '.join(MEASURES)}")
    return name


def on_cuda(config: RetrieverConfig) -> bool:
    """Return whether a configuration computes on a GPU here.

    Raises:
        ConfigError: it names a GPU and none is here, or its precision needs one.
    """
    cuda = device_of(config.device).type == "cuda"
    if not cuda and config.precision == "16-mixed":
        raise ConfigError("precision is '16-mixed', which needs a GPU: take 'bf16-mixed' or '32-true'")
    return cuda


def _devices(config: RetrieverConfig) -> int:
    """Return the number of training processes: those running, else those Lightning shall start."""
    if distributed.is_initialized():
        return distributed.get_world_size()  # Lightning forgets WORLD_SIZE with each trainer
    return world() if world() > 1 or not on_cuda(config) else max(1, config.num_gpus)
