"""Read the view's knowledge of a branch at the start of a job: the `known` of a scan's and a trace's specification, and
the input `known.json` of a prove job.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable

from pipeline.jobs.specs import (
    MOST_LEMMAS,
    EarlierAttempt,
    KnownFile,
    KnownProof,
    Lemma,
    OpenSorry,
    ProveKnown,
    ScanKnown,
    Stated,
    StatedGoal,
    TraceKnown,
)
from store.documents.attempts import describe_attempts
from store.domain.life import GivenProof
from store.domain.matching import LivingSorry
from store.domain.records import Seen, TraceGap
from store.events.places import SorryPlace
from store.text import cut
from store.view import queries, trace_queries, transfers
from store.view.rows import SorryGoalRow

MOST_PROOFS = 3
"""The maximum of known proofs for a sorry, the newest first."""
_MOST_ATTEMPTS = 10
_LONGEST_MESSAGE = 1000


def known_to_scan(
    view: sqlite3.Connection, *, repository: str, branch: str, by_files: bool = False
) -> ScanKnown:
    """Return the view's knowledge for a scan: the sorries and the proofs so far, and the files if it compares by
    them.
    """
    rows = queries.sorries(view, repository=repository, branch=branch)
    followed, declarations = queries.taken_of(view, repository=repository)
    of_branch = next((row for row in queries.branches(view, repository) if row.branch == branch), None)
    files = None
    if by_files:
        files = {file.path: file.blob for file in queries.files(view, repository=repository, branch=branch)}
    return ScanKnown(
        files=files,
        sorries=tuple(
            LivingSorry(row.sorry, SorryPlace(**{name: getattr(row, name) for name in SorryPlace.__slots__}))
            for row in rows
            if row.in_source
        ),
        closed=frozenset(row.sorry for row in rows if not row.in_source),
        proofs=tuple(
            GivenProof(proof.proof, proof.sorry, proof.declaration_text_hash)
            for proof in queries.proofs(view, repository=repository)
            if proof.state == "verified"
        ),
        sorries_of_others=sum(number for name, number in followed.items() if name != branch),
        declarations=declarations,
        projects=() if of_branch is None else of_branch.lake_projects,
        challenges=() if of_branch is None else tuple(of_branch.challenges),
    )


def known_to_trace(
    view: sqlite3.Connection, *, repository: str, branch: str, project: str = ""
) -> TraceKnown:
    """Return the view's knowledge for a trace: the line's files, and the branch's open sorries with their goals so
    far.
    """
    line = trace_queries.branch_line(branch, project)
    goals = {row.sorry: row for row in trace_queries.sorry_goals(view, repository=repository, branch=branch)}
    return TraceKnown(
        line=line,
        after=trace_queries.line_position(view, repository, line),
        files={
            file.path: KnownFile(
                key=file.key,
                theorems=file.n_theorems,
                premises=file.n_premises,
                tactics=file.n_tactics,
                failed=file.error is not None,
                seen=None if file.seen is None else Seen(*file.seen),
                gaps=tuple(TraceGap.from_json(gap) for gap in file.gaps),
            )
            for file in trace_queries.line_files(view, repository, line)
        },
        sorries=tuple(
            OpenSorry(
                sorry=row.sorry,
                path=row.path,
                blob=row.blob,
                byte_start=row.byte_start,
                statement_hash=row.statement_hash,
                context_hash=row.context_hash,
                stated=_stated(goals.get(row.sorry)),
            )
            for row in queries.sorries(view, repository=repository, branch=branch)
            if row.in_source
        ),
    )


def _stated(row: SorryGoalRow | None) -> StatedGoal | None:
    return None if row is None else StatedGoal(row.goal, row.statement_hash, row.context_hash)


def known_to_prove(
    view: sqlite3.Connection,
    *,
    repository: str,
    branch: str,
    sorries: Collection[str],
    with_attempts: bool = False,
) -> ProveKnown:
    """Return the known proofs of the same statements as these sorries', the same statements elsewhere, and the lemmas
    citable in a search; `with_attempts`: also the newest attempts on them.

    Raises:
        LogError: the view is unreadable.
    """
    result: dict[str, dict[tuple[str, ...], KnownProof]] = {}
    for row in queries.known_proofs(view, repository=repository, sorries=sorries):
        offered = result.setdefault(row.sorry, {})
        if row.tactics and len(offered) < MOST_PROOFS:
            offered.setdefault(row.tactics, KnownProof(f"the tactics of proof {row.proof}", row.tactics))
    lemmas: dict[str, Lemma] = {}
    for one in queries.citable_proofs(view, repository=repository, branch=branch, most=MOST_LEMMAS):
        if one.tactics:
            lemma = Lemma(one.sorry, one.proof, one.declaration, one.statement, one.goal, one.tactics)
            lemmas.setdefault(one.sorry, lemma)
    return ProveKnown(
        proofs={sorry: tuple(offered.values()) for sorry, offered in result.items()},
        stated={
            sorry: tuple(_stated_elsewhere(row, repository) for row in rows)
            for sorry, rows in transfers.transfers(
                view, repository=repository, branch=branch, sorries=sorries
            ).items()
        },
        lemmas=tuple(lemmas.values()),
        attempts=_attempts(view, sorries) if with_attempts else {},
    )


def _stated_elsewhere(row: transfers.Transfer, repository: str) -> Stated:
    return Stated(
        row.full_name,
        f"{row.repository}, {row.path}",
        # A package of another repository may also be one of this.
        row.imported or row.package or row.repository == repository,
        row.statement,
        row.goal,
        row.proof,
    )


def _attempts(view: sqlite3.Connection, sorries: Iterable[str]) -> dict[str, tuple[EarlierAttempt, ...]]:
    return {
        sorry: tuple(
            EarlierAttempt(
                one.by,
                one.outcome,
                "",
                # A program's detail ends with its output: the next program must not see it.
                [
                    cut(said, _LONGEST_MESSAGE)
                    for said in (one.best, "" if one.rung == 5 else one.detail)
                    if said
                ],
            )
            for one in result[-_MOST_ATTEMPTS:]
        )
        for sorry, result in describe_attempts(view, sorries).items()
    }
