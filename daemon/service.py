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
import signal
import sqlite3
import sys
import threading
import time
import traceback
from collections.abc import Collection, Coroutine, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import structlog

from daemon import memory
from daemon.control import ControlServer, JobStateError, SocketInUseError
from daemon.git import Git
from daemon.github import GitHub
from daemon.jobs import JobRunner
from daemon.lean_needs import Need, lacking
from daemon.ledger import Ledger, StoreFailedError
from daemon.lock import DaemonLock, make_folder
from daemon.logs import configure
from daemon.patches import write_missing
from daemon.plan import Plan, admissible, make_plan
from daemon.poll import Poller
from daemon.recovery import recover
from daemon.reload import ConfigWatcher, reload
from daemon.settings import ConfigError, Repo, Settings, load
from daemon.systemd import Notifier
from daemon.ticker import Ticker
from daemon.watchlist import watchlist_events
from pipeline.lean.backend import LeanBackend, Leans, find_leans
from pipeline.lean.build.builds import present, sweep
from store import queries
from store.build_events import ProjectBuilt
from store.errors import LogError
from store.events import ConfigLoaded, ConfigRejected, DaemonStarted, DaemonStopped, JobReleased
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
        self._cache_bytes = 0
        self._config_errors: tuple[str, ...] = ()
        self._rejected_digest = ""
        self._problems: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._polling: set[str] = set()
        self._not_before: dict[str, datetime] = {}
        self._started_at = datetime.now(UTC)
        self._token: str | None = None
        self._to_patch: set[str] = set()
        self._leans = _find_leans(settings)

    # --- start --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Make everything stand, then say so.

        Raises:
            LogError, StoreFailedError: the store cannot be used.
            SocketInUseError: the control socket cannot be made.
        """
        self._ledger = await Ledger.open(self.settings.paths)
        try:
            await self._start(self.settings)
        except BaseException:
            await self._ledger.close()
            raise

    async def _start(self, settings: Settings) -> None:
        paths = settings.paths
        if self._ledger.rebuilt:
            log.warning("view_rebuilt", reason=self._ledger.rebuilt)
        self._git = Git(timeout_s=settings.poll.timeout_s, token=self._token_for)
        self._poller = Poller(ledger=self._ledger, git=self._git, github=None, paths=paths)
        self._read_token_and_connect(settings)
        self._runner = JobRunner(
            ledger=self._ledger, git=self._git, paths=paths, limits=settings.jobs, finished=self._plan_soon
        )
        interrupted = await recover(ledger=self._ledger, git=self._git, paths=paths, keep=settings.jobs.keep)
        await self._record_start(settings)
        self._ledger.subscribe(self._on_append)
        await self._write_patches(None)
        await self._remember_back_off()
        self._control = await ControlServer.start(paths.socket, self)
        self._watcher = ConfigWatcher(settings.path, changed=self.reload_soon)
        self._watcher.start()
        self._ticker = Ticker(poll=self._tick, plan=self._plan_tick, plan_every_s=_PLAN_EVERY_S)
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

    async def _remember_back_off(self) -> None:
        """A restart is no reason to hammer a forge that asked for patience."""
        for row in await self._ledger.ask(queries.repositories):
            if row.poll_outcome == "rate_limited" and row.next_due_at is not None:
                self._not_before[row.repository] = datetime.fromisoformat(row.next_due_at)

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
                    await self._write_patches(wanted)
                if self._plan_wanted or self._until_retry_s() <= 0:
                    self._plan_wanted = False
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
        if not self._swept or self._cache_bytes > self.settings.cache.size_bytes:
            # Not before the first plan: it says which builds are about to be used. With each plan while there is too
            # much of them: what had to stay was a running job's, or what it began its own build from.
            self._swept = True
            self._spawn(self._sweep(), name="sweep")
        for due in admissible(
            self._plan, running=self._runner.kinds, max_running=self.settings.jobs.max_running
        ):
            self._runner.start(due)
        if not self._runner.kinds:
            memory.give_back()
        self.notifier.status(self._sentence())

    def _until_retry_s(self) -> float:
        if self._plan.next_retry_at is None:
            return _PLAN_EVERY_S
        return max(0.0, (self._plan.next_retry_at - datetime.now(UTC)).total_seconds())

    async def _write_patches(self, proofs: frozenset[str] | None) -> None:
        try:
            for path in await write_missing(self._ledger, self.settings.paths.patches, proofs=proofs):
                log.info("patch_written", path=str(path))
            self._problems.pop("patches", None)
        except (OSError, LogError) as error:
            # The patch is safe in the log; the next start writes the file again.
            self._problems["patches"] = f"a patch file could not be written: {error}"
            log.exception("patch_not_written")

    # --- polling ------------------------------------------------------------------------------------------

    async def _tick(self, key: str) -> None:
        repo = next((repo for repo in self.settings.repos if repo.key == key), None)
        if repo is None or not repo.enabled:
            return
        due = self._not_before.get(key)
        if due is None or datetime.now(UTC) >= due:
            self._begin_poll(repo)

    def poll_now(self, repository: str | None) -> Sequence[str]:
        """Begin polls, whatever the back-off says; KeyError for a repository that is not watched."""
        repos = [repo for repo in self.settings.repos if repo.enabled and repository in (None, repo.key)]
        if repository is not None and not repos:
            raise KeyError(repository)
        for repo in repos:
            self._poller.forget(repo.key)
            self._begin_poll(repo)
        return [repo.key for repo in repos]

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

    def _begin_poll(self, repo: Repo) -> None:
        if repo.key not in self._polling and not self.stop_reason:
            self._polling.add(repo.key)
            self._spawn(self._poll(repo), name=f"poll:{repo.key}")

    async def _poll(self, repo: Repo) -> None:
        try:
            polled = await self._poller.poll(repo)
            if polled.outcome in ("changed", "unchanged"):
                self._not_before.pop(repo.key, None)
            else:
                self._not_before[repo.key] = polled.next_due_at
            self._problems.pop(f"poll:{repo.key}", None)
        except StoreFailedError:
            return  # the main loop ends the daemon with the reason
        except Exception as error:
            # The border of one repository's poll: a defect met there must not stop the others.
            self._problems[f"poll:{repo.key}"] = f"{repo.key}: {type(error).__name__}: {error}"
            log.exception("poll_defect", repository=repo.key)
        finally:
            self._polling.discard(repo.key)

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
        _configure_logs(new, self)
        self._leans = _find_leans(new)
        self._git.timeout_s = new.poll.timeout_s
        self._runner.limits = new.jobs
        self._read_token_and_connect(new)
        if changed:
            self._ticker.set(new)
        self._plan_soon()
        log.info("config_reloaded", path=str(new.path), changed=changed, repositories=len(new.repos))

    def _read_token_and_connect(self, settings: Settings) -> None:
        """Take the token up, and with it or an `api_url` the client for the forge's API."""
        try:
            self._token = settings.github.read_token()
            self._problems.pop("token", None)
        except (OSError, ValueError) as error:
            self._token = None
            self._problems["token"] = f"the GitHub token cannot be used: {error}"
            log.warning("token_unusable", reason=str(error))
        old = self._poller.github
        wanted = bool(self._token or settings.github.api_url)
        self._poller.github = (
            GitHub(api_url=settings.github.api_url, token=self._token, timeout_s=settings.poll.timeout_s)
            if wanted
            else None
        )
        if old is not None:
            self._spawn(self._close_later(old), name="close-github")

    async def _close_later(self, client: GitHub) -> None:
        polls = [task for task in self._tasks if task.get_name().startswith("poll:")]
        await asyncio.gather(*polls, return_exceptions=True)
        await client.close()

    def _token_for(self, url: str) -> str | None:
        return self._poller.github.token_for(url) if self._poller.github else None

    def secrets(self) -> tuple[str, ...]:
        """What must appear in no log."""
        return (self._token,) if self._token else ()

    # --- state --------------------------------------------------------------------------------------------

    @property
    def failed(self) -> bool:
        """Whether the end has to be reported as a failure."""
        return self._ledger.failure is not None

    def health(self) -> dict[str, Any]:
        """Whether everything is as it should be, and what is not."""
        problems = [f"config: {error}" for error in self._config_errors] + list(self._problems.values())
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
            "polling": sorted(self._polling),
            "lacking": [
                {
                    "toolchain": need.toolchain,
                    "version": need.version,
                    "branches": [f"{repository} ({branch})" for repository, branch in need.branches],
                    "detail": need.backend.detail,
                }
                for need in self._lacking
            ],
            "cache": {"bytes": self._cache_bytes, "limit_bytes": self.settings.cache.size_bytes},
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
            self._spawn(self._sweep({(body.repository, body.sha) for body in bodies}), name="sweep")
        self._to_patch.update(
            str(getattr(event.body, "proof", "")) for event in events if event.body.type in _WITH_PATCH
        )
        self._plan_soon()

    def _plan_soon(self) -> None:
        self._plan_wanted = True
        self._wake.set()

    async def _sweep(self, just_built: Collection[tuple[str, str]] = ()) -> None:
        """Keep the builds and dependencies within their bound, but for what a job has or is about to get.

        What was just built is about to be used, though the plan was made before and does not say so yet.
        """
        planned = ((due.repository, due.sha) for due in self._plan.due)
        about_to_start = {*just_built, *planned, *self._runner.commits}
        limit = self.settings.cache.size_bytes
        try:
            swept = await asyncio.to_thread(sweep, self.settings.paths.cache, limit, about_to_start)
        except OSError as error:
            self._problems["cache"] = f"the cache of builds cannot be swept: {error}"
            log.exception("sweep_failed")
            return
        self._problems.pop("cache", None)
        before, self._cache_bytes = self._cache_bytes, swept.left_bytes
        if swept.removed_builds or swept.removed_dependencies:
            log.info("cache_swept", builds=len(swept.removed_builds), freed_bytes=swept.freed_bytes)
        if swept.left_bytes > limit and swept.left_bytes != before:
            log.warning("cache_over_limit", left_bytes=swept.left_bytes, limit_bytes=limit)

    async def _plan_tick(self) -> None:
        # A toolchain may have been installed since.
        self._leans = await asyncio.to_thread(_find_leans, self.settings)
        self._plan_soon()

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


def run(config_path: Path) -> int:
    """Be the daemon until a signal ends it; return the exit status: 0, or 1 where the store failed.

    Raises:
        ConfigError: config.toml is not valid (exit status 78 for the caller).
        AlreadyRunningError: another daemon holds the state folder (exit status 75).
        FolderError: a folder cannot be made or written.
    """
    return asyncio.run(serve(config_path))


async def serve(config_path: Path) -> int:
    """`run`, inside an event loop on the main thread."""
    settings = load(config_path)
    _configure_logs(settings, None)
    for folder in (settings.paths.state, settings.paths.cache, settings.paths.runtime):
        make_folder(folder)
    lock = DaemonLock.acquire(settings.paths.lock)
    memory.use_one_heap()
    try:
        service = Service(settings)
        _configure_logs(settings, service)
        with _signals(service):
            try:
                await service.start()
            except (LogError, StoreFailedError, SocketInUseError, OSError) as error:
                log.error("daemon_not_started", reason=str(error))
                return 1
            try:
                await service.main_loop()
            finally:
                await service.stop()
        return 1 if service.failed else 0
    finally:
        lock.release()


@contextlib.contextmanager
def _signals(service: Service) -> Iterator[None]:
    """SIGTERM and SIGINT end (the second one at once), SIGHUP reloads, SIGUSR1 prints every thread's stack."""
    loop = asyncio.get_running_loop()

    def end(number: signal.Signals) -> None:
        if service.stop_reason:
            # Impatience: children die with us (pipeline.protocol), and the next start records what they were.
            os._exit(128 + number)
        service.stop_soon(number.name)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    loop.add_signal_handler(signal.SIGHUP, service.reload_soon)
    before = signal.signal(signal.SIGUSR1, _print_stacks)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)
        signal.signal(signal.SIGUSR1, before)


def _print_stacks(_number: int, _frame: FrameType | None) -> None:
    # Not faulthandler.register: it walks the other threads' frames while they run, and can crash the process that
    # it was to explain. This runs between two instructions of the main thread, so a loop stuck in Python is shown.
    for thread in threading.enumerate():
        if thread.ident is not None and (frame := sys._current_frames().get(thread.ident)) is not None:
            print(f"Thread {thread.name} (most recent call last):", file=sys.stderr)  # noqa: T201
            traceback.print_stack(frame, file=sys.stderr)
    sys.stderr.flush()


def _configure_logs(settings: Settings, service: Service | None) -> None:
    configure(
        level=settings.daemon.log_level,
        log_format=settings.daemon.log_format,
        secrets=service.secrets if service is not None else tuple,
    )
