"""The trace job: what Lean says of every file of a commit, as far as it differs from what the line has.

`python -m pipeline.trace --spec spec.json`, whose parameters are a `TraceSpec`. What lies under `.lake` is a
dependency's and not asked about.

Emits, as each file ends, one batch: `file_traced`, and `sorry_stated` for each of its sorries whose goal is new or
another one; then `traced_file_removed`; and in one last batch `commit_traced` and `trace_measured`. A job that is
started again with `known` as it then is skips the files that are done.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from pipeline.jobs.lean import hold_that_it_is_lean, hold_that_lean_is_there
from pipeline.jobs.protocol import JobSpec, Reporter, run_job
from pipeline.jobs.specs import TraceSpec
from pipeline.trace.run import Run


def work(spec: JobSpec[TraceSpec], reporter: Reporter) -> dict[str, Any]:
    """Trace one commit with Lean."""
    lean = spec.parameters.lean
    hold_that_lean_is_there(lean)
    hold_that_it_is_lean(lean)
    return asyncio.run(Run(spec, reporter).run())


if __name__ == "__main__":
    sys.exit(run_job(TraceSpec, work))
