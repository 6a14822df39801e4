"""The questions about theorems and lemmas through all their versions, each by its id for life.

Read-only and light, like `store.view.queries.basic`, whose `connect` makes the connection. What stands in the source
now, of any kind, is `store.view.queries.basic.theorems`'.
"""

from __future__ import annotations

import sqlite3

from store.view.queries.basic import on_watched_branch
from store.view.rows import DeclarationRow, TheoremRow, TheoremVersionRow, by_prefix, first, named_so, read

_PRESENT_FIRST = "state = 'present' DESC, theorem, repository, branch"


def theorem_lives(
    db: sqlite3.Connection,
    *,
    repository: str | None = None,
    branch: str | None = None,
    state: str | None = None,
    name: str | None = None,
    path: str | None = None,
    watched_only: bool = False,
    limit: int | None = None,
) -> list[TheoremRow]:
    """Return theorems and lemmas with their ids for life, also deleted ones, by file and name.

    A `name` with `*`, `?` or `[` in it is a pattern, any other is the full name that the theorem has now.
    """
    conditions = [on_watched_branch("theorems")] if watched_only else []
    parameters = []
    if name is not None:
        conditions.append(named_so(name))
        parameters.append(name)
    return read(
        db,
        TheoremRow,
        "theorems",
        equal={"repository": repository, "branch": branch, "state": state, "path": path},
        conditions=conditions,
        parameters=parameters,
        order="repository, branch, path, name, theorem",
        limit=limit,
    )


def theorem_by_prefix(db: sqlite3.Connection, prefix: str) -> list[TheoremRow]:
    """Return the theorems whose id starts so, on every branch that has or had them."""
    return by_prefix(db, TheoremRow, "theorems", "theorem", prefix)


def theorem_by_identity(db: sqlite3.Connection, identity: str) -> list[TheoremRow]:
    """Return the theorems whose present or last name and statement have this identity (`declarations.theorem`)."""
    return read(db, TheoremRow, "theorems", equal={"identity": identity}, order="theorem, repository, branch")


def theorem_by_name(db: sqlite3.Connection, name: str) -> list[TheoremRow]:
    """Return the theorems that have this full name, or had it when they were deleted, present ones first."""
    return read(db, TheoremRow, "theorems", equal={"name": name}, order=_PRESENT_FIRST)


def theorem_by_earlier_name(db: sqlite3.Connection, name: str) -> list[TheoremRow]:
    """Return the theorems that have or had this full name in any version, present ones first. Reads every version."""
    named = "SELECT repository, branch, theorem FROM theorem_versions WHERE name = ?"
    conditions = [f"(repository, branch, theorem) IN ({named})"]
    return read(db, TheoremRow, "theorems", conditions=conditions, parameters=[name], order=_PRESENT_FIRST)


def theorem_place(db: sqlite3.Connection, theorem: TheoremRow) -> DeclarationRow | None:
    """Return the declaration that a theorem is now; None for a deleted one. Of twins in one file, the first."""
    if theorem.state != "present":
        return None
    rows = read(
        db,
        DeclarationRow,
        "declarations",
        equal={"repository": theorem.repository, "branch": theorem.branch, "path": theorem.path},
        conditions=["theorem = ?"],
        parameters=[theorem.identity],
        order='"index"',
        limit=1,
    )
    return first(rows)


def theorem_history(
    db: sqlite3.Connection,
    theorem: str,
    *,
    repository: str | None = None,
    branch: str | None = None,
) -> list[TheoremVersionRow]:
    """Return a theorem's versions, oldest first."""
    equal = {"theorem": theorem, "repository": repository, "branch": branch}
    return read(db, TheoremVersionRow, "theorem_versions", equal=equal, order="seq, repository, branch")
