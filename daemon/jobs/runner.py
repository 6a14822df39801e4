"""The life of a job: record, prepare, start, listen, end, record again.

Owns the running attempts. `job_started` is in the log before the process exists and `job_succeeded`,
`job_failed`, `job_interrupted` or `job_cancelled` after it is gone, so every attempt has both ends however
the daemon dies (after a kill, `daemon.jobs.recovery` writes the end). `daemon.planning.plan` plans jobs,
`daemon.planning.admission` admits them, and `daemon.jobs.engine` runs them.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

import structlog

from daemon.jobs.due import DueJob
from daemon.jobs.engine import (
    Attempt,
    AttemptLostError,
    DiskRefusedError,
    End,
    Engine,
    Order,
    StartError,
    refused_by_system,
)
from daemon.jobs.gpus import Gpu
from daemon.jobs.history import Retries
from daemon.jobs.limits import Usage, why_killed
from daemon.jobs.recovery import INPUTS, drop_old_job_folders
from daemon.place.answers import LiveJob
from daemon.place.paths import Paths
from daemon.settings.schema import Jobs
from daemon.state.store_service import StoreFailedError, StoreService
from pipeline.freeze import contents
from pipeline.jobs import preemption
from pipeline.jobs.child import Exit, LineTooLongError
from pipeline.jobs.inputs import Input, Inputs, InputStore
from pipeline.jobs.kinds import KINDS, Kind
from pipeline.jobs.known import known_to_scan, known_to_trace
from pipeline.jobs.lines import BadLineError, Batch, Failure, Progress, Result, parse_line
from pipeline.jobs.mirror import Mirror
from pipeline.jobs.protocol import BAD_INPUT, JobError, JobSpec, Sources
from pipeline.jobs.spec import Spec
from pipeline.jobs.specs import BumpSpec, EndpointRung, ProgramRung, ProveSpec, ScanSpec, TraceSpec
from pipeline.lean.source.manifest import MANIFEST, MOST_BYTES, ManifestError, read_manifest
from pipeline.redact import redact
from store.documents.live import JobProgress
from store.domain.identity import event_id, repository_key, slug
from store.errors import LogError
from store.events.base import EventBody
from store.events.jobs import JobCancelled, JobFailed, JobInterrupted, JobStarted, JobSucceeded
from store.events.proofs import AttemptFinished
from store.log.envelope import NewEvent
from store.log.log import CALLERS_MISTAKES
from store.text import gigabytes
from store.view import queries
from store.view.bumps import renames
from store.view.rows import JobRow

# ---- The record of an attempt
# Its folder for the child, and the events of its beginning and end for the log.


def of_attempt(due: DueJob, body: EventBody) -> NewEvent:
    """Return an event of an attempt's beginning or end; each is recorded once."""
    natural = event_id(body.type, due.job, str(due.attempt))
    return NewEvent(f"job:{due.job}", body, event_id=natural, correlation_id=due.job, actor="daemon")


def started_event(due: DueJob) -> JobStarted:
    """Return the beginning of an attempt, to record before its process exists."""
    return JobStarted(
        job=due.job,
        kind=due.kind,
        attempt=due.attempt,
        repository=due.repository,
        branch=due.branch,
        sha=due.sha,
        describes=due.describes,
    )


def ended_event(
    due: DueJob,
    last: Result | Failure,
    *,
    seconds: float,
    peak_rss_bytes: int | None,
    retry_at: datetime | None = None,
) -> EventBody:
    """Return the end of an attempt with this last line."""
    if isinstance(last, Result):
        return JobSucceeded(
            job=due.job,
            attempt=due.attempt,
            seconds=seconds,
            peak_rss_bytes=peak_rss_bytes,
            summary=last.summary,
        )
    return JobFailed(
        job=due.job,
        attempt=due.attempt,
        reason=last.reason,
        message=redact(last.message),
        remedy=last.remedy,
        deterministic=last.deterministic,
        retry_at=retry_at,
        seconds=seconds,
        peak_rss_bytes=peak_rss_bytes,
    )


def interrupted(due: DueJob, reason: str) -> JobInterrupted:
    """Return the end of an attempt to repeat."""
    return JobInterrupted(job=due.job, attempt=due.attempt, reason=reason)


def cancelled_event(
    job: DueJob | JobRow, *, attempt: int, by: str, seconds: float | None, peak_rss_bytes: int | None
) -> JobCancelled:
    """Return the end of a cancelled job, also of one that never began (`attempt` 0)."""
    return JobCancelled(
        job=job.job,
        kind=job.kind,
        attempt=attempt,
        repository=job.repository,
        branch=job.branch,
        sha=job.sha,
        describes=job.describes,
        by=by,
        seconds=seconds,
        peak_rss_bytes=peak_rss_bytes,
    )


def is_cancelled(view: sqlite3.Connection, *, job: str) -> bool:
    """Return whether a job was cancelled and not requested again."""
    return any(
        row.job == job and row.state == "cancelled" for row in queries.jobs_by_prefix(view, prefix=job)
    )


def spec_now(view: sqlite3.Connection, *, job: DueJob, mirrors: Path) -> Spec:
    """Return a job's specification with its facts from the view at its start."""
    spec, repository, branch = job.whole_spec, job.repository, job.branch
    match spec:
        case ScanSpec():
            facts = known_to_scan(view, repository=repository, branch=branch, by_files=spec.by_files)
            return spec.model_copy(update={"known": facts})
        case TraceSpec():
            return spec.model_copy(
                update={
                    "known": known_to_trace(view, repository=repository, branch=branch, project=spec.folder)
                }
            )
        case BumpSpec():
            whose = (repository, *_packages(mirrors, repository, job.sha))
            return spec.model_copy(update={"renames": renames(view, whose)})
        case _:
            return spec


def _packages(mirrors: Path, repository: str, sha: str) -> list[str]:
    """Return the keys of the packages in a commit's manifest, which a bump fetches without a secret."""
    mirror = mirrors / f"{slug(repository)}.git"
    if not (mirror / "HEAD").is_file():
        return []
    try:
        with Mirror(mirror) as objects:
            file = objects.at_root(sha, MANIFEST)
            data = b"" if file is None else objects.read(file.blob, most_bytes=MOST_BYTES)
        result = read_manifest(data).packages if isinstance(data, bytes) and data else ()
        return sorted({repository_key(one.url) for one in result})
    except (JobError, ManifestError, OSError, ValueError) as error:
        # The job reads the manifest too, and fails with the reason if it cannot.
        log.warning("manifest_not_read", repository=repository, reason=str(error))
        return []


def make_folder(spec: JobSpec[Spec]) -> None:
    """Make the folder of an attempt anew; its engine writes the specification into it."""
    # An attempt that died before its record may have left this folder; nothing in it counts.
    shutil.rmtree(spec.directory, ignore_errors=True)
    spec.staging.mkdir(parents=True)


# ---- The end of an attempt: the closing event, from its output and its process's exit
# Everything here follows from these; the process is `pipeline.jobs.child`'s.


Stopped = Literal[
    "", "shutdown", "yield", "cancel", "lost", "suspect", "deadline", "memory", "protocol", "conflict"
]


@dataclass(slots=True)
class AttemptOutput:
    """The output of an attempt so far, and the cause of its end."""

    started: float
    """The start, by the monotonic clock."""
    last: Result | Failure | None = None
    exit: Exit | None = None
    stopped: Stopped = ""
    """Why the daemon ended it; empty if it ended by itself."""
    fault: str = ""
    """The detail: of `yield` the reason of the preemption, of `cancel` the user, of those after it the
    fault."""
    events: int = 0
    usage: Usage | None = None
    """Its control group's statistics; None without one."""
    seen_bytes: int = 0
    """The most memory seen of its process tree."""
    recording: list[asyncio.Task[None]] = field(default_factory=list)
    """Unfinished appends of its batches, oldest first."""

    @property
    def result(self) -> Result | None:
        """Its result, if its process ended well too."""
        well = self.exit is not None and self.exit.signal is None and self.exit.status == 0
        return self.last if well and isinstance(self.last, Result) else None

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return round(time.monotonic() - self.started, 3)

    @property
    def peak_bytes(self) -> int | None:
        """The job's own figure; without one the kernel's, which is at least our own."""
        if isinstance(self.last, Result | Failure) and self.last.peak_rss_bytes is not None:
            return self.last.peak_rss_bytes
        return self.exit.peak_rss_bytes if self.exit else None


def verdict(due: DueJob, heard: AttemptOutput, words: str) -> EventBody | Failure:
    """Return the closing event of an attempt, or the failure to record.

    Args:
        words: its last ones on standard error.
    """
    end, result = heard.exit, heard.result
    if result is not None and heard.stopped in ("", "shutdown", "yield", "cancel"):
        return ended_event(due, result, seconds=heard.seconds, peak_rss_bytes=heard.peak_bytes)
    match heard.stopped:
        case "shutdown":
            return interrupted(due, f"the daemon stopped{_saved(end)}")
        case "yield":
            return interrupted(due, f"preempted: {heard.fault}{_saved(end)}")
        case "cancel":
            return cancelled(due, by=heard.fault, heard=heard)
        case "lost" | "suspect":
            return interrupted(due, heard.fault)
        case "":
            return _of_itself(due, heard, words)
        case _:
            return _ended_by_us(due, heard)


def cancelled(due: DueJob, *, by: str, heard: AttemptOutput) -> JobCancelled:
    """Return the end of a cancelled attempt."""
    seconds, peak = heard.seconds, heard.peak_bytes
    return cancelled_event(due, attempt=due.attempt, by=by, seconds=seconds, peak_rss_bytes=peak)


def last_words(stderr: Path) -> str:
    """Return a job's last line on standard error; "" without one."""
    try:
        with stderr.open("rb") as file:
            file.seek(max(0, stderr.stat().st_size - 2000))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def _saved(end: Exit | None) -> str:
    """Return the words for saved work: the job reports it by its status (`pipeline.jobs.preemption`)."""
    return "; where it was is saved" if end is not None and end.status == preemption.STATUS else ""


def _of_itself(due: DueJob, heard: AttemptOutput, words: str) -> EventBody | Failure:
    end = heard.exit
    if end is not None and end.status == preemption.STATUS:
        # A SIGTERM from outside, such as the machine's shutdown.
        return interrupted(due, f"it got SIGTERM from outside{_saved(end)}")
    if isinstance(heard.last, Failure):
        return _with_memory_in_mind(due, heard.last)
    return _crash(due, heard, words)


def _with_memory_in_mind(due: DueJob, failure: Failure) -> Failure:
    """Add the remedy to a failure caused by a process limit on memory."""
    if failure.reason != "out_of_memory" or failure.remedy:
        return failure
    return Failure(
        failure.reason,
        f"{due.describes}: {failure.message}: a process of it reached its {gigabytes(due.memory_bytes)}",
        KINDS[due.kind].memory_remedy,
        failure.deterministic,
        failure.peak_rss_bytes,
    )


def _ended_by_us(due: DueJob, heard: AttemptOutput) -> Failure:
    reason, remedy = {
        "deadline": ("deadline", KINDS[due.kind].longer_remedy),
        "memory": ("out_of_memory", KINDS[due.kind].memory_remedy),
        "protocol": (
            "protocol",
            "report this as a defect, with the job's log: the job printed what it must not",
        ),
        "conflict": (
            "conflict",
            "the job's result contradicts the log; report this as a defect, with the job's log",
        ),
    }[heard.stopped]
    return Failure(reason, f"{due.describes}: {heard.fault}", remedy, deterministic=False)


def _crash(due: DueJob, heard: AttemptOutput, words: str) -> Failure:
    end, kind = heard.exit, KINDS[due.kind]
    look = f"see `everlean jobs logs {due.job}`"

    def failure(reason: str, what: str, remedy: str) -> Failure:
        last = f"; its last words: {words}" if words else ""
        return Failure(reason, f"{due.describes}: {what}{last}", remedy, deterministic=False)

    if end is not None:
        # A kernel that kills for memory takes the whole group, or one process whose parent then fails in its
        # own way.
        peak = max(heard.seen_bytes, heard.peak_bytes or 0)
        memory = why_killed(end, limit_bytes=due.whole_bytes, peak_bytes=peak, usage=heard.usage)
        if memory:
            return failure("out_of_memory", memory, f"{kind.memory_remedy}; {look}")
        if end.signal is not None:
            remedy = look
            if end.signal == signal.SIGKILL:
                remedy = f"it may have been killed for memory: {kind.memory_remedy}; {look}"
            return failure("crashed", f"killed by signal {end.signal}", remedy)
    status = end.status if end is not None else None
    what = f"ended with status {status} and no last line"
    if isinstance(heard.last, Result):
        what = f"gave a result and then ended with status {status}"
    return failure("crashed", what, look)


# ---- A running job, for the runner and for people


@dataclass(frozen=True, slots=True)
class SlotHolder:
    """A running job with a slot.

    `saved`: it has recorded something since its start, so it can be preempted and resume there. `ends`: its
    end is requested.
    """

    job: str
    kind: Kind
    repository: str
    seconds: float
    saved: bool
    ends: bool


@dataclass(slots=True)
class RunningAttempt:
    due: DueJob
    task: asyncio.Task[None]
    started_at: datetime
    started: float
    pid: int | None = None
    progress: Progress | None = None
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: Stopped = ""
    fault: str = ""
    saved: bool = False
    """It has recorded something since its start."""

    @property
    def asks_endpoint(self) -> bool:
        """Whether an interruption costs money: the job asks an endpoint or a program (rungs 4 and 5)."""
        spec = self.due.spec
        return isinstance(spec, ProveSpec) and isinstance(spec.rung, EndpointRung | ProgramRung)

    def ask(self, stopped: Stopped, fault: str) -> None:
        """Request the attempt's end; the first reason counts, but a preempted attempt may be cancelled."""
        if not self.asked.is_set() or (stopped == "cancel" and self.stopped == "yield"):
            self.stopped, self.fault = stopped, fault
            self.asked.set()


def why_lost(due: DueJob, gpus: Sequence[Gpu]) -> str:
    """Return the name and fault of a lost GPU leased to a job; "" without one."""
    mine = {gpu.uuid for gpu in due.leases}
    lost = (gpu for gpu in gpus if gpu.state == "lost" and gpu.uuid in mine)
    return next((f"{gpu.called} was lost: {gpu.detail}" for gpu in lost), "")


def shown_of(live: RunningAttempt) -> LiveJob:
    """Return the attempt for `everlean jobs` and `status`."""
    progress = live.progress
    return LiveJob(
        job=live.due.job,
        kind=live.due.kind,
        attempt=live.due.attempt,
        repository=live.due.repository,
        branch=live.due.branch,
        sha=live.due.sha,
        describes=live.due.describes,
        pid=live.pid,
        started_at=live.started_at.isoformat(),
        seconds=round(time.monotonic() - live.started, 1),
        gpu=", ".join(gpu.called for gpu in live.due.leases),
        progress=None if progress is None else JobProgress(progress.done, progress.total, progress.note),
    )


# ---- The runner


log = structlog.get_logger("daemon.jobs.runner")

NODES_LOST = "nodes_lost"
_Contents = dict[str, bytes | Path | Input] | Inputs | None
"""See `pipeline.freeze.contents`."""
_Begun = tuple[Spec, _Contents] | LogError | OSError
"""A job's present specification, with its inputs or their contents; or the error."""
_GRACE_S = 5.0
_FEW_FILES = 16
_SMALL_LINE_BYTES = 16 * 2**10
_MOST_RECORDING = 64
"""Unfinished appends of a job after which nothing more is read from it."""


class JobRunner:
    """Runs jobs. Every method belongs to the event loop's thread.

    Args:
        limits: replaced on reload; a running job keeps its first ones.
    """

    def __init__(
        self,
        *,
        store: StoreService,
        engine: Engine,
        paths: Paths,
        limits: Jobs,
        finished: Callable[[], None],
        dice: random.Random | None = None,
        modules: Mapping[Kind, str] | None = None,
    ) -> None:
        self.limits = limits
        self.retries = Retries(dice=dice)
        self.grace_s = 60.0
        """Seconds for a training to save its state: tens of gigabytes, on a slow disk."""
        self._store = store
        self._engine = engine
        self._paths = paths
        self._inputs = InputStore(paths.inputs)
        self._finished = finished
        self._modules = modules or {name: kind.module for name, kind in KINDS.items()}
        self._live: dict[str, RunningAttempt] = {}
        self._stopping = False
        self.last_started: dict[str, float] = {}

    @property
    def lanes(self) -> frozenset[str]:
        """The taken lanes: see `daemon.planning.plan`."""
        return frozenset(live.due.lane for live in self._live.values())

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of the running jobs, one item each."""
        return tuple(live.due.kind for live in self._live.values())

    @property
    def lent(self) -> dict[str, str]:
        """The GPUs of running jobs, by UUID, with the jobs' descriptions."""
        return {gpu.uuid: live.due.describes for live in self._live.values() for gpu in live.due.leases}

    def proving(self, repository: str, declaration: str) -> str | None:
        """Return the running job with a search for a proof of this declaration."""
        for job, live in self._live.items():
            spec = live.due.spec
            if not isinstance(spec, ProveSpec) or spec.repository != repository:
                continue
            if any(one.declaration == declaration for one in spec.sorries):
                return job
        return None

    def runs(self, job: str) -> bool:
        """Return whether a job runs: from `start` until `finished` is called."""
        return job in self._live

    @property
    def attempts(self) -> tuple[RunningAttempt, ...]:
        """The running attempts."""
        return tuple(self._live.values())

    def running(self) -> tuple[LiveJob, ...]:
        """Return the running jobs, for people."""
        return tuple(shown_of(live) for live in self._live.values())

    def holders(self) -> tuple[SlotHolder, ...]:
        """Return the running jobs with a slot. Requests to an endpoint are paid, so such a job is never
        `saved`."""
        return tuple(
            SlotHolder(
                job=live.due.job,
                kind=live.due.kind,
                repository=live.due.repository,
                seconds=time.monotonic() - live.started,
                saved=live.saved and not live.asks_endpoint,
                ends=live.asked.is_set(),
            )
            for live in self._live.values()
            if not KINDS[live.due.kind].beside
        )

    def start(self, due: DueJob) -> None:
        """Begin a job in the background; its end calls `finished`."""
        if self._stopping or due.job in self._live:
            return
        started = time.monotonic()
        self.last_started[due.repository] = started
        self.retries.begun(due.job)
        task = asyncio.create_task(self._run(due), name=due.job)
        self._live[due.job] = RunningAttempt(due, task, datetime.now(UTC), started)

    def cancel(self, job: str, *, by: str) -> bool:
        """End a running job for good; return whether it runs."""
        live = self._live.get(job)
        if live is not None:
            live.ask("cancel", by)
        return live is not None

    def preempt(self, job: str, why: str) -> None:
        """Preempt a running job: it saves its state if it can, ends, and is due again."""
        live = self._live.get(job)
        if live is not None and not live.asked.is_set():
            log.info("job_preempted", job=job, reason=why)
            live.ask("yield", why)

    async def stop(self, *, deadline_s: float) -> None:
        """Stop every job, kill those that exceed the time limit, record them as interrupted, and wait."""
        self._stopping = True
        # Leave time to record the killed ones.
        self.grace_s = min(self.grace_s, max(0.5, deadline_s - 1.0))
        for live in self._live.values():
            live.ask("shutdown", "")
        tasks = [live.task for live in self._live.values()]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=deadline_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_GRACE_S)

    # --- one attempt --------------------------------------------------------------------------------------

    async def _run(self, due: DueJob) -> None:
        structlog.contextvars.bind_contextvars(job=due.job)
        heard = AttemptOutput(self._live[due.job].started)
        outcome = "defect"
        try:
            beginning = await self._store.ask(partial(self._begun, due))
            if beginning is None:
                outcome = "cancelled"
                return
            await self._record(due, started_event(due))
            outcome = await self._attempt(due, heard, beginning)
        except StoreFailedError as error:
            outcome = "not_recorded"
            log.error("job_not_recorded", reason=str(error))
        except asyncio.CancelledError:
            outcome = "interrupted"
            raise
        except Exception:
            # The border of a job inside the daemon: a defect of ours must not take the other jobs along. The
            # attempt stays open in the log and the next start records its interruption.
            log.exception("job_defect")
        finally:
            del self._live[due.job]
            # A job's outcome has a line of its own; a good end matters only to those looking for it.
            (log.debug if outcome == "succeeded" else log.info)(
                "job_finished",
                sentence=f"{due.describes}: {outcome} after {heard.seconds:.1f} s",
                kind=due.kind,
                attempt=due.attempt,
                repository=due.repository,
                branch=due.branch,
                sha=due.sha,
                outcome=outcome,
                seconds=heard.seconds,
                events=heard.events,
                peak_rss_bytes=heard.peak_bytes,
            )
            self._finished()

    def _begun(self, due: DueJob, view: sqlite3.Connection) -> _Begun | None:
        """Return a job's beginning, or the error for the attempt to record; None if the job was cancelled
        since it was planned."""
        try:
            if is_cancelled(view, job=due.job):
                return None
            spec = spec_now(view, job=due, mirrors=self._paths.mirrors)
            return spec, contents(view, spec, due.job, self._inputs_of(due), self._inputs)
        except (LogError, OSError) as error:
            return error

    async def _attempt(self, due: DueJob, heard: AttemptOutput, beginning: _Begun) -> str:
        spec = self._spec(due)
        result: EventBody | Failure
        suspect = False
        try:
            if isinstance(beginning, Exception):
                raise beginning
            now, material = beginning
            spec = replace(spec, parameters=now)
            inputs = await self._frozen(due, spec, material)
            if isinstance(inputs, Inputs):
                spec = replace(spec, inputs=inputs)
                order = Order.of(due, spec, module=self._modules[due.kind])
                await self._listen(due, order, heard)
                result = await self._verdict(due, heard, spec)
                suspect = heard.stopped == "suspect"
            else:
                result = inputs
        except LogError as error:
            message = f"what {due.describes} reads of the view: {error}"
            result = Failure("database", message, "see `everlean doctor`", deterministic=False)
        except (StartError, OSError) as error:
            result = await self._not_started(due, error)
        if suspect and isinstance(result, JobInterrupted):
            result = self._lost_again(due, result)
        else:
            self.retries.not_lost(due.job)
        body = await self._failed(due, result, heard) if isinstance(result, Failure) else result
        live = self._live[due.job]
        if live.stopped == "cancel" and isinstance(body, JobFailed | JobInterrupted):
            # The request came without a process to end: before it, after it, or while it was preempted.
            body = cancelled(due, by=live.fault, heard=heard)
        await self._record(due, body)
        again = isinstance(body, JobInterrupted) or (
            isinstance(body, JobFailed) and body.retry_at is not None
        )
        damaged = isinstance(body, JobFailed) and body.reason == BAD_INPUT
        running = frozenset(self._live)

        def tidy() -> None:
            shutil.rmtree(spec.staging, ignore_errors=True)
            if damaged or not again:
                # Else the next attempt goes on with this one's inputs.
                self._inputs.forget(self._inputs_of(due), damaged=damaged)
            drop_old_job_folders(self._paths.jobs, inputs=self._inputs, running=running)

        await asyncio.to_thread(tidy)
        return body.type.removeprefix("job_")

    def _inputs_of(self, due: DueJob) -> Path:
        """Return the folder of a job's inputs, shared by its attempts."""
        return self._paths.jobs / due.job / INPUTS

    async def _frozen(
        self, due: DueJob, spec: JobSpec[Spec], material: _Contents
    ) -> Inputs | EventBody | Failure:
        """Make the folder of an attempt; return the job's inputs, frozen by its first attempt, or the end of
        an attempt that could not freeze them."""
        paths, place = self._paths, self._inputs_of(due)
        sources = Sources(paths.events_db, paths.database_db, paths.inputs)

        def begun() -> Inputs | None:
            make_folder(spec)
            return self._inputs.freeze(place, material) if isinstance(material, dict) else material

        inputs = await asyncio.to_thread(begun)
        if inputs is not None:
            return inputs
        # In the job's name and within its limits, but neither with its GPUs nor with its key.
        export = replace(spec, inputs=Inputs(place), sources=sources, gpus=())
        heard = AttemptOutput(self._live[due.job].started)
        order = Order(export, "pipeline.freeze", due.memory_bytes, due.whole_bytes)
        await self._listen(due, order, heard)
        end = await self._verdict(due, heard, export)
        inputs = await asyncio.to_thread(self._inputs.frozen, place)
        return inputs if isinstance(end, JobSucceeded) and inputs is not None else end

    def _spec(self, due: DueJob) -> JobSpec[Spec]:
        directory = self._paths.jobs / due.job / str(due.attempt)
        gpus = tuple(gpu.uuid for gpu in due.leases)
        return JobSpec(due.job, due.kind, due.attempt, directory, due.whole_spec, gpus=gpus)

    async def _listen(self, due: DueJob, order: Order, heard: AttemptOutput) -> None:
        """Run an attempt to its end, by itself or by the daemon; fill `heard`.

        Raises:
            StartError: it could not be started.
        """
        live = self._live[due.job]
        attempt = await self._engine.start(order, over=lambda held: live.ask("memory", held))
        live.pid = attempt.pid
        whole = asyncio.create_task(attempt.run(partial(self._hear, due, order.spec, heard)))
        end_request = asyncio.create_task(live.asked.wait())
        # A training needs its helpers, and its time, to save its place. A job with all its work recorded must
        # not take the end of its Lean processes for an answer.
        saves = KINDS[due.kind].beside
        try:
            while True:
                done, _ = await asyncio.wait(
                    {whole, end_request}, timeout=due.timeout_s, return_when=asyncio.FIRST_COMPLETED
                )
                # An attempt with something to record waits for room on the disk, through no fault of its own.
                if done or not self._store.room.problem:
                    break
            if whole not in done:
                heard.stopped, heard.fault = "deadline", f"no end after {due.timeout_s:g} s"
                if end_request in done:
                    heard.stopped, heard.fault = live.stopped, live.fault
                grace_s = self.grace_s if saves else _GRACE_S
                await attempt.stop(grace_s=grace_s, first_alone=saves or KINDS[due.kind].resumes)
                await whole
            elif isinstance(fault := whole.exception(), AttemptLostError):
                heard.stopped, heard.fault = "suspect" if fault.suspect else "lost", str(fault)
            elif isinstance(fault := whole.exception(), BadLineError | LineTooLongError):
                heard.stopped, heard.fault = "protocol", str(fault)
            elif isinstance(fault, CALLERS_MISTAKES):
                heard.stopped, heard.fault = "conflict", str(fault)
            elif fault is not None:
                raise fault
        except (AttemptLostError, BadLineError, LineTooLongError, *CALLERS_MISTAKES) as error:
            heard.fault = heard.fault or str(error)
        finally:
            # Also on the way out of a cancellation or a defect: no child outlives its attempt.
            end_request.cancel()
            heard.exit, heard.usage, heard.seen_bytes = await asyncio.shield(_closed(attempt, whole))
            try:
                await asyncio.shield(self._recorded(heard))
            except CALLERS_MISTAKES as error:
                heard.stopped, heard.fault = heard.stopped or "conflict", heard.fault or str(error)

    async def _hear(self, due: DueJob, spec: JobSpec[Spec], heard: AttemptOutput, raw: bytes) -> None:
        read = partial(parse_line, raw, job=due, last=heard.last)
        line = read() if len(raw) < _SMALL_LINE_BYTES else await asyncio.to_thread(read)
        live = self._live[due.job]
        match line:
            case Progress():
                live.progress = line
            case Batch() if _can_wait(line):
                heard.recording.append(
                    asyncio.create_task(self._append(live, line, spec, heard, shared=True))
                )
                if len(heard.recording) >= _MOST_RECORDING:
                    await self._recorded(heard)
            case Batch():
                await self._recorded(heard)
                await self._append(live, line, spec, heard)
            case Result() | Failure():
                await self._recorded(heard)
                heard.last = line

    async def _recorded(self, heard: AttemptOutput) -> None:
        """Have the waiting batches recorded now, and wait for it.

        Raises:
            LogError, StoreFailedError: the first error.
        """
        if not heard.recording:
            return
        self._store.record_now()
        await asyncio.wait(heard.recording)
        recording, heard.recording = heard.recording, []
        for task in recording:
            task.result()

    async def _append(
        self,
        live: RunningAttempt,
        batch: Batch,
        spec: JobSpec[Spec],
        heard: AttemptOutput,
        *,
        shared: bool = False,
    ) -> None:
        files = {digest: spec.staging / digest for digest in batch.cites}

        def found() -> dict[str, Path]:
            return {digest: path for digest, path in files.items() if path.is_file()}

        # Payloads recorded before are in the log and need not be staged again; the log refuses missing ones.
        # Looking for a few files takes less time than a thread.
        staged = found() if len(files) <= _FEW_FILES else await asyncio.to_thread(found)
        await self._store.append(batch.events, blobs=staged, wait=True, shared=shared)
        heard.events += len(batch.events)
        live.saved = True
        for path in staged.values():
            path.unlink(missing_ok=True)

    # --- the end ------------------------------------------------------------------------------------------

    async def _verdict(self, due: DueJob, heard: AttemptOutput, spec: JobSpec[Spec]) -> EventBody | Failure:
        text = "" if heard.result is not None else await asyncio.to_thread(last_words, spec.log)
        result = verdict(due, heard, text)
        if not isinstance(result, Failure):
            return result
        if due.leases and (lost := why_lost(due, await self._engine.look(self.lent))):
            # No fault of the job: it waits for the GPU, or for another one, and then it is due again.
            return interrupted(due, lost)
        return result

    def _lost_again(self, due: DueJob, end: JobInterrupted) -> JobInterrupted | Failure:
        """Return the end of an attempt lost with its machine: a failure for good after too many.

        Otherwise a job that kills its machine would get the next one, without end.
        """
        times = self.retries.lost(due.job, limits=self.limits)
        if not times:
            return end
        return Failure(
            NODES_LOST,
            f"{due.describes}: its machine was lost {times} times in a row, the last time so: {end.reason}",
            f"if it took their memory: {KINDS[due.kind].memory_remedy}; once that or the network is mended:"
            f" `everlean jobs retry {due.job}`",
            deterministic=False,
        )

    async def _failed(self, due: DueJob, failure: Failure, heard: AttemptOutput) -> EventBody:
        failures = 1 + await self._store.ask(partial(queries.failures_of, job=due.job))
        retry_at = None
        if not failure.deterministic and failure.reason != NODES_LOST:
            retry_at = self.retries.after(due.job, failures=failures, limits=self.limits)
        return ended_event(
            due, failure, seconds=heard.seconds, peak_rss_bytes=heard.peak_bytes, retry_at=retry_at
        )

    async def _not_started(self, due: DueJob, error: StartError | OSError) -> EventBody | Failure:
        if isinstance(error, OSError):
            error = refused_by_system(due.job, error, self._paths.jobs)
        if isinstance(error, DiskRefusedError):
            # No fault of the job: it is due again once the disk is mended, and until then nothing is.
            await self._record(due, interrupted(due, str(error)))
            raise self._store.refused(error.refused, error.folder) from error
        return Failure(error.reason, str(error), error.remedy, deterministic=False)

    async def _record(self, due: DueJob, body: EventBody) -> None:
        await self._store.append([of_attempt(due, body)], wait=True)


def _can_wait(batch: Batch) -> bool:
    """Return whether a batch only has failed attempts without costs: after a crash they are made again."""
    return all(
        isinstance(event.body, AttemptFinished)
        and event.body.outcome not in ("found", "disproved")
        and not event.body.usd
        for event in batch.events
    )


async def _closed(attempt: Attempt, whole: asyncio.Task[Exit]) -> End:
    """End an attempt and its listening, if necessary; return its end."""
    await attempt.stop(grace_s=_GRACE_S)
    whole.cancel()
    await asyncio.gather(whole, return_exceptions=True)
    return await attempt.close()
