"""Made-up events of trained models, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.models.model_files import DESCRIPTION, Checkpoint, file_digest, files_in
from store.domain.identity import short_hash
from store.events.models import (
    CheckpointPromoted,
    CheckpointRefused,
    CheckpointRemoved,
    CheckpointSaved,
    EvaluationFinished,
    ModelKind,
    ModelOffered,
)


def checkpoint_saved(
    checkpoint: str = "retriever-1",
    *,
    parent: str | None = None,
    model: ModelKind = "retriever",
    **changes: Any,
) -> CheckpointSaved:
    """Return the end of a training run, with changes."""
    made = CheckpointSaved(
        model=model,
        checkpoint=checkpoint,
        parent=parent,
        base="kaiyuy/leandojo-lean4-retriever-byt5-small",
        data_seq=1,
        config={"epochs": 1, "learning_rate": 1e-3},
        seed=3407,
        steps=100,
        weights=short_hash("weights", checkpoint) * 4,
        size_bytes=1 << 20,
        curve=None,
        versions={"torch": "2.7.1"},
        device="cpu",
        seconds=12.5,
        job="train-0000000000000000",
    )
    return made.model_copy(update=changes)


def checkpoint_promoted(
    checkpoint: str = "retriever-1",
    *,
    previous: str | None = None,
    model: ModelKind = "retriever",
) -> CheckpointPromoted:
    """Return the promotion of a checkpoint."""
    return CheckpointPromoted(
        model=model,
        checkpoint=checkpoint,
        previous=previous,
        reason="recall@10 0.41 > 0.38",
    )


def checkpoint_refused(
    checkpoint: str = "retriever-1",
    *,
    in_use: str | None = "retriever-0",
    model: ModelKind = "retriever",
) -> CheckpointRefused:
    """Return the refusal of a checkpoint."""
    return CheckpointRefused(
        model=model,
        checkpoint=checkpoint,
        in_use=in_use,
        reason="recall@10 0.31 < 0.38",
    )


def model_offered(model: ModelKind = "tactics", **changes: Any) -> ModelOffered:
    """Return the offer of a model that was trained elsewhere, with changes."""
    made = ModelOffered(
        model=model,
        folder="/srv/outputs",
        weights=short_hash("weights", "offered") * 4,
        repository="example.org/one",
        trace=None,
        learned=True,
        by="ada",
    )
    return made.model_copy(update=changes)


def checkpoint_removed(
    checkpoint: str = "retriever-1", *, model: ModelKind = "retriever"
) -> CheckpointRemoved:
    """Return the removal of a checkpoint's files."""
    return CheckpointRemoved(
        model=model, checkpoint=checkpoint, reason="by [train] keep = 3", size_bytes=4096
    )


def evaluation_finished(
    checkpoint: str = "retriever-1",
    *,
    recall: float = 0.41,
    model: ModelKind = "retriever",
    metrics: Mapping[str, float] | None = None,
) -> EvaluationFinished:
    """Return the measurement of a checkpoint."""
    return EvaluationFinished(
        model=model,
        evaluation=f"{checkpoint}-random-val",
        checkpoint=checkpoint,
        repository=None,
        split="random",
        dataset="d" * 64,
        metrics=dict(metrics or {"recall@1": recall / 2, "recall@10": recall}),
        n=250,
        scores=None,
        seconds=3.25,
        job="train-0000000000000000",
    )


def describe(folder: Path, *, learned: tuple[str, ...] = ("t",), **about: Any) -> None:
    """Write the description of a checkpoint with the files of a folder."""
    made = Checkpoint(
        checkpoint=folder.name,
        parent=None,
        base="b",
        task="t",
        learned=learned,
        data="d",
        data_seq=1,
        config={},
        steps=1,
        files={name: file_digest(folder / name) for name in files_in(folder) if name != DESCRIPTION},
        versions={},
        device="cpu",
        seconds=1.0,
        about=about,
    )
    (folder / DESCRIPTION).write_text(made.model_dump_json(), encoding="utf-8")
