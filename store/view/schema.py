"""The declaration of a table by its row class: fields are columns, key and indexes stand above the class.

The view's statements (`store.view.tables`) and the models for notebooks (`store.view.models`) follow from the
declarations. Standard library only: see `store.view.queries`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeVar, dataclass_transform

Row = TypeVar("Row")

_KINDS = {"str": "TEXT", "int": "INTEGER", "bool": "INTEGER", "float": "REAL"}
_WORDS = frozenset({"by", "column", "commit", "index", "key", "of"})
"""Names of columns that are words of SQL. A missing one fails at the creation of its table."""


class Column(NamedTuple):
    """A column: the field of the row class, its type without None, and whether it may be NULL.

    Lists and dicts are JSON in `*_json` columns, booleans are 0 and 1.
    """

    field: str
    type: str
    optional: bool

    @property
    def is_json(self) -> bool:
        """Whether the column holds JSON."""
        return self.type.startswith(("list", "dict"))

    @property
    def name(self) -> str:
        """The column's name in the table."""
        return f"{self.field}_json" if self.is_json else self.field

    @property
    def declaration(self) -> str:
        """The column for CREATE TABLE, with a type of STRICT tables."""
        kind = "TEXT" if self.is_json else _KINDS[self.type]
        return f"{_quote(self.name)} {kind}{'' if self.optional else ' NOT NULL'}"


class Index(NamedTuple):
    """An index: its columns, and the condition on its rows; "" for all."""

    name: str
    columns: tuple[str, ...]
    where: str = ""


@dataclass(frozen=True)
class Table:
    """A table, and the class of its rows. The key's columns are in key order."""

    name: str
    row: type[Any]
    key: tuple[str, ...]
    indexes: tuple[Index, ...]
    unique: str
    """A column beside the key without repeated values; "" for none."""
    only_key: bool
    """Queries use its whole key and nothing else: the key's index is all of it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns, in their order."""
        return tuple(column.name for column in columns_of(self.row))

    @property
    def statements(self) -> tuple[str, ...]:
        """The statements for it and its indexes."""
        lines = [column.declaration for column in columns_of(self.row)]
        lines.append(f"PRIMARY KEY ({_list(self.key)})")
        if self.unique:
            lines.append(f"UNIQUE ({_quote(self.unique)})")
        body = ",\n\t".join(lines)
        options = "\n WITHOUT ROWID, STRICT" if self.only_key else " STRICT"
        result = [f"CREATE TABLE {self.name} (\n\t{body}\n){options}"]
        for index in sorted(self.indexes):
            where = f" WHERE {index.where}" if index.where else ""
            result.append(f"CREATE INDEX {index.name} ON {self.name} ({_list(index.columns)}){where}")
        return tuple(result)


_DECLARED: dict[type[Any], Table] = {}


@dataclass_transform(frozen_default=True)
def table(
    name: str,
    *,
    key: tuple[str, ...],
    indexes: tuple[Index, ...] = (),
    unique: str = "",
    only_key: bool = False,
) -> Callable[[type[Row]], type[Row]]:
    """Make a class a frozen dataclass with slots, and declare the table of its rows; see `Table`."""

    # Type checkers take it for a dataclass without slots, as the models have its fields as attributes of the
    # class.
    def declare(cls: type[Row]) -> type[Row]:
        row = dataclass(frozen=True, slots=True)(cls)
        _DECLARED[row] = Table(name, row, key, indexes, unique, only_key)
        return row

    return declare


def table_of(row: type[Any]) -> Table:
    """Return the table declared by a row class."""
    return _DECLARED[row]


def declared() -> tuple[Table, ...]:
    """Return the tables of the loaded modules, by name; `store.view.tables.table_list` has all."""
    return tuple(sorted(_DECLARED.values(), key=lambda one: one.name))


def columns_of(row: type[Any]) -> tuple[Column, ...]:
    """Return the columns of a row class, in the order of its fields."""
    return tuple(
        Column(field.name, str(field.type).removesuffix(" | None"), str(field.type).endswith(" | None"))
        for field in fields(row)
    )


def _quote(name: str) -> str:
    return f'"{name}"' if name in _WORDS else name


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(map(_quote, names))
