"""LeanDojo's formats, in and out: what moves a LeanDojo-v2 or LeanAgent user over, and back.

In: `importing` (the whole), `reading` (a file or a folder, streamed), `staging` (put in order on disk). Out: `dataset`,
`database_json`, `corpus`. `face` has the names of LeanDojo's own `DynamicDatabase`, `compat` its splits and buckets.

The names of LeanDojo's `database` package are here, loaded when they are asked for (reading verbs pay for none of it):

    from store.leandojo import DynamicDatabase, Repository, Theorem
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from store.leandojo.face import DynamicDatabase as DynamicDatabase
    from store.leandojo.models import AnnotatedTactic as AnnotatedTactic
    from store.leandojo.models import Annotation as Annotation
    from store.leandojo.models import Pos as Pos
    from store.leandojo.models import Premise as Premise
    from store.leandojo.models import PremiseFile as PremiseFile
    from store.leandojo.models import Theorem as Theorem
    from store.leandojo.repository import Repository as Repository

_MODULES = {
    "face": ("DynamicDatabase",),
    "repository": ("Repository",),
    "models": ("AnnotatedTactic", "Annotation", "Pos", "Premise", "PremiseFile", "Theorem"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"store.leandojo.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
