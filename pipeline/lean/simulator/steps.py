"""One step on one goal, in each of the forms that `goal.tactic` has.

What is supported: tactics, terms, `have`, `draft`, and goals in calc mode whose relation is `=`, `↔`, `≤` or `<`
throughout. A goal can enter and leave conv mode, but conv tactics are outside the logic, and so is `let`: both
are failures that say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pipeline.lean.simulator.elaborator import Elaborator
from pipeline.lean.simulator.meta import Hole, Interrupted, LeanError, Meta, outside
from pipeline.lean.simulator.printer import goal_text
from pipeline.lean.simulator.protocol import Dialect, Refusal
from pipeline.lean.simulator.registry import Goals, control
from pipeline.lean.simulator.scope import Session, extend
from pipeline.lean.simulator.states import Fragment
from pipeline.lean.simulator.syntax import Stx
from pipeline.lean.simulator.tactic_parser import Parser, parse_tactics, parse_term
from pipeline.lean.simulator.tactics import Runner
from pipeline.lean.simulator.terms import ANY_LEVEL, Const, MVar, Sort, Term, apply, has_mvar, nodes, spine

# relation -> how two steps of it make one; the arguments are those of the relation, then the two proofs
_TRANSITIVE = {
    "Eq": "Eq.trans",
    "Iff": "Iff.trans",
    "Nat.le": "Nat.le_trans",
    "Nat.lt": "Nat.lt_trans",
}
_SLEEP_STEP_S = 0.002


class Step(NamedTuple):
    """What a step is run with: the goal, its mode, and the text."""

    meta: Meta
    session: Session
    goal: MVar
    fragment: Fragment | None
    text: str
    binder: str
    dialect: Dialect


@dataclass(frozen=True, slots=True)
class Made:
    """What replaces the goal. `fragments` are the modes that changed; `alone`: the siblings are put aside."""

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
    """Fill the goal with a term whose sorrys become goals."""
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
    """Take one step of a calculation: the step itself becomes a goal, and what is left of the way another."""
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
    """Elaborate a step; a `_` on its left stands for where the last one ended."""
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
