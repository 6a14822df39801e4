"""Protection against forgetting, behind one setting: `against_forgetting` of the training configuration.

"ewc" pulls weights back by their Fisher information, "replay" learns rows of earlier tasks again, "average" averages
the weights before and after a task, "none" does nothing; "ewc+replay" and so on do several. Each is a `Strategy`
(`pipeline.models.retriever.tasks`) and lives for one task of the chain.

Averaging, the cheap rival of a penalty. theta = (1 - share) * theta_start + share * theta_end, weight by weight, after
training: WiSE-FT (Wortsman et al. 2021, arXiv:2109.01903), which Goedel-Prover-V2 (Lin et al. 2025, arXiv:2508.03613)
uses between its base model and its trained one. Along a chain of tasks each begins at the average before it, so a task
that is k tasks old has a share of share * (1 - share)^k in the weights.

Elastic weight consolidation: see `pipeline.models.retriever.ewc`. Replay: see `pipeline.models.retriever.replay`.
"""

# ruff: noqa: ARG002 - all strategies take the same, whether they need it or not
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from pipeline.models.errors import CheckpointError
from pipeline.models.model_files import FISHER
from pipeline.models.retriever.batches import Batch, Batches
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import Encoder
from pipeline.models.retriever.ewc import ElasticWeights
from pipeline.models.retriever.fisher import Fisher, parameters_of
from pipeline.models.retriever.replay import ReplayRows
from pipeline.models.retriever.tasks import NoStrategy, Strategy, Task, TaskState


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


def make_strategy(
    config: RetrieverConfig, state_folder: Path | None, rows: ReplayRows | None = None
) -> Strategy:
    """Return the strategy that a configuration names.

    Args:
        config: `against_forgetting`, and the settings of each.
        state_folder: the folder of the checkpoint that the task starts from; None at the beginning of a chain. What
            it does not have (because it was trained with another setting) counts as empty.
        rows: the earlier tasks'; None: there are none.

    Raises:
        CheckpointError: what the folder has cannot be read.
    """
    made: list[Strategy] = []
    # First: the Fisher information is that of the averaged weights, which the next task starts from.
    if "average" in config.ways:
        made.append(Average(config.average_weight))
    if "ewc" in config.ways:
        path = None if state_folder is None else state_folder / FISHER
        made.append(ElasticWeights(config, Fisher.load(path) if path is not None and path.exists() else None))
    if "replay" in config.ways:
        made.append(Replay(config, rows or ReplayRows({}, {}, seed=config.seed)))
    return made[0] if len(made) == 1 else Several(made)


class Several:
    """Several strategies at once, in this order; none of them is plain training."""

    def __init__(self, each: Sequence[Strategy]) -> None:
        self._each = tuple(each)

    def before_task(self, encoder: Encoder, task: Task) -> None:
        for one in self._each:
            one.before_task(encoder, task)

    def replayed(self, step: int, rank: int = 0, world: int = 1) -> Batch | None:
        found = (one.replayed(step, rank, world) for one in self._each)
        return next((batch for batch in found if batch is not None), None)

    def on_gradients(self, encoder: Encoder, step_size: float = 1.0) -> None:
        for one in self._each:
            one.on_gradients(encoder, step_size)

    def progress(self) -> tuple[float, ...]:
        # One of them has any: the others' take no room in it.
        return tuple(value for one in self._each for value in one.progress())

    def resume(self, progress: Sequence[float]) -> None:
        for one in self._each:
            one.resume(progress)

    def penalty(self, encoder: Encoder) -> Tensor | None:
        found = (one.penalty(encoder) for one in self._each)
        return next((value for value in found if value is not None), None)

    def after_task(self, encoder: Encoder, task: Task) -> TaskState:
        kept = [one.after_task(encoder, task) for one in self._each]
        return TaskState(
            next((one.fisher for one in kept if one.fisher is not None), None),
            tuple(warning for one in kept for warning in one.warnings),
        )


class Average(NoStrategy):
    """Averages the weights before and after a task (see this module's first lines)."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._start: dict[str, Tensor] = {}

    def before_task(self, encoder: Encoder, task: Task) -> None:
        self._start = {name: value.cpu().clone() for name, value in parameters_of(encoder).items()}

    def after_task(self, encoder: Encoder, task: Task) -> TaskState:
        mixed = averaged(self._start, parameters_of(encoder), share=self._share)
        with torch.no_grad():
            for name, weight in encoder.named_parameters():
                if name in mixed:
                    weight.copy_(mixed[name])
        return TaskState()


class Replay(NoStrategy):
    """Learns rows of earlier tasks beside the new ones (`pipeline.models.retriever.replay`)."""

    def __init__(self, config: RetrieverConfig, rows: ReplayRows) -> None:
        self._config = config
        self._rows = rows
        self._batches: Mapping[str, Batches] = {}

    def before_task(self, encoder: Encoder, task: Task) -> None:
        self._batches = self._rows.batches(task.tokens, self._config)

    def replayed(self, step: int, rank: int = 0, world: int = 1) -> Batch | None:
        config = self._config
        if not self._batches or config.replay_share == 0.0:
            return None
        batches = self._batches[self._rows.turn(step)]
        # As many as make the share of the step's pairs, where batches are small at least one; none is drawn twice.
        rows = max(1, round(config.batch_size * config.replay_share))
        rng, known = self._rows.draws(step), len(batches.pairs)
        return batches.of(rng.choice(known, min(rows, known), replace=False), rng, rank=rank, world=world)
