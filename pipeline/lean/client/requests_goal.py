"""The requests about goal states and files (`goal.*`, `frontend.*`).

States that some requests make carry a `doubt`: the reason why no goals being left there would mean nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pipeline.lean.client import messages
from pipeline.lean.client.errors import LimitReached, ReplRefused, is_failed_tactic
from pipeline.lean.client.goals import Message, StateRef
from pipeline.lean.client.messages import StatePrint, TacticFailed, TacticResult, Target, Unit
from pipeline.lean.client.replies import Done, Started, Track
from pipeline.lean.client.request_base import Request, exactly_one, on_wire
from pipeline.lean.client.wire import Json

DOUBT_HAVE = "the structured `have` never applies the value that it asks for"
DOUBT_CALC = "`calc` steps drop open siblings from the goal list"
DOUBT_DORMANT = "autoResume=false put sibling goals aside"
DOUBT_LOADED = "it was read from a file, which does not tell the steps that led to it"


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
    """Act on a goal of a state, in exactly one form.

    `tactic` is a tactic (a sequence of them on newer REPLs); `mode` enters or leaves a fragment (`conv`, `calc`,
    `tactic`); `expr` is a term for the goal; `have`, `let` (with `binder_name`) and `draft` are structured.
    `auto_resume=False` puts the siblings aside, so that no goals then means nothing; this program never sends
    it. It, `have` and `calc` leave their `doubt` in the state that they make.
    """

    command: ClassVar[str] = "goal.tactic"
    state: StateRef = field(metadata=on_wire("stateId", "state"))
    tactic: str | None = field(default=None, metadata=on_wire("tactic", optional=True))
    goal: int | None = field(default=None, metadata=on_wire("goalId", "natural", optional=True))
    auto_resume: bool | None = field(default=None, metadata=on_wire("autoResume", "bool", optional=True))
    mode: str | None = field(default=None, metadata=on_wire("mode", optional=True))
    expr: str | None = field(default=None, metadata=on_wire("expr", optional=True))
    have: str | None = field(default=None, metadata=on_wire("have", optional=True))
    let: str | None = field(default=None, metadata=on_wire("let", optional=True))
    draft: str | None = field(default=None, metadata=on_wire("draft", optional=True))
    binder_name: str | None = field(default=None, metadata=on_wire("binderName", optional=True))

    def __post_init__(self) -> None:
        exactly_one(
            self,
            tactic=self.tactic,
            mode=self.mode,
            expr=self.expr,
            have=self.have,
            let=self.let,
            draft=self.draft,
        )

    @property
    def doubt(self) -> str:
        if self.state.doubt:
            return self.state.doubt
        if self.have is not None:
            return DOUBT_HAVE
        if self.mode == "calc":
            return DOUBT_CALC
        return DOUBT_DORMANT if self.auto_resume is False else ""

    def refused(self, error: ReplRefused) -> TacticResult:
        if not is_failed_tactic(error):
            raise error
        message = Message("error", error.desc, kind=error.kind)
        return TacticFailed((message,), interrupted=isinstance(error, LimitReached))

    def reply(self, raw: Json, generation: int, /) -> TacticResult:
        return messages.tactic_result(raw, generation=generation, doubt=self.doubt)


@dataclass(frozen=True, slots=True)
class GoalDelete(Request[Done]):
    """Free states; unknown ids are ignored by the REPL."""

    command: ClassVar[str] = "goal.delete"
    deleted: tuple[StateRef, ...] = field(metadata=on_wire("stateIds", "states"))

    def reply(self, _raw: Json, _generation: int, /) -> Done:
        return Done()


@dataclass(frozen=True, slots=True)
class GoalPrint(Request[StatePrint]):
    """Print a state: goals, the root's term, the parents' terms, further metavariables by name."""

    command: ClassVar[str] = "goal.print"
    state: StateRef = field(metadata=on_wire("stateId", "state"))
    root_expr: bool | None = field(default=None, metadata=on_wire("rootExpr", "bool", optional=True))
    parent_exprs: bool | None = field(default=None, metadata=on_wire("parentExprs", "bool", optional=True))
    goals: bool | None = field(default=None, metadata=on_wire("goals", "bool", optional=True))
    extra_mvars: tuple[str, ...] | None = field(
        default=None, metadata=on_wire("extraMVars", "texts", optional=True)
    )

    def reply(self, raw: Json, _generation: int, /) -> StatePrint:
        # Goals that were not asked for are an empty list on the wire, which must not read as "none left".
        unasked = "" if self.goals else "its goals were not asked for"
        return StatePrint.from_json(raw, doubt=self.doubt or unasked)


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
    """Make search targets of a text's declarations with sorrys; `ignore_values` makes their statements the goals."""

    command: ClassVar[str] = "frontend.distil"
    file: str = field(metadata=on_wire("file"))
    ignore_values: bool = field(metadata=on_wire("ignoreValues", "bool"))
    binder_name: str | None = field(default=None, metadata=on_wire("binderName", optional=True))

    def reply(self, raw: Json, generation: int, /) -> tuple[Target, ...]:
        return messages.targets(raw, generation=generation)


@dataclass(frozen=True, slots=True)
class FrontendTrack(Request[Track]):
    """Compare two texts: does `dst` keep every statement of `src`, without sorrys and new axioms?"""

    command: ClassVar[str] = "frontend.track"
    src: str = field(metadata=on_wire("src"))
    dst: str = field(metadata=on_wire("dst"))

    def reply(self, raw: Json, _generation: int, /) -> Track:
        return Track.from_json(raw)
