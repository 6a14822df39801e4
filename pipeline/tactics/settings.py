"""The settings of a trainer of tactic models, checked when they are made, and where it computes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from pipeline.tactics.errors import SettingsError
from pipeline.tactics.models import Device

DType = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How to train; what a checkpoint follows from, beside its model and its data."""

    epochs_per_repo: int
    batch_size: int
    lr: float
    lora: Mapping[str, Any] | None
    max_seq_len: int
    warmup_steps: int
    dtype: DType
    seed: int

    def __post_init__(self) -> None:
        for name in ("epochs_per_repo", "batch_size", "max_seq_len"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} is {getattr(self, name)}: it takes a whole number from 1")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise SettingsError(f"lr is {self.lr}: it takes a number above 0")
        if self.warmup_steps < 0:
            raise SettingsError(f"warmup_steps is {self.warmup_steps}: it takes a whole number from 0")
        if self.dtype not in get_args(DType):
            raise SettingsError(f"dtype is {self.dtype!r}: it takes one of {', '.join(get_args(DType))}")


def device_of(name: Device) -> torch.device:
    """Return the device of a name; "auto" is a GPU where there is one.

    Raises:
        SettingsError: it is no name, or there is no GPU.
    """
    if name not in get_args(Device):
        raise SettingsError(f"device is {name!r}: it takes one of {', '.join(get_args(Device))}")
    cuda = torch.cuda.is_available()
    if name == "cuda" and not cuda:
        raise SettingsError("device is 'cuda' and PyTorch finds no GPU here: set it to 'auto' or 'cpu'")
    return torch.device("cuda" if cuda and name != "cpu" else "cpu")


def computes_in_bfloat16(device: torch.device) -> bool:
    """Say whether a device has bfloat16 in hardware."""
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def dtype_of(wanted: DType, device: torch.device, *, adapter: bool) -> torch.dtype:
    """Return the type of a model's weights; "auto": bfloat16 under an adapter where the device has it."""
    if wanted == "auto":
        return torch.bfloat16 if adapter and computes_in_bfloat16(device) else torch.float32
    return torch.bfloat16 if wanted == "bfloat16" else torch.float32


def plain(value: Any) -> Any:
    """Return a value as JSON gives it back; sets in order."""
    return json.loads(
        json.dumps(
            value, default=lambda item: sorted(item) if isinstance(item, set | frozenset) else str(item)
        )
    )
