"""From syntax to terms: names, implicit arguments, expected types. Builds terms, never judges them.

Tactic blocks inside a term are run last, when the types around them are known, as in Lean. What a kind of syntax
means is said by its rule, in `term_rules.py` and `match_rules.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.lean.simulator.meta import Context, LeanError, Meta, outside
from pipeline.lean.simulator.printer import Printer, goal_text
from pipeline.lean.simulator.registry import TERMS, run_block
from pipeline.lean.simulator.scope import Session, extend, split_name
from pipeline.lean.simulator.syntax import Binder, Stx
from pipeline.lean.simulator.terms import (
    ANY_LEVEL,
    PROP,
    App,
    Const,
    FVar,
    MVar,
    Pi,
    Sorry,
    Sort,
    Term,
    has_mvar,
    instantiate,
    nodes,
    spine,
)

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
        self.blocks: list[tuple[MVar, Stx, Context]] = []

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

        while self.blocks:
            hole, block, context = self.blocks.pop(0)
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

    def term(self, stx: Stx, expected: Term | None) -> Term:
        """Elaborate; with an expected type the result has it, or an error says why not."""
        self.session.burn()
        rule = TERMS.get(stx.kind)
        if rule is None:
            raise outside(f"the term `{stx.kind}`", (stx.start, stx.end))
        try:
            result = rule(self, stx, expected)
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

    def wanted(self, expected: Term | None) -> Term:
        return self.hole(Sort(ANY_LEVEL)) if expected is None else expected

    def sorry(self, kind: Term) -> Term:
        if not self.session.holes_for_sorry:
            return Sorry(kind)
        goal = self.meta.hole(kind, self.context, is_goal=True)
        self.session.sorries.append(goal)
        return goal

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

    def resolve(self, stx: Stx) -> tuple[Term, list[str]]:
        """Find what a dotted name means: the longest part of it that is something, and the fields after it."""
        parts = split_name(stx.text)
        for local in reversed(self.context):
            if local.name == parts[0]:
                return FVar(local.fvar), parts[1:]
        for count in range(len(parts), 0, -1):
            name = ".".join(parts[:count])
            for candidate in self.session.scope.candidates(name):
                if self._visible(name, candidate):
                    return Const(candidate), parts[count:]
        raise LeanError(f"unknown identifier '{stx.text}'", (stx.start, stx.end))

    def _visible(self, name: str, candidate: str) -> bool:
        """Say whether a name may stand for a constant; of Lean's own, `open` shortens only those of `Classical`."""
        constant, written = self.meta.env.get(candidate), name.removeprefix("_root_.")
        if constant is None or candidate == written:
            return constant is not None
        if constant.protected:
            return "." in written
        return not constant.module.startswith("Init.") or candidate.startswith("Classical.")

    def with_fields(
        self, term: Term, fields: Sequence[str], args: Sequence[Stx], expected: Term | None
    ) -> Term:
        for index, name in enumerate(fields):
            last = index == len(fields) - 1
            if not isinstance(term, FVar):
                term = self.application(term, (), None)
            term = self.field(term, name, args if last else (), expected if last else None)
        return term if fields else self.application(term, args, expected)

    def field(self, value: Term, name: str, args: Sequence[Stx], expected: Term | None) -> Term:

        kind: Term | None = self.meta.shallow(self.meta.infer(value))
        while kind is not None:
            head, _ = spine(kind)
            if isinstance(head, Const):
                full = _PROJECTIONS.get((head.name, name), f"{head.name}.{name}")
                if self.meta.env.get(full) is not None:
                    return self.application(Const(full), args, expected, receiver=(head.name, value))
            kind = self.meta.reducer.unfold_head(kind)
        shown = self.show(self.meta.infer(value))
        raise LeanError(f"invalid field '{name}', the environment does not contain it for\n  {shown}")

    def application(
        self,
        fn: Term,
        args: Sequence[Stx],
        expected: Term | None,
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
