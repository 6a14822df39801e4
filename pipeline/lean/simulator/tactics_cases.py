"""Tactics that take hypotheses and goals apart: cases, rcases, have, by_cases, induction, subst."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.lean.simulator.automation import not_, refute
from pipeline.lean.simulator.meta import Context, LeanError, outside
from pipeline.lean.simulator.registry import Goals, tactic
from pipeline.lean.simulator.scope import extend, without
from pipeline.lean.simulator.syntax import Stx
from pipeline.lean.simulator.tactic_runner import Runner
from pipeline.lean.simulator.tactics_apply import refine
from pipeline.lean.simulator.tactics_intro import cleared, intro, match_rows, revert, take_apart
from pipeline.lean.simulator.terms import (
    NAT,
    App,
    Const,
    FVar,
    Lam,
    Lit,
    MVar,
    Term,
    abstract,
    apply,
    call,
    fvars,
    instantiate,
    spine,
)


@tactic("have")
def t_have(run: Runner, stx: Stx, goal: MVar) -> Goals:
    head, kind_stx, value_stx = stx.args
    elab = run.elaborator(goal)
    kind = None if kind_stx.kind == "hole" else elab.finished(elab.type(kind_stx), span=_span(kind_stx))
    if value_stx.kind == "missing":
        raise LeanError("simulator: outside its logic: `have` without a value", _span(head))
    value = elab.finished(elab.term(value_stx, kind), span=_span(value_stx))
    kind = run.meta.instantiate(run.meta.infer(value)) if kind is None else kind
    side = run.unfilled(elab.goals)
    # The goal itself comes first, what `?_` left of the value last.
    return bring(run, goal, head, value, kind) + side


def bring(run: Runner, goal: MVar, head: Stx, value: Term, kind: Term) -> Goals:
    """Add a hypothesis with a proof, taking it apart when the name is a pattern."""
    local = run.meta.local(kind)
    name = head.text if head.kind == "ident" else "this✝"
    inner = run.fresh(goal, run.target(goal), extend(run.hole(goal).context, local.id, name))
    run.meta.assign(goal, apply(run.meta.bind(local, name, inner), value))
    return [inner] if head.kind in ("ident", "hole") else take_apart(run, inner, local, [head])


@tactic("suffices")
def t_suffices(run: Runner, stx: Stx, goal: MVar) -> Goals:
    name, kind_stx, *value_stx = stx.args
    elab = run.elaborator(goal)
    kind = elab.finished(elab.type(kind_stx), span=_span(kind_stx))
    local = run.meta.local(kind)
    inner = run.fresh(goal, run.target(goal), extend(run.hole(goal).context, local.id, name.text))
    needed = run.fresh(goal, kind)
    run.meta.assign(goal, apply(run.meta.bind(local, name.text, inner), needed))
    if value_stx:
        return [*refine(run, value_stx[0], inner, "exact"), needed]
    return [inner, needed]


@tactic("specialize")
def t_specialize(run: Runner, stx: Stx, goal: MVar) -> Goals:
    (term_stx,) = stx.args
    head = term_stx.args[0] if term_stx.kind == "app" else term_stx
    fvar = run.hypothesis(goal, head)
    elab = run.elaborator(goal)
    value = elab.finished(elab.term(term_stx, None), span=_span(term_stx))
    kind = run.meta.instantiate(run.meta.infer(value))
    local = run.meta.local(kind)
    context = extend(without(run.meta, run.hole(goal).context, fvar), local.id, head.text)
    inner = run.fresh(goal, run.target(goal), context)
    run.meta.assign(goal, apply(run.meta.bind(local, head.text, inner), value))
    return [inner]


@tactic("rcases")
def t_rcases(run: Runner, stx: Stx, goal: MVar) -> Goals:
    subject, pattern = stx.args
    elab = run.elaborator(goal)
    value = elab.finished(elab.term(subject, None), span=_span(subject))
    return take_apart(run, goal, value, [pattern])


@tactic("match")
def t_match(run: Runner, stx: Stx, goal: MVar) -> Goals:
    subject, *alternatives = stx.args
    elab = run.elaborator(goal)
    value = elab.finished(elab.term(subject, None), span=_span(subject))
    return match_rows(run, goal, value, [(alt.args[0], alt.args[1]) for alt in alternatives], fresh=False)


@tactic("cases")
def t_cases(run: Runner, stx: Stx, goal: MVar) -> Goals:
    subject, *alternatives = stx.args
    elab = run.elaborator(goal)
    value = elab.finished(elab.term(subject, None), span=_span(subject))
    kind = run.meta.whnf(run.meta.infer(value))
    if isinstance(value, FVar) and kind == NAT:
        return split_natural(run, goal, value.id, alternatives, induction=False)
    refuted = refute(run.meta, value, kind)
    if refuted is not None:
        return run.close(goal, apply(Const("False.elim"), run.target(goal), refuted))
    if (sides := call("Eq", kind, 3)) is not None:
        return substitute(run, goal, value, sides)
    branches = case_branches(run, goal, value, kind)
    return run_branches(run, branches, alternatives)


@tactic("induction")
def t_induction(run: Runner, stx: Stx, goal: MVar) -> Goals:
    subject, *alternatives = stx.args
    fvar = run.hypothesis(goal, subject)
    if run.meta.instantiate(run.meta.locals[fvar]) != NAT:
        raise outside("induction on anything but a natural number")
    return split_natural(run, goal, fvar, alternatives, induction=True)


def case_branches(run: Runner, goal: MVar, value: Term, kind: Term) -> list[tuple[str, MVar, int]]:
    """Fill the goal by cases and return, for each, its constructor, new goal and number of new hypotheses."""
    head, args = spine(kind)
    target, context = run.target(goal), run.hole(goal).context
    if isinstance(value, FVar):
        context = without(run.meta, context, value.id)
    name = head.name if isinstance(head, Const) else ""
    if name in ("And", "Iff"):
        fields = ("left", "right") if name == "And" else ("mp", "mpr")
        parts = [apply(Const(f"{name}.{field}"), *args, value) for field in fields]
        kinds = [run.meta.instantiate(run.meta.infer(part)) for part in parts]
        body, inner = opened(run, goal, context, list(zip(fields, kinds, strict=True)), "intro")
        run.meta.assign(goal, apply(body, *parts))
        return [("intro", inner, 2)]
    if name == "Or":
        bodies = []
        branches: list[tuple[str, MVar, int]] = []
        for side, part in zip(("inl", "inr"), args, strict=True):
            body, inner = opened(run, goal, context, [("h", part)], side)
            bodies.append(body)
            branches.append((side, inner, 1))
        run.meta.assign(goal, apply(Const("Or.elim"), *args, target, value, *bodies))
        return branches
    if name == "Exists":
        witness = run.meta.local(args[0])
        fact = run.meta.local(run.meta.shallow(App(args[1], witness)))
        inner_context = extend(extend(context, witness.id, "w✝"), fact.id, "h✝")
        inner = run.fresh(goal, target, inner_context, run.tag(goal, "intro"))
        body = run.meta.bind(witness, "w", run.meta.bind(fact, "h", inner))
        run.meta.assign(goal, apply(Const("Exists.elim"), args[0], args[1], target, value, body))
        return [("intro", inner, 2)]
    if name == "True":
        inner = run.fresh(goal, target, context, run.tag(goal, "intro"))
        run.meta.assign(goal, inner)
        return [("intro", inner, 0)]
    raise run.fail("cases", "major premise type is not an inductive type\n" + run.show(goal, kind), goal)


def opened(
    run: Runner, goal: MVar, context: Context, hypotheses: Sequence[tuple[str, Term]], tag: str
) -> tuple[Term, MVar]:
    locals_ = []
    for name, kind in hypotheses:
        local = run.meta.local(kind)
        context = extend(context, local.id, f"{name}✝")
        locals_.append((local, name))
    inner = run.fresh(goal, run.target(goal), context, run.tag(goal, tag))
    body: Term = inner
    for local, name in reversed(locals_):
        body = run.meta.bind(local, name, body)
    return body, inner


def run_branches(
    run: Runner, branches: Sequence[tuple[str, MVar, int]], alternatives: Sequence[Stx]
) -> Goals:
    if not alternatives:
        return [inner for _, inner, _ in branches]
    waiting = list(alternatives)
    for constructor, inner, count in branches:
        chosen = next((alt for alt in waiting if alt.text.rpartition(".")[2] == constructor), None)
        chosen = chosen or next((alt for alt in alternatives if alt.text == "_"), None)
        if chosen is None:
            raise LeanError(f"alternative '{constructor}' has not been provided")
        if chosen in waiting and chosen.text != "_":
            waiting.remove(chosen)
        block, *names = chosen.args
        if len(names) > count:
            raise LeanError(f"too many variable names provided at alternative '{constructor}'", _span(chosen))
        named = name_new(run, inner, names, count)
        if left := run.block(block, [named]):
            raise LeanError("unsolved goals\n" + "\n\n".join(map(run.show_goal, left)), _span(block))
    if extra := [alt for alt in waiting if alt.text != "_"]:
        raise LeanError(f"invalid alternative name '{extra[0].text}'", _span(extra[0]))
    return []


def name_new(run: Runner, goal: MVar, names: Sequence[Stx], count: int) -> MVar:
    """Name the newest hypotheses of a goal, `count` of which the case has brought."""
    context = run.hole(goal).context
    old, new = context[: len(context) - count], context[len(context) - count :]
    result = old
    for index, local in enumerate(new):
        named = index < len(names) and names[index].kind == "ident"
        result = extend(result, local.fvar, names[index].text if named else local.name)
    inner = run.fresh(goal, run.target(goal), result)
    run.meta.assign(goal, inner)
    return inner


def split_natural(
    run: Runner, goal: MVar, fvar: int, alternatives: Sequence[Stx], *, induction: bool
) -> Goals:
    context = run.hole(goal).context
    for local in context:
        if fvar in fvars(run.meta.instantiate(run.meta.locals[local.fvar])):
            raise outside("induction on a number that a hypothesis mentions: `revert` it first")
    target = run.target(goal)
    base = tuple(local for local in context if local.fvar != fvar)
    name = next(local.name for local in context if local.fvar == fvar).rstrip("✝")
    motive = Lam(name, NAT, abstract(target, fvar))
    zero = run.fresh(goal, _at(motive, Lit(0)), base, run.tag(goal, "zero"))
    number = run.meta.local(NAT)
    smaller = run.meta.local(_at(motive, number))
    inner_context = extend(base, number.id, "n✝")
    if induction:
        inner_context = extend(inner_context, smaller.id, "a✝")
    successor = apply(Const("Nat.add"), number, Lit(1))
    step = run.fresh(goal, _at(motive, successor), inner_context, run.tag(goal, "succ"))
    body = run.meta.bind(number, "n", run.meta.bind(smaller, "ih", step))
    run.meta.assign(goal, apply(Const("Nat.rec"), motive, zero, body, FVar(fvar)))
    return run_branches(run, [("zero", zero, 0), ("succ", step, 1 + induction)], alternatives)


@tactic("subst")
def t_subst(run: Runner, stx: Stx, goal: MVar) -> Goals:
    goals = [goal]
    for name in stx.args:
        fvar = FVar(run.hypothesis(goals[0], name))
        sides = call("Eq", run.meta.shallow(run.meta.infer(fvar)), 3)
        if sides is None:
            raise run.fail("subst", f"'{name.text}' is no equation", goals[0])
        goals = substitute(run, goals[0], fvar, sides)
    return goals


def substitute(run: Runner, goal: MVar, value: Term, sides: Sequence[Term]) -> Goals:
    """Replace a variable by what the equation says it is."""
    kind, left, right = sides
    # Lean removes the right side's variable when both are variables.
    if isinstance(right, FVar) and right.id not in fvars(left):
        variable, other, flip = right, left, True
    elif isinstance(left, FVar) and left.id not in fvars(right):
        variable, other, flip = left, right, False
    else:
        raise run.fail("subst", "neither side of the equation is a variable", goal)
    if isinstance(value, FVar):
        goal = cleared(run, goal, value.id)
    context = run.hole(goal).context
    dependents = [h for h in context if variable.id in fvars(run.meta.instantiate(run.meta.locals[h.fvar]))]
    for local in reversed(dependents):
        goal = revert(run, goal, local.fvar)
    target = run.target(goal)
    motive = Lam("x", kind, abstract(target, variable.id))
    kept = tuple(local for local in run.hole(goal).context if local.fvar != variable.id)
    inner = run.fresh(goal, _at(motive, other), kept)
    equal = value if flip else apply(Const("Eq.symm"), kind, left, right, value)
    run.meta.assign(goal, apply(Const("Eq.subst"), kind, motive, other, variable, equal, inner))
    for local in dependents:
        (inner,) = intro(run, Stx("ident", 0, 0, local.name), inner)
    return [inner]


@tactic("by_cases")
def t_by_cases(run: Runner, stx: Stx, goal: MVar) -> Goals:
    name, prop_stx = stx.args
    elab = run.elaborator(goal)
    prop = elab.finished(elab.type(prop_stx), span=_span(prop_stx))
    target, context = run.target(goal), run.hole(goal).context
    bodies: list[Term] = []
    made: Goals = []
    for tag, kind in (("pos", prop), ("neg", not_(prop))):
        local = run.meta.local(kind)
        inner = run.fresh(goal, target, extend(context, local.id, name.text), run.tag(goal, tag))
        bodies.append(run.meta.bind(local, name.text, inner))
        made.append(inner)
    middle = App(Const("Classical.em"), prop)
    run.meta.assign(goal, apply(Const("Or.elim"), prop, not_(prop), target, middle, *bodies))
    return made


@tactic("by_contra")
def t_by_contra(run: Runner, stx: Stx, goal: MVar) -> Goals:
    target = run.target(goal)
    if not run.meta.is_prop(target):
        raise run.fail("by_contra", "the goal is no proposition", goal)
    name = stx.args[0].text if stx.args else "x✝"
    local = run.meta.local(not_(target))
    inner = run.fresh(goal, Const("False"), extend(run.hole(goal).context, local.id, name))
    run.meta.assign(
        goal, apply(Const("Classical.byContradiction"), target, run.meta.bind(local, name, inner))
    )
    return [inner]


def _at(motive: Lam, value: Term) -> Term:
    return instantiate(motive.body, value)


def _span(stx: Stx) -> tuple[int, int]:
    return stx.start, stx.end
