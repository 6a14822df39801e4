"""Elastic weight consolidation: a penalty for moving weights that earlier tasks depend on.

EWC (Kirkpatrick et al. 2017, arXiv:1612.00796) with one anchor, a training's first weights, and one Fisher information
there, made anew for each training (`pipeline.models.retriever.fisher`): of the rows of each earlier repository, as
replay has them, and of the model's knowledge before all of them. That part has no rows; its labels are drawn from the
model itself, on the texts of the new task. So the first training has a penalty too, a repository counts once however
often it was learned, and a chain is protected from the first training with EWC on.

The penalty is lambda * sum F (theta - theta*)^2, LeanDojo's form without a half. Its gradient is added to the weights'
gradients once an optimiser step, before clipping: a quarter of its cost as a term of the loss, and right under gradient
accumulation and DDP, where each process adds the same to averaged gradients.

The strength of the penalty. A fixed lambda is another strength for each size of model, loss and number of tasks.
`lambda_value` is a share instead: lambda makes the penalty's gradient that share of the loss's gradient (their norms,
averaged) over the first FIRST_STEPS steps of a task, and then stays. A step of a warm-up counts as much as its learning
rate is of the full one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, distributed, nn

from pipeline.models.ranks import place
from pipeline.models.retriever.batches import Batch, Batches
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import Encoder
from pipeline.models.retriever.fisher import (
    example_losses,
    normalised,
    squared_gradients,
)
from pipeline.models.retriever.losses import RowLosses

_SAMPLE = 8
"""Separates this stream of random numbers from those of batches and replay."""
FIRST_STEPS = 50.0
"""Steps at the full learning rate in which a penalty's strength is set."""
CANDIDATES = 8
"""Each example of a Fisher information has at least this number of documents to choose from. It changes the estimate,
so it is no setting and apart from the batch size. Time and memory grow with it; 32 kept an earlier task no better, 2
worse (the letters of tests/models/retriever/test_forgetting.py, one seed).
"""


class ElasticWeights:
    """A Fisher information with its anchor, to hold weights while a task is learned; empty, it holds none.

    Both are in float32 beside the weights: 8 bytes a weight (1.74 GB for ByT5-small's encoder), and while a gradient is
    added two more copies of the largest weight. Plain tensors, not buffers, so that no checkpoint holds them.

    Attributes:
        measured: of the next step, if wanted: `ewc/lambda`, `ewc/share` (the penalty's gradient as a share of the
            loss's) and `ewc/penalty`; else empty.
    """

    def __init__(self, fisher: Mapping[str, Tensor], anchor: Mapping[str, Tensor], *, share: float) -> None:
        """Copy the anchor.

        Args:
            fisher: at the anchor, float32, by weight.
            anchor: the run's first weights (`pipeline.models.retriever.fisher.parameters_of`).
            share: of the norm of the loss's gradient, that of the penalty's over the first steps.
        """
        self.measured: Mapping[str, float] = {}
        self._share = share
        self._steps = self._loss = self._penalty = 0.0
        self._terms = {
            name: (value.to(anchor[name].device), anchor[name].float().clone())
            for name, value in fisher.items()
        }

    @property
    def strength(self) -> float:
        """Lambda by the steps so far; 0 before the weights have moved."""
        return self._share * self._loss / self._penalty if self._penalty > 0 else 0.0

    @torch.no_grad()
    def on_gradients(self, model: nn.Module, step_size: float = 1.0, *, measured: bool = False) -> None:
        """Add 2 * lambda * F * (theta - theta*) to the gradients of a step, before they are clipped.

        A weight without a gradient in this step gets one.

        Args:
            model: with the loss's gradients.
            step_size: the step's learning rate as a share of the full one.
            measured: whether to keep the step's measures.
        """
        self.measured = {}
        if not self._terms or self._share == 0:
            return
        if self._steps < FIRST_STEPS or measured:
            loss, unit = self.norms(model)
        # The optimiser skips a step with a gradient that is not finite.
        if self._steps < FIRST_STEPS and math.isfinite(loss) and math.isfinite(unit):
            self._steps += step_size
            if unit > 0:
                self._loss += loss
                self._penalty += unit
        strength = self.strength
        if measured:
            share = strength * unit / loss if loss > 0 else 0.0
            penalty = float(self.value(model))
            self.measured = {"ewc/lambda": strength, "ewc/share": share, "ewc/penalty": penalty}
        for weight, fisher, distance in self._held(model) if strength > 0 else ():
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
            weight.grad.add_(distance.mul_(fisher).to(weight.grad.dtype), alpha=2 * strength)

    @torch.no_grad()
    def norms(self, model: nn.Module) -> tuple[float, float]:
        """Return the norms of the loss's gradient (before any addition) and of the penalty's for a lambda of 1."""
        loss, penalty = [], []
        for weight, fisher, distance in self._held(model):
            penalty.append(distance.mul_(fisher).norm())
            if weight.grad is not None:
                loss.append(weight.grad.float().norm())
        if not loss:
            return 0.0, 0.0
        return float(torch.stack(loss).norm()), 2 * float(torch.stack(penalty).norm())

    @torch.no_grad()
    def value(self, model: nn.Module) -> Tensor:
        """Return lambda * sum F (theta - theta*)^2: float32, no dimension, on the weights' device."""
        parts = [distance.square_().mul_(fisher).sum() for _, fisher, distance in self._held(model)]
        return self.strength * torch.stack(parts).sum()

    def progress(self) -> tuple[float, ...]:
        """Return the state an interrupted run needs beside its weights to go on in the same way."""
        return self._steps, self._loss, self._penalty

    def resume(self, progress: Sequence[float]) -> None:
        """Take the `progress` of the saved step."""
        self._steps, self._loss, self._penalty = progress

    def _held(self, model: nn.Module) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield the weights under the penalty, each with its Fisher information and a copy of its distance."""
        for name, weight in model.named_parameters():
            if name in self._terms:
                fisher, anchor = (one.to(weight.device) for one in self._terms[name])
                self._terms[name] = fisher, anchor
                yield weight, fisher, weight.float() - anchor


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the past at risk: its name, its pairs, and whether their labels are drawn from the model."""

    name: str
    batches: Batches
    sampled: bool = False


def estimated(
    encoder: Encoder,
    parts: Sequence[Part],
    config: RetrieverConfig,
    losses: RowLosses,
    on_group: Callable[[int, int], object] = lambda _done, _total: None,
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return the mean of the parts' Fisher information, each scaled to a mean of 1, and warnings of parts without any.

    Each of several processes takes its share of the examples, and all have the same result. `on_group` takes (groups of
    examples done, in all) before each.

    Raises:
        DivergedError: a loss or a gradient is no finite number.
        Yielded: the job was preempted.
    """
    total: dict[str, Tensor] = {}
    warnings: list[str] = []
    rank, world = place()
    drawn = [
        list(sample_groups(part.batches, config, parts=len(parts), rank=rank, world=world)) for part in parts
    ]
    begun, every = itertools.count(), sum(map(len, drawn))
    for part, groups in zip(parts, drawn, strict=True):

        def of_example(model: Encoder, group: Batch, part: Part = part) -> Tensor:
            on_group(next(begun), every)
            return example_losses(model, group, losses, config, sampled=part.sampled)

        sums, examples = squared_gradients(encoder, groups, of_example)
        if world > 1:
            counted = torch.tensor(examples, device=encoder.device)
            for value in (*sums.values(), counted):
                distributed.all_reduce(value)
            examples = int(counted)
        values, mean = normalised({name: value / examples for name, value in sums.items()})
        if mean == 0.0:
            warnings.append(
                f"the Fisher information of {part.name} is zero at every weight ({examples} examples): nothing of it "
                "is protected"
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
        yield batches.of(order[number], _random(config.seed, 1 + number))


def _random(seed: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, _SAMPLE], counter=[0, 0, 0, number]))
