"""The Fisher information of a training's past, estimated at its first weights.

The diagonal Fisher information measures each weight's importance for earlier tasks: the mean, over examples, of the
squared gradient of one example's loss.

Scale. The past comes in parts: each earlier repository, and the model's knowledge before all of them. A part's Fisher
information is divided by its mean over all weights, and the parts are averaged: each counts alike, whatever its size,
loss and convergence, and the mean over all weights is 1.

Estimation. An example's loss is a softmax or an error over its candidates, so it depends on them. Groups fix them: a
group is a few examples with the same candidates, made from the seed alone and independent of the training's batch size
and the number of processes. Within a group one forward pass serves all, then each example's gradient is taken by
itself: squaring a batch's mean gradient instead would be too small by about the batch's size, and would depend on it.
`torch.func.vmap` does not trace T5's masks, and batched backward passes (`is_grads_batched`) gain nothing once texts
are longer than a line, so this is a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.models.errors import DivergedError
from pipeline.models.retriever.batches import Batch
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import Encoder
from pipeline.models.retriever.losses import RowLosses


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


_LABELS = 2  # separates this stream of random numbers from those of the batches


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
        rng = np.random.Generator(np.random.Philox(key=[config.seed, _LABELS], counter=[0, 0, 0, pair]))
        if config.loss == "mse":
            # A squared error is the likelihood of a normal distribution of variance 1/2 about the score.
            label[row] = values[row] + rng.normal(scale=0.5**0.5, size=values.shape[1])
        else:
            logits = np.where(ignore[row], -np.inf, values[row] / config.temperature)
            chances = np.exp(logits - logits.max())
            label[row, rng.choice(len(chances), p=chances / chances.sum())] = 1.0
    return torch.from_numpy(label).to(scores)
