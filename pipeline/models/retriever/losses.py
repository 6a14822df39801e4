"""The retriever's losses, by their names in the setting `loss`.

A row is a query, a column a premise. A loss takes the scores of all pairs, their labels and the columns to ignore, and
returns one number a row, so that the Fisher information can be of single rows. Labels and ignored columns are made with
the batch (`pipeline.models.retriever.batches`). All are computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from pipeline.models.retriever.config import Loss

RowLosses = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(scores, label, ignore), each (B, C), to the loss of each row: float32, shape (B,)."""
# Low enough to vanish in a softmax, and finite, so that a row without negatives has a gradient.
_NEVER = -1e4


def row_losses(loss: Loss, *, temperature: float) -> RowLosses:
    """Return a loss by its name; `temperature` divides the scores of "contrastive"."""
    if loss == "mse":
        return squared_error
    return partial(contrastive, temperature=temperature)


def squared_error(scores: Tensor, label: Tensor, ignore: Tensor) -> Tensor:
    """Return each row's mean squared difference of score and label: LeanDojo's loss (arXiv:2306.15626)."""
    difference = (scores.float() - label).square().masked_fill(ignore, 0.0)
    return difference.sum(dim=1) / (~ignore).sum(dim=1).clamp(min=1)


def contrastive(scores: Tensor, label: Tensor, ignore: Tensor, *, temperature: float) -> Tensor:
    """Return each row's mean, over its positives, of -log of the positive's share against the negatives.

    InfoNCE (van den Oord et al. 2018, arXiv:1807.03748) with several positives: a positive is compared with the
    negatives and not with the other positives, and columns to ignore are neither (the masked loss of Zhu et al. 2025,
    arXiv:2506.07477). A row without a positive costs nothing.
    """
    logits = scores.float() / temperature
    positive = (label > 0) & ~ignore
    negatives = logits.masked_fill(positive | ignore, _NEVER).logsumexp(dim=1, keepdim=True)
    each = torch.nn.functional.softplus(negatives - logits).masked_fill(~positive, 0.0)
    return each.sum(dim=1) / positive.sum(dim=1).clamp(min=1)
