"""Proving: the rungs of the ladder, the search over goal states, and the text that a found proof becomes.

The names that LeanDojo's users know are here, loaded when they are asked for (rung 0 needs no torch):

    from pipeline.prove import ExternalProver, HFProver, RetrievalProver, Server
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.prove.compat import ExternalProver as ExternalProver
    from pipeline.prove.compat import HFProver as HFProver
    from pipeline.prove.compat import RetrievalProver as RetrievalProver
    from pipeline.prove.lean_server import Server as Server

_MODULES = {
    "compat": ("ExternalProver", "HFProver", "RetrievalProver"),
    "lean_server": ("Server",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"pipeline.prove.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
