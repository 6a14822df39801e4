"""The runner of tactics: blocks, the choice of the rule, records of what ran, and what all tactics share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pipeline.lean.simulator.automation import reflexivity
from pipeline.lean.simulator.elaboration import Elaborator, Printer, Row, goal_text, match
from pipeline.lean.simulator.kernel import (
    Context,
    Hole,
    Invocation,
    KernelError,
    LeanError,
    Meta,
    Session,
    extend,
    outside,
    without,
)
from pipeline.lean.simulator.terms import (
    App,
    Const,
    FVar,
    MVar,
    Pi,
    Sorry,
    Stx,
    Term,
    apply,
    call,
    fvars,
    instantiate,
    nodes,
    spine,
)

# ---- tactics, registered by the modules that hold them


Goals = list[MVar]
TacticRule = Callable[["Runner", "Stx", MVar], Goals]
ControlRule = Callable[["Runner", "Stx", Goals], Goals]
TACTICS: dict[str, TacticRule] = {}  # by name; they work on the first goal
CONTROLS: dict[str, ControlRule] = {}  # by name; they see all goals


def tactic(*names: str) -> Callable[[TacticRule], TacticRule]:
    """Register a function as the tactic of these names."""

    def register(rule: TacticRule) -> TacticRule:
        TACTICS.update(dict.fromkeys(names, rule))
        return rule

    return register


def control(*names: str) -> Callable[[ControlRule], ControlRule]:
    """Register a function as a tactic that works on all goals."""

    def register(rule: ControlRule) -> ControlRule:
        CONTROLS.update(dict.fromkeys(names, rule))
        return rule

    return register


class Runner:
    """Runs tactics on goals. A rule takes the runner, the syntax and the first goal, and returns what replaces it."""

    def __init__(self, meta: Meta, session: Session) -> None:
        self.meta = meta
        self.session = session
        self._worked_on: set[int] = set()  # goals that recorded tactics inside the present one worked on

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

    def block(self, stx: Stx, goals: Goals) -> Goals:
        for part in stx.args:
            goals = self.step(part, goals)
        return self.unfilled(goals)

    def step(self, stx: Stx, goals: Goals) -> Goals:
        """Run one tactic; its errors give its position."""
        self.session.burn()
        try:
            goals = self.unfilled(goals)
            if self.session.invocations is not None and stx.kind == "tactic":
                return self._recorded(stx, goals, self.session.invocations)
            return self._dispatch(stx, goals)
        except LeanError as error:
            if error.span is None:
                raise LeanError(error.message, (stx.start, stx.end)) from None
            raise
        except KernelError as error:
            raise LeanError(f"simulator: {error}", (stx.start, stx.end)) from error

    def _recorded(self, stx: Stx, goals: Goals, records: list[Invocation]) -> Goals:
        """Run a tactic and record it, before the tactics inside it."""
        before = "\n".join(map(self.show_goal, goals))
        index = len(records)
        records.append(Invocation(stx.start, stx.end, before, "", ()))
        inner: set[int] = self._worked_on
        self._worked_on = set()
        try:
            made = self._dispatch(stx, goals)
        finally:
            nested, self._worked_on = self._worked_on, inner
        kept = set(made)
        used = [name for goal in goals if goal not in kept for name in self._constants_of(goal, nested)]
        self._worked_on |= nested | {goal.id for goal in goals}
        after = "\n".join(map(self.show_goal, made))
        records[index] = Invocation(stx.start, stx.end, before, after, tuple(dict.fromkeys(used)))
        return made

    def _constants_of(self, goal: MVar, nested: set[int]) -> Iterator[str]:
        """Yield the constants of what fills a goal, without what other recorded tactics put into it."""
        value = self.meta.values.get(goal.id)
        for node in nodes(value) if value is not None else ():
            if isinstance(node, Const):
                yield node.name
            elif isinstance(node, Sorry) or node in self.session.sorries:
                yield "sorryAx"
            elif isinstance(node, MVar) and node.id not in nested:
                yield from self._constants_of(node, nested)

    def _dispatch(self, stx: Stx, goals: Goals) -> Goals:
        if stx.kind == "block":
            return self.block(stx, goals)
        if stx.kind == "group":
            return self.step(stx.args[0], goals)
        control = CONTROLS.get(stx.text) if stx.kind == "tactic" else None
        if control is not None:
            return control(self, stx, goals)
        if not goals:
            raise LeanError("no goals to be solved")
        first, rest = goals[0], goals[1:]
        if stx.kind == "focus":
            return self.solved(stx, first) + rest
        if stx.kind == "then_all":
            made = self.step(stx.args[0], [first])
            return self.on_each(stx.args[1], made) + rest
        rule = TACTICS.get(stx.text)
        if rule is None:
            raise outside(f"the tactic `{stx.text}`")
        return rule(self, stx, first) + rest

    def attempt(self, run: Callable[[], Goals]) -> Goals | None:
        mark = self.session.mark()
        try:
            with self.meta.attempt():
                return run()
        except (LeanError, KernelError):
            self.session.rewind(mark)
            return None

    def hypothesis(self, goal: MVar, stx: Stx) -> int:
        for local in reversed(self.hole(goal).context):
            if stx.kind == "ident" and local.name == stx.text:
                return local.fvar
        raise LeanError(f"unknown identifier '{stx.text}'", (stx.start, stx.end))

    def on_each(self, stx: Stx, goals: Goals) -> Goals:
        """Run a tactic on every goal that the ones before it did not fill by the way."""
        return [new for goal in goals if goal.id not in self.meta.values for new in self.step(stx, [goal])]

    def unfilled(self, goals: Sequence[MVar]) -> Goals:
        return [goal for goal in goals if goal.id not in self.meta.values]

    def tag(self, goal: MVar, name: str) -> str:
        return ".".join(part for part in (self.hole(goal).tag, name) if part)

    def solved(self, stx: Stx, goal: MVar) -> Goals:
        left = self.step(stx.args[0], [goal])
        if left:
            raise LeanError("unsolved goals\n" + "\n\n".join(map(self.show_goal, left)))
        return []


# ---- Tactics that run other tactics, and those that choose or name goals


@control("skip")
def c_skip(_run: Runner, _stx: Stx, goals: Goals) -> Goals:
    return goals


@control("first")
def c_first(run: Runner, stx: Stx, goals: Goals) -> Goals:
    for choice in stx.args[:-1]:
        made = run.attempt(partial(run.step, choice, goals))
        if made is not None:
            return made
    return run.step(stx.args[-1], goals)


# ---- Tactics that move between the goal and its hypotheses
# Intro, revert, clear, and taking a hypothesis apart.


@tactic("intro", "rintro")
def t_intro(run: Runner, stx: Stx, goal: MVar) -> Goals:
    goals = [goal]
    for pattern in stx.args or (Stx("hole", stx.start, stx.end),):
        goals = [new for one in goals for new in intro(run, pattern, one)]
    return goals


def intro(run: Runner, pattern: Stx, goal: MVar) -> Goals:
    """Introduce one hypothesis; a pattern takes it apart, into no goal, one or more."""
    pi = run.meta.whnf(run.target(goal))
    if not isinstance(pi, Pi):
        raise run.fail("introN", "insufficient number of binders", goal)
    name = pattern.text if pattern.kind == "ident" else f"{pi.name.rstrip('✝')}✝"
    local, inner = introduce(run, goal, pi, name)
    if pattern.kind in ("ident", "hole"):
        return [inner]
    return take_apart(run, inner, FVar(local), [pattern])


def introduce(run: Runner, goal: MVar, pi: Pi, name: str) -> tuple[int, MVar]:
    local = run.meta.local(pi.type)
    context = extend(run.hole(goal).context, local.id, name)
    inner = run.fresh(goal, instantiate(pi.body, local), context)
    run.meta.assign(goal, run.meta.bind(local, name.rstrip("✝") or "a", inner))
    return local.id, inner


@tactic("revert")
def t_revert(run: Runner, stx: Stx, goal: MVar) -> Goals:
    for name in reversed(stx.args):
        goal = revert(run, goal, run.hypothesis(goal, name))
    return [goal]


def revert(run: Runner, goal: MVar, fvar: int) -> MVar:
    context = run.hole(goal).context
    later = [local for local in context if fvar in fvars(run.meta.instantiate(run.meta.locals[local.fvar]))]
    for local in reversed(later):
        goal = revert(run, goal, local.fvar)
    name = next(local.name for local in context if local.fvar == fvar)
    kind = run.meta.instantiate(run.meta.bind(FVar(fvar), name, run.target(goal), pi=True))
    context = tuple(local for local in run.hole(goal).context if local.fvar != fvar)
    inner = run.fresh(goal, kind, context)
    run.meta.assign(goal, App(inner, FVar(fvar)))
    return inner


@tactic("intros")
def t_intros(run: Runner, stx: Stx, goal: MVar) -> Goals:
    if stx.args:
        return t_intro(run, stx, goal)
    while isinstance(pi := run.meta.shallow(run.target(goal)), Pi):
        base = pi.name.rstrip("✝")
        _, goal = introduce(run, goal, pi, f"{base}✝")
    return [goal]


def cleared(run: Runner, goal: MVar, fvar: int) -> MVar:
    context = without(run.meta, run.hole(goal).context, fvar)
    inner = run.fresh(goal, run.target(goal), context)
    run.meta.assign(goal, inner)
    return inner


def take_apart(run: Runner, goal: MVar, value: Term, patterns: Sequence[Stx]) -> Goals:
    return match_rows(
        run, goal, value, [(pattern, None) for pattern in patterns], fresh=isinstance(value, FVar)
    )


def match_rows(
    run: Runner, goal: MVar, value: Term, rows: Sequence[tuple[Stx, Stx | None]], *, fresh: bool
) -> Goals:
    elab = run.elaborator(goal)
    target = run.target(goal)
    made: Goals = []

    def body(block: Stx | None) -> Term:
        inner = run.fresh(goal, target, elab.context)
        if block is None:
            made.append(inner)
        elif left := run.block(block, [inner]):
            raise LeanError(
                "unsolved goals\n" + "\n\n".join(map(run.show_goal, left)), (block.start, block.end)
            )
        return inner

    kind = run.meta.instantiate(run.meta.infer(value))
    table = [Row((pattern,), partial(body, block)) for pattern, block in rows]
    run.meta.assign(goal, match(elab, [(value, kind, fresh)], table, target))
    return made


# ---- Tactics that fill the goal with a term: exact, apply, the constructors, reflexivity, sorry


# constructors by type, in Lean's order
_CONSTRUCTORS = {
    "And": ("And.intro",), "Iff": ("Iff.intro",), "Or": ("Or.inl", "Or.inr"), "True": ("True.intro",), "False": (),
    "Exists": ("Exists.intro",), "Eq": ("Eq.refl",), "Nat.le": ("Nat.le_refl",), "Nat": ("Nat.zero",),
}  # fmt: skip


@tactic("exact")
def t_exact(run: Runner, stx: Stx, goal: MVar) -> Goals:
    return refine(run, stx.args[0], goal, "exact")


@tactic("refine")
def t_refine(run: Runner, stx: Stx, goal: MVar) -> Goals:
    return refine(run, stx.args[0], goal, "refine")


def refine(run: Runner, stx: Stx, goal: MVar, tactic: str) -> Goals:
    elab = run.elaborator(goal)
    term = elab.finished(elab.term(stx, run.target(goal)), span=(stx.start, stx.end))
    goals = run.unfilled(elab.goals)
    if tactic == "exact" and goals:
        raise LeanError(
            "don't know how to synthesize placeholder: `exact` leaves no goals", (stx.start, stx.end)
        )
    run.meta.assign(goal, term)
    return goals


@tactic("apply")
def t_apply(run: Runner, stx: Stx, goal: MVar) -> Goals:
    elab = run.elaborator(goal)
    term = elab.term(stx.args[0], None)
    return apply_term(run, elab, term, goal)


def apply_term(run: Runner, elab: Elaborator, term: Term, goal: MVar) -> Goals:
    """Fill the goal with `term` applied to as many new goals as it takes."""
    target = run.target(goal)
    own = elab.meta.instantiate(term)
    loose = [node for node in nodes(own) if isinstance(node, MVar) and node not in elab.goals]
    kind = run.meta.infer(own)
    total = arity(run, kind)
    for count in range(max(0, total - arity(run, target)), total + 1):
        made = apply_with(run, own, kind, count, goal)
        if made is not None:
            result, slots = made
            break
    else:
        raise LeanError(
            f"tactic 'apply' failed, could not unify the conclusion of\n  {run.show(goal, kind)}\n"
            f"with the goal\n  {run.show(goal, target)}\n{run.show_goal(goal)}"
        )
    elab.run_blocks()
    run.meta.assign(goal, run.meta.instantiate(result))
    candidates = [hole for hole in dict.fromkeys([*loose, *slots]) if hole.id not in run.meta.values]
    return as_goals(run, goal, candidates, single=len(loose) + len(slots) == 1) + run.unfilled(elab.goals)


def arity(run: Runner, kind: Term) -> int:
    count = 0
    kind = run.meta.whnf(kind)
    while isinstance(kind, Pi):
        kind = run.meta.whnf(instantiate(kind.body, run.meta.local(kind.type)))
        count += 1
    return count


def apply_with(run: Runner, term: Term, kind: Term, count: int, goal: MVar) -> tuple[Term, list[MVar]] | None:
    context = run.hole(goal).context
    slots: list[MVar] = []
    for _ in range(count):
        pi = run.meta.whnf(kind)
        assert isinstance(pi, Pi)
        slot = run.meta.hole(pi.type, context, tag=pi.name.rstrip("✝"))
        slots.append(slot)
        term, kind = App(term, slot), instantiate(pi.body, slot)
    return (term, slots) if run.meta.unify(kind, run.target(goal)) else None


def as_goals(run: Runner, goal: MVar, holes: Sequence[MVar], *, single: bool) -> Goals:
    """Turn holes into goals: first those that no other one depends on."""
    parent = run.hole(goal).tag
    kinds = {hole: run.meta.instantiate(run.hole(hole).type) for hole in holes}
    used = {node for kind in kinds.values() for node in nodes(kind) if isinstance(node, MVar)}
    ordered = [hole for hole in holes if hole not in used] + [hole for hole in holes if hole in used]
    for hole in ordered:
        tag = parent if single else ".".join(part for part in (parent, run.hole(hole).tag) if part)
        # Not `is_goal`: as in Lean, what closes one of them may fill another one by the way.
        run.meta.holes[hole.id] = Hole(kinds[hole], run.hole(hole).context, tag)
    return ordered


def apply_constant(run: Runner, goal: MVar, name: str) -> Goals:
    return apply_term(run, run.elaborator(goal), Const(name), goal)


@tactic("constructor")
def t_constructor(run: Runner, _stx: Stx, goal: MVar) -> Goals:
    head, _ = spine(run.meta.shallow(run.target(goal)))
    names = _CONSTRUCTORS.get(head.name) if isinstance(head, Const) else None
    if names is None:
        raise run.fail("constructor", "target is not an inductive datatype", goal)
    for name in names:
        made = run.attempt(partial(apply_constant, run, goal, name))
        if made is not None:
            return made
    raise run.fail("constructor", "no applicable constructors found", goal)


@tactic("left")
def t_left(run: Runner, _stx: Stx, goal: MVar) -> Goals:
    return choose_side(run, goal, "left", "Or.inl")


@tactic("right")
def t_right(run: Runner, _stx: Stx, goal: MVar) -> Goals:
    return choose_side(run, goal, "right", "Or.inr")


def choose_side(run: Runner, goal: MVar, tactic: str, name: str) -> Goals:
    if call("Or", run.meta.shallow(run.target(goal)), 2) is None:
        raise run.fail(tactic, f"{tactic} tactic works for inductive types with exactly 2 constructors", goal)
    return apply_constant(run, goal, name)


@tactic("assumption")
def t_assumption(run: Runner, _stx: Stx, goal: MVar) -> Goals:
    target = run.target(goal)
    for local in reversed(run.hole(goal).context):
        if run.meta.unify(run.meta.locals[local.fvar], target):
            return run.close(goal, FVar(local.fvar))
    raise run.fail("assumption", "no hypothesis has the goal's type", goal)


@tactic("exfalso")
def t_exfalso(run: Runner, _stx: Stx, goal: MVar) -> Goals:
    inner = run.fresh(goal, Const("False"))
    run.meta.assign(goal, apply(Const("False.elim"), run.target(goal), inner))
    return [inner]


@tactic("rfl")
def t_rfl(run: Runner, _stx: Stx, goal: MVar) -> Goals:
    proof = reflexivity(run.meta, run.target(goal)) if is_relation(run, goal) else None
    if proof is None:
        raise run.fail("rfl", "the goal is no reflexive relation whose sides are equal by definition", goal)
    return run.close(goal, proof)


def is_relation(run: Runner, goal: MVar) -> bool:
    head, _ = spine(run.meta.shallow(run.target(goal)))
    return head in (Const("Eq"), Const("Iff"), Const("Nat.le"))


@tactic("show", "change")
def t_show(run: Runner, stx: Stx, goal: MVar) -> Goals:
    elab = run.elaborator(goal)
    kind = elab.finished(elab.type(stx.args[0]), allow_holes=True)
    if not run.meta.unify(kind, run.target(goal)):
        raise LeanError(
            f"tactic 'show' failed, pattern\n  {run.show(goal, kind)}\nis not definitionally equal to target\n"
            f"  {run.show(goal, run.target(goal))}"
        )
    inner = run.fresh(goal, run.meta.instantiate(kind))
    run.meta.assign(goal, inner)
    return refine(run, stx.args[1], inner, "exact") if len(stx.args) > 1 else [inner]


@tactic("sorry")
def t_sorry(run: Runner, stx: Stx, goal: MVar) -> Goals:
    run.session.sorry_spans.append((stx.start, stx.end))
    return run.close(goal, run.elaborator(goal).sorry(run.target(goal)))
