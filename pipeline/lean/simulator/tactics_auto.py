"""Tactics that rewrite or search: rw, simp, decide, omega, trivial, contradiction, tauto."""

from __future__ import annotations

from functools import partial

from pipeline.lean.simulator.automation import (
    FALSE,
    TRUE,
    Simplifier,
    SimpRule,
    Tautology,
    contradiction,
    decide,
    reflexivity,
    simp_rules,
)
from pipeline.lean.simulator.meta import LeanError, outside
from pipeline.lean.simulator.rewriting import rewrite_goal
from pipeline.lean.simulator.scope import extend, without
from pipeline.lean.simulator.syntax import Stx
from pipeline.lean.simulator.tactics_cases import CaseTactics
from pipeline.lean.simulator.terms import NAT, Const, FVar, MVar, Pi, Term, apply, call, nodes

Goals = list[MVar]


class AutomationTactics(CaseTactics):
    """Tactics that search."""

    def t_decide(self, _stx: Stx, goal: MVar) -> Goals:
        return self.close(goal, decide(self.meta, self.target(goal), lambda term: self.show(goal, term)))

    def t_contradiction(self, _stx: Stx, goal: MVar) -> Goals:
        proof = contradiction(self.meta, self.hole(goal).context)
        if proof is None:
            raise self.fail("contradiction", "no hypothesis is impossible", goal)
        return self.close(goal, apply(Const("False.elim"), self.target(goal), proof))

    def t_trivial(self, stx: Stx, goal: MVar) -> Goals:
        for name in ("assumption", "rfl", "contradiction", "decide"):
            made = self._or_back(partial(self.step, Stx("tactic", stx.start, stx.end, name), [goal]))
            if made is not None:
                return made
        target = self.meta.shallow(self.target(goal))
        if target == TRUE:
            return self.close(goal, Const("True.intro"))
        if call("And", target, 2) is not None:
            return [
                new for part in self._apply_constant(goal, "And.intro") for new in self.t_trivial(stx, part)
            ]
        raise self.fail("trivial", "nothing that it tries closes the goal", goal)

    def t_tauto(self, _stx: Stx, goal: MVar) -> Goals:
        while isinstance(pi := self.meta.shallow(self.target(goal)), Pi):
            _, goal = self._introduce(goal, pi, f"{pi.name.rstrip('✝')}✝")
        if not self.meta.is_prop(self.target(goal)):
            raise self.fail("tauto", "the goal is no proposition", goal)
        proof = Tautology(self.meta, self.hole(goal).context, self.session.burn).prove(self.target(goal))
        if proof is None:
            raise self.fail("tauto", "the goal does not follow by propositional logic", goal)
        return self.close(goal, proof)

    def t_omega(self, stx: Stx, goal: MVar) -> Goals:
        """Only what evaluation and the hypotheses as they stand give: linear arithmetic is outside."""
        for name in ("decide", "assumption", "contradiction"):
            made = self._or_back(partial(self.step, Stx("tactic", stx.start, stx.end, name), [goal]))
            if made is not None:
                return made
        raise LeanError(
            "omega could not prove the goal (simulator: it evaluates closed arithmetic, and no more)\n"
            + self.show_goal(goal)
        )

    def t_nofun(self, stx: Stx, goal: MVar) -> Goals:
        return self.t_contradiction(stx, self.t_intro(Stx("tactic", stx.start, stx.end, "intro"), goal)[0])

    # ---- rw

    def t_rw(self, stx: Stx, goal: MVar) -> Goals:
        goals = self.t_rewrite(stx, goal)
        if stx.args[1].args or not goals:
            return goals
        closed = self._or_back(lambda: self._syntactic_rfl(goals[0]))
        return goals if closed is None else goals[1:]

    def _syntactic_rfl(self, goal: MVar) -> Goals:
        target = self.meta.shallow(self.target(goal))
        equal, sides = call("Eq", target, 3), call("Iff", target, 2)
        # `rw` ends with a `rfl` that unfolds no definitions, but knows the numbers.
        numbers = equal is not None and equal[0] == NAT
        same = (sides is not None and sides[0] == sides[1]) or (equal is not None and equal[1] == equal[2])
        proof = reflexivity(self.meta, target) if numbers or same else None
        if proof is None:
            raise LeanError("not closed by rfl")
        return self.close(goal, proof)

    def t_rewrite(self, stx: Stx, goal: MVar) -> Goals:
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
                    goal, more = self._rewrite_hypothesis(rule, goal, name)
                    side += more
            else:
                elab = self.elaborator(goal)
                proof = elab.term(rule.args[0], None)
                elab.run_blocks()
                target, build = rewrite_goal(elab, proof, self.target(goal), backwards=rule.kind == "back")
                inner = self.fresh(goal, target)
                self.meta.assign(goal, self.meta.instantiate(build(inner)))
                goal = inner
        return [goal, *side]

    def _rewrite_hypothesis(self, rule: Stx, goal: MVar, name: Stx) -> tuple[MVar, Goals]:
        fvar = self._hypothesis(goal, name)
        elab = self.elaborator(goal)
        proof = elab.term(rule.args[0], None)
        elab.run_blocks()
        # h : P becomes P' by rewriting the other way round: a proof of P from P' turned about.
        kind = self.meta.instantiate(self.meta.locals[fvar])
        forward = rule.kind != "back"
        rewritten, _ = rewrite_goal(elab, proof, kind, backwards=not forward)
        try:
            back_kind, build = rewrite_goal(elab, proof, rewritten, backwards=forward)
        except LeanError:
            raise outside("this rewriting of a hypothesis") from None
        if not self.meta.unify(back_kind, kind):
            raise outside("this rewriting of a hypothesis")
        return self._replace_hypothesis(goal, fvar, name.text, rewritten, build(FVar(fvar))), []

    def _replace_hypothesis(self, goal: MVar, fvar: int, name: str, kind: Term, proof: Term) -> MVar:
        local = self.meta.local(kind)
        context = extend(without(self.meta, self.hole(goal).context, fvar), local.id, name)
        inner = self.fresh(goal, self.target(goal), context)
        self.meta.assign(goal, apply(self.meta.bind(local, name, inner), self.meta.instantiate(proof)))
        return inner

    # ---- simp

    def t_simp(self, stx: Stx, goal: MVar) -> Goals:
        rules_stx, location, *_ = stx.args
        rules = self._simp_rules(rules_stx, goal)
        if location.args:
            for name in location.args:
                if name.text in ("*", "⊢"):
                    raise outside(f"simp at {name.text}")
                made = self._simp_hypothesis(goal, name, rules)
                if made is None:
                    return []
                goal = made
            return [goal]
        return self._simp_target(goal, rules)

    def _simp_target(self, goal: MVar, rules: list[SimpRule]) -> Goals:
        target = self.target(goal)
        if not self.meta.is_prop(target):
            raise self.fail("simp", "the goal is no proposition", goal)
        result, proof = Simplifier(self.meta, rules, self.session.burn).run(target)
        if proof is None:
            raise LeanError("simp made no progress")
        if result == TRUE:
            return self.close(goal, apply(Const("of_iff_true"), target, proof))
        inner = self.fresh(goal, result)
        self.meta.assign(goal, apply(Const("Iff.mpr"), target, result, proof, inner))
        return [inner]

    def _simp_hypothesis(self, goal: MVar, name: Stx, rules: list[SimpRule]) -> MVar | None:
        fvar = self._hypothesis(goal, name)
        kind = self.meta.instantiate(self.meta.locals[fvar])
        result, proof = Simplifier(self.meta, rules, self.session.burn).run(kind)
        if proof is None:
            raise LeanError("simp made no progress")
        new = apply(Const("Iff.mp"), kind, result, proof, FVar(fvar))
        if result == FALSE:
            self.meta.assign(goal, apply(Const("False.elim"), self.target(goal), new))
            return None
        return self._replace_hypothesis(goal, fvar, name.text, result, new)

    def _simp_rules(self, stx: Stx, goal: MVar) -> list[SimpRule]:
        rules: list[SimpRule] = []
        for rule in stx.args:
            if rule.kind == "star":
                rules += self._all_facts(goal)
                continue
            elab = self.elaborator(goal)
            proof = elab.finished(elab.term(rule.args[0], None), allow_holes=True)
            kind = self.meta.instantiate(self.meta.infer(proof))
            if any(isinstance(node, MVar) for node in nodes(kind)) or isinstance(self.meta.shallow(kind), Pi):
                raise outside("simp with a lemma that has arguments", (rule.start, rule.end))
            found = simp_rules(self.meta, proof, kind)
            rules += [_flipped(one) for one in found] if rule.kind == "back" else found
        return rules

    def _all_facts(self, goal: MVar) -> list[SimpRule]:
        rules: list[SimpRule] = []
        for local in self.hole(goal).context:
            kind = self.meta.instantiate(self.meta.locals[local.fvar])
            if self.meta.is_prop(kind):
                rules += simp_rules(self.meta, FVar(local.fvar), kind)
        return rules

    def t_simp_all(self, _stx: Stx, goal: MVar) -> Goals:
        proof = contradiction(self.meta, self.hole(goal).context)
        if proof is not None:
            return self.close(goal, apply(Const("False.elim"), self.target(goal), proof))
        return self._simp_target(goal, self._all_facts(goal))

    def t_simpa(self, stx: Stx, goal: MVar) -> Goals:
        rules_stx, _location, *using = stx.args
        rules = self._simp_rules(rules_stx, goal)
        try:
            goals = self._simp_target(goal, rules)
        except LeanError:
            goals = [goal]
        if not goals:
            return []
        (rest,) = goals
        if not using:
            return self.t_assumption(stx, rest)
        elab = self.elaborator(rest)
        value = elab.finished(elab.term(using[0], None))
        kind = self.meta.instantiate(self.meta.infer(value))
        result, proof = Simplifier(self.meta, rules, self.session.burn).run(kind)
        fact = value if proof is None else apply(Const("Iff.mp"), kind, result, proof, value)
        if not self.meta.unify(result, self.target(rest)):
            raise self.fail("simpa", f"the fact simplifies to\n{self.show(rest, result)}", rest)
        return self.close(rest, fact)


def _flipped(rule: SimpRule) -> SimpRule:
    if rule.equation is None:
        return SimpRule(rule.right, rule.left, apply(Const("Iff.symm"), rule.left, rule.right, rule.proof))
    proof = apply(Const("Eq.symm"), rule.equation, rule.left, rule.right, rule.proof)
    return SimpRule(rule.right, rule.left, proof, rule.equation)
