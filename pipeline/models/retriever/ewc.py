"""Elastic weight consolidation: a penalty for moving the weights that earlier tasks depend on.

EWC (Kirkpatrick et al. 2017, arXiv:1612.00796), online (Schwarz et al. 2018, arXiv:1805.06370): one Fisher information
for all tasks so far, decayed at each, and one anchor, the newest weights. The
penalty is lambda * sum F (theta - theta*)^2, LeanDojo's form without a half. Its gradient is added to the weights'
gradients once an optimiser step, before clipping: a quarter of what it costs as a term of the loss, and right under
gradient accumulation and DDP, where each process adds the same to gradients that are averaged already.
`pipeline.models.retriever.fisher` estimates and keeps F.

The strength of the penalty. A fixed lambda is another strength for each size of model, loss and number of tasks.
`lambda_value` is a share instead: lambda is what makes the penalty's gradient that share of the loss's
gradient (their norms, averaged) over the first FIRST_STEPS steps of a task, and stays that for the rest of it. A step
of a warm-up counts as much as its learning rate is of the full one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, distributed, nn

from pipeline.models.retriever.batches import Batch
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import Encoder, Tokens
from pipeline.models.retriever.fisher import (
    Fisher,
    RetrievalLosses,
    accumulated,
    merge_over_processes,
    parameters_of,
    squared_gradients,
    task_fisher,
)
from pipeline.models.retriever.losses import RowLosses


class Steps(Protocol):
    """Training batches by number, as `pipeline.models.retriever.batches.Batches` makes them."""

    @property
    def steps_per_epoch(self) -> int: ...

    def at(self, step: int) -> Batch: ...


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the chain, as far as its protection needs it.

    Attributes:
        name: the repository's, or what the chain calls it.
        data: the digest of its training data.
        base: what the chain of checkpoints began with.
        batches: makes its training batches for a batch size, as if by one process; fewer rows where it has fewer pairs.
        losses: the training's loss, row by row.
        tokens: makes ids of texts.
    """

    name: str
    data: str
    base: str
    batches: Callable[[int], Steps]
    losses: RowLosses
    tokens: Tokens


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
"""Each example that a Fisher information is estimated on has at least so many documents to choose from. Part of what
is estimated, so no setting, and apart from the batch size. Time and memory grow with it; 32 kept an earlier task no
better, 2 worse (the letters of tests/models/retriever/test_forgetting.py, one seed)."""


class ElasticWeights:
    """EWC: a penalty while a task is learned, and after it the task's Fisher information beside the earlier ones'."""

    def __init__(self, config: RetrieverConfig, fisher: Fisher | None) -> None:
        self._config = config
        self._fisher = fisher
        self._penalty: Penalty | None = None
        self._share: ShareOfLoss | None = None

    def before_task(self, encoder: Encoder, task: Task) -> None:
        """Take the weights that the task starts from as the anchor.

        Raises:
            CheckpointError: the Fisher information belongs to other weights.
        """
        if self._fisher is None:
            return
        # Whatever the penalty: the task's Fisher information is added to its parent's.
        penalty = Penalty(self._fisher, parameters_of(encoder), strength=0.0, base=task.base)
        if self._config.lambda_value > 0:
            self._penalty, self._share = penalty, ShareOfLoss(self._config.lambda_value)

    def on_gradients(self, encoder: Encoder, step_size: float) -> None:
        if self._penalty is None or self._share is None:
            return
        if not self._share.is_set:
            self._share.add(*self._penalty.norms(encoder), step_size)
            self._penalty.strength = self._share.strength
        if self._penalty.strength > 0:
            self._penalty.add_gradients(encoder)

    def progress(self) -> tuple[float, ...]:
        return () if self._share is None else (self._share.steps, self._share.loss, self._share.penalty)

    def resume(self, progress: Sequence[float]) -> None:
        if self._penalty is not None and self._share is not None and progress:
            self._share.steps, self._share.loss, self._share.penalty = progress
            self._penalty.strength = self._share.strength

    def penalty(self, encoder: Encoder) -> Tensor | None:
        return None if self._penalty is None else self._penalty.value(encoder)

    def after_task(self, encoder: Encoder, task: Task) -> Fisher:
        """Return the Fisher information of all tasks so far, at the encoder's weights."""
        config = self._config
        # Frees memory: two more copies of the weights follow.
        self._penalty = None
        group = math.ceil(CANDIDATES / (1 + config.num_negatives))
        rank, world = (
            (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)
        )
        part = squared_gradients(
            encoder,
            sample_groups(task.batches(group), config.fisher_samples, rank=rank, world=world),
            RetrievalLosses(
                task.losses,
                kind=config.loss,
                labels=config.fisher_labels,
                seed=config.seed,
                temperature=config.temperature,
            ),
        )
        new = task_fisher(
            merge_over_processes(part),
            encoder,
            name=task.name,
            data=task.data,
            base=task.base,
            labels=config.fisher_labels,
        )
        self._fisher = accumulated(self._fisher, new, decay=config.fisher_decay)
        return self._fisher


def sample_groups(batches: Steps, examples: int, *, rank: int, world: int) -> Iterator[Batch]:
    """Return one process's groups of a sample of at least `examples` examples, or of all where there are fewer.

    The sample is the first steps of the first epoch: drawn from the seed alone, no pair twice, whole groups. Processes
    take turns.
    """
    groups = min(batches.steps_per_epoch, math.ceil(examples / len(batches.at(0))))
    return (batches.at(number) for number in range(rank, groups, world))
