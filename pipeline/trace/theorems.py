"""From Lean's units and records to traced theorems: which record is a step of which proof, in LeanDojo's terms.

As LeanDojo does: a record with nothing to prove before it, one that changes nothing, a `·` block and a repetition
(same text, same goals) are no steps. A step's text is the source's, without comments; where Lean's text is not found
there, Lean's own stands, and that is a gap.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.lean.client.errors import short
from pipeline.lean.client.messages import Invocation, Message, Unit
from pipeline.lean.goal_text import dojo_state, hypotheses
from pipeline.lean.source.lexer import MODIFIERS, OTHERS, lex
from pipeline.lean.source.scanner import Located
from pipeline.trace.marks import annotate
from pipeline.trace.placing import Span, place
from pipeline.trace.source import FileSource, plain_name
from store.scanned import THEOREM_KINDS
from store.traced import ConstantUse, TracedTactic, TraceGap

_FOCUS = "·"
_MAKES_SYNTAX = re.compile(rf"(?:@\[[^\]]*\]\s*)?(?:(?:{'|'.join(MODIFIERS)})\s+)*(?:{'|'.join(OTHERS)})\b")
"""Commands that make constants of their own (a `macro` its parser), which are no declarations that people know."""


@dataclass(slots=True)
class Step:
    """A record that counts, and where it stands in the file (code points); None where it was not found."""

    record: Invocation
    span: Span | None


@dataclass(slots=True)
class Proof:
    """What Lean said of one declaration: its unit, whether it made the constant, its errors, its steps in order."""

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
        """What its steps use, each once."""
        return list(dict.fromkeys(name for step in self.steps for name in step.record.used_constants))

    @property
    def refusal(self) -> TraceGap | None:
        """Why what Lean said is no trace of this declaration; None where it is one."""
        name = self.item.record.name
        if self.unit is None:
            return TraceGap("theorem", name, "Lean has no command at its place")
        if self.errors:
            # Lean goes on after an error with a sorry of its own, without a warning, and makes the constant.
            return TraceGap("elaboration", name, short(self.errors[0].render()))
        if self.made is None:
            return TraceGap("theorem", name, "its command made no constant of this name")
        return None

    def holds(self, message: Message) -> bool:
        """Say whether a message stands on the declaration's lines."""
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
            # What stands on nobody's lines (a `mutual` block that does not end) is the fault of all.
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
    """Give a command's records to the declaration in whose text they stand (a `mutual` block has several)."""
    records = list(_counting(unit.invocations or ()))
    spans = place(
        [record.tactic for record in records],
        code=source.code,
        start=group[0].item.stated,
        end=max(proof.item.end for proof in group),
    )
    owner = group[0]
    for record, span in zip(records, spans, strict=True):
        if span is not None:
            owner = next((one for one in group if one.item.start <= span.start < one.item.end), owner)
        owner.steps.append(Step(record, span))


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
