"""A long, lifelike log for `benchmarks/store.py`: what a daemon records of repositories that people work on.

The mix is that of the 300 real commits in docs/benchmarks.md ("The daemon on real commits", the last 100 commits of
three repositories), to which proving is added as the daemon does it: every sorry of a changed file is attempted
again, sixteen a job. For each commit, on average:

    4.3 files scanned, of 12.8 declarations each (28,839 declarations in 2,256 files there), a proof changed in each
    1.7 sorrys opened, about 8 moved (half of them in context only), some changed, filled, removed
    one job_started, commit_observed, theorems_followed, commit_scanned and job_succeeded
    an attempt for every sorry that was opened, moved or changed; one in twenty finds a proof, which a job of its
    own checks and finds verified, conditional or short of a check; one prove job in fifty fails

What came out is in the benchmark's JSON.

The same seed tells the same history, whatever the clock. Bodies are real and validated, payloads are unique and stored
as the daemon stores them.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from store import events as ev
from store.identity import proof_id, short_hash, sorry_id
from store.log import EventLog, Expect, NewEvent
from store.scanned import THEOREM_KINDS
from store.testing_events import ALL_PASSED, CHECKS, PATCH, digest, sha
from store.theoremlife import Step, TheoremAfter, TheoremBefore, TheoremStep

FILES_A_COMMIT = 4.3
DECLARATIONS_A_FILE = 12.8
SORRIES_A_FILE = 2.0
MOST_SORRIES_A_FILE = 3
OPENED_A_FILE = 1.7 / FILES_A_COMMIT
RESTATED_A_FILE = 0.4
REPROVED_A_FILE = 1.0
IN_CONTEXT_ONLY = 4.5 / (3.8 + 4.5)
REMOVED = 0.15
SORRIES_A_JOB = 16
FOUND = 0.05
FAILED = 0.02
EVENTS_A_BATCH = 2000

Event = tuple[str, ev.EventBody]


@dataclass(slots=True)
class Decl:
    """A declaration; `sorry` is the id of the one that it has, once that was opened."""

    name: str
    kind: str
    statement: str
    statement_hash: str
    lines: int
    proof: int = 0
    sorry: str = ""
    life: Literal["none", "new", "held", "gone"] = "none"
    restated: bool = False

    @property
    def has_sorry(self) -> bool:
        return self.life in ("new", "held")

    @property
    def text_hash(self) -> str:
        return short_hash(self.statement, str(self.proof), str(self.has_sorry))


@dataclass(slots=True)
class SourceFile:
    path: str
    declarations: list[Decl]
    blob: str = ""
    shift: int = 0


@dataclass(slots=True)
class Commit:
    """What one commit's scan records, in the log's order, and what the provers will work on."""

    events: list[Event] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    to_prove: list[tuple[str, ev.SorryPlace]] = field(default_factory=list)
    steps: list[TheoremStep] = field(default_factory=list)


class History:
    """The log of `n_repositories` repositories of `n_files` files each."""

    def __init__(self, seed: int, *, n_repositories: int = 20, n_files: int = 110) -> None:
        self.random = random.Random(seed)
        self._clock = datetime(2026, 1, 1, tzinfo=UTC)
        self._repositories = [
            _Repository(f"example.org/group/library-{number}", n_files, self.random)
            for number in range(n_repositories)
        ]

    def batches(self) -> Iterator[tuple[list[Event], list[bytes]]]:
        """Yield for ever: the baselines, then one commit of a random repository and the work that follows on it."""
        for repository in self._repositories:
            yield repository.watch()
            yield from self._with_jobs(repository, repository.commit(self._now(), baseline=True))
        while True:
            repository = self.random.choice(self._repositories)
            yield from self._with_jobs(repository, repository.commit(self._now()))

    def _now(self) -> datetime:
        self._clock += timedelta(minutes=7)
        return self._clock

    def _with_jobs(
        self, repository: _Repository, commit: Commit
    ) -> Iterator[tuple[list[Event], list[bytes]]]:
        yield commit.events, commit.payloads
        for start in range(0, len(commit.to_prove), SORRIES_A_JOB):
            yield repository.prove(commit.to_prove[start : start + SORRIES_A_JOB]), [PATCH]


class _Repository:
    def __init__(self, key: str, n_files: int, rng: random.Random) -> None:
        self.key = key
        self.stream = f"repository:{key}"
        self._random = rng
        self._n = 0
        self._sha = ""
        self._files = [self._new_file(number) for number in range(n_files)]

    def watch(self) -> tuple[list[Event], list[bytes]]:
        body = ev.RepositoryWatched(
            repository=self.key,
            url=f"https://{self.key}",
            branches=(),
            include=("**/*.lean",),
            exclude=(),
            every_s=300.0,
            enabled=True,
            opt_out=False,
        )
        created = ev.BranchCreated(repository=self.key, branch="main", tip=sha(self.key, 1), is_default=True)
        return [(self.stream, body), (self.stream, created)], []

    def commit(self, moment: datetime, *, baseline: bool = False) -> Commit:
        rng = self._random
        base = self._sha or None
        self._n += 1
        self._sha = sha(self.key, self._n)
        job = f"scan-{short_hash(self.key, str(self._n))}"
        made = Commit()
        observed = ev.CommitObserved(
            repository=self.key,
            branch="main",
            sha=self._sha,
            parents=(base,) if base else (),
            author="Ada Lovelace",
            committed_at=moment,
            subject=f"feat(Analysis): the {self._n}th step towards the theorem",
            baseline=baseline,
        )
        made.events.append((self.stream, observed))
        made.events.append((f"job:{job}", self._started(job, "scan")))
        if baseline:
            changed = self._files
        else:
            changed = rng.sample(self._files, min(len(self._files), _geometric(rng, FILES_A_COMMIT)))
        lives: list[Event] = []
        for file in changed:
            self._edit(file, made, baseline=baseline)
            places, payload = self._scan(file, made)
            made.payloads.append(payload)
            lives += self._lives(file, places, made)
        made.events += [*lives, self._followed(made, baseline=baseline)]
        made.events.append((self.stream, self._scanned(base, len(changed))))
        made.events.append((f"job:{job}", self._succeeded(job, 0.3, {"files": len(changed)})))
        return made

    def prove(self, sorries: Sequence[tuple[str, ev.SorryPlace]]) -> list[Event]:
        """One job for these sorrys; a proof that it finds is checked by a job of its own."""
        rng = self._random
        job = f"prove-{short_hash(self._sha, sorries[0][0], str(len(sorries)))}"
        events: list[Event] = [(f"job:{job}", self._started(job, "prove"))]
        checks: list[Event] = []
        for sorry, place in sorries:
            found = rng.random() < FOUND
            if found:
                checks += self._found(sorry, place, job, events)
            attempt = ev.AttemptFinished(
                repository=self.key,
                branch="main",
                sha=self._sha,
                sorry=sorry,
                blob=place.blob,
                prover="tactics",
                rung=0,
                budget="60s/200n/10s/pantograph",
                outcome="found" if found else rng.choice(["exhausted", "exhausted", "budget", "unsupported"]),
                detail="",
                nodes=rng.randrange(200),
                repl_calls=rng.randrange(400),
                seconds=round(rng.random() * 60, 3),
                simulated=False,
                job=job,
            )
            events.append((self.stream, attempt))
        if rng.random() < FAILED:
            end: ev.EventBody = ev.JobFailed(
                job=job,
                attempt=1,
                reason="crashed",
                message="the REPL ended with 137",
                remedy="give the job more memory",
                deterministic=False,
                retry_at=datetime(2026, 1, 1, tzinfo=UTC),
                seconds=12.5,
                peak_rss_bytes=3 << 30,
            )
        else:
            end = self._succeeded(job, 41.0, {"found": 0, "exhausted": len(sorries)})
        return [*events, (f"job:{job}", end), *checks]

    def _found(self, sorry: str, place: ev.SorryPlace, job: str, events: list[Event]) -> list[Event]:
        text = f"simpa using {place.declaration}_aux"
        proof = proof_id(sorry, place.blob, text)
        stream = f"proof:{proof}"
        body = ev.ProofFound(
            proof=proof,
            sorry=sorry,
            repository=self.key,
            branch="main",
            sha=self._sha,
            path=place.path,
            blob=place.blob,
            byte_start=place.byte_start,
            byte_end=place.byte_end,
            declaration=place.declaration,
            declaration_text_hash=short_hash(place.declaration, text),
            replacement=text,
            tactics=(text,),
            prover="tactics",
            rung=0,
            toolchain="leanprover/lean4:v4.29.1",
            simulated=False,
            job=job,
        )
        events.append((stream, body))
        check = f"check-{proof}"
        common = {"proof": proof, "sorry": sorry, "job": check}
        outcome = self._random.random()
        verdict: ev.EventBody
        if outcome < 0.7:
            verdict = ev.ProofVerified(
                **common, checks=ALL_PASSED, not_checked=("kernel",), axioms=("propext",), patch=digest(PATCH)
            )
        elif outcome < 0.9:
            verdict = ev.ProofChecked(
                **common, checks=CHECKS, not_checked=("axioms",), patch=digest(PATCH), simulated=False
            )
        else:
            verdict = ev.ProofRejected(
                **common,
                step="axioms",
                reason="it rests on sorryAx",
                checks=CHECKS,
                conditional_on=("0" * 16,),
                simulated=False,
            )
        return [
            (f"job:{check}", self._started(check, "check")),
            (stream, verdict),
            (f"job:{check}", self._succeeded(check, 8.0, {"verdict": verdict.type})),
        ]

    def _new_file(self, number: int) -> SourceFile:
        count = _geometric(self._random, DECLARATIONS_A_FILE)
        path = f"Library/Part{number % 12}/Section{number}.lean"
        return SourceFile(path, [self._new_declaration(number, index) for index in range(count)])

    def _new_declaration(self, file: int, index: int) -> Decl:
        kind = self._random.choice(["theorem", "theorem", "theorem", "lemma", "lemma", "def", "instance"])
        statement = _statement(file, index, 0)
        return Decl(
            name=f"Library.Part{file % 12}.Section{file}.statement_{index}",
            kind=kind,
            statement=statement,
            statement_hash=short_hash(statement),
            lines=self._random.randrange(2, 14),
        )

    def _edit(self, file: SourceFile, made: Commit, *, baseline: bool) -> None:
        """Change the file: lines move; now and then a statement or a proof does; sorrys come and go."""
        rng = self._random
        file.blob = sha(self.key, file.path, self._n)
        file.shift += rng.randrange(3)
        declarations = file.declarations
        if baseline:
            for item in declarations:
                if rng.random() < SORRIES_A_FILE / DECLARATIONS_A_FILE:
                    item.life = "new"
            return
        touched: dict[int, list[Step]] = {}
        before = [_before(file, item) for item in declarations]
        for _ in range(_poisson(rng, OPENED_A_FILE)):
            index = rng.randrange(len(declarations))
            if declarations[index].life == "none":
                declarations[index].life = "new"
                touched[index] = ["reproved"]
        holding = [index for index, item in enumerate(declarations) if item.life == "held"]
        # What a file gains in sorrys it loses on the average, or it would have no room for more.
        for index in rng.sample(holding, max(0, len(holding) - MOST_SORRIES_A_FILE)):
            declarations[index].life = "gone"
            touched[index] = ["reproved"]
        for _ in range(_poisson(rng, REPROVED_A_FILE)):
            index = rng.randrange(len(declarations))
            declarations[index].proof += 1
            touched[index] = ["reproved"]
        for _ in range(_poisson(rng, RESTATED_A_FILE)):
            index = rng.randrange(len(declarations))
            item = declarations[index]
            item.statement = _statement(index, item.lines, self._n)
            item.statement_hash = short_hash(item.statement)
            item.restated = True
            touched[index] = ["restated"]
        for index, steps in sorted(touched.items()):
            item = declarations[index]
            if item.kind in THEOREM_KINDS:
                made.steps.append(TheoremStep(tuple(steps), before[index], _after(file, item)))

    def _followed(self, made: Commit, *, baseline: bool) -> Event:
        payload = json.dumps([step.as_json() for step in made.steps]).encode()
        made.payloads.append(payload)
        body = ev.TheoremsFollowed(
            repository=self.key,
            branch="main",
            sha=self._sha,
            baseline=baseline,
            unread=(),
            counts=dict(Counter(name for step in made.steps for name in step.steps)),
            steps=digest(payload),
        )
        return self.stream, body

    def _scan(self, file: SourceFile, made: Commit) -> tuple[dict[str, ev.SorryPlace], bytes]:
        """Record the scan of a file; return where its sorrys stand, by declaration, and the payload."""
        line = 20 + file.shift
        declarations: list[dict[str, Any]] = []
        sorries: list[dict[str, Any]] = []
        places: dict[str, ev.SorryPlace] = {}
        for index, item in enumerate(file.declarations):
            byte = 40 * line
            declarations.append(
                {
                    "name": item.name,
                    "kind": item.kind,
                    "line": line,
                    "column": 0,
                    "end_line": line + item.lines,
                    "end_column": 7,
                    "byte_start": byte,
                    "byte_end": byte + 40 * item.lines,
                    "statement": item.statement,
                    "statement_hash": item.statement_hash,
                    "text_hash": item.text_hash,
                }
            )
            if item.has_sorry:
                sorry = {
                    "declaration": item.name,
                    "index": index,
                    "ordinal": 0,
                    "token": "sorry",
                    "mode": "tactic",
                    "line": line + item.lines,
                    "column": 2,
                    "byte_start": byte + 40 * item.lines - 5,
                    "byte_end": byte + 40 * item.lines,
                    "context_hash": short_hash("context", item.name, str(file.shift)),
                }
                sorries.append(sorry)
                place = {name: value for name, value in sorry.items() if name != "index"}
                places[item.name] = ev.SorryPlace(
                    **place,
                    path=file.path,
                    blob=file.blob,
                    kind=item.kind,
                    statement=item.statement,
                    statement_hash=item.statement_hash,
                )
            line += item.lines + 2
        payload = json.dumps(
            {
                "path": file.path,
                "error": None,
                "imports": ["Mathlib.Analysis.Basic", "Library.Prelude"],
                "declarations": declarations,
                "sorries": sorries,
            },
            sort_keys=True,
        ).encode()
        body = ev.FileScanned(
            repository=self.key,
            branch="main",
            sha=self._sha,
            path=file.path,
            blob=file.blob,
            error=None,
            n_declarations=len(declarations),
            n_sorries=len(sorries),
            scan=digest(payload),
        )
        made.events.append((self.stream, body))
        return places, payload

    def _lives(self, file: SourceFile, places: dict[str, ev.SorryPlace], made: Commit) -> Iterator[Event]:
        rng = self._random
        for item in file.declarations:
            restated, item.restated = item.restated, False
            if item.life == "none":
                continue
            if item.life == "gone":
                item.life = "none"
                life = self._life(item.sorry)
                removed = rng.random() < REMOVED
                yield (
                    self.stream,
                    ev.SorryRemoved(**life) if removed else ev.SorryFilled(**life, by="people", proof=None),
                )
                continue
            place = places[item.name]
            body: ev.SorryEvent
            if item.life == "new":
                again = bool(item.sorry)
                item.life = "held"
                item.sorry = item.sorry or sorry_id(self.key, item.name, item.statement_hash, 0)
                body = ev.SorryOpened(**self._life(item.sorry), place=place, reopened=again)
            elif restated:
                body = ev.SorryChanged(**self._life(item.sorry), place=place, statement_before="True")
            else:
                what: Literal["context", "line"] = "context" if rng.random() < IN_CONTEXT_ONLY else "line"
                body = ev.SorryMoved(**self._life(item.sorry), place=place, what=(what,))
            made.to_prove.append((item.sorry, place))
            yield self.stream, body

    def _life(self, sorry: str) -> dict[str, str]:
        return {"repository": self.key, "branch": "main", "sha": self._sha, "sorry": sorry}

    def _scanned(self, base: str | None, n_files: int) -> ev.CommitScanned:
        return ev.CommitScanned(
            repository=self.key,
            branch="main",
            sha=self._sha,
            base=base,
            include=("**/*.lean",),
            exclude=(),
            files_scanned=n_files,
            files_removed=0,
            files_failed=0,
            seconds=0.25,
        )

    def _started(self, job: str, kind: str) -> ev.JobStarted:
        return ev.JobStarted(
            job=job,
            kind=kind,
            attempt=1,
            repository=self.key,
            branch="main",
            sha=self._sha,
            describes=f"{kind} of main at {self._sha[:9]}",
            simulated=False,
        )

    def _succeeded(self, job: str, seconds: float, summary: dict[str, Any]) -> ev.JobSucceeded:
        return ev.JobSucceeded(
            job=job, attempt=1, seconds=seconds, peak_rss_bytes=96 << 20, summary=summary, simulated=False
        )


def record_history(log: EventLog, folder: Path, *, n_events: int, seed: int = 1) -> Counter[str]:
    """Append a history of exactly `n_events`, in large batches; return how many there are of each type."""
    counts: Counter[str] = Counter()
    events: list[NewEvent] = []
    blobs: dict[str, Path] = {}
    for bodies, payloads in History(seed).batches():
        events += [NewEvent(stream, body) for stream, body in bodies]
        for payload in payloads:
            reference = hashlib.sha256(payload).hexdigest()
            path = folder / reference
            path.write_bytes(payload)
            blobs[reference] = path
        full = sum(counts.values()) + len(events) >= n_events
        if len(events) >= EVENTS_A_BATCH or full:
            events = events[: n_events - sum(counts.values())]
            log.append(events, expect={event.stream: Expect.ANY for event in events}, blobs=blobs)
            counts.update(event.body.type for event in events)
            for path in blobs.values():
                path.unlink()
            events, blobs = [], {}
        if full:
            break
    return counts


def _statement(file: int, index: int, version: int) -> str:
    return (
        f"{{α : Type*}} [NormedField α] (f : ℕ → α) (n : ℕ) (hf : ∀ k, ‖f k‖ ≤ {file + 1}) : "
        f"‖∑ k ∈ Finset.range n, f k‖ ≤ {index + 1} * n + {version}"
    )


def _before(file: SourceFile, item: Decl) -> TheoremBefore:
    return TheoremBefore(item.name, item.kind, file.path, item.statement_hash, item.text_hash)


def _after(file: SourceFile, item: Decl) -> TheoremAfter:
    return TheoremAfter(
        item.name,
        item.kind,
        file.path,
        item.statement,
        item.statement_hash,
        item.text_hash,
        n_sorries=int(item.has_sorry),
    )


def _geometric(rng: random.Random, mean: float) -> int:
    """A number from 1, small ones more often, with this mean."""
    number = 1
    while rng.random() > 1 / mean:
        number += 1
    return number


def _poisson(rng: random.Random, mean: float) -> int:
    """A number from 0 with this mean."""
    number, left = 0, rng.expovariate(1.0)
    while left < mean:
        number += 1
        left += rng.expovariate(1.0)
    return number
