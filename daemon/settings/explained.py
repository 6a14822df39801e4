"""Every setting of config.toml: its table, default, limits and meaning.

`everlean config explain` prints this, and `make docs` writes docs/configuration.md from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from daemon.settings.schema import ConfigFile
from daemon.settings.types import Duration, Size, toml_of
from store.documents.schema import attribute_docs


@dataclass(frozen=True, slots=True)
class Explained:
    table: str
    """its heading, such as [notify.webhook] or [[repos]]"""
    key: str
    default: str | None
    """in TOML; null if it is required"""
    limits: str
    """such as "1 to 100"; empty without limits"""
    meaning: str
    """its purpose, and a reason to change it"""

    @property
    def name(self) -> str:
        """Return its whole name, such as "notify.webhook.url"."""
        return f"{self.table.strip('[]')}.{self.key}"

    @property
    def default_text(self) -> str:
        """Return its default and its limits."""
        text = "required" if self.default is None else f"`{self.default}`"
        return f"{text} ({self.limits})" if self.limits else text

    @property
    def in_a_sentence(self) -> str:
        """Return the first sentence of its meaning."""
        return re.split(r"(?<!\be\.g)\.\s(?=[A-Z`])", self.meaning)[0].removesuffix(".")


def explained() -> list[Explained]:
    """Return all settings, table by table."""
    result = []
    for table, model in tables():
        meanings = attribute_docs(model)
        for name, field in model.model_fields.items():
            inner, is_list = _table(field)
            if inner is not None and not is_list:
                continue  # it has a table of its own
            default = (
                None if field.is_required() else toml_of(field, field.get_default(call_default_factory=True))
            )
            result.append(Explained(table, field.alias or name, default, _limits(field), meanings[name]))
    return result


def tables(model: type[BaseModel] = ConfigFile, path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield every table of config.toml as its heading and its model."""
    for name, field in model.model_fields.items():
        key = f"{path}{field.alias or name}"
        inner, is_list = _table(field)
        if inner is not None:
            yield (f"[[{key}]]" if is_list else f"[{key}]"), inner
            yield from tables(inner, f"{key}.")


def _table(field: FieldInfo) -> tuple[type[BaseModel] | None, bool]:
    """Return the model of a table's field, or None, and whether it is a list of tables."""
    annotation = field.annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    if get_origin(annotation) is tuple:
        first = get_args(annotation)[0]
        if isinstance(first, type) and issubclass(first, BaseModel):
            return first, True
    assert get_origin(annotation) not in (Union, UnionType) or not any(
        isinstance(one, type) and issubclass(one, BaseModel) for one in get_args(annotation)
    )
    return None, False


def _limits(field: FieldInfo) -> str:
    """Return the limits of a setting; "" without any."""
    result: dict[str, object] = {}
    for marker in field.metadata:
        if isinstance(marker, Duration | Size):
            return str(marker)
        result |= {bound: getattr(marker, bound) for bound in ("ge", "gt", "le") if hasattr(marker, bound)}
    if "ge" in result and "le" in result:
        return f"{result['ge']} to {result['le']}"
    words = {"ge": "at least", "gt": "more than", "le": "at most"}
    return ", ".join(f"{word} {result[bound]}" for bound, word in words.items() if bound in result)
