"""Theorems with the same statement: a proved one for an open sorry, and a package's for ours.

"The same" is Lean's type, by the digest of the newest traces (`TheoremTypeRow`): the same constants by name,
whatever the names of bound variables, their brackets and universes. It need not be provable in the same way,
and a constant of the same name may be another one elsewhere: a match is a candidate and no verdict.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from store.view.reading import make_all
from store.view.rows import IN_SOURCE

MOST = 3
"""The maximum of theorems for a sorry: matches beyond the nearest three do not make it due again."""


def _of_branch(line: str, branch: str) -> str:
    """Return an SQL condition: a line of our own traces is of this branch (`trace_queries.branch_line`)."""
    return (
        f"({line} = 'branch:' || {branch} "
        f"OR substr({line}, 1, length({branch}) + 8) = 'branch:' || {branch} || ':')"
    )


def _is_traced(files: str) -> str:
    """Return an SQL condition: a file is present on its line, and in a closed trace, not withdrawn."""
    return (
        f"{files}.until_seq IS NULL AND EXISTS (SELECT 1 FROM traces WHERE traces.repository = {files}.repository "
        f"AND traces.line = {files}.line AND traces.state = 'current' AND traces.seq >= {files}.from_seq)"
    )


_ASK = f"""
FROM sorries AS s
CROSS JOIN (SELECT DISTINCT repository, line FROM traces WHERE state = 'current' AND source = 'lean') AS l
    ON l.repository = s.repository AND {_of_branch("l.line", "s.branch")}
CROSS JOIN traced_files AS f
    ON f.repository = l.repository AND f.line = l.line AND f.path = s.path AND f.until_seq IS NULL
CROSS JOIN theorem_types AS m ON m.content = f.content AND m.full_name = s.declaration AND m.proved = 0
WHERE s.state = 'open'
"""
_PROVE = f"""
FROM theorem_types AS o
CROSS JOIN traced_files AS g ON g.content = o.content AND {_is_traced("g")}
WHERE o.digest = ? AND o.proved = 1
"""
# A proof of the whole takes the place of a declaration's only sorry.
_ALONE = f"""
AND (SELECT count(*) FROM sorries AS n WHERE n.repository = s.repository AND n.branch = s.branch AND n.path = s.path
     AND n.declaration = s.declaration AND n.{IN_SOURCE}) = 1
"""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A proved theorem with the statement of a sorry's declaration.

    `imported`: the sorry's file imports or declares it, as far as is known. `package`: it is a package's or
    Lean's, as seen from a file of `repository`. `statement` is as its source has it, `goal` Lean's text of
    it; both and `proof` are "" if unknown.
    """

    sorry: str
    full_name: str
    repository: str
    path: str
    imported: bool
    package: bool
    statement: str
    goal: str
    proof: str


@dataclass(frozen=True, slots=True)
class UpstreamRow:
    """A theorem of a repository that exists in a package or in Lean: its name and file there."""

    repository: str
    branch: str
    path: str
    line: int
    name: str
    upstream: str
    upstream_path: str


def transfers(
    db: sqlite3.Connection,
    *,
    repository: str | None = None,
    branch: str | None = None,
    sorries: Collection[str] | None = None,
) -> dict[str, list[Transfer]]:
    """Map each open sorry to the nearest `MOST` proved theorems with its statement, nearest first.

    A declaration with several sorries has none: none of them is the whole.
    """
    options: dict[str, str | None] = {"repository": repository, "branch": branch}
    conditions = [f"s.{name} = :{name}" for name, value in options.items() if value is not None]
    if sorries is not None:
        options["sorries"] = json.dumps(sorted(sorries))
        conditions.append("s.sorry IN (SELECT value FROM json_each(:sorries))")
    question = " AND ".join(["", *conditions])
    rows = db.execute(
        f"SELECT s.sorry, s.repository, m.content, m.digest {_ASK}{question} {_ALONE} ORDER BY s.sorry, m.content",
        options,
    ).fetchall()
    proving: dict[str, _Proving] = {}
    texts: dict[_Place, tuple[str, str, str]] = {}
    result: dict[str, dict[_Name, Transfer]] = {}
    for sorry, own, content, digest in rows:
        if digest not in proving:
            proving[digest] = _Proving(db, digest)
        for one in proving[digest].nearest(own, content):
            of_sorry = result.setdefault(sorry, {})
            if len(of_sorry) < MOST and one.name not in of_sorry:
                if one.place not in texts:
                    texts[one.place] = _texts(db, one.place)
                of_sorry[one.name] = Transfer(
                    sorry, *one.name, one.place.content == content, one.place.position > 0, *texts[one.place]
                )
    return {sorry: [*ones.values()] for sorry, ones in result.items()}


class _Name(NamedTuple):
    full_name: str
    repository: str
    path: str


class _Place(NamedTuple):
    """The key of a `TheoremTypeRow`."""

    content: int
    theorem: int
    position: int


class _Proved(NamedTuple):
    name: _Name
    place: _Place


class _Proving:
    """The proved theorems with a type, which may be thousands, read once for all sorries."""

    def __init__(self, db: sqlite3.Connection, digest: str) -> None:
        rows = db.execute(
            "SELECT o.full_name, g.repository, o.path, o.content, o.theorem, o.position, EXISTS (SELECT 1 "
            f"FROM repositories WHERE repositories.repository = g.repository AND (opt_out OR private)) {_PROVE} "
            "ORDER BY o.position > 0 DESC, o.full_name, g.repository, o.path, o.content",
            (digest,),
        )
        self._all: dict[_Name, _Proved] = {}
        self._of_repository: dict[str, dict[_Name, _Proved]] = {}
        self._of_file: dict[int, dict[_Name, _Proved]] = {}
        self._quiet: set[str] = set()
        for full_name, repository, path, content, theorem, position, stays in rows:
            one = _Proved(_Name(full_name, repository, path), _Place(content, theorem, position))
            self._of_file.setdefault(content, {}).setdefault(one.name, one)
            self._of_repository.setdefault(repository, {}).setdefault(one.name, one)
            if stays:
                self._quiet.add(repository)
            else:
                self._all.setdefault(one.name, one)

    def nearest(self, repository: str, content: int) -> list[_Proved]:
        """Return the nearest to a file of a repository: of the file, of the repository, then those of others."""
        of_file = self._of_file.get(content, {}).values()
        pools = (
            (one for one in of_file if one.name.repository == repository),
            (one for one in of_file if one.name.repository not in self._quiet),
            self._of_repository.get(repository, {}).values(),
            self._all.values(),
        )
        result: dict[_Name, _Proved] = {}
        for one in chain.from_iterable(pools):
            if len(result) == MOST:
                break
            result.setdefault(one.name, one)
        return [*result.values()]

    def give(self, repository: str) -> bool:
        """Return whether one of them is for this repository."""
        return bool(self._all) or repository in self._of_repository


def _texts(db: sqlite3.Connection, place: _Place) -> tuple[str, str, str]:
    """Return the statement of a theorem in its source, Lean's text of it, and its proof."""
    row = db.execute(
        "SELECT coalesce(t.statement, ''), coalesce(p.state_before, ''), o.proof FROM theorem_types AS o "
        'LEFT JOIN traced_theorems AS t ON t.content = o.content AND t."index" = o.theorem AND o.position = 0 '
        'LEFT JOIN traced_tactics AS p ON p.content = o.content AND p.theorem = t."index" AND p."index" = 0 '
        "WHERE o.content = ? AND o.theorem = ? AND o.position = ?",
        place,
    ).fetchone()
    return row[0], row[1], row[2]


def asking(db: sqlite3.Connection) -> set[str]:
    """Return the repositories with an open sorry whose statement is proved elsewhere."""
    result: set[str] = set()
    proving: dict[str, _Proving] = {}
    for repository, digest in db.execute(f"SELECT DISTINCT s.repository, m.digest {_ASK}").fetchall():
        if repository not in result:
            if digest not in proving:
                proving[digest] = _Proving(db, digest)
            if proving[digest].give(repository):
                result.add(repository)
    return result


def upstream(
    db: sqlite3.Connection, *, repository: str | None = None, names: Collection[str] | None = None
) -> list[UpstreamRow]:
    """Return the proved theorems that exist in a package or in Lean, by repository, branch, file and line."""
    rows = db.execute(
        "SELECT d.repository, d.branch, d.path, d.line, d.name, o.full_name, o.path FROM theorem_types AS o "
        "CROSS JOIN theorem_types AS m ON m.content = o.content AND m.theorem = o.theorem AND m.position = 0 "
        f"CROSS JOIN traced_files AS f ON f.content = o.content AND {_is_traced('f')} "
        "CROSS JOIN declarations AS d ON d.name = m.full_name AND d.repository = f.repository AND d.path = f.path "
        f"AND {_of_branch('f.line', 'd.branch')} "
        "WHERE o.position > 0 AND m.proved = 1 AND (:repository IS NULL OR d.repository = :repository) "
        "AND (:names IS NULL OR d.name IN (SELECT value FROM json_each(:names))) ORDER BY 1, 2, 3, 4, 6",
        {"repository": repository, "names": None if names is None else json.dumps(sorted(names))},
    )
    return make_all(UpstreamRow, rows)
