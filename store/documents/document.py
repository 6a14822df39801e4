"""Documents are frozen dataclasses, whose fields docs/cli.md lists (`make docs`); each has one form in JSON.

A field whose default is None is left out where it is None; any other is there, null or not. A class that is made of a
row and does not show all of it names in SHOWN what it shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields as fields_of
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from store.text import printable_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


Document = TypeVar("Document", bound="DataclassInstance")
SCHEMA = 1
NO_HEAD: Mapping[str, object] = {}


def json_text(
    document: DataclassInstance, head: Mapping[str, object] = NO_HEAD, *, indent: int | None = None
) -> str:
    """Return one document with its schema number and `head` before it."""
    whole = {"schema": SCHEMA, **head, **plain(document)}
    return printable_json(whole, indent=indent, default=plain)


def of_row(cls: type[Document], row: object, **given: object) -> Document:
    """Return a document made of what is given and, for its other fields, of a row's attributes of the same names."""
    return cls(**{name: given[name] if name in given else getattr(row, name) for name in _fields(cls)})


def plain(value: Any) -> Any:
    """Return what JSON has for a value of a document."""
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "as_json"):
        return value.as_json()
    if is_dataclass(value) and not isinstance(value, type):
        optional = _fields(type(value))
        shown = ((name, getattr(value, name)) for name in getattr(value, "SHOWN", optional))
        return {name: result for name, result in shown if result is not None or not optional.get(name)}
    raise TypeError(f"{type(value).__name__} is no JSON")


@cache
def _fields(cls: type[DataclassInstance]) -> dict[str, bool]:
    """Return the names of a dataclass's fields, each with whether it is left out where it is None."""
    return {field.name: field.default is None for field in fields_of(cls)}
