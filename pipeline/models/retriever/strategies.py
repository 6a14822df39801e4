"""Protection against forgetting, behind one setting: `against_forgetting` of the training configuration.

"ewc" pulls weights back by their Fisher information, "replay" learns rows of earlier tasks again, "average" averages
the weights before and after a task, "none" does nothing; "ewc+replay" and so on do several.

Averaging, the cheap rival of a penalty. theta = (1 - share) * theta_start + share * theta_end, weight by weight, after
training: WiSE-FT (Wortsman et al. 2021, arXiv:2109.01903), which Goedel-Prover-V2 (Lin et al. 2025, arXiv:2508.03613)
uses between its base model and its trained one. Along a chain of tasks each begins at the average before it, so a task
that is k tasks old has a share of share * (1 - share)^k in the weights.

Elastic weight consolidation: see `pipeline.models.retriever.ewc`. Replay: see `pipeline.models.retriever.replay`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from pipeline.models.model_files import FISHER
from pipeline.models.retriever.batches import Batch, Batches
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import Encoder
from pipeline.models.retriever.ewc import ElasticWeights, Task
from pipeline.models.retriever.fisher import Fisher, parameters_of
from pipeline.models.retriever.replay import ReplayRows


def averaged(start: Mapping[str, Tensor], end: Mapping[str, Tensor], *, share: float) -> dict[str, Tensor]:
    """Return (1 - share) * start + share * end, in the dtype and on the device of `end`.

    Exactly `start` for a share of 0 and exactly `end` for 1. Computed in float32.
    """
    return {
        name: torch.lerp(start[name].to(last.device).float(), last.float(), share).to(last.dtype)
        for name, last in end.items()
    }


class Protection:
    """What protects earlier tasks while one task is learned, by `against_forgetting`.

    It lives for one task; what the next one needs of it is in the checkpoint's folder. Every process of a run has its
    own and makes the same calls.
    """

    def __init__(
        self, config: RetrieverConfig, state_folder: Path | None = None, rows: ReplayRows | None = None
    ) -> None:
        """Args:
        config: `against_forgetting`, and the settings of each way.
        state_folder: the folder of the checkpoint that the task starts from; None at the beginning of a chain. What
            it does not have (because it was trained with another setting) counts as empty.
        rows: the earlier tasks'; None: there are none.

        Raises:
            CheckpointError: what the folder has cannot be read.
        """
        self._config = config
        self._elastic: ElasticWeights | None = None
        if "ewc" in config.ways:
            path = None if state_folder is None else state_folder / FISHER
            kept = Fisher.load(path) if path is not None and path.exists() else None
            self._elastic = ElasticWeights(config, kept)
        self._rows = rows if "replay" in config.ways and config.replay_share > 0 else None
        self._batches: Mapping[str, Batches] = {}
        self._start: dict[str, Tensor] = {}

    def before_task(self, encoder: Encoder, task: Task) -> None:
        """Begin, with the weights that the task starts from in the encoder: also when an interrupted run continues,
        before the weights of its last step are loaded.

        Raises:
            CheckpointError: what was kept belongs to other weights.
        """
        if "average" in self._config.ways:
            self._start = {name: value.cpu().clone() for name, value in parameters_of(encoder).items()}
        if self._elastic is not None:
            self._elastic.before_task(encoder, task)
        if self._rows:
            self._batches = self._rows.batches(task.tokens, self._config)

    def replayed(self, step: int, rank: int = 0, world: int = 1) -> Batch | None:
        """Return a process's part of the batch replayed in a step, with `replay_share` of its loss; None for none."""
        if not self._batches or self._rows is None:
            return None
        config, batches = self._config, self._batches[self._rows.turn(step)]
        # As many as make the share of the step's pairs, where batches are small at least one; none is drawn twice.
        rows = max(1, round(config.batch_size * config.replay_share))
        rng, known = self._rows.draws(step), len(batches.pairs)
        return batches.of(rng.choice(known, min(rows, known), replace=False), rng, rank=rank, world=world)

    def on_gradients(self, encoder: Encoder, step_size: float = 1.0) -> None:
        """Change the gradients of a step: in `on_before_optimizer_step`, before they are clipped.

        `step_size` is the step's learning rate as a share of the full one.
        """
        if self._elastic is not None:
            self._elastic.on_gradients(encoder, step_size)

    def progress(self) -> tuple[float, ...]:
        """Return what an interrupted run needs beside its weights to go on in the same way."""
        return () if self._elastic is None else self._elastic.progress()

    def resume(self, progress: Sequence[float]) -> None:
        """Take the `progress` of the saved step that a run continues from, after `before_task`."""
        if self._elastic is not None:
            self._elastic.resume(progress)

    def penalty(self, encoder: Encoder) -> Tensor | None:
        """Return the penalty's value for the log, a float32 on the encoder's device; None without one."""
        return None if self._elastic is None else self._elastic.penalty(encoder)

    def after_task(self, encoder: Encoder, task: Task) -> Fisher | None:
        """End: average the weights in the encoder; return the Fisher information there, for the checkpoint."""
        if "average" in self._config.ways:
            mixed = averaged(self._start, parameters_of(encoder), share=self._config.average_weight)
            with torch.no_grad():
                for name, weight in encoder.named_parameters():
                    if name in mixed:
                        weight.copy_(mixed[name])
        return None if self._elastic is None else self._elastic.after_task(encoder, task)
