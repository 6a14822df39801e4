"""Train one task: from one checkpoint's weights to the next one's, and after a kill from the last step that was saved.

Lightning drives: precision, accumulation, clipping, processes, validation, early stopping, checkpoints of steps. A
step's data and random numbers follow from its number (`batches`, `retriever`), so on a CPU an interrupted run ends with
exactly the weights of an uninterrupted one. Several processes share each step, and only dropout depends on how many
they are: a run may be continued by another number.

    <run>/steps/step=N.ckpt   the newest steps; gone when training is done
    <run>/epochs/epoch=N.pt   the best epoch's weights, where there is more than one epoch
    <run>/hard_negatives.pt   of the steps to learn and to replay, as the weights at the run's beginning found them
    <run>/trained.pt          the trained weights, so that the later steps (average, checkpoint) can be repeated
"""

from __future__ import annotations

import errno
import math
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, EarlyStopping
from pytorch_lightning.loggers import Logger, TensorBoardLogger
from pytorch_lightning.plugins import DoublePrecision, HalfPrecision, Precision
from pytorch_lightning.strategies import DDPStrategy
from torch import Tensor, distributed

from pipeline.jobs import preemption
from pipeline.models.curve import LOSS, Curve
from pipeline.models.errors import CheckpointError, ConfigError, DivergedError, EmptySplitError
from pipeline.models.libraries import computes_in_bfloat16, device_of, quiet_libraries
from pipeline.models.ranks import any_of, is_first, world
from pipeline.models.retriever.batches import Example, RetrievalDataModule
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.index import EmbeddingIndex, hard_negatives
from pipeline.models.retriever.losses import row_losses
from pipeline.models.retriever.replay import ReplayRows
from pipeline.models.retriever.retriever import MEASURES, PremiseRetriever
from pipeline.models.retriever.saving import (
    UNREADABLE,
    BestWeights,
    StepCheckpoints,
    WholeFiles,
    check_finite,
    check_whole,
    newest_step,
    save_whole,
)
from pipeline.models.retriever.strategies import Protection

OnStep = Callable[[int, int], object]
_MADE = "trained.pt"
_HARD = "hard_negatives.pt"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True, slots=True)
class Watchers:
    """Lightning's loggers (TensorBoard, W&B, MLflow and so on) and callbacks of a caller, told of each run."""

    loggers: Sequence[Logger] = ()
    callbacks: Sequence[Callback] = ()


NO_WATCHERS = Watchers()


def tensorboard(folder: Path) -> Watchers:
    """Return what writes a run's losses and measures into a folder, as TensorBoard's files.

    Raises:
        ConfigError: TensorBoard is not installed.
    """
    # It loads the trainer of transformers, which nothing else here needs.
    from pipeline.models.running import trackers

    trackers("tensorboard")
    return Watchers((TensorBoardLogger(folder.parent, name="", version=folder.name),))


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The summary of a run: optimiser steps, seconds of this process, the device, LeanDojo's validation measures of the
    kept epoch (empty for a single epoch, and without a val split), warnings, and what was measured on the way."""

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
        learned: the folder of an earlier dataset of the same repository, which is not learned again.

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
        seed=config.seed,
        loss=config.loss,
        document_length=config.document_length,
        learned=learned,
        # None are looked for where there is no place for them.
        num_hard_negatives=min(
            config.num_hard_negatives, config.num_negatives - config.num_in_file_negatives
        ),
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
        indices: the folder of embedding indices, where hard negatives are looked for; None: embeddings are not stored.
        on_step: takes (optimiser steps done, in all) after each.
        on_held: takes (groups done, in all) while EWC estimates what is to be held.
        watchers: Lightning's loggers and callbacks.

    Raises:
        LearningError: the dataset or a checkpoint cannot be used, a loss was no finite number, or the disk is full.
        Yielded: the job was preempted, and its progress is saved in `run`.
    """
    started = time.monotonic()
    # A small task has fewer pairs than a step takes.
    pairs = sum(len(example.positives) for example in data.to_learn)
    data.batch_size = max(1, min(config.batch_size, pairs))
    # A task with fewer batches than are accumulated would never change a weight.
    data.accumulate = 1
    data.accumulate = min(config.accumulate_grad_batches, data.batches().steps_per_epoch)
    total = config.max_epochs * data.batches().steps_per_epoch // data.accumulate
    losses = row_losses(config.loss, temperature=config.temperature)
    protection = Protection(config, rows)
    model = PremiseRetriever(
        start,
        config.lr,
        config.warmup_steps,
        data.document_length,
        config.num_retrieved,
        losses=losses,
        schedule=config.schedule,
        seed=config.seed,
        replay_share=config.replay_share if "replay" in config.ways else 0.0,
        recompute=config.gradient_checkpointing == "on"
        or (config.gradient_checkpointing == "auto" and on_cuda(config)),
        query_length=data.max_seq_len,
        total_steps=total,
    )
    if data.num_hard_negatives:
        _set_hard_negatives(model, data, rows, config, run, indices)
    protection.before_task(model.encoder, data.tokens)
    model.protection = protection
    made = _read_trained(run)
    if made is None:
        model.to("cuda" if on_cuda(config) else "cpu")

        def before_group(done: int, groups: int) -> None:
            if preemption.wanted() and world() == 1:
                # One of several would leave the others waiting: they end when the estimate does.
                raise preemption.Yielded("nothing is learned yet")
            on_held(done, groups)

        with preemption.region(any_of):
            protection.hold(
                model.encoder, lambda: data.batches(batch_size=1, multiple_of=1), losses, before_group
            )
        model.to("cpu")
        # transformers loads models in evaluation mode, and Lightning keeps the mode: without this, no dropout.
        model.train()
        with preemption.region(any_of):
            made = _fit(model, data, config, run, lambda done: on_step(done, total), watchers)
    else:
        model.load_state_dict(made.pop("weights"))
    model.eval()
    # Lightning moves it back to the CPU.
    model.to("cuda" if on_cuda(config) else "cpu")
    protection.after_task(model.encoder)
    curve = Curve.of_state(made.pop("curve"))
    return model, RunSummary(**made, curve=curve, seconds=time.monotonic() - started)


def _set_hard_negatives(
    model: PremiseRetriever,
    data: RetrievalDataModule,
    rows: ReplayRows | None,
    config: RetrieverConfig,
    run: Path,
    indices: Path | None,
) -> None:
    """Give the steps to learn and those to replay their hard negatives, found once in a run."""
    kept = run / _HARD
    try:
        check_whole(kept)
        found: list[Tensor] = torch.load(kept, map_location="cpu", weights_only=True)
    except UNREADABLE:
        model.to("cuda" if on_cuda(config) else "cpu")
        find = partial(
            hard_negatives,
            model.encoder,
            data.tokens,
            document_length=data.document_length,
            query_length=data.max_seq_len,
            index=None
            if indices is None
            else EmbeddingIndex.of(indices, model.encoder, data.document_length),
        )
        steps = [(data.corpus, data.to_learn), *([] if rows is None else rows.steps())]
        found = [torch.from_numpy(find(corpus, examples)) for corpus, examples in steps]
        model.to("cpu")
        if is_first():
            save_whole(found, kept)
    data.hard, *earlier = (one.numpy() for one in found)
    if rows is not None:
        rows.hard = earlier


def _fit(
    model: PremiseRetriever,
    data: RetrievalDataModule,
    config: RetrieverConfig,
    run: Path,
    on_step: Callable[[int], object],
    watchers: Watchers,
) -> dict[str, Any]:
    """Train, save the weights, and return the fields of `RunSummary` except the seconds."""
    # A single epoch is kept whatever a validation says, and a validation embeds every premise.
    validate = config.max_epochs > 1 and bool(validation_examples(data))
    best = (
        BestWeights(
            run / "epochs",
            monitor=_measure("checkpoint_monitor", config.checkpoint_monitor),
            highest=1.0 if config.checkpoint_monitor == "MRR" else 100.0,
            mode=config.checkpoint_mode,
            every_n_epochs=config.checkpoint_every_n_epochs,
            remembered=lambda: model.protection.remembered(model.encoder),
        )
        if validate
        else None
    )
    resumed = newest_step(run / "steps")
    progress = _Progress(on_step)
    with quiet_libraries():
        trainer = _trainer(
            data, config, run, validate=validate, best=best, progress=progress, watchers=watchers
        )
        try:
            # A file of our own: optimiser states hold more than tensors.
            trainer.fit(
                model,
                datamodule=data,
                ckpt_path=None if resumed is None else str(resumed[0]),
                weights_only=False,
            )
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise CheckpointError(
                f"the run in {run} cannot be written ({error.strerror}). Make room, then run it again: it continues "
                "from the saved files"
            ) from error
    measured = {key: float(value) for key, value in trainer.callback_metrics.items()}
    if best is not None and best.epoch is not None:
        best.load_into(model)
        measured = best.measured
    # A checkpoint is always float32, whatever the run's precision.
    model.float()
    check_finite(model.state_dict(), "the run")
    made = {
        "steps": trainer.global_step,
        "device": str(trainer.strategy.root_device),
        "validation": {key: measured[key] for key in MEASURES if key in measured},
        "warnings": list(model.protection.warnings),
        "curve": progress.read().state(),
    }
    # Other processes may still be reading the best epoch's weights.
    trainer.strategy.barrier("the best weights are taken")
    if trainer.is_global_zero:
        save_whole({"weights": model.state_dict(), **made}, run / _MADE)
        for folder in ("steps", "epochs"):
            shutil.rmtree(run / folder, ignore_errors=True)
    return made


def _read_trained(run: Path) -> dict[str, Any] | None:
    path = run / _MADE
    if not path.exists():
        return None
    try:
        check_whole(path)
        made: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except UNREADABLE:
        # Damaged after it was written; the run begins anew.
        path.unlink()
        return None
    return made


def _trainer(
    data: RetrievalDataModule,
    config: RetrieverConfig,
    run: Path,
    *,
    validate: bool,
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
    callbacks.append(StepCheckpoints(run / "steps", every=config.checkpoint_every_n_steps))
    cuda = on_cuda(config)
    chosen = config.precision
    if chosen == "auto":
        chosen = "bf16-mixed" if computes_in_bfloat16(device_of(config.device)) else "32-true"
    precision: dict[str, Any] = {"precision": chosen, "plugins": [WholeFiles()]}
    if chosen in _PURE_PRECISIONS:
        precision = {"plugins": [WholeFiles(), _PURE_PRECISIONS[chosen]()]}
    return pl.Trainer(
        **precision,
        accelerator="cuda" if cuda else "cpu",
        devices=processes,
        strategy=DDPStrategy(timeout=timedelta(seconds=config.timeout_seconds)) if processes > 1 else "auto",
        max_epochs=config.max_epochs,
        limit_train_batches=data.batches().steps_per_epoch,
        limit_val_batches=1.0 if validate else 0,
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


class _AllBFloat16(HalfPrecision):
    """Weights and computation in bfloat16. Batches, which hold ids and labels of 0 and 1, are not converted."""

    def __init__(self) -> None:
        super().__init__("bf16-true")

    def convert_input(self, data: Any) -> Any:
        return data


class _AllFloat64(DoublePrecision):
    """As above, in float64."""

    def convert_input(self, data: Any) -> Any:
        return data


_PURE_PRECISIONS: Mapping[str, Callable[[], Precision]] = {"bf16-true": _AllBFloat16, "64-true": _AllFloat64}


_READ_EVERY = 50
"""Steps whose losses are read from the device together: it stops each time."""


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
                raise DivergedError(
                    f"the loss of step {step} is {loss}. The weights have diverged: train with a smaller learning "
                    "rate, or with precision 32-true"
                )
            self._curve.add(step, {LOSS: loss, **known})
        return self._curve

    def state_dict(self) -> dict[str, Any]:
        return {"curve": self.read().state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._curve = Curve.of_state(state_dict["curve"])

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
        measures: dict[str, float] = pl_module.protection.measured  # type: ignore[union-attr,assignment]
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
    """Return the steps of the val split that use a premise; none if the split is empty."""
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
    """Return how many processes train: those that there are, else those that Lightning shall start."""
    if distributed.is_initialized():
        return distributed.get_world_size()  # Lightning forgets WORLD_SIZE with each trainer
    return world() if world() > 1 or not on_cuda(config) else max(1, config.num_gpus)
