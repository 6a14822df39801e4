"""Words and numbers for people: times, spans, sizes, counts, and any text as one line that is safe to print.

Text from watched repositories is hostile: control characters never reach a terminal.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta


def clean(text: str) -> str:
    """Make one printable line out of any text: white space collapsed, control characters shown as �."""
    collapsed = " ".join(text.split())
    if collapsed.isprintable():
        return collapsed
    return "".join(char if char.isprintable() else "�" for char in collapsed)


def clean_block(text: str) -> str:
    """Like `clean`, but lines and tabs stay."""
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)


def headline(text: str) -> str:
    """Return the first line of a message, which says what is wrong; what follows it are compilers' words."""
    return clean(text.split("\n", 1)[0])


def parse_time(text: str) -> datetime:
    """Read a time of the log or the view; they are all UTC."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


_AGO = re.compile(r"(\d{1,6})\s*(m|h|d|w)(?:\s+ago)?")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(text: str, now: datetime) -> datetime:
    """Read what a person writes for a time: "90m", "7d", "2w ago", "today", "yesterday", or ISO 8601.

    Days begin at midnight UTC, and a time that names no zone is UTC.

    Raises:
        ValueError: it is none of these; the message names them.
    """
    words = text.strip().lower()
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if words in ("today", "yesterday"):
        return midnight - timedelta(days=words == "yesterday")
    try:
        if past := _AGO.fullmatch(words):
            return now - timedelta(**{_UNITS[past[2]]: int(past[1])})
        return parse_time(text.strip())
    except (ValueError, OverflowError):
        raise ValueError("such as 7d, yesterday or 2026-07-01T12:00 (UTC)") from None


def ago(text: str | None, *, now: datetime | None = None, never: str = "never") -> str:
    """Return "3m ago", "in 4m", "just now"; `never` for None."""
    if text is None:
        return never
    seconds = ((now or datetime.now(UTC)) - parse_time(text)).total_seconds()
    if abs(seconds) < 1:
        return "just now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def span(seconds: float | None) -> str:
    """Return the two leading units at most: "0.4s", "12s", "3m", "2h5m", "4d"."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.1f}s".replace(".0s", "s")
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes}m{rest}s" if minutes < 5 and rest else f"{minutes}m"
    if whole < 86400:
        hours, rest = divmod(whole, 3600)
        return f"{hours}h{rest // 60}m" if rest >= 60 else f"{hours}h"
    return f"{whole // 86400}d"


def size(size_bytes: float | None) -> str:
    """Return "312 MiB"."""
    if size_bytes is None:
        return ""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"


def counted(number: int, noun: str) -> str:
    """Return "1 sorry", "2 sorries", "2,000 jobs"."""
    many = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"


def by_state(counts: dict[str, int]) -> str:
    """Return "2 open, 1 verified"."""
    return ", ".join(f"{count:,} {state}" for state, count in counts.items())
