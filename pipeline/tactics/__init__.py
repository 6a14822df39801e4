"""Tactic models: prompts, training (SFT, GRPO with Lean's reward), generation in batches.

The names that LeanDojo's users know are here, loaded when they are asked for (prompts and answers need no torch):

    from pipeline.tactics import GRPOTrainer, SFTTrainer
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.tactics.grpo import GRPOTrainer as GRPOTrainer
    from pipeline.tactics.reward import LeanReward as LeanReward
    from pipeline.tactics.sft import SFTTrainer as SFTTrainer

_MODULES = {"grpo": ("GRPOTrainer",), "reward": ("LeanReward",), "sft": ("SFTTrainer",)}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"pipeline.tactics.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
