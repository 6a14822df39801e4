"""Tactics that fill the goal with a term: exact, apply, the constructors, reflexivity, sorry."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pipeline.lean.simulator.automation import reflexivity
from pipeline.lean.simulator.elaboration import Elaborator
from pipeline.lean.simulator.kernel import beta
from pipeline.lean.simulator.meta import Hole, LeanError
from pipeline.lean.simulator.registry import Goals, tactic
from pipeline.lean.simulator.syntax import Stx
from pipeline.lean.simulator.tactic_runner import Runner
from pipeline.lean.simulator.tactics_control import c_try
from pipeline.lean.simulator.terms import (
    App,
    Const,
    FVar,
    MVar,
    Pi,
    Term,
    apply,
    call,
    instantiate,
    nodes,
    replace,
    spine,
)

# constructors by type, in Lean's order
_CONSTRUCTORS = {
    "And": ("And.intro",), "Iff": ("Iff.intro",), "Or": ("Or.inl", "Or.inr"), "True": ("True.intro",), "False": (),
    "Exists": ("Exists.intro",), "Eq": ("Eq.refl",), "Nat.le": ("Nat.le_refl",), "Nat": ("Nat.zero",),
}  # fmt: skip


@tactic("exact")
def t_exact(run: Runner, stx: Stx, goal: MVar) -> Goals:
    return refine(run, stx.args[0], goal, "exact")


@tactic("refine")
def t_refine(run: Runner, stx: Stx, goal: MVar) -> Goals:
    return refine(run, stx.args[0], goal, "refine")


def refine(run: Runner, stx: Stx, goal: MVar, tactic: str) -> Goals:
    elab = run.elaborator(goal)
    term = elab.finished(elab.term(stx, run.target(goal)), span=(stx.start, stx.end))
    goals = run.unfilled(elab.goals)
    if tactic == "exact" and goals:
        raise LeanError(
            "don't know how to synthesize placeholder: `exact` leaves no goals", (stx.start, stx.end)
        )
    run.meta.assign(goal, term)
    return goals


@tactic("apply")
def t_apply(run: Runner, stx: Stx, goal: MVar) -> Goals:
    elab = run.elaborator(goal)
    term = elab.term(stx.args[0], None)
    return apply_term(run, elab, term, goal)


def apply_term(run: Runner, elab: Elaborator, term: Term, goal: MVar) -> Goals:
    """Fill the goal with `term` applied to as many new goals as it takes."""
    target = run.target(goal)
    own = elab.meta.instantiate(term)
    loose = [node for node in nodes(own) if isinstance(node, MVar) and node not in elab.goals]
    kind = run.meta.infer(own)
    total = arity(run, kind)
    for count in range(max(0, total - arity(run, target)), total + 1):
        made = apply_with(run, own, kind, count, goal)
        if made is not None:
            result, slots = made
            break
    else:
        raise LeanError(
            f"tactic 'apply' failed, could not unify the conclusion of\n  {run.show(goal, kind)}\n"
            f"with the goal\n  {run.show(goal, target)}\n{run.show_goal(goal)}"
        )
    elab.run_blocks()
    run.meta.assign(goal, run.meta.instantiate(result))
    candidates = [hole for hole in dict.fromkeys([*loose, *slots]) if hole.id not in run.meta.values]
    return as_goals(run, goal, candidates, single=len(loose) + len(slots) == 1) + run.unfilled(elab.goals)


def arity(run: Runner, kind: Term) -> int:
    count = 0
    kind = run.meta.whnf(kind)
    while isinstance(kind, Pi):
        kind = run.meta.whnf(instantiate(kind.body, run.meta.local(kind.type)))
        count += 1
    return count


def apply_with(run: Runner, term: Term, kind: Term, count: int, goal: MVar) -> tuple[Term, list[MVar]] | None:
    context = run.hole(goal).context
    slots: list[MVar] = []
    for _ in range(count):
        pi = run.meta.whnf(kind)
        assert isinstance(pi, Pi)
        slot = run.meta.hole(pi.type, context, tag=pi.name.rstrip("✝"))
        slots.append(slot)
        term, kind = App(term, slot), instantiate(pi.body, slot)
    return (term, slots) if run.meta.unify(kind, run.target(goal)) else None


def as_goals(run: Runner, goal: MVar, holes: Sequence[MVar], *, single: bool) -> Goals:
    """Turn holes into goals: first those that no other one depends on."""
    parent = run.hole(goal).tag
    kinds = {hole: run.meta.instantiate(run.hole(hole).type) for hole in holes}
    used = {node for kind in kinds.values() for node in nodes(kind) if isinstance(node, MVar)}
    ordered = [hole for hole in holes if hole not in used] + [hole for hole in holes if hole in used]
    for hole in ordered:
        tag = parent if single else ".".join(part for part in (parent, run.hole(hole).tag) if part)
        # Not `is_goal`: as in Lean, what closes one of them may fill another one by the way.
        run.meta.holes[hole.id] = Hole(kinds[hole], run.hole(hole).context, tag)
    return ordered


def apply_constant(run: Runner, goal: MVar, name: str) -> Goals:
    return apply_term(run, run.elaborator(goal), Const(name), goal)


@tactic("constructor")
def t_constructor(run: Runner, _stx: Stx, goal: MVar) -> Goals:
    head, _ = spine(run.meta.shallow(run.target(goal)))
    names = _CONSTRUCTORS.get(head.name) if isinstance(head, Const) else None
    if names is None:
        raise run.fail("constructor", "target is not an inductive datatype", goal)
    for name in names:
        made = run.attempt(partial(apply_constant, run, goal, name))
        if made is not None:
            return made
    raise run.fail("constructor", "no applicable constructors found", goal)


@tactic("left")
def t_left(run: Runner, _stx: Stx, goal: MVar) -> Goals:
    return choose_side(run, goal, "left", "Or.inl")


@tactic("right")
def t_right(run: Runner, _stx: Stx, goal: MVar) -> Goals:
    return choose_side(run, goal, "right", "Or.inr")


def choose_side(run: Runner, goal: MVar, tactic: str, name: str) -> Goals:
    if call("Or", run.meta.shallow(run.target(goal)), 2) is None:
        raise run.fail(tactic, f"{tactic} tactic works for inductive types with exactly 2 constructors", goal)
    return apply_constant(run, goal, name)


@tactic("and_intros")
def t_and_intros(run: Runner, _stx: Stx, goal: MVar) -> Goals:
    if call("And", run.meta.shallow(run.target(goal)), 2) is None:
        return [goal]
    return [new for made in apply_constant(run, goal, "And.intro") for new in t_and_intros(run, _stx, made)]


@tactic("exists")
def t_exists(run: Runner, stx: Stx, goal: MVar) -> Goals:
    rest = Stx("synthetic", stx.end, stx.end)
    pair = Stx("anonymous", stx.start, stx.end, "", (stx.args[0], rest))
    goals = refine(run, pair, goal, "refine")
    closing = Stx("made", stx.start, stx.end, "trivial")
    return c_try(run, Stx("made", stx.start, stx.end, "try", (closing,)), goals)


@tactic("assumption")
def t_assumption(run: Runner, _stx: Stx, goal: MVar) -> Goals:
    target = run.target(goal)
    for local in reversed(run.hole(goal).context):
        if run.meta.unify(run.meta.locals[local.fvar], target):
            return run.close(goal, FVar(local.fvar))
    raise run.fail("assumption", "no hypothesis has the goal's type", goal)


@tactic("exfalso")
def t_exfalso(run: Runner, _stx: Stx, goal: MVar) -> Goals:
    inner = run.fresh(goal, Const("False"))
    run.meta.assign(goal, apply(Const("False.elim"), run.target(goal), inner))
    return [inner]


@tactic("rfl")
def t_rfl(run: Runner, _stx: Stx, goal: MVar) -> Goals:
    proof = reflexivity(run.meta, run.target(goal)) if is_relation(run, goal) else None
    if proof is None:
        raise run.fail("rfl", "the goal is no reflexive relation whose sides are equal by definition", goal)
    return run.close(goal, proof)


def is_relation(run: Runner, goal: MVar) -> bool:
    head, _ = spine(run.meta.shallow(run.target(goal)))
    return head in (Const("Eq"), Const("Iff"), Const("Nat.le"))


@tactic("symm")
def t_symm(run: Runner, _stx: Stx, goal: MVar) -> Goals:
    target = run.meta.shallow(run.target(goal))
    head, args = spine(target)
    if head not in (Const("Eq"), Const("Iff"), Const("Ne")):
        raise run.fail("symm", "the goal is no equation, equivalence or inequality", goal)
    flipped = apply(head, *args[:-2], args[-1], args[-2])
    inner = run.fresh(goal, flipped)
    assert isinstance(head, Const)
    run.meta.assign(goal, apply(Const(f"{head.name}.symm"), *args[:-2], args[-1], args[-2], inner))
    return [inner]


@tactic("show", "change")
def t_show(run: Runner, stx: Stx, goal: MVar) -> Goals:
    elab = run.elaborator(goal)
    kind = elab.finished(elab.type(stx.args[0]), allow_holes=True)
    if not run.meta.unify(kind, run.target(goal)):
        raise LeanError(
            f"tactic 'show' failed, pattern\n  {run.show(goal, kind)}\nis not definitionally equal to target\n"
            f"  {run.show(goal, run.target(goal))}"
        )
    inner = run.fresh(goal, run.meta.instantiate(kind))
    run.meta.assign(goal, inner)
    return refine(run, stx.args[1], inner, "exact") if len(stx.args) > 1 else [inner]


@tactic("unfold")
def t_unfold(run: Runner, stx: Stx, goal: MVar) -> Goals:

    target = run.target(goal)
    for stx_name in stx.args:
        name = next(
            (c for c in run.session.scope.candidates(stx_name.text) if run.meta.env.get(c) is not None),
            "",
        )
        constant = run.meta.env.get(name)
        if constant is None or constant.value is None or not constant.unfolds:
            raise run.fail("unfold", f"'{stx_name.text}' is no definition that unfolds", goal)
        value = constant.value

        def leaf(node: Term, name: str = name, value: Term = value) -> Term | None:
            head, args = spine(node)
            if head != Const(name):
                return None
            return beta(apply(value, *(replace(arg, leaf) for arg in args)))

        target = replace(target, leaf)
    inner = run.fresh(goal, target)
    run.meta.assign(goal, inner)
    return [inner]


@tactic("sorry")
def t_sorry(run: Runner, stx: Stx, goal: MVar) -> Goals:
    run.session.sorry_spans.append((stx.start, stx.end))
    return run.close(goal, run.elaborator(goal).sorry(run.target(goal)))
