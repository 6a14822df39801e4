"""The simulated world of `benchmarks/year.py`: commits, and the outcome of each job, drawn from its inputs.

Event bodies are the real, validated classes. This module does not use the plan, the log or the view.
"""

from __future__ import annotations

import random
import tomllib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import AwareDatetime, BaseModel, ConfigDict

from benchmarks.store_history import Commit, Repository, held
from benchmarks.store_source import geometric
from daemon.jobs.due import DueJob
from pipeline.endpoint.errors import SpendingCapError
from pipeline.jobs.lines import Failure, Result
from pipeline.jobs.specs import CheckSpec, ProveSpec, ScanSpec, SorryToProve
from store.domain.identity import event_id, proof_id, short_hash
from store.events.proofs import AttemptFinished, ProofChecked, ProofFound, ProofRejected
from store.log.envelope import NewEvent
from tests.support.events import CHECKS, PATCH, digest

if TYPE_CHECKING:
    from pipeline.endpoint.spending import Spending

WITH_TREE = (0, 2)
CRASHES_AFTER_S = 30.0
_TREES = 64
"""So many texts of trees there are; each attempt's has a head of its own."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Whole(_Part):
    repositories: int
    sorries: int
    gpus: int
    usd_per_day: float
    days: float


class People(_Part):
    changed_a_day: float
    commits_a_change: float
    poll_s: float


class Machines(_Part):
    slots_a_gpu: int
    node_gpus: int


class Scan(_Part):
    seconds: float
    seconds_a_file: float


class CheckTimes(_Part):
    seconds: float
    rejected: float


class Prove(_Part):
    rungs: tuple[int, ...]
    found: tuple[float, ...]
    exhausted: tuple[float, ...]
    seconds_per_sorry: float
    early_share: float
    failed: float
    tree_bytes: int


class Endpoint(_Part):
    requests: int
    prompt_tokens: int
    completion_tokens: int
    usd_per_million_prompt: float
    usd_per_million_completion: float


class Models(_Part):
    promoted_a_year: float


class Inputs(_Part):
    """The file of inputs (`year.toml`, which says what each means)."""

    seed: int
    start: AwareDatetime
    sorries_a_file: float
    turn_s: float
    first_s: float
    whole: Whole
    people: People
    machines: Machines
    scan: Scan
    check: CheckTimes
    prove: Prove
    endpoint: Endpoint
    models: Models

    @classmethod
    def read(cls, path: Path) -> Inputs:
        """Read a file of them."""
        return cls.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))

    def scaled(self, scale: float, *, days: float | None = None) -> Inputs:
        """Return them with this share of the repositories, sorries, GPUs and money, for so many days."""
        whole = self.whole
        share = Whole(
            repositories=max(1, round(whole.repositories * scale)),
            sorries=max(1, round(whole.sorries * scale)),
            gpus=max(1, round(whole.gpus * scale)),
            usd_per_day=whole.usd_per_day * scale,
            days=whole.days if days is None else days,
        )
        return self.model_copy(update={"whole": share})


@dataclass(frozen=True, slots=True)
class Recorded:
    """A batch that a job records after so many seconds, with its payloads."""

    after_s: float
    events: list[NewEvent]
    blobs: dict[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Course:
    """The outcome of one attempt: the events that it records, its last line, and how many seconds it runs."""

    seconds: float
    last: Result | Failure
    batches: tuple[Recorded, ...] = ()


class World:
    """The repositories, and what comes of the jobs that work on them."""

    def __init__(self, inputs: Inputs) -> None:
        self.random = random.Random(inputs.seed)
        self._inputs = inputs
        whole = inputs.whole
        files = whole.sorries / whole.repositories / inputs.sorries_a_file
        self._repositories = {
            key: Repository(key, geometric(self.random, files), self.random)
            for key in (f"example.org/group/library-{number:05}" for number in range(whole.repositories))
        }
        self._pushed: dict[str, deque[Commit]] = {key: deque() for key in self._repositories}
        words = [short_hash(str(number))[:6] for number in range(2000)]
        count = inputs.prove.tree_bytes // 7
        self._trees = [" ".join(self.random.choices(words, k=count)).encode() for _ in range(_TREES)]

    @property
    def keys(self) -> list[str]:
        return [*self._repositories]

    # --- people -------------------------------------------------------------------------------------------

    def begins(self, key: str, now: datetime) -> list[NewEvent]:
        """Return the first sight of a repository, and of its one commit."""
        repository = self._repositories[key]
        commit = repository.commit(now, baseline=True)
        self._pushed[key].append(commit)
        (_, watched), (_, created) = repository.watch()[0]
        return [NewEvent(repository.stream, body) for body in (watched, created, commit.observed[1])]

    def pushes(self) -> Iterator[tuple[float, str]]:
        """Yield, for ever and in order, after how many seconds a push to which repository is seen."""
        people, keys = self._inputs.people, self.keys
        rate = people.changed_a_day * len(keys) / 86400
        at_s = self._inputs.first_s + people.poll_s
        while True:
            at_s += self.random.expovariate(rate)
            yield at_s, self.random.choice(keys)

    def push(self, key: str, now: datetime) -> list[NewEvent]:
        """Return the commits of one push, as they are seen together."""
        repository, found = self._repositories[key], []
        for _ in range(geometric(self.random, self._inputs.people.commits_a_change)):
            commit = repository.commit(now)
            self._pushed[key].append(commit)
            found.append(NewEvent(repository.stream, commit.observed[1]))
        return found

    # --- jobs ---------------------------------------------------------------------------------------------

    def course(self, job: DueJob, spending: Spending) -> Course:
        """Return what becomes of an attempt of a job. One of rung 4 spends money at once."""
        match job.spec:
            case ScanSpec() as spec:
                return self._scan(job, spec)
            case CheckSpec() as spec:
                return self._check(job, spec)
            case ProveSpec() as spec:
                return self._prove(job, spec, spending)
        raise ValueError(f"a {job.kind} job is not made up here")

    def _scan(self, job: DueJob, spec: ScanSpec) -> Course:
        pushed, times, scanned = self._pushed[job.repository], self._inputs.scan, 0
        batches: list[Recorded] = []
        cause = event_id("job_started", job.job, str(job.attempt))
        for _ in (spec.sha, *spec.then):
            commit = pushed.popleft()
            scanned += commit.files
            blobs: dict[str, Path] = {}
            for payload in commit.payloads:
                blobs |= held(payload)
            events = [NewEvent(stream, body, causation_id=cause) for stream, body in commit.events]
            batches.append(Recorded(times.seconds + times.seconds_a_file * scanned, events, blobs))
        return Course(batches[-1].after_s, Result({"files_scanned": scanned}), tuple(batches))

    def _check(self, job: DueJob, spec: CheckSpec) -> Course:
        seconds, recorded = 0.0, []
        for text in spec.texts:
            seconds += self.random.expovariate(1 / self._inputs.check.seconds)
            about = {"proof": text.proof.proof, "sorry": text.proof.sorry, "job": job.job}
            given: dict[str, object] = {"checks": CHECKS, "not_checked": ("axioms",), "patch": digest(PATCH)}
            rejected = self.random.random() < self._inputs.check.rejected
            if rejected:
                given = {"checks": CHECKS, "step": "compile", "reason": "made up", "conditional_on": ()}
            body = (ProofRejected if rejected else ProofChecked).model_validate(about | given)
            event = NewEvent(f"proof:{text.proof.proof}", body)
            recorded.append(Recorded(seconds, [event], {} if rejected else held(PATCH)))
        return Course(seconds, Result({}), tuple(recorded))

    def _prove(self, job: DueJob, spec: ProveSpec, spending: Spending) -> Course:
        inputs, rung = self._inputs.prove, spec.rung.number
        at = inputs.rungs.index(rung)
        if self.random.random() < inputs.failed:
            return Course(CRASHES_AFTER_S, Failure("crashed", "made up", "none", deterministic=False))
        ends = [0.0] * spec.parallel
        last: Result | Failure = Result({"sorries": len(spec.sorries)})
        batches: list[Recorded] = []
        for wanted in spec.sorries:
            money = None
            if rung == 4 and (money := self._asked(spending)) is None:
                last = Failure("spending_cap", "made up", "none", deterministic=True)
                break
            drawn = self.random.random()
            outcome = "budget"
            if drawn < inputs.found[at] + inputs.exhausted[at]:
                outcome = "found" if drawn < inputs.found[at] else "exhausted"
            seconds = spec.budget.seconds
            if outcome != "budget":
                seconds = min(seconds, self.random.expovariate(1 / (inputs.early_share * seconds)))
            first = ends.index(min(ends))
            ends[first] += seconds
            batches.append(self._attempt(job, spec, wanted, outcome, seconds, ends[first], money))
        return Course(max(ends), last, tuple(sorted(batches, key=lambda one: one.after_s)))

    def _asked(self, spending: Spending) -> tuple[int, int, float] | None:
        """Ask for one sorry's proofs; return tokens and dollars, None where the day's money is spent."""
        endpoint, prompt, completion, usd = self._inputs.endpoint, 0, 0, 0.0
        for _ in range(endpoint.requests):
            try:
                reserved = spending.reserve(2 * endpoint.prompt_tokens, 2048)
            except SpendingCapError:
                return None
            counted = min(2048, 1 + round(self.random.expovariate(1 / endpoint.completion_tokens)))
            usage = spending.book(reserved, (endpoint.prompt_tokens, counted))
            prompt, completion = prompt + endpoint.prompt_tokens, completion + counted
            usd += usage.usd or 0.0
        return prompt, completion, usd

    def _attempt(
        self,
        job: DueJob,
        spec: ProveSpec,
        wanted: SorryToProve,
        outcome: str,
        seconds: float,
        after_s: float,
        money: tuple[int, int, float] | None,
    ) -> Recorded:
        found: list[NewEvent] = []
        rung = spec.rung.number
        if outcome == "found":
            text = f"made_up_{job.job}"
            proof = proof_id(wanted.sorry, wanted.blob, text)
            body = ProofFound(
                proof=proof,
                sorry=wanted.sorry,
                repository=spec.repository,
                branch=spec.branch,
                sha=spec.sha,
                path=wanted.path,
                blob=wanted.blob,
                byte_start=wanted.byte_start,
                byte_end=wanted.byte_end,
                declaration=wanted.declaration,
                declaration_text_hash=short_hash(wanted.declaration, text),
                replacement=text,
                tactics=(text,),
                prover=spec.prover,
                rung=rung,
                toolchain=spec.lean.toolchain,
                job=job.job,
            )
            found.append(NewEvent(f"proof:{proof}", body, event_id=event_id(body.type, proof, job.job)))
        tree, blobs = None, {}
        if rung in WITH_TREE:
            payload = f"{wanted.sorry} {job.job} ".encode() + self.random.choice(self._trees)
            tree = digest(payload)
            blobs = held(payload)
        prompt, completion, usd = money or (0, 0, None)
        attempt = AttemptFinished.model_validate(
            {
                "repository": spec.repository, "branch": spec.branch, "sha": spec.sha, "sorry": wanted.sorry,
                "blob": wanted.blob, "prover": spec.prover, "rung": rung, "model": spec.model, "seed": spec.seed,
                "budget": spec.budget_key, "outcome": outcome, "detail": "", "best": "a goal is left", "goals_left": 1,
                "nodes": 100, "repl_calls": 300, "seconds": round(seconds, 3), "prompt_tokens": prompt,
                "completion_tokens": completion, "usd": usd, "tree": tree, "job": job.job,
            }
        )  # fmt: skip
        key = (wanted.sorry, wanted.blob, spec.prover, str(rung), spec.model, spec.budget_key, job.job)
        stream = f"repository:{spec.repository}"
        found.append(NewEvent(stream, attempt, event_id=event_id(attempt.type, *key), actor=f"job:{job.job}"))
        return Recorded(after_s, found, blobs)
