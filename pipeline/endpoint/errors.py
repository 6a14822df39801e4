"""Errors of a model behind an endpoint. `reason` is stable; an error concerns one request alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of requests, and their cost. `usd` is None without prices; `estimated`: an answer without numbers, or a
    lost one, counts at its maximum.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        known = [usd for usd in (self.usd, other.usd) if usd is not None]
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            sum(known) if known else None,
            self.estimated or other.estimated,
        )

    def since(self, before: Usage) -> Usage:
        """Return the difference to an earlier total."""
        return Usage(
            self.prompt_tokens - before.prompt_tokens,
            self.completion_tokens - before.completion_tokens,
            None if self.usd is None else self.usd - (before.usd or 0.0),
            self.estimated,
        )


class ExternalError(Exception):
    """An external model cannot be used, or does not answer. `usage` is the amount spent nevertheless."""

    reason = "external"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.usage = Usage()


class EndpointError(ExternalError):
    """The endpoint refuses, is out of reach, or sends an unreadable answer.

    `reason` is "bad_request", "auth_failed", "forbidden", "no_such_model", "no_credit", "overloaded", "timeout",
    "unreachable", "hung_up", "redirected" or "not_understood"; `status` the last HTTP status, None without
    one.
    """

    def __init__(self, reason: str, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status


class CredentialError(ExternalError):
    """A key cannot be used: other users can read its file, or its content is not a key."""

    reason = "bad_credential"


class SpendingError(ExternalError):
    """The budget is unknown: no prices, or a ledger that cannot be read or written."""

    reason = "bad_spending"


class AnswersError(ExternalError):
    """The endpoint's answers cannot be kept, and would be paid for twice."""

    reason = "answers_not_kept"


class SpendingCapError(SpendingError):
    """The cap of a day is reached."""

    reason = "spending_cap"


class RequestAboveCapError(SpendingCapError):
    """One request may cost more than the cap of a whole day."""

    reason = "above_cap"
