"""Train a tactic model with Lean's reward on the goals of a task, on top of a checkpoint; the job `train_grpo`.

The goals are those of the task's training split, each stated in its file as the trace's commit has it, with what stands
before its theorem: the job's worktree, built. What is measured is what `train_tactics` measures, so that the rule of
promotion compares like with like. A job that is started again continues from the last step that was saved; a save is
taken between the answers to one group of goals and the next.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from pipeline.jobs.protocol import JobSpec, Reporter
from pipeline.jobs.specs import GrpoSpec, TrainGrpoSpec
from pipeline.lean.backend import LeanBackend
from pipeline.lean.pool import PoolLimits
from pipeline.models.chain import Chain, Checkpoint, TrainingFacts
from pipeline.models.config import TacticsConfig
from pipeline.models.datasets import TaskData
from pipeline.models.errors import NothingToLearnError
from pipeline.models.model_files import versions
from pipeline.models.running import Saves
from pipeline.models.tactics.adapters import started, written
from pipeline.models.tactics.goals import SourcePlaces
from pipeline.models.tactics.grpo import LEAN, GRPOTrainer
from pipeline.models.tactics.job import LIBRARIES, TacticsJob, adapter_of
from pipeline.models.tactics.rows import NO_PREMISES, RowPremises, read_rows
from pipeline.models.training_job import OnStep


def learn(
    task: TaskData,
    chain: Chain,
    config: TacticsConfig,
    grpo: GrpoSpec,
    *,
    parent: str | None,
    lean: LeanBackend,
    project: Path,
    folder: str,
    limits: PoolLimits,
    premises: RowPremises = NO_PREMISES,
    tensorboard: Path | None = None,
    on_step: OnStep = lambda _done, _total: None,
) -> Checkpoint:
    """Train on a task's goals from a checkpoint (None: from `config.model_name`) and add the new one to the chain.

    An existing one, from the same parent, data and settings, is not made again; an interrupted one continues from the
    last step that was saved.

    Args:
        task: with a dataset in LeanDojo's form, of which the training split counts.
        chain: of tactic models.
        config: lengths, adapter, device, seed and saves.
        grpo: the other settings.
        parent: the checkpoint to start from.
        lean: the judge.
        project: the Lake project of the checkout that the dataset was traced at, built.
        folder: where in its repository it lies.
        limits: of Lean's processes.
        premises: what the prompts have beside their goals.
        tensorboard: the folder for TensorBoard's files; None: none are written.
        on_step: takes (optimiser steps done, in all) after each.

    Raises:
        NothingToLearnError: there are fewer goals than a step takes, or Lean could judge none of the answers.
        LearningError: the dataset, the parent or a setting cannot be used, Lean does not start, the loss diverged, the
            disk is full, or another process makes the same checkpoint.
        Yielded: the job was preempted, and the run is saved.
    """
    rows = read_rows(task.dataset / config.split / "train.json")
    about = {"objective": "grpo", "grpo": grpo.model_dump(mode="json")}
    parts = [rows.digest, premises.name, lean.kind, json.dumps(about, sort_keys=True)]
    step = chain.step(
        task, config, parent=parent, data=hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    )
    by_repository = config.lora_by_repository
    step = replace(started(step, chain, by_repository=by_repository), config={**step.config, **about})

    def make(run: Path) -> Checkpoint:
        began = time.monotonic()
        saves = Saves(run / "steps", 60 * config.save_minutes, tensorboard)
        trainer = GRPOTrainer(
            step.start,
            LEAN,
            run / "model",
            batch_size=grpo.batch_size,
            lr=grpo.lr,
            lora_config=adapter_of(config) if config.lora else None,
            num_generations=grpo.num_generations,
            temperature=grpo.temperature,
            kl_beta=grpo.kl_beta,
            max_steps=grpo.max_steps,
            places=SourcePlaces(lean, project, folder),
            limits=limits,
            trl=grpo.trl,
            max_seq_len=config.max_seq_len,
            enable_thinking=config.enable_thinking,
            device=config.device,
            seed=config.seed,
            report_to=saves.report_to,
            say=lambda _line: None,
            on_step=on_step,
        )
        shown = rows.shown(premises.of(task.dataset), seed=config.seed)
        fitted = trainer.fit(shown, saves)
        trainer.check_finite()
        if fitted.measures.get("unjudged", 0.0) >= 1.0:
            raise NothingToLearnError(
                f"{task.name}: Lean could judge none of the answers, so that nothing was learned: its goals cannot be "
                "stated again where they were traced"
            )
        write, adapters = written(step, chain, trainer.write, by_repository=by_repository)
        facts = TrainingFacts(
            fitted.steps,
            trainer.device.type,
            time.monotonic() - began,
            versions(LIBRARIES),
            _warnings(fitted.measures),
            {
                **about,
                "fitted": {**asdict(fitted), "measures": dict(fitted.measures)},
                "premises": {"of": premises.name, "rows": sum(bool(row.premises) for row in shown.rows)},
                # Of the answers since the run was last started.
                **trainer.about(),
                **adapters,
            },
        )
        return chain.put(step, write, facts)

    return chain.once(step, make)


def _warnings(measures: Mapping[str, float]) -> tuple[str, ...]:
    silent = measures.get("groups_without_signal", 0.0)
    if silent < _MOST_SILENT:
        return ()
    why = "so that nothing was learned of them: the goals are too easy for the model, or too hard"
    return (f"in {silent:.0%} of the groups all answers earned the same, {why}",)


_MOST_SILENT = 0.95


class GrpoJob(TacticsJob):
    """The job; its prompts, and the rows that it measures on, are shown premises."""

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
        """As `learn`."""
        order = self._order
        return learn(
            task,
            self.chain,
            self.config,
            order.grpo,
            parent=order.parent,
            lean=order.lean,
            project=self.spec.project(order.folder),
            folder=order.folder,
            limits=order.limits,
            premises=self._premises,
            tensorboard=self.tensorboard,
            on_step=on_step,
        )
