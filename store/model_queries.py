"""The questions about trained models. Read-only and light, like `store.queries`."""

from __future__ import annotations

import sqlite3

from store.rows import columns, make_all
from store.trace_rows import CheckpointRow, EvaluationRow


def checkpoints(db: sqlite3.Connection, model: str | None = None) -> list[CheckpointRow]:
    """Return the checkpoints of one model ("retriever", "tactics", "progress"), or of all, oldest first."""
    rows = db.execute(
        f"SELECT {_names(CheckpointRow)} FROM checkpoints WHERE ?1 IS NULL OR model = ?1 "
        "ORDER BY saved_at, checkpoint",
        (model,),
    )
    return make_all(CheckpointRow, rows)


def checkpoint_in_use(db: sqlite3.Connection, model: str) -> CheckpointRow | None:
    """Return the checkpoint of a model that was promoted last; None before the first."""
    rows = db.execute(
        f"SELECT {_names(CheckpointRow)} FROM checkpoints WHERE model = ? AND promoted = 1", (model,)
    )
    return next(iter(make_all(CheckpointRow, rows)), None)


def weights_of(db: sqlite3.Connection, model: str) -> str:
    """Return the hash of the weights behind an attempt's `model`; "" where it is none of the checkpoints.

    Of a generator that a retriever's checkpoint goes before ("checkpoint+generator") it is the checkpoint's.
    """
    rows = db.execute("SELECT weights FROM checkpoints WHERE checkpoint = ?", (model.partition("+")[0],))
    return str(next(iter(rows), ("",))[0])


def evaluations(db: sqlite3.Connection, checkpoint: str | None = None) -> list[EvaluationRow]:
    """Return how one checkpoint did, or all, oldest first."""
    rows = db.execute(
        f"SELECT {_names(EvaluationRow)} FROM evaluations WHERE ?1 IS NULL OR checkpoint = ?1 "
        "ORDER BY recorded_at, evaluation",
        (checkpoint,),
    )
    return make_all(EvaluationRow, rows)


def _names(cls: type) -> str:
    return ", ".join(f'"{name}"' for name in columns(cls))
