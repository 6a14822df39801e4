"""Ask Lean about one file by a program of ours, `Trace.lean`, which every toolchain can run: see there.

The answer has what a REPL would be asked for one by one: commands with what Lean says of them, records of tactics with
their places, constants, and the goals of sorries in terms.
"""

from __future__ import annotations

import re
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import cast

from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.errors import BadRequest, ReplDied, ReplProtocolError, ReplStartError, ReplTimeout
from pipeline.lean.client.messages import Constant, Expression, Invocation, Message, Position, Severity, Unit
from pipeline.lean.client.process import run_to_end
from pipeline.lean.source.imports import lean_options, module_of, module_path, source_folders

PROGRAM = Path(__file__).with_name("Trace.lean")
_MOST_BYTES = 512 * 1024 * 1024
_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_SEVERITIES: dict[str, Severity] = {"error": "error", "warning": "warning", "info": "information"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What Lean says of a file. `sorries` are the goals of those in terms, by the byte at which each begins."""

    units: tuple[Unit, ...]
    constants: Mapping[str, Constant]
    sorries: Mapping[int, str]

    async def env_inspect(
        self,
        name: str,
        *,
        value: bool | None = False,  # noqa: ARG002 - all is there
        dependency: bool = False,  # noqa: ARG002
        source: bool = False,  # noqa: ARG002
    ) -> Constant:
        """Return what is known of a constant that the file makes or uses, as `Repl.env_inspect` does.

        Raises:
            BadRequest: it does neither.
        """
        found = self.constants.get(name)
        if found is None:
            raise BadRequest("index", f"Trace.lean told nothing of {name}")
        return found


async def ask(
    backend: LeanBackend, *, project: Path, path: str, data: bytes, memory_bytes: int | None, limit_s: float
) -> Answer:
    """Elaborate a project's file, whose imports are built, and return what Lean says of it.

    Raises:
        ReplStartError: the imports failed, or Lean does not run.
        ReplTimeout: it took longer than `limit_s`.
        ReplDied, ReplProtocolError: it gave no answer, or one that is none.
    """
    module = module_path(module_of(path, source_folders(project)))
    settings = [word for option in lean_options(project) for word in _setting(option)]
    with tempfile.TemporaryDirectory(prefix="everlean-trace-", ignore_cleanup_errors=True) as folder:
        # As Lean reads it, which counts no carriage return before a line feed.
        program, text, answer = (Path(folder, name) for name in (PROGRAM.name, "File.lean", "answer"))
        program.write_bytes(PROGRAM.read_bytes())
        text.write_bytes(data.replace(b"\r\n", b"\n"))
        status, said = await run_to_end(
            backend,
            ("--run", str(program), str(answer), str(text), "/".join(module.parts), *settings),
            project=project,
            folder=Path(folder),
            memory_bytes=memory_bytes,
            limit_s=limit_s,
        )
        if status is None:
            raise ReplTimeout(f"no answer in {limit_s:g} s")
        if status != 0 or not answer.is_file() or answer.is_symlink():
            why = f"exit status {status}" + (f": {said.strip()[-2000:]}" if said.strip() else "")
            begun = answer.exists()  # else Lean did not come as far as the file
            raise (ReplDied if begun else ReplStartError)(f"{backend.argv[0]}: {PROGRAM.name}: {why}")
        size = answer.stat().st_size
        if size > _MOST_BYTES:
            raise ReplProtocolError(f"{PROGRAM.name}: an answer of {size} bytes is longer than {_MOST_BYTES}")
        with answer.open(encoding="utf-8", newline="\n") as lines:
            try:
                return read(lines, data)
            except (ValueError, IndexError) as error:
                raise ReplProtocolError(f"{PROGRAM.name}: the answer is none: {error}") from error


def read(lines: Iterator[str], data: bytes) -> Answer:
    """Read the program's answer about a file of these bytes.

    Raises:
        ReplStartError: it says that the imports failed.
        ValueError, IndexError: it is no answer.
    """
    told = _Told(data)
    for line in lines:
        word, *texts = line.removesuffix("\n").split("\t")
        told.take(word, [_text(one) for one in texts])
    return told.answer()


@dataclass(slots=True)
class _Told:
    """An answer in the making. Places are in the file's own bytes as soon as they are taken."""

    data: bytes
    starts: list[int] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    tactics: list[tuple[int, Invocation]] = field(default_factory=list)
    sorries: dict[int, str] = field(default_factory=dict)
    made: dict[str, int | None] = field(default_factory=dict)
    uses: dict[str, tuple[str, ...]] = field(default_factory=dict)
    homes: dict[str, Constant] = field(default_factory=dict)
    unread: bool = False
    ended: bool = False
    _dropped: list[int] = field(init=False)
    _lines: list[int] = field(init=False)

    def __post_init__(self) -> None:
        found = (match.start() for match in re.finditer(b"\r\n", self.data))
        self._dropped = [at - count for count, at in enumerate(found)]
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
            case "sorry":
                self.sorries[self._byte(texts[0])] = texts[1].strip("\n")
            case "made":
                self.made[texts[0]] = self._at(Position(int(texts[1]), int(texts[2]))) if texts[1:] else None
            case "uses":
                self.uses[texts[0]] = tuple(texts[1:])
            case "home":
                self.homes[texts[0]] = _home(texts[1], texts[2:])
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
            raise ReplStartError(wrong)
        made = {
            name: Constant(Expression(), False, value_dependency=self.uses.get(name, ()))
            for name in self.made
        }
        return Answer(tuple(self._units()), {**self.homes, **made}, self.sorries)

    def _units(self) -> Iterator[Unit]:
        starts = sorted(set(self.starts))
        messages: list[list[Message]] = [[] for _ in starts]
        tactics: list[list[Invocation]] = [[] for _ in starts]
        names: list[list[str]] = [[] for _ in starts]
        for start, tactic in self.tactics:
            tactics[_index(starts, start)].append(tactic)
        for name, at in self.made.items():
            if at is not None:
                names[_index(starts, at)].append(name)
        for message in self.messages:
            messages[_index(starts, self._at(message.pos))].append(message)
        for number, (start, end) in enumerate(pairwise([*starts, len(self.data)])):
            yield Unit(
                start,
                end,
                messages=tuple(messages[number]),
                new_constants=tuple(names[number]),
                n_invocations=len(tactics[number]),
                invocations=tuple(tactics[number]),
            )

    def _byte(self, text: str) -> int:
        at = int(text)
        return at + bisect_left(self._dropped, at)

    def _at(self, place: Position) -> int:
        start = self._lines[place.line - 1]
        line = self.data[start : self.data.find(b"\n", start) + 1 or None].decode()
        return start + len(line[: place.column].encode())

    def _tactic(self, texts: Sequence[str]) -> tuple[int, Invocation]:
        start, end, rest = self._byte(texts[0]), self._byte(texts[1]), texts[2:]
        before, rest = _counted(rest)
        after, rest = _counted(rest)
        return start, Invocation(
            goal_before="\n\n".join(before),
            goal_after="\n\n".join(after),
            tactic=self.data[start:end].decode(),
            used_constants=tuple(dict.fromkeys(rest)),
            place=(start, end),
        )


def _index(starts: Sequence[int], at: int) -> int:
    return max(0, bisect_right(starts, at) - 1)


def _counted(texts: Sequence[str]) -> tuple[list[str], Sequence[str]]:
    """Split a number of goals, which Lean begins with an empty line, from what follows them."""
    end = int(texts[0]) + 1
    if len(texts) < end:
        raise ValueError(f"{texts[0]} goals of which {len(texts) - 1} are there")
    return [goal.strip("\n") for goal in texts[1:end]], texts[end:]


def _message(texts: Sequence[str]) -> Message:
    severity, line, column, end_line, end_column, text = texts
    return Message(
        _SEVERITIES[severity],
        text,
        pos=Position(int(line), int(column)),
        end_pos=Position(int(end_line), int(end_column)),
    )


def _home(module: str, place: Sequence[str]) -> Constant:
    if not place:
        return Constant(Expression(), False, module=module)
    line, column, end_line, end_column = map(int, place)
    return Constant(
        Expression(),
        False,
        module=module,
        source_start=Position(line, column),
        source_end=Position(end_line, end_column),
    )


def _setting(option: str) -> tuple[str, str, str]:
    """Return an option of a lakefile as the program takes it; `weak.` says that Lean need not know it."""
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
