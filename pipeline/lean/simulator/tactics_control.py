"""Tactics that run other tactics, and those that choose or name goals."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pipeline.lean.simulator.meta import LeanError, Local
from pipeline.lean.simulator.registry import Goals, control, tactic
from pipeline.lean.simulator.syntax import Stx
from pipeline.lean.simulator.tactic_runner import Runner
from pipeline.lean.simulator.terms import MVar


@tactic("focus")
def t_focus(run: Runner, stx: Stx, goal: MVar) -> Goals:
    return run.step(stx.args[0], [goal])


@tactic("solve")
def t_solve(run: Runner, stx: Stx, goal: MVar) -> Goals:
    return run.solved(stx, goal)


@control("skip")
def c_skip(_run: Runner, _stx: Stx, goals: Goals) -> Goals:
    return goals


@control("done")
def c_done(run: Runner, _stx: Stx, goals: Goals) -> Goals:
    if goals:
        raise LeanError("unsolved goals\n" + "\n\n".join(map(run.show_goal, goals)))
    return goals


@control("try")
def c_try(run: Runner, stx: Stx, goals: Goals) -> Goals:
    made = run.attempt(lambda: run.step(stx.args[0], goals))
    return goals if made is None else made


@control("first")
def c_first(run: Runner, stx: Stx, goals: Goals) -> Goals:
    for choice in stx.args[:-1]:
        made = run.attempt(partial(run.step, choice, goals))
        if made is not None:
            return made
    return run.step(stx.args[-1], goals)


@control("repeat")
def c_repeat(run: Runner, stx: Stx, goals: Goals) -> Goals:
    if not goals:
        return goals
    made = run.attempt(lambda: run.step(stx.args[0], goals[:1]))
    if made is None or made == goals[:1]:
        return goals
    return [new for goal in made for new in c_repeat(run, stx, [goal])] + goals[1:]


@control("all_goals")
def c_all_goals(run: Runner, stx: Stx, goals: Goals) -> Goals:
    return run.on_each(stx.args[0], goals)


@control("any_goals")
def c_any_goals(run: Runner, stx: Stx, goals: Goals) -> Goals:
    made: Goals = []
    worked = False
    for goal in goals:
        if goal.id in run.meta.values:
            continue
        new = run.attempt(partial(run.step, stx.args[0], [goal]))
        worked = worked or new is not None
        made += [goal] if new is None else new
    if not worked:
        raise LeanError("failed on all goals")
    return made


@control("case")
def c_case(run: Runner, stx: Stx, goals: Goals) -> Goals:
    tag, block, *names = stx.args
    for index, goal in enumerate(goals):
        own = run.hole(goal).tag
        if tag.kind == "hole" or own == tag.text or own.endswith(f".{tag.text}"):
            renamed = rename_hidden(run, goal, names)
            if left := run.step(block, [renamed]):
                raise LeanError("unsolved goals\n" + "\n\n".join(map(run.show_goal, left)))
            return goals[:index] + goals[index + 1 :]
    raise LeanError(f"tag not found: {tag.text}")


@tactic("rename_i")
def t_rename_i(run: Runner, stx: Stx, goal: MVar) -> Goals:
    return [rename_hidden(run, goal, stx.args)]


def rename_hidden(run: Runner, goal: MVar, names: Sequence[Stx]) -> MVar:
    """Name the last inaccessible hypotheses, in order."""
    if not names:
        return goal
    context = list(run.hole(goal).context)
    hidden = [index for index, local in enumerate(context) if local.name.endswith("✝")]
    if len(hidden) < len(names):
        raise LeanError("too many variable names provided")
    for index, name in zip(hidden[len(hidden) - len(names) :], names, strict=True):
        if name.kind == "ident":
            context[index] = Local(context[index].fvar, name.text)
    inner = run.fresh(goal, run.target(goal), tuple(context))
    run.meta.assign(goal, inner)
    return inner
