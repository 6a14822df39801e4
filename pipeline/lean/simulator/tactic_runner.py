"""What runs tactics: blocks, the choice of the rule, records of what ran, and what all tactics share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pipeline.lean.simulator.elaboration import Elaborator
from pipeline.lean.simulator.kernel import KernelError
from pipeline.lean.simulator.meta import Context, Hole, LeanError, Meta, outside
from pipeline.lean.simulator.printer import Printer, goal_text
from pipeline.lean.simulator.registry import CONTROLS, TACTICS, Goals
from pipeline.lean.simulator.scope import Invocation, Session
from pipeline.lean.simulator.syntax import Stx
from pipeline.lean.simulator.terms import Const, MVar, Sorry, Term, nodes


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
        for tactic in stx.args:
            goals = self.step(tactic, goals)
        return self.unfilled(goals)

    def step(self, stx: Stx, goals: Goals) -> Goals:
        """Run one tactic; its errors say where it stands."""
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
