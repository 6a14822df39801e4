"""Rows, tables and projections stay in step."""

from __future__ import annotations

import inspect
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing

import pytest

from store.events.registry import EVENT_TYPES
from store.view import tables
from store.view.projections import HANDLERS, PAYLOAD_HANDLERS


def test_every_event_type_has_a_projection() -> None:
    assert set(HANDLERS) | set(PAYLOAD_HANDLERS) == set(EVENT_TYPES)
    assert not set(HANDLERS) & set(PAYLOAD_HANDLERS)


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_a_projection_takes_the_event_that_it_is_called_as(name: str) -> None:
    projection: Callable[..., None] = HANDLERS.get(name) or PAYLOAD_HANDLERS[name]
    _, _, body, *_ = inspect.signature(projection, eval_str=True).parameters.values()
    assert issubclass(EVENT_TYPES[name], body.annotation)


def test_the_tables_are_strict_and_their_columns_typed() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        tables.create(connection)
        strict = dict(
            connection.execute(
                "SELECT name, strict FROM pragma_table_list WHERE name NOT LIKE 'sqlite%'"
            ).fetchall()
        )
        assert set(strict) == {table.name for table in tables.table_list()}
        assert set(strict.values()) == {1}
        with pytest.raises(sqlite3.IntegrityError, match="cannot store TEXT value in INTEGER"):
            connection.execute("INSERT INTO view_position VALUES ('x', 'one', 0, '', NULL, '')")


def test_a_table_declared_in_a_module_that_not_all_load_is_an_error() -> None:
    program = """
import store.view.tables as tables
from store.view.schema import table
made = table("strays", key=("name",))(type("StrayRow", (), {"__annotations__": {"name": "str"}}))
tables.table_list()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "{'__main__'} declares tables; store.view.tables has to import it" in done.stderr


def test_a_declaration_makes_the_key_the_indexes_and_the_columns_of_a_table() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        tables.create(connection)
        made = connection.execute(
            "SELECT name, type, \"notnull\", pk FROM pragma_table_info('branches')"
        ).fetchall()
        assert made[:2] == [("repository", "TEXT", 1, 1), ("branch", "TEXT", 1, 2)]
        assert ("scanned_seq", "INTEGER", 0, 0) in made
        assert ("scanned_include_json", "TEXT", 1, 0) in made
        assert ("projects_json", "TEXT", 0, 0) in made
        indexes = connection.execute(
            "SELECT name, \"unique\", origin, partial FROM pragma_index_list('files')"
        )
        assert set(indexes) == {
            ("files_too_large", 0, "c", 1),
            ("files_marked", 0, "c", 1),
            ("sqlite_autoindex_files_1", 1, "pk", 0),
        }
        unique = connection.execute("SELECT origin FROM pragma_index_list('traced_contents')").fetchall()
        assert ("u",) in unique
        without_rowid = connection.execute("SELECT name FROM pragma_table_list WHERE wr = 1").fetchall()
        assert without_rowid == [("split_members",)]


def test_the_fingerprint_fits_a_user_version_and_is_never_that_of_an_empty_file() -> None:
    assert 0 < tables.fingerprint() < 2**31
