"""The life of a job: recorded, prepared, spawned, listened to, ended, recorded again.

Owns the running children. `job_started` is in the log before the process exists and `job_succeeded`, `job_failed`,
`job_interrupted` or `job_cancelled` after it is gone, so every attempt has both ends however the daemon dies
(`daemon.recovery` writes what a killed daemon could not). What is due is `daemon.plan`'s business, whether it may begin
`daemon.admission`'s; the child itself is `daemon.process`, what its end means `daemon.job_ends`.
"""

from __future__ import annotations

import asyncio
import errno
import random
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import structlog

from daemon.cgroups import Cgroups
from daemon.due import BESIDE, DueJob, Kind
from daemon.gpus import Gpu, Gpus
from daemon.job_ends import Heard, cancelled, last_words, verdict
from daemon.job_live import Live, RunningJob, shown_of
from daemon.job_memory import MemoryBound
from daemon.job_place import placed
from daemon.job_records import is_cancelled, of_attempt, started_event, write_spec
from daemon.joblines import BadLineError, Batch, Failure, Line, Progress, Result, parse_line
from daemon.kinds import MODULES
from daemon.ledger import CALLERS_MISTAKES, Ledger, StoreFailedError
from daemon.paths import Paths
from daemon.plan import parameters_now
from daemon.polling.errors import GitError, NoSpaceError
from daemon.polling.git import Git
from daemon.process import JobProcess, LineTooLongError
from daemon.recovery import drop_old_job_folders
from daemon.redact import redact
from daemon.retries import Retries
from daemon.settings.schema import Jobs
from pipeline.lean.build.build_cache import BuildMissingError
from pipeline.protocol import JobSpec
from store.events.base import EventBody
from store.events.jobs import JobFailed, JobInterrupted
from store.view.queries import jobs as job_queries

_GRACE_S = 5.0
_SMALL_LINE_BYTES = 16 * 2**10
_DISK_REFUSES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})

log = structlog.get_logger("daemon.jobs")


class JobRunner:
    """Runs jobs. Every method belongs to the event loop's thread.

    Args:
        limits: replaced on reload; a running job keeps what it started with.
        gpus: the GPUs of this machine, asked again where a job that has one fails; None: there are none.
        cgroups: the groups that hold jobs to their memory; None: their processes are looked at instead.
    """

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
        gpus: Gpus | None = None,
        cgroups: Cgroups | None = None,
    ) -> None:
        self.git = git
        self.limits = limits
        self.retries = Retries(dice=dice)
        self.grace_s = 60.0
        """How long a training may take to save where it is ([schedule] grace)."""
        self._ledger = ledger
        self._paths = paths
        self._finished = finished
        self._modules = modules
        self._gpus = gpus
        self._cgroups = cgroups
        self._live: dict[str, Live] = {}
        self._stopping = False
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
    def lent(self) -> dict[str, str]:
        """The GPUs that running jobs have, by UUID, and what the jobs are called."""
        return {live.gpu.uuid: live.due.describes for live in self._live.values() if live.gpu is not None}

    @property
    def reserved_s(self) -> float:
        """What the running jobs may take of the day's seconds of search, as if they had recorded nothing yet."""
        return sum(live.due.cost_s for live in self._live.values())

    @property
    def commits(self) -> frozenset[tuple[str, str]]:
        """Repository and commit of the running jobs."""
        return frozenset((live.due.repository, live.due.sha) for live in self._live.values())

    @property
    def at_endpoints(self) -> frozenset[str]:
        """The running jobs that ask somebody else's machine (rung 4)."""
        return frozenset(job for job, live in self._live.items() if "external" in live.due.parameters)

    def running(self) -> tuple[RunningJob, ...]:
        """Return what runs now, for people."""
        return tuple(shown_of(live) for live in self._live.values())

    def start(self, due: DueJob, gpu: Gpu | None = None) -> None:
        """Begin a job in the background, with the GPU that it is lent; its end calls `finished`."""
        if self._stopping or due.job in self._live:
            return
        started = time.monotonic()
        self.last_started[due.repository] = started
        self.retries.begun(due.job)
        task = asyncio.create_task(self._run(due), name=due.job)
        self._live[due.job] = Live(due, gpu, task, datetime.now(UTC), started)

    def cancel(self, job: str, *, by: str) -> bool:
        """Have a running job ended for good; say whether it runs."""
        live = self._live.get(job)
        if live is not None:
            live.ask("cancel", by)
        return live is not None

    def make_way(self, job: str, why: str) -> None:
        """Have a running job save where it is, if it can, and end; it is due again."""
        live = self._live.get(job)
        if live is not None and not live.asked.is_set():
            log.info("job_makes_way", job=job, reason=why)
            live.ask("yield", why)

    async def stop(self, *, deadline_s: float) -> None:
        """Ask every job to end, kill those that do not in time, record them as interrupted, and wait."""
        self._stopping = True
        # What is killed has to be recorded before the time is up.
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
        started = time.monotonic()
        heard = Heard(started)
        outcome = "defect"
        try:
            if await self._ledger.ask(partial(is_cancelled, job=due.job)):
                # Since the plan was made. One that is cancelled is never planned.
                outcome = "cancelled"
                return
            await self._record(due, started_event(due))
            outcome = await self._attempt(due, heard)
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
                peak_rss_bytes=heard.peak_bytes,
                simulated=due.simulated,
            )
            self._finished()

    async def _attempt(self, due: DueJob, heard: Heard) -> str:
        spec = self._spec(due)
        try:
            parameters = await self._ledger.ask(partial(parameters_now, job=due))
            async with placed(due, parameters, git=self.git, paths=self._paths) as parameters:
                spec = replace(spec, parameters=parameters, gpu_lock=self._gpu_lock(due))
                await asyncio.to_thread(write_spec, spec)
                await self._listen(due, spec, heard)
                body = await self._verdict(due, heard, spec)
        except BuildMissingError as error:
            # It was swept away since the plan was made; the next plan has it built again first.
            failure = Failure("build_missing", str(error), "nothing: it is built again", deterministic=False)
            body = await self._failed(due, failure, heard)
        except NoSpaceError as error:
            refused = OSError(errno.ENOSPC, str(error))
            raise await self._refused(due, refused, self._paths.worktrees) from error
        except GitError as error:
            failure = Failure("worktree", str(error), error.remedy, deterministic=False)
            body = await self._failed(due, failure, heard)
        except OSError as error:
            if error.errno in _DISK_REFUSES:
                raise await self._refused(due, error, self._paths.jobs) from error
            failure = Failure(
                "spawn",
                f"{due.job} could not be started: {error}",
                "check free memory, processes and disk space",
                deterministic=False,
            )
            body = await self._failed(due, failure, heard)
        finally:
            await asyncio.to_thread(shutil.rmtree, spec.staging, ignore_errors=True)
        live = self._live[due.job]
        if live.stopped == "cancel" and isinstance(body, JobFailed | JobInterrupted):
            # Asked for where there was no process to end: before it, after it, or while it made way.
            body = cancelled(due, by=live.fault, heard=heard)
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

    def _gpu_lock(self, due: DueJob) -> Path | None:
        gpu = self._live[due.job].gpu
        return None if gpu is None or self._gpus is None else self._gpus.lock(gpu.uuid)

    async def _listen(self, due: DueJob, spec: JobSpec, heard: Heard) -> None:
        """Run the process to its end, whoever brings that about; `heard` has the story afterwards."""
        live = self._live[due.job]
        process = await JobProcess.start(
            self._modules[due.kind],
            spec=spec.directory / "spec.json",
            directory=spec.directory,
            stderr=spec.directory / "stderr.log",
            memory_bytes=due.memory_bytes,
            key=due.key,
            # Without a GPU of its own it sees none; the nameless one is whatever the daemon sees.
            visible="" if live.gpu is None else live.gpu.uuid or None,
        )
        live.pid = process.pid
        memory = MemoryBound(
            f"{due.job}-{due.attempt}",
            process.pid,
            limit_bytes=due.whole_bytes,
            cgroups=self._cgroups,
            over=lambda held: live.ask("memory", held),
        )
        reading = asyncio.create_task(self._read(process, due, spec, heard))
        asked = asyncio.create_task(live.asked.wait())
        whole = asyncio.ensure_future(_both(reading, process))
        # A training needs its helpers, and its time, to save where it is. A search has saved what it found, and must
        # not take the end of its Lean processes for an answer.
        saves = due.kind in BESIDE
        try:
            await memory.begin()
            while True:
                done, _ = await asyncio.wait(
                    {whole, asked}, timeout=due.timeout_s, return_when=asyncio.FIRST_COMPLETED
                )
                # What has something to say waits for room on the disk with it, and that is not its fault.
                if done or not self._ledger.room.problem:
                    break
            if whole not in done:
                heard.stopped, heard.fault = "deadline", f"no end after {due.timeout_s:g} s"
                if asked in done:
                    heard.stopped, heard.fault = live.stopped, live.fault
                grace_s = self.grace_s if saves else _GRACE_S
                heard.exit = await process.stop(grace_s=grace_s, first_alone=saves or due.kind == "prove")
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
            asked.cancel()
            heard.exit = await asyncio.shield(process.stop(grace_s=_GRACE_S))
            reading.cancel()
            await asyncio.gather(reading, whole, return_exceptions=True)
            process.close()
            heard.usage, heard.seen_bytes = await memory.end()

    async def _read(self, process: JobProcess, due: DueJob, spec: JobSpec, heard: Heard) -> None:
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
        await self._ledger.append(batch.events, blobs=staged, wait=True)
        for path in staged.values():
            path.unlink(missing_ok=True)

    # --- the end ------------------------------------------------------------------------------------------

    async def _verdict(self, due: DueJob, heard: Heard, spec: JobSpec) -> EventBody:
        said = await asyncio.to_thread(last_words, spec.directory / "stderr.log")
        found = verdict(due, heard, said)
        if not isinstance(found, Failure):
            return found
        lost = await self._lost(due)
        if lost is not None:
            # No fault of the job: it waits for the GPU, or for another one, and then it is due again.
            reason = f"{lost.called} was lost: {lost.detail}"
            return JobInterrupted(job=due.job, attempt=due.attempt, reason=reason)
        return await self._failed(due, found, heard)

    async def _lost(self, due: DueJob) -> Gpu | None:
        """Return the GPU that a job had, where it does not answer any more."""
        gpu = self._live[due.job].gpu
        if gpu is None or self._gpus is None:
            return None
        now = await self._gpus.look(self.lent)
        return next((one for one in now if one.uuid == gpu.uuid and one.state == "lost"), None)

    async def _failed(self, due: DueJob, failure: Failure, heard: Heard) -> JobFailed:
        failures = 1 + await self._ledger.ask(partial(job_queries.failures_of, job=due.job))
        retry_at = None
        if not failure.deterministic:
            retry_at = self.retries.after(due.job, failures=failures, limits=self.limits)
        return JobFailed(
            job=due.job,
            attempt=due.attempt,
            reason=failure.reason,
            message=redact(failure.message),
            remedy=failure.remedy,
            deterministic=failure.deterministic,
            retry_at=retry_at,
            seconds=heard.seconds,
            peak_rss_bytes=heard.peak_bytes,
        )

    async def _refused(self, due: DueJob, error: OSError, folder: Path) -> StoreFailedError:
        # No fault of the job: it is due again once the disk is mended, and until then nothing is.
        reason = f"the disk refused: {error}"
        await self._record(due, JobInterrupted(job=due.job, attempt=due.attempt, reason=reason))
        return self._ledger.refused(error, folder)

    async def _record(self, due: DueJob, body: EventBody) -> None:
        await self._ledger.append([of_attempt(due, body)], wait=True)


async def _both(reading: asyncio.Task[None], process: JobProcess) -> None:
    await asyncio.gather(reading, process.ended())
