"""Words and numbers for people: times, spans, sizes, counts, and any text as one safe line.

Text from watched repositories is hostile: control characters never reach a terminal. And the values of a JSON
list larger than memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO


def clean(text: str) -> str:
    """Make one printable line out of any text: white space collapsed, control characters shown as �."""
    return printable(one_line(text))


def clean_block(text: str) -> str:
    """Like `clean`, but lines and tabs stay, and line ends are the same in every file."""
    lines = text.replace("\r\n", "\n")
    if lines.replace("\n", "").replace("\t", "").isprintable():
        return lines
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in lines)


def printable(text: str) -> str:
    """Show each control character of terminals and pages as �, line breaks among them."""
    return text if text.isprintable() else "".join(one if one.isprintable() else "�" for one in text)


def printable_json(value: object, **options: Any) -> str:
    """Return JSON with all control characters of terminals and pages escaped: it reads back unchanged.

    Args:
        options: those of `json.dumps`.
    """
    text = json.dumps(value, ensure_ascii=False, **options)
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)


def one_line(text: str) -> str:
    """Collapse all white space to single spaces."""
    return " ".join(text.split())


def cut(text: str, most: int) -> str:
    """Return a text of at most `most` characters; "…" ends a longer one."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def shown(value: object, most: int = 80) -> str:
    """Return a value in Python's notation, for a message about a wrong one."""
    return cut(repr(value), most)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its type's name, for a message of our own."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def end_of(output: str, most: int = 2000) -> str:
    """Return the end of a program's output on one line; "nothing" if it is empty."""
    return one_line(output[-most:]) or "nothing"


def headline(text: str) -> str:
    """Return the first line of a message, the problem; the rest are compilers' words."""
    return clean(text.split("\n", 1)[0])


def parse_time(text: str) -> datetime:
    """Read a time of the log or the view; they are all UTC."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


_AGO = re.compile(r"(\d{1,6})\s*(m|h|d|w)(?:\s+ago)?")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(text: str, now: datetime) -> datetime:
    """Read a person's time: "90m", "7d", "2w ago", "today", "yesterday", or ISO 8601.

    Days begin at midnight UTC, and a time without a zone is UTC.

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


def counted(number: int, noun: str, many: str = "") -> str:
    """Return "1 sorry", "2 sorries", "2,000 jobs"; `many` for phrases with an irregular plural."""
    return f"{number:,} {noun if number == 1 else many or plural(noun)}"


def plural(noun: str) -> str:
    """Return "sorries" for "sorry", "branches" for "branch", "jobs" for "job"."""
    if noun.endswith("ry"):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("ch", "s")) else f"{noun}s"


def listed(names: Sequence[str], most: int) -> str:
    """Return "a, b, c" or, if there are more than `most`, "a, b and 3 more"."""
    return ", ".join(names[:most]) + and_more(len(names) - most)


def in_words(items: Sequence[str]) -> str:
    """Return a list for a sentence: "a, b and c"."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def and_more(number: int) -> str:
    """Return " and 3 more" for the rest of a list, "" for none."""
    return f" and {number:,} more" if number > 0 else ""


def gigabytes(size_bytes: float) -> str:
    """Return a limit or an amount of memory in the settings' form: "3.5G"."""
    return f"{size_bytes / 2**30:.1f}G"


def by_state(counts: dict[str, int]) -> str:
    """Return "2 open, 1 verified"."""
    return ", ".join(f"{count:,} {state}" for state, count in counts.items())


_CHUNK = 1 << 20
_DECODER = json.JSONDecoder()
# The text before a value, and at the end of the list.
_FIRST = re.compile(r"\s*\[\s*(?!\])"), re.compile(r"\s*\[\s*\]\s*")
_FURTHER = re.compile(r"\s*,\s*"), re.compile(r"\s*\]\s*")


def json_items(file: TextIO, decoder: json.JSONDecoder = _DECODER) -> Iterator[Any]:
    """Yield the values of a JSON list, as read by the standard library: the list may be larger than memory.

    Raises:
        ValueError, RecursionError: it is no list, or the next value is none; UnicodeDecodeError: no text is
            there.
    """
    text, at, first = file.read(_CHUNK), 0, True
    while True:
        before, end = _FIRST if first else _FURTHER
        try:
            match = before.match(text, at)
            if match is None:
                raise json.JSONDecodeError("a list of values should stand there", text, at)
            value, stop = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            # The end of the buffer may cut the value.
            further = file.read(max(_CHUNK, len(text) - at))
            if further:
                text, at = text[at:] + further, 0
                continue
            if end.fullmatch(text, at):
                return
            raise
        yield value
        at, first = stop, False
