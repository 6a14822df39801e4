"""What is to be proved at each sorry of a file, in Lean's words.

A `sorry` tactic has a record, which says the goals before it; so has a tactic whose whole text is `exact sorry`. Of a
`sorry` inside a term Lean says only, when the declaration is distilled, which goals the declaration has: where one is
left over that no tactic accounts for, or all that are left are the same, it is the term's. Else it is not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from pipeline.lean.client.errors import short
from pipeline.lean.client.messages import first_error
from pipeline.lean.client.repl import Repl, ReplError, ReplStartError
from pipeline.lean.goal_text import as_lean_prints, joined, same_goal, split_goals
from pipeline.lean.pool.pool import ReplPool
from pipeline.lean.pool.pooled import ReplKey
from pipeline.lean.source.lexer import tokens_of
from pipeline.lean.source.scanner import Command, SourceFile
from pipeline.lean.source.splice import Declaration
from pipeline.trace.source import FileSource
from pipeline.trace.theorems import Proof, Step
from store.scanned import Sorry
from store.traced import TraceGap

_WHOLE = frozenset({"sorry", "admit", "exact sorry", "exact (sorry)", "refine sorry"})


async def sorry_goals(
    pool: ReplPool,
    key: ReplKey,
    *,
    data: bytes,
    text: SourceFile,
    source: FileSource,
    proofs: Sequence[Proof],
    wanted: Sequence[int],
    timeout_s: float,
) -> tuple[dict[int, str], list[TraceGap]]:
    """Return the goals of the sorrys that begin at the wanted bytes, and a gap for each that is not known.

    A second REPL is taken only where a sorry in a term is asked for.
    """
    asked = [sorry for sorry in text.scanned.sorries if sorry.byte_start in set(wanted)]
    if not asked:
        return {}, []
    by_record = _by_record(source, proofs)
    goals = {
        sorry.byte_start: by_record[sorry.byte_start] for sorry in asked if sorry.byte_start in by_record
    }
    rest = [sorry for sorry in asked if sorry.byte_start not in goals]
    if not rest:
        return goals, []
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
    """Add the goals of the sorrys that no record tells of; return a gap for each that stays unknown."""
    gaps: list[TraceGap] = []
    for command in _commands(text, rest):
        inside = [sorry for sorry in text.scanned.sorries if _holds(command, sorry)]
        try:
            found = await distiller.goals(command, inside)
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
            reason = f"{len(left)} sorrys in terms and {len(terms)} goals; which is whose, Lean does not say"
            gaps += _unknown([one for one in rest if one in inside], reason)
    return gaps


@asynccontextmanager
async def taken(pool: ReplPool, key: ReplKey) -> AsyncIterator[Repl]:
    """Take a process of the pool for a file: no other can use it afterwards, for it knows the file's declarations."""
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

    async def goals(self, command: Command, sorries: Sequence[Sorry]) -> list[str]:
        """Return the goals of a command's declarations, as Lean prints them; their order means nothing."""
        if self._stuck:
            raise _Stuck(self._stuck)
        await self._advance(command.byte_start)
        declaration = Declaration(
            data=self._data,
            byte_start=command.byte_start,
            byte_end=command.byte_end,
            preamble=self._text.preamble_at(command.byte_start),
            tokens=tokens_of(self._data, command.byte_start, command.byte_end),
            sorries=tuple(sorries),
        )
        targets = await self._repl.distil(declaration.framed_for_distil(), timeout_s=self._timeout_s)
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
