"""The replies of `pantograph-repl` as typed frozen values, decoded strictly.

Field names follow Python's style and say what the wire's mean: `hasSorry` is `has_sorry`, `boundary` is
`byte_start`/`byte_end`. Unknown keys are ignored (newer versions add some); a missing or mistyped promised key
raises `MalformedReply` with its path. What the wire leaves out when it is the usual value has that value here.
Not here: how requests are sent (`repl.py`) and what a reply is worth as evidence (`pipeline.gate`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from pipeline.lean.errors import MalformedReply

Severity = Literal["information", "warning", "error"]
Json = Mapping[str, object]
T = TypeVar("T")

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
        table = _object(raw, where)
        return cls(_int(table, "line", where), _int(table, "column", where))


@dataclass(frozen=True, slots=True)
class Message:
    """One message of Lean's log. `kind` is `[anonymous]` when untagged, `hasSorry` for the sorry warning."""

    severity: Severity
    data: str
    kind: str = "[anonymous]"
    pos: Position = Position(0, 0)
    end_pos: Position | None = None
    file_name: str = ""
    keep_full_range: bool = False
    is_silent: bool = False
    caption: str = ""

    @classmethod
    def from_json(cls, raw: object, where: str = "message") -> Message:
        table = _object(raw, where)
        severity = _SEVERITIES.get(_text(table, "severity", where))
        if severity is None:
            raise MalformedReply(f"{where}.severity: unknown severity {table['severity']!r}")
        end = table.get("endPos")
        return cls(
            severity=severity,
            data=_text(table, "data", where),
            kind=_text(table, "kind", where, default="[anonymous]"),
            pos=Position.from_json(table.get("pos"), f"{where}.pos"),
            end_pos=None if end is None else Position.from_json(end, f"{where}.endPos"),
            file_name=_text(table, "fileName", where, default=""),
            keep_full_range=_bool(table, "keepFullRange", where, default=False),
            is_silent=_bool(table, "isSilent", where, default=False),
            caption=_text(table, "caption", where, default=""),
        )

    @property
    def is_error(self) -> bool:
        return self.severity == "error"

    @property
    def is_sorry_warning(self) -> bool:
        """Lean says "declaration uses 'sorry'"; its text changed over the versions, its kind did not."""
        return self.kind == SORRY_KIND or self.data.startswith("declaration uses ")

    def render(self) -> str:
        """Return `line:column[-line:column]: [severity: ]data`."""
        end = "" if self.end_pos is None else f"-{self.end_pos.line}:{self.end_pos.column}"
        severity = "" if self.severity == "information" else f"{self.severity}: "
        return f"{self.pos.line}:{self.pos.column}{end}: {severity}{self.data}"


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression as far as the REPL's options made it print one; `pp` is Lean's pretty-printed text."""

    pp: str | None = None
    sexp: str | None = None
    dependent_mvars: tuple[str, ...] | None = None

    @classmethod
    def from_json(cls, raw: object, where: str = "expression") -> Expression:
        table = _object(raw, where)
        mvars = table.get("dependentMVars")
        return cls(
            pp=_optional_text(table, "pp", where),
            sexp=_optional_text(table, "sexp", where),
            dependent_mvars=None if mvars is None else _texts(mvars, f"{where}.dependentMVars"),
        )

    def render(self) -> str:
        return self.pp if self.pp is not None else self.sexp or ""


@dataclass(frozen=True, slots=True)
class Variable:
    """One hypothesis. `name` is Lean's internal name, `user_name` what people and tactics call it."""

    name: str
    user_name: str
    inaccessible: bool
    type: Expression | None = None
    value: Expression | None = None

    @classmethod
    def from_json(cls, raw: object, where: str = "variable") -> Variable:
        table = _object(raw, where)
        user_name = _text(table, "userName", where)
        return cls(
            name=_text(table, "name", where, default=""),
            user_name=user_name,
            inaccessible=_bool(table, "isInaccessible", where, default="✝" in user_name),
            type=_optional(table, "type", where, Expression.from_json),
            value=_optional(table, "value", where, Expression.from_json),
        )

    def render(self) -> str:
        text = self.user_name or "_"
        if self.type is not None:
            text += f" : {self.type.render()}"
        if self.value is not None:
            text += f" := {self.value.render()}"
        return text


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal of a state: hypotheses and target. `user_name` is its case tag, None when it has none."""

    name: str
    target: Expression
    vars: tuple[Variable, ...] = ()
    user_name: str | None = None
    fragment: str = "tactic"

    @classmethod
    def from_json(cls, raw: object, where: str = "goal") -> Goal:
        table = _object(raw, where)
        return cls(
            name=_text(table, "name", where, default=""),
            target=Expression.from_json(table.get("target"), f"{where}.target"),
            vars=_list(table.get("vars"), f"{where}.vars", Variable.from_json),
            user_name=_optional_text(table, "userName", where),
            fragment=_text(table, "fragment", where, default="tactic"),
        )

    def render(self) -> str:
        """Return the goal as text: optional `case tag`, one hypothesis per line, then `⊢ target`.

        With no hypotheses the text starts with an empty line, as PyPantograph's does.
        """
        head = "" if self.user_name is None else f"case {self.user_name}\n"
        mark = "|" if self.fragment == "conv" else "⊢"
        hypotheses = "\n".join(variable.render() for variable in self.vars)
        return f"{head}{hypotheses}\n{mark} {self.target.render()}"


def render_goals(goals: tuple[Goal, ...]) -> str:
    """Return all goals of a state as one text; states that render the same are the same to a search."""
    return "\n".join(goal.render() for goal in goals)


@dataclass(frozen=True, slots=True)
class Unit:
    """One top-level command of a processed file; the byte range reaches to the start of the next one."""

    byte_start: int
    byte_end: int
    messages: tuple[Message, ...] = ()
    new_constants: tuple[str, ...] | None = None
    n_invocations: int | None = None

    @classmethod
    def from_json(cls, raw: object, where: str = "unit") -> Unit:
        table = _object(raw, where)
        start, end = _range(table.get("boundary"), f"{where}.boundary")
        constants = table.get("newConstants")
        count = table.get("nInvocations")
        return cls(
            byte_start=start,
            byte_end=end,
            messages=_list(table.get("messages"), f"{where}.messages", Message.from_json),
            new_constants=None if constants is None else _texts(constants, f"{where}.newConstants"),
            n_invocations=None if count is None else _int(table, "nInvocations", where),
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
        table = _object(raw, where)
        state = StateRef(_int(table, "stateId", where), generation)
        return cls(state, _list(table.get("goals"), f"{where}.goals", Goal.from_json))


@dataclass(frozen=True, slots=True)
class TacticOk:
    """The tactic ran. No goals left is a hint that the statement may be proved, never a proof."""

    state: StateRef
    goals: tuple[Goal, ...]
    messages: tuple[Message, ...]
    has_sorry: bool
    has_unsafe: bool


@dataclass(frozen=True, slots=True)
class TacticFailed:
    """The tactic failed; no state was made. `interrupted`: it ran into the time, heartbeat or recursion limit."""

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


def tactic_result(raw: Json, *, generation: int) -> TacticResult:
    """Decode a reply of `goal.tactic` that is not an error object."""
    where = "goal.tactic"
    if "parseError" in raw:
        return TacticParseError(_text(raw, "parseError", where))
    messages = _list(raw.get("messages", []), f"{where}.messages", Message.from_json)
    if raw.get("nextStateId") is None:
        if not messages:
            raise MalformedReply(f"{where}: neither nextStateId, messages nor parseError")
        return TacticFailed(messages)
    return TacticOk(
        state=StateRef(_int(raw, "nextStateId", where), generation),
        goals=_list(raw.get("goals"), f"{where}.goals", Goal.from_json),
        messages=messages,
        has_sorry=_bool(raw, "hasSorry", where, default=False),
        has_unsafe=_bool(raw, "hasUnsafe", where, default=False),
    )


@dataclass(frozen=True, slots=True)
class StatePrint:
    """`goal.print`: the state's goals and, where asked for, the root's term.

    The three root flags are the REPL's own; a root that was never touched has `root` None and
    `root_has_mvar` False, which is why `closed` asks for both.
    """

    goals: tuple[Goal, ...]
    root: Expression | None
    parent_exprs: tuple[Expression | None, ...]
    extra_mvars: tuple[Expression | None, ...]
    root_has_sorry: bool
    root_has_unsafe: bool
    root_has_mvar: bool

    @classmethod
    def from_json(cls, raw: object) -> StatePrint:
        where = "goal.print"
        table = _object(raw, where)
        return cls(
            goals=_list(table.get("goals"), f"{where}.goals", Goal.from_json),
            root=_optional(table, "root", where, Expression.from_json),
            parent_exprs=_list(table.get("parentExprs") or [], f"{where}.parentExprs", _maybe_expression),
            extra_mvars=_list(table.get("extraMVars") or [], f"{where}.extraMVars", _maybe_expression),
            root_has_sorry=_bool(table, "rootHasSorry", where, default=False),
            root_has_unsafe=_bool(table, "rootHasUnsafe", where, default=False),
            root_has_mvar=_bool(table, "rootHasMVar", where, default=False),
        )

    @property
    def closed(self) -> bool:
        """Say whether the REPL holds a whole term for the root: still only a hint."""
        whole = self.root is not None and not self.root_has_mvar
        return whole and not (self.goals or self.root_has_sorry or self.root_has_unsafe)


@dataclass(frozen=True, slots=True)
class Constant:
    """`env.inspect`, as far as this program uses it."""

    type: Expression
    is_unsafe: bool
    module: str | None
    value: Expression | None
    type_dependency: tuple[str, ...] | None
    value_dependency: tuple[str, ...] | None

    @classmethod
    def from_json(cls, raw: object) -> Constant:
        where = "env.inspect"
        table = _object(raw, where)
        of_type, of_value = table.get("typeDependency"), table.get("valueDependency")
        return cls(
            type=Expression.from_json(table.get("type"), f"{where}.type"),
            is_unsafe=_bool(table, "isUnsafe", where, default=False),
            module=_optional_text(table, "module", where),
            value=_optional(table, "value", where, Expression.from_json),
            type_dependency=None if of_type is None else _texts(of_type, f"{where}.typeDependency"),
            value_dependency=None if of_value is None else _texts(of_value, f"{where}.valueDependency"),
        )


def units(raw: Json) -> tuple[Unit, ...]:
    """Decode a reply of `frontend.process`."""
    return _list(raw.get("units"), "frontend.process.units", Unit.from_json)


def targets(raw: Json, *, generation: int) -> tuple[Target, ...]:
    """Decode a reply of `frontend.distil`."""

    def one(item: object, where: str) -> Target:
        return Target.from_json(item, generation=generation, where=where)

    return _list(raw.get("targets"), "frontend.distil.targets", one)


def number(raw: Json, key: str, *, command: str) -> int:
    """Return an integer that a reply promises."""
    return _int(raw, key, command)


def _object(raw: object, where: str) -> Json:
    if not isinstance(raw, Mapping):
        raise MalformedReply(f"{where}: expected an object, got {_shown(raw)}")
    return raw


def _shown(raw: object) -> str:
    text = repr(raw)
    return text if len(text) <= 60 else text[:57] + "..."


def _text(table: Json, key: str, where: str, *, default: str | None = None) -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise MalformedReply(f"{where}.{key}: expected a string, got {_shown(value)}")
    return value


def _optional_text(table: Json, key: str, where: str) -> str | None:
    return None if table.get(key) is None else _text(table, key, where)


def _bool(table: Json, key: str, where: str, *, default: bool) -> bool:
    value = table.get(key, default)
    if not isinstance(value, bool):
        raise MalformedReply(f"{where}.{key}: expected a Bool, got {_shown(value)}")
    return value


def _int(table: Json, key: str, where: str) -> int:
    value = table.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedReply(f"{where}.{key}: expected a whole number, got {_shown(value)}")
    return value


def _list(raw: object, where: str, one: Callable[[object, str], T]) -> tuple[T, ...]:
    if not isinstance(raw, list):
        raise MalformedReply(f"{where}: expected a list, got {_shown(raw)}")
    return tuple(one(item, f"{where}[{index}]") for index, item in enumerate(raw))


def _texts(raw: object, where: str) -> tuple[str, ...]:
    def one(item: object, at: str) -> str:
        if not isinstance(item, str):
            raise MalformedReply(f"{at}: expected a string, got {_shown(item)}")
        return item

    return _list(raw, where, one)


def _optional(table: Json, key: str, where: str, one: Callable[[object, str], T]) -> T | None:
    value = table.get(key)
    return None if value is None else one(value, f"{where}.{key}")


def _maybe_expression(raw: object, where: str) -> Expression | None:
    return None if raw is None else Expression.from_json(raw, where)


def _range(raw: object, where: str) -> tuple[int, int]:
    match raw:
        case [int() as start, int() as end] if 0 <= start <= end:
            return start, end
    raise MalformedReply(f"{where}: expected [start, end], got {_shown(raw)}")
