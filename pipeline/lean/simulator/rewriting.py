"""Rewriting a goal by an equation or an equivalence."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.lean.simulator.elaboration import Elaborator
from pipeline.lean.simulator.meta import LeanError
from pipeline.lean.simulator.terms import (
    PROP,
    BVar,
    Const,
    Lam,
    MVar,
    Pi,
    Term,
    abstract,
    apply,
    call,
    instantiate,
    nodes,
    replace,
    spine,
)


def equation(elab: Elaborator, proof: Term) -> tuple[Term, Term, Term, Term]:
    """Return (proof of an equation, its type's members' type, left, right), with holes for its arguments."""
    kind = elab.meta.whnf_keeping(elab.meta.infer(proof))
    while isinstance(kind, Pi):
        hole = elab.hole(kind.type)
        proof, kind = apply(proof, hole), elab.meta.whnf_keeping(instantiate(kind.body, hole))
    if (args := call("Eq", kind, 3)) is not None:
        return proof, args[0], args[1], args[2]
    if (args := call("Iff", kind, 2)) is not None:
        return apply(Const("propext"), args[0], args[1], proof), PROP, args[0], args[1]
    raise LeanError(f"equality or iff proof expected\n  {elab.show(kind)}")


def rewrite_goal(
    elab: Elaborator, proof: Term, target: Term, *, backwards: bool
) -> tuple[Term, Callable[[Term], Term]]:
    """Return the rewritten target and how its proof becomes one of the old target."""
    meta = elab.meta
    proof, kind, left, right = equation(elab, proof)
    source, result = (right, left) if backwards else (left, right)
    if isinstance(meta.instantiate(source), MVar):
        raise LeanError("pattern is a metavariable")
    target = meta.instantiate(target)
    for node in nodes(target):
        if not any(isinstance(inner, BVar) for inner in nodes(node)) and _comparable(
            node, source, meta.unify
        ):
            break
    else:
        raise LeanError(
            "tactic 'rewrite' failed, did not find instance of the pattern in the target expression\n"
            f"  {elab.show(source)}"
        )
    found = meta.instantiate(node)
    local = meta.local(kind)
    hollow = replace(target, lambda node: local if node == found else None)
    motive = Lam("x", meta.instantiate(kind), abstract(hollow, local.id))
    rewritten = meta.instantiate(replace(hollow, lambda node: result if node == local else None))

    def build(new: Term) -> Term:
        a, b = meta.instantiate(left), meta.instantiate(right)
        back = proof if backwards else apply(Const("Eq.symm"), kind, a, b, proof)
        old, fresh = (b, a) if backwards else (a, b)
        return apply(Const("Eq.subst"), kind, motive, fresh, old, back, new)

    return rewritten, build


def _comparable(node: Term, source: Term, unify: Callable[[Term, Term], bool]) -> bool:
    """Instances are found by their head, as in Lean: 1 + 1 is no instance of the pattern 2."""
    (head, args), (wanted, wanted_args) = spine(node), spine(source)
    return head == wanted and len(args) == len(wanted_args) and unify(source, node)
