"""The tactic language's core: running blocks, control, introduction and application.

Each tactic only fills its goal with a term. Taking hypotheses apart is in `tactics_cases.py`, rewriting and
automation in `tactics_auto.py`; `tactics.py` puts them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from pipeline.lean.simulator.automation import reflexivity
from pipeline.lean.simulator.elaborator import Elaborator
from pipeline.lean.simulator.kernel import KernelError
from pipeline.lean.simulator.meta import Context, Hole, LeanError, Local, Meta, outside
from pipeline.lean.simulator.patterns import Row, match
from pipeline.lean.simulator.printer import Printer, goal_text
from pipeline.lean.simulator.scope import Session, extend, without
from pipeline.lean.simulator.syntax import Stx
from pipeline.lean.simulator.terms import (
    App,
    Const,
    FVar,
    MVar,
    Pi,
    Term,
    apply,
    fvars,
    instantiate,
    nodes,
    spine,
)

Goals = list[MVar]


class CoreTactics:
    """Runs tactics; methods named `t_<tactic>` take the first goal and return what replaces it."""

    def __init__(self, meta: Meta, session: Session) -> None:
        self.meta = meta
        self.session = session

    # ---- what tactics share

    def hole(self, goal: MVar) -> Hole:
        return self.meta.holes[goal.id]

    def target(self, goal: MVar) -> Term:
        return self.meta.instantiate(self.hole(goal).type)

    def elaborator(self, goal: MVar) -> Elaborator:
        return Elaborator(self.meta, self.session, self.hole(goal).context)

    def show(self, goal: MVar, term: Term) -> str:
        return Printer(self.meta, self.hole(goal).context).show(term)

    def show_goal(self, goal: MVar) -> str:
        hole = self.hole(goal)
        return goal_text(self.meta, hole.type, hole.context, hole.tag)

    def fail(self, tactic: str, why: str, goal: MVar) -> LeanError:
        return LeanError(f"tactic '{tactic}' failed, {why}\n{self.show_goal(goal)}")

    def fresh(self, goal: MVar, kind: Term, context: Context | None = None, tag: str | None = None) -> MVar:
        """Make a goal in the place of another one."""
        hole = self.hole(goal)
        return self.meta.hole(
            kind,
            hole.context if context is None else context,
            tag=hole.tag if tag is None else tag,
            is_goal=True,
        )

    def close(self, goal: MVar, term: Term) -> Goals:
        self.meta.assign(goal, term)
        return []

    # ---- control

    def block(self, stx: Stx, goals: Goals) -> Goals:
        for tactic in stx.args:
            goals = self.step(tactic, goals)
        return goals

    def step(self, stx: Stx, goals: Goals) -> Goals:
        """Run one tactic; its errors say where it stands."""
        self.session.burn()
        try:
            return self._dispatch(stx, goals)
        except LeanError as error:
            if error.span is None:
                raise LeanError(error.message, (stx.start, stx.end)) from None
            raise
        except KernelError as error:
            raise LeanError(f"simulator: {error}", (stx.start, stx.end)) from error

    def _dispatch(self, stx: Stx, goals: Goals) -> Goals:
        if stx.kind == "block":
            return self.block(stx, goals)
        if stx.kind == "group":
            return self.step(stx.args[0], goals)
        control: Callable[[Stx, Goals], Goals] | None = getattr(self, f"c_{stx.text.split(' ')[0]}", None)
        if stx.kind == "tactic" and control is not None:
            return control(stx, goals)
        if not goals:
            raise LeanError("no goals to be solved")
        first, rest = goals[0], goals[1:]
        if stx.kind == "focus":
            return self._focus(stx, first) + rest
        if stx.kind == "then_all":
            made = self.step(stx.args[0], [first])
            return [new for goal in made for new in self.step(stx.args[1], [goal])] + rest
        method: Callable[[Stx, MVar], Goals] | None = getattr(self, f"t_{stx.text}", None)
        if method is None:
            raise outside(f"the tactic `{stx.text}`")
        return method(stx, first) + rest

    def _focus(self, stx: Stx, goal: MVar) -> Goals:
        left = self.step(stx.args[0], [goal])
        if left:
            raise LeanError("unsolved goals\n" + "\n\n".join(map(self.show_goal, left)))
        return []

    def c_skip(self, _stx: Stx, goals: Goals) -> Goals:
        return goals

    def c_done(self, _stx: Stx, goals: Goals) -> Goals:
        if goals:
            raise LeanError("unsolved goals\n" + "\n\n".join(map(self.show_goal, goals)))
        return goals

    def _or_back(self, run: Callable[[], Goals]) -> Goals | None:
        try:
            with self.meta.attempt():
                return run()
        except (LeanError, KernelError):
            return None

    def c_try(self, stx: Stx, goals: Goals) -> Goals:
        made = self._or_back(lambda: self.step(stx.args[0], goals))
        return goals if made is None else made

    def c_first(self, stx: Stx, goals: Goals) -> Goals:
        for choice in stx.args[:-1]:
            made = self._or_back(partial(self.step, choice, goals))
            if made is not None:
                return made
        return self.step(stx.args[-1], goals)

    def c_repeat(self, stx: Stx, goals: Goals) -> Goals:
        if not goals:
            return goals
        made = self._or_back(lambda: self.step(stx.args[0], goals[:1]))
        if made is None or made == goals[:1]:
            return goals
        return [new for goal in made for new in self.c_repeat(stx, [goal])] + goals[1:]

    def c_all_goals(self, stx: Stx, goals: Goals) -> Goals:
        return [new for goal in goals for new in self.step(stx.args[0], [goal])]

    def c_any_goals(self, stx: Stx, goals: Goals) -> Goals:
        made: Goals = []
        worked = False
        for goal in goals:
            new = self._or_back(partial(self.step, stx.args[0], [goal]))
            worked = worked or new is not None
            made += [goal] if new is None else new
        if not worked:
            raise LeanError("failed on all goals")
        return made

    def c_case(self, stx: Stx, goals: Goals) -> Goals:
        tag = stx.text.removeprefix("case ")
        for index, goal in enumerate(goals):
            own = self.hole(goal).tag
            if tag == "_" or own == tag or own.endswith(f".{tag}"):
                block, *names = stx.args
                renamed = self._rename(goal, names)
                if left := self.step(block, [renamed]):
                    raise LeanError("unsolved goals\n" + "\n\n".join(map(self.show_goal, left)))
                return goals[:index] + goals[index + 1 :]
        raise LeanError(f"tag not found: {tag}")

    def t_focus(self, stx: Stx, goal: MVar) -> Goals:
        return self.step(stx.args[0], [goal])

    def t_solve(self, stx: Stx, goal: MVar) -> Goals:
        return self._focus(stx, goal)

    # ---- introduction

    def t_intro(self, stx: Stx, goal: MVar) -> Goals:
        for pattern in stx.args or (Stx("hole", stx.start, stx.end),):
            goal = self._intro(pattern, goal, exact_name=bool(stx.args))
        return [goal]

    t_rintro = t_intro

    def _intro(self, pattern: Stx, goal: MVar, *, exact_name: bool) -> MVar:
        pi = self.meta.whnf(self.target(goal))
        if not isinstance(pi, Pi):
            raise self.fail("introN", "insufficient number of binders", goal)
        name = pattern.text if pattern.kind == "ident" else f"{pi.name.rstrip('✝')}✝"
        local, inner = self._introduce(goal, pi, name)
        if pattern.kind in ("ident", "hole") and exact_name | (pattern.kind == "hole"):
            return inner
        (result,) = self._take_apart(inner, FVar(local), [pattern])
        return result

    def _introduce(self, goal: MVar, pi: Pi, name: str) -> tuple[int, MVar]:
        local = self.meta.local(pi.type)
        context = extend(self.hole(goal).context, local.id, name)
        inner = self.fresh(goal, instantiate(pi.body, local), context)
        self.meta.assign(goal, self.meta.bind(local, pi.name.rstrip("✝") or "a", inner))
        return local.id, inner

    def t_intros(self, stx: Stx, goal: MVar) -> Goals:
        if stx.args:
            return self.t_intro(stx, goal)
        while isinstance(pi := self.meta.shallow(self.target(goal)), Pi):
            base = pi.name.rstrip("✝")
            _, goal = self._introduce(goal, pi, f"{base}✝")
        return [goal]

    def t_revert(self, stx: Stx, goal: MVar) -> Goals:
        for name in reversed(stx.args):
            goal = self._revert(goal, self._hypothesis(goal, name))
        return [goal]

    def _revert(self, goal: MVar, fvar: int) -> MVar:
        context = self.hole(goal).context
        later = [
            local for local in context if fvar in fvars(self.meta.instantiate(self.meta.locals[local.fvar]))
        ]
        for local in reversed(later):
            goal = self._revert(goal, local.fvar)
        name = next(local.name for local in context if local.fvar == fvar)
        kind = self.meta.instantiate(self.meta.bind(FVar(fvar), name, self.target(goal), pi=True))
        context = tuple(local for local in self.hole(goal).context if local.fvar != fvar)
        inner = self.fresh(goal, kind, context)
        self.meta.assign(goal, App(inner, FVar(fvar)))
        return inner

    def t_clear(self, stx: Stx, goal: MVar) -> Goals:
        for name in stx.args:
            fvar = self._hypothesis(goal, name)
            context = without(self.meta, self.hole(goal).context, fvar)
            if len(context) == len(self.hole(goal).context) or fvar in fvars(self.target(goal)):
                raise self.fail("clear", f"'{name.text}' is still used", goal)
            inner = self.fresh(goal, self.target(goal), context)
            self.meta.assign(goal, inner)
            goal = inner
        return [goal]

    def t_rename_i(self, stx: Stx, goal: MVar) -> Goals:
        return [self._rename(goal, stx.args)]

    def _rename(self, goal: MVar, names: Sequence[Stx]) -> MVar:
        """Name the last inaccessible hypotheses, in order."""
        if not names:
            return goal
        context = list(self.hole(goal).context)
        hidden = [index for index, local in enumerate(context) if local.name.endswith("✝")]
        if len(hidden) < len(names):
            raise LeanError("too many variable names provided")
        for index, name in zip(hidden[len(hidden) - len(names) :], names, strict=True):
            if name.kind == "ident":
                context[index] = Local(context[index].fvar, name.text)
        inner = self.fresh(goal, self.target(goal), tuple(context))
        self.meta.assign(goal, inner)
        return inner

    def _hypothesis(self, goal: MVar, stx: Stx) -> int:
        for local in reversed(self.hole(goal).context):
            if stx.kind == "ident" and local.name == stx.text:
                return local.fvar
        raise LeanError(f"unknown identifier '{stx.text}'", (stx.start, stx.end))

    def _take_apart(self, goal: MVar, value: Term, patterns: Sequence[Stx]) -> Goals:
        return self._rows(
            goal, value, [(pattern, None) for pattern in patterns], fresh=isinstance(value, FVar)
        )

    def _rows(self, goal: MVar, value: Term, rows: Sequence[tuple[Stx, Stx | None]], *, fresh: bool) -> Goals:
        elab = self.elaborator(goal)
        target = self.target(goal)
        made: Goals = []

        def body(block: Stx | None) -> Term:
            inner = self.fresh(goal, target, elab.context)
            if block is None:
                made.append(inner)
            elif left := self.block(block, [inner]):
                raise LeanError(
                    "unsolved goals\n" + "\n\n".join(map(self.show_goal, left)), (block.start, block.end)
                )
            return inner

        kind = self.meta.instantiate(self.meta.infer(value))
        table = [Row((pattern,), partial(body, block)) for pattern, block in rows]
        self.meta.assign(goal, match(elab, [(value, kind, fresh)], table, target))
        return made

    # ---- application

    def t_exact(self, stx: Stx, goal: MVar) -> Goals:
        return self._refine(stx.args[0], goal, "exact")

    def t_refine(self, stx: Stx, goal: MVar) -> Goals:
        return self._refine(stx.args[0], goal, "refine")

    def _refine(self, stx: Stx, goal: MVar, tactic: str) -> Goals:
        elab = self.elaborator(goal)
        term = elab.finished(elab.term(stx, self.target(goal)), span=(stx.start, stx.end))
        goals = self._unfilled(elab.goals)
        if tactic == "exact" and goals:
            raise LeanError(
                "don't know how to synthesize placeholder: `exact` leaves no goals", (stx.start, stx.end)
            )
        self.meta.assign(goal, term)
        return goals

    def _unfilled(self, goals: Sequence[MVar]) -> Goals:
        return [goal for goal in goals if goal.id not in self.meta.values]

    def t_apply(self, stx: Stx, goal: MVar) -> Goals:
        elab = self.elaborator(goal)
        term = elab.term(stx.args[0], None)
        return self.apply_term(elab, term, goal)

    def apply_term(self, elab: Elaborator, term: Term, goal: MVar) -> Goals:
        """Fill the goal with `term` applied to as many new goals as it takes."""
        target = self.target(goal)
        own = elab.meta.instantiate(term)
        loose = [node for node in nodes(own) if isinstance(node, MVar) and node not in elab.goals]
        kind = self.meta.infer(own)
        total = self._arity(kind)
        for count in range(max(0, total - self._arity(target)), total + 1):
            made = self._apply_with(own, kind, count, goal)
            if made is not None:
                result, slots = made
                break
        else:
            raise LeanError(
                f"tactic 'apply' failed, could not unify the conclusion of\n  {self.show(goal, kind)}\n"
                f"with the goal\n  {self.show(goal, target)}\n{self.show_goal(goal)}"
            )
        elab.run_blocks()
        self.meta.assign(goal, self.meta.instantiate(result))
        candidates = [hole for hole in dict.fromkeys([*loose, *slots]) if hole.id not in self.meta.values]
        return self._as_goals(goal, candidates, single=len(loose) + len(slots) == 1) + self._unfilled(
            elab.goals
        )

    def _arity(self, kind: Term) -> int:
        count = 0
        kind = self.meta.whnf(kind)
        while isinstance(kind, Pi):
            kind = self.meta.whnf(instantiate(kind.body, self.meta.local(kind.type)))
            count += 1
        return count

    def _apply_with(self, term: Term, kind: Term, count: int, goal: MVar) -> tuple[Term, list[MVar]] | None:
        context = self.hole(goal).context
        slots: list[MVar] = []
        for _ in range(count):
            pi = self.meta.whnf(kind)
            assert isinstance(pi, Pi)
            slot = self.meta.hole(pi.type, context, tag=pi.name.rstrip("✝"))
            slots.append(slot)
            term, kind = App(term, slot), instantiate(pi.body, slot)
        return (term, slots) if self.meta.unify(kind, self.target(goal)) else None

    def _as_goals(self, goal: MVar, holes: Sequence[MVar], *, single: bool) -> Goals:
        """Turn holes into goals: first those that no other one depends on."""
        parent = self.hole(goal).tag
        kinds = {hole: self.meta.instantiate(self.hole(hole).type) for hole in holes}
        used = {node for kind in kinds.values() for node in nodes(kind) if isinstance(node, MVar)}
        ordered = [hole for hole in holes if hole not in used] + [hole for hole in holes if hole in used]
        for hole in ordered:
            tag = parent if single else ".".join(part for part in (parent, self.hole(hole).tag) if part)
            self.meta.holes[hole.id] = Hole(kinds[hole], self.hole(hole).context, tag, is_goal=True)
        return ordered

    # ---- one-liners

    def t_sorry(self, stx: Stx, goal: MVar) -> Goals:
        self.session.sorry_spans.append((stx.start, stx.end))
        return self.close(goal, self.elaborator(goal).sorry(self.target(goal)))

    def t_assumption(self, _stx: Stx, goal: MVar) -> Goals:
        target = self.target(goal)
        for local in reversed(self.hole(goal).context):
            if self.meta.unify(self.meta.locals[local.fvar], target):
                return self.close(goal, FVar(local.fvar))
        raise self.fail("assumption", "no hypothesis has the goal's type", goal)

    def t_exfalso(self, _stx: Stx, goal: MVar) -> Goals:
        inner = self.fresh(goal, Const("False"))
        self.meta.assign(goal, apply(Const("False.elim"), self.target(goal), inner))
        return [inner]

    def t_rfl(self, _stx: Stx, goal: MVar) -> Goals:
        proof = reflexivity(self.meta, self.target(goal)) if self._is_relation(goal) else None
        if proof is None:
            raise self.fail(
                "rfl", "the goal is no reflexive relation whose sides are equal by definition", goal
            )
        return self.close(goal, proof)

    def _is_relation(self, goal: MVar) -> bool:
        head, _ = spine(self.meta.shallow(self.target(goal)))
        return head in (Const("Eq"), Const("Iff"), Const("Nat.le"))

    def t_symm(self, _stx: Stx, goal: MVar) -> Goals:
        target = self.meta.shallow(self.target(goal))
        head, args = spine(target)
        if head not in (Const("Eq"), Const("Iff"), Const("Ne")):
            raise self.fail("symm", "the goal is no equation, equivalence or inequality", goal)
        flipped = apply(head, *args[:-2], args[-1], args[-2])
        inner = self.fresh(goal, flipped)
        assert isinstance(head, Const)
        self.meta.assign(goal, apply(Const(f"{head.name}.symm"), *args[:-2], args[-1], args[-2], inner))
        return [inner]

    def t_show(self, stx: Stx, goal: MVar) -> Goals:
        elab = self.elaborator(goal)
        kind = elab.finished(elab.type(stx.args[0]), allow_holes=True)
        if not self.meta.unify(kind, self.target(goal)):
            raise LeanError(
                f"tactic 'show' failed, pattern\n  {self.show(goal, kind)}\nis not definitionally equal to target\n"
                f"  {self.show(goal, self.target(goal))}"
            )
        inner = self.fresh(goal, self.meta.instantiate(kind))
        self.meta.assign(goal, inner)
        return self._refine(stx.args[1], inner, "exact") if len(stx.args) > 1 else [inner]

    t_change = t_show

    def t_exists(self, stx: Stx, goal: MVar) -> Goals:
        rest = Stx("synthetic", stx.end, stx.end)
        pair = Stx("anonymous", stx.start, stx.end, "", (stx.args[0], rest))
        goals = self._refine(pair, goal, "refine")
        return self.c_try(Stx("tactic", stx.start, stx.end, "try", (Stx("tactic", 0, 0, "trivial"),)), goals)

    def t_unfold(self, stx: Stx, goal: MVar) -> Goals:
        from pipeline.lean.simulator.kernel import beta
        from pipeline.lean.simulator.terms import replace

        target = self.target(goal)
        for stx_name in stx.args:
            name = next(
                (c for c in self.session.scope.candidates(stx_name.text) if self.meta.env.get(c) is not None),
                "",
            )
            constant = self.meta.env.get(name)
            if constant is None or constant.value is None or not constant.unfolds:
                raise self.fail("unfold", f"'{stx_name.text}' is no definition that unfolds", goal)
            value = constant.value

            def leaf(node: Term, name: str = name, value: Term = value) -> Term | None:
                head, args = spine(node)
                if head != Const(name):
                    return None
                return beta(apply(value, *(replace(arg, leaf) for arg in args)))

            target = replace(target, leaf)
        inner = self.fresh(goal, target)
        self.meta.assign(goal, inner)
        return [inner]
