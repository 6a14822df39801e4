"""Queries of database.db: repositories, theorems, sorries, proofs and jobs.

Read-only, and fast to import: sqlite3 and the standard library alone. Every function takes a connection of
`store.sqlite.connect_readonly` and returns rows of `store.view.rows` in a stable order, with the daemon up or
down.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from store.domain.keywords import PROVABLE_KINDS
from store.domain.keywords import THEOREM_KINDS as THEOREM_KINDS
from store.sqlite import connect_readonly, statements
from store.view.reading import by_prefix, first, make_all, named_so, read, select
from store.view.rows import (
    IN_SOURCE,
    TURNS,
    UNWRITTEN,
    AttemptRow,
    BranchRow,
    ClaimRow,
    CommitRow,
    DeclarationRow,
    FileRow,
    JobRow,
    PastCommitRow,
    PauseRow,
    PolledRepository,
    PositionRow,
    ProofRow,
    ServiceRow,
    SorryRow,
    TheoremRow,
    TooLargeRow,
    TriggerRow,
)
from store.view.schema import Row

Tried = TypeVar("Tried", bound=AttemptRow)

connect = connect_readonly
"""Open the view read-only."""

ATTEMPT_ORDER = "recorded_at, sorry, blob, prover, rung, model, budget"
"""The order of attempts, the oldest first."""


def _proves_negation(attempt: str, *, of: str) -> str:
    """Return a condition: the attempt disproved the open sorry, in the present version of its file."""
    return (
        f"{attempt}.outcome = 'disproved' AND {attempt}.sorry = {of}.sorry AND {attempt}.blob = {of}.blob "
        f"AND {of}.state = 'open'"
    )


_HAS_NEWS = (
    "(EXISTS (SELECT 1 FROM sorry_steps AS t WHERE t.repository = sorries.repository AND t.branch = sorries.branch "
    f"AND t.sorry = sorries.sorry AND t.step IN {(*TURNS, 'verified', 'refuted')!r} AND t.at >= ? "
    "AND NOT (t.step = 'opened' AND EXISTS (SELECT 1 FROM commits AS c WHERE c.repository = t.repository "
    "AND c.branch = t.branch AND c.sha = t.sha AND c.baseline = 1))) "
    f"OR EXISTS (SELECT 1 FROM attempts AS a WHERE {_proves_negation('a', of='sorries')} AND a.recorded_at >= ?))"
)
_HAS_TEXT = "instr(lower(declaration || ' ' || path || ' ' || statement), lower(?)) > 0"


def on_watched_branch(table: str) -> str:
    """Return a condition: the row is on no deleted or unwatched branch, and in no unwatched repository."""
    return (
        f"NOT EXISTS (SELECT 1 FROM branches AS other WHERE other.repository = {table}.repository "
        f"AND other.branch = {table}.branch AND other.state <> 'live') "
        f"AND NOT EXISTS (SELECT 1 FROM repositories AS owner WHERE owner.repository = {table}.repository "
        "AND owner.watched = 0)"
    )


def disproved(db: sqlite3.Connection, among: Collection[str] | None = None) -> set[tuple[str, str, str]]:
    """Return the disproved sorries: open, with a proof of the negation in the present version of the file.

    Each is a repository, a branch (watched or not) and an id.

    Args:
        db: the view.
        among: ids; None: all sorries.
    """
    condition = "" if among is None else " WHERE t.sorry IN (SELECT value FROM json_each(?))"
    rows = db.execute(
        "SELECT s.repository, s.branch, s.sorry FROM attempts AS t CROSS JOIN sorries AS s "
        f"ON {_proves_negation('t', of='s')}{condition}",
        () if among is None else (json.dumps(sorted(among)),),
    )
    return {(repository, branch, sorry) for repository, branch, sorry in rows}


def service(db: sqlite3.Connection) -> ServiceRow | None:
    """Return the daemon's last report on itself; None before its first start."""
    return first(read(db, ServiceRow, "service"))


def checkpoint(db: sqlite3.Connection) -> PositionRow | None:
    """Return the view's position in the log, and why it stopped, if it did."""
    return first(read(db, PositionRow, "view_position"))


def position(db: sqlite3.Connection) -> int:
    """Return the seq of the last event in the view."""
    return int(db.execute("SELECT coalesce(max(seq), 0) FROM view_position").fetchone()[0])


def repositories(db: sqlite3.Connection, *, watched_only: bool = False) -> list[PolledRepository]:
    """Return the repositories, by key, each with the times of its last and next poll."""
    where = "WHERE watched = 1" if watched_only else ""
    rows = db.execute(
        f"{statements('view/queries')['repositories']} {where} ORDER BY repositories.repository"
    )
    return make_all(PolledRepository, rows)


def repository(db: sqlite3.Connection, key: str) -> PolledRepository | None:
    """Return one repository, with the times of its last and next poll."""
    rows = db.execute(
        f"{statements('view/queries')['repositories']} WHERE repositories.repository = ?", (key,)
    )
    return next(iter(make_all(PolledRepository, rows)), None)


def is_replaced(db: sqlite3.Connection, key: str) -> bool:
    """Return whether the forge has another repository under this one's name, accepted by nobody yet."""
    row = db.execute("SELECT replaced_by FROM repositories WHERE repository = ?", (key,)).fetchone()
    return row is not None and row[0] is not None


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


def commits_named(
    db: sqlite3.Connection, keys: Iterable[tuple[str, str, str]]
) -> dict[tuple[str, str, str], CommitRow]:
    """Return commits by repository, branch and hash, without missing ones."""
    condition = (
        "(repository, branch, sha) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), "
        "json_extract(value, '$[2]') FROM json_each(?))"
    )
    rows = read(db, CommitRow, "commits", conditions=[condition], parameters=[json.dumps(sorted(set(keys)))])
    return {(row.repository, row.branch, row.sha): row for row in rows}


def commits_to_scan(db: sqlite3.Connection) -> int:
    """Count the commits that wait for a scan: on watched branches of enabled repositories."""
    statement = (
        f"SELECT count(*) FROM commits WHERE state = 'observed' AND {on_watched_branch('commits')} AND NOT EXISTS "
        "(SELECT 1 FROM repositories AS r WHERE r.repository = commits.repository AND r.enabled = 0)"
    )
    return int(db.execute(statement).fetchone()[0])


def next_commit_to_scan(db: sqlite3.Connection, repository: str, branch: str) -> CommitRow | None:
    """Return the oldest observed commit of a live branch, neither scanned nor dropped."""
    return first(_run(db, CommitRow, "next_commit_to_scan", repository=repository, branch=branch))


def files(
    db: sqlite3.Connection, *, repository: str | None = None, branch: str | None = None
) -> list[FileRow]:
    """Return the files at the newest scanned commit, by path."""
    equal = {"repository": repository, "branch": branch}
    return read(db, FileRow, "files", equal=equal, order="repository, branch, path")


def too_large(db: sqlite3.Connection, *, repository: str | None = None) -> list[TooLargeRow]:
    """Return the watched branches, of every repository or of one, cut by a limit."""
    statement = (
        # Beside one max(), SQLite takes a bare column from the row of the maximum: `path`.
        "SELECT repository, branch, path, count(*), sum(iif(declarations_taken IS NULL, 0, n_declarations)), "
        "total(declarations_taken), sum(iif(sorries_taken IS NULL, 0, n_sorries)), total(sorries_taken), "
        "max(ifnull(n_declarations - declarations_taken, 0) + ifnull(n_sorries - sorries_taken, 0)) "
        "FROM files WHERE (declarations_taken IS NOT NULL OR sorries_taken IS NOT NULL) "
        f"AND {on_watched_branch('files')} AND repository = ifnull(?, repository) "
        "GROUP BY repository, branch ORDER BY repository, branch"
    )
    return [TooLargeRow(*row[:3], *map(int, row[3:8])) for row in db.execute(statement, (repository,))]


def taken_of(db: sqlite3.Connection, *, repository: str) -> tuple[dict[str, int], int]:
    """Return the numbers taken of a repository's watched branches: sorries by branch, and declarations."""
    sorries = _pairs(
        db,
        f"SELECT branch, count(*) FROM sorries WHERE repository = ? AND {IN_SOURCE} "
        f"AND {on_watched_branch('sorries')} GROUP BY branch",
        repository,
    )
    declarations = (
        "SELECT coalesce(sum(declarations), 0) FROM tallies "
        f"WHERE repository = ? AND {on_watched_branch('tallies')}"
    )
    return dict(sorries), int(db.execute(declarations, (repository,)).fetchone()[0])


def theorems(
    db: sqlite3.Connection,
    *,
    repository: str | None = None,
    name: str | None = None,
    text: str = "",
    kinds: Sequence[str] = THEOREM_KINDS,
    watched_only: bool = False,
    limit: int | None = None,
    offset: int = 0,
) -> list[DeclarationRow]:
    """Return declarations of some kinds (all kinds if none is named), in source order.

    Args:
        name: the full name, or a pattern with `*`, `?` or `[` in it.
        text: a part of the name, the path or the statement, in any case.
    """
    conditions = [on_watched_branch("declarations")] if watched_only else []
    parameters: list[Any] = []
    if name is not None:
        conditions.append(named_so(name))
        parameters.append(name)
    if text:
        conditions.append("instr(lower(name || ' ' || path || ' ' || statement), lower(?)) > 0")
        parameters.append(text)
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
    text: str = "",
    file: str = "",
    since: str = "",
    watched_only: bool = False,
) -> list[SorryRow]:
    """Return sorries in source order, one for each branch with it, now or earlier.

    Args:
        text: a part of the declaration, the path or the statement, in any case.
        file: a path, or its end.
        since: a moment; only sorries opened, gone, verified or disproved since then, without those of a
            branch's first scan.
    """
    conditions = [on_watched_branch("sorries")] if watched_only else []
    parameters = []
    if text:
        conditions.append(_HAS_TEXT)
        parameters.append(text)
    if file:
        conditions.append("substr('/' || path, -length(?)) = ?")
        parameters += [f"/{file}"] * 2
    if since:
        conditions.append(_HAS_NEWS)
        parameters += [since] * 2
    return read(
        db,
        SorryRow,
        "sorries",
        equal={"repository": repository, "branch": branch, "state": state},
        conditions=conditions,
        parameters=parameters,
        order="repository, branch, path, byte_start, sorry",
    )


def sorries_by_prefix(db: sqlite3.Connection, prefix: str) -> list[SorryRow]:
    """Return the sorries with this beginning of their id, on every branch."""
    return by_prefix(db, SorryRow, "sorries", "sorry", prefix)


@dataclass(frozen=True, slots=True)
class UnwrittenSorry:
    """A sorry at the newest scanned commit `tip` of a branch, its author not looked up in git.

    `opened_sha` is the commit that brought it, None if it is from the branch's first scan.
    """

    repository: str
    branch: str
    tip: str
    sorry: str
    path: str
    line: int
    opened_sha: str | None


def unwritten_repositories(db: sqlite3.Connection) -> list[str]:
    """Return the repositories with a sorry whose author is not looked up in git, by key."""
    rows = db.execute(f"SELECT DISTINCT s.repository {_UNWRITTEN} ORDER BY s.repository")
    return [row[0] for row in rows]


def unwritten_sorries(db: sqlite3.Connection, repository: str, limit: int) -> list[UnwrittenSorry]:
    """Return a repository's sorries without an author from git, by commit and place."""
    rows = db.execute(
        "SELECT s.repository, s.branch, b.scanned, s.sorry, s.path, s.line, "
        "(SELECT c.sha FROM commits AS c WHERE c.repository = s.repository AND c.branch = s.branch "
        "AND c.sha = s.updated_sha AND c.sha = s.opened_sha AND c.baseline = 0) "
        f"{_UNWRITTEN} AND s.repository = ? ORDER BY b.scanned, s.path, s.line, s.branch, s.sorry LIMIT ?",
        (repository, limit),
    )
    return make_all(UnwrittenSorry, rows)


_UNWRITTEN = (
    f"FROM (SELECT * FROM sorries INDEXED BY sorries_unwritten WHERE {UNWRITTEN}) AS s "
    "JOIN branches AS b ON b.repository = s.repository AND b.branch = s.branch "
    f"WHERE b.state = 'live' AND b.scanned IS NOT NULL AND {on_watched_branch('s')}"
)


_PAST_UNLISTED = (
    # A repository's past is its default branch's, or the first watched branch's.
    "SELECT b.repository, b.branch, (SELECT c.sha FROM commits AS c WHERE c.repository = b.repository "
    "AND c.branch = b.branch AND c.baseline = 1 ORDER BY c.seq LIMIT 1) AS sha FROM branches AS b "
    "LEFT JOIN repositories AS home ON home.repository = b.repository "
    f"WHERE b.scanned IS NOT NULL AND {on_watched_branch('b')} "
    "AND NOT EXISTS (SELECT 1 FROM past_commits AS p WHERE p.repository = b.repository) "
    "ORDER BY b.repository, b.branch IS NOT home.default_branch, b.branch"
)


def past_unlisted(db: sqlite3.Connection) -> dict[str, tuple[str, str]]:
    """Return the repositories with an unlisted past, each with a branch and its first commit seen."""
    result: dict[str, tuple[str, str]] = {}
    for repository, branch, sha in db.execute(_PAST_UNLISTED):
        if sha is not None:
            result.setdefault(repository, (branch, sha))
    return result


def past_uncounted(db: sqlite3.Connection) -> set[str]:
    """Return the repositories with uncounted commits from before the first sight."""
    rows = db.execute("SELECT DISTINCT repository FROM past_commits WHERE sorries IS NULL")
    return {row[0] for row in rows}


def past_to_count(db: sqlite3.Connection, repository: str) -> list[PastCommitRow]:
    """Return the uncounted commits of a repository, the newest first."""
    conditions, order = ["sorries IS NULL"], "committed_at DESC, sha"
    equal: dict[str, str | None] = {"repository": repository}
    return read(db, PastCommitRow, "past_commits", equal=equal, conditions=conditions, order=order)


def attempts(db: sqlite3.Connection, *, sorry: str | None = None) -> list[AttemptRow]:
    """Return attempts, oldest first."""
    return read(db, AttemptRow, "attempts", equal={"sorry": sorry}, order=ATTEMPT_ORDER)


def toolchains(db: sqlite3.Connection) -> list[str]:
    """Return the texts of the `lean-toolchain` files of the live branches' projects, each once."""
    result = (
        "SELECT DISTINCT json_extract(project.value, '$.toolchain') "
        "FROM branches, json_each(projects_json) AS project WHERE state = 'live'"
    )
    return [text for (text,) in db.execute(result)]


def proofs(
    db: sqlite3.Connection,
    *,
    state: str | None = None,
    sorry: str | None = None,
    repository: str | None = None,
    ids: Collection[str] | None = None,
) -> list[ProofRow]:
    """Return proofs, oldest first; with `ids` those alone."""
    equal = {"state": state, "sorry": sorry, "repository": repository}
    conditions = [] if ids is None else ["proof IN (SELECT value FROM json_each(?))"]
    parameters = [] if ids is None else [json.dumps([*ids])]
    order = "found_at, proof"
    return read(
        db, ProofRow, "proofs", equal=equal, conditions=conditions, parameters=parameters, order=order
    )


def accepted_keys(db: sqlite3.Connection, *, toolchain: str, most: int) -> list[str]:
    """Return the keys of modules and exports accepted by kernels of a toolchain, the newest first."""
    statement = "SELECT key FROM accepted WHERE toolchain = ? ORDER BY seq DESC, key LIMIT ?"
    return [key for (key,) in db.execute(statement, (toolchain, most))]


def proofs_by_prefix(db: sqlite3.Connection, prefix: str) -> list[ProofRow]:
    """Return the proofs with this beginning of their id."""
    return by_prefix(db, ProofRow, "proofs", "proof", prefix)


def stale_proofs(db: sqlite3.Connection, *, sorry: str | None = None) -> dict[str, str]:
    """Return the proofs (of this sorry) without a place at the tip of their branch, each with the reason.

    A proof fits while its sorry is in the source, in the checked version of the file.
    """
    return dict(db.execute(statements("view/queries")["stale_proofs"], {"sorry": sorry}).fetchall())


def proofs_to_check(db: sqlite3.Connection) -> list[ProofRow]:
    """Return the candidates without a check, oldest first, of sorries on any watched branch.

    Any, since the same sorry in the same file is attempted once for all branches.
    """
    its_sorries = "SELECT 1 FROM sorries WHERE sorries.sorry = proofs.sorry"
    watched = f"NOT EXISTS ({its_sorries}) OR EXISTS ({its_sorries} AND {on_watched_branch('sorries')})"
    conditions = ["state = 'candidate'", "checked_at IS NULL", f"({watched})"]
    return read(db, ProofRow, "proofs", conditions=conditions, order="found_at, proof")


def doubted_proofs(db: sqlite3.Connection) -> list[ProofRow]:
    """Return the proofs in doubt, oldest first: verified ones, and candidates on which kernels disagree."""
    conditions = ["state IN ('verified', 'candidate')", "doubts_json <> '[]'"]
    return read(db, ProofRow, "proofs", conditions=conditions, order="found_at, proof")


def proofs_to_check_again(db: sqlite3.Connection, repository: str) -> list[tuple[ProofRow, str, int]]:
    """Return verified proofs behind their branch's tip, each with the file's blob and its place there."""
    tips = {row.branch: row.tip for row in branches(db, repository) if row.scanned == row.tip}
    verified = sorries(db, repository=repository, state="verified")
    standing = {(row.branch, row.sorry): row for row in verified}
    beside: dict[tuple[str, str, str], list[SorryRow]] = {}
    for row in verified:
        beside.setdefault((row.branch, row.path, row.declaration), []).append(row)
    return [
        (proof, sorry.blob, start)
        for proof in proofs(db, state="verified", repository=repository)
        if tips.get(proof.branch, proof.checked_sha) != proof.checked_sha
        and (sorry := standing.get((proof.branch, proof.sorry))) is not None
        and sorry.path == proof.path
        for start in _begins(proof, sorry, beside[sorry.branch, sorry.path, sorry.declaration])
    ]


def _begins(proof: ProofRow, sorry: SorryRow, beside: Sequence[SorryRow]) -> list[int]:
    """Return the start of the bytes to replace: of the first sorry, if the proof fills several.

    Empty if the text between them has another length now.
    """
    length = proof.byte_end - proof.byte_start
    ends = {one.byte_end for one in beside if one.byte_end >= sorry.byte_end}
    return [
        one.byte_start
        for one in beside
        if one.byte_start <= sorry.byte_start and one.byte_start + length in ends
    ][:1]


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
    """Return the jobs with this beginning of their id."""
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
    """Return the open sorries at the scanned tip of a live branch without such an attempt.

    An attempt is the same with the same sorry, file version, prover, rung, model and budget.
    """
    return _run(
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


def untried(
    db: sqlite3.Connection,
    *,
    repository: str,
    branch: str,
    prover: str,
    rung: int,
    budget: str,
    model: str = "",
) -> list[str]:
    """Return the ids of `sorries_to_prove`, in its order."""
    about = {
        "repository": repository,
        "branch": branch,
        "prover": prover,
        "rung": rung,
        "budget": budget,
        "model": model,
    }
    statement = f"SELECT sorries.sorry FROM sorries {statements('view/queries')['sorries_to_prove']}"
    return [sorry for (sorry,) in db.execute(statement, about)]


def budgets_tried(
    db: sqlite3.Connection, *, sorries: Iterable[str], prover: str, rung: int
) -> set[tuple[str, str, str]]:
    """Return the budgets of the attempts on sorries: each as the sorry, its file's blob and the budget's name."""
    rows = db.execute(
        "SELECT DISTINCT sorry, blob, budget FROM attempts WHERE sorry IN (SELECT value FROM json_each(?)) "
        "AND prover = ? AND rung = ?",
        (json.dumps(sorted(sorries)), prover, rung),
    )
    return {(sorry, blob, budget) for sorry, blob, budget in rows}


def _pairs(db: sqlite3.Connection, statement: str, *values: str) -> list[tuple[str, int]]:
    return [(row[0], row[1]) for row in db.execute(statement, values)]


def _run(db: sqlite3.Connection, cls: type[Row], name: str, **parameters: str | int) -> list[Row]:
    """Run a statement of queries.sql, from behind its columns."""
    table = {CommitRow: "commits", SorryRow: "sorries"}[cls]
    rows = db.execute(f"{select(cls, table)} {statements('view/queries')[name]}", parameters)
    return make_all(cls, rows)


_THEOREM_WAYS = (
    "name = ?1",
    "substr(theorem, 1, length(?1)) = ?1",
    "identity = ?1",
    "(repository, branch, theorem) IN (SELECT repository, branch, theorem FROM theorem_versions WHERE name = ?1)",
    "substr(name, -length(?1) - 1) = '.' || ?1",
)


def theorems_called(db: sqlite3.Connection, word: str) -> list[TheoremRow]:
    """Return the theorems meant by a word, on every branch with them, now or earlier, present ones first.

    The first of these ways with a match decides: the full name (now, or at its deletion), the beginning of
    the id, the identity of its present or last name and statement (`declarations.theorem`), an earlier name,
    the end of its name after a dot.
    """
    for way in _THEOREM_WAYS:
        order = "state = 'present' DESC, theorem, repository, branch"
        if result := read(db, TheoremRow, "theorems", conditions=[way], parameters=[word], order=order):
            return result
    return []


@dataclass(frozen=True, slots=True)
class KnownProofRow:
    """An accepted proof with the statement or goal of a sorry. `of` is the sorry it was found for."""

    sorry: str
    proof: str
    of: str
    tactics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CitableProofRow:
    """An accepted proof of a sorry, unchanged in the source of a branch.

    `goal` is Lean's, "" if unknown; `statement` is the declaration's.
    """

    sorry: str
    proof: str
    declaration: str
    statement: str
    goal: str
    tactics: tuple[str, ...]


def known_proofs(db: sqlite3.Connection, *, repository: str, sorries: Iterable[str]) -> list[KnownProofRow]:
    """Return proofs with the statement or the goal of one of these sorries, the newest first.

    The same statement: the sorry of the same number in a declaration of the repository with the same
    statement, in any name, file and branch; the same goal: as printed by Lean. The proof need not work here:
    the context may differ.

    Args:
        db: the view.
        repository: whose sorries.
        sorries: ids.
    """
    rows = db.execute(
        statements("view/queries")["known_proofs"],
        {"repository": repository, "sorries": json.dumps(sorted(sorries))},
    )
    return [KnownProofRow(row[0], row[1], row[2], tuple(json.loads(row[3]))) for row in rows]


def citable_proofs(
    db: sqlite3.Connection, *, repository: str, branch: str, most: int
) -> list[CitableProofRow]:
    """Return the proofs of a branch's theorems whose sorry is unchanged in the source; the newest first.

    Without rejected, conditional and unchecked proofs, those of a sorry with another statement or other
    surroundings since, and texts for several sorries at once, none of which they prove alone.

    Args:
        db: the view.
        repository: whose theorems.
        branch: of it.
        most: how many at most.
    """
    rows = db.execute(
        statements("view/queries")["citable_proofs"],
        {
            "repository": repository,
            "branch": branch,
            "kinds": json.dumps(sorted(PROVABLE_KINDS)),
            "most": most,
        },
    )
    return [
        CitableProofRow(row[0], row[1], row[2], row[3], row[4], tuple(json.loads(row[5]))) for row in rows
    ]


def behind(proof: ProofRow, attempts: Iterable[Tried]) -> Tried | None:
    """Return the attempt behind a proof; None if it is not recorded (its job ended between the two).

    If another job has repeated the attempt since, it is the first such attempt to end after the discovery.

    Args:
        attempts: those on its sorry, oldest first.
    """
    key = (proof.blob, proof.prover, proof.rung)
    tried = [row for row in attempts if (row.blob, row.prover, row.rung) == key]
    of_its_job = [row for row in tried if row.job == proof.job]
    after = [row for row in tried if row.outcome == "found" and row.recorded_at >= proof.found_at]
    return next(iter(of_its_job or after), None)


@dataclass(frozen=True, slots=True)
class SorryProgress:
    """The progress on an open sorry in the present version of its file.

    `rungs` have an attempt, with any model and budget; `goals_left` is of the newest attempt with a number.
    `settled`: it has a candidate or an unrejected proof, or its negation has a proof: nothing is left to
    find.
    """

    rungs: frozenset[int]
    goals_left: int | None
    settled: bool


def reached(db: sqlite3.Connection, *, repository: str, branch: str) -> dict[str, SorryProgress]:
    """Return the progress on the open sorries of a branch, by id.

    Sorries without an attempt and a candidate are left out.
    """
    here = {"repository": repository, "branch": branch}
    rungs: dict[str, set[int]] = {}
    goals: dict[str, int] = {}
    for sorry, rung, goals_left in db.execute(_ATTEMPTS, here):
        rungs.setdefault(sorry, set()).add(rung)
        if goals_left is not None:
            goals[sorry] = goals_left
    settled = {sorry for (sorry,) in db.execute(_SETTLED, here)}
    false = disproved(db, rungs)
    settled |= {sorry for sorry in rungs if (repository, branch, sorry) in false}
    return {
        sorry: SorryProgress(frozenset(rungs.get(sorry, ())), goals.get(sorry), sorry in settled)
        for sorry in (*rungs, *(settled - set(rungs)))
    }


def files_with_exercises(db: sqlite3.Connection, *, repository: str, branch: str, at_least: int) -> set[str]:
    """Return a branch's files with "exercise" in their text and this many sorries, now or earlier."""
    rows = db.execute(_EXERCISES, {"repository": repository, "branch": branch, "at_least": at_least})
    return {path for (path,) in rows}


def seconds_since(db: sqlite3.Connection, moment: str) -> float:
    """Return the seconds of search above rung 0 recorded since a moment (in the view's form)."""
    row = db.execute(
        "SELECT coalesce(sum(seconds), 0) FROM attempts WHERE rung > 0 AND recorded_at >= ?", (moment,)
    ).fetchone()
    return float(row[0])


_EXERCISES = """
SELECT path FROM sorries WHERE repository = :repository AND branch = :branch AND EXISTS (
    SELECT 1 FROM files WHERE files.repository = sorries.repository AND files.branch = sorries.branch
      AND files.path = sorries.path AND files.exercise_words > 0)
GROUP BY path HAVING count(*) >= :at_least
"""
_OPEN = (
    "FROM sorries AS s CROSS JOIN {} AS t ON t.sorry = s.sorry AND t.blob = s.blob "
    "WHERE s.repository = :repository AND s.branch = :branch AND s.state = 'open'"
)
_ATTEMPTS = f"SELECT t.sorry, t.rung, t.goals_left {_OPEN.format('attempts')} ORDER BY t.recorded_at, t.rung"
_SETTLED = f"SELECT t.sorry {_OPEN.format('proofs')} AND t.state <> 'rejected'"


def pauses(db: sqlite3.Connection) -> list[PauseRow]:
    """Return the pauses, by name."""
    return read(db, PauseRow, "pauses", order="work")


def triggers(db: sqlite3.Connection) -> list[TriggerRow]:
    """Return the newest trigger of each work and repository, the oldest first."""
    return read(db, TriggerRow, "triggers", order="seq")


def claims(db: sqlite3.Connection, *, repository: str | None = None, now: str = "") -> list[ClaimRow]:
    """Return the agents' claims on sorries with a lease beyond `now` (in the view's form)."""
    return read(
        db,
        ClaimRow,
        "claims",
        equal={"repository": repository},
        conditions=["until > ?"],
        parameters=[now],
        order="sorry",
    )


def failures_of(db: sqlite3.Connection, *, job: str) -> int:
    """Return the number of failed attempts of a job, without preempted and interrupted ones."""
    result = db.execute("SELECT count(*) FROM job_attempts WHERE job = ? AND outcome = 'failed'", (job,))
    return int(result.fetchone()[0])
