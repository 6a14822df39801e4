"""Protection against forgetting, behind one setting: `against_forgetting` of the training configuration.

"ewc" pulls weights back by their Fisher information, "replay" learns rows of earlier tasks again, "average" averages
the weights before and after a task, "none" does nothing; "ewc+replay" and so on do several. Each lives for one task of
the chain; what the next one needs of it is in the checkpoint's folder.

Elastic weight consolidation (Kirkpatrick et al. 2017, arXiv:1612.00796), online (Schwarz et al. 2018,
arXiv:1805.06370): one Fisher information for all tasks so far, decayed at each, and one anchor, the newest weights. The
penalty is lambda * sum F (theta - theta*)^2, LeanDojo's form without a half. Its gradient is added to the weights'
gradients once an optimiser step, before clipping: a quarter of what it costs as a term of the loss, and right under
gradient accumulation and DDP, where each process adds the same to gradients that are averaged already.

The strength of the penalty. A fixed lambda is another strength for each size of model, loss and number of tasks. On the
normalised scale `lambda_value` is a share instead: lambda is what makes the penalty's gradient that share of the loss's
gradient (their norms, averaged) over the first FIRST_STEPS steps of a task, and stays that for the rest of it. A step
of a warm-up counts as much as its learning rate is of the full one. On the scale "compat" lambda is `lambda_value`.

Averaging, the cheap rival of a penalty. theta = (1 - share) * theta_start + share * theta_end, weight by weight, after
training: WiSE-FT (Wortsman et al. 2021, arXiv:2109.01903), which Goedel-Prover-V2 (Lin et al. 2025, arXiv:2508.03613)
uses between its base model and its trained one. Along a chain of tasks each begins at the average before it, so a task
that is k tasks old has a share of share * (1 - share)^k in the weights.

Replay: see `pipeline.models.retriever.replay`.
"""

# ruff: noqa: ARG002 - all strategies take the same, whether they need it or not
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, distributed, nn

from pipeline.models.chain import FISHER
from pipeline.models.errors import CheckpointError
from pipeline.models.retriever.batches import Batch
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import Encoder, RowLosses, Tokens
from pipeline.models.retriever.fisher import (
    Fisher,
    RetrievalLosses,
    accumulated,
    merge_over_processes,
    parameters_of,
    squared_gradients,
    task_fisher,
)
from pipeline.models.retriever.replay import ReplayRows


def averaged(start: Mapping[str, Tensor], end: Mapping[str, Tensor], *, share: float) -> dict[str, Tensor]:
    """Return (1 - share) * start + share * end, in the dtype and on the device of `end`.

    Exactly `start` for a share of 0 and exactly `end` for 1. Computed in float32.

    Raises:
        CheckpointError: names or shapes differ.
        ValueError: the share is not in 0..1.
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"the share of the trained weights has to be in 0..1, not {share}")
    if start.keys() != end.keys():
        odd = sorted(start.keys() ^ end.keys())
        raise CheckpointError(
            f"checkpoints of different models cannot be averaged: only one of the two has {odd[0]} (and "
            f"{len(odd) - 1} more differ)"
        )
    result = {}
    for name, last in end.items():
        first = start[name]
        if first.shape != last.shape:
            raise CheckpointError(
                f"checkpoints of different models cannot be averaged: {name} is {tuple(first.shape)} in the first "
                f"and {tuple(last.shape)} in the second"
            )
        result[name] = torch.lerp(first.to(last.device).float(), last.float(), share).to(last.dtype)
    return result


class Penalty:
    """A Fisher information with its anchor, ready for the steps of a run.

    Holds both in float32 beside the weights: 8 bytes a weight (1.74 GB for ByT5-small's encoder), and while a
    gradient is added one more copy of the largest weight. Plain tensors, not buffers, so that no checkpoint holds them.
    """

    def __init__(self, fisher: Fisher, anchor: Mapping[str, Tensor], *, strength: float, base: str) -> None:
        """Copy the anchor.

        Args:
            fisher: of the checkpoint that the run starts from.
            anchor: that checkpoint's weights (`pipeline.models.retriever.fisher.parameters_of`).
            strength: lambda.
            base: what the chain of checkpoints began with.

        Raises:
            CheckpointError: the Fisher information is not of these weights.
        """
        fisher.check(anchor, base=base)
        self.strength = strength
        self._terms = {
            name: (value.to(anchor[name].device), anchor[name].float().clone())
            for name, value in fisher.values.items()
        }

    @torch.no_grad()
    def add_gradients(self, model: nn.Module) -> None:
        """Add 2 * lambda * F * (theta - theta*) to the gradients of the model's weights.

        For `on_before_optimizer_step`. A weight without a gradient in this step gets one.
        """
        for name, weight in model.named_parameters():
            term = self._on_device_of(name, weight)
            if term is None:
                continue
            fisher, anchor = term
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
            if weight.grad.dtype == torch.float32:
                weight.grad.addcmul_(fisher, weight - anchor, value=2 * self.strength)
            else:
                # The difference is small: it is computed in float32 and rounded once.
                weight.grad.add_(
                    (fisher * (weight.float() - anchor)).to(weight.grad.dtype), alpha=2 * self.strength
                )

    @torch.no_grad()
    def norms(self, model: nn.Module) -> tuple[float, float]:
        """Return the norms of the loss's gradient, before any is added, and of the penalty's for a lambda of 1."""
        loss, penalty = [], []
        for name, weight in model.named_parameters():
            term = self._on_device_of(name, weight)
            if term is not None:
                fisher, anchor = term
                penalty.append((weight.float() - anchor).mul_(fisher).norm())
                if weight.grad is not None:
                    loss.append(weight.grad.float().norm())
        if not loss:
            return 0.0, 0.0
        return float(torch.stack(loss).norm()), 2 * float(torch.stack(penalty).norm())

    @torch.no_grad()
    def value(self, model: nn.Module) -> Tensor:
        """Return lambda * sum F (theta - theta*)^2 for the log: float32, no dimension, on the weights' device."""
        total: Tensor | None = None
        for name, weight in model.named_parameters():
            term = self._on_device_of(name, weight)
            if term is not None:
                fisher, anchor = term
                part = (weight.float() - anchor).square_().mul_(fisher).sum()
                total = part if total is None else total + part
        return torch.zeros(()) if total is None else self.strength * total

    def _on_device_of(self, name: str, weight: Tensor) -> tuple[Tensor, Tensor] | None:
        term = self._terms.get(name)
        if term is not None and term[0].device != weight.device:
            term = self._terms[name] = (term[0].to(weight.device), term[1].to(weight.device))
        return term


FIRST_STEPS = 50.0
"""Steps at the full learning rate over which a penalty's strength is set."""


@dataclass(slots=True)
class ShareOfLoss:
    """Sets a penalty's strength so that its gradient is a share of the loss's over a task's first steps.

    Attributes:
        share: of the norm of the loss's gradient.
        steps: taken so far, each as much as its learning rate is of the full one.
        loss: the sum of the norms of the loss's gradients.
        penalty: the sum of those of the penalty's, for a strength of 1.
    """

    share: float
    steps: float = 0.0
    loss: float = 0.0
    penalty: float = 0.0

    @property
    def is_set(self) -> bool:
        return self.steps >= FIRST_STEPS

    @property
    def strength(self) -> float:
        """Lambda, as far as the steps so far say; 0 before the weights have moved."""
        return self.share * self.loss / self.penalty if self.penalty > 0 else 0.0

    def add(self, loss: float, penalty: float, step_size: float) -> None:
        """Take one step's norms. One with a gradient that is not finite is skipped, as the optimiser skips it."""
        if not (math.isfinite(loss) and math.isfinite(penalty)):
            return
        self.steps += step_size
        if penalty > 0:
            self.loss += loss
            self.penalty += penalty


CANDIDATES = 8
"""Each example that a Fisher information is estimated on (normalised scale) has at least so many documents to choose
from. Part of what is estimated, so no setting, and apart from the batch size. Time and memory grow with it; 32 kept an
earlier task no better, 2 worse (the letters of tests/models/retriever/test_forgetting.py, one seed)."""


class Steps(Protocol):
    """Training batches by number, as `pipeline.models.retriever.batches.Batches` makes them."""

    @property
    def steps_per_epoch(self) -> int: ...

    def at(self, step: int) -> Batch: ...


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the chain, as far as a strategy needs it.

    Attributes:
        name: the repository's, or what the chain calls it.
        data: the digest of its training data.
        base: what the chain of checkpoints began with.
        batches: makes its training batches for a batch size, as if by one process; fewer rows where it has fewer pairs.
        losses: the training's loss, row by row.
        tokens: makes ids of texts.
        world: processes of the training run.
    """

    name: str
    data: str
    base: str
    batches: Callable[[int], Steps]
    losses: RowLosses
    tokens: Tokens
    world: int = 1


@dataclass(frozen=True, slots=True)
class TaskState:
    """The state for the next task besides the weights, and warnings for the job's events."""

    fisher: Fisher | None = None
    warnings: tuple[str, ...] = ()

    def save(self, folder: Path) -> None:
        """Write it into a checkpoint's folder.

        Raises:
            CheckpointError: the Fisher information cannot be written.
        """
        if self.fisher is not None:
            self.fisher.save(folder / FISHER)


class Strategy(Protocol):
    """Protection against forgetting, for one task. Every process of a run has its own and makes the same calls."""

    def before_task(self, encoder: Encoder, task: Task) -> None:
        """Begin, with the weights that the task starts from in the encoder: also when an interrupted run continues,
        before the weights of its last step are loaded.

        Raises:
            CheckpointError: what was kept belongs to other weights.
        """

    def replayed(self, step: int, rank: int = 0) -> Batch | None:
        """Return the batch replayed in a step, with `replay_share` of the step's loss; None for none."""

    def on_gradients(self, encoder: Encoder, step_size: float = 1.0) -> None:
        """Change the gradients of a step: in `on_before_optimizer_step`, before they are clipped.

        `step_size` is the step's learning rate as a share of the full one.
        """

    def progress(self) -> tuple[float, ...]:
        """Return what an interrupted run needs beside its weights to go on in the same way."""

    def resume(self, progress: Sequence[float]) -> None:
        """Take the `progress` of the saved step that a run continues from, after `before_task`."""

    def penalty(self, encoder: Encoder) -> Tensor | None:
        """Return the penalty's value for the log, a float32 on the encoder's device; None without one."""

    def after_task(self, encoder: Encoder, task: Task) -> TaskState:
        """End: may change the encoder's weights, and returns what the checkpoint keeps."""


def make_strategy(
    config: RetrieverConfig, state_folder: Path | None, rows: ReplayRows | None = None
) -> Strategy:
    """Return the strategy that a configuration names.

    Args:
        config: `against_forgetting`, and the settings of each.
        state_folder: the folder of the checkpoint that the task starts from; None at the beginning of a chain. What
            it does not have (because it was trained with another setting) counts as empty.
        rows: the earlier tasks'; None: there are none.

    Raises:
        CheckpointError: what the folder has cannot be read.
    """
    made: list[Strategy] = []
    # First: the Fisher information is that of the averaged weights, which the next task starts from.
    if "average" in config.ways:
        made.append(Average(config.average_weight))
    if "ewc" in config.ways:
        path = None if state_folder is None else state_folder / FISHER
        made.append(ElasticWeights(config, Fisher.load(path) if path is not None and path.exists() else None))
    if "replay" in config.ways:
        made.append(Replay(config, rows or ReplayRows({}, seed=config.seed)))
    return made[0] if len(made) == 1 else Several(made)


class NoStrategy:
    """Plain training: the one that the others are compared with, and what they share."""

    def before_task(self, encoder: Encoder, task: Task) -> None:
        pass

    def replayed(self, step: int, rank: int = 0) -> Batch | None:
        return None

    def on_gradients(self, encoder: Encoder, step_size: float = 1.0) -> None:
        pass

    def progress(self) -> tuple[float, ...]:
        return ()

    def resume(self, progress: Sequence[float]) -> None:
        pass

    def penalty(self, encoder: Encoder) -> Tensor | None:
        return None

    def after_task(self, encoder: Encoder, task: Task) -> TaskState:
        return TaskState()


class Several:
    """Several strategies at once, in this order; none of them is plain training."""

    def __init__(self, each: Sequence[Strategy]) -> None:
        self._each = tuple(each)

    def before_task(self, encoder: Encoder, task: Task) -> None:
        for one in self._each:
            one.before_task(encoder, task)

    def replayed(self, step: int, rank: int = 0) -> Batch | None:
        found = (one.replayed(step, rank) for one in self._each)
        return next((batch for batch in found if batch is not None), None)

    def on_gradients(self, encoder: Encoder, step_size: float = 1.0) -> None:
        for one in self._each:
            one.on_gradients(encoder, step_size)

    def progress(self) -> tuple[float, ...]:
        # One of them has any: the others' take no room in it.
        return tuple(value for one in self._each for value in one.progress())

    def resume(self, progress: Sequence[float]) -> None:
        for one in self._each:
            one.resume(progress)

    def penalty(self, encoder: Encoder) -> Tensor | None:
        found = (one.penalty(encoder) for one in self._each)
        return next((value for value in found if value is not None), None)

    def after_task(self, encoder: Encoder, task: Task) -> TaskState:
        kept = [one.after_task(encoder, task) for one in self._each]
        return TaskState(
            next((one.fisher for one in kept if one.fisher is not None), None),
            tuple(warning for one in kept for warning in one.warnings),
        )


class ElasticWeights(NoStrategy):
    """EWC: a penalty while a task is learned, and after it the task's Fisher information beside the earlier ones'."""

    def __init__(self, config: RetrieverConfig, fisher: Fisher | None) -> None:
        self._config = config
        self._fisher = fisher
        self._penalty: Penalty | None = None
        self._share: ShareOfLoss | None = None

    def before_task(self, encoder: Encoder, task: Task) -> None:
        if self._fisher is None:
            return
        # Before hours of training, not after them, when the task's own is added.
        self._fisher.check_scale(self._config.fisher_scale)
        given = self._config.lambda_value
        if given > 0:
            self._penalty = Penalty(self._fisher, parameters_of(encoder), strength=given, base=task.base)
            if self._config.fisher_scale == "normalised":
                self._share = ShareOfLoss(given)
                self._penalty.strength = 0.0
        else:
            # The task's Fisher information is added to its parent's, whatever the penalty.
            self._fisher.check(parameters_of(encoder), base=task.base)

    def on_gradients(self, encoder: Encoder, step_size: float = 1.0) -> None:
        if self._penalty is None:
            return
        if self._share is not None and not self._share.is_set:
            self._share.add(*self._penalty.norms(encoder), step_size)
            self._penalty.strength = self._share.strength
        if self._penalty.strength > 0:
            self._penalty.add_gradients(encoder)

    def progress(self) -> tuple[float, ...]:
        return () if self._share is None else (self._share.steps, self._share.loss, self._share.penalty)

    def resume(self, progress: Sequence[float]) -> None:
        if self._share is not None and self._penalty is not None and progress:
            self._share.steps, self._share.loss, self._share.penalty = progress
            self._penalty.strength = self._share.strength

    def penalty(self, encoder: Encoder) -> Tensor | None:
        return None if self._penalty is None else self._penalty.value(encoder)

    def after_task(self, encoder: Encoder, task: Task) -> TaskState:
        config = self._config
        # Frees memory: two more copies of the weights follow.
        self._penalty = None
        compat = config.fisher_scale == "compat"
        group = math.ceil(CANDIDATES / (1 + config.num_negatives))
        rank, world = (
            (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)
        )
        part = squared_gradients(
            encoder,
            sample_groups(
                task.batches(config.batch_size if compat else group),
                config.fisher_samples,
                rank=rank,
                world=world,
            ),
            RetrievalLosses(
                task.losses,
                kind=config.loss,
                labels=config.fisher_labels,
                seed=config.seed,
                temperature=config.temperature,
            ),
            per="group" if compat else "example",
        )
        new = task_fisher(
            merge_over_processes(part),
            encoder,
            name=task.name,
            data=task.data,
            base=task.base,
            labels=config.fisher_labels,
            scale=config.fisher_scale,
            # Those here may be fewer: a run that was interrupted after its last step is ended by one process.
            world=task.world,
        )
        self._fisher = accumulated(self._fisher, new, decay=config.fisher_decay)
        return TaskState(fisher=self._fisher, warnings=self._fisher.warnings)


class Average(NoStrategy):
    """Averages the weights before and after a task (`pipeline.models.retriever.strategies`)."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._start: dict[str, Tensor] = {}

    def before_task(self, encoder: Encoder, task: Task) -> None:
        self._start = {name: value.cpu().clone() for name, value in parameters_of(encoder).items()}

    def after_task(self, encoder: Encoder, task: Task) -> TaskState:
        mixed = averaged(self._start, parameters_of(encoder), share=self._share)
        with torch.no_grad():
            for name, weight in encoder.named_parameters():
                if name in mixed:
                    weight.copy_(mixed[name])
        return TaskState()


class Replay(NoStrategy):
    """Learns rows of earlier tasks beside the new ones (`pipeline.models.retriever.replay`)."""

    def __init__(self, config: RetrieverConfig, rows: ReplayRows) -> None:
        self._config = config
        self._rows = rows
        self._tokens: Tokens | None = None

    def before_task(self, encoder: Encoder, task: Task) -> None:
        self._tokens = task.tokens

    def replayed(self, step: int, rank: int = 0) -> Batch | None:
        config = self._config
        if self._tokens is None or config.replay_share == 0.0:
            return None
        return self._rows.batch(
            step,
            # As many as make the share of the step's pairs, and where batches are small at least one.
            max(1, round(config.batch_size * config.replay_share)),
            negatives=config.num_negatives,
            tokens=self._tokens,
            max_seq_len=config.data_max_seq_len,
            document_length=config.document_length,
            loss=config.loss,
            rank=rank,
        )


def sample_groups(batches: Steps, examples: int, *, rank: int, world: int) -> Iterator[Batch]:
    """Return one process's groups of a sample of at least `examples` examples, or of all where there are fewer.

    The sample is the first steps of the first epoch: drawn from the seed alone, no pair twice, whole groups. Processes
    take turns.
    """
    groups = min(batches.steps_per_epoch, math.ceil(examples / len(batches.at(0))))
    return (batches.at(number) for number in range(rank, groups, world))
