"""What sections are made of: tables, figures, and how values are written. SIMULATED is written in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from pipeline.report.charts import safe

SIMULATED = "SIMULATED"
UNDEFINED = "undefined"
_LONG_WORD = 20
"""Characters from which on a row's head may break anywhere, and has room."""
MADE_BY, DATA_OF = "Made by", "Data of"
"""Headers of the columns that hold `made_by` and `data_of`."""
_NUMBER = re.compile(r"[+-]?\d+\.\d+( \([\d.]+ to [\d.]+\))?|[\d,]+:\d\d:\d\d")
_WIDEST_ESCAPE = len("&quot;")
LONG_TABLE = 15
"""Rows from which on a table is folded in."""
LONGEST = 600
"""Characters of a text from elsewhere that are shown; a name or a reason may have any length."""

Value = str | int | float | None
"""Of a table's cell: text, a number (right-aligned; a float to one decimal), or None for what is not known."""


@dataclass(slots=True)
class Section:
    """A part of the page below a heading of its own, and its pictures by the name of their file, without .svg."""

    identity: str
    heading: str
    body: str = ""
    pictures: dict[str, str] = field(default_factory=dict)

    def add(self, *parts: str) -> None:
        """Put HTML at the end."""
        self.body += "".join(parts)

    def draw(self, name: str, svg: str) -> None:
        """Put a picture at the end. A wide one scrolls in its own box, which the keyboard can reach."""
        self.pictures[name] = svg
        self.body += (
            f'<figure class="scroll" tabindex="0" role="group" aria-label="Picture: {name}">{svg}</figure>'
        )

    def html(self) -> str:
        """Return the section, named by its heading."""
        heading = f'<h2 id="{self.identity}">{safe(self.heading)}</h2>'
        return f'<section aria-labelledby="{self.identity}">{heading}{self.body}</section>'


def paragraph(words: str, *, dim: bool = False) -> str:
    """Return a paragraph of plain text."""
    named = ' class="dim"' if dim else ""
    return f"<p{named}>{safe(words)}</p>"


def table(
    caption: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[Value]],
    *,
    long: Sequence[str] = (),
    folded: bool | None = None,
    empty: str = "",
) -> str:
    """Return a table that scrolls in its own box; where there is no row, a paragraph that says so.

    Args:
        caption: what it holds.
        headers: of the columns; the first one's cells head their rows.
        rows: as many values each as there are headers.
        long: headers of columns of long text, which may break anywhere.
        folded: whether it is shown only when asked for; None: if it has `LONG_TABLE` rows or more. A long one that is
            not scrolls upwards too, below its head.
        empty: what would make a first row, for where there is none.
    """
    if not rows:
        return paragraph(
            f"{caption}: none yet; the first comes with {empty}." if empty else f"{caption}: none."
        )
    kinds = [
        "long" if name in long else "t" if name.endswith("(UTC)") or name in (MADE_BY, DATA_OF) else ""
        for name in headers
    ]
    # Where there are numbers, they stand below one another, and so does what is said in place of one.
    kinds = [
        kind or ("n" if number and any(_is_number(row[number]) for row in rows) else "")
        for number, kind in enumerate(kinds)
    ]
    head = "".join(map(_head, headers, kinds))
    first = (
        ' class="t"'
        if kinds[0] == "t"
        else ' class="long"'
        if any(len(written(row[0])) > _LONG_WORD for row in rows)
        else ""
    )
    body = "".join(
        f'<tr><th scope="row"{first}>{_isolated(written(row[0]))}</th>{"".join(map(_cell, row[1:], kinds[1:]))}</tr>'
        for row in rows
    )
    tall = " tall" if folded is False and len(rows) >= LONG_TABLE else ""
    whole = (
        f'<div class="scroll{tall}" role="group" aria-label="{safe(caption)}" tabindex="0"><table>'
        f"<caption><span>{safe(caption)}</span></caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
    if folded is None:
        folded = len(rows) >= LONG_TABLE
    return (
        f"<details><summary>{safe(caption)}: {len(rows)} rows</summary>{whole}</details>" if folded else whole
    )


def written(value: Value) -> str:
    """Return a cell's text."""
    if value is None:
        return "unknown"
    return (
        f"{value:,.1f}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else shortened(value)
    )


def shortened(words: str, most: int = LONGEST) -> str:
    """Return text that takes at most so many characters once it is escaped; it says where there was more."""
    kept = words[:most]
    while (over := len(escape(kept)) - most) > 0:
        kept = kept[: -max(1, over // _WIDEST_ESCAPE)]
    left = len(words) - len(kept)
    return f"{kept}… ({left:,} more characters)" if left else words


def made_by(simulated: bool) -> str:
    """Say in words who made something."""
    return f"{SIMULATED}: the simulator" if simulated else "a real run"


def data_of(simulated: bool) -> str:
    """Say in words whose data a model learned from or was measured on."""
    return f"{SIMULATED}: the simulator" if simulated else "Lean"


def measure(value: float | None) -> str:
    """Return a measure to three decimals."""
    return UNDEFINED if value is None else f"{value:.3f}"


def moment(text: str) -> str:
    """A time to the second."""
    return text[:19].replace("T", " ") if text[10:11] == "T" else text


def span(seconds: float) -> str:
    """Return a time span in the unit that suits it."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def clock(seconds: float) -> str:
    """Return a time span as h:mm:ss, which stands below another one in a column."""
    whole = round(seconds)
    return f"{whole // 3600:,}:{whole // 60 % 60:02}:{whole % 60:02}"


def size(size_bytes: int | None) -> str | None:
    """Return a number of bytes in MiB."""
    return None if size_bytes is None else f"{size_bytes / 2**20:,.0f} MiB"


def _head(name: str, kind: str) -> str:
    css = ' class="n"' if kind == "n" else ""
    return f'<th scope="col"{css}>{safe(name)}</th>'


def _is_number(value: Value) -> bool:
    """Whether it is one, is written as one, or is one that is not known."""
    return not isinstance(value, str) or _NUMBER.fullmatch(value) is not None


def _cell(value: Value, kind: str) -> str:
    words = written(value)
    kind = f"{kind} fake".lstrip() if words.startswith(SIMULATED) else kind
    named = f' class="{kind}"' if kind else ""
    return f"<td{named}>{_isolated(words)}</td>"


def _isolated(text: str) -> str:
    """Text of any writing direction, which leaves that of what stands around it alone."""
    return safe(text) if text.isascii() else f"<bdi>{safe(text)}</bdi>"
