"""Start, reload, stop: the one place where the parts are wired together. Decides nothing that a part could decide.

Signal handlers set flags and the main loop acts. READY=1 is sent when the log is open, the view has caught up, a dead
daemon's remains are swept, the control socket listens and the first polls are on their way. Whatever makes the store
unwritable ends the daemon with the reason: work that cannot be recorded is not begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import sqlite3
import time
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any

import structlog

from daemon import memory
from daemon.control import ControlServer, JobStateError
from daemon.forge import Forge
from daemon.git import Git
from daemon.github import GitHub
from daemon.jobs import JobRunner
from daemon.lean_needs import Need, lacking
from daemon.ledger import Ledger, StoreFailedError
from daemon.logs import configure
from daemon.models import Models
from daemon.plan import Plan, admissible, make_plan
from daemon.poll import Poller
from daemon.polls import Polls
from daemon.proposed import record
from daemon.recovery import recover
from daemon.reload import ConfigWatcher, reload
from daemon.settings import ConfigError, Settings
from daemon.systemd import Notifier
from daemon.ticker import Ticker
from daemon.training import Counted
from daemon.training_needs import why_no_models, why_not_trainable
from daemon.upkeep import Upkeep
from daemon.watchlist import watchlist_events
from pipeline.lean.backend import LeanBackend, Leans, find_leans
from pipeline.lean.build.builds import present
from store import queries
from store.build_events import ProjectBuilt
from store.errors import LogError
from store.events import (
    ConfigLoaded,
    ConfigRejected,
    DaemonStarted,
    DaemonStopped,
    JobReleased,
    PullRequestOpened,
)
from store.log import NewEvent

_PLAN_EVERY_S = 15.0
_LOOP_S = 5.0
_WITH_PATCH = frozenset({"proof_checked", "proof_verified"})

log = structlog.get_logger("daemon.service")


class Service:
    """A running daemon. `start` it, wait for `main_loop`, `stop` it; all on one event loop."""

    def __init__(self, settings: Settings, *, notifier: Notifier | None = None) -> None:
        self.settings = settings
        self.notifier = notifier or Notifier()
        self.stop_reason = ""
        self._wake = asyncio.Event()
        self._reload_wanted = False
        self._plan_wanted = True
        self._plan: Plan = Plan((), None)
        self._swept = False
        self._lacking: tuple[Need, ...] = ()
        self._config_errors: tuple[str, ...] = ()
        self._rejected_digest = ""
        self._problems: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._started_at = datetime.now(UTC)
        self._forge = Forge()
        self._to_patch: set[str] = set()
        self._leans = _find_leans(settings)
        self._look_for_models()
        self._counted: Counted = {}

    # --- start --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Make everything stand, then say so.

        Raises:
            LogError, StoreFailedError: the store cannot be used.
            SocketInUseError: the control socket cannot be made.
        """
        self._ledger = await Ledger.open(self.settings.paths)
        self._upkeep = Upkeep(self._ledger, settings=lambda: self.settings)
        try:
            await self._start(self.settings)
        except BaseException:
            await self._ledger.close()
            raise

    async def _start(self, settings: Settings) -> None:
        paths = settings.paths
        if self._ledger.rebuilt:
            log.warning("view_rebuilt", reason=self._ledger.rebuilt)
        self._git = Git(timeout_s=settings.poll.timeout_s, token=self._forge.token_for)
        self._poller = Poller(ledger=self._ledger, git=self._git, github=None, paths=paths)
        self._polls = Polls(
            self._poller,
            settings=lambda: self.settings,
            problems=self._problems,
            begin=lambda key, work: self._spawn(work, name=f"poll:{key}"),
            ending=lambda: bool(self.stop_reason),
        )
        self._connect(settings)
        self._runner = JobRunner(
            ledger=self._ledger, git=self._git, paths=paths, limits=settings.jobs, finished=self._plan_soon
        )
        interrupted = await recover(ledger=self._ledger, git=self._git, paths=paths, keep=settings.jobs.keep)
        await self._record_start(settings)
        self._ledger.subscribe(self._on_append)
        await self._upkeep.write_patches(None)
        self._polls.remember_back_off(await self._ledger.ask(queries.repositories))
        self._control = await ControlServer.start(paths.socket, self)
        self._watcher = ConfigWatcher(settings.path, changed=self.reload_soon)
        self._watcher.start()
        self._ticker = Ticker(poll=self._polls.tick, plan=self._plan_tick, plan_every_s=_PLAN_EVERY_S)
        self._ticker.start(settings)
        self._spawn(self._await_failure(), name="store-watch")
        self._wake.set()  # work that was due while nobody ran begins in the first turn
        self.notifier.ready(self._sentence())
        log.info(
            "daemon_ready",
            pid=os.getpid(),
            repositories=len(settings.repos),
            lean=self._lean.kind,
            lean_detail=self._lean.detail,
            interrupted_jobs=interrupted,
            state=str(paths.state),
        )

    async def _record_start(self, settings: Settings) -> None:
        started = DaemonStarted(
            version=version("unsorry"),
            pid=os.getpid(),
            host=platform.node(),
            lean=self._lean.kind,
            lean_detail=self._lean.detail,
            sqlite=sqlite3.sqlite_version,
        )
        await self._ledger.append([NewEvent("daemon", started), *await self._config_events(settings)])

    async def _config_events(self, settings: Settings) -> list[NewEvent]:
        loaded = ConfigLoaded(path=str(settings.path), digest=settings.digest, settings=settings.public())
        rows = await self._ledger.ask(queries.repositories)
        return [NewEvent("config", loaded), *watchlist_events(settings.repos, rows)]

    # --- the main loop ------------------------------------------------------------------------------------

    async def main_loop(self) -> None:
        """Turn until somebody asks for the end or the store fails."""
        while not self._ending():
            pause = min(self.notifier.watchdog_interval_s or _LOOP_S, self._until_retry_s())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            self._wake.clear()
            self.notifier.watchdog()
            if self._ending():
                return
            try:
                await self._ledger.check()
                if self._reload_wanted:
                    self._reload_wanted = False
                    await self._reload()
                if self._to_patch:
                    wanted, self._to_patch = frozenset(self._to_patch), set()
                    await self._upkeep.write_patches(wanted)
                if self._plan_wanted or self._until_retry_s() <= 0:
                    self._plan_wanted = False
                    # First, as what is to be learned next starts from the checkpoint in use.
                    await self._upkeep.settle_models()
                    await self._start_due_jobs()
            except StoreFailedError:
                continue  # the turn that follows says so and ends

    def _ending(self) -> bool:
        if self.failed:
            self.stop_reason = f"the store failed: {self._ledger.failure}"
        return bool(self.stop_reason)

    async def _start_due_jobs(self) -> None:
        try:
            builds = await asyncio.to_thread(present, self.settings.paths.cache)
            self._plan = await self._ledger.ask(
                partial(
                    make_plan,
                    settings=self.settings,
                    leans=self._leans,
                    builds=builds,
                    trainable=not self._untrainable,
                    no_models=self._no_models,
                    counted=self._counted,
                    reserved_s=self._runner.reserved_s,
                    now=datetime.now(UTC),
                    running=self._runner.lanes,
                    last_started=dict(self._runner.last_started),
                )
            )
            self._lacking = await self._ledger.ask(partial(lacking, leans=self._leans))
        except (LogError, sqlite3.Error, OSError) as error:
            self._problems["plan"] = f"what is due cannot be found out: {error}"
            log.exception("plan_failed")
            return
        self._problems.pop("plan", None)
        if not self._swept or self._upkeep.cache_bytes > self.settings.cache.size_bytes:
            # Not before the first plan: it says which builds are about to be used. With each plan while there is too
            # much of them: what had to stay was a running job's, or what it began its own build from.
            self._swept = True
            self._spawn_sweep()
        for due in admissible(
            self._plan,
            running=self._runner.kinds,
            max_running=self.settings.jobs.max_running,
            gpu_taken=self._runner.gpu_taken,
        ):
            self._runner.start(due)
        if not self._runner.kinds:
            memory.give_back()
        self.notifier.status(self._sentence())

    def _until_retry_s(self) -> float:
        if self._plan.next_retry_at is None:
            return _PLAN_EVERY_S
        return max(0.0, (self._plan.next_retry_at - datetime.now(UTC)).total_seconds())

    # --- what is asked for ----------------------------------------------------------------------------------

    def poll_now(self, repository: str | None) -> Sequence[str]:
        """Begin polls, whatever the back-off says; KeyError for a repository that is not watched."""
        return self._polls.poll_now(repository)

    async def retry(self, job: str) -> None:
        """Make a job that failed, or waits for its next attempt, due again now.

        Raises:
            KeyError: no such job.
            JobStateError: it did not fail.
        """
        rows = await self._ledger.ask(partial(queries.jobs_by_prefix, prefix=job))
        row = next((row for row in rows if row.job == job), None)
        if row is None:
            raise KeyError(job)
        if row.state != "failed":
            raise JobStateError(f"{job}: is {row.state}; only a failed job can be tried again")
        await self._ledger.append([NewEvent(f"job:{job}", JobReleased(job=job), actor="control")])
        log.info("job_released", job=job)

    async def pull_request_opened(self, opened: PullRequestOpened) -> None:
        """Record a pull request that a command opened.

        Raises:
            KeyError: no such proof.
            PullRequestStateError: it is not verified, or has another pull request already.
        """
        await record(self._ledger, opened)
        log.info("pull_request_opened", proof=opened.proof, url=opened.url)

    @property
    def models(self) -> Models:
        """What may be done with the trained models."""
        return self._upkeep.models

    # --- reload -------------------------------------------------------------------------------------------

    def reload_soon(self) -> None:
        """Read config.toml again in the next turn of the loop."""
        self._reload_wanted = True
        self._wake.set()

    async def _reload(self) -> None:
        self.notifier.reloading()
        outcome = await asyncio.to_thread(reload, self.settings, self.settings.path)
        if isinstance(outcome, ConfigError):
            await self._reject(outcome)
        else:
            await self._apply(outcome)
        self.notifier.ready(self._sentence())

    async def _reject(self, error: ConfigError) -> None:
        if error.digest == self._rejected_digest and error.errors == self._config_errors:
            return
        self._config_errors, self._rejected_digest = error.errors, error.digest
        body = ConfigRejected(path=str(self.settings.path), digest=error.digest, errors=error.errors)
        await self._ledger.append([NewEvent("config", body)])
        log.error("config_rejected", path=str(self.settings.path), errors=list(error.errors))

    async def _apply(self, new: Settings) -> None:
        # A token file may have new content under an unchanged configuration.
        changed = new.digest != self.settings.digest or bool(self._config_errors)
        if changed:
            await self._ledger.append(await self._config_events(new))
        self.settings = new
        self._config_errors, self._rejected_digest = (), ""
        self.configure_logs()
        self._leans = _find_leans(new)
        self._look_for_models()
        self._git.timeout_s = new.poll.timeout_s
        self._runner.limits = new.jobs
        self._connect(new)
        if changed:
            self._ticker.set(new)
        self._plan_soon()
        log.info("config_reloaded", path=str(new.path), changed=changed, repositories=len(new.repos))

    def _connect(self, settings: Settings) -> None:
        before = self._forge.connect(settings)
        self._poller.github = self._forge.github
        if before is not None:
            self._spawn(self._close_later(before), name="close-github")

    async def _close_later(self, client: GitHub) -> None:
        polls = [task for task in self._tasks if task.get_name().startswith("poll:")]
        await asyncio.gather(*polls, return_exceptions=True)
        await client.close()

    def configure_logs(self) -> None:
        """Log as the settings say, and no secret."""
        daemon = self.settings.daemon
        configure(level=daemon.log_level, log_format=daemon.log_format, secrets=self._forge.secrets)

    # --- state --------------------------------------------------------------------------------------------

    @property
    def failed(self) -> bool:
        """Whether the end has to be reported as a failure."""
        return self._ledger.failure is not None

    def health(self) -> dict[str, Any]:
        """Whether everything is as it should be, and what is not."""
        problems = [f"config: {error}" for error in self._config_errors]
        problems += [*self._problems.values(), *self._upkeep.problems.values()]
        if self._forge.problem:
            problems.append(self._forge.problem)
        if self._ledger.failure is not None:
            problems.append(f"the store failed: {self._ledger.failure}")
        return {"healthy": not problems, "problems": problems}

    def status(self) -> dict[str, Any]:
        """What only the living daemon knows."""
        running = []
        for job in self._runner.running():
            fields = asdict(job)
            progress = {name: fields.pop(name) for name in ("done", "total", "note")}
            running.append({**fields, "progress": progress if progress["total"] else {}})
        lanes = self._runner.lanes
        queued = [due for due in self._plan.due if due.lane not in lanes]
        return {
            **self.health(),
            "pid": os.getpid(),
            "version": version("unsorry"),
            "started_at": self._started_at.isoformat(),
            "lean": self._lean.kind,
            "lean_detail": self._lean.detail,
            "config": {
                "path": str(self.settings.path),
                "digest": self.settings.digest,
                "errors": list(self._config_errors),
            },
            "jobs": running,
            "queued": [{"job": due.job, "kind": due.kind, "describes": due.describes} for due in queued],
            "polling": sorted(self._polls.running),
            "lacking": [
                {
                    "toolchain": need.toolchain,
                    "version": need.version,
                    "branches": [f"{repository} ({branch})" for repository, branch in need.branches],
                    "detail": need.backend.detail,
                }
                for need in self._lacking
            ],
            "proving": {"waits_for": list(self._plan.waiting)},
            "training": {"enabled": self.settings.train.enabled, "waits_for": self._untrainable},
            "cache": {"bytes": self._upkeep.cache_bytes, "limit_bytes": self.settings.cache.size_bytes},
        }

    def _sentence(self) -> str:
        running = self._runner.running()
        jobs = f"{len(running)} jobs running" if len(running) != 1 else f"running: {running[0].describes}"
        problem = f"; PROBLEM: {problems[0]}" if (problems := self.health()["problems"]) else ""
        return f"{len(self.settings.repos)} repositories, {jobs}, Lean: {self._lean.kind}{problem}"

    # --- stop ---------------------------------------------------------------------------------------------

    def stop_soon(self, reason: str) -> None:
        """End in the next turn of the loop."""
        self.stop_reason = self.stop_reason or reason
        self._wake.set()

    async def stop(self) -> None:
        """Stop the parts in the order in which nothing new can begin."""
        deadline = time.monotonic() + self.settings.daemon.shutdown_timeout_s
        self.notifier.stopping(f"stopping: {self.stop_reason}")
        self._ticker.stop()
        self._watcher.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runner.stop(deadline_s=max(0.5, deadline - time.monotonic()))
        if self._ledger.failure is None:
            stopped = DaemonStopped(reason=self.stop_reason, pid=os.getpid())
            with contextlib.suppress(StoreFailedError):
                await self._ledger.append([NewEvent("daemon", stopped)])
        await self._control.stop()
        if self._poller.github is not None:
            await self._poller.github.close()
        await self._ledger.close()
        end = log.error if self.failed else log.info
        end("daemon_stopped", reason=self.stop_reason, failure=str(self._ledger.failure or ""))

    # --- small things -------------------------------------------------------------------------------------

    def _on_append(self, events: Sequence[NewEvent]) -> None:
        bodies = [event.body for event in events if isinstance(event.body, ProjectBuilt)]
        # A build that failed may have fetched packages, and one that was killed leaves its beginnings.
        if bodies or any(event.body.type == "job_failed" for event in events):
            self._spawn_sweep({(body.repository, body.sha) for body in bodies})
        self._to_patch.update(
            str(getattr(event.body, "proof", "")) for event in events if event.body.type in _WITH_PATCH
        )
        self._plan_soon()

    def _plan_soon(self) -> None:
        self._plan_wanted = True
        self._wake.set()

    def _spawn_sweep(self, just_built: Collection[tuple[str, str]] = ()) -> None:
        # What was just built is about to be used, though the plan was made before and does not say so yet.
        planned = ((due.repository, due.sha) for due in self._plan.due)
        keep = {*just_built, *planned, *self._runner.commits}
        self._spawn(self._upkeep.sweep_cache(keep), name="sweep")

    async def _plan_tick(self) -> None:
        # A toolchain, or what training needs, may have been installed since.
        self._leans = await asyncio.to_thread(_find_leans, self.settings)
        self._look_for_models()
        self._plan_soon()

    def _look_for_models(self) -> None:
        self._untrainable = why_not_trainable(self.settings.train)
        self._no_models = why_no_models(self.settings.prove)

    async def _await_failure(self) -> None:
        await self._ledger.failed.wait()
        self._wake.set()

    def _spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def _lean(self) -> LeanBackend:
        return self._leans.summary


def _find_leans(settings: Settings) -> Leans:
    lean = settings.lean
    return find_leans(
        backend=lean.backend, repl=lean.repl, sandbox=lean.sandbox, toolchains=settings.paths.toolchains
    )
