"""Adds a model's folder to a chain that the daemon did not train (`everlean models add`).

A folder comes from any trainer here, with its `checkpoint.json`, or from the hub, for example by `hf download`. Imports
no torch.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.models.adapters import ADAPTER, OF_RETRIEVERS
from pipeline.models.chain import Chain, Step, TrainingResult, checkpoint_id
from pipeline.models.datasets import TaskData
from pipeline.models.errors import CheckpointError
from pipeline.models.model_files import (
    DESCRIPTION,
    MODEL_FILES,
    Checkpoint,
    read_checkpoint,
    start_of,
    versions,
    weights_of,
)
from store.events.models import ModelKind

_BY_ARCHITECTURE: Mapping[str, ModelKind] = {
    "ForSequenceClassification": "progress",
    "ForCausalLM": "tactics",
    "ForConditionalGeneration": "tactics",
    "LMHeadModel": "tactics",
}


def kind_of(folder: Path) -> ModelKind:
    """Return the kind of model in a folder; one without a head for another purpose is a retriever.

    Raises:
        CheckpointError: it holds no model, or its config.json cannot be read.
    """
    if not weights_of([path.name for path in folder.glob("*")]):
        raise CheckpointError(
            f"{folder} holds no model: there are no weights in it. Name the folder that a trainer wrote, or one that "
            "`hf download` made"
        )
    try:
        if (adapter := folder / ADAPTER).is_file():
            purpose = json.loads(adapter.read_text(encoding="utf-8")).get("task_type")
            return "retriever" if purpose == OF_RETRIEVERS else "tactics"
        named = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("architectures") or [""]
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"the configuration in {folder} cannot be read ({error}). Restore the folder"
        ) from error
    return next((kind for end, kind in _BY_ARCHITECTURE.items() if str(named[0]).endswith(end)), "retriever")


def add(
    folder: Path,
    task: TaskData,
    chain: Chain,
    config: Mapping[str, Any],
    *,
    parent: str | None,
    facts: Mapping[str, Any],
) -> Checkpoint:
    """Add a copy of a model's folder to a chain, as the checkpoint after `parent`; an existing one is not made again.

    Args:
        folder: of the model; it stays as it is.
        task: to measure it on.
        chain: of its model.
        config: of the measurements.
        parent: the checkpoint in use; None: there is none.
        facts: further fields of the checkpoint's description.

    Raises:
        CheckpointError: a file differs from the saved one, or the copy cannot be written.
    """
    known = read_checkpoint(folder, verify=True)
    weights = start_of(folder)
    base = str(folder) if known is None else known.base
    # On another split it would be measured on its own training data, however it was trained.
    config = {**(known.config if known else {}), "split": config["split"], "added": str(folder)}
    identity = checkpoint_id(
        parent=parent, base=base, begun=weights, task=task.name, data=weights, config=config
    )
    step = Step(
        identity,
        parent,
        base,
        str(folder),
        task,
        (task.name,),
        data=weights if known is None else known.data,
        config=config,
    )

    def write(copy: Path) -> None:
        for name in sorted(_files(folder)):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(folder / name, copy / name)

    def taken(_run: Path) -> TrainingResult:
        if known is None:
            return TrainingResult(write, 0, "cpu", 0.0, versions(()), about=dict(facts))
        about = {**known.about, **facts}
        return TrainingResult(write, known.steps, known.device, known.seconds, known.versions, about=about)

    return chain.make(step, taken, from_parent=False)


def _files(folder: Path) -> set[str]:
    result = (path for pattern in MODEL_FILES for path in folder.glob(pattern))
    return {path.relative_to(folder).as_posix() for path in result if path.is_file()} - {DESCRIPTION}
