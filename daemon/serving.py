"""The server for editors, kept running as [serve] says: a child of the daemon, `python -m pipeline.serve ORDER.json`.

Where it ends by itself it is started again, after a while that doubles, and `status` says why; where what it is told
has changed (a reload, another token), it is ended, finishes what is under way, and begins anew. A GPU is only for one
that [serve] device asks for: the server locks it as a job does (`pipeline.leased`), and has it until it ends. Its
secrets go by a pipe, its environment is a job's, and it dies with the daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import structlog

from daemon.gpus import Gpus
from daemon.handover import all_handed_over, keys_at
from daemon.process import Exit, JobProcess, LineTooLongError
from daemon.serve_order import Lease, key_places, order_of, why_not_servable
from daemon.settings import Settings
from pipeline.children import kill_marked
from pipeline.external.errors import CredentialError
from pipeline.serve.auth import read_token
from pipeline.serve.order import ServeOrder

PROBLEM = "serve"
PREFIX = "serve: "
"""What its problem begins with: `status` shows the server's own state, with the remedy, instead."""
_MODULE = "pipeline.serve"
_SCRATCH = "daemon"
_LOOK_AGAIN_S = 15.0
_LONGEST_REST_S = 60.0
_GRACE_S = 12.0
_LOG_BYTES = 2**20
_REASON_CHARS = 300

State = Literal["off", "blocked", "starting", "running", "resting"]

log = structlog.get_logger("daemon.serving")


@dataclass(frozen=True, slots=True)
class Patience:
    """In seconds: the first rest after an end, what counts as running well, how long a start may take, and how often
    the length of the server's log is looked at."""

    first_rest: float = 1.0
    steady: float = 60.0
    start: float = 300.0
    log: float = 30.0


class _BlockedError(Exception):
    """The server cannot be started as things are."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class _Launch:
    """What a server is started with. Equal ones need no other server."""

    order: ServeOrder
    keys: bytes
    memory_bytes: int
    gpu: str | None


class Serving:
    """The server's life. `run` it in the background; `reload` has it look at the settings again.

    Args:
        problems: what is wrong, by a name of its own, for `status`.
    """

    def __init__(
        self,
        *,
        settings: Callable[[], Settings],
        gpus: Gpus,
        problems: dict[str, str],
        patience: Patience | None = None,
    ) -> None:
        self._settings = settings
        self._gpus = gpus
        self._problems = problems
        self._patience = patience or Patience()
        self._wake = asyncio.Event()
        self._process: JobProcess | None = None
        self._state: State = "off"
        self._since = datetime.now(UTC)
        self._address = ""
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
        return {
            "enabled": self.is_wanted,
            "state": self._state,
            "since": self._since.isoformat(),
            "address": self._address,
            "pid": None if self._process is None else self._process.pid,
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
            await self._end()
            self._is("off")

    async def _turn(self) -> float | None:
        """Run a server to its end; return how long to wait then, None for until somebody asks for another look."""
        if not self.is_wanted:
            self._failures = 0
            self._well()
            self._is("off")
            return None
        try:
            launch = await asyncio.to_thread(self._launch, self._free_gpu())
        except _BlockedError as error:
            self._ill(str(error), error.remedy)
            self._is("blocked")
            return _LOOK_AGAIN_S
        ended = await self._run(launch)
        if ended is None:
            self._failures = 0
            self._well()
            return 0
        times = f"{self._failures + 1} times in a row" if self._failures else "once"
        return self._rest(
            f"the server ended by itself, {times}: {ended}",
            f"see {self._settings().paths.state / 'serve' / 'server.log'}; it is started again by itself",
        )

    def _launch(self, gpu: str | None) -> _Launch:
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
        return _Launch(order, keys_at(key_places(order)), settings.serve.memory_bytes, gpu)

    def _free_gpu(self) -> str | None:
        """Return the UUID of a GPU to take; None where the server is to have none."""
        if self._settings().serve.device != "cuda":
            return None
        free = next((gpu for gpu in self._gpus.now if gpu.state == "free"), None)
        if free is None:
            there = (
                ", ".join(f"{gpu.called} is {gpu.state}" for gpu in self._gpus.now) or "none is to be seen"
            )
            raise _BlockedError(
                f"no GPU is free ({there})",
                'nothing: it is looked for again; or write device = "cpu" under [serve]',
            )
        return free.uuid

    async def _run(self, launch: _Launch) -> str | None:
        """Run a server; return why it ended by itself, None where it was ended."""
        folder = self._settings().paths.state / "serve"
        if launch.gpu is not None:
            self._gpus.beside[launch.gpu] = "the server ([serve] device)"
        try:
            stderr = await asyncio.to_thread(_prepared, folder, launch.order)
            self._process = await JobProcess.spawn(
                [_MODULE, str(folder / "order.json")],
                directory=folder,
                stderr=stderr,
                memory_bytes=launch.memory_bytes,
                secrets=all_handed_over(launch.keys),
                visible="" if launch.gpu is None else launch.gpu or None,
            )
            if self._failures:
                self.restarts += 1
            self._is("starting")
            log.info("serve_started", pid=self._process.pid)
            return await self._watch(self._process, launch, stderr)
        except OSError as error:
            return f"it cannot be started: {error}"
        finally:
            await self._end()
            # The jobs that it began for clients are in sessions of their own, and it may have been killed.
            await asyncio.to_thread(kill_marked, launch.order.lean.scratch, below=True)
            if launch.gpu is not None:
                self._gpus.beside.pop(launch.gpu, None)

    async def _watch(self, process: JobProcess, launch: _Launch, stderr: Path) -> str | None:
        begun = time.monotonic()
        ended = asyncio.create_task(process.ended())
        hearing = asyncio.create_task(self._hear(process))
        cutting = asyncio.create_task(self._keep_short(stderr))
        try:
            while True:
                waking = asyncio.create_task(self._wake.wait())
                try:
                    await asyncio.wait(
                        {ended, waking},
                        timeout=self._until_news_s(begun),
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                finally:
                    waking.cancel()
                if ended.done():
                    return _why(ended.result(), stderr)
                if self._state == "starting" and time.monotonic() - begun >= self._patience.start:
                    return f"it did not listen within {self._patience.start:g} s"
                if self.is_up and self._failures and time.monotonic() - begun >= self._patience.steady:
                    self._failures = 0
                    self._well()
                if self._wake.is_set():
                    self._wake.clear()
                    if not await self._still_wanted(launch):
                        log.info("serve_ends", reason="what it is told has changed")
                        return None
        finally:
            for task in (ended, hearing, cutting):
                task.cancel()
            await asyncio.gather(ended, hearing, cutting, return_exceptions=True)

    def _until_news_s(self, begun: float) -> float | None:
        """How long until the clock alone has something to say."""
        if self._state == "starting":
            wait_s = self._patience.start
        elif self._failures:
            wait_s = self._patience.steady
        else:
            return None
        return max(0.01, begun + wait_s - time.monotonic())

    async def _still_wanted(self, launch: _Launch) -> bool:
        if not self.is_wanted or (self._settings().serve.device == "cuda") != (launch.gpu is not None):
            return False
        try:
            return await asyncio.to_thread(self._launch, launch.gpu) == launch
        except _BlockedError:
            return False

    async def _hear(self, process: JobProcess) -> None:
        """Read what it prints to the end: the first line says where it listens."""
        try:
            async for line in process.lines():
                place = _listening(line)
                if place is not None and self._state == "starting":
                    self._address = place
                    self._is("running")
                    log.info("serve_listens", address=place)
                    self._wake.set()  # the watch waits for something else from here on
        except LineTooLongError as error:
            log.warning("serve_output", reason=str(error))

    async def _keep_short(self, log_file: Path) -> None:
        while True:
            try:
                await asyncio.to_thread(_cut, log_file)
            except OSError as error:
                log.warning("serve_log_not_cut", reason=str(error))
            await asyncio.sleep(self._patience.log)

    def _rest(self, reason: str, remedy: str) -> float:
        """Say why there is none now; return how long to wait before the next."""
        self._failures += 1
        rest_s = min(self._patience.first_rest * 2.0 ** min(self._failures - 1, 10), _LONGEST_REST_S)
        self._ill(reason, remedy)
        self._is("resting")
        log.warning("serve_ended", reason=reason, failures=self._failures, again_s=rest_s)
        return rest_s

    async def _end(self) -> None:
        process, self._process = self._process, None
        self._address = ""
        if process is not None:
            grace_s = min(_GRACE_S, self._settings().daemon.shutdown_timeout_s / 2)
            await process.stop(grace_s=grace_s, first_alone=True)
            process.close()

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


def _prepared(folder: Path, order: ServeOrder) -> Path:
    """Make the folder ready for a server, and see to it that none of a daemon that died is left; return its log."""
    folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    kill_marked(folder)
    kill_marked(order.lean.scratch, below=True)
    order.write(folder / "order.json")
    return folder / "server.log"


def _cut(log_file: Path) -> None:
    """Begin the log anew where it is long; what it held is in `server.log.1` until the next time."""
    if log_file.exists() and log_file.stat().st_size > _LOG_BYTES:
        shutil.copyfile(log_file, log_file.with_name(f"{log_file.name}.1"))
        # The server appends to this very file, so it cannot be renamed; a line between copy and cut is lost.
        os.truncate(log_file, 0)


def _listening(line: bytes) -> str | None:
    """Return where a line of the server says that it listens, as host:port; None where it says something else."""
    try:
        place = json.loads(line)["listening"]
        host, port = str(place["host"]), int(place["port"])
    except (ValueError, KeyError, TypeError):
        return None
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _why(ended: Exit, stderr: Path) -> str:
    how = f"exit status {ended.status}" if ended.signal is None else f"signal {ended.signal}"
    with stderr.open("rb") as file:
        file.seek(max(0, stderr.stat().st_size - 4096))
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return f"{lines[-1][:_REASON_CHARS]} ({how})" if lines else how
