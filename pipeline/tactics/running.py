"""Running a TRL trainer: quietly, watched, and in as many processes as Accelerate's launcher starts."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from accelerate import PartialState
from transformers import TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from pipeline.retrieval.quiet import quiet_libraries
from pipeline.tactics.errors import DivergedError

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState

OnStep = Callable[[int, int], object]

# The older transformers do not know the new name, and the newer ones warn of the old one.
CHECKPOINTING = next(
    name
    for name in ("activation_checkpointing", "gradient_checkpointing")
    if name in TrainingArguments.__dataclass_fields__
)


def run(trainer: Any, on_step: OnStep) -> int:
    """Run a TRL trainer to its end, quietly; return its optimiser steps.

    Args:
        trainer: TRL's.
        on_step: told (optimiser steps done, in all) after each.

    Raises:
        DivergedError: a logged loss was no finite number.
    """
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    trainer.add_callback(_Watch(on_step))
    with quiet_libraries():
        trainer.train()
    return int(trainer.state.global_step)


def is_first() -> bool:
    """Say whether this process is the one that writes."""
    return os.environ.get("RANK", "0") == "0"


def wait(device: torch.device) -> None:
    """Wait for the other processes of the run, where there are any."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        # Without being told so, Accelerate takes processes on CPUs for single ones, and waits for nobody.
        PartialState(cpu=device.type == "cpu").wait_for_everyone()


class _Watch(TrainerCallback):
    def __init__(self, on_step: OnStep) -> None:
        self._on_step = on_step

    def on_step_end(
        self,
        args: TrainingArguments,  # noqa: ARG002 - transformers' signature
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **_: Any,
    ) -> None:
        self._on_step(state.global_step, state.max_steps)

    def on_log(
        self,
        args: TrainingArguments,  # noqa: ARG002 - transformers' signature
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        loss = (logs or {}).get("loss")
        if loss is not None and not math.isfinite(loss):
            raise DivergedError(
                f"the loss at step {state.global_step} is {loss}: training has diverged. Train with a smaller learning "
                "rate, or with dtype float32"
            )
