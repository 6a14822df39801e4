"""The jobs of training: `python -m pipeline.models --spec spec.json`.

The specification names the kind. The libraries of its model alone are loaded.
"""

from __future__ import annotations

import sys
from typing import Any

from pipeline.endpoint.credentials import take_hub_key
from pipeline.jobs.kinds import KINDS, Kind
from pipeline.jobs.lean import hold_that_it_is_lean, hold_that_lean_is_there
from pipeline.jobs.protocol import JobSpec, Reporter, run_job
from pipeline.jobs.specs import TrainGrpoSpec, TrainTacticsSpec
from pipeline.models.config import ProgressConfig, TacticsConfig
from pipeline.models.ranks import world
from pipeline.models.training_job import TrainingJob, failures

_KINDS: tuple[Kind, ...] = ("train", "train_tactics", "train_grpo", "train_progress")


def work(spec: JobSpec[Any], reporter: Reporter) -> dict[str, Any]:
    """Run the job of the specification's kind.

    Raises:
        JobError: the job failed.
    """
    with failures(spec.parameters.repository):
        return _job(spec, reporter).run()


def _job(spec: JobSpec[Any], reporter: Reporter) -> TrainingJob[Any, Any]:
    config = spec.parameters.config
    match spec.kind:
        case "train":
            from pipeline.models.retriever.config import RetrieverConfig
            from pipeline.models.retriever.job import RetrieverJob

            return RetrieverJob(RetrieverConfig.from_dict(config), spec, reporter)
        case "train_progress":
            from pipeline.models.progress.job import ProgressJob

            return ProgressJob(ProgressConfig.from_dict(config), spec, reporter)
    return _tactics_job(spec, reporter)


def _tactics_job(spec: JobSpec[TrainTacticsSpec], reporter: Reporter) -> TrainingJob[Any, Any]:
    """Return the training of a tactic model, on people's tactics or with Lean's reward."""
    from pipeline.models.tactics.rows import NO_PREMISES

    order, premises = spec.parameters, NO_PREMISES
    config = TacticsConfig.from_dict(order.config)
    if order.retriever is not None:
        from pipeline.models.finding import row_premises

        premises = row_premises(order.retriever)
    if isinstance(order, TrainGrpoSpec):
        # Apart: it loads TRL's trainer and Lean's pool.
        from pipeline.models.tactics.grpo import GrpoJob

        hold_that_lean_is_there(order.lean)
        hold_that_it_is_lean(order.lean)
        return GrpoJob(config, spec, reporter, premises)
    from pipeline.models.tactics.job import TacticsJob

    return TacticsJob(config, spec, reporter, premises)


if __name__ == "__main__":
    take_hub_key()
    sys.exit(run_job({kind: KINDS[kind].spec for kind in _KINDS}, work, alone=world() == 1))
