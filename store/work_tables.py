"""Tables of the work itself: what is paused, what was triggered, how long each attempt of a job took."""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import Index, Integer, Text
from sqlmodel import Field, SQLModel


class Pause(SQLModel, table=True):
    """A sort of work that somebody paused and nobody has resumed."""

    __tablename__: ClassVar[str] = "pauses"
    work: str = Field(primary_key=True, sa_type=Text)
    by: str = Field(sa_type=Text)
    reason: str = Field(sa_type=Text)
    since: str = Field(sa_type=Text)


class Trigger(SQLModel, table=True):
    """The newest wish for a sort of work in a repository. `job` is the first one that began after it, if any."""

    __tablename__: ClassVar[str] = "triggers"
    work: str = Field(primary_key=True, sa_type=Text)
    repository: str = Field(primary_key=True, sa_type=Text)
    seq: int = Field(sa_type=Integer)
    by: str = Field(sa_type=Text)
    triggered_at: str = Field(sa_type=Text)
    job: str | None = Field(default=None, sa_type=Text)


class JobAttempt(SQLModel, table=True):
    """When one attempt of a job began and ended, and how (`outcome`); `jobs` has the newest attempt only."""

    __tablename__: ClassVar[str] = "job_attempts"
    __table_args__ = (Index("job_attempts_by_end", "ended_at"),)
    job: str = Field(primary_key=True, sa_type=Text)
    attempt: int = Field(primary_key=True, sa_type=Integer)
    kind: str = Field(sa_type=Text)
    started_at: str = Field(sa_type=Text)
    ended_at: str | None = Field(default=None, sa_type=Text)
    outcome: str | None = Field(default=None, sa_type=Text)
