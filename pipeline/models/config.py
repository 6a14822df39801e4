"""Configurations of training: frozen dataclasses that check their fields; the tactic and the progress model's.

The retriever's has LeanDojo's fields (`pipeline.models.retriever.config`). An unknown field is an error that names it
and the nearest one. Standard library only: the daemon checks its settings against these.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal, Self, get_args

from pipeline.models.errors import ConfigError

Device = Literal["auto", "cpu", "cuda"]
_ARTICLE = {"bool": "a", "int": "an", "float": "a", "str": "a"}


@dataclass(frozen=True, slots=True)
class FieldLimits:
    """Limits on fields within their types, by field name. Other numbers are from 0.

    Attributes:
        positive: numbers above 0.
        up_to_one: numbers from 0 to 1.
        below_one: numbers from 0 to below 1.
        from_minus_one: numbers from -1.
        choices: texts, one of these.
    """

    positive: frozenset[str] = frozenset()
    up_to_one: frozenset[str] = frozenset()
    below_one: frozenset[str] = frozenset()
    from_minus_one: frozenset[str] = frozenset()
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Config:
    """The base of a configuration: a frozen dataclass that calls `checked` in its `__post_init__`.

    Its fields are annotated bool, int, float or str, or are among `takes.choices`; a field "seed" is below 2**32.
    """

    __slots__ = ()

    takes: ClassVar[FieldLimits]
    no_content: ClassVar[frozenset[str]]
    """Fields that do not change the weights that a training makes."""
    model_name: str
    seed: int

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return a configuration of some fields; the others have their defaults.

        Raises:
            ConfigError: a key is no field, or a value is not taken.
        """
        names = [item.name for item in fields(cls)]  # type: ignore[arg-type]  # subclasses are dataclasses
        for key in values:
            if key not in names:
                near = difflib.get_close_matches(str(key), names, n=1)
                meant = f"; is {near[0]} meant?" if near else f". The fields are {', '.join(names)}"
                raise ConfigError(f"{key} is no field of a training configuration{meant}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload, no-any-return]  # as above

    def content(self) -> dict[str, Any]:
        """Return the fields that decide the weights that a training makes."""
        return {name: value for name, value in self.to_dict().items() if name not in self.no_content}

    def checked(self) -> None:
        """Check every field.

        Raises:
            ConfigError: one has a value that it does not take.
        """
        for item in fields(self):  # type: ignore[arg-type]  # as above
            value = getattr(self, item.name)
            if (wrong := _wrong(item.name, value, item.type, self.takes)) is not None:
                raise ConfigError(f"{item.name} is {wrong}")
            if item.type == "float":
                # 1 and 1.0 are one setting, and have to make one checkpoint's id.
                object.__setattr__(self, item.name, float(value))


def _wrong(name: str, value: Any, kind: Any, takes: FieldLimits) -> str | None:
    """Return a field's wrong value and the values that it takes; None if the value is right."""
    if name in takes.choices:
        choices = takes.choices[name]
        return None if value in choices else f"{value!r}: it takes one of {', '.join(choices)}"
    # `type`, not `isinstance`: true is an int to Python. PyYAML reads "1e-3" as a text.
    allowed = {"bool": (bool,), "int": (int,), "float": (int, float), "str": (str,)}[kind]
    if type(value) not in allowed:
        hint = " (write 1.0e-3, not 1e-3: YAML takes the latter for a text)" if kind == "float" else ""
        return f"{value!r}, of type {type(value).__name__}: it takes {_ARTICLE[kind]} {kind}{hint}"
    if kind not in ("int", "float"):
        return None
    if not math.isfinite(value):
        return f"{value}: it takes a finite number"
    if name in takes.positive and value <= 0:
        return f"{value}: it takes a number above 0"
    if name == "seed" and value >= 2**32:
        return f"{value}: it takes a number below 2**32"
    if name in takes.up_to_one and not 0 <= value <= 1:
        return f"{value}: it takes a number from 0 to 1"
    if name in takes.below_one and not 0 <= value < 1:
        return f"{value}: it takes a number from 0 to below 1"
    least = -1 if name in takes.from_minus_one else 0
    return f"{value}: it takes no number below {least}" if value < least else None


# ---- the tactic model and the progress model

Objective = Literal["sft"]
_OF_REWARDS = frozenset({"reward_func", "reward_weights", "kl_beta", "num_generations"})
"""Of `pipeline.models.tactics.GRPOTrainer`."""
_NO_REWARDS = (
    "this job learns people's tactics and those of our own proofs (objective = \"sft\"). Training with Lean's reward "
    "is set up under [train.tactics.grpo]; or give an HFAgent a `pipeline.models.tactics.GRPOTrainer` (docs/agents.md)"
)


@dataclass(frozen=True, slots=True)
class TacticsConfig(Config):
    """Settings of a tactic model's training.

    Attributes:
        model_name: the first checkpoint's base: a folder or hub name of a causal language model or an encoder-decoder.
        objective: "sft": people's tactics are learned, and those of our own proofs. Training with Lean's reward is a
            job of its own (`train_grpo`) with settings of its own (`GrpoSpec`) beside these.
        epochs: over the repository's training split.
        batch_size: rows at once.
        lr: the highest learning rate, reached after three hundredths of the steps; it falls to 0 in a line. 0: 2e-5
            for every weight, 2e-4 for an adapter.
        lora: whether an adapter is trained, and not every weight. A parent that is an adapter is trained further as
            one in any case.
        lora_rank: of the adapter's matrices.
        max_seq_len: tokens of prompt and tactic together, a quarter of which are the tactic's.
        enable_thinking: whether a model that can think before it answers is told to, which takes a `max_seq_len` with
            room for it; people's tactics have no thoughts to learn from.
        premise_dropout: where rows are shown the premises of a retriever, the share that is shown none, so that the
            model can do without.
        replay_size: rows of all earlier tasks together that replay chooses from, the same number of each repository.
        replay_share: of the rows of an epoch, that of replayed ones, below 1; 0: none is replayed.
        only_new: of a repository that was learned before, train on the steps that are new since; replay has the rest.
        device: where; "auto": a GPU where there is one.
        seed: of everything drawn.
        eval_steps: of a split that has more steps, so many are measured, the same ones every time; 0: all.
        save_minutes: the most that a killed run loses, and a step; 0: every step is saved.

    Raises:
        ConfigError: a field has a value that it does not take.
    """

    model_name: str = "Qwen/Qwen3-0.6B"
    objective: Objective = "sft"
    epochs: int = 1
    batch_size: int = 8
    lr: float = 0.0
    lora: bool = False
    lora_rank: int = 16
    max_seq_len: int = 1024
    enable_thinking: bool = False
    premise_dropout: float = 0.25
    replay_size: int = 20_000
    replay_share: float = 0.25
    only_new: bool = True
    device: Device = "auto"
    seed: int = 3407
    eval_steps: int = 2000
    save_minutes: float = 10.0

    takes: ClassVar[FieldLimits] = FieldLimits(
        positive=frozenset({"epochs", "batch_size", "lora_rank", "max_seq_len"}),
        up_to_one=frozenset({"premise_dropout"}),
        below_one=frozenset({"replay_share"}),
        choices={"objective": get_args(Objective), "device": get_args(Device)},
    )
    no_content: ClassVar[frozenset[str]] = frozenset({"eval_steps", "save_minutes"})

    def __post_init__(self) -> None:
        if str(self.objective) == "grpo":
            raise ConfigError(f"objective is 'grpo': {_NO_REWARDS}")
        self.checked()


def tactics_config(values: Mapping[str, Any]) -> TacticsConfig:
    """Return the configuration of a job of the daemon.

    Raises:
        ConfigError: a field is unknown or not taken.
    """
    for key in values:
        if key in _OF_REWARDS:
            raise ConfigError(f"{key} is of training with rewards: {_NO_REWARDS}")
    return TacticsConfig.from_dict(values)


@dataclass(frozen=True, slots=True)
class ProgressConfig(Config):
    """Settings of a progress model's training.

    Attributes:
        model_name: the first checkpoint's base: a folder or hub name of any text model.
        epochs: over the repository's training split; the one that does best on its val split is kept.
        batch_size: rows at once.
        lr: of AdamW, falling to 0.
        max_seq_len: tokens of a text; fewer where the model takes fewer.
        replay_size: rows of all earlier tasks together that replay chooses from, the same number of each repository.
        replay_share: of the rows of an epoch, that of replayed ones, below 1; 0: none is replayed.
        only_new: of a repository that was learned before, train on the proofs that are new since; replay has the rest.
        device: where; "auto": a GPU where there is one.
        seed: of a new head and the order of the rows.
        save_minutes: the most that a killed run loses, and a step; every epoch is saved too. 0: every step is.

    Raises:
        ConfigError: a field has a value that it does not take.
    """

    model_name: str = "bert-base-uncased"
    epochs: float = 3.0
    batch_size: int = 8
    lr: float = 1e-5
    max_seq_len: int = 512
    replay_size: int = 20_000
    replay_share: float = 0.25
    only_new: bool = True
    device: Device = "auto"
    seed: int = 42
    save_minutes: float = 10.0

    takes: ClassVar[FieldLimits] = FieldLimits(
        positive=frozenset({"epochs", "batch_size", "lr", "max_seq_len"}),
        below_one=frozenset({"replay_share"}),
        choices={"device": get_args(Device)},
    )
    no_content: ClassVar[frozenset[str]] = frozenset({"save_minutes"})

    def __post_init__(self) -> None:
        self.checked()
