"""A rebuild leaves out the indexes that only questions need, and puts them back at its end."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

from store.log.log import EventLog
from store.view.projections import splits
from store.view.rebuild import DEFERRED_INDEXES, _defer_indexes, build
from store.view.view import View, catch_up, open_view

_VALUE = re.compile(r"'(?:[^']|'')*'|\b\d+(?:\.\d+)?\b")


def schema_of(path: Path) -> set[tuple[str, str | None]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return set(connection.execute("SELECT name, sql FROM sqlite_schema"))


def test_a_rebuilt_view_has_every_index_that_a_live_one_has(log_path: Path, tmp_path: Path) -> None:
    live, made = tmp_path / "live.db", tmp_path / "made.db"
    with EventLog.open(log_path) as log, log.reader() as reader:
        View.open(live, reader).close()
        build(made, reader, upto=reader.position(), polls=[])
    assert schema_of(made) == schema_of(live)
    assert {name for name, _ in schema_of(made)} >= DEFERRED_INDEXES


def test_a_rebuild_that_stops_has_its_indexes_too(log_path: Path, tmp_path: Path) -> None:
    made = tmp_path / "made.db"
    with closing(sqlite3.connect(log_path)) as raw:
        raw.execute("DROP TRIGGER events_no_update")
        raw.execute("UPDATE events SET type = 'from_the_future' WHERE seq = 9")
        raw.commit()
    with EventLog.open(log_path) as log, log.reader() as reader:
        stopped = build(made, reader, upto=reader.position(), polls=[])
    assert stopped is not None
    assert "event 9" in stopped
    assert {name for name, _ in schema_of(made)} >= DEFERRED_INDEXES


def test_no_projection_would_use_an_index_that_is_missing_then(log_path: Path, tmp_path: Path) -> None:
    """A statement that one of them helps would read more and more while a rebuild goes on."""
    statements: dict[str, str] = {}
    with (
        EventLog.open(log_path) as log,
        log.reader() as reader,
        closing(open_view(tmp_path / "view.db")) as view,
    ):
        deferred = _defer_indexes(view)
        view.set_trace_callback(lambda text: statements.setdefault(_VALUE.sub("?", text), text))
        catch_up(view, reader)
        view.set_trace_callback(None)
        for name, columns in splits._TABLES.items():
            view.execute(f"CREATE TEMP TABLE {name} ({columns})")  # it had these, for one commit's news
        asked = [text for text in statements.values() if _looks_up(text)]
        without = [_plan(view, text) for text in asked]
        for statement in deferred:
            view.execute(statement)
        for text, plan in zip(asked, without, strict=True):
            assert _plan(view, text) == plan, text
    assert len(asked) > 30


def _looks_up(statement: str) -> bool:
    return re.search(r"\b(SELECT|UPDATE|DELETE)\b", statement) is not None


def _plan(view: sqlite3.Connection, statement: str) -> list[str]:
    return [row[3] for row in view.execute(f"EXPLAIN QUERY PLAN {statement}")]
