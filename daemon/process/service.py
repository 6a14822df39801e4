"""Start, reload, stop: the one place where the parts are wired together, without their decisions.

Signal handlers set flags and the main loop acts. READY=1 is sent when the log is open, the view has caught
up, a dead daemon's remains are swept, the control socket listens and the first polls are on their way. Work
that cannot be recorded is not begun: while the disk is full the daemon waits, and any other fault of the
store ends it, with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import platform
import re
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import structlog

from daemon.agents.claims import Claims
from daemon.http.control import ControlServer, Parts, SocketInUseError
from daemon.http.metrics import Metrics, MetricsListener
from daemon.http.report_page import ReportPage
from daemon.http.status import RuntimeStatus
from daemon.jobs.engine import Engine
from daemon.jobs.limits import Cgroups, cgroups_here
from daemon.jobs.local import LocalEngine
from daemon.jobs.recovery import recover
from daemon.jobs.runner import JobRunner
from daemon.place.logs import configure
from daemon.place.systemd import Notifier
from daemon.polling.branch_diff import watchlist_events
from daemon.polling.git import Git
from daemon.polling.github import Forge, GitHub
from daemon.polling.past import Past
from daemon.polling.poller import Poller
from daemon.polling.schedule import PollScheduler
from daemon.polling.webhooks import Webhooks
from daemon.process.event_lines import EventLines, lean_text
from daemon.process.main_loop import Heartbeat, MainLoop
from daemon.process.periodic import Periodic, channel_row, table
from daemon.results.notifications import CHANNELS, Notifications
from daemon.scheduling.maintenance import Maintenance
from daemon.scheduling.scheduler import Operator, Scheduler, lean_chosen, leans_of
from daemon.settings import ConfigError, Settings
from daemon.settings.reload import ConfigWatcher, reload
from daemon.state.clock import ClockWatch
from daemon.state.context import Context
from daemon.state.shipping import Shipping
from daemon.state.store_service import LOOK_FOR_ROOM, NoRoomError, StoreFailedError, StoreService, no_room
from pipeline.endpoint.credentials import FOLDER
from pipeline.jobs.kinds import KINDS
from pipeline.lean.backend import Leans
from store.errors import DatabaseFullError, LogError
from store.events.jobs import ProjectBuilt
from store.events.service import ConfigLoaded, ConfigRejected, DaemonStarted, DaemonStopped
from store.log.envelope import NewEvent
from store.log.upcast import read_body
from store.view import queries
from store.view.counts import count_all

# ---- The daemon's records of itself: its starts and stops, its configurations, accepted and refused


class ServiceRecorder:
    """Records them, and keeps `config_errors` of the context."""

    def __init__(self, store: StoreService, context: Context) -> None:
        self._rejected_digest = ""
        self._store = store
        self._context = context

    async def started(self, settings: Settings, leans: Leans) -> None:
        """Record in one the start, the configuration with its watchlist, and Lean if it changed."""
        lean = leans.summary
        body = DaemonStarted(
            version=version("everlean"),
            pid=os.getpid(),
            host=platform.node(),
            lean=lean.kind,
            lean_detail=lean.detail,
            sqlite=sqlite3.sqlite_version,
        )
        events = [NewEvent("daemon", body), *await self._loaded(settings)]
        chosen = lean_chosen(leans)
        last = await self._store.look_up(lambda log: [*log.last(1, types=(chosen.type,))])
        if not last or read_body(last[0]) != chosen:
            events.append(NewEvent("daemon", chosen))
        await self._store.append(events, wait=True)

    async def stopped(self, reason: str) -> None:
        """Record the end."""
        await self._store.append([NewEvent("daemon", DaemonStopped(reason=reason, pid=os.getpid()))])

    async def took(self, new: Settings, *, before: Settings) -> bool:
        """Record a configuration that takes effect; return whether it differs from the one before."""
        # A token file may have new content under an unchanged configuration.
        changed = new.digest != before.digest or bool(self._context.config_errors)
        if changed:
            await self._store.append(await self._loaded(new))
        self._context.config_errors, self._rejected_digest = (), ""
        return changed

    async def refused(self, error: ConfigError) -> bool:
        """Record a refused configuration; return whether it differs from the last refused one."""
        if error.digest == self._rejected_digest and error.errors == self._context.config_errors:
            return False
        body = ConfigRejected(path=str(error.path), digest=error.digest, errors=error.errors)
        await self._store.append([NewEvent("config", body)])
        self._context.config_errors, self._rejected_digest = error.errors, error.digest
        return True

    async def _loaded(self, settings: Settings) -> list[NewEvent]:
        body = ConfigLoaded(path=str(settings.path), digest=settings.digest, settings=settings.public())
        rows = await self._store.ask(queries.repositories)
        return [NewEvent("config", body), *watchlist_events(settings.repos, rows)]


# ---- A daemon without room on its disk at the start waits for it, reports the wait, and then goes on
# If it ended, it would be started again and again, until the service manager gives up. It waits for room
# alone: a read-only or failing disk is reported at once. Meanwhile nothing is ready or listens: `everlean
# status` finds the full disk by itself, and the daemon reports the wait to the service manager.


_SAID_EVERY_S = 5.0
_TURN_S = 0.5
_PATIENCE_S = 60.0
"""The service manager ends a start this long without news."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})

Made = TypeVar("Made")

log = structlog.get_logger("daemon.process.service")


class DiskSpaceWait:
    """Waits at the start of the daemon for room on the disk.

    Args:
        context: its `stop_reason` ends the wait.
        look: why a disk takes nothing (`daemon.state.store_service.no_room`).
    """

    def __init__(
        self,
        notifier: Notifier,
        context: Context,
        *,
        look: Callable[[Path], OSError | None] = no_room,
    ) -> None:
        self._notifier = notifier
        self._context = context
        self._look = look
        self._in_vain = 1
        self._said_at = float("-inf")

    async def outlasted(
        self, step: Callable[[], Awaitable[Made]], folder: Path, *refused: type[Exception]
    ) -> Made:
        """Run a step of the start, and repeat it once a full disk has space again; return its result.

        Args:
            folder: the place of its files.
            refused: its errors without room. Other errors pass through.
        """
        while True:
            try:
                return await step()
            except refused as error:
                if not await self.regained(folder, error):
                    raise

    async def regained(self, folder: Path, error: Exception) -> bool:
        """Wait until there is room for a failed step of the start; return whether it is worth another try.

        It is not if another thing than room was missing, or a signal ended the wait.
        """
        if not (_is_for_room(error) or _is_for_room(await asyncio.to_thread(self._look, folder))):
            return False
        pause_s = LOOK_FOR_ROOM.wait_s(self._in_vain)
        log.error("disk_full", reason=str(error), looked_for_again_after_s=pause_s)
        look_at = time.monotonic() + pause_s
        while not self._context.stop_reason:
            self._say(str(error))
            await asyncio.sleep(_TURN_S)
            if time.monotonic() < look_at:
                continue
            look_at = time.monotonic() + pause_s
            if await asyncio.to_thread(self._look, folder) is None:
                # Room that was not enough is not looked for each second.
                self._in_vain += 1
                log.info("disk_has_room_again")
                return True
        return False

    async def watch(self, store: StoreService) -> None:
        """Let appends that wait for disk space continue once there is some, as the main loop does later."""
        while True:
            await asyncio.sleep(_TURN_S)
            try:
                await store.check()
            except StoreFailedError:
                store.hurry()  # waiting appends meet the failure
                return
            if store.room.problem:
                self._say(store.room.problem)
                if self._context.stop_reason:
                    store.hurry()

    def _say(self, reason: str) -> None:
        if time.monotonic() - self._said_at >= _SAID_EVERY_S:
            self._said_at = time.monotonic()
            self._notifier.starting(f"waits for room on the disk to start: {reason}", patience_s=_PATIENCE_S)


def _is_for_room(error: BaseException | None) -> bool:
    """Return whether an error, or its cause, is a full disk."""
    while error is not None:
        if isinstance(error, DatabaseFullError | NoRoomError):
            return True
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return True
        error = error.__cause__
    return False


# ---- Every secret within this process's reach, to keep them out of the logs
# From systemd's folder of credentials, the files of the settings, and the variables for secrets. Reads and
# remembers nothing; its user finds out whether one works.


_VARIABLE = re.compile(
    r"EVERLEAN_\w*(TOKEN|KEY|SECRET|URL)$|GITHUB_ACCESS_TOKEN$|HF_TOKEN$|(AWS|FSSPEC|AZURE|GOOGLE)_\w*(TOKEN|KEY|SECRET|PASSWORD)$"
)
_MOST_BYTES = 4096
_SHORTEST = 6
"""Shorter values would star out half of every line, and are no real secrets."""


def held_secrets(settings: Settings) -> tuple[str, ...]:
    """Return them as they are now."""
    result = {value.strip() for value in (*_of_files(settings), *_of_variables(settings))}
    return tuple(sorted(value for value in result if len(value) >= _SHORTEST))


def _of_files(settings: Settings) -> Iterator[str]:
    places = [
        Path(name)
        for name in (
            settings.github.token_file,
            settings.github.webhook_secret_file,
            settings.serve.token_file,
        )
        if name
    ]
    if folder := os.environ.get(FOLDER):
        with contextlib.suppress(OSError):  # then this process cannot read a secret in it
            places += sorted(Path(folder).iterdir())
    for place in places:
        try:
            with place.open("rb") as file:
                yield file.read(_MOST_BYTES).decode("utf-8", errors="ignore")
        except OSError:
            continue


def _of_variables(settings: Settings) -> Iterator[str]:
    prove, serve = settings.prove, settings.serve
    places = (prove.external.key, *(one.key for one in prove.programs), *(one.key for one in serve.models))
    variables = {place.variable for place in places if place is not None}
    yield from (value for name, value in os.environ.items() if _VARIABLE.fullmatch(name) or name in variables)


_OF_MODELS = ("model:", *(f"job:{name}-" for name, kind in KINDS.items() if kind.model))
"""The beginnings of the streams with events that may decide on a checkpoint."""
_WITH_PATCH = frozenset({"proof_checked", "proof_verified", "proof_doubted"})


def engine_of(settings: Settings, local: LocalEngine, git: Git) -> Engine:
    """Return the engine of `[engine]`."""
    if settings.engine.kind == "local" and not settings.engine.launch:
        return local
    # Only a daemon with a cluster pays for loading its client.
    from daemon.jobs.cluster import cluster_engine

    return cluster_engine(settings.engine, local, paths=settings.paths, git=git)


class Service:
    """A running daemon. `start` it, wait for `main_loop`, `stop` it; all on one event loop."""

    def __init__(self, settings: Settings, *, notifier: Notifier | None = None) -> None:
        self.context = Context(settings)
        self.notifier = notifier or Notifier()
        self._jumps = ClockWatch()
        self._forge = Forge(renewed=self._let_in_again)
        self.room_to_start = DiskSpaceWait(self.notifier, self.context)
        """The wait of the start for room on a full disk."""

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.context.settings

    @property
    def stop_reason(self) -> str:
        """The reason why the daemon stops; "" while it does not."""
        return self.context.stop_reason

    # --- start --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start every part, then report READY.

        Raises:
            LogError, StoreFailedError: the store cannot be used.
            SocketInUseError: the control socket cannot be made.
        """
        paths = self.settings.paths
        self._store = await self.room_to_start.outlasted(
            lambda: StoreService.open(paths, patient=True), paths.state, LogError
        )
        self._own = ServiceRecorder(self._store, self.context)
        self._upkeep = Maintenance(self._store, self.context)
        # Until the main loop turns, this task looks for room for a waiting first event.
        watching = asyncio.create_task(self.room_to_start.watch(self._store), name="room-to-start")
        try:
            try:
                await self._begin(await self._make_parts(self.settings), self.settings)
            finally:
                # It looks into the store, which must not be closed under it.
                watching.cancel()
                (ended,) = await asyncio.gather(watching, return_exceptions=True)
                if isinstance(ended, Exception):
                    log.error("room_not_watched", reason=str(ended))
        except BaseException:
            await self._store.close()
            raise

    async def _listening(self, settings: Settings, parts: Parts) -> ControlServer:
        paths, group = settings.paths, settings.daemon.control_group
        return await self.room_to_start.outlasted(
            lambda: ControlServer.start(paths.socket, parts, control_group=group),
            paths.runtime,
            SocketInUseError,
            OSError,
        )

    async def _make_parts(self, settings: Settings) -> Parts:
        """Make every part after those it uses. None works before `_begin`."""
        paths = settings.paths
        self._git = Git(
            timeout_s=settings.poll.timeout_s,
            token=self._forge.token_for,
            safe=lambda: self.settings.poll.safe_directories,
        )
        self._poller = Poller(store=self._store, git=self._git, github=None, paths=paths)
        self._polls = PollScheduler(self._poller, self.context)
        self._past = Past(store=self._store, git=self._git, mirror=self._poller.mirror, context=self.context)
        self._connect(settings)
        cgroups = await asyncio.to_thread(cgroups_here)
        local = LocalEngine(
            paths,
            self._git,
            cgroups=cgroups if isinstance(cgroups, Cgroups) else None,
        )
        self._engine = engine_of(settings, local, self._git)
        self._runner = JobRunner(
            store=self._store,
            engine=self._engine,
            paths=paths,
            limits=settings.jobs,
            finished=self.context.requests.plan_soon,
        )
        self._work = Scheduler(
            store=self._store,
            runner=self._runner,
            upkeep=self._upkeep,
            engine=self._engine,
            context=self.context,
            leans=await asyncio.to_thread(leans_of, settings),
        )
        self._shipping = Shipping(self.context, lambda: held_secrets(self.settings), self._store.give_up)
        self._living = RuntimeStatus(
            context=self.context,
            store=self._store,
            runner=self._runner,
            polls=self._polls,
            work=self._work,
            upkeep=self._upkeep,
            forge=self._forge,
            jumps=self._jumps,
            shipping=self._shipping,
            no_groups=cgroups if isinstance(cgroups, str) else "",
        )
        self._notifications = Notifications(self._store, self.context, self._living.problems)
        metrics = Metrics(self._store, self._living, self._notifications)
        page = ReportPage(paths, self._living.problems)
        self._metrics_listener = MetricsListener(
            metrics.text, self.context, report=page.now, ask=self._store.ask
        )
        return Parts(
            desk=Operator(self._store, self._runner, self._work, self.context),
            claims=Claims(self._store, self._runner, self._work, self.context),
            store=self._store,
            living=self._living,
            metrics=metrics,
            page=page,
            polls=self._polls,
            upkeep=self._upkeep,
            context=self.context,
        )

    async def _begin(self, parts: Parts, settings: Settings) -> None:
        """Set the parts to work, in the one right order: an earlier daemon's remains are settled before this
        one is in the log, that before anyone gets an answer, and all before READY."""
        if self._store.rebuilt:
            log.warning("view_rebuilt", reason=self._store.rebuilt)
        interrupted = await recover(store=self._store, engine=self._engine, paths=settings.paths)
        await self._own.started(settings, self._work.leans)
        self._store.subscribe(self._on_append)
        EventLines(self._store, self.context)
        await self._say_what_is_watched()
        await self._upkeep.write_patches(None)
        self._polls.remember(await self._store.ask(queries.repositories))
        self._control = await self._listening(settings, parts)
        self._watcher = ConfigWatcher(settings.path, changed=self.reload_soon)
        self._watcher.start()
        self._webhooks = Webhooks(hint=self._polls.hint_named, problems=self.context.problems)
        await self._webhooks.take_up(settings)
        self._periodic = Periodic(
            self.context,
            table(
                polls=self._polls,
                poll=self._poll_tick,
                past=self._past,
                ask_past=self._past_tick,
                plan=self._plan_tick,
                watcher=self._watcher,
                notifications=self._notifications,
                metrics=self._metrics_listener,
                store=self._store,
                shipping=self._shipping,
            ),
        )
        channels = [channel_row(name) for name in CHANNELS]
        await self._notifications.start(lambda: self._periodic.run_soon(*channels))
        self._periodic.start()
        self._loop = MainLoop(
            context=self.context,
            notifier=self.notifier,
            heart=Heartbeat(self.notifier, self._store, self._control),
            store=self._store,
            jumps=self._jumps,
            work=self._work,
            desk=parts.desk,
            upkeep=self._upkeep,
            living=self._living,
            reload=self._reload,
        )
        self.context.spawn(self._await_failure(), name="store-watch")
        self.context.requests.wake.set()  # work due while no daemon ran begins in the first turn
        self.notifier.ready(self._living.sentence())
        log.info(
            "daemon_ready",
            sentence=f"ready, process {os.getpid()}, everything in {settings.paths.state}",
            pid=os.getpid(),
            interrupted_jobs=interrupted,
            state=str(settings.paths.state),
        )

    async def _say_what_is_watched(self) -> None:
        """Begin the log with the daemon's task."""
        lean = self._work.leans.summary
        repositories = len(self.settings.repos)
        sorries = (await self._store.ask(count_all)).sorries.get("open", 0)
        log.info(
            "watching",
            sentence=(
                f"watching {repositories} {'repository' if repositories == 1 else 'repositories'},"
                f" {sorries:,} open {'sorry' if sorries == 1 else 'sorries'}, Lean: {lean_text(lean.kind, lean.detail)}"
            ),
            repositories=repositories,
            open_sorries=sorries,
            lean=lean.kind,
            lean_detail=lean.detail,
        )

    # --- the main loop ------------------------------------------------------------------------------------

    async def main_loop(self) -> None:
        """Turn until a signal ends the daemon or the store fails."""
        await self._loop.run()

    # --- reload -------------------------------------------------------------------------------------------

    def reload_soon(self) -> None:
        """Read config.toml again in the next turn of the loop."""
        self.context.requests.reload_soon()

    async def _reload(self) -> None:
        self.notifier.reloading()
        try:
            outcome = await asyncio.to_thread(reload, self.settings, self.settings.path)
            if isinstance(outcome, ConfigError):
                if await self._own.refused(outcome):
                    log.error("config_rejected", path=str(outcome.path), errors=list(outcome.errors))
            else:
                await self._apply(outcome)
        except NoRoomError:
            self.context.requests.reload = True
        finally:
            self.notifier.ready(self._living.sentence())

    async def _apply(self, new: Settings) -> None:
        changed = await self._own.took(new, before=self.settings)
        self.context.settings = new
        self.configure_logs()
        self.context.requests.look = self.context.requests.doubts = self.context.requests.models = True
        self._git.timeout_s = new.poll.timeout_s
        self._runner.limits = new.jobs
        self._connect(new)
        await self._admit(new.daemon.control_group)
        await self._webhooks.take_up(new)
        self._notifications.reload()
        self._periodic.run_soon()  # each with the new settings
        self.context.requests.plan_soon()
        log.info(
            "config_reloaded",
            sentence=f"{new.path} was read again: " + ("it is in force" if changed else "nothing changed"),
            path=str(new.path),
            changed=changed,
            repositories=len(new.repos),
        )

    def _connect(self, settings: Settings) -> bool:
        """Apply the current token; return whether that makes another client."""
        held, unused = self._forge.github, self._forge.connect(settings)
        self._poller.github = self._forge.github
        if unused is not None:
            self.context.spawn(self._close_later(unused), name="close-github")
        return self._forge.github is not held

    def _let_in_again(self) -> None:
        self._polls.let_in_again()

    async def _close_later(self, client: GitHub) -> None:
        await asyncio.gather(*self.context.tasks("poll:"), return_exceptions=True)
        await client.close()

    async def _admit(self, control_group: str) -> None:
        self.context.problems.clear("control")
        try:
            await self._control.admit(control_group)
        except SocketInUseError as error:
            self.context.problems.set("control", str(error))
            log.warning("control_group_unusable", reason=str(error))

    def configure_logs(self) -> None:
        """Log by the settings, and without secrets."""
        daemon, held = self.settings.daemon, held_secrets(self.settings)
        configure(
            level=daemon.log_level,
            log_format=daemon.log_format,
            secrets=lambda: (*held, *self._forge.secrets()),
        )

    # --- state --------------------------------------------------------------------------------------------

    @property
    def failed(self) -> bool:
        """Return whether to report the end as a failure."""
        return self._store.failure is not None

    # --- stop ---------------------------------------------------------------------------------------------

    def stop_soon(self, reason: str) -> None:
        """End in the next turn of the loop."""
        self.context.stop_reason = self.context.stop_reason or reason
        self.context.requests.wake.set()

    async def stop(self) -> None:
        """Stop the parts in an order that lets nothing new begin."""
        deadline = time.monotonic() + self.settings.daemon.shutdown_timeout_s
        self.notifier.stopping(f"stopping: {self.stop_reason}")
        self._periodic.stop()
        self._watcher.stop()
        self._store.hurry()
        await self.context.end_tasks()
        await self._metrics_listener.stop()
        await self._runner.stop(deadline_s=max(0.5, deadline - time.monotonic()))
        if self._store.failure is None:
            with contextlib.suppress(StoreFailedError):
                await self._own.stopped(self.stop_reason)
        await self._shipping.stop()
        await self._webhooks.stop()
        await self._control.stop()
        await self._engine.aclose()
        if self._poller.github is not None:
            await self._poller.github.close()
        await self._store.close()
        end = log.error if self.failed else log.info
        end("daemon_stopped", reason=self.stop_reason, failure=str(self._store.failure or ""))

    # --- small things -------------------------------------------------------------------------------------

    def _on_append(self, events: Sequence[NewEvent]) -> None:
        bodies = [event.body for event in events if isinstance(event.body, ProjectBuilt)]
        # A failed build may have fetched packages, and a killed one leaves its beginnings.
        if bodies or any(event.body.type == "job_failed" for event in events):
            self._work.sweep({(body.repository, body.sha) for body in bodies})
        if any(event.body.type == "proof_verified" for event in events):
            self.context.requests.doubts = True
        if any(event.stream.startswith(_OF_MODELS) for event in events):
            self.context.requests.models = True
        self.context.requests.patches.update(
            str(getattr(event.body, "proof", "")) for event in events if event.body.type in _WITH_PATCH
        )
        if self._work.has_news(events):
            self.context.requests.plan_soon()

    async def _poll_tick(self) -> None:
        if await self._work.polls_wait() is None:
            await self._polls.tick()

    async def _past_tick(self) -> None:
        if await self._work.polls_wait() is None:
            await self._past.look()

    async def _plan_tick(self) -> None:
        # A toolchain, or a requirement of training, may have been installed since; a refused token, renewed;
        # a file of advisories, corrected.
        self.context.requests.look = self.context.requests.doubts = self.context.requests.models = True
        if self._forge.problem and self._connect(self.settings):
            self._let_in_again()
        self.context.requests.plan_soon()

    async def _await_failure(self) -> None:
        await self._store.failed.wait()
        self.context.requests.wake.set()
