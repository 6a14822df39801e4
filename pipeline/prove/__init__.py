"""Proving: the rungs of the ladder, the search over goal states, and the text that a found proof becomes.

LeanDojo's names, loaded on their first use (rung 0 needs no torch):

    from pipeline.prove import ExternalProver, HFProver, RetrievalProver, Server
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.prove.provers import ExternalProver as ExternalProver
    from pipeline.prove.provers import HFProver as HFProver
    from pipeline.prove.provers import RetrievalProver as RetrievalProver
    from pipeline.prove.provers import Server as Server


def __getattr__(name: str) -> Any:
    if name not in ("ExternalProver", "HFProver", "RetrievalProver", "Server"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pipeline.prove import provers

    return getattr(provers, name)
