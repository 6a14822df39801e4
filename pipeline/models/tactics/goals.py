"""A dataset's goal as Lean's again: the theorem of the goal, and its place in a project.

A dataset has goals as Lean printed them. `statement` makes a theorem whose proof begins at that goal; `Statement.is_of`
checks it with Lean, because Lean does not always read its own output. `Places` finds the imports, the text and the open
namespaces of the goal's theorem in its file, without the theorem itself and everything after it: in no place can a goal
be closed by citing itself.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pipeline.lean import goal_text
from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.messages import Goal
from pipeline.lean.pool.pool import ReplKey, Setup
from pipeline.lean.source.scanner import Command, SourceFile, parse
from pipeline.models.text import state_text
from store.events.projects import inside

NAME = "everlean_goal"
_TARGET = "⊢ "
_HYPOTHESIS = re.compile(r"([^\s:][^:]*?) :\s+(.+)", re.DOTALL)
_HIDDEN = re.compile(r"[^\s()\[\]{},]+✝[⁰¹²³⁴⁵⁶⁷⁸⁹]*")
_NOTHING = Setup()


@dataclass(frozen=True, slots=True)
class GoalContext:
    """A place to state goals: the process, the text before, and the open namespaces."""

    key: ReplKey
    setup: Setup = _NOTHING
    preamble: str = ""


Places = Callable[[Mapping[str, Any]], GoalContext | None]
"""Returns the place of a row's goal; None if unknown."""


@dataclass(frozen=True, slots=True)
class Statement:
    """The theorem of a goal: its text up to `:=`, and the goal as the dataset has it."""

    header: str
    goal: str

    def text(self, place: GoalContext, tactic: str = "sorry") -> str:
        """Return the theorem with a proof by `tactic`, as a text for its place."""
        opened = f"{place.preamble}\n" if place.preamble else ""
        lines = "".join(f"  {line}\n" for line in tactic.split("\n"))
        return f"{opened}{self.header} := by\n{lines}"

    def is_of(self, goals: tuple[Goal, ...]) -> bool:
        """Return whether these goals are the dataset's one goal; hidden names and tags may differ."""
        return len(goals) == 1 and goal_text.same_goal(
            _comparable(goal_text.as_lean_prints(goals[0])), _comparable(self.goal)
        )


def statement(state: str) -> Statement | None:
    """Return the theorem of a state's first goal; None if there is none.

    There is none for goals with local definitions (`x : T := v`), with a hypothesis under a name nobody can write
    (`x✝`), for `conv` goals and for texts that are no goal.
    """
    goals = goal_text.split_goals(state_text(state))
    if not goals:
        return None
    binders: list[str] = []
    target = ""
    for line in goal_text.whole_lines(goals[0]):
        if target:
            return None
        if line.startswith(_TARGET):
            target = line.removeprefix(_TARGET)
            continue
        binder = _binder(line)
        if binder is None:
            return None
        binders.append(binder)
    if not target or "✝" in target:
        return None
    header = " ".join([f"theorem {NAME}", *binders, f": {target}"])
    return Statement(header, goals[0])


class SourcePlaces:
    """Finds the place of each row's theorem in a checkout: its file's imports, and the file's text before it."""

    def __init__(self, backend: LeanBackend, project: Path, folder: str = "") -> None:
        """Args:
        backend: runs Lean.
        project: the folder of the Lake project in the checkout, built, at the commit of the rows' trace.
        folder: the project's place in its repository; the rows' paths are the repository's.
        """
        self._backend = backend
        self._project = project
        self._folder = folder
        self._read = lru_cache(maxsize=64)(self._read_file)

    def __call__(self, row: Mapping[str, Any]) -> GoalContext | None:
        """Return the place of a row with "path" and "start"; None if the checkout has no declaration there."""
        path, start = row.get("path"), row.get("start")
        file = self._read(str(path)) if path and start else None
        if file is None or start is None:
            return None
        line, column = start
        number = file.declaration_at(_byte_at(file.data, int(line), int(column)))
        if number is None:
            return None
        key = ReplKey.of_file(self._backend, self._project, file.source)
        prefix = tuple(text for text in file.before[: number + 1] if text.strip())
        return GoalContext(key, Setup(prefix=prefix), file.preambles[number])

    def _read_file(self, path: str) -> _SourcePieces | None:
        file = self._project / inside(path, self._folder)
        if not file.resolve().is_relative_to(self._project.resolve()) or not file.is_file():
            return None
        data = file.read_bytes()
        source = parse(data, path=path)
        return None if source.scanned.error is not None else _SourcePieces.of(data, source)


@dataclass(frozen=True, slots=True)
class _SourcePieces:
    """A file in declarations: each one's preamble, and the texts from one to the next, to send to processes.

    The pieces are the same for all its theorems, so a process at one theorem continues to a later one.
    """

    data: bytes
    source: SourceFile
    declarations: tuple[Command, ...]
    preambles: tuple[str, ...]
    before: tuple[str, ...]

    @classmethod
    def of(cls, data: bytes, source: SourceFile) -> _SourcePieces:
        declarations = tuple(command for command in source.commands if command.kind == "declaration")
        borders = [source.header_end, *(command.byte_start for command in declarations)]
        preambles = [source.preamble_at(border) for border in borders]
        texts = [data[start:end].decode("utf-8", "replace") for start, end in itertools.pairwise(borders)]
        pieces = [
            f"{opened}\n{text}" if opened else text for opened, text in zip(preambles, texts, strict=False)
        ]
        return cls(data, source, declarations, tuple(preambles[1:]), tuple(pieces))

    def declaration_at(self, byte: int) -> int | None:
        """Return the number of the declaration with this byte; its text begins after `before[: number + 1]`."""
        result = (n for n, item in enumerate(self.declarations) if item.byte_start <= byte < item.byte_end)
        return next(result, None)


def _binder(line: str) -> str | None:
    match = _HYPOTHESIS.match(line)
    if match is None or " := " in match[2] or "✝" in match[2]:
        return None
    names, type_text = match[1], match[2]
    hidden = [name for name in names.split() if "✝" in name]
    if not hidden:
        return f"({names} : {type_text})"
    if len(hidden) != len(names.split()):
        return None
    # Lean names an instance, like every unnamed hypothesis.
    return " ".join(f"[{type_text}]" if name.startswith("inst✝") else f"(_ : {type_text})" for name in hidden)


def _comparable(goal: str) -> str:
    """Return a goal without its tag, hidden names and line breaks, all without meaning."""
    return "\n".join(" ".join(_HIDDEN.sub("_✝", line).split()) for line in goal_text.whole_lines(goal))


def _byte_at(data: bytes, line: int, column: int) -> int:
    """Return the byte of a line and column, both from 1; columns count code points."""
    lines = data.split(b"\n")
    before = sum(len(text) + 1 for text in lines[: line - 1])
    rest = lines[line - 1].decode("utf-8", "replace") if line <= len(lines) else ""
    return before + len(rest[: column - 1].encode())
