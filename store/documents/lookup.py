"""What a name, or the beginning of an id, means: one thing, or an error that says why it is not one."""

from __future__ import annotations

import sqlite3
from typing import Any

from store.text import listed, plural
from store.view import queries


class UnresolvedError(Exception):
    """A name means nothing here, or several things; the message says which, and what lists them."""


def one_match(rows: list[Any], prefix: str, *, what: str, key: str, verb: str = "") -> Any:
    """Return the row whose id starts with `prefix`; none or several are errors that say so.

    An id that is itself the beginning of another one is still that one. `verb` is the one that lists them, by default
    their plural.
    """
    what_many = verb or plural(what)
    exact = [row for row in rows if getattr(row, key) == prefix]
    if len(exact) == 1:
        return exact[0]
    if not rows:
        raise UnresolvedError(
            f'no {what} has an id that starts with "{prefix}"; `everlean {what_many}` lists them'
        )
    ids = sorted({getattr(row, key) for row in rows})
    if len(ids) > 1:
        shown = listed(ids, 5)
        raise UnresolvedError(
            f'"{prefix}" is the beginning of several {what} ids ({shown}); write more of it'
        )
    return rows[0]


def resolve(database: sqlite3.Connection, name: str | None) -> str | None:
    """Return the key of the one repository that `name` means: its key, the end of it (owner/name, name), or a part."""
    if name is None:
        return None
    return one_of(
        [row.repository for row in queries.repositories(database)], name, lists="everlean repos --all"
    )


def one_of(keys: list[str], name: str, *, lists: str) -> str:
    """Return the one of these keys that `name` means; `lists` is the command that lists them."""
    if name in keys:
        return name
    part = name.lower().removesuffix(".git")
    near = [key for key in keys if key.lower().endswith(f"/{part}")]
    near = near or [key for key in keys if part and part in key.lower()]
    if len(near) == 1:
        return near[0]
    if near:
        raise UnresolvedError(f'"{name}" may be {", ".join(near)}; write the whole key')
    raise UnresolvedError(f'no repository is called "{name}"; `{lists}` lists them')
