"""LeanDojo's formats, in and out: what moves a LeanDojo-v2 or LeanAgent user over, and back.

In: `reading`, of the `records` of a file or a folder. Out: `exporting`. `database` is LeanDojo's own `DynamicDatabase`
with its `models`; `merging` has its splits too.

The names of LeanDojo's `database` package are here, loaded when they are asked for (reading verbs pay for none of it):

    from store.leandojo import DynamicDatabase, Repository, Theorem
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from store.leandojo.database import DynamicDatabase as DynamicDatabase
    from store.leandojo.models import AnnotatedTactic as AnnotatedTactic
    from store.leandojo.models import Annotation as Annotation
    from store.leandojo.models import Pos as Pos
    from store.leandojo.models import Premise as Premise
    from store.leandojo.models import PremiseFile as PremiseFile
    from store.leandojo.models import Repository as Repository
    from store.leandojo.models import Theorem as Theorem

_MODELS = ("AnnotatedTactic", "Annotation", "Pos", "Premise", "PremiseFile", "Repository", "Theorem")


def __getattr__(name: str) -> Any:
    if name == "DynamicDatabase":
        return importlib.import_module("store.leandojo.database").DynamicDatabase
    if name in _MODELS:
        return getattr(importlib.import_module("store.leandojo.models"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
