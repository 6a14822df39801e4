"""Configurations of training: frozen dataclasses that check their fields; the tactic and the progress model's.

The retriever's has LeanDojo's fields (`pipeline.models.retriever.config`). An unknown field is an error that names it
and the nearest one. Imports no torch: the daemon checks its settings against these.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

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
BetweenZeroAndOne = Annotated[float, Field(gt=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class Config:
    """The base of a configuration: a frozen dataclass that calls `checked` in its `__post_init__`.

    pydantic holds the fields to their annotations, strictly: true is no number, nor is "1".
    """

    __slots__ = ()

    no_content: ClassVar[frozenset[str]]
    """Fields that do not change the weights that a training makes."""
    model_name: str
    seed: int
    lora_by_repository: bool = False
    """Whether each repository has an adapter of its own (`pipeline.models.adapters`)."""
    split: Split
    """Of LeanDojo's two, the one to train and measure on; in "novel_premises" every proof that is measured on uses a
    premise that no proof to learn from uses. A chain stays with its first."""

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

    @classmethod
    def of_checkpoint(cls, described: Mapping[str, Any]) -> Self:
        """Return the configuration that a checkpoint describes, without fields that an earlier version or another
        trainer had.

        Raises:
            ConfigError: a value is not taken.
        """
        names = {item.name for item in fields(cls)}  # type: ignore[arg-type]  # as above
        return cls(**{name: value for name, value in described.items() if name in names})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload, no-any-return]  # as above

    def content(self) -> dict[str, Any]:
        """Return the fields that decide the weights that a training makes."""
        return {name: value for name, value in self.to_dict().items() if name not in self.no_content}

    def task_split(self, side: str) -> str:
        """Return the name of a measurement's split: that of "random" is its side's alone."""
        return side if self.split == "random" else f"{self.split}/{side}"

    def checked(self) -> None:
        """Check every field.

        Raises:
            ConfigError: one has a value that it does not take.
        """
        model = _model(type(self))  # type: ignore[arg-type]  # a class is hashable, whatever its objects are
        try:
            taken = model.model_validate(self.to_dict())
        except ValidationError as error:
            raise ConfigError(_said(error.errors(include_url=False)[0])) from None
        for name, value in taken:
            # 1 and 1.0 are one setting, and have to make one checkpoint's id.
            object.__setattr__(self, name, value)


@cache
def _model(kind: type[Config]) -> type[BaseModel]:
    hints = get_type_hints(kind, include_extras=True)
    taken: dict[str, Any] = {item.name: (hints[item.name], ...) for item in fields(kind)}  # type: ignore[arg-type]
    strict = ConfigDict(strict=True, allow_inf_nan=False, protected_namespaces=())
    result: type[BaseModel] = create_model(kind.__name__, __config__=strict, **taken)
    return result


_TAKES = {
    "bool_type": "a bool",
    "int_type": "an int",
    "float_type": "a float (write 1.0e-3, not 1e-3: YAML takes the latter for a text)",
    "string_type": "a str",
    "finite_number": "a finite number",
    "literal_error": "one of {expected}",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "no number below {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "no number above {le}",
}
"""What a field takes that has an error of such a type."""


def _said(wrong: ErrorDetails) -> str:
    """Return a field's name, its wrong value and the values that it takes."""
    kind, value = wrong["type"], wrong["input"]
    typed = f", of type {type(value).__name__}" if kind.endswith("_type") else ""
    takes = _TAKES.get(kind, wrong["msg"]).format(**wrong.get("ctx", {}))
    return f"{wrong['loc'][0]} is {value!r}{typed}: it takes {takes}"


# ---- the tactic model and the progress model


@dataclass(frozen=True, slots=True)
class RowsConfig(Config):
    """Settings of a training that learns rows of proofs' steps.

    Attributes:
        model_name: the first checkpoint's base: a folder or hub name.
        batch_size: rows at once.
        replay_size: rows of all earlier tasks together that replay chooses from, the same number of each repository.
        replay_share: of the rows of an epoch, that of replayed ones, below 1; 0: none is replayed.
        only_new: of a repository that was learned before, train on what is new since; replay has the rest.
        split: of LeanDojo's two, the one to train and measure on (`Config.split`).
        device: where; "auto": a GPU where there is one.
        save_minutes: the most that a killed run loses, and a step; every epoch that is measured is saved too. 0: every
            step is saved.

    Raises:
        ConfigError: a field has a value that it does not take.
    """

    model_name: str
    batch_size: Positive = 8
    replay_size: Count = 20_000
    replay_share: BelowOne = 0.25
    only_new: bool = True
    split: Split = "random"
    device: Device = "auto"
    save_minutes: Number = 10.0

    no_content: ClassVar[frozenset[str]] = frozenset({"eval_steps", "save_minutes"})

    def __post_init__(self) -> None:
        self.checked()


@dataclass(frozen=True, slots=True)
class TacticsConfig(RowsConfig):
    """Settings of a tactic model's training: people's tactics are learned, and those of our own proofs.

    Training with Lean's reward is a job of its own (`train_grpo`) with settings of its own (`GrpoSpec`) beside these.

    Attributes:
        model_name: of a causal language model or an encoder-decoder.
        epochs: over the repository's training split.
        lr: the highest learning rate, reached after three hundredths of the steps; it falls to 0 in a line. 0: 2e-5
            for every weight, 2e-4 for an adapter.
        lora: whether an adapter is trained, and not every weight. A parent that is an adapter is trained further as
            one in any case.
        lora_rank: of the adapter's matrices.
        lora_by_repository: whether each repository has an adapter of its own, which alone its trainings change and its
            searches use, all on the model that the chain begins with (`pipeline.models.adapters`). Needs
            `lora`; nothing of other repositories is replayed. A chain stays with its first.
        max_seq_len: tokens of prompt and tactic together, a quarter of which are the tactic's.
        enable_thinking: whether a model that can think before it answers is told to, which takes a `max_seq_len` with
            room for it; people's tactics have no thoughts to learn from.
        premise_dropout: where rows are shown the premises of a retriever, the share that is shown none, so that the
            model can do without.
        split: in "novel_premises" none of our own proofs is learned: on which side one is follows from premises that it
            does not name.
        seed: of everything drawn.
        eval_steps: of a split that has more steps, so many are measured, the same ones every time; 0: all.
    """

    model_name: str = "Qwen/Qwen3-0.6B"
    epochs: Positive = 1
    lr: Number = 0.0
    lora: bool = False
    lora_rank: Positive = 16
    lora_by_repository: bool = False
    max_seq_len: Positive = 1024
    enable_thinking: bool = False
    premise_dropout: Share = 0.25
    seed: Seed = 3407
    eval_steps: Count = 2000

    def __post_init__(self) -> None:
        self.checked()
        if self.lora_by_repository and not self.lora:
            raise ConfigError("lora_by_repository is true, and lora is false: write lora = true beside it")


@dataclass(frozen=True, slots=True)
class ProgressConfig(RowsConfig):
    """Settings of a progress model's training.

    Attributes:
        model_name: of any text model.
        epochs: over the repository's training split; the one that does best on its val split is kept.
        lr: of AdamW, falling to 0.
        max_seq_len: tokens of a text; fewer where the model takes fewer.
        seed: of a new head and the order of the rows.
    """

    model_name: str = "bert-base-uncased"
    epochs: PositiveNumber = 3.0
    lr: PositiveNumber = 1e-5
    max_seq_len: Positive = 512
    seed: Seed = 42
