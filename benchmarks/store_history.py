"""A long, lifelike log for `benchmarks/store.py`: a daemon's record of repositories in active use.

The mix is that of the 300 real commits in docs/design/benchmarks.md ("The daemon on real commits", the last
100 of each of three repositories), with proving added as by the daemon: every sorry of a changed file is
attempted again, sixteen a job. For each commit, on average:

    4.3 files scanned, of 12.8 declarations each (28,839 declarations in 2,256 files there), a proof changed
        in each
    1 to 2 sorries opened, about 8 moved (half of them in context only), some changed, filled, removed
    one job_started, commit_observed, theorems_followed, commit_scanned and job_succeeded
    an attempt for every opened, moved or changed sorry; one in twenty finds a proof, and a job of its own
        finds it
    verified, conditional or short of a check; one prove job in fifty fails

The benchmark's JSON has the resulting numbers.

The same seed tells the same history, whatever the clock. Bodies are real and validated, payloads are unique
and stored as by the daemon.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, cast

from benchmarks.store_jobs import At, Event, prove, started, succeeded
from benchmarks.store_source import FILES_A_COMMIT, SourceFile, edit, first_sorries, geometric, new_file, scan
from store.domain.identity import short_hash, sorry_id
from store.domain.life import TheoremStep
from store.events.places import SorryPlace
from store.events.projects import Project
from store.events.repositories import BranchCreated, CommitObserved, RepositoryWatched
from store.events.scans import (
    CommitScanned,
    FileScanned,
    SorryChanged,
    SorryEvent,
    SorryFilled,
    SorryMoved,
    SorryOpened,
    SorryRemoved,
    TheoremsFollowed,
)
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from tests.support.events import PATCH, digest, sha

IN_CONTEXT_ONLY = 4.5 / (3.8 + 4.5)
REMOVED = 0.15
SORRIES_A_JOB = 16
EVENTS_A_BATCH = 2000


@dataclass(slots=True)
class Commit:
    """The observation of a commit, the events of its scan in the log's order, and the provers' work."""

    observed: Event
    files: int
    events: list[Event] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    to_prove: list[tuple[str, SorryPlace]] = field(default_factory=list)
    steps: list[TheoremStep] = field(default_factory=list)


class History:
    """The log of `n_repositories` repositories of `n_files` files each."""

    def __init__(self, seed: int, *, n_repositories: int = 20, n_files: int = 110) -> None:
        self.random = random.Random(seed)
        self._clock = datetime(2026, 1, 1, tzinfo=UTC)
        self._repositories = [
            Repository(f"example.org/group/library-{number}", n_files, self.random)
            for number in range(n_repositories)
        ]

    def batches(self) -> Iterator[tuple[list[Event], list[bytes]]]:
        """Yield for ever: the baselines, then one commit of a random repository and the following work."""
        for repository in self._repositories:
            yield repository.watch()
            yield from self._with_jobs(repository, repository.commit(self._now(), baseline=True))
        while True:
            repository = self.random.choice(self._repositories)
            yield from self._with_jobs(repository, repository.commit(self._now()))

    def _now(self) -> datetime:
        self._clock += timedelta(minutes=7)
        return self._clock

    def _with_jobs(self, repository: Repository, commit: Commit) -> Iterator[tuple[list[Event], list[bytes]]]:
        at = repository.at
        job = f"scan-{short_hash(repository.key, str(repository.commits))}"
        began: Event = (f"job:{job}", started(at, job, "scan"))
        ended: Event = (f"job:{job}", succeeded(job, 0.3, {"files": commit.files}))
        yield [commit.observed, began, *commit.events, ended], commit.payloads
        for start in range(0, len(commit.to_prove), SORRIES_A_JOB):
            yield repository.prove(commit.to_prove[start : start + SORRIES_A_JOB]), [PATCH]


class Repository:
    """One repository with active people."""

    def __init__(self, key: str, n_files: int, rng: random.Random) -> None:
        self.key = key
        self.stream = f"repository:{key}"
        self._random = rng
        self.commits = 0
        self._sha = ""
        self._files = [new_file(number, rng) for number in range(n_files)]

    def watch(self) -> tuple[list[Event], list[bytes]]:
        """Return its first events."""
        body = RepositoryWatched(
            projects=(),
            repository=self.key,
            url=f"https://{self.key}",
            branches=(),
            include=("**/*.lean",),
            exclude=(),
            every_s=300.0,
            enabled=True,
            opt_out=False,
        )
        created = BranchCreated(repository=self.key, branch="main", tip=sha(self.key, 1), is_default=True)
        return [(self.stream, body), (self.stream, created)], []

    def commit(self, moment: datetime, *, baseline: bool = False) -> Commit:
        """Commit; return the consequences."""
        rng = self._random
        base = self._sha or None
        self.commits += 1
        self._sha = sha(self.key, self.commits)
        observed = CommitObserved(
            repository=self.key,
            branch="main",
            sha=self._sha,
            parents=(base,) if base else (),
            author="Ada Lovelace",
            committed_at=moment,
            subject=f"feat(Analysis): the {self.commits}th step towards the theorem",
            baseline=baseline,
        )
        if baseline:
            changed = self._files
        else:
            changed = rng.sample(self._files, min(len(self._files), geometric(rng, FILES_A_COMMIT)))
        result = Commit((self.stream, observed), len(changed))
        lives: list[Event] = []
        for file in changed:
            file.blob = sha(self.key, file.path, self.commits)
            if baseline:
                first_sorries(file, rng)
            else:
                result.steps += edit(file, rng, number=self.commits)
            places, payload = scan(file)
            result.events.append((self.stream, self._file_scanned(file, places, payload)))
            result.payloads.append(payload)
            lives += self._lives(file, places, result)
        result.events += [*lives, self._theorems_followed(result, baseline=baseline)]
        result.events.append((self.stream, self._commit_scanned(base, len(changed))))
        return result

    def prove(self, sorries: list[tuple[str, SorryPlace]]) -> list[Event]:
        """Return the events of one job for these sorries of the newest commit."""
        return prove(self.at, sorries, self._random)

    @property
    def at(self) -> At:
        """Its newest commit."""
        return At(self.key, self._sha)

    def _theorems_followed(self, commit: Commit, *, baseline: bool) -> Event:
        payload = json.dumps([step.as_json() for step in commit.steps]).encode()
        commit.payloads.append(payload)
        body = TheoremsFollowed(
            repository=self.key,
            branch="main",
            sha=self._sha,
            baseline=baseline,
            unread=(),
            counts=dict(Counter(name for step in commit.steps for name in step.steps)),
            steps=digest(payload),
        )
        return self.stream, body

    def _file_scanned(self, file: SourceFile, places: dict[str, SorryPlace], payload: bytes) -> FileScanned:
        return FileScanned(
            repository=self.key,
            branch="main",
            sha=self._sha,
            path=file.path,
            blob=file.blob,
            error=None,
            n_declarations=len(file.declarations),
            n_sorries=len(places),
            exercise_words=0,
            declarations_taken=None,
            sorries_taken=None,
            marked=(),
            scan=digest(payload),
        )

    def _lives(self, file: SourceFile, places: dict[str, SorryPlace], commit: Commit) -> Iterator[Event]:
        rng = self._random
        for declaration in file.declarations:
            restated, declaration.restated = declaration.restated, False
            if declaration.life == "none":
                continue
            if declaration.life == "gone":
                declaration.life = "none"
                life = self._life(declaration.sorry)
                removed = rng.random() < REMOVED
                yield (
                    self.stream,
                    SorryRemoved(**life) if removed else SorryFilled(**life, by="people", proof=None),
                )
                continue
            place = places[declaration.name]
            body: SorryEvent
            if declaration.life == "new":
                again = bool(declaration.sorry)
                declaration.life = "held"
                declaration.sorry = declaration.sorry or sorry_id(
                    self.key, declaration.name, declaration.statement_hash, 0
                )
                body = SorryOpened(**self._life(declaration.sorry), place=place, reopened=again)
            elif restated:
                body = SorryChanged(**self._life(declaration.sorry), place=place, statement_before="True")
            else:
                what: Literal["context", "line"] = "context" if rng.random() < IN_CONTEXT_ONLY else "line"
                body = SorryMoved(**self._life(declaration.sorry), place=place, what=(what,))
            commit.to_prove.append((declaration.sorry, place))
            yield self.stream, body

    def _life(self, sorry: str) -> dict[str, str]:
        return {"repository": self.key, "branch": "main", "sha": self._sha, "sorry": sorry}

    def _commit_scanned(self, base: str | None, n_files: int) -> CommitScanned:
        return CommitScanned(
            repository=self.key,
            branch="main",
            sha=self._sha,
            base=base,
            include=("**/*.lean",),
            exclude=(),
            projects=(Project("", "", ""),),
            files_scanned=n_files,
            files_removed=0,
            files_failed=0,
            seconds=0.25,
            challenges=(),
        )


def record_history(log: EventLog, *, n_events: int, seed: int = 1) -> Counter[str]:
    """Append a history of exactly `n_events`, in large batches; return the number of each type."""
    counts: Counter[str] = Counter()
    events: list[NewEvent] = []
    blobs: dict[str, Path] = {}
    for bodies, payloads in History(seed).batches():
        events += [NewEvent(stream, body) for stream, body in bodies]
        for payload in payloads:
            blobs |= held(payload)
        full = sum(counts.values()) + len(events) >= n_events
        if len(events) >= EVENTS_A_BATCH or full:
            events = events[: n_events - sum(counts.values())]
            log.append(events, expect={event.stream: Expect.ANY for event in events}, blobs=blobs)
            counts.update(event.body.type for event in events)
            events, blobs = [], {}
        if full:
            break
    return counts


@dataclass(frozen=True, slots=True)
class _Held:
    payload: bytes

    def open(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self.payload)


def held(payload: bytes) -> dict[str, Path]:
    """Return `append`'s argument for a payload, without a job's file.

    A hundred thousand small files would take most of the time of a long log, and are not measured here.
    """
    return {hashlib.sha256(payload).hexdigest(): cast("Path", _Held(payload))}
