"""Proving: the rungs of the ladder, the search over goal states, and the text made from a found proof.

LeanDojo's names, loaded on their first use (rung 0 needs no torch):

    from pipeline.prove import ExternalProver, HFProver, RetrievalProver, Server
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.prove.provers import ExternalProver as ExternalProver
    from pipeline.prove.provers import HFProver as HFProver
    from pipeline.prove.provers import RetrievalProver as RetrievalProver
    from pipeline.prove.server import Server as Server

_MODULES = {"provers": ("ExternalProver", "HFProver", "RetrievalProver"), "server": ("Server",)}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
