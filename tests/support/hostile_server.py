"""A server on the loopback that answers badly in each way of a table, and well otherwise.

    with HostileServer() as server:
        ...  # f"{server.url}/repos/o/drips/…" drips; f"{server.url}/repos/o/good/…" is a list of one branch

What is done is chosen by the third part of the path, a name of `CASES`.
"""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType, TracebackType

BRANCH = [{"ref": "refs/heads/main", "object": {"sha": "1" * 40, "type": "commit"}}]
_DRIP_S = 0.02


def _head(*lines: str, status: str = "200 OK") -> bytes:
    first = (f"HTTP/1.1 {status}", "Connection: close", "Content-Type: application/json")
    return "\r\n".join([*first, *lines, "", ""]).encode()


def _whole(body: bytes, *lines: str, status: str = "200 OK") -> Iterator[bytes]:
    yield _head(f"Content-Length: {len(body)}", *lines, status=status) + body


def _drips(what: bytes, first: bytes) -> Iterator[bytes]:
    yield first
    while True:
        time.sleep(_DRIP_S)
        yield what


def _endless(what: bytes, first: bytes) -> Iterator[bytes]:
    yield first
    while True:
        yield what


@cache
def bomb() -> bytes:
    """Return 100 MB of spaces, packed."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    return b"".join(packer.compress(b" " * 1_000_000) for _ in range(100)) + packer.flush()


CASES: dict[str, Callable[[], Iterator[bytes]]] = {
    "drips": lambda: _drips(b" ", _head("Content-Length: 100000") + b"["),
    "drips_head": lambda: _drips(b"X: y\r\n", b"HTTP/1.1 200 OK\r\n"),
    "silent": lambda: _drips(b"", b""),
    "endless": lambda: _endless(b"[],\n" * 5000, _head() + b"["),
    "endless_head": lambda: _endless(b"X: y\r\n" * 5000, b"HTTP/1.1 200 OK\r\n"),
    "bomb": lambda: _whole(bomb(), "Content-Encoding: gzip"),
    "bombs_in_bomb": lambda: _whole(gzip.compress(bomb()), "Content-Encoding: gzip, gzip"),
    "behind_packed": lambda: _endless(b"x" * 65536, _head("Content-Encoding: gzip") + gzip.compress(b"[]")),
    "other_packing": lambda: _whole(b"[]", "Content-Encoding: br"),
    "cut_packed": lambda: _whole(gzip.compress(b"[]")[:-9], "Content-Encoding: gzip"),
    "crumbs": lambda: _endless(b"1\r\nx\r\n" * 5000, _head("Transfer-Encoding: chunked")),
    "deep": lambda: _whole(b"[" * 200_000),
    "wide": lambda: _whole(b"[" + b"[]," * 1_300_000 + b"[]]"),
    "pages": lambda: _whole(json.dumps(BRANCH).encode(), 'Link: </repos/o/pages/more>; rel="next"'),
    "cookie": lambda: _whole(b"[]", "Set-Cookie: a=b"),
    "circle": lambda: _whole(b"", "Location: /repos/o/circle/again", status="301 Moved Permanently"),
    "cut": lambda: iter([_head("Content-Length: 100000") + b"["]),
    "no_http": lambda: iter([b"\x16\x03\x01" * 50]),
    "login_page": lambda: _whole(b"<html>sign in</html>"),
    "null": lambda: _whole(b"null"),
}


class HostileServer:
    """The server, in threads of its own.

    Args:
        tips: the commits of main by repository's name, of those that it answers well about.
    """

    def __init__(self, tips: Mapping[str, str] = MappingProxyType({})) -> None:
        self.times: list[tuple[float, str]] = []
        """When what was asked, on the monotonic clock: the paths."""
        self.cookies: list[str | None] = []
        """The cookies that came with each question."""
        bomb()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.times, self.cookies, tips))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> HostileServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(
    times: list[tuple[float, str]], cookies: list[str | None], tips: Mapping[str, str]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            times.append((time.monotonic(), self.path))
            cookies.append(self.headers.get("Cookie"))
            _, _, owner, name, *rest = self.path.split("/")
            case = CASES.get(name)
            about = {"id": 7, "default_branch": "main", "full_name": f"{owner}/{name}"}
            heads = [{"ref": "refs/heads/main", "object": {"sha": tips.get(name, "1" * 40)}}]
            pieces = _whole(json.dumps(heads if rest else about).encode()) if case is None else case()
            self.close_connection = True
            try:
                for piece in pieces:
                    if piece:
                        self.connection.sendall(piece)
                    elif self.connection.recv(1, socket.MSG_PEEK) == b"":
                        return
            except OSError:
                return  # who asked has gone

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    return Handler
