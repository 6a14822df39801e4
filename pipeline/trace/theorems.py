"""From Lean's units and records to traced theorems: which record is a step of which proof, in LeanDojo's terms.

As LeanDojo does: a record with nothing to prove before it, one that changes nothing, a `·` block and a repetition
(same text, same goals) are no steps. A step's text is the source's, without comments; where Lean's text is not found
there, Lean's own stands, and that is a gap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.lean.client.messages import Invocation, Unit
from pipeline.lean.source.lexer import lex
from pipeline.lean.source.scanner import Located
from pipeline.trace.marks import annotate
from pipeline.trace.placing import Span, place
from pipeline.trace.source import FileSource, plain_name
from pipeline.trace.states import dojo_state, hypotheses
from store.scanned import THEOREM_KINDS
from store.traced import ConstantUse, TracedTactic

_FOCUS = "·"


@dataclass(slots=True)
class Step:
    """A record that counts, and where it stands in the file (code points); None where it was not found."""

    record: Invocation
    span: Span | None


@dataclass(slots=True)
class Proof:
    """What Lean said of one declaration: its unit, whether it made the constant, and its steps in order."""

    item: Located
    unit: Unit | None
    made: str | None = None
    steps: list[Step] = field(default_factory=list)

    @property
    def is_theorem(self) -> bool:
        return self.item.record.kind in THEOREM_KINDS

    @property
    def constants(self) -> list[str]:
        """What its steps use, each once."""
        return list(dict.fromkeys(name for step in self.steps for name in step.record.used_constants))

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
    return found


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
