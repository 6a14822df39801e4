"""Send one request to GitHub's API: token, limits, redirects on the same host only, errors translated.

Limits are of two kinds. The primary limit is a quota an hour ("core" for REST), in the `x-ratelimit-…`
headers of every answer. A secondary limit is GitHub's patience: 403 or 429, sometimes with `retry-after`; it
stops everything, and the wait doubles with each in a row. Waits are measured on a clock that is never set.

A refused token is not sent again before there is another one, or some minutes have passed: GitHub locks out
clients that keep trying.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from daemon.polling.errors import REMEDIES, RemoteError
from daemon.state.clock import elapsed_s
from pipeline.http_client import REDIRECTS, Answer, HttpClient, NoAnswerError, NotJsonError
from pipeline.redact import redact
from store.backoff import Backoff
from store.events.repositories import RepositoryProblem

REFUSED_REMEDY = (
    "the token is invalid, expired or revoked: make a new one and put it where the old one was"
    " ([github] token_file, the credential github-token or $EVERLEAN_GITHUB_TOKEN)"
)
_NO_ACCESS = (
    "the token lacks read access to this repository, or its organisation wants the token authorised;"
    " make a new one, or authorise it"
)
_GONE = "; a private repository looks the same to a token without access"
_BLOCKED = "GitHub blocks the repository for legal reasons; remove the entry, or set enabled = false until it is back"


_REFUSALS: Mapping[int, tuple[RepositoryProblem, str, str]] = {
    401: ("auth_failed", " (unauthorised)", REFUSED_REMEDY),
    403: ("auth_failed", " (forbidden)", _NO_ACCESS),
    404: ("not_found", " (not found)", REMEDIES["not_found"] + _GONE),
    410: ("gone", " (gone)", ""),
    451: ("gone", " (blocked)", _BLOCKED),
    409: ("empty", " (the repository is empty)", ""),
}


def refusal(status: int, *, what: str, api_url: str) -> RemoteError:
    """Return the error for a status that is neither an answer nor a limit.

    It does not repeat the answer's text: errors are recorded for ever, and a server that refuses a token may
    quote it in any encoding.
    """
    problem, meaning, remedy = _REFUSALS.get(status, ("unreachable", "", ""))
    return RemoteError(problem, f"{what}: {api_url} answered {status}{meaning}", remedy=remedy)


def not_understood(what: str) -> RemoteError:
    """Return the error for an answer that GitHub would not give."""
    return RemoteError(
        "unreachable",
        f"{what}: the API's answer is not what GitHub sends; is there a proxy or a login page in between?",
        remedy="check api_url in config.toml",
    )


def message(answer: Answer) -> str:
    """Return GitHub's message and its list of errors, in one line; "" without any."""
    try:
        content = answer.json()
    except NotJsonError:
        return ""
    if not isinstance(content, dict):
        return ""
    errors = content.get("errors")
    details = [
        str(item.get("message") or item.get("code") or "") if isinstance(item, dict) else str(item)
        for item in (errors if isinstance(errors, list) else [])
    ]
    parts = [str(content.get("message") or ""), *details]
    return " ".join("; ".join(part for part in parts if part).split())[:500]


def json_object(answer: Answer, what: str) -> dict[str, Any]:
    """Return an answer's object.

    Raises:
        RemoteError: it is none.
    """
    content = _json(answer, what)
    if not isinstance(content, dict):
        raise not_understood(what)
    return content


def json_list(answer: Answer, what: str) -> list[dict[str, Any]]:
    """Return an answer's list of objects.

    Raises:
        RemoteError: it is none.
    """
    content = _json(answer, what)
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        raise not_understood(what)
    return content


def text(value: Any) -> str | None:
    """Return a value if it is a text and not empty, else None."""
    return value if isinstance(value, str) and value else None


def number(value: Any) -> int | None:
    """Return an id of the forge, which is positive and fits into a table; None for anything else."""
    return value if type(value) is int and 0 < value < 2**63 else None


def _json(answer: Answer, what: str) -> Any:
    try:
        return answer.json()
    except NotJsonError as error:
        raise not_understood(what) from error


CORE = "core"
_ALL = ""
_UNSAID = Backoff(60.0, 3600.0)
"""For a refusal without a time: GitHub then wants at least a minute, and more each time."""
_LONGEST_RESET_S = 7200.0
_SAID_OF_LIMITS = ("rate limit", "abuse detection")


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota from an answer's headers, and the time when it is full again."""

    limit: int | None
    remaining: int
    reset_at: datetime


class Limits:
    """The remaining quota of one token."""

    def __init__(
        self,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        elapsed: Callable[[], float] = elapsed_s,
    ) -> None:
        self.quotas: dict[str, Quota] = {}
        """The quotas by name, from the last answers."""
        self._now = now
        self._elapsed = elapsed
        self._until: dict[str, float] = {}
        self._refusals = 0

    def blocked_s(self) -> float:
        """Return the seconds for which no request may be made; 0 if one may."""
        until = max(self._until.get(_ALL, 0.0), self._until.get(CORE, 0.0))
        return max(0.0, until - self._elapsed())

    def check(self, *, what: str) -> None:
        """Refuse a request while GitHub's limits forbid it.

        Raises:
            RemoteError: rate limited, with the time of its end.
        """
        wait_s = self.blocked_s()
        if wait_s > 0:
            raise self._error(what, wait_s)

    def heed(self, answer: Answer, *, what: str, said: str = "") -> None:
        """Apply the limits in an answer; `said` is its message.

        Raises:
            RemoteError: the answer is itself a refusal for a limit.
        """
        resource = answer.headers.get("x-ratelimit-resource", CORE)
        quota = self._quota(answer.headers)
        if quota is not None:
            self.quotas[resource] = quota
            if quota.remaining == 0:
                self._block(resource, self._until_reset_s(quota))
        wait_s = _retry_after(answer.headers)
        refused = answer.status == 429 or (
            answer.status == 403
            and (
                wait_s is not None
                or (quota is not None and quota.remaining == 0)
                or any(words in said.lower() for words in _SAID_OF_LIMITS)
            )
        )
        if refused:
            raise self._refused(what, resource=resource, wait_s=wait_s)
        if answer.status < 400:
            self._refusals = 0

    def _refused(self, what: str, *, resource: str, wait_s: float | None) -> RemoteError:
        """Note a refusal for a limit, and return its error."""
        until = self._until.get(resource, 0.0)
        if wait_s is None and until > self._elapsed():
            return self._error(
                what, max(until, self._until.get(_ALL, 0.0)) - self._elapsed()
            )  # the primary limit, and its end is known
        if wait_s is None:
            wait_s = _UNSAID.wait_s(self._refusals + 1)
        self._refusals += 1
        self._block(_ALL, wait_s)
        return self._error(what, wait_s)

    def _block(self, resource: str, wait_s: float) -> None:
        self._until[resource] = max(self._until.get(resource, 0.0), self._elapsed() + wait_s)

    def _quota(self, headers: Mapping[str, str]) -> Quota | None:
        limit, remaining, reset = (
            headers.get(f"x-ratelimit-{name}", "") for name in ("limit", "remaining", "reset")
        )
        if not (remaining.isdecimal() and reset.isdecimal() and len(reset) < 12):
            return None
        return Quota(
            int(limit) if limit.isdecimal() else None,
            int(remaining),
            datetime.fromtimestamp(int(reset), tz=UTC),
        )

    def _until_reset_s(self, quota: Quota) -> float:
        # The server's clock and ours may differ: never in the past, never more than two hours ahead.
        return min(max((quota.reset_at - self._now()).total_seconds(), 1.0), _LONGEST_RESET_S)

    def _error(self, what: str, wait_s: float) -> RemoteError:
        until = self._now() + timedelta(seconds=wait_s)
        return RemoteError(
            "rate_limited",
            f"{what}: the API's rate limit is used up until {until.astimezone(UTC):%H:%M:%S} UTC",
            retry_at=until,
        )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    wait = headers.get("retry-after", "")
    return float(min(int(wait), 86400)) if wait.isdecimal() and len(wait) < 10 else None


_API_VERSION = "2022-11-28"
_REFUSED_TOKEN_WAIT_S = 300.0


class Transport:
    """The way to one API.

    Args:
        renew: called when the token is refused; returns the present token, perhaps a new one.
    """

    def __init__(
        self,
        *,
        api_url: str,
        token: str | None,
        timeout_s: float,
        renew: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.api_url = api_url
        self.timeout_s = timeout_s
        self.limits = Limits()
        self.requests: Counter[str] = Counter()
        """The number of requests, by their subjects."""
        self.token: str | None = None
        self._renew = renew
        self._client = HttpClient(
            seconds=timeout_s,
            headers={
                "Accept": "application/vnd.github+json",
                "X-GitHub-Api-Version": _API_VERSION,
                "User-Agent": f"everlean/{version('everlean')}",
            },
        )
        self._refused, self._refused_until = False, 0.0
        self._take_token(token)

    async def get(self, address: str, *, etag: str | None, what: str) -> tuple[Answer, bool]:
        """Send one request; return the answer (200 or 304) and whether its address was another (a rename).

        Raises:
            RemoteError: any other answer, a redirect to another host, or an error of `send`.
        """
        answer, moved = await self.follow(address, etag=etag, what=what)
        if answer.status not in (200, 304):
            raise refusal(answer.status, what=what, api_url=self.api_url)
        return answer, moved

    async def follow(self, address: str, *, what: str, **request: Any) -> tuple[Answer, bool]:
        """Send a question, as `send`, and follow redirects; return the answer and whether there was one.

        Raises:
            RemoteError: a redirect to another host, or an error of `send`.
        """
        for turn in range(4):
            answer = await self.send(address, what=what, **request)
            if answer.status not in REDIRECTS:
                return answer, turn > 0
            address = self.same_host(answer.headers.get("location", ""), what)
        raise RemoteError(
            "invalid", f"{what}: the API redirects in a circle", remedy="check api_url in config.toml"
        )

    async def send(
        self,
        address: str,
        *,
        what: str,
        etag: str | None = None,
        method: str = "GET",
        body: Mapping[str, Any] | None = None,
        read_refusals: bool = True,
    ) -> Answer:
        """Send one request, with the present token.

        `read_refusals`: whether a 403 with words about a limit counts as one; otherwise the caller reads
        them.

        Raises:
            RemoteError: rate limited, out of reach, or the token is refused and there is no other.
        """
        url = address if urlsplit(address).netloc else self.api_url + address

        async def once() -> Answer:
            self.requests[what] += 1
            headers = {"If-None-Match": etag} if etag else {}
            if self.token:
                headers["Authorization"] = f"Bearer {self.token}"
            try:
                answer = await self._client.call(method, url, headers=headers, content=body)
            except NoAnswerError as error:
                raise self.unanswered(what, str(error)) from error
            text = message(answer) if read_refusals and answer.status in (403, 429) else ""
            self.limits.heed(answer, what=what, said=text)
            return answer

        self.limits.check(what=what)
        if self._refused and time.monotonic() < self._refused_until and not self._token_is_new():
            raise self._token_refused(what)
        answer = await once()
        if answer.status == 401 and self.token is not None:
            if self._token_is_new():
                return await once()
            self._refused, self._refused_until = True, time.monotonic() + _REFUSED_TOKEN_WAIT_S
        elif answer.status < 400:
            self._refused = False
        return answer

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def unanswered(self, what: str, reason: str) -> RemoteError:
        """Return the error for a request without an answer."""
        return RemoteError(
            "unreachable",
            f"{self.api_url}: {self.hidden(reason)} (asked about {what})",
        )

    def hidden(self, words: str) -> str:
        """Return a text without the token."""
        return redact(words, secrets=(self.token or "",))

    def same_host(self, location: str, what: str) -> str:
        """Return the whole address of a redirect or a next page.

        Raises:
            RemoteError: it is another host's, or no address.
        """
        try:
            ours, theirs = urlsplit(self.api_url), urlsplit(location)
        except ValueError as error:
            raise not_understood(what) from error
        if not theirs.netloc and location.startswith("/"):
            return f"{ours.scheme}://{ours.netloc}{location}"
        # A redirect must not carry the token to another host.
        if (theirs.scheme, theirs.netloc.lower()) != (ours.scheme, ours.netloc.lower()):
            raise RemoteError(
                "invalid",
                f"{what}: the API redirects to another host ({theirs.netloc[:100] or 'nowhere'})",
                remedy="check api_url in config.toml",
            )
        return location

    @property
    def token_refused(self) -> bool:
        """Return whether the API refused the token in use at its last request."""
        return self._refused

    def _take_token(self, token: str | None) -> None:
        self.token = token
        self._refused, self._refused_until = False, 0.0

    def _token_is_new(self) -> bool:
        """Switch to another token than the one in use; return whether one exists."""
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
            retry_at=datetime.now(UTC) + wait,
        )
