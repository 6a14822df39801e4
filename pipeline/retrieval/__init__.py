"""Premise retrieval that learns for life: datasets, training with EWC, an index, evaluation, promotion.

The names that LeanDojo's users know are here, loaded when they are asked for (measures and texts need no torch):

    from pipeline.retrieval import RetrievalTrainer, TrainingConfig
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.retrieval.config import TrainingConfig as TrainingConfig
    from pipeline.retrieval.corpus import Corpus as Corpus
    from pipeline.retrieval.corpus import Premise as Premise
    from pipeline.retrieval.datamodule import RetrievalDataModule as RetrievalDataModule
    from pipeline.retrieval.face import RetrievalTrainer as RetrievalTrainer
    from pipeline.retrieval.retriever import PremiseRetriever as PremiseRetriever

_MODULES = {
    "config": ("TrainingConfig",),
    "corpus": ("Corpus", "Premise"),
    "datamodule": ("RetrievalDataModule",),
    "face": ("RetrievalTrainer",),
    "retriever": ("PremiseRetriever",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"pipeline.retrieval.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
