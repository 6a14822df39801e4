"""sd_notify, read from a real datagram socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.place.systemd import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(2)
        yield receiver


def test_each_state_is_one_datagram_of_assignments(manager: socket.socket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname()})
    assert notifier.ready("3 repositories")
    assert manager.recv(1000) == b"READY=1\nSTATUS=3 repositories"
    notifier.status("two\nlines")
    assert manager.recv(1000) == b"STATUS=two lines"
    notifier.watchdog()
    assert manager.recv(1000) == b"WATCHDOG=1"
    notifier.stopping("bye")
    assert manager.recv(1000) == b"STOPPING=1\nSTATUS=bye"


def test_a_reload_carries_the_monotonic_time(manager: socket.socket) -> None:
    Notifier({"NOTIFY_SOCKET": manager.getsockname()}).reloading()
    first, second = manager.recv(1000).decode().split("\n")
    assert first == "RELOADING=1"
    assert int(second.removeprefix("MONOTONIC_USEC=")) > 0


def test_an_abstract_socket_is_addressed_by_its_at_sign() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0everlean-test-{os.getpid()}")
        receiver.settimeout(2)
        assert Notifier({"NOTIFY_SOCKET": f"@everlean-test-{os.getpid()}"}).watchdog()
        assert receiver.recv(100) == b"WATCHDOG=1"


def test_outside_systemd_nothing_is_sent_and_nothing_fails(tmp_path: Path) -> None:
    assert not Notifier({}).ready("x")
    assert not Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready("x")


@pytest.mark.parametrize(
    ("environment", "interval_s"),
    [
        ({"WATCHDOG_USEC": "60000000"}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "ours"}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "nonsense"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_pinged_at_half_its_time(
    environment: dict[str, str], interval_s: float | None
) -> None:
    if environment.get("WATCHDOG_PID") == "ours":  # the tests may be collected by another process
        environment = {**environment, "WATCHDOG_PID": str(os.getpid())}
    assert Notifier({"NOTIFY_SOCKET": "/x", **environment}).watchdog_interval_s == interval_s
