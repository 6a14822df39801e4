"""The trace job: Lean's account of every file of a commit, as far as it differs from the line's.

`python -m pipeline.trace --spec spec.json`, with a `TraceSpec` as parameters. Files under `.lake` belong to
dependencies, and Lean is not asked about them.

Emits one batch at the end of each file: `file_traced`, and `sorry_stated` for each of its sorries with a new or changed
goal; then `traced_file_removed`; and in one last batch `commit_traced` and `trace_measured`. A restarted job, with
`known` up to date, skips the finished files.
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
