"""Train a tactic model with Lean's reward on the goals of a task, on top of a checkpoint; the job `train_grpo`.

The goals are those of the task's training split, each stated in its file at the trace's commit, behind the text before
its theorem: the job's worktree, built. The measures are those of `train_tactics`, so the rule of promotion compares
like with like. A job started again continues from the last saved step; a save falls between the answers to two groups
of goals.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pipeline.jobs.protocol import JobSpec, Reporter
from pipeline.jobs.specs import TrainGrpoSpec
from pipeline.models.adapters import new_adapter
from pipeline.models.chain import Checkpoint
from pipeline.models.config import TacticsConfig
from pipeline.models.datasets import TaskData
from pipeline.models.errors import NothingToLearnError
from pipeline.models.running import make_checkpoint
from pipeline.models.tactics.goals import SourcePlaces
from pipeline.models.tactics.grpo import LEAN, GRPOTrainer
from pipeline.models.tactics.job import TacticsJob, premised, shared_settings
from pipeline.models.tactics.rows import NO_PREMISES, RowPremises, read_rows
from pipeline.models.training_job import OnStep

_MOST_SILENT = 0.95


class GrpoJob(TacticsJob):
    """The job; its prompts, and the rows it measures on, show premises."""

    def __init__(
        self,
        config: TacticsConfig,
        spec: JobSpec[TrainGrpoSpec],
        reporter: Reporter,
        premises: RowPremises = NO_PREMISES,
    ) -> None:
        super().__init__(config, spec, reporter, premises)
        self._order = spec.parameters

    def learn(self, task: TaskData, on_step: OnStep) -> Checkpoint:
        """Return the checkpoint after the task's goals, made if need be.

        Raises:
            NothingToLearnError: there are fewer goals than a step takes, or Lean could judge no answer.
            LearningError: the dataset, the parent or a setting cannot be used, Lean does not start, the loss diverged,
                the disk is full, or another process makes the same checkpoint.
            Yielded: the job was preempted, and the run is saved.
        """
        order, config, grpo, premises = self._order, self.config, self._order.grpo, self._premises
        rows = read_rows(task.dataset / config.split / "train.json")
        about = {"objective": "grpo", "grpo": grpo.model_dump(mode="json")}
        parts = [rows.digest, premises.name, order.lean.kind, json.dumps(about, sort_keys=True)]
        data = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        step = self.chain.step(task, config, parent=order.parent, data=data)

        def begin(folder: Path, report_to: str) -> GRPOTrainer:
            return GRPOTrainer(
                step.start,
                LEAN,
                folder,
                batch_size=grpo.batch_size,
                lr=grpo.lr,
                lora_config=new_adapter(config.lora_rank, "CAUSAL_LM") if config.lora else None,
                num_generations=grpo.num_generations,
                temperature=grpo.temperature,
                kl_beta=grpo.kl_beta,
                max_steps=grpo.max_steps,
                places=SourcePlaces(order.lean, self.spec.project(order.folder), order.folder),
                limits=order.limits,
                trl=grpo.trl,
                report_to=report_to,
                on_step=on_step,
                **shared_settings(config),
            )

        return make_checkpoint(
            begin,
            replace(step, config={**step.config, **about}),
            self.chain,
            rows=lambda: rows.shown(premises.of(task), seed=config.seed),
            about=lambda shown: {**about, **premised(premises, shown)},
            warn=lambda fitted: _warnings(task.name, fitted.measures),
            save_minutes=config.save_minutes,
            tensorboard=self.tensorboard,
        )


def _warnings(name: str, measures: Mapping[str, float]) -> tuple[str, ...]:
    if measures.get("unjudged", 0.0) >= 1.0:
        raise NothingToLearnError(
            f"{name}: Lean could judge none of the answers, so that nothing was learned: its goals cannot be "
            "stated again where they were traced"
        )
    silent = measures.get("groups_without_signal", 0.0)
    if silent < _MOST_SILENT:
        return ()
    why = "so that nothing was learned of them: the goals are too easy for the model, or too hard"
    return (f"in {silent:.0%} of the groups all answers earned the same, {why}",)
