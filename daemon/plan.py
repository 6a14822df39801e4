"""Pure: (database, settings, Lean, now) -> the jobs that are due, most urgent first.

The plan is derived and never stored: a crash loses no work and a restart repeats none. What a job works on is
hashed into its id, so that "the same work" has one name: a failure that the same inputs would repeat
(`deterministic`) makes the job not due for good, and changed inputs make another job. Whether and when any other
failure is tried again is written on the failure itself (`retry_at`, see `daemon.jobs`).

Lanes: of the jobs with one lane at most one runs. A branch's commits are scanned one after another.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from daemon.settings import Repo, Settings
from daemon.settings_models import Prove
from daemon.watching import asked_for
from pipeline.lean.backend import LeanBackend
from store import queries
from store.identity import job_id
from store.rows import BranchRow, CommitRow, ProofRow, SorryRow

Kind = Literal["scan", "check", "prove"]
PRIORITY: dict[Kind, int] = {"scan": 0, "check": 1, "prove": 2}
PROVER = "tactics"
RUNG = 0


@dataclass(frozen=True, slots=True)
class DueJob:
    """A job that may run now. `sha` of a prove or check job is the commit whose worktree it gets."""

    job: str
    kind: Kind
    attempt: int
    lane: str
    repository: str
    branch: str
    sha: str
    describes: str
    simulated: bool
    parameters: Mapping[str, Any] = field(repr=False)

    @property
    def needs_worktree(self) -> bool:
        return self.kind != "scan"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is due now, and when something next becomes due by the clock alone (None: nothing waits)."""

    due: tuple[DueJob, ...]
    next_retry_at: datetime | None


@dataclass(slots=True)
class _Standing:
    """What became of a job so far: ready (perhaps again), waiting until a time, or settled for good."""

    state: Literal["ready", "waiting", "running", "done", "parked"]
    attempt: int
    deterministic: bool = False


def make_plan(
    view: sqlite3.Connection,
    *,
    settings: Settings,
    lean: LeanBackend,
    now: datetime,
    running: Collection[str] = (),
    last_started: Mapping[str, float] | None = None,
) -> Plan:
    """Return the due jobs.

    Args:
        running: lanes that are taken.
        last_started: when a job of a repository last started (any clock): the longest unserved goes first.
    """
    planner = _Planner(view, settings=settings, lean=lean, now=now)
    served = last_started or {}
    found = [job for repo in settings.repos if repo.enabled for job in planner.of(repo)]
    due = [job for job in found if job.lane not in running]
    # Sorting is stable: within one repository the planner's order stays.
    due.sort(key=lambda job: (PRIORITY[job.kind], served.get(job.repository, 0.0)))
    return Plan(tuple(due), planner.next_retry_at)


def admissible(plan: Plan, *, running: Sequence[Kind], max_running: int) -> Iterator[DueJob]:
    """Yield the jobs to start now: free slots, one per lane, and one slot that long proofs never take."""
    kinds = list(running)
    lanes: set[str] = set()
    for job in plan.due:
        if len(kinds) >= max_running:
            return
        # A new commit's sorrys are visible within seconds, even while provers work for half an hour.
        if job.kind == "prove" and max_running > 1 and kinds.count("prove") >= max_running - 1:
            continue
        if job.lane in lanes:
            continue
        lanes.add(job.lane)
        kinds.append(job.kind)
        yield job


def budget_key(prove: Prove, *, lean: LeanBackend) -> str:
    """Name a budget: with another one, or another judge, a sorry is attempted again."""
    return f"{prove.seconds_per_sorry:g}s/{prove.nodes_per_sorry}n/{prove.tactic_timeout_s:g}s/{lean.kind}"


class _Planner:
    def __init__(
        self, view: sqlite3.Connection, *, settings: Settings, lean: LeanBackend, now: datetime
    ) -> None:
        self._view = view
        self._settings = settings
        self._lean = lean
        self._now = now
        self.next_retry_at: datetime | None = None
        self._proofs_to_check: dict[str, list[ProofRow]] = {}
        for proof in queries.proofs_to_check(view):
            self._proofs_to_check.setdefault(proof.repository, []).append(proof)

    def of(self, repo: Repo) -> Iterator[DueJob]:
        branches = [
            row
            for row in queries.branches(self._view, repo.key)
            # What left the watchlist is not worked on from now on, even before a poll has recorded that.
            if row.state == "live" and (not repo.branches or asked_for(row.branch, repo.branches))
        ]
        for branch in branches:
            yield from self._scan(repo, branch)
        if repo.opt_out or self._lean.kind == "none":
            return
        yield from self._checks(repo)
        if self._settings.prove.enabled:
            for branch in branches:
                # On anything but a scanned tip the work would be for a text that is being replaced.
                if branch.scanned == branch.tip:
                    yield from self._prove(repo, branch)

    # --- scan ---------------------------------------------------------------------------------------------

    def _scan(self, repo: Repo, branch: BranchRow) -> Iterator[DueJob]:
        patterns = json.dumps([repo.include, repo.exclude])
        same_patterns = [list(repo.include), list(repo.exclude)] == [
            branch.scanned_include,
            branch.scanned_exclude,
        ]
        for commit, after in self._unscanned(repo, branch, same_patterns=same_patterns):
            # The observation's position makes a commit that came back after a force-push a new job, and what was
            # scanned before makes patterns that came back one. With other patterns a failure may not repeat.
            identity = job_id(
                "scan", repo.key, branch.branch, commit.sha, str(commit.seq), patterns, str(after)
            )
            standing = self._standing(identity)
            if standing.state in ("parked", "done"):
                continue  # what cannot be scanned must not hold up the commits after it
            if standing.state == "ready":
                yield DueJob(
                    job=identity,
                    kind="scan",
                    attempt=standing.attempt,
                    lane=f"scan:{repo.key}:{branch.branch}",
                    repository=repo.key,
                    branch=branch.branch,
                    sha=commit.sha,
                    describes=f"scan {repo.key} {branch.branch} {commit.sha[:10]}",
                    simulated=False,
                    parameters={
                        "repository": repo.key,
                        "branch": branch.branch,
                        "sha": commit.sha,
                        "base": branch.scanned,
                        "include": list(repo.include),
                        "exclude": list(repo.exclude),
                        # Other patterns mean other files, and a base may be lost with its mirror: then the tables
                        # say what to compare with (`scan_parameters`).
                        "by_files": branch.scanned is not None
                        and (not same_patterns or standing.attempt > 1),
                    },
                )
            return

    def _unscanned(
        self, repo: Repo, branch: BranchRow, *, same_patterns: bool
    ) -> Iterator[tuple[CommitRow, int | None]]:
        """Yield the commits to scan, and for a tip that is scanned again the position of its last scan."""
        first = queries.next_commit_to_scan(self._view, repo.key, branch.branch)
        if first is not None:
            yield first, None
            rows = queries.commits(self._view, repository=repo.key, branch=branch.branch, state="observed")
            rest = sorted((row for row in rows if row.sha != first.sha), key=lambda row: row.seq)
            yield from ((row, None) for row in rest)
        if branch.scanned == branch.tip and not same_patterns:
            rows = queries.commits(self._view, repository=repo.key, branch=branch.branch, state="scanned")
            yield from ((row, branch.scanned_seq) for row in rows if row.sha == branch.tip)

    # --- check --------------------------------------------------------------------------------------------

    def _checks(self, repo: Repo) -> Iterator[DueJob]:
        for proof in self._proofs_to_check.get(repo.key, ()):
            if proof.simulated != self._lean.simulated:
                continue  # what the simulator found is no matter for Lean, nor the other way round
            identity = job_id("check", proof.proof, self._lean.kind, self._lean.toolchain)
            standing = self._standing(identity)
            if standing.state != "ready":
                continue
            yield DueJob(
                job=identity,
                kind="check",
                attempt=standing.attempt,
                lane=f"check:{proof.proof}",
                repository=repo.key,
                branch=proof.branch,
                sha=proof.sha,
                describes=f"check {proof.declaration} ({proof.proof})",
                simulated=self._lean.simulated,
                parameters={
                    "lean": self._lean.as_json(),
                    "proof": {
                        "proof": proof.proof,
                        "sorry": proof.sorry,
                        "repository": proof.repository,
                        "branch": proof.branch,
                        "sha": proof.sha,
                        "path": proof.path,
                        "blob": proof.blob,
                        "byte_start": proof.byte_start,
                        "byte_end": proof.byte_end,
                        "declaration": proof.declaration,
                        "declaration_text_hash": proof.declaration_text_hash,
                        "replacement": proof.replacement,
                        "tactics": list(proof.tactics),
                        "prover": proof.prover,
                        "rung": proof.rung,
                        "toolchain": proof.toolchain,
                        "simulated": proof.simulated,
                        "job": proof.job,
                    },
                },
            )

    # --- prove --------------------------------------------------------------------------------------------

    def _prove(self, repo: Repo, branch: BranchRow) -> Iterator[DueJob]:
        budget = budget_key(self._settings.prove, lean=self._lean)
        sorries = queries.sorries_to_prove(
            self._view, repository=repo.key, branch=branch.branch, prover=PROVER, rung=RUNG, budget=budget
        )
        ordered = sorted(sorries, key=lambda row: row.sorry)
        size = self._settings.prove.sorries_per_job
        for start in range(0, len(ordered), size):
            job = self._prove_some(repo, branch, ordered[start : start + size], budget=budget)
            if job is not None:
                yield job

    def _prove_some(
        self,
        repo: Repo,
        branch: BranchRow,
        sorries: Sequence[SorryRow],
        *,
        budget: str,
    ) -> DueJob | None:
        key = [f"{row.sorry}:{row.blob}" for row in sorries]
        identity = job_id(
            "prove",
            repo.key,
            branch.branch,
            branch.tip,
            PROVER,
            str(RUNG),
            budget,
            self._lean.toolchain,
            *key,
        )
        standing = self._standing(identity)
        if standing.state == "parked" and not standing.deterministic and len(sorries) > 1:
            # One of them kills the job (a hang, a crash): halves find it, and the others get their turn.
            middle = len(sorries) // 2
            halves = (sorries[:middle], sorries[middle:])
            jobs = (self._prove_some(repo, branch, half, budget=budget) for half in halves)
            return next((job for job in jobs if job is not None), None)
        if standing.state != "ready":
            return None
        prove = self._settings.prove
        names = sorted({row.declaration for row in sorries})
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        return DueJob(
            job=identity,
            kind="prove",
            attempt=standing.attempt,
            lane=f"prove:{repo.key}:{branch.branch}",
            repository=repo.key,
            branch=branch.branch,
            sha=branch.tip,
            describes=f"prove {', '.join(names[:2])}{more}",
            simulated=self._lean.simulated,
            parameters={
                "repository": repo.key,
                "branch": branch.branch,
                "sha": branch.tip,
                "lean": self._lean.as_json(),
                "prover": PROVER,
                "rung": RUNG,
                "budget": {
                    "seconds_per_sorry": prove.seconds_per_sorry,
                    "nodes_per_sorry": prove.nodes_per_sorry,
                    "tactic_timeout_s": prove.tactic_timeout_s,
                },
                "budget_key": budget,
                "parallel": prove.parallel,
                "sorries": [
                    {
                        "sorry": row.sorry,
                        "path": row.path,
                        "blob": row.blob,
                        "byte_start": row.byte_start,
                        "byte_end": row.byte_end,
                        "declaration": row.declaration,
                        "kind": row.kind,
                        "ordinal": row.ordinal,
                        "mode": row.mode,
                    }
                    for row in sorries
                ],
            },
        )

    # --- standing -----------------------------------------------------------------------------------------

    def _standing(self, identity: str) -> _Standing:
        row = next((row for row in queries.jobs_by_prefix(self._view, identity) if row.job == identity), None)
        if row is None:
            return _Standing("ready", 1)
        attempt = row.attempt + 1
        match row.state:
            case "running":
                return _Standing("running", row.attempt)
            case "succeeded":
                # It ended well and its work is still undone: running it again would not end otherwise.
                return _Standing("done", row.attempt)
            case "failed":
                if row.deterministic or row.retry_at is None:
                    return _Standing("parked", attempt, deterministic=row.deterministic)
                until = datetime.fromisoformat(row.retry_at)
                if until <= self._now:
                    return _Standing("ready", attempt)
                if self.next_retry_at is None or until < self.next_retry_at:
                    self.next_retry_at = until
                return _Standing("waiting", attempt)
            case _:
                return _Standing("ready", attempt)


def scan_parameters(view: sqlite3.Connection, *, job: DueJob) -> dict[str, Any]:
    """Return what a scan needs of the view at the moment that it starts: the sorrys and the proofs so far."""
    place = (
        "path",
        "blob",
        "line",
        "column",
        "byte_start",
        "byte_end",
        "declaration",
        "kind",
        "statement",
        "statement_hash",
        "ordinal",
        "token",
        "mode",
        "context_hash",
    )
    rows = queries.sorries(view, repository=job.repository, branch=job.branch)
    parameters = dict(job.parameters)
    known = None
    if parameters.pop("by_files"):
        files = queries.files(view, repository=job.repository, branch=job.branch)
        known = [[file.path, file.blob] for file in files]
    return {
        **parameters,
        "files": known,
        "sorries": [
            {"sorry": row.sorry, **{name: getattr(row, name) for name in place}}
            for row in rows
            if row.state in ("open", "verified")
        ],
        # One of these that stands in the source again is the same sorry, reopened.
        "closed": [row.sorry for row in rows if row.state in ("filled", "removed")],
        "proofs": [
            {
                "proof": proof.proof,
                "sorry": proof.sorry,
                "declaration": proof.declaration,
                "declaration_text_hash": proof.declaration_text_hash,
            }
            for proof in queries.proofs(view, repository=job.repository)
            if proof.state != "rejected"
        ],
    }
