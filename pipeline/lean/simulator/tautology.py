"""A complete procedure for classical propositional logic, which builds a term."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipeline.lean.simulator.automation import FALSE, fun, ground, implication, not_
from pipeline.lean.simulator.meta import Context, Meta, outside
from pipeline.lean.simulator.terms import App, Const, Decide, FVar, Lam, Term, abstract, apply, call, spine

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
