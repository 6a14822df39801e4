"""What the searching tactics share: evaluation, reflexivity, contradictions. Each builds a term; none decides truth."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.lean.simulator.meta import Context, LeanError, Meta
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
    call,
    has_loose,
    instantiate,
    nodes,
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
