"""Why a sorry is there by design and never filled: a challenge, an exercise, or an open answer."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Collection

from store.view.rows import SorryRow

_ANSWER = re.compile(r"\banswer\s*\(\s*(?:sorry|admit)\s*\)")


def by_design(db: sqlite3.Connection, repository: str | None = None) -> Callable[[SorryRow], str]:
    """Return a function from a sorry to the reason why it is there by design: see `why_by_design`.

    Args:
        repository: the only one with sorries in question; None: any.
    """
    challenges: dict[tuple[str, str], list[str]] = {}
    of, only = ("", ()) if repository is None else (" AND repository = ?", (repository,))
    for key, branch, modules in db.execute(
        f"SELECT repository, branch, challenges_json FROM branches WHERE challenges_json <> '[]'{of}", only
    ):
        challenges[key, branch] = json.loads(modules)
    marked: dict[tuple[str, str, str], list[str]] = {}
    for key, branch, path, names in db.execute(
        f"SELECT repository, branch, path, marked_json FROM files WHERE marked_json <> '[]'{of}", only
    ):
        marked[key, branch, path] = json.loads(names)

    def reason(row: SorryRow) -> str:
        return why_by_design(
            row.path,
            declaration=row.declaration,
            statement=row.statement,
            challenges=challenges.get((row.repository, row.branch), ()),
            marked=marked.get((row.repository, row.branch, row.path), ()),
        )

    return reason


def why_by_design(
    path: str, *, declaration: str, statement: str, challenges: Collection[str], marked: Collection[str]
) -> str:
    """Return why a sorry is there by design: "challenge", "exercise", "answer"; "" if it is not.

    A challenge is in a module named by a comparator.json; it states the theorem of a solution elsewhere. An
    exercise is marked by an attribute of its declaration. An answer is in a statement with `answer(sorry)`:
    the thing to prove is open, as in formal-conjectures.

    Args:
        challenges: the modules named by a comparator.json.
        marked: the declarations of the file with such an attribute.
    """
    # A library's folder may lie anywhere below the root.
    if any(f"/{path}".endswith(f"/{module.replace('.', '/')}.lean") for module in challenges):
        return "challenge"
    if declaration in marked:
        return "exercise"
    return "answer" if _ANSWER.search(statement) else ""
