"""The meaning of each kind of term but functions and matches: constants, operators, quantifiers, `⟨…⟩`, `by`."""

from __future__ import annotations

from pipeline.lean.simulator.elaboration import Elaborator, Row, match, term_rule
from pipeline.lean.simulator.kernel import LeanError, extend, outside
from pipeline.lean.simulator.terms import (
    ANY_LEVEL,
    NAT,
    PROP,
    TYPE,
    App,
    Bind,
    Const,
    Lit,
    MVar,
    Pi,
    Sort,
    Stx,
    Term,
    Text,
    apply,
    instantiate,
    spine,
)

# ruff: noqa: ARG001 - they all take the same, whether they need it or not


_OPERATORS = {
    "∧": "And", "∨": "Or", "↔": "Iff", "+": "Nat.add", "-": "Nat.sub", "*": "Nat.mul", "/": "Nat.div",
    "%": "Nat.mod", "^": "Nat.pow", "<": "Nat.lt", "≤": "Nat.le", ">": "Nat.gt", "≥": "Nat.ge",
}  # fmt: skip
STRUCTURES = {"And": "And.intro", "Iff": "Iff.intro", "Exists": "Exists.intro", "True": "True.intro"}


@term_rule("prop")
def term_prop(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    return PROP


@term_rule("type")
def term_type(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    return TYPE


@term_rule("sort")
def term_sort(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    if not elab.sorts:
        raise outside("Sort", (stx.start, stx.end))
    return Sort(ANY_LEVEL)


@term_rule("number")
def term_number(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    if expected is not None and elab.meta.shallow(elab.meta.infer(expected)) == PROP:
        raise LeanError(
            "numerals are data in Lean, but the expected type is a proposition\n"
            f"  {elab.show(expected)} : Prop"
        )
    if len(stx.text) > 4000:
        raise outside("a numeral of more than 4000 digits")
    return Lit(int(stx.text))


@term_rule("string")
def term_string(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    return Text(stx.text)


@term_rule("hole")
def term_hole(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    return elab.hole(elab.wanted(expected))


@term_rule("synthetic")
def term_synthetic(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    goal = elab.meta.hole(elab.wanted(expected), elab.context, tag=stx.text, is_goal=True)
    elab.goals.append(goal)
    return goal


@term_rule("sorry")
def term_sorry(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    elab.session.sorry_spans.append((stx.start, stx.end))
    return elab.sorry(elab.wanted(expected))


@term_rule("ascription")
def term_ascription(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    return elab.term(stx.args[0], elab.type(stx.args[1]))


@term_rule("by")
def term_by(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    hole = elab.hole(elab.wanted(expected))
    elab.blocks.append((hole, stx.args[0], elab.context))
    return hole


@term_rule("not")
def term_not(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    return App(Const("Not"), elab.term(stx.args[0], PROP))


@term_rule("op")
def term_op(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    left, right = stx.args
    if stx.text in ("=", "≠"):
        a = elab.term(left, None)
        b = elab.term(right, elab.meta.infer(a))
        return apply(Const("Eq" if stx.text == "=" else "Ne"), elab.meta.infer(a), a, b)
    kind = PROP if stx.text in "∧∨↔" else NAT
    return apply(Const(_OPERATORS[stx.text]), elab.term(left, kind), elab.term(right, kind))


@term_rule("arrow")
def term_arrow(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    domain = elab.type(stx.args[0])
    local = elab.meta.local(domain)
    return elab.meta.instantiate(Bind(True, local.id, "a✝", domain, elab.type(stx.args[1])))


@term_rule("forall")
def term_forall(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    outer = elab.context
    bound = elab.bind(stx.binders)
    body = elab.type(stx.args[0])
    elab.context = outer
    return elab.close(bound, body, pi=True)


@term_rule("exists")
def term_exists(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    outer = elab.context
    bound = elab.bind(stx.binders)
    body = elab.type(stx.args[0])
    elab.context = outer
    for name, local, _info in reversed(bound):
        kind = elab.meta.locals[local.id]
        body = apply(Const("Exists"), kind, elab.meta.bind(local, name, body))
    return body


@term_rule("anonymous")
def term_anonymous(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    kind = None if expected is None else elab.meta.shallow(expected)
    head = spine(kind)[0] if kind is not None else None
    if kind is None or isinstance(head, MVar):
        raise LeanError("invalid constructor ⟨...⟩, expected type must be known")
    name = STRUCTURES.get(head.name) if isinstance(head, Const) else None
    if name is None:
        raise LeanError(
            "invalid constructor ⟨...⟩, expected type must be an inductive type with only one constructor \n  "
            + elab.show(kind)
        )
    args = stx.args
    arity = 0 if name == "True.intro" else 2
    if len(args) > arity > 0:
        rest = Stx("anonymous", args[1].start, stx.end, "", args[1:])
        args = (args[0], rest)
    if len(args) != arity:
        raise LeanError(f"invalid constructor ⟨...⟩, it takes {arity} arguments, {len(args)} are given")
    return elab.application(Const(name), args, kind)


@term_rule("ident", "projection", "dotted", "explicit")
def term_ident(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    return term_app(elab, Stx("app", stx.start, stx.end, "", (stx,)), expected)


@term_rule("app")
def term_app(elab: Elaborator, stx: Stx, expected: Term | None) -> Term:
    head, *args = stx.args
    if head.kind == "explicit":
        fn, fields = elab.resolve(head.args[0])
        if fields:
            raise outside("`@` with a field", (head.start, head.end))
        return elab.application(fn, args, expected, explicit=True)
    if head.kind == "dotted":
        kind = None if expected is None else elab.meta.shallow(expected)
        root = spine(kind)[0] if kind is not None else None
        if not isinstance(root, Const) or elab.meta.env.get(f"{root.name}.{head.text}") is None:
            raise LeanError(
                f"invalid dotted identifier notation, expected type is not known for .{head.text}"
            )
        return elab.application(Const(f"{root.name}.{head.text}"), args, expected)
    if head.kind == "projection":
        value = elab.term(head.args[0], None)
        return elab.with_fields(value, [head.text], args, expected)
    if head.kind == "ident":
        fn, fields = elab.resolve(head)
        return elab.with_fields(fn, fields, args, expected)
    return elab.application(elab.term(head, None), args, expected)


# ---- What functions, matches and `have` mean: the terms that bind names by patterns


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
