"""Plan the due jobs, most urgent first: pure, from database, settings, Lean, cached builds and time.

The plan is derived and never stored: a crash loses no work and a restart repeats none. A job's id is a hash
of its subject, so "the same work" has one name: a failure bound to repeat on the same inputs
(`deterministic`) ends the job for good, and changed inputs make another job. Any other failure holds the time
of its retry (`retry_at`, see `daemon.jobs.history`).

A planner keeps each repository's due jobs, and plans it again after a change: an event of it, a build, the
end of a wait, or a change of the shared inputs (settings, Lean, the models in use, the day).

Lanes: at most one job of a lane runs at a time. A branch's commits are scanned one after another.

`daemon.planning.repository` plans one repository, `daemon.planning.training` its trainings,
`daemon.planning.schedule` holds work back, and `daemon.planning.admission` chooses the due jobs to begin.
"""

from __future__ import annotations

import heapq
import math
import sqlite3
import time
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from operator import itemgetter

from daemon.jobs.due import DueJob
from daemon.jobs.history import ReadinessOfJobs
from daemon.planning.ladder import Climbed, ladder_of
from daemon.planning.look import NO_JUDGES, Judges, Look
from daemon.planning.proving import Resting, prove_lane, searches_left, seconds_left
from daemon.planning.repository import RepositoryJobs
from daemon.planning.schedule import ALWAYS, Timetable, read_timetable
from daemon.planning.training import Counted, TrainingJobs
from daemon.settings import Repo, Settings
from pipeline.jobs.kinds import BY_PRIORITY, TRAININGS, Kind
from pipeline.lean.backend import Leans
from pipeline.lean.build.build_cache import BuildKey
from store import promotion
from store.documents.ladder import Rung
from store.events.base import EventBody
from store.events.jobs import JobStarted
from store.events.models import (
    CheckpointPromoted,
    CheckpointRefused,
    CheckpointRemoved,
    CheckpointSaved,
    EvaluationFinished,
)
from store.events.proofs import AttemptFinished
from store.events.traces import CommitTraced
from store.view import queries, transfers

_FEW = 64
"""Up to this number, jobs are inserted one by one; above it, sorting all is quicker."""
_MOST_KEPT = 64
"""The number of repositories' groups whose specifications a plan keeps until its jobs begin."""
_PLACES = {kind.name: place for place, kind in enumerate(BY_PRIORITY)}

Key = tuple[float | int, ...]
"""The place of a job in the plan, the most urgent first; no two jobs have the same."""
Entry = tuple[Key, DueJob]
_NOBODY: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class JobClass:
    """Jobs with the same needs: of two in different lanes, the later never begins in place of the first."""

    kind: Kind
    gpu: bool
    cpu_too: bool
    paid: bool

    @classmethod
    def of(cls, job: DueJob) -> JobClass:
        return cls(job.kind, bool(job.gpus), job.cpu_too, job.paid)


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job held back, and the reason."""

    due: DueJob
    waits: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The due jobs of all repositories.

    Attributes:
        entries: by class, in order.
        first: by class, the first job of each repository.
        running: the taken lanes, whose jobs are not due.
        next_retry_at: the time when the clock alone makes the next job due; None: no job waits.
        ladder: for readers.
        timetable: the pauses and quiet hours.
        left_s: the seconds of search above rung 0 left today; None without a limit.
        complete: whether every repository is in it, in order; if not, the next plan should follow at once.
        version: differs from earlier plans' numbers if any repository's due jobs may differ.
    """

    entries: Mapping[JobClass, Sequence[Entry]] = field(default_factory=dict)
    first: Mapping[JobClass, Mapping[str, DueJob]] = field(default_factory=dict)
    running: Collection[str] = ()
    next_retry_at: datetime | None = None
    ladder: tuple[Rung, ...] = ()
    timetable: Timetable = ALWAYS
    left_s: float | None = None
    complete: bool = True
    version: int = 0

    @classmethod
    def of(cls, jobs: Iterable[DueJob]) -> Plan:
        """Return a plan of these jobs in their order."""
        entries: dict[JobClass, list[Entry]] = {}
        first: dict[JobClass, dict[str, DueJob]] = {}
        for at, job in enumerate(jobs):
            one = JobClass.of(job)
            entries.setdefault(one, []).append(((at,), job))
            first.setdefault(one, {}).setdefault(job.repository, job)
        return cls(entries, first)

    @property
    def due(self) -> tuple[DueJob, ...]:
        """The jobs allowed to begin, most urgent first."""
        return tuple(self.in_order(set()))

    @property
    def held(self) -> tuple[WaitingJob, ...]:
        """The jobs held back by a pause or quiet hours."""
        waits = self._waits()
        result = heapq.merge(*(self.entries[one] for one in self.entries if one.kind in waits), key=_place)
        return tuple(WaitingJob(job, waits[job.kind]) for _, job in result if job.lane not in self.running)

    def in_order(
        self, passed: set[JobClass], served: Mapping[str, float] = _NOBODY, *, ahead: str = ""
    ) -> Iterator[DueJob]:
        """Yield the due jobs, most urgent first, without those of classes added to `passed` meanwhile.

        If the day's time is limited, jobs passed over still take their share of it.

        Args:
            passed: the classes without room for another job.
            served: the repositories' recent seconds of slots; less comes first, none before all.
            ahead: the repository to put before all others, "" for none.
        """
        waits = self._waits()
        its = {
            one: _in_turns(entries, self.first[one], served, ahead)
            for one, entries in self.entries.items()
            if one.kind not in waits
        }
        heads = [(entry[0], one, entry[1]) for one, rest in its.items() if (entry := next(rest, None))]
        heads.sort(key=_place)
        left_s = self.left_s
        while heads:
            _, one, job = heads.pop(0)
            if one in passed and left_s is None:
                continue
            if (entry := next(its[one], None)) is not None:
                insort(heads, (entry[0], one, entry[1]), key=_place)
            if job.lane in self.running:
                continue
            if left_s is not None:
                if job.cost_s > max(left_s, 0.0):
                    continue
                left_s -= job.cost_s
            if one not in passed:
                yield job

    def ends(self) -> list[datetime]:
        """Return the ends of the waits by the clock."""
        kinds = {one.kind for one, entries in self.entries.items() if entries}
        waits = filter(None, map(self.timetable.of_kind, kinds))
        return [wait.until for wait in waits if wait.until is not None]

    def _waits(self) -> dict[Kind, str]:
        result = {one.kind: self.timetable.of_kind(one.kind) for one in self.entries}
        return {kind: wait.text for kind, wait in result.items() if wait is not None}


_place = itemgetter(0)


def _in_turns(
    entries: Sequence[Entry], first: Collection[str], served: Mapping[str, float], ahead: str
) -> Iterator[tuple[tuple[float, Key], DueJob]]:
    """Yield the entries of a class, with their places among all classes; `first` names the repositories.

    A class may have a hundred thousand entries, and a turn takes a handful, so the first come before all are
    read.
    """
    if ahead in first:
        yield from (((-1.0, place), job) for place, job in entries if job.repository == ahead)
    late = {key: seconds for key, seconds in served.items() if key in first and key != ahead}
    if len(late) + (ahead in first) < len(first):
        for place, job in entries:
            if job.repository not in served and job.repository != ahead:
                yield (0.0, place), job
    if late:
        least = min(late.values())
        yield from (((least, place), job) for place, job in entries if late.get(job.repository) == least)
        others = [
            ((seconds, place), job)
            for place, job in entries
            if (seconds := late.get(job.repository, least)) != least
        ]
        others.sort(key=_place)
        yield from others


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Inputs shared by all repositories: a change of any of them replans everything.

    `searches`: by rung, the number of sorries a job may take in the time left today.
    """

    settings: Settings
    leans: Leans
    trainable: bool
    no_models: str
    tactics: tuple[str, str] | None
    searches: tuple[int, ...]
    day: str
    judges: Judges


@dataclass(frozen=True, slots=True)
class _Moment:
    """The time of a plan, with inputs valid only then."""

    now: datetime
    left_s: float | None
    served: Mapping[str, float]
    waits_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Part:
    """The due jobs of one repository. `until`: the time when the clock alone may change them (None:
    never)."""

    entries: tuple[Entry, ...] = ()
    until: datetime | None = None


_WORK, _LEARNING = range(2)
_PartKey = tuple[int, str]
"""A group of a repository's jobs (`_WORK` on its commits, `_LEARNING` from its traces) and the repository's
key."""


@dataclass(frozen=True, slots=True)
class _Change:
    """The subject of an event: a repository, a proof or job of one, or the models.

    `lane`: while it is taken, nothing else can begin because of the event; "": something may at once.
    """

    repository: str = ""
    proof: str = ""
    job: str = ""
    models: bool = False
    lane: str = ""
    traced: bool = False
    """a commit's trace: it may prove a sorry of another repository"""


class Planner:
    """Makes plans of one view, turn after turn.

    Args:
        patience_s: the seconds of a plan; the rest is left to the next one, and each has at least one more
            repository.
        whole: give jobs with their specifications; else `complete` makes those of the beginning jobs.
    """

    def __init__(self, *, patience_s: float = math.inf, whole: bool = False) -> None:
        self._patience_s = patience_s
        self._whole = whole
        self._inputs: _Inputs | None = None
        self._moment = _Moment(datetime.min.replace(tzinfo=UTC), None, {}, {})
        self._in_use: dict[str, str] = {}
        self._climbed: Climbed
        self._ladder: tuple[Rung, ...] = ()
        self._builds: frozenset[BuildKey] = frozenset()
        self._repos: dict[str, tuple[int, Repo]] = {}
        self._changes: deque[_Change] = deque()
        self._parts: dict[_PartKey, _Part] = {}
        self._stale: dict[_PartKey, None] = {}
        self._waits: dict[_PartKey, datetime] = {}
        self._entries: dict[JobClass, list[Entry]] = {}
        self._first: dict[JobClass, dict[str, DueJob]] = {}
        self._version = 0
        self._counted: Counted = {}
        self._resting = Resting()
        self._kept: dict[_PartKey, list[DueJob]] = {}
        self._read: tuple[sqlite3.Connection, int] | None = None

    def changed(self, bodies: Iterable[EventBody]) -> None:
        """Take note of the events since the last plan; any thread may call this at any time."""
        self._changes.extend(change for body in bodies if (change := _change(body)) is not None)

    def clock_set(self) -> None:
        """Plan anew everything waiting for a time of day, after a change of the clock; never call it during a
        plan."""
        self._stale |= dict.fromkeys(self._waits)

    def plan(
        self,
        view: sqlite3.Connection,
        *,
        settings: Settings,
        leans: Leans,
        now: datetime,
        builds: Collection[BuildKey] = (),
        trainable: bool = False,
        no_models: str = "",
        reserved_s: float = 0.0,
        tactics: tuple[str, str] | None = None,
        running: Collection[str] = (),
        last_started: Mapping[str, float] | None = None,
        waits_s: Mapping[str, float] | None = None,
        judges: Judges = NO_JUDGES,
    ) -> Plan:
        """Return the due jobs.

        Args:
            view: the view of the log whose events are passed to `changed`.
            builds: the keys of the cached builds.
            trainable: whether a model can be trained here (`daemon.health.requirements`).
            no_models: why no model can run here (`daemon.health.requirements`); "" if one can.
            reserved_s: the seconds of the day's search reserved for running jobs.
            tactics: rung 2's model, instead of the one in use (`daemon.planning.ladder`).
            running: the taken lanes.
            last_started: each repository's last start (any clock): the longest unserved goes first.
            waits_s: the remaining waits of failed jobs (`daemon.jobs.history`); for others the recorded time
                counts.
            judges: the judges of a proof in doubt.
        """
        left_s = seconds_left(view, settings=settings, now=now, reserved_s=reserved_s)
        self._moment = _Moment(now, left_s, last_started or {}, waits_s or {})
        inputs = _Inputs(
            settings=settings,
            leans=leans,
            trainable=trainable and settings.train.enabled,
            no_models=no_models,
            tactics=tactics,
            searches=() if left_s is None else searches_left(settings.prove, left_s),
            # Sorries refused by the day's cap are asked tomorrow.
            day=now.astimezone(UTC).date().isoformat() if {4, 5}.intersection(settings.prove.rungs) else "",
            judges=judges,
        )
        # No inputs while the plan is made: after an error in between, the next plan starts anew.
        before, self._inputs = self._inputs, None
        self._kept, self._read = {}, (view, _data_version(view))
        self._take_in(view, before, inputs, frozenset(builds), running)
        if self._stale or self._resting.under_way:
            self._find(view, inputs)
        self._inputs = inputs
        plan = Plan(
            dict(self._entries),
            dict(self._first),
            frozenset(running),
            ladder=self._ladder,
            timetable=read_timetable(view, schedule=settings.schedule, now=now),
            left_s=left_s,
            complete=not (self._stale or self._resting.under_way),
            version=self._version,
        )
        return replace(plan, next_retry_at=min((*self._waits.values(), *plan.ends()), default=None))

    def complete(self, view: sqlite3.Connection, jobs: Collection[DueJob]) -> list[DueJob]:
        """Return jobs of the last plan with their specifications, without those no longer due.

        The repositories of the latter are planned anew the next time.
        """
        if self._whole or self._inputs is None:
            return [*jobs]
        # The plan's jobs are still valid if no other connection has written since.
        cache = self._kept if self._read == (view, _data_version(view)) else {}
        finder = self._finder(view, self._inputs)
        keys, ids = dict.fromkeys(job.repository for job in jobs), {job.job for job in jobs}
        result: dict[str, DueJob] = {}
        for group, key in ((group, key) for key in keys for group in (_WORK, _LEARNING)):
            if ids.isdisjoint(job.job for _, job in self._parts.get((group, key), _Part()).entries):
                continue  # none of this group begins
            of_part = cache.get((group, key))
            if of_part is None:
                of_part = finder.jobs(group, self._repos[key][1])
            result |= {job.job: job for job in of_part}
        for job in jobs:
            if job.job not in result:
                self._stale |= {(group, job.repository): None for group in (_WORK, _LEARNING)}
        return [replace(result[job.job], leases=job.leases) for job in jobs if job.job in result]

    def _finder(self, view: sqlite3.Connection, inputs: _Inputs) -> _Finder:
        moment = self._moment
        look = Look(
            view,
            settings=inputs.settings,
            leans=inputs.leans,
            builds=self._builds,
            climbed=self._climbed,
            judges=inputs.judges,
            standings=ReadinessOfJobs(view, now=moment.now, waits_s=moment.waits_s),
            now=moment.now,
            left_s=moment.left_s,
        )
        return _Finder(look, moment.served, self._resting, self._counted, trainable=inputs.trainable)

    def _take_in(
        self,
        view: sqlite3.Connection,
        before: _Inputs | None,
        inputs: _Inputs,
        builds: frozenset[BuildKey],
        running: Collection[str],
    ) -> None:
        """Mark the repositories whose part of the last plan, made of the inputs `before`, may be out of
        date."""
        about, models = self._read_changes(view, running)
        if models or before is None:
            in_use = promotion.ladder_models(view)
            another, self._in_use = in_use != self._in_use, in_use
        else:
            another = False
        if another or before != inputs:
            self._begin_anew(inputs, builds)
            return
        about |= {one.repository for one in self._builds ^ builds}
        for repository in about:
            self._stale[_WORK, repository] = self._stale[_LEARNING, repository] = None
        if models:
            self._stale |= dict.fromkeys((_LEARNING, key) for key in self._repos)
        now = self._moment.now
        self._stale |= dict.fromkeys(key for key, until in self._waits.items() if until <= now)
        self._builds = builds
        self._stale = {key: None for key in self._stale if key[1] in self._repos}

    def _begin_anew(self, inputs: _Inputs, builds: frozenset[BuildKey]) -> None:
        self._builds = builds
        self._repos = {repo.key: (at, repo) for at, repo in enumerate(inputs.settings.repos) if repo.enabled}
        first = sorted(self._repos, key=lambda key: -self._repos[key][1].priority)
        self._parts, self._waits, self._entries, self._first = {}, {}, {}, {}
        ladder = ladder_of(inputs.settings, no_models=inputs.no_models, tactics=inputs.tactics)
        self._climbed = Climbed(ladder, self._in_use)
        self._ladder = ladder.described(self._in_use) if inputs.settings.prove.enabled else ()
        self._stale = {(group, key): None for group in (_WORK, _LEARNING) for key in first}
        self._version += 1

    def _read_changes(self, view: sqlite3.Connection, running: Collection[str]) -> tuple[set[str], bool]:
        """Return the repositories of the events since the last plan, and whether the models changed.

        A running search's own events are left for the plan after its end: planning a repository of thousands
        of sorries for each event would take longer than the search.
        """
        changes = {self._changes.popleft() for _ in range(len(self._changes))}
        later = {change for change in changes if change.lane in running}
        self._changes.extend(later)
        changes -= later
        about = {change.repository for change in changes}
        models = any(change.models for change in changes)
        if any(change.traced for change in changes):
            about |= transfers.asking(view)
        for change in changes:
            if change.job:
                for row in queries.jobs_by_prefix(view, change.job):
                    about.add(row.repository or "")
                    models = models or row.kind in TRAININGS
            if change.proof:
                about.update(row.repository for row in queries.proofs_by_prefix(view, change.proof))
        return about, models

    def _find(self, view: sqlite3.Connection, inputs: _Inputs) -> None:
        """Plan the marked repositories, and continue the counts for the order of their proof jobs."""
        finder = self._finder(view, inputs)
        began = time.monotonic()
        replaced: dict[_PartKey, _Part] = {}
        while True:
            if replaced and time.monotonic() - began > self._patience_s:
                break
            if not self._stale:
                ended = self._resting.go_on(view, until=began + self._patience_s)
                self._stale = {(_WORK, key): None for key in ended if key in self._repos}
            part = next(iter(self._stale), None)
            if part is None:
                break
            del self._stale[part]
            before, (group, key) = self._parts.get(part, _Part()), part
            replaced.setdefault(part, before)
            jobs, result = finder.part(group, *self._repos[key], whole=self._whole)
            self._parts[part] = result
            if not self._whole and len(self._kept) < _MOST_KEPT:
                self._kept[part] = jobs
            self._waits.pop(part, None)
            if result.until is not None:
                self._waits[part] = result.until
        if replaced:
            gone = [entry for part in replaced.values() for entry in part.entries]
            self._replace(gone, [entry for part in replaced for entry in self._parts[part].entries])
            self._version += 1

    def _replace(self, gone: Sequence[Entry], come: Sequence[Entry]) -> None:
        """Put entries in their places; earlier plans keep their lists."""
        changes: dict[JobClass, tuple[list[Entry], list[Entry]]] = {}
        for at, entries in enumerate((gone, come)):
            for entry in entries:
                changes.setdefault(JobClass.of(entry[1]), ([], []))[at].append(entry)
        for one, (old, new) in changes.items():
            entries = self._entries.get(one, [])
            if len(old) + len(new) > _FEW:
                keys = {key for key, _ in old}
                entries = sorted([*(entry for entry in entries if entry[0] not in keys), *new], key=_place)
            else:
                entries = [*entries]
                for key, _ in old:
                    del entries[bisect_left(entries, key, key=_place)]
                for entry in new:
                    insort(entries, entry, key=_place)
            first = dict(self._first.get(one, {}))
            for _, job in old:
                first.pop(job.repository, None)
            for _, job in sorted(new, key=_place):
                first.setdefault(job.repository, job)
            self._entries[one], self._first[one] = entries, first


def _data_version(view: sqlite3.Connection) -> int:
    """Return a number changed by each commit of another connection."""
    return int(view.execute("PRAGMA data_version").fetchone()[0])


def _change(body: EventBody) -> _Change | None:
    """Return the subject of an event; None if no job depends on it."""
    if isinstance(body, (CheckpointSaved, CheckpointPromoted, CheckpointRefused, CheckpointRemoved)):
        return _Change(models=True)
    if isinstance(body, EvaluationFinished):
        return _Change(models=True)
    if isinstance(body, AttemptFinished) or (isinstance(body, JobStarted) and body.kind == "prove"):
        repository, branch = body.repository or "", body.branch or ""
        return _Change(repository=repository, lane=prove_lane(repository, branch))
    if isinstance(body, CommitTraced):
        return _Change(repository=body.repository, traced=True)
    for name in ("repository", "proof", "job"):
        if about := getattr(body, name, None):
            return _Change(**{name: about})
    return None


class _Finder:
    """Plans single repositories at one moment."""

    def __init__(
        self, look: Look, served: Mapping[str, float], resting: Resting, counted: Counted, *, trainable: bool
    ) -> None:
        self._look = look
        self._served = served
        self._resting = resting
        self._counted = counted
        self._trainable = trainable

    def part(self, group: int, at: int, repo: Repo, *, whole: bool) -> tuple[list[DueJob], _Part]:
        """Return the due jobs of the repository at this place in the settings, and their part of the plan."""
        standings, served = self._look.standings, self._served.get(repo.key, 0.0)
        standings.next_retry_at = None
        jobs = self.jobs(group, repo)
        entries = (
            ((_PLACES[job.kind], -repo.priority, job.rank, served, group, at, number), job)
            for number, job in enumerate(jobs)
        )
        return jobs, _Part(
            tuple(entries if whole else ((key, replace(job, spec=None)) for key, job in entries)),
            standings.next_retry_at,
        )

    def jobs(self, group: int, repo: Repo) -> list[DueJob]:
        if group == _WORK:
            return self._work.of(repo)
        return [*self._learning.of(repo)] if self._trainable else []

    @cached_property
    def _work(self) -> RepositoryJobs:
        return RepositoryJobs(self._look, self._resting)

    @cached_property
    def _learning(self) -> TrainingJobs:
        return TrainingJobs(self._look, self._counted, self._work.build_first)
