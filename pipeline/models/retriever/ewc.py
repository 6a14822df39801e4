"""Elastic weight consolidation: a penalty for moving the weights that what was learned depends on.

EWC (Kirkpatrick et al. 2017, arXiv:1612.00796) with one anchor, the weights that a training starts from, and one Fisher
information there, made anew for each training (`pipeline.models.retriever.fisher`): of the rows of each earlier
repository, as replay has them, and of what the model knew before all of them. Of that there are no rows; its labels are
drawn from the model itself, on the texts that are to be learned. So the first training has a penalty too, a repository
counts once however often it was learned, and a chain is protected from the training on in which EWC is switched on.

The penalty is lambda * sum F (theta - theta*)^2, LeanDojo's form without a half. Its gradient is added to the weights'
gradients once an optimiser step, before clipping: a quarter of what it costs as a term of the loss, and right under
gradient accumulation and DDP, where each process adds the same to gradients that are averaged already.

The strength of the penalty. A fixed lambda is another strength for each size of model, loss and number of tasks.
`lambda_value` is a share instead: lambda is what makes the penalty's gradient that share of the loss's
gradient (their norms, averaged) over the first FIRST_STEPS steps of a task, and stays that for the rest of it. A step
of a warm-up counts as much as its learning rate is of the full one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, distributed, nn

from pipeline.models.retriever.batches import Batch, Batches
from pipeline.models.retriever.config import FisherLabels, RetrieverConfig
from pipeline.models.retriever.encoder import Encoder
from pipeline.models.retriever.fisher import (
    RetrievalLosses,
    merge_over_processes,
    normalised,
    parameters_of,
    squared_gradients,
)
from pipeline.models.retriever.losses import RowLosses

_SAMPLE = 8
"""Separates this stream of random numbers from those of batches and replay."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of what a training may forget: its name, its pairs, and what their labels are."""

    name: str
    batches: Batches
    labels: FisherLabels


class Penalty:
    """A Fisher information with its anchor, ready for the steps of a run.

    Holds both in float32 beside the weights: 8 bytes a weight (1.74 GB for ByT5-small's encoder), and while a
    gradient is added one more copy of the largest weight. Plain tensors, not buffers, so that no checkpoint holds them.
    """

    def __init__(
        self, fisher: Mapping[str, Tensor], anchor: Mapping[str, Tensor], *, strength: float
    ) -> None:
        """Copy the anchor.

        Args:
            fisher: at the anchor, float32, by weight.
            anchor: the weights that the run starts from (`pipeline.models.retriever.fisher.parameters_of`).
            strength: lambda.
        """
        self.strength = strength
        self._terms = {
            name: (value.to(anchor[name].device), anchor[name].float().clone())
            for name, value in fisher.items()
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
    """EWC while a task is learned: the Fisher information of all parts at the weights that it starts from.

    Attributes:
        warnings: names the parts of which nothing is protected, for a reader.
        measured: of a step that is to be: `ewc/lambda`, `ewc/share` (the penalty's gradient as a share of the loss's)
            and `ewc/penalty`; else empty.
    """

    def __init__(
        self,
        encoder: Encoder,
        parts: Sequence[Part],
        config: RetrieverConfig,
        losses: RowLosses,
        on_group: Callable[[int, int], object] = lambda _done, _total: None,
    ) -> None:
        """Take the encoder's weights as the anchor; `on_group` takes (groups of examples done, in all) before each.

        Raises:
            DivergedError: a loss or a gradient is no finite number.
            Yielded: the job was preempted.
        """
        self.measured: Mapping[str, float] = {}
        self._share = ShareOfLoss(config.lambda_value)
        fisher, self.warnings = estimated(encoder, parts, config, losses, on_group)
        self._penalty = Penalty(fisher, parameters_of(encoder), strength=0.0)

    def on_gradients(self, encoder: Encoder, step_size: float, *, measured: bool) -> None:
        """Add the penalty's gradient; `step_size` is the step's learning rate as a share of the full one."""
        share, penalty = self._share, self._penalty
        if not share.is_set or measured:
            loss, unit = penalty.norms(encoder)
        if not share.is_set:
            share.add(loss, unit, step_size)
            penalty.strength = share.strength
        self.measured = {}
        if measured:
            self.measured = {
                "ewc/lambda": penalty.strength,
                "ewc/share": penalty.strength * unit / loss if loss > 0 else 0.0,
                "ewc/penalty": float(penalty.value(encoder)),
            }
        if penalty.strength > 0:
            penalty.add_gradients(encoder)

    def progress(self) -> tuple[float, ...]:
        return self._share.steps, self._share.loss, self._share.penalty

    def resume(self, progress: Sequence[float]) -> None:
        if progress:
            self._share.steps, self._share.loss, self._share.penalty = progress
            self._penalty.strength = self._share.strength


def estimated(
    encoder: Encoder,
    parts: Sequence[Part],
    config: RetrieverConfig,
    losses: RowLosses,
    on_group: Callable[[int, int], object] = lambda _done, _total: None,
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return the mean of the parts' Fisher information, each with a mean of 1, and warnings of those that have none.

    Raises:
        DivergedError: a loss or a gradient is no finite number.
    """
    total: dict[str, Tensor] = {}
    warnings: list[str] = []
    rank, world = (
        (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)
    )
    drawn = [
        list(sample_groups(part.batches, config, parts=len(parts), rank=rank, world=world)) for part in parts
    ]
    begun = 0

    def told(groups: Sequence[Batch]) -> Iterator[Batch]:
        nonlocal begun
        for group in groups:
            on_group(begun, sum(map(len, drawn)))
            begun += 1
            yield group

    for part, groups in zip(parts, drawn, strict=True):
        each = RetrievalLosses(
            losses, kind=config.loss, labels=part.labels, seed=config.seed, temperature=config.temperature
        )
        found = merge_over_processes(squared_gradients(encoder, told(groups), each))
        values, mean = normalised({name: value / found.examples for name, value in found.sums.items()})
        if mean == 0.0:
            remedy = ". A loss that has reached zero does that; with fisher_labels: sampled it does not"
            warnings.append(
                f"the Fisher information of {part.name} is zero at every weight ({part.labels} labels, "
                f"{found.examples} examples): nothing of it is protected"
                + (remedy if part.labels == "empirical" else "")
            )
        for name, value in values.items():
            total[name] = total[name].add_(value) if name in total else value
    return {name: value / len(parts) for name, value in total.items()}, tuple(warnings)


def sample_groups(
    batches: Batches, config: RetrieverConfig, *, parts: int = 1, rank: int = 0, world: int = 1
) -> Iterator[Batch]:
    """Return one process's groups of a part's sample: `fisher_samples` pairs shared among the parts, or all there are.

    The sample follows from the seed alone, no pair twice, whole groups. Processes take turns.
    """
    known = len(batches.pairs)
    size = min(known, math.ceil(CANDIDATES / (1 + config.num_negatives)))
    groups = min(known // size, math.ceil(config.fisher_samples / parts / size))
    order = _random(config.seed, 0).permutation(known)[: groups * size].reshape(groups, size)
    for number in range(rank, groups, world):
        yield batches.of(order[number], _random(config.seed, 1 + number), rank=0, world=1)


def _random(seed: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, _SAMPLE], counter=[0, 0, 0, number]))
