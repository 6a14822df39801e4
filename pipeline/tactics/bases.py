"""Which model an adapter was put on, found again when the folders of both have moved together.

PEFT writes the base as a whole path. Beside it stands the way from the adapter's folder to the base's:

    <adapter>/base.json     {"path": "../0123456789abcdef", "config": SHA-256 of the base's config.json}

It is gone first, so that a copy of a state folder has its own base and not that of the original. Imports no torch.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from pipeline.durable import file_digest
from pipeline.tactics.errors import ModelError

ADAPTER = "adapter_config.json"
BASE = "base.json"
_CONFIG = "config.json"


def name_base(folder: Path, base: str, *, home: Path) -> None:
    """Write into a folder with an adapter where its base is, if that is a folder too; nothing into another one.

    Args:
        folder: of the adapter.
        base: a folder or hub name.
        home: where the adapter's folder is going to be; any place beside that is as good.
    """
    config = Path(base, _CONFIG)
    if (folder / ADAPTER).is_file() and config.is_file():
        said = {
            "path": os.path.relpath(config.parent.resolve(), home.resolve()),
            "config": file_digest(config),
        }
        (folder / BASE).write_text(json.dumps(said) + "\n", encoding="utf-8")


def base_of(model: str | Path) -> str:
    """Return the folder or hub name of the model that an adapter was put on; of what is no adapter its own.

    Raises:
        ModelError: the adapter does not say it, or what it says cannot be read.
    """
    folder = Path(model)
    if not (folder / ADAPTER).is_file():
        return str(model)
    beside = _beside(folder)
    if beside is not None:
        return str(beside)
    try:
        base = json.loads((folder / ADAPTER).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{folder / ADAPTER} cannot be read ({error}). Restore the folder") from error
    if not base:
        raise ModelError(
            f"{folder / ADAPTER} does not say which model the adapter was put on; set base_model_name_or_path"
        )
    return str(base)


def _beside(folder: Path) -> Path | None:
    """Return the base's folder by the way from the adapter's, where it is that model."""
    path = folder / BASE
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        found = Path(os.path.normpath(folder.resolve() / str(said["path"])))
        wanted = str(said["config"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"{path} cannot be read ({error}). Restore it, or remove it: {ADAPTER} has the base too"
        ) from error
    config = found / _CONFIG
    return found if config.is_file() and file_digest(config) == wanted else None
