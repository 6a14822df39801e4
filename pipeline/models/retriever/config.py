"""Settings of a retriever's training, and LeanDojo-v2's of them. An error names an unknown one, and the nearest one.

Imports no torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from pipeline.models.config import (
    STRICT,
    BelowOne,
    Config,
    Count,
    Device,
    Number,
    Positive,
    PositiveNumber,
    Seed,
    Share,
    Split,
)
from pipeline.models.errors import ConfigError

Loss = Literal["mse", "contrastive"]
AgainstForgetting = Literal[
    "none", "ewc", "replay", "average", "ewc+replay", "ewc+average", "replay+average", "ewc+replay+average"
]
FromMinusOne = Annotated[int, Field(ge=-1)]
Schedule = Literal["cosine", "constant"]
Switch = Literal["auto", "on", "off"]
Precision = Literal["auto", "32-true", "bf16-mixed"]


@dataclass(frozen=True, slots=True, config=STRICT)
class RetrieverConfig(Config):
    """Settings of a training. Checked when made.

    Attributes (those not of LeanDojo; `ewc`, `replay` and `training.average` are the ways against forgetting):
        batch_size: pairs of a step and a premise, of all GPUs together; a pair's premises are the others' negatives.
        precision: "auto": bfloat16 on a GPU with support for it, else float32 (on a GPU TF32); or Lightning's
            name of one.
        gradient_checkpointing: whether a step computes the activations of each group of texts again for its gradient,
            a third more time for a fraction of the memory; "auto": on a GPU.
        early_stopping_patience: epochs without a better one until training stops.
        save_minutes: between two savings; a killed run loses at most this, and a step. 0: save every step.
        against_forgetting: "none", or ways joined by "+": "ewc", "replay", "average".
        lambda_value: of EWC: the penalty's gradient as a share of the loss's over a task's first steps. 0: no penalty.
        fisher_samples: examples for EWC's Fisher information, shared among all parts of the past.
        average_weight: of the weights after a task in the average with those before it.
        replay_size: steps of all earlier tasks together, the same number of each repository.
        replay_share: of a step's loss, that of replayed rows, below 1.
        lora_by_repository: whether each repository has an adapter of its own (LoRA), trained and used for it alone,
            all on the chain's first model (`pipeline.models.adapters`). A repository's first training protects nothing,
            its later ones its own rows and weights. A chain stays with its first.
        lora_rank: of an adapter's matrices.
        only_new: of a repository learned before, train on the new steps only; replay has the rest.
        split: of LeanDojo's two, the one to train and measure on (`Config.split`).
        baselines: whether BM25, alone and with the retriever, and MePo are measured on each test set too.

    Raises:
        ConfigError: a field has an invalid value.
    """

    max_epochs: Positive = 1
    model_name: str = "kaiyuy/leandojo-lean4-retriever-byt5-small"
    lr: PositiveNumber = 1e-4
    warmup_steps: Count = 1000
    max_seq_len: Positive = 512
    batch_size: Positive = 32
    accumulate_grad_batches: Positive = 1
    num_workers: Count = 4
    precision: Precision = "auto"
    gradient_checkpointing: Switch = "auto"
    gradient_clip_val: Number = 1.0
    num_negatives: Count = 3
    num_in_file_negatives: Count = 1
    data_max_seq_len: Positive = 1024
    lambda_value: Number = 0.1
    early_stopping_patience: Positive = 5
    seed: Seed = 3407
    device: Device = "auto"
    loss: Loss = "contrastive"
    temperature: PositiveNumber = 0.05
    schedule: Schedule = "cosine"
    save_minutes: Number = 10.0
    against_forgetting: AgainstForgetting = "ewc+replay+average"
    fisher_samples: Positive = 512
    average_weight: Share = 0.75
    replay_size: Positive = 20_000
    replay_share: BelowOne = 0.5
    lora_by_repository: bool = False
    lora_rank: Positive = 16
    only_new: bool = True
    split: Split = "random"
    baselines: bool = True

    # The interval of saving, processes, memory, the measurements.
    no_content: ClassVar[frozenset[str]] = frozenset(
        {"num_workers", "save_minutes", "gradient_checkpointing", "baselines"}
    )

    def __post_init__(self) -> None:
        if self.num_in_file_negatives > self.num_negatives:
            raise ConfigError(
                f"num_in_file_negatives is {self.num_in_file_negatives}: it takes 0 to num_negatives, "
                f"which is {self.num_negatives}"
            )

    @property
    def document_length(self) -> int:
        """Tokens of the longest document in training, replay and index: the lower of LeanDojo's two limits."""
        return min(self.max_seq_len, self.data_max_seq_len)

    @property
    def ways(self) -> frozenset[str]:
        """The ways against forgetting: of "ewc", "replay" and "average"."""
        return frozenset(self.against_forgetting.split("+")) - {"none"}


@dataclass(frozen=True, slots=True, config=STRICT)
class TrainingConfig(RetrieverConfig):
    """LeanDojo-v2's configuration: all its fields, with its names and defaults; its files load.

    It trains with EWC, as LeanDojo-v2 does, unless `against_forgetting` says otherwise, and on whole repositories.
    `batch_size` is of each GPU.

    Accepted because LeanDojo's files have them, and without effect here: `num_retrieved` (recall is measured to 100,
    and a prover has its own number), `single_repo` and `num_repos` (LeanDojo ignores them too), `checkpoint_save_top_k`
    and `checkpoint_every_n_epochs` (a task makes one checkpoint, of its best epoch, and a chain keeps all),
    `tokenizer_model_name` (a model is trained with its own tokenizer), `eval_batch_size` (texts are batched by length),
    `log_every_n_steps` (every step is in the curve) and `num_sanity_val_steps`.
    """

    lr: PositiveNumber = 1e-3
    batch_size: Positive = 1
    accumulate_grad_batches: Positive = 4
    num_retrieved: Positive = 100
    num_gpus: Count = 1
    precision: Precision = "bf16-mixed"
    loss: Loss = "mse"
    against_forgetting: AgainstForgetting = "ewc"
    lambda_value: Number = 0.1
    only_new: bool = False
    timeout_seconds: Positive = 31_449_600
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
        # The daemon imports this module, and may have no yaml.
        import yaml

        try:
            return cls._read(file_path, yaml.safe_load)
        except yaml.YAMLError as error:
            raise ConfigError(f"{file_path} is no YAML: {error}") from error

    @classmethod
    def from_json(cls, file_path: str | Path) -> TrainingConfig:
        """Read a JSON file of fields.

        Raises:
            ConfigError: it cannot be read, is no object, or as `Config`.
        """
        return cls._read(file_path, json.loads)

    def to_yaml(self, file_path: str | Path) -> None:
        """Write all fields as YAML; `from_yaml` gives the same configuration."""
        import yaml

        Path(file_path).write_text(yaml.safe_dump(self.to_dict(), sort_keys=False), encoding="utf-8")

    def to_json(self, file_path: str | Path) -> None:
        """Write all fields as JSON; `from_json` gives the same configuration."""
        Path(file_path).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def _read(cls, path: str | Path, parse: Callable[[str], Any]) -> TrainingConfig:
        try:
            return cls.from_dict(parse(Path(path).read_text(encoding="utf-8")) or {})
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
        except (ConfigError, ValueError, TypeError) as error:
            raise ConfigError(f"{path}: {error}") from error
