"""Rewriting and simplification: rw, simp, simpa, simp_all."""

from __future__ import annotations

from pipeline.lean.simulator.automation import FALSE, TRUE, contradiction, reflexivity
from pipeline.lean.simulator.meta import LeanError, outside
from pipeline.lean.simulator.registry import Goals, tactic
from pipeline.lean.simulator.rewriting import rewrite_goal
from pipeline.lean.simulator.scope import extend, without
from pipeline.lean.simulator.simplifier import Simplifier, SimpRule, simp_rules
from pipeline.lean.simulator.syntax import Stx
from pipeline.lean.simulator.tactic_runner import Runner
from pipeline.lean.simulator.tactics_apply import t_assumption
from pipeline.lean.simulator.terms import NAT, Const, FVar, MVar, Pi, Term, apply, call, nodes


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
    side: Goals = []
    for rule in rules.args:
        if rule.kind == "star":
            raise outside("rw [*]")
        if location.args:
            for name in location.args:
                if name.text in ("*", "⊢"):
                    raise outside(f"rw … at {name.text}")
                goal, more = rewrite_hypothesis(run, rule, goal, name)
                side += more
        else:
            elab = run.elaborator(goal)
            proof = elab.term(rule.args[0], None)
            elab.run_blocks()
            target, build = rewrite_goal(elab, proof, run.target(goal), backwards=rule.kind == "back")
            inner = run.fresh(goal, target)
            run.meta.assign(goal, run.meta.instantiate(build(inner)))
            goal = inner
    return [goal, *side]


def rewrite_hypothesis(run: Runner, rule: Stx, goal: MVar, name: Stx) -> tuple[MVar, Goals]:
    fvar = run.hypothesis(goal, name)
    elab = run.elaborator(goal)
    proof = elab.term(rule.args[0], None)
    elab.run_blocks()
    # h : P becomes P' by rewriting the other way round: a proof of P from P' turned about.
    kind = run.meta.instantiate(run.meta.locals[fvar])
    forward = rule.kind != "back"
    rewritten, _ = rewrite_goal(elab, proof, kind, backwards=not forward)
    try:
        back_kind, build = rewrite_goal(elab, proof, rewritten, backwards=forward)
    except LeanError:
        raise outside("this rewriting of a hypothesis") from None
    if not run.meta.unify(back_kind, kind):
        raise outside("this rewriting of a hypothesis")
    return replace_hypothesis(run, goal, fvar, name.text, rewritten, build(FVar(fvar))), []


def replace_hypothesis(run: Runner, goal: MVar, fvar: int, name: str, kind: Term, proof: Term) -> MVar:
    local = run.meta.local(kind)
    context = extend(without(run.meta, run.hole(goal).context, fvar), local.id, name)
    inner = run.fresh(goal, run.target(goal), context)
    run.meta.assign(goal, apply(run.meta.bind(local, name, inner), run.meta.instantiate(proof)))
    return inner


@tactic("simp")
def t_simp(run: Runner, stx: Stx, goal: MVar) -> Goals:
    rules_stx, location, *_ = stx.args
    rules = given_rules(run, rules_stx, goal)
    if location.args:
        for name in location.args:
            if name.text in ("*", "⊢"):
                raise outside(f"simp at {name.text}")
            made = simp_hypothesis(run, goal, name, rules)
            if made is None:
                return []
            goal = made
        return [goal]
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


def simp_hypothesis(run: Runner, goal: MVar, name: Stx, rules: list[SimpRule]) -> MVar | None:
    fvar = run.hypothesis(goal, name)
    kind = run.meta.instantiate(run.meta.locals[fvar])
    result, proof = Simplifier(run.meta, rules, run.session.burn).run(kind)
    if proof is None:
        raise LeanError("simp made no progress")
    new = apply(Const("Iff.mp"), kind, result, proof, FVar(fvar))
    if result == FALSE:
        run.meta.assign(goal, apply(Const("False.elim"), run.target(goal), new))
        return None
    return replace_hypothesis(run, goal, fvar, name.text, result, new)


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
        rules += [_flipped(one) for one in found] if rule.kind == "back" else found
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


@tactic("simpa")
def t_simpa(run: Runner, stx: Stx, goal: MVar) -> Goals:
    rules_stx, _location, *using = stx.args
    rules = given_rules(run, rules_stx, goal)
    try:
        goals = simp_target(run, goal, rules)
    except LeanError:
        goals = [goal]
    if not goals:
        return []
    (rest,) = goals
    if not using:
        return t_assumption(run, stx, rest)
    elab = run.elaborator(rest)
    value = elab.finished(elab.term(using[0], None))
    kind = run.meta.instantiate(run.meta.infer(value))
    result, proof = Simplifier(run.meta, rules, run.session.burn).run(kind)
    fact = value if proof is None else apply(Const("Iff.mp"), kind, result, proof, value)
    if not run.meta.unify(result, run.target(rest)):
        raise run.fail("simpa", f"the fact simplifies to\n{run.show(rest, result)}", rest)
    return run.close(rest, fact)


def _flipped(rule: SimpRule) -> SimpRule:
    if rule.equation is None:
        return SimpRule(rule.right, rule.left, apply(Const("Iff.symm"), rule.left, rule.right, rule.proof))
    proof = apply(Const("Eq.symm"), rule.equation, rule.left, rule.right, rule.proof)
    return SimpRule(rule.right, rule.left, proof, rule.equation)
