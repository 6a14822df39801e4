"""Questions of reports, metrics and notifications. Read-only, with the standard library alone."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from store.domain.identity import line_url
from store.view import queries
from store.view.counts import SorryCounts, on_counted_branch, once, sorry_counts
from store.view.queries import is_disproved, on_watched_branch
from store.view.reading import make_all, read
from store.view.rows import NotifierRow, ProofRow, SorryRow


@dataclass(frozen=True, slots=True)
class FailingRow:
    """A watched repository whose polls have failed since `since` without a break."""

    repository: str
    since: str
    problem: str
    reason: str
    remedy: str


def notifiers(db: sqlite3.Connection) -> list[NotifierRow]:
    """Return the channels that ever were switched on, by name."""
    return read(db, NotifierRow, "notifiers", order="channel")


def failing_untold(db: sqlite3.Connection, before: str) -> list[FailingRow]:
    """Return the repositories that began to fail before a moment, and of which no `repository_failing` says so yet.

    An empty repository is reachable, and does not count.
    """
    rows = db.execute(
        "SELECT repository, failing_since, state, reason, remedy FROM repositories WHERE watched = 1 AND enabled = 1 "
        "AND failing_told = 0 AND failing_since <= ? AND state <> 'empty' ORDER BY repository",
        (before,),
    )
    return make_all(FailingRow, rows)


TURNS = ("opened", "reopened", "filled", "removed", "restated", "became an axiom", "unchecked", "hidden")
"""The steps at which a sorry comes into the source, or goes."""


class Turn(NamedTuple):
    """A step at which a sorry came or went (one of `TURNS`); `detail` is the step's."""

    repository: str
    branch: str
    sorry: str
    step: str
    recorded_at: str
    detail: str

    @property
    def what(self) -> str:
        """Return "opened", "removed", or who filled it: "by_people", "by_us", "by_simulation"."""
        if self.step != "filled":
            return "opened" if self.step in ("opened", "reopened") else "removed"
        # The view keeps who filled a sorry as its state now; of an earlier filling only the step's words tell.
        if "SIMULATED proof" in self.detail:
            return "by_simulation"
        return "by_us" if self.detail.startswith("by us") else "by_people"


@dataclass(frozen=True, slots=True)
class Spot:
    """A sorry and its last known place, which is that at the commit `sha`."""

    repository: str
    branch: str
    sorry: str
    declaration: str
    path: str
    line: int
    sha: str

    @property
    def url(self) -> str:
        """Return the address of its line at its commit; "" where there is none."""
        return line_url(self.repository, self.sha, self.path, self.line)


@dataclass(frozen=True, slots=True)
class News:
    """A sorry that came or went: `what` is `Turn.what`. `baseline`: at the first commit that was read of the branch.

    `here`: it is in the source now.
    """

    spot: Spot
    what: str
    at: str
    baseline: bool
    here: bool


@dataclass(frozen=True, slots=True)
class ShownFalse:
    """An open sorry whose negation was proved in the present version of its file, when, and by what."""

    spot: Spot
    at: str
    prover: str
    rung: int
    simulated: bool


@dataclass(frozen=True, slots=True)
class Ready:
    """A sorry in the source with a proof that Lean verified at the commit `checked_sha`, and its patch."""

    spot: Spot
    proof: str
    grade: str
    checked_sha: str
    checked_at: str
    pull_request_url: str | None
    doubts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Since:
    """A sorry in the source, and since when it is known; `baseline`: it was there before."""

    spot: Spot
    at: str
    baseline: bool


@dataclass(frozen=True, slots=True)
class Stuck:
    """Jobs of a kind that ended in failure in this way, each the newest of its kind on its branch."""

    kind: str
    repository: str
    reason: str
    message: str
    remedy: str
    simulated: bool
    n: int


@dataclass(frozen=True, slots=True)
class Tried:
    """What one prover with one model did on a sorry: `n` attempts, and the newest of them.

    `blob` is the version of the file that this one had. The other fields are `store.view.rows.AttemptRow`'s.
    """

    sorry: str
    prover: str
    rung: int
    model: str
    outcome: str
    detail: str
    best: str
    goals_left: int | None
    simulated: bool
    blob: str
    recorded_at: str
    n: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sorry in the source with a text that a check accepted as far as it could judge, and the text's patch."""

    spot: Spot
    proof: str
    found_at: str


@dataclass(frozen=True, slots=True)
class Found:
    """A proof text of a sorry that is in the source and that no check rejected; the newest with its state."""

    sorry: str
    blob: str
    proof: str
    state: str
    simulated: bool
    reason: str
    found_at: str


class ProofVerdict(NamedTuple):
    """The number of proofs with this state and, if rejected, this reason."""

    state: str
    simulated: bool
    reason: str
    n: int


class JobCount(NamedTuple):
    """Jobs of one kind and state at their newest attempt, and the largest peak in bytes; None where none has one."""

    kind: str
    simulated: bool
    state: str
    n: int
    peak_rss_bytes: int | None


class AttemptTotals(NamedTuple):
    """Attempts that ended: of one kind, on one sort of device, all begun and ended on one day each; or a single one.

    `device` is "gpu", "cpu", or "unknown" where nothing recorded tells. `began` is the first one's beginning, `ended`
    the last one's end, `seconds` what they took together by the clock.
    """

    kind: str
    simulated: bool
    device: str
    began: str
    ended: str
    n: int
    seconds: float


class Searches(NamedTuple):
    """The work of one prover with one model: attempts by outcome, seconds, tokens, and cost.

    `priced` of the attempts have a price; `usd` is None where none has.
    """

    prover: str
    rung: int
    model: str
    simulated: bool
    attempts: int
    found: int
    disproved: int
    seconds: float
    tokens: int
    priced: int
    usd: float | None


def turns(db: sqlite3.Connection) -> Iterator[Turn]:
    """Yield the comings and goings of the sorries of branches that are counted, in the log's order."""
    rows = db.execute(
        "SELECT repository, branch, sorry, step, recorded_at, detail FROM sorry_steps "
        f"WHERE step IN {TURNS!r} AND {on_counted_branch('sorry_steps')} ORDER BY seq, repository, branch"
    )
    return (Turn(*row) for row in rows)


_SPOT = "s.repository, s.branch, s.sorry, s.declaration, s.path, s.line, s.updated_sha"
_HERE_STATES = ("open", "verified")
_HERE = f"s.state IN {_HERE_STATES!r}"
_BASELINE = (
    "EXISTS (SELECT 1 FROM commits AS c WHERE c.repository = s.repository AND c.branch = s.branch AND c.sha = {} "
    "AND c.baseline = 1)"
)


def news(db: sqlite3.Connection, since: str, *, every_branch: bool = False) -> list[News]:
    """Return the comings and goings of sorries since a moment, the newest first.

    They are those of the branches that are counted, each once; with `every_branch` those of all watched branches.
    """
    condition = on_watched_branch("s") if every_branch else on_counted_branch("s")
    rows = db.execute(
        f"SELECT {_SPOT}, t.step, t.recorded_at, t.detail, {_BASELINE.format('t.sha')}, {_HERE} "
        "FROM sorry_steps AS t JOIN sorries AS s USING (repository, branch, sorry) "
        f"WHERE t.step IN {TURNS!r} AND t.recorded_at >= ? "
        f"AND {condition} ORDER BY t.seq DESC, s.repository, s.branch, s.path, s.line",
        (since,),
    )
    found = [
        News(
            Spot(*spot),
            Turn(spot[0], spot[1], spot[2], step, at, detail).what,
            at,
            bool(baseline),
            bool(here),
        )
        for *spot, step, at, detail, baseline, here in rows
    ]
    if every_branch:
        return found
    branches: dict[tuple[str, str, str], str] = {}
    return [
        one
        for one in found
        if branches.setdefault((one.spot.repository, one.spot.sorry, one.what), one.spot.branch)
        == one.spot.branch
    ]


def sorries_here(db: sqlite3.Connection) -> list[SorryRow]:
    """Return the sorries in the source, each once for all branches."""
    condition = f"state IN {_HERE_STATES!r} AND {once('sorries', *_HERE_STATES)}"
    return read(db, SorryRow, "sorries", conditions=[condition])


def shown_false(db: sqlite3.Connection) -> list[ShownFalse]:
    """Return the sorries that are false as they stand, the newest first, those by the simulator last."""
    rows = db.execute(
        f"SELECT {_SPOT}, max(t.recorded_at), t.prover, t.rung, t.simulated "
        f"FROM attempts AS t JOIN sorries AS s ON s.repository = t.repository AND {is_disproved('s', by='t')} "
        f"WHERE {once('s', 'open')} "
        "GROUP BY s.repository, s.branch, s.sorry, t.simulated ORDER BY t.simulated, max(t.recorded_at) DESC, s.sorry"
    )
    return [
        ShownFalse(Spot(*spot), at, prover, rung, bool(simulated))
        for *spot, at, prover, rung, simulated in rows
    ]


def ready(db: sqlite3.Connection) -> list[Ready]:
    """Return the sorries with a verified proof that waits, the newest first."""
    rows = db.execute(
        f"SELECT {_SPOT}, p.proof, p.grade, p.checked_sha, p.checked_at, p.pull_request_url, "
        "p.doubts_json "
        "FROM sorries AS s JOIN proofs AS p ON p.proof = s.verified_proof "
        f"WHERE s.state = 'verified' AND {once('s', 'verified')} ORDER BY p.checked_at DESC, s.sorry, s.branch"
    )
    return [
        Ready(Spot(*row[:7]), proof, grade, sha, at, url, tuple(json.loads(doubts)))
        for row in map(tuple, rows)
        for proof, grade, sha, at, url, doubts in [row[7:]]
    ]


def candidates(db: sqlite3.Connection) -> list[Candidate]:
    """Return the open sorries with a patch that fits, and that Lean has seen and nobody could verify; newest first."""
    rows = db.execute(
        f"SELECT {_SPOT}, p.proof, max(p.found_at) FROM sorries AS s JOIN proofs AS p ON p.repository = s.repository "
        "AND p.branch = s.branch AND p.sorry = s.sorry AND p.checked_blob = s.blob "
        "WHERE s.state = 'open' AND p.state = 'candidate' AND p.simulated = 0 AND p.patch_sha256 IS NOT NULL "
        f"AND {once('s', 'open')} GROUP BY s.repository, s.branch, s.sorry "
        "ORDER BY p.found_at DESC, s.sorry, s.branch"
    )
    return [Candidate(Spot(*row[:7]), *row[7:]) for row in map(tuple, rows)]


def known_since(db: sqlite3.Connection, limit: int) -> list[Since]:
    """Return the sorries in the source that are known for longest."""
    rows = db.execute(
        f"SELECT {_SPOT}, s.opened_at, {_BASELINE.format('s.opened_sha')} FROM sorries AS s "
        f"WHERE {_HERE} AND {once('s', *_HERE_STATES)} ORDER BY s.opened_at, s.repository, s.path, s.line LIMIT ?",
        (limit,),
    )
    return [Since(Spot(*row[:7]), row[7], bool(row[8])) for row in map(tuple, rows)]


def baselines(db: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Return the first commit that was read of each branch, with its repository and branch before it."""
    return {
        tuple(row) for row in db.execute("SELECT repository, branch, sha FROM commits WHERE baseline = 1")
    }


def stuck(db: sqlite3.Connection) -> list[Stuck]:
    """Return what keeps failing, the most frequent first: jobs after which none of their kind and branch began."""
    rows = db.execute(
        "SELECT kind, coalesce(repository, ''), reason, message, remedy, simulated, count(*) FROM ("
        "SELECT kind, repository, branch, state, reason, message, remedy, simulated, max(started_at) AS newest "
        "FROM jobs GROUP BY kind, repository, branch, simulated) "
        "WHERE state = 'failed' GROUP BY kind, repository, reason, simulated ORDER BY simulated, count(*) DESC, 1, 2, 3"
    )
    return [
        Stuck(kind, repository, reason, message, remedy, bool(simulated), n)
        for kind, repository, reason, message, remedy, simulated, n in rows
    ]


_OF_THOSE_HERE = f"sorry IN (SELECT s.sorry FROM sorries AS s WHERE {_HERE})"


def tried(db: sqlite3.Connection) -> list[Tried]:
    """Return what was tried on the sorries in the source, by sorry, the lowest rung first."""
    rows = db.execute(
        "SELECT sorry, prover, rung, model, outcome, detail, best, goals_left, simulated, blob, max(recorded_at), "
        f"count(*) FROM attempts WHERE {_OF_THOSE_HERE} GROUP BY sorry, prover, rung, model, simulated "
        "ORDER BY sorry, simulated, rung, prover, model"
    )
    return make_all(Tried, rows)


def found(db: sqlite3.Connection) -> list[Found]:
    """Return the texts that wait for a verdict, or for another sorry, by sorry."""
    rows = db.execute(
        "SELECT sorry, blob, proof, state, simulated, reason, max(found_at) FROM proofs "
        f"WHERE state IN ('candidate', 'conditional') AND {_OF_THOSE_HERE} GROUP BY sorry, state, simulated "
        "ORDER BY sorry, simulated, state"
    )
    return make_all(Found, rows)


def proof_verdicts(db: sqlite3.Connection) -> list[ProofVerdict]:
    """Count proofs by state and reason, the most frequent first."""
    rows = db.execute(
        "SELECT state, simulated, reason, count(*) FROM proofs GROUP BY state, simulated, reason "
        "ORDER BY count(*) DESC, state, simulated, reason"
    )
    return [ProofVerdict(state, bool(simulated), reason, n) for state, simulated, reason, n in rows]


def newest_proofs(db: sqlite3.Connection, limit: int, *, verified: bool) -> list[ProofRow]:
    """Return the proofs found last, the newest first: those that Lean verified, or all others."""
    conditions = [f"state {'=' if verified else '<>'} 'verified'"]
    return read(db, ProofRow, "proofs", conditions=conditions, order="found_at DESC, proof", limit=limit)


def searches(db: sqlite3.Connection) -> list[Searches]:
    """Add up what was tried on sorries, by prover and model, the lowest rung first."""
    rows = db.execute(
        "SELECT prover, rung, model, simulated, count(*), sum(outcome = 'found'), sum(outcome = 'disproved'), "
        "sum(seconds), sum(prompt_tokens + completion_tokens), count(usd), sum(usd) FROM attempts "
        "GROUP BY prover, rung, model, simulated ORDER BY simulated, rung, prover, model"
    )
    return [
        Searches(prover, rung, model, bool(simulated), *counted)
        for prover, rung, model, simulated, *counted in rows
    ]


def job_counts(db: sqlite3.Connection) -> list[JobCount]:
    """Count jobs by kind and state."""
    rows = db.execute(
        "SELECT kind, simulated, state, count(*), max(peak_rss_bytes) FROM jobs "
        "GROUP BY kind, simulated, state ORDER BY kind, simulated, state"
    )
    return [JobCount(kind, bool(simulated), state, n, peak) for kind, simulated, state, n, peak in rows]


def ran(db: sqlite3.Connection) -> list[AttemptTotals]:
    """Add up what attempts took, by kind, device and day; one that went on past midnight stands by itself.

    What trained says on what it did, by its checkpoint. What reads or checks alone has no use for a GPU, nor has a
    search by the list of tactics or by another machine. Of the rest nothing is recorded.
    """
    return [AttemptTotals(kind, bool(simulated), *rest) for kind, simulated, *rest in db.execute(_RAN)]


_RAN = """
WITH learned AS (SELECT job, max(device LIKE 'cuda%') AS gpu FROM checkpoints GROUP BY job),
  searched AS (SELECT job, max(rung NOT IN (0, 4)) AS model FROM attempts GROUP BY job)
SELECT a.kind, j.simulated,
  CASE WHEN a.kind IN ('scan', 'build', 'trace', 'check') OR learned.gpu = 0 OR searched.model = 0 THEN 'cpu'
    WHEN learned.gpu = 1 THEN 'gpu' ELSE 'unknown' END AS device,
  min(a.started_at), max(a.ended_at), count(*),
  sum(max(0.0, julianday(a.ended_at) - julianday(a.started_at))) * 86400.0
FROM job_attempts AS a CROSS JOIN jobs AS j ON j.job = a.job
  LEFT JOIN learned ON learned.job = a.job LEFT JOIN searched ON searched.job = a.job
WHERE a.ended_at IS NOT NULL
GROUP BY a.kind, j.simulated, device, substr(a.started_at, 1, 10),
  CASE WHEN substr(a.started_at, 1, 10) = substr(a.ended_at, 1, 10) THEN '' ELSE a.job || ' ' || a.attempt END
ORDER BY a.kind, j.simulated, device, min(a.started_at)
"""


GOING = ("running", "failed", "interrupted", "cancelled")
"""The states of jobs that a user may have to look at; those that ended well are only counted as they end."""


class RepositoryAge(NamedTuple):
    """A watched, enabled repository: its state, when it was last asked (None: never), since when polls fail (None)."""

    repository: str
    state: str
    checked_at: str | None
    failing_since: str | None


class JobState(NamedTuple):
    """The number of jobs of a kind in a state."""

    kind: str
    state: str
    n: int


class JobEnds(NamedTuple):
    """The number of attempts of a kind with an outcome, within one interval of `store.view.projections.jobs`."""

    kind: str
    outcome: str
    simulated: bool
    bucket: int
    n: int
    seconds: float


class ProofVerdicts(NamedTuple):
    """The number of times that a verdict was given."""

    verdict: str
    simulated: bool
    n: int


class Promoted(NamedTuple):
    """A checkpoint in use."""

    model: str
    checkpoint: str
    simulated: bool


class Recall(NamedTuple):
    """Recall at k of the retriever in use on a repository's newest test set (None: of several), from 0 to 1."""

    repository: str | None
    simulated: bool
    k: int
    recall: float


@dataclass(frozen=True, slots=True)
class ViewNumbers:
    """All numbers of one moment."""

    position: int
    stopped: bool
    repositories: tuple[RepositoryAge, ...]
    sorries: dict[str, SorryCounts]
    theorems: tuple[tuple[str, int], ...]
    jobs: tuple[JobState, ...]
    job_ends: tuple[JobEnds, ...]
    proofs: tuple[ProofVerdicts, ...]
    promoted: tuple[Promoted, ...]
    recalls: tuple[Recall, ...]
    paused: tuple[str, ...]
    notifiers: tuple[NotifierRow, ...]


def numbers(db: sqlite3.Connection) -> ViewNumbers:
    """Read all of it."""
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
        sorries=sorry_counts(db),
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
        paused=tuple(row.work for row in queries.pauses(db)),
        notifiers=tuple(notifiers(db)),
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
