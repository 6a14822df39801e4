"""The Fisher information of a checkpoint: how it is estimated, how tasks add up, and how it is kept.

The diagonal Fisher information measures how much each weight matters to what was learned: the mean, over examples, of
the squared gradient of one example's loss.

Scale. One task's Fisher information is divided by its mean over all weights, so that the mean is 1 whatever the size of
the model, the loss or how far it has converged.

Accumulation is online EWC (Schwarz et al. 2018, arXiv:1805.06370): S_t = decay * S_{t-1} + F_t, where F_t is task t's,
scaled first. A task that is k tasks old counts decay^k. The newest task always enters with mean 1, so lambda is the
strength of one task's pull per weight, at the first task and at the hundredth. The mean of S_t is the sum of the
tasks' factors: never above 1 / (1 - decay), and the number of tasks where decay is 1. One anchor serves all tasks: the
weights at which the last one ended.

Estimation. An example's loss is a softmax or an error over its candidates, so it depends on which candidates there
are. Groups fix them: a group is a few examples that share their candidates, made from the seed alone and the same
whatever the batch size of training and however many processes share the groups. Within a group one forward pass serves
all, then each example's gradient is taken by itself: squaring a batch's mean gradient instead would be too small by
about the batch's size, and would depend on it. `torch.func.vmap` does not trace T5's masks, and batched backward passes
(`is_grads_batched`) gain nothing once texts are longer than a line, so this is a loop.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, distributed, nn

from pipeline.models.errors import CheckpointError, DatasetError, DivergedError
from pipeline.models.libraries import tensors_digest
from pipeline.models.retriever.batches import Batch
from pipeline.models.retriever.config import FisherLabels, Loss
from pipeline.models.retriever.encoder import Encoder, embed
from pipeline.models.retriever.losses import RowLosses

_FORMAT = "everlean-fisher-1"
_PREFIX = "fisher."


@dataclass(frozen=True, slots=True)
class FisherTask:
    """One task's part of a Fisher information.

    `data` is the digest of its examples, `examples` how many were used, `mean` the mean of its Fisher information over
    all weights before scaling, `factor` what it counts by now: 1 for the newest, times the decay for each later task.
    """

    name: str
    data: str
    examples: int
    labels: FisherLabels
    mean: float
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Fisher:
    """The accumulated diagonal Fisher information at one checkpoint's weights.

    `values` are float32, shaped as the weights, never negative. `weights` is the digest of the weights that it was
    estimated at, which are its anchor; they are the checkpoint's own and not kept here again. `base` names the model
    that the chain of checkpoints began with.
    """

    values: Mapping[str, Tensor]
    weights: str
    base: str
    tasks: tuple[FisherTask, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """The tasks that are not protected because their Fisher information is zero, for a reader."""
        return tuple(
            f"the Fisher information of {task.name} is zero at every weight ({task.labels} labels, {task.examples} "
            "examples): nothing of it is protected. A loss that has reached zero does that with empirical labels; "
            "fisher_labels: sampled does not"
            for task in self.tasks
            if task.mean == 0.0
        )

    @property
    def mean(self) -> float:
        """The mean over all weights: the sum of the tasks' factors."""
        return _mean(self.values)

    def check(self, parameters: Mapping[str, Tensor], *, base: str) -> None:
        """Check that this belongs to a model whose weights, right now, are `parameters` (see `parameters_of`).

        Raises:
            CheckpointError: the base or the weights differ.
        """
        if base != self.base:
            raise CheckpointError(
                f"the Fisher information is of a chain from {self.base}, not from {base}. {_REMEDY}"
            )
        found = tensors_digest(parameters)
        if found != self.weights:
            raise CheckpointError(
                f"the Fisher information was estimated at the weights {self.weights[:12]}…, and the model's are "
                f"{found[:12]}…: it is another checkpoint of {base}, or one that was trained on since. {_REMEDY}"
            )

    def save(self, path: Path) -> None:
        """Write a safetensors file: `fisher.<name>` for each weight, and the rest as metadata.

        Raises:
            CheckpointError: it cannot be written (a full disk).
        """
        metadata = {
            "format": _FORMAT,
            "weights": self.weights,
            "base": self.base,
            "tasks": json.dumps([asdict(task) for task in self.tasks]),
        }
        tensors = {_PREFIX + name: value.cpu().contiguous() for name, value in self.values.items()}
        try:
            save_file(tensors, path, metadata=metadata)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"{path} cannot be written ({error}). Is there room on the disk? It needs 4 bytes a weight"
            ) from error

    @classmethod
    def load(cls, path: Path) -> Fisher:
        """Read what `save` wrote, bit for bit, onto the CPU.

        Raises:
            CheckpointError: it is missing, damaged, or something else.
        """
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != _FORMAT:
                    raise CheckpointError(
                        f"{path} is no Fisher information of this version (its format is "
                        f"{metadata.get('format', 'not named')}, expected {_FORMAT}). Remove it, and the next task "
                        "starts without a penalty"
                    )
                values = {name.removeprefix(_PREFIX): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 # no mapping
            tasks = tuple(FisherTask(**task) for task in json.loads(metadata["tasks"]))
            weights, base = metadata["weights"], metadata["base"]
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{path} cannot be read as a Fisher information ({error}). Take it from a backup, or remove it: the "
                "next task then starts without a penalty and makes one"
            ) from error
        for name, value in values.items():
            # One comparison that is false for NaN, too.
            if value.dtype != torch.float32 or not (value.min() >= 0 and value.max() < math.inf):
                raise CheckpointError(
                    f"{path}: {name} is no Fisher information (it has to be float32, finite and not negative): the "
                    "file is damaged. Take it from a backup, or remove it"
                )
        return cls(values, weights, base, tasks)


_REMEDY = "Start from the checkpoint that it belongs to, or train with against_forgetting: none"


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's trainable weights by name, detached, each once (a tied one has one name). No copies."""
    return {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}


def normalised(values: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], float]:
    """Return a task's Fisher information divided by its mean over all weights, and that mean.

    Where the mean is zero nothing is divided: the zeros are returned with 0.0.
    """
    mean = _mean(values)
    if mean == 0.0:
        return dict(values), 0.0
    # In float64: the mean of a converged model's squared gradients may be too small for float32's reciprocal.
    return {name: (value.double() / mean).float() for name, value in values.items()}, mean


def accumulated(previous: Fisher | None, new: Fisher, *, decay: float) -> Fisher:
    """Return decay * previous + new, at the new one's weights (online EWC; see this module's first lines).

    Args:
        previous: of the same chain; None at its first task.
        new: the last task's, scaled.
        decay: what an older task keeps at each later one, 0 (LeanAgent: the last task alone) to 1 (all alike).
    """
    if previous is None:
        return new
    return replace(
        new,
        values={
            name: value.add(previous.values[name].to(value.device), alpha=decay)
            for name, value in new.values.items()
        },
        tasks=(*(replace(task, factor=task.factor * decay) for task in previous.tasks), *new.tasks),
    )


def _mean(values: Mapping[str, Tensor]) -> float:
    total = sum(float(value.sum(dtype=torch.float64)) for value in values.values())
    return total / sum(value.numel() for value in values.values())


M = TypeVar("M", bound=nn.Module)
G = TypeVar("G")
_LABELS = 2  # separates this stream of random numbers from those of the batches


@dataclass(frozen=True, slots=True)
class FisherSums:
    """The result of some of the groups: sums of the examples' squared gradients, by weight (float32), and how many
    examples there were."""

    sums: dict[str, Tensor]
    examples: int


def squared_gradients(
    model: M,
    groups: Iterable[G],
    losses: Callable[[M, G], Tensor],
) -> FisherSums:
    """Return the sums of squared gradients over the examples of groups.

    Dropout is off while it runs; the weights' `.grad` is not touched. Costs a forward pass of each group and a
    backward pass of the group for each of its examples; memory of two copies of the weights in float32 besides the
    graph of one group.

    Args:
        model: its weights that require a gradient are what the sums are about.
        groups: what `losses` takes.
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
    return FisherSums(sums, examples)


def _check_finite(losses: Tensor, sums: dict[str, Tensor], group: int) -> None:
    # Squares cannot cancel: what was not finite in any example is not finite in the sum.
    flags = torch.stack([losses.detach().float().sum(), *(value.sum() for value in sums.values())]).isfinite()
    if bool(flags.all()):
        return
    broken = ["the loss", *(f"the gradient of {name}" for name in sums)][int((~flags).nonzero()[0])]
    raise DivergedError(
        f"the Fisher information cannot be estimated: {broken} is not a finite number in group {group} of the sample. "
        "The weights have diverged; train with a smaller learning rate or in float32"
    )


def merge_over_processes(part: FisherSums) -> FisherSums:
    """Return what all processes of the default group give together, in each of them; every one has to call it.

    Without a process group it is the part itself. The part's sums are overwritten.
    """
    if not distributed.is_initialized():
        return part
    for value in part.sums.values():
        distributed.all_reduce(value)
    device = next(iter(part.sums.values())).device
    examples = torch.tensor(part.examples, dtype=torch.int64, device=device)
    distributed.all_reduce(examples)
    return FisherSums(part.sums, int(examples))


def task_fisher(
    part: FisherSums,
    model: nn.Module,
    *,
    name: str,
    data: str,
    base: str,
    labels: FisherLabels,
) -> Fisher:
    """Return one task's Fisher information at the model's weights.

    Args:
        part: of all the sample's groups.
        model: the model, unchanged since.
        name: the task's.
        data: the digest of its examples.
        base: what the chain of checkpoints began with.
        labels: what the losses were taken with.

    Raises:
        DatasetError: the sample had no examples.
    """
    if part.examples == 0:
        raise DatasetError(
            f"no example of {name} to estimate a Fisher information on. Export a larger dataset"
        )
    values, mean = normalised({key: value / part.examples for key, value in part.sums.items()})
    return Fisher(
        values=values,
        weights=tensors_digest(parameters_of(model)),
        base=base,
        tasks=(FisherTask(name, data, part.examples, labels, mean),),
    )


class RetrievalLosses:
    """The loss of each query of a `Batch`, with its own labels or with labels sampled from the model."""

    def __init__(
        self, losses: RowLosses, *, kind: Loss, labels: FisherLabels, seed: int, temperature: float
    ) -> None:
        """Args:
        losses: the training's loss, row by row.
        kind: which one it is; sampled labels follow the distribution that it is the likelihood of.
        labels: "empirical" or "sampled".
        seed: with a pair's number decides its sampled label, whatever its group and process.
        temperature: of the softmax, for "contrastive".
        """
        self._losses = losses
        self._kind = kind
        self._labels = labels
        self._seed = seed
        self._temperature = temperature

    def __call__(self, model: Encoder, batch: Batch) -> Tensor:
        device = next(model.parameters()).device
        batch = batch.to(device)
        queries = embed(model, batch.context_ids, batch.context_mask)
        scores = queries @ embed(model, batch.premise_ids, batch.premise_mask).T
        label = batch.label if self._labels == "empirical" else self._sampled(scores.detach(), batch)
        return self._losses(scores, label, batch.ignore)

    def _sampled(self, scores: Tensor, batch: Batch) -> Tensor:
        values = scores.double().cpu().numpy()
        ignore = batch.ignore.cpu().numpy()
        label = np.zeros_like(values)
        for row, pair in enumerate(batch.pairs):
            rng = np.random.Generator(np.random.Philox(key=[self._seed, _LABELS], counter=[0, 0, 0, pair]))
            if self._kind == "mse":
                # A squared error is the likelihood of a normal distribution of variance 1/2 about the score.
                label[row] = values[row] + rng.normal(scale=0.5**0.5, size=values.shape[1])
            else:
                logits = np.where(ignore[row], -np.inf, values[row] / self._temperature)
                chances = np.exp(logits - logits.max())
                label[row, rng.choice(len(chances), p=chances / chances.sum())] = 1.0
        return torch.from_numpy(label).to(scores)
