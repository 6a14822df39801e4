"""The shared parts of the searching tactics: evaluation, reflexivity, contradictions. Each builds a term."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pipeline.lean.simulator.kernel import Context, LeanError, Meta, outside
from pipeline.lean.simulator.terms import (
    App,
    Const,
    Decide,
    FVar,
    Lam,
    Pi,
    Term,
    abstract,
    apply,
    arrow,
    call,
    has_loose,
    instantiate,
    nodes,
    replace_subterms,
    spine,
)

TRUE, FALSE = Const("True"), Const("False")


def not_(term: Term) -> Term:
    return App(Const("Not"), term)


def fun(meta: Meta, kind: Term, body: Callable[[FVar], Term]) -> Term:
    """Return `fun h : kind => body h`."""
    local = meta.local(kind)
    return Lam("h", kind, abstract(meta.instantiate(body(local)), local.id))


def implication(term: Term) -> tuple[Term, Term] | None:
    """Return both sides of a → b."""
    if isinstance(term, Pi) and term.info == "explicit" and not has_loose(term.body):
        return term.type, instantiate(term.body, TRUE)
    return None


# ---- decide


def decide(meta: Meta, target: Term, show: Callable[[Term], str]) -> Term:
    """Prove a closed proposition by evaluation."""
    target = meta.instantiate(target)
    if any(isinstance(node, FVar) for node in nodes(target)):
        raise LeanError(f"expected type must not contain free variables\n  {show(target)}")
    truth = meta.reducer.truth(target)
    if truth is None:
        raise LeanError(f"failed to synthesize\n  Decidable ({show(target)})")
    if not truth:
        raise LeanError(f"tactic 'decide' proved that the proposition\n  {show(target)}\nis false")
    return Decide(target)


def ground(meta: Meta, prop: Term) -> bool | None:
    if any(isinstance(node, FVar) for node in nodes(prop)):
        return None
    return meta.reducer.truth(prop)


# ---- contradiction


def refute(meta: Meta, proof: Term, kind: Term) -> Term | None:
    """Return a proof of False from a hypothesis that is visibly impossible, or None."""
    kind = meta.shallow(kind)
    if kind == FALSE:
        return proof
    inner = call("Not", kind, 1)
    if inner is not None and (reflexive := reflexivity(meta, inner[0])) is not None:
        return App(proof, reflexive)
    distinct = call("Ne", kind, 3)
    if distinct is not None and meta.unify(distinct[1], distinct[2]):
        return App(proof, apply(Const("Eq.refl"), distinct[0], distinct[1]))
    equal = call("Eq", kind, 3)
    if equal is not None and ground(meta, kind) is False:
        return App(Decide(not_(kind)), proof)
    return None


def reflexivity(meta: Meta, target: Term) -> Term | None:
    """Prove a = a, a ↔ a, n ≤ n (up to computation) or True."""
    target = meta.shallow(target)
    if target == TRUE:
        return Const("True.intro")
    if (args := call("Eq", target, 3)) is not None and meta.unify(args[1], args[2]):
        return apply(Const("Eq.refl"), args[0], args[1])
    if (args := call("Iff", target, 2)) is not None and meta.unify(args[0], args[1]):
        return App(Const("Iff.refl"), args[0])
    if (args := call("Nat.le", target, 2)) is not None and meta.unify(args[0], args[1]):
        return App(Const("Nat.le_refl"), args[0])
    return None


def contradiction(meta: Meta, context: Context) -> Term | None:
    """Return a proof of False from the hypotheses: h : False, h and ¬h, a ≠ a, 1 = 2."""
    facts = [(FVar(local.fvar), meta.instantiate(meta.locals[local.fvar])) for local in context]
    for proof, kind in facts:
        if (found := refute(meta, proof, kind)) is not None:
            return found
    for proof, kind in facts:
        inner = call("Not", meta.shallow(kind), 1)
        distinct = call("Ne", meta.shallow(kind), 3)
        denied = inner[0] if inner else apply(Const("Eq"), *distinct) if distinct else None
        if denied is None:
            continue
        for other, other_kind in facts:
            if meta.unify(other_kind, denied):
                return App(proof, other)
    return None


# ---- A complete procedure for classical propositional logic, which builds a term


MAX_ATOMS = 8
Value = tuple[bool, Term]  # truth, with a proof of the proposition or of its negation


class Tautology:
    """A complete procedure for classical propositional logic: case split on atoms, then evaluate with proofs."""

    def __init__(self, meta: Meta, context: Context, burn: Callable[[], None]) -> None:
        self.meta = meta
        self.burn = burn
        self.facts: list[tuple[Term, Term]] = []
        for local in context:
            kind = meta.instantiate(meta.locals[local.fvar])
            if meta.is_prop(kind):
                self.facts.append((FVar(local.fvar), kind))
        self.known: dict[Term, Value] = {}
        for proof, kind in self.facts:
            inner = call("Not", kind, 1)
            if inner is not None and self._is_atom(inner[0]):
                self.known[inner[0]] = (False, proof)
            elif self._is_atom(kind):
                self.known[kind] = (True, proof)

    def _parts(self, prop: Term) -> list[Term] | None:
        """Return the propositions that a connective joins; None for an atom."""
        if (
            (sides := implication(prop)) is not None
            and self.meta.is_prop(sides[0])
            and self.meta.is_prop(sides[1])
        ):
            return list(sides)
        head, args = spine(prop)
        if isinstance(head, Const) and (head.name, len(args)) in {
            ("And", 2), ("Or", 2), ("Iff", 2), ("Not", 1), ("True", 0), ("False", 0),
        }:  # fmt: skip
            return args
        if (args := call("Ne", prop, 3) or []) and args:
            return [apply(Const("Eq"), *args)]
        return None

    def _is_atom(self, prop: Term) -> bool:
        return self._parts(prop) is None

    def _atoms(self, prop: Term, found: dict[Term, None]) -> None:
        parts = self._parts(prop)
        if parts is None:
            if prop not in self.known and ground(self.meta, prop) is None:
                found[prop] = None
        else:
            for part in parts:
                self._atoms(part, found)

    def prove(self, target: Term) -> Term | None:
        """Return a proof of the target from the facts, or None when it does not follow."""
        atoms: dict[Term, None] = {}
        for prop in (target, *(kind for _, kind in self.facts)):
            self._atoms(prop, atoms)
        if len(atoms) > MAX_ATOMS:
            raise outside(f"tauto with more than {MAX_ATOMS} atoms")
        return self._split(list(atoms), target)

    def _split(self, atoms: Sequence[Term], target: Term) -> Term | None:
        self.burn()
        proof = self._evaluated(target)
        if proof is not None or not atoms:
            return proof
        atom, rest = atoms[0], atoms[1:]
        branches: list[Term] = []
        for truth, kind in ((True, atom), (False, not_(atom))):
            local = self.meta.local(kind)
            self.known[atom] = (truth, local)
            proof = self._split(rest, target)
            del self.known[atom]
            if proof is None:
                return None
            branches.append(Lam("h", kind, abstract(proof, local.id)))
        middle = App(Const("Classical.em"), atom)
        return apply(Const("Or.elim"), atom, not_(atom), target, middle, *branches)

    def _evaluated(self, target: Term) -> Term | None:
        """Return a proof where what is known already decides: the target holds, or a fact does not."""
        value = self._value(target)
        if value is not None and value[0]:
            return value[1]
        for fact, kind in self.facts:
            value = self._value(kind)
            if value is not None and not value[0]:
                return apply(Const("False.elim"), target, App(value[1], fact))
        return None

    def _value(self, prop: Term) -> Value | None:
        """Return a proposition's truth with a proof of it or of its negation; None while it is open."""
        if prop in self.known:
            return self.known[prop]
        parts = self._parts(prop)
        if parts is None:
            truth = ground(self.meta, prop)
            return None if truth is None else (truth, Decide(prop if truth else not_(prop)))
        values = [self._value(part) for part in parts]
        head, _ = spine(prop)
        name = head.name if isinstance(head, Const) else "→"
        if len(parts) == 2:
            return self._binary(name, prop, parts, values)
        if name == "True":
            return True, Const("True.intro")
        if name == "False":
            return False, fun(self.meta, FALSE, lambda h: h)
        # ¬a, a ≠ b
        if values[0] is None:
            return None
        inner, proof = values[0]
        return (False, fun(self.meta, prop, lambda h: App(h, proof))) if inner else (True, proof)

    def _binary(
        self, name: str, prop: Term, parts: Sequence[Term], values: Sequence[Value | None]
    ) -> Value | None:
        left, right = parts
        (a, pa), (b, pb) = (value or (None, FALSE) for value in values)
        meta = self.meta
        match name, a, b:
            case "And", True, True:
                return True, apply(Const("And.intro"), left, right, pa, pb)
            case ("And", False, _) | ("And", _, False):
                side, no = ("And.left", pa) if a is False else ("And.right", pb)
                return False, fun(meta, prop, lambda h: App(no, apply(Const(side), left, right, h)))
            case ("Or", True, _) | ("Or", _, True):
                return True, apply(Const("Or.inl" if a else "Or.inr"), left, right, pa if a else pb)
            case "Or", False, False:
                return False, fun(
                    meta, prop, lambda h: apply(Const("Or.elim"), left, right, FALSE, h, pa, pb)
                )
            case "Iff", True, True:
                return True, apply(Const("iff_of_true"), left, right, pa, pb)
            case "Iff", False, False:
                return True, apply(Const("iff_of_false"), left, right, pa, pb)
            case "Iff", bool(), bool():
                way, yes, no = ("Iff.mp", pa, pb) if a else ("Iff.mpr", pb, pa)
                return False, fun(meta, prop, lambda h: App(no, apply(Const(way), left, right, h, yes)))
            case "→", _, True:
                return True, fun(meta, left, lambda _h: pb)
            case "→", False, _:
                return True, fun(meta, left, lambda h: apply(Const("False.elim"), right, App(pa, h)))
            case "→", True, False:
                return False, fun(meta, prop, lambda h: App(pb, App(h, pa)))
            case _:
                return None


# ---- The simplifier of propositions: rules and connectives, with a proof of every step


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
        hollow = replace_subterms(prop, lambda node: local if node == rule.left else None)
        motive = Lam("x", rule.equation, abstract(apply(Const("Iff"), prop, hollow), local.id))
        result = replace_subterms(hollow, lambda node: rule.right if node == local else None)
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
