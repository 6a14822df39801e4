"""One step on one goal, by tactics, and how terms, goals and messages look on the wire."""

from __future__ import annotations

import bisect

from pipeline.lean.simulator.elaboration import Command, Note, Printer, byte_offsets, line_starts
from pipeline.lean.simulator.kernel import (
    Context,
    Meta,
    Session,
)
from pipeline.lean.simulator.parser import Parser, parse_tactics
from pipeline.lean.simulator.protocol import Dialect, Json, Options, State
from pipeline.lean.simulator.tactics import Runner
from pipeline.lean.simulator.terms import (
    MVar,
    Stx,
    Term,
    nodes,
)


def run_tactics(meta: Meta, session: Session, goal: MVar, text: str, dialect: Dialect) -> tuple[MVar, ...]:
    """Run tactics on a goal and return what is left of it; the older dialect takes one tactic at a time."""
    block = _one_tactic(text) if dialect == "old" else parse_tactics(text)
    return tuple(Runner(meta, session).block(block, [goal]))


def _one_tactic(text: str) -> Stx:
    """Parse a text as the older dialect does: one tactic, not a sequence."""
    parser = Parser(text)
    tactic = parser.one_tactic()
    if parser.raw().kind != "end":
        raise parser.unexpected("expected end of input")
    return Stx("block", tactic.start, tactic.end, "", (tactic,))


# ---- How terms, goals and messages look on the wire


def goal_name(number: int) -> str:
    """Return the internal name of a goal or hypothesis."""
    return f"_uniq.{number}"


class Shapes:
    """Terms and goals of one `Meta`, as the options ask for them."""

    def __init__(self, meta: Meta, options: Options) -> None:
        self.meta = meta
        self.options = options

    def expression(self, term: Term, context: Context = (), *, also: tuple[Term, ...] = ()) -> Json:
        """Return an Expression; `also` are further terms whose holes count as dependencies."""
        shown: Json = {}
        if self.options["printExprPretty"]:
            shown["pp"] = Printer(self.meta, context).show(term)
        if self.options["printDependentMVars"]:
            found = (node for part in (term, *also) for node in nodes(self.meta.instantiate(part)))
            shown["dependentMVars"] = list(
                dict.fromkeys(goal_name(node.id) for node in found if isinstance(node, MVar))
            )
        return shown

    def goals(self, state: State) -> list[Json]:
        return [self.goal(goal) for goal in state.goals]

    def goal(self, goal: MVar) -> Json:
        hole = self.meta.holes[goal.id]
        shown: Json = {
            "name": goal_name(goal.id),
            "fragment": "tactic",
            "target": self.expression(hole.type, hole.context),
            "vars": [
                {
                    "name": goal_name(local.fvar),
                    "userName": local.name,
                    "isInaccessible": local.name.endswith("✝"),
                    "type": self.expression(self.meta.locals[local.fvar], hole.context),
                }
                for local in hole.context
            ],
        }
        if hole.tag:
            shown["userName"] = hole.tag
        return shown


class Shower:
    """Turns code points of one text into the wire's positions and byte ranges."""

    def __init__(self, text: str, file_name: str) -> None:
        self.file_name = file_name
        self.starts = list(line_starts(text))
        self.bytes = byte_offsets(text)

    def position(self, offset: int) -> Json:
        line = bisect.bisect_right(self.starts, offset)
        return {"line": line, "column": offset - self.starts[line - 1]}

    def range(self, start: int, end: int) -> list[int]:
        return [self.bytes(start), self.bytes(end)]

    def message(self, note: Note) -> Json:
        return {
            "fileName": self.file_name,
            "pos": self.position(note.start),
            "endPos": self.position(note.end),
            "keepFullRange": False,
            "severity": note.severity,
            "isSilent": False,
            "caption": "",
            "data": note.text,
            "kind": note.kind,
        }

    def messages(self, commands: list[Command]) -> list[Json]:
        return [self.message(note) for command in commands for note in command.notes]

    def line(self, note: Note) -> str:
        line = bisect.bisect_right(self.starts, note.start)
        return f"{self.file_name}:{line}:{note.start - self.starts[line - 1]}: {note.severity}: {note.text}"


def tactic_message(text: str, span: tuple[int, int] | None) -> Json:
    """Return the message of a failed tactic: line 0, columns are offsets in the tactic's text."""
    return {
        "fileName": "<Pantograph>",
        "pos": {"line": 0, "column": span[0] if span else 0},
        "endPos": {"line": 0, "column": span[1]} if span else None,
        "keepFullRange": False,
        "severity": "error",
        "isSilent": False,
        "caption": "",
        "data": text,
        "kind": "[anonymous]",
    }
