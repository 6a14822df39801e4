"""Reads the answers of `Questions.lean` about one build of a module, and compares two builds.

An answer is a file of facts and an export (`pipeline.lean.export`). Readers return their data, or one sentence with the
reason of a refusal: a text with a line too many, too few or of another shape is refused. The facts stand between two
lines with the question's mark, a nonce, so no other file can pass for an answer. Nothing built by the project is loaded
here: both files are text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.gate.headers import Variable
from pipeline.lean.export import Declared, Export, ExportError, Name, read_export, shown
from pipeline.lean.source.imports import CORE
from store.events.proofs import ConstantBelow
from store.text import end_of

FORMAT = 1
_KINDS = {
    "axiom": "axiom",
    "def": "definition",
    "thm": "theorem",
    "opaque": "opaque",
    "quot": "quotient",
    "inductive": "inductive",
    "constructor": "constructor",
    "recursor": "recursor",
}
_VERSION = re.compile(r"lean (?P<version>\S.*)")
_FACT = re.compile(r"(?P<fact>[a-z]+)\t(?P<fields>\S.*)")
_FIELDS = {
    "module": 2, "import": 2, "parts": 1, "rests": 2,
    "sorried": 1, "native": 1, "unsafe": 1, "axiom": 3, "statement": 5, "declared": 5, "apart": 1,
    "ends": 2, "lines": 1, "home": 2, "type": 3, "binder": 3, "below": 5, "more": 1,
}  # fmt: skip
_ESCAPE = re.compile(r"\\(?P<of>[\\nrt])")
_ESCAPED = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_NUMBER = re.compile(r"0|[1-9]\d{0,17}")


@dataclass(frozen=True, slots=True)
class Stated:
    """A constant's kind and the digest of its type and universe parameters. Equal digests, equal statements."""

    kind: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class BuiltModule:
    """A module as Lean read it, with the names of its imports."""

    name: str
    path: Path
    imports: tuple[str, ...]

    @property
    def is_bare(self) -> bool:
        """Return whether it imports no `Init` (a `prelude` file): it may declare stand-ins for Lean's own constants."""
        return "Init" not in self.imports

    @property
    def is_core(self) -> bool:
        """Return whether its name belongs to Lean's own library."""
        return self.name.split(".")[0] in CORE

    def lies_in(self, folder: Path) -> bool:
        """Return whether its files are below the folder, links followed: the first, and those Lean finds beside it."""
        return all(file.resolve().is_relative_to(folder) for file in (self.path, *self.files))

    @property
    def files(self) -> list[Path]:
        """The files of its import: since Lean 4.22 there may be several."""
        return [file for end in ("", ".server", ".private") if (file := Path(f"{self.path}{end}")).is_file()]


@dataclass(frozen=True, slots=True)
class Told:
    """A constant as text: its name with its universe parameters, and its type, cut unless `whole`.

    `variables` are the type's leading ones, `below` the project's constants under it, `more` the number of those left
    out.
    """

    name: str
    type: str
    whole: bool
    variables: tuple[Variable, ...]
    below: tuple[ConstantBelow, ...]
    more: int


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of `Questions.lean` about one build; its source describes each part.

    `lean` is the version reported by the Lean that answered. `modules` are the module and all below it, `in_parts`
    those of them allowed to lie in several files. `axioms`, `sorried`, `native` and `unsafe` are names of constants at
    any depth below the one in question, `rests` all constants below it by module, and `homes` the module declaring each
    axiom. `statement` is the constant in question, `target` its name in the export, `declared` the module's other
    constants, `apart` those of them Lean has not made on the way to another, `ends` the line and column of its
    declaration's end, if Lean reports it, `told` the statement as text, if the question asks for it.
    """

    lean: str
    modules: tuple[BuiltModule, ...]
    axioms: tuple[str, ...]
    homes: Mapping[str, str]
    sorried: tuple[str, ...]
    native: tuple[str, ...]
    unsafe: tuple[str, ...]
    rests: Mapping[str, tuple[str, ...]]
    target: Name
    statement: Stated
    declared: Mapping[str, Stated]
    apart: frozenset[str]
    ends: tuple[int, int] | None
    told: Told | None
    export: Export
    in_parts: frozenset[str] = frozenset()

    @property
    def premises(self) -> Mapping[Name, Declared]:
        """The constants below the statement in its module; in an answer about the closure, all below the constant."""
        return {name: one for name, one in self.export.declared.items() if one.kind != "axiom"}

    @property
    def digest(self) -> str:
        """SHA-256 of the statement and of everything below it in its module."""
        parts = [self.statement.digest, *(self.premises[name].digest for name in sorted(self.premises))]
        return hashlib.sha256(b"".join(parts)).hexdigest()


@dataclass(frozen=True, slots=True)
class Constants:
    """An answer of `Questions.lean` about constants by name, in some modules and all their imports.

    `homes` has the module of each constant they declare, `digests` the meaning of each constant written out.
    """

    lean: str
    modules: Mapping[str, BuiltModule]
    homes: Mapping[Name, str]
    digests: Mapping[Name, bytes]


def read_answer(text: str, export: Iterable[str], *, nonce: str, constant: str) -> Answer | str:
    """Read an answer of `Questions.lean` about `constant` from its two files; a text is the reason of a refusal."""
    said = _said(text, nonce)
    if isinstance(said, str):
        return said
    lean, facts = said
    about = [fields[1] for fields in facts["statement"]]
    if len(about) != 1 or not same_constant(about[0], constant):
        return f"the answer is about {', '.join(about) or 'nothing'}, not about {constant}"
    if not facts["module"]:
        return "the answer names no module that was read"
    try:
        read, n_lines = _counted(export)
        if facts["lines"] != [[str(n_lines)]]:
            return f"the export has {n_lines} lines, and the answer says {facts['lines']}"
        if not read.in_order:
            # A kernel that counts the nodes itself would read another export than the one compared here.
            return "the numbers in the export do not follow one another"
        stated = [_stated(read, fields) for fields in facts["statement"]]
        declared = {fields[1]: _stated(read, fields) for fields in facts["declared"]}
        axioms = {name: read.names[_number(at)] for name, _, at in facts["axiom"]}
        told = _told(facts)
        ends = [(_number(line), _number(column)) for line, column in facts["ends"]]
    except (ExportError, LookupError, ValueError) as error:
        return str(error)
    imports = _by_module(facts["import"])
    if len(declared) != len(facts["declared"]) or len(axioms) != len(facts["axiom"]):
        return "the answer names a constant twice"
    if set(axioms.values()) != read.axioms:
        return "the answer and the export do not name the same axioms"
    if read.lean != lean:
        return f"the answer is by Lean {lean}, the export by {read.lean}"
    return Answer(
        lean=lean,
        modules=tuple(
            BuiltModule(name, Path(path), tuple(imports.get(name, ()))) for name, path in facts["module"]
        ),
        axioms=tuple(axioms),
        homes={name: home for name, home, _ in facts["axiom"]},
        sorried=tuple(name for (name,) in facts["sorried"]),
        native=tuple(name for (name,) in facts["native"]),
        unsafe=tuple(name for (name,) in facts["unsafe"]),
        rests={module: tuple(sorted(names)) for module, names in sorted(_by_module(facts["rests"]).items())},
        target=read.names[_number(facts["statement"][0][2])],
        statement=stated[0],
        declared=declared,
        apart=frozenset(name for (name,) in facts["apart"]),
        ends=ends[0] if ends else None,
        told=told,
        export=read,
        in_parts=frozenset(name for (name,) in facts["parts"]),
    )


def _said(text: str, nonce: str) -> tuple[str, dict[str, list[list[str]]]] | str:
    """Read an answer's facts, and the version of its Lean."""
    lines = text.split("\n")
    if lines[-1] != "" or len(lines) < 5:
        return f"the answer has no end: {end_of(text)}"
    if lines[0] != f"everlean-questions {FORMAT} {nonce}" or lines[-2] != f"end {nonce}":
        return f"the answer does not carry the question's mark: {end_of(text)}"
    version = _VERSION.fullmatch(lines[1])
    if version is None:
        return f"the answer does not say which Lean it is by: {end_of(lines[1])}"
    facts: dict[str, list[list[str]]] = {kind: [] for kind in _FIELDS}
    for number, line in enumerate(lines[2:-2], 3):
        match = _FACT.fullmatch(line)
        fields = [] if match is None else [
            _ESCAPE.sub(lambda one: _ESCAPED[one["of"]], field) for field in match["fields"].split("\t")
        ]  # fmt: skip
        if match is None or _FIELDS.get(match["fact"]) != len(fields):
            return f"line {number} of the answer cannot be read: {end_of(line)}"
        facts[match["fact"]].append(fields)
    return version["version"], facts


def read_constants(text: str, export: Iterable[str], *, nonce: str, names: Sequence[Name]) -> Constants | str:
    """Read an answer of `Questions.lean` about constants by name; a text is the reason of a refusal."""
    said = _said(text, nonce)
    if isinstance(said, str):
        return said
    lean, facts = said
    try:
        read, n_lines = _counted(export)
        homes = {names[_number(at)]: home for at, home in facts["home"]}
    except (ExportError, LookupError, ValueError) as error:
        return str(error)
    if facts["lines"] != [[str(n_lines)]]:
        return f"the export has {n_lines} lines, and the answer says {facts['lines']}"
    modules = {name: BuiltModule(name, Path(path), ()) for name, path in facts["module"]}
    if stray := sorted(home for home in homes.values() if home not in modules):
        return f"the answer names {stray[0]}, which was not read"
    return Constants(lean, modules, homes, {name: one.digest for name, one in read.declared.items()})


def _by_module(fields: Iterable[list[str]]) -> dict[str, list[str]]:
    result: dict[str, list[str]] = {}
    for module, name in fields:
        result.setdefault(module, []).append(name)
    return result


def _told(facts: Mapping[str, list[list[str]]]) -> Told | None:
    """Read the text of the statement. People read it; no check compares it."""
    if not facts["type"]:
        return None
    ((whole, name, text),), ((more,),) = facts["type"], facts["more"]
    below = [
        ConstantBelow(kind=_KINDS[kind], module=module, name=one, type=of if end == "whole" else f"{of} …")
        for end, kind, module, one, of in facts["below"]
    ]
    variables = tuple(Variable(*fields) for fields in facts["binder"])
    return Told(name, text, whole == "whole", variables, tuple(below), _number(more))


def _counted(lines: Iterable[str]) -> tuple[Export, int]:
    n_lines = 0

    def counting() -> Iterable[str]:
        nonlocal n_lines
        for n_lines, line in enumerate(lines, 1):  # noqa: B007
            yield line

    return read_export(counting()), n_lines


def _stated(export: Export, fields: list[str]) -> Stated:
    """Read a constant's universe parameters and type from a fact, by the export's numbers."""
    kind, _, name, levels, term = fields
    export.names[_number(name)]
    inside = levels.removeprefix("[").removesuffix("]")
    if levels != f"[{inside}]":
        raise ValueError(f"no universe parameters: {levels}")
    numbers = [_number(one) for one in inside.split(",") if one]
    return Stated(_KINDS[kind], export.type_of(numbers, _number(term)))


def _number(text: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"no number: {text[:40]}")
    return int(text)


def same_constant(one: str, declaration: str) -> bool:
    """Return whether Lean's name of a constant is a declaration's: quotes may differ, a private one has its module."""
    known, wanted = (name.replace("«", "").replace("»", "") for name in (one, declaration))
    return known == wanted or (known.startswith("_private.") and known.endswith(f".0.{wanted}"))


def differences(before: Answer, after: Answer, *, declared: Iterable[str]) -> list[str]:
    """Return a proof's side effects on its module, one sentence each.

    Args:
        before, after: the answers about the build with the sorry and the build with the proof.
        declared: the file's own declarations by name. Constants Lean makes on the way (equations, matchers) come and
            go with a proof and are ignored.
    """
    result = [f"{name} is declared too, by the proof" for name in sorted(after.apart - before.apart)]
    if before.statement.kind != "theorem" or after.statement.kind != "theorem":
        result.append(
            f"it is a {before.statement.kind} without the proof and a {after.statement.kind} with it"
        )
    if before.target != after.target or before.statement.digest != after.statement.digest:
        result.append("its type or its universe parameters are others than without the proof")
    if before.premises.keys() != after.premises.keys():
        names = ", ".join(sorted(map(shown, before.premises.keys() ^ after.premises.keys())))
        result.append(f"its statement rests on other constants than without the proof: {names}")
    result += [
        f"{shown(name)}, on which its statement rests, is another than without the proof"
        for name in sorted(before.premises.keys() & after.premises.keys())
        if before.premises[name] != after.premises[name]
    ]
    result += [
        f"the axiom {shown(name)} is another than without the proof"
        for name in sorted(before.export.axioms & after.export.axioms)
        if before.export.declared[name] != after.export.declared[name]
    ]
    result += [
        f"{name} is another than without the proof"
        for name in sorted(set(declared) & set(before.declared))
        if before.declared[name] != after.declared.get(name)
    ]
    return result


def not_of_the_proof(whole: Answer, after: Answer) -> str | None:
    """Return why a closure's export is not that of the judged proof, or None.

    A kernel accepts the export's content. So the export must hold the same theorem with the same meaning, on the same
    axioms, and everything below these.
    """
    declared = whole.export.declared
    target = declared.get(after.target)
    if whole.target != after.target or target is None or target.kind != "theorem":
        return f"the export does not hold the theorem {shown(after.target)}"
    if target.type_digest != after.statement.digest:
        return "the export has another statement"
    other = sorted(name for name, one in after.export.declared.items() if declared.get(name) != one)
    if other:
        return f"the export has another {', '.join(map(shown, other))}"
    if whole.export.axioms != after.export.axioms:
        names = ", ".join(sorted(map(shown, whole.export.axioms ^ after.export.axioms)))
        return f"the export has other axioms than the proof: {names}"
    if whole.export.undeclared:
        names = ", ".join(sorted(map(shown, whole.export.undeclared))[:3])
        return f"the export mentions what it does not declare: {names}"
    return None
