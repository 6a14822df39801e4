"""What Lean answered, read strictly: the axioms, the exact statement, and what a build's messages say of sorrys.

Nothing is read into silence. Each reader returns what it read or one sentence on why it could not be read, and a text
with a line too many, too few or of another shape is not read. Answers carry the question's own mark (a nonce, or the
random name of the asking file), so text that the project prints is no answer. Asking is `lake.py`'s business.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

FORMAT = 2
ALLOWED_AXIOMS = frozenset({"propext", "Classical.choice", "Quot.sound"})
_ELIDED = "⋯"
_KEPT_OUTPUT = 2000
_PRINTED = re.compile(r"'(?P<name>.+)' depends on axioms: \[(?P<axioms>[^\[\]]+)\]")
_PRINTED_NONE = re.compile(r"'(?P<name>.+)' does not depend on any axioms")
_KINDS = "axiom|definition|theorem|opaque|quotient|inductive|constructor|recursor"
_SECTION = re.compile(rf"(?P<head>statement|premise|declared) (?P<kind>{_KINDS}) (?P<name>\S.*)")
_VERSION = re.compile(r"lean (?P<version>\S.*)")
_FACT = re.compile(r"(?P<fact>axiom|sorried|native|unsafe) (?P<name>\S.*)")
_NODE = re.compile(r"\t(?:[A-Za-z0-9]+|=)(?: .*)?")
# Both texts that Lean's versions have, and what lake writes before them.
_SORRY_WARNING = re.compile(
    r"warning: (?:\./)*(?P<path>[^\n:]+):(?P<line>\d+):(?P<column>\d+): declaration uses ['`]sorry['`]"
)


@dataclass(frozen=True, slots=True)
class Section:
    """One constant as the kernel has it: its kind and its nodes. Equal texts, equal constants."""

    kind: str
    nodes: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What `Questions.lean` says of one build: see there for what each part is.

    `lean` is the version of Lean that answered, as it says it. `axioms`, `sorried`, `native` and `unsafe` are names of
    constants that the asked one rests on, as far down as it goes. `premises` are what its statement rests on in its
    module, `declared` the module's other constants.
    """

    lean: str
    axioms: tuple[str, ...]
    sorried: tuple[str, ...]
    native: tuple[str, ...]
    unsafe: tuple[str, ...]
    statement: Section
    premises: Mapping[str, Section]
    declared: Mapping[str, Section]

    @property
    def digest(self) -> str:
        """SHA-256 of the statement and of everything that it rests on in its module."""
        parts = [self.statement, *(self.premises[name] for name in sorted(self.premises))]
        text = "\n".join(f"{part.kind}\n{part.nodes}" for part in parts)
        return hashlib.sha256(text.encode()).hexdigest()


def read_answer(text: str, *, nonce: str, constant: str) -> Answer | str:
    """Read the file that `Questions.lean` wrote about `constant`; a text says why it is no answer."""
    lines = text.split("\n")
    if lines[-1] != "" or len(lines) < 5:
        return f"the answer has no end: {end_of(text)}"
    if lines[0] != f"unsorry-questions {FORMAT} {nonce}" or lines[-2] != f"end {nonce}":
        return f"the answer does not carry the question's mark: {end_of(text)}"
    version = _VERSION.fullmatch(lines[1])
    if version is None:
        return f"the answer does not say which Lean it is by: {end_of(lines[1])}"
    facts: dict[str, list[str]] = {"axiom": [], "sorried": [], "native": [], "unsafe": []}
    sections: dict[str, dict[str, Section]] = {"statement": {}, "premise": {}, "declared": {}}
    at = 2
    while at < len(lines) - 2 and (found := _FACT.fullmatch(lines[at])):
        facts[found["fact"]].append(found["name"])
        at += 1
    while at < len(lines) - 2:
        head = _SECTION.fullmatch(lines[at])
        stop = at + 1
        while stop < len(lines) - 2 and _NODE.fullmatch(lines[stop]):
            stop += 1
        nodes = lines[at + 1 : stop]
        if (
            head is None
            or not nodes
            or not nodes[-1].startswith("\t= ")
            or head["name"] in sections[head["head"]]
        ):
            return f"line {at + 1} of the answer cannot be read: {end_of(lines[at])}"
        sections[head["head"]][head["name"]] = Section(head["kind"], "\n".join(nodes))
        at = stop
    if list(sections["statement"]) != [constant]:
        return f"the answer is about {', '.join(sections['statement']) or 'nothing'}, not about {constant}"
    return Answer(
        lean=version["version"],
        axioms=tuple(facts["axiom"]),
        sorried=tuple(facts["sorried"]),
        native=tuple(facts["native"]),
        unsafe=tuple(facts["unsafe"]),
        statement=sections["statement"][constant],
        premises=sections["premise"],
        declared=sections["declared"],
    )


def differences(before: Answer, after: Answer, *, declared: Iterable[str]) -> list[str]:
    """Return what the proof changed besides itself, one sentence each.

    Args:
        before, after: the answers about the build with the sorry and the build with the proof.
        declared: the file's own declarations by name. What Lean makes on the way (equations, matchers) comes and
            goes with a proof and is not looked at.
    """
    found = []
    if before.statement.kind != "theorem" or after.statement.kind != "theorem":
        found.append(
            f"it is a {before.statement.kind} without the proof and a {after.statement.kind} with it"
        )
    if before.statement.nodes != after.statement.nodes:
        found.append("its type or its universe parameters are others than without the proof")
    if set(before.premises) != set(after.premises):
        names = ", ".join(sorted(set(before.premises) ^ set(after.premises)))
        found.append(f"its statement rests on other constants than without the proof: {names}")
    found += [
        f"{name}, on which its statement rests, is another than without the proof"
        for name in sorted(set(before.premises) & set(after.premises))
        if before.premises[name] != after.premises[name]
    ]
    found += [
        f"{name} is another than without the proof"
        for name in sorted(set(declared) & set(before.declared))
        if before.declared[name] != after.declared.get(name)
    ]
    return found


@dataclass(frozen=True, slots=True)
class TypeText:
    """A constant's type with everything printed, universe parameters included: equal texts, equal types."""

    text: str


def one_message(output: str, *, file_name: str, lines: range) -> str | None:
    """Return the text of the one message that `lean --json` gave for these lines of the asking file.

    Only what carries that file's random name counts, which nobody else knows; two such messages, or one that is no
    information, are no answer. Other lines are lake's, or the project's initializers'.
    """
    found: list[str] = []
    for text in output.splitlines():
        try:
            message = json.loads(text)
        except ValueError:
            if file_name in text:
                return None
            continue
        if not isinstance(message, dict) or PurePosixPath(str(message.get("fileName"))).name != file_name:
            continue
        position, data = message.get("pos"), message.get("data")
        told = message.get("severity") == "information" and isinstance(data, str)
        if not told or not isinstance(position, dict) or position.get("line") not in lines:
            return None
        found.append(str(data))
    return found[0] if len(found) == 1 else None


def read_axioms(data: str, declaration: str) -> tuple[str, ...] | str:
    """Read what `#print axioms` said; a text says why it could not be read."""
    text = " ".join(data.split())  # Lean wraps long lists
    found = _PRINTED.fullmatch(text)
    if found is not None and found["name"] == declaration:
        names = tuple(name.strip() for name in found["axioms"].split(","))
        if all(name and " " not in name for name in names):
            return names
    none = _PRINTED_NONE.fullmatch(text)
    if none is not None and none["name"] == declaration:
        return ()
    return f"`#print axioms` answered: {end_of(data)}"


def read_type(data: str, declaration: str) -> TypeText | str:
    """Read what `#check @declaration` said with everything printed."""
    text = " ".join(data.split())
    named = text.removeprefix("@")
    if not named.startswith((f"{declaration} :", f"{declaration}.{{")):
        return f"`#check @{declaration}` answered: {end_of(data)}"
    if _ELIDED in text:
        return f"`#check @{declaration}` left something out: the type is too large to print"
    return TypeText(text)


def sorry_warnings(output: str, *, path: str) -> tuple[int, ...]:
    """Return the lines of `path` for which a build said that a declaration uses sorry, in either of its texts.

    None said is no evidence of none used: a file can switch the warning off. The axioms are what decides.
    """
    wanted = PurePosixPath(path)
    return tuple(
        int(found["line"])
        for found in _SORRY_WARNING.finditer(output)
        if PurePosixPath(found["path"]) == wanted or found["path"].endswith(f"/{path}")
    )


def end_of(output: str) -> str:
    """Return the end of a program's output on one line, for people."""
    return " ".join(output[-_KEPT_OUTPUT:].split()) or "nothing"
