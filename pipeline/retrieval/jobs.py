"""How the jobs `train` and `evaluate` measure a retriever, in the frame of `pipeline.learning.jobs`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from pipeline.learning.datasets import TaskData
from pipeline.learning.errors import LearningError
from pipeline.learning.jobs import Measured, Measuring, Teller
from pipeline.retrieval.chain import Chain
from pipeline.retrieval.config import TrainingConfig
from pipeline.retrieval.errors import DatasetError, EmptySplitError, NothingToMeasureError
from pipeline.retrieval.lifelong import measure
from pipeline.retrieval.ranking import with_bounds
from store.events.models import ModelKind

MODEL: ModelKind = "retriever"

_FOLLOWS_FROM = ("max_seq_len", "data_max_seq_len", "num_retrieved", "seed")
"""What of a configuration decides what a measurement says."""


class RetrieverMeasuring(Measuring):
    """Measures one retriever of a chain; `indices` is the folder of embedding indices."""

    model: ClassVar[ModelKind] = MODEL
    empty: ClassVar[tuple[type[LearningError], ...]] = (EmptySplitError, NothingToMeasureError)

    def __init__(
        self,
        chain: Chain,
        checkpoint: str,
        config: TrainingConfig,
        indices: Path,
        teller: Teller,
    ) -> None:
        super().__init__(chain.folder, checkpoint, teller)
        self.config = config
        self.indices = indices

    def files(self, task: TaskData, split: str) -> tuple[Path, ...]:
        """Return the corpus and the split's file.

        Raises:
            DatasetError: one is not there.
        """
        found = tuple(task.dataset / name for name in ("corpus.jsonl", f"random/{split}.json"))
        for path in found:
            if not path.is_file():
                raise DatasetError(f"{task.name}: {path} cannot be read (No such file or directory)")
        return found

    def settings(self) -> str:
        return json.dumps([getattr(self.config, name) for name in _FOLLOWS_FROM])

    def measure(self, task: TaskData, split: str, on_batch: Callable[[int, int], object]) -> Measured:
        """Measure the checkpoint on one split: metrics as `pipeline.train` says."""
        found = measure(
            self.chain / self.checkpoint,
            task,
            self.config,
            split=split,
            indices=self.indices,
            on_batch=on_batch,
        )
        return Measured(with_bounds(found.metrics), found.dataset, found.n, found.seconds)
