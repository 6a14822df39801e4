"""One step on one goal, in each of the forms that `goal.tactic` has.

What is supported: tactics, terms, `have`, `draft`, and goals in calc mode whose relation is `=`, `↔`, `≤` or `<`
throughout. A goal can enter and leave conv mode, but conv tactics are outside the logic, and so is `let`: both
are failures that say so.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pipeline.lean.simulator.elaboration import Command, Note, Printer, byte_offsets, goal_text, line_starts
from pipeline.lean.simulator.kernel import (
    Context,
    Hole,
    Interrupted,
    LeanError,
    Meta,
    Session,
    extend,
    outside,
)
from pipeline.lean.simulator.parser import Parser, parse_tactics, parse_term
from pipeline.lean.simulator.protocol import Dialect, Fragment, Json, Options, Refusal, State
from pipeline.lean.simulator.tactic_runner import Goals, control
from pipeline.lean.simulator.tactics import Elaborator, Runner
from pipeline.lean.simulator.terms import (
    ANY_LEVEL,
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
    Stx,
    Term,
    Text,
    abstract,
    apply,
    has_mvar,
    nodes,
    spine,
)

# relation -> how two steps of it make one; the arguments are those of the relation, then the two proofs
_TRANSITIVE = {
    "Eq": "Eq.trans",
    "Iff": "Iff.trans",
    "Nat.le": "Nat.le_trans",
    "Nat.lt": "Nat.lt_trans",
}
_SLEEP_STEP_S = 0.002


class Step(NamedTuple):
    """The input of a step: the goal, its mode, and the text."""

    meta: Meta
    session: Session
    goal: MVar
    fragment: Fragment | None
    text: str
    binder: str
    dialect: Dialect


@dataclass(frozen=True, slots=True)
class Made:
    """The replacement of the goal. `fragments` are the modes that changed; `alone`: the siblings are put aside."""

    goals: tuple[MVar, ...]
    fragments: Mapping[int, Fragment | None] = field(default_factory=dict)
    alone: bool = False
    breaks_root: bool = False


def by_tactic(step: Step) -> Made:
    """Run tactics; a calc goal takes a relation instead, and a conv goal nothing that this logic has."""
    if step.fragment is not None and step.fragment.kind == "calc":
        return _calc(step, step.fragment)
    block = _one_tactic(step.text) if step.dialect == "old" else parse_tactics(step.text)
    if step.fragment is not None:
        raise outside("conv tactics; leave the mode with `mode: tactic`")
    runner = Runner(step.meta, step.session)
    return Made(tuple(runner.block(block, [step.goal])))


def _one_tactic(text: str) -> Stx:
    """Parse a text as the older dialect does: one tactic, not a sequence."""
    parser = Parser(text)
    tactic = parser.one_tactic()
    if parser.raw().kind != "end":
        raise parser.unexpected("expected end of input")
    return Stx("block", tactic.start, tactic.end, "", (tactic,))


def by_term(step: Step) -> Made:
    """Fill the goal with a term; its holes of either kind become goals."""
    elaborator = _elaborator(step)
    target = step.meta.instantiate(_hole(step).type)
    term = elaborator.finished(elaborator.term(parse_term(step.text), target), allow_holes=True)
    step.meta.assign(step.goal, term)
    return Made(_as_goals(step, term))


def by_have(step: Step) -> Made:
    """Assert something: its proof first, then the goal with it as a hypothesis.

    The goal is filled with a function that nothing is applied to, as the REPL does it; the root is broken then.
    """
    elaborator = _elaborator(step)
    kind = elaborator.finished(elaborator.type(parse_term(step.text)))
    hole = _hole(step)
    branch = step.meta.hole(kind, hole.context, is_goal=True)
    local = step.meta.local(kind)
    main = step.meta.hole(
        step.meta.instantiate(hole.type),
        extend(hole.context, local.id, step.binder),
        tag=hole.tag,
        is_goal=True,
    )
    step.meta.assign(step.goal, step.meta.bind(local, step.binder, main))
    return Made((branch, main), breaks_root=True)


def by_let(step: Step) -> Made:
    parse_term(step.text)
    raise outside("`let`: there are no local definitions; use `have` as a tactic")


def by_draft(step: Step) -> Made:
    """Fill the goal with a term whose sorries become goals."""
    step.session.holes_for_sorry = True
    elaborator = _elaborator(step)
    target = step.meta.instantiate(_hole(step).type)
    term = elaborator.finished(elaborator.term(parse_term(step.text), target))
    step.meta.assign(step.goal, term)
    inside = {node for node in nodes(step.meta.instantiate(term)) if isinstance(node, MVar)}
    goals = tuple(goal for goal in dict.fromkeys(step.session.sorries) if goal in inside)
    if any(has_mvar(step.meta.instantiate(step.meta.holes[goal.id].type)) for goal in goals):
        raise LeanError("Coupling is not allowed in draft tactic")
    return Made(goals)


def by_mode(step: Step) -> Made:
    """Enter or leave a mode.

    Raises:
        Refusal: there is no such mode, or the goal is not where it can change to it.
    """
    goal, present = step.goal, step.fragment
    match step.text:
        case "conv" if present is not None and present.kind == "conv":
            raise Refusal("invalid", "Already in conv state")
        case "calc" | "conv" if present is not None:
            raise Refusal("invalid", "Goal already has a fragment")
        case "calc":
            return Made((goal,), {goal.id: Fragment("calc")})
        case "conv":
            inner = _again(step)
            return Made((inner,), {inner.id: Fragment("conv")}, alone=True)
        case "tactic" if present is None:
            raise Refusal("invalid", "Goal does not have a fragment")
        case "tactic":
            return Made((goal,), {goal.id: None})
        case mode:
            raise Refusal("operation", f"Invalid mode {mode}")


def _again(step: Step) -> MVar:
    hole = _hole(step)
    inner = step.meta.hole(hole.type, hole.context, is_goal=True)
    step.meta.assign(step.goal, inner)
    return inner


def _calc(step: Step, fragment: Fragment) -> Made:
    """Make one step of a calculation: the step itself becomes a goal, and the rest of the way another."""
    meta, hole = step.meta, _hole(step)
    elaborator = _elaborator(step)
    stx = parse_term(step.text)
    head, args = spine(meta.shallow(meta.instantiate(hole.type)))
    relation = elaborator.finished(
        _with_previous(elaborator, stx, fragment, args), allow_holes=False, span=(stx.start, stx.end)
    )
    step_head, step_args = spine(meta.shallow(relation))
    if not isinstance(head, Const) or head.name not in _TRANSITIVE:
        raise outside("calc mode on a goal whose relation is none of = ↔ ≤ <")
    if step_head != head or len(step_args) != len(args):
        raise outside("a calc step whose relation is not the goal's")
    left, right = args[-2], args[-1]
    if not meta.unify(step_args[-2], fragment.previous or left):
        raise LeanError("invalid 'calc' step, left-hand side is not the previous right-hand side")
    first = meta.hole(relation, hole.context, tag="calc", is_goal=True)
    if meta.unify(step_args[-1], right):
        meta.assign(step.goal, first)
        return Made((first,), alone=True)
    rest_kind = apply(head, *args[:-2], step_args[-1], right)
    rest = meta.hole(rest_kind, hole.context, is_goal=True)
    term = apply(Const(_TRANSITIVE[head.name]), *args[:-2], left, step_args[-1], right, first, rest)
    meta.assign(step.goal, term)
    return Made((first, rest), {rest.id: Fragment("calc", step_args[-1])}, alone=True)


def _with_previous(elaborator: Elaborator, stx: Stx, fragment: Fragment, args: list[Term]) -> Term:
    """Elaborate a step; a `_` on its left is the right side of the last one."""
    term = elaborator.type(stx)
    _, step_args = spine(elaborator.meta.shallow(term))
    if len(step_args) >= 2 and len(args) >= 2 and isinstance(step_args[-2], MVar):
        elaborator.meta.unify(step_args[-2], fragment.previous or args[-2])
    return elaborator.meta.instantiate(term)


def _hole(step: Step) -> Hole:
    return step.meta.holes[step.goal.id]


def _elaborator(step: Step) -> Elaborator:
    return Elaborator(step.meta, step.session, _hole(step).context)


def _as_goals(step: Step, term: Term) -> tuple[MVar, ...]:
    meta = step.meta
    found = dict.fromkeys(node for node in nodes(meta.instantiate(term)) if isinstance(node, MVar))
    for goal in found:
        hole = meta.holes[goal.id]
        kind = meta.instantiate(hole.type)
        if isinstance(kind, MVar) or kind == Sort(ANY_LEVEL):
            shown = goal_text(meta, kind, hole.context)
            raise LeanError(f"don't know how to synthesize placeholder\ncontext:\n{shown}")
        meta.holes[goal.id] = Hole(kind, hole.context, hole.tag, is_goal=True)
    return tuple(found)


@control("sleep")
def sleep(run: Runner, stx: Stx, goals: Goals) -> Goals:
    """Wait some milliseconds; the wait ends when the request's time is over."""
    number = stx.args[0]
    if number.kind != "number":
        raise LeanError("a number of milliseconds was expected", (number.start, number.end))
    until = time.monotonic() + int(number.text) / 1000
    while (left := until - time.monotonic()) > 0:
        if run.session.deadline_s is not None and time.monotonic() > run.session.deadline_s:
            raise Interrupted
        time.sleep(min(left, _SLEEP_STEP_S))
    return goals


FORMS: dict[str, Callable[[Step], Made]] = {
    "tactic": by_tactic,
    "mode": by_mode,
    "expr": by_term,
    "have": by_have,
    "let": by_let,
    "draft": by_draft,
}


# ---- How terms, goals and messages look on the wire


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
