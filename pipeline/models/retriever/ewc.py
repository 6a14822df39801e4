"""Elastic weight consolidation: a penalty for moving weights that earlier tasks depend on.

EWC (Kirkpatrick et al. 2017, arXiv:1612.00796) with one anchor, a training's first weights, and one Fisher information
there, made anew for each training: of the rows of each earlier repository, as replay has them, and of the model's
knowledge before all of them. That part has no rows; its labels are drawn from the model itself, on the texts of the new
task. So the first training has a penalty too, a repository counts once however often it was learned, and a chain is
protected from the first training with EWC on.

The penalty is lambda * sum F (theta - theta*)^2, LeanDojo's form without a half. Its gradient is added to the weights'
gradients once an optimiser step, before clipping: a quarter of its cost as a term of the loss, and right under gradient
accumulation and DDP, where each process adds the same to averaged gradients.

The strength of the penalty. A fixed lambda is another strength for each size of model, loss and number of tasks.
`lambda_value` is a share instead: lambda makes the penalty's gradient that share of the loss's gradient (their norms,
averaged) over the first FIRST_STEPS steps of a task, and then stays. A step of a warm-up counts as much as its learning
rate is of the full one.

The diagonal Fisher information measures each weight's importance: the mean, over examples, of the squared gradient of
one example's loss. A part's is divided by its mean over all weights, and the parts are averaged: each counts alike,
whatever its size, loss and convergence. An example's loss depends on its candidates, so a group, a few examples with
the same candidates, is made from the seed alone, whatever the training's batch size and the number of processes. Within
a group one forward pass serves all, then each example's gradient is taken by itself: the square of a batch's mean
gradient would be too small by about the batch's size. `torch.func.vmap` does not trace T5's masks, and batched backward
passes (`is_grads_batched`) gain nothing once texts are longer than a line, so this is a loop.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn

from pipeline.models.errors import DivergedError
from pipeline.models.ranks import place
from pipeline.models.replay import random_numbers
from pipeline.models.retriever.batches import Batch, Batches
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import Encoder
from pipeline.models.retriever.losses import RowLosses

_LABELS, _SAMPLE = 2, 8
"""Separate these streams of random numbers from those of batches and replay."""
FIRST_STEPS = 50.0
"""Steps at the full learning rate in which a penalty's strength is set."""
CANDIDATES = 8
"""Each example of a Fisher information has at least this number of documents to choose from. It changes the estimate,
so it is no setting and apart from the batch size. Time and memory grow with it; 32 kept an earlier task no better, 2
worse (the letters of tests/models/retriever/test_forgetting.py, one seed).
"""


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's trainable weights by name, detached, each once (a tied one has one name). No copies."""
    return {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}


def normalised(values: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], float]:
    """Return a part's Fisher information divided by its mean over all weights, and that mean.

    A mean of zero divides nothing: the zeros are returned with 0.0.
    """
    total = sum(float(value.sum(dtype=torch.float64)) for value in values.values())
    mean = total / sum(value.numel() for value in values.values())
    if mean == 0.0:
        return dict(values), 0.0
    # In float64: the mean of a converged model's squared gradients may be too small for float32's reciprocal.
    return {name: (value.double() / mean).float() for name, value in values.items()}, mean


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
            anchor: the run's first weights (`parameters_of`).
            share: of the norm of the loss's gradient, that of the penalty's over the first steps.
        """
        self.measured: Mapping[str, float] = {}
        self._share = share
        self._steps = self._loss = self._penalty = 0.0
        self._terms = {name: (value, anchor[name].float().clone()) for name, value in fisher.items()}

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
        if not self._terms:
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
                fisher, anchor = self._terms[name]
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
    order = random_numbers(config.seed, _SAMPLE).permutation(known)[: groups * size].reshape(groups, size)
    for number in range(rank, groups, world):
        yield batches.of(order[number], random_numbers(config.seed, _SAMPLE, 1 + number))


def squared_gradients(
    model: nn.Module,
    groups: Iterable[Any],
    losses: Callable[[Any, Any], Tensor],
) -> tuple[dict[str, Tensor], int]:
    """Return the sums of squared gradients over groups' examples, by weight (float32), and the number of examples.

    Dropout is off while it runs; the weights' `.grad` is not touched. Costs a forward pass of each group and a
    backward pass of the group for each of its examples; memory of two copies of the weights in float32 besides the
    graph of one group.

    Args:
        model: the sums are over its weights that require a gradient.
        groups: inputs of `losses`.
        losses: gives the loss of each example of a group, shape (n,), with a graph.

    Raises:
        DivergedError: a loss or a gradient is not finite.
    """
    trainable = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
    weights = [value for _, value in trainable]
    sums = {name: torch.zeros_like(value, dtype=torch.float32) for name, value in trainable}
    examples = 0
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode(False), torch.enable_grad():
            for number, group in enumerate(groups):
                each = losses(model, group)
                examples += len(each)
                for row, loss in enumerate(each.unbind()):
                    gradients = torch.autograd.grad(
                        loss, weights, retain_graph=row + 1 < len(each), allow_unused=True
                    )
                    for (name, _), gradient in zip(trainable, gradients, strict=True):
                        if gradient is not None:
                            single = gradient.float()
                            sums[name].addcmul_(single, single)
                _check_finite(each, sums, number)
    finally:
        model.train(was_training)
    return sums, examples


def _check_finite(losses: Tensor, sums: dict[str, Tensor], group: int) -> None:
    # Squares cannot cancel: a number that is not finite makes the sum not finite.
    flags = torch.stack([losses.detach().float().sum(), *(value.sum() for value in sums.values())]).isfinite()
    if bool(flags.all()):
        return
    broken = ["the loss", *(f"the gradient of {name}" for name in sums)][int((~flags).nonzero()[0])]
    raise DivergedError(
        f"the Fisher information cannot be estimated: {broken} is not a finite number in group {group} of the sample. "
        "The weights have diverged; train with a smaller learning rate or in float32"
    )


def example_losses(
    encoder: Encoder, batch: Batch, losses: RowLosses, config: RetrieverConfig, *, sampled: bool
) -> Tensor:
    """Return the loss of each query of a batch, with a graph.

    Args:
        encoder: on any device.
        batch: of any device.
        losses: the training's, row by row.
        config: the kind of loss.
        sampled: whether labels are drawn from the model, by the distribution whose likelihood the loss is. The seed and
            a pair's number decide its label, whatever its group and process.
    """
    batch = batch.to(encoder.device)
    scores = batch.cosines(encoder)
    label = _drawn(scores.detach(), batch, config) if sampled else batch.label
    return losses(scores, label, batch.ignore)


def _drawn(scores: Tensor, batch: Batch, config: RetrieverConfig) -> Tensor:
    values = scores.double().cpu().numpy()
    ignore = batch.ignore.cpu().numpy()
    label = np.zeros_like(values)
    for row, pair in enumerate(batch.pairs):
        rng = random_numbers(config.seed, _LABELS, pair)
        if config.loss == "mse":
            # A squared error is the likelihood of a normal distribution of variance 1/2 about the score.
            label[row] = values[row] + rng.normal(scale=0.5**0.5, size=values.shape[1])
        else:
            logits = np.where(ignore[row], -np.inf, values[row] / config.temperature)
            chances = np.exp(logits - logits.max())
            label[row, rng.choice(len(chances), p=chances / chances.sum())] = 1.0
    return torch.from_numpy(label).to(scores)
