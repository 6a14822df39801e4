"""The class of all specifications of jobs (`pipeline.jobs.specs`), the folders in one, and a key's place.

A module of its own, since a node carries specifications of every kind and loads none of their classes.
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
"""For gated and private models: a job with a model of the hub gets it."""


def hub_key(model: str) -> KeyPlace | None:
    """Return the place of the key for loading a model; None for a folder's path, or no model."""
    return HUB_KEY if model and not model.startswith("/") else None


class Spec(BaseModel):
    """A part of a job's specification. Frozen; an unknown or missing field, or one of another type, is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


def folders_of(spec: BaseModel) -> dict[str, Path]:
    """Return the folders and files in a specification (checkpoints, toolchains, caches), by field."""
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
