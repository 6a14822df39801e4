"""LeanDojo's formats, in and out, to move a LeanDojo-v2 or LeanAgent user over, and back.

In: `reading`, of the `records` of a file or a folder. Out: `exporting`; `merging` has LeanDojo's own splits
too. The names of LeanDojo's `database` package are in `database`, loaded at the first use of one (reading
verbs pay for none):

    from store.leandojo import DynamicDatabase, Repository, Theorem
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from store.leandojo.database import (
        AnnotatedTactic,
        Annotation,
        DynamicDatabase,
        Pos,
        Premise,
        PremiseFile,
        Repository,
        Theorem,
    )

__all__ = (
    "AnnotatedTactic",
    "Annotation",
    "DynamicDatabase",
    "Pos",
    "Premise",
    "PremiseFile",
    "Repository",
    "Theorem",
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("store.leandojo.database"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
