"""The table of the channels through which people are told what happened."""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import Integer, Text
from sqlmodel import Field, SQLModel


class Notifier(SQLModel, table=True):
    """A channel, as its events left it (`store.notify_events`). What the log has up to `position` is not told again.

    `kinds_json` has, for each kind that it tells of, the position that its news begin behind; without any it is off.
    `messages` counts what it took, `told` the events in them. `problem` is "" where the last message was taken;
    otherwise `failing_since` says since when none is.
    """

    __tablename__: ClassVar[str] = "notifiers"
    channel: str = Field(primary_key=True, sa_type=Text)
    kinds_json: str = Field(sa_type=Text)
    position: int = Field(sa_type=Integer)
    messages: int = Field(default=0, sa_type=Integer)
    told: int = Field(default=0, sa_type=Integer)
    problem: str = Field(default="", sa_type=Text)
    reason: str = Field(default="", sa_type=Text)
    remedy: str = Field(default="", sa_type=Text)
    failing_since: str | None = Field(default=None, sa_type=Text)
    sent_at: str | None = Field(default=None, sa_type=Text)
