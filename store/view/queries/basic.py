"""The questions asked of database.db. Read-only, and fast to import: sqlite3 and the standard library alone.

Every function takes a connection made by `connect` and answers with rows of `store.view.rows`, in an order that is
always the same. They work with the daemon up or down.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from store.domain.records import THEOREM_KINDS as THEOREM_KINDS
from store.sqlite import connect_readonly, statements
from store.view.rows import (
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
    Row,
    ServiceRow,
    SorryRow,
    SorryStepRow,
    by_prefix,
    first,
    make_all,
    named_so,
    read,
    select,
)

SORRY_STATES = ("open", "verified", "filled", "removed")
PROOF_STATES = ("candidate", "verified", "rejected", "conditional")
JOB_STATES = ("running", "succeeded", "failed", "interrupted", "cancelled")


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
    return first(read(db, ServiceRow, "service"))


def checkpoint(db: sqlite3.Connection) -> PositionRow | None:
    """Return how far the view has read the log, and what stopped it."""
    return first(read(db, PositionRow, "view_position"))


def position(db: sqlite3.Connection) -> int:
    """Return the seq of the last event that the view contains."""
    return int(db.execute("SELECT coalesce(max(seq), 0) FROM view_position").fetchone()[0])


def repositories(db: sqlite3.Connection, *, watched_only: bool = False) -> list[RepositoryRow]:
    """Return the repositories, by key, each with when it was last polled and is next due."""
    where = "WHERE watched = 1" if watched_only else ""
    rows = db.execute(
        f"{statements('view/queries/basic')['repositories']} {where} ORDER BY repositories.repository"
    )
    return make_all(RepositoryRow, rows)


def repository(db: sqlite3.Connection, key: str) -> RepositoryRow | None:
    """Return one repository, with when it was last polled and is next due."""
    rows = db.execute(
        f"{statements('view/queries/basic')['repositories']} WHERE repositories.repository = ?", (key,)
    )
    return next(iter(make_all(RepositoryRow, rows)), None)


def branches(db: sqlite3.Connection, repository: str | None = None) -> list[BranchRow]:
    """Return the branches of one repository, or of all."""
    return read(db, BranchRow, "branches", equal={"repository": repository}, order="repository, branch")


def commits(
    db: sqlite3.Connection,
    *,
    repository: str | None = None,
    branch: str | None = None,
    state: str | None = None,
    limit: int | None = None,
) -> list[CommitRow]:
    """Return commits, the newest observed first."""
    return read(
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
    return first(_named(db, CommitRow, "next_commit_to_scan", repository=repository, branch=branch))


def files(
    db: sqlite3.Connection, *, repository: str | None = None, branch: str | None = None
) -> list[FileRow]:
    """Return the files at the newest scanned commit, by path."""
    equal = {"repository": repository, "branch": branch}
    return read(db, FileRow, "files", equal=equal, order="repository, branch, path")


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
        conditions.append(named_so(name))
        parameters.append(name)
    if kinds:
        conditions.append(f"kind IN ({', '.join('?' * len(kinds))})")
        parameters.extend(kinds)
    return read(
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


def sorries(
    db: sqlite3.Connection,
    *,
    repository: str | None = None,
    branch: str | None = None,
    state: str | None = None,
    watched_only: bool = False,
    limit: int | None = None,
) -> list[SorryRow]:
    """Return sorries in source order."""
    return read(
        db,
        SorryRow,
        "sorries",
        equal={"repository": repository, "branch": branch, "state": state},
        conditions=[on_watched_branch("sorries")] if watched_only else [],
        order="repository, branch, path, byte_start, sorry",
        limit=limit,
    )


def sorries_by_prefix(db: sqlite3.Connection, prefix: str) -> list[SorryRow]:
    """Return the sorries whose id starts so, on every branch that has them."""
    return by_prefix(db, SorryRow, "sorries", "sorry", prefix)


def sorry_steps(
    db: sqlite3.Connection,
    sorry: str | None = None,
    *,
    repository: str | None = None,
    branch: str | None = None,
) -> list[SorryStepRow]:
    """Return a sorry's life, oldest step first; without one, the lives of all."""
    equal = {"sorry": sorry, "repository": repository, "branch": branch}
    return read(db, SorryStepRow, "sorry_steps", equal=equal, order="seq, repository, branch")


def attempts(db: sqlite3.Connection, *, sorry: str | None = None) -> list[AttemptRow]:
    """Return what was tried, oldest first."""
    order = "recorded_at, sorry, blob, prover, rung, model, budget"
    return read(db, AttemptRow, "attempts", equal={"sorry": sorry}, order=order)


def proofs(
    db: sqlite3.Connection,
    *,
    state: str | None = None,
    sorry: str | None = None,
    repository: str | None = None,
) -> list[ProofRow]:
    """Return proofs, oldest first."""
    equal = {"state": state, "sorry": sorry, "repository": repository}
    return read(db, ProofRow, "proofs", equal=equal, order="found_at, proof")


def proofs_by_prefix(db: sqlite3.Connection, prefix: str) -> list[ProofRow]:
    """Return the proofs whose id starts so."""
    return by_prefix(db, ProofRow, "proofs", "proof", prefix)


def proofs_to_check(db: sqlite3.Connection) -> list[ProofRow]:
    """Return the candidates that no check has judged yet, oldest first, of sorries on any watched branch.

    Not of the branch that they were found on alone: the same sorry in the same file is attempted once for all.
    """
    its_sorries = "SELECT 1 FROM sorries WHERE sorries.sorry = proofs.sorry"
    wanted = f"NOT EXISTS ({its_sorries}) OR EXISTS ({its_sorries} AND {on_watched_branch('sorries')})"
    conditions = ["state = 'candidate'", "checked_at IS NULL", f"({wanted})"]
    return read(db, ProofRow, "proofs", conditions=conditions, order="found_at, proof")


def jobs(
    db: sqlite3.Connection,
    *,
    state: str | None = None,
    kind: str | None = None,
    limit: int | None = None,
) -> list[JobRow]:
    """Return jobs, the newest start first."""
    equal = {"state": state, "kind": kind}
    return read(db, JobRow, "jobs", equal=equal, order="started_at DESC, job", limit=limit)


def jobs_by_prefix(db: sqlite3.Connection, prefix: str) -> list[JobRow]:
    """Return the jobs whose id starts so."""
    return by_prefix(db, JobRow, "jobs", "job", prefix)


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
    """Return the open sorries of a live branch, as its scanned tip has them, that were not tried so yet.

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


def _by_state(db: sqlite3.Connection, table: str, states: Iterable[str]) -> dict[str, int]:
    return dict.fromkeys(states, 0) | dict(_pairs(db, f"SELECT state, count(*) FROM {table} GROUP BY state"))


def _pairs(db: sqlite3.Connection, statement: str) -> list[tuple[str, int]]:
    return [(row[0], row[1]) for row in db.execute(statement)]


def _named(db: sqlite3.Connection, cls: type[Row], name: str, **parameters: str | int) -> list[Row]:
    """Run a statement of queries.sql, which starts where the columns end."""
    table = {CommitRow: "commits", SorryRow: "sorries"}[cls]
    rows = db.execute(f"{select(cls, table)} {statements('view/queries/basic')[name]}", parameters)
    return make_all(cls, rows)
