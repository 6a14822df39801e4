"""The questions asked of database.db. Read-only, and fast to import: sqlite3 and the standard library alone.

Every function takes a connection made by `connect` and answers with rows of `store.rows`, in an order that is
always the same. They work with the daemon up or down.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from store.readonly import connect_readonly
from store.rows import (
    AttemptRow,
    BranchRow,
    CommitRow,
    Counts,
    DeclarationRow,
    FileRow,
    JobRow,
    PositionRow,
    ProofRow,
    RepositoryRow,
    ServiceRow,
    SorryRow,
    SorryStepRow,
    TheoremRow,
    TheoremVersionRow,
    columns,
    make_all,
)
from store.scanned import THEOREM_KINDS as THEOREM_KINDS
from store.sql import statements

SORRY_STATES = ("open", "verified", "filled", "removed")
PROOF_STATES = ("candidate", "verified", "rejected", "conditional")
JOB_STATES = ("running", "succeeded", "failed", "interrupted", "cancelled")

_PRESENT_FIRST = "state = 'present' DESC, theorem, repository, branch"

Row = TypeVar("Row")


def on_watched_branch(table: str) -> str:
    """Return a condition: the row stands on no deleted or unwatched branch, and in no unwatched repository."""
    return (
        f"NOT EXISTS (SELECT 1 FROM branches AS other WHERE other.repository = {table}.repository "
        f"AND other.branch = {table}.branch AND other.state <> 'live') "
        f"AND NOT EXISTS (SELECT 1 FROM repositories AS owner WHERE owner.repository = {table}.repository "
        "AND owner.watched = 0)"
    )


def connect(path: Path) -> sqlite3.Connection:
    """Open the view for questions; nothing can be written through it.

    Raises:
        DatabaseMissingError: there is no view yet; start the daemon, or `unsorry db rebuild`.
        LogError: it cannot be read.
    """
    return connect_readonly(path)


def service(db: sqlite3.Connection) -> ServiceRow | None:
    """Return what the daemon last said of itself; None before its first start."""
    return _first(_rows(db, ServiceRow, "service"))


def checkpoint(db: sqlite3.Connection) -> PositionRow | None:
    """Return how far the view has read the log, and what stopped it."""
    return _first(_rows(db, PositionRow, "view_position"))


def position(db: sqlite3.Connection) -> int:
    """Return the seq of the last event that the view contains."""
    return int(db.execute("SELECT coalesce(max(seq), 0) FROM view_position").fetchone()[0])


def repositories(db: sqlite3.Connection, *, watched_only: bool = False) -> list[RepositoryRow]:
    """Return the repositories, by key, each with when it was last polled and is next due."""
    where = "WHERE watched = 1" if watched_only else ""
    rows = db.execute(f"{statements('queries')['repositories']} {where} ORDER BY repositories.repository")
    return make_all(RepositoryRow, rows)


def repository(db: sqlite3.Connection, key: str) -> RepositoryRow | None:
    """Return one repository, with when it was last polled and is next due."""
    rows = db.execute(f"{statements('queries')['repositories']} WHERE repositories.repository = ?", (key,))
    return next(iter(make_all(RepositoryRow, rows)), None)


def branches(db: sqlite3.Connection, repository: str | None = None) -> list[BranchRow]:
    """Return the branches of one repository, or of all."""
    return _rows(db, BranchRow, "branches", equal={"repository": repository}, order="repository, branch")


def commits(
    db: sqlite3.Connection,
    *,
    repository: str | None = None,
    branch: str | None = None,
    state: str | None = None,
    limit: int | None = None,
) -> list[CommitRow]:
    """Return commits, the newest observed first."""
    return _rows(
        db,
        CommitRow,
        "commits",
        equal={"repository": repository, "branch": branch, "state": state},
        order="seq DESC",
        limit=limit,
    )


def commits_to_scan(db: sqlite3.Connection) -> int:
    """Count the commits that wait for a scan: on watched branches of repositories that are not disabled."""
    statement = (
        f"SELECT count(*) FROM commits WHERE state = 'observed' AND {on_watched_branch('commits')} AND NOT EXISTS "
        "(SELECT 1 FROM repositories AS r WHERE r.repository = commits.repository AND r.enabled = 0)"
    )
    return int(db.execute(statement).fetchone()[0])


def next_commit_to_scan(db: sqlite3.Connection, repository: str, branch: str) -> CommitRow | None:
    """Return the oldest observed commit of a live branch that is neither scanned nor dropped."""
    return _first(_named(db, CommitRow, "next_commit_to_scan", repository=repository, branch=branch))


def files(
    db: sqlite3.Connection, *, repository: str | None = None, branch: str | None = None
) -> list[FileRow]:
    """Return the files at the newest scanned commit, by path."""
    equal = {"repository": repository, "branch": branch}
    return _rows(db, FileRow, "files", equal=equal, order="repository, branch, path")


def theorems(
    db: sqlite3.Connection,
    *,
    repository: str | None = None,
    name: str | None = None,
    kinds: Sequence[str] = THEOREM_KINDS,
    watched_only: bool = False,
    limit: int | None = None,
    offset: int = 0,
) -> list[DeclarationRow]:
    """Return declarations of some kinds (all kinds if none is named), in source order.

    A `name` with `*`, `?` or `[` in it is a pattern, any other is the full name.
    """
    conditions = [on_watched_branch("declarations")] if watched_only else []
    parameters: list[Any] = []
    if name is not None:
        conditions.append(_named_so(name))
        parameters.append(name)
    if kinds:
        conditions.append(f"kind IN ({', '.join('?' * len(kinds))})")
        parameters.extend(kinds)
    return _rows(
        db,
        DeclarationRow,
        "declarations",
        equal={"repository": repository},
        conditions=conditions,
        parameters=parameters,
        order='repository, branch, path, "index"',
        limit=limit,
        offset=offset,
    )


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
        conditions.append(_named_so(name))
        parameters.append(name)
    return _rows(
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
    return _by_prefix(db, TheoremRow, "theorems", "theorem", prefix)


def theorem_by_identity(db: sqlite3.Connection, identity: str) -> list[TheoremRow]:
    """Return the theorems whose present or last name and statement have this identity (`declarations.theorem`)."""
    return _rows(
        db, TheoremRow, "theorems", equal={"identity": identity}, order="theorem, repository, branch"
    )


def theorem_by_name(db: sqlite3.Connection, name: str) -> list[TheoremRow]:
    """Return the theorems that have this full name, or had it when they were deleted, present ones first."""
    return _rows(db, TheoremRow, "theorems", equal={"name": name}, order=_PRESENT_FIRST)


def theorem_by_earlier_name(db: sqlite3.Connection, name: str) -> list[TheoremRow]:
    """Return the theorems that have or had this full name in any version, present ones first. Reads every version."""
    named = "SELECT repository, branch, theorem FROM theorem_versions WHERE name = ?"
    conditions = [f"(repository, branch, theorem) IN ({named})"]
    return _rows(db, TheoremRow, "theorems", conditions=conditions, parameters=[name], order=_PRESENT_FIRST)


def theorem_place(db: sqlite3.Connection, theorem: TheoremRow) -> DeclarationRow | None:
    """Return the declaration that a theorem is now; None for a deleted one. Of twins in one file, the first."""
    if theorem.state != "present":
        return None
    rows = _rows(
        db,
        DeclarationRow,
        "declarations",
        equal={"repository": theorem.repository, "branch": theorem.branch, "path": theorem.path},
        conditions=["theorem = ?"],
        parameters=[theorem.identity],
        order='"index"',
        limit=1,
    )
    return _first(rows)


def theorem_history(
    db: sqlite3.Connection,
    theorem: str,
    *,
    repository: str | None = None,
    branch: str | None = None,
) -> list[TheoremVersionRow]:
    """Return a theorem's versions, oldest first."""
    equal = {"theorem": theorem, "repository": repository, "branch": branch}
    return _rows(db, TheoremVersionRow, "theorem_versions", equal=equal, order="seq, repository, branch")


def sorries(
    db: sqlite3.Connection,
    *,
    repository: str | None = None,
    branch: str | None = None,
    state: str | None = None,
    watched_only: bool = False,
    limit: int | None = None,
) -> list[SorryRow]:
    """Return sorrys in source order."""
    return _rows(
        db,
        SorryRow,
        "sorries",
        equal={"repository": repository, "branch": branch, "state": state},
        conditions=[on_watched_branch("sorries")] if watched_only else [],
        order="repository, branch, path, byte_start, sorry",
        limit=limit,
    )


def sorries_by_prefix(db: sqlite3.Connection, prefix: str) -> list[SorryRow]:
    """Return the sorrys whose id starts so, on every branch that has them."""
    return _by_prefix(db, SorryRow, "sorries", "sorry", prefix)


def sorry_steps(
    db: sqlite3.Connection,
    sorry: str | None = None,
    *,
    repository: str | None = None,
    branch: str | None = None,
) -> list[SorryStepRow]:
    """Return a sorry's life, oldest step first; without one, the lives of all."""
    equal = {"sorry": sorry, "repository": repository, "branch": branch}
    return _rows(db, SorryStepRow, "sorry_steps", equal=equal, order="seq, repository, branch")


def attempts(db: sqlite3.Connection, *, sorry: str | None = None) -> list[AttemptRow]:
    """Return what was tried, oldest first."""
    order = "recorded_at, sorry, blob, prover, rung, model, budget"
    return _rows(db, AttemptRow, "attempts", equal={"sorry": sorry}, order=order)


def proofs(
    db: sqlite3.Connection,
    *,
    state: str | None = None,
    sorry: str | None = None,
    repository: str | None = None,
) -> list[ProofRow]:
    """Return proofs, oldest first."""
    equal = {"state": state, "sorry": sorry, "repository": repository}
    return _rows(db, ProofRow, "proofs", equal=equal, order="found_at, proof")


def proofs_by_prefix(db: sqlite3.Connection, prefix: str) -> list[ProofRow]:
    """Return the proofs whose id starts so."""
    return _by_prefix(db, ProofRow, "proofs", "proof", prefix)


def proofs_to_check(db: sqlite3.Connection) -> list[ProofRow]:
    """Return the candidates that no check has judged yet, oldest first, of sorrys on any watched branch.

    Not of the branch that they were found on alone: the same sorry in the same file is attempted once for all.
    """
    its_sorrys = "SELECT 1 FROM sorries WHERE sorries.sorry = proofs.sorry"
    wanted = f"NOT EXISTS ({its_sorrys}) OR EXISTS ({its_sorrys} AND {on_watched_branch('sorries')})"
    conditions = ["state = 'candidate'", "checked_at IS NULL", f"({wanted})"]
    return _rows(db, ProofRow, "proofs", conditions=conditions, order="found_at, proof")


def jobs(
    db: sqlite3.Connection,
    *,
    state: str | None = None,
    kind: str | None = None,
    limit: int | None = None,
) -> list[JobRow]:
    """Return jobs, the newest start first."""
    equal = {"state": state, "kind": kind}
    return _rows(db, JobRow, "jobs", equal=equal, order="started_at DESC, job", limit=limit)


def jobs_by_prefix(db: sqlite3.Connection, prefix: str) -> list[JobRow]:
    """Return the jobs whose id starts so."""
    return _by_prefix(db, JobRow, "jobs", "job", prefix)


def sorries_to_prove(
    db: sqlite3.Connection,
    *,
    repository: str,
    branch: str,
    prover: str,
    rung: int,
    budget: str,
    model: str = "",
) -> list[SorryRow]:
    """Return the open sorrys of a live branch, as its scanned tip has them, that were not tried so yet.

    Tried means: the same sorry, file version, prover, rung, model and budget have an attempt.
    """
    return _named(
        db,
        SorryRow,
        "sorries_to_prove",
        repository=repository,
        branch=branch,
        prover=prover,
        rung=rung,
        model=model,
        budget=budget,
    )


def counts(db: sqlite3.Connection) -> Counts:
    """Count what there is, without reading the declarations themselves."""
    here = on_watched_branch("counted")
    kinds = dict(
        _pairs(db, f"SELECT kind, sum(declarations) FROM tallies AS counted WHERE {here} GROUP BY kind")
    )
    # Grouped by branch first, out of an index alone: the condition is asked of branches and not of every row.
    by_branch = "SELECT repository, branch, {} count(*) AS n FROM {} GROUP BY repository, branch {}"
    sorries = by_branch.format("state,", "sorries", ", state")
    files = by_branch.format("", "files", "")
    return Counts(
        sorries=dict.fromkeys(SORRY_STATES, 0)
        | dict(_pairs(db, f"SELECT state, sum(n) FROM ({sorries}) AS counted WHERE {here} GROUP BY state")),
        proofs=_by_state(db, "proofs", PROOF_STATES),
        jobs=_by_state(db, "jobs", JOB_STATES),
        theorems=sum(kinds.get(kind, 0) for kind in THEOREM_KINDS),
        declarations=sum(kinds.values()),
        files=int(
            db.execute(f"SELECT coalesce(sum(n), 0) FROM ({files}) AS counted WHERE {here}").fetchone()[0]
        ),
        simulated_proofs=int(db.execute("SELECT count(*) FROM proofs WHERE simulated = 1").fetchone()[0]),
    )


def _named_so(name: str) -> str:
    return "name GLOB ?" if any(sign in name for sign in "*?[") else "name = ?"


def _by_state(db: sqlite3.Connection, table: str, states: Iterable[str]) -> dict[str, int]:
    return dict.fromkeys(states, 0) | dict(_pairs(db, f"SELECT state, count(*) FROM {table} GROUP BY state"))


def _pairs(db: sqlite3.Connection, statement: str) -> list[tuple[str, int]]:
    return [(row[0], row[1]) for row in db.execute(statement)]


def _select(cls: type[Any], table: str) -> str:
    # Quoted, for `index` and `column` are words of SQL; with the table, for two questions join others to it.
    names = [f'{table}."{name}"' for name in columns(cls)]
    return f"SELECT {', '.join(names)} FROM {table}"


def _rows(
    db: sqlite3.Connection,
    cls: type[Row],
    table: str,
    *,
    equal: dict[str, str | None] | None = None,
    conditions: Sequence[str] = (),
    parameters: Sequence[Any] = (),
    order: str = "1",
    limit: int | None = None,
    offset: int = 0,
) -> list[Row]:
    """Read a table; None in `equal` means any. Column names and orders are ours, values are bound."""
    given = {name: value for name, value in (equal or {}).items() if value is not None}
    clauses = [*(f"{name} = ?" for name in given), *conditions]
    where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
    statement = f"{_select(cls, table)}{where} ORDER BY {order} LIMIT ? OFFSET ?"
    bound = (*given.values(), *parameters, -1 if limit is None else limit, offset)
    return make_all(cls, db.execute(statement, bound))


def _named(db: sqlite3.Connection, cls: type[Row], name: str, **parameters: str | int) -> list[Row]:
    """Run a statement of queries.sql, which starts where the columns end."""
    table = {CommitRow: "commits", SorryRow: "sorries"}[cls]
    rows = db.execute(f"{_select(cls, table)} {statements('queries')[name]}", parameters)
    return make_all(cls, rows)


def _by_prefix(db: sqlite3.Connection, cls: type[Row], table: str, key: str, prefix: str) -> list[Row]:
    # A range, and not LIKE: the prefix may hold any character, and the key's index serves it.
    conditions = [f"{key} >= ?", f"substr({key}, 1, ?) = ?"]
    return _rows(db, cls, table, conditions=conditions, parameters=[prefix, len(prefix), prefix], order=key)


def _first(rows: list[Row]) -> Row | None:
    return rows[0] if rows else None
