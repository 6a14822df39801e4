"""Trace one file: theorems, tactics, premises, the goals of its sorries, and the gaps.

Lean's part comes from `Trace.lean`, a program that the project's own toolchain runs, or from a REPL. To a REPL the
text is given whole, with its header blanked, in a process that was started with its imports, so that all offsets are
the file's own; afterwards it names the constants that each proof uses.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.errors import short
from pipeline.lean.client.messages import Invocation, Message, Unit, first_error
from pipeline.lean.client.repl import Repl, ReplError, ReplRefused, ReplStartError
from pipeline.lean.goal_text import as_lean_prints, dojo_state, hypotheses, joined, same_goal, split_goals
from pipeline.lean.pool.pool import ReplKey, ReplPool
from pipeline.lean.source.lexer import MODIFIERS, OTHERS, lex
from pipeline.lean.source.scanner import Command, Located, SourceFile, parse
from pipeline.lean.source.splice import Declaration
from pipeline.trace.program import Answer, ask
from pipeline.trace.source import (
    FileSource,
    Inspector,
    Sites,
    Span,
    annotate,
    open_namespaces,
    place,
    plain_name,
)
from pipeline.trace.tree import LeanFile, Tree
from store.domain.keywords import THEOREM_KINDS
from store.domain.records import ConstantUse, Seen, Sorry, TracedFile, TracedTactic, TracedTheorem, TraceGap
from store.text import and_more, listed

# ---- theorems
# As in LeanDojo, a record with no goal before it, one that changes nothing, a `·` block and a repetition (same text,
# same goals) are not steps. The text of a step is the source's, without comments; where Lean's text is not found in
# the source, Lean's text is kept and recorded as a gap.


_FOCUS = "·"
_MAKES_SYNTAX = re.compile(rf"(?:@\[[^\]]*\]\s*)?(?:(?:{'|'.join(MODIFIERS)})\s+)*(?:{'|'.join(OTHERS)})\b")
"""Commands that make constants of their own (a `macro` its parser), which are no declarations that people know."""


@dataclass(slots=True)
class Step:
    """A record that counts, and its position in the file (code points); None if it was not found."""

    record: Invocation
    span: Span | None


@dataclass(slots=True)
class Proof:
    """Lean's answer about one declaration: its unit, whether the constant exists, its errors, its steps in order."""

    item: Located
    unit: Unit | None
    made: str | None = None
    errors: list[Message] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    @property
    def is_theorem(self) -> bool:
        return self.item.record.kind in THEOREM_KINDS

    @property
    def constants(self) -> list[str]:
        """Return the premises of its steps, each once."""
        return list(dict.fromkeys(name for step in self.steps for name in step.record.used_constants))

    @property
    def refusal(self) -> TraceGap | None:
        """Return why Lean's answer is no trace of this declaration; None if it is one."""
        name = self.item.record.name
        if self.unit is None:
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

    def text(self, source: FileSource, step: Step) -> str:
        """A step's text: the source's, with the indentation of its first line taken off; else Lean's."""
        if step.span is None:
            return step.record.tactic
        column = source.positions.column(step.span.start)
        first, *rest = source.clean(step.span.start, step.span.end).split("\n")
        return "\n".join([first, *(_dedent(line, column) for line in rest)])


def proofs(source: FileSource, units: Sequence[Unit]) -> list[Proof]:
    """Pair the declarations of a file with what Lean says of their commands, records placed in the text."""
    starts = [unit.byte_start for unit in units]
    found: list[Proof] = []
    together: dict[int, list[Proof]] = {}
    for item in source.declarations:
        index = bisect_right(starts, item.record.byte_start) - 1
        unit = units[index] if index >= 0 and item.record.byte_start < units[index].byte_end else None
        proof = Proof(item, unit)
        found.append(proof)
        if unit is not None:
            proof.made = _made(item.record.name, unit.new_constants or ())
            together.setdefault(index, []).append(proof)
    for index, group in together.items():
        _share(source, units[index], group)
        for error in units[index].errors:
            # A message on no declaration's lines (a `mutual` block that does not end) counts against all.
            for proof in [one for one in group if one.holds(error)] or group:
                proof.errors.append(error)
    return found


def other_gaps(data: bytes, units: Sequence[Unit], found: Sequence[Proof]) -> list[TraceGap]:
    """Return what no theorem of the text accounts for: other commands that Lean refuses, and constants that a command
    makes in whose text nothing is declared (a macro's)."""
    declared: dict[int, list[Proof]] = {}
    for proof in found:
        if proof.unit is not None:
            declared.setdefault(proof.unit.byte_start, []).append(proof)
    gaps: list[TraceGap] = []
    for unit in units:
        inside = declared.get(unit.byte_start, [])
        if unit.errors and not any(proof.is_theorem for proof in inside):
            name = inside[0].item.record.name if inside else ""
            gaps.append(TraceGap("elaboration", name, short(unit.errors[0].render())))
        if inside or not unit.new_constants:
            continue
        text = lex(data[unit.byte_start : unit.byte_end].decode(errors="replace")).code.strip()
        if not _MAKES_SYNTAX.match(text):
            head = short(text.partition("\n")[0])
            reason = f"declared by {head!r}, not in the text"
            gaps += [TraceGap("generated", name, reason) for name in unit.new_constants]
    return gaps


def tactics(
    source: FileSource, proof: Proof, uses: Mapping[str, ConstantUse], namespaces: Sequence[str]
) -> tuple[TracedTactic, ...]:
    """Return a proof's steps in LeanDojo's record, a step inside another after it."""
    made: list[TracedTactic] = []
    for step in proof.steps:
        inside = [step, *_inside(proof.steps, step)]
        names = dict.fromkeys(name for one in inside for name in one.record.used_constants)
        hidden: set[str] = set()
        for one in inside:
            hidden |= hypotheses(one.record.goal_before) | hypotheses(one.record.goal_after)
        text = proof.text(source, step)
        marked, premises = annotate(
            text, uses=[uses[name] for name in names if name in uses], hidden=hidden, namespaces=namespaces
        )
        made.append(
            TracedTactic(
                tactic=text,
                annotated=marked,
                premises=premises,
                state_before=dojo_state(step.record.goal_before),
                state_after=dojo_state(step.record.goal_after),
                constants=step.record.used_constants,
            )
        )
    return tuple(made)


def _share(source: FileSource, unit: Unit, group: list[Proof]) -> None:
    """Assign a command's records to the declaration whose text holds them (a `mutual` block has several)."""
    records = list(_counting(unit.invocations or ()))
    spans: Iterable[Span | None] = (
        [_span(source, record.place) for record in records if record.place is not None]
        if all(record.place is not None for record in records)
        else place(
            [record.tactic for record in records],
            code=source.code,
            start=group[0].item.stated,
            end=max(proof.item.end for proof in group),
        )
    )
    owner = group[0]
    for record, span in zip(records, spans, strict=True):
        if span is not None:
            owner = next((one for one in group if one.item.start <= span.start < one.item.end), owner)
        owner.steps.append(Step(record, span))


def _span(source: FileSource, place: tuple[int, int]) -> Span:
    start, end = (source.positions.offset(byte) for byte in place)
    return Span(start, end)


def _counting(records: Sequence[Invocation]) -> Iterator[Invocation]:
    seen: set[tuple[str, str, str]] = set()
    for record in records:
        same = (record.goal_before, record.tactic, record.goal_after)
        if not record.goal_before.strip() or record.goal_before == record.goal_after or same in seen:
            continue
        # Pieces of a tactic that older Leans record too (`rw [h`, `]`) are no tactics.
        if _FOCUS in record.tactic or not _whole(record.tactic):
            continue
        seen.add(same)
        yield record


def _whole(tactic: str) -> bool:
    bare = lex(tactic).bare
    balanced = all(bare.count(one) == bare.count(other) for one, other in ("()", "[]", "{}", "⟨⟩"))
    return balanced and any(char.isalpha() for char in bare)


def _inside(steps: Sequence[Step], outer: Step) -> Iterator[Step]:
    if outer.span is None:
        return
    for step in steps:
        if (
            step is not outer
            and step.span is not None
            and outer.span.holds(step.span)
            and step.span != outer.span
        ):
            yield step


def _made(name: str, constants: Sequence[str]) -> str | None:
    """The constant that a declaration made. A private one has its module before its name; quotes may differ."""
    wanted = plain_name(name)
    for one in constants:
        known = plain_name(one)
        if known == wanted or (known.startswith("_private.") and known.endswith(f".0.{wanted}")):
            return one
    return None


def _dedent(line: str, column: int) -> str:
    indent = len(line) - len(line.lstrip(" "))
    return line[min(indent, column) :]


# ---- goals of sorries
# A `sorry` tactic has a record with the goals before it; so has a tactic whose whole text is `exact sorry`. For a
# `sorry` inside a term Lean gives only the goals of the whole declaration, when its sorries are opened: a goal that no
# tactic accounts for, or one that equals all remaining ones, belongs to the term. Otherwise the goal is unknown.


_WHOLE = frozenset({"sorry", "admit", "exact sorry", "exact (sorry)", "refine sorry"})


async def sorry_goals(
    pool: ReplPool,
    key: ReplKey,
    *,
    data: bytes,
    text: SourceFile,
    source: FileSource,
    proofs: Sequence[Proof],
    told: Mapping[int, str] | None,
    wanted: Sequence[int],
    timeout_s: float,
) -> tuple[dict[int, str], list[TraceGap]]:
    """Return the goals of the sorries that begin at the wanted bytes, and a gap for each that is not known.

    `told` are the goals of the sorries in terms where Lean told them with the file; None where a REPL has to be asked,
    a second one, which is taken only if there are such sorries.
    """
    asked = [sorry for sorry in text.scanned.sorries if sorry.byte_start in set(wanted)]
    if not asked:
        return {}, []
    by_record = {**(told or {}), **_by_record(source, proofs)}
    goals = {
        sorry.byte_start: by_record[sorry.byte_start] for sorry in asked if sorry.byte_start in by_record
    }
    rest = [sorry for sorry in asked if sorry.byte_start not in goals]
    if not rest or told is not None:
        return goals, _unknown(rest, "Lean told no goal at its place")
    gaps: list[TraceGap] = []
    try:
        async with asyncio.timeout(timeout_s), taken(pool, key) as repl:
            gaps += await _distilled(_Distiller(repl, data, text, timeout_s), text, rest, by_record, goals)
    except (TimeoutError, ReplStartError) as error:
        left = [sorry for sorry in rest if sorry.byte_start not in goals]
        return goals, _unknown(left, short(str(error)) or f"not distilled in {timeout_s:g} s")
    return goals, gaps


async def _distilled(
    distiller: _Distiller,
    text: SourceFile,
    rest: Sequence[Sorry],
    by_record: Mapping[int, str],
    goals: dict[int, str],
) -> list[TraceGap]:
    """Add the goals of the sorries that no record tells of; return a gap for each that stays unknown."""
    gaps: list[TraceGap] = []
    for command in _commands(text, rest):
        inside = [sorry for sorry in text.scanned.sorries if _holds(command, sorry)]
        try:
            found = await distiller.goals(command)
        except (_Stuck, ReplError) as error:
            gaps += _unknown([one for one in rest if one in inside], short(str(error)))
            continue
        known = [by_record[one.byte_start] for one in inside if one.byte_start in by_record]
        left = [one for one in inside if one.byte_start not in by_record]
        terms = _without(found, [goal for one in known for goal in split_goals(one)])
        alike = bool(terms) and all(same_goal(terms[0], other) for other in terms[1:])
        if len(terms) >= len(left) and alike:
            goals.update({one.byte_start: terms[0] for one in left if one in rest})
        else:
            reason = f"{len(left)} sorries in terms and {len(terms)} goals; which is whose, Lean does not say"
            gaps += _unknown([one for one in rest if one in inside], reason)
    return gaps


@asynccontextmanager
async def taken(pool: ReplPool, key: ReplKey) -> AsyncIterator[Repl]:
    """Reserve a process of the pool for a file: no other can use it afterwards, since it knows the declarations."""
    process = await pool.take(key)
    try:
        yield process.repl
    finally:
        pool.retire(process)


def _by_record(source: FileSource, proofs: Sequence[Proof]) -> dict[int, str]:
    """Goals by the byte of the sorry's token. A tactic that ran on several goals has them all."""
    found: dict[int, list[str]] = {}
    for proof in proofs:
        for step in proof.steps:
            if step.span is not None and step.record.tactic in _WHOLE:
                goals = split_goals(step.record.goal_before)[:1]
                found.setdefault(_byte(source, step), []).extend(goals)
    return {byte: joined(goals) for byte, goals in found.items()}


def _byte(source: FileSource, step: Step) -> int:
    assert step.span is not None
    text = source.code[step.span.start : step.span.end]
    word = "admit" if "admit" in text else "sorry"
    return source.positions.byte(step.span.start + text.rindex(word))


class _Stuck(Exception):  # noqa: N818 - named by what happened
    """Lean cannot be brought past a place of the file, so nothing behind it can be asked."""


class _Distiller:
    """A REPL that is brought to just before one declaration after the other and distils each."""

    def __init__(self, repl: Repl, data: bytes, text: SourceFile, timeout_s: float) -> None:
        self._repl = repl
        self._data = data
        self._text = text
        self._timeout_s = timeout_s
        self._reached = text.header_end
        self._stuck = ""

    async def goals(self, command: Command) -> list[str]:
        """Return the goals of a command's declarations, as Lean prints them; their order means nothing."""
        if self._stuck:
            raise _Stuck(self._stuck)
        await self._advance(command.byte_start)
        declaration = Declaration.cut(self._data, self._text, command)
        targets = await self._repl.open_sorries(declaration.framed_for_distil(), timeout_s=self._timeout_s)
        await self._repl.goal_delete({target.state for target in targets})
        return [as_lean_prints(goal) for target in targets for goal in target.goals]

    async def _advance(self, offset: int) -> None:
        piece = self._data[self._reached : offset].decode()
        if piece.strip():
            preamble = self._text.preamble_at(self._reached)
            framed = f"{preamble}\n{piece}" if preamble else piece
            try:
                units = await self._repl.process(framed, inherit_env=True, timeout_s=self._timeout_s)
            except ReplError as error:
                self._stuck = f"the text before it: {error}"
                raise
            refused = first_error(units)
            if refused is not None:
                self._stuck = f"Lean refuses the text before it: {refused.data}"
                raise _Stuck(self._stuck)
        self._reached = offset


def _commands(text: SourceFile, sorries: Sequence[Sorry]) -> list[Command]:
    return [command for command in text.commands if any(_holds(command, sorry) for sorry in sorries)]


def _holds(command: Command, sorry: Sorry) -> bool:
    return command.byte_start <= sorry.byte_start < command.byte_end


def _without(goals: Sequence[str], known: Sequence[str]) -> list[str]:
    """The goals without those that are known, one for one."""
    left = list(goals)
    for one in known:
        match = next((goal for goal in left if same_goal(goal, one)), None)
        if match is not None:
            left.remove(match)
    return left


def _unknown(sorries: Sequence[Sorry], reason: str) -> list[TraceGap]:
    return [TraceGap("sorry_goal", sorry.declaration, reason) for sorry in sorries]


_BY = re.compile(r":=\s*by\b")
_OPEN_IN = re.compile(r"\s*open\b.*\bin\s*$")
_MOST_AUXILIARIES = 64
_MOST_NAMED = 8
_SORRY = "sorryAx"
"""What a sorry is to Lean: no premise worth retrieving."""


@dataclass(slots=True)
class FileTrace:
    """The trace of a file. `error`: why Lean could not elaborate it; then `trace` has its premises only.

    `goals` are Lean's texts by the byte at which their sorry begins.
    """

    trace: TracedFile
    error: str | None = None
    goals: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class _TraceTarget:
    """A file to trace, and the process that traces it."""

    data: bytes
    text: SourceFile
    source: FileSource
    key: ReplKey
    proofs: list[Proof] = field(default_factory=list)
    told: Mapping[int, str] | None = None


class ImportsFailed(Exception):  # noqa: N818 - named by what happened
    """No REPL could be started with the file's imports; whether Lean runs at all is for the caller to find out."""

    def __init__(self, failed: FileTrace, reason: ReplStartError) -> None:
        super().__init__(str(reason))
        self.failed = failed


class FileTracer:
    """Traces files of one commit, as many at a time as the pool has processes."""

    def __init__(
        self, pool: ReplPool, backend: LeanBackend, *, project: Path, tree: Tree, timeout_s: float
    ) -> None:
        self._pool = pool
        self._backend = backend
        self._project = project
        self._tree = tree
        self._timeout_s = timeout_s
        self._sites = Sites(tree)

    async def try_lean(self) -> None:
        """Have Lean look at a file that holds nothing.

        Raises:
            ReplStartError: it does not run.
        """
        if self._backend.kind == "server":
            await self._told(self._backend, "Empty.lean", b"")
        else:
            repl = await Repl.start(self._backend, imports=("Init",), project=self._project)
            await repl.close()

    def without_lean(self, item: LeanFile) -> FileTrace:
        """Trace a dependency's file: its premises and imports, as the scanner reads them."""
        if item.problem is not None:
            return FileTrace(_unread(item), item.problem)
        source = FileSource.read(item.path, item.data())
        return FileTrace(self._file(item, source))

    async def trace(self, item: LeanFile, *, wanted: Sequence[int]) -> FileTrace:
        """Trace one of the project's files; `wanted` are the bytes at which sorries begin whose goals are asked for.

        Never raises for what the file does to Lean: a process that dies or takes too long is the file's error.

        Raises:
            ImportsFailed: see there.
        """
        if item.problem is not None:
            return FileTrace(_unread(item), item.problem)
        data = await asyncio.to_thread(item.data)
        source = await asyncio.to_thread(FileSource.read, item.path, data)
        text = await asyncio.to_thread(parse, data)
        imports = text.imports or ("Init",)
        asked = _TraceTarget(data, text, source, ReplKey(self._backend, self._project, imports))
        try:
            async with asyncio.timeout(self._timeout_s):
                trace = await self._ask(item, asked)
        except TimeoutError:
            return self._failed(item, source, f"not traced in {self._timeout_s:g} s")
        except ReplStartError as error:
            # Where the program lies differs from machine to machine, and is no part of what is traced.
            said = str(error).removeprefix(f"{self._backend.argv[0]}: ")
            reason = f"its imports fail: {short(said)}"
            raise ImportsFailed(self._failed(item, source, reason), error) from error
        except ReplError as error:
            return self._failed(item, source, f"Lean gave no trace: {short(str(error))}")
        # Goals are requested separately: a process that dies of it costs no more than the answer.
        goals, missing = await sorry_goals(
            self._pool,
            ReplKey.of_file(self._backend, self._project, text),
            data=data,
            text=text,
            source=source,
            proofs=asked.proofs,
            told=asked.told,
            wanted=wanted,
            timeout_s=self._timeout_s,
        )
        return FileTrace(replace(trace, gaps=(*trace.gaps, *missing)), goals=goals)

    async def _ask(self, item: LeanFile, asked: _TraceTarget) -> TracedFile:
        """Process the file in Lean and return what its theorems use; notes in `asked` what Lean said."""
        gaps: list[TraceGap] = []
        theorems: list[TracedTheorem] = []
        unknown: dict[str, None] = {}
        async with self._elaborated(item, asked) as (units, lean):
            asked.proofs = await asyncio.to_thread(proofs, asked.source, units)
            for proof in asked.proofs:
                if not proof.is_theorem:
                    continue
                refusal = proof.refusal
                if refusal is not None:
                    gaps.append(refusal)
                else:
                    used, unsaid = await constants_used(lean, proof)
                    theorem = await self._theorem(lean, asked.text, asked.source, proof, used)
                    theorems.append(theorem)
                    gaps += unsaid
                    unknown |= {use.full_name: None for use in theorem.premises if use.site is None}
                    gaps += _lacking(asked.source, proof)
        gaps += await asyncio.to_thread(other_gaps, asked.data, units, asked.proofs)
        unknown.pop(_SORRY, None)
        if unknown:
            gaps.append(TraceGap("premise_site", "", _unknown_sites(list(unknown))))
        proved = [proof for proof in asked.proofs if proof.is_theorem]
        steps = [step for proof in proved for step in proof.steps]
        seen = Seen(
            theorems=len(proved),
            theorems_traced=len(theorems),
            tactics=len(steps),
            tactics_traced=sum(
                step.span is not None for proof in proved if proof.refusal is None for step in proof.steps
            ),
        )
        return self._file(item, asked.source, theorems=theorems, gaps=gaps, seen=seen)

    @asynccontextmanager
    async def _elaborated(
        self, item: LeanFile, asked: _TraceTarget
    ) -> AsyncIterator[tuple[Sequence[Unit], Inspector]]:
        """Have the file elaborated by a program of ours or by a REPL: its commands, and what knows its constants."""
        # To a REPL a `module` file would be another one.
        lean = self._backend.reading(asked.text.own_header)
        if lean.kind == "server":
            answer = await self._told(lean, item.name, asked.data)
            asked.told = answer.sorries
            yield answer.units, answer
            return
        async with taken(self._pool, asked.key) as repl:
            # Where it has to do, it is given the header: without, `import all` and `public` mean something else.
            own = asked.text.own_header != ""
            units = await repl.process(
                asked.data.decode() if own else _without_header(asked.data, asked.text.header_end),
                read_header=own,
                inherit_env=True,
                new_constants=True,
                invocations=True,
                timeout_s=self._timeout_s,
            )
            yield units, repl

    async def _told(self, lean: LeanBackend, path: str, data: bytes) -> Answer:
        return await ask(
            lean,
            project=self._project,
            path=path,
            data=data,
            memory_bytes=self._pool.limits.memory_bytes,
            limit_s=self._timeout_s,
        )

    async def _theorem(
        self, lean: Inspector, text: SourceFile, source: FileSource, proof: Proof, used: Sequence[str]
    ) -> TracedTheorem:
        record = proof.item.record
        names = list(dict.fromkeys([*used, *proof.constants]))
        uses = await self._sites.uses(names, own=source, lean=lean)
        namespaces = open_namespaces(_scopes(text, record.byte_start), record.name)
        return TracedTheorem(
            full_name=record.name,
            statement=source.statement(proof.item),
            start=source.begin(proof.item),
            end=source.position(proof.item.end),
            tactics=tactics(source, proof, uses, namespaces),
            premises=tuple(uses[name] for name in names),
            sorry=_SORRY in names or _warned_of_sorry(proof),
        )

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


async def constants_used(lean: Inspector, proof: Proof) -> tuple[list[str], list[TraceGap]]:
    """Read the constants of a proof's term and of what Lean split off it (`foo.match_1`); what it hides is a gap."""
    assert proof.made is not None
    todo, asked, used = [proof.made], {proof.made}, dict[str, None]()
    unsaid, n_questions = "", 0
    while todo and n_questions <= _MOST_AUXILIARIES:
        name = todo.pop()
        n_questions += 1
        try:
            constant = await lean.env_inspect(name, value=True, dependency=True)
        except ReplRefused as error:
            unsaid = unsaid or f"Lean did not say what {name} uses: {error}"
            continue
        for cited in constant.value_dependency or ():
            if not cited.startswith(f"{proof.made}."):
                used[cited] = None
            elif cited not in asked:
                asked.add(cited)
                todo.append(cited)
    if todo:
        unsaid = (
            unsaid or f"more than {_MOST_AUXILIARIES} constants were split off it; not all were asked for"
        )
    used.pop(proof.made, None)
    return list(used), [TraceGap("premises", proof.item.record.name, short(unsaid))] if unsaid else []


def _unread(item: LeanFile) -> TracedFile:
    reason = item.problem or ""
    return TracedFile(item.path, (), (), (), gaps=(TraceGap("file", "", reason),), seen=Seen(0, 0, 0, 0))


def _without_header(data: bytes, end: int) -> str:
    """Return the text with its header blanked: same offsets, same lines, no import."""
    blank = bytes(byte if byte in b"\r\n" else 0x20 for byte in data[:end])
    return (blank + data[end:]).decode()


def _scopes(text: SourceFile, byte: int) -> str:
    """Return the namespaces open at a declaration, its own `open … in` included."""
    command = text.command_at(byte)
    prefix = "" if command is None else lex(command.text).code.partition("\n")[0]
    own = prefix if _OPEN_IN.match(prefix) else ""
    return f"{text.preamble_at(byte)}\n{own}"


def _warned_of_sorry(proof: Proof) -> bool:
    """Lean's warning is on the declaration's lines (a command may declare several)."""
    messages = proof.unit.messages if proof.unit is not None else ()
    return any(message.is_sorry_warning and proof.holds(message) for message in messages)


def _lacking(source: FileSource, proof: Proof) -> list[TraceGap]:
    name = proof.item.record.name
    if not proof.steps:
        if not _BY.match(source.code, proof.item.stated):
            return []  # a proof by a term has no steps
        return [TraceGap("tactics", name, "it is proved by tactics, and Lean reported none")]
    lost = [step.record.tactic for step in proof.steps if step.span is None]
    if not lost:
        return []
    first = f"{lost[0]!r}{and_more(len(lost) - 1)}"
    return [TraceGap("tactic_position", name, short(f"not found in the source: {first}"))]


def _unknown_sites(names: Sequence[str]) -> str:
    return f"no definition site is known of {listed(names, _MOST_NAMED)}"
