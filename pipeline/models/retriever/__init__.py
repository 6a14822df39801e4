"""Premise retrieval that learns for life: datasets, training with EWC, an index, evaluation, promotion.

LeanDojo's names are here, loaded when they are first used (texts need no torch):

    from pipeline.models.retriever import RetrievalTrainer, TrainingConfig
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.models.retriever.batches import RetrievalDataModule as RetrievalDataModule
    from pipeline.models.retriever.compat import RetrievalTrainer as RetrievalTrainer
    from pipeline.models.retriever.compat import TrainingConfig as TrainingConfig
    from pipeline.models.retriever.corpus import Corpus as Corpus
    from pipeline.models.retriever.corpus import Premise as Premise
    from pipeline.models.retriever.retriever import PremiseRetriever as PremiseRetriever

_MODULES = {
    "corpus": (
        "Corpus",
        "Premise",
    ),
    "batches": ("RetrievalDataModule",),
    "compat": ("RetrievalTrainer", "TrainingConfig"),
    "retriever": ("PremiseRetriever",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
