"""From syntax to terms: names, implicit arguments, expected types. Builds terms, never judges them.

Tactic blocks inside a term are run last, when the types around them are known, as in Lean. The methods named
`_<kind of syntax>` all take the syntax and the expected type.
"""

# ruff: noqa: ARG002 - they all take both, whether they need them or not

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pipeline.lean.simulator.meta import Context, LeanError, Meta, outside
from pipeline.lean.simulator.printer import Printer, goal_text
from pipeline.lean.simulator.scope import Session, extend, split_name
from pipeline.lean.simulator.syntax import Binder, Stx
from pipeline.lean.simulator.terms import (
    ANY_LEVEL,
    NAT,
    PROP,
    TYPE,
    App,
    Bind,
    Const,
    FVar,
    Lit,
    MVar,
    Pi,
    Sorry,
    Sort,
    Term,
    Text,
    apply,
    has_mvar,
    instantiate,
    nodes,
    spine,
)

_OPERATORS = {
    "∧": "And", "∨": "Or", "↔": "Iff", "+": "Nat.add", "-": "Nat.sub", "*": "Nat.mul", "/": "Nat.div",
    "%": "Nat.mod", "^": "Nat.pow", "<": "Nat.lt", "≤": "Nat.le", ">": "Nat.gt", "≥": "Nat.ge",
}  # fmt: skip
STRUCTURES = {"And": "And.intro", "Iff": "Iff.intro", "Exists": "Exists.intro", "True": "True.intro"}
_PROJECTIONS = {
    ("And", "1"): "And.left", ("And", "2"): "And.right", ("Iff", "1"): "Iff.mp", ("Iff", "2"): "Iff.mpr",
}  # fmt: skip
_POSTPONED = frozenset(
    {"fun", "fun_match", "anonymous", "dotted", "by", "match", "hole", "synthetic", "sorry"}
)


class Elaborator:
    """Elaborates terms in one context."""

    def __init__(
        self, meta: Meta, session: Session | None = None, context: Context = (), *, sorts: bool = False
    ) -> None:
        self.meta = meta
        self.session = session or Session()
        self.context = context
        self.sorts = sorts
        self.goals: list[MVar] = []  # the `?_` of what was elaborated
        self._blocks: list[tuple[MVar, Stx, Context]] = []

    # ---- entry points

    def type(self, stx: Stx) -> Term:
        """Elaborate something that must be a type."""
        term = self.term(stx, None)
        sort = self.meta.whnf(self.meta.infer(term))
        if isinstance(sort, MVar):
            self.meta.unify(sort, PROP)
        elif not isinstance(sort, Sort):
            shown = self.show(term)
            raise LeanError(f"type expected, got\n  ({shown} : {self.show(sort)})", (stx.start, stx.end))
        return term

    def finished(self, term: Term, *, allow_holes: bool = False, span: tuple[int, int] | None = None) -> Term:
        """Run the tactic blocks that are waiting, then require that nothing was left open."""
        self.run_blocks()
        term = self.meta.instantiate(term)
        if not allow_holes:
            goals = {goal.id for goal in self.goals}
            for node in nodes(term):
                if isinstance(node, MVar) and node.id not in goals and node not in self.session.sorries:
                    hole = self.meta.holes[node.id]
                    raise LeanError(
                        "don't know how to synthesize placeholder\ncontext:\n"
                        + goal_text(self.meta, hole.type, hole.context),
                        span,
                    )
        return term

    def run_blocks(self) -> None:
        from pipeline.lean.simulator.tactics import run_block  # the two call each other

        while self._blocks:
            hole, block, context = self._blocks.pop(0)
            kind = self.meta.instantiate(self.meta.infer(hole))
            inner = self.meta.hole(kind, context, is_goal=True)
            run_block(self.meta, self.session, inner, block)
            self.meta.assign(hole, inner)

    def show(self, term: Term) -> str:
        return Printer(self.meta, self.context).show(term)

    def hole(self, kind: Term, tag: str = "") -> MVar:
        return self.meta.hole(kind, self.context, tag=tag)

    def with_local(self, name: str, kind: Term) -> FVar:
        """Bring a hypothesis into scope; the caller restores `context`."""
        local = self.meta.local(kind)
        self.context = extend(self.context, local.id, name)
        return local

    # ---- terms

    def term(self, stx: Stx, expected: Term | None) -> Term:
        """Elaborate; with an expected type the result has it, or an error says why not."""
        self.session.burn()
        method = getattr(self, f"_{stx.kind}", None)
        if method is None:
            raise outside(f"the term `{stx.kind}`", (stx.start, stx.end))
        try:
            result: Term = method(stx, expected)
        except LeanError as error:
            if error.span is None:
                raise LeanError(error.message, (stx.start, stx.end)) from None
            raise
        return result if expected is None else self.ensure(result, expected, stx)

    def ensure(self, term: Term, expected: Term, stx: Stx) -> Term:
        actual = self.meta.infer(term)
        if self.meta.unify(actual, expected):
            return term
        raise LeanError(
            f"type mismatch\n  {self.show(term)}\nhas type\n  {self.show(actual)} : {self._sort_text(actual)}\n"
            f"but is expected to have type\n  {self.show(expected)} : {self._sort_text(expected)}",
            (stx.start, stx.end),
        )

    def _sort_text(self, kind: Term) -> str:
        try:
            return self.show(self.meta.whnf(self.meta.infer(kind)))
        except LeanError:
            return "Sort _"

    def _prop(self, stx: Stx, expected: Term | None) -> Term:
        return PROP

    def _type(self, stx: Stx, expected: Term | None) -> Term:
        return TYPE

    def _sort(self, stx: Stx, expected: Term | None) -> Term:
        if not self.sorts:
            raise outside("Sort", (stx.start, stx.end))
        return Sort(ANY_LEVEL)

    def _number(self, stx: Stx, expected: Term | None) -> Term:
        if expected is not None and self.meta.shallow(self.meta.infer(expected)) == PROP:
            raise LeanError(
                "numerals are data in Lean, but the expected type is a proposition\n"
                f"  {self.show(expected)} : Prop"
            )
        if len(stx.text) > 4000:
            raise outside("a numeral of more than 4000 digits")
        return Lit(int(stx.text))

    def _string(self, stx: Stx, expected: Term | None) -> Term:
        return Text(stx.text)

    def _hole(self, stx: Stx, expected: Term | None) -> Term:
        return self.hole(self._wanted(expected))

    def _wanted(self, expected: Term | None) -> Term:
        return self.hole(Sort(ANY_LEVEL)) if expected is None else expected

    def _synthetic(self, stx: Stx, expected: Term | None) -> Term:
        goal = self.meta.hole(self._wanted(expected), self.context, tag=stx.text, is_goal=True)
        self.goals.append(goal)
        return goal

    def _sorry(self, stx: Stx, expected: Term | None) -> Term:
        self.session.sorry_spans.append((stx.start, stx.end))
        return self.sorry(self._wanted(expected))

    def sorry(self, kind: Term) -> Term:
        if not self.session.holes_for_sorry:
            return Sorry(kind)
        goal = self.meta.hole(kind, self.context, is_goal=True)
        self.session.sorries.append(goal)
        return goal

    def _assumed(self, stx: Stx, expected: Term | None) -> Term:
        kind = self.type(stx.args[0])
        for local in reversed(self.context):
            if self.meta.unify(self.meta.locals[local.fvar], kind):
                return FVar(local.fvar)
        raise LeanError(f"no hypothesis of type\n  {self.show(kind)}")

    def _ascription(self, stx: Stx, expected: Term | None) -> Term:
        return self.term(stx.args[0], self.type(stx.args[1]))

    def _show(self, stx: Stx, expected: Term | None) -> Term:
        kind = self.type(stx.args[0])
        if expected is not None:
            self.meta.unify(kind, expected)
        return self.term(stx.args[1], kind)

    def _by(self, stx: Stx, expected: Term | None) -> Term:
        hole = self.hole(self._wanted(expected))
        self._blocks.append((hole, stx.args[0], self.context))
        return hole

    def _have(self, stx: Stx, expected: Term | None) -> Term:
        from pipeline.lean.simulator.patterns import Row, match

        head, kind_stx, value_stx, body = stx.args
        if value_stx.kind == "missing":
            raise LeanError("expected ':='", (value_stx.start, value_stx.end))
        kind = None if kind_stx.kind == "hole" else self.type(kind_stx)
        value = self.term(value_stx, kind)
        target = self._wanted(expected)
        row = Row((head,), lambda: self.term(body, target))
        return match(self, [(value, self.meta.infer(value) if kind is None else kind, False)], [row], target)

    def _not(self, stx: Stx, expected: Term | None) -> Term:
        return App(Const("Not"), self.term(stx.args[0], PROP))

    def _op(self, stx: Stx, expected: Term | None) -> Term:
        left, right = stx.args
        if stx.text in ("=", "≠"):
            a = self.term(left, None)
            b = self.term(right, self.meta.infer(a))
            return apply(Const("Eq" if stx.text == "=" else "Ne"), self.meta.infer(a), a, b)
        if stx.text == "▸":
            return self._substitute(stx, expected)
        kind = PROP if stx.text in "∧∨↔" else NAT
        return apply(Const(_OPERATORS[stx.text]), self.term(left, kind), self.term(right, kind))

    def _substitute(self, stx: Stx, expected: Term | None) -> Term:
        from pipeline.lean.simulator.rewriting import rewrite_goal

        if expected is None:
            raise outside("`▸` where no type is expected")
        proof = self.term(stx.args[0], None)
        for backwards in (True, False):
            try:
                wanted, build = rewrite_goal(
                    self, proof, self.meta.instantiate(expected), backwards=backwards
                )
            except LeanError:
                continue
            return build(self.term(stx.args[1], wanted))
        raise LeanError("invalid `▸` notation, failed to compute motive for the substitution")

    def _arrow(self, stx: Stx, expected: Term | None) -> Term:
        domain = self.type(stx.args[0])
        local = self.meta.local(domain)
        return self.meta.instantiate(Bind(True, local.id, "a✝", domain, self.type(stx.args[1])))

    def _forall(self, stx: Stx, expected: Term | None) -> Term:
        outer = self.context
        bound = self.bind(stx.binders)
        body = self.type(stx.args[0])
        self.context = outer
        return self.close(bound, body, pi=True)

    def _exists(self, stx: Stx, expected: Term | None) -> Term:
        outer = self.context
        bound = self.bind(stx.binders)
        body = self.type(stx.args[0])
        self.context = outer
        for name, local, _info in reversed(bound):
            kind = self.meta.locals[local.id]
            body = apply(Const("Exists"), kind, self.meta.bind(local, name, body))
        return body

    def bind(self, binders: Sequence[Binder]) -> list[tuple[str, FVar, bool]]:
        """Bring binders into scope and return (name, hypothesis, explicit) for `close`."""
        bound: list[tuple[str, FVar, bool]] = []
        for binder in binders:
            for name_stx in binder.names:
                kind = self.hole(Sort(ANY_LEVEL)) if binder.type is None else self.type(binder.type)
                name = "x✝" if name_stx.kind == "hole" else name_stx.text
                bound.append((name, self.with_local(name, kind), binder.info == "explicit"))
        return bound

    def close(self, bound: Sequence[tuple[str, FVar, bool]], body: Term, *, pi: bool) -> Term:
        for name, local, explicit in reversed(bound):
            body = self.meta.bind(local, name, body, pi=pi, explicit=explicit)
        return body

    def _fun(self, stx: Stx, expected: Term | None) -> Term:
        flat = [(name, binder.type) for binder in stx.binders for name in binder.names]
        return self._lambda(flat, stx.args[0], expected)

    def _lambda(self, names: list[tuple[Stx, Stx | None]], body: Stx, expected: Term | None) -> Term:
        from pipeline.lean.simulator.patterns import Row, match

        if not names:
            return self.term(body, expected)
        (name, kind_stx), rest = names[0], names[1:]
        pi = None if expected is None else self.meta.whnf(expected)
        if isinstance(pi, Pi):
            if pi.info == "implicit":
                local = self.meta.local(pi.type)
                outer, self.context = self.context, extend(self.context, local.id, pi.name.rstrip("✝") + "✝")
                inner = self._lambda(names, body, instantiate(pi.body, local))
                self.context = outer
                return self.meta.bind(local, pi.name, inner, explicit=False)
            if kind_stx is not None and not self.meta.unify(self.type(kind_stx), pi.type):
                raise LeanError(
                    f"the binder's type is not\n  {self.show(pi.type)}", (kind_stx.start, kind_stx.end)
                )
            kind = pi.type
        elif pi is not None and not isinstance(pi, MVar):
            shown = self.show(pi)
            raise LeanError(
                f"type mismatch: a function where\n  {shown}\nis expected", (name.start, body.end)
            )
        else:
            kind = self.hole(Sort(ANY_LEVEL)) if kind_stx is None else self.type(kind_stx)
        outer = self.context
        local = self.with_local(name.text if name.kind == "ident" else "x✝", kind)
        target = instantiate(pi.body, local) if isinstance(pi, Pi) else None
        if name.kind in ("ident", "hole"):
            inner = self._lambda(rest, body, target)
        else:
            wanted = self._wanted(target)
            row = Row((name,), lambda: self._lambda(rest, body, wanted))
            inner = match(self, [(local, kind, True)], [row], wanted)
        self.context = outer
        return self.meta.bind(local, name.text if name.kind == "ident" else "x", inner)

    def _fun_match(self, stx: Stx, expected: Term | None) -> Term:
        from pipeline.lean.simulator.patterns import Row, match

        pi = None if expected is None else self.meta.whnf(expected)
        if not isinstance(pi, Pi):
            raise outside("`fun | …` where no function type is expected")
        outer = self.context
        local = self.with_local("x✝", pi.type)
        target = instantiate(pi.body, local)
        rows = [Row((alt.args[0],), partial(self.term, alt.args[1], target)) for alt in stx.args]
        inner = match(self, [(local, pi.type, True)], rows, target)
        self.context = outer
        return self.meta.bind(local, "x", inner)

    def _match(self, stx: Stx, expected: Term | None) -> Term:
        from pipeline.lean.simulator.patterns import Row, match

        value = self.term(stx.args[0], None)
        target = self._wanted(expected)
        rows = [Row((alt.args[0],), partial(self.term, alt.args[1], target)) for alt in stx.args[1:]]
        return match(self, [(value, self.meta.infer(value), False)], rows, target)

    def _nomatch(self, stx: Stx, expected: Term | None) -> Term:
        from pipeline.lean.simulator.automation import refute

        value = self.term(stx.args[0], None)
        proof = refute(self.meta, value, self.meta.infer(value))
        if proof is None:
            raise LeanError("missing cases: the term is not visibly impossible")
        return apply(Const("False.elim"), self._wanted(expected), proof)

    def _anonymous(self, stx: Stx, expected: Term | None) -> Term:
        kind = None if expected is None else self.meta.shallow(expected)
        head = spine(kind)[0] if kind is not None else None
        if kind is None or isinstance(head, MVar):
            raise LeanError("invalid constructor ⟨...⟩, expected type must be known")
        name = STRUCTURES.get(head.name) if isinstance(head, Const) else None
        if name is None:
            raise LeanError(
                "invalid constructor ⟨...⟩, expected type must be an inductive type with only one constructor \n  "
                + self.show(kind)
            )
        args = stx.args
        arity = 0 if name == "True.intro" else 2
        if len(args) > arity > 0:
            rest = Stx("anonymous", args[1].start, stx.end, "", args[1:])
            args = (args[0], rest)
        if len(args) != arity:
            raise LeanError(f"invalid constructor ⟨...⟩, it takes {arity} arguments, {len(args)} are given")
        return self.application(Const(name), args, kind, stx)

    # ---- names and applications

    def _ident(self, stx: Stx, expected: Term | None) -> Term:
        return self._app(Stx("app", stx.start, stx.end, "", (stx,)), expected)

    _projection = _ident
    _dotted = _ident
    _explicit = _ident

    def _app(self, stx: Stx, expected: Term | None) -> Term:
        head, *args = stx.args
        if head.kind == "explicit":
            fn, fields = self._resolve(head.args[0])
            if fields:
                raise outside("`@` with a field", (head.start, head.end))
            return self.application(fn, args, expected, stx, explicit=True)
        if head.kind == "dotted":
            kind = None if expected is None else self.meta.shallow(expected)
            root = spine(kind)[0] if kind is not None else None
            if not isinstance(root, Const) or self.meta.env.get(f"{root.name}.{head.text}") is None:
                raise LeanError(
                    f"invalid dotted identifier notation, expected type is not known for .{head.text}"
                )
            return self.application(Const(f"{root.name}.{head.text}"), args, expected, stx)
        if head.kind == "projection":
            value = self.term(head.args[0], None)
            return self._with_fields(value, [head.text], args, expected, stx)
        if head.kind == "ident":
            fn, fields = self._resolve(head)
            return self._with_fields(fn, fields, args, expected, stx)
        return self.application(self.term(head, None), args, expected, stx)

    def _resolve(self, stx: Stx) -> tuple[Term, list[str]]:
        """Find what a dotted name means: the longest part of it that is something, and the fields after it."""
        parts = split_name(stx.text)
        for local in reversed(self.context):
            if local.name == parts[0]:
                return FVar(local.fvar), parts[1:]
        for count in range(len(parts), 0, -1):
            name = ".".join(parts[:count])
            for candidate in self.session.scope.candidates(name):
                if self.meta.env.get(candidate) is not None and self._visible(name, candidate):
                    return Const(candidate), parts[count:]
        raise LeanError(f"unknown identifier '{stx.text}'", (stx.start, stx.end))

    def _visible(self, name: str, candidate: str) -> bool:
        """Lean's own lemmas about Nat are protected: `open Nat` does not shorten their names."""
        constant = self.meta.env.get(candidate)
        built_in = constant is not None and constant.module.startswith("Init.")
        return not (built_in and candidate != name and not candidate.startswith("Classical."))

    def _with_fields(
        self, term: Term, fields: Sequence[str], args: Sequence[Stx], expected: Term | None, stx: Stx
    ) -> Term:
        for index, name in enumerate(fields):
            last = index == len(fields) - 1
            if not isinstance(term, FVar):
                term = self.application(term, (), None, stx)
            term = self._field(term, name, args if last else (), expected if last else None, stx)
        return term if fields else self.application(term, args, expected, stx)

    def _field(self, value: Term, name: str, args: Sequence[Stx], expected: Term | None, stx: Stx) -> Term:
        from pipeline.lean.simulator.kernel import unfold_head

        kind: Term | None = self.meta.shallow(self.meta.infer(value))
        while kind is not None:
            head, _ = spine(kind)
            if isinstance(head, Const):
                full = _PROJECTIONS.get((head.name, name), f"{head.name}.{name}")
                if self.meta.env.get(full) is not None:
                    return self.application(Const(full), args, expected, stx, receiver=(head.name, value))
            kind = unfold_head(self.meta.env, kind)
        shown = self.show(self.meta.infer(value))
        raise LeanError(f"invalid field '{name}', the environment does not contain it for\n  {shown}")

    def application(
        self,
        fn: Term,
        args: Sequence[Stx],
        expected: Term | None,
        stx: Stx,
        *,
        explicit: bool = False,
        receiver: tuple[str, Term] | None = None,
    ) -> Term:
        """Apply a function: implicit arguments become holes, the result type is used before the arguments."""
        term, kind = fn, self.meta.instantiate(self.meta.infer(fn))
        waiting = [arg for arg in args if arg.kind != "named"]
        named = {arg.text: arg.args[0] for arg in args if arg.kind == "named"}
        slots: list[tuple[MVar, Stx]] = []
        while True:
            pi = (
                kind
                if isinstance(kind, Pi)
                else self.meta.whnf(kind)
                if waiting or receiver
                else self.meta.shallow(kind)
            )
            if not isinstance(pi, Pi):
                if waiting or receiver:
                    raise LeanError(
                        f"function expected\n  {self.show(term)}\nis applied to too many arguments"
                    )
                break
            slot: Term
            if pi.name in named:
                hole = self.hole(pi.type)
                slots.append((hole, named.pop(pi.name)))
                slot = hole
            elif pi.info == "implicit" and not explicit:
                slot = self.hole(pi.type, pi.name)
            elif receiver is not None and self._is_receiver(pi.type, receiver[0]):
                slot, receiver = receiver[1], None
                if not self.meta.unify(self.meta.infer(slot), pi.type):
                    raise LeanError(f"the term before the dot does not fit\n  {self.show(pi.type)}")
            elif waiting:
                hole = self.hole(pi.type)
                slots.append((hole, waiting.pop(0)))
                slot = hole
            else:
                break
            term, kind = App(term, slot), instantiate(pi.body, slot)
        if named:
            raise LeanError(f"invalid argument name '{next(iter(named))}'")
        if expected is not None:
            self.meta.unify(kind, expected)  # only to learn from; the caller compares in earnest
        self._fill_slots(slots)
        return self.meta.instantiate(term)

    def _is_receiver(self, kind: Term, name: str) -> bool:
        head, _ = spine(self.meta.shallow(kind))
        return head == Const(name)

    def _fill_slots(self, slots: list[tuple[MVar, Stx]]) -> None:
        later: list[tuple[MVar, Stx]] = []
        for hole, stx in slots:
            kind = self.meta.instantiate(self.meta.holes[hole.id].type)
            if stx.kind in _POSTPONED and has_mvar(kind):
                later.append((hole, stx))
            else:
                self._fill_slot(hole, stx)
        for hole, stx in later:
            self._fill_slot(hole, stx)

    def _fill_slot(self, hole: MVar, stx: Stx) -> None:
        kind = self.meta.instantiate(self.meta.holes[hole.id].type)
        value = self.type(stx) if kind == Sort(ANY_LEVEL) else self.term(stx, kind)
        known = self.meta.instantiate(hole)
        if known == hole:
            if value != hole:
                self.meta.assign(hole, value)
        elif not self.meta.unify(known, value):
            raise LeanError(
                f"application type mismatch: the argument is\n  {self.show(value)}\nbut was found to be\n"
                f"  {self.show(known)}",
                (stx.start, stx.end),
            )
