"""Errors of a model behind an endpoint, and its usage. `reason` is stable; an error concerns one request alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of requests, and their cost. `usd` is None without prices."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None

    def __add__(self, other: Usage) -> Usage:
        known = [usd for usd in (self.usd, other.usd) if usd is not None]
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            sum(known) if known else None,
        )

    def since(self, before: Usage) -> Usage:
        """Return the difference to an earlier total."""
        return Usage(
            self.prompt_tokens - before.prompt_tokens,
            self.completion_tokens - before.completion_tokens,
            None if self.usd is None else self.usd - (before.usd or 0.0),
        )


class ExternalError(Exception):
    """An external model cannot be used, or does not answer. `usage` is the amount spent nevertheless."""

    reason = "external"

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or self.reason
        self.usage = Usage()


class EndpointError(ExternalError):
    """The endpoint refuses, is out of reach, or sends an unreadable answer; or its answer cannot be kept.

    `reason` is "bad_request", "auth_failed", "forbidden", "no_such_model", "no_credit", "overloaded", "timeout",
    "unreachable", "hung_up", "redirected", "not_understood" or "answers_not_kept".
    """


class CredentialError(ExternalError):
    """A key cannot be used: other users can read its file, or its content is not a key."""

    reason = "bad_credential"


class SpendingError(ExternalError):
    """The budget is unknown: no prices, or a ledger that cannot be read or written."""

    reason = "bad_spending"


class SpendingCapError(SpendingError):
    """The cap of a day is reached; "above_cap": one request may cost more than the cap of a whole day."""

    reason = "spending_cap"
