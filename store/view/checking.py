"""Check the view by its log: part by part while nothing is appended, and one proof's row before it counts.

A second view grows beside the first, from the first event on, and is compared with it table by table, some
rows at a time: each part is bounded, and the daemon continues between two. It lasts until everything was
compared once.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from store.log.reader import LogReader
from store.log.upcast import read_body
from store.sqlite import UNFINISHED, connect_readonly, connect_writable, in_memory, translated
from store.view import queries, tables
from store.view.projections import apply
from store.view.rebuild import Comparison, Difference, remove, require_room
from store.view.rows import ProofRow
from store.view.view import STATEMENTS, catch_up, read_checkpoint

_EVENTS = 100
_LONGEST_LIST = 20


class ViewCheck:
    """A check under way; `check_part` until it has ended, then `close`. For one thread.

    Args:
        scratch: the second view's file.
    """

    def __init__(self, log_path: Path, database_path: Path, scratch: Path) -> None:
        self._log = LogReader.open(log_path)
        self._path = database_path
        self._scratch = scratch
        self._second: sqlite3.Connection | None = None
        self._left = [
            Comparison(table) for table in tables.table_list() if table.name not in tables.NOT_PROJECTED
        ]
        self.differences: list[Difference] = []
        """The differences so far."""

    def check_part(self, seconds: float) -> bool:
        """Go on for these seconds, while nobody writes the view; return whether everything was compared.

        Raises:
            DatabaseFullError: there is no room for a second view.
            LogError: the log cannot be read, or the second view not be written.
        """
        deadline = time.monotonic() + seconds
        with translated(self._scratch), closing(connect_readonly(self._path)) as live:
            if self._second is None:
                self._second = self._begin()
            upto, position = read_checkpoint(live).seq, read_checkpoint(self._second).seq
            while position < upto:
                position = catch_up(self._second, self._log, upto=min(upto, position + _EVENTS))
                if time.monotonic() > deadline:
                    return False
            if position > upto:
                return False  # the view found no room and is behind
            while self._left and len(self.differences) < _LONGEST_LIST:
                part = self._left[-1]
                should = part.next_rows(self._second)
                try:
                    self.differences += part.compare(live, should)
                except sqlite3.DatabaseError as error:
                    self.differences.append(Difference(part.name, (), f"cannot be read ({error})"))
                    return True
                if part.ended:
                    self._left.pop()
                if time.monotonic() > deadline:
                    break
        return not self._left or len(self.differences) >= _LONGEST_LIST

    def close(self) -> None:
        """Remove the second view."""
        self._log.close()
        if self._second is not None:
            self._second.close()
            remove(self._scratch)

    def _begin(self) -> sqlite3.Connection:
        self._scratch.parent.mkdir(parents=True, exist_ok=True)
        remove(self._scratch)
        require_room(self._scratch.parent, for_view=self._path)
        result = connect_writable(self._scratch, pragmas=UNFINISHED, cached_statements=STATEMENTS)
        tables.create(result)
        return result


def as_recorded(row: ProofRow, log: LogReader) -> bool:
    """Return whether a proof's row follows from the proof's own events in the log.

    Raises:
        LogError: the log cannot be read.
    """
    with closing(in_memory("")) as view:
        view.isolation_level = None
        tables.create(view)
        for event in log.read_stream(f"proof:{row.proof}"):
            apply(view, event, read_body(event), log)
        recorded = queries.proofs(view, ids=[row.proof])
    names = ProofRow.__dataclass_fields__
    return len(recorded) == 1 and all(getattr(row, name) == getattr(recorded[0], name) for name in names)
