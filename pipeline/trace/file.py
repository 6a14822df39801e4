"""Trace one file: theorems, tactics, premises, the goals of its sorries, and the gaps.

`Trace.lean` reports what Lean knows about the file; `source` reads its text.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.errors import ImportsRefused, ReplDied, short
from pipeline.lean.client.messages import Message
from pipeline.lean.goal_text import dojo_state
from pipeline.lean.source.lexer import MODIFIERS, OTHERS, lex
from pipeline.lean.source.scanner import Located
from pipeline.trace.program import Answer, Command, Home, Name, Tactic, ask, compiled
from pipeline.trace.source import FileSource, plain_name
from pipeline.trace.tree import CORE, LeanFile, Tree
from store.domain.keywords import THEOREM_KINDS
from store.domain.records import (
    ConstantUse,
    PremiseUse,
    Seen,
    TracedFile,
    TracedTactic,
    TracedTheorem,
    TraceGap,
)
from store.text import listed

Site = Callable[[str], ConstantUse]
"""Returns a constant with the place of its definition."""

_FOCUS = "·"
_MAKES_SYNTAX = re.compile(rf"(?:@\[[^\]]*\]\s*)?(?:(?:{'|'.join(MODIFIERS)})\s+)*(?:{'|'.join(OTHERS)})\b")
"""Commands with constants of their own (a `macro`'s parser) that are no declarations to people."""
_BY = re.compile(r":=\s*by\b")
_CORE_MODULES = frozenset({"Init", "Std", "Lean", "Lake"})
_MOST_NAMED = 8
_SORRY = "sorryAx"
"""Lean's constant for a sorry: no premise worth retrieving."""


# ---- theorems
# As in LeanDojo, a record with no goal before it, one that changes nothing, a `·` block and a repetition (same text,
# same goals) are not steps. The text of a step is the source's, without comments.


@dataclass(frozen=True, slots=True)
class Step:
    """A tactic that counts, and its borders in the text (code points)."""

    tactic: Tactic
    start: int
    end: int


@dataclass(slots=True)
class Proof:
    """Lean's answer about one declaration: its command, whether the constant exists, its errors, its steps in order."""

    item: Located
    command: Command | None
    made: str | None = None
    errors: list[Message] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    @property
    def is_theorem(self) -> bool:
        return self.item.record.kind in THEOREM_KINDS

    @property
    def constants(self) -> list[str]:
        """Return the premises of its steps, each once."""
        return list(dict.fromkeys(name for step in self.steps for name in step.tactic.constants))

    @property
    def refusal(self) -> TraceGap | None:
        """Return why Lean's answer is no trace of this declaration; None if it is one."""
        name = self.item.record.name
        if self.command is None:
            return TraceGap("theorem", name, "Lean has no command at its place")
        if self.errors:
            # Lean continues after an error with a sorry of its own, without a warning, and makes the constant.
            return TraceGap("elaboration", name, short(self.errors[0].render()))
        if self.made is None:
            return TraceGap("theorem", name, "its command made no constant of this name")
        return None

    def holds(self, message: Message) -> bool:
        """Return True if a message is on the declaration's lines."""
        return self.item.record.line <= message.pos.line <= self.item.record.end_line

    @property
    def warned_of_sorry(self) -> bool:
        """Whether Lean's warning is on the declaration's lines (a command may declare several)."""
        messages = self.command.messages if self.command is not None else ()
        return any(message.is_sorry_warning and self.holds(message) for message in messages)

    def lacking(self, source: FileSource) -> list[TraceGap]:
        """Return a gap where a proof by tactics has no step; a proof by a term has none."""
        if self.steps or not _BY.match(source.code, self.item.stated):
            return []
        return [TraceGap("tactics", self.item.record.name, "it is proved by tactics, and Lean reported none")]


def proofs(source: FileSource, commands: Sequence[Command]) -> list[Proof]:
    """Pair the declarations of a file with Lean's answers about their commands."""
    starts = [command.start for command in commands]
    result: list[Proof] = []
    together: dict[int, list[Proof]] = {}
    for item in source.declarations:
        index = bisect_right(starts, item.record.byte_start) - 1
        command = commands[index] if index >= 0 and item.record.byte_start < commands[index].end else None
        proof = Proof(item, command)
        result.append(proof)
        if command is not None:
            proof.made = _made(item.record.name, command.made)
            together.setdefault(index, []).append(proof)
    for index, group in together.items():
        _share(source, commands[index], group)
        for error in commands[index].errors:
            # A message outside every declaration's lines (a `mutual` block without an end) counts against all.
            for proof in [one for one in group if one.holds(error)] or group:
                proof.errors.append(error)
    return result


def other_gaps(data: bytes, commands: Sequence[Command], found: Sequence[Proof]) -> list[TraceGap]:
    """Return the gaps outside all theorems of the text: other commands refused by Lean, and constants from commands
    without a declaration in their text (a macro's).
    """
    declared: dict[int, list[Proof]] = {}
    for proof in found:
        if proof.command is not None:
            declared.setdefault(proof.command.start, []).append(proof)
    gaps: list[TraceGap] = []
    for command in commands:
        inside = declared.get(command.start, [])
        if command.errors and not any(proof.is_theorem for proof in inside):
            name = inside[0].item.record.name if inside else ""
            gaps.append(TraceGap("elaboration", name, short(command.errors[0].render())))
        if inside or not command.made:
            continue
        text = lex(data[command.start : command.end].decode(errors="replace")).code.strip()
        if not _MAKES_SYNTAX.match(text):
            head = short(text.partition("\n")[0])
            reason = f"declared by {head!r}, not in the text"
            gaps += [TraceGap("generated", name, reason) for name in command.made]
    return gaps


def tactics(source: FileSource, proof: Proof, names: Sequence[Name], site: Site) -> Iterator[TracedTactic]:
    """Yield a proof's steps in LeanDojo's record, a step inside another after it.

    `names` are the file's uses of constants, in order. A use with a site is marked between `<a>` and `</a>`: a mark is
    a premise that a corpus can contain.
    """
    for step in proof.steps:
        first = bisect_left(names, step.tactic.start, key=lambda name: name.start)
        last = bisect_left(names, step.tactic.end, key=lambda name: name.start)
        marks: list[tuple[int, int]] = []
        premises: list[PremiseUse] = []
        for name in names[first:last]:
            start, end = source.positions.offset(name.start), source.positions.offset(name.end)
            use = site(name.constant)
            # If Lean elaborated it in several ways, the first one counts.
            if use.site is not None and start >= (marks[-1][1] if marks else step.start) and end <= step.end:
                marks.append((start, end))
                premises.append(PremiseUse(name.constant, *use.site))
        yield TracedTactic(
            tactic=source.step(step.start, step.end),
            annotated=source.step(step.start, step.end, marks),
            premises=tuple(premises),
            state_before=dojo_state("\n".join(step.tactic.before)),
            state_after=dojo_state("\n".join(step.tactic.after)),
            constants=step.tactic.constants,
        )


def constants_used(answer: Answer, made: str) -> list[str]:
    """Return the constants in a proof's term and in the auxiliary constants split off it (`foo.match_1`)."""
    todo, seen, used = [made], {made}, dict[str, None]()
    while todo:
        for cited in answer.uses.get(todo.pop(), ()):
            if not cited.startswith(f"{made}."):
                used[cited] = None
            elif cited not in seen:
                seen.add(cited)
                todo.append(cited)
    used.pop(made, None)
    return list(used)


def _share(source: FileSource, command: Command, group: list[Proof]) -> None:
    """Assign a command's tactics to the declarations containing them (a `mutual` block has several)."""
    seen: set[tuple[object, ...]] = set()
    for tactic in command.tactics:
        step = Step(tactic, source.positions.offset(tactic.start), source.positions.offset(tactic.end))
        text = source.code[step.start : step.end]
        same = (tactic.before, text, tactic.after)
        if not tactic.before or tactic.before == tactic.after or _FOCUS in text or same in seen:
            continue
        seen.add(same)
        owner = next((one for one in group if one.item.start <= step.start < one.item.end), group[0])
        owner.steps.append(step)


def _made(name: str, constants: Sequence[str]) -> str | None:
    """Return the constant of a declaration. A private one has its module before its name; quotes may differ."""
    wanted = plain_name(name)
    for one in constants:
        known = plain_name(one)
        if known == wanted or (known.startswith("_private.") and known.endswith(f".0.{wanted}")):
            return one
    return None


# ---- a file


@dataclass(slots=True)
class FileTrace:
    """The trace of a file. `error`: the reason why Lean could not elaborate it; then `trace` has its premises only.

    `goals` are Lean's texts by the first byte of their sorry.
    """

    trace: TracedFile
    error: str | None = None
    goals: Mapping[int, str] = field(default_factory=dict)


class FileTracer:
    """Traces files of one commit. `lean` is Lean's own program."""

    def __init__(
        self, lean: LeanBackend, *, project: Path, tree: Tree, memory_bytes: int, timeout_s: float
    ) -> None:
        self._lean = lean
        self._project = project
        self._tree = tree
        self._memory_bytes = memory_bytes
        self._timeout_s = timeout_s
        self._program = b""

    async def prepare(self) -> None:
        """Have Lean compile the tracing program; await this before `trace`.

        Raises:
            ReplStartError: Lean does not run.
        """
        self._program = await compiled(self._lean, memory_bytes=self._memory_bytes, limit_s=self._timeout_s)

    def without_lean(self, item: LeanFile) -> FileTrace:
        """Trace a dependency's file: its premises and imports, as the scanner reads them."""
        if item.problem is not None:
            return FileTrace(_unread(item), item.problem)
        source = FileSource.read(item.path, item.data())
        return FileTrace(self._file(item, source))

    async def trace(self, item: LeanFile, *, wanted: Sequence[int]) -> FileTrace:
        """Trace one of the project's files; `wanted` are the first bytes of the sorries to state goals for.

        A file's harm to Lean is no exception: a dead or slow process is the file's error.

        Raises:
            ReplStartError: Lean does not run.
        """
        if item.problem is not None:
            return FileTrace(_unread(item), item.problem)
        data = await asyncio.to_thread(item.data)
        source = await asyncio.to_thread(FileSource.read, item.path, data)
        try:
            answer = await ask(
                self._lean,
                self._program,
                project=self._project,
                path=item.name,
                data=data,
                memory_bytes=self._memory_bytes,
                limit_s=self._timeout_s,
            )
        except ImportsRefused as error:
            return self._failed(item, source, f"its imports fail: {short(str(error))}")
        except ReplDied as error:
            return self._failed(item, source, f"Lean gave no trace: {short(str(error))}")
        trace = await asyncio.to_thread(self._traced, item, source, data, answer, wanted)
        return FileTrace(trace, goals=answer.sorries)

    def _traced(
        self, item: LeanFile, source: FileSource, data: bytes, answer: Answer, wanted: Sequence[int]
    ) -> TracedFile:
        gaps: list[TraceGap] = []
        theorems: list[TracedTheorem] = []
        unknown: dict[str, None] = {}

        def site(name: str) -> ConstantUse:
            return self._use(name, item, answer.homes.get(name))

        result = proofs(source, answer.commands)
        proved = [proof for proof in result if proof.is_theorem]
        traced = [proof for proof in proved if proof.refusal is None]
        gaps += [proof.refusal for proof in proved if proof.refusal is not None]
        for proof in traced:
            assert proof.made is not None
            names = dict.fromkeys([*constants_used(answer, proof.made), *proof.constants])
            uses = [site(name) for name in names]
            unknown |= {use.full_name: None for use in uses if use.site is None}
            gaps += proof.lacking(source)
            stated = answer.types.get(proof.made, "")
            alike = [site(name) for name in answer.proved.get(stated, ())]
            theorems.append(
                TracedTheorem(
                    full_name=proof.item.record.name,
                    statement=source.statement(proof.item),
                    start=source.begin(proof.item),
                    end=source.position(proof.item.end),
                    tactics=tuple(tactics(source, proof, answer.names, site)),
                    premises=tuple(uses),
                    sorry=_SORRY in names or proof.warned_of_sorry,
                    type=stated,
                    alike=tuple(use for use in alike if self._is_of_others(use)),
                    proof=source.proof(proof.item),
                )
            )
        gaps += other_gaps(data, answer.commands, result)
        unknown.pop(_SORRY, None)
        if unknown:
            reason = f"no definition site is known of {listed(list(unknown), _MOST_NAMED)}"
            gaps.append(TraceGap("premise_site", "", reason))
        for byte in wanted:
            if byte not in answer.sorries:
                reason = "Lean told no goal at its place"
                gaps.append(TraceGap("sorry_goal", source.declaration_at(byte), reason))
        seen = Seen(
            theorems=len(proved),
            theorems_traced=len(traced),
            tactics=sum(len(proof.steps) for proof in proved),
            tactics_traced=sum(len(proof.steps) for proof in traced),
        )
        return self._file(item, source, theorems=theorems, gaps=gaps, seen=seen)

    def _use(self, name: str, own: LeanFile, home: Home | None) -> ConstantUse:
        """Return a constant with its definition's site, None if unknown to Lean or the folders."""
        if home is None or home.place is None:
            return ConstantUse(name)
        file = self._tree.find(home.module) if home.module else own
        path = _core_path(home.module) if file is None else file.path
        if path is None:
            return ConstantUse(name)
        start, end = home.place
        return ConstantUse(name, (path, (start.line, start.column + 1), (end.line, end.column + 1)))

    def _is_of_others(self, use: ConstantUse) -> bool:
        """Return whether a constant is a package's or Lean's, by its definition's site."""
        return use.site is not None and use.site[0] not in self._tree.files

    def _file(
        self,
        item: LeanFile,
        source: FileSource,
        *,
        theorems: Sequence[TracedTheorem] = (),
        gaps: Sequence[TraceGap] = (),
        seen: Seen | None = None,
    ) -> TracedFile:
        return TracedFile(
            path=item.path,
            imports=tuple(file.path for file in self._tree.imported(item)),
            premises=source.premises(),
            theorems=tuple(theorems),
            gaps=tuple(gaps),
            seen=seen,
        )

    def _failed(self, item: LeanFile, source: FileSource, reason: str) -> FileTrace:
        n_theorems = sum(Proof(one, None).is_theorem for one in source.declarations)
        trace = self._file(item, source, gaps=[TraceGap("file", "", reason)], seen=Seen(n_theorems, 0, 0, 0))
        return FileTrace(trace, reason)


def _unread(item: LeanFile) -> TracedFile:
    reason = item.problem or ""
    return TracedFile(item.path, (), (), (), gaps=(TraceGap("file", "", reason),), seen=Seen(0, 0, 0, 0))


def _core_path(module: str) -> str | None:
    """Return LeanDojo's path for a module of Lean itself; the package of any other module is unknown."""
    parts = module.split(".")
    if parts[0] not in _CORE_MODULES:
        return None
    return str(PurePosixPath(CORE, *parts)) + ".lean"
