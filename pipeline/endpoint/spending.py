"""The budget of external models and programs: a cap for each UTC day, shared by all processes.

Before a request its maximum cost is reserved, afterwards the real amount is booked. Both are lines of an append-only
ledger with a file for each day, written under a lock; each has the day's total with it. An unsettled reservation (the
process was killed: the endpoint may have answered, and will charge) counts in full. Money counts on the day of its
reservation.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline.endpoint.errors import SpendingCapError, SpendingError, Usage
from store.files import lock, sync

_log = logging.getLogger(__name__)
# Sums of many small amounts are not exact.
_ROUNDING_USD = 1e-9
_END = 1 << 16
"""Bytes at a file's end with its last whole line."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A line of a day's ledger, to be settled."""

    id: str
    day: str
    usd: float | None


class Spending:
    """A cap, and a ledger shared with others. For several threads and processes."""

    def __init__(
        self,
        *,
        ledger: Path | None = None,
        cap_usd: float | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Args:
        ledger: the path of the ledger; each day's file has its name with the day added; None: no ledger, and so no cap.
        cap_usd: for a UTC day, over everything in the ledger; None: no cap.
        now: the time, with its zone.

        Raises:
            SpendingError: the cap cannot be enforced.
        """
        if cap_usd is not None and ledger is None:
            raise SpendingError("cap_usd is set and there is no ledger to hold it with; set ledger")
        self.cap_usd = cap_usd
        self._ledger = ledger
        self._now = now

    def reserve(self, usd: float | None, *, spender: str = "") -> Reservation:
        """Reserve the maximum cost of a request; None if it is unknown.

        Raises:
            SpendingCapError: the day's cap is too low, or ("above_cap") every day's.
            SpendingError: the ledger cannot be read or written.
        """
        at = self._now().astimezone(UTC)
        reservation = Reservation(uuid.uuid4().hex, at.date().isoformat(), usd)
        if self._ledger is None:
            return reservation
        with self._locked(reservation.day) as descriptor:
            spent = self._total(descriptor, reservation.day)
            if self.cap_usd is not None and usd is not None:
                self._check(spent, usd, at)
            line = {
                "kind": "reserved",
                "id": reservation.id,
                "at": at.isoformat(),
                "usd": usd,
                "total": spent + (usd or 0.0),
                "spender": spender,
            }
            self._append(descriptor, line)
        return reservation

    def book(self, reserved: Reservation, usage: Usage) -> None:
        """Settle a reservation with the cost.

        Raises:
            SpendingError: the ledger cannot be written. The reservation then stands.
        """
        if self._ledger is None:
            return
        at = self._now().astimezone(UTC).isoformat()
        with self._locked(reserved.day) as descriptor:
            spent = max(
                0.0, self._total(descriptor, reserved.day) + (usage.usd or 0.0) - (reserved.usd or 0.0)
            )
            line = {"kind": "booked", **asdict(usage), "total": spent, "id": reserved.id, "at": at}
            self._append(descriptor, line)

    def _check(self, spent: float, usd: float, at: datetime) -> None:
        assert self.cap_usd is not None
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
        raise SpendingCapError(message + remedy, "above_cap" if above else "")

    def _total(self, descriptor: int, day: str) -> float:
        """Return the amount in a day's file, in US dollars: that of its last whole line."""
        size = os.fstat(descriptor).st_size
        for line in reversed(os.pread(descriptor, _END, max(0, size - _END)).splitlines()):
            try:
                return float(json.loads(line)["total"])
            except (ValueError, KeyError, TypeError):
                # A truncated line settles nothing; a truncated reservation's request was never sent.
                _log.warning("a damaged line of the ledger is passed over: %r", line[:200])
        if size > _END:
            assert self._ledger is not None
            raise SpendingError(
                f"no line at the end of the ledger {file_of(self._ledger, day)} can be read, so the amount of this day "
                "is unknown and nothing is asked. Cut the damaged end off: a line with a total must be the last"
            )
        return 0.0

    @contextmanager
    def _locked(self, day: str) -> Iterator[int]:
        """Open and lock a day's file; name it in its errors."""
        assert self._ledger is not None
        path = file_of(self._ledger, day)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with lock(descriptor):
                yield descriptor
        except OSError as error:
            raise SpendingError(
                f"the ledger {path} cannot be used ({error.strerror}); nothing is asked that could not be "
                "written down. Make room, or let this user write there"
            ) from error

    def _append(self, descriptor: int, line: dict[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        size = os.fstat(descriptor).st_size
        # A process killed during a write left a partial line: it must not swallow this one.
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            data = b"\n" + data
        while data:
            data = data[os.write(descriptor, data) :]
        sync(descriptor)


def file_of(ledger: Path, day: str) -> Path:
    """Return the file of a ledger's day (YYYY-MM-DD)."""
    return ledger.with_name(f"{ledger.stem}-{day}{ledger.suffix}")
