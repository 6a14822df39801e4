"""A view of a log for tests: empty as it is made, or with a log in memory that tests write by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from store.events.base import EventBody
from store.view import tables
from store.view.reading import read
from store.view.rows import SorryStepRow
from store.view.view import catch_up
from tests.support.events import PATCH, record
from tests.support.memory_log import MemoryLog


class _View(sqlite3.Connection):
    """Closes with whoever holds it: from Python 3.13 on a connection that goes away open is a warning."""

    def __del__(self) -> None:
        self.close()


def empty_view(path: Path | str = ":memory:") -> sqlite3.Connection:
    """Return a new view; it need not be closed."""
    connection = connect(path)
    tables.create(connection)
    return connection


def connect(path: Path | str) -> sqlite3.Connection:
    """Return a connection to a view, which need not be closed; no crash of the machine is thought of."""
    # Whichever thread collects garbage closes it.
    connection = sqlite3.connect(path, isolation_level=None, factory=_View, check_same_thread=False)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


class LoggedView:
    """A log in memory, and the view of it."""

    def __init__(self, folder: Path, *, at: Path | str = ":memory:") -> None:
        """Args:
        folder: for the payloads that events cite.
        at: the view's file, where another connection reads it.
        """
        self.folder = folder
        self.log = MemoryLog()
        self.db = empty_view(at)
        self.db.row_factory = sqlite3.Row
        self.reader = self.log.reader()

    def tell(self, *bodies: EventBody, payloads: Sequence[bytes] = ()) -> None:
        """Record the events."""
        record(self.log, bodies, folder=self.folder / "staging", payloads=(*payloads, PATCH))
        self.catch_up()

    def catch_up(self) -> None:
        """Have in the view what was recorded otherwise."""
        catch_up(self.db, self.reader)


def sorry_steps(db: sqlite3.Connection, sorry: str | None = None) -> list[SorryStepRow]:
    """Return the steps of a sorry's life, or of all, oldest first."""
    order = "seq, repository, branch"
    return read(db, SorryStepRow, "sorry_steps", equal={"sorry": sorry}, order=order)
