"""Averaging of checkpoints: the cheap rival of a penalty. Weights in, weights out.

theta = (1 - share) * theta_start + share * theta_end, weight by weight, after training: WiSE-FT (Wortsman et al. 2021,
arXiv:2109.01903), which Goedel-Prover-V2 (Lin et al. 2025, arXiv:2508.03613) uses between its base model and its
trained one. Along a chain of tasks each begins at the average before it, so a task that is k tasks old has a share of
share * (1 - share)^k in the weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pipeline.retrieval.errors import CheckpointError


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
