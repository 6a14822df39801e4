"""Be the daemon: lock, signals, start, main loop, stop, exit status. `daemon.process.service` does the
work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import structlog

from daemon.health.doctor import git_finding
from daemon.http.control import SocketInUseError
from daemon.jobs import limits
from daemon.place.lock import DaemonLock, FolderError, close_folder, keep_private, make_folder
from daemon.place.logs import configure
from daemon.process.service import Service, held_secrets
from daemon.settings import Settings, load
from daemon.state.standby import FencedError, check_at_start, is_fenced
from daemon.state.store_service import StoreFailedError
from pipeline.redact import redact
from store.errors import LogError

# ---- Keep this process's memory, which holds tokens and keys, out of core dumps


_FILTER = Path("/proc/self/coredump_filter")


def forbid_core_dumps() -> None:
    """Disable core files of this process and its children, and empty a crash handler's copy.

    The limit alone is not enough: the kernel ignores it if core_pattern names a program (core(5)), as for
    systemd-coredump and apport. The filter leaves such a dump without memory. Both are inherited.

    Raises:
        OSError: the kernel's filter cannot be set.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if _FILTER.exists():  # a kernel built without core dumps has none
        _FILTER.write_text("0", encoding="ascii")


_THREADS_S = 5.0
_ASKED_S = 20.0
FENCED = 75
"""The exit status of a replaced daemon, the same as for a second one: it is not started again."""

log = structlog.get_logger("daemon.process.run")


def run(config_path: Path) -> int:
    """Be the daemon until a signal ends it; return the exit status.

    0; 1 if the store failed or git is missing; 75 if another machine took the log over.

    Raises:
        ConfigError: config.toml is not valid (exit status 78 for the caller).
        AlreadyRunningError: another daemon holds the state folder (exit status 75).
        FolderError: a folder cannot be made or written.
    """
    work, names = ThreadPoolExecutor(thread_name_prefix="daemon"), ThreadPoolExecutor(8, "names")
    with asyncio.Runner(loop_factory=partial(Loop, work, names)) as runner:
        return runner.run(serve(config_path, work, names))


class Loop(asyncio.SelectorEventLoop):
    """An event loop that looks up host names in threads of their own.

    A silent name server blocks a thread for half a minute, whatever the deadline of the caller. In the shared
    pool a few lookups would block every thread, and with them all reads, writes and answers.
    """

    def __init__(self, work: ThreadPoolExecutor, names: ThreadPoolExecutor) -> None:
        super().__init__()
        self.set_default_executor(work)
        self._names = names

    async def getaddrinfo(
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002 - the base class's name
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        """Look a name up; see `socket.getaddrinfo`."""
        look_up = partial(socket.getaddrinfo, host, port, family, type, proto, flags)
        return await self.run_in_executor(self._names, look_up)


async def serve(config_path: Path, *pools: ThreadPoolExecutor) -> int:
    """`run`, inside an event loop on the main thread; `pools` has the threads of the loop."""
    forbid_core_dumps()
    keep_private()
    settings = load(config_path)
    configure(level=settings.daemon.log_level, log_format=settings.daemon.log_format, secrets=tuple)
    git = git_finding()
    if git.verdict == "missing":
        reason = f"git: {git.detail}; {git.remedy}"
        log.error("daemon_not_started", sentence=f"not started: {reason}", reason=reason)
        return 1
    limits.use_one_heap()
    service = Service(settings)
    with contextlib.ExitStack() as at_the_end:
        with _signals(service):
            lock = await _lock(service)
            if lock is None:
                return 0
            at_the_end.callback(lock.release)
            service.configure_logs()
            if (fenced := await _fenced(settings)) is not None:
                log.error("daemon_not_started", sentence=f"not started: {fenced}", reason=str(fenced))
                return FENCED
            try:
                await service.start()
            except (LogError, StoreFailedError, SocketInUseError, OSError) as error:
                log.error("daemon_not_started", reason=str(error))
                # The end of a wait for room on request is no failure.
                return 0 if service.stop_reason else 1
            try:
                await service.main_loop()
            finally:
                await service.stop()
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        status = 0 if not service.failed else FENCED if is_fenced(settings.paths) else 1
        _leave_no_threads(status)
        return status


async def _lock(service: Service) -> DaemonLock | None:
    """Make the folders and take the lock; wait if they find no room. None: a signal ended the wait."""
    paths = service.settings.paths
    while True:
        try:
            for folder in (paths.state, paths.cache, paths.runtime):
                make_folder(folder)
                if close_folder(folder):
                    log.info("folder_closed", folder=str(folder))
            return DaemonLock.acquire(paths.lock)
        except FolderError as error:
            if await service.room_to_start.regained(error.folder, error):
                continue
            if not service.stop_reason:
                raise
            return None


async def _fenced(settings: Settings) -> FencedError | None:
    """Return why this daemon must not begin: the log is followed here, or another machine took it over.

    A store that does not answer keeps no daemon from its work: it ends when shipping reaches the store again.
    """
    try:
        await asyncio.wait_for(asyncio.to_thread(check_at_start, settings), _ASKED_S)
    except FencedError as error:
        return error
    except (LogError, OSError, TimeoutError) as error:
        log.warning(
            "take_over_not_known", reason=redact(str(error) or "no answer", secrets=held_secrets(settings))
        )
    return None


def _leave_no_threads(status: int) -> None:
    """Wait a moment for busy threads; then end without them.

    Python waits for them without a limit, and a hung resolver or driver would keep a daemon with a recorded
    end from ending.
    """
    deadline = time.monotonic() + _THREADS_S
    mine = threading.current_thread()
    busy = [thread for thread in threading.enumerate() if thread is not mine and not thread.daemon]
    for thread in busy:
        thread.join(max(0.0, deadline - time.monotonic()))
    if names := [thread.name for thread in busy if thread.is_alive()]:
        log.error("threads_left", threads=names, waited_s=_THREADS_S)
        sys.stderr.flush()
        os._exit(status)


@contextlib.contextmanager
def _signals(service: Service) -> Iterator[None]:
    """SIGTERM and SIGINT end (the second one at once), SIGHUP reloads, SIGUSR1 prints every thread's
    stack."""
    loop = asyncio.get_running_loop()

    def end(number: signal.Signals) -> None:
        if service.stop_reason:
            # Impatience: children die with us (pipeline.jobs.protocol), and the next start records their
            # ends.
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
    # Not faulthandler.register: it walks the other threads' frames while they run, and can crash the very
    # process. This runs between two instructions of the main thread, so a loop stuck in Python is shown.
    for thread in threading.enumerate():
        if thread.ident is not None and (frame := sys._current_frames().get(thread.ident)) is not None:
            print(f"Thread {thread.name} (most recent call last):", file=sys.stderr)  # noqa: T201
            traceback.print_stack(frame, file=sys.stderr)
    sys.stderr.flush()
