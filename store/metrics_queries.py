"""What Prometheus is told of the view: numbers that an index, a tally or a small table has, never a scan of what grows.

Read-only and light, like `store.queries`.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import NamedTuple

from store import notify_queries, queries, report_queries, work_queries
from store.notify_queries import NotifierRow
from store.report_queries import SorryCount

GOING = ("running", "failed", "interrupted", "cancelled")
"""The states of jobs that somebody may have to look at; those that ended well are only counted as they end."""


class RepositoryAge(NamedTuple):
    """A watched, enabled repository: its state, when it was last asked (None: never), since when polls fail (None)."""

    repository: str
    state: str
    checked_at: str | None
    failing_since: str | None


class JobState(NamedTuple):
    """How many jobs of a kind are in a state."""

    kind: str
    state: str
    n: int


class JobEnds(NamedTuple):
    """How many attempts of a kind had an outcome, within one interval of `store.projections.tallies`."""

    kind: str
    outcome: str
    simulated: bool
    bucket: int
    n: int
    seconds: float


class ProofVerdicts(NamedTuple):
    """How often a verdict was given."""

    verdict: str
    simulated: bool
    n: int


class Promoted(NamedTuple):
    """A checkpoint in use."""

    model: str
    checkpoint: str
    simulated: bool


class Recall(NamedTuple):
    """What the retriever in use recalls at k on a repository's newest test set (None: of several), from 0 to 1."""

    repository: str | None
    simulated: bool
    k: int
    recall: float


@dataclass(frozen=True, slots=True)
class ViewNumbers:
    """Everything at once, of one moment."""

    position: int
    stopped: bool
    repositories: tuple[RepositoryAge, ...]
    sorries: tuple[SorryCount, ...]
    theorems: tuple[tuple[str, int], ...]
    jobs: tuple[JobState, ...]
    job_ends: tuple[JobEnds, ...]
    proofs: tuple[ProofVerdicts, ...]
    promoted: tuple[Promoted, ...]
    recalls: tuple[Recall, ...]
    paused: tuple[str, ...]
    notifiers: tuple[NotifierRow, ...]


def numbers(db: sqlite3.Connection) -> ViewNumbers:
    """Ask all of it."""
    checkpoint = queries.checkpoint(db)
    return ViewNumbers(
        position=0 if checkpoint is None else checkpoint.seq,
        stopped=checkpoint is not None and checkpoint.stopped_seq is not None,
        repositories=tuple(
            RepositoryAge(*row)
            for row in db.execute(
                "SELECT r.repository, r.state, p.checked_at, r.failing_since FROM repositories AS r "
                "LEFT JOIN poll_states AS p ON p.repository = r.repository "
                "WHERE r.watched = 1 AND r.enabled = 1 ORDER BY r.repository"
            )
        ),
        sorries=tuple(report_queries.sorry_counts(db)),
        theorems=tuple(
            (repository, n)
            for repository, n in db.execute(
                "SELECT repository, sum(declarations) FROM tallies "
                f"WHERE kind IN {queries.THEOREM_KINDS!r} AND {queries.on_watched_branch('tallies')} "
                "GROUP BY repository ORDER BY repository"
            )
        ),
        jobs=tuple(
            JobState(*row)
            for row in db.execute(
                f"SELECT kind, state, count(*) FROM jobs WHERE state IN {GOING!r} GROUP BY state, kind "
                "ORDER BY kind, state"
            )
        ),
        job_ends=tuple(
            JobEnds(kind, outcome, bool(simulated), bucket, n, seconds)
            for kind, outcome, simulated, bucket, n, seconds in db.execute(
                "SELECT kind, outcome, simulated, bucket, n, seconds FROM job_tallies "
                "ORDER BY kind, outcome, simulated, bucket"
            )
        ),
        proofs=tuple(
            ProofVerdicts(verdict, bool(simulated), n)
            for verdict, simulated, n in db.execute(
                "SELECT verdict, simulated, n FROM proof_tallies ORDER BY verdict, simulated"
            )
        ),
        promoted=tuple(
            Promoted(model, checkpoint, bool(simulated))
            for model, checkpoint, simulated in db.execute(
                "SELECT model, checkpoint, simulated FROM checkpoints WHERE promoted = 1 ORDER BY model"
            )
        ),
        recalls=tuple(_recalls(db)),
        paused=tuple(row.work for row in work_queries.pauses(db)),
        notifiers=tuple(notify_queries.notifiers(db)),
    )


def _recalls(db: sqlite3.Connection) -> list[Recall]:
    rows = db.execute(
        "SELECT e.repository, e.simulated, e.metrics_json, max(e.recorded_at) FROM checkpoints AS c "
        "JOIN evaluations AS e ON e.checkpoint = c.checkpoint "
        "WHERE c.model = 'retriever' AND c.promoted = 1 AND e.split = 'test' "
        "GROUP BY e.repository ORDER BY e.repository"
    )
    found = []
    for repository, simulated, metrics, _ in rows:
        for name, value in sorted(json.loads(metrics).items()):
            at, separator, k = name.partition("@")
            if separator and at == "recall" and k.isdecimal():
                found.append(Recall(repository, bool(simulated), int(k), float(value)))
    return found
