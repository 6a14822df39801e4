"""Two processes build the same view as one, each its own tables, and whatever stops one of them stops both."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from store.events.upcast import read_body
from store.log.reader import LogReader
from store.view import rebuild as building
from store.view import schema
from store.view.projections import apply
from store.view.rebuild import SOURCE_EVENTS, SOURCE_TABLES, beside, build, sweep
from store.view.view import open_view


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_cores", lambda: 2)


def rows(path: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as view:
        return {
            table.name: sorted(map(repr, view.execute(f'SELECT * FROM "{table.name}"')))
            for table in schema.table_list()
        }


def made(target: Path, log_path: Path, *, two_from: int) -> str | None:
    with LogReader.open(log_path) as log:
        return build(target, log, upto=log.position(), polls=[("r", "1", "2", "ok", None)], two_from=two_from)


@pytest.mark.usefixtures("two_cores")
def test_the_rows_and_the_schema_are_those_of_one_process(log_path: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.db", tmp_path / "two.db"
    assert made(one, log_path, two_from=10**9) is None
    assert made(two, log_path, two_from=1) is None
    assert rows(two) == rows(one)
    assert all(rows(two)[table] for table in SOURCE_TABLES)
    with closing(sqlite3.connect(one)) as view, closing(sqlite3.connect(two)) as other:
        text = "SELECT name, sql FROM sqlite_schema ORDER BY name"
        assert view.execute(text).fetchall() == other.execute(text).fetchall()
    assert sorted(path.name for path in tmp_path.glob("*.db*") if "events" not in path.name) == [
        "one.db",
        "two.db",
    ]


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("kind", ["file_scanned", "attempt_finished"])
def test_an_event_that_stops_either_process_stops_the_view_there(
    log_path: Path, tmp_path: Path, kind: str
) -> None:
    with closing(sqlite3.connect(log_path)) as raw:
        raw.execute("DROP TRIGGER events_no_update")
        middle = raw.execute("SELECT max(seq) / 2 FROM events").fetchone()[0]
        seq = raw.execute(
            "SELECT min(seq) FROM events WHERE type = ? AND seq > ?", (kind, middle)
        ).fetchone()[0]
        raw.execute("UPDATE events SET data = '{}' WHERE seq = ?", (seq,))
        raw.commit()
    one, two = tmp_path / "one.db", tmp_path / "two.db"
    stopped = made(one, log_path, two_from=10**9)
    assert stopped is not None
    assert f"event {seq}" in stopped
    assert made(two, log_path, two_from=1) == stopped
    assert rows(two) == rows(one)


@pytest.mark.usefixtures("two_cores")
def test_a_second_process_that_dies_costs_time_and_nothing_else(
    log_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(subprocess.Popen[bytes]):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.kill()

    one, two = tmp_path / "one.db", tmp_path / "two.db"
    assert made(one, log_path, two_from=10**9) is None
    monkeypatch.setattr(subprocess, "Popen", Killed)
    assert made(two, log_path, two_from=1) is None
    assert rows(two) == rows(one)


def test_what_a_killed_rebuild_leaves_of_its_second_process_is_swept(tmp_path: Path) -> None:
    database = tmp_path / "database.db"
    left = beside(database, "rebuild")
    left = left.with_name(left.name.replace(left.name.rpartition("-")[2], "999999999") + ".source")
    left.touch()
    sweep(database)
    assert not left.exists()


def test_the_second_process_s_tables_are_nobody_else_s(log_path: Path, tmp_path: Path) -> None:
    """Else the rows would depend on which process came first."""
    touched: dict[bool, set[str]] = {True: set(), False: set()}
    with LogReader.open(log_path) as log, closing(open_view(tmp_path / "view.db")) as view:
        now: set[str] = set()
        deciding = {sqlite3.SQLITE_READ, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE}

        def note(action: int, table: str | None, *_more: str | None) -> int:
            if action in deciding and table is not None:
                now.add(table)
            return sqlite3.SQLITE_OK

        view.execute("BEGIN")
        for event in log.read():
            # Set anew each time: SQLite asks when it prepares a statement, and this has it prepare all again.
            view.set_authorizer(note)
            now.clear()
            apply(view, event, read_body(event), log)
            touched[event.type in SOURCE_EVENTS] |= now
    names = {table.name for table in schema.table_list()}
    assert touched[True] & names == set(SOURCE_TABLES)
    assert not touched[False] & set(SOURCE_TABLES)
