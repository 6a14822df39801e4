"""What functions, matches and `have` mean: the terms that bind names by patterns."""

from __future__ import annotations

from functools import partial

from pipeline.lean.simulator.automation import refute
from pipeline.lean.simulator.elaboration import Elaborator
from pipeline.lean.simulator.meta import LeanError, outside
from pipeline.lean.simulator.patterns import Row, match
from pipeline.lean.simulator.registry import term_rule
from pipeline.lean.simulator.scope import extend
from pipeline.lean.simulator.syntax import Stx
from pipeline.lean.simulator.terms import ANY_LEVEL, Const, MVar, Pi, Sort, Term, apply, instantiate


@term_rule("fun")
def term_fun(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    flat = [(name, binder.type) for binder in stx.binders for name in binder.names]
    return abstraction(elab, flat, stx.args[0], expected)


def abstraction(
    elab: Elaborator, names: list[tuple[Stx, Stx | None]], body: Stx, expected: Term | None
) -> Term:

    if not names:
        return elab.term(body, expected)
    (name, kind_stx), rest = names[0], names[1:]
    pi = None if expected is None else elab.meta.whnf(expected)
    if isinstance(pi, Pi):
        if pi.info == "implicit":
            local = elab.meta.local(pi.type)
            outer, elab.context = elab.context, extend(elab.context, local.id, pi.name.rstrip("✝") + "✝")
            inner = abstraction(elab, names, body, instantiate(pi.body, local))
            elab.context = outer
            return elab.meta.bind(local, pi.name, inner, explicit=False)
        if kind_stx is not None and not elab.meta.unify(elab.type(kind_stx), pi.type):
            raise LeanError(
                f"the binder's type is not\n  {elab.show(pi.type)}", (kind_stx.start, kind_stx.end)
            )
        kind = pi.type
    elif pi is not None and not isinstance(pi, MVar):
        shown = elab.show(pi)
        raise LeanError(f"type mismatch: a function where\n  {shown}\nis expected", (name.start, body.end))
    else:
        kind = elab.hole(Sort(ANY_LEVEL)) if kind_stx is None else elab.type(kind_stx)
    outer = elab.context
    local = elab.with_local(name.text if name.kind == "ident" else "x✝", kind)
    target = instantiate(pi.body, local) if isinstance(pi, Pi) else None
    if name.kind in ("ident", "hole"):
        inner = abstraction(elab, rest, body, target)
    else:
        wanted = elab.wanted(target)
        row = Row((name,), lambda: abstraction(elab, rest, body, wanted))
        inner = match(elab, [(local, kind, True)], [row], wanted)
    elab.context = outer
    return elab.meta.bind(local, name.text if name.kind == "ident" else "x", inner)


@term_rule("fun_match")
def term_fun_match(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:

    pi = None if expected is None else elab.meta.whnf(expected)
    if not isinstance(pi, Pi):
        raise outside("`fun | …` where no function type is expected")
    outer = elab.context
    local = elab.with_local("x✝", pi.type)
    target = instantiate(pi.body, local)
    rows = [Row((alt.args[0],), partial(elab.term, alt.args[1], target)) for alt in stx.args]
    inner = match(elab, [(local, pi.type, True)], rows, target)
    elab.context = outer
    return elab.meta.bind(local, "x", inner)


@term_rule("match")
def term_match(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:

    value = elab.term(stx.args[0], None)
    target = elab.wanted(expected)
    rows = [Row((alt.args[0],), partial(elab.term, alt.args[1], target)) for alt in stx.args[1:]]
    return match(elab, [(value, elab.meta.infer(value), False)], rows, target)


@term_rule("nomatch")
def term_nomatch(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:

    value = elab.term(stx.args[0], None)
    proof = refute(elab.meta, value, elab.meta.infer(value))
    if proof is None:
        raise LeanError("missing cases: the term is not visibly impossible")
    return apply(Const("False.elim"), elab.wanted(expected), proof)


@term_rule("have")
def term_have(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:

    head, kind_stx, value_stx, body = stx.args
    if value_stx.kind == "missing":
        raise LeanError("expected ':='", (value_stx.start, value_stx.end))
    kind = None if kind_stx.kind == "hole" else elab.type(kind_stx)
    value = elab.term(value_stx, kind)
    target = elab.wanted(expected)
    row = Row((head,), lambda: elab.term(body, target))
    return match(elab, [(value, elab.meta.infer(value) if kind is None else kind, False)], [row], target)
