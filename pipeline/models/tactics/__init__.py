"""Tactic models: prompts, training (SFT, GRPO with Lean's reward), generation in batches.

LeanDojo's names are here, loaded when they are first used (prompts and answers need no torch):

    from pipeline.models.tactics import GRPOTrainer, SFTTrainer
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.models.tactics.grpo import GRPOTrainer as GRPOTrainer
    from pipeline.models.tactics.reward import LeanReward as LeanReward
    from pipeline.models.tactics.training import SFTTrainer as SFTTrainer

_MODULES = {
    "grpo": ("GRPOTrainer",),
    "reward": ("LeanReward",),
    "training": ("SFTTrainer",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
