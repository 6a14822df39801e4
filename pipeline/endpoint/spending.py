"""The budget of external models: a cap for each UTC day, shared by all processes.

Before a request the most that it can cost is reserved, after it the real amount is booked. Both are lines of a ledger,
which is only ever appended to, under a lock. A reservation that was never settled (the process was killed: the endpoint
may have answered, and will be paid) counts in full. Money counts on the day on which it was reserved.
"""

from __future__ import annotations

import json
import logging
import math
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline.endpoint.errors import RequestAboveCapError, SpendingCapError, SpendingError, Usage
from store.files import lock, sync

_log = logging.getLogger(__name__)
_MILLION = 1_000_000
# Sums of many small amounts are not exact.
_ROUNDING_USD = 1e-9
_BLOCK_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars for a million tokens."""

    usd_per_million_prompt: float
    usd_per_million_completion: float

    def __post_init__(self) -> None:
        for name in ("usd_per_million_prompt", "usd_per_million_completion"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise SpendingError(f"{name} is {value!r}: it takes a number of dollars, 0 or more")

    def usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the cost of tokens."""
        return (
            prompt_tokens * self.usd_per_million_prompt + completion_tokens * self.usd_per_million_completion
        ) / _MILLION


@dataclass(frozen=True, slots=True)
class Reservation:
    """The most that a request may cost; `usd` is None where no prices are known."""

    id: str
    day: str
    prompt_tokens: int
    completion_tokens: int
    usd: float | None


class Spending:
    """The prices of one model, and a ledger that others may share. For several threads and processes."""

    def __init__(
        self,
        *,
        ledger: Path | None = None,
        prices: Prices | None = None,
        cap_usd: float | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Args:
        ledger: the file; None: no ledger, and so no cap.
        prices: of the model; None: unknown, and so no cap.
        cap_usd: for a UTC day, over everything in the ledger; None: no cap.
        now: the time, with its zone.

        Raises:
            SpendingError: the cap cannot be enforced.
        """
        if cap_usd is not None:
            if not (math.isfinite(cap_usd) and cap_usd >= 0):
                raise SpendingError(f"cap_usd is {cap_usd!r}: it takes a number of dollars, 0 or more")
            if prices is None:
                raise SpendingError(
                    f"cap_usd is {cap_usd:g} and no prices are set, so that it is unknown when it is reached. Set "
                    "usd_per_million_prompt and usd_per_million_completion to what the endpoint charges (0 for a free "
                    "one), or remove cap_usd"
                )
            if ledger is None:
                raise SpendingError("cap_usd is set and there is no ledger to hold it with; set ledger")
        self.prices = prices
        self.cap_usd = cap_usd
        self._ledger = ledger
        self._now = now
        self._read = _LedgerReader()

    def reserve(self, prompt_tokens: int, completion_tokens: int, *, model: str = "") -> Reservation:
        """Reserve the most that a request can cost.

        Raises:
            SpendingCapError: the day's cap does not allow it; `RequestAboveCapError`: no day's does.
            SpendingError: the ledger cannot be read or written.
        """
        usd = None if self.prices is None else self.prices.usd(prompt_tokens, completion_tokens)
        return self._reserve(prompt_tokens, completion_tokens, usd, model)

    def reserve_usd(self, usd: float, *, what: str) -> Reservation:
        """Reserve an amount that is known, of what no one counts in tokens.

        Raises:
            SpendingCapError, SpendingError: see `reserve`.
        """
        return self._reserve(0, 0, usd, what)

    def _reserve(
        self, prompt_tokens: int, completion_tokens: int, usd: float | None, model: str
    ) -> Reservation:
        at = self._now().astimezone(UTC)
        reservation = Reservation(
            uuid.uuid4().hex, at.date().isoformat(), prompt_tokens, completion_tokens, usd
        )
        if self._ledger is None:
            return reservation
        with self._locked() as descriptor:
            if self.cap_usd is not None and usd is not None:
                self._check(descriptor, reservation.day, usd, at)
            self._append(descriptor, {"kind": "reserved", **_line(reservation, at), "model": model})
        return reservation

    def book(self, reserved: Reservation, usage: tuple[int, int] | None) -> Usage:
        """Settle a reservation with the tokens (prompt, completion) that the endpoint counted.

        None: the answer had no numbers or was lost; the whole reservation is then booked.

        Raises:
            SpendingError: the ledger cannot be written. The reservation counts as it is.
        """
        booked = self.usage((reserved.prompt_tokens, reserved.completion_tokens), usage)
        self._settle({"kind": "booked", **asdict(booked)}, reserved)
        return booked

    def book_usd(self, reserved: Reservation, usd: float | None) -> None:
        """Settle a reservation with what the spender says that it cost: never with less than was reserved, and with
        more up to the spender's cap, for what it says may be anyone's words and the ledger is shared.

        Raises:
            SpendingError: the ledger cannot be written. The reservation counts as it is.
        """
        said = min(usd or 0.0, self.cap_usd or 0.0)
        booked = Usage(usd=max(reserved.usd or 0.0, said), estimated=usd is None)
        self._settle({"kind": "booked", **asdict(booked)}, reserved)

    def usage(self, most: tuple[int, int], counted: tuple[int, int] | None) -> Usage:
        """Return the cost of an answer: by the tokens that the endpoint counted, else by the most that it can be."""
        usd = None if self.prices is None else self.prices.usd(*(counted or most))
        return Usage(*(counted or most), usd, estimated=counted is None)

    def release(self, reserved: Reservation) -> None:
        """Give a reservation back: the request cost nothing.

        Raises:
            SpendingError: the ledger cannot be written. The reservation counts as it is.
        """
        self._settle({"kind": "released", "usd": 0.0}, reserved)

    def spent_usd(self) -> float:
        """Return the amount spent or reserved today.

        Raises:
            SpendingError: the ledger cannot be read.
        """
        if self._ledger is None:
            return 0.0
        with self._locked() as descriptor:
            return self._read.total(descriptor, self._now().astimezone(UTC).date().isoformat())

    def _check(self, descriptor: int, day: str, usd: float, at: datetime) -> None:
        assert self.cap_usd is not None
        spent = self._read.total(descriptor, day)
        if spent + usd <= self.cap_usd + _ROUNDING_USD:
            return
        frees_at = datetime(at.year, at.month, at.day, tzinfo=UTC) + timedelta(days=1)
        message = (
            f"the spending cap of ${self.cap_usd:g} a day (UTC) leaves no room: ${spent:.4f} are spent or reserved, and"
            f" this request may cost ${usd:.4f}."
        )
        above = usd > self.cap_usd + _ROUNDING_USD
        if above:
            remedy = " No day has room for it: raise the cap, or lower max_tokens or the number of proofs"
        else:
            remedy = f" It frees at {frees_at:%Y-%m-%d %H:%M} UTC; or raise the cap (usd_per_day)"
        error = RequestAboveCapError if above else SpendingCapError
        raise error(message + remedy, cap_usd=self.cap_usd, spent_usd=spent, frees_at=frees_at)

    def _settle(self, line: dict[str, Any], reserved: Reservation) -> None:
        if self._ledger is None:
            return
        with self._locked() as descriptor:
            settled = {"id": reserved.id, "day": reserved.day, "at": self._now().astimezone(UTC).isoformat()}
            self._append(descriptor, line | settled)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Open and lock the ledger; turn its errors into errors that name it."""
        assert self._ledger is not None
        try:
            self._ledger.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._ledger, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with lock(descriptor):
                yield descriptor
        except OSError as error:
            raise SpendingError(
                f"the ledger {self._ledger} cannot be used ({error.strerror}); nothing is asked that could not be "
                "written down. Make room, or let this user write there"
            ) from error

    def _append(self, descriptor: int, line: dict[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        size = os.fstat(descriptor).st_size
        # A process that was killed while it wrote left a part of a line: it must not swallow this one.
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            data = b"\n" + data
        while data:
            data = data[os.write(descriptor, data) :]
        sync(descriptor)


@dataclass(slots=True)
class _LedgerReader:
    """The amounts read from a ledger so far, for one day: each read continues at the last offset."""

    day: str = ""
    file: tuple[int, int] = (0, 0)
    offset: int = 0
    amounts: dict[str, float] | None = None

    def total(self, descriptor: int, day: str) -> float:
        """Return the amount spent or reserved on a day, in US dollars."""
        result = os.fstat(descriptor)
        file = (result.st_dev, result.st_ino)
        if self.amounts is None or self.day != day or self.file != file or result.st_size < self.offset:
            self.day, self.file, self.amounts, self.offset = day, file, {}, 0
        # All of it: where the clock was set, lines of today stand among those of other days.
        rest, at, sought = b"", self.offset, day.encode()
        while data := os.pread(descriptor, _BLOCK_BYTES, at):
            at += len(data)
            data = rest + data
            whole = data.rfind(b"\n") + 1
            rest = data[whole:]
            # Most blocks of a long ledger have no line of today: they are only searched.
            if sought in data:
                for line in data[:whole].splitlines():
                    if sought in line:
                        self._take(line)
            self.offset += whole
        return math.fsum(self.amounts.values())

    def _take(self, line: bytes) -> None:
        assert self.amounts is not None
        try:
            result = json.loads(line)
            if result["day"] == self.day:
                self.amounts[str(result["id"])] = float(result["usd"] or 0.0)
        except (ValueError, KeyError, TypeError):
            # A truncated line settles nothing; if it was a reservation, its request was never sent.
            _log.warning("a damaged line of the ledger is passed over: %r", line[:200])


def _line(made: Reservation, at: datetime) -> dict[str, Any]:
    return {
        "id": made.id,
        "day": made.day,
        "at": at.isoformat(),
        "prompt_tokens": made.prompt_tokens,
        "completion_tokens": made.completion_tokens,
        "usd": made.usd,
    }
