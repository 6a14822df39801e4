"""LeanDojo-v2's trainers under their own names, with their constructors, on our trainings and chain of checkpoints.

    from pipeline.models.trainers import SFTTrainer
    from store.leandojo import DynamicDatabase

    database = DynamicDatabase("dynamic_database.json")
    trainer = SFTTrainer("Qwen/Qwen3-0.6B", output_dir="outputs", lora_config=LoraConfig(task_type="CAUSAL_LM"))
    trainer.train(database.sort_repositories_by_difficulty(), database, "raid/data/merged")

`output_dir` is a link to the newest checkpoint of a chain beside it, so it always holds a whole model:

    <output_dir> ─► <output_dir>.chain/<id>/      the model, its tokenizer, checkpoint.json
    <output_dir>.chain/.runs/<id>/                the saves of a run in progress
    <output_dir>.chain/tensorboard/<id>/          TensorBoard's files

A repeated call continues after its earlier work, also within a repository; a trainer with other settings begins anew,
and its model takes the place of the one before. `RetrievalTrainer` keeps every checkpoint, in LeanDojo's folder, where
HEAD is such a link. Under `accelerate launch` every process runs the same program: the first one writes, the others
wait for it.
"""

from __future__ import annotations

import abc
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from peft import PeftConfig
from pydantic.dataclasses import dataclass
from transformers import TrainerCallback

from pipeline.jobs.specs import GrpoSpec
from pipeline.models.added import kind_of
from pipeline.models.chain import Chain, Step
from pipeline.models.config import STRICT, Config, Device, PositiveNumber, ProgressConfig, TacticsConfig
from pipeline.models.datasets import TaskData, exported_position
from pipeline.models.errors import CheckpointError, ConfigError, DatasetError, NothingToLearnError
from pipeline.models.libraries import DType, device_of
from pipeline.models.measures import Evaluation
from pipeline.models.model_files import Checkpoint, locked_folder, start_of
from pipeline.models.progress.steps import read_dataset
from pipeline.models.progress.training import ProgressTraining
from pipeline.models.ranks import is_first, join, meet, of_first, start_again, world
from pipeline.models.retriever.config import RetrieverConfig, TrainingConfig
from pipeline.models.retriever.learning import learn, measure
from pipeline.models.running import FitResult, Reports, Training, make_checkpoint, trackers
from pipeline.models.tactics.goals import Places
from pipeline.models.tactics.models import MAX_SEQ_LEN
from pipeline.models.tactics.reward import REWARDS, LeanReward
from pipeline.models.tactics.rows import digest_of, read_rows
from pipeline.models.tactics.training import FineTuning
from store.events.models import ModelKind
from store.files import sync
from store.leandojo import DynamicDatabase, Repository

LEAN: Literal["lean"] = "lean"
_RAID = Path(os.environ.get("RAID_DIR") or "raid")
DATA = _RAID / "data"
CHECKPOINTS = _RAID / "checkpoints"
"""LeanDojo's CHECKPOINT_DIR."""
HEAD = "HEAD"
_INDICES = ".indices"
ONE_PASS = GrpoSpec(max_steps=None)
C = TypeVar("C", bound=Config)


class OutputFolder:
    """A link to the newest checkpoint of a chain: a trainer's `output_dir`; see the module."""

    def __init__(self, folder: str | Path, model: ModelKind) -> None:
        """A retriever's chain is the folder around the link, with every checkpoint; another's has the newest alone."""
        self.folder = Path(folder).absolute()
        self._model = model
        self._keeps_all = model == "retriever"
        beside = self.folder.with_name(f"{self.folder.name}.chain")
        self.chain = Chain(self.folder.parent if self._keeps_all else beside)

    def newest(self) -> Checkpoint | None:
        """Return the link's checkpoint; None without a link. One removed as damaged is trained again.

        Raises:
            CheckpointError: it is damaged; or not there, and the chain keeps every checkpoint.
        """
        if not self.folder.is_symlink() or not (self._keeps_all or self.folder.exists()):
            return None
        return self.chain.read(self.folder.readlink().name, verify=True)

    @contextmanager
    def opened(self, model: str | Path) -> Iterator[Checkpoint | None]:
        """Lock the folder for a training that begins with a model; return its own checkpoint, if any.

        Raises:
            ConfigError: it is that model, or holds one of another kind, and would be replaced; or something else.
            CheckpointError: another process trains into it, or its model is damaged.
        """
        if not self._keeps_all and Path(model).resolve() == self.folder.resolve():
            raise ConfigError(
                f"output_dir is {self.folder}, which is the model to begin with, and would be replaced: name another "
                "folder"
            )
        if not self._is_ours():
            raise ConfigError(
                f"{self.folder} is no link to a model of this trainer's: name another folder, or move it away"
            )
        doing, remedy = f"trains into {self.folder}", "Wait for it, or name another folder"
        with locked_folder(self.chain.folder, doing, remedy) if is_first() else nullcontext():
            newest = of_first(self.newest() if is_first() else None)
            if newest and not self._keeps_all:
                kind = kind_of(self.folder)
                # An unknown architecture counts as a retriever's; a progress model's head is known.
                if kind != self._model and "progress" in (kind, self._model):
                    raise ConfigError(
                        f"{self.folder} holds a model of another kind, which would be replaced: name another folder"
                    )
            yield newest

    def _is_ours(self) -> bool:
        """Return whether the folder is missing, empty, or the link. A disk's own folder cannot become the link."""
        if self.folder.is_symlink():
            return self.folder.resolve().parent == self.chain.folder.resolve()
        if not self.folder.exists():
            return True
        return self.folder.is_dir() and not self.folder.is_mount() and not any(self.folder.iterdir())

    def point_to(self, made: Checkpoint) -> None:
        """Let the folder be a link to a checkpoint, and remove the chain's others unless it keeps all.

        Raises:
            CheckpointError: the disk refused.
        """
        if is_first():
            try:
                link = self.chain.folder / ".link"
                link.unlink(missing_ok=True)
                link.symlink_to(os.path.relpath(self.chain.path(made.checkpoint), self.folder.parent))
                if self.folder.is_dir() and not self.folder.is_symlink():
                    self.folder.rmdir()  # empty
                link.replace(self.folder)
                sync(self.folder.parent)
                if not self._keeps_all:
                    # The model of other settings or data is replaced.
                    self.chain.keep_only(made.checkpoint)
            except OSError as error:
                raise CheckpointError(
                    f"{self.folder} cannot be made a link to {self.chain.path(made.checkpoint)} alone ({error}). "
                    "Give back the right to write, and run it again"
                ) from error
        meet()


@dataclass(frozen=True, slots=True, config=STRICT)
class TrainerConfig(TacticsConfig):
    """Settings of a tactic model's trainer.

    Attributes:
        begun: the digest of the model to begin with, if that is a folder.
        adapter: PEFT's configuration of a new adapter.
        dtype: of the weights (`FineTuning`).
        lr: the highest learning rate.
        grpo: those of the training with a reward.
    """

    begun: str = ""
    adapter: Mapping[str, Any] | None = None
    dtype: DType = "auto"
    lr: PositiveNumber = 2e-5
    grpo: Mapping[str, Any] | None = None


class RepositoryTrainer(abc.ABC, Generic[C]):
    """The base of the trainers that learn repository after repository, each with those before it."""

    def __init__(self, output: OutputFolder) -> None:
        self._output = output

    def _train(
        self, model: str | Path, repos: Sequence[Repository], database: DynamicDatabase, folder: Path
    ) -> list[Checkpoint]:
        """Learn each repository from the dataset of all up to it, exported into a folder, on top of the one before it.

        `model`: to begin with, if the newest checkpoint cannot be continued.
        """
        made: list[Checkpoint] = []
        with self._output.opened(model) as newest:
            parent, config = self._begin(newest, str(model))
            # On top of a checkpoint by name all are learned, also what it knows.
            known = parent.learned if parent and parent is newest and config.made(parent.config) else ()
            for number, repo in enumerate(repos):
                task = TaskData(f"{repo.url}@{repo.commit}", folder)
                if task.name in known:
                    self._say(f"{task.name}: learned before")
                    continue
                meet()  # another process may still read that a repository has nothing to learn
                if is_first():
                    database.export_merged_data(repos[: number + 1], folder)
                meet()
                try:
                    parent = self._learn(task, config, parent)
                except NothingToLearnError as error:
                    self._say(f"{task.name}: {error}")
                    continue
                made.append(parent)
                self._output.point_to(parent)
                if is_first():
                    self._report(task, parent)
                for line in parent.warnings:
                    self._say(f"{task.name}: {line}")
        return made

    @abc.abstractmethod
    def _begin(self, newest: Checkpoint | None, model: str) -> tuple[Checkpoint | None, C]:
        """Return the first repository's parent, and the configuration."""

    @abc.abstractmethod
    def _learn(self, task: TaskData, config: C, parent: Checkpoint | None) -> Checkpoint:
        """Return a repository's checkpoint, made if need be.

        Raises:
            NothingToLearnError: it is to be left out. And other LearningErrors.
        """

    @abc.abstractmethod
    def _report(self, task: TaskData, made: Checkpoint) -> None:
        """Say what a new checkpoint has learned."""

    def _say(self, line: str) -> None:
        if is_first():
            print(line)  # noqa: T201 - the caller's program


class SFTTrainer(RepositoryTrainer[TrainerConfig]):
    """LeanDojo-v2's `SFTTrainer`: supervised fine-tuning of a tactic model.

    Attributes:
        model_name, output_dir, lora_config: as in LeanDojo-v2's trainers.
        config: the settings; a checkpoint follows from them, the model and the data.
    """

    def __init__(
        self,
        model_name: str | Path,
        output_dir: str | Path = "outputs",
        epochs_per_repo: int = 1,
        batch_size: int = 1,
        lr: float = 2e-5,
        lora_config: PeftConfig | None = None,
        *,
        max_seq_len: int = MAX_SEQ_LEN,
        dtype: DType = "auto",
        device: Device = "auto",
        seed: int = 3407,
        report_to: str | Sequence[str] = "none",
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        """Args:
        model_name: a folder or hub name; an adapter's folder too, to train it further.
        output_dir: the trained model's folder.
        epochs_per_repo: over the repositories so far, after each.
        batch_size: of one device.
        lr: the highest learning rate; it falls to 0 in a line.
        lora_config: trains an adapter of this kind; None trains every weight.
        max_seq_len: tokens of prompt and answer together, a quarter of them the answer's.
        dtype: of the weights (`FineTuning`).
        device: "auto": a GPU if there is one.
        seed: of everything drawn.
        report_to: transformers' names of trackers: "tensorboard", "wandb", "mlflow", "trackio", as they are set up.
        callbacks: transformers' or of its shape, for each run.

        Raises:
            ConfigError: a setting is invalid, or there is no such tracker.
        """
        super().__init__(OutputFolder(output_dir, "tactics"))
        self.model_name, self.output_dir, self.lora_config = str(model_name), str(output_dir), lora_config
        with _named(epochs="epochs_per_repo"):
            self.config = TrainerConfig(
                self.model_name,
                epochs=epochs_per_repo,
                batch_size=batch_size * world(),
                lr=float(lr),
                lora=lora_config is not None,
                max_seq_len=max_seq_len,
                premise_dropout=0.0,
                replay_share=0.0,
                only_new=False,
                seed=seed,
                device=device,
                begun=start_of(Path(model_name)),
                adapter=None if lora_config is None else _plain(lora_config.to_dict()),
                dtype=dtype,
            )
        self.reports = Reports(say=self._say, trackers=trackers(report_to), callbacks=callbacks)

    def train(
        self,
        repos: Sequence[Repository],
        database: DynamicDatabase,
        data_path: str | Path = Path("raid/data/merged"),
    ) -> list[Checkpoint]:
        """Learn repositories in this order, each with those before it, from their training split.

        A repository at a commit known to the model in `output_dir`, under these settings, is not learned again; for
        that, name another folder. One without a step to learn from is reported and left out.

        Args:
            repos: of the database.
            database: exports the dataset of each step.
            data_path: where to; replaced at each step.

        Returns:
            the checkpoints made in this call.

        Raises:
            LearningError: the model, a dataset or the folder cannot be used, a loss diverged, or the disk is full.
                Earlier work stays, and a repeated call continues after it.
        """
        join(self.config.device)
        return self._train(self.model_name, repos, database, Path(data_path))

    def _begin(
        self,
        newest: Checkpoint | None,
        model: str,  # noqa: ARG002 - it is the configuration's
    ) -> tuple[Checkpoint | None, TrainerConfig]:
        return newest if newest and self.config.made(newest.config) else None, self.config

    def _learn(self, task: TaskData, config: TrainerConfig, parent: Checkpoint | None) -> Checkpoint:
        read = read_rows(task.dataset / "random" / "train.json")
        if read.skipped:
            self._say(f"{task.name}: {read}")
        chain, before = self._output.chain, None if parent is None else parent.checkpoint
        step = chain.step(task, config, parent=before, data=digest_of(read.rows))
        reports = replace(self.reports, name=task.name)
        return make_checkpoint(
            chain,
            step,
            lambda: self._training(step, reports),
            lambda: (read.rows, {}),
        )

    def _report(self, task: TaskData, made: Checkpoint) -> None:
        self._say(f"{task.name}: {_said(made)}")

    def _training(self, step: Step, reports: Reports) -> Training[Any]:
        """Load a step's model, to train it."""
        return FineTuning(self.config, step.start, reports, adapter=self.lora_config, dtype=self.config.dtype)


class GRPOTrainer(SFTTrainer):
    """LeanDojo-v2's `GRPOTrainer`: training with a reward (`pipeline.models.tactics.grpo`); else as `SFTTrainer`."""

    def __init__(
        self,
        model_name: str | Path,
        reward_func: Callable[..., Any] | Literal["lean"],
        output_dir: str | Path = "outputs",
        epochs_per_repo: int = 1,
        batch_size: int = 1,
        lr: float = 2e-5,
        lora_config: PeftConfig | None = None,
        *,
        grpo: GrpoSpec = ONE_PASS,
        places: Places | None = None,
        **others: Any,
    ) -> None:
        """Args:
        reward_func: "lean", or a function.
        batch_size: answers in one device's batch; gradients are gathered up to a whole number of groups.
        grpo: the other settings; None steps are one pass over a repository's goals.
        places: where Lean states goals (`pipeline.models.tactics.goals`); an agent sets its own.
        others: those of `SFTTrainer`.

        Raises:
            ConfigError: a setting is invalid.
        """
        super().__init__(model_name, output_dir, epochs_per_repo, batch_size, lr, lora_config, **others)
        if not callable(reward_func) and reward_func != LEAN:
            raise ConfigError(f'reward_func is {reward_func!r}: it takes a function, or "lean"')
        own = {"lr": self.config.lr, "batch_size": self.config.batch_size}
        self.grpo = grpo.model_copy(update=own)
        name = LEAN if reward_func == LEAN else getattr(reward_func, "__name__", type(reward_func).__name__)
        described: dict[str, Any] = {"reward": name}
        if reward_func == LEAN:
            described["values"] = dict(REWARDS)
        self.config = replace(self.config, grpo={**self.grpo.model_dump(mode="json"), **described})
        self.reward_func = reward_func
        self.places = places

    @property
    def wants_places(self) -> bool:
        """Return whether Lean rewards without places for the goals yet: `places` can be set."""
        return self.places is None and self.reward_func == LEAN

    def _training(self, step: Step, reports: Reports) -> Training[Any]:
        # It loads TRL's trainer.
        from pipeline.models.tactics.grpo import RewardTraining

        reward = self.reward_func
        if reward == LEAN:
            if self.places is None:
                raise ConfigError(
                    'reward_func is "lean", and places is None: say where Lean states the goals, with '
                    "places=pipeline.models.tactics.goals.SourcePlaces(backend, project), or train with HFAgent"
                )
            reward = LeanReward(self.places)
        return RewardTraining(
            self.config,
            self.grpo,
            reward,
            step.start,
            reports,
            adapter=self.lora_config,
            dtype=self.config.dtype,
        )


class RetrievalTrainer(RepositoryTrainer[RetrieverConfig]):
    """LeanDojo-v2's `RetrievalTrainer`. After each repository the test split is measured."""

    def __init__(
        self,
        config: TrainingConfig | None = None,
        checkpoints: str | Path = CHECKPOINTS,
        *,
        report_to: str | Sequence[str] = "none",
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        """Args:
        config: how to train; None for LeanDojo's defaults.
        checkpoints: the folder of the chain.
        report_to, callbacks: as `SFTTrainer`'s.

        Raises:
            ConfigError: the configuration has "replay", which has no rows if everything is learned again; or there is
                no such tracker.
        """
        super().__init__(OutputFolder(Path(checkpoints, HEAD), "retriever"))
        self.reports = Reports(trackers=trackers(report_to), callbacks=callbacks)
        self.chain = self._output.chain
        self.config = config or TrainingConfig()
        self._ours = self.config.translated()
        if "replay" in self._ours.ways:
            raise ConfigError(
                f"against_forgetting is {self._ours.against_forgetting!r}: here each repository is learned together "
                'with those before it, so that nothing is left to replay. Take "ewc" or "ewc+average", or LeanAgent'
            )

    def train(
        self,
        repos: Sequence[Repository],
        database: DynamicDatabase,
        data_path: str | Path = DATA / "merged",
        model_checkpoint_path: str | Path | None = None,
    ) -> list[Checkpoint]:
        """Learn repositories in this order, each with those before it, from the checkpoint of the one before it.

        The dataset is that of all up to it, in `data_path`. The first begins at HEAD; without one at the newest `.ckpt`
        file of LeanDojo's in the folder of checkpoints; without that at `config.model_name`. What HEAD learned with
        this configuration is not learned again. A repository without a premise to learn is reported and left out.

        Args:
            repos: of the database.
            database: exports the datasets.
            data_path: the folder for them; corpus.jsonl and random/ lie in it.
            model_checkpoint_path: the first one's start instead: a checkpoint of the chain, a folder, a hub name, or a
                `.ckpt` file of LeanDojo's.

        Returns:
            the checkpoints made in this call.

        Raises:
            LearningError: a dataset or a checkpoint cannot be used, the loss diverged, or the disk is full. Earlier
                checkpoints stay, and a repeated call continues after them.
            ValueError: a repository is not in the database.
        """
        config = self.config
        if world() == 1 and config.num_gpus > 1 and device_of(config.device).type == "cuda":
            if hasattr(sys, "ps1"):
                raise ConfigError(
                    f"num_gpus is {config.num_gpus}: a program starts again for each further GPU, and an "
                    "interactive one cannot. Run it as a script, or set num_gpus = 1"
                )
            start_again(config.num_gpus)
        join(config.device, timeout_s=config.timeout_seconds)
        return self._train(model_checkpoint_path or "", repos, database, Path(data_path))

    def evaluate(self, dataset_path: str | Path | None = None) -> dict[str, Evaluation]:
        """Measure HEAD (or `config.model_name` without one) on every dataset below a folder, and report each.

        Args:
            dataset_path: the folder; None for raid/data. A dataset is a folder with random/test.json and corpus.jsonl.

        Returns:
            by the dataset's path below the folder, without those that have no premise in the test split.

        Raises:
            LearningError: a dataset or the checkpoint cannot be used, or there is no dataset.
        """
        root = DATA if dataset_path is None else Path(dataset_path)
        datasets = sorted(path.parent.parent for path in root.rglob("random/test.json"))
        if not datasets:
            raise DatasetError(f"{root} has no dataset: no folder below it has random/test.json")
        newest = self._output.newest()
        model = self._ours.model_name if newest is None else self.chain.path(newest.checkpoint)
        tasks = [TaskData(dataset.relative_to(root).as_posix(), dataset) for dataset in datasets]
        measured = {task.name: self._measure(model, task) for task in tasks}
        return {name: found for name, found in measured.items() if found is not None}

    def _begin(self, newest: Checkpoint | None, model: str) -> tuple[Checkpoint | None, RetrieverConfig]:
        named = Path(model).resolve()
        if model and named.parent == self.chain.folder.resolve() and self.chain.has(named.name):
            parent = self.chain.read(named.name)
            return parent, replace(self._ours, model_name=parent.base)
        if not model and newest is not None:
            return newest, replace(self._ours, model_name=newest.base)
        files = () if model else self.chain.folder.glob("*.ckpt")
        written = max(files, key=lambda path: path.stat().st_mtime, default=None)
        if written is not None:
            self._say(f"training begins at {written}, which LeanDojo wrote")
        return None, replace(self._ours, model_name=model or str(written or self._ours.model_name))

    def _learn(self, task: TaskData, config: RetrieverConfig, parent: Checkpoint | None) -> Checkpoint:
        task = replace(task, data_seq=exported_position(task.dataset))
        before = None if parent is None else parent.checkpoint
        reports = replace(self.reports, name=task.name)
        return learn(task, self.chain, config, parent=before, reports=reports)

    def _report(self, task: TaskData, made: Checkpoint) -> None:
        self._say(f"{task.name}: checkpoint {made.checkpoint}")
        self._measure(self.chain.path(made.checkpoint), task)

    def _measure(self, model: str | Path, task: TaskData) -> Evaluation | None:
        """Measure a model on a task's test split, and report it; None if the split has nothing to measure."""
        try:
            found = measure(model, task, self._ours, indices=self.chain.folder / _INDICES)
        except NothingToLearnError as error:
            self._say(f"{task.name}: {error}")
            return None
        first, ten, reciprocal = (found.metrics[name] for name in ("recall@1", "recall@10", "mrr"))
        self._say(
            f"{task.name}: R@1 = {100 * first:.2f} %, R@10 = {100 * ten:.2f} %, MRR = {reciprocal:.4f} "
            f"({found.n} steps)"
        )
        return found


class ProgressTrainer:
    """LeanDojo-v2's `ProgressTrainer`: a model of the number of steps left in a proof."""

    def __init__(
        self,
        data_path: str | Path,
        model_name: str = "bert-base-uncased",
        output_dir: str | Path = "outputs",
        max_length: int = 512,
        batch_size: int = 8,
        epochs: float = 3.0,
        learning_rate: float = 1e-5,
        eval_ratio: float = 0.2,
        seed: int = 42,
        *,
        device: Device = "auto",
        report_to: str | Sequence[str] = "none",
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        """Args:
        data_path: a JSONL file of steps, from `everlean export progress OUT`.
        output_dir: the model's folder.
        max_length: tokens of a text; fewer if the model takes fewer.
        batch_size: rows at once, on each device.
        epochs: the number of passes over the rows.
        learning_rate: of AdamW, falling to 0.
        eval_ratio: the share of the proofs to hold out.
        seed: of the split, a new head, and the order of the rows.
        model_name, device, report_to, callbacks: as `SFTTrainer`'s.

        Raises:
            ConfigError: a number is out of range, or there is no such tracker, or no GPU.
        """
        if not 0 < eval_ratio < 1:
            raise ConfigError(f"eval_ratio is {eval_ratio}: it takes a number between 0 and 1")
        with _named(lr="learning_rate", max_seq_len="max_length"):
            self.config = ProgressConfig(
                str(model_name),
                epochs=epochs,
                batch_size=batch_size * world(),
                lr=learning_rate,
                max_seq_len=max_length,
                seed=seed,
                device=device,
            )
        self.data_path, self.eval_ratio = str(data_path), eval_ratio
        self._reports = Reports(trackers=trackers(report_to), callbacks=callbacks)
        self._output = OutputFolder(output_dir, "progress")

    def train(self) -> FitResult:
        """Train, keep the best epoch in `output_dir`, and return its errors. The run is saved after every epoch.

        Raises:
            LearningError: the dataset or the model cannot be used, a loss was no finite number, or the disk refused;
                the saved steps stay, and a repeated run continues.
        """
        chain, config = self._output.chain, self.config
        join(config.device)
        with self._output.opened(config.model_name):
            data = read_dataset(self.data_path, eval_ratio=self.eval_ratio, seed=config.seed)
            task = TaskData(Path(self.data_path).name, Path(self.data_path))
            step = chain.step(task, config, parent=None, data=data.digest)
            made = make_checkpoint(
                chain,
                step,
                lambda: ProgressTraining(config, step.start, self._reports),
                lambda: (data, {}),
            )
            self._output.point_to(made)
        return FitResult(**made.about["fitted"])


@contextmanager
def _named(**arguments: str) -> Iterator[None]:
    """Name a wrong field of a configuration by its argument."""
    try:
        yield
    except ConfigError as error:
        field, _, wrong = str(error).partition(" ")
        raise ConfigError(f"{arguments.get(field, field)} {wrong}") from error


def _plain(value: Any) -> Any:
    """Return a value after a round trip through JSON; sets in order."""
    return json.loads(
        json.dumps(
            value, default=lambda item: sorted(item) if isinstance(item, set | frozenset) else str(item)
        )
    )


def _said(made: Checkpoint) -> str:
    fitted = FitResult(**made.about["fitted"])
    shown = ", ".join(f"{name} {value:.4g}" for name, value in fitted.measures.items())
    dropped = f", {fitted.dropped} dropped" if fitted.dropped else ""
    return f"{fitted.rows} rows{dropped}, {fitted.steps} steps, {shown}, {made.seconds:.1f} s"
