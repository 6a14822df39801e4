"""The engines of clusters: an attempt's command behind a launcher, which chooses a machine.

A launcher is a prefix of a command (`[engine] launch`: `srun`, `ssh`, `docker run`, `systemd-run`), or a task
of Ray (`daemon.jobs.ray_task`). The machines have the daemon's folders at the same paths, so worktree, build,
inputs, specification and payloads are in their usual places, and so is this program. The launcher starts
`daemon.jobs.carrier`, which keeps the attempt's limits and reads the daemon's wishes from a file in the
attempt's folder: whatever a launcher does with signals, that file stops an attempt, and without news from the
daemon for the length of the lease the attempt ends by itself. Lines come through the launcher's standard
output, with the carrier's own first and last. Once that is closed, the attempt can record nothing.

Jobs of seconds with the daemon's mirrors (`JobKind.stays`) run on the daemon's machine, and so does the
freezing of a job's inputs.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import structlog
from pydantic import ValidationError

from daemon.jobs.carrier import BEGIN, END, OVER, Carried, CarriedEnd, Control
from daemon.jobs.engine import Attempt, AttemptLostError, End, Engine, Order
from daemon.jobs.local import LocalEngine, end_attempt, prepare, start_errors
from daemon.jobs.runner import last_words
from daemon.place.answers import Gpu
from daemon.place.paths import Paths
from daemon.polling.git import Git
from daemon.settings.schema import Engine as EngineSettings
from pipeline.endpoint.credentials import job_key
from pipeline.jobs.child import MARK, Exit, JobProcess, LineTooLongError, job_environment, kill_marked
from store.backoff import Backoff

LAUNCHER_LOG = "launcher.log"
"""Standard error of the launcher, in the attempt's folder."""
_OF_LAUNCHERS = ("SLURM_", "SBATCH_", "SSH_AUTH_SOCK", "KRB5", "MUNGE_", "DOCKER_", "XDG_RUNTIME_DIR", "RAY_")
"""Prefixes of variables for launchers; jobs do not get them."""
_OF_THE_MACHINE = "CUDA_VISIBLE_DEVICES"
"""Not for launchers, as some pass their environment on: it names GPUs of the daemon's machine."""
_ENDS_S = 20.0
"""Seconds for a launcher to end after its attempt, and again after SIGTERM."""
_REFUSED_S = 60.0
"""Seconds without further jobs for a launcher after a failed start."""
_ANEW = Backoff(1.0, 60.0)

log = structlog.get_logger("daemon.jobs.cluster")


# ---- Launchers


class Launcher:
    """Chooses a machine for a command and starts it there: the words of `[engine] launch`.

    A job in the queue of the cluster holds a slot of the daemon.
    """

    def __init__(self, words: Sequence[str], *, gpus: int) -> None:
        self.name = Path(words[0]).name
        """Its name for people."""
        self.variables: Mapping[str, str] = {}
        """Its own environment's additions."""
        self._words = words
        self._gpus = gpus

    @property
    def problem(self) -> str:
        """Why it can start nothing now; "" if it can."""
        return ""

    @property
    def gpus(self) -> int:
        """The most GPUs of the daemon's jobs at the same time."""
        return self._gpus

    @property
    def room(self) -> int | None:
        return None

    def note(self, *, attempts: int, gpus: int) -> None:
        """Take note of the daemon's running attempts and their GPUs."""

    def prefix(self, order: Order) -> Sequence[str]:
        """Return the words before the command, with `{gpus}`, `{memory}` (MiB), `{job}` and `{kind}` filled in."""
        values = {
            "gpus": str(len(order.spec.gpus)),
            "memory": str(order.whole_bytes // 2**20),
            "job": order.spec.job,
            "kind": order.spec.kind,
        }
        tied = (sys.executable, "-P", "-m", "daemon.jobs.tied")
        return [*tied, *(word.format_map(values) for word in self._words)]

    async def close(self) -> None:
        """Stop looking at the cluster."""


class RayTasks(Launcher):
    """A Ray cluster: each attempt is a task with its needs.

    A process of its own (`daemon.jobs.ray_task`) reads the cluster's resources and their use by others every
    few seconds: Ray ends the process using it when it loses the cluster's head. `begin` it on the event loop.
    """

    def __init__(self, settings: EngineSettings, folder: Path) -> None:
        super().__init__(["ray"], gpus=0)
        self.variables = {
            "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0",
            **({"RAY_AUTH_TOKEN_PATH": settings.token_file} if settings.token_file else {}),
        }
        self._address = settings.address
        self._folder = folder
        self._problem = f"the Ray cluster at {settings.address} was not yet looked at"
        self._cpus = 0
        self._used_by_others = (0, 0)
        self._ours = (0, 0)
        self._looking: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin to look at the cluster."""
        self._looking = asyncio.create_task(self._look())

    @property
    def problem(self) -> str:
        if not self._problem and self._cpus <= self._used_by_others[0]:
            return f"the Ray cluster at {self._address}: others use its {self._cpus} CPUs"
        return self._problem

    @property
    def gpus(self) -> int:
        return max(0, self._gpus - self._used_by_others[1])

    @property
    def room(self) -> int:
        return max(0, self._cpus - self._used_by_others[0])

    def note(self, *, attempts: int, gpus: int) -> None:
        self._ours = attempts, gpus

    def prefix(self, order: Order) -> Sequence[str]:
        needs = ("--gpus", str(len(order.spec.gpus)), "--memory", str(order.whole_bytes))
        return [*_ray_task(self._address), *needs, "--"]

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look(self) -> None:
        failures = 0
        while True:
            self._folder.mkdir(parents=True, exist_ok=True)
            log_file = self._folder / "ray.log"
            log_file.unlink(missing_ok=True)
            process = await JobProcess.start_command(
                [*_ray_task(self._address), "--look"],
                directory=self._folder,
                stderr=log_file,
                environment={**launcher_environment(self._folder), **self.variables},
            )
            try:
                async for raw in process.lines():
                    failures = 0
                    self._saw(json.loads(raw))
                await process.ended()
            finally:
                await asyncio.shield(process.stop(grace_s=1.0))
                process.close()
            failures += 1
            self._problem = f"the Ray cluster at {self._address}: {last_words(log_file) or 'it ended'}"
            log.warning("ray_lost", reason=self._problem)
            await asyncio.sleep(_ANEW.wait_s(failures))

    def _saw(self, resources: Mapping[str, float]) -> None:
        self._cpus, self._gpus = int(resources["cpus"]), int(resources["gpus"])
        # Ours are in use too; one just begun or ended may not yet be counted.
        used = self._cpus - int(resources["free_cpus"]), self._gpus - int(resources["free_gpus"])
        self._used_by_others = max(0, used[0] - self._ours[0]), max(0, used[1] - self._ours[1])
        if self._problem:
            log.info("ray_cluster", cpus=self._cpus, gpus=self._gpus)
        self._problem = "" if self._cpus else f"the Ray cluster at {self._address} has no CPU to give"


def _ray_task(address: str) -> tuple[str, ...]:
    return sys.executable, "-P", "-m", "daemon.jobs.ray_task", address


def launcher_environment(directory: Path) -> dict[str, str]:
    """Return the environment of a launcher: a job's, with the launchers' variables.

    It has no mark: the job's own end would end it too, before it has passed on the last lines.
    """
    own = {name: value for name, value in os.environ.items() if name.startswith(_OF_LAUNCHERS)}
    left_out = (MARK, _OF_THE_MACHINE)
    return {
        **{name: value for name, value in job_environment(directory).items() if name not in left_out},
        **own,
    }


# ---- An attempt


class LaunchedAttempt(Attempt):
    """An attempt behind a launcher, whose process is a child of the daemon.

    Args:
        refused: called when the launcher ended before anything began.
    """

    def __init__(
        self,
        launcher: str,
        process: JobProcess,
        order: Order,
        *,
        lease_s: float,
        over: Callable[[str], None],
        refused: Callable[[str], None],
    ) -> None:
        self.pid = process.pid
        self.places = AsyncExitStack()
        """Its places, to remove at the end."""
        self._launcher, self._process = launcher, process
        self._directory = order.spec.directory
        self._lease_s = lease_s
        self._over, self._refused = over, refused
        self._control = Control()
        self._begun = self._given_up = False
        self._before = ""
        self._end: CarriedEnd | None = None
        # The pipe's and the control file's, one at a time.
        self._reading, self._writing = asyncio.Lock(), asyncio.Lock()
        self._beating = asyncio.create_task(self._beat())

    async def run(self, hear: Callable[[bytes], Awaitable[None]]) -> Exit:
        """See `Attempt.run`."""

        async def read() -> None:
            async with self._reading:
                async for raw in self._process.lines():
                    await self._take(raw, hear)
                    if self._end is not None:
                        break
            await self._launcher_ends(within_s=_ENDS_S)

        _, launcher = await asyncio.gather(read(), self._process.ended())
        end = self._end
        if end is None:
            raise await asyncio.to_thread(self._lost, launcher)
        if end.too_long:
            raise LineTooLongError(end.too_long)
        if end.alone:
            raise AttemptLostError(f"the job ended because {end.alone}", suspect=False)
        return end.exit

    async def _take(self, raw: bytes, hear: Callable[[bytes], Awaitable[None]]) -> None:
        """Pass a job's line on; keep the carrier's report, and the launcher's last line before it."""
        if not self._begun:
            # A shell's greeting need not end its line.
            self._begun = raw.rstrip().endswith(BEGIN)
            self._before = raw[:300].decode(errors="replace").strip() or self._before
        elif raw.startswith(OVER):
            self._over(raw.removeprefix(OVER).decode(errors="replace"))
        elif raw.startswith(END):
            try:
                self._end = CarriedEnd.model_validate_json(raw.removeprefix(END))
            except ValidationError:
                await hear(raw)
        else:
            await hear(raw)

    def _lost(self, launcher: Exit) -> AttemptLostError:
        """Return why the end is missing; if nothing had begun, the launcher is at fault and no machine."""
        how = f"signal {launcher.signal}" if launcher.signal else f"status {launcher.status}"
        words = last_words(self._directory / LAUNCHER_LOG)
        if not self._begun:
            words = words or self._before
        reason = f"{self._launcher} ended with {how} and the job did not: {words or 'it said nothing'}"
        if not self._begun and not self._given_up:
            self._refused(reason)
        return AttemptLostError(reason, suspect=self._begun)

    async def stop(self, *, grace_s: float, first_alone: bool = False) -> None:
        """See `Attempt.stop`. An attempt not begun has nothing to save: it may wait for a machine for
        hours."""
        self._given_up = True
        if self._begun:
            await self._want(Control(wish="stop", grace_s=grace_s, first_alone=first_alone))
            await self._launcher_ends(within_s=grace_s + self._lease_s + _ENDS_S)
        else:
            await self._want(Control(wish="kill"))
            await self._launcher_ends(within_s=0.0)

    async def close(self) -> End:
        self._given_up = True
        draining = asyncio.create_task(self._drain())
        try:
            await self._want(Control(wish="kill"))
            await self._launcher_ends(within_s=_ENDS_S if self._begun else 0.0)
            # It may have ended just now, with its last words in the pipe.
            await asyncio.wait({draining}, timeout=1.0)
        finally:
            for task in (draining, self._beating):
                task.cancel()
            await asyncio.gather(draining, self._beating, return_exceptions=True)
            self._process.close()
            await self.places.aclose()
        return End(None, None, 0) if self._end is None else End(self._end.exit, None, self._end.seen_bytes)

    async def _launcher_ends(self, *, within_s: float) -> None:
        """Wait for the launcher's end; then ask it to (srun gives its allocation back), and last kill it."""
        try:
            async with asyncio.timeout(within_s):
                await self._process.ended()
        except TimeoutError:
            await self._process.stop(grace_s=_ENDS_S)

    async def _drain(self) -> None:
        """Take the launcher's remaining lines: it might not end before."""

        async def forget(_raw: bytes) -> None:
            pass

        with suppress(LineTooLongError):
            async with self._reading:
                async for raw in self._process.lines():
                    await self._take(raw, forget)

    async def _want(self, control: Control) -> None:
        self._control = control
        await self._write()

    async def _write(self) -> None:
        async with self._writing:
            self._control = self._control.model_copy(update={"beat": self._control.beat + 1})
            try:
                await asyncio.to_thread(self._control.write, self._directory)
            except OSError as error:
                # The attempt ends by itself if this lasts for its lease.
                log.warning("control_not_written", path=str(self._directory), reason=str(error))

    async def _beat(self) -> None:
        """Send the carrier signs of life."""
        while True:
            await asyncio.sleep(self._lease_s / 4)
            await self._write()


# ---- The engine


class ClusterEngine(Engine):
    """Attempts behind a launcher; the local engine runs those that stay.

    Args:
        lease_s: the seconds without news of the daemon after which an attempt ends by itself.
    """

    def __init__(
        self, local: LocalEngine, launcher: Launcher, *, paths: Paths, git: Git, lease_s: float
    ) -> None:
        self._local, self._launcher = local, launcher
        self._paths, self._git, self._lease_s = paths, git, lease_s
        self._running: set[LaunchedAttempt] = set()
        self._refused_until = 0.0
        self._refusal = ""

    @property
    def problem(self) -> str:
        return self._launcher.problem or (self._refusal if time.monotonic() < self._refused_until else "")

    async def look(self, lent: Mapping[str, str]) -> tuple[Gpu, ...]:
        self._launcher.note(attempts=len(self._running), gpus=len(lent))

        def gpu(name: str) -> Gpu:
            return Gpu(name, int(name.rpartition("-")[2]), f"of {self._launcher.name}")

        # The cluster chooses the devices, so they are numbers. Those lent are among them even if the cluster
        # has fewer by now.
        names = (f"{self._launcher.name}-{number}" for number in count())
        free = islice((name for name in names if name not in lent), max(0, self._launcher.gpus - len(lent)))
        return (
            *(replace(gpu(name), state="lent", detail=job) for name, job in lent.items()),
            *map(gpu, free),
        )

    @property
    def room(self) -> int | None:
        return self._launcher.room

    async def start(self, order: Order, *, over: Callable[[str], None]) -> Attempt:
        if not order.away:
            return await self._local.start(order, over=over)
        with start_errors(order.spec.job, self._paths):
            async with AsyncExitStack() as places:
                spec = await prepare(order, places, git=self._git, paths=self._paths)
                directory = spec.directory

                def write() -> None:
                    spec.write()
                    Control().write(directory)

                await asyncio.to_thread(write)
                process = await JobProcess.start_command(
                    [*self._launcher.prefix(order), sys.executable, "-P", "-m", "daemon.jobs.carrier"],
                    directory=directory,
                    stderr=directory / LAUNCHER_LOG,
                    environment={**launcher_environment(directory), **self._launcher.variables},
                    given=self._carried(order).model_dump_json().encode(),
                )
                attempt = LaunchedAttempt(
                    self._launcher.name,
                    process,
                    order,
                    lease_s=self._lease_s,
                    over=over,
                    refused=self._refuse,
                )
                self._running.add(attempt)
                places.callback(self._running.discard, attempt)
                attempt.places = places.pop_all()
                return attempt

    def _refuse(self, reason: str) -> None:
        self._refused_until = time.monotonic() + _REFUSED_S
        self._refusal = f"{reason}; it is asked again after a minute"

    def _carried(self, order: Order) -> Carried:
        directory = order.spec.directory
        return Carried(
            module=order.module,
            directory=directory,
            memory_bytes=order.memory_bytes,
            whole_bytes=order.whole_bytes,
            lease_s=self._lease_s,
            environment=job_environment(directory),
            gpu=bool(order.spec.gpus),
            key=job_key(order.key),
        )

    async def reap(self, directory: Path) -> int:
        """See `Engine.reap`: the rest on another machine ends when it reads so, or by its lease."""

        def end() -> int:
            if Control.read(directory) is None:
                return end_attempt(directory)
            # The number in its lock may be a process of another machine.
            Control(wish="kill").write(directory)
            return kill_marked(directory)

        return await asyncio.to_thread(end)

    async def aclose(self) -> None:
        await self._launcher.close()
        await self._local.aclose()


def cluster_engine(settings: EngineSettings, local: LocalEngine, *, paths: Paths, git: Git) -> ClusterEngine:
    """Return the engine of an `[engine]` with a launcher. Call it on the event loop."""
    launcher: Launcher
    if settings.kind == "ray":
        launcher = RayTasks(settings, paths.runtime / "ray")
        launcher.begin()
    else:
        launcher = Launcher(settings.launch, gpus=settings.gpus)
    return ClusterEngine(local, launcher, paths=paths, git=git, lease_s=settings.lease_s)
