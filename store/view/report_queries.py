"""Queries of reports, metrics and notifications. Read-only, with the standard library alone."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from store.view import queries
from store.view.counts import SorryCounts, counted_branches, on_counted_branch, sorry_counts, theorem_counts
from store.view.queries import on_watched_branch
from store.view.reading import columns, make_all, read
from store.view.rows import (
    IN_SOURCE,
    TURNS,
    CheckpointRow,
    NotifierRow,
    PolledRepository,
    ProofRow,
    SorryRow,
)


def notifiers(db: sqlite3.Connection) -> list[NotifierRow]:
    """Return all channels ever switched on, by name."""
    return read(db, NotifierRow, "notifiers", order="channel")


def recorded_theorems(db: sqlite3.Connection) -> int:
    """Count the theorems of all imports and traces."""
    return int(db.execute("SELECT count(*) FROM traced_theorems").fetchone()[0])


class Turn(NamedTuple):
    """A step that opened or closed a sorry (one of `rows.TURNS`)."""

    repository: str
    branch: str
    sorry: str
    step: str
    at: str
    author: str
    pull_request: int | None
    filled_by: str | None
    first_read: bool
    """The sorry is from its branch's first scan, and not new."""

    @property
    def what(self) -> str:
        """Return "opened", "removed", or the filler: "by_people", "by_us"."""
        if self.step != "filled":
            return "opened" if self.step in ("opened", "reopened") else "removed"
        return "by_us" if self.filled_by == "us" else "by_people"


class ProofVerdict(NamedTuple):
    """The number of proofs with this state and, if rejected, this reason."""

    state: str
    reason: str
    n: int


class Searches(NamedTuple):
    """The work of one prover with one model: attempts by outcome, seconds, tokens, and cost.

    `priced` of the attempts have a price; `usd` is None if none has.
    """

    prover: str
    rung: int
    model: str
    attempts: int
    found: int
    disproved: int
    seconds: float
    tokens: int
    priced: int
    usd: float | None


_TURNS = (
    # The conditions are tested on branches, not on every step.
    "WITH lines AS MATERIALIZED (SELECT DISTINCT repository, branch FROM sorries), "
    "shown AS MATERIALIZED (SELECT * FROM lines WHERE {}) "
    "SELECT repository, branch, sorry, step, at, author, pull_request, filled_by, step = 'opened' AND EXISTS (SELECT 1 "
    "FROM commits AS c WHERE c.repository = sorry_steps.repository AND c.branch = sorry_steps.branch "
    "AND c.sha = sorry_steps.sha AND c.baseline = 1) FROM sorry_steps "
    f"WHERE step IN {TURNS!r} AND recorded_at >= ? "
    "AND (repository, branch) IN (SELECT * FROM shown) ORDER BY seq {}, repository, branch, sorry"
)


def turns(db: sqlite3.Connection) -> list[Turn]:
    """Return the openings and closings of the sorries of counted branches, by time.

    A commit is never earlier than the one before it on its branch, whatever its date.
    """
    newest: dict[tuple[str, str], str] = {}
    result = []
    for turn in map(Turn._make, db.execute(_TURNS.format(on_counted_branch("lines"), ""), ("",))):
        branch = turn.repository, turn.branch
        newest[branch] = max(newest.get(branch, ""), turn.at)
        result.append(turn._replace(at=newest[branch]))
    return sorted(result, key=attrgetter("at"))


class PastNumber(NamedTuple):
    """The number of a repository's sorries at a time before it was watched."""

    repository: str
    at: str
    sorries: int


def past(db: sqlite3.Connection) -> list[PastNumber]:
    """Return the numbers of sorries from before the first sight, on counted branches, by time.

    Without times at which a repository's number is unknown.
    """
    rows = [
        (PastNumber(repository, at, sorries), begins)
        for repository, at, sorries, begins in db.execute(
            "SELECT repository, committed_at, sorries, begins FROM past_commits "
            f"WHERE sorries IS NOT NULL AND {on_counted_branch('past_commits')} "
            "ORDER BY committed_at, repository, sha"
        )
    ]
    whole = {row.repository for row, begins in rows if begins}
    starts: dict[str, str] = {}
    for row, _ in rows:
        starts.setdefault(row.repository, "" if row.repository in whole else row.at)
    since = max(starts.values(), default="")
    return [row for row, _ in rows if row.at >= since]


def turns_since(db: sqlite3.Connection, since: str, *, every_branch: bool = False) -> list[Turn]:
    """Return the openings and closings of sorries recorded since a moment, the newest first.

    Each is of a counted branch; with `every_branch` also of another watched branch, if no counted one has it.
    """
    condition = (on_watched_branch if every_branch else on_counted_branch)("lines")
    result = [*map(Turn._make, db.execute(_TURNS.format(condition, "DESC"), (since,)))]
    counted = counted_branches(db)
    branches: dict[tuple[str, str, str], str] = {}
    for one in sorted(result, key=lambda turn: (turn.repository, turn.branch) not in counted):
        branches.setdefault((one.repository, one.sorry, one.what), one.branch)
    return [one for one in result if branches[one.repository, one.sorry, one.what] == one.branch]


_IN_SOURCE = """
WITH lines AS MATERIALIZED (
  -- Of the branches that have a sorry the default one stands for all, else the first.
  SELECT b.repository, b.branch,
    row_number() OVER (PARTITION BY b.repository ORDER BY b.branch IS NOT home.default_branch, b.branch) AS place
  FROM (SELECT DISTINCT repository, branch FROM sorries) AS b
    LEFT JOIN repositories AS home ON home.repository = b.repository
  WHERE {watched})
SELECT {columns} FROM lines CROSS JOIN sorries AS s USING (repository, branch)
WHERE s.{in_source} GROUP BY s.repository, s.sorry
HAVING min(place)  -- beside it SQLite takes the columns from the row that has the least
ORDER BY s.repository, s.path, s.byte_start, s.sorry
"""


def sorries_here(db: sqlite3.Connection) -> list[SorryRow]:
    """Return the sorries in the source, each once for all branches, by repository, file and place."""
    names = ", ".join(f's."{name}"' for name in columns(SorryRow))
    return make_all(
        SorryRow,
        db.execute(_IN_SOURCE.format(in_source=IN_SOURCE, columns=names, watched=on_watched_branch("b"))),
    )


def has_rows(db: sqlite3.Connection, tables: Sequence[str]) -> bool:
    """Return whether one of these tables has a row."""
    exist = (f"EXISTS (SELECT 1 FROM {table})" for table in tables)
    return bool(db.execute(f"SELECT {' OR '.join(exist)}").fetchone()[0])


def proof_verdicts(db: sqlite3.Connection) -> list[ProofVerdict]:
    """Count proofs by state and reason, the most frequent first."""
    rows = db.execute(
        "SELECT state, reason, count(*) FROM proofs GROUP BY state, reason "
        "ORDER BY count(*) DESC, state, reason"
    )
    return [ProofVerdict(state, reason, n) for state, reason, n in rows]


def newest_proofs(db: sqlite3.Connection, limit: int, *, verified: bool) -> list[ProofRow]:
    """Return the proofs found last, the newest first: Lean's verified ones, or all others."""
    conditions = [f"state {'=' if verified else '<>'} 'verified'"]
    return read(db, ProofRow, "proofs", conditions=conditions, order="found_at DESC, proof", limit=limit)


def searches(db: sqlite3.Connection) -> list[Searches]:
    """Add up the attempts on sorries, by prover and model, the lowest rung first."""
    rows = db.execute(
        "SELECT prover, rung, model, count(*), sum(outcome = 'found'), sum(outcome = 'disproved'), "
        "sum(seconds), sum(prompt_tokens + completion_tokens), count(usd), sum(usd) FROM attempts "
        "GROUP BY prover, rung, model ORDER BY rung, prover, model"
    )
    return [Searches(prover, rung, model, *counted) for prover, rung, model, *counted in rows]


GOING = ("running", "failed", "interrupted", "cancelled")
"""The states of jobs for a user to look at; successful ones are only counted at their end."""


class JobState(NamedTuple):
    """The number of jobs of a kind in a state."""

    kind: str
    state: str
    n: int


class JobEnds(NamedTuple):
    """The number of attempts of a kind with an outcome, within one interval of `store.view.projections.jobs`."""

    kind: str
    outcome: str
    bucket: int
    n: int
    seconds: float


class ProofVerdicts(NamedTuple):
    """The number of verdicts of one kind."""

    verdict: str
    n: int


class Recall(NamedTuple):
    """Recall at k of the retriever in use on a repository's newest test set (None: of several), from 0 to 1."""

    repository: str | None
    k: int
    recall: float


@dataclass(frozen=True, slots=True)
class ViewNumbers:
    """All numbers of one moment."""

    position: int
    stopped: bool
    repositories: tuple[PolledRepository, ...]
    """The watched and enabled ones."""
    sorries: dict[str, SorryCounts]
    theorems: tuple[tuple[str, int], ...]
    jobs: tuple[JobState, ...]
    job_ends: tuple[JobEnds, ...]
    proofs: tuple[ProofVerdicts, ...]
    promoted: tuple[CheckpointRow, ...]
    recalls: tuple[Recall, ...]
    paused: tuple[str, ...]
    notifiers: tuple[NotifierRow, ...]


def numbers(db: sqlite3.Connection) -> ViewNumbers:
    """Read all numbers."""
    checkpoint = queries.checkpoint(db)
    return ViewNumbers(
        position=0 if checkpoint is None else checkpoint.seq,
        stopped=checkpoint is not None and checkpoint.stopped_seq is not None,
        repositories=tuple(row for row in queries.repositories(db, watched_only=True) if row.enabled),
        sorries=sorry_counts(db),
        theorems=tuple(theorem_counts(db).items()),
        jobs=tuple(
            JobState(*row)
            for row in db.execute(
                f"SELECT kind, state, count(*) FROM jobs WHERE state IN {GOING!r} GROUP BY state, kind "
                "ORDER BY kind, state"
            )
        ),
        job_ends=tuple(
            JobEnds(*row)
            for row in db.execute(
                "SELECT kind, outcome, bucket, n, seconds FROM job_tallies ORDER BY kind, outcome, bucket"
            )
        ),
        proofs=tuple(
            ProofVerdicts(*row) for row in db.execute("SELECT verdict, n FROM proof_tallies ORDER BY verdict")
        ),
        promoted=tuple(read(db, CheckpointRow, "checkpoints", conditions=["promoted = 1"], order="model")),
        recalls=tuple(_recalls(db)),
        paused=tuple(row.work for row in queries.pauses(db)),
        notifiers=tuple(notifiers(db)),
    )


def _recalls(db: sqlite3.Connection) -> list[Recall]:
    rows = db.execute(
        "SELECT e.repository, e.metrics_json, max(e.recorded_at) FROM checkpoints AS c "
        "JOIN evaluations AS e ON e.checkpoint = c.checkpoint "
        "WHERE c.model = 'retriever' AND c.promoted = 1 AND e.split = 'test' "
        "GROUP BY e.repository ORDER BY e.repository"
    )
    result = []
    for repository, metrics, _ in rows:
        for name, value in sorted(json.loads(metrics).items()):
            at, separator, k = name.partition("@")
            if separator and at == "recall" and k.isdecimal():
                result.append(Recall(repository, int(k), float(value)))
    return result
