"""What is the tip? GitHub's REST API with ETags, one request at a time, inside its rate limits.

Owns the requests, what their statuses mean, and the rule for whom they are made. Knows nothing of events.

Who is asked about what: `[github] api_url` names the API; empty and with a token it is https://api.github.com. It
answers for the watchlist entries on the forge that it belongs to, and for no others (nor does the token go
anywhere else):
    - the entry's host is the API's own host (GitHub Enterprise: https://HOST/api/v3 for https://HOST/owner/name);
    - the API's host is `api.` plus the entry's host (api.github.com for github.com);
    - the API is on this machine's loopback address and the entry is a local path: a local server speaking for
      local repositories, which is how tests run.
Every other entry, and every entry where neither a token nor `api_url` is configured, is read by `git ls-remote`.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2

from daemon.git_errors import RemoteError, remedy_for
from daemon.redact import redact

PUBLIC_API = "https://api.github.com"
_API_VERSION = "2022-11-28"
_BRANCHES = "refs/heads/"
_MOST_PAGES = 50
_REDIRECTS = (301, 302, 307, 308)
_SHORTEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class ForgeAnswer:
    """What the forge says. `heads` is None where its 304 says that no branch changed."""

    heads: Mapping[str, str] | None
    default_branch: str | None
    full_name: str | None
    forge_id: int | None
    clone_url: str | None
    etags: Mapping[str, str] = field(default_factory=dict)


class GitHub:
    """A client for one API. Serial on purpose: GitHub asks for no concurrency per token."""

    def __init__(
        self,
        *,
        api_url: str,
        token: str | None,
        timeout_s: float,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.api_url = (api_url or PUBLIC_API).rstrip("/")
        self._host = urlsplit(self.api_url).netloc.lower()
        self._token = token
        self._now = now
        self._blocked_until: datetime | None = None
        self._turn = asyncio.Lock()
        self.requests: Counter[str] = Counter()
        """Requests made, by the owner/name that they were about."""
        headers = {
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": _API_VERSION,
            "User-Agent": f"unsorry/{version('unsorry')}",
        }
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._client = httpx2.AsyncClient(headers=headers, timeout=timeout_s, follow_redirects=False)

    def name_of(self, key: str) -> str | None:
        """Return owner/name where this API answers for the repository, else None."""
        host, _, name = key.partition("/")
        if name.count("/") != 1:
            return None
        mine = host in (self._host, self._host.removeprefix("api.")) or (
            host == "local" and _is_loopback(urlsplit(self.api_url).hostname or "")
        )
        return name if mine else None

    def token_for(self, url: str) -> str | None:
        """Return the token where git may send it to this URL's host."""
        parts = urlsplit(url)
        host = parts.netloc.lower()
        if parts.scheme == "https" and host in (self._host, self._host.removeprefix("api.")):
            return self._token
        return None

    async def look(self, name: str, *, etags: Mapping[str, str], known_default: str | None) -> ForgeAnswer:
        """Ask for the default branch and all branches, each only if it changed since `etags`.

        Raises:
            RemoteError: gone, private, rate limited, empty, or out of reach.
        """
        async with self._turn:
            base = "/repos/" + quote(name)
            about = await self._get(base, etag=etags.get("repository"), what=name)
            default, full_name, forge_id, clone_url = known_default, None, None, None
            fresh: dict[str, str] = {}
            if about.status_code == 304:
                fresh["repository"] = etags["repository"]
            else:
                content = _object(about, name)
                default = _text(content.get("default_branch")) or known_default
                full_name, clone_url = _text(content.get("full_name")), _text(content.get("clone_url"))
                forge_id = content.get("id") if isinstance(content.get("id"), int) else None
                if etag := about.headers.get("etag"):
                    fresh["repository"] = etag
            # Another default branch means other branches to watch: then the list is wanted whatever its ETag says.
            etag = etags.get("branches") if default == known_default else None
            heads, branches_etag = await self._heads(base, etag=etag, what=name)
            if branches_etag:
                fresh["branches"] = branches_etag
            return ForgeAnswer(heads, default, full_name, forge_id, clone_url, fresh)

    async def call(
        self, method: str, address: str, *, what: str, body: Mapping[str, Any] | None = None
    ) -> httpx2.Response:
        """Make one request; what its status means is the caller's to say. Only a question follows redirects.

        Raises:
            RemoteError: rate limited, out of reach, or redirected to another host.
        """
        async with self._turn:
            for _ in range(4):
                answer = await self._send(address, etag=None, what=what, method=method, body=body)
                self._heed_limit(answer, what)
                if method != "GET" or answer.status_code not in _REDIRECTS:
                    break
                address = self._same_host(answer.headers.get("location", ""), what)
            return answer

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _heads(
        self, base: str, *, etag: str | None, what: str
    ) -> tuple[dict[str, str] | None, str | None]:
        heads: dict[str, str] = {}
        address: str | None = f"{base}/git/matching-refs/heads/"
        pages: list[httpx2.Response] = []
        while address is not None:
            if len(pages) == _MOST_PAGES:
                raise RemoteError(
                    "invalid",
                    f"{what}: more than {_MOST_PAGES} pages of branches",
                    remedy="watch it without the API: remove api_url and the token",
                )
            answer = await self._get(address, etag=None if pages else etag, what=what)
            if answer.status_code == 304:
                return None, etag
            pages.append(answer)
            for item in _list(answer, what):
                ref, target = item.get("ref"), item.get("object")
                sha = target.get("sha") if isinstance(target, dict) else None
                if isinstance(ref, str) and isinstance(sha, str) and ref.startswith(_BRANCHES):
                    heads[ref.removeprefix(_BRANCHES)] = sha
            following = answer.links.get("next", {}).get("url")
            address = self._same_host(following, what) if following else None
        # An ETag speaks for its page only: of several pages the later ones could change unseen.
        return heads, pages[0].headers.get("etag") if len(pages) == 1 else None

    async def _get(self, address: str, *, etag: str | None, what: str) -> httpx2.Response:
        """One request, redirects (renames) followed on this host only, failures translated."""
        for _ in range(4):
            answer = await self._send(address, etag=etag, what=what)
            if answer.status_code not in _REDIRECTS:
                self._check(answer, what)
                return answer
            address = self._same_host(answer.headers.get("location", ""), what)
        raise RemoteError(
            "invalid", f"{what}: the API redirects in a circle", remedy="check api_url in config.toml"
        )

    async def _send(
        self,
        address: str,
        *,
        etag: str | None,
        what: str,
        method: str = "GET",
        body: Mapping[str, Any] | None = None,
    ) -> httpx2.Response:
        now = self._now()
        if self._blocked_until is not None and now < self._blocked_until:
            raise _rate_limited(what, self._blocked_until)
        url = address if address.startswith(self.api_url) else self.api_url + address
        self.requests[what] += 1
        try:
            headers = {"If-None-Match": etag} if etag else {}
            return await self._client.request(method, url, headers=headers, json=body)
        except httpx2.HTTPError as error:
            said = redact(f"{type(error).__name__}: {error}", secrets=(self._token or "",))
            raise RemoteError(
                "unreachable",
                f"{self.api_url}: {said} (asked about {what})",
                remedy=remedy_for("unreachable"),
            ) from error

    def _check(self, answer: httpx2.Response, what: str) -> None:
        status = answer.status_code
        self._heed_limit(answer, what)
        if status in (200, 304):
            return
        said = f"{what}: {self.api_url} answered {status} {_message(answer)}"
        if status in (401, 403):
            raise RemoteError(
                "auth_failed",
                redact(said, secrets=(self._token or "",)),
                remedy="the token is invalid, expired, or lacks read access to this repository; make a new one",
            )
        if status in (404, 410, 451):
            raise RemoteError(
                "gone",
                said,
                remedy=f"{remedy_for('gone')}; a private repository looks the same to a token without access",
            )
        if status == 409:
            raise RemoteError("empty", f"{what}: the repository is empty", remedy=remedy_for("empty"))
        raise RemoteError("unreachable", said, remedy=remedy_for("unreachable"))

    def _heed_limit(self, answer: httpx2.Response, what: str) -> None:
        limit = self._limit(answer)
        if limit is not None:
            self._blocked_until = limit
        if answer.status_code == 429 or (
            answer.status_code == 403 and (limit is not None or "retry-after" in answer.headers)
        ):
            self._blocked_until = limit or self._now() + timedelta(seconds=_SHORTEST_WAIT_S)
            raise _rate_limited(what, self._blocked_until)

    def _limit(self, answer: httpx2.Response) -> datetime | None:
        """When the next request may be made, where the answer's headers forbid one now."""
        now = self._now()
        wait = answer.headers.get("retry-after", "")
        if wait.isdecimal():
            return now + timedelta(seconds=min(int(wait), 86400))
        reset = answer.headers.get("x-ratelimit-reset", "")
        if answer.headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
            # The server's clock and ours may differ: never an hour in the past, never more than two ahead.
            seconds = min(max(int(reset) - now.timestamp(), 1.0), 7200.0)
            return now + timedelta(seconds=seconds)
        return None

    def _same_host(self, location: str, what: str) -> str:
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


def _rate_limited(what: str, until: datetime) -> RemoteError:
    return RemoteError(
        "rate_limited",
        f"{what}: the API's rate limit is used up until {until.astimezone(UTC):%H:%M:%S} UTC",
        remedy=remedy_for("rate_limited"),
        retry_at=until,
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _message(answer: httpx2.Response) -> str:
    try:
        content = answer.json()
    except ValueError:
        return ""
    message = content.get("message") if isinstance(content, dict) else None
    return f"({message[:200]})" if isinstance(message, str) else ""


def _object(answer: httpx2.Response, what: str) -> dict[str, Any]:
    content = _json(answer, what)
    if not isinstance(content, dict):
        raise _not_understood(what)
    return content


def _list(answer: httpx2.Response, what: str) -> list[dict[str, Any]]:
    content = _json(answer, what)
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        raise _not_understood(what)
    return content


def _json(answer: httpx2.Response, what: str) -> Any:
    try:
        return answer.json()
    except ValueError as error:
        raise _not_understood(what) from error


def _not_understood(what: str) -> RemoteError:
    return RemoteError(
        "unreachable",
        f"{what}: the API's answer is not what GitHub sends; is there a proxy or a login page in between?",
        remedy="check api_url in config.toml",
    )
