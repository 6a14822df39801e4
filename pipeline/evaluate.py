"""The evaluation job: how one checkpoint does on one split of one dataset.

`python -m pipeline.evaluate --spec spec.json`. Parameters:

    chain       the folder of checkpoints (`pipeline.retrieval.chain`)
    checkpoint  the id of one of them
    dataset     a folder with corpus.jsonl and random/
    name        what the dataset is called, to tell it from others
    repository  the key of the repository that it is of; null where it is of several (optional)
    split       "test" or "val" (optional, "test")
    config      fields of `pipeline.retrieval.config.TrainingConfig`, of which lengths, device, seed and `num_retrieved`
                count (optional: those that the checkpoint was trained with)
    indices     the folder of embedding indices
    simulated   whether the checkpoint or the dataset comes from the simulator (optional, false)

Emits one `evaluation_finished`, with metrics as `pipeline.train` says; a measurement that was made before is told
again and not made again. A split without a step that uses a premise is a failure, `bad_dataset`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.jobs.protocol import JobSpec, Reporter, run_job
from pipeline.learning.datasets import TaskData
from pipeline.learning.jobs import Teller, Unmeasured, failures, read_parameters
from pipeline.retrieval.chain import Chain
from pipeline.retrieval.config import TrainingConfig, for_a_job
from pipeline.retrieval.errors import DatasetError
from pipeline.retrieval.jobs import RetrieverMeasuring

_SPLITS = ("test", "val")


@dataclass(frozen=True, slots=True)
class Order:
    """The job's parameters."""

    chain: Chain
    checkpoint: str
    task: TaskData
    repository: str | None
    split: str
    config: TrainingConfig | None
    indices: Path
    simulated: bool

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> Order:
        repository, config = parameters.get("repository"), parameters.get("config")
        split = str(parameters.get("split", "test"))
        if split not in _SPLITS:
            raise ValueError(f"split is {split!r}: it takes one of {', '.join(_SPLITS)}")
        return cls(
            chain=Chain(Path(parameters["chain"])),
            checkpoint=str(parameters["checkpoint"]),
            task=TaskData(str(parameters["name"]), Path(parameters["dataset"])),
            repository=None if repository is None else str(repository),
            split=split,
            config=None if config is None else for_a_job(config),
            indices=Path(parameters["indices"]),
            simulated=bool(parameters.get("simulated", False)),
        )


def work(spec: JobSpec, reporter: Reporter) -> dict[str, Any]:
    """Measure a checkpoint on one split of a dataset."""
    order = read_parameters("evaluate", lambda: Order.read(spec.parameters))
    with failures(f"{order.checkpoint} on {order.task.name}"):
        checkpoint = order.chain.read(order.checkpoint, verify=True)
        config = order.config or TrainingConfig.from_dict(checkpoint.config)
        measuring = RetrieverMeasuring(
            order.chain,
            order.checkpoint,
            config,
            order.indices,
            Teller(spec.job, reporter, order.simulated),
        )
        found = measuring.tell(order.task, order.split, repository=order.repository)
        if isinstance(found, Unmeasured):
            raise DatasetError(found.reason)
    return {"evaluation": found.evaluation, "n": found.n, "metrics": found.metrics}


if __name__ == "__main__":
    sys.exit(run_job(work))
