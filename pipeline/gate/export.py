"""Reads an export: declarations of Lean as text, in lean4export's format 3.1.0, as `Questions.lean` writes it.

A line is a JSON object: the header, a name (`in`), a universe level (`il`), a term (`ie`), or a declaration. A node is
numbered in the order of its table and made of earlier ones. Whatever is not exactly so is refused: an unknown kind of
record, a forward reference, a number out of order, the same node or declaration twice, a field too many or too few.

Each node and each declaration gets a SHA-256 of what it means, made of those of its parts, so that two exports are
compared whatever their numbers are. What does not count: the names and kinds of bound variables, the proof of a theorem
(any two are the same), hints on what to unfold first, and which definitions were written together.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FORMAT = "3.1.0"
Name = tuple[str, ...]
"""A name's parts; a number among them has a `#` before it, a text that begins with one a second."""


class ExportError(ValueError):
    """This is no export; the text says in which line and why."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A declared constant. `digest` is of what it means, `type_digest` of its type and universe parameters alone."""

    kind: str
    digest: bytes
    type_digest: bytes


@dataclass(slots=True)
class Export:
    """What an export declares, by name. Inductive types that belong together share one digest.

    `undeclared` are constants that its terms mention and that it does not declare. `names` and `terms` are its tables,
    by number: `type_of` reads what an answer says by numbers.
    """

    lean: str = ""
    names: list[Name] = field(default_factory=lambda: [()])
    terms: list[bytes] = field(default_factory=list)
    declared: dict[Name, Declared] = field(default_factory=dict)
    undeclared: frozenset[Name] = frozenset()

    @property
    def axioms(self) -> frozenset[Name]:
        """The declared axioms."""
        return frozenset(name for name, one in self.declared.items() if one.kind == "axiom")

    def type_of(self, levels: Sequence[int], term: int) -> bytes:
        """Return the digest of a type with its universe parameters, by their numbers; see `Declared.type_digest`."""
        if not 0 <= term < len(self.terms) or not all(0 < one < len(self.names) for one in levels):
            raise ExportError("a number that the export does not have")
        return _type_digest([self.names[one] for one in levels], self.terms[term])


def read_export(lines: Iterable[str]) -> Export:
    """Read an export's lines, without their ends.

    Raises:
        ExportError: see there.
    """
    reader = _Reader()
    number = 0
    for number, line in enumerate(lines, 1):
        try:
            reader.line(line, first=number == 1)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ExportError(f"line {number} of the export: {error}: {line[:200]}") from None
    if number == 0:
        raise ExportError("the export is empty")
    export = reader.export
    export.undeclared = frozenset(reader.mentioned - export.declared.keys())
    return export


def shown(name: Name) -> str:
    """Return a name for people."""
    return ".".join(part if part.isidentifier() or part[:1] == "#" else f"«{part}»" for part in name)


# ---- nodes

_N = r"(0|[1-9]\d{0,17})"
_TEXT = r'("(?:[^"\\\x00-\x1f]|\\["\\]|\\u00[01][0-9a-f])*")'
_NODE = re.compile(rf'\{{"(in|il|ie)":{_N},"([A-Za-z]+)":(.+)\}}')
_BINDER = rf'\{{"name":{_N},"type":{_N},"body":{_N},"binderInfo":"(?:default|implicit|strictImplicit|instImplicit)"\}}'
_LET = rf'\{{"name":{_N},"type":{_N},"value":{_N},"body":{_N},"nondep":(?:true|false)\}}'
_SHAPES: Mapping[str, tuple[str, re.Pattern[str]]] = {
    kind: (table, re.compile(shape))
    for kind, table, shape in (
        ("str", "in", rf'\{{"pre":{_N},"str":{_TEXT}\}}'),
        ("num", "in", rf'\{{"pre":{_N},"i":{_N}\}}'),
        ("succ", "il", _N),
        ("max", "il", rf"\[{_N},{_N}\]"),
        ("imax", "il", rf"\[{_N},{_N}\]"),
        ("param", "il", _N),
        ("bvar", "ie", _N),
        ("sort", "ie", _N),
        ("const", "ie", rf'\{{"name":{_N},"us":\[((?:\d+(?:,\d+)*)?)\]\}}'),
        ("app", "ie", rf'\{{"fn":{_N},"arg":{_N}\}}'),
        ("lam", "ie", _BINDER),
        ("forallE", "ie", _BINDER),
        ("letE", "ie", _LET),
        ("proj", "ie", rf'\{{"typeName":{_N},"idx":{_N},"struct":{_N}\}}'),
        ("natVal", "ie", r'"(0|[1-9]\d*)"'),
        ("strVal", "ie", _TEXT),
    )
}


def _digest(*parts: object) -> bytes:
    """Return the SHA-256 of parts, each with its length, so that no two lists are the same text."""
    out = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        out.update(b"%d:" % len(data))
        out.update(data)
    return out.digest()


def _type_digest(levels: Sequence[Name], term: bytes) -> bytes:
    return _digest("type", *(json.dumps(one) for one in levels), term)


class _Reader:
    def __init__(self) -> None:
        self.export = Export()
        self.mentioned: set[Name] = set()
        self._levels: list[bytes] = [_digest("zero")]
        self._seen: set[Name | bytes] = {(), *self._levels}
        self._records: Mapping[str, Callable[[Any], None]] = {
            "axiom": self._axiom,
            "def": self._definition,
            "thm": self._theorem,
            "opaque": self._opaque,
            "quot": self._quotient,
            "inductive": self._inductive,
        }

    def line(self, text: str, *, first: bool) -> None:
        found = _NODE.fullmatch(text)
        if found is not None and not first:
            self._node(found[1], int(found[2]), found[3], found[4])
            return
        raw = json.loads(text, object_pairs_hook=_once)
        if not isinstance(raw, dict):
            raise ValueError("no record")
        (kind, body), *more = raw.items()
        if more or first != (kind == "meta"):
            raise ValueError("a record in the wrong place")
        if first:
            self._meta(body)
        else:
            self._records[kind](body)

    def _meta(self, body: Any) -> None:
        _fields(body, exporter=dict, lean=dict, format=dict)
        _fields(body["lean"], version=str, githash=str)
        _fields(body["exporter"], name=str, version=str)
        if body["format"] != {"version": FORMAT}:
            raise ValueError(f"not in format {FORMAT}")
        self.export.lean = body["lean"]["version"]

    # ---- nodes

    def _node(self, table: str, number: int, kind: str, text: str) -> None:
        wanted, shape = _SHAPES[kind]
        found = shape.fullmatch(text)
        if found is None or wanted != table:
            raise ValueError(f"no {kind}")
        parts = found.groups()
        if table == "ie":
            node = self._term(kind, parts)
            self._append(self.export.terms, number, node)
        elif table == "il":
            numbers = [int(part) for part in parts]
            below = [self._name(numbers[0])] if kind == "param" else [self._levels[one] for one in numbers]
            self._append(self._levels, number, _digest(kind, *below))
        else:
            last = f"#{int(parts[1])}" if kind == "num" else json.loads(parts[1])
            last = f"#{last}" if kind == "str" and last.startswith("#") else last
            self._append(self.export.names, number, (*self.export.names[int(parts[0])], last))

    def _append(self, table: list[Any], number: int, node: Any) -> None:
        if number != len(table):
            raise ValueError(f"number {number} where {len(table)} is next")
        if node in self._seen:
            raise ValueError("a node for the second time")
        self._seen.add(node)
        table.append(node)

    def _name(self, number: int) -> bytes:
        return json.dumps(self.export.names[number]).encode()

    def _term(self, kind: str, parts: Sequence[str]) -> bytes:
        terms = self.export.terms
        match kind:
            case "app":
                return _digest("app", terms[int(parts[0])], terms[int(parts[1])])
            case "const":
                name = self.export.names[int(parts[0])]
                self.mentioned.add(name)
                levels = [self._levels[int(one)] for one in parts[1].split(",") if one]
                return _digest("const", json.dumps(name), *levels)
            case "lam" | "forallE" | "letE":
                self.export.names[int(parts[0])]
                return _digest(kind, *(terms[int(one)] for one in parts[1:]))
            case "sort":
                return _digest("sort", self._levels[int(parts[0])])
            case "proj":
                name = self.export.names[int(parts[0])]
                self.mentioned.add(name)
                return _digest("proj", json.dumps(name), int(parts[1]), terms[int(parts[2])])
            case _:
                return _digest(kind, parts[0])

    # ---- declarations

    def _heading(self, body: Any, **more: type) -> tuple[Name, bytes]:
        """Return a constant's name, and the digest of its universe parameters and its type."""
        _fields(body, name=int, levelParams=list, type=int, **more)
        names = [self._known(one) for one in (body["name"], *body["levelParams"])]
        return names[0], _type_digest(names[1:], self._value(body["type"]))

    def _known(self, number: Any) -> Name:
        if type(number) is not int or not 0 < number < len(self.export.names):
            raise ValueError(f"no name {number!r}")
        return self.export.names[number]

    def _all(self, numbers: Any) -> list[str]:
        return [json.dumps(self._known(one)) for one in numbers]

    def _value(self, number: Any) -> bytes:
        if type(number) is not int or not 0 <= number < len(self.export.terms):
            raise ValueError(f"no term {number!r}")
        return self.export.terms[number]

    def _declare(self, name: Name, kind: str, digest: bytes, type_digest: bytes) -> None:
        if name in self.export.declared:
            raise ValueError(f"{shown(name)} is declared twice")
        self.export.declared[name] = Declared(kind, digest, type_digest)

    def _axiom(self, body: Any) -> None:
        name, heading = self._heading(body, isUnsafe=bool)
        self._declare(name, "axiom", _digest("axiom", heading, body["isUnsafe"]), heading)

    def _definition(self, body: Any) -> None:
        name, heading = self._heading(body, value=int, hints=object, safety=str, all=list)
        self._all(body["all"])
        if body["safety"] not in ("safe", "unsafe", "partial") or not _is_hint(body["hints"]):
            raise ValueError("no definition")
        digest = _digest("def", heading, self._value(body["value"]), body["safety"])
        self._declare(name, "definition", digest, heading)

    def _theorem(self, body: Any) -> None:
        name, heading = self._heading(body, value=int, all=list)
        self._all(body["all"])
        self._value(body["value"])
        self._declare(name, "theorem", _digest("thm", heading), heading)

    def _opaque(self, body: Any) -> None:
        name, heading = self._heading(body, value=int, isUnsafe=bool, all=list)
        self._all(body["all"])
        digest = _digest("opaque", heading, self._value(body["value"]), body["isUnsafe"])
        self._declare(name, "opaque", digest, heading)

    def _quotient(self, body: Any) -> None:
        name, heading = self._heading(body, kind=str)
        if body["kind"] not in ("type", "ctor", "lift", "ind"):
            raise ValueError("no quotient")
        self._declare(name, "quotient", _digest("quot", heading, body["kind"]), heading)

    def _inductive(self, body: Any) -> None:
        _fields(body, types=list, ctors=list, recs=list)
        parts: list[object] = []
        found: list[tuple[Name, str, bytes]] = []
        for one in body["types"]:
            name, heading = self._heading(
                one, numParams=int, numIndices=int, all=list, ctors=list, numNested=int, isRec=bool,
                isUnsafe=bool, isReflexive=bool,
            )  # fmt: skip
            found.append((name, "inductive", heading))
            numbers = (
                one[key]
                for key in ("numParams", "numIndices", "numNested", "isRec", "isUnsafe", "isReflexive")
            )
            parts += ["type", *found[-1], *numbers, *self._all(one["all"]), "ctors", *self._all(one["ctors"])]
        for one in body["ctors"]:
            name, heading = self._heading(
                one, induct=int, cidx=int, numParams=int, numFields=int, isUnsafe=bool
            )
            found.append((name, "constructor", heading))
            numbers = (one[key] for key in ("cidx", "numParams", "numFields", "isUnsafe"))
            parts += ["ctor", *found[-1], *numbers, *self._all([one["induct"]])]
        for one in body["recs"]:
            name, heading = self._heading(
                one, all=list, numParams=int, numIndices=int, numMotives=int, numMinors=int, rules=list, k=bool,
                isUnsafe=bool,
            )  # fmt: skip
            found.append((name, "recursor", heading))
            numbers = (
                one[key] for key in ("numParams", "numIndices", "numMotives", "numMinors", "k", "isUnsafe")
            )
            parts += ["rec", *found[-1], *numbers, *self._all(one["all"])]
            for rule in one["rules"]:
                _fields(rule, ctor=int, nfields=int, rhs=int)
                parts += ["rule", *self._all([rule["ctor"]]), rule["nfields"], self._value(rule["rhs"])]
        if not body["types"]:
            raise ValueError("no inductive type")
        digest = _digest("inductive", *parts)
        for name, kind, heading in found:
            self._declare(name, kind, digest, heading)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, with no key twice: of two programs that read it one might take the first, the other the last."""
    found = dict(pairs)
    if len(found) != len(pairs) or not found:
        raise ValueError("a key twice, or none")
    return found


def _fields(body: Any, **wanted: type) -> None:
    """Hold that an object has exactly these fields, of these types."""
    if not isinstance(body, dict) or body.keys() != wanted.keys():
        raise ValueError(f"not the fields {', '.join(wanted)}")
    for key, kind in wanted.items():
        value = body[key]
        if kind is not object and type(value) is not kind:
            raise ValueError(f"{key} is no {kind.__name__}")
        if kind is int and value < 0:
            raise ValueError(f"{key} is negative")


def _is_hint(value: Any) -> bool:
    if isinstance(value, dict):
        return value.keys() == {"regular"} and type(value["regular"]) is int and value["regular"] >= 0
    return value in ("opaque", "abbrev")
