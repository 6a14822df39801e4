"""Plan proof jobs: each open sorry is due at the first untried rung of the ladder.

A declaration whose statement is proved elsewhere (`store.view.transfers`) is due at rung 0, and again for
each new theorem with its statement: rung 0 tries them first, and they cost a few tactics.

New sorries come first; then sorries for their next rung; then repeats, after a change of the model or budget.
Within each, first those whose declarations most theorems rest on, by the branch's trace (`Resting`), then the
nearest to a proof (the fewest goals left). A rung whose jobs are not retried (its model cannot be loaded, the
day's money is spent) holds nothing up: its sorries climb on. The obstacle may be gone in hours (an endpoint's
outage), so they are tried there again, after a wait that doubles. Skipped are sorries with a proof not
rejected by a check, exercises (people are to solve them), sorries by design, and declarations with a sorry
claimed by an agent.
"""

from __future__ import annotations

import math
import sqlite3
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

import structlog

from daemon.jobs.due import DueJob
from daemon.jobs.history import Readiness
from daemon.planning.look import Look
from daemon.settings import Repo, Settings
from daemon.settings.models import Prove
from pipeline.jobs.blueprint import Blueprints
from pipeline.jobs.specs import OF_THE_JOB, OF_THE_MACHINE, ProgramRung, ProveSpec, Rung, SorryToProve
from pipeline.lean.backend import LeanBackend
from pipeline.lean.source.globs import path_filter
from store.backoff import Backoff
from store.documents.by_design import by_design
from store.domain.identity import job_id, short_hash
from store.events.projects import Project, project_of
from store.text import listed
from store.view import queries, trace_queries, transfers
from store.view.impact import MOST_COUNTED, Counting, Declared
from store.view.queries import SorryProgress
from store.view.rows import BranchRow, SorryRow, TraceRow

log = structlog.get_logger(__name__)

_NEW, _NEXT_RUNG, _AGAIN = range(3)
_Order = tuple[int, int, float, int, str]
_MANY_EXERCISES = 3
_OfBranch = tuple[str, str]
"""A repository and a branch."""
_QUICKLY_S = 0.1
"""Seconds that a plan waits for a count."""
_NOT_BEGUN = frozenset({"worktree", "spawn", "build_missing"})
"""Reasons for which the daemon could not start a job (`daemon.jobs.runner`), whatever its sorries."""
_REST = Backoff(3600.0, 86400.0)
"""Between retries of a job failed by its machine: a person mends it, not a moment of patience."""
SEED = 0
"""The models' seed. The same question gives the same answers, so a search asks it once."""
_SHARE_OF_TIMEOUT = 0.8
"""The searches' share of a job's time limit: it has to load models and to build too."""


@dataclass(frozen=True, slots=True)
class _DueSorry:
    """A sorry at its due rung. `order` puts the most worthwhile first."""

    row: SorryRow
    rung: Rung
    rank: int
    goals_left: float
    resting: int

    @property
    def order(self) -> _Order:
        return self.rank, -self.resting, self.goals_left, self.rung.number, self.row.sorry


class _Version(NamedTuple):
    """The text of a count: the trace, by its position in the log, and the blueprint's commit."""

    trace: int
    blueprint: str


@dataclass(frozen=True, slots=True)
class _Count:
    """An unfinished count of a branch."""

    of: _Version
    targets: frozenset[Declared]
    counting: Counting


class _Counted(NamedTuple):
    """The numbers counted on a branch, by the declarations' hashes: 12 bytes for each.

    Two declarations with the same hash, an unlikely event, would have each other's place in the order.
    """

    of: _Version
    hashes: array[int]
    numbers: array[int]


class Resting:
    """Counts the theorems and blueprint statements resting on the declarations of sorries.

    Once for each trace of a branch, and again after a change of its blueprint's LaTeX.

    A count longer than `_QUICKLY_S` goes on in later plans (`go_on`), one branch after the other; until it
    ends, the branch's last count serves. A trace with more than `MOST_COUNTED` theorems is not counted.
    """

    def __init__(self) -> None:
        self._kept: dict[_OfBranch, _Counted] = {}
        self._under_way: dict[_OfBranch, _Count] = {}
        self._looked: dict[_OfBranch, tuple[str, _Version]] = {}
        """The tip last compared with the blueprint."""

    @property
    def under_way(self) -> bool:
        """Whether a count has not ended."""
        return bool(self._under_way)

    def of(
        self,
        view: sqlite3.Connection,
        repository: str,
        branch: BranchRow,
        rows: Iterable[SorryRow],
        *,
        blueprints: Blueprints,
    ) -> Mapping[str, int]:
        """Return the numbers by sorry, without zeros and unknown ones."""
        declared = {row.sorry: Declared(row.path, row.declaration) for row in rows}
        targets = frozenset(declared.values())
        if len(targets) < 2:
            return {}  # there is nothing to put in order
        key = (repository, branch.branch)
        trace = trace_queries.trace_of_branch(view, repository, branch.branch)
        if trace is None:
            for cache in (self._kept, self._under_way, self._looked):
                cache.pop(key, None)
            return {}
        version = self._version(key, trace, branch.scanned or trace.sha, blueprints)
        if not self._has(key, version, targets):
            statements = blueprints(repository, version.blueprint)
            new_counting = partial(
                Counting, trace, sorted(targets), most_theorems=MOST_COUNTED, blueprint=statements
            )
            self._begin(view, key, version, targets, new_counting)
        counted = self._kept.get(key)
        numbers = dict(zip(counted.hashes, counted.numbers, strict=True)) if counted else {}
        return {sorry: number for sorry, one in declared.items() if (number := numbers.get(hash(one), 0))}

    def _version(self, key: _OfBranch, trace: TraceRow, tip: str, blueprints: Blueprints) -> _Version:
        """Return the trace and blueprint versions to count; each tip is compared once."""
        looked, version = self._looked.get(key, ("", _Version(trace.seq, trace.sha)))
        if version.trace != trace.seq:
            looked, version = "", _Version(trace.seq, trace.sha)
        if looked != tip:
            version = version._replace(blueprint=blueprints.newer(key[0], version.blueprint, tip))
            self._looked[key] = tip, version
        return version

    def _has(self, key: _OfBranch, version: _Version, targets: frozenset[Declared]) -> bool:
        """Return whether these declarations of a branch are counted, or being counted, in this trace and
        blueprint."""
        one, counted = self._under_way.get(key), self._kept.get(key)
        return (one is not None and one.of == version and one.targets >= targets) or (
            counted is not None and counted.of == version and {*counted.hashes}.issuperset(map(hash, targets))
        )

    def _begin(
        self,
        view: sqlite3.Connection,
        key: _OfBranch,
        version: _Version,
        targets: frozenset[Declared],
        new_counting: Callable[[], Counting],
    ) -> None:
        one = _Count(version, targets, new_counting())
        if one.counting.go_on(view, until=time.monotonic() + _QUICKLY_S):
            self._under_way.pop(key, None)
            self._keep(key, one)
        else:
            # A trace takes memory to read, so only one count at a time has it.
            others = self._under_way.keys() - {key}
            self._under_way[key] = replace(one, counting=new_counting()) if others else one

    def _keep(self, key: _OfBranch, one: _Count) -> None:
        result = one.counting.impacts
        hashes, numbers = array("q", map(hash, result)), array("I", (its.resting for its in result.values()))
        self._kept[key] = _Counted(one.of, hashes, numbers)

    def go_on(self, view: sqlite3.Connection, *, until: float) -> set[str]:
        """Count on until this time of `time.monotonic`; return the repositories with an ended count."""
        ended: set[str] = set()
        while self._under_way:
            key, one = next(iter(self._under_way.items()))
            if not one.counting.go_on(view, until=until):
                break
            del self._under_way[key]
            self._keep(key, one)
            ended.add(key[0])
        return ended


def _not_counted(problem: str) -> None:
    log.warning("blueprint_not_counted", problem=problem)


class Proving:
    """Collects the due proof jobs of one plan."""

    def __init__(self, look: Look, resting: Resting) -> None:
        self._look = look
        self._view = look.view
        self._settings = look.settings
        self._standings = look.standings
        self._resting = resting
        self._today = look.now.astimezone(UTC).date().isoformat()
        self._triggered = {
            row.repository: row.seq for row in queries.triggers(look.view) if row.work == "prove"
        }

    def of(self, repo: Repo, branch: BranchRow, project: Project, lean: LeanBackend) -> Iterator[DueJob]:
        """Yield the due jobs in a project, the most worthwhile first. Jobs of one branch run one at a
        time."""
        options = self._untried_rungs(repo, branch, project, lean)
        result: list[tuple[_Order, DueJob]] = []
        while options:
            given_up: set[str] = set()
            for batch in self._batches([ways[0] for ways in options.values()]):
                rows = sorted((one.row for one in batch), key=lambda row: row.sorry)
                rung, rank = batch[0].rung, batch[0].rank
                job = self._job(repo, branch, project, lean, rung, rows, rank=rank, given_up=given_up)
                if job is not None:
                    result.append((batch[0].order, job))
            options = {sorry: options[sorry][1:] for sorry in given_up if options[sorry][1:]}
        yield from (job for _, job in sorted(result, key=lambda one: one[0]))

    def _rungs(self, repo: Repo, lean: LeanBackend) -> list[Rung]:
        """Return the ladder's rungs; a trigger counts as another budget, so everything is tried once more."""
        traced = trace_queries.newest_trace(self._view, repo.key) is not None
        rungs, seq = self._look.climbed.rungs(traced=traced), self._triggered.get(repo.key)
        judged = [one.with_judge(lean) for one in rungs]
        return (
            judged
            if seq is None
            else [
                one.model_copy(update={"budget_key": f"{one.budget_key}/triggered at {seq}"})
                for one in judged
            ]
        )

    def _batches(self, due: Sequence[_DueSorry]) -> Iterator[list[_DueSorry]]:
        """Yield the sorries of one job each: as many of one rank and rung as a job takes.

        A declaration's sorries stay together while a job has room: work on one is work on all of them.
        """
        alike: dict[tuple[int, int, str, str], dict[tuple[str, str], list[_DueSorry]]] = {}
        for one in sorted(due, key=lambda one: one.order):
            rung = one.rung
            rungs = alike.setdefault((one.rank, rung.number, rung.model, rung.budget_key), {})
            rungs.setdefault((one.row.path, one.row.declaration), []).append(one)
        for declarations in alike.values():
            rung = next(iter(declarations.values()))[0].rung
            if (size := self._size(rung)) > 0:  # else today has no time left for them
                yield from _packed(list(declarations.values()), size)

    def _untried_rungs(
        self, repo: Repo, branch: BranchRow, project: Project, lean: LeanBackend
    ) -> dict[str, list[_DueSorry]]:
        """Map each sorry of the project to its untried rungs, from the lowest; sorries without any are left
        out."""
        due: dict[str, list[tuple[SorryRow, Rung]]] = {}
        rungs = self._rungs(repo, lean)
        rows: dict[str, SorryRow] = {}
        left: list[tuple[Rung, list[str]]] = []
        for rung in reversed(rungs):  # the last has the most sorries left: their rows are read once for all
            about = {
                "repository": repo.key,
                "branch": branch.branch,
                "prover": rung.prover,
                "budget": rung.budget_key,
                "model": rung.model,
            }
            untried = queries.untried(self._view, **about, rung=rung.number)
            if not rows.keys() >= set(untried):
                result = queries.sorries_to_prove(self._view, **about, rung=rung.number)
                rows |= {row.sorry: row for row in result}
            left.append((rung, untried))
        stated = self._stated(repo, branch)
        for rung, untried in reversed(left):
            if not rung.number and stated:
                self._add_stated(due, stated, rung, repo, branch, project)
            for sorry in untried:
                if not rung.number and sorry in stated:
                    continue
                # A sorry that closed between the two queries has no row; the next plan does not have it
                # either.
                row = rows.get(sorry)
                if row is not None and project_of(row.path, branch.lake_projects) == project:
                    due.setdefault(sorry, []).append((row, rung))
        if not due:
            return {}
        reached = queries.reached(self._view, repository=repo.key, branch=branch.branch)
        is_exercise = exercises(self._view, repo, branch.branch)
        design = by_design(self._view, repo.key)
        resting = self._resting.of(
            self._view,
            repo.key,
            branch,
            (ways[0][0] for ways in due.values()),
            blueprints=Blueprints(self._settings.paths.mirrors, _not_counted),
        )
        claims = self._claims(repo, branch.branch)
        options: dict[str, list[_DueSorry]] = {}
        for sorry, ways in due.items():
            so_far = reached.get(sorry)
            row = ways[0][0]
            if (
                (row.path, row.declaration) not in claims
                and not is_exercise(row.path)
                and not design(row)
                and not (so_far is not None and so_far.settled)
            ):
                goals, rests = _goals(so_far), resting.get(sorry, 0)
                options[sorry] = []
                for at, (row, rung) in enumerate(ways):
                    rank = max(_rank(rung, so_far), _NEXT_RUNG if at else _NEW)
                    if sorry in stated and not rung.number:
                        rank = _NEW  # the theorem with the same statement is untried, whatever else was tried
                    options[sorry].append(_DueSorry(row, rung, rank, goals, rests))
        return options

    def _stated(self, repo: Repo, branch: BranchRow) -> dict[str, str]:
        """Map each sorry to a hash of the theorems elsewhere with its statement; it changes when they do."""
        result = transfers.transfers(self._view, repository=repo.key, branch=branch.branch)
        return {
            sorry: short_hash(*(f"{row.full_name} {row.repository} {row.proof}" for row in rows))
            for sorry, rows in result.items()
        }

    def _add_stated(
        self,
        due: dict[str, list[tuple[SorryRow, Rung]]],
        stated: Mapping[str, str],
        rung: Rung,
        repo: Repo,
        branch: BranchRow,
        project: Project,
    ) -> None:
        """Add rung 0 with theorems of the same statement, if they are untried there."""
        about = {"repository": repo.key, "branch": branch.branch, "prover": rung.prover, "model": rung.model}
        rows = queries.sorries_to_prove(self._view, **about, budget="", rung=rung.number)
        attempts = queries.budgets_tried(self._view, sorries=stated, prover=rung.prover, rung=rung.number)
        for row in rows:
            if row.sorry in stated and project_of(row.path, branch.lake_projects) == project:
                key = f"{rung.budget_key}/beside {stated[row.sorry]}"
                if (row.sorry, row.blob, key) not in attempts:
                    with_stated = rung.model_copy(update={"budget_key": key})
                    due.setdefault(row.sorry, []).append((row, with_stated))

    def _claims(self, repo: Repo, branch: str) -> set[tuple[str, str]]:
        """Return the files and declarations claimed by agents; each lease's end counts as a wait."""
        claimed = {
            row.sorry
            for row in queries.claims(self._view, repository=repo.key)
            if not self._standings.has_come(
                datetime.fromisoformat(row.until), since=datetime.fromisoformat(row.since)
            )
        }
        if not claimed:
            return set()
        rows = queries.sorries(self._view, repository=repo.key, branch=branch)
        return {(row.path, row.declaration) for row in rows if row.sorry in claimed}

    def _size(self, rung: Rung) -> int:
        """Return the number of sorries of a job: within its time limit, and within the time left today."""
        prove, seconds = self._settings.prove, rung.budget.seconds
        in_time = int(
            _SHARE_OF_TIMEOUT * self._settings.jobs.timeout_of("prove") * self._parallel(rung) / seconds
        )
        size = min(prove.sorries_per_job, max(1, in_time))
        if rung.number and self._look.left_s is not None:
            size = min(size, int(self._look.left_s / seconds))
        return size

    def _parallel(self, rung: Rung) -> int:
        """Return the number of declarations a job works on at once: one for a program, as it has the job's
        memory."""
        return 1 if isinstance(rung.spec, ProgramRung) else self._settings.lean.repls

    def _job(
        self,
        repo: Repo,
        branch: BranchRow,
        project: Project,
        lean: LeanBackend,
        rung: Rung,
        sorries: Sequence[SorryRow],
        *,
        rank: int,
        given_up: set[str],
    ) -> DueJob | None:
        """Return a job, or one with a part of its sorries; add to `given_up` the sorries without a job to
        come."""
        key = [f"{row.sorry}:{row.blob}" for row in sorries]
        what = [rung.prover, str(rung.number), *([rung.model] if rung.model else []), rung.budget_key]
        if rung.cap_usd is not None:
            # If the day's cap stopped it, tomorrow or another cap makes another job, whatever its outcome.
            what.append(f"{self._today}/{rung.cap_usd}")
        identity = job_id("prove", repo.key, branch.branch, branch.tip, *what, lean.toolchain, *key)
        standing = self._standings.of(identity)
        of_one = not standing.deterministic and standing.reason not in OF_THE_JOB | _NOT_BEGUN
        if self._rested(identity, standing):
            standing = Readiness("ready", standing.attempt)
        elif standing.state == "parked" and of_one and len(sorries) > 1:
            # One of them kills the job (a hang, a crash): halves find it, and the others get their turn.
            middle = len(sorries) // 2
            halves = (sorries[:middle], sorries[middle:])
            jobs = (
                self._job(repo, branch, project, lean, rung, half, rank=rank, given_up=given_up)
                for half in halves
            )
            return next((job for job in jobs if job is not None), None)
        if standing.state in ("parked", "done"):
            given_up.update(row.sorry for row in sorries)
        if standing.state != "ready":
            return None
        settings = self._settings
        names = sorted({row.declaration for row in sorries})
        at_rung = f" at rung {rung.number}" if rung.number else ""
        spec = ProveSpec(
            repository=repo.key,
            branch=branch.branch,
            sha=branch.tip,
            folder=project.folder,
            lean=lean,
            limits=self._look.repls(),
            rung=rung.spec,
            model=rung.model,
            seed=SEED,
            budget=rung.budget,
            budget_key=rung.budget_key,
            parallel=self._parallel(rung),
            sorries=tuple(
                SorryToProve(
                    sorry=row.sorry,
                    path=row.path,
                    blob=row.blob,
                    byte_start=row.byte_start,
                    byte_end=row.byte_end,
                    declaration=row.declaration,
                    kind=row.kind,
                    ordinal=row.ordinal,
                )
                for row in sorries
            ),
        )
        return self._look.due(
            identity,
            "prove",
            spec,
            attempt=standing.attempt,
            lane=prove_lane(repo.key, branch.branch),
            repository=repo.key,
            branch=branch.branch,
            sha=branch.tip,
            project=project.folder,
            describes=f"prove {listed(names, 2)}{at_rung}",
            built=self._look.is_built(lean),
            memory_bytes=rung.memory_bytes,
            gpus=(1,) if rung.gpu else (),
            cpu_too=settings.prove.generator.device == "auto",
            rank=rank,
            cost_s=len(sorries) * rung.budget.seconds if rung.number else 0.0,
            key=rung.key,
            paid=rung.cap_usd is not None,
        )

    def _rested(self, identity: str, standing: Readiness) -> bool:
        """Return whether to retry a job without attempts left: the machine was at fault, a while ago."""
        if standing.state != "parked" or standing.deterministic or standing.ended_at is None:
            return False
        if standing.reason not in OF_THE_MACHINE | _NOT_BEGUN:
            return False
        # The rest grows with each failure after the last attempt, to a day at most.
        more = self._standings.failures(identity) - self._settings.jobs.max_attempts
        rest = timedelta(seconds=_REST.wait_s(more + 1))
        return self._standings.has_come(standing.ended_at + rest, since=standing.ended_at)


def prove_lane(repository: str, branch: str) -> str:
    """Return the lane of the searches on a branch."""
    return f"prove:{repository}:{branch}"


def below_the_root(folder: str) -> tuple[str, ...]:
    """Return the part of a job's name for its Lake project: the folder, and nothing for the root."""
    return (folder,) if folder else ()


def seconds_left(
    view: sqlite3.Connection, *, settings: Settings, now: datetime, reserved_s: float
) -> float | None:
    """Return the seconds of search above rung 0 left today (UTC); None without a limit.

    `reserved_s`: the seconds reserved for running jobs.
    """
    limit = settings.prove.seconds_per_day
    if limit is None:
        return None
    return limit - queries.seconds_since(view, now.astimezone(UTC).date().isoformat()) - reserved_s


def searches_left(prove: Prove, left_s: float) -> tuple[int, ...]:
    """Return by rung the number of sorries, at most a job's, in the time left today."""
    return tuple(
        max(0, min(prove.sorries_per_job, int(left_s / seconds))) for _, seconds, _ in prove.searches
    )


def exercises(view: sqlite3.Connection, repo: Repo, branch: str) -> Callable[[str], bool]:
    """Return a test for files of exercises: by path, or by many sorries beside the word in the text."""
    if not repo.exercises:
        return lambda _: False
    by_path = path_filter(repo.exercises, ())
    by_name = queries.files_with_exercises(view, repository=repo.key, branch=branch, at_least=_MANY_EXERCISES)
    return lambda path: path in by_name or by_path(path)


def _packed(groups: Sequence[Sequence[_DueSorry]], size: int) -> Iterator[list[_DueSorry]]:
    """Yield batches of at most `size`, groups in order, and whole if they fit one batch."""
    batch: list[_DueSorry] = []
    for group in groups:
        for start in range(0, len(group), size):
            part = group[start : start + size]
            if batch and len(batch) + len(part) > size:
                yield batch
                batch = []
            batch += part
    if batch:
        yield batch


def _rank(rung: Rung, so_far: SorryProgress | None) -> int:
    if so_far is None or not so_far.rungs:
        return _NEW
    return _AGAIN if rung.number in so_far.rungs else _NEXT_RUNG


def _goals(so_far: SorryProgress | None) -> float:
    return math.inf if so_far is None or so_far.goals_left is None else so_far.goals_left
