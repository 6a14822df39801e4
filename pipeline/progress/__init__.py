"""The progress model: how many steps a proof still needs, read off a state and the step that is to be taken in it.

It orders a search as LeanProgress does (arXiv:2502.17925). The names are here, loaded when they are asked for:

    from pipeline.progress import ProgressModel, ProgressTrainer, Step
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.progress.model import ProgressModel as ProgressModel
    from pipeline.progress.text import Step as Step
    from pipeline.progress.training import ProgressTrainer as ProgressTrainer

_MODULES = {"model": ("ProgressModel",), "text": ("Step",), "training": ("ProgressTrainer",)}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"pipeline.progress.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
