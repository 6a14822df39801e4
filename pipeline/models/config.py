"""Configurations of training: frozen dataclasses that check their fields; the tactic and the progress model's.

The retriever's has LeanDojo's fields (`pipeline.models.retriever.config`). An unknown field is an error naming it and
the nearest one. Imports no torch: the daemon checks its settings against these.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from pipeline.models.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Device = Literal["auto", "cpu", "cuda"]
Split = Literal["random", "novel_premises"]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]
Number = Annotated[float, Field(ge=0)]
PositiveNumber = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())
"""Of a configuration's dataclass: true is no number, nor is "1"; but 1 and 1.0 are one setting."""


class Config:
    """The base of a configuration: a frozen dataclass of pydantic.

    Raises:
        ConfigError: a field is unknown, or has an invalid value.
    """

    __slots__ = ()

    no_content: ClassVar[frozenset[str]]
    """Fields without effect on the trained weights."""
    model_name: str
    batch_size: int
    lr: float
    seed: int
    device: Device
    save_minutes: float
    lora_by_repository: bool = False
    """Whether each repository has an adapter of its own (`pipeline.models.adapters`)."""
    split: Split
    """The split of LeanDojo's two to train and measure on; a chain stays with its first.

    In "novel_premises" every measured proof uses a premise of no training proof.
    """

    @model_validator(mode="wrap")
    @classmethod
    def _checked(cls, given: Any, make: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return make(given)
        except ValidationError as error:
            names = [item.name for item in fields(cls)]  # type: ignore[arg-type]  # as above
            raise ConfigError(_said(error.errors(include_url=False)[0], names)) from None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return a configuration of some fields; the others have their defaults."""
        return cls(**values)

    @classmethod
    def of_checkpoint(cls, described: Mapping[str, Any]) -> Self:
        """Return a checkpoint's configuration, without the fields of earlier versions and other trainers."""
        names = {item.name for item in fields(cls)}  # type: ignore[arg-type]  # subclasses are dataclasses
        return cls(**{name: value for name, value in described.items() if name in names})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload, no-any-return]  # as above

    def content(self) -> dict[str, Any]:
        """Return the fields that decide the trained weights."""
        return {name: value for name, value in self.to_dict().items() if name not in self.no_content}

    def made(self, described: Mapping[str, Any]) -> bool:
        """Return whether a checkpoint's configuration has these fields that decide the trained weights."""
        return all(described.get(name) == value for name, value in self.content().items())

    def task_split(self, side: str) -> str:
        """Return the name of a measurement's split: that of "random" is its side's alone."""
        return side if self.split == "random" else f"{self.split}/{side}"


def _said(wrong: ErrorDetails, names: Sequence[str]) -> str:
    """Return a field's name, its wrong value and its valid values; of an unknown one the nearest of the names."""
    key, message = wrong["loc"][0], wrong["msg"]
    if isinstance(key, int):  # an argument without its name
        key = names[key]
    if wrong["type"] == "unexpected_keyword_argument":
        near = difflib.get_close_matches(str(key), names, n=1)
        meant = f"; is {near[0]} meant?" if near else f". The fields are {', '.join(names)}"
        return f"{key} is no field of a training configuration{meant}"
    hint = (
        " (write 1.0e-3, not 1e-3: YAML takes the latter for a text)" if wrong["type"] == "float_type" else ""
    )
    return f"{key} is {wrong['input']!r}: {message[:1].lower()}{message[1:]}{hint}"


# ---- the tactic model and the progress model


@dataclass(frozen=True, slots=True, config=STRICT)
class RowsConfig(Config):
    """Settings of a training on rows of proofs' steps.

    Attributes:
        model_name: the first checkpoint's base: a folder or hub name.
        batch_size: rows at once.
        replay_share: of the rows of an epoch, that of replayed ones, below 1; 0: none is replayed. Each repository has
            as many.
        only_new: of a repository learned before, train on the new rows only; replay has the rest.
        split: of LeanDojo's two, the one to train and measure on (`Config.split`).
        device: "auto": a GPU if there is one.
        save_minutes: between two savings; a killed run loses at most this, and a step; every measured epoch is saved
            too. 0: save every step.

    Raises:
        ConfigError: a field has an invalid value.
    """

    model_name: str
    batch_size: Positive = 8
    replay_share: BelowOne = 0.25
    only_new: bool = True
    split: Split = "random"
    device: Device = "auto"
    save_minutes: Number = 10.0

    no_content: ClassVar[frozenset[str]] = frozenset({"eval_steps", "save_minutes"})


@dataclass(frozen=True, slots=True, config=STRICT)
class TacticsConfig(RowsConfig):
    """Settings of a tactic model's training on people's tactics, and those of our own proofs.

    Training with Lean's reward is a job of its own (`train_grpo`) with settings of its own (`GrpoSpec`) beside these.

    Attributes:
        model_name: of a causal language model or an encoder-decoder.
        epochs: over the repository's training split.
        lr: the highest learning rate; it falls to 0 in a line. 0: 2e-5 for every weight, 2e-4 for an adapter.
        lora: whether to train an adapter instead of every weight. A parent that is an adapter is always trained further
            as one.
        lora_rank: of the adapter's matrices.
        lora_by_repository: whether each repository has an adapter of its own, trained and used for it alone, all on the
            chain's first model (`pipeline.models.adapters`). Needs `lora`; nothing of other repositories is replayed.
            A chain stays with its first.
        max_seq_len: tokens of prompt and tactic together, a quarter of which are the tactic's.
        premise_dropout: if rows show a retriever's premises, the share of rows without, so that the model can do
            without.
        split: in "novel_premises" none of our own proofs is learned: a proof's side follows from premises it does not
            name.
        seed: of everything drawn.
        eval_steps: the number of steps to measure in a larger split, the same ones every time; 0: all.
    """

    model_name: str = "Qwen/Qwen3-0.6B"
    epochs: Positive = 1
    lr: Number = 0.0
    lora: bool = False
    lora_rank: Positive = 16
    lora_by_repository: bool = False
    max_seq_len: Positive = 1024
    premise_dropout: Share = 0.25
    seed: Seed = 3407
    eval_steps: Count = 2000

    def __post_init__(self) -> None:
        if self.lora_by_repository and not self.lora:
            raise ConfigError("lora_by_repository is true, and lora is false: write lora = true beside it")


@dataclass(frozen=True, slots=True, config=STRICT)
class ProgressConfig(RowsConfig):
    """Settings of a progress model's training.

    Attributes:
        model_name: of any text model.
        epochs: over the repository's training split; the best one on its val split is kept.
        lr: of AdamW, falling to 0.
        max_seq_len: tokens of a text; fewer if the model takes fewer.
        seed: of a new head and the order of the rows.
    """

    model_name: str = "bert-base-uncased"
    epochs: PositiveNumber = 3.0
    lr: PositiveNumber = 1e-5
    max_seq_len: Positive = 512
    seed: Seed = 42
