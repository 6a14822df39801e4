"""The job `train_tactics` with a trainer that somebody made in the place of its own training.

The dataset frozen, the checkpoint in the chain, measured on its test split and on those before: all as in the job
(`pipeline.train_tactics`). The trainer may have what no spec file can carry: a reward function, an adapter's shape.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.jobs.protocol import JobSpec, Reporter
from pipeline.learning.checkpoints import checkpoint_id
from pipeline.learning.datasets import TaskData
from pipeline.learning.jobs import Measuring, Teller
from pipeline.learning.training import Order
from pipeline.tactics.bases import base_of, name_base
from pipeline.tactics.checkpoints import Link
from pipeline.tactics.config import TacticsConfig
from pipeline.tactics.errors import NothingToLearnError, SettingsError
from pipeline.tactics.models import TacticModel
from pipeline.tactics.saving import read_about, start_of
from pipeline.tactics.training import Database, Repository, RepositoryTrainer
from pipeline.train_tactics import TacticsJob, TacticsMeasuring


@dataclass(frozen=True, slots=True)
class Work:
    """What a training is given: the repositories in order, of which the last is the new one, and where it is stored."""

    repos: Sequence[Repository]
    database: Database
    data_path: Path


class TrainerJob(TacticsJob):
    """The job `train_tactics` with a trainer in the place of its own training."""

    def __init__(
        self, trainer: RepositoryTrainer, work: Work, order: Order, spec: JobSpec, reporter: Reporter
    ) -> None:
        config = TacticsConfig(
            model_name=trainer.model_name,
            epochs=trainer.settings.epochs_per_repo,
            batch_size=trainer.settings.batch_size,
            lr=trainer.settings.lr,
            lora=trainer.use_lora,
            max_seq_len=trainer.settings.max_seq_len,
            device="cuda" if trainer.device.type == "cuda" else "cpu",
            seed=trainer.settings.seed,
        )
        super().__init__(order, config, spec, reporter)
        self._trainer = trainer
        self._work = work

    def learn(self, task: TaskData, on_step: Callable[[int, int], object]) -> Link:  # noqa: ARG002 - the trainer's own
        """Train, and give what came of it a place in the chain.

        Raises:
            NothingToLearnError: the repository has no step to learn from.
            SettingsError: the simulator rewarded what is to count as Lean's.
            TacticsError: what the trainer says.
        """
        last = self._work.repos[-1]
        self._trainer.train(self._work.repos, self._work.database, self._work.data_path)
        folder = Path(self._trainer.output_dir)
        about = read_about(folder)
        if about is None or {"url": last.url, "commit": last.commit} not in about["repositories"]:
            raise NothingToLearnError(f"{last.url} at {last.commit} has no step of a proof to learn from")
        if about.get("simulated") and not (
            self.order.simulated or (self.order.parent is not None and self._parent_simulated())
        ):
            raise SettingsError(
                f"the simulator rewarded what {folder} has learned of {last.url}, whose traces are Lean's: it is no "
                "checkpoint here. Give the reward places where Lean runs"
            )
        return self._adopted(folder, about, task)

    def measuring(self, checkpoint: str, teller: Teller) -> Measuring:
        return _Measuring(self._trainer, self.order.chain, checkpoint, self.config, teller)

    def _adopted(self, folder: Path, about: dict[str, Any], task: TaskData) -> Link:
        parent, config = self.order.parent, {"kind": about["kind"], **about["settings"]}
        fitted = about["fitted"]
        identity = checkpoint_id(
            parent=parent,
            base=about["base"],
            begun=about["begun"],
            task=task.name,
            # With the weights: what a reward function said stands nowhere else.
            data=f"{about['rows']} {start_of(folder)}",
            config=config,
        )

        def copied(beside: Path) -> None:
            beside.mkdir()
            for name in about["files"]:
                shutil.copy2(folder / name, beside / name)
            # Another way leads to it from here.
            name_base(beside, base_of(folder), home=beside)

        def described(files: dict[str, str]) -> Link:
            return Link(
                checkpoint=identity,
                parent=parent,
                base=about["base"],
                task=task.name,
                data=about["rows"],
                data_seq=task.data_seq,
                config=config,
                seed=int(about["settings"]["seed"]),
                steps=int(fitted["steps"]),
                files=files,
                versions=about["versions"],
                device=about["device"],
                seconds=float(about["seconds"]),
                about={
                    name: about[name]
                    for name in ("fitted", "repositories", "grpo", "simulated", "lean")
                    if name in about
                },
            )

        return self.models.once(
            identity, parent=parent, make=lambda _run: self.models.put(identity, copied, described)
        )


class _Measuring(TacticsMeasuring):
    """Asks the model that the trainer has in memory: a second one might find no room on the GPU."""

    def __init__(self, trainer: RepositoryTrainer, *given: Any) -> None:
        super().__init__(*given)
        self._trainer = trainer

    def load(self) -> TacticModel:
        return self._trainer.loaded()
