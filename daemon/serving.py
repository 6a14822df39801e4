"""The server for editors, kept running as [serve] says: a child of the daemon, `python -m pipeline.serve ORDER.json`.

Where it ends by itself, holds more memory than it may or loses its GPU, it is started again, after a while that
doubles, and `status` says why; where what it is told has changed (a reload, another token), it is ended, finishes what
is under way, and begins anew. A GPU is only for one that [serve] device asks for: the server locks it as a job does
(`pipeline.leased`), and has it until it ends. Its secrets go by a pipe, its environment, its limits and its control
group are a job's, and it dies with the daemon. One run of it is `daemon.serve_process`'.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import structlog

from daemon.cgroups import Cgroups
from daemon.gpus import Gpu, Gpus, NoGpuError, chosen
from daemon.handover import keys_at
from daemon.serve_order import Lease, key_places, order_of, whole_bytes, why_not_servable
from daemon.serve_process import End, Launch, ServeRun
from daemon.settings import Settings
from pipeline.external.errors import CredentialError
from pipeline.serve.auth import read_token

PROBLEM = "serve"
PREFIX = "serve: "
"""What its problem begins with: `status` shows the server's own state, with the remedy, instead."""
_SCRATCH = "daemon"
_LOOK_AGAIN_S = 15.0
_LONGEST_REST_S = 60.0
_GRACE_S = 12.0

State = Literal["off", "blocked", "starting", "running", "resting"]

log = structlog.get_logger("daemon.serving")


@dataclass(frozen=True, slots=True)
class Patience:
    """In seconds: the first rest after an end, what counts as running well, and how long a start may take."""

    first_rest: float = 1.0
    steady: float = 60.0
    start: float = 300.0


class _BlockedError(Exception):
    """The server cannot be started as things are."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


class Serving:
    """The server's life. `run` it in the background; `reload` has it look at the settings again.

    Args:
        problems: what is wrong, by a name of its own, for `status`.
        lent: the GPUs that jobs have (`JobRunner.lent`).
        cgroups: where the server gets a control group of its own; None: nowhere.
    """

    def __init__(
        self,
        *,
        settings: Callable[[], Settings],
        gpus: Gpus,
        problems: dict[str, str],
        lent: Callable[[], Mapping[str, str]] = dict,
        cgroups: Cgroups | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._settings = settings
        self._gpus = gpus
        self._problems = problems
        self._lent = lent
        self._cgroups = cgroups
        self._patience = patience or Patience()
        self._wake = asyncio.Event()
        self._now: ServeRun | None = None
        self._state: State = "off"
        self._since = datetime.now(UTC)
        self._failures = 0
        self._reason = ""
        self._remedy = ""
        self.restarts = 0
        """How often it was started again after it had ended by itself."""

    @property
    def is_up(self) -> bool:
        """Whether it listens."""
        return self._state == "running"

    @property
    def is_wanted(self) -> bool:
        return self._settings().serve.enabled

    def status(self) -> dict[str, Any]:
        """What `status` shows."""
        run = self._now
        return {
            "enabled": self.is_wanted,
            "state": self._state,
            "since": self._since.isoformat(),
            "address": "" if run is None else run.address,
            "pid": None if run is None else run.pid,
            "device": None if run is None else self._device(run.launch),
            "memory": None if run is None else run.memory,
            "restarts": self.restarts,
            "reason": self._reason,
            "remedy": self._remedy,
        }

    def reload(self) -> None:
        """Take new settings up."""
        self._wake.set()

    async def run(self) -> None:
        """Keep it running as the settings say, until cancelled; then end it."""
        try:
            while True:
                self._wake.clear()
                try:
                    rest_s = await self._turn()
                # A defect of ours: nobody else would keep the server running, or say that it is not.
                except Exception as error:
                    log.exception("serve_failed")
                    rest_s = self._rest(
                        f"the server cannot be kept running: {type(error).__name__}: {error}",
                        "see the daemon's log and report it; it is tried again by itself",
                    )
                if rest_s == 0:
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(rest_s):
                        await self._wake.wait()
        finally:
            self._is("off")

    async def _turn(self) -> float | None:
        """Run a server to its end; return how long to wait then, None for until somebody asks for another look."""
        if not self.is_wanted:
            self._failures = 0
            self._well()
            self._is("off")
            return None
        try:
            launch = await self._made_ready()
        except _BlockedError as error:
            self._ill(str(error), error.remedy)
            self._is("blocked")
            return _LOOK_AGAIN_S
        end = await self._run(launch)
        if end is None:
            self._failures = 0
            self._well()
            return 0
        times = f"{self._failures + 1} times in a row" if self._failures else "once"
        what_to_do = end.remedy or f"see {self._settings().paths.state / 'serve' / 'server.log'}"
        return self._rest(
            f"the server ended, {times}: {end.reason}", f"{what_to_do}; it is started again by itself"
        )

    async def _made_ready(self) -> Launch:
        """Return what a server is to be started with, with its GPU taken."""
        gpu = await self._taken_gpu()
        try:
            return await asyncio.to_thread(self._launch, gpu)
        except BaseException:
            if gpu is not None:
                self._gpus.beside.pop(gpu, None)
            raise

    def _launch(self, gpu: str | None) -> Launch:
        """Return what a server is to be started with now. Reads files."""
        settings = self._settings()
        lease = None if gpu is None else Lease(self._gpus.lock(gpu), gpu or None)
        order = order_of(settings, scratch=_SCRATCH, lease=lease)
        missing = why_not_servable(order)
        if missing:
            reason, _, remedy = missing.partition(": ")
            raise _BlockedError(reason, remedy)
        try:
            read_token(order)
        except CredentialError as error:
            reason, _, remedy = str(error).partition("; ")
            raise _BlockedError(reason, remedy) from error
        return Launch(
            order,
            keys_at(key_places(order)),
            settings.serve.memory_bytes,
            whole_bytes(settings, order),
            gpu,
        )

    async def _look(self) -> Sequence[Gpu]:
        return await self._gpus.look(self._lent())

    async def _taken_gpu(self) -> str | None:
        """Take a GPU and return its UUID; None where the server is to have none."""
        device = self._settings().serve.device
        if device == "cpu":
            return None
        try:
            await self._look()
            # From here to where it is taken nothing is waited for: a job may have been lent one while we looked.
            gpu = chosen(self._gpus.standing(self._lent()), device=device)
        except NoGpuError as error:
            remedy = f'{error.remedy}, it is looked for again; or write device = "cpu" under [serve]'
            raise _BlockedError(str(error), remedy) from error
        if gpu is None:
            return None
        self._gpus.beside[gpu.uuid] = "the server ([serve] device)"
        return gpu.uuid

    def _device(self, launch: Launch) -> str:
        """Say where it computes."""
        if launch.gpu is None:
            return "cpu"
        return next((gpu.called for gpu in self._gpus.now if gpu.uuid == launch.gpu), launch.gpu or "GPU")

    async def _run(self, launch: Launch) -> End | None:
        """Run a server; return why it ended, None where it was not wanted any more."""
        try:
            self._now = await ServeRun.start(
                launch,
                self._settings().paths.state / "serve",
                cgroups=self._cgroups,
                seen=lambda: self._gpus.now,
                look=self._look,
                listens=self._listens,
            )
            if self._failures:
                self.restarts += 1
            self._is("starting")
            log.info("serve_started", pid=self._now.pid)
            await self._now.begin()
            return await self._watch(self._now)
        except OSError as error:
            return End(f"it cannot be started: {error}")
        finally:
            run, self._now = self._now, None
            if run is not None:
                await run.stop(grace_s=min(_GRACE_S, self._settings().daemon.shutdown_timeout_s / 2))
            if launch.gpu is not None:
                self._gpus.beside.pop(launch.gpu, None)

    def _listens(self, address: str) -> None:
        self._is("running")
        log.info("serve_listens", address=address)
        self._wake.set()  # the watch waits for something else from here on

    async def _watch(self, run: ServeRun) -> End | None:
        begun = time.monotonic()
        ending = asyncio.create_task(run.end())
        try:
            while True:
                waking = asyncio.create_task(self._wake.wait())
                try:
                    await asyncio.wait(
                        {ending, waking},
                        timeout=self._until_news_s(begun),
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                finally:
                    waking.cancel()
                if ending.done():
                    return ending.result()
                if self._state == "starting" and time.monotonic() - begun >= self._patience.start:
                    return End(f"it did not listen within {self._patience.start:g} s")
                if self.is_up and self._failures and time.monotonic() - begun >= self._patience.steady:
                    self._failures = 0
                    self._well()
                if self._wake.is_set():
                    self._wake.clear()
                    if not await self._still_wanted(run.launch):
                        log.info("serve_ends", reason="what it is told has changed")
                        return None
        finally:
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)

    def _until_news_s(self, begun: float) -> float | None:
        """How long until the clock alone has something to say."""
        if self._state == "starting":
            wait_s = self._patience.start
        elif self._failures:
            wait_s = self._patience.steady
        else:
            return None
        return max(0.01, begun + wait_s - time.monotonic())

    async def _still_wanted(self, launch: Launch) -> bool:
        # "auto" leaves it where it is: whatever it moved for would cost those who ask an answer.
        device = self._settings().serve.device
        if not self.is_wanted or device == ("cpu" if launch.gpu is not None else "cuda"):
            return False
        try:
            return await asyncio.to_thread(self._launch, launch.gpu) == launch
        except _BlockedError:
            return False

    def _rest(self, reason: str, remedy: str) -> float:
        """Say why there is none now; return how long to wait before the next."""
        self._failures += 1
        rest_s = min(self._patience.first_rest * 2.0 ** min(self._failures - 1, 10), _LONGEST_REST_S)
        self._ill(reason, remedy)
        self._is("resting")
        log.warning("serve_ended", reason=reason, failures=self._failures, again_s=rest_s)
        return rest_s

    def _is(self, state: State) -> None:
        if state != self._state:
            self._state, self._since = state, datetime.now(UTC)

    def _ill(self, reason: str, remedy: str) -> None:
        if self._reason != reason:
            log.warning("serve_problem", reason=reason, remedy=remedy)
        self._reason, self._remedy = reason, remedy
        self._problems[PROBLEM] = f"{PREFIX}{reason}; {remedy}"

    def _well(self) -> None:
        self._reason = self._remedy = ""
        self._problems.pop(PROBLEM, None)
