"""Goals, hypotheses, expressions and log messages, as typed frozen values: what replies are made of.

Field names follow Python's style (`userName` is `user_name`). Decoding is strict: a missing or mistyped promised
key raises `MalformedReply` with its path; unknown keys are ignored, because newer versions add some. What the
wire leaves out when it is the usual value has that value here. `to_json` gives the wire's object back, with every
promised key spelt out. The replies themselves are in `messages.py` and `replies.py`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.lean.client import wire
from pipeline.lean.client.errors import MalformedReply

Severity = Literal["information", "warning", "error"]

_SEVERITIES: dict[str, Severity] = {"information": "information", "warning": "warning", "error": "error"}
SORRY_KIND = "hasSorry"


@dataclass(frozen=True, slots=True)
class StateRef:
    """A goal state inside one REPL process. `generation` names the process, so a restart cannot confuse ids.

    `doubt` is empty, or says why this state having no goals would mean nothing: a step on the way to it put
    goals aside or used a form that Pantograph gets wrong. States made from it inherit the doubt.
    """

    id: int
    generation: int
    doubt: str = ""


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
