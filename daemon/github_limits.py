"""GitHub's limits: how much of the quota is left, and until when nothing may be asked.

There are two kinds. The primary limit is a quota an hour ("core" for REST), told in the `x-ratelimit-…` headers of
every answer. A secondary limit is GitHub's patience: 403 or 429, sometimes with
`retry-after`; it stops everything, and the wait doubles while it goes on. What is blocked is measured on a clock that
nobody sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import httpx2

from daemon.clock import elapsed_s
from daemon.git_errors import RemoteError, remedy_for

CORE = "core"
_ALL = ""
_SHORTEST_WAIT_S = 60.0
_LONGEST_WAIT_S = 3600.0
_LONGEST_RESET_S = 7200.0
_SAID_OF_LIMITS = ("rate limit", "abuse detection")


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota as an answer's headers report it, and when it is full again."""

    limit: int | None
    remaining: int
    reset_at: datetime


class Limits:
    """What one token may still ask."""

    def __init__(
        self,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        elapsed: Callable[[], float] = elapsed_s,
    ) -> None:
        self.quotas: dict[str, Quota] = {}
        """The quotas by name, as the last answers told them."""
        self._now = now
        self._elapsed = elapsed
        self._until: dict[str, float] = {}
        self._refusals = 0

    def blocked_s(self) -> float:
        """Return for how many seconds no request may be made; 0 where it may."""
        until = max(self._until.get(_ALL, 0.0), self._until.get(CORE, 0.0))
        return max(0.0, until - self._elapsed())

    def check(self, *, what: str) -> None:
        """Let nothing through that GitHub has forbidden.

        Raises:
            RemoteError: rate limited, with when it ends.
        """
        wait_s = self.blocked_s()
        if wait_s > 0:
            raise self._error(what, wait_s)

    def heed(self, answer: httpx2.Response, *, what: str, said: str = "") -> None:
        """Take in what an answer says of limits; `said` is its message.

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
        refused = answer.status_code == 429 or (
            answer.status_code == 403
            and (
                wait_s is not None
                or (quota is not None and quota.remaining == 0)
                or any(words in said.lower() for words in _SAID_OF_LIMITS)
            )
        )
        if refused:
            raise self._refused(what, resource=resource, wait_s=wait_s)
        if answer.status_code < 400:
            self._refusals = 0

    def _refused(self, what: str, *, resource: str, wait_s: float | None) -> RemoteError:
        """Note that a request was refused for a limit, and return the error that says so."""
        until = self._until.get(resource, 0.0)
        if wait_s is None and until > self._elapsed():
            return self._error(
                what, max(until, self._until.get(_ALL, 0.0)) - self._elapsed()
            )  # the primary limit, and its end is known
        if wait_s is None:
            wait_s = min(_SHORTEST_WAIT_S * 2.0 ** min(self._refusals, 8), _LONGEST_WAIT_S)
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
            remedy=remedy_for("rate_limited"),
            retry_at=until,
        )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    wait = headers.get("retry-after", "")
    return float(min(int(wait), 86400)) if wait.isdecimal() and len(wait) < 10 else None
