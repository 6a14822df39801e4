"""Ask Lean about one file by our program `Trace.lean`, which runs on every toolchain: see there."""

from __future__ import annotations

import asyncio
import re
import secrets
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, cast

from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.errors import (
    ImportsRefused,
    ReplDied,
    ReplProtocolError,
    ReplStartError,
    ReplTimeout,
)
from pipeline.lean.client.messages import Message, Position, Severity
from pipeline.lean.client.process import run_to_end
from pipeline.lean.export import read_export
from pipeline.lean.goal_text import joined
from pipeline.lean.program_text import program_text
from pipeline.lean.source.imports import lean_options, module_of, module_path, source_folders

PROGRAM = Path(__file__).with_name("Trace.lean")
_COMPILED, _ANSWER = "Trace.olean", "answer"
_MOST_BYTES = 512 * 1024 * 1024
_MOST = 2**31
_DIGEST = 16
UNREAD = (ValueError, LookupError)
"""Errors of reading an invalid answer: code run by the file may write anything there."""
_INSIDE = frozenset(bytes([byte]) for byte in range(0x80, 0xC0))
"""The bytes that never begin a UTF-8 character."""
_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_SEVERITIES: dict[str, Severity] = {"error": "error", "warning": "warning", "info": "information"}


@dataclass(frozen=True, slots=True)
class Tactic:
    """A tactic in a file's bytes, the goals before and after it, and the constants it made itself."""

    start: int
    end: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    constants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """A command in a file's bytes: Lean's messages, the constants it made, and its tactics."""

    start: int
    end: int
    messages: tuple[Message, ...] = ()
    made: tuple[str, ...] = ()
    tactics: tuple[Tactic, ...] = ()

    @property
    def errors(self) -> tuple[Message, ...]:
        return tuple(message for message in self.messages if message.is_error)


class Name(NamedTuple):
    """Where in a file's bytes a constant is named."""

    start: int
    end: int
    constant: str


class Home(NamedTuple):
    """The module of a constant ("": the file itself), and the place of its name there, if Lean knows it."""

    module: str
    place: tuple[Position, Position] | None


@dataclass(frozen=True, slots=True)
class Answer:
    """Lean's answer about a file: its commands, the places of names in order, the constants used by each constant of
    the file, the homes of all used constants, and the goals of sorries by their first byte.

    `types` are digests of the types of the file's theorems, equal if Lean calls the types the same, up to the names of
    bound variables and universes; `proved` maps such digests to imported theorems.
    """

    commands: tuple[Command, ...]
    names: tuple[Name, ...] = ()
    uses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    homes: Mapping[str, Home] = field(default_factory=dict)
    sorries: Mapping[int, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    proved: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


async def compiled(lean: LeanBackend, *, memory_bytes: int | None, limit_s: float) -> bytes:
    """Return `Trace.lean` compiled by Lean's own program: it takes seconds, and is done once a run.

    Nothing of a project is on the search path, and no file of one can reach the bytes.

    Raises:
        ReplStartError: Lean does not run, or refuses the program.
    """
    with (
        tempfile.TemporaryDirectory(prefix="everlean-trace-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryDirectory(prefix="everlean-trace-", ignore_cleanup_errors=True) as nowhere,
    ):
        (text,) = _written(folder, {PROGRAM.name: program_text(PROGRAM, "Nodes")})
        status, said = await run_to_end(
            lean,
            ("-R", folder, "-o", f"{folder}/{_COMPILED}", text),
            project=Path(nowhere),
            folder=Path(folder),
            memory_bytes=memory_bytes,
            limit_s=limit_s,
        )
        if status != 0:
            raise ReplStartError(_explained(status, said, limit_s))
        return await asyncio.to_thread(Path(folder, _COMPILED).read_bytes)


async def ask(
    lean: LeanBackend,
    program: bytes,
    *,
    project: Path,
    path: str,
    data: bytes,
    memory_bytes: int | None,
    limit_s: float,
) -> Answer:
    """Elaborate a project's file, with its imports built, by Lean's own program; return the answer about the file.

    `program` is the result of `compiled` for this Lean.

    Raises:
        ImportsRefused: Lean reports a failure of the imports.
        ReplStartError: Lean cannot be run.
        ReplTimeout: it took longer than `limit_s`.
        ReplDied, ReplProtocolError: it gave no answer, or an invalid one.
    """
    module = module_path(module_of(path, source_folders(project)))
    settings = [word for option in lean_options(project) for word in _setting(option)]
    name = f"EverleanTrace{secrets.token_hex(8)}"  # a name no project can have
    with tempfile.TemporaryDirectory(prefix="everlean-trace-", ignore_cleanup_errors=True) as folder:
        main, text, _ = _written(
            folder,
            {
                "Main.lean": f"import {name}\nunsafe def main := Trace.main\n".encode(),
                # In Lean's reading, which drops a carriage return before a line feed.
                "File.lean": data.replace(b"\r\n", b"\n"),
                f"{name}.olean": program,
            },
        )
        status, said = await run_to_end(
            lean,
            ("--run", main, f"{folder}/{_ANSWER}", text, "/".join(module.parts), *settings),
            project=project,
            folder=Path(folder),
            memory_bytes=memory_bytes,
            limit_s=limit_s,
        )
        explained = _explained(status, said, limit_s)
        if status is None:
            raise ReplTimeout(explained)
        return await asyncio.to_thread(_read_file, Path(folder, _ANSWER), data, status, explained)


def _read_file(answer: Path, data: bytes, status: int, explained: str) -> Answer:
    try:
        if status != 0 or not answer.is_file() or answer.is_symlink():
            # This Lean has compiled the program. So the file is to blame; its code may also remove files here.
            raise ReplDied(explained)
        size = answer.stat().st_size
        if size > _MOST_BYTES:
            raise ReplProtocolError(f"{PROGRAM.name}: an answer of {size} bytes is longer than {_MOST_BYTES}")
        with answer.open(encoding="utf-8", newline="\n") as lines:
            return read(lines, data)
    except (*UNREAD, OSError) as error:
        raise ReplProtocolError(f"{PROGRAM.name}: the answer is none: {error}") from error


def _written(folder: str, files: Mapping[str, bytes]) -> list[str]:
    for name, content in files.items():
        Path(folder, name).write_bytes(content)
    return [str(Path(folder, name)) for name in files]


def _explained(status: int | None, said: str, limit_s: float) -> str:
    why = f"not done in {limit_s:g} s" if status is None else f"exit status {status}"
    return f"{PROGRAM.name}: {why}" + (f": {said.strip()[-2000:]}" if said.strip() else "")


def read(lines: Iterator[str], data: bytes) -> Answer:
    """Read the program's answer about a file of these bytes.

    Raises:
        ImportsRefused: the answer reports a failure of the imports.
        ValueError, LookupError: the answer is invalid (`UNREAD`).
    """
    told = _Told(data)
    for line in lines:
        word, *texts = line.removesuffix("\n").split("\t")
        told.take(word, [_text(one) for one in texts])
    return told.answer()


@dataclass(slots=True)
class _Types:
    """The types of theorems: an export, and the theorems' numbers in it."""

    export: list[str] = field(default_factory=list)
    states: dict[str, int] = field(default_factory=dict)
    proves: dict[str, int] = field(default_factory=dict)

    def take(self, word: str, texts: Sequence[str]) -> None:
        if word == "export":
            self.export.append(texts[0])
        else:
            name, term = texts
            (self.states if word == "states" else self.proves)[name] = int(term)

    def digests(self) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
        """Return the digests of the file's theorems' types by name, and the imported theorems' names by digest."""
        if not self.states:
            return {}, {}
        export = read_export(self.export)
        types = {name: export.type_of((), term).hex()[:_DIGEST] for name, term in self.states.items()}
        proved: dict[str, list[str]] = {}
        for name, term in sorted(self.proves.items()):
            proved.setdefault(export.type_of((), term).hex()[:_DIGEST], []).append(name)
        return types, {one: tuple(names) for one, names in proved.items()}


@dataclass(slots=True)
class _Told:
    """An answer in the making. Places are in the file's own bytes as soon as they are taken."""

    data: bytes
    starts: list[int] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    tactics: list[Tactic] = field(default_factory=list)
    names: set[Name] = field(default_factory=set)
    sorries: dict[int, list[str]] = field(default_factory=dict)
    made: dict[str, int | None] = field(default_factory=dict)
    uses: dict[str, tuple[str, ...]] = field(default_factory=dict)
    homes: dict[str, Home] = field(default_factory=dict)
    types: _Types = field(default_factory=_Types)
    unread: bool = False
    ended: bool = False
    _dropped: list[int] = field(init=False)
    _lines: list[int] = field(init=False)

    def __post_init__(self) -> None:
        result = (match.start() for match in re.finditer(b"\r\n", self.data))
        self._dropped = [at - count for count, at in enumerate(result)]
        self._lines = [0, *(match.end() for match in re.finditer(b"\n", self.data))]

    def take(self, word: str, texts: Sequence[str]) -> None:
        if self.ended:
            raise ValueError(f"{word} after the end")
        match word:
            case "command":
                self.starts.append(self._byte(texts[0]))
            case "message":
                self.messages.append(_message(texts))
            case "tactic":
                self.tactics.append(self._tactic(texts))
            case "name":
                self.names.add(Name(self._byte(texts[0]), self._byte(texts[1]), texts[2]))
            case "sorry":
                self.sorries.setdefault(self._byte(texts[0]), []).append(texts[1].strip("\n"))
            case "made":
                self.made[texts[0]] = self._at(_position(*texts[1:3])) if texts[1:] else None
            case "uses":
                self.uses[texts[0]] = tuple(texts[1:])
            case "home":
                self.homes[texts[0]] = _home(texts[1], texts[2:])
            case "export" | "states" | "proves":
                self.types.take(word, texts)
            case "unread":
                self.unread = True
            case "end":
                self.ended = True
            case _:
                raise ValueError(f"a line of {word!r}")

    def answer(self) -> Answer:
        if not self.ended:
            raise ValueError("it has no end")
        if self.unread:
            wrong = next((one.data for one in self.messages if one.is_error), "its header does not parse")
            raise ImportsRefused(wrong)
        types, proved = self.types.digests()
        return Answer(
            tuple(self._commands()),
            tuple(sorted(self.names)),
            self.uses,
            self.homes,
            {at: joined(goals) for at, goals in self.sorries.items()},
            types,
            proved,
        )

    def _commands(self) -> Iterator[Command]:
        starts = sorted(set(self.starts))
        messages: list[list[Message]] = [[] for _ in starts]
        tactics: list[list[Tactic]] = [[] for _ in starts]
        result: list[list[str]] = [[] for _ in starts]
        for tactic in self.tactics:
            tactics[_index(starts, tactic.start)].append(tactic)
        for name, at in self.made.items():
            if at is not None:
                result[_index(starts, at)].append(name)
        for message in self.messages:
            messages[_index(starts, self._at(message.pos))].append(message)
        for number, (start, end) in enumerate(pairwise([*starts, len(self.data)])):
            yield Command(start, end, tuple(messages[number]), tuple(result[number]), tuple(tactics[number]))

    def _byte(self, text: str) -> int:
        """Return the file's offset of a byte counted by Lean."""
        at = _number(text)
        at += bisect_left(self._dropped, at)
        if at > len(self.data) or self.data[at : at + 1] in _INSIDE:
            raise ValueError(f"byte {at} of {len(self.data)} begins no character")
        return at

    def _at(self, place: Position) -> int:
        start = self._lines[place.line - 1]
        line = self.data[start : self.data.find(b"\n", start) + 1 or None].decode()
        return start + len(line[: place.column].encode())

    def _tactic(self, texts: Sequence[str]) -> Tactic:
        start, end, rest = self._byte(texts[0]), self._byte(texts[1]), texts[2:]
        before, rest = _counted(rest)
        after, rest = _counted(rest)
        if start >= end:
            raise ValueError(f"a tactic from byte {start} to byte {end}")
        return Tactic(start, end, before, after, tuple(dict.fromkeys(rest)))


def _number(text: str) -> int:
    number = int(text)
    if not 0 <= number <= _MOST:
        raise ValueError(f"{text} is no place in a file")
    return number


def _position(line: str, column: str) -> Position:
    return Position(_number(line), _number(column))


def _index(starts: Sequence[int], at: int) -> int:
    return max(0, bisect_right(starts, at) - 1)


def _counted(texts: Sequence[str]) -> tuple[tuple[str, ...], Sequence[str]]:
    """Split a list of goals, each begun by Lean with an empty line, from the rest."""
    end = _number(texts[0]) + 1
    if len(texts) < end:
        raise ValueError(f"{texts[0]} goals of which {len(texts) - 1} are there")
    return tuple(goal.strip("\n") for goal in texts[1:end]), texts[end:]


def _message(texts: Sequence[str]) -> Message:
    severity, line, column, end_line, end_column, text = texts
    return Message(
        _SEVERITIES[severity],
        text,
        pos=_position(line, column),
        end_pos=_position(end_line, end_column),
    )


def _home(module: str, place: Sequence[str]) -> Home:
    if not place:
        return Home(module, None)
    line, column, end_line, end_column = place
    return Home(module, (_position(line, column), _position(end_line, end_column)))


def _setting(option: str) -> tuple[str, str, str]:
    """Return a lakefile's option in the program's form; `weak.` allows Lean not to know it."""
    name, _, value = option.removeprefix("weak.").partition("=")
    kind = "bool" if value in ("true", "false") else "nat" if value.isdecimal() else "text"
    return name, kind, value


def _text(quoted: str) -> str:
    if len(quoted) < 2 or quoted[0] != '"' or quoted[-1] != '"':
        raise ValueError(f"no text in quotes: {quoted[:80]!r}")
    return _ESCAPE.sub(_unescaped, quoted[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    said = cast(str, match[1])
    return chr(int(said[1:], 16)) if len(said) == 3 else _ESCAPED.get(said, said)
