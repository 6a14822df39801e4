"""One file's trace, by one REPL: theorems, tactics, premises, the goals of its sorrys, and what is missing.

The file's text is processed whole, with its header blanked, in a process that was started with its imports; so all
offsets are the file's own. Afterwards the constants are asked for, of which Lean says what each proof uses.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.errors import short
from pipeline.lean.client.repl import Repl, ReplError, ReplRefused, ReplStartError
from pipeline.lean.pool.pool import ReplPool
from pipeline.lean.pool.pooled import ReplKey
from pipeline.lean.source.lexer import lex
from pipeline.lean.source.scanner import SourceFile, parse
from pipeline.trace.goals import sorry_goals, taken
from pipeline.trace.marks import open_namespaces
from pipeline.trace.sites import Sites
from pipeline.trace.source import FileSource
from pipeline.trace.theorems import Proof, other_gaps, proofs, tactics
from pipeline.trace.tree import LeanFile, Tree
from store.traced import Seen, TracedFile, TracedTheorem, TraceGap

_BY = re.compile(r":=\s*by\b")
_OPEN_IN = re.compile(r"\s*open\b.*\bin\s*$")
_MOST_AUXILIARIES = 64
_MOST_NAMED = 8
_SORRY = "sorryAx"
"""What a sorry is to Lean: no premise that anybody could want to find."""


@dataclass(slots=True)
class FileTrace:
    """What came of a file. `error`: why Lean could not be asked about it; then `trace` has its premises only.

    `goals` are Lean's texts by the byte at which their sorry begins.
    """

    trace: TracedFile
    error: str | None = None
    goals: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Asked:
    """A file that Lean is asked about, and by which process."""

    data: bytes
    text: SourceFile
    source: FileSource
    key: ReplKey
    proofs: list[Proof] = field(default_factory=list)


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

    def without_lean(self, item: LeanFile) -> FileTrace:
        """Trace a dependency's file: its premises and imports, as the scanner reads them."""
        if item.problem is not None:
            return FileTrace(_unread(item), item.problem)
        source = FileSource.read(item.path, item.data())
        return FileTrace(self._file(item, source))

    async def trace(self, item: LeanFile, *, wanted: Sequence[int]) -> FileTrace:
        """Trace one of the project's files; `wanted` are the bytes at which sorrys begin whose goals are asked for.

        Never raises for what the file does to Lean: a process that dies or takes too long is the file's error.

        Raises:
            ImportsFailed: see there.
        """
        if item.problem is not None:
            return FileTrace(_unread(item), item.problem)
        data = await asyncio.to_thread(item.data)
        source = await asyncio.to_thread(FileSource.read, item.path, data)
        text = await asyncio.to_thread(parse, data)
        asked = _Asked(data, text, source, ReplKey(self._backend, self._project, text.imports or ("Init",)))
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
        # What is to be proved is asked by itself: a process that dies of it costs no more than the answer.
        goals, missing = await sorry_goals(
            self._pool,
            asked.key,
            data=data,
            text=text,
            source=source,
            proofs=asked.proofs,
            wanted=wanted,
            timeout_s=self._timeout_s,
        )
        return FileTrace(replace(trace, gaps=(*trace.gaps, *missing)), goals=goals)

    async def _ask(self, item: LeanFile, asked: _Asked) -> TracedFile:
        """Have Lean process the file and say what its theorems use; notes in `asked` what Lean said."""
        gaps: list[TraceGap] = []
        theorems: list[TracedTheorem] = []
        unknown: dict[str, None] = {}
        async with taken(self._pool, asked.key) as repl:
            units = await repl.process(
                _without_header(asked.data, asked.text.header_end),
                inherit_env=True,
                new_constants=True,
                invocations=True,
                timeout_s=self._timeout_s,
            )
            asked.proofs = await asyncio.to_thread(proofs, asked.source, units)
            for proof in asked.proofs:
                if not proof.is_theorem:
                    continue
                refusal = proof.refusal
                if refusal is not None:
                    gaps.append(refusal)
                else:
                    used, unsaid = await constants_used(repl, proof)
                    theorem = await self._theorem(repl, asked.text, asked.source, proof, used)
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

    async def _theorem(
        self, repl: Repl, text: SourceFile, source: FileSource, proof: Proof, used: Sequence[str]
    ) -> TracedTheorem:
        record = proof.item.record
        names = list(dict.fromkeys([*used, *proof.constants]))
        uses = await self._sites.uses(names, own=source, repl=repl)
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


async def constants_used(repl: Repl, proof: Proof) -> tuple[list[str], list[TraceGap]]:
    """Ask for the constants of a proof's term and of what Lean split off it (`foo.match_1`); what it hides is a gap."""
    assert proof.made is not None
    todo, asked, used = [proof.made], {proof.made}, dict[str, None]()
    unsaid, n_questions = "", 0
    while todo and n_questions <= _MOST_AUXILIARIES:
        name = todo.pop()
        n_questions += 1
        try:
            constant = await repl.env_inspect(name, value=True, dependency=True)
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
    """What is open at a declaration, its own `open … in` with it."""
    command = next((one for one in text.commands if one.byte_start <= byte < one.byte_end), None)
    prefix = "" if command is None else lex(command.text).code.partition("\n")[0]
    own = prefix if _OPEN_IN.match(prefix) else ""
    return f"{text.preamble_at(byte)}\n{own}"


def _warned_of_sorry(proof: Proof) -> bool:
    """Lean's warning stands on the declaration's lines (a command may declare several)."""
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
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    return [TraceGap("tactic_position", name, short(f"not found in the source: {lost[0]!r}{more}"))]


def _unknown_sites(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"no definition site is known of {', '.join(names[:_MOST_NAMED])}{more}"
