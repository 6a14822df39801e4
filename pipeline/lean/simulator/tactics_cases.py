"""Tactics that take hypotheses and goals apart: constructor, cases, rcases, have, by_cases, induction, subst."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pipeline.lean.simulator.automation import not_, refute
from pipeline.lean.simulator.meta import Context, LeanError, outside
from pipeline.lean.simulator.scope import extend, without
from pipeline.lean.simulator.syntax import Stx
from pipeline.lean.simulator.tactics_core import CoreTactics
from pipeline.lean.simulator.terms import (
    NAT,
    App,
    Const,
    FVar,
    Lam,
    Lit,
    MVar,
    Term,
    abstract,
    apply,
    call,
    fvars,
    spine,
)

Goals = list[MVar]
# constructors by type, in Lean's order
_CONSTRUCTORS = {
    "And": ("And.intro",), "Iff": ("Iff.intro",), "Or": ("Or.inl", "Or.inr"), "True": ("True.intro",), "False": (),
    "Exists": ("Exists.intro",), "Eq": ("Eq.refl",), "Nat.le": ("Nat.le_refl",), "Nat": ("Nat.zero",),
}  # fmt: skip


class CaseTactics(CoreTactics):
    """Tactics for goals and hypotheses with structure."""

    # ---- goals

    def t_constructor(self, _stx: Stx, goal: MVar) -> Goals:
        head, _ = spine(self.meta.shallow(self.target(goal)))
        names = _CONSTRUCTORS.get(head.name) if isinstance(head, Const) else None
        if names is None:
            raise self.fail("constructor", "target is not an inductive datatype", goal)
        for name in names:
            made = self._or_back(partial(self._apply_constant, goal, name))
            if made is not None:
                return made
        raise self.fail("constructor", "no applicable constructors found", goal)

    def _apply_constant(self, goal: MVar, name: str) -> Goals:
        return self.apply_term(self.elaborator(goal), Const(name), goal)

    def t_left(self, _stx: Stx, goal: MVar) -> Goals:
        return self._side(goal, "left", "Or.inl")

    def t_right(self, _stx: Stx, goal: MVar) -> Goals:
        return self._side(goal, "right", "Or.inr")

    def _side(self, goal: MVar, tactic: str, name: str) -> Goals:
        if call("Or", self.meta.shallow(self.target(goal)), 2) is None:
            raise self.fail(
                tactic, f"{tactic} tactic works for inductive types with exactly 2 constructors", goal
            )
        return self._apply_constant(goal, name)

    def t_and_intros(self, _stx: Stx, goal: MVar) -> Goals:
        if call("And", self.meta.shallow(self.target(goal)), 2) is None:
            return [goal]
        return [
            new for made in self._apply_constant(goal, "And.intro") for new in self.t_and_intros(_stx, made)
        ]

    # ---- hypotheses

    def t_have(self, stx: Stx, goal: MVar) -> Goals:
        head, kind_stx, value_stx = stx.args
        elab = self.elaborator(goal)
        kind = None if kind_stx.kind == "hole" else elab.finished(elab.type(kind_stx), span=_span(kind_stx))
        if value_stx.kind == "missing":
            raise LeanError("simulator: outside its logic: `have` without a value", _span(head))
        value = elab.finished(elab.term(value_stx, kind), span=_span(value_stx))
        kind = self.meta.instantiate(self.meta.infer(value)) if kind is None else kind
        side = self._unfilled(elab.goals)
        return side + self._bring(goal, head, value, kind)

    def _bring(self, goal: MVar, head: Stx, value: Term, kind: Term) -> Goals:
        """Add a hypothesis with a proof, taking it apart when the name is a pattern."""
        local = self.meta.local(kind)
        name = head.text if head.kind == "ident" else "this✝"
        inner = self.fresh(goal, self.target(goal), extend(self.hole(goal).context, local.id, name))
        self.meta.assign(goal, apply(self.meta.bind(local, name, inner), value))
        return [inner] if head.kind in ("ident", "hole") else self._take_apart(inner, local, [head])

    def t_suffices(self, stx: Stx, goal: MVar) -> Goals:
        name, kind_stx, *value_stx = stx.args
        elab = self.elaborator(goal)
        kind = elab.finished(elab.type(kind_stx), span=_span(kind_stx))
        local = self.meta.local(kind)
        inner = self.fresh(goal, self.target(goal), extend(self.hole(goal).context, local.id, name.text))
        needed = self.fresh(goal, kind)
        self.meta.assign(goal, apply(self.meta.bind(local, name.text, inner), needed))
        if value_stx:
            return [*self._refine(value_stx[0], inner, "exact"), needed]
        return [inner, needed]

    def t_specialize(self, stx: Stx, goal: MVar) -> Goals:
        (term_stx,) = stx.args
        head = term_stx.args[0] if term_stx.kind == "app" else term_stx
        fvar = self._hypothesis(goal, head)
        elab = self.elaborator(goal)
        value = elab.finished(elab.term(term_stx, None), span=_span(term_stx))
        kind = self.meta.instantiate(self.meta.infer(value))
        local = self.meta.local(kind)
        context = extend(without(self.meta, self.hole(goal).context, fvar), local.id, head.text)
        inner = self.fresh(goal, self.target(goal), context)
        self.meta.assign(goal, apply(self.meta.bind(local, head.text, inner), value))
        return [inner]

    def t_rcases(self, stx: Stx, goal: MVar) -> Goals:
        subject, pattern = stx.args
        elab = self.elaborator(goal)
        value = elab.finished(elab.term(subject, None), span=_span(subject))
        return self._take_apart(goal, value, [pattern])

    def t_match(self, stx: Stx, goal: MVar) -> Goals:
        subject, *alternatives = stx.args
        elab = self.elaborator(goal)
        value = elab.finished(elab.term(subject, None), span=_span(subject))
        return self._rows(goal, value, [(alt.args[0], alt.args[1]) for alt in alternatives], fresh=False)

    def t_cases(self, stx: Stx, goal: MVar) -> Goals:
        subject, *alternatives = stx.args
        elab = self.elaborator(goal)
        value = elab.finished(elab.term(subject, None), span=_span(subject))
        kind = self.meta.whnf(self.meta.infer(value))
        if isinstance(value, FVar) and kind == NAT:
            return self._natural(goal, value.id, alternatives, induction=False)
        refuted = refute(self.meta, value, kind)
        if refuted is not None:
            return self.close(goal, apply(Const("False.elim"), self.target(goal), refuted))
        if (sides := call("Eq", kind, 3)) is not None:
            return self._substitute(goal, value, sides)
        branches = self._branches(goal, value, kind)
        return self._run_branches(branches, alternatives)

    def t_induction(self, stx: Stx, goal: MVar) -> Goals:
        subject, *alternatives = stx.args
        fvar = self._hypothesis(goal, subject)
        if self.meta.instantiate(self.meta.locals[fvar]) != NAT:
            raise outside("induction on anything but a natural number")
        return self._natural(goal, fvar, alternatives, induction=True)

    def _branches(self, goal: MVar, value: Term, kind: Term) -> list[tuple[str, MVar, int]]:
        """Fill the goal by cases and return, for each, its constructor, new goal and number of new hypotheses."""
        head, args = spine(kind)
        target, context = self.target(goal), self.hole(goal).context
        if isinstance(value, FVar):
            context = without(self.meta, context, value.id)
        name = head.name if isinstance(head, Const) else ""
        if name in ("And", "Iff"):
            fields = ("left", "right") if name == "And" else ("mp", "mpr")
            parts = [apply(Const(f"{name}.{field}"), *args, value) for field in fields]
            kinds = [self.meta.instantiate(self.meta.infer(part)) for part in parts]
            body, inner = self._opened(goal, context, list(zip(fields, kinds, strict=True)), "intro")
            self.meta.assign(goal, apply(body, *parts))
            return [("intro", inner, 2)]
        if name == "Or":
            bodies = []
            branches: list[tuple[str, MVar, int]] = []
            for side, part in zip(("inl", "inr"), args, strict=True):
                body, inner = self._opened(goal, context, [("h", part)], side)
                bodies.append(body)
                branches.append((side, inner, 1))
            self.meta.assign(goal, apply(Const("Or.elim"), *args, target, value, *bodies))
            return branches
        if name == "Exists":
            witness = self.meta.local(args[0])
            fact = self.meta.local(self.meta.shallow(App(args[1], witness)))
            inner_context = extend(extend(context, witness.id, "w✝"), fact.id, "h✝")
            inner = self.fresh(goal, target, inner_context, self._tag(goal, "intro"))
            body = self.meta.bind(witness, "w", self.meta.bind(fact, "h", inner))
            self.meta.assign(goal, apply(Const("Exists.elim"), args[0], args[1], target, value, body))
            return [("intro", inner, 2)]
        if name == "True":
            inner = self.fresh(goal, target, context, self._tag(goal, "intro"))
            self.meta.assign(goal, inner)
            return [("intro", inner, 0)]
        raise self.fail(
            "cases", "major premise type is not an inductive type\n" + self.show(goal, kind), goal
        )

    def _tag(self, goal: MVar, name: str) -> str:
        return ".".join(part for part in (self.hole(goal).tag, name) if part)

    def _opened(
        self, goal: MVar, context: Context, hypotheses: Sequence[tuple[str, Term]], tag: str
    ) -> tuple[Term, MVar]:
        locals_ = []
        for name, kind in hypotheses:
            local = self.meta.local(kind)
            context = extend(context, local.id, f"{name}✝")
            locals_.append((local, name))
        inner = self.fresh(goal, self.target(goal), context, self._tag(goal, tag))
        body: Term = inner
        for local, name in reversed(locals_):
            body = self.meta.bind(local, name, body)
        return body, inner

    def _run_branches(self, branches: Sequence[tuple[str, MVar, int]], alternatives: Sequence[Stx]) -> Goals:
        if not alternatives:
            return [inner for _, inner, _ in branches]
        waiting = list(alternatives)
        for constructor, inner, count in branches:
            chosen = next((alt for alt in waiting if alt.text.rpartition(".")[2] == constructor), None)
            chosen = chosen or next((alt for alt in alternatives if alt.text == "_"), None)
            if chosen is None:
                raise LeanError(f"alternative '{constructor}' has not been provided")
            if chosen in waiting and chosen.text != "_":
                waiting.remove(chosen)
            block, *names = chosen.args
            if len(names) > count:
                raise LeanError(
                    f"too many variable names provided at alternative '{constructor}'", _span(chosen)
                )
            named = self._name_new(inner, names, count)
            if left := self.block(block, [named]):
                raise LeanError("unsolved goals\n" + "\n\n".join(map(self.show_goal, left)), _span(block))
        if extra := [alt for alt in waiting if alt.text != "_"]:
            raise LeanError(f"invalid alternative name '{extra[0].text}'", _span(extra[0]))
        return []

    def _name_new(self, goal: MVar, names: Sequence[Stx], count: int) -> MVar:
        """Name the newest hypotheses of a goal, `count` of which the case has brought."""
        context = self.hole(goal).context
        old, new = context[: len(context) - count], context[len(context) - count :]
        result = old
        for index, local in enumerate(new):
            named = index < len(names) and names[index].kind == "ident"
            result = extend(result, local.fvar, names[index].text if named else local.name)
        inner = self.fresh(goal, self.target(goal), result)
        self.meta.assign(goal, inner)
        return inner

    def _natural(self, goal: MVar, fvar: int, alternatives: Sequence[Stx], *, induction: bool) -> Goals:
        context = self.hole(goal).context
        for local in context:
            if fvar in fvars(self.meta.instantiate(self.meta.locals[local.fvar])):
                raise outside("induction on a number that a hypothesis mentions: `revert` it first")
        target = self.target(goal)
        base = tuple(local for local in context if local.fvar != fvar)
        name = next(local.name for local in context if local.fvar == fvar).rstrip("✝")
        motive = Lam(name, NAT, abstract(target, fvar))
        zero = self.fresh(goal, _at(motive, Lit(0)), base, self._tag(goal, "zero"))
        number = self.meta.local(NAT)
        smaller = self.meta.local(_at(motive, number))
        inner_context = extend(base, number.id, "n✝")
        if induction:
            inner_context = extend(inner_context, smaller.id, "a✝")
        successor = apply(Const("Nat.add"), number, Lit(1))
        step = self.fresh(goal, _at(motive, successor), inner_context, self._tag(goal, "succ"))
        body = self.meta.bind(number, "n", self.meta.bind(smaller, "ih", step))
        self.meta.assign(goal, apply(Const("Nat.rec"), motive, zero, body, FVar(fvar)))
        return self._run_branches([("zero", zero, 0), ("succ", step, 1 + induction)], alternatives)

    # ---- equations and case splits

    def t_subst(self, stx: Stx, goal: MVar) -> Goals:
        goals = [goal]
        for name in stx.args:
            fvar = FVar(self._hypothesis(goals[0], name))
            sides = call("Eq", self.meta.shallow(self.meta.infer(fvar)), 3)
            if sides is None:
                raise self.fail("subst", f"'{name.text}' is no equation", goals[0])
            goals = self._substitute(goals[0], fvar, sides)
        return goals

    def _substitute(self, goal: MVar, value: Term, sides: Sequence[Term]) -> Goals:
        """Replace a variable by what the equation says it is."""
        kind, left, right = sides
        # Lean removes the right side's variable when both are variables.
        if isinstance(right, FVar) and right.id not in fvars(left):
            variable, other, flip = right, left, True
        elif isinstance(left, FVar) and left.id not in fvars(right):
            variable, other, flip = left, right, False
        else:
            raise self.fail("subst", "neither side of the equation is a variable", goal)
        if isinstance(value, FVar):
            goal = self._cleared(goal, value.id)
        context = self.hole(goal).context
        dependents = [
            h for h in context if variable.id in fvars(self.meta.instantiate(self.meta.locals[h.fvar]))
        ]
        for local in reversed(dependents):
            goal = self._revert(goal, local.fvar)
        target = self.target(goal)
        motive = Lam("x", kind, abstract(target, variable.id))
        kept = tuple(local for local in self.hole(goal).context if local.fvar != variable.id)
        inner = self.fresh(goal, _at(motive, other), kept)
        equal = value if flip else apply(Const("Eq.symm"), kind, left, right, value)
        self.meta.assign(goal, apply(Const("Eq.subst"), kind, motive, other, variable, equal, inner))
        for local in dependents:
            inner = self._intro(Stx("ident", 0, 0, local.name), inner, exact_name=True)
        return [inner]

    def _cleared(self, goal: MVar, fvar: int) -> MVar:
        context = without(self.meta, self.hole(goal).context, fvar)
        inner = self.fresh(goal, self.target(goal), context)
        self.meta.assign(goal, inner)
        return inner

    def t_by_cases(self, stx: Stx, goal: MVar) -> Goals:
        name, prop_stx = stx.args
        elab = self.elaborator(goal)
        prop = elab.finished(elab.type(prop_stx), span=_span(prop_stx))
        target, context = self.target(goal), self.hole(goal).context
        bodies: list[Term] = []
        made: Goals = []
        for tag, kind in (("pos", prop), ("neg", not_(prop))):
            local = self.meta.local(kind)
            inner = self.fresh(goal, target, extend(context, local.id, name.text), self._tag(goal, tag))
            bodies.append(self.meta.bind(local, name.text, inner))
            made.append(inner)
        middle = App(Const("Classical.em"), prop)
        self.meta.assign(goal, apply(Const("Or.elim"), prop, not_(prop), target, middle, *bodies))
        return made

    def t_by_contra(self, stx: Stx, goal: MVar) -> Goals:
        target = self.target(goal)
        if not self.meta.is_prop(target):
            raise self.fail("by_contra", "the goal is no proposition", goal)
        name = stx.args[0].text if stx.args else "x✝"
        local = self.meta.local(not_(target))
        inner = self.fresh(goal, Const("False"), extend(self.hole(goal).context, local.id, name))
        self.meta.assign(
            goal, apply(Const("Classical.byContradiction"), target, self.meta.bind(local, name, inner))
        )
        return [inner]


def _at(motive: Lam, value: Term) -> Term:
    from pipeline.lean.simulator.terms import instantiate

    return instantiate(motive.body, value)


def _span(stx: Stx) -> tuple[int, int]:
    return stx.start, stx.end
