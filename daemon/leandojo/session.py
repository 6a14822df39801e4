"""The daemon's store, plan and job runner without its main loop, for one call of an agent.

`daemon.planning.plan` plans and `daemon.jobs.runner` runs jobs; a session repeats both until no job of the
requested kinds is due. It polls nothing and watches nothing. One process writes a store, so a session holds
the lock of the state folder while it is open.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence, Set
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from daemon.health.requirements import why_no_models, why_not_trainable
from daemon.jobs.recovery import recover
from daemon.jobs.runner import JobRunner
from daemon.leandojo.own_prover import AgentEngine
from daemon.place.lock import DaemonLock, make_folder
from daemon.place.paths import ConfigNotFoundError, Paths, find_config
from daemon.planning.admission import admit
from daemon.planning.ladder import ladder_of
from daemon.planning.plan import Plan, Planner
from daemon.polling.git import Git
from daemon.polling.github import Forge
from daemon.scheduling.maintenance import Maintenance
from daemon.scheduling.scheduler import leans_of
from daemon.settings import ConfigError, Settings, load
from daemon.state.context import Context
from daemon.state.store_service import StoreFailedError, StoreService
from pipeline.jobs.kinds import TRAININGS, Kind
from pipeline.jobs.ladder import WaitingRung
from pipeline.jobs.specs import Rung
from pipeline.lean.backend import CHOICES
from pipeline.lean.build.build_cache import present
from pipeline.loop_thread import LoopThread
from store import promotion
from store.errors import LogError
from store.events.jobs import JobReleased
from store.log.envelope import NewEvent
from store.view import queries
from store.view.rows import JobRow

T = TypeVar("T")
Say = Callable[[str], object]

_POLL_S = 1.0
_SCRIPTS_CONFIG = """\
# `everlean status --config THIS_FILE` and the other verbs show what scripts do here.
[daemon]
state_dir = "everlean"
"""


class AgentError(Exception):
    """An agent cannot meet the caller's request; the message names the thing, the reason and the remedy."""


def raid_folder() -> Path:
    """Return the folder of all LeanDojo's files: $RAID_DIR, else `raid` below the working directory."""
    return Path(os.environ.get("RAID_DIR") or "raid").absolute()


def scripts_config() -> Path:
    """Return the configuration of scripts that name none, made if missing: their store is beside it.

    It lies in `raid_folder`: the store of a daemon on this machine stays as it is.
    """
    path = raid_folder() / "everlean.toml"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_SCRIPTS_CONFIG, encoding="utf-8")
    return path


def settings_for(
    *, config: str | Path | None = None, state_dir: str | Path | None = None, lean: str | None = None
) -> Settings:
    """Return the daemon's settings with the agent's overrides.

    Args:
        config: a config.toml; None: that of $EVERLEAN_CONFIG, else `scripts_config`.
        state_dir: the folder of the store, with its cache below it, as with `[daemon] state_dir`.
        lean: `[lean] backend`.

    Raises:
        AgentError: the file, or `lean`, is not valid.
    """
    path = config or os.environ.get("EVERLEAN_CONFIG")
    try:
        settings = load(find_config(Path(path)) if path else scripts_config())
    except (ConfigNotFoundError, OSError) as error:
        raise AgentError(str(error)) from error
    except ConfigError as error:
        raise AgentError("\n".join(error.errors)) from error
    # An agent traces whether or not the daemon does.
    changed: dict[str, Any] = {"trace": settings.trace.model_copy(update={"enabled": True})}
    if state_dir is not None:
        state = Path(os.path.normpath(Path.cwd() / Path(state_dir).expanduser()))
        if state != settings.paths.state:
            changed["paths"] = Paths(state=state, cache=state / "cache", runtime=state / "run")
    if lean is not None:
        if lean not in CHOICES:
            raise AgentError(f"lean is {lean!r}: it takes one of {', '.join(CHOICES)}")
        changed["lean"] = settings.lean.model_copy(update={"backend": lean})
    return settings.model_copy(update=changed)


class AgentSession:
    """An open store with a job runner, for code without an event loop. Made by `open`.

    Attributes:
        settings: in force for the next plan; an agent replaces them.
        tactics: the id and the folder or hub name of the tactic model to prove with; None: the one in use.
        attached: contexts that close with the session.
    """

    def __init__(self, settings: Settings, store: StoreService, loop: LoopThread, say: Say) -> None:
        self.settings = settings
        self.store = store
        self.tactics: tuple[str, str] | None = None
        self.attached = AsyncExitStack()
        self.leans = leans_of(settings)
        self._loop = loop
        self._say = say
        self._forge = Forge()
        self._forge.connect(settings)
        self.git = Git(
            timeout_s=settings.poll.timeout_s,
            token=self._forge.token_for,
            safe=lambda: settings.poll.safe_directories,
        )
        self._context = Context(settings)
        self._maintenance = Maintenance(store, self._context)
        self._job_ended = asyncio.Event()
        self._engine = AgentEngine(settings.paths, self.git)
        self._runner = JobRunner(
            store=store,
            engine=self._engine,
            paths=settings.paths,
            limits=settings.jobs,
            finished=self._job_ended.set,
        )
        self._planner = Planner(whole=True)
        store.subscribe(lambda events: self._planner.changed(event.body for event in events))

    @classmethod
    @contextmanager
    def open(cls, settings: Settings, *, say: Say) -> Iterator[AgentSession]:
        """Acquire the lock of the state folder, open the store and clean up after a killed process.

        Raises:
            AgentError: the store cannot be used.
            daemon.place.lock.AlreadyRunningError: another process holds the folder; the message names it.
            daemon.place.lock.FolderError: a folder cannot be made.
        """
        if not structlog.is_configured():
            # Unconfigured, structlog prints every step to standard output.
            quiet = structlog.make_filtering_bound_logger(logging.WARNING)
            structlog.configure(wrapper_class=quiet)
        paths = settings.paths
        for folder in (paths.state, paths.cache):
            make_folder(folder)
        lock = DaemonLock.acquire(paths.lock, purpose="an agent")
        try:
            with LoopThread("agent") as loop:
                session = loop.run(cls._start(settings, loop, say))
                try:
                    loop.run(
                        recover(
                            store=session.store,
                            engine=session._engine,
                            paths=paths,
                        )
                    )
                    yield session
                finally:
                    loop.run(session._close())
        except StoreFailedError as error:
            raise AgentError(f"the store in {paths.state} cannot be written: {error}") from error
        finally:
            lock.release()

    @classmethod
    async def _start(cls, settings: Settings, loop: LoopThread, say: Say) -> AgentSession:
        try:
            store = await StoreService.open(settings.paths)
        except (LogError, OSError) as error:
            raise AgentError(f"the store in {settings.paths.state} cannot be opened: {error}") from error
        return cls(settings, store, loop, say)

    async def _close(self) -> None:
        try:
            await self.attached.aclose()
            await self._runner.stop(deadline_s=self.settings.daemon.shutdown_timeout_s)
            await self._engine.aclose()
            if self._forge.github is not None:
                await self._forge.github.close()
        finally:
            await self.store.close()

    def prove_with(self, prover: Any, *, whole: bool) -> None:
        """Have the caller's prover search in prove jobs, in this process; see `AgentEngine`."""
        self._engine.prover, self._engine.whole = prover, whole

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the session's loop and return its result."""
        return self._loop.run(work)

    def ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Return a query's answer from the view."""
        return self.run(self.store.ask(question))

    def work_off(self, kinds: Set[Kind], at: Collection[tuple[str, str]]) -> Sequence[JobRow]:
        """Run the due jobs of these kinds until none is due, retries included; return the ended ones.

        Args:
            at: repositories and commits; permanent failures there from earlier calls are tried anew, as by
                `everlean jobs retry`.

        Raises:
            StoreFailedError: the store cannot be written.
        """
        return self.run(self._work_off(kinds, at))

    def settle_models(self) -> None:
        """Decide about the new checkpoints, as the daemon would."""
        self.run(self._maintenance.settle_models())

    def tidy(self, in_use: Collection[tuple[str, str]]) -> None:
        """Write the patches of proofs, and sweep the cache but for these repositories and commits."""
        self.run(self._maintenance.write_patches(None))
        self.run(self._maintenance.sweep_cache(in_use))
        for problem in self._context.problems.texts():
            self._say(problem)

    def climb(self) -> tuple[list[Rung], list[WaitingRung]]:
        """Return the available rungs of the settings' ladder and the others, as in the plan."""
        no_models = why_no_models(self.settings.prove)
        ladder = ladder_of(self.settings, no_models=no_models, tactics=self.tactics)
        return ladder.climb(self.ask(promotion.ladder_models))

    async def _work_off(self, kinds: Set[Kind], at: Collection[tuple[str, str]]) -> list[JobRow]:
        failed = await self.store.ask(partial(queries.jobs, state="failed"))
        again = [row.job for row in failed if row.kind in kinds and (row.repository, row.sha) in at]
        if again:
            await self.store.append(
                [NewEvent(f"job:{job}", JobReleased(job=job), actor="control") for job in again]
            )
        started: set[str] = set()
        reported: set[tuple[str, int]] = set()
        while True:
            self._job_ended.clear()
            await self._maintenance.settle_models()
            now = datetime.now(UTC)
            started |= await self._start_due(kinds, now)
            ended = await self.store.ask(partial(_ended, jobs=started))
            for row in ended:
                if (row.job, row.attempt) not in reported:
                    reported.add((row.job, row.attempt))
                    self._report(row)
            waits = [wait for row in ended if (wait := _seconds_until_retry(row, now)) > 0]
            if not self._runner.kinds and not waits:
                return ended
            try:
                async with asyncio.timeout(_POLL_S if self._runner.kinds else min(waits)):
                    await self._job_ended.wait()
            except TimeoutError:
                await self.store.check()
            if self.store.failure is not None:
                raise StoreFailedError(str(self.store.failure))

    async def _start_due(self, kinds: Set[Kind], now: datetime) -> set[str]:
        settings, runner = self.settings, self._runner
        plan = await self.store.ask(
            partial(
                self._planner.plan,
                settings=settings,
                leans=self.leans,
                builds=await asyncio.to_thread(present, settings.paths.cache),
                trainable=not kinds.isdisjoint(TRAININGS) and not why_not_trainable(settings.train),
                no_models=why_no_models(settings.prove),
                tactics=self.tactics,
                now=now,
                running=runner.lanes,
                last_started=dict(runner.last_started),
            )
        )
        admission = admit(
            Plan.of(due for due in plan.due if due.kind in kinds),
            running=runner.kinds,
            max_running=settings.jobs.max_running,
            gpus=await self._engine.look(runner.lent),
        )
        for one in admission.start:
            runner.start(one)
        return {one.job for one in admission.start}

    def _report(self, row: JobRow) -> None:
        seconds = f" in {row.seconds:.1f} s" if row.seconds is not None else ""
        if row.state == "succeeded":
            self._say(f"{row.describes}: done{seconds}")
            return
        again = "; it is tried again" if row.retry_at is not None else ""
        remedy = f"; {row.remedy}" if row.remedy else ""
        self._say(f"{row.describes}: {row.state}{seconds}: {row.message or row.reason}{remedy}{again}")


def _ended(view: sqlite3.Connection, *, jobs: Collection[str]) -> list[JobRow]:
    rows = (row for job in sorted(jobs) for row in queries.jobs_by_prefix(view, job))
    return [row for row in rows if row.state != "running"]


def _seconds_until_retry(row: JobRow, now: datetime) -> float:
    if row.state != "failed" or row.retry_at is None:
        return 0.0
    return (datetime.fromisoformat(row.retry_at) - now).total_seconds()
