"""LeanDojo's formats, in and out: what moves a LeanDojo-v2 or LeanAgent user over, and back.

In: `reading`, of the `records` of a file or a folder. Out: `exporting`; `merging` has LeanDojo's own splits too. The
names of LeanDojo's `database` package are in `database`, which is loaded when one is used (reading verbs pay for none):

    from store.leandojo import DynamicDatabase, Repository, Theorem
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from store.leandojo.database import AnnotatedTactic as AnnotatedTactic
    from store.leandojo.database import Annotation as Annotation
    from store.leandojo.database import DynamicDatabase as DynamicDatabase
    from store.leandojo.database import Pos as Pos
    from store.leandojo.database import Premise as Premise
    from store.leandojo.database import PremiseFile as PremiseFile
    from store.leandojo.database import Repository as Repository
    from store.leandojo.database import Theorem as Theorem

_NAMES = (
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
    if name in _NAMES:
        return getattr(importlib.import_module("store.leandojo.database"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
