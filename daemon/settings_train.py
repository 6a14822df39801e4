"""[train] of config.toml: which models learn here, how, and how far a new one may fall behind the one in use.

The fields of each model's training are its own module's (`TrainingConfig`, `TacticsConfig`, `ProgressConfig`), which
also checks them; none of those modules imports a training library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Strict, ValidationInfo

from daemon.settings_fields import Flag, Section, duration, model_name, size
from pipeline.learning.errors import ConfigError
from pipeline.progress.config import for_a_job as progress_config
from pipeline.retrieval.config import for_a_job as retriever_config
from pipeline.tactics.config import for_a_job as tactics_config
from store.model_events import ModelKind
from store.promotion import RULES

_FOLDERS = frozenset({"model_name", "tokenizer_model_name"})
_CONFIGS: Mapping[ModelKind, Callable[[Mapping[str, Any]], Any]] = {
    "retriever": retriever_config,
    "tactics": tactics_config,
    "progress": progress_config,
}
_OWN = ("enabled", "tolerance")
"""What [train.tactics] and [train.progress] say beside the fields of the training itself."""


@dataclass(frozen=True, slots=True)
class Learning:
    """How one model learns: `config` are all fields of its job's configuration, `tolerance` is in its rule's unit.

    `named` is the model that the file itself names for the first checkpoint to begin with; "" where it names none.
    """

    model: ModelKind
    enabled: bool
    tolerance: float
    config: dict[str, Any]
    named: str


def _fields(model: ModelKind) -> Callable[[dict[str, Any], ValidationInfo], dict[str, Any]]:
    """Return the check of a table: a training's fields, and what this model's table says beside them."""
    own = () if model == "retriever" else _OWN

    def read(value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "device" in value:
            raise ValueError('takes no device; write device = "cuda", "cpu" or "auto" under [train]')
        settled = {
            key: model_name(item, info) if key in _FOLDERS and isinstance(item, str) else item
            for key, item in value.items()
        }
        if "enabled" in own and not isinstance(settled.get("enabled", False), bool):
            raise ValueError("enabled must be true or false; write enabled = true")
        if "tolerance" in own:
            _check_tolerance(settled.get("tolerance", 0), model)
        try:
            _CONFIGS[model]({key: item for key, item in settled.items() if key not in own})
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return settled

    return read


def _check_tolerance(value: Any, model: ModelKind) -> None:
    rule = RULES[model]
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not 0 <= value <= rule.widest:
        raise ValueError(
            f"tolerance must be a number of {rule.unit} from 0 to {rule.widest:g}; write tolerance = {rule.tolerance:g}"
        )


class Train(Section):
    """[train]: which models learn, from how much, and when what they learned is used.

    `retriever`, `tactics` and `progress` hold what the file says; `of` is what follows from it.
    """

    enabled: Flag = Field(True, examples=[True])
    device: Literal["cuda", "cpu", "auto"] = Field("cuda", examples=["cuda"])
    new_theorems: Annotated[int, Strict()] = Field(100, ge=1, examples=[100])
    tolerance_points: Annotated[float, Strict()] = Field(
        RULES["retriever"].tolerance,
        alias="tolerance",
        ge=0,
        le=RULES["retriever"].widest,
        allow_inf_nan=False,
        examples=[2],
    )
    memory_bytes: Annotated[int, BeforeValidator(size(minimum_bytes=2**28, example="32G"))] = Field(
        2**35, alias="memory", examples=["32G"]
    )
    timeout_s: Annotated[
        float, BeforeValidator(duration(minimum_s=1, maximum_s=30 * 86400, example="2d"))
    ] = Field(172_800.0, alias="timeout", examples=["2d"])
    retriever: Annotated[dict[str, Any], AfterValidator(_fields("retriever"))] = Field(default_factory=dict)
    tactics: Annotated[dict[str, Any], AfterValidator(_fields("tactics"))] = Field(default_factory=dict)
    progress: Annotated[dict[str, Any], AfterValidator(_fields("progress"))] = Field(default_factory=dict)

    def of(self, model: ModelKind) -> Learning:
        """Return how a model learns here."""
        table: dict[str, Any] = getattr(self, model)
        config = {key: item for key, item in table.items() if model == "retriever" or key not in _OWN}
        return Learning(
            model,
            enabled=self.enabled and (model == "retriever" or bool(table.get("enabled", False))),
            tolerance=self.tolerance(model),
            config=_CONFIGS[model]({**config, "device": self.device}).to_dict(),
            named=str(config.get("model_name", "")),
        )

    def tolerance(self, model: ModelKind) -> float:
        """Return how far a model may fall on a task, in the unit of its rule (`store.promotion`)."""
        if model == "retriever":
            return self.tolerance_points
        return float(getattr(self, model).get("tolerance", RULES[model].tolerance))
