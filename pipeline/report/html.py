"""The pieces of a page: its tables, pictures and sections, the format of values, and the templates.

The templates escape every text (autoescape) and replace its control characters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from pipeline.report import FILTER, POLICY
from pipeline.report.charts import ORIGIN
from store.text import clean_block, counted, cut

if TYPE_CHECKING:
    from jinja2 import Environment

LONG_TABLE = 15
"""Tables from this number of rows on are folded."""
LONGEST = 600
"""Maximum characters of a text from elsewhere; a name or a reason may have any length."""
_LONG_WORD = 20
"""From this length on a row's head may break anywhere, and has room."""
_NUMBER = re.compile(r"[+-]?\d+\.\d+")

Value = str | int | float | None
"""A table's cell: text, a number (right-aligned; a float to one decimal), or None if unknown."""


@cache
def environment() -> Environment:
    """Return the templates' environment; jinja2 is loaded here, since a digest needs none."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("pipeline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        n=lambda number: f"{number:,}",
        moment=moment,
        short=short,
        counted=counted,
        parted=parted,
    )
    made.globals.update(POLICY=POLICY, ORIGIN=ORIGIN, FILTER=FILTER)
    return made


def _finalized(value: Any) -> Any:
    """Replace control characters in each text of a template, before escaping."""
    return value if hasattr(value, "__html__") else clean_block(str(value))


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a scrollbar of its own; without a row it is left out.

    Attributes:
        caption: its contents.
        headers: of the columns; the first one's cells head their rows.
        rows: as many values in each as there are headers.
        long: headers of columns of long text, which may break anywhere.
    """

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Value]]
    long: Sequence[str] = ()

    @property
    def is_folded(self) -> bool:
        return len(self.rows) >= LONG_TABLE

    @property
    def head(self) -> list[tuple[str, str]]:
        """Return each header with the class of its column."""
        return [(name, self._kind(at)) for at, name in enumerate(self.headers)]

    @property
    def body(self) -> Iterator[list[tuple[str, str]]]:
        """Yield each row as texts with their classes."""
        kinds = [kind for _, kind in self.head]
        if kinds[0] != "t":
            kinds[0] = "long" if any(len(written(row[0])) > _LONG_WORD for row in self.rows) else ""
        for row in self.rows:
            yield [(written(value), kind) for value, kind in zip(row, kinds, strict=True)]

    def _kind(self, at: int) -> str:
        name = self.headers[at]
        if name in self.long:
            return "long"
        if name.endswith("(UTC)"):
            return "t"
        # In a column with numbers the words in place of one are aligned as they are.
        return "n" if at and any(_is_number(row[at]) for row in self.rows) else ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture, and the name of its file without .svg."""

    name: str
    svg: str


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page below a heading of its own, and its pictures."""

    identity: str
    heading: str
    html: str
    pictures: tuple[Picture, ...]


def macro(name: str, /, **parts: Any) -> str:
    """Return the output of a template macro."""
    # As it comes, so that a template that gets it does not escape it again.
    result: str = getattr(environment().get_template("macros.html").module, name)(**parts)
    return result


def section(identity: str, heading: str, named: str, **parts: Any) -> Section:
    """Return a section: the named macro's HTML below its heading, and the pictures among its parts."""
    html = macro("section", identity=identity, heading=heading, body=macro(named, **parts))
    return Section(identity, heading, html, tuple(one for one in parts.values() if isinstance(one, Picture)))


def _is_number(value: Value) -> bool:
    """Return whether a value is a number, a written one, or unknown."""
    return not isinstance(value, str) or _NUMBER.fullmatch(value) is not None


def written(value: Value) -> str:
    """Return a cell's text."""
    if value is None:
        return "unknown"
    if isinstance(value, str):
        return short(value)
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def short(words: str, most: int = LONGEST) -> str:
    """Return at most so many characters of a text."""
    return cut(words, most)


def parted(name: str, before: str, mark: str) -> tuple[str, str]:
    """Return a name in two at its last mark, without the beginning that all share."""
    shown = short(name.removeprefix(before), 200)
    at = shown.rfind(mark) + 1
    return shown[:at], shown[at:]


def figure(value: float) -> str:
    """Return a number to four digits."""
    return f"{value:.4g}" if math.isfinite(value) else str(value).replace("inf", "∞")


def moment(text: str) -> str:
    """Return a time to the second."""
    return text[:19].replace("T", " ") if text[10:11] == "T" else text
