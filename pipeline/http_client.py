"""The one HTTP client: each call ends by its deadline, and an answer is read up to a bound, packed and unpacked.

Who answers may be slow, endless, huge, packed small or nested deep. A deadline between two bytes is none: a body that
drips would never end. So the time is that of the whole call. The bytes are counted as they come and as they are
unpacked, which is done here: a library goes on with what follows the end of what is packed. Redirects are answers like
others: whether one is followed, and with which secrets, is the caller's to say. Nothing is kept for the next call but
the connection.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2

MOST_BYTES = 4 * 2**20
"""The most that is read of an answer, where the caller says nothing else."""
REDIRECTS = (301, 302, 303, 307, 308)
_PIECES = 1000
"""So many pieces an answer may have, or one for each KiB of its bound: one of a byte takes as long as one of thousands.
"""
_MOST_VALUES = 200_000
"""The most values in a JSON text: an empty list takes two bytes of it and sixty of memory."""

NoAnswerReason = Literal["no_connection", "late", "too_long", "broken"]


class NoAnswerError(Exception):
    """There is no answer. The message has no URL beyond what the library says of it.

    `reason`: no connection was made; the time was up; it had more bytes than are read; or the connection broke, or what
    came is no HTTP.
    """

    def __init__(self, reason: NoAnswerReason, message: str) -> None:
        super().__init__(message)
        self.reason: NoAnswerReason = reason


class NotJsonError(ValueError):
    """An answer is no JSON that can be read."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, read whole. `following`: the address of the next page, where it names one."""

    status: int
    headers: httpx2.Headers
    data: bytes = b""
    following: str | None = None

    def json(self) -> Any:
        """Return the JSON that it consists of.

        Raises:
            NotJsonError: it is none, or too deep or too long for one.
        """
        if self.data.count(b",") + self.data.count(b"[") + self.data.count(b"{") > _MOST_VALUES:
            raise NotJsonError(f"more than {_MOST_VALUES} values")
        try:
            return json.loads(self.data)
        except (ValueError, RecursionError) as error:
            raise NotJsonError(str(error)) from error


class HttpClient:
    """The connections to servers of one sort. Used on one event loop, and closed when it is no longer needed.

    Args:
        seconds: for a call, from its beginning to the last byte of the answer.
        connect_seconds: of those for the connection; None: all.
        most_bytes: of an answer's body, as it comes and unpacked.
        headers: sent with each call.
        connections: at once; None: the library's choice.
        from_environment: whether the proxies that the environment names are used.
    """

    def __init__(
        self,
        *,
        seconds: float,
        connect_seconds: float | None = None,
        most_bytes: int = MOST_BYTES,
        headers: Mapping[str, str] | None = None,
        connections: int | None = None,
        from_environment: bool = True,
    ) -> None:
        self._seconds = seconds
        self._connect_seconds = connect_seconds
        self._most_bytes = most_bytes
        self._headers = {**(headers or {}), "Accept-Encoding": "gzip"}
        self._connections = connections
        self._from_environment = from_environment
        # Where nothing is encrypted there is no certificate to check, and reading those of this machine takes time.
        self._clients: dict[bool, httpx2.AsyncClient] = {}

    async def call(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content: Any = None,
        seconds: float | None = None,
        read: bool = True,
    ) -> Answer:
        """Make one call; return the answer, whatever its status.

        Args:
            method, url, headers: of the request.
            body: its bytes; None: none, or those of `content`.
            content: what is sent as JSON; None: nothing.
            seconds: less time than the client's own; None: that.
            read: whether the answer's body is wanted.

        Raises:
            NoAnswerError: there is none, or it is too long.
        """
        left = self._seconds if seconds is None else min(seconds, self._seconds)
        try:
            async with asyncio.timeout(left):
                client = await self._client(encrypted=urlsplit(url).scheme == "https")
                async with client.stream(
                    method, url, headers=headers, content=body, json=content
                ) as response:
                    client.cookies.clear()
                    data = await self._read(response) if read else b""
                    following = response.links.get("next", {}).get("url")
                    return Answer(response.status_code, response.headers, data, following)
        except (httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise NoAnswerError("no_connection", "it takes no connection in time") from error
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise NoAnswerError("late", f"it did not answer within {left:g} s") from error
        except (httpx2.ConnectError, ImportError) as error:
            # An ImportError: the environment names a proxy of a sort for which the library wants a package more.
            raise NoAnswerError("no_connection", f"it cannot be reached ({error})") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            # A ValueError: what the library makes of a header that is none.
            raise NoAnswerError(
                "broken", f"the connection broke ({type(error).__name__}: {error})"
            ) from error

    async def close(self) -> None:
        """Close the connections."""
        while self._clients:
            _, client = self._clients.popitem()
            await client.aclose()

    async def __aenter__(self) -> HttpClient:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def _read(self, response: httpx2.Response) -> bytes:
        data, pieces = bytearray(), max(_PIECES, self._most_bytes // 1024)
        async for piece in response.aiter_raw():
            data += piece
            pieces -= 1
            if len(data) > self._most_bytes or pieces < 0:
                raise self._too_long()
        packed = response.headers.get("content-encoding", "identity").lower()
        if packed == "identity" or not data:
            return bytes(data)
        if packed not in ("gzip", "x-gzip"):
            raise NoAnswerError("broken", f"its answer is packed in a way not asked for: {packed[:40]}")
        unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            unpacked = unpacking.decompress(data, self._most_bytes + 1)
        except zlib.error as error:
            raise NoAnswerError("broken", f"its answer cannot be unpacked ({error})") from error
        if len(unpacked) > self._most_bytes:
            raise self._too_long()
        if not unpacking.eof:
            raise NoAnswerError("broken", "its answer is packed and ends too soon")
        return unpacked

    def _too_long(self) -> NoAnswerError:
        return NoAnswerError(
            "too_long", f"its answer has more than {self._most_bytes} bytes, or comes in crumbs"
        )

    async def _client(self, *, encrypted: bool) -> httpx2.AsyncClient:
        """Return the connections, from the first call on: who calls nobody makes none."""
        if encrypted not in self._clients:
            # Reading the machine's certificates takes a tenth of a second, in which the loop has others to serve.
            verify = (
                await asyncio.to_thread(httpx2.create_ssl_context, trust_env=self._from_environment)
                if encrypted
                else False
            )
            if encrypted not in self._clients:
                self._clients[encrypted] = httpx2.AsyncClient(
                    headers=self._headers,
                    timeout=httpx2.Timeout(self._seconds, connect=self._connect_seconds or self._seconds),
                    follow_redirects=False,
                    verify=verify,
                    trust_env=self._from_environment,
                    limits=httpx2.Limits(max_connections=self._connections or 100),
                )
        return self._clients[encrypted]
