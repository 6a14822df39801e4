"""`everlean schema`: the JSON schemas of the documents of `--json`."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from daemon.cli.answer import Answer
from daemon.cli.completion import one_of
from daemon.cli.context import VERBS, Call, verb

DOCUMENTS: dict[str, type | str] = {
    "attempt": "store.documents.attempts:Attempt",
    "checkpoint": "store.documents.checkpoints:Checkpoint",
    "event": "store.documents.events:Event",
    "job": "store.documents.jobs:Job",
    "message": "daemon.results.notifications:MessageBody",
    "proof": "store.documents.proofs:Proof",
    "repository": "store.documents.repositories:Repository",
    "sorry": "store.documents.sorries:Sorry",
    "status": "daemon.health.status_report:Status",
    "task": "pipeline.prove.task:Task",
    "theorem": "store.documents.theorems:Theorem",
}
"""The classes of the documents of several verbs, by name."""


@dataclass(frozen=True, slots=True)
class Names:
    names: list[str]
    """of the documents"""


@verb("schema", Names)
def schema(
    call: Call,  # noqa: ARG001 - it asks nothing of a daemon
    name: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]",
            help=f"A verb with --json, such as sorries show, or {', '.join(DOCUMENTS)}; default: print all names.",
            autocompletion=one_of([*DOCUMENTS]),
        ),
    ] = None,
) -> Answer | None:
    """Print the JSON schema (2020-12) of a document of --json, or the names of all."""
    import pkgutil

    from daemon.cli import verbs

    for module in pkgutil.iter_modules(verbs.__path__):
        importlib.import_module(f"{verbs.__name__}.{module.name}")
    of_verbs = {one.name: one.document for one in VERBS.values() if one.document is not None}
    documents = DOCUMENTS | dict(sorted(of_verbs.items()))
    if not name:
        return Answer(Names([*documents]), "\n".join(documents))
    words = " ".join(name)
    if words not in documents:
        raise typer.BadParameter(
            f'"{words}" has no document; `everlean schema` prints the names', param_hint="NAME"
        )
    from store.documents.schema import schema_of

    sys.stdout.write(json.dumps(schema_of(class_of(documents[words])), ensure_ascii=False, indent=2) + "\n")
    return None


def class_of(document: type | str) -> type:
    """Return the class of a document, perhaps named as "module:Class"."""
    if isinstance(document, type):
        return document
    module, _, name = document.partition(":")
    result: type = getattr(importlib.import_module(module), name)
    return result
