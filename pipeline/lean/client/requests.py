"""Commands of `pantograph-repl` as typed frozen requests that know their payloads and how their answers read."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pipeline.lean.client import messages
from pipeline.lean.client.errors import LimitReached, ReplRefused, is_failed_tactic
from pipeline.lean.client.messages import (
    Constant,
    EmptyReply,
    EnvDescription,
    Message,
    Number,
    Started,
    StatePrint,
    StateRef,
    TacticFailed,
    TacticResult,
    Target,
    Track,
    Unit,
)
from pipeline.lean.client.wire import Json

# ---- What every typed request to the REPL shares
# Which fields go on the wire, how, and what they must agree on.
# Lean's decoder does not honour the defaults of its structures, so a field that is not optional is always in the
# payload, every Bool included; optional fields are left out when None, which is the same to it as null. A request
# whose fields contradict each other is a ValueError when it is made.


R_co = TypeVar("R_co", covariant=True)
Kind = Literal["text", "bool", "natural", "state", "texts", "states"]
Extra = tuple[tuple[str, object], ...]


def on_wire(name: str, kind: Kind = "text", *, optional: bool = False) -> dict[str, object]:
    return {"wire": name, "kind": kind, "optional": optional}


@dataclass(frozen=True, slots=True)
class Request(Generic[R_co]):
    """Base of all requests. `extra` are further fields, sent as they are: the REPL ignores unknown ones."""

    extra: Extra = field(default=(), kw_only=True)
    command: ClassVar[str]

    def payload(self) -> dict[str, object]:
        """Return the payload's JSON object."""
        found: dict[str, object] = {}
        for attribute, name, kind in spec(type(self)):
            value: Any = getattr(self, attribute)
            if value is None:
                continue
            if kind == "state":
                value = value.id
            elif kind == "states":
                value = [state.id for state in value]
            elif kind == "texts":
                value = list(value)
            found[name] = value
        found.update(self.extra)
        return found

    @property
    def states(self) -> tuple[StateRef, ...]:
        """The goal states that the request names; a client checks that they are of its process."""
        found: list[StateRef] = []
        for attribute, _, kind in spec(type(self)):
            value = getattr(self, attribute)
            if kind == "state" and value is not None:
                found.append(value)
            elif kind == "states":
                found.extend(value)
        return tuple(found)

    def refused(self, error: ReplRefused) -> R_co:
        """Return what an error object in answer to this request comes to; most requests raise it."""
        raise error

    def reply(self, raw: Json, generation: int, /) -> R_co:
        """Decode the answer, which is no error object.

        Raises:
            MalformedReply: it does not have the promised shape.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how its answer reads")


_SPECS: dict[type, tuple[tuple[str, str, str], ...]] = {}


def spec(kind: type) -> tuple[tuple[str, str, str], ...]:
    """Return (attribute, wire name, kind) of a request's fields, worked out once for each class."""
    found = _SPECS.get(kind)
    if found is None:
        found = tuple(
            (one.name, one.metadata["wire"], one.metadata["kind"])
            for one in dataclasses.fields(kind)
            if "wire" in one.metadata
        )
        _SPECS[kind] = found
    return found


def exactly_one(request: Request[object], **given: object) -> None:
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) != 1:
        raise ValueError(
            f"{request.command}: exactly one of {', '.join(given)} must be given, not {len(chosen)}"
            f" ({', '.join(chosen) or 'none'})"
        )


# ---- The requests about the process, its options, terms and the environment (`reset` … `env.*`)


@dataclass(frozen=True, slots=True)
class Reset(Request[Number]):
    """Drop all states; answers how many there were. Ids start again at 0; environment and scope stay."""

    command: ClassVar[str] = "reset"

    def reply(self, raw: Json, _generation: int, /) -> Number:
        return Number.from_json(raw, key="nGoals", where=self.command)


@dataclass(frozen=True, slots=True)
class Stat(Request[Number]):
    """Count the states."""

    command: ClassVar[str] = "stat"

    def reply(self, raw: Json, _generation: int, /) -> Number:
        return Number.from_json(raw, key="nGoals", where=self.command)


@dataclass(frozen=True, slots=True)
class OptionsSet(Request[EmptyReply]):
    """Change the REPL's own options; what is None stays. `timeout` is in milliseconds, 0 for none.

    There is no field for `printJsonPretty`: it would spread answers over lines and so break the framing.
    """

    command: ClassVar[str] = "options.set"
    print_expr_pretty: bool | None = field(
        default=None, metadata=on_wire("printExprPretty", "bool", optional=True)
    )
    print_expr_ast: bool | None = field(default=None, metadata=on_wire("printExprAST", "bool", optional=True))
    print_dependent_mvars: bool | None = field(
        default=None, metadata=on_wire("printDependentMVars", "bool", optional=True)
    )
    no_repeat: bool | None = field(default=None, metadata=on_wire("noRepeat", "bool", optional=True))
    print_aux_decls: bool | None = field(
        default=None, metadata=on_wire("printAuxDecls", "bool", optional=True)
    )
    print_implementation_detail_hyps: bool | None = field(
        default=None, metadata=on_wire("printImplementationDetailHyps", "bool", optional=True)
    )
    automatic_mode: bool | None = field(
        default=None, metadata=on_wire("automaticMode", "bool", optional=True)
    )
    timeout: int | None = field(default=None, metadata=on_wire("timeout", "natural", optional=True))

    def __post_init__(self) -> None:
        if dict(self.extra).get("printJsonPretty"):
            raise ValueError("options.set: printJsonPretty breaks the one-line framing; leave it out")

    def reply(self, _raw: Json, _generation: int, /) -> EmptyReply:
        return EmptyReply()


@dataclass(frozen=True, slots=True)
class EnvDescribe(Request[EnvDescription]):
    """Request the environment's imports and modules."""

    command: ClassVar[str] = "env.describe"

    def reply(self, raw: Json, _generation: int, /) -> EnvDescription:
        return EnvDescription.from_json(raw)


@dataclass(frozen=True, slots=True)
class EnvInspect(Request[Constant]):
    """Describe a constant. `value`: True shows it, False hides it, None shows it for definitions only."""

    command: ClassVar[str] = "env.inspect"
    name: str = field(metadata=on_wire("name"))
    value: bool | None = field(default=None, metadata=on_wire("value", "bool", optional=True))
    dependency: bool | None = field(default=None, metadata=on_wire("dependency", "bool", optional=True))
    source: bool | None = field(default=None, metadata=on_wire("source", "bool", optional=True))

    def reply(self, raw: Json, _generation: int, /) -> Constant:
        return Constant.from_json(raw)


# ---- The requests about goal states and files (`goal.*`, `frontend.*`)


@dataclass(frozen=True, slots=True)
class GoalStart(Request[Started]):
    """Open a goal for a closed statement, or for the type of a constant (which can then be cited, circularly)."""

    command: ClassVar[str] = "goal.start"
    expr: str | None = field(default=None, metadata=on_wire("expr", optional=True))
    copy_from: str | None = field(default=None, metadata=on_wire("copyFrom", optional=True))
    levels: tuple[str, ...] | None = field(default=None, metadata=on_wire("levels", "texts", optional=True))

    def __post_init__(self) -> None:
        exactly_one(self, expr=self.expr, copy_from=self.copy_from)

    def reply(self, raw: Json, generation: int, /) -> Started:
        return Started.from_json(raw, generation=generation)


@dataclass(frozen=True, slots=True)
class GoalTactic(Request[TacticResult]):
    """Run a tactic (a sequence of them on newer REPLs) on a goal of a state.

    The REPL has other forms of a step, and none is sent. Some are wrong in Pantograph: its structured `have` never
    applies the value that it asks for, `calc` drops open siblings from the goal list.
    """

    command: ClassVar[str] = "goal.tactic"
    state: StateRef = field(metadata=on_wire("stateId", "state"))
    tactic: str = field(metadata=on_wire("tactic"))
    goal: int | None = field(default=None, metadata=on_wire("goalId", "natural", optional=True))

    def refused(self, error: ReplRefused) -> TacticResult:
        if not is_failed_tactic(error):
            raise error
        message = Message("error", error.desc, kind=error.kind)
        return TacticFailed((message,), interrupted=isinstance(error, LimitReached))

    def reply(self, raw: Json, generation: int, /) -> TacticResult:
        return messages.tactic_result(raw, generation=generation)


@dataclass(frozen=True, slots=True)
class GoalDelete(Request[EmptyReply]):
    """Free states; unknown ids are ignored by the REPL."""

    command: ClassVar[str] = "goal.delete"
    deleted: tuple[StateRef, ...] = field(metadata=on_wire("stateIds", "states"))

    def reply(self, _raw: Json, _generation: int, /) -> EmptyReply:
        return EmptyReply()


@dataclass(frozen=True, slots=True)
class GoalPrint(Request[StatePrint]):
    """Print a state: its goals, and the root's term."""

    command: ClassVar[str] = "goal.print"
    state: StateRef = field(metadata=on_wire("stateId", "state"))
    root_expr: bool | None = field(default=None, metadata=on_wire("rootExpr", "bool", optional=True))
    goals: bool | None = field(default=None, metadata=on_wire("goals", "bool", optional=True))

    def reply(self, raw: Json, _generation: int, /) -> StatePrint:
        return StatePrint.from_json(raw, goals_asked=bool(self.goals))


@dataclass(frozen=True, slots=True)
class FrontendProcess(Request[tuple[Unit, ...]]):
    """Elaborate a file, given as text or by (absolute) name.

    The scope is fresh whatever ran before; `inherit_env` makes the REPL's environment and scope those at the
    file's end. `invocations` is a path for the side file. `sorrys` and `type_errors_as_goals` exist in the older
    dialect alone, where both must be sent; the newer ignores or lacks them.
    """

    command: ClassVar[str] = "frontend.process"
    file: str | None = field(default=None, metadata=on_wire("file", optional=True))
    file_name: str | None = field(default=None, metadata=on_wire("fileName", optional=True))
    read_header: bool = field(default=False, metadata=on_wire("readHeader", "bool"))
    inherit_env: bool = field(default=False, metadata=on_wire("inheritEnv", "bool"))
    new_constants: bool = field(default=False, metadata=on_wire("newConstants", "bool"))
    sorrys: bool | None = field(default=None, metadata=on_wire("sorrys", "bool", optional=True))
    type_errors_as_goals: bool | None = field(
        default=None, metadata=on_wire("typeErrorsAsGoals", "bool", optional=True)
    )
    invocations: str | None = field(default=None, metadata=on_wire("invocations", optional=True))

    def __post_init__(self) -> None:
        exactly_one(self, file=self.file, file_name=self.file_name)

    def reply(self, raw: Json, generation: int, /) -> tuple[Unit, ...]:
        return messages.units(raw, generation=generation)


@dataclass(frozen=True, slots=True)
class FrontendDistil(Request[tuple[Target, ...]]):
    """Make search targets of a text's declarations with sorries; `ignore_values` makes their statements the goals."""

    command: ClassVar[str] = "frontend.distil"
    file: str = field(metadata=on_wire("file"))
    ignore_values: bool = field(metadata=on_wire("ignoreValues", "bool"))
    binder_name: str | None = field(default=None, metadata=on_wire("binderName", optional=True))

    def reply(self, raw: Json, generation: int, /) -> tuple[Target, ...]:
        return messages.targets(raw, generation=generation)


@dataclass(frozen=True, slots=True)
class FrontendTrack(Request[Track]):
    """Compare two texts: does `dst` keep every statement of `src`, without sorries and new axioms?"""

    command: ClassVar[str] = "frontend.track"
    src: str = field(metadata=on_wire("src"))
    dst: str = field(metadata=on_wire("dst"))

    def reply(self, raw: Json, _generation: int, /) -> Track:
        return Track.from_json(raw)
