"""Tactics that search: decide, omega, trivial, contradiction, tauto."""

from __future__ import annotations

from functools import partial

from pipeline.lean.simulator.automation import TRUE, contradiction, decide
from pipeline.lean.simulator.meta import LeanError
from pipeline.lean.simulator.registry import Goals, tactic
from pipeline.lean.simulator.syntax import Stx
from pipeline.lean.simulator.tactic_runner import Runner
from pipeline.lean.simulator.tactics_apply import apply_constant
from pipeline.lean.simulator.tactics_intro import introduce, t_intro
from pipeline.lean.simulator.tautology import Tautology
from pipeline.lean.simulator.terms import Const, MVar, Pi, apply, call


@tactic("decide")
def t_decide(run: Runner, _stx: Stx, goal: MVar) -> Goals:
    return run.close(goal, decide(run.meta, run.target(goal), lambda term: run.show(goal, term)))


@tactic("contradiction")
def t_contradiction(run: Runner, _stx: Stx, goal: MVar) -> Goals:
    proof = contradiction(run.meta, run.hole(goal).context)
    if proof is None:
        raise run.fail("contradiction", "no hypothesis is impossible", goal)
    return run.close(goal, apply(Const("False.elim"), run.target(goal), proof))


@tactic("trivial")
def t_trivial(run: Runner, stx: Stx, goal: MVar) -> Goals:
    target = run.meta.shallow(run.target(goal))
    if target == TRUE:
        return run.close(goal, Const("True.intro"))
    for name in ("assumption", "rfl", "contradiction", "decide"):
        made = run.attempt(partial(run.step, Stx("made", stx.start, stx.end, name), [goal]))
        if made is not None:
            return made
    if call("And", target, 2) is not None:
        return [new for part in apply_constant(run, goal, "And.intro") for new in t_trivial(run, stx, part)]
    raise run.fail("trivial", "nothing that it tries closes the goal", goal)


@tactic("tauto")
def t_tauto(run: Runner, _stx: Stx, goal: MVar) -> Goals:
    while isinstance(pi := run.meta.shallow(run.target(goal)), Pi):
        _, goal = introduce(run, goal, pi, f"{pi.name.rstrip('✝')}✝")
    if not run.meta.is_prop(run.target(goal)):
        raise run.fail("tauto", "the goal is no proposition", goal)
    proof = Tautology(run.meta, run.hole(goal).context, run.session.burn).prove(run.target(goal))
    if proof is None:
        raise run.fail("tauto", "the goal does not follow by propositional logic", goal)
    return run.close(goal, proof)


@tactic("omega")
def t_omega(run: Runner, stx: Stx, goal: MVar) -> Goals:
    """Only what evaluation and the hypotheses as they stand give: linear arithmetic is outside."""
    for name in ("decide", "assumption", "contradiction"):
        made = run.attempt(partial(run.step, Stx("made", stx.start, stx.end, name), [goal]))
        if made is not None:
            return made
    raise LeanError(
        "omega could not prove the goal (simulator: it evaluates closed arithmetic, and no more)\n"
        + run.show_goal(goal)
    )


@tactic("nofun")
def t_nofun(run: Runner, stx: Stx, goal: MVar) -> Goals:
    return t_contradiction(run, stx, t_intro(run, Stx("made", stx.start, stx.end, "intro"), goal)[0])
