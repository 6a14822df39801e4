"""Documents: frozen dataclasses with one form in JSON; docs/cli.md lists their fields (`make docs`).

A field with the default None is left out if it is None; any other is there, null or not. A class made from
part of a row names its shown fields in SHOWN.
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


def of_row(cls: type[Document], row: object, **values: object) -> Document:
    """Return a document of the given fields and, for the others, a row's attributes of the same names."""
    return cls(**{name: values[name] if name in values else getattr(row, name) for name in _fields(cls)})


def plain(value: Any) -> Any:
    """Return JSON's form of a document's value."""
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
    """Return the names of a dataclass's fields, each with whether it is left out if None."""
    return {field.name: field.default is None for field in fields_of(cls)}
