"""The tables of trained models: their checkpoints, and how each did."""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import REAL, Index, Integer, Text
from sqlmodel import Field, SQLModel


class Checkpoint(SQLModel, table=True):
    """A trained checkpoint; see `store.model_events.CheckpointSaved`. `promoted` is 1 for the one in use.

    Nobody decided on it yet where `promoted_at` and `refused_at` are both NULL.
    """

    __tablename__: ClassVar[str] = "checkpoints"
    __table_args__ = (
        Index("checkpoints_in_use", "model", "promoted"),
        Index("checkpoints_undecided", "promoted_at", "refused_at"),
    )
    checkpoint: str = Field(primary_key=True, sa_type=Text)
    model: str = Field(sa_type=Text)
    parent: str | None = Field(default=None, sa_type=Text)
    base: str = Field(sa_type=Text)
    data_seq: int = Field(sa_type=Integer)
    config_json: str = Field(sa_type=Text)
    seed: int = Field(sa_type=Integer)
    steps: int = Field(sa_type=Integer)
    weights: str = Field(sa_type=Text)
    size_bytes: int = Field(sa_type=Integer)
    fisher: str | None = Field(default=None, sa_type=Text)
    versions_json: str = Field(sa_type=Text)
    device: str = Field(sa_type=Text)
    seconds: float = Field(sa_type=REAL)
    job: str = Field(sa_type=Text)
    simulated: int = Field(sa_type=Integer)
    saved_at: str = Field(sa_type=Text)
    promoted: int = Field(sa_type=Integer)
    promoted_at: str | None = Field(default=None, sa_type=Text)
    reason: str = Field(default="", sa_type=Text)
    refused_at: str | None = Field(default=None, sa_type=Text)
    refused_reason: str = Field(default="", sa_type=Text)


class Evaluation(SQLModel, table=True):
    """How a checkpoint did on one dataset; see `store.model_events.EvaluationFinished`."""

    __tablename__: ClassVar[str] = "evaluations"
    __table_args__ = (Index("evaluations_by_checkpoint", "checkpoint"),)
    evaluation: str = Field(primary_key=True, sa_type=Text)
    model: str = Field(sa_type=Text)
    checkpoint: str = Field(sa_type=Text)
    repository: str | None = Field(default=None, sa_type=Text)
    split: str = Field(sa_type=Text)
    dataset: str = Field(sa_type=Text)
    metrics_json: str = Field(sa_type=Text)
    n: int = Field(sa_type=Integer)
    seconds: float = Field(sa_type=REAL)
    job: str = Field(sa_type=Text)
    simulated: int = Field(sa_type=Integer)
    recorded_at: str = Field(sa_type=Text)
