"""The prove job as a process: `python -m pipeline.prove --spec spec.json`, with a `ProveSpec` as parameters."""

from __future__ import annotations

import sys

from pipeline.endpoint.credentials import take_hub_key
from pipeline.jobs.protocol import run_job
from pipeline.jobs.specs import ProveSpec
from pipeline.prove.job import work

if __name__ == "__main__":
    take_hub_key()
    sys.exit(run_job(ProveSpec, work))
