"""LoRA adapters: an adapter's base, and checkpoints with an adapter for each repository.

PEFT writes an adapter's base as an absolute path. If that is a checkpoint, the one of its name beside the adapter is
taken instead: so a chain may be moved, and its copy uses no model of the original.

With LoRA by repository a checkpoint holds one adapter for each repository so far, all on the chain's first model:

    <chain>/<id>/adapters/<name>/     an adapter's folder, as a trainer writes it
    <chain>/<id>/checkpoint.json      … "adapters": {a repository's key: <name>} …

A task trains the adapter of its own repository. Those of the others are the parent's files, under a second name on the
disk: no bit of them changes. The base serves a repository without one. Imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pipeline.models.curve import CURVE
from pipeline.models.errors import ModelError
from pipeline.models.model_files import ADAPTERS, read_checkpoint

ADAPTER = "adapter_config.json"
Purpose = Literal["CAUSAL_LM", "FEATURE_EXTRACTION"]
"""PEFT's name for the task of an adapter's model."""
_CHECKPOINT = re.compile("[0-9a-f]{16}")
OF_RETRIEVERS: Purpose = "FEATURE_EXTRACTION"


def new_adapter(rank: int, purpose: Purpose) -> Any:
    """Return PEFT's configuration of a new adapter, on all linear layers."""
    # Not at the top: the daemon imports this module, and has no torch.
    from peft import LoraConfig

    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type=purpose)


# ---- an adapter's base


def name_base(adapted: Any, base: str) -> None:
    """Let a model's adapters name a folder as their base by its own place: links change, and so does the directory."""
    if Path(base).is_dir():
        for adapter in adapted.peft_config.values():
            adapter.base_model_name_or_path = str(Path(base).resolve())


def base_of(model: str | Path) -> str:
    """Return the folder or hub name of an adapter's base; the model itself if it is no adapter.

    Raises:
        ModelError: the adapter does not name it, its folder is missing, or the name cannot be read.
    """
    folder = Path(model)
    if not (folder / ADAPTER).is_file():
        return str(model)
    try:
        base = json.loads((folder / ADAPTER).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{folder / ADAPTER} cannot be read ({error}). Restore the folder") from error
    path = Path(base or "/")
    beside = folder.resolve().parent / path.name
    if _CHECKPOINT.fullmatch(beside.name) and (beside / "config.json").is_file():
        return str(beside)
    if not base or (path.is_absolute() and not path.exists()):
        raise ModelError(
            f"{folder / ADAPTER} names no model that is there ({base}) as the adapter's base: set "
            "base_model_name_or_path to its folder or hub name"
        )
    return str(base)


# ---- an adapter for each repository


def adapters_of(model: str | Path) -> Mapping[str, Path]:
    """Return the folder of each repository's adapter, by the repository's key; {} of a model for all.

    Raises:
        CheckpointError: the checkpoint's description cannot be read.
    """
    folder = Path(model)
    found = read_checkpoint(folder)
    return {} if found is None else {name: folder / ADAPTERS / own for name, own in found.adapters.items()}


def model_for(model: str | Path, repository: str | None) -> str:
    """Return the folder or hub name of the model for a repository's goals.

    Args:
        model: a folder or hub name.
        repository: its key; None if unknown.

    Raises:
        ModelError: the model differs by repository, and that is unknown; or an adapter's base cannot be read.
        CheckpointError: the checkpoint's description cannot be read.
    """
    adapters = adapters_of(model)
    if not adapters:
        return str(model)
    if repository is None:
        raise ModelError(
            f"{model} holds an adapter for each of {', '.join(adapters)}, and nothing says which one is wanted. Name a "
            f"folder below {Path(model) / ADAPTERS}, or a repository where one can be named"
        )
    own = adapters.get(repository)
    return base_of(next(iter(adapters.values()))) if own is None else str(own)


def write_adapters(
    folder: Path, repository: str, write: Callable[[Path], object], parent: Path | None
) -> dict[str, str]:
    """Write a checkpoint's adapters into its folder; return the names of their folders, by repository.

    Args:
        folder: of the checkpoint, empty.
        repository: the trained one's key.
        write: writes its adapter, with its training's curve, into a folder of its own making.
        parent: the checkpoint with the others' adapters; None: there are none.
    """
    names = {}
    for other, adapter in ({} if parent is None else adapters_of(parent)).items():
        if other != repository:
            names[other] = adapter.name
            shutil.copytree(adapter, folder / ADAPTERS / adapter.name, copy_function=_named_again)
    names[repository] = hashlib.sha256(repository.encode()).hexdigest()[:16]
    own = folder / ADAPTERS / names[repository]
    write(own)
    # The checkpoint's own: a training's, whatever it trains.
    (own / CURVE).rename(folder / CURVE)
    return names


def _named_again(source: str, target: str) -> None:
    """Give a file a second name; copy it if the file system cannot."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
