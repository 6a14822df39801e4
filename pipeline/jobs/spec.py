"""The class of all specifications of jobs (`pipeline.jobs.specs`), the folders that one names, and where a key is.

By itself, since a node carries specifications of every kind and loads none of their classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pipeline.lean.backend import LeanBackend


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """The place of a key, by name: systemd's credential, else a file, else an environment variable; "" for none.

    `hub`: it is for downloads from Hugging Face's hub and pays for nothing.
    """

    credential: str = ""
    variable: str = ""
    file: str = ""
    hub: bool = False


HUB_KEY = KeyPlace("hf-token", "HF_TOKEN", hub=True)
"""Of gated and private models: a job that names a model of the hub is handed it."""


def hub_key(model: str) -> KeyPlace | None:
    """Return the place of the key that loading a model may take; None for a folder's path, and for no model."""
    return HUB_KEY if model and not model.startswith("/") else None


class Spec(BaseModel):
    """A part of a job's specification. Frozen; a field that is unknown, missing or of another type is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


def folders_of(spec: BaseModel) -> dict[str, Path]:
    """Return the folders and files that a specification names by path (checkpoints, toolchains, caches), by field."""
    result: dict[str, Path] = {}

    def look(name: str, value: object) -> None:
        match value:
            case Path():
                result[name] = value
            case LeanBackend():
                look(f"{name}.sysroot", Path(value.sysroot or "."))
                look(f"{name}.argv", Path(*value.argv[:1]))
            case BaseModel() | dict():
                items = (
                    value.items()
                    if isinstance(value, dict)
                    else ((at, getattr(value, at)) for at in type(value).model_fields)
                )
                for part, inner in items:
                    look(f"{name}.{part}" if name else str(part), inner)
            case tuple():
                for at, inner in enumerate(value):
                    look(f"{name}.{at}", inner)
            case str() if name.rpartition(".")[2] in ("path", "model_name"):
                look(name, Path(value))

    look("", spec)
    return {name: path for name, path in result.items() if path.is_absolute()}
