"""One request to GitHub's API: the token, the limits, redirects on the same host only, failures translated.

Owns the connections. A token that was refused is not shown again before there is another one, or some minutes have
passed: GitHub locks out who goes on with it. What is asked is `daemon.github`'s.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import httpx2

from daemon.git_errors import RemoteError, remedy_for
from daemon.github_answers import REFUSED_REMEDY, message, refusal
from daemon.github_limits import Limits
from daemon.redact import redact

REDIRECTS = (301, 302, 307, 308)
_API_VERSION = "2022-11-28"
_REFUSED_TOKEN_WAIT_S = 300.0


class Transport:
    """The way to one API.

    Args:
        renew: called when the token is refused; returns the token as it is now, which may be a new one.
    """

    def __init__(
        self,
        *,
        api_url: str,
        token: str | None,
        timeout_s: float,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        renew: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.api_url = api_url
        self.timeout_s = timeout_s
        self.limits = Limits(now=now)
        self.failed: tuple[float, RemoteError] | None = None
        """When (time.monotonic) the API was last out of reach, and how."""
        self.requests: Counter[str] = Counter()
        """Requests made, by what they were about."""
        self._now = now
        self.token: str | None = None
        self._renew = renew
        self._refused, self._refused_until = False, 0.0
        self._take_token(token)

    @cached_property
    def _client(self) -> httpx2.AsyncClient:
        """The connections, from the first question on: a daemon that watches no GitHub makes none."""
        return httpx2.AsyncClient(
            headers={
                "Accept": "application/vnd.github+json",
                "X-GitHub-Api-Version": _API_VERSION,
                "User-Agent": f"unsorry/{version('unsorry')}",
            },
            timeout=self.timeout_s,
            follow_redirects=False,
            # Where nothing is encrypted there is no certificate to check, and reading those of this machine takes time.
            verify=urlsplit(self.api_url).scheme == "https",
        )

    async def get(self, address: str, *, etag: str | None, what: str) -> tuple[httpx2.Response, bool]:
        """Ask one question; return the answer (200 or 304) and whether it stands at another address (a rename).

        Raises:
            RemoteError: any other answer, a redirect to another host, or what `send` raises.
        """
        for turn in range(4):
            answer = await self.send(address, etag=etag, what=what)
            if answer.status_code in (200, 304):
                return answer, turn > 0
            if answer.status_code not in REDIRECTS:
                said = self.hidden(message(answer))
                raise refusal(answer.status_code, said=said, what=what, api_url=self.api_url)
            address = self.same_host(answer.headers.get("location", ""), what)
        raise RemoteError(
            "invalid", f"{what}: the API redirects in a circle", remedy="check api_url in config.toml"
        )

    async def send(
        self,
        address: str,
        *,
        etag: str | None,
        what: str,
        method: str = "GET",
        body: Mapping[str, Any] | None = None,
        read_refusals: bool = True,
    ) -> httpx2.Response:
        """One request, with the token as it is now.

        `read_refusals`: a 403 whose words speak of a limit is one; without, those are the caller's to read.

        Raises:
            RemoteError: rate limited, out of reach, or the token is refused and there is no other.
        """
        self.limits.check(what=what)
        if self._refused and time.monotonic() < self._refused_until and not self._token_is_new():
            raise self._token_refused(what)
        answer = await self._request(
            address,
            etag=etag,
            what=what,
            method=method,
            body=body,
            read_refusals=read_refusals,
        )
        if answer.status_code == 401 and self.token is not None:
            if self._token_is_new():
                return await self._request(
                    address,
                    etag=etag,
                    what=what,
                    method=method,
                    body=body,
                    read_refusals=read_refusals,
                )
            self._refused, self._refused_until = True, time.monotonic() + _REFUSED_TOKEN_WAIT_S
        elif answer.status_code < 400:
            self._refused = False
        return answer

    async def _request(
        self,
        address: str,
        *,
        etag: str | None,
        what: str,
        method: str,
        body: Mapping[str, Any] | None,
        read_refusals: bool,
    ) -> httpx2.Response:
        self.requests[what] += 1
        url = address if urlsplit(address).netloc else self.api_url + address
        try:
            headers = {"If-None-Match": etag} if etag else {}
            if self.token:
                headers["Authorization"] = f"Bearer {self.token}"
            answer = await self._client.request(method, url, headers=headers, json=body)
        except httpx2.HTTPError as error:
            said = self.hidden(f"{type(error).__name__}: {error}")
            failure = RemoteError(
                "unreachable",
                f"{self.api_url}: {said} (asked about {what})",
                remedy=remedy_for("unreachable"),
            )
            self.failed = (time.monotonic(), failure)
            raise failure from error
        said = message(answer) if read_refusals and answer.status_code in (403, 429) else ""
        self.limits.heed(answer, what=what, said=said)
        return answer

    async def close(self) -> None:
        """Close the connections."""
        if "_client" in self.__dict__:
            await self._client.aclose()

    def hidden(self, said: str) -> str:
        """Return a text without the token."""
        return redact(said, secrets=(self.token or "",))

    def same_host(self, location: str, what: str) -> str:
        """Return the whole address of a redirect or a next page.

        Raises:
            RemoteError: it is somebody else's.
        """
        ours, theirs = urlsplit(self.api_url), urlsplit(location)
        if not theirs.netloc and location.startswith("/"):
            return f"{ours.scheme}://{ours.netloc}{location}"
        # A redirect must not carry the token to somebody else.
        if (theirs.scheme, theirs.netloc.lower()) != (ours.scheme, ours.netloc.lower()):
            raise RemoteError(
                "invalid",
                f"{what}: the API redirects to another host ({theirs.netloc[:100] or 'nowhere'})",
                remedy="check api_url in config.toml",
            )
        return location

    @property
    def token_refused(self) -> bool:
        """Whether the token in use was refused, the last time that it was shown."""
        return self._refused

    def _take_token(self, token: str | None) -> None:
        self.token = token
        self._refused, self._refused_until = False, 0.0

    def _token_is_new(self) -> bool:
        """Whether there is another token than the one in use, which is then in use."""
        token = self._renew()
        if token is None or token == self.token:
            return False
        self._take_token(token)
        return True

    def _token_refused(self, what: str) -> RemoteError:
        wait = timedelta(seconds=self._refused_until - time.monotonic())
        return RemoteError(
            "auth_failed",
            f"{what}: {self.api_url} refused the token a moment ago, so it is not asked again yet",
            remedy=REFUSED_REMEDY,
            retry_at=self._now() + wait,
        )
