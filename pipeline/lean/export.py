"""Reads an export: declarations of Lean as text, in lean4export's format 3.1.0.

A line is a JSON object: the header, a name (`in`), a universe level (`il`), a term (`ie`), or a declaration, its keys
in any order. A node has a number unique in its table, and is made of earlier ones. Everything else is refused: an
unknown kind of record, a forward reference, a number or a declaration twice, a key twice, a field too many or too few.

Each node and each declaration gets a SHA-256 of its meaning, made of those of its parts, so exports with different
numbering compare equal. Not part of the meaning: the names and kinds of bound variables, notes in terms (`mdata`), the
proof of a theorem (any two are the same), hints for unfolding, and the grouping of definitions. Nothing else of a term
is kept, so that an export of gigabytes takes 32 bytes a term.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FORMAT = "3.1.0"
Name = tuple[str, ...]
"""A name's parts. A number has a `#` before it; a text that begins with `#` has a second one."""


class ExportError(ValueError):
    """The text is no export; the message has the line and the reason."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A declared constant. `digest` is of its meaning, `type_digest` of its type and universe parameters alone."""

    kind: str
    digest: bytes
    type_digest: bytes


class Digests:
    """SHA-256 by number, 32 bytes each; for numbers out of order, their places as well."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._places: dict[int, int] | None = None

    @property
    def in_order(self) -> bool:
        """True if every number is one more than the last, from 0."""
        return self._places is None

    def add(self, number: int, digest: bytes) -> None:
        """Keep the digest of a number.

        Raises:
            ValueError: it has one.
        """
        place = len(self._bytes) // _DIGEST_BYTES
        if self._places is None and number != place:
            self._places = {one: one for one in range(place)}
        if self._places is not None:
            if number in self._places:
                raise ValueError(f"number {number} for the second time")
            self._places[number] = place
        self._bytes += digest

    def __getitem__(self, number: Any) -> bytes:
        """Raises:
        ValueError: it has none.
        """
        if type(number) is int and number >= 0:
            place = number if self._places is None else self._places.get(number, -1)
            if place >= 0 and (result := self._bytes[place * _DIGEST_BYTES : (place + 1) * _DIGEST_BYTES]):
                return bytes(result)
        raise ValueError(f"no node {number!r} before it")


@dataclass(slots=True)
class Export:
    """The declarations of an export, by name. Mutually inductive types share one digest.

    `lean` is the version of Lean that wrote it, "" if unknown. `undeclared` are constants mentioned in its terms
    without a declaration in it. `names` and `terms` are its tables, by number: `type_of` reads answers in numbers.
    `in_order`: the numbers of each table are consecutive.
    """

    lean: str = ""
    names: dict[int, Name] = field(default_factory=lambda: {0: ()})
    terms: Digests = field(default_factory=Digests)
    declared: dict[Name, Declared] = field(default_factory=dict)
    undeclared: frozenset[Name] = frozenset()
    in_order: bool = False

    @property
    def axioms(self) -> frozenset[Name]:
        """The declared axioms."""
        return frozenset(name for name, one in self.declared.items() if one.kind == "axiom")

    def type_of(self, levels: Sequence[int], term: int) -> bytes:
        """Return the digest of a type with its universe parameters, by their numbers; see `Declared.type_digest`."""
        try:
            names = [self.names[one] for one in levels]
            if () in names:
                raise ValueError("a universe parameter without a name")
            return _type_digest(names, self.terms[term])
        except (LookupError, ValueError):
            raise ExportError("a number that the export does not have") from None


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
        except MemoryError:
            raise ExportError(
                f"line {number} of the export: this process has no memory for more of it"
            ) from None
        except StopIteration:
            raise ExportError(f"line {number} of the export is no JSON: {line[:200]}") from None
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ExportError(f"line {number} of the export: {error}: {line[:200]}") from None
    if number == 0:
        raise ExportError("the export is empty")
    export = reader.export
    export.undeclared = frozenset(reader.mentioned - export.declared.keys())
    export.in_order = reader.in_order
    return export


def shown(name: Name) -> str:
    """Return a name for people."""
    return ".".join(part if part.isidentifier() or part[:1] == "#" else f"«{part}»" for part in name)


_DIGEST_BYTES = hashlib.sha256().digest_size
NODES: Mapping[str, str] = {
    **dict.fromkeys(("str", "num"), "in"),
    **dict.fromkeys(("succ", "max", "imax", "param"), "il"),
    **dict.fromkeys(("bvar", "sort", "const", "app", "lam", "forallE", "letE", "proj", "mdata"), "ie"),
    **dict.fromkeys(("natVal", "strVal"), "ie"),
}
"""The kinds of nodes, each with its table."""
_BINDERS = ("default", "implicit", "strictImplicit", "instImplicit")
_SAFETIES = ("safe", "unsafe", "partial")
_QUOTIENTS = ("type", "ctor", "lift", "ind")


def _digest(*parts: object) -> bytes:
    """Return the SHA-256 of parts, each with its length, so that no two lists give the same text."""
    data = [part if type(part) is bytes else str(part).encode() for part in parts]
    return hashlib.sha256(b"".join([b"%d:%b" % (len(one), one) for one in data])).digest()


_HEADS = {
    kind: b"%d:%b%d:" % (len(kind), kind.encode(), _DIGEST_BYTES)
    for kind in ("succ", "max", "imax", "app", "lam", "forallE", "letE", "sort")
}
_NEXT = b"%d:" % _DIGEST_BYTES


def _made_of(kind: str, *nodes: bytes) -> bytes:
    """Return `_digest` of a kind and of digests, the usual node, in half its time."""
    return hashlib.sha256(_HEADS[kind] + _NEXT.join(nodes)).digest()


def _type_digest(levels: Sequence[Name], term: bytes) -> bytes:
    return _digest("type", *(json.dumps(one) for one in levels), term)


class _Reader:
    def __init__(self) -> None:
        self.export = Export()
        self.mentioned: set[Name] = set()
        self._levels = Digests()
        self._levels.add(0, _digest("zero"))
        self._terms = self.export.terms
        self._names = self.export.names
        self._records: Mapping[str, Callable[[Any], None]] = {
            "axiom": self._axiom,
            "def": self._definition,
            "thm": self._theorem,
            "opaque": self._opaque,
            "quot": self._quotient,
            "inductive": self._inductive,
        }
        self._digests: Mapping[str, Callable[[Any], bytes]] = {
            "succ": lambda value: _made_of("succ", self._levels[value]),
            "max": lambda value: self._max("max", value),
            "imax": lambda value: self._max("imax", value),
            "param": lambda value: _digest("param", self._name(value)),
            "app": self._app,
            "const": self._const,
            "lam": lambda value: self._binder("lam", value),
            "forallE": lambda value: self._binder("forallE", value),
            "letE": self._let,
            "sort": lambda value: _made_of("sort", self._levels[value]),
            "proj": self._proj,
            "bvar": lambda value: _digest("bvar", _natural(value)),
            "natVal": _nat_literal,
            "strVal": _text_literal,
            "mdata": self._mdata,
        }

    @property
    def in_order(self) -> bool:
        return (
            self._levels.in_order
            and self._terms.in_order
            and all(number == place for place, number in enumerate(self._names))
        )

    def line(self, text: str, *, first: bool) -> None:
        raw, end = _scan(text, 0)
        if end != len(text):
            raise ValueError("more than a record")
        if type(raw) is not dict or first != ("meta" in raw):
            raise ValueError("a record in the wrong place" if type(raw) is dict else "no record")
        if len(raw) == 1:
            ((kind, body),) = raw.items()
            if first:
                self._meta(body)
            else:
                self._records[kind](body)
            return
        for table in ("ie", "in", "il"):
            if table in raw:
                number = _natural(raw.pop(table))
                ((kind, value),) = raw.items()
                self._node(table, number, kind, value)
                return
        raise ValueError("no record")

    def _meta(self, body: Any) -> None:
        if body["format"] != {"version": FORMAT}:
            raise ValueError(f"not in format {FORMAT}")
        if "lean" in body:
            _fields(body["lean"], version=str, githash=str)
            self.export.lean = body["lean"]["version"]

    # ---- nodes

    def _node(self, table: str, number: int, kind: str, value: Any) -> None:
        if NODES[kind] != table:
            raise ValueError(f"no {kind} has a number of {table}")
        if table == "in":
            if number in self._names:
                raise ValueError(f"number {number} for the second time")
            self._names[number] = self._longer(kind, value)
        else:
            (self._terms if table == "ie" else self._levels).add(number, self._digests[kind](value))

    def _longer(self, kind: str, value: Any) -> Name:
        if kind == "num":
            _fields(value, pre=int, i=int)
            last = f"#{value['i']}"
        else:
            _fields(value, pre=int, str=str)
            last = value["str"]
            last.encode()  # half of a character is none
            last = f"#{last}" if last.startswith("#") else last
        return (*self._names[value["pre"]], last)

    def _name(self, number: Any) -> str:
        return json.dumps(self._names[_natural(number)])

    def _max(self, kind: str, value: Any) -> bytes:
        one, other = value
        return _made_of(kind, self._levels[one], self._levels[other])

    def _app(self, value: Any) -> bytes:
        _exactly(value, 2)
        return _made_of("app", self._terms[value["fn"]], self._terms[value["arg"]])

    def _const(self, value: Any) -> bytes:
        _fields(value, name=int, us=list)
        self.mentioned.add(self._names[value["name"]])
        return _digest("const", self._name(value["name"]), *(self._levels[one] for one in value["us"]))

    def _binder(self, kind: str, value: Any) -> bytes:
        _exactly(value, 4)
        if value["binderInfo"] not in _BINDERS:
            raise ValueError("no kind of binder")
        self._names[_natural(value["name"])]
        return _made_of(kind, self._terms[value["type"]], self._terms[value["body"]])

    def _let(self, value: Any) -> bytes:
        _fields(value, name=int, type=int, value=int, body=int, nondep=bool)
        self._names[value["name"]]
        return _made_of("letE", *(self._terms[value[one]] for one in ("type", "value", "body")))

    def _proj(self, value: Any) -> bytes:
        _fields(value, typeName=int, idx=int, struct=int)
        self.mentioned.add(self._names[value["typeName"]])
        return _digest("proj", self._name(value["typeName"]), value["idx"], self._terms[value["struct"]])

    def _mdata(self, value: Any) -> bytes:
        _fields(value, expr=int, data=dict)
        return self._terms[value["expr"]]

    # ---- declarations

    def _heading(self, body: Any, **more: type) -> tuple[Name, bytes]:
        """Return a constant's name, and the digest of its universe parameters and its type."""
        _fields(body, name=int, levelParams=list, type=int, **more)
        names = [self._known(one) for one in (body["name"], *body["levelParams"])]
        return names[0], _type_digest(names[1:], self._terms[body["type"]])

    def _known(self, number: Any) -> Name:
        if not _natural(number):
            raise ValueError("a constant without a name")
        return self._names[number]

    def _all(self, numbers: Any) -> list[str]:
        return [json.dumps(self._known(one)) for one in numbers]

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
        if body["safety"] not in _SAFETIES or not _is_hint(body["hints"]):
            raise ValueError("no definition")
        digest = _digest("def", heading, self._terms[body["value"]], body["safety"])
        self._declare(name, "definition", digest, heading)

    def _theorem(self, body: Any) -> None:
        name, heading = self._heading(body, value=int, all=list)
        self._all(body["all"])
        self._terms[body["value"]]
        self._declare(name, "theorem", _digest("thm", heading), heading)

    def _opaque(self, body: Any) -> None:
        name, heading = self._heading(body, value=int, isUnsafe=bool, all=list)
        self._all(body["all"])
        digest = _digest("opaque", heading, self._terms[body["value"]], body["isUnsafe"])
        self._declare(name, "opaque", digest, heading)

    def _quotient(self, body: Any) -> None:
        name, heading = self._heading(body, kind=str)
        if body["kind"] not in _QUOTIENTS:
            raise ValueError("no quotient")
        self._declare(name, "quotient", _digest("quot", heading, body["kind"]), heading)

    def _inductive(self, body: Any) -> None:
        _fields(body, types=list, ctors=list, recs=list)
        parts: list[object] = []
        result: list[tuple[Name, str, bytes]] = []
        for one in body["types"]:
            name, heading = self._heading(
                one, numParams=int, numIndices=int, all=list, ctors=list, numNested=int, isRec=bool,
                isUnsafe=bool, isReflexive=bool,
            )  # fmt: skip
            result.append((name, "inductive", heading))
            numbers = (
                one[key]
                for key in ("numParams", "numIndices", "numNested", "isRec", "isUnsafe", "isReflexive")
            )
            parts += [
                "type",
                *result[-1],
                *numbers,
                *self._all(one["all"]),
                "ctors",
                *self._all(one["ctors"]),
            ]
        for one in body["ctors"]:
            name, heading = self._heading(
                one, induct=int, cidx=int, numParams=int, numFields=int, isUnsafe=bool
            )
            result.append((name, "constructor", heading))
            numbers = (one[key] for key in ("cidx", "numParams", "numFields", "isUnsafe"))
            parts += ["ctor", *result[-1], *numbers, *self._all([one["induct"]])]
        for one in body["recs"]:
            name, heading = self._heading(
                one, all=list, numParams=int, numIndices=int, numMotives=int, numMinors=int, rules=list, k=bool,
                isUnsafe=bool,
            )  # fmt: skip
            result.append((name, "recursor", heading))
            numbers = (
                one[key] for key in ("numParams", "numIndices", "numMotives", "numMinors", "k", "isUnsafe")
            )
            parts += ["rec", *result[-1], *numbers, *self._all(one["all"])]
            for rule in one["rules"]:
                _fields(rule, ctor=int, nfields=int, rhs=int)
                parts += ["rule", *self._all([rule["ctor"]]), rule["nfields"], self._terms[rule["rhs"]]]
        if not body["types"]:
            raise ValueError("no inductive type")
        digest = _digest("inductive", *parts)
        for name, kind, heading in result:
            self._declare(name, kind, digest, heading)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, with no key twice: one reader might take the first, another the last."""
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key twice")
    return result


# The decoder's own scanner: `decode` looks for white space around each line, and takes twice the time.
_scan = json.JSONDecoder(object_pairs_hook=_once).scan_once  # type: ignore[attr-defined]


def _natural(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"no number {value!r}")
    return value


def _exactly(value: Any, n_fields: int) -> None:
    """Check that an object has no fields beyond those read."""
    if type(value) is not dict or len(value) != n_fields:
        raise ValueError("a field too many or too few")


def _nat_literal(value: Any) -> bytes:
    if (
        type(value) is not str
        or not value.isdecimal()
        or not value.isascii()
        or value != (value.lstrip("0") or "0")
    ):
        raise ValueError("no natural number")
    return _digest("natVal", value)


def _text_literal(value: Any) -> bytes:
    if type(value) is not str:
        raise ValueError("no text")
    return _digest("strVal", value)


def _fields(body: Any, /, **wanted: type) -> None:
    """Check that an object has exactly these fields, of these types."""
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
