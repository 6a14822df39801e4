"""A client of an OpenAI-compatible chat endpoint: time limits, retries, a spending cap, and secrets kept.

    async with ChatClient(EndpointSpec(base_url="http://127.0.0.1:8000/v1", model="org/model")) as client:
        chat = await client.complete(Ask(messages, max_tokens=512), count=4)

Transient failures (429, 500, 502, 503, 504, 529, lost connections, time limits) are retried after a doubling wait, or
after the seconds of Retry-After; other failures are reported at once. A redirect is not followed: it would carry the
key to another host. A request that may have been charged counts as charged (see `spending`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from itertools import chain
from types import TracebackType
from typing import NoReturn
from urllib.parse import urlsplit

from pipeline.endpoint.address import checked_address, is_local, private_address, requests_url
from pipeline.endpoint.answers import PaidAnswers
from pipeline.endpoint.credentials import read_key
from pipeline.endpoint.dialect import (
    Answer,
    Ask,
    Choice,
    Complaint,
    Dialect,
    NotUnderstoodError,
    complaint,
    read_answer,
)
from pipeline.endpoint.errors import EndpointError, ExternalError, SpendingError, Usage
from pipeline.endpoint.spending import Reservation, Spending
from pipeline.http_client import HttpClient, NoAnswerError, NoAnswerReason
from pipeline.jobs.spec import KeyPlace
from pipeline.jobs.specs import EndpointSpec
from pipeline.redact import redact
from store.backoff import Backoff

_log = logging.getLogger(__name__)
_OVERLOADED = frozenset({429, 500, 502, 503, 504, 529})
_BACKOFF = Backoff(1.0, 60.0)
_GATEWAY_TIMEOUT = 504
_MILLION = 1_000_000
LONGEST_ANSWER_BYTES = 8 << 20
"""Longer answers are not read."""
_LONGEST_WAIT_S = 120.0
"""An endpoint with a longer Retry-After is given up."""
_REMEDIES = {
    "auth_failed": "check the key (systemd's credential, or the environment variable) and what it may be used for",
    "no_such_model": "check base_url and model",
    "no_credit": "the account has nothing left to spend; see its billing page",
    "bad_request": "check model and max_tokens",
    "overloaded": "try again later",
    "timeout": "set a longer timeout, or fewer max_tokens",
    "unreachable": "check base_url and the network",
    "hung_up": "try again later; if it stays so, the endpoint's own log says why",
    "forbidden": "check what the key may be used for; a filter before the endpoint may refuse this text",
    "redirected": "set base_url to where it leads, if you trust that place with the key",
    "not_understood": "check base_url; a proxy or a login page may be in between",
}
_REASONS = {401: "auth_failed", 402: "no_credit", 403: "forbidden", 404: "no_such_model"}


@dataclass(frozen=True, slots=True)
class Chat:
    """Answers in order, and their usage. `missing` is the reason for fewer than requested; else ""."""

    choices: tuple[Choice, ...]
    usage: Usage
    missing: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The complete texts."""
        return tuple(choice.text for choice in self.choices if not choice.flaw)

    @property
    def left_out(self) -> Mapping[str, int]:
        """The number of unusable answers, by reason."""
        return Counter(choice.flaw for choice in self.choices if choice.flaw)


_NO_ANSWER: Mapping[NoAnswerReason, tuple[str, bool]] = {
    "no_connection": ("unreachable", False),
    "late": ("timeout", True),
    "too_long": ("not_understood", True),
    "broken": ("hung_up", True),
}
"""The reason to count, and whether the endpoint may have charged for an answer."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """A request without an answer.

    Attributes:
        reason: see `EndpointError`.
        text: for people.
        paid: whether the endpoint may have charged for a lost answer.
        again: whether another try may help.
        wait_s: the endpoint's Retry-After, in seconds.
        about: the endpoint's complaint, if its request may be at fault.
    """

    reason: str
    text: str
    paid: bool = False
    again: bool = False
    wait_s: float | None = None
    about: Complaint | None = None


@dataclass(slots=True)
class _Call:
    """A request with its retries: its deadline and its usage so far."""

    ask: Ask
    deadline: float | None
    usage: Usage = field(default_factory=Usage)


class ChatClient:
    """Asks one endpoint. Used on one event loop; a context manager that closes its connections."""

    def __init__(
        self,
        endpoint: EndpointSpec,
        *,
        concurrency: int = 4,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Args:
        endpoint: its address, its model, the place of its key, and the limits of a request and of its cost.
        concurrency: requests under way at once.
        sleep, clock, now: the time, for tests.

        Raises:
            EndpointError: the address cannot be used, the key would go over the net unencrypted, or paid answers
                cannot be kept.
            CredentialError: the key cannot be used. SpendingError: the cap cannot be enforced.
        """
        key = read_key(KeyPlace(endpoint.credential, endpoint.key_variable))
        try:
            (private_address if key else checked_address)(endpoint.base_url)
        except ValueError as error:
            raise EndpointError(f"base_url {error}", "bad_request") from None
        if not endpoint.model:
            raise EndpointError(f"no model is named for {endpoint.base_url}; set model", "bad_request")
        self.endpoint = endpoint
        self._url = requests_url(endpoint.base_url)
        self._key = key
        if endpoint.cap_usd is not None and self._usd((0, 0)) is None:
            raise SpendingError(
                f"cap_usd is {endpoint.cap_usd:g} and no prices are set, so that it is unknown when it is reached. Set "
                "usd_per_million_prompt and usd_per_million_completion to what the endpoint charges (0 for a free "
                "one), or remove cap_usd"
            )
        self._spending = Spending(ledger=endpoint.ledger, cap_usd=endpoint.cap_usd, now=now)
        self._answers = PaidAnswers(endpoint.answers, self._url, endpoint.model)
        # A reused answer costs nothing more.
        self._counted: set[str] = set()
        self._sleep, self._clock = sleep, clock
        self._dialect = Dialect()
        self._turn = asyncio.Semaphore(concurrency)
        headers = {
            "Accept": "application/json",
            "User-Agent": f"everlean/{version('everlean')}",
        }
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._client = HttpClient(
            seconds=endpoint.timeout_s,
            most_bytes=LONGEST_ANSWER_BYTES,
            headers=headers,
            from_environment=not is_local(endpoint.base_url),
        )

    async def __aenter__(self) -> ChatClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def complete(
        self,
        ask: Ask,
        *,
        count: int = 1,
        seconds: float | None = None,
    ) -> Chat:
        """Return `count` answers, in one request if the endpoint supports it, else one by one.

        Args:
            ask: the request.
            count: of answers.
            seconds: for all of it, retries included; None: no limit beside the endpoint's own.

        Raises:
            ExternalError: no answer came; its `usage` is the amount spent.
        """
        deadline = None if seconds is None else self._clock() + seconds
        usage, failures = Usage(), list[ExternalError]()

        async def asked_for(number: int, wanted: int) -> tuple[Choice, ...]:
            nonlocal usage
            # The same seed would draw the same answer again.
            call = _Call(ask if ask.seed is None else replace(ask, seed=ask.seed + number), deadline)
            try:
                return (await self._answered(call, wanted)).choices
            except ExternalError as error:
                failures.append(error)
                return ()
            finally:
                usage += call.usage

        choices: tuple[Choice, ...] = ()
        if count > 1 and self._dialect.several:
            choices = await asked_for(0, count)
            if not failures and len(choices) < count:
                self._dialect.several = False
        if not failures:
            others = await asyncio.gather(*(asked_for(number, 1) for number in range(len(choices), count)))
            choices = (*choices, *chain.from_iterable(others))
        if failures and not choices:
            failures[0].usage = usage
            raise failures[0]
        return Chat(choices[:count], usage, str(failures[0]) if failures else "")

    # ---- one request

    async def _answered(self, call: _Call, count: int) -> Answer:
        """Return the answer to a request: the paid one, else by sending it until it is answered or fails."""
        failed = 0
        while True:
            async with self._turn:
                wanted = count if self._dialect.several else 1
                name = self._answers.name(call.ask, wanted)
                most = (call.ask.most_prompt_tokens, call.ask.max_tokens * wanted)
                if (kept := await asyncio.to_thread(self._answers.get, name)) is not None:
                    if name not in self._counted:
                        call.usage += self._cost(most, kept.tokens)
                        self._counted.add(name)
                    return kept
                body = self._dialect.body(self.endpoint.model, call.ask, wanted)
                # The ledger is written in a thread: another process may hold its lock, and the disk is slow. A
                # cancelled caller leaves the reservation: the endpoint may be writing already.
                reserved = await asyncio.to_thread(
                    partial(self._spending.reserve, self._usd(most), spender=self.endpoint.model)
                )
                result = await self._sent(body, call)
            if isinstance(result, Answer):
                self._counted.add(name)
                usage = self._cost(most, result.tokens)
                await asyncio.to_thread(self._book, reserved, usage, name, result.data)
                call.usage += usage
                return result
            usage = self._cost(most, None) if result.paid else Usage(usd=self._usd((0, 0)))
            await asyncio.to_thread(self._spending.book, reserved, usage)
            call.usage += usage
            if result.about is not None and self._dialect.learn(body, result.about):
                continue
            failed += 1
            await self._wait(result, failed, call)

    def _usd(self, tokens: tuple[int, int]) -> float | None:
        """Return the cost of prompt and completion; None without prices."""
        prompt = self.endpoint.usd_per_million_prompt
        completion = self.endpoint.usd_per_million_completion
        if prompt is None or completion is None:
            return None
        return (tokens[0] * prompt + tokens[1] * completion) / _MILLION

    def _cost(self, most: tuple[int, int], counted: tuple[int, int] | None) -> Usage:
        """Return the cost of an answer: by the endpoint's counts of tokens, else by the maximum."""
        tokens = counted or most
        return Usage(*tokens, self._usd(tokens))

    def _book(self, reserved: Reservation, usage: Usage, name: str, reply: bytes) -> None:
        """Keep a reply and book its cost; a kill between the two leaves the reservation, which counts in full.

        A reply with the key in it is not kept: the key is written to no disk.
        """
        if self._key is None or self._key.encode() not in reply:
            self._answers.put(name, reply)
        self._spending.book(reserved, usage)

    async def _sent(self, body: dict[str, object], call: _Call) -> Answer | _Failure:
        """Send a request once. Return a failure instead of raising it: an exception would hold the request's key."""
        left = self.endpoint.timeout_s
        if call.deadline is not None:
            left = min(left, call.deadline - self._clock())
        if left <= 0:
            return _Failure("timeout", "no time was left to ask it")
        try:
            reply = await self._client.call("POST", self._url, content=body, seconds=left)
        except NoAnswerError as error:
            reason, paid = _NO_ANSWER[error.reason]
            return _Failure(reason, str(error), paid=paid, again=error.reason != "too_long")
        if reply.status != 200:
            return self._refusal(reply.status, reply.headers, complaint(reply.data))
        try:
            return read_answer(reply.data)
        except NotUnderstoodError as error:
            return _Failure("not_understood", str(error), paid=True)

    def _refusal(self, status: int, headers: Mapping[str, str], about: Complaint) -> _Failure:
        # An endpoint that refuses the key is not quoted: this record stays forever, and the text may hold the key in
        # any encoding.
        quoted = "" if self._key and status in (401, 403, 407) else f": {about.text}"
        without = " (no key was sent)" if status in (401, 403) and not self._key else ""
        text = f"it answered {status}{without}{quoted}"
        if 300 <= status < 400:
            try:
                place = urlsplit(headers.get("location", "")).netloc[:100]
            except ValueError:
                place = ""
            text = f"it answered {status}: it redirects to {place or 'another address'}"
            return _Failure("redirected", text)
        if about.spent:
            return _Failure("no_credit", text)
        if status in _OVERLOADED:
            after = headers.get("retry-after", "").strip()
            wait_s = float(after) if after.replace(".", "", 1).isdecimal() else None
            # A gateway that timed out says nothing of the endpoint, which may still have answered.
            return _Failure("overloaded", text, status == _GATEWAY_TIMEOUT, True, wait_s)
        at_fault = about if status in (400, 422) else None
        return _Failure(_REASONS.get(status, "bad_request"), text, about=at_fault)

    async def _wait(self, failure: _Failure, failed: int, call: _Call) -> None:
        """Wait before another try.

        Raises:
            EndpointError: another try is useless, or the retries are used up.
        """
        if not failure.again:
            self._fail(failure)
        wait = _BACKOFF.wait_s(failed)
        if failure.wait_s is not None:
            wait = failure.wait_s
            if wait > _LONGEST_WAIT_S:
                self._fail(failure, f"; it wants to be left alone for {wait:.0f} s")
        if failed > self.endpoint.retries:
            self._fail(failure, f"; asked {failed} times")
        if call.deadline is not None and self._clock() + wait >= call.deadline:
            self._fail(failure, "; no time is left for another try")
        _log.info("%s: %s; asked again in %.1f s", self.endpoint.base_url, self._clean(failure.text), wait)
        await self._sleep(wait)

    def _fail(self, failure: _Failure, end: str = "") -> NoReturn:
        text, remedy = self._clean(f"{failure.text}{end}"), _REMEDIES[failure.reason]
        message = f"{self.endpoint.base_url} ({self.endpoint.model}): {text}. Remedy: {remedy}"
        raise EndpointError(message, failure.reason)

    def _clean(self, text: str) -> str:
        """Return a text of the endpoint or the HTTP library without the key."""
        return redact(text, secrets=(self._key or "",))
