"""A prove job that waits in place of searching: `python -m benchmarks.engines_job --spec spec.json`.

It sleeps instead of waiting for answers. Each sorry takes two seconds: every other one as a single answer of
an endpoint, the rest as a hundred answers of a REPL. Each is recorded as by a search.
"""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

from pipeline.jobs.protocol import JobSpec, Recorded, Reporter, run_job
from pipeline.jobs.specs import ProveSpec
from store.events.proofs import AttemptFinished

ENDPOINT_S, REPL_S = 2.0, 0.02
ANSWERS_OF_REPL = 100


def work(spec: JobSpec[ProveSpec], reporter: Reporter) -> dict[str, Any]:
    """Wait for the sorries of the specification one after the other."""
    parameters = spec.parameters
    for number, target in enumerate(parameters.sorries):
        reporter.progress(number, len(parameters.sorries), target.path)
        began = time.monotonic()
        calls = 0
        if number % 2:
            for _ in range(ANSWERS_OF_REPL):
                time.sleep(REPL_S)
                calls += 1
        else:
            time.sleep(ENDPOINT_S)
        body = AttemptFinished(
            repository=parameters.repository,
            branch=parameters.branch,
            sha=parameters.sha,
            sorry=target.sorry,
            blob=target.blob,
            prover=parameters.prover,
            rung=parameters.rung.number,
            model=parameters.model,
            seed=parameters.seed,
            budget=parameters.budget_key,
            outcome="exhausted",
            detail="",
            best="",
            goals_left=None,
            nodes=calls,
            repl_calls=calls,
            seconds=round(time.monotonic() - began, 3),
            prompt_tokens=0,
            completion_tokens=0,
            usd=None,
            tree=None,
            job=spec.job,
        )
        reporter.events(
            [Recorded(f"repository:{parameters.repository}", body, (target.sorry, target.blob, spec.job))]
        )
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"processor_s": round(used.ru_utime + used.ru_stime, 3)}


if __name__ == "__main__":
    sys.exit(run_job(ProveSpec, work))
