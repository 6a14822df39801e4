"""Answers for people and for programs: tables, colour, one JSON document. `store.text` has the words.

Standard library only (rich would cost more start-up time than the answer).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from store.documents.document import NO_HEAD, SCHEMA, json_text, plain
from store.text import clean, printable_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_BARS = "▁▂▃▄▅▆▇█"
LEAST_WIDTH = 10
"""Of a column cut to fit."""
READABLE_WIDTH = 24
"""Of the columns cut to fit, while another column can be left out instead."""
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "inverse": "7"}
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")


def emit_json(document: DataclassInstance, head: Mapping[str, object] = NO_HEAD) -> None:
    """Write one document with its schema number and `head` before it, then a newline, to standard output.

    Indented for a person at a terminal only: Python's fast encoder writes no indentation.
    """
    sys.stdout.write(json_text(document, head, indent=2 if sys.stdout.isatty() else None) + "\n")


def emit_json_line(document: DataclassInstance) -> None:
    """Write one line of NDJSON and flush it, so that a reader at the other end of a pipe sees it now."""
    whole = {"schema": SCHEMA, **plain(document)}
    sys.stdout.write(printable_json(whole, default=plain) + "\n")
    sys.stdout.flush()


def say(text: str = "", *, hang: int | None = None, wrap: bool = True) -> None:
    """Write a line for people to standard output; on a terminal a long one goes on below, from column `hang`.

    Code, settings and diffs are written with `wrap` false: people copy them, and our line breaks would stay
    in.
    """
    width = terminal_width() if wrap and sys.stdout.isatty() else None
    print(text if width is None else "\n".join(_wrapped(line, width, hang) for line in text.split("\n")))


def _wrapped(line: str, width: int, hang: int | None) -> str:
    """Return a line broken between words, also one with colours."""
    bare = _COLOUR.sub("", line)
    if _width(bare) <= width:
        return line
    margin = " " * min(width // 2, len(bare) - len(bare.lstrip(" ")) + 2 if hang is None else hang)
    rows: list[str] = []
    row = ""
    for word in re.findall(r" *[^ ]+", line):
        if row.strip() and _width(_COLOUR.sub("", row + word)) > width:
            rows.append(row)
            row = margin + word.lstrip(" ")
        else:
            row += word
    return "\n".join([*rows, row])


def note(text: str) -> None:
    """Write a line for people to standard error, beside the answer."""
    print(text, file=sys.stderr)


def styled(text: str, *styles: str) -> str:
    """Return text with colours, if there are any."""
    if not styles or not has_colour():
        return text
    return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}\x1b[0m"


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    shrink: tuple[int, ...] = (),
    spare: tuple[int, ...] = (),
    names: tuple[int, ...] = (),
    indent: int = 2,
    groups: Sequence[tuple[str, ...]] = (),
) -> None:
    """Write an aligned table without borders; with `groups`, a row's new headings stand above it.

    If a row does not fit the terminal, the columns of `spare` are left out, in their order, while those of
    `shrink` would become unreadable; then these are cut, the widest first. A column of `names` is cut at its
    beginning: the end of a Lean name says more.
    """
    cells = [tuple(headers), *(tuple(clean(cell) for cell in row) for row in rows)]
    widths = {index: max(_width(row[index]) for row in cells) for index in range(len(headers))}
    limit = terminal_width()
    if limit is not None:
        for left_out in (*spare, None):
            over = sum(widths.values()) + 2 * (len(widths) - 1) + indent - limit
            cut = _narrowed({index: widths[index] for index in shrink if index in widths}, over)
            if left_out is None or all(cut[index] >= min(widths[index], READABLE_WIDTH) for index in cut):
                widths |= cut
                break
            del widths[left_out]
    above: tuple[str, ...] = ()
    for number, row in enumerate(cells):
        if groups and number:
            headings = groups[number - 1]
            for level, heading in enumerate(headings):
                if headings[: level + 1] != above[: level + 1]:
                    say(styled("  " * level + clean(heading), "dim" if level > 1 else "bold"))
            above = headings
        line = " " * indent
        for index, width in widths.items():
            text = _cut(row[index], width, end=index in names and number > 0)
            line += text + " " * (width - _width(text) + 2)
        line = line.rstrip()
        say(styled(line, "dim") if number == 0 else line)


def sparkline(numbers: Sequence[int]) -> str:
    """Return a bar for each number, the lowest for the least of them."""
    least = min(numbers)
    step = max(max(numbers) - least, 1) / (len(_BARS) - 1)
    return "".join(_BARS[round((number - least) / step)] for number in numbers)


def _narrowed(widths: dict[int, int], over: int) -> dict[int, int]:
    """Return the widths less `over` characters in all, taken from the widest; none goes below
    `LEAST_WIDTH`."""
    narrow = dict(widths)
    for _ in range(over):
        widest = max(narrow, key=lambda index: narrow[index], default=None)
        if widest is None or narrow[widest] <= LEAST_WIDTH:
            break
        narrow[widest] -= 1
    return narrow


def fields(pairs: Iterable[tuple[str, str]], *, indent: int = 2) -> None:
    """Write `name  value` lines with the values aligned; empty values are left out, lines of a value stay
    lines."""
    rows = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        first, *rest = value.split("\n")
        hang = indent + width + 2
        say(f"{' ' * indent}{styled(name.ljust(width), 'dim')}  {first}", hang=hang)
        for line in rest:
            say(f"{' ' * hang}{line}", hang=hang)


SHORT_ID = 8
"""Characters of an id in a table."""


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return each id's beginning for a table: 8 characters, or more to tell all apart.

    A job's id begins with its kind, which is not counted.
    """
    targets = sorted(set(ids))
    length = SHORT_ID
    while True:
        short = {one: one[: one.rfind("-") + 1 + length] for one in targets}
        if len(set(short.values())) == len(targets):
            return short
        length += 4


def cut_line(line: str, width: int) -> str:
    """Cut a line, which may have colour in it, to a terminal's width."""
    if _width(_COLOUR.sub("", line)) <= width:
        return line
    left, parts = width, []
    for part in _COLOUR.split(line):
        if part.startswith("\x1b["):
            parts.append(part)
            continue
        piece = part if _width(part) < left else _cut(part + " ", left)
        parts.append(piece)
        left -= _width(piece)
        if left <= 0:
            break
    return "".join(parts) + ("\x1b[0m" if len(parts) > 1 else "")


def has_colour() -> bool:
    """Return whether answers have colours: standard output is a terminal that wants them."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int | None:
    """Return the terminal's width; None for a pipe, which gets every character."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit():
        return shutil.get_terminal_size().columns
    return None


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) != 0 for char in text)


def _cut(text: str, width: int, *, end: bool = False) -> str:
    """Cut a text to a width: its end is left out, or with `end` its beginning."""
    if _width(text) <= width:
        return text
    rest = text[1 - width :] if end and width > 1 else text[: max(width - 1, 0)]
    while rest and _width(rest) > width - 1:
        rest = rest[1:] if end else rest[:-1]
    return "…" + rest if end else rest + "…"


def check_choice(value: str | None, choices: tuple[str, ...], *, option: str) -> None:
    """Refuse a value that is not one of the choices.

    Raises:
        typer.BadParameter: with the choices in its message.
    """
    if value is not None and value not in choices:
        raise typer.BadParameter(f'"{value}" is none of {", ".join(choices)}', param_hint=option)
