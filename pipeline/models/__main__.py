"""The jobs that train and measure: `python -m pipeline.models --spec spec.json`; the specification names the kind."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from pipeline.jobs.protocol import JobError, JobSpec, Reporter, run_job

_JOBS = {
    "train": ("retriever", "train"),
    "train_tactics": ("tactics", "train"),
    "train_progress": ("progress", "train"),
    "evaluate": ("retriever", "evaluate_checkpoint"),
}


def work(spec: JobSpec, reporter: Reporter) -> dict[str, Any]:
    """Run the job of the specification's kind.

    Raises:
        JobError: the kind is no job of a model, or as the job says.
    """
    if spec.kind not in _JOBS:
        raise JobError(
            "bad_spec",
            f"the kind is {spec.kind!r}, and a model's job is one of {', '.join(_JOBS)}",
            remedy="start the daemon again, so that it writes the specification anew",
            deterministic=True,
        )
    model, name = _JOBS[spec.kind]
    # The libraries of one model are enough.
    module = importlib.import_module(f"pipeline.models.{model}.job")
    job: Callable[[JobSpec, Reporter], dict[str, Any]] = getattr(module, name)
    return job(spec, reporter)


if __name__ == "__main__":
    sys.exit(run_job(work))
