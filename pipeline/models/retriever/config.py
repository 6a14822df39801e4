"""Settings of a retriever's training: LeanDojo-v2's `TrainingConfig`, field by field, and our own fields.

The first part has LeanDojo's names and defaults, so that its files load; the second part is ours. A file holds any of
them; an unknown one is an error that names it, and the nearest one. Imports no torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal, get_args

from pipeline.models.config import Config, Device, FieldLimits
from pipeline.models.errors import ConfigError

Loss = Literal["mse", "contrastive"]
AgainstForgetting = Literal["ewc", "none", "average", "replay"]
FisherLabels = Literal["empirical", "sampled"]
FisherScale = Literal["normalised", "compat"]
Schedule = Literal["cosine", "constant"]
Mode = Literal["min", "max"]
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed", "bf16-true", "64-true")
_LAMBDA_UNITS: Mapping[Loss, float] = {"contrastive": 3.0, "mse": 0.006}
"""See `TrainingConfig.penalty_strength`. Losses differ in steepness: one number cannot serve both."""
_TAKES = FieldLimits(
    positive=frozenset(
        {
            "num_repos",
            "max_epochs",
            "max_seq_len",
            "num_retrieved",
            "batch_size",
            "eval_batch_size",
            "lr",
            "temperature",
            "accumulate_grad_batches",
            "data_max_seq_len",
            "timeout_seconds",
            "early_stopping_patience",
            "checkpoint_every_n_epochs",
            "log_every_n_steps",
            "checkpoint_every_n_steps",
            "fisher_samples",
            "replay_size",
        }
    ),
    up_to_one=frozenset({"fisher_decay", "average_weight", "replay_share"}),
    from_minus_one=frozenset({"checkpoint_save_top_k", "num_sanity_val_steps"}),
    choices={
        "precision": PRECISIONS,
        "early_stopping_mode": get_args(Mode),
        "checkpoint_mode": get_args(Mode),
        "device": get_args(Device),
        "loss": get_args(Loss),
        "schedule": get_args(Schedule),
        "against_forgetting": get_args(AgainstForgetting),
        "fisher_labels": get_args(FisherLabels),
        "fisher_scale": get_args(FisherScale),
    },
)


@dataclass(frozen=True, slots=True)
class TrainingConfig(Config):
    """Settings of a training. Checked when made.

    Accepted because LeanDojo's files have them, and without effect here: `num_repos` (LeanDojo ignores it too),
    `checkpoint_save_top_k` (a task makes one checkpoint, of its best epoch, and a chain keeps all) and
    `tokenizer_model_name` (a model is trained with its own tokenizer).

    Raises:
        ConfigError: a field has a value that it does not take.
    """

    # LeanDojo-v2's, with its defaults.
    run_progressive_training: bool = True
    single_repo: bool = True
    num_repos: int = 1
    max_epochs: int = 1
    model_name: str = "kaiyuy/leandojo-lean4-retriever-byt5-small"
    lr: float = 1e-3
    warmup_steps: int = 1000
    max_seq_len: int = 512
    num_retrieved: int = 100
    batch_size: int = 1
    eval_batch_size: int = 64
    accumulate_grad_batches: int = 4
    num_gpus: int = 1
    num_workers: int = 4
    precision: str = "bf16-mixed"
    gradient_clip_val: float = 1.0
    num_negatives: int = 3
    num_in_file_negatives: int = 1
    data_max_seq_len: int = 1024
    tokenizer_model_name: str = "google/byt5-small"
    lambda_value: float = 0.1
    timeout_seconds: int = 31_449_600
    early_stopping_patience: int = 5
    early_stopping_monitor: str = "Recall@10_val"
    early_stopping_mode: Mode = "max"
    checkpoint_save_top_k: int = -1
    checkpoint_every_n_epochs: int = 1
    checkpoint_monitor: str = "Recall@10_val"
    checkpoint_mode: Mode = "max"
    log_every_n_steps: int = 1
    num_sanity_val_steps: int = 0
    seed: int = 3407

    # Ours.
    device: Device = "auto"
    loss: Loss = "mse"
    temperature: float = 0.05
    schedule: Schedule = "cosine"
    checkpoint_every_n_steps: int = 500
    against_forgetting: AgainstForgetting = "ewc"
    fisher_samples: int = 512
    fisher_labels: FisherLabels = "empirical"
    fisher_decay: float = 1.0
    fisher_scale: FisherScale = "normalised"
    average_weight: float = 0.5
    replay_size: int = 2000
    replay_share: float = 0.25

    takes: ClassVar[FieldLimits] = _TAKES
    # Intervals of saving and logging, processes, and the size of an evaluation's batches.
    no_content: ClassVar[frozenset[str]] = frozenset(
        {"num_workers", "timeout_seconds", "log_every_n_steps", "checkpoint_every_n_steps", "eval_batch_size"}
    )

    def __post_init__(self) -> None:
        self.checked()
        if self.num_in_file_negatives > self.num_negatives:
            raise ConfigError(
                f"num_in_file_negatives is {self.num_in_file_negatives}: it takes 0 to num_negatives, "
                f"which is {self.num_negatives}"
            )

    @classmethod
    def from_yaml(cls, file_path: str | Path) -> TrainingConfig:
        """Read a YAML file of fields.

        Raises:
            ConfigError: it cannot be read, is no mapping, or as `from_dict`.
        """
        yaml = _yaml()
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
        Path(file_path).write_text(_yaml().safe_dump(self.to_dict(), sort_keys=False), encoding="utf-8")

    def to_json(self, file_path: str | Path) -> None:
        """Write all fields as JSON; `from_json` gives the same configuration."""
        Path(file_path).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    def get_model_config(self) -> dict[str, Any]:
        """Return the arguments of `PremiseRetriever`, as LeanDojo has them."""
        return {
            "model_name": self.model_name,
            "lr": self.lr,
            "warmup_steps": self.warmup_steps,
            "max_seq_len": self.max_seq_len,
            "num_retrieved": self.num_retrieved,
        }

    @property
    def document_length(self) -> int:
        """Tokens of the longest document in training, replay and index: the lower of LeanDojo's two limits."""
        return min(self.max_seq_len, self.data_max_seq_len)

    def get_lambda_value(self) -> float:
        """Return the weight of the EWC penalty: `lambda_value`, or 0 where training is not progressive."""
        return self.lambda_value if self.run_progressive_training else 0.0

    @property
    def penalty_strength(self) -> float:
        """The factor of `F (theta - theta*)^2` in the penalty: `get_lambda_value()` in the unit of the loss.

        On the normalised scale the unit makes LeanDojo's default, 0.1, the strength that kept most in the measurements
         (docs/benchmarks.md, "The strength of EWC"): 0.3 for "contrastive", 0.0006 for "mse". On the scale
        "compat" it is 1, as LeanAgent's.
        """
        unit = _LAMBDA_UNITS[self.loss] if self.fisher_scale == "normalised" else 1.0
        return unit * self.get_lambda_value()

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


def for_a_job(values: Mapping[str, Any]) -> TrainingConfig:
    """Return the training configuration of a job of the daemon.

    Raises:
        ConfigError: a field is unknown or not taken, or it asks for several GPUs.
    """
    config = TrainingConfig.from_dict(values)
    if config.num_gpus > 1:
        # Lightning would start the job's program again for each of them, and a job's lock is held once.
        raise ConfigError(
            f"num_gpus is {config.num_gpus}: a job of the daemon trains on one GPU. Set it to 1, or train on several "
            "with `pipeline.models.retriever.RetrievalTrainer`"
        )
    return config


def _yaml() -> ModuleType:
    # Not at the top: the daemon checks its settings against this module, and has no YAML itself.
    import yaml

    return yaml
