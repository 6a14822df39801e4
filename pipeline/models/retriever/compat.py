"""LeanDojo-v2's `RetrievalTrainer` under its own name, with our chain of checkpoints behind it.

    from pipeline.models.retriever import RetrievalTrainer, TrainingConfig
    from store.leandojo import DynamicDatabase

    database = DynamicDatabase("dynamic_database.json")
    RetrievalTrainer(TrainingConfig()).train(database.repositories, database)

What differs from LeanDojo-v2: each repository begins at the checkpoint that the one before it made (a file HEAD in the
folder of checkpoints names the last), not at the newest file; a call that was interrupted, or is repeated, continues
where it stopped and makes nothing twice; each task is measured on its own test split. torch is loaded by the first
trainer, since a script may only write a configuration.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pipeline.models.chain import Chain, Checkpoint
from pipeline.models.config import Count, Number, Positive, PositiveNumber
from pipeline.models.datasets import TaskData
from pipeline.models.errors import (
    CheckpointError,
    ConfigError,
    DatasetError,
    EmptySplitError,
    NothingToMeasureError,
)
from pipeline.models.measures import Evaluation
from pipeline.models.model_files import file_digest, writing
from pipeline.models.retriever.config import (
    LEANDOJO_ALONE,
    AgainstForgetting,
    FromMinusOne,
    Loss,
    Precision,
    RetrieverConfig,
)
from store.files import sync_tree, write_whole
from store.leandojo import DynamicDatabase, Repository

if TYPE_CHECKING:
    from pipeline.models.retriever.training import Watchers

HEAD = "HEAD"
_INDICES = ".indices"
_IMPORTED = ".imported"


@dataclass(frozen=True, slots=True)
class Scores:
    """LeanDojo's measures of a test split: R@1 and R@10 in percent, MRR in 0..1; `result` has them with intervals."""

    r1: float
    r10: float
    mrr: float
    result: Evaluation

    def __str__(self) -> str:
        return f"R@1 = {self.r1:.2f} %, R@10 = {self.r10:.2f} %, MRR = {self.mrr:.4f} ({self.result.n} steps)"


@dataclass(frozen=True, slots=True)
class LearnedRepository:
    """A learned repository: the checkpoint after it, and its scores on the test split.

    `scores` is None where no step of the test split uses a premise.
    """

    task: str
    dataset: Path
    checkpoint: Checkpoint
    scores: Scores | None


@dataclass(frozen=True, slots=True)
class TrainingConfig(RetrieverConfig):
    """LeanDojo-v2's configuration: all of its fields have its names and defaults, and its files load.

    It trains with EWC, as LeanDojo-v2 does, unless `against_forgetting` says otherwise, and on the whole repository.

    Accepted because LeanDojo's files have them, and without effect here: `num_repos` (LeanDojo ignores it too),
    `checkpoint_save_top_k` (a task makes one checkpoint, of its best epoch, and a chain keeps all) and
    `tokenizer_model_name` (a model is trained with its own tokenizer).
    """

    lr: PositiveNumber = 1e-3
    batch_size: Positive = 1
    accumulate_grad_batches: Positive = 4
    precision: Precision = "bf16-mixed"
    loss: Loss = "mse"
    num_hard_negatives: Count = 0
    against_forgetting: AgainstForgetting = "ewc"
    lambda_value: Number = 0.1
    only_new: bool = False
    run_progressive_training: bool = True
    single_repo: bool = True
    num_repos: Positive = 1
    tokenizer_model_name: str = "google/byt5-small"
    checkpoint_save_top_k: FromMinusOne = -1

    def translated(self) -> RetrieverConfig:
        """Return the configuration of our trainings that does the same."""
        own = {name: value for name, value in self.to_dict().items() if name not in LEANDOJO_ALONE}
        if not self.run_progressive_training:
            own["lambda_value"] = 0.0
        return RetrieverConfig.from_dict(own)

    @classmethod
    def from_yaml(cls, file_path: str | Path) -> TrainingConfig:
        """Read a YAML file of fields.

        Raises:
            ConfigError: it cannot be read, is no mapping, or as `from_dict`.
        """
        return cls._from_file(Path(file_path), yaml.safe_load, "YAML", wrong=yaml.YAMLError)

    @classmethod
    def from_json(cls, file_path: str | Path) -> TrainingConfig:
        """Read a JSON file of fields.

        Raises:
            ConfigError: it cannot be read, is no object, or as `from_dict`.
        """
        return cls._from_file(Path(file_path), json.loads, "JSON")

    def to_yaml(self, file_path: str | Path) -> None:
        """Write all fields as YAML; `from_yaml` gives the same configuration."""
        Path(file_path).write_text(yaml.safe_dump(self.to_dict(), sort_keys=False), encoding="utf-8")

    def to_json(self, file_path: str | Path) -> None:
        """Write all fields as JSON; `from_json` gives the same configuration."""
        Path(file_path).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    def get_model_config(self) -> dict[str, Any]:
        """Return the arguments of `PremiseRetriever`, as LeanDojo has them."""
        return self.model_arguments()

    def get_lambda_value(self) -> float:
        """Return the weight of the EWC penalty: `lambda_value`, or 0 where training is not progressive."""
        return self.translated().lambda_value

    @classmethod
    def _from_file(
        cls, path: Path, parse: Callable[[str], Any], form: str, *, wrong: type[Exception] = ValueError
    ) -> TrainingConfig:
        try:
            values = parse(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, wrong) as error:
            raise ConfigError(f"{path} is no {form}: {error}") from error
        if values is None:
            values = {}
        if not isinstance(values, dict):
            raise ConfigError(
                f"{path} holds a {type(values).__name__}: it takes a mapping of fields to values"
            )
        try:
            return cls.from_dict(values)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error


class RetrievalTrainer:
    """Trains a retriever on one repository after the other, and measures it."""

    def __init__(
        self,
        config: TrainingConfig | None = None,
        checkpoints: str | Path = Path("raid/checkpoints"),
        *,
        watchers: Watchers | None = None,
        say: Callable[[str], object] = print,
    ) -> None:
        """Args:
        config: how to train; None for LeanDojo's defaults.
        checkpoints: the folder of the chain.
        watchers: Lightning's loggers and callbacks, told of each run.
        say: takes a line of text for each repository; in the program itself, not in the processes of further GPUs.
        """
        from pipeline.models.retriever.training import NO_WATCHERS, first_process

        self._watchers = watchers or NO_WATCHERS
        self.config = config or TrainingConfig()
        self._ours = self.config.translated()
        self.chain = Chain(Path(checkpoints))
        self._say = say if first_process() else (lambda _line: None)

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
        data_path: str | Path = Path("raid/data/merged"),
        model_checkpoint_path: str | Path | None = None,
    ) -> list[LearnedRepository]:
        """Learn repositories in this order, each from the checkpoint that the one before it made.

        The dataset of each is a folder of its own below `data_path`: its own theorems with `single_repo`, else those of
        all up to it. The first begins at HEAD, or at `config.model_name` without one. Where HEAD was made from
        the first of these very repositories, with this configuration, they are not learned again.

        Args:
            repos: of the database.
            database: exports the datasets.
            data_path: the folder for them.
            model_checkpoint_path: the first one's start instead: a checkpoint of the chain, a folder, a hub name, or a
                `.ckpt` file that LeanDojo wrote.

        Raises:
            LearningError: a dataset or a checkpoint cannot be used, the loss diverged, or the disk is full. What was
                learned before stays, and a repeated call continues after it.
            ValueError: a repository is not in the database.
        """
        from pipeline.models.retriever.learning import learn

        tasks = [self._export(repos[: number + 1], database, Path(data_path)) for number in range(len(repos))]
        earlier = self._earlier(tasks, database, Path(data_path))
        if model_checkpoint_path is None:
            parent, config = self._first_parent(tasks, earlier), self._ours
        else:
            parent, config = self._start(model_checkpoint_path)
        learned = []
        for task in tasks:
            made = learn(
                task, self.chain, config, parent=parent, earlier=earlier(parent), watchers=self._watchers
            )
            parent = made.checkpoint
            self._set_head(parent)
            scores = self._measure(self.chain.path(parent), task)
            shown = "no step of its test split uses a premise" if scores is None else str(scores)
            self._say(f"{task.name}: checkpoint {parent}, {shown}")
            for warning in made.warnings:
                self._say(f"{task.name}: {warning}")
            learned.append(LearnedRepository(task.name, task.dataset, made, scores))
        return learned

    def evaluate(self, dataset_path: str | Path | None = None) -> dict[str, Scores]:
        """Measure HEAD (or `config.model_name` without one) on every dataset below a folder.

        Args:
            dataset_path: the folder; None for raid/data. A dataset is a folder with random/test.json and corpus.jsonl.

        Returns:
            by the dataset's path below the folder. One whose test split uses no premise is reported and left out.

        Raises:
            LearningError: a dataset or the checkpoint cannot be used, or there is no dataset.
        """
        root = Path("raid/data") if dataset_path is None else Path(dataset_path)
        found = sorted(path.parent.parent for path in root.rglob("random/test.json"))
        if not found:
            raise DatasetError(f"{root} has no dataset: no folder below it has random/test.json")
        head = self.head
        model = self._ours.model_name if head is None else self.chain.path(head)
        if head is not None:
            self.chain.read(head, verify=True)
        scores = {}
        for dataset in found:
            name = dataset.relative_to(root).as_posix()
            one = self._measure(model, TaskData(name, dataset))
            self._say(f"{name}: {'no step of its test split uses a premise' if one is None else one}")
            if one is not None:
                scores[name] = one
        return scores

    def _export(self, repos: Sequence[Repository], database: DynamicDatabase, data_path: Path) -> TaskData:
        last = repos[-1]
        name = f"{last.name.replace('/', '_')}_{last.commit}"
        # LeanAgent's name for merged datasets, so that the two kinds are never confused.
        folder = data_path / (name if self.config.single_repo else f"merged_with_{name}")
        database.export_merged_data([last] if self.config.single_repo else repos, folder)
        about = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
        return TaskData(_task_of(last), folder, int(about["everlean"]["position"]))

    def _earlier(
        self, tasks: Sequence[TaskData], database: DynamicDatabase, data_path: Path
    ) -> Callable[[str | None], list[TaskData]]:
        """Return a function that gives the tasks of a checkpoint's chain, for replay: the oldest first, as far as the
        database has their repositories.

        None where datasets are merged: each has the rows of the earlier ones.
        """
        if not self.config.single_repo or "replay" not in self._ours.ways:
            return lambda _parent: []
        known = {_task_of(repo): repo for repo in database.repositories}
        exported = {task.name: task for task in tasks}

        def of(parent: str | None) -> list[TaskData]:
            links = [] if parent is None else self.chain.ancestors(parent)
            names = dict.fromkeys(link.task for link in reversed(links))
            for name in names:
                if name in known and name not in exported:
                    exported[name] = self._export([known[name]], database, data_path)
            return [exported[name] for name in names if name in exported]

        return of

    def _first_parent(
        self, tasks: Sequence[TaskData], earlier: Callable[[str | None], list[TaskData]]
    ) -> str | None:
        """Return the first task's parent: HEAD, or the checkpoint before the first of `tasks`."""
        from pipeline.models.retriever.learning import plan

        head = self.head
        if head is None:
            return None
        links = self.chain.ancestors(head)
        for done in range(min(len(links), len(tasks)), 0, -1):
            last = links[:done][::-1]
            if all(
                link.task == task.name
                and plan(
                    task,
                    self.chain,
                    self._ours,
                    parent=link.parent,
                    earlier=earlier(link.parent),
                ).checkpoint
                == link.checkpoint
                for link, task in zip(last, tasks, strict=False)
            ):
                return last[0].parent
        return head

    def _start(self, model: str | Path) -> tuple[str | None, RetrieverConfig]:
        path = Path(model)
        if path.parent.resolve() == self.chain.folder.resolve() and self.chain.has(path.name):
            return path.name, self._ours
        if path.suffix == ".ckpt":
            model = self._imported(path)
        return None, replace(self._ours, model_name=str(model))

    def _imported(self, path: Path) -> Path:
        """Return a LeanDojo `.ckpt` as a folder of weights, made from it once."""
        from pipeline.models.retriever.retriever import PremiseRetriever

        try:
            place = self.chain.folder / _IMPORTED / file_digest(path)[:16]
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read ({error.strerror})") from error
        if place.exists():
            return place
        retriever = PremiseRetriever.load(path, "cpu", True, self._ours.model_arguments())
        beside = place.with_name(f".{place.name}.{os.getpid()}")
        with writing(beside, (f"{place} cannot be written", "Make room, then run it again")):
            retriever.save(beside)
            sync_tree(beside)
            beside.rename(place)
        return place

    def _measure(self, model: str | Path, task: TaskData) -> Scores | None:
        from pipeline.models.retriever.learning import measure

        try:
            found = measure(model, task, self._ours, indices=self.chain.folder / _INDICES)
        except (EmptySplitError, NothingToMeasureError):
            return None
        means = {name: interval.mean for name, interval in found.metrics.items()}
        return Scores(100 * means["recall@1"], 100 * means["recall@10"], means["mrr"], found)

    def _set_head(self, checkpoint: str) -> None:
        try:
            self.chain.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.chain.folder / HEAD, f"{checkpoint}\n")
        except OSError as error:
            raise CheckpointError(
                f"{self.chain.folder / HEAD} cannot be written ({error.strerror}). Make room, then run it again: the "
                f"checkpoint {checkpoint} is there"
            ) from error


def _task_of(repository: Repository) -> str:
    return f"{repository.url}@{repository.commit}"
