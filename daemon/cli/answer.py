"""The answers of verbs: a document with text for people, or a listing with its columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from daemon.cli.render import note, say, short_ids, table
from store.text import clean

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with its text, or the text's writer, and the exit code."""

    document: DataclassInstance
    text: str | Callable[[], None] = ""
    code: int = 0

    def show(self) -> None:
        """Write the text for people."""
        if callable(self.text):
            self.text()
        elif self.text:
            say(self.text)


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column of a listing.

    Attributes:
        header: its heading.
        cell: returns its text in a row.
        id: it holds ids; a table shows their beginnings.
        shrink: it is cut if a row does not fit the terminal.
        spare: its place among the columns left out before another one is cut too far; 0: it stays.
        name: it is cut at its beginning.
    """

    header: str
    cell: Callable[[Row], str]
    id: bool = False
    shrink: bool = False
    spare: int = 0
    name: bool = False


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    """Rows as a table, and the document for `--json`.

    Attributes:
        rows: in order; those of a group together.
        columns: the table's.
        document: has the rows, and other facts for programs.
        empty: the answer without rows.
        group: returns the headings to put above a row if they are new.
        above: lines before the table.
        below: lines after it, without control characters.
        total: the last line, with the number of rows and of those left out.
        more: how to see the rows beyond a limit; "" without any.
    """

    rows: Sequence[Row]
    columns: Sequence[Column[Row]]
    document: DataclassInstance
    empty: str
    group: Callable[[Row], tuple[str, ...]] | None = None
    above: Sequence[str] = ()
    below: Sequence[str] = ()
    total: str = ""
    more: str = ""
    code: int = 0

    def show(self) -> None:
        """Write the table."""
        for line in self.above:
            say(clean(line))
        if self.rows:
            self._show_rows()
            for line in self.below:
                say(line)
            if self.total:
                say(self.total)
        else:
            say(self.empty)
        if self.more:
            note(f"everlean: {self.more}")

    def _show_rows(self) -> None:
        spare = sorted((column.spare, index) for index, column in enumerate(self.columns) if column.spare)
        table(
            [column.header for column in self.columns],
            zip(*(_cells(column, self.rows) for column in self.columns), strict=True),
            shrink=tuple(index for index, column in enumerate(self.columns) if column.shrink),
            spare=tuple(index for _, index in spare),
            names=tuple(index for index, column in enumerate(self.columns) if column.name),
            indent=4 if self.group else 2,
            groups=[self.group(row) for row in self.rows] if self.group else (),
        )


def _cells(column: Column[Row], rows: Sequence[Row]) -> list[str]:
    cells = [column.cell(row) for row in rows]
    if not column.id:
        return cells
    short = short_ids(cells)
    return [short[cell] for cell in cells]


def place(row: Any) -> tuple[str, str]:
    """Return the headings of a row with a place: repository and branch, then file."""
    return f"{row.repository} ({row.branch})", row.path


def nothing(what: str, *filters: object) -> str:
    """Return the answer without rows: none fits the filters, or there is none yet."""
    return f"no {what} matches" if any(filters) else f"no {what} yet"


def limited(rows: list[Row], most: int) -> tuple[list[Row], str]:
    """Return the first rows, and how to see the others; `most` 0 is all of them."""
    if not most or len(rows) <= most:
        return rows, ""
    return rows[:most], f"only the first {most}; --limit 0 shows all"
