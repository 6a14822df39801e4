"""The client's half of the control socket: light, and clear about what went wrong."""

from __future__ import annotations

import threading
from pathlib import Path
from socket import AF_UNIX, socket

import pytest

from daemon.place.control_client import ControlError, DaemonNotRunningError, request, short_address
from daemon.place.paths import Paths


def paths(folder: Path) -> Paths:
    return Paths(state=folder, cache=folder, runtime=folder)


def test_where_no_one_listens_the_remedy_is_to_start_the_daemon(tmp_path: Path) -> None:
    with pytest.raises(DaemonNotRunningError, match="everlean run"):
        request(paths(tmp_path), "GET", "/status")


def test_a_daemon_that_goes_away_while_it_is_asked_does_not_run(tmp_path: Path) -> None:
    with socket(AF_UNIX) as listener:
        listener.bind(str(paths(tmp_path).socket))
        listener.listen()

        def go_away() -> None:
            connection, _ = listener.accept()
            connection.recv(1)
            connection.close()  # with the rest unread: the other end is reset

        thread = threading.Thread(target=go_away)
        thread.start()
        with pytest.raises(DaemonNotRunningError, match="everlean run"):
            request(paths(tmp_path), "GET", "/health")
        thread.join()


def test_a_socket_below_a_very_long_path_is_reached(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    folder.mkdir(parents=True)
    with socket(AF_UNIX) as listener:
        with short_address(folder / "control.sock") as address:
            listener.bind(address)
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.sendall(b'HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{"healthy": true}')
            connection.close()

        server = threading.Thread(target=answer)
        server.start()
        assert request(paths(folder), "GET", "/health") == (200, {"healthy": True})
        server.join()


@pytest.mark.parametrize("answer", [b"", b"220 mail.example.org ESMTP\r\n", b"HTTP/1.1 200 OK\r\n\r\n[1]"])
def test_an_answer_that_is_not_ours_is_named_as_such(tmp_path: Path, answer: bytes) -> None:
    with socket(AF_UNIX) as listener:
        listener.bind(str(tmp_path / "control.sock"))
        listener.listen()

        def reply() -> None:
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.sendall(answer)
            connection.close()

        server = threading.Thread(target=reply)
        server.start()
        with pytest.raises(ControlError, match="another program"):
            request(paths(tmp_path), "GET", "/health")
        server.join()
