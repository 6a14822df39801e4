"""What the report shows, read from the view alone."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pipeline.report.data import (
    SORRY_COLUMNS,
    MachineTime,
    ProofCount,
    Rejection,
    ReportData,
    RepositoryState,
)
from pipeline.report.history import followed
from pipeline.report.recall import matrices
from store import model_queries, queries, report_queries
from store.report_queries import JobTime, ProofVerdict

MOST_PROOFS = 100
"""Proofs that are shown with their text; the newest."""


def gather(view: sqlite3.Connection, *, made_at: str) -> ReportData:
    """Read what the report shows.

    Args:
        view: opened by `queries.connect`, or a copy of an earlier moment.
        made_at: when the report is made, UTC ISO-8601.
    """
    service = queries.service(view)
    checkpoints = model_queries.checkpoints(view)
    evaluations = model_queries.evaluations(view)
    verdicts = report_queries.proof_verdicts(view)
    history = followed(report_queries.turns(view))
    return ReportData(
        made_at=made_at,
        position=queries.position(view),
        lean="" if service is None else service.lean,
        lean_detail="" if service is None else service.lean_detail,
        repositories=_repositories(view, history.filled),
        history=history.moments,
        proofs=_proofs(verdicts),
        proofs_found=tuple(report_queries.newest_proofs(view, MOST_PROOFS)),
        rejections=tuple(
            Rejection(row.reason, row.state == "conditional", row.simulated, row.n)
            for row in sorted(verdicts, key=lambda row: row.simulated)
            if row.state in ("rejected", "conditional")
        ),
        matrices=matrices(
            [row for row in checkpoints if row.model == "retriever"],
            [row for row in evaluations if row.model == "retriever"],
        ),
        trainings=tuple(checkpoints),
        failed_trainings=tuple(
            row for row in queries.jobs(view, kind="train") if row.state in ("failed", "interrupted")
        ),
        measurements=tuple(evaluations),
        machine_time=_machine_time(report_queries.job_times(view)),
    )


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


def _machine_time(rows: Sequence[JobTime]) -> tuple[MachineTime, ...]:
    together: dict[tuple[str, bool], list[JobTime]] = {}
    for row in rows:
        together.setdefault((row.kind, row.simulated), []).append(row)
    return tuple(
        MachineTime(
            kind,
            simulated,
            jobs=sum(row.n for row in of_kind),
            running=sum(row.n for row in of_kind if row.state == "running"),
            failed=sum(row.n for row in of_kind if row.state == "failed"),
            seconds=sum(row.seconds or 0.0 for row in of_kind),
            peak_rss_bytes=max(
                (row.peak_rss_bytes for row in of_kind if row.peak_rss_bytes is not None), default=None
            ),
        )
        for (kind, simulated), of_kind in together.items()
    )
