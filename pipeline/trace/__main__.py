"""The trace job: what Lean says of every file of a commit, as far as it differs from what the line has.

`python -m pipeline.trace --spec spec.json`. Parameters:

    repository, branch, sha
    worktree    the commit's files, built where Lean is real
    lean        `LeanBackend.as_json`
    url, name   of the repository, for the record (`CommitTraced`); name is like "owner/repo"
    include, exclude
                path patterns (`pipeline.globs`); what lies under `.lake` is a dependency's and not asked about
    per_file_timeout_s, parallel
                seconds that Lean has for one file; files at once, each with a REPL of its own
    repl_memory_bytes, repl_calls
                bounds of one REPL (`pipeline.lean.pool.pool.PoolLimits`; optional)
    line, after, known, sorries
                what `store.view.queries.traces.trace_parameters(view, repository=…, branch=…)` returns, asked when the
                job starts: the line's name, its last position in the log, each file that it has with the key that
                it was traced under and what it holds, and the branch's open sorrys with the goals known so far

Emits, as each file ends, one batch: `file_traced`, and `sorry_stated` for each of its sorrys whose goal is new or
another one; then `traced_file_removed`; and in one last batch `commit_traced` and `trace_measured`. A job that is
started again with `known` as it then is skips the files that are done. `traced_file_removed` has no field `simulated`,
for it says nothing of Lean.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from pipeline.held import lean_held
from pipeline.jobs.protocol import JobSpec, Reporter, run_job
from pipeline.trace.order import Order
from pipeline.trace.run import Run


def work(spec: JobSpec, reporter: Reporter) -> dict[str, Any]:
    """Trace one commit with Lean."""
    order = Order.read(spec.parameters)
    with lean_held(order.lean):
        return asyncio.run(Run(order, reporter).run())


if __name__ == "__main__":
    sys.exit(run_job(work))
