"""Send requests to the running daemon through its control socket. Standard library only, and little of it.

Owns the client's half of HTTP over the unix socket; the routes are `daemon.http.control`'s. `http.client` is
left out because it costs every command 20 ms of start-up.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daemon.place.paths import Paths

_LONGEST_ADDRESS_BYTES = 107  # sun_path in unix(7), less its closing zero
_FORBIDDEN = 403


class ControlError(Exception):
    """The daemon could not be asked; the message has the reason and the remedy."""


class NotPermittedError(ControlError):
    """The daemon listens, and this user may not ask it."""


class RefusedError(ControlError):
    """The daemon refused; the message is its reason."""


class DaemonNotRunningError(ControlError):
    """No daemon listens at the control socket."""


def request(
    paths: Paths, method: str, route: str, body: dict[str, Any] | None = None, *, timeout_s: float = 10.0
) -> tuple[int, dict[str, Any]]:
    """Send one request; return the HTTP status and the JSON object of the answer.

    Raises:
        DaemonNotRunningError: no socket, or no daemon behind it.
        NotPermittedError: we may not ask, or not that.
        ControlError: it does not answer in time, or not in JSON.
    """
    payload = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {route} HTTP/1.1\r\nHost: everlean\r\nConnection: close\r\nAccept: application/json\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    )
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            deadline = time.monotonic() + timeout_s
            connection.settimeout(timeout_s)
            with short_address(paths.socket) as address:
                connection.connect(address)
            connection.sendall(head.encode("ascii") + payload)
            answer = bytearray()
            while piece := connection.recv(65536):
                answer += piece
                if (left := deadline - time.monotonic()) <= 0:
                    raise TimeoutError
                connection.settimeout(left)
    except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError, BrokenPipeError) as error:
        # Reset: it went away during the request, or a child of a killed one still held the socket for a
        # moment.
        raise DaemonNotRunningError(
            f"{paths.socket}: no daemon listens there; start it with `everlean run`"
        ) from error
    except TimeoutError as error:
        raise ControlError(
            f"{paths.socket}: the daemon did not answer within {timeout_s:g} s; ask again in a minute"
        ) from error
    except PermissionError as error:
        raise NotPermittedError(
            f"{paths.socket}: permission denied; join the group that owns the socket, or ask its owner"
        ) from error
    except OSError as error:
        raise ControlError(
            f"{paths.socket}: {error.strerror or error}; is it the daemon's socket?"
        ) from error
    status, content = _parse(bytes(answer), paths.socket)
    if status == _FORBIDDEN:
        raise NotPermittedError(f"{paths.socket}: {content.get('error', 'not permitted')}")
    return status, content


@contextmanager
def short_address(path: Path) -> Iterator[str]:
    """Yield an address for the socket at `path` that fits into 107 bytes, for a path of any length."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS_BYTES:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def _parse(answer: bytes, path: Path) -> tuple[int, dict[str, Any]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split()
    try:
        if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
            raise ValueError("no status line")
        content = json.loads(body)
        if not isinstance(content, dict):
            raise ValueError("no JSON object")
        return int(words[1]), content
    except ValueError as error:
        raise ControlError(
            f"{path}: the answer could not be understood ({error}); is another program listening there?"
        ) from error
