"""The simplifier of propositions: rules and connectives, with a proof of every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pipeline.lean.simulator.automation import FALSE, TRUE, ground, implication, not_
from pipeline.lean.simulator.meta import LeanError, Meta, outside
from pipeline.lean.simulator.terms import (
    App,
    Const,
    Decide,
    Lam,
    Pi,
    Term,
    abstract,
    apply,
    arrow,
    call,
    nodes,
    replace,
    spine,
)

MAX_SIMP_VISITS = 1000  # rules can feed each other: a ↔ b ∧ b, b ↔ a ∧ a


class SimpRule(NamedTuple):
    """A fact to simplify with: `proof` of `left ↔ right`, or of `left = right` between other things."""

    left: Term
    right: Term
    proof: Term
    equation: Term | None = None  # the type whose members are equal


def simp_rules(meta: Meta, proof: Term, kind: Term) -> list[SimpRule]:
    """Turn a hypothesis into rules, as simp does: ¬p makes p false, p makes p true, p ∧ q is both."""
    kind = meta.shallow(kind)
    if (pair := call("And", kind, 2)) is not None:
        left, right = apply(Const("And.left"), *pair, proof), apply(Const("And.right"), *pair, proof)
        return simp_rules(meta, left, pair[0]) + simp_rules(meta, right, pair[1])
    if (sides := call("Iff", kind, 2)) is not None:
        return [SimpRule(sides[0], sides[1], proof)]
    if (equal := call("Eq", kind, 3)) is not None:
        return [SimpRule(equal[1], equal[2], proof, equal[0])]
    if (inner := call("Not", kind, 1)) is not None:
        return [SimpRule(inner[0], FALSE, apply(Const("iff_false_intro"), inner[0], proof))]
    if isinstance(kind, Pi) and not meta.is_prop(kind):
        raise outside("simp with a fact that is no proposition")
    return [SimpRule(kind, TRUE, apply(Const("iff_true_intro"), kind, proof))]


class Simplifier:
    """Rewrites a proposition from the inside out; `run` returns the result and a proof that both are equivalent."""

    def __init__(self, meta: Meta, rules: Sequence[SimpRule], burn: Callable[[], None]) -> None:
        self.meta = meta
        # p ↔ p ∧ q would be applied for ever.
        self.rules = [rule for rule in rules if not any(node == rule.left for node in nodes(rule.right))]
        self.burn = burn
        self.visits = 0

    def run(self, prop: Term) -> tuple[Term, Term | None]:
        """Return the simplified proposition and a proof of `prop ↔ it`; None when nothing changed."""
        current, proof = prop, None
        while True:
            changed, step = self._step(current)
            if step is None:
                break
            proof = step if proof is None else apply(Const("Iff.trans"), prop, current, changed, proof, step)
            current = changed
        return current, proof

    def _step(self, prop: Term) -> tuple[Term, Term | None]:
        self.burn()
        self.visits += 1
        if self.visits > MAX_SIMP_VISITS:
            raise LeanError("simp failed, maximum number of steps exceeded")
        prop = self.meta.shallow(prop)
        inside, proof = self._children(prop)
        if proof is not None:
            return inside, proof
        for rule in self.rules:
            if rule.equation is None:
                if prop == rule.left:
                    return rule.right, rule.proof
            elif any(node == rule.left for node in nodes(prop)) and rule.left != rule.right:
                return self._by_equation(prop, rule)
        return self._connective(prop)

    def _by_equation(self, prop: Term, rule: SimpRule) -> tuple[Term, Term]:
        assert rule.equation is not None
        local = self.meta.local(rule.equation)
        hollow = replace(prop, lambda node: local if node == rule.left else None)
        motive = Lam("x", rule.equation, abstract(apply(Const("Iff"), prop, hollow), local.id))
        result = replace(hollow, lambda node: rule.right if node == local else None)
        start = App(Const("Iff.refl"), prop)
        return result, apply(
            Const("Eq.subst"), rule.equation, motive, rule.left, rule.right, rule.proof, start
        )

    def _children(self, prop: Term) -> tuple[Term, Term | None]:
        head, args = spine(prop)
        name = head.name if isinstance(head, Const) else ""
        sides = implication(prop)
        if name == "Not" and len(args) == 1:
            inner, proof = self._step(args[0])
            return (
                (prop, None)
                if proof is None
                else (not_(inner), apply(Const("not_congr"), args[0], inner, proof))
            )
        if sides is not None and self.meta.is_prop(sides[0]) and self.meta.is_prop(sides[1]):
            name, args = "imp", list(sides)
        elif not (name in ("And", "Or", "Iff") and len(args) == 2):
            return prop, None
        (a, pa), (b, pb) = self._step(args[0]), self._step(args[1])
        if pa is None and pb is None:
            return prop, None
        pa = App(Const("Iff.refl"), args[0]) if pa is None else pa
        pb = App(Const("Iff.refl"), args[1]) if pb is None else pb
        result = arrow(a, b) if name == "imp" else apply(Const(name), a, b)
        return result, apply(Const(f"{name.lower()}_congr"), args[0], a, args[1], b, pa, pb)

    def _connective(self, prop: Term) -> tuple[Term, Term | None]:  # noqa: C901 - a table of rules
        if prop in (TRUE, FALSE):
            return prop, None
        truth = ground(self.meta, prop)
        if truth is True:
            return TRUE, apply(Const("iff_true_intro"), prop, Decide(prop))
        if truth is False:
            return FALSE, apply(Const("iff_false_intro"), prop, Decide(not_(prop)))
        equal = call("Eq", prop, 3)
        if equal is not None and equal[1] == equal[2]:
            return TRUE, apply(Const("iff_true_intro"), prop, apply(Const("Eq.refl"), equal[0], equal[1]))
        head, args = spine(prop)
        name = head.name if isinstance(head, Const) else ""
        sides = implication(prop)
        if sides is not None and self.meta.is_prop(sides[0]) and self.meta.is_prop(sides[1]):
            name, args = "imp", list(sides)
        if len(args) != 2:
            return prop, None
        a, b = args
        lemma: tuple[Term, str, Term] | None = None
        match name, a, b:
            case "And", _, _ if a == TRUE:
                lemma = b, "true_and_iff", b
            case "And", _, _ if b == TRUE:
                lemma = a, "and_true_iff", a
            case "And", _, _ if a == FALSE:
                lemma = FALSE, "false_and_iff", b
            case "And", _, _ if b == FALSE:
                lemma = FALSE, "and_false_iff", a
            case "And", _, _ if b == not_(a):
                lemma = FALSE, "and_not_self_iff", a
            case "And", _, _ if a == not_(b):
                lemma = FALSE, "not_and_self_iff", b
            case "Or", _, _ if a == TRUE:
                lemma = TRUE, "true_or_iff", b
            case "Or", _, _ if b == TRUE:
                lemma = TRUE, "or_true_iff", a
            case "Or", _, _ if a == FALSE:
                lemma = b, "false_or_iff", b
            case "Or", _, _ if b == FALSE:
                lemma = a, "or_false_iff", a
            case (("And" | "Or"), _, _) if a == b:
                lemma = a, f"{name.lower()}_self_iff", a
            case "Iff", _, _ if a == b:
                lemma = TRUE, "iff_self_iff", a
            case "Iff", _, _ if b == TRUE:
                lemma = a, "iff_true_iff", a
            case "Iff", _, _ if a == TRUE:
                lemma = b, "true_iff_iff", b
            case "Iff", _, _ if b == FALSE:
                lemma = not_(a), "iff_false_iff", a
            case "Iff", _, _ if a == FALSE:
                lemma = not_(b), "false_iff_iff", b
            case "imp", _, _ if a == b:
                lemma = TRUE, "imp_self_iff", a
            case "imp", _, _ if a == TRUE:
                lemma = b, "true_imp_iff", b
            case "imp", _, _ if b == TRUE:
                lemma = TRUE, "imp_true_iff", a
            case "imp", _, _ if a == FALSE:
                lemma = TRUE, "false_imp_iff", b
            case "imp", _, _ if b == FALSE:
                lemma = not_(a), "imp_false", a
        if lemma is None:
            return prop, None
        return lemma[0], App(Const(lemma[1]), lemma[2])
