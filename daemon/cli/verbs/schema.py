"""`everlean schema`: what a document of `--json` is made of, as JSON schema."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from typing import Annotated

import typer

from daemon.cli.answer import Answer
from daemon.cli.completion import one_of
from daemon.cli.context import Call, verb
from daemon.cli.render import say

DOCUMENTS = {
    "attempt": "store.documents.attempts:Attempt",
    "checkpoint": "store.documents.checkpoints:Checkpoint",
    "event": "store.documents.events:Event",
    "job": "store.documents.jobs:Job",
    "proof": "store.documents.proofs:Proof",
    "repository": "store.documents.repositories:Repository",
    "sorry": "store.documents.sorries:Sorry",
    "status": "daemon.health.status_report:Status",
    "task": "pipeline.prove.task:Task",
    "theorem": "store.documents.theorems:Theorem",
}
"""The class of each document, by its name."""


@dataclass(frozen=True, slots=True)
class Names:
    names: list[str]
    """of the documents"""


@verb("schema", Names)
def schema(
    call: Call,  # noqa: ARG001 - it asks nothing of a daemon
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help=f"One of {', '.join(DOCUMENTS)}; default: print these names.",
            autocompletion=one_of([*DOCUMENTS]),
        ),
    ] = None,
) -> Answer | None:
    """Print the JSON schema (2020-12) of a document, or the names of all."""
    if name is None:
        return Answer(Names([*DOCUMENTS]), "\n".join(DOCUMENTS))
    if name not in DOCUMENTS:
        raise typer.BadParameter(f'"{name}" is none of {", ".join(DOCUMENTS)}', param_hint="NAME")
    from store.documents.schema import schema_of

    say(json.dumps(schema_of(class_of(name)), ensure_ascii=False, indent=2))
    return None


def class_of(name: str) -> type:
    """Return the class of a document."""
    module, _, document = DOCUMENTS[name].partition(":")
    found: type = getattr(importlib.import_module(module), document)
    return found
