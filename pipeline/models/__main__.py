"""The jobs of training: `python -m pipeline.models --spec spec.json`.

The specification names the kind.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

from pipeline.endpoint.credentials import take_hub_key
from pipeline.jobs.kinds import KINDS, Kind
from pipeline.jobs.protocol import JobSpec, Reporter, run_job
from pipeline.models.ranks import world
from pipeline.models.training_job import failures

_JOBS: Mapping[Kind, tuple[str, str]] = {
    "train": ("retriever.job", "train"),
    "train_tactics": ("tactics_job", "train"),
    "train_grpo": ("tactics_job", "train"),
    "train_progress": ("progress.job", "train"),
}


def work(spec: JobSpec[Any], reporter: Reporter) -> dict[str, Any]:
    """Run the job of the specification's kind.

    Raises:
        JobError: the job failed.
    """
    place, name = _JOBS[cast(Kind, spec.kind)]
    # The libraries of one model are enough.
    module = importlib.import_module(f"pipeline.models.{place}")
    job: Callable[[JobSpec[Any], Reporter], dict[str, Any]] = getattr(module, name)
    with failures(spec.parameters.repository):
        return job(spec, reporter)


if __name__ == "__main__":
    take_hub_key()
    sys.exit(run_job({kind: KINDS[kind].spec for kind in _JOBS}, work, alone=world() == 1))
