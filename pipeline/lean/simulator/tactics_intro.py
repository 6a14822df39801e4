"""Tactics that move between the goal and its hypotheses: intro, revert, clear, and taking a hypothesis apart."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pipeline.lean.simulator.meta import LeanError
from pipeline.lean.simulator.patterns import Row, match
from pipeline.lean.simulator.registry import Goals, tactic
from pipeline.lean.simulator.scope import extend, without
from pipeline.lean.simulator.syntax import Stx
from pipeline.lean.simulator.tactic_runner import Runner
from pipeline.lean.simulator.terms import App, FVar, MVar, Pi, Term, fvars, instantiate


@tactic("intro", "rintro")
def t_intro(run: Runner, stx: Stx, goal: MVar) -> Goals:
    goals = [goal]
    for pattern in stx.args or (Stx("hole", stx.start, stx.end),):
        goals = [new for one in goals for new in intro(run, pattern, one)]
    return goals


def intro(run: Runner, pattern: Stx, goal: MVar) -> Goals:
    """Introduce one hypothesis; a pattern takes it apart, into no goal, one or more."""
    pi = run.meta.whnf(run.target(goal))
    if not isinstance(pi, Pi):
        raise run.fail("introN", "insufficient number of binders", goal)
    name = pattern.text if pattern.kind == "ident" else f"{pi.name.rstrip('✝')}✝"
    local, inner = introduce(run, goal, pi, name)
    if pattern.kind in ("ident", "hole"):
        return [inner]
    return take_apart(run, inner, FVar(local), [pattern])


def introduce(run: Runner, goal: MVar, pi: Pi, name: str) -> tuple[int, MVar]:
    local = run.meta.local(pi.type)
    context = extend(run.hole(goal).context, local.id, name)
    inner = run.fresh(goal, instantiate(pi.body, local), context)
    run.meta.assign(goal, run.meta.bind(local, name.rstrip("✝") or "a", inner))
    return local.id, inner


@tactic("intros")
def t_intros(run: Runner, stx: Stx, goal: MVar) -> Goals:
    if stx.args:
        return t_intro(run, stx, goal)
    while isinstance(pi := run.meta.shallow(run.target(goal)), Pi):
        base = pi.name.rstrip("✝")
        _, goal = introduce(run, goal, pi, f"{base}✝")
    return [goal]


@tactic("revert")
def t_revert(run: Runner, stx: Stx, goal: MVar) -> Goals:
    for name in reversed(stx.args):
        goal = revert(run, goal, run.hypothesis(goal, name))
    return [goal]


def revert(run: Runner, goal: MVar, fvar: int) -> MVar:
    context = run.hole(goal).context
    later = [local for local in context if fvar in fvars(run.meta.instantiate(run.meta.locals[local.fvar]))]
    for local in reversed(later):
        goal = revert(run, goal, local.fvar)
    name = next(local.name for local in context if local.fvar == fvar)
    kind = run.meta.instantiate(run.meta.bind(FVar(fvar), name, run.target(goal), pi=True))
    context = tuple(local for local in run.hole(goal).context if local.fvar != fvar)
    inner = run.fresh(goal, kind, context)
    run.meta.assign(goal, App(inner, FVar(fvar)))
    return inner


@tactic("clear")
def t_clear(run: Runner, stx: Stx, goal: MVar) -> Goals:
    for name in stx.args:
        fvar = run.hypothesis(goal, name)
        context = without(run.meta, run.hole(goal).context, fvar)
        if len(context) == len(run.hole(goal).context) or fvar in fvars(run.target(goal)):
            raise run.fail("clear", f"'{name.text}' is still used", goal)
        inner = run.fresh(goal, run.target(goal), context)
        run.meta.assign(goal, inner)
        goal = inner
    return [goal]


def cleared(run: Runner, goal: MVar, fvar: int) -> MVar:
    context = without(run.meta, run.hole(goal).context, fvar)
    inner = run.fresh(goal, run.target(goal), context)
    run.meta.assign(goal, inner)
    return inner


def take_apart(run: Runner, goal: MVar, value: Term, patterns: Sequence[Stx]) -> Goals:
    return match_rows(
        run, goal, value, [(pattern, None) for pattern in patterns], fresh=isinstance(value, FVar)
    )


def match_rows(
    run: Runner, goal: MVar, value: Term, rows: Sequence[tuple[Stx, Stx | None]], *, fresh: bool
) -> Goals:
    elab = run.elaborator(goal)
    target = run.target(goal)
    made: Goals = []

    def body(block: Stx | None) -> Term:
        inner = run.fresh(goal, target, elab.context)
        if block is None:
            made.append(inner)
        elif left := run.block(block, [inner]):
            raise LeanError(
                "unsolved goals\n" + "\n\n".join(map(run.show_goal, left)), (block.start, block.end)
            )
        return inner

    kind = run.meta.instantiate(run.meta.infer(value))
    table = [Row((pattern,), partial(body, block)) for pattern, block in rows]
    run.meta.assign(goal, match(elab, [(value, kind, fresh)], table, target))
    return made
