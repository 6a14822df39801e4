"""Rows, tables and projections stay in step."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from store.events.registry import EVENT_TYPES
from store.view import tables
from store.view.projections import HANDLERS, PAYLOAD_HANDLERS
from store.view.table_models import schema


def test_every_event_type_has_a_projection() -> None:
    assert set(HANDLERS) | set(PAYLOAD_HANDLERS) == set(EVENT_TYPES.values())
    assert not set(HANDLERS) & set(PAYLOAD_HANDLERS)


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


def test_the_schema_is_what_the_models_declare() -> None:
    assert tables.SCHEMA.read_text(encoding="utf-8") == schema(), "run `make docs`"


def test_the_daemon_does_without_the_models() -> None:
    loaded = "import sys, daemon.run; print({'sqlmodel', 'sqlalchemy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_fingerprint_fits_a_user_version_and_is_never_that_of_an_empty_file() -> None:
    assert 0 < tables.fingerprint() < 2**31
