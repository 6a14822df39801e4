"""Elastic weight consolidation (Kirkpatrick et al. 2017, arXiv:1612.00796): a pull back to the weights that worked.

The penalty is lambda * sum F (theta - theta*)^2, LeanDojo's form without a half. Its gradient is added to the weights'
gradients once an optimiser step, before clipping: a quarter of what it costs as a term of the loss, and right under
gradient accumulation and DDP, where each process adds the same to gradients that are averaged already.

On the normalised scale one strength is meant to serve models of different sizes, not losses of different steepness:
`TrainingConfig.penalty_strength` has a unit for each loss, and docs/benchmarks.md says how they were measured.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from pipeline.retrieval.fisher import Fisher


class Penalty:
    """A Fisher information with its anchor, ready for the steps of a run.

    Holds both in float32 beside the weights: 8 bytes a weight (1.74 GB for ByT5-small's encoder), and while a
    gradient is added one more copy of the largest weight. Plain tensors, not buffers, so that no checkpoint holds them.
    """

    def __init__(self, fisher: Fisher, anchor: Mapping[str, Tensor], *, strength: float, base: str) -> None:
        """Take a copy of the anchor.

        Args:
            fisher: of the checkpoint that the run starts from.
            anchor: that checkpoint's weights (`pipeline.retrieval.fisher.parameters_of`).
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
                # The difference is what is small: it is taken in float32 and rounded once.
                weight.grad.add_(
                    (fisher * (weight.float() - anchor)).to(weight.grad.dtype), alpha=2 * self.strength
                )

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
