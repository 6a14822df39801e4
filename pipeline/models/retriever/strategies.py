"""Protection against forgetting, behind one setting: `against_forgetting` of the training configuration.

"ewc" pulls weights back by their Fisher information, "replay" learns rows of earlier tasks again, "average" averages
the weights before and after a task, "none" does nothing; "ewc+replay" and so on do several.

Averaging, the cheap rival of a penalty. theta = (1 - share) * theta_start + share * theta_end, weight by weight, after
training: WiSE-FT (Wortsman et al. 2021, arXiv:2109.01903), used by Goedel-Prover-V2 (Lin et al. 2025, arXiv:2508.03613)
between its base model and its trained one. Along a chain of tasks each begins at the average before it, so a task k
tasks back has a share of share * (1 - share)^k in the weights.

Elastic weight consolidation: see `pipeline.models.retriever.ewc`. Replay: see `pipeline.models.retriever.replay`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from pipeline.models.retriever.batches import Batch, Batches
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import Encoder, Tokens, embed
from pipeline.models.retriever.ewc import ElasticWeights, Part, estimated
from pipeline.models.retriever.fisher import parameters_of
from pipeline.models.retriever.losses import RowLosses
from pipeline.models.retriever.replay import ReplayRows

_BASE = "the model before this task"
"""The part without rows, by its name in a warning."""
_ASKED = 64
"""Rows of each earlier task in `Protection.remembered`, and their number at a time."""


class Replay(Protocol):
    """Returns a process's part of a step's replayed pairs."""

    def __call__(self, step: int, *, rank: int, world: int) -> Batch: ...


class Protection:
    """The protection of earlier tasks while one task is learned, by `against_forgetting`.

    It lives for one task and leaves nothing for the next one. Every process of a run has its own and makes the same
    calls.

    Attributes:
        elastic: holds the weights, after `begin`.
        replay: draws the replayed rows of a step, after `begin`; None: there are none.
        warnings: the unprotected parts, for a reader.
    """

    def __init__(self, config: RetrieverConfig, rows: ReplayRows | None = None) -> None:
        """Args:
        config: `against_forgetting`, and the settings of each way.
        rows: the earlier tasks'; None: there are none.
        """
        self._config = config
        self.elastic = ElasticWeights({}, {}, share=0.0)
        self.warnings: tuple[str, ...] = ()
        self.replay: Replay | None = None
        self._rows = rows or None
        self._batches: Mapping[str, Batches] = {}
        self._start: dict[str, Tensor] = {}

    def begin(
        self,
        encoder: Encoder,
        tokens: Tokens,
        new: Batches,
        losses: RowLosses,
        on_group: Callable[[int, int], object] = lambda _done, _total: None,
    ) -> None:
        """Begin, with the task's first weights in the encoder.

        An interrupted run does so too, before it loads the weights of its last step.

        Args:
            encoder: where EWC's examples are computed.
            tokens: makes ids of texts.
            new: of the new task; on its texts the model shows its earlier knowledge.
            losses: the training's, row by row.
            on_group: takes (groups of EWC's examples done, in all) before each.

        Raises:
            DivergedError: a loss or a gradient is no finite number.
            Yielded: the job was preempted.
        """
        if "average" in self._config.ways:
            self._start = {name: value.cpu().clone() for name, value in parameters_of(encoder).items()}
        if self._rows:
            self._batches = self._rows.batches(tokens, self._config)
            if "replay" in self._config.ways and self._config.replay_share > 0:
                # As many as make the share of the step's pairs, with small batches at least one.
                count = max(1, round(self._config.batch_size * self._config.replay_share))
                self.replay = partial(self._rows.draw, self._batches, count)
        if "ewc" not in self._config.ways or self._config.lambda_value == 0:
            return
        parts = [Part(name, batches) for name, batches in self._batches.items()]
        parts.append(Part(_BASE, new, sampled=True))
        fisher, self.warnings = estimated(encoder, parts, self._config, losses, on_group)
        self.elastic = ElasticWeights(fisher, parameters_of(encoder), share=self._config.lambda_value)

    @torch.no_grad()
    def remembered(self, encoder: Encoder) -> float | None:
        """Return the share of rows of earlier tasks with a premise of theirs first among those beside it.

        Each task counts alike; None without any.
        """
        result = []
        device = next(encoder.parameters()).device
        for batches in self._batches.values():
            rows = np.arange(min(_ASKED, len(batches.pairs)))
            batch = batches.of(rows, np.random.default_rng(self._config.seed)).to(device)
            queries = embed(encoder, batch.context_ids, batch.context_mask)
            scores = queries @ embed(encoder, batch.premise_ids, batch.premise_mask).T
            best = scores.masked_fill(batch.ignore, -torch.inf).argmax(dim=1, keepdim=True)
            result.append(float(batch.label.gather(1, best).mean()))
        return statistics.fmean(result) if result else None

    @torch.no_grad()
    def after_task(self, encoder: Encoder) -> None:
        """End: average the weights in the encoder: a share of 0 is those before the task bit for bit, 1 those after."""
        for name, weight in encoder.named_parameters():
            if name in self._start:
                weight.copy_(
                    torch.lerp(self._start[name].to(weight.device), weight, self._config.average_weight)
                )
