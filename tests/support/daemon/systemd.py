"""Plays systemd for one service: listens to what it notifies, kills it when its watchdog falls silent, starts it again.

with Manager(folder / "notify", start=start, watchdog_s=3.0) as systemd:
    systemd.start()
    systemd.until(lambda: systemd.ready, what="READY=1")

As systemd does for Type=notify, NotifyAccess=main, WatchdogSec and Restart=on-failure: datagrams count only from the
main process (the kernel says who sent them); the watchdog counts from READY=1 on; when it expires the process gets
SIGABRT, and SIGKILL if that does not end it; whatever ends otherwise than well is started again. Not covered: limits
on starts, timeouts of the start and the stop, all that is not about notifying.
"""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

Start = Callable[[Mapping[str, str]], "subprocess.Popen[bytes]"]

_CREDENTIALS = struct.Struct("3i")
_SLICE_S = 0.05
_ABORT_S = 1.0


@dataclass(frozen=True, slots=True)
class Said:
    """One datagram of the main process. `at_us` is when it came, on CLOCK_MONOTONIC."""

    pid: int
    fields: Mapping[str, str]
    at_us: int


class Manager:
    """The service manager of one service. Everything happens in `turn`, in the caller's thread.

    Args:
        notify: the path of the notify socket, which is made.
        start: starts the service with these variables in its environment.
        watchdog_s: WatchdogSec.
    """

    def __init__(self, notify: Path, *, start: Start, watchdog_s: float) -> None:
        self.said: list[Said] = []
        self.expired: list[int] = []
        """The processes whose watchdog fell silent."""
        self.ended: list[tuple[int, int]] = []
        """Process and status (negative: the signal) of each end, in order."""
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = False
        """Whether the process that runs now said READY=1, and is not stopping."""
        self._notify = notify
        self._start = start
        self._watchdog_s = watchdog_s
        self._alive_at = 0.0
        self._stopping = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def __enter__(self) -> Manager:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind(str(self._notify))
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._socket.close()

    def start(self) -> None:
        """Start the service."""
        self.ready = False
        environment = {
            "NOTIFY_SOCKET": str(self._notify),
            "WATCHDOG_USEC": str(int(self._watchdog_s * 1_000_000)),
        }
        self.process = self._start(environment)

    def stop(self) -> None:
        """Stop the service for good."""
        self._stopping = True
        self._main().send_signal(signal.SIGTERM)

    def words(self) -> list[str]:
        """What the process that runs now said, by the names of the fields that stand first, pings left out."""
        pid = self._main().pid
        first = [next(iter(said.fields)) for said in self.said if said.pid == pid]
        return [name for name in first if name != "WATCHDOG"]

    def until(self, condition: Callable[[], object], *, what: str, seconds: float = 60.0) -> None:
        """Manage the service until the condition holds; AssertionError if it does not in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"waited {seconds:g} s for {what}; heard {[dict(one.fields) for one in self.said[-8:]]}"
                )
            self.turn()

    def turn(self, *, slice_s: float = _SLICE_S) -> None:
        """Listen for so long at most, then do what a service manager does."""
        main = self._main()
        self._socket.settimeout(slice_s)
        self._hear(main.pid)
        status = main.poll()
        if status is not None:
            if (main.pid, status) not in self.ended:
                self.ended.append((main.pid, status))
            self.ready = False
            if status != 0 and not self._stopping:
                self.start()
        elif self.ready and time.monotonic() - self._alive_at > self._watchdog_s:
            self.expired.append(main.pid)
            self._abort(main)

    def _hear(self, main: int) -> None:
        """Return one datagram, or none after a moment."""
        try:
            text, ancillary, _, _ = self._socket.recvmsg(8192, socket.CMSG_SPACE(_CREDENTIALS.size))
        except TimeoutError:
            return
        sender = next(
            (_CREDENTIALS.unpack(data)[0] for _, kind, data in ancillary if kind == socket.SCM_CREDENTIALS), 0
        )
        if sender != main:
            return
        fields = dict(line.partition("=")[::2] for line in text.decode().splitlines())
        self.said.append(Said(sender, fields, time.monotonic_ns() // 1000))
        if "READY" in fields:
            self.ready = True
        if "STOPPING" in fields:
            self.ready = False
        if fields.keys() & {"READY", "WATCHDOG"}:
            self._alive_at = time.monotonic()

    def _abort(self, process: subprocess.Popen[bytes]) -> None:
        self.ready = False
        process.send_signal(signal.SIGABRT)
        try:
            process.wait(timeout=_ABORT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _main(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            raise RuntimeError("the service was not started")
        return self.process
