"""LeanDojo-v2's `RetrievalTrainer` under its own name, with our chain of checkpoints behind it.

    from pipeline.models.retriever.compat import RetrievalTrainer, TrainingConfig
    from store.leandojo import DynamicDatabase

    database = DynamicDatabase("dynamic_database.json")
    RetrievalTrainer(TrainingConfig()).train(database.repositories, database)

Differences from LeanDojo-v2: each repository begins at the checkpoint of the one before it (a file HEAD in the folder
of checkpoints names the last), and only without one at the newest `.ckpt` file there; an interrupted or repeated call
continues where it stopped and makes nothing twice; after each repository the test split is measured. The first trainer
loads torch, since a script may only write a configuration.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import Field, dataclasses

from pipeline.models.chain import Chain
from pipeline.models.config import STRICT, Count, Number, Positive, PositiveNumber
from pipeline.models.datasets import TaskData
from pipeline.models.errors import (
    CheckpointError,
    ConfigError,
    DatasetError,
    NothingToLearnError,
)
from pipeline.models.measures import Evaluation
from pipeline.models.model_files import Checkpoint
from pipeline.models.ranks import is_first
from pipeline.models.retriever.config import (
    AgainstForgetting,
    Loss,
    Precision,
    RetrieverConfig,
)
from store.files import write_whole
from store.leandojo import DynamicDatabase, Repository

if TYPE_CHECKING:
    from lightning_fabric.loggers.logger import Logger

_RAID = Path(os.environ.get("RAID_DIR") or "raid")
DATA = _RAID / "data"
CHECKPOINTS = _RAID / "checkpoints"
"""LeanDojo's CHECKPOINT_DIR."""
HEAD = "HEAD"
_INDICES = ".indices"
FromMinusOne = Annotated[int, Field(ge=-1)]


@dataclasses.dataclass(frozen=True, slots=True, config=STRICT)
class TrainingConfig(RetrieverConfig):
    """LeanDojo-v2's configuration: all its fields, with its names and defaults; its files load.

    It trains with EWC, as LeanDojo-v2 does, unless `against_forgetting` says otherwise, and on whole repositories.
    `batch_size` is of each GPU.

    Accepted because LeanDojo's files have them, and without effect here: `single_repo` and `num_repos` (LeanDojo
    ignores them too), `checkpoint_save_top_k` and `checkpoint_every_n_epochs` (a task makes one checkpoint, of its best
    epoch, and a chain keeps all), `tokenizer_model_name` (a model is trained with its own tokenizer), `eval_batch_size`
    (texts are batched by length), `log_every_n_steps` (every step is in the curve) and `num_sanity_val_steps`.
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
    eval_batch_size: Positive = 64
    early_stopping_monitor: Literal["Recall@10_val"] = "Recall@10_val"
    early_stopping_mode: Literal["max"] = "max"
    checkpoint_save_top_k: FromMinusOne = -1
    checkpoint_every_n_epochs: Positive = 1
    checkpoint_monitor: Literal["Recall@10_val"] = "Recall@10_val"
    checkpoint_mode: Literal["max"] = "max"
    log_every_n_steps: Positive = 1
    num_sanity_val_steps: FromMinusOne = 0

    def translated(self) -> RetrieverConfig:
        """Return the equivalent configuration of our trainings."""
        own = {item.name: getattr(self, item.name) for item in fields(RetrieverConfig)}
        # LeanDojo's is of each GPU.
        own["batch_size"] = self.batch_size * max(1, self.num_gpus)
        if not self.run_progressive_training:
            own["lambda_value"] = 0.0
        return RetrieverConfig.from_dict(own)

    @classmethod
    def from_yaml(cls, file_path: str | Path) -> TrainingConfig:
        """Read a YAML file of fields.

        Raises:
            ConfigError: it cannot be read, is no mapping, or as `Config`.
        """
        return cls._from_file(Path(file_path), yaml.safe_load, "YAML")

    @classmethod
    def from_json(cls, file_path: str | Path) -> TrainingConfig:
        """Read a JSON file of fields.

        Raises:
            ConfigError: it cannot be read, is no object, or as `Config`.
        """
        return cls._from_file(Path(file_path), json.loads, "JSON")

    def to_yaml(self, file_path: str | Path) -> None:
        """Write all fields as YAML; `from_yaml` gives the same configuration."""
        Path(file_path).write_text(yaml.safe_dump(self.to_dict(), sort_keys=False), encoding="utf-8")

    def to_json(self, file_path: str | Path) -> None:
        """Write all fields as JSON; `from_json` gives the same configuration."""
        Path(file_path).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def _from_file(cls, path: Path, parse: Callable[[str], Any], form: str) -> TrainingConfig:
        try:
            values = parse(path.read_text(encoding="utf-8")) or {}
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, yaml.YAMLError) as error:
            raise ConfigError(f"{path} is no {form}: {error}") from error
        if not isinstance(values, dict):
            raise ConfigError(
                f"{path} holds a {type(values).__name__}: it takes a mapping of fields to values"
            )
        try:
            return cls.from_dict({str(key): value for key, value in values.items()})
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error


class RetrievalTrainer:
    """Trains a retriever on one repository after the other, each together with those before it, and measures it."""

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
        from pipeline.models.retriever.learning import learn

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
        from pipeline.models.retriever.learning import measure

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
