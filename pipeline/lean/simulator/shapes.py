"""How terms, goals and messages look on the wire."""

from __future__ import annotations

import bisect

from pipeline.lean.simulator.meta import Context, Meta
from pipeline.lean.simulator.printer import Printer
from pipeline.lean.simulator.protocol import Json
from pipeline.lean.simulator.states import Options, State
from pipeline.lean.simulator.terms import (
    App,
    Bind,
    BVar,
    Const,
    Decide,
    FVar,
    Lam,
    Lit,
    MVar,
    Pi,
    Sorry,
    Sort,
    Term,
    Text,
    abstract,
    nodes,
    spine,
)
from pipeline.lean.simulator.units import Command, Note, byte_offsets, line_starts


def goal_name(number: int) -> str:
    """Return the internal name of a goal or hypothesis."""
    return f"_uniq.{number}"


def goal_number(name: str) -> int | None:
    """Return what `goal_name` was given; None for a name that it does not make."""
    prefix, _, digits = name.partition(".")
    return int(digits) if prefix == "_uniq" and digits.isascii() and digits.isdigit() else None


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
        if self.options["printExprAST"]:
            shown["sexp"] = sexp(self.meta.instantiate(term))
        if self.options["printDependentMVars"]:
            found = (node for part in (term, *also) for node in nodes(self.meta.instantiate(part)))
            shown["dependentMVars"] = list(
                dict.fromkeys(goal_name(node.id) for node in found if isinstance(node, MVar))
            )
        return shown

    def goals(self, state: State) -> list[Json]:
        return [self.goal(state, goal) for goal in state.goals]

    def goal(self, state: State, goal: MVar) -> Json:
        hole = self.meta.holes[goal.id]
        fragment = state.fragments.get(goal.id)
        known = self._known(state) if self.options["noRepeat"] else frozenset[int]()
        shown: Json = {
            "name": goal_name(goal.id),
            "fragment": "tactic" if fragment is None else fragment.kind,
            "target": self.expression(hole.type, hole.context),
            "vars": [
                {
                    "name": goal_name(local.fvar),
                    "userName": local.name,
                    "isInaccessible": local.name.endswith("✝"),
                }
                | (
                    {}
                    if local.fvar in known
                    else {"type": self.expression(self.meta.locals[local.fvar], hole.context)}
                )
                for local in hole.context
            ],
        }
        if hole.tag:
            shown["userName"] = hole.tag
        return shown

    def _known(self, state: State) -> frozenset[int]:
        """Return the hypotheses that the goals worked on had already: `noRepeat` shows only their names."""
        return frozenset(
            local.fvar for parent in state.parents for local in self.meta.holes[parent.id].context
        )


def sexp(term: Term) -> str:
    """Print a term's structure; bound variables are de Bruijn indices."""
    match term:
        case Sort(level):
            return f"(:sort {max(level, 0)})"
        case BVar(index):
            return str(index)
        case FVar(number):
            return f"(:fv {goal_name(number)})"
        case MVar(number):
            return f"(:mv {goal_name(number)})"
        case Const(name):
            return f"(:c {name})"
        case Lit(value):
            return f"(:lit {value})"
        case Text(source):
            return f"(:lit {source})"
        case App():
            head, args = spine(term)
            return f"({' '.join([sexp(head), *map(sexp, args)])})"
        case Lam(name, kind, body, info) | Pi(name, kind, body, info):
            word = ":lambda" if isinstance(term, Lam) else ":forall"
            hidden = " :i" if info == "implicit" else ""
            return f"({word} {name.rstrip('✝') or 'a'} {sexp(kind)} {sexp(body)}{hidden})"
        case Bind(pi, fvar, name, kind, body, info):
            return sexp((Pi if pi else Lam)(name, kind, abstract(body, fvar), info))
        case Decide(prop):
            return f"((:c of_decide_eq_true) {sexp(prop)})"
        case Sorry(kind):
            return f"((:c sorryAx) {sexp(kind)})"
    raise AssertionError(term)


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
