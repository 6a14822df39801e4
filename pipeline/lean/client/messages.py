"""The REPL's replies as typed frozen values, decoded strictly.

`to_json` gives the wire's object back. Not here: what a reply is worth as evidence (`pipeline.gate`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.lean.client import wire
from pipeline.lean.client.errors import MalformedReply
from pipeline.lean.client.wire import Json

# ---- Goals, hypotheses, expressions and log messages, as typed frozen values: what replies are made of
# Field names follow Python's style (`userName` is `user_name`). Decoding is strict: a missing or mistyped promised
# key raises `MalformedReply` with its path; unknown keys are ignored, because newer versions add some. What the wire
# leaves out when it is the usual value has that value here. `to_json` gives the wire's object back, with every
# promised key spelt out.


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

    def to_json(self) -> dict[str, object]:
        return {"line": self.line, "column": self.column}


@dataclass(frozen=True, slots=True)
class Message:
    """One message of Lean's log. `kind` is `[anonymous]` when untagged, `hasSorry` for the sorry warning.

    Older Leans leave out `isSilent` and `caption`, which then have their usual values.
    """

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
            file_name=wire.text(table, "fileName", where, default=""),
            keep_full_range=wire.boolean(table, "keepFullRange", where, default=False),
            is_silent=wire.boolean(table, "isSilent", where, default=False),
            caption=wire.text(table, "caption", where, default=""),
        )

    def to_json(self) -> dict[str, object]:
        return {
            "fileName": self.file_name,
            "pos": self.pos.to_json(),
            "endPos": None if self.end_pos is None else self.end_pos.to_json(),
            "keepFullRange": self.keep_full_range,
            "severity": self.severity,
            "isSilent": self.is_silent,
            "caption": self.caption,
            "data": self.data,
            "kind": self.kind,
        }

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
        if type(raw) is dict and len(raw) == 1 and type(raw.get("pp")) is str:
            # Nearly every expression of nearly every reply.
            return cls(raw["pp"])
        table = wire.object_(raw, where)
        return cls(
            pp=wire.optional_text(table, "pp", where),
            sexp=wire.optional_text(table, "sexp", where),
            dependent_mvars=wire.optional_texts(table, "dependentMVars", where),
        )

    def to_json(self) -> dict[str, object]:
        mvars = None if self.dependent_mvars is None else list(self.dependent_mvars)
        return wire.without_none({"pp": self.pp, "sexp": self.sexp, "dependentMVars": mvars})

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
        table = wire.object_(raw, where)
        user_name = wire.text(table, "userName", where)
        return cls(
            name=wire.text(table, "name", where, default=""),
            user_name=user_name,
            inaccessible=wire.boolean(table, "isInaccessible", where, default="✝" in user_name),
            type=wire.optional(table, "type", where, Expression.from_json),
            value=wire.optional(table, "value", where, Expression.from_json),
        )

    def to_json(self) -> dict[str, object]:
        return wire.without_none(
            {
                "name": self.name,
                "userName": self.user_name,
                "isInaccessible": self.inaccessible,
                "type": None if self.type is None else self.type.to_json(),
                "value": None if self.value is None else self.value.to_json(),
            }
        )

    def render(self) -> str:
        text = self.user_name or "_"
        if self.type is not None:
            text += f" : {self.type.render()}"
        if self.value is not None:
            text += f" := {self.value.render()}"
        return text


# The hypotheses of a reply by all that there is to nearly every one: name, user name, whether inaccessible, type.
_Known = dict[tuple[object, ...], Variable]


def _hypotheses(raw: object, where: str, known: _Known) -> tuple[Variable, ...]:
    """Decode a goal's hypotheses; one that is the same as an earlier one of the reply is the same object."""

    def one(item: Any, at: str) -> Variable:
        try:
            kind = item["type"]
            plain = item["name"], item["userName"], item["isInaccessible"], kind["pp"]
            found = known.get(plain)
        except (KeyError, TypeError):
            # One without a type, or malformed.
            return Variable.from_json(item, at)
        if len(item) != 4 or len(kind) != 1:
            return Variable.from_json(item, at)
        # 1 is equal to True, and no Bool.
        if found is None or type(plain[2]) is not bool:
            found = known[plain] = Variable.from_json(item, at)
        return found

    return wire.list_(raw, f"{where}.vars", one)


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal of a state: hypotheses and target. `user_name` is its case tag, None when it has none."""

    name: str
    target: Expression
    vars: tuple[Variable, ...] = ()
    user_name: str | None = None
    fragment: str = "tactic"

    @classmethod
    def from_json(cls, raw: object, where: str = "goal", known: _Known | None = None) -> Goal:
        table = wire.object_(raw, where)
        return cls(
            name=wire.text(table, "name", where, default=""),
            target=Expression.from_json(table.get("target"), f"{where}.target"),
            vars=_hypotheses(table.get("vars"), where, {} if known is None else known),
            user_name=wire.optional_text(table, "userName", where),
            fragment=wire.text(table, "fragment", where, default="tactic"),
        )

    def to_json(self) -> dict[str, object]:
        return wire.without_none(
            {
                "name": self.name,
                "userName": self.user_name,
                "fragment": self.fragment,
                "target": self.target.to_json(),
                "vars": [variable.to_json() for variable in self.vars],
            }
        )

    def render(self) -> str:
        """Return the goal as text: optional `case tag`, one hypothesis per line, then `⊢ target`.

        With no hypotheses the text starts with an empty line, as PyPantograph's does.
        """
        head = "" if self.user_name is None else f"case {self.user_name}\n"
        mark = "|" if self.fragment == "conv" else "⊢"
        hypotheses = "\n".join(variable.render() for variable in self.vars)
        return f"{head}{hypotheses}\n{mark} {self.target.render()}"


def goals_from_json(raw: object, where: str) -> tuple[Goal, ...]:
    """Decode the goals of a state. They share most of their hypotheses, of which each is made once."""
    return wire.list_(raw, where, functools.partial(Goal.from_json, known={}))


def render_goals(goals: tuple[Goal, ...]) -> str:
    """Return all goals of a state as one text; states that render the same are the same to a search."""
    return "\n".join(goal.render() for goal in goals)


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

    Records nest: a structured tactic comes before the ones inside it. `used_constants` are those in the term that the
    step itself assigned. `goal_after` is "" when nothing was left. A REPL's have no place, and their `tactic` is
    printed anew from the syntax tree (no comments), so that it is no excerpt of the source. `place` is the range of
    bytes of those that have one, and their `tactic` is the source's.
    """

    goal_before: str
    goal_after: str
    tactic: str
    used_constants: tuple[str, ...]
    place: tuple[int, int] | None = None

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
    filled by the older dialect alone, for `sorrys=True`: one state of all sorries of the unit, its goals, and for
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
    """One search target that `frontend.distil` made out of a declaration with sorries."""

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
        """Return whether nothing seems left: no goals, no sorry in this step."""
        return not (self.goals or self.has_sorry or self.has_unsafe)

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


def tactic_result(raw: Json, *, generation: int) -> TacticResult:
    """Decode a reply of `goal.tactic` that is not an error object."""
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


@dataclass(frozen=True, slots=True)
class StatePrint:
    """`goal.print`: the state's goals and, where asked for, the root's term.

    The three root flags are the REPL's own; a root that was never touched has `root` None and
    `root_has_mvar` False, which is why `closed` asks for both. Goals that were not asked for (`goals_asked`) are an
    empty list on the wire, which must not read as "none left".
    """

    goals: tuple[Goal, ...]
    root: Expression | None
    root_has_sorry: bool
    root_has_unsafe: bool
    root_has_mvar: bool
    goals_asked: bool = True

    @classmethod
    def from_json(cls, raw: object, *, goals_asked: bool = True) -> StatePrint:
        where = "goal.print"
        table = wire.object_(raw, where)
        return cls(
            goals=goals_from_json(table.get("goals"), f"{where}.goals"),
            root=wire.optional(table, "root", where, Expression.from_json),
            root_has_sorry=wire.boolean(table, "rootHasSorry", where),
            root_has_unsafe=wire.boolean(table, "rootHasUnsafe", where),
            root_has_mvar=wire.boolean(table, "rootHasMVar", where),
            goals_asked=goals_asked,
        )

    def to_json(self) -> dict[str, object]:
        table: dict[str, object] = {
            "goals": [goal.to_json() for goal in self.goals],
            "rootHasSorry": self.root_has_sorry,
            "rootHasUnsafe": self.root_has_unsafe,
            "rootHasMVar": self.root_has_mvar,
        }
        if self.root is not None:
            table["root"] = self.root.to_json()
        return table

    @property
    def closed(self) -> bool:
        """Return whether the REPL holds a whole term for the root.

        Still only a hint: Pantograph does not have the kernel check that term. Needs `goals` and `root` to have
        been asked for.
        """
        whole = self.root is not None and not self.root_has_mvar
        return whole and self.goals_asked and not (self.goals or self.root_has_sorry or self.root_has_unsafe)


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


def first_error(units: Sequence[Unit]) -> Message | None:
    """Return the first error message of processed text."""
    return next((error for unit in units for error in unit.errors), None)


# ---- The replies of the commands about environments, options, stored states and checks, as typed frozen values
# Decoding and `to_json` work as `goals.py` says. `requests.py` names for each request which of these (or of
# `messages.py`) answers it.


SubsumeResult = Literal["none", "subsumed", "cycle"]
_SUBSUME: dict[str, SubsumeResult] = {"none": "none", "subsumed": "subsumed", "cycle": "cycle"}


@dataclass(frozen=True, slots=True)
class EmptyReply:
    """The empty reply: the command did what it says and has nothing to tell."""

    def to_json(self) -> dict[str, object]:
        return {}


@dataclass(frozen=True, slots=True)
class Number:
    """A reply of one number: goal states (`nGoals`), symbols (`nSymbols`) or a byte offset (`pos`), as `key` says."""

    key: str
    value: int

    @classmethod
    def from_json(cls, raw: Json, *, key: str, where: str) -> Number:
        return cls(key, wire.natural(raw, key, where))

    def to_json(self) -> dict[str, object]:
        return {self.key: self.value}


@dataclass(frozen=True, slots=True)
class EnvDescription:
    """`env.describe`: what the environment imports directly, and all modules in it."""

    imports: tuple[str, ...]
    modules: tuple[str, ...]

    @classmethod
    def from_json(cls, raw: Json) -> EnvDescription:
        return cls(wire.texts(raw, "imports", "env.describe"), wire.texts(raw, "modules", "env.describe"))

    def to_json(self) -> dict[str, object]:
        return {"imports": list(self.imports), "modules": list(self.modules)}


@dataclass(frozen=True, slots=True)
class Constant:
    """`env.inspect`. `value` and the dependencies are None unless asked for (and there).

    `value_dependency` comes only where the value is shown. The three infos (`inductInfo`, `constructorInfo`,
    `recursorInfo`) are kept as the wire's objects; at most one is there. Source places are missing for modules
    without sources at hand and for the current file.
    """

    type: Expression
    is_unsafe: bool
    module: str | None = None
    value: Expression | None = None
    type_dependency: tuple[str, ...] | None = None
    value_dependency: tuple[str, ...] | None = None
    public_name: str | None = None
    induct_info: Json | None = None
    constructor_info: Json | None = None
    recursor_info: Json | None = None
    source_uri: str | None = None
    source_start: Position | None = None
    source_end: Position | None = None

    @classmethod
    def from_json(cls, raw: Json) -> Constant:
        where = "env.inspect"
        return cls(
            type=Expression.from_json(raw.get("type"), f"{where}.type"),
            is_unsafe=wire.boolean(raw, "isUnsafe", where),
            module=wire.optional_text(raw, "module", where),
            value=wire.optional(raw, "value", where, Expression.from_json),
            type_dependency=wire.optional_texts(raw, "typeDependency", where),
            value_dependency=wire.optional_texts(raw, "valueDependency", where),
            public_name=wire.optional_text(raw, "publicName", where),
            induct_info=wire.optional(raw, "inductInfo", where, wire.object_),
            constructor_info=wire.optional(raw, "constructorInfo", where, wire.object_),
            recursor_info=wire.optional(raw, "recursorInfo", where, wire.object_),
            source_uri=wire.optional_text(raw, "sourceUri", where),
            source_start=wire.optional(raw, "sourceStart", where, Position.from_json),
            source_end=wire.optional(raw, "sourceEnd", where, Position.from_json),
        )

    def to_json(self) -> dict[str, object]:
        return wire.without_none(
            {
                "type": self.type.to_json(),
                "isUnsafe": self.is_unsafe,
                "module": self.module,
                "value": None if self.value is None else self.value.to_json(),
                "typeDependency": None if self.type_dependency is None else list(self.type_dependency),
                "valueDependency": None if self.value_dependency is None else list(self.value_dependency),
                "publicName": self.public_name,
                "inductInfo": self.induct_info,
                "constructorInfo": self.constructor_info,
                "recursorInfo": self.recursor_info,
                "sourceUri": self.source_uri,
                "sourceStart": None if self.source_start is None else self.source_start.to_json(),
                "sourceEnd": None if self.source_end is None else self.source_end.to_json(),
            }
        )


@dataclass(frozen=True, slots=True)
class Started:
    """`goal.start`: the new state and the name of its root; the goals are not told (see `goal.print`)."""

    state: StateRef
    root: str

    @classmethod
    def from_json(cls, raw: Json, *, generation: int) -> Started:
        state = StateRef(wire.natural(raw, "stateId", "goal.start"), generation)
        return cls(state, wire.text(raw, "root", "goal.start"))

    def to_json(self) -> dict[str, object]:
        return {"stateId": self.state.id, "root": self.root}


@dataclass(frozen=True, slots=True)
class Track:
    """`frontend.track`: whether `dst` keeps what `src` promises.

    `failure` is the reason when it does not. With an error message on either side nothing was compared, and
    `failure` is None too: ask `conforms`.
    """

    src_messages: tuple[Message, ...]
    dst_messages: tuple[Message, ...]
    failure: str | None = None

    @classmethod
    def from_json(cls, raw: Json) -> Track:
        where = "frontend.track"
        return cls(
            wire.list_(raw.get("srcMessages"), f"{where}.srcMessages", Message.from_json),
            wire.list_(raw.get("dstMessages"), f"{where}.dstMessages", Message.from_json),
            wire.optional_text(raw, "failure", where),
        )

    def to_json(self) -> dict[str, object]:
        return wire.without_none(
            {
                "srcMessages": [message.to_json() for message in self.src_messages],
                "dstMessages": [message.to_json() for message in self.dst_messages],
                "failure": self.failure,
            }
        )

    @property
    def compared(self) -> bool:
        """Return whether both texts compiled, so that they could be compared at all."""
        return not any(message.is_error for message in (*self.src_messages, *self.dst_messages))

    @property
    def conforms(self) -> bool:
        return self.compared and self.failure is None
