"""Tables of the work itself: what is paused, what was triggered, the jobs and how long each attempt of one took."""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import REAL, Index, Integer, Text
from sqlmodel import Field, SQLModel


class Pause(SQLModel, table=True):
    """A sort of work that somebody paused and nobody has resumed."""

    __tablename__: ClassVar[str] = "pauses"
    work: str = Field(primary_key=True, sa_type=Text)
    by: str = Field(sa_type=Text)
    reason: str = Field(sa_type=Text)
    since: str = Field(sa_type=Text)


class Trigger(SQLModel, table=True):
    """The newest wish for a sort of work in a repository.

    `job` is the first one that began after it, if any; `ended` is why none had to.
    """

    __tablename__: ClassVar[str] = "triggers"
    work: str = Field(primary_key=True, sa_type=Text)
    repository: str = Field(primary_key=True, sa_type=Text)
    seq: int = Field(sa_type=Integer)
    by: str = Field(sa_type=Text)
    triggered_at: str = Field(sa_type=Text)
    job: str | None = Field(default=None, sa_type=Text)
    ended: str | None = Field(default=None, sa_type=Text)


class Job(SQLModel, table=True):
    """A job at its newest attempt. `state`: running, succeeded, failed, interrupted, cancelled, released."""

    __tablename__: ClassVar[str] = "jobs"
    __table_args__ = (Index("jobs_by_start", "started_at"), Index("jobs_by_state", "state", "kind"))
    job: str = Field(primary_key=True, sa_type=Text)
    kind: str = Field(sa_type=Text)
    state: str = Field(sa_type=Text)
    attempt: int = Field(sa_type=Integer)
    repository: str | None = Field(default=None, sa_type=Text)
    branch: str | None = Field(default=None, sa_type=Text)
    sha: str | None = Field(default=None, sa_type=Text)
    describes: str = Field(sa_type=Text)
    simulated: int = Field(sa_type=Integer)
    started_at: str = Field(sa_type=Text)
    ended_at: str | None = Field(default=None, sa_type=Text)
    seconds: float | None = Field(default=None, sa_type=REAL)
    peak_rss_bytes: int | None = Field(default=None, sa_type=Integer)
    reason: str = Field(default="", sa_type=Text)
    message: str = Field(default="", sa_type=Text)
    remedy: str = Field(default="", sa_type=Text)
    deterministic: int = Field(default=0, sa_type=Integer)
    retry_at: str | None = Field(default=None, sa_type=Text)
    summary_json: str = Field(default="{}", sa_type=Text)


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


class JobTally(SQLModel, table=True):
    """How many attempts of a kind of job had an outcome, by how long they took: see `store.projections.tallies`.

    `bucket` is the number of an interval of seconds, -1 where nobody timed them. `seconds` is their sum.
    """

    __tablename__: ClassVar[str] = "job_tallies"
    kind: str = Field(primary_key=True, sa_type=Text)
    outcome: str = Field(primary_key=True, sa_type=Text)
    simulated: int = Field(primary_key=True, sa_type=Integer)
    bucket: int = Field(primary_key=True, sa_type=Integer)
    n: int = Field(sa_type=Integer)
    seconds: float = Field(sa_type=REAL)
