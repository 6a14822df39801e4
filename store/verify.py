"""Compare the live view with one made anew from the log at the same position, row by row.

Reads the view in one snapshot, so that the daemon may go on meanwhile; changes nothing but a temporary file
beside the view, or in the system's temporary folder for a user who may only read.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Table

from store import schema
from store.building import build, remove
from store.catchup import check_log, read_checkpoint
from store.errors import ViewError, translated
from store.reader import LogReader
from store.readonly import connect_readonly
from store.rebuild import beside, sweep
from store.view import check_schema

SHOWN_PER_TABLE = 20


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that the view and the log do not agree on. `what`: missing, surplus, changed, or a reason."""

    table: str
    key: tuple[Any, ...]
    what: str
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = f" ({', '.join(self.columns)})" if self.columns else ""
        return f"{self.table} {' '.join(str(part) for part in self.key)}: {self.what}{names}"


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The outcome; `differences` is empty where the view is what the log says.

    `rows` and `hashes` are by table (of the log's side); at most 20 differences are named of each table, and
    `n_differences` counts them all.
    """

    position: int
    rows: dict[str, int]
    hashes: dict[str, str]
    differences: tuple[Difference, ...]
    n_differences: int
    seconds: float

    @property
    def ok(self) -> bool:
        return self.n_differences == 0


def verify(log_path: Path, database_path: Path) -> VerifyReport:
    """Compare the live view with the log at the view's own position.

    Raises:
        DatabaseMissingError: there is no view, or no log.
        LogError: one of them cannot be read, or the folder cannot take the temporary file.
    """
    started = time.monotonic()
    temporary = beside(database_path, "verify")
    with ExitStack() as after, LogReader.open(log_path) as log, translated(database_path):
        if os.access(temporary.parent, os.W_OK):
            sweep(database_path)
        else:
            # Whoever may read may verify.
            elsewhere = after.enter_context(tempfile.TemporaryDirectory(prefix="unsorry-verify-"))
            temporary = Path(elsewhere, temporary.name)
        live = connect_readonly(database_path)
        try:
            live.execute("BEGIN")  # one snapshot for the whole comparison
            try:
                check_schema(live, database_path)
                check_log(live, log)
            except ViewError as error:
                difference = Difference("view_position", (schema.PROJECTION,), str(error))
                return VerifyReport(0, {}, {}, (difference,), 1, time.monotonic() - started)
            position = read_checkpoint(live).seq
            stopped = build(temporary, log, upto=position, polls=[])
            made = connect_readonly(temporary)
            try:
                return _compare(live, made, position=position, stopped=stopped, started=started)
            finally:
                made.close()
        finally:
            live.close()
            remove(temporary)


def _compare(
    live: sqlite3.Connection,
    made: sqlite3.Connection,
    *,
    position: int,
    stopped: str | None,
    started: float,
) -> VerifyReport:
    rows: dict[str, int] = {}
    hashes: dict[str, str] = {}
    named: list[Difference] = list(_schema_differences(live, made))
    if stopped is not None:
        named.append(
            Difference("view_position", (schema.PROJECTION,), f"the log could not be read so far: {stopped}")
        )
    total = len(named)
    broken = {difference.key[0] for difference in named if difference.table == "sqlite_schema"}
    for table in schema.table_list():
        if table.name in schema.NOT_PROJECTED or table.name in broken:
            continue
        comparison = _Comparison(table)
        for number, difference in enumerate(comparison.differences(live, made), start=1):
            total += 1
            if number <= SHOWN_PER_TABLE:
                named.append(difference)
        rows[table.name] = comparison.rows
        hashes[table.name] = comparison.digest.hexdigest()
    return VerifyReport(position, rows, hashes, tuple(named), total, time.monotonic() - started)


def _schema_differences(live: sqlite3.Connection, made: sqlite3.Connection) -> Iterator[Difference]:
    def read(connection: sqlite3.Connection) -> dict[str, str]:
        return {row[0]: row[1] or "" for row in connection.execute("SELECT name, sql FROM sqlite_schema")}

    is_, should = read(live), read(made)
    for name in sorted(is_.keys() | should.keys()):
        if is_.get(name) != should.get(name):
            what = "missing" if name not in is_ else "surplus" if name not in should else "changed"
            yield Difference("sqlite_schema", (name,), what)


class _Comparison:
    """A merge of two sorted lists of rows; keeps one row of each side in memory."""

    def __init__(self, table: Table) -> None:
        keys = schema.key_columns(table)
        others = [column.name for column in table.columns if column.name not in keys]
        self.name = table.name
        self.columns = (*keys, *others)
        self.n_keys = len(keys)
        self.rows = 0
        self.digest = hashlib.sha256()

    def differences(self, live: sqlite3.Connection, made: sqlite3.Connection) -> Iterator[Difference]:
        left, right = self._rows(live), self._rows(made)
        is_, should = next(left, None), next(right, None)
        while is_ is not None or should is not None:
            if should is not None and (is_ is None or self._key(should) < self._key(is_)):
                self._count(should)
                yield Difference(self.name, self._key(should), "missing")
                should = next(right, None)
            elif is_ is not None and (should is None or self._key(is_) < self._key(should)):
                yield Difference(self.name, self._key(is_), "surplus")
                is_ = next(left, None)
            elif is_ is not None and should is not None:
                self._count(should)
                if is_ != should:
                    names = zip(self.columns, is_, should, strict=True)
                    changed = tuple(name for name, a, b in names if a != b)
                    yield Difference(self.name, self._key(should), "changed", changed)
                is_, should = next(left, None), next(right, None)

    def _rows(self, connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
        columns = ", ".join(f'"{name}"' for name in self.columns)
        order = ", ".join(str(number) for number in range(1, self.n_keys + 1))
        return map(tuple, connection.execute(f'SELECT {columns} FROM "{self.name}" ORDER BY {order}'))

    def _key(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return row[: self.n_keys]

    def _count(self, row: tuple[Any, ...]) -> None:
        self.rows += 1
        self.digest.update(repr(row).encode())
