"""The prove job as a process: `python -m pipeline.prove --spec spec.json`, whose parameters are a `ProveSpec`."""

from __future__ import annotations

import sys

from pipeline.jobs.protocol import run_job
from pipeline.jobs.specs import ProveSpec
from pipeline.prove.job import work

if __name__ == "__main__":
    sys.exit(run_job(ProveSpec, work))
