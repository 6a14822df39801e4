"""Settings of a tactic model's training job. Imports no torch: the daemon checks its settings against this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from pipeline.models.config import Config, Device, FieldLimits
from pipeline.models.errors import ConfigError

Objective = Literal["sft"]
_OF_REWARDS = frozenset({"reward_func", "reward_weights", "kl_beta", "num_generations"})
"""Of `pipeline.models.tactics.GRPOTrainer`."""
_NO_REWARDS = (
    "a job of training holds no build and no Lean to run a model's tactics in, and learns people's tactics "
    '(objective = "sft"). Give an HFAgent a `pipeline.models.tactics.GRPOTrainer`: it checks the repositories out, '
    "built (docs/agents.md)"
)
_TAKES = FieldLimits(
    positive=frozenset({"epochs", "batch_size", "lr", "lora_rank", "max_seq_len"}),
    choices={"objective": get_args(Objective), "device": get_args(Device)},
)


@dataclass(frozen=True, slots=True)
class TacticsConfig(Config):
    """Settings of a training. Checked when made.

    Attributes:
        model_name: what the first checkpoint begins with: a folder or hub name of a causal language model.
        objective: "sft": people's tactics are learned. Not "grpo": its reward runs what a model writes, so that its job
            would have to be due only where the very commit of the trace is built, hold that build and its Lean, and be
            counted with those that run Lean, as jobs that prove are. An agent does so (`daemon.compat.HFAgent`).
        epochs: over the repository's training split.
        batch_size: rows at once.
        lr: the highest learning rate; it falls to 0 in a line.
        lora: whether an adapter is trained, and not every weight. A parent that is an adapter is trained further as
            one in any case.
        lora_rank: of the adapter's matrices.
        max_seq_len: tokens of prompt and tactic together, a quarter of which are the tactic's.
        device: where; "auto": a GPU where there is one.
        seed: of everything drawn.
        eval_steps: of a split that has more steps, so many are measured, the same ones every time; 0: all.
        save_minutes: what a run that is killed loses at most, and a step; 0: every step is saved.

    Raises:
        ConfigError: a field has a value that it does not take.
    """

    model_name: str = "Qwen/Qwen3-0.6B"
    objective: Objective = "sft"
    epochs: int = 1
    batch_size: int = 8
    lr: float = 2e-5
    lora: bool = False
    lora_rank: int = 16
    max_seq_len: int = 1024
    device: Device = "auto"
    seed: int = 3407
    eval_steps: int = 2000
    save_minutes: float = 10.0

    takes: ClassVar[FieldLimits] = _TAKES
    no_content: ClassVar[frozenset[str]] = frozenset({"eval_steps", "save_minutes"})

    def __post_init__(self) -> None:
        if str(self.objective) == "grpo":
            raise ConfigError(f"objective is 'grpo': {_NO_REWARDS}")
        self.checked()


def for_a_job(values: Mapping[str, Any]) -> TacticsConfig:
    """Return the configuration of a job of the daemon.

    Raises:
        ConfigError: a field is unknown or not taken.
    """
    for key in values:
        if key in _OF_REWARDS:
            raise ConfigError(f"{key} is of training with rewards: {_NO_REWARDS}")
    return TacticsConfig.from_dict(values)
