"""What the jobs `train_tactics` and `train_progress` share: their checkpoints, which are `Link`s, as events."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.learning.training import TrainingJob
from pipeline.tactics.checkpoints import Link
from store.model_events import CheckpointSaved


class LinkJob(TrainingJob[Link]):
    """A job that adds a `Link` to a chain."""

    def saved(self, made: Link, *, simulated: bool) -> CheckpointSaved:
        weights = self.chain.path(made.checkpoint) / made.weights
        return CheckpointSaved(
            model=self.model,
            checkpoint=made.checkpoint,
            parent=made.parent,
            base=made.base,
            data_seq=made.data_seq,
            config=made.config,
            seed=made.seed,
            steps=made.steps,
            weights=made.files[made.weights],
            size_bytes=weights.stat().st_size,
            fisher=None,
            versions=made.versions,
            device=made.device,
            seconds=made.seconds,
            job=self.spec.job,
            simulated=simulated,
        )

    def warnings(self, made: Link) -> Sequence[str]:
        return made.warnings
