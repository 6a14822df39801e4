"""A theorem on one branch: its place in the source, and all its versions."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from store.documents.document import of_row
from store.view import transfers
from store.view.reading import read
from store.view.rows import DeclarationRow, TheoremRow, TheoremVersionRow


@dataclass(frozen=True, slots=True)
class Place(DeclarationRow):
    SHOWN: ClassVar = ("path", "line", "column", "end_line", "end_column", "n_sorries")


@dataclass(frozen=True, slots=True)
class Version:
    steps: list[str]
    seq: int
    sha: str
    recorded_at: str
    name: str
    path: str
    statement: str
    statement_hash: str
    text_hash: str
    n_sorries: int

    def changes(self, before: Version | None) -> list[str]:
        """Return the differences from the version before it, one line each; for the first one its facts."""
        if before is None:
            return [f"{self.name} in {self.path}", self.statement]
        pairs = ((before.name, self.name), (before.path, self.path))
        changes = [f"{old} -> {new}" for old, new in pairs if old != new]
        if before.statement != self.statement:  # a line each: arrows occur in statements
            changes += [f"- {before.statement}", f"+ {self.statement}"]
        if before.n_sorries != self.n_sorries and self.steps != ["deleted"]:
            changes.append(f"sorries: {before.n_sorries} -> {self.n_sorries}")
        return changes


@dataclass(frozen=True, slots=True)
class Theorem(TheoremRow):
    place: Place | None
    """Null once deleted; of twins in one file, the first."""
    upstream: list[str]
    """The names of theorems with the same statement in packages and Lean, each with its file; only for a
    proved one."""
    history: list[Version]
    """Oldest first."""


def describe_theorems(view: sqlite3.Connection, theorems: Sequence[TheoremRow]) -> list[Theorem]:
    """Return the documents of theorems, in their order, with a fixed number of queries."""
    ids = json.dumps(sorted({row.theorem for row in theorems}))
    history: dict[tuple[str, str, str], list[Version]] = defaultdict(list)
    for one in read(
        view,
        TheoremVersionRow,
        "theorem_versions",
        conditions=["theorem IN (SELECT value FROM json_each(?))"],
        parameters=[ids],
        order="seq, repository, branch",
    ):
        version = of_row(Version, one, steps=one.steps.split(","))
        history[one.repository, one.branch, one.theorem].append(version)
    present = [row for row in theorems if row.state == "present"]
    names = json.dumps(sorted({row.name for row in present}))
    places: dict[tuple[str, str, str, str], Place] = {}
    for spot in read(
        view,
        DeclarationRow,
        "declarations",
        conditions=["name IN (SELECT value FROM json_each(?))"],
        parameters=[names],
        order='repository, branch, path, "index"',
    ):
        key = spot.repository, spot.branch, spot.path, spot.theorem
        places.setdefault(key, of_row(Place, spot))
    upstream: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for other in transfers.upstream(view, names={row.name for row in present}):
        of = other.repository, other.branch, other.path, other.name
        upstream[of].append(f"{other.upstream} in {other.upstream_path}")
    return [
        of_row(
            Theorem,
            row,
            place=places.get((row.repository, row.branch, row.path, row.identity))
            if row.state == "present"
            else None,
            upstream=upstream.get((row.repository, row.branch, row.path, row.name), []),
            history=history[row.repository, row.branch, row.theorem],
        )
        for row in theorems
    ]
