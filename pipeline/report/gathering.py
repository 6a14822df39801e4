"""What the report shows, read from the view alone."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pipeline.prove.tree import Tree, TreeError
from pipeline.report import machine
from pipeline.report.data import (
    SORRY_COLUMNS,
    TRAINED_BY,
    ProofCount,
    Rejection,
    ReportData,
    RepositoryState,
    ShownProof,
)
from pipeline.report.history import followed
from pipeline.report.matrix import matrices
from pipeline.report.periods import over_time
from store.errors import DatabaseMissingError, LogError
from store.log.reader import LogReader
from store.view.queries import basic as queries
from store.view.queries import models as model_queries
from store.view.queries import proofs as proof_queries
from store.view.queries import reports as report_queries
from store.view.queries.reports import ProofVerdict
from store.view.rows import AttemptRow, JobRow, ProofRow

MOST_PROOFS = 50
"""Proofs that Lean verified which are shown with their text, and as many of the other texts; the newest."""
MOST_TREES = 20
"""Of each of the two, the newest that are shown with the tree of their search."""

Blob = Callable[[str], bytes]
"""Returns a payload of the log by its hash, as `LogReader.blob` does."""


def gather(view: sqlite3.Connection, *, made_at: str, blob: Blob | None = None) -> ReportData:
    """Read what the report shows, all of it as it is at one moment, whatever is recorded meanwhile.

    Args:
        view: opened by `queries.connect`, or a copy of an earlier moment.
        made_at: when the report is made, UTC ISO-8601.
        blob: reads the trees of searches, which are in the log; None: no log is at hand, and no tree is shown.
    """
    view.execute("BEGIN")
    try:
        return _gathered(view, made_at=made_at, blob=blob)
    finally:
        # An error of the disk may have ended it already; that error is the one to tell.
        if view.in_transaction:
            view.execute("ROLLBACK")


def _gathered(view: sqlite3.Connection, *, made_at: str, blob: Blob | None) -> ReportData:
    checkpoints = model_queries.checkpoints(view)
    evaluations = model_queries.evaluations(view)
    verdicts = report_queries.proof_verdicts(view)
    history = followed(report_queries.turns(view))
    ran = report_queries.ran(view)
    return ReportData(
        made_at=made_at,
        position=queries.position(view),
        service=queries.service(view),
        repositories=_repositories(view, history.filled),
        history=history.moments,
        flows=over_time(history.days),
        proofs=_proofs(verdicts),
        verified=_shown(view, blob, verified=True),
        others=_shown(view, blob, verified=False),
        searches=tuple(report_queries.searches(view)),
        rejections=tuple(
            Rejection(row.reason, row.state == "conditional", row.simulated, row.n)
            for row in sorted(verdicts, key=lambda row: row.simulated)
            if row.state in ("rejected", "conditional")
        ),
        matrices=matrices(checkpoints, evaluations),
        trainings=tuple(checkpoints),
        failed_trainings=_failed_trainings(view),
        measurements=tuple(evaluations),
        machine_time=machine.by_kind(ran, report_queries.job_counts(view)),
        machine_periods=machine.by_period(ran),
    )


def gather_at(view: sqlite3.Connection, events_db: Path, *, made_at: str) -> ReportData:
    """Like `gather`, with the trees of the log at this path.

    Where there is no log, or it cannot be read, the page is made without them, and says why.
    """
    try:
        log = LogReader.open(events_db)
    except DatabaseMissingError:
        return gather(view, made_at=made_at)
    except LogError as error:
        return gather(view, made_at=made_at, blob=_unread(str(error)))
    with log:
        return gather(view, made_at=made_at, blob=log.blob)


def _unread(reason: str) -> Blob:
    def blob(_sha256: str) -> bytes:
        raise LogError(reason)

    return blob


def _failed_trainings(view: sqlite3.Connection) -> tuple[JobRow, ...]:
    """Of all models, the newest start first."""
    found = [
        row
        for kind in TRAINED_BY
        for row in queries.jobs(view, kind=kind)
        if row.state in ("failed", "interrupted")
    ]
    return tuple(sorted(found, key=lambda row: row.started_at, reverse=True))


def _repositories(
    view: sqlite3.Connection, filled: Mapping[tuple[str, str], int]
) -> tuple[RepositoryState, ...]:
    counted = {(row.repository, row.state): row.n for row in report_queries.sorry_counts(view)}
    counted |= filled
    return tuple(
        RepositoryState(
            repository=row.repository,
            state=row.state,
            watched=row.watched,
            enabled=row.enabled,
            reason=row.reason,
            remedy=row.remedy,
            checked_at=row.checked_at,
            sorries={column: counted.get((row.repository, column), 0) for column in SORRY_COLUMNS},
        )
        for row in queries.repositories(view)
    )


def _proofs(verdicts: Iterable[ProofVerdict]) -> tuple[ProofCount, ...]:
    found: Counter[tuple[str, bool]] = Counter()
    for row in verdicts:
        found[row.state, row.simulated] += row.n
    ordered = sorted(found.items(), key=lambda item: (item[0][1], item[0][0]))
    return tuple(ProofCount(state, simulated, n) for (state, simulated), n in ordered)


def _shown(view: sqlite3.Connection, blob: Blob | None, *, verified: bool) -> tuple[ShownProof, ...]:
    rows = report_queries.newest_proofs(view, MOST_PROOFS, verified=verified)
    return tuple(_with_search(view, row, blob, number) for number, row in enumerate(rows))


def _with_search(view: sqlite3.Connection, row: ProofRow, blob: Blob | None, number: int) -> ShownProof:
    attempt = proof_queries.attempt_behind(view, row)
    if attempt is None:
        return ShownProof(row, no_tree="the attempt that found it is not recorded")
    if attempt.tree_sha256 is None:
        return ShownProof(row, attempt, no_tree="none was kept; only a search by tactics has one")
    if number >= MOST_TREES:
        return ShownProof(row, attempt, no_tree=f"only the newest {MOST_TREES} are drawn here")
    if blob is None:
        return ShownProof(row, attempt, no_tree="it is in the log, which was not at hand")
    return _read(row, attempt, attempt.tree_sha256, blob)


def _read(row: ProofRow, attempt: AttemptRow, sha256: str, blob: Blob) -> ShownProof:
    try:
        return ShownProof(row, attempt, Tree.from_json(json.loads(blob(sha256))))
    except (LogError, TreeError, ValueError, RecursionError) as error:
        # One payload or page of the log that is damaged costs this tree, and not the report.
        return ShownProof(row, attempt, no_tree=f"it cannot be read: {error}")
