"""The JSON schema of a document: its fields with their types, and the docstrings below them."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import re
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TYPES = {
    str: "string", bool: "boolean", int: "integer", float: "number", NoneType: "null",
    Path: "string", datetime: "string",
}  # fmt: skip


def schema_of(document: type) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of a document: a dataclass, as `store.documents.document.plain` writes it."""
    definitions: dict[str, Any] = {}
    _reference(document, definitions)
    whole = definitions.pop(document.__name__)
    return {"$schema": DIALECT, "title": document.__name__, **whole, "$defs": definitions}


def _reference(document: type, definitions: dict[str, Any]) -> dict[str, Any]:
    name = document.__name__
    if name not in definitions:
        definitions[name] = {}
        definitions[name] = _object(document, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _object(document: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    docs: dict[str, str] = {}
    for cls in filter(is_dataclass, reversed(document.__mro__)):
        hints |= inspect.get_annotations(cls, globals=_names(cls.__module__), eval_str=True)
        docs |= _attributes_of(cls) | attribute_docs(cls)
    optional = {field.name: field.default is None for field in fields(document)}
    properties = {}
    for name in getattr(document, "SHOWN", optional):
        hint, doc = hints.get(name), docs.get(name, "")
        if isinstance(computed := getattr(document, name, None), property):
            hint = get_type_hints(computed.fget, _names(computed.fget.__module__))["return"]
            doc = inspect.getdoc(computed) or ""
        properties[name] = {**_of(hint, definitions), **({"description": doc} if doc else {})}
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if not optional.get(name)],
        "additionalProperties": False,
    }


def _of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a field of this type."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or hint is object or hasattr(hint, "as_json"):
        return {}
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    if origin is Literal:
        return {"enum": [*inner]}
    if origin in (Union, UnionType):
        parts = [_of(one, definitions) for one in inner]
        if all(part.keys() == {"type"} for part in parts):
            return {"type": [part["type"] for part in parts]}
        return {"anyOf": parts}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of(inner[1], definitions)}
    if origin is not None:
        return {"type": "array", "items": _of(inner[0], definitions)}
    if issubclass(hint, enum.Enum):
        return {"enum": [one.value for one in hint]}
    return _reference(hint, definitions)


@cache
def _names(module: str) -> dict[str, Any]:
    """Return the names of a loaded module, also its imports for the type checker alone."""
    names = dict(vars(sys.modules[module]))
    for node in ast.walk(syntax_of(module)):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for one in node.body:
                # `_typeshed` is no module at run time.
                if isinstance(one, ast.ImportFrom) and one.module and one.module != "_typeshed":
                    result = vars(importlib.import_module(one.module))
                    names |= {alias.asname or alias.name: result[alias.name] for alias in one.names}
    return names


def _attributes_of(cls: type) -> dict[str, str]:
    """Return the attributes listed in a class's docstring under "Attributes:", each as one line."""
    listed = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")[2].partition("\n\n")[0]
    result = re.split(r"^ {4}(\w+): ", listed, flags=re.MULTILINE)[1:]
    return {name: " ".join(text.split()) for name, text in zip(result[::2], result[1::2], strict=True)}


@cache
def attribute_docs(cls: type) -> dict[str, str]:
    """Return the docstrings below the attributes of a class, each as one line."""
    body: Any = syntax_of(cls.__module__)
    for name in cls.__qualname__.split("."):
        # The last one counts: `inspect` would parse the whole module for each class.
        body = [node for node in body.body if isinstance(node, ast.ClassDef) and node.name == name][-1]
    result = {}
    for statement, after in zip(body.body, body.body[1:], strict=False):
        target = statement.target if isinstance(statement, ast.AnnAssign) else None
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]  # type: ignore[assignment] # a member of an enumeration
        if (
            isinstance(target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            result[target.id] = " ".join(str(after.value.value).split())
    return result


@cache
def syntax_of(module: str) -> ast.Module:
    """Return the syntax tree of a loaded module."""
    return ast.parse(inspect.getsource(sys.modules[module]))
