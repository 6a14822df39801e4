"""The commands about goal states: `goal.*`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline.lean.simulator import kernel, saved
from pipeline.lean.simulator.core import Core, read_text, write_text
from pipeline.lean.simulator.environment_commands import checked_type
from pipeline.lean.simulator.kernel import KernelError
from pipeline.lean.simulator.meta import LeanError, Meta
from pipeline.lean.simulator.protocol import Json, Payload, Refusal
from pipeline.lean.simulator.shapes import Shapes, goal_name, goal_number, tactic_message
from pipeline.lean.simulator.states import State
from pipeline.lean.simulator.steps import FORMS, Made, Step
from pipeline.lean.simulator.syntax import ParseError
from pipeline.lean.simulator.terms import MVar, Term, has_mvar, has_sorry, nodes

# What Lean logs while it goes on, instead of throwing it: only these errors say where in the tactic they stand.
_LOGGED = ("unsolved goals", "don't know how to synthesize")


def goal_start(core: Core, payload: Payload) -> Json:
    expr, copied = payload.maybe_text("expr"), payload.maybe_text("copyFrom")
    if (expr is None) == (copied is None):
        raise Refusal("arguments", "Exactly one of {expr, copyFrom} must be supplied")
    if expr is not None:
        meta, statement = checked_type(core, expr)
    else:
        constant = core.env.get(str(copied))
        if constant is None:
            raise Refusal("index", f"Symbol not found: {copied}")
        meta, statement = Meta(core.env), constant.type
    root = meta.hole(statement, (), is_goal=True)
    return {"stateId": core.states.add(State(meta, (root,), root)), "root": goal_name(root.id)}


def goal_tactic(core: Core, payload: Payload) -> Json:
    state = core.states.get(payload.number("stateId"))
    forms = [form for form in FORMS if payload.has(form)]
    goal, siblings, put_aside = _site(core, state, payload, check_only=len(forms) != 1)
    if len(forms) != 1:
        raise Refusal("operation", f"Exactly one of {{{', '.join(FORMS)}}} must be supplied")
    meta = state.meta.copy()
    step = Step(
        meta,
        core.session(),
        goal,
        state.fragments.get(goal.id),
        payload.text(forms[0]),
        payload.maybe_text("binderName") or "[anonymous]",
        core.dialect,
    )
    try:
        made = FORMS[forms[0]](step)
        after = _after(state, meta, step, made, siblings, put_aside)
        _confirm(after, goal)
    except ParseError as error:
        line = step.text.count("\n", 0, error.offset) + 1
        column = error.offset - (step.text.rfind("\n", 0, error.offset) + 1)
        return _failed() | {"parseError": f"<Pantograph>:{line}:{column}: {error.message}"}
    except LeanError as error:
        span = error.span if error.message.startswith(_LOGGED) else None
        return _failed() | {"messages": [tactic_message(error.message, span)]}
    except KernelError as error:
        text = f"simulator: the kernel refuses the term that the step made: {error}"
        return _failed() | {"messages": [tactic_message(text, None)]}
    return {
        "nextStateId": core.states.add(after),
        "goals": core.shapes(meta).goals(after),
        "messages": [],
        "hasSorry": goal.id in meta.values and has_sorry(meta.instantiate(goal)),
        "hasUnsafe": False,
    }


def _site(
    core: Core, state: State, payload: Payload, *, check_only: bool
) -> tuple[MVar, tuple[MVar, ...], tuple[MVar, ...]]:
    """Return the goal to act on, the siblings that stay, and those that go dormant."""
    index, resume = payload.maybe_number("goalId"), payload.maybe_flag("autoResume")
    automatic = core.options["automaticMode"] if resume is None else resume
    if index is not None and index >= len(state.goals):
        raise Refusal("index", f"Invalid goal index {index}")
    if not state.goals:
        if check_only:
            return state.root, (), ()
        if automatic:
            raise Refusal("exception", "no goals to be solved")
        raise Refusal("index", "No goals to be solved")
    chosen = state.goals[index or 0]
    others = tuple(goal for goal in state.goals if goal != chosen)
    return (chosen, others, ()) if automatic else (chosen, (), others)


def _after(
    state: State,
    meta: Meta,
    step: Step,
    made: Made,
    siblings: tuple[MVar, ...],
    put_aside: tuple[MVar, ...],
) -> State:
    if made.alone:
        siblings, put_aside = (), (*siblings, *put_aside)
    changed = {**state.fragments, **made.fragments}
    goals = (*made.goals, *(goal for goal in siblings if goal.id not in meta.values))
    return State(
        meta,
        tuple(dict.fromkeys(goals)),
        state.root,
        tuple(goal for goal in (*state.dormant, *put_aside) if goal.id not in meta.values),
        (step.goal,),
        {number: mode for number, mode in changed.items() if mode is not None and number not in meta.values},
        state.broken_root or made.breaks_root,
        state.hides_root,
    )


def _confirm(state: State, goal: MVar) -> None:
    """Have the kernel check what is complete: the goal just worked on, and the root when nothing is left."""
    meta = state.meta
    holes = (goal,) if state.broken_root else (goal, state.root)
    if not (state.goals or state.dormant or state.broken_root) and has_mvar(meta.instantiate(state.root)):
        raise KernelError("a hole of the proof was lost on the way")
    for hole in holes:
        term, kind = meta.instantiate(hole), meta.instantiate(meta.holes[hole.id].type)
        if has_mvar(term) or has_mvar(kind):
            continue
        context = {
            local.fvar: meta.instantiate(meta.locals[local.fvar]) for local in meta.holes[hole.id].context
        }
        if not any(has_mvar(fact) for fact in context.values()):
            kernel.check(meta.env, term, kind, context)


def _failed() -> Json:
    return {"hasSorry": False, "hasUnsafe": False}


def goal_continue(core: Core, payload: Payload) -> Json:
    target = core.states.get(payload.number("target"))
    branch_id, names = payload.maybe_number("branch"), payload.texts("goals")
    if (branch_id is None) == (not payload.has("goals")):
        raise Refusal("arguments", "Exactly one of {branch, goals} must be supplied")
    if branch_id is None:
        resumed = _resumed(target, names)
    else:
        branch = core.states.get(branch_id)
        if target.goals:
            raise Refusal("structure", "Target state has unresolved goals")
        if target.root != branch.root:
            raise Refusal(
                "structure",
                "Roots of two continued goal states do not match: "
                f"{goal_name(target.root.id)} != {goal_name(branch.root.id)}",
            )
        resumed = _resumed(target, [goal_name(goal.id) for goal in branch.goals])
        # What sleeps in the branch sleeps on: it is no less open than before.
        target = replace(target, dormant=tuple(dict.fromkeys((*target.dormant, *branch.dormant))))
    after = _awake(target, resumed)
    return {"nextStateId": core.states.add(after), "goals": core.shapes(after.meta.copy()).goals(after)}


def _resumed(target: State, names: Sequence[str]) -> tuple[MVar, ...]:
    numbers = [goal_number(name) for name in names]
    strangers = [name for name, number in zip(names, numbers, strict=True) if number not in target.meta.holes]
    if strangers:
        raise Refusal("structure", f"Goals [{', '.join(strangers)}] are not in scope")
    found = dict.fromkeys(MVar(number) for number in numbers if number is not None)
    return tuple(goal for goal in found if goal.id not in target.meta.values)


def _awake(target: State, goals: tuple[MVar, ...]) -> State:
    asleep = dict.fromkeys((*target.dormant, *target.goals))
    dormant = tuple(goal for goal in asleep if goal not in goals and goal.id not in target.meta.values)
    return replace(target, goals=goals, dormant=dormant)


def goal_subsume(core: Core, payload: Payload) -> Json:
    """Fill a goal with another one that is at least as general: same target, no more hypotheses.

    Only candidates that this state has, and whose hypotheses are among the goal's own, count here; Lean looks
    further.
    """
    state = core.states.get(payload.number("stateId"))
    source_id = payload.maybe_number("srcStateId")
    source = state if source_id is None else core.states.get(source_id)
    goal = _known(state, payload.text("goal"))
    for name in payload.texts("candidates"):
        candidate = _known(source, name)
        if candidate == goal or not _covers(source, candidate, state, goal):
            continue
        holder = state if candidate.id in state.meta.holes else source
        value = holder.meta.instantiate(candidate)
        if any(node == goal for node in nodes(value)):
            return {"result": "cycle", "subsumptor": name}
        if not _makes_sense(state, value):
            continue
        meta = state.meta.copy()
        meta.assign(goal, value)
        left = replace(
            state,
            meta=meta,
            goals=tuple(g for g in state.goals if g != goal),
            dormant=tuple(g for g in state.dormant if g != goal),
            parents=(goal,),
        )
        try:
            # What fills a candidate need not be a proof of it: its state may have taken a step of the form `have`.
            _confirm(left, goal)
        except KernelError:
            continue
        return {"result": "subsumed", "subsumptor": name, "stateId": core.states.add(left)}
    return {"result": "none"}


def _known(state: State, name: str) -> MVar:
    number = goal_number(name)
    if number is None or number not in state.meta.holes:
        raise Refusal("index", f"Goal not found {name}")
    return MVar(number)


def _covers(source: State, candidate: MVar, state: State, goal: MVar) -> bool:
    wide, narrow = source.meta.holes[candidate.id], state.meta.holes[goal.id]
    known = {local.fvar for local in narrow.context}
    left, right = source.meta.instantiate(wide.type), state.meta.instantiate(narrow.type)
    same = left == right or (not (has_mvar(left) or has_mvar(right)) and state.meta.copy().unify(left, right))
    return same and all(local.fvar in known for local in wide.context)


def _makes_sense(state: State, value: Term) -> bool:
    """Say whether a term's holes are open ones of this state."""
    open_goals = {*state.goals, *state.dormant}
    return all(node in open_goals for node in nodes(value) if isinstance(node, MVar))


def goal_delete(core: Core, payload: Payload) -> Json:
    core.states.delete(payload.numbers("stateIds"))
    return {}


def goal_print(core: Core, payload: Payload) -> Json:
    state = core.states.get(payload.number("stateId"))
    meta = state.meta.copy()  # printing counts steps and makes names, none of which are the state's
    shapes = core.shapes(meta)
    root = None if state.hides_root else meta.instantiate(state.root)
    if root == state.root:
        root = None
    reply: Json = {
        "goals": shapes.goals(state) if payload.flag("goals") else [],
        "extraMVars": [_extra(shapes, name) for name in payload.texts("extraMVars")],
        "rootHasSorry": root is not None and has_sorry(root),
        "rootHasUnsafe": False,
        "rootHasMVar": root is not None and has_mvar(root),
    }
    if payload.flag("rootExpr") and root is not None:
        reply["root"] = shapes.expression(root)
    if payload.flag("parentExprs"):
        reply["parentExprs"] = [
            shapes.expression(meta.instantiate(parent), meta.holes[parent.id].context)
            if parent.id in meta.values
            else None
            for parent in state.parents
        ]
    return reply


def _extra(shapes: Shapes, name: str) -> Json:
    """Return what fills a hole; nothing for one that is open or unknown."""
    number, meta = goal_number(name), shapes.meta
    if number is None or number not in meta.values:
        return {}
    return shapes.expression(meta.instantiate(MVar(number)), meta.holes[number].context)


def goal_save(core: Core, payload: Payload) -> Json:
    write_text(payload.text("path"), saved.state_text(core.states.get(payload.number("id"))))
    return {}


def goal_load(core: Core, payload: Payload) -> Json:
    path = payload.text("path")
    try:
        state = saved.read_state(read_text(path), core.env)
    except saved.NotSaved as error:
        raise Refusal("io", f"{path}: {error}") from None
    return {"id": core.states.add(state)}


GOAL_COMMANDS = {
    "goal.start": goal_start,
    "goal.tactic": goal_tactic,
    "goal.continue": goal_continue,
    "goal.subsume": goal_subsume,
    "goal.delete": goal_delete,
    "goal.print": goal_print,
    "goal.save": goal_save,
    "goal.load": goal_load,
}
