"""The one HTTP client: each call ends by its deadline, and an answer is read up to a limit, packed and unpacked.

A server's answer may be slow, endless, huge, packed small or nested deep. A deadline between two bytes is not enough: a
dripping body would never end. So the time limits the whole call. Bytes are counted as received and as unpacked, and
unpacked here: a library continues after the end of the packed data. Redirects are ordinary answers: the caller decides
whether to follow one, and with which secrets. Calls share nothing but the connection.
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
"""Default maximum of an answer's bytes."""
_CONNECT_S = 10.0
REDIRECTS = (301, 302, 303, 307, 308)
_PIECES = 1000
"""Maximum of an answer's pieces, or one for each KiB of its limit: a piece of one byte takes as long as one of
thousands.
"""
_MOST_VALUES = 200_000
"""Maximum of values in a JSON text: an empty list takes two bytes of it and sixty of memory."""

NoAnswerReason = Literal["no_connection", "late", "too_long", "broken"]


class NoAnswerError(Exception):
    """No answer came. The message has no URL except in the library's own text.

    `reason`: the connection failed; the time was up; the answer had too many bytes; or the connection broke, or the
    answer is not HTTP.
    """

    def __init__(self, reason: NoAnswerReason, message: str) -> None:
        super().__init__(message)
        self.reason: NoAnswerReason = reason


class NotJsonError(ValueError):
    """An answer is not readable JSON."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, read whole. `following`: the address of the next page, if it names one."""

    status: int
    headers: httpx2.Headers
    data: bytes = b""
    following: str | None = None

    def json(self) -> Any:
        """Return the answer's JSON.

        Raises:
            NotJsonError: it is not JSON, or it is too deep or too long.
        """
        if self.data.count(b",") + self.data.count(b"[") + self.data.count(b"{") > _MOST_VALUES:
            raise NotJsonError(f"more than {_MOST_VALUES} values")
        try:
            return json.loads(self.data)
        except (ValueError, RecursionError) as error:
            raise NotJsonError(str(error)) from error


class HttpClient:
    """The connections to servers of one sort. For one event loop; close it after use.

    Args:
        seconds: for a call, from its start to the answer's last byte.
        most_bytes: of an answer's body, received and unpacked.
        headers: sent with each call.
        from_environment: whether to use the environment's proxies.
    """

    def __init__(
        self,
        *,
        seconds: float,
        most_bytes: int = MOST_BYTES,
        headers: Mapping[str, str] | None = None,
        from_environment: bool = True,
    ) -> None:
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._headers = {**(headers or {}), "Accept-Encoding": "gzip"}
        self._from_environment = from_environment
        # Unencrypted connections check no certificate, and loading this machine's takes time.
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
        """Make one call; return the answer, with any status.

        Args:
            method, url, headers: of the request.
            body: its bytes; None: none, or those of `content`.
            content: sent as JSON; None: nothing.
            seconds: less time than the client's own; None: the client's own.
            read: whether to read the answer's body.

        Raises:
            NoAnswerError: no answer, or too long a one.
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
            # An ImportError: the environment's proxy needs a further package.
            raise NoAnswerError("no_connection", f"it cannot be reached ({error})") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            # A ValueError: from the library, on an invalid header.
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
        """Return the connections, from the first call on: without a call none are made."""
        if encrypted not in self._clients:
            # Reading the machine's certificates takes a tenth of a second, too long for the loop.
            verify = (
                await asyncio.to_thread(httpx2.create_ssl_context, trust_env=self._from_environment)
                if encrypted
                else False
            )
            if encrypted not in self._clients:
                self._clients[encrypted] = httpx2.AsyncClient(
                    headers=self._headers,
                    timeout=httpx2.Timeout(self._seconds, connect=min(self._seconds, _CONNECT_S)),
                    follow_redirects=False,
                    verify=verify,
                    trust_env=self._from_environment,
                )
        return self._clients[encrypted]
