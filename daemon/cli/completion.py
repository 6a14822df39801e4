"""Complete options' and arguments' values in a shell; Typer writes the scripts and offers the rest.

Read on every press of the key, so the daemon is never asked, and the view is read only by an index. An error
means no candidates: at that moment nothing can show it.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import typer

from daemon.place.paths import ConfigNotFoundError, find_config, paths_from_config

MOST = 200
"""Candidates from the database at most: the first letters of an id narrow them down."""

# A shell evaluates part of its input, and names in watched repositories are hostile.
_HARMLESS = re.compile(r"[\w./:@+-]+")

Complete = Callable[[typer.Context, str], list[str]]
SORRIES, PROOFS = ("sorries", "sorry"), ("proofs", "proof")
JOBS, CHECKPOINTS, THEOREMS = ("jobs", "job"), ("checkpoints", "checkpoint"), ("theorems", "name")


def one_of(values: Sequence[str]) -> Callable[[str], list[str]]:
    """Offer these values."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return complete


def ids(*columns: tuple[str, str]) -> Complete:
    """Offer the values of these columns (table, column) of the view that begin with the word."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        result: list[str] = []
        for table, column in columns:
            # A range, served by the key's index.
            statement = (
                f"SELECT DISTINCT {column} FROM {table} WHERE {column} >= ? AND {column} < ? "
                f"ORDER BY {column} LIMIT {MOST}"
            )
            result += _ask(ctx, statement, incomplete, incomplete + "\U0010ffff")
        return result

    return complete


def repositories(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the keys of watched repositories, or the ends of keys that begin with the word."""
    result = []
    for key in _ask(ctx, "SELECT repository FROM repositories WHERE watched = 1 ORDER BY repository"):
        parts = key.split("/")
        names = [key, "/".join(parts[1:]), parts[-1]] if incomplete else [key]
        result += [name for name in names if name and name.startswith(incomplete)][:1]
    return result


def _ask(ctx: typer.Context, statement: str, *parameters: str) -> list[str]:
    from store.errors import LogError
    from store.sqlite import connect_readonly

    context: Any = ctx
    while context is not None and not context.params.get("config"):
        context = context.parent
    config = context.params["config"] if context else None
    try:
        view = paths_from_config(find_config(Path(config) if config else None)).database_db
        with closing(connect_readonly(view)) as database:
            names = [str(row[0]) for row in database.execute(statement, parameters)]
    except (ConfigNotFoundError, LogError, OSError, sqlite3.Error):
        return []
    return [name for name in names if _HARMLESS.fullmatch(name)]
