"""The life of a job: recorded, prepared, spawned, listened to, ended, recorded again.

Owns the running children. `job_started` is in the log before the process exists and `job_succeeded`, `job_failed` or
`job_interrupted` after it is gone, so every attempt has both ends however the daemon dies (`daemon.recovery` writes
what a killed daemon could not). What is due is `daemon.plan`'s business; the child itself is `daemon.process`.
"""

from __future__ import annotations

import asyncio
import errno
import json
import random
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from daemon.due import DueJob, Kind
from daemon.git import Git
from daemon.git_errors import GitError
from daemon.joblines import BadLineError, Batch, Failure, Line, Progress, Result, parse_line
from daemon.kinds import LONGER, MODULES, MORE_MEMORY
from daemon.ledger import CALLERS_MISTAKES, Ledger, StoreFailedError
from daemon.paths import Paths, slug
from daemon.plan import parameters_now
from daemon.process import Exit, JobProcess, LineTooLongError
from daemon.recovery import drop_old_job_folders
from daemon.redact import redact
from daemon.settings_models import Jobs
from pipeline.lean.build.builds import Attached, BuildMissingError, attach, empty_lake
from pipeline.protocol import JobSpec
from store.events import EventBody, JobFailed, JobInterrupted, JobStarted, JobSucceeded
from store.identity import event_id
from store.log import NewEvent
from store.reader import LogReader

_LONGEST_BACKOFF_S = 3600.0
_GRACE_S = 5.0
_SMALL_LINE_BYTES = 16 * 2**10
_DISK_REFUSES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})

log = structlog.get_logger("daemon.jobs")


@dataclass(frozen=True, slots=True)
class RunningJob:
    """What `status` shows of a job that runs now."""

    job: str
    kind: str
    attempt: int
    repository: str
    branch: str
    sha: str
    describes: str
    pid: int | None
    started_at: str
    seconds: float
    done: int
    total: int
    note: str


@dataclass(slots=True)
class _Live:
    due: DueJob
    task: asyncio.Task[None]
    started_at: datetime
    started: float
    pid: int | None = None
    progress: Progress | None = None


@dataclass(slots=True)
class _Heard:
    """What an attempt has said so far, and what ended it."""

    last: Result | Failure | None = None
    exit: Exit | None = None
    stopped: str = ""
    """Why the daemon ended it: deadline, protocol, conflict, or shutdown; empty where it ended by itself."""
    fault: str = ""
    events: int = 0


class JobRunner:
    """Runs jobs. Every method belongs to the event loop's thread."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        git: Git,
        paths: Paths,
        limits: Jobs,
        finished: Callable[[], None],
        dice: random.Random | None = None,
        modules: Mapping[Kind, str] = MODULES,
    ) -> None:
        self.git = git
        self.limits = limits
        """Replaced on reload; a running job keeps what it started with."""
        self._ledger = ledger
        self._paths = paths
        self._finished = finished
        self._dice = dice or random.Random()  # noqa: S311 - jitter, not cryptography
        self._modules = modules
        self._live: dict[str, _Live] = {}
        self._stopping = asyncio.Event()
        self.last_started: dict[str, float] = {}

    @property
    def lanes(self) -> frozenset[str]:
        """Lanes that are taken: see `daemon.plan`."""
        return frozenset(live.due.lane for live in self._live.values())

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of the running jobs, one item each."""
        return tuple(live.due.kind for live in self._live.values())

    @property
    def gpu_taken(self) -> bool:
        """Whether a running job holds the GPU."""
        return any(live.due.gpu for live in self._live.values())

    @property
    def reserved_s(self) -> float:
        """What the running jobs may take of the day's seconds of search, as if they had recorded nothing yet."""
        return sum(live.due.cost_s for live in self._live.values())

    @property
    def commits(self) -> frozenset[tuple[str, str]]:
        """Repository and commit of the running jobs."""
        return frozenset((live.due.repository, live.due.sha) for live in self._live.values())

    def running(self) -> tuple[RunningJob, ...]:
        """Return what runs now, for people."""
        return tuple(_shown(live) for live in self._live.values())

    def start(self, due: DueJob) -> None:
        """Begin a job in the background; its end calls `finished`."""
        if self._stopping.is_set() or due.job in self._live:
            return
        started = time.monotonic()
        self.last_started[due.repository] = started
        task = asyncio.create_task(self._run(due), name=due.job)
        self._live[due.job] = _Live(due, task, datetime.now(UTC), started)

    async def stop(self, *, deadline_s: float) -> None:
        """Ask every job to end, kill those that do not in time, record them as interrupted, and wait."""
        self._stopping.set()
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
        started = time.monotonic()
        heard = _Heard()
        outcome = "defect"
        try:
            await self._record(due, started_event(due))
            outcome = await self._attempt(due, heard, started)
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
            log.info(
                "job_finished",
                kind=due.kind,
                attempt=due.attempt,
                repository=due.repository,
                branch=due.branch,
                sha=due.sha,
                outcome=outcome,
                seconds=round(time.monotonic() - started, 3),
                events=heard.events,
                peak_rss_bytes=_peak(heard),
                simulated=due.simulated,
            )
            self._finished()

    async def _attempt(self, due: DueJob, heard: _Heard, started: float) -> str:
        spec = self._spec(due)
        worktree = self._paths.worktrees / f"{due.job}-{due.attempt}"
        mirror = self._paths.mirrors / f"{slug(due.repository)}.git"
        attached: Attached | None = None
        try:
            parameters = await self._ledger.ask(partial(parameters_now, job=due))
            if due.kind == "scan":
                parameters["mirror"] = str(mirror)
            if due.needs_worktree:
                await self.git.worktree_add(mirror, worktree, due.sha)
                parameters["worktree"] = str(worktree)
            if due.built:
                cache = self._paths.cache
                attached = await asyncio.to_thread(attach, worktree, cache, due.repository, due.sha)
            elif due.needs_worktree:
                # A commit may bring compiled files along; nothing that was not built here is ever imported.
                await asyncio.to_thread(empty_lake, worktree)
            spec = JobSpec(
                job=due.job,
                kind=due.kind,
                attempt=due.attempt,
                directory=spec.directory,
                parameters=parameters,
            )
            await asyncio.to_thread(_write_spec, spec)
            await self._listen(due, spec, heard)
            body = await self._verdict(due, heard, started, spec)
        except BuildMissingError as error:
            # It was swept away since the plan was made; the next plan has it built again first.
            failure = Failure("build_missing", str(error), "nothing: it is built again", deterministic=False)
            body = await self._failed(due, failure, started, heard)
        except GitError as error:
            failure = Failure("worktree", str(error), error.remedy, deterministic=False)
            body = await self._failed(due, failure, started, heard)
        except OSError as error:
            if error.errno in _DISK_REFUSES:
                # No fault of the job: it is due again once the disk is mended, and until then nothing is.
                reason = f"the disk refused: {error}"
                await self._record(due, JobInterrupted(job=due.job, attempt=due.attempt, reason=reason))
                raise self._ledger.give_up(error) from error
            failure = Failure(
                "spawn",
                f"{due.job} could not be started: {error}",
                "check free memory, processes and disk space",
                deterministic=False,
            )
            body = await self._failed(due, failure, started, heard)
        finally:
            await asyncio.to_thread(shutil.rmtree, spec.staging, ignore_errors=True)
            if attached is not None:
                attached.close()
            if due.needs_worktree:
                await self._remove_worktree(mirror, worktree)
        await self._record(due, body)
        await asyncio.to_thread(
            drop_old_job_folders,
            self._paths.jobs,
            keep=self.limits.keep,
            running=frozenset(self._live),
        )
        return body.type.removeprefix("job_")

    def _spec(self, due: DueJob) -> JobSpec:
        directory = self._paths.jobs / due.job / str(due.attempt)
        return JobSpec(job=due.job, kind=due.kind, attempt=due.attempt, directory=directory)

    async def _listen(self, due: DueJob, spec: JobSpec, heard: _Heard) -> None:
        """Run the process to its end, whoever brings that about; `heard` has the story afterwards."""
        process = await JobProcess.start(
            self._modules[due.kind],
            spec=spec.directory / "spec.json",
            directory=spec.directory,
            stderr=spec.directory / "stderr.log",
            memory_bytes=due.memory_bytes,
            secrets=due.secrets,
        )
        self._live[due.job].pid = process.pid
        reading = asyncio.create_task(self._read(process, due, spec, heard))
        stopping = asyncio.create_task(self._stopping.wait())
        whole = asyncio.ensure_future(_both(reading, process))
        try:
            done, _ = await asyncio.wait(
                {whole, stopping}, timeout=due.timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if whole not in done:
                heard.stopped = "shutdown" if stopping in done else "deadline"
                heard.fault = "" if stopping in done else f"no end after {due.timeout_s:g} s"
                heard.exit = await process.stop(grace_s=_GRACE_S)
                await reading
            elif isinstance(fault := whole.exception(), BadLineError | LineTooLongError):
                heard.stopped, heard.fault = "protocol", str(fault)
            elif isinstance(fault, CALLERS_MISTAKES):
                heard.stopped, heard.fault = "conflict", str(fault)
            elif fault is not None:
                raise fault
        except (BadLineError, LineTooLongError, *CALLERS_MISTAKES) as error:
            heard.fault = heard.fault or str(error)
        finally:
            # Also on the way out of a cancellation or a defect: no child outlives its attempt.
            stopping.cancel()
            heard.exit = await asyncio.shield(process.stop(grace_s=_GRACE_S))
            reading.cancel()
            await asyncio.gather(reading, whole, return_exceptions=True)
            process.close()

    async def _read(self, process: JobProcess, due: DueJob, spec: JobSpec, heard: _Heard) -> None:
        async for raw in process.lines():
            if heard.last is not None:
                raise BadLineError(f"{raw[:120]!r}: comes after the last line (result or failure)")
            line = await self._parsed(raw, due)
            match line:
                case Progress():
                    self._live[due.job].progress = line
                case Batch():
                    await self._append(line, spec)
                    heard.events += len(line.events)
                case Result() | Failure():
                    heard.last = line

    async def _parsed(self, raw: bytes, due: DueJob) -> Line:
        if len(raw) < _SMALL_LINE_BYTES:
            return parse_line(raw, job=due)
        return await asyncio.to_thread(parse_line, raw, job=due)

    async def _append(self, batch: Batch, spec: JobSpec) -> None:
        files = {digest: spec.staging / digest for digest in batch.cites}
        # What was recorded before is in the log and need not be staged again; the log refuses what is in neither.
        staged = await asyncio.to_thread(lambda: {d: path for d, path in files.items() if path.is_file()})
        await self._ledger.append(batch.events, blobs=staged)
        for path in staged.values():
            path.unlink(missing_ok=True)

    # --- the end ------------------------------------------------------------------------------------------

    async def _verdict(self, due: DueJob, heard: _Heard, started: float, spec: JobSpec) -> EventBody:
        end = heard.exit
        well = end is not None and end.signal is None and end.status == 0
        if isinstance(heard.last, Result) and well and heard.stopped in ("", "shutdown"):
            return JobSucceeded(
                job=due.job,
                attempt=due.attempt,
                seconds=round(time.monotonic() - started, 3),
                peak_rss_bytes=_peak(heard),
                summary=heard.last.summary,
                simulated=due.simulated,
            )
        if heard.stopped == "shutdown":
            return JobInterrupted(job=due.job, attempt=due.attempt, reason="the daemon stopped")
        if heard.stopped:
            return await self._failed(due, _ended_by_us(due, heard), started, heard)
        if isinstance(heard.last, Failure):
            return await self._failed(due, heard.last, started, heard)
        said = await asyncio.to_thread(_last_words, spec.directory / "stderr.log")
        return await self._failed(due, _crash(due, heard, said), started, heard)

    async def _failed(self, due: DueJob, failure: Failure, started: float, heard: _Heard) -> JobFailed:
        failures = 1 + await self._ledger.look_up(partial(_failures, job=due.job))
        retry_at = None
        if not failure.deterministic and failures < self.limits.max_attempts:
            wait: float = min(self.limits.retry_base_s * 2.0 ** (failures - 1), _LONGEST_BACKOFF_S)
            retry_at = datetime.now(UTC) + timedelta(seconds=wait * self._dice.uniform(0.8, 1.2))
        return JobFailed(
            job=due.job,
            attempt=due.attempt,
            reason=failure.reason,
            message=redact(failure.message),
            remedy=failure.remedy,
            deterministic=failure.deterministic,
            retry_at=retry_at,
            seconds=round(time.monotonic() - started, 3),
            peak_rss_bytes=_peak(heard),
        )

    async def _record(self, due: DueJob, body: EventBody) -> None:
        await self._ledger.append([of_attempt(due, body)])

    async def _remove_worktree(self, mirror: Path, worktree: Path) -> None:
        try:
            await self.git.worktree_remove(mirror, worktree)
        except GitError as error:
            # The job's outcome stands; the next start sweeps the folder.
            log.warning("worktree_left", path=str(worktree), reason=str(error))


async def _both(reading: asyncio.Task[None], process: JobProcess) -> None:
    await asyncio.gather(reading, process.ended())


def of_attempt(due: DueJob, body: EventBody) -> NewEvent:
    """Return an event of an attempt's beginning or end; each is recorded once."""
    natural = event_id(body.type, due.job, str(due.attempt))
    return NewEvent(f"job:{due.job}", body, event_id=natural, correlation_id=due.job, actor="daemon")


def started_event(due: DueJob) -> JobStarted:
    """Return the beginning of an attempt, to be recorded before there is a process."""
    return JobStarted(
        job=due.job,
        kind=due.kind,
        attempt=due.attempt,
        repository=due.repository,
        branch=due.branch,
        sha=due.sha,
        describes=due.describes,
        simulated=due.simulated,
    )


def _peak(heard: _Heard) -> int | None:
    """What the job said of its memory; of one that could not say, what the kernel says (at least our own)."""
    if isinstance(heard.last, Result | Failure) and heard.last.peak_rss_bytes is not None:
        return heard.last.peak_rss_bytes
    return heard.exit.peak_rss_bytes if heard.exit else None


def _ended_by_us(due: DueJob, heard: _Heard) -> Failure:
    remedy = {
        "deadline": LONGER[due.kind],
        "protocol": "report this as a defect, with the job's log: the job printed what it must not",
        "conflict": "the job's result contradicts the log; report this as a defect, with the job's log",
    }[heard.stopped]
    return Failure(heard.stopped, f"{due.describes}: {heard.fault}", remedy, deterministic=False)


def _crash(due: DueJob, heard: _Heard, said: str) -> Failure:
    end = heard.exit
    last = f"; its last words: {said}" if said else ""
    if end is not None and end.signal is not None:
        remedy = f"see `unsorry jobs logs {due.job}`"
        if end.signal == 9:
            remedy = f"it may have been killed for memory: {MORE_MEMORY[due.kind]}; {remedy}"
        message = f"{due.describes}: killed by signal {end.signal}{last}"
        return Failure("crashed", message, remedy, deterministic=False)
    status = end.status if end is not None else None
    what = f"ended with status {status} and no last line"
    if isinstance(heard.last, Result):
        what = f"gave a result and then ended with status {status}"
    return Failure(
        "crashed",
        f"{due.describes}: {what}{last}",
        f"see `unsorry jobs logs {due.job}`",
        deterministic=False,
    )


def _failures(reader: LogReader, *, job: str) -> int:
    return sum(1 for _ in reader.read(stream=f"job:{job}", types=("job_failed",)))


def _write_spec(spec: JobSpec) -> None:
    # An attempt that died before it was recorded may have left this folder; nothing in it counts.
    shutil.rmtree(spec.directory, ignore_errors=True)
    spec.staging.mkdir(parents=True)
    content: dict[str, Any] = spec.as_json()
    (spec.directory / "spec.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _last_words(stderr: Path) -> str:
    try:
        with stderr.open("rb") as file:
            file.seek(max(0, stderr.stat().st_size - 2000))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def _shown(live: _Live) -> RunningJob:
    progress = live.progress or Progress(0, 0, "")
    return RunningJob(
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
        done=progress.done,
        total=progress.total,
        note=progress.note,
    )
