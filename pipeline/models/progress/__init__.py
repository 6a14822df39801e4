"""The progress model: the number of steps that a proof still needs, predicted from a state and its next step.

It orders a search as LeanProgress does (arXiv:2502.17925). LeanDojo's names are here, loaded when they are first used:

    from pipeline.models.progress import ProgressModel, ProgressTrainer
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.models.progress.model import ProgressModel as ProgressModel
    from pipeline.models.progress.training import ProgressTrainer as ProgressTrainer

_MODULES = {
    "model": ("ProgressModel",),
    "training": ("ProgressTrainer",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
