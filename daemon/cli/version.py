"""`unsorry version`: this program, and what it runs on."""

from __future__ import annotations

import platform
import sqlite3
from importlib import metadata

import typer

from daemon.cli.context import Json
from daemon.cli.render import emit_json, say


def register(app: typer.Typer) -> None:
    app.command("version", help="Show the version of unsorry, Python and SQLite.")(version)


def version(as_json: Json = False) -> None:
    if as_json:
        emit_json(
            {
                "version": metadata.version("unsorry"),
                "python": platform.python_version(),
                "sqlite": sqlite3.sqlite_version,
            }
        )
        return
    say(text())


def text() -> str:
    """The line that `unsorry version` and `unsorry --version` show."""
    return (
        f"unsorry {metadata.version('unsorry')} (Python {platform.python_version()},"
        f" SQLite {sqlite3.sqlite_version})"
    )
