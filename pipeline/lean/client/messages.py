"""The REPL's replies as typed frozen values, decoded strictly.

Field names follow Python's style (`userName` is `user_name`). A missing or mistyped promised key raises
`MalformedReply` with its path; other keys are ignored, because newer versions add some. A field left out on the wire
has its usual value here. The worth of a reply as evidence is `pipeline.gate`'s.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.lean.client import wire
from pipeline.lean.client.errors import MalformedReply
from pipeline.lean.client.wire import Json

Severity = Literal["information", "warning", "error"]

_SEVERITIES: dict[str, Severity] = {"information": "information", "warning": "warning", "error": "error"}
SORRY_KIND = "hasSorry"


@dataclass(frozen=True, slots=True)
class StateRef:
    """A goal state inside one REPL process. `generation` names the process, so a restart cannot confuse ids."""

    id: int
    generation: int


@dataclass(frozen=True, slots=True)
class Position:
    """Lines count from 1 (0 inside a tactic string), columns from 0 in code points."""

    line: int
    column: int

    @classmethod
    def from_json(cls, raw: object, where: str = "position") -> Position:
        table = wire.object_(raw, where)
        return cls(wire.natural(table, "line", where), wire.natural(table, "column", where))


@dataclass(frozen=True, slots=True)
class Message:
    """One message of Lean's log. `kind` is `[anonymous]` when untagged, `hasSorry` for the sorry warning."""

    severity: Severity
    data: str
    kind: str = "[anonymous]"
    pos: Position = Position(0, 0)
    end_pos: Position | None = None

    @classmethod
    def from_json(cls, raw: object, where: str = "message") -> Message:
        table = wire.object_(raw, where)
        severity = _SEVERITIES.get(wire.text(table, "severity", where))
        if severity is None:
            raise MalformedReply(f"{where}.severity: unknown severity {table['severity']!r}")
        end = table.get("endPos")
        return cls(
            severity=severity,
            data=wire.text(table, "data", where),
            kind=wire.text(table, "kind", where, default="[anonymous]"),
            pos=Position.from_json(table.get("pos"), f"{where}.pos"),
            end_pos=None if end is None else Position.from_json(end, f"{where}.endPos"),
        )

    @property
    def is_error(self) -> bool:
        return self.severity == "error"

    @property
    def is_sorry_warning(self) -> bool:
        """Whether it is Lean's "declaration uses 'sorry'"; the text changed over the versions, the kind did not."""
        return self.kind == SORRY_KIND or self.data.startswith("declaration uses ")

    def render(self) -> str:
        """Return `line:column[-line:column]: [severity: ]data`."""
        end = "" if self.end_pos is None else f"-{self.end_pos.line}:{self.end_pos.column}"
        severity = "" if self.severity == "information" else f"{self.severity}: "
        return f"{self.pos.line}:{self.pos.column}{end}: {severity}{self.data}"


def _expression(raw: object, where: str) -> str:
    """Return an expression as Lean's pretty-printer shows it."""
    if type(raw) is dict and len(raw) == 1 and type(raw.get("pp")) is str:
        # Nearly every expression of nearly every reply.
        return str(raw["pp"])
    return wire.optional_text(wire.object_(raw, where), "pp", where) or ""


@dataclass(frozen=True, slots=True)
class Variable:
    """One hypothesis. `name` is Lean's internal name, `user_name` the one for people and tactics."""

    name: str
    user_name: str
    inaccessible: bool
    type: str | None = None
    value: str | None = None

    @classmethod
    def from_json(cls, raw: object, where: str = "variable") -> Variable:
        table = wire.object_(raw, where)
        user_name = wire.text(table, "userName", where)
        return cls(
            name=wire.text(table, "name", where, default=""),
            user_name=user_name,
            inaccessible=wire.boolean(table, "isInaccessible", where, default="✝" in user_name),
            type=wire.optional(table, "type", where, _expression),
            value=wire.optional(table, "value", where, _expression),
        )

    def render(self) -> str:
        text = self.user_name or "_"
        if self.type is not None:
            text += f" : {self.type}"
        if self.value is not None:
            text += f" := {self.value}"
        return text


# The hypotheses of a reply by the fields of nearly every one: name, user name, whether inaccessible, type.
_Known = dict[tuple[object, ...], Variable]


def _hypotheses(raw: object, where: str, known: _Known) -> tuple[Variable, ...]:
    """Decode a goal's hypotheses; equal ones of the reply are one object."""

    def one(item: Any, at: str) -> Variable:
        try:
            kind = item["type"]
            plain = item["name"], item["userName"], item["isInaccessible"], kind["pp"]
            result = known.get(plain)
        except (KeyError, TypeError):
            # One without a type, or malformed.
            return Variable.from_json(item, at)
        if len(item) != 4 or len(kind) != 1:
            return Variable.from_json(item, at)
        # 1 is equal to True, and no Bool.
        if result is None or type(plain[2]) is not bool:
            result = known[plain] = Variable.from_json(item, at)
        return result

    return wire.list_(raw, f"{where}.vars", one)


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal of a state: hypotheses and target. `user_name` is its case tag, None without one."""

    name: str
    target: str
    vars: tuple[Variable, ...] = ()
    user_name: str | None = None
    fragment: str = "tactic"

    @classmethod
    def from_json(cls, raw: object, where: str = "goal", known: _Known | None = None) -> Goal:
        table = wire.object_(raw, where)
        return cls(
            name=wire.text(table, "name", where, default=""),
            target=_expression(table.get("target"), f"{where}.target"),
            vars=_hypotheses(table.get("vars"), where, {} if known is None else known),
            user_name=wire.optional_text(table, "userName", where),
            fragment=wire.text(table, "fragment", where, default="tactic"),
        )


def goals_from_json(raw: object, where: str) -> tuple[Goal, ...]:
    """Decode the goals of a state. They share most of their hypotheses, so each is made once."""
    return wire.list_(raw, where, functools.partial(Goal.from_json, known={}))


@dataclass(frozen=True, slots=True)
class Unit:
    """One top-level command of a processed file; the byte range reaches to the start of the next one.

    Only the older dialect fills the last two fields, if asked for the goals of sorries: one state of all sorries of the
    unit, and its goals.
    """

    byte_start: int
    byte_end: int
    messages: tuple[Message, ...] = ()
    goal_state: StateRef | None = None
    goals: tuple[Goal, ...] | None = None

    @classmethod
    def from_json(cls, raw: object, where: str = "unit", *, generation: int) -> Unit:
        table = wire.object_(raw, where)
        start, end = wire.byte_range(table.get("boundary"), f"{where}.boundary")
        state = wire.optional_natural(table, "goalStateId", where)
        return cls(
            byte_start=start,
            byte_end=end,
            messages=wire.list_(table.get("messages"), f"{where}.messages", Message.from_json),
            goal_state=None if state is None else StateRef(state, generation),
            goals=wire.optional(table, "goals", where, goals_from_json),
        )

    @property
    def errors(self) -> tuple[Message, ...]:
        return tuple(message for message in self.messages if message.is_error)

    @property
    def uses_sorry(self) -> bool:
        return any(message.is_sorry_warning for message in self.messages)


@dataclass(frozen=True, slots=True)
class Target:
    """One search target, made by `frontend.distil` from a declaration with sorries."""

    state: StateRef
    goals: tuple[Goal, ...]

    @classmethod
    def from_json(cls, raw: object, *, generation: int, where: str = "target") -> Target:
        table = wire.object_(raw, where)
        state = StateRef(wire.natural(table, "stateId", where), generation)
        return cls(state, goals_from_json(table.get("goals"), f"{where}.goals"))


@dataclass(frozen=True, slots=True)
class TacticOk:
    """The tactic ran. No goals left hints at a proof, and never is one.

    `has_sorry` and `has_unsafe` are about the terms of this step alone: they do not show a sorry in a cited lemma.
    """

    state: StateRef
    goals: tuple[Goal, ...]
    messages: tuple[Message, ...]
    has_sorry: bool
    has_unsafe: bool

    @property
    def finished(self) -> bool:
        """Return whether nothing seems left: no goals, no sorry in this step."""
        return not (self.goals or self.has_sorry or self.has_unsafe)


@dataclass(frozen=True, slots=True)
class TacticFailed:
    """The tactic failed; no state was made. `interrupted`: it ran into the time, heartbeat or recursion limit.

    Limits come as error objects; then `messages` has one of our making with the error's `kind`.
    """

    messages: tuple[Message, ...]
    interrupted: bool = False

    @property
    def reason(self) -> str:
        return self.messages[0].data if self.messages else ""


@dataclass(frozen=True, slots=True)
class TacticParseError:
    """The text is no tactic."""

    text: str


TacticResult = TacticOk | TacticFailed | TacticParseError


def tactic_result(raw: Json, generation: int) -> TacticResult:
    """Decode a reply of `goal.tactic` without an error object."""
    where = "goal.tactic"
    if "parseError" in raw:
        return TacticParseError(wire.text(raw, "parseError", where))
    messages = wire.list_(raw.get("messages", []), f"{where}.messages", Message.from_json)
    if raw.get("nextStateId") is None:
        if not messages:
            raise MalformedReply(f"{where}: neither nextStateId, messages nor parseError")
        return TacticFailed(messages)
    return TacticOk(
        state=StateRef(wire.natural(raw, "nextStateId", where), generation),
        goals=goals_from_json(raw.get("goals"), f"{where}.goals"),
        messages=messages,
        has_sorry=wire.boolean(raw, "hasSorry", where),
        has_unsafe=wire.boolean(raw, "hasUnsafe", where),
    )


def units(raw: Json, generation: int) -> tuple[Unit, ...]:
    """Decode a reply of `frontend.process`."""

    def one(item: object, where: str) -> Unit:
        return Unit.from_json(item, where, generation=generation)

    return wire.list_(raw.get("units"), "frontend.process.units", one)


def targets(raw: Json, generation: int) -> tuple[Target, ...]:
    """Decode a reply of `frontend.distil`."""

    def one(item: object, where: str) -> Target:
        return Target.from_json(item, generation=generation, where=where)

    return wire.list_(raw.get("targets"), "frontend.distil.targets", one)


def started(raw: Json, generation: int) -> StateRef:
    """Decode a reply of `goal.start`, which is without goals (see `goal.print`)."""
    return StateRef(wire.natural(raw, "stateId", "goal.start"), generation)


def printed(raw: Json, _generation: int) -> tuple[Goal, ...]:
    """Decode a reply of `goal.print`."""
    return goals_from_json(raw.get("goals"), "goal.print.goals")


def first_error(units: Sequence[Unit]) -> Message | None:
    """Return the first error message of processed text."""
    return next((error for unit in units for error in unit.errors), None)
