"""Trained models: their checkpoints, the decisions on them, the one in use, and their evaluations."""

from __future__ import annotations

import sqlite3

from store.events.models import (
    CheckpointPromoted,
    CheckpointRefused,
    CheckpointRemoved,
    CheckpointSaved,
    EvaluationFinished,
    ModelOffered,
)
from store.log.envelope import StoredEvent
from store.view.projections.rows import as_json, upsert


def checkpoint_saved(db: sqlite3.Connection, event: StoredEvent, body: CheckpointSaved) -> None:
    """Add a checkpoint, or set its facts; a decision on it stays."""
    upsert(
        db,
        "checkpoints",
        key={"checkpoint": body.checkpoint},
        values={
            "model": body.model,
            "parent": body.parent,
            "base": body.base,
            "data_seq": body.data_seq,
            "config_json": as_json(body.config),
            "seed": body.seed,
            "steps": body.steps,
            "weights": body.weights,
            "size_bytes": body.size_bytes,
            "curve": None if body.curve is None else body.curve.sha256,
            "versions_json": as_json(body.versions),
            "device": body.device,
            "seconds": body.seconds,
            "job": body.job,
            "saved_at": event.recorded_at,
            # A checkpoint made again is there again.
            "removed_at": None,
            "removed_reason": "",
        },
        once={"promoted": 0, "reason": "", "refused_reason": ""},
    )


def model_offered(db: sqlite3.Connection, event: StoredEvent, body: ModelOffered) -> None:
    """Record a user's model; the same weights are the same model."""
    upsert(
        db,
        "offers",
        key={"model": body.model, "weights": body.weights, "repository": body.repository},
        values={
            "folder": body.folder,
            "trace": body.trace,
            "learned": body.learned,
            "by": body.by,
            "offered_at": event.recorded_at,
        },
        once={},
    )


def checkpoint_promoted(db: sqlite3.Connection, event: StoredEvent, body: CheckpointPromoted) -> None:
    """Put a checkpoint in use and the model's others out of use; an unsaved one changes nothing.

    An earlier refusal counts no more.
    """
    key = (body.checkpoint, body.model)
    if db.execute("SELECT 1 FROM checkpoints WHERE checkpoint = ? AND model = ?", key).fetchone() is None:
        return
    db.execute("UPDATE checkpoints SET promoted = 0 WHERE model = ? AND promoted = 1", (body.model,))
    db.execute(
        "UPDATE checkpoints SET promoted = 1, promoted_at = ?, reason = ?, refused_at = NULL, refused_reason = '' "
        "WHERE checkpoint = ?",
        (event.recorded_at, body.reason, body.checkpoint),
    )


def checkpoint_refused(db: sqlite3.Connection, event: StoredEvent, body: CheckpointRefused) -> None:
    """Record why a checkpoint was not put in use; an unsaved one changes nothing."""
    db.execute(
        "UPDATE checkpoints SET refused_at = ?, refused_reason = ? WHERE checkpoint = ? AND model = ?",
        (event.recorded_at, body.reason, body.checkpoint, body.model),
    )


def checkpoint_removed(db: sqlite3.Connection, event: StoredEvent, body: CheckpointRemoved) -> None:
    """Record the removal of a checkpoint's files; an unsaved one changes nothing."""
    db.execute(
        "UPDATE checkpoints SET removed_at = ?, removed_reason = ? WHERE checkpoint = ? AND model = ?",
        (event.recorded_at, body.reason, body.checkpoint, body.model),
    )


def evaluation_finished(db: sqlite3.Connection, event: StoredEvent, body: EvaluationFinished) -> None:
    """Keep the newest result of an evaluation."""
    upsert(
        db,
        "evaluations",
        key={"evaluation": body.evaluation},
        values={
            "model": body.model,
            "checkpoint": body.checkpoint,
            "repository": body.repository,
            "split": body.split,
            "dataset": body.dataset,
            "metrics_json": as_json(body.metrics),
            "n": body.n,
            "seconds": body.seconds,
            "job": body.job,
            "recorded_at": event.recorded_at,
            "scores": None if body.scores is None else body.scores.sha256,
        },
        once={},
    )
