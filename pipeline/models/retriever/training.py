"""Train one task: from one checkpoint's weights to the next one's, with transformers' trainer (`models.running`).

A step's data and the random numbers of its dropout follow from its number (`batches`, `replay`), so on a CPU an
interrupted run ends with exactly the weights of an uninterrupted one. Several processes share each step, and only
dropout depends on how many they are: a run may be continued by another number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.utils.data import DataLoader, Dataset
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import WEIGHTS_NAME

from pipeline.jobs import preemption
from pipeline.models import running
from pipeline.models.curve import MOST, Curve
from pipeline.models.errors import ConfigError, EmptySplitError
from pipeline.models.libraries import computes_in_bfloat16, device_of, exact_float32, quiet_libraries
from pipeline.models.ranks import any_of, is_first, of_first, rank, world
from pipeline.models.retriever.batches import Batch, Example, RetrievalDataModule
from pipeline.models.retriever.config import MEASURES, RetrieverConfig
from pipeline.models.retriever.encoder import Encoder, embed, load_encoder
from pipeline.models.retriever.index import EmbeddingIndex, hard_negatives
from pipeline.models.retriever.losses import RowLosses, row_losses
from pipeline.models.retriever.rating import evaluate
from pipeline.models.retriever.replay import Replayed, ReplayRows
from pipeline.models.retriever.strategies import Protection
from pipeline.models.running import OnStep, Saves

_WARMUP_SHARE = 0.1
_WEIGHT_DECAY = 0.01
_EWC_EVERY = 10
"""At least so many steps between two whose EWC is measured: that costs some passes over the weights."""
_DROPOUT = 0x0D0F  # separates the random numbers of dropout from those of the batches
_KEPT_BY = "score"
"""The measure by which an epoch is kept."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A task's run: the encoder after it, and what is said of it."""

    encoder: Encoder
    steps: int
    seconds: float
    device: str
    warnings: tuple[str, ...]
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


class Learner(nn.Module):
    """An encoder that learns: from a step's rows and those that are replayed in it to their mean loss."""

    def __init__(
        self,
        encoder: Encoder,
        losses: RowLosses,
        protection: Protection,
        *,
        replay_share: float = 0.0,
        recompute: bool = False,
    ) -> None:
        """Args:
        encoder: which learns.
        losses: of a batch's rows.
        protection: whose progress is saved with the weights.
        replay_share: of the loss, that of replayed rows where a step has them.
        recompute: whether activations are computed again for a gradient (`encoder.embed`).
        """
        super().__init__()
        self.encoder = encoder
        self._losses = losses
        self._protection = protection
        self._replay_share = replay_share
        self._recompute = recompute

    def forward(self, new: Batch, again: Batch | None = None) -> Tensor:
        loss = self._mean(new)
        if again is not None:
            loss = (1 - self._replay_share) * loss + self._replay_share * self._mean(again)
        return loss

    def get_extra_state(self) -> tuple[float, ...]:
        return self._protection.progress()

    def set_extra_state(self, state: Sequence[float]) -> None:
        self._protection.resume(state)

    def _mean(self, batch: Batch) -> Tensor:
        device = next(self.encoder.parameters()).device
        batch = batch.to(device, non_blocking=True)
        return self._losses(self._cosines(batch), batch.label, batch.ignore).mean() * batch.scale

    def _cosines(self, batch: Batch) -> Tensor:
        """Return the cosines of a batch's queries and documents: float32 whatever the precision, shape (B, D).

        Where several processes share the step, each embeds its own documents, and all are columns in each of them.
        """
        embedded = partial(embed, self.encoder, recompute=self._recompute)
        queries = embedded(batch.context_ids, batch.context_mask, lengths=batch.context_lengths)
        documents = embedded(batch.premise_ids, batch.premise_mask, lengths=batch.premise_lengths)
        if batch.label.shape[1] > len(documents):
            # With gradients: another process's loss pulls at this one's documents. DDP takes the mean of the sums.
            gathered: Sequence[Tensor] = distributed.nn.functional.all_gather(documents)
            documents = torch.cat(list(gathered))
        # In bfloat16 a cosine has two digits, and the temperature multiplies the rounding error by twenty.
        with torch.autocast(documents.device.type, enabled=False), exact_float32():
            return queries.float() @ documents.float().T


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
    tensorboard: Path | None = None,
    report_to: Sequence[str] = (),
    callbacks: Sequence[TrainerCallback] = (),
) -> Trained:
    """Train a task.

    Args:
        start: the folder or hub name of the weights to begin with.
        data: the task's.
        config: how.
        run: the run's own folder; an interrupted run of the same arguments in it is continued.
        rows: of earlier tasks, for replay and EWC.
        indices: the folder of embedding indices, where hard negatives are looked for; None: embeddings are not stored.
        on_step: takes (optimiser steps done, in all) after each.
        on_held: takes (groups done, in all) while EWC estimates what is to be held.
        tensorboard: the folder for TensorBoard's files; None: none are written, unless they are reported to.
        report_to: transformers' names of trackers.
        callbacks: transformers' or of its shape, told of the run.

    Raises:
        LearningError: the dataset or a checkpoint cannot be used, a loss was no finite number, or the disk is full.
        Yielded: the job was preempted, and its progress is saved in `run`.
    """
    started = time.monotonic()
    device = device_for(config)
    running.wait(device)  # what follows asks the other processes
    # A small task has fewer pairs than a step takes.
    pairs = sum(len(example.positives) for example in data.to_learn)
    data.batch_size = max(1, min(config.batch_size, pairs))
    # A task with fewer batches than are accumulated would never change a weight.
    data.accumulate = 1
    data.accumulate = min(config.accumulate_grad_batches, data.batches().steps_per_epoch)
    saves = Saves(run / "steps", 60 * config.save_minutes, tensorboard)
    encoder = load_encoder(start)
    torch.nn.Module.to(encoder, device)
    if data.num_hard_negatives:
        _set_hard_negatives(encoder, data, rows, indices)
    protection = Protection(config, rows)
    protection.before_task(encoder, data.tokens)
    losses = row_losses(config.loss, temperature=config.temperature)

    def before_group(done: int, groups: int) -> None:
        if preemption.wanted() and world() == 1:
            # One of several would leave the others waiting: they end when the estimate does.
            raise preemption.Yielded("nothing is learned yet")
        on_held(done, groups)

    with preemption.region(any_of):
        protection.hold(encoder, lambda: data.batches(batch_size=1, multiple_of=1), losses, before_group)
    encoder.to(dtype=_PURE.get(config.precision, torch.float32))
    learner = Learner(
        encoder,
        losses,
        protection,
        replay_share=config.replay_share,
        recompute=config.gradient_checkpointing == "on"
        or (config.gradient_checkpointing == "auto" and device.type == "cuda"),
    )
    with quiet_libraries():
        trainer = _Trainer(
            learner,
            data,
            config,
            protection,
            device,
            saves.folder,
            list(report_to) or saves.report_to,
            callbacks,
        )
    steps = running.run(trainer, on_step, saves)
    # A checkpoint is always float32, whatever the run's precision.
    encoder.float().eval()
    protection.after_task(encoder)
    return Trained(
        encoder,
        steps,
        time.monotonic() - started,
        device.type,
        protection.warnings,
        Curve.of_history(trainer.state.log_history),
    )


_PURE: Mapping[str, torch.dtype] = {"bf16-true": torch.bfloat16, "64-true": torch.float64}
"""The type of the weights by precision, where it is not float32."""


def _set_hard_negatives(
    encoder: Encoder, data: RetrievalDataModule, rows: ReplayRows | None, indices: Path | None
) -> None:
    """Give the steps to learn and those to replay their hard negatives, as the weights at the beginning find them."""
    index = None if indices is None else EmbeddingIndex.of(indices, encoder, data.document_length)
    find = partial(
        hard_negatives,
        encoder,
        data.tokens,
        document_length=data.document_length,
        query_length=data.max_seq_len,
        index=index,
    )
    steps = [(data.corpus, data.to_learn), *([] if rows is None else rows.steps())]
    # Two kinds of GPU may round differently, and all processes have to draw the same.
    data.hard, *earlier = of_first([find(*one) for one in steps] if is_first() else [])
    if rows is not None:
        rows.hard = earlier


class _Steps(Dataset[tuple[Batch, Batch | None]]):
    """The steps of a run, by their numbers: one process's part of what each learns, and of what it learns again."""

    def __init__(
        self,
        data: RetrievalDataModule,
        total: int,
        replayed: Replayed,
    ) -> None:
        self._new = data.batches(rank=rank(), world=world())
        self._total = total
        self._replayed = replayed

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, step: int) -> tuple[Batch, Batch | None]:
        return self._new.at(step), self._replayed(step, rank(), world())


class _Trainer(Trainer):  # type: ignore[misc]
    """transformers' trainer, whose one epoch is all steps of a run."""

    def __init__(
        self,
        learner: Learner,
        data: RetrievalDataModule,
        config: RetrieverConfig,
        protection: Protection,
        device: torch.device,
        folder: Path,
        report_to: str | list[str],
        callbacks: Sequence[TrainerCallback],
    ) -> None:
        epoch = data.batches().steps_per_epoch
        total = config.max_epochs * epoch // data.accumulate
        every = epoch // data.accumulate * config.checkpoint_every_n_epochs
        # A single epoch is kept whatever a validation says, and a validation embeds every premise.
        validate = config.max_epochs > 1 and bool(validation_examples(data)) and every <= total
        self._data, self._config, self._protection = data, config, protection
        self._steps = _Steps(data, total * data.accumulate, protection.replayed)
        auto = config.precision == "auto"
        logging = max(1, total // MOST)
        self._ewc_every = logging * math.ceil(_EWC_EVERY / logging)
        super().__init__(
            model=learner,
            args=TrainingArguments(
                output_dir=str(folder),
                max_steps=total,
                per_device_train_batch_size=1,  # a batch is an item of the dataset
                gradient_accumulation_steps=data.accumulate,
                learning_rate=config.lr,
                lr_scheduler_type="cosine" if config.schedule == "cosine" else "constant_with_warmup",
                # Rounded down: the first step of a warm-up changes no weight, and a tiny task may have only one.
                warmup_steps=min(config.warmup_steps, int(total * _WARMUP_SHARE)),
                weight_decay=_WEIGHT_DECAY,
                max_grad_norm=config.gradient_clip_val or math.inf,
                # As often as a curve has points: at each the GPU is waited for.
                logging_steps=logging,
                logging_nan_inf_filter=False,
                eval_strategy="steps" if validate else "no",
                eval_steps=every,
                save_strategy="steps" if validate else "no",
                save_steps=every,
                load_best_model_at_end=validate,
                metric_for_best_model=_KEPT_BY,
                greater_is_better=True,
                restore_callback_states_from_checkpoint=True,
                report_to=report_to or "none",
                disable_tqdm=True,
                remove_unused_columns=False,
                seed=config.seed,
                use_cpu=device.type == "cpu",
                bf16=config.precision == "bf16-mixed" or (auto and computes_in_bfloat16(device)),
                fp16=config.precision == "16-mixed",
                ddp_find_unused_parameters=False,
                ddp_timeout=config.timeout_seconds,
                average_tokens_across_devices=False,
            ),
            callbacks=[
                *([EarlyStoppingCallback(config.early_stopping_patience)] if validate else []),
                *callbacks,
            ],
            eval_dataset=validation_examples(data) if validate else None,
        )

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the steps in their order. Not prepared by Accelerate: each process knows its part of a step."""
        return DataLoader(
            self._steps,
            batch_size=1,
            collate_fn=itemgetter(0),
            num_workers=self._config.num_workers,
            pin_memory=self.args.device.type == "cuda",
        )

    def compute_loss(
        self,
        model: nn.Module,
        inputs: tuple[Batch, Batch | None],
        return_outputs: bool = False,  # noqa: ARG002 - transformers' signature
        num_items_in_batch: Any = None,  # noqa: ARG002
    ) -> Tensor:
        new, again = inputs
        # Another number of processes may have saved other random numbers: the seed follows from the step instead.
        entropy = np.random.SeedSequence([self._config.seed, _DROPOUT, new.step, rank()])
        torch.manual_seed(int(entropy.generate_state(1)[0]))
        loss: Tensor = model(new, again)
        return loss

    def _clip_grad_norm(self, model: nn.Module) -> Tensor:
        self.accelerator.unscale_gradients()
        step, rate = self.state.global_step + 1, self.lr_scheduler.get_last_lr()[0]
        self._protection.on_gradients(
            self.model.encoder,
            rate / self._config.lr,
            measured=step % self._ewc_every == 0 or step == self.state.max_steps,
        )
        return torch.nn.utils.clip_grad_norm_(model.parameters(), self.args.max_grad_norm)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            logs = {**logs, **self._protection.measured}
        super().log(logs, start_time)

    def evaluate(
        self,
        eval_dataset: Any = None,  # noqa: ARG002 - transformers' signature
        ignore_keys: Any = None,  # noqa: ARG002
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Measure the weights on the val split, and log it by LeanDojo's names: recalls in percent, MRR in 0..1.

        What an epoch keeps of earlier tasks counts as much as what it has of the new one: else that which forgot most
        would be kept.
        """
        measured, remembered = of_first(self._measured())
        self.log(dict(measured))
        config = self._config
        by = config.checkpoint_monitor
        score = measured[by] * (1 if config.checkpoint_mode == "max" else -1) / (1 if by == "MRR" else 100)
        metrics = {f"{metric_key_prefix}_{_KEPT_BY}": score + (remembered or 0.0)}
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        if self.control.should_training_stop and self.state.global_step < self.state.max_steps:
            # The decision to stop would not be saved with it.
            self.control.should_save = False
        return metrics

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        if is_first() and output_dir is not None:
            Path(output_dir).mkdir(parents=True, exist_ok=True)
            torch.save(self.model.state_dict(), Path(output_dir, WEIGHTS_NAME))

    def _measured(self) -> tuple[dict[str, float], float | None]:
        data, encoder = self._data, self.model.encoder
        found = evaluate(
            encoder,
            data.tokens,
            data.corpus,
            validation_examples(data),
            max_seq_len=data.document_length,
            query_length=data.max_seq_len,
            retrieved=self._config.num_retrieved,
            batch_size=data.eval_batch_size,
            seed=self._config.seed,
        )
        means = [found.metrics[name].mean for name in MEASURES.values()]
        shown = [100 * means[0], 100 * means[1], means[2]]
        return dict(zip(MEASURES, shown, strict=True)), self._protection.remembered(encoder)


def validation_examples(data: RetrievalDataModule) -> tuple[Example, ...]:
    """Return the steps of the val split that use a premise; none if the split is empty."""
    try:
        return data.examples("val")
    except EmptySplitError:
        return ()


def device_for(config: RetrieverConfig) -> torch.device:
    """Return the device that a configuration computes on here.

    Raises:
        ConfigError: it names a GPU and none is here, or its precision needs one.
    """
    device = device_of(config.device)
    if device.type != "cuda" and config.precision == "16-mixed":
        raise ConfigError("precision is '16-mixed', which needs a GPU: take 'bf16-mixed' or '32-true'")
    return device
