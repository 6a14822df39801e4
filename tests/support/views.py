"""A view of a log for tests, as empty as it is made: of `MemoryLog`s above all."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from store.view import tables
from store.view.reading import read
from store.view.rows import SorryStepRow


class _View(sqlite3.Connection):
    """Closes with whoever holds it: from Python 3.13 on a connection that goes away open is a warning."""

    def __del__(self) -> None:
        self.close()


def empty_view(path: Path | str = ":memory:") -> sqlite3.Connection:
    """Return a new view; it need not be closed."""
    # Whichever thread collects garbage closes it.
    connection = sqlite3.connect(path, isolation_level=None, factory=_View, check_same_thread=False)
    tables.create(connection)
    return connection


def sorry_steps(db: sqlite3.Connection, sorry: str | None = None) -> list[SorryStepRow]:
    """Return the steps of a sorry's life, or of all, oldest first."""
    order = "seq, repository, branch"
    return read(db, SorryStepRow, "sorry_steps", equal={"sorry": sorry}, order=order)
