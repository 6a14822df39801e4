"""All tactics together: importing this module registers every one of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pipeline.lean.simulator import term_rules
from pipeline.lean.simulator.automation import (
    TRUE,
    Simplifier,
    SimpRule,
    Tautology,
    contradiction,
    decide,
    reflexivity,
    refute,
    simp_rules,
)
from pipeline.lean.simulator.elaboration import Elaborator, block_runner, rewrite_goal
from pipeline.lean.simulator.kernel import Context, LeanError, Meta, Session, extend, outside, without
from pipeline.lean.simulator.tactic_runner import (
    Goals,
    Runner,
    apply_constant,
    cleared,
    intro,
    introduce,
    revert,
    tactic,
    take_apart,
)
from pipeline.lean.simulator.terms import (
    NAT,
    App,
    Const,
    FVar,
    Lam,
    Lit,
    MVar,
    Pi,
    Stx,
    Term,
    abstract,
    apply,
    call,
    fvars,
    instantiate,
    nodes,
    spine,
)

# ---- Tactics that take hypotheses and goals apart: cases, rcases, have, by_cases, induction, subst


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


@tactic("rcases")
def t_rcases(run: Runner, stx: Stx, goal: MVar) -> Goals:
    subject, pattern = stx.args
    elab = run.elaborator(goal)
    value = elab.finished(elab.term(subject, None), span=_span(subject))
    return take_apart(run, goal, value, [pattern])


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


def _at(motive: Lam, value: Term) -> Term:
    return instantiate(motive.body, value)


def _span(stx: Stx) -> tuple[int, int]:
    return stx.start, stx.end


# ---- Rewriting and simplification: rw, simp, simpa, simp_all


@tactic("rw")
def t_rw(run: Runner, stx: Stx, goal: MVar) -> Goals:
    goals = t_rewrite(run, stx, goal)
    if stx.args[1].args or not goals:
        return goals
    closed = run.attempt(lambda: syntactic_rfl(run, goals[0]))
    return goals if closed is None else goals[1:]


def syntactic_rfl(run: Runner, goal: MVar) -> Goals:
    target = run.meta.shallow(run.target(goal))
    equal, sides = call("Eq", target, 3), call("Iff", target, 2)
    # `rw` ends with a `rfl` that unfolds no definitions, but knows the numbers.
    numbers = equal is not None and equal[0] == NAT
    same = (sides is not None and sides[0] == sides[1]) or (equal is not None and equal[1] == equal[2])
    proof = reflexivity(run.meta, target) if numbers or same else None
    if proof is None:
        raise LeanError("not closed by rfl")
    return run.close(goal, proof)


@tactic("rewrite")
def t_rewrite(run: Runner, stx: Stx, goal: MVar) -> Goals:
    rules, location, *_ = stx.args
    if not rules.args:
        raise LeanError("rw needs at least one rule")
    if location.args:
        raise outside("rw … at …")
    for rule in rules.args:
        if rule.kind == "star":
            raise outside("rw [*]")
        elab = run.elaborator(goal)
        proof = elab.term(rule.args[0], None)
        elab.run_blocks()
        target, build = rewrite_goal(elab, proof, run.target(goal), backwards=rule.kind == "back")
        inner = run.fresh(goal, target)
        run.meta.assign(goal, run.meta.instantiate(build(inner)))
        goal = inner
    return [goal]


@tactic("simp")
def t_simp(run: Runner, stx: Stx, goal: MVar) -> Goals:
    rules_stx, location, *_ = stx.args
    rules = given_rules(run, rules_stx, goal)
    if location.args:
        raise outside("simp at …")
    return simp_target(run, goal, rules)


def simp_target(run: Runner, goal: MVar, rules: list[SimpRule]) -> Goals:
    target = run.target(goal)
    if not run.meta.is_prop(target):
        raise run.fail("simp", "the goal is no proposition", goal)
    result, proof = Simplifier(run.meta, rules, run.session.burn).run(target)
    if proof is None:
        raise LeanError("simp made no progress")
    if result == TRUE:
        return run.close(goal, apply(Const("of_iff_true"), target, proof))
    inner = run.fresh(goal, result)
    run.meta.assign(goal, apply(Const("Iff.mpr"), target, result, proof, inner))
    return [inner]


def given_rules(run: Runner, stx: Stx, goal: MVar) -> list[SimpRule]:
    rules: list[SimpRule] = []
    for rule in stx.args:
        if rule.kind == "star":
            rules += all_facts(run, goal)
            continue
        elab = run.elaborator(goal)
        proof = elab.finished(elab.term(rule.args[0], None), allow_holes=True)
        kind = run.meta.instantiate(run.meta.infer(proof))
        if any(isinstance(node, MVar) for node in nodes(kind)) or isinstance(run.meta.shallow(kind), Pi):
            raise outside("simp with a lemma that has arguments", (rule.start, rule.end))
        found = simp_rules(run.meta, proof, kind)
        if rule.kind == "back":
            raise outside("simp [← …]", (rule.start, rule.end))
        rules += found
    return rules


def all_facts(run: Runner, goal: MVar) -> list[SimpRule]:
    rules: list[SimpRule] = []
    for local in run.hole(goal).context:
        kind = run.meta.instantiate(run.meta.locals[local.fvar])
        if run.meta.is_prop(kind):
            rules += simp_rules(run.meta, FVar(local.fvar), kind)
    return rules


@tactic("simp_all")
def t_simp_all(run: Runner, _stx: Stx, goal: MVar) -> Goals:
    proof = contradiction(run.meta, run.hole(goal).context)
    if proof is not None:
        return run.close(goal, apply(Const("False.elim"), run.target(goal), proof))
    return simp_target(run, goal, all_facts(run, goal))


# ---- Tactics that search: decide, omega, trivial, contradiction, tauto


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


@block_runner
def run_block(meta: Meta, session: Session, goal: MVar, block: Stx) -> None:
    """Run a tactic block on one goal; a LeanError unless it closes it."""
    runner = Runner(meta, session)
    left = runner.block(block, [goal])
    if left:
        raise LeanError(
            "unsolved goals\n" + "\n\n".join(runner.show_goal(g) for g in left), (block.start, block.end)
        )


__all__ = ["TERM_RULES", "Elaborator", "Runner", "run_block"]
TERM_RULES = term_rules
"""Loaded with the tactics: whoever takes the elaborator from here has every rule of the language."""
