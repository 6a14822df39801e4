"""One version of a Lean file, for comparison with another: its scan, and details of it on demand.

Beside the declarations: the words that count in its commands (`marks`: a sorry by another word, an axiom, code unseen
by the kernel), the scope at each declaration, its notations, macros and instances, and its definitions.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Literal, NamedTuple

from pipeline.jobs.mirror import Mirror, TreeFile
from pipeline.jobs.protocol import JobError
from pipeline.jobs.version import content, shortened, unread
from pipeline.lean.source.context import (
    NOTATIONS,
    SAY_NOTHING,
    Item,
    Part,
    before_the_declaration,
    given_later,
    instance_of,
    notation_of,
    parts_of,
    words_of,
)
from pipeline.lean.source.forbidden import (
    ADMITTING,
    MAKERS,
    SORRY_NAMES,
    UNCHECKED_NAMES,
    UNPROVED_MODIFIERS,
    changes_nothing,
    invisible,
    skeleton,
)
from pipeline.lean.source.lexer import (
    HAS_FIELDS,
    KEYWORDS,
    LEAVE_NOTHING,
    Positions,
    decode,
    lex,
    tokens_of_text,
    words,
)
from pipeline.lean.source.scanner import Command, locate, read_source
from store.domain.identity import normalise, short_hash
from store.domain.keywords import INSTANCE_KINDS, PROVABLE_KINDS
from store.domain.matching import (
    Decl,
    LivingSorry,
    declarations_known,
    declarations_now,
    place_of,
)
from store.events.places import SorryPlace

MarkKind = Literal["unchecked", "option", "hidden"]
_SUSPECT = (*sorted(SORRY_NAMES | UNCHECKED_NAMES | MAKERS | ADMITTING), "axiom", "set_option", "sorr")
"""Texts that make a command worth reading word by word."""
_ANSWER = re.compile(rb"\banswer\s*\(\s*\Z")
_BEFORE_ANSWER = 64
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_SHOWN_AS_SPACE = frozenset("\t\f\ufeff")
_MASKS = {1: " ", 2: " "}
"""The lexer's marks of doc comments."""
_BEFORE_A_TACTIC = words("by ; <;> · . => ( | first try then else all_goals any_goals repeat do")
_PIECE_OF_A_NAME = re.compile(r"`{1,2}(?:sorr|sorryA)\b|\"(?:sorr|sorryA|ax|axi|axio)\"")
_JOINED = re.compile(r"\+\+|append|mkStr|mkSimple|toName")
_MODIFIER = re.compile(rf"\b(?:{'|'.join(sorted(UNPROVED_MODIFIERS))}|private)\b")
_DERIVED = re.compile(r" ?\bderiving ([\w.]+(?:, [\w.]+)*)")
_GIVE_MEANING = NOTATIONS | {"attribute"}
_SCOPED = re.compile(r"\bscoped\b(?:\[([^\]\s]*)\])?")
_HEAD = 200
"""Characters that contain a declaration's modifiers."""
_NOT_DEFINED = PROVABLE_KINDS | INSTANCE_KINDS


class Chains:
    """Lists of parts in force, each with a number: a list is its last part and the number of the rest, and equal lists
    share a number.
    """

    def __init__(self) -> None:
        self._links: list[tuple[int, Part | None]] = [(0, None)]
        self._numbers: dict[tuple[int, Part], int] = {}

    def longer(self, chain: int, part: Part) -> int:
        """Return the number of a list with one more part."""
        link = chain, part
        if link not in self._numbers:
            self._numbers[link] = len(self._links)
            self._links.append(link)
        return self._numbers[link]

    def parts(self, chain: int) -> Counter[Part]:
        """Return the parts of a list, with the number of times each is in it."""
        result: Counter[Part] = Counter()
        while chain:
            chain, part = self._links[chain]
            if part is not None:
                result[part] += 1
        return result


class Mark(NamedTuple):
    """A command's word that counts; `owner` is the index of its declaration, -1 outside all."""

    kind: MarkKind
    word: str
    byte: int
    owner: int


@dataclass(frozen=True, slots=True)
class Definition:
    """A possible meaning of a statement's word. `meaning` is a hash of its content, without its name and attributes."""

    name: str
    path: str
    index: int
    byte: int
    meaning: str
    private: bool = False
    """no other file sees it"""


class Version:
    """One version of a file: its scan, its bytes, and details of its commands on demand."""

    def __init__(self, item: TreeFile, data: bytes | str) -> None:
        self.item = item
        self.data = b"" if isinstance(data, str) else data
        read, self.source = read_source(self.data, path=item.path)
        self.read = unread(item, data) if isinstance(data, str) else shortened(read)
        self.declarations = self.read.scan.declarations
        self._marks: dict[int, list[Mark]] = {}
        self._codes: dict[int, str] = {}

    @cached_property
    def _starts(self) -> list[tuple[int, int]]:
        return sorted((one.byte_start, index) for index, one in enumerate(self.declarations))

    @cached_property
    def owners(self) -> dict[int, int]:
        """The declaration of each sorry, by the sorry's first byte."""
        return {sorry.byte_start: sorry.index for sorry in self.read.scan.sorries}

    @cached_property
    def _sorry_starts(self) -> list[int]:
        return sorted(self.owners)

    @cached_property
    def _positions(self) -> Positions:
        return Positions(decode(self.data)[0], "")

    def place(self, byte: int) -> tuple[int, int]:
        """Return the line from 1 and the column from 0 of a byte."""
        at = self._positions.offset(byte)
        return self._positions.line(at), self._positions.column(at)

    def answer(self, place: SorryPlace) -> bool:
        """Return whether a sorry stands in `answer(…)`."""
        before = self.data[max(0, place.byte_start - _BEFORE_ANSWER) : place.byte_start]
        return _ANSWER.search(before) is not None

    def code_of(self, index: int) -> str:
        """Return a declaration's text without comments."""
        if index not in self._codes:
            one = self.declarations[index]
            text = self.data[one.byte_start : one.byte_end].decode("utf-8", "replace")
            self._codes[index] = lex(text).code
        return self._codes[index]

    def proof_of(self, index: int) -> str:
        """Return the text after a declaration's statement: its proof or value, as it is written."""
        start, end = self._proofs[self.declarations[index].byte_start]
        return decode(self.data)[0][start:end].strip().removeprefix(":=").strip()

    @cached_property
    def _proofs(self) -> dict[int, tuple[int, int]]:
        """The borders of proofs in code points, by the declaration's first byte."""
        return {one.record.byte_start: (one.stated, one.end) for one in locate(self.data).declarations}

    # ---- hidden things

    @cached_property
    def exits(self) -> int:
        """The byte of the `#exit` where Lean stops reading; -1 without one."""
        return next((one.byte_start for one in self.source.commands if one.keyword == "#exit"), -1)

    @cached_property
    def unseen(self) -> Counter[str]:
        """The deceptive characters: those that change the direction of text, anywhere, and invisible ones in code."""
        text = self.data.decode("utf-8", "replace")
        result = {one for one in set(text) if one not in _SHOWN_AS_SPACE and invisible(one)}
        if not result:
            return Counter()
        bare = lex(text).bare.translate(_MASKS)
        return Counter({one: (text if one in _BIDI else bare).count(one) for one in sorted(result)})

    def unknown_command_with(self, name: str) -> Command | None:
        """Return the command of a library, or of the project's own, with this name in it."""
        if name.encode() not in self.data:
            return None
        return next(
            (
                command
                for command in self.source.commands
                if command.kind == "other"
                and command.keyword not in KEYWORDS
                and not command.keyword.startswith(("#", "/"))
                and name in words_of(lex(command.text).code)
            ),
            None,
        )

    # ---- around a declaration

    def contexts(self, chains: Chains) -> dict[int, int]:
        """Return the chain of parts in force at each declaration that belong to its statement, by index."""
        result: dict[int, int] = {}
        chain = [0]  # of the first 0, 1, 2, … lines
        for command, lines in self.source.in_force():
            # One command closes scopes or adds lines, never both.
            del chain[len(lines) + 1 :]
            for line in lines[len(chain) - 1 :]:
                chain.append(_with(chains, chain[-1], line))
            inside = self._inside(command)
            if not inside:
                continue
            here = chain[-1]
            for line in before_the_declaration(
                self.data[command.byte_start : inside[0][0]].decode("utf-8", "replace")
            ):
                here = _with(chains, here, line)
            result.update((index, here) for _, index in inside)
        return result

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """The notations, macros and instances, in order."""
        instances = {index for index, one in enumerate(self.declarations) if one.kind == "instance"}
        if not instances and not any(one.keyword in _GIVE_MEANING for one in self.source.commands):
            return ()
        result = []
        for command, lines in self.source.in_force():
            some = [index for _, index in self._inside(command) if index in instances]
            items = [(self._instance(index, lines), self.code_of(index)) for index in some]
            if command.keyword in NOTATIONS:
                item = notation_of(lex(command.text).code, command.keyword, byte=command.byte_start)
                items.append((item, command.text))
            if command.keyword == "attribute":
                made = (self._made_one(name, command) for name in given_later(lex(command.text).code))
                items += [(item, "") for item in made if item is not None]
            for item, text in items:
                space = ".".join(line.split()[1] for line in lines if line.startswith("namespace "))
                scoped = _SCOPED.search(text[:_HEAD])
                result.append(
                    item._replace(namespace=space, scope=(scoped.group(1) or space) if scoped else "")
                )
        return tuple(sorted(result, key=lambda item: item.byte))

    def _made_one(self, name: str, command: Command) -> Item | None:
        """Return the instance made by an `attribute` command; None if it is a proof.

        A name without a declaration here is a field: the item stands for the field's class.
        """
        above, _, last = name.rpartition(".")
        own = next((one for one in self.declarations if one.name.rpartition(".")[2] == last), None)
        if own is not None and own.kind in PROVABLE_KINDS:
            return None
        statement = own.statement if own is not None else f": {above}" if above else ""
        item = instance_of(lex(command.text).code, statement, byte=command.byte_start)
        return item._replace(named=()) if "default_instance" in item.text else item

    def _instance(self, index: int, lines: Iterable[str]) -> Item:
        one = self.declarations[index]
        parts = [part for line in lines for part in parts_of(line)]
        variables = {name for part in parts if part.kind in ("variable", "instance") for name in part.names}
        return instance_of(self.code_of(index), one.statement, byte=one.byte_start, variables=variables)

    @cached_property
    def defined(self) -> tuple[Definition, ...]:
        """All possible subjects of a statement: every declaration but theorems and instances."""
        return tuple(
            Definition(
                one.name,
                self.item.path,
                index,
                one.byte_start,
                self.meaning_of(index),
                private=self.private(index),
            )
            for index, one in enumerate(self.declarations)
            if one.kind not in _NOT_DEFINED
        )

    def meaning_of(self, index: int) -> str:
        """Return a hash of a declaration's content, without its name, its attributes and harmless derived instances."""
        one = self.declarations[index]
        rest = self.read.proof_hashes[index]
        if b"deriving" in self.data[one.byte_start : one.byte_end] and one.kind in HAS_FIELDS:
            _, _, body = normalise(self.code_of(index)).partition(
                one.statement or one.name.rpartition(".")[2]
            )
            rest = short_hash("proof", _DERIVED.sub(_left_of_derived, body).strip())
        return f"{one.statement_hash} {rest}"

    # ---- words that count

    def _inside(self, command: Command) -> list[tuple[int, int]]:
        first = bisect_left(self._starts, (command.byte_start, -1))
        return self._starts[first : bisect_left(self._starts, (command.byte_end, -1))]

    def marks_of(self, index: int) -> list[Mark]:
        """Return the marks of one declaration."""
        start, commands = self.declarations[index].byte_start, self.source.commands
        at = bisect_left(commands, start + 1, key=lambda one: one.byte_end)
        return (
            [mark for mark in self.marks(commands[at]) if mark.owner == index] if at < len(commands) else []
        )

    def modifier_of(self, index: int) -> str:
        """Return `unsafe` or `partial` if the declaration is one: the kernel then sees no proof."""
        return next((word for word in self._modifiers(index) if word in UNPROVED_MODIFIERS), "")

    def private(self, index: int) -> bool:
        """Return whether other files cannot see the declaration."""
        return "private" in self._modifiers(index)

    def has_a_sorry(self, index: int) -> bool:
        """Return whether the declaration has a sorry."""
        return index in self._sorried

    @cached_property
    def _sorried(self) -> frozenset[int]:
        return frozenset(self.owners.values())

    def _modifiers(self, index: int) -> list[str]:
        one = self.declarations[index]
        head = self.data[one.byte_start : one.byte_start + _HEAD].decode("utf-8", "replace")
        return _MODIFIER.findall(lex(head).code.split(one.kind.split(" ")[-1])[0])

    def marks(self, command: Command) -> list[Mark]:
        """Return the words that count in a command."""
        if command.byte_start not in self._marks:
            text = "" if command.keyword in LEAVE_NOTHING else skeleton(command.text)
            suspect = {word for word in _SUSPECT if word in text}
            if suspect == {"sorry", "sorr"} and text.count("sorr") == self._sorries_in(command):
                suspect = set()
            self._marks[command.byte_start] = list(self._marked(command)) if suspect else []
        return self._marks[command.byte_start]

    def _sorries_in(self, command: Command) -> int:
        starts = self._sorry_starts
        return bisect_left(starts, command.byte_end) - bisect_left(starts, command.byte_start)

    def _marked(self, command: Command) -> Iterator[Mark]:
        inside = self._inside(command)
        code = self.data[command.byte_start : command.byte_end].decode("utf-8", "replace")
        tokens, _ = tokens_of_text(code)

        def owner(byte: int) -> int:
            at = max(bisect_left(inside, (byte + 1, -1)) - 1, 0)
            return inside[at][1] if inside else -1

        previous = ""
        for token, next_token in zip_longest(tokens, tokens[1:]):
            byte = command.byte_start + token.byte_start
            after = next_token.text if next_token else ""
            result = (
                None
                if previous == "set_option"
                else self._counts(command, token.text, byte, before=previous, after=after)
            )
            previous = skeleton(token.text)
            if result is not None:
                yield Mark(*result, byte, owner(byte))
        plain = lex(code).code
        piece = _PIECE_OF_A_NAME.search(plain)
        if piece is not None and _JOINED.search(plain):
            byte = command.byte_start + len(plain[: piece.start()].encode())
            yield Mark("hidden", "a name that is put together in a program", byte, owner(byte))

    def _counts(
        self, command: Command, word: str, byte: int, *, before: str, after: str
    ) -> tuple[MarkKind, str] | None:
        """Return the kind and the text of a word's mark."""
        plain = skeleton(word)
        if plain == "set_option":
            skips = skeleton(after).split(".")[0] == "debug"
            return None if changes_nothing(after) else ("unchecked" if skips else "option", after)
        parts = {part.rstrip("?!") for part in plain.removeprefix("_root_.").split(".")}
        if (parts & (SORRY_NAMES | UNCHECKED_NAMES)) - {part.rstrip("?!") for part in word.split(".")}:
            return "hidden", f"{word}, which looks like {plain},"
        declares = command.kind == "declaration"
        where = "quoted syntax" if declares else f"the command {command.keyword}"
        left = self.data[byte - 1 : byte]
        if parts & MAKERS or plain.endswith(".admit") or (plain == "admit" and left == b"."):
            if "sorryAx" in parts and declares and left != b"`":
                return "unchecked", plain
            return "hidden", f"{plain} in {'a program' if declares else where}"
        if plain in SORRY_NAMES:
            if byte in self.owners or left in (b".", b"`") or (plain == "admit" and declares):
                return None
            return "hidden", f"{plain} in {where}"
        if plain == "axiom" != command.keyword:
            return "hidden", f"{plain} in {where}"
        if parts & UNCHECKED_NAMES:
            return "unchecked", plain
        named = before in KEYWORDS
        if (
            plain in ADMITTING
            and declares
            and not named
            and (plain.endswith(("?", "!")) or self._tactic(before, byte))
        ):
            return "unchecked", f"{plain}, which looks for a proof,"
        return None

    def _tactic(self, before: str, byte: int) -> bool:
        """Return whether a word stands in a tactic's place: it could also be the name of a hypothesis."""
        line = self.data[self.data.rfind(b"\n", 0, byte) + 1 : byte]
        return before in _BEFORE_A_TACTIC or not line.strip()


def _left_of_derived(match: re.Match[str]) -> str:
    names = [name.strip() for name in match.group(1).split(",")]
    left = ", ".join(name for name in names if name not in SAY_NOTHING)
    return f"deriving {left}" if left else ""


def _with(chains: Chains, chain: int, line: str) -> int:
    for part in parts_of(line):
        chain = chains.longer(chain, part)
    return chain


def version_of(mirror: Mirror, item: TreeFile) -> Version:
    """Read a version of a file from a mirror; a missing one becomes an unread version."""
    try:
        return Version(item, content(mirror, item))
    except JobError as error:
        if error.reason != "object_missing":
            raise
        return Version(item, "git has not its content here, as in a partial clone; not scanned")


def earlier(version: Version) -> list[Decl]:
    """Return a file's earlier declarations; its sorries are identified by their places."""
    scan, item = version.read.scan, version.item
    living = [
        LivingSorry(f"{item.path}\0{sorry.byte_start}", place_of(scan, sorry, path=item.path, blob=item.blob))
        for sorry in scan.sorries
    ]
    return declarations_known(living, version.read, path=item.path) or []


def present(version: Version) -> list[Decl]:
    """Return a file's present declarations."""
    return declarations_now(version.read, path=version.item.path, blob=version.item.blob)


def same_text(one: str, other: str) -> bool:
    """Return whether two pieces of code are the same but for white space and comments."""
    return normalise(lex(one).code) == normalise(lex(other).code)
