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
and its model takes the place of the one before. Under `accelerate launch` every process runs the same program: the
first one writes, the others wait for it.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from accelerate import PartialState
from lightning_fabric.loggers.logger import Logger
from peft import PeftConfig
from pydantic.dataclasses import dataclass
from transformers import TrainerCallback

from pipeline.jobs.specs import GrpoSpec
from pipeline.models.chain import Chain, Step
from pipeline.models.config import STRICT, Device, PositiveNumber, ProgressConfig, TacticsConfig
from pipeline.models.datasets import TaskData
from pipeline.models.errors import CheckpointError, ConfigError, DatasetError, NothingToLearnError
from pipeline.models.libraries import DType, device_of
from pipeline.models.measures import Evaluation
from pipeline.models.model_files import Checkpoint, locked_folder, read_checkpoint, start_of
from pipeline.models.progress.steps import read_dataset
from pipeline.models.progress.training import ProgressTraining
from pipeline.models.ranks import is_first, meet, of_first, world
from pipeline.models.retriever.config import RetrieverConfig, TrainingConfig
from pipeline.models.retriever.learning import learn, measure
from pipeline.models.running import FitResult, Reports, Training, make_checkpoint, trackers
from pipeline.models.tactics.goals import Places, place_here
from pipeline.models.tactics.models import MAX_SEQ_LEN
from pipeline.models.tactics.reward import REWARDS, LeanReward
from pipeline.models.tactics.rows import digest_of, read_rows
from pipeline.models.tactics.training import FineTuning
from store.files import sync, write_whole
from store.leandojo import DynamicDatabase, Repository

LEAN: Literal["lean"] = "lean"
_RAID = Path(os.environ.get("RAID_DIR") or "raid")
DATA = _RAID / "data"
CHECKPOINTS = _RAID / "checkpoints"
"""LeanDojo's CHECKPOINT_DIR."""
HEAD = "HEAD"
_INDICES = ".indices"
ONE_PASS = GrpoSpec(max_steps=None)
_log = logging.getLogger(__name__)


class OutputFolder:
    """A trainer's `output_dir`; see the module."""

    def __init__(self, folder: str | Path, device: str) -> None:
        self.folder = Path(folder).absolute()
        self.chain = Chain(self.folder.with_name(f"{self.folder.name}.chain"))
        self._on_cpu = device_of(device).type == "cpu"

    @contextmanager
    def opened(self, model: str) -> Iterator[Checkpoint | None]:
        """Lock the folder for a training that begins with a model; return its own checkpoint, if any.

        Raises:
            ConfigError: it is that model, or holds something else.
            CheckpointError: another process trains into it, or its model is damaged.
        """
        if Path(model).resolve() == self.folder.resolve():
            raise ConfigError(
                f"output_dir is {self.folder}, which is the model to begin with, and would be replaced: name another "
                "folder"
            )
        if not self._is_ours():
            raise ConfigError(
                f"output_dir is {self.folder}, which is no link to a model of this trainer's: name another "
                "folder, or move it away"
            )
        if world() > 1:
            # Without `cpu` Accelerate takes processes on CPUs for single ones.
            PartialState(cpu=self._on_cpu)
        lock = self.chain.folder / "lock"
        busy = f"another process trains into {self.folder} (it holds {lock}). Wait for it, or name another folder"
        with locked_folder(lock.parent, lock.name, busy) if is_first() else nullcontext():
            yield of_first(read_checkpoint(self.folder, verify=True) if is_first() else None)

    def _is_ours(self) -> bool:
        """Return whether the folder is missing, empty, or the link."""
        if self.folder.is_symlink():
            return self.folder.resolve().parent == self.chain.folder.resolve()
        return not self.folder.exists() or (self.folder.is_dir() and not any(self.folder.iterdir()))

    def point_to(self, made: Checkpoint) -> None:
        """Let the folder be a link to a checkpoint, and remove the chain's others.

        Raises:
            CheckpointError: the disk refused.
        """
        if is_first():
            try:
                link = self.chain.folder / ".link"
                link.unlink(missing_ok=True)
                link.symlink_to(Path(self.chain.folder.name, made.checkpoint))
                if self.folder.is_dir() and not self.folder.is_symlink():
                    self.folder.rmdir()  # empty
                link.replace(self.folder)
                sync(self.folder.parent)
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
        dtype: of the weights (`TacticTraining`).
        lr: the highest learning rate.
        grpo: those of the training with a reward.
    """

    begun: str = ""
    adapter: Mapping[str, Any] | None = None
    dtype: DType = "auto"
    lr: PositiveNumber = 2e-5
    grpo: Mapping[str, Any] | None = None


class RepositoryTrainer:
    """The base of the tactic model's trainers: repository after repository.

    Attributes:
        model_name, output_dir, lora_config: as in LeanDojo-v2's trainers.
        config: the settings; a checkpoint follows from them, the model and the data.
        device: where to compute.
    """

    kind: ClassVar[str]

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
        say: Callable[[str], object] = print,
    ) -> None:
        """Args:
        model_name: a folder or hub name; an adapter's folder too, to train it further.
        output_dir: the trained model's folder.
        epochs_per_repo: over the repositories so far, after each.
        batch_size: of one device.
        lr: the highest learning rate; it falls to 0 in a line.
        lora_config: trains an adapter of this kind; None trains every weight.
        max_seq_len: tokens of prompt and answer together, a quarter of them the answer's.
        dtype: of the weights (`TacticTraining`).
        device: "auto": a GPU if there is one.
        seed: of everything drawn.
        report_to: transformers' names of trackers: "tensorboard", "wandb", "mlflow", "trackio", as they are set up.
        callbacks: transformers' or of its shape, for each run.
        say: takes a line of text for each repository, and for left out steps.

        Raises:
            ConfigError: a setting is invalid, or there is no such tracker, or no GPU.
        """
        self.model_name, self.output_dir, self.lora_config = str(model_name), str(output_dir), lora_config
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
        self.device = device_of(device)
        self.reports = Reports(say=say, trackers=trackers(report_to), callbacks=callbacks)
        self._output = OutputFolder(output_dir, device)

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
        made: list[Checkpoint] = []
        with self._output.opened(self.model_name) as known:
            ours = known is not None and known.config == _plain(self.config.to_dict())
            before = known if ours else None
            for number, repo in enumerate(repos):
                learned = [] if before is None else list(before.about["repositories"])
                key = {"url": repo.url, "commit": repo.commit}
                name = f"{repo.url} at {repo.commit}"
                if key in learned:
                    self._say(f"{name}: learned before")
                    continue
                parent = None if before is None else before.checkpoint
                if is_first():
                    database.export_merged_data(repos[: number + 1], data_path)
                meet()
                try:
                    made.append(self._learn(Path(data_path), name, parent, [*learned, key]))
                except NothingToLearnError as error:
                    self._say(f"{name}: {error}")
                    continue
                before = made[-1]
                self._output.point_to(before)
                for line in (_said(before), *before.warnings):
                    self._say(f"{name}: {line}")
        return made

    def _learn(
        self, dataset: Path, name: str, parent: str | None, repositories: list[dict[str, str]]
    ) -> Checkpoint:
        read = read_rows(dataset / "random" / "train.json")
        if read.skipped:
            self._say(f"{name}: {read}")
        chain = self._output.chain
        step = chain.step(TaskData(name, dataset), self.config, parent=parent, data=digest_of(read.rows))
        reports = replace(
            self.reports, say=self._say, name=name, tensorboard=chain.folder / "tensorboard" / step.checkpoint
        )
        return make_checkpoint(
            chain,
            step,
            lambda: self._training(step, reports),
            lambda: (read.rows, {"kind": self.kind, "repositories": repositories}),
            save_minutes=self.config.save_minutes,
        )

    def _training(self, step: Step, reports: Reports) -> Training[Any]:
        raise NotImplementedError

    def _say(self, line: str) -> None:
        _log.info("%s", line)
        if is_first():
            self.reports.say(line)


class SFTTrainer(RepositoryTrainer):
    """LeanDojo-v2's `SFTTrainer`: supervised fine-tuning; see `RepositoryTrainer`."""

    kind = "sft"

    def _training(self, step: Step, reports: Reports) -> Training[Any]:
        return FineTuning(self.config, step.start, reports, adapter=self.lora_config, dtype=self.config.dtype)


class GRPOTrainer(RepositoryTrainer):
    """LeanDojo-v2's `GRPOTrainer`: training with a reward (`pipeline.models.tactics.grpo`); see `RepositoryTrainer`."""

    kind = "grpo"

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
        places: where Lean states goals (`pipeline.models.tactics.goals`); None: Lean in the working directory.
        others: those of `RepositoryTrainer`.

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
            reward = LeanReward(self.places or place_here())
        return RewardTraining(
            self.config,
            self.grpo,
            reward,
            step.start,
            reports,
            adapter=self.lora_config,
            dtype=self.config.dtype,
        )


class RetrievalTrainer:
    """LeanDojo-v2's `RetrievalTrainer`: repository after repository, each together with those before it.

    A file HEAD in the folder of checkpoints names the last one. After each repository the test split is measured.
    """

    def __init__(
        self,
        config: TrainingConfig | None = None,
        checkpoints: str | Path = CHECKPOINTS,
        *,
        loggers: Sequence[Logger] = (),
        say: Callable[[str], object] = print,
    ) -> None:
        """Args:
        config: how to train; None for LeanDojo's defaults.
        checkpoints: the folder of the chain.
        loggers: Lightning's, which are given the curve of each run.
        say: takes a line of text for each repository; only the program itself calls it, not the processes of further
        GPUs.

        Raises:
            ConfigError: the configuration has "replay", which has no rows if everything is learned again.
        """
        self._loggers = loggers
        self.config = config or TrainingConfig()
        self._ours = self.config.translated()
        if "replay" in self._ours.ways:
            raise ConfigError(
                f"against_forgetting is {self._ours.against_forgetting!r}: here each repository is learned together "
                'with those before it, so that nothing is left to replay. Take "ewc" or "ewc+average", or LeanAgent'
            )
        self.chain = Chain(Path(checkpoints))
        self._first = is_first()
        self._say = say if self._first else (lambda _line: None)

    @property
    def head(self) -> str | None:
        """The id of the chain's last checkpoint; None before the first.

        Raises:
            CheckpointError: HEAD cannot be read.
        """
        try:
            return (self.chain.folder / HEAD).read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{self.chain.folder / HEAD} cannot be read ({error})") from error

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
        this configuration is not learned again.

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
        parent, config, known = self._begin(model_checkpoint_path)
        learned: list[Checkpoint] = []
        for number, repo in enumerate(repos):
            name = f"{repo.url}@{repo.commit}"
            if name in known:
                self._say(f"{name}: learned before")
                continue
            task = self._export(name, repos[: number + 1], database, Path(data_path))
            made = learn(task, self.chain, config, parent=parent, loggers=self._loggers)
            parent = made.checkpoint
            self._set_head(parent)
            self._say(f"{name}: checkpoint {parent}")
            for warning in made.warnings:
                self._say(f"{name}: {warning}")
            self._measure(self.chain.path(parent), task)
            learned.append(made)
            if not self._first:
                shutil.rmtree(task.dataset)
        return learned

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
        head = self.head
        model = self._ours.model_name if head is None else self.chain.path(head)
        if head is not None:
            self.chain.read(head, verify=True)
        tasks = [TaskData(dataset.relative_to(root).as_posix(), dataset) for dataset in datasets]
        measured = {task.name: self._measure(model, task) for task in tasks}
        return {name: found for name, found in measured.items() if found is not None}

    def _export(
        self, name: str, repos: Sequence[Repository], database: DynamicDatabase, folder: Path
    ) -> TaskData:
        if not self._first:
            # Another process may still read the dataset of the repository before: each has a copy of its own.
            folder = folder.with_name(f".{folder.name}-{os.environ['LOCAL_RANK']}")
        database.export_merged_data(repos, folder)
        about = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
        return TaskData(name, folder, int(about["everlean"]["position"]))

    def _begin(self, model: str | Path | None) -> tuple[str | None, RetrieverConfig, Collection[str]]:
        """Return the first repository's parent, the configuration, and the repositories that HEAD learned under it."""
        head = self.head
        if model is None and head is not None:
            links = self.chain.ancestors(head)
            config = replace(self._ours, model_name=links[-1].base)
            same = [
                one
                for one in links
                if RetrieverConfig.of_checkpoint(one.config).content() == config.content()
            ]
            return head, config, {one.task for one in same}
        if model is None:
            files = self.chain.folder.glob("*.ckpt")
            model = max(files, key=lambda path: path.stat().st_mtime, default=None)
            if model is None:
                return None, self._ours, ()
            self._say(f"training begins at {model}, which LeanDojo wrote")
        path = Path(model)
        if path.parent.resolve() == self.chain.folder.resolve() and self.chain.has(path.name):
            return path.name, self._ours, ()
        return None, replace(self._ours, model_name=str(model)), ()

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

    def _set_head(self, checkpoint: str) -> None:
        try:
            self.chain.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.chain.folder / HEAD, f"{checkpoint}\n")
        except OSError as error:
            raise CheckpointError(
                f"{self.chain.folder / HEAD} cannot be written ({error.strerror}). Make room, then run it again: the "
                f"checkpoint {checkpoint} is there"
            ) from error


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
        eval_ratio: the share of the proofs to hold out, if the rows have no `side`.
        seed: of the split, a new head, and the order of the rows.
        model_name, device, report_to, callbacks: as `RepositoryTrainer`'s.

        Raises:
            ConfigError: a number is out of range, or there is no such tracker, or no GPU.
        """
        if not 0 < eval_ratio < 1:
            raise ConfigError(f"eval_ratio is {eval_ratio}: it takes a number between 0 and 1")
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
        self._output = OutputFolder(output_dir, device)

    def train(self) -> FitResult:
        """Train, keep the best epoch in `output_dir`, and return its errors. The run is saved after every epoch.

        Raises:
            LearningError: the dataset or the model cannot be used, a loss was no finite number, or the disk refused;
                the saved steps stay, and a repeated run continues.
        """
        chain, config = self._output.chain, self.config
        with self._output.opened(config.model_name):
            data = read_dataset(self.data_path, eval_ratio=self.eval_ratio, seed=config.seed)
            task = TaskData(Path(self.data_path).name, Path(self.data_path))
            step = chain.step(task, config, parent=None, data=data.digest)
            reports = replace(self._reports, tensorboard=chain.folder / "tensorboard" / step.checkpoint)
            made = make_checkpoint(
                chain,
                step,
                lambda: ProgressTraining(config, step.start, reports),
                lambda: (data, {}),
                save_minutes=config.save_minutes,
            )
            self._output.point_to(made)
        return FitResult(**made.about["fitted"])


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
