"""sd_notify(3) in the standard library: READY, STATUS, WATCHDOG, RELOADING, STOPPING.

Owns the datagrams and the watchdog's interval. Outside systemd ($NOTIFY_SOCKET unset) every call does
nothing.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

from store.text import one_line


class Notifier:
    """Reports the daemon's state to the service manager. Never raises: a manager that went away is no reason
    to stop."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        address = environment.get("NOTIFY_SOCKET", "")
        # "@" marks an abstract socket, whose real name begins with a zero byte.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_us = _watchdog_us(environment)

    @property
    def watchdog_interval_s(self) -> float | None:
        """Return the interval of `watchdog` calls: half of the manager's; None if it does not watch us."""
        return self._watchdog_us / 2_000_000 if self._watchdog_us and self._address else None

    def ready(self, status: str) -> bool:
        """Report READY: the start, or a reload, is complete."""
        return self._send("READY=1", f"STATUS={one_line(status)}")

    def starting(self, status: str, *, patience_s: float) -> bool:
        """Report why the start is not complete yet, and extend its time limit by this much."""
        return self._send(
            f"STATUS={one_line(status)}", f"EXTEND_TIMEOUT_USEC={round(patience_s * 1_000_000)}"
        )

    def status(self, status: str) -> bool:
        """Give the one line for `systemctl status`."""
        return self._send(f"STATUS={one_line(status)}")

    def watchdog(self) -> bool:
        """Feed the watchdog: the main loop turns."""
        return self._send("WATCHDOG=1")

    def reloading(self) -> bool:
        """Report a reload; its time tells the manager the READY=1 after it from an earlier one."""
        return self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> bool:
        """Report that the daemon stops."""
        return self._send("STOPPING=1", f"STATUS={one_line(status)}")

    def _send(self, *lines: str) -> bool:
        if not self._address:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                # A full queue must not stop the main loop; systemd's own is deep enough never to be full.
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError:
            return False
        return True


def _watchdog_us(environment: Mapping[str, str]) -> int | None:
    usec, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not usec.isdecimal() or int(usec) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(usec)
