"""The questions about telling people: how far each channel has come, and which repositories have failed for long.

Read-only and light, like `store.queries`.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from store.rows import columns, make_all


@dataclass(frozen=True, slots=True)
class NotifierRow:
    """A channel: see `store.notify_tables.Notifier`."""

    channel: str
    kinds: dict[str, int]
    position: int
    messages: int
    told: int
    problem: str
    reason: str
    remedy: str
    failing_since: str | None
    sent_at: str | None


@dataclass(frozen=True, slots=True)
class FailingRow:
    """A watched repository whose polls have failed since `since` without a break."""

    repository: str
    since: str
    problem: str
    reason: str
    remedy: str


def notifiers(db: sqlite3.Connection) -> list[NotifierRow]:
    """Return the channels that ever were switched on, by name."""
    names = ", ".join(f'"{name}"' for name in columns(NotifierRow))
    return make_all(NotifierRow, db.execute(f"SELECT {names} FROM notifiers ORDER BY channel"))


def failing_untold(db: sqlite3.Connection, before: str) -> list[FailingRow]:
    """Return the repositories that began to fail before a moment, and of which no `repository_failing` says so yet.

    An empty repository is reachable, and does not count.
    """
    rows = db.execute(
        "SELECT repository, failing_since, state, reason, remedy FROM repositories WHERE watched = 1 AND enabled = 1 "
        "AND failing_told = 0 AND failing_since <= ? AND state <> 'empty' ORDER BY repository",
        (before,),
    )
    return make_all(FailingRow, rows)
