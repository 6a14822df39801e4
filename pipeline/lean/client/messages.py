"""The replies about goal states, tactics and files, as typed frozen values, decoded strictly.

`goals.py` has what they are made of and says how decoding works; `replies.py` has the other commands' replies.
`to_json` gives the wire's object back. Not here: what a reply is worth as evidence (`pipeline.gate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.lean.client import wire
from pipeline.lean.client.errors import MalformedReply
from pipeline.lean.client.goals import (
    SORRY_KIND,
    Expression,
    Goal,
    Message,
    Position,
    Severity,
    StateRef,
    Variable,
    goals_from_json,
    render_goals,
)
from pipeline.lean.client.wire import Json

__all__ = [
    "SORRY_KIND",
    "Expression",
    "Goal",
    "Invocation",
    "Message",
    "Position",
    "Severity",
    "StatePrint",
    "StateRef",
    "TacticFailed",
    "TacticOk",
    "TacticParseError",
    "TacticResult",
    "Target",
    "Unit",
    "Variable",
    "invocations",
    "render_goals",
    "tactic_result",
    "targets",
    "units",
]


@dataclass(frozen=True, slots=True)
class Invocation:
    """One tactic as it ran while a file was compiled: goals before and after, as Lean prints them.

    Records have no positions and nest: a structured tactic comes before the ones inside it. `tactic` is printed
    anew from the syntax tree (no comments), so it is no excerpt of the source. `used_constants` are those in the
    term that the step itself assigned. `goal_after` is "" when nothing was left.
    """

    goal_before: str
    goal_after: str
    tactic: str
    used_constants: tuple[str, ...]

    @classmethod
    def from_json(cls, raw: object, where: str = "invocation") -> Invocation:
        table = wire.object_(raw, where)
        return cls(
            goal_before=wire.text(table, "goalBefore", where),
            goal_after=wire.text(table, "goalAfter", where),
            tactic=wire.text(table, "tactic", where),
            used_constants=wire.texts(table, "usedConstants", where),
        )

    def to_json(self) -> dict[str, object]:
        return {
            "goalBefore": self.goal_before,
            "goalAfter": self.goal_after,
            "tactic": self.tactic,
            "usedConstants": list(self.used_constants),
        }


@dataclass(frozen=True, slots=True)
class Unit:
    """One top-level command of a processed file; the byte range reaches to the start of the next one.

    `new_constants` is None unless asked for. `n_invocations` comes with the reply, `invocations` from the side
    file, which only `Repl.process(…, invocations=True)` reads; both None otherwise. The last three fields are
    filled by the older dialect alone, for `sorrys=True`: one state of all sorrys of the unit, its goals, and for
    each goal the byte range of its `sorry` (a tactic `sorry` may stand for several goals).
    """

    byte_start: int
    byte_end: int
    messages: tuple[Message, ...] = ()
    new_constants: tuple[str, ...] | None = None
    n_invocations: int | None = None
    invocations: tuple[Invocation, ...] | None = None
    goal_state: StateRef | None = None
    goals: tuple[Goal, ...] | None = None
    goal_ranges: tuple[tuple[int, int], ...] | None = None

    @classmethod
    def from_json(cls, raw: object, where: str = "unit", *, generation: int) -> Unit:
        table = wire.object_(raw, where)
        start, end = wire.byte_range(table.get("boundary"), f"{where}.boundary")
        state = wire.optional_natural(table, "goalStateId", where)
        ranges = table.get("goalSrcBoundaries")
        goals = table.get("goals")
        return cls(
            byte_start=start,
            byte_end=end,
            messages=wire.list_(table.get("messages"), f"{where}.messages", Message.from_json),
            new_constants=wire.optional_texts(table, "newConstants", where),
            n_invocations=wire.optional_natural(table, "nInvocations", where),
            goal_state=None if state is None else StateRef(state, generation),
            goals=None if goals is None else goals_from_json(goals, f"{where}.goals"),
            goal_ranges=None
            if ranges is None
            else wire.list_(ranges, f"{where}.goalSrcBoundaries", wire.byte_range),
        )

    def to_json(self) -> dict[str, object]:
        """Return the wire's object; the invocations are in another file and not in it."""
        ranges = None if self.goal_ranges is None else [list(pair) for pair in self.goal_ranges]
        return wire.without_none(
            {
                "boundary": [self.byte_start, self.byte_end],
                "messages": [message.to_json() for message in self.messages],
                "newConstants": None if self.new_constants is None else list(self.new_constants),
                "nInvocations": self.n_invocations,
                "goalStateId": None if self.goal_state is None else self.goal_state.id,
                "goals": None if self.goals is None else [goal.to_json() for goal in self.goals],
                "goalSrcBoundaries": ranges,
            }
        )

    @property
    def errors(self) -> tuple[Message, ...]:
        return tuple(message for message in self.messages if message.is_error)

    @property
    def uses_sorry(self) -> bool:
        return any(message.is_sorry_warning for message in self.messages)


@dataclass(frozen=True, slots=True)
class Target:
    """One search target that `frontend.distil` made out of a declaration with sorrys."""

    state: StateRef
    goals: tuple[Goal, ...]

    @classmethod
    def from_json(cls, raw: object, *, generation: int, where: str = "target") -> Target:
        table = wire.object_(raw, where)
        state = StateRef(wire.natural(table, "stateId", where), generation)
        return cls(state, goals_from_json(table.get("goals"), f"{where}.goals"))

    def to_json(self) -> dict[str, object]:
        return {"stateId": self.state.id, "goals": [goal.to_json() for goal in self.goals]}


@dataclass(frozen=True, slots=True)
class TacticOk:
    """The tactic ran. No goals left is a hint that the statement may be proved, never a proof.

    `has_sorry` and `has_unsafe` are about the terms of this step alone: a sorried lemma that it cites does not
    show in them.
    """

    state: StateRef
    goals: tuple[Goal, ...]
    messages: tuple[Message, ...]
    has_sorry: bool
    has_unsafe: bool

    @property
    def finished(self) -> bool:
        """Say whether nothing seems left: no goals, no sorry in this step, no doubt about the path to it."""
        return not (self.goals or self.has_sorry or self.has_unsafe or self.state.doubt)

    def to_json(self) -> dict[str, object]:
        return {
            "nextStateId": self.state.id,
            "goals": [goal.to_json() for goal in self.goals],
            "messages": [message.to_json() for message in self.messages],
            "hasSorry": self.has_sorry,
            "hasUnsafe": self.has_unsafe,
        }


@dataclass(frozen=True, slots=True)
class TacticFailed:
    """The tactic failed; no state was made. `interrupted`: it ran into the time, heartbeat or recursion limit.

    Limits come as error objects; then `messages` has one of our making whose `kind` is the error's.
    """

    messages: tuple[Message, ...]
    interrupted: bool = False

    @property
    def reason(self) -> str:
        return self.messages[0].data if self.messages else ""

    def to_json(self) -> dict[str, object]:
        """Return the wire's object; the two flags are always false in it, because nothing was assigned."""
        return {
            "messages": [message.to_json() for message in self.messages],
            "hasSorry": False,
            "hasUnsafe": False,
        }


@dataclass(frozen=True, slots=True)
class TacticParseError:
    """The text is no tactic."""

    text: str

    def to_json(self) -> dict[str, object]:
        return {"parseError": self.text, "hasSorry": False, "hasUnsafe": False}


TacticResult = TacticOk | TacticFailed | TacticParseError


def tactic_result(raw: Json, *, generation: int, doubt: str = "") -> TacticResult:
    """Decode a reply of `goal.tactic` that is not an error object; `doubt` goes into the new state."""
    where = "goal.tactic"
    if "parseError" in raw:
        return TacticParseError(wire.text(raw, "parseError", where))
    messages = wire.list_(raw.get("messages", []), f"{where}.messages", Message.from_json)
    if raw.get("nextStateId") is None:
        if not messages:
            raise MalformedReply(f"{where}: neither nextStateId, messages nor parseError")
        return TacticFailed(messages)
    return TacticOk(
        state=StateRef(wire.natural(raw, "nextStateId", where), generation, doubt),
        goals=goals_from_json(raw.get("goals"), f"{where}.goals"),
        messages=messages,
        has_sorry=wire.boolean(raw, "hasSorry", where),
        has_unsafe=wire.boolean(raw, "hasUnsafe", where),
    )


@dataclass(frozen=True, slots=True)
class StatePrint:
    """`goal.print`: the state's goals and, where asked for, the root's term.

    The three root flags are the REPL's own; a root that was never touched has `root` None and
    `root_has_mvar` False, which is why `closed` asks for both. `parent_exprs` is None when not asked for.
    `doubt` is the printed state's.
    """

    goals: tuple[Goal, ...]
    root: Expression | None
    parent_exprs: tuple[Expression | None, ...] | None
    extra_mvars: tuple[Expression | None, ...]
    root_has_sorry: bool
    root_has_unsafe: bool
    root_has_mvar: bool
    doubt: str = ""

    @classmethod
    def from_json(cls, raw: object, *, doubt: str = "") -> StatePrint:
        where = "goal.print"
        table = wire.object_(raw, where)
        parents = table.get("parentExprs")
        return cls(
            goals=goals_from_json(table.get("goals"), f"{where}.goals"),
            root=wire.optional(table, "root", where, Expression.from_json),
            parent_exprs=None
            if parents is None
            else wire.list_(parents, f"{where}.parentExprs", _maybe_expression),
            extra_mvars=wire.list_(table.get("extraMVars"), f"{where}.extraMVars", _maybe_expression),
            root_has_sorry=wire.boolean(table, "rootHasSorry", where),
            root_has_unsafe=wire.boolean(table, "rootHasUnsafe", where),
            root_has_mvar=wire.boolean(table, "rootHasMVar", where),
            doubt=doubt,
        )

    def to_json(self) -> dict[str, object]:
        table: dict[str, object] = {
            "goals": [goal.to_json() for goal in self.goals],
            "extraMVars": [_expression_or_null(mvar) for mvar in self.extra_mvars],
            "rootHasSorry": self.root_has_sorry,
            "rootHasUnsafe": self.root_has_unsafe,
            "rootHasMVar": self.root_has_mvar,
        }
        if self.root is not None:
            table["root"] = self.root.to_json()
        if self.parent_exprs is not None:
            table["parentExprs"] = [_expression_or_null(parent) for parent in self.parent_exprs]
        return table

    @property
    def closed(self) -> bool:
        """Say whether the REPL holds a whole term for the root, reached by steps without doubt.

        Still only a hint: Pantograph does not have the kernel check that term. Needs `goals` and `root` to have
        been asked for.
        """
        whole = self.root is not None and not self.root_has_mvar
        return whole and not (self.goals or self.root_has_sorry or self.root_has_unsafe or self.doubt)


def units(raw: Json, *, generation: int) -> tuple[Unit, ...]:
    """Decode a reply of `frontend.process`."""

    def one(item: object, where: str) -> Unit:
        return Unit.from_json(item, where, generation=generation)

    return wire.list_(raw.get("units"), "frontend.process.units", one)


def targets(raw: Json, *, generation: int) -> tuple[Target, ...]:
    """Decode a reply of `frontend.distil`."""

    def one(item: object, where: str) -> Target:
        return Target.from_json(item, generation=generation, where=where)

    return wire.list_(raw.get("targets"), "frontend.distil.targets", one)


def invocations(raw: object, *, where: str) -> tuple[tuple[Invocation, ...], ...]:
    """Decode the side file of `frontend.process`: for each unit its records."""

    def one(item: object, at: str) -> tuple[Invocation, ...]:
        return wire.list_(
            wire.object_(item, at).get("invocations"), f"{at}.invocations", Invocation.from_json
        )

    return wire.list_(wire.object_(raw, where).get("units"), f"{where}.units", one)


def _maybe_expression(raw: object, where: str) -> Expression | None:
    return None if raw is None else Expression.from_json(raw, where)


def _expression_or_null(expression: Expression | None) -> object:
    return None if expression is None else expression.to_json()


def first_error(units: Sequence[Unit]) -> Message | None:
    """Return the first error message of processed text."""
    return next((error for unit in units for error in unit.errors), None)
