"""The state that all commands of one REPL share: its environment and scope, options, goal states and modules."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.lean.simulator import kernel
from pipeline.lean.simulator.elaboration import Command, SorryTarget, read_header
from pipeline.lean.simulator.frontend import (
    EMPTY,
    Frontend,
    ImportFailure,
    Modules,
    Range,
    conformity_failure,
    structure,
)
from pipeline.lean.simulator.kernel import (
    Constant,
    Environment,
    Invocation,
    KernelError,
    LeanError,
    Meta,
    Scope,
    Session,
)
from pipeline.lean.simulator.parser import parse_term
from pipeline.lean.simulator.protocol import Dialect, Json, Options, Payload, Refusal, State, States
from pipeline.lean.simulator.steps import (
    Shapes,
    Shower,
    goal_name,
    run_tactics,
    tactic_message,
)
from pipeline.lean.simulator.tactics import Elaborator
from pipeline.lean.simulator.terms import (
    MVar,
    ParseError,
    Sorry,
    Stx,
    Term,
    constants,
    has_mvar,
    has_sorry,
)

SORRY_TEXTS: Mapping[Dialect, str] = {
    "old": "declaration uses 'sorry'",
    "new": "declaration uses `sorry`",
}


class Core:
    """The state of one REPL between requests."""

    def __init__(self, modules: Modules, env: Environment, imports: Sequence[str], dialect: Dialect) -> None:
        self.modules = modules
        self.env = env
        self.imports = tuple(imports)
        self.dialect: Dialect = dialect
        self.scope = Scope()
        self.ranges: dict[str, Range] = {}  # of the constants that belong to no module
        self.options = Options()
        self.states = States()

    def deadline(self) -> float | None:
        """Return when the present request's time is over, by the option `timeout`."""
        limit_ms = self.options.timeout_ms
        return time.monotonic() + limit_ms / 1000 if limit_ms else None

    def session(self, *, holes_for_sorry: bool = False, unlimited: bool = False) -> Session:
        return Session(self.scope, holes_for_sorry, deadline_s=None if unlimited else self.deadline())

    def shapes(self, meta: Meta) -> Shapes:
        return Shapes(meta, self.options)

    def inherit(self, frontend: Frontend, imports: Sequence[str] | None) -> None:
        """Go on in the environment and the scope that a file ended in; `imports` where it had a header."""
        self.env, self.scope = frontend.env, frontend.scope
        if imports is not None:
            self.imports, self.ranges = tuple(imports), {}
        self.ranges.update({name: Range(*where) for name, where in frontend.ranges.items()})


def read_text(name: str) -> str:
    """Return a file's text.

    Raises:
        Refusal: it cannot be read.
    """
    try:
        return Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal("io", f"{name}: {error}") from None


def write_text(name: str, text: str) -> None:
    """Write a file.

    Raises:
        Refusal: it cannot be written.
    """
    try:
        Path(name).write_text(text, "utf-8")
    except OSError as error:
        raise Refusal("io", f"{name}: {error}") from None


# ---- The commands about the environment: `env.*`


def parsed(text: str, kind: str = "parsing") -> Stx:
    """Parse a term; what is none is refused with the given kind of error."""
    try:
        return parse_term(text)
    except ParseError as error:
        raise Refusal(kind, f"<input>:1:{error.offset}: {error.message}") from None


def checked_type(core: Core, text: str) -> tuple[Meta, Term]:
    """Elaborate a closed type and have the kernel look at it.

    Raises:
        Refusal: of kind `parsing` or `elab`.
    """
    stx = parsed(text)
    meta = Meta(core.env)
    try:
        elaborator = Elaborator(meta, core.session(unlimited=True))
        statement = elaborator.finished(elaborator.type(stx))
        kernel.check(core.env, Sorry(statement), statement)
    except (LeanError, KernelError) as error:
        raise Refusal("elab", str(error)) from None
    return meta, statement


def env_describe(core: Core, _payload: Payload) -> Json:
    return {"imports": list(core.imports), "modules": core.modules.closure(core.imports)}


def env_inspect(core: Core, payload: Payload) -> Json:
    name = payload.text("name")
    constant = core.env.get(name)
    if constant is None:
        raise Refusal("index", f"Symbol not found {name}")
    shapes = core.shapes(Meta(core.env))
    reply: Json = {"type": shapes.expression(constant.type), "isUnsafe": False, **structure(name)}
    if constant.module:
        reply["module"] = constant.module
    shows_value = payload.maybe_flag("value")
    if constant.value is not None and (shows_value or (shows_value is None and not constant.is_theorem)):
        reply["value"] = shapes.expression(constant.value)
    if payload.flag("dependency"):
        reply["typeDependency"] = constants(constant.type)
        if "value" in reply and constant.value is not None:
            found = constants(constant.value)
            reply["valueDependency"] = [*found, *(["sorryAx"] if has_sorry(constant.value) else [])]
    if payload.flag("source"):
        reply |= _source(core, constant)
    return reply


def _source(core: Core, constant: Constant) -> Json:
    """Return where a constant is defined, as far as it is known: no file for what is of no imported module."""
    module = core.modules.find(constant.module) if constant.module else None
    where = core.ranges.get(constant.name) if module is None else module.ranges.get(constant.name)
    shown: Json = {}
    if module is not None and module.path is not None:
        shown["sourceUri"] = module.path.as_uri()
    if where is not None:
        shown["sourceStart"] = {"line": where.start[0], "column": where.start[1]}
        shown["sourceEnd"] = {"line": where.end[0], "column": where.end[1]}
    return shown


ENVIRONMENT_COMMANDS = {
    "env.describe": env_describe,
    "env.inspect": env_inspect,
}


# ---- The commands about whole texts: `frontend.*`


_COMMENT = re.compile(r"/-.*?-/|--[^\n]*", re.DOTALL)


def frontend_process(core: Core, payload: Payload) -> Json:
    name, given = payload.maybe_text("fileName"), payload.maybe_text("file")
    if (name is None) == (given is None):
        raise Refusal("arguments", "Exactly one of {fileName, file} must be supplied")
    text = read_text(str(name)) if given is None else given
    env, imports, start = core.env, None, 0
    if payload.flag("readHeader"):
        imports, start = _header(text)
        env = _imported(core, imports)
    sorrys = core.dialect == "old" and payload.flag("sorrys")
    side_file = payload.maybe_text("invocations")
    frontend = Frontend(
        env,
        distil="units" if sorrys else "",
        deadline_s=core.deadline(),
        sorry_text=SORRY_TEXTS[core.dialect],
        records=side_file is not None,
    )
    commands = frontend.run(text, start=start)
    if payload.flag("typeErrorsAsGoals"):
        raise Refusal("io", "simulator: outside its logic: typeErrorsAsGoals")
    shower = Shower(text, name or "<anonymous>")
    units = [
        _unit(
            core, shower, command, with_constants=payload.flag("newConstants"), counted=side_file is not None
        )
        for command in commands
    ]
    if side_file is not None:
        write_text(side_file, _invocations(text, commands))
    if payload.flag("inheritEnv"):
        core.inherit(frontend, imports)
    return {"units": units}


def _header(text: str) -> tuple[Sequence[str], int]:
    """Return the imports and where the commands start; a header that cannot be read counts as none."""
    try:
        header = read_header(text)
    except ParseError as error:
        _lose(f"{error.message} at {error.offset}")
        return ("Init",), 0
    return header.imports or ("Init",), header.end


def _imported(core: Core, imports: Sequence[str]) -> Environment:
    """Return what the imports give: nothing at all when one of them fails, and the unit's reply does not say so.

    That is how the REPL does it: what its frontend says while it imports is lost.
    """
    try:
        return core.modules.environment(imports)
    except ImportFailure as error:
        _lose(str(error))
        return EMPTY


def _lose(message: str) -> None:
    sys.stderr.write(f"simulator: the header fails, which no reply says: {message}\n")
    sys.stderr.flush()


def _unit(core: Core, shower: Shower, command: Command, *, with_constants: bool, counted: bool) -> Json:
    shown: Json = {
        "boundary": shower.range(command.start, command.end),
        "messages": [shower.message(note) for note in command.notes],
    }
    if counted:
        shown["nInvocations"] = len(command.invocations)
    if with_constants:
        shown["newConstants"] = command.new_constants
    if command.target is not None and command.target.goals:
        target = command.target
        state = _state(target, hides_root=True)
        shown["goalStateId"] = core.states.add(state)
        shown["goals"] = core.shapes(target.meta).goals(state)
        shown["goalSrcBoundaries"] = [shower.range(*span) for span in target.spans]
    return shown


def _state(target: SorryTarget, *, hides_root: bool = False) -> State:
    return State(target.meta, target.goals, target.root, hides_root=hides_root)


def _invocations(text: str, commands: list[Command]) -> str:
    """Return the side file: one document, its units parallel to the reply's."""
    units = [{"invocations": [_record(text, one) for one in command.invocations]} for command in commands]
    return json.dumps({"units": units}, ensure_ascii=False)


def _record(text: str, invocation: Invocation) -> Json:
    return {
        "goalBefore": invocation.goals_before,
        "goalAfter": invocation.goals_after,
        "tactic": _reprinted(text, invocation.start, invocation.end),
        "usedConstants": list(invocation.used_constants),
    }


def _reprinted(text: str, start: int, end: int) -> str:
    """Return a tactic's text without comments and blank lines."""
    lines = _COMMENT.sub("", text[start:end]).split("\n")
    return "\n".join(kept for line in lines if (kept := line.rstrip()))


def frontend_distil(core: Core, payload: Payload) -> Json:
    text = payload.text("file")
    frontend = Frontend(core.env, distil="ignore" if payload.flag("ignoreValues") else "keep")
    commands = frontend.run(text)
    shower = Shower(text, "<anonymous>")
    errors = [shower.line(note) for command in commands for note in command.notes if note.severity == "error"]
    if errors:
        raise Refusal("io", "\n".join(errors))
    targets: list[Json] = []
    for target in frontend.targets:
        state = _state(target)
        targets.append({"stateId": core.states.add(state), "goals": core.shapes(target.meta).goals(state)})
    return {"targets": targets}


def frontend_track(core: Core, payload: Payload) -> Json:
    sides = [(Frontend(core.env), payload.text(name)) for name in ("src", "dst")]
    commands = [frontend.run(text) for frontend, text in sides]
    if any(note.severity == "error" for side in commands for command in side for note in command.notes):
        src, dst = (
            Shower(text, "<anonymous>").messages(side)
            for (_, text), side in zip(sides, commands, strict=True)
        )
        return {"srcMessages": src, "dstMessages": dst}
    reply: Json = {"srcMessages": [], "dstMessages": []}
    failure = conformity_failure(core.env, sides[0][0], sides[1][0])
    return reply if failure is None else reply | {"failure": failure}


FRONTEND_COMMANDS = {
    "frontend.process": frontend_process,
    "frontend.distil": frontend_distil,
    "frontend.track": frontend_track,
}


# ---- The commands about goal states: `goal.*`


# What Lean logs while it goes on, instead of throwing it: only these errors say where in the tactic they stand.
_LOGGED = ("unsolved goals", "don't know how to synthesize")


def goal_start(core: Core, payload: Payload) -> Json:
    expr, copied = payload.maybe_text("expr"), payload.maybe_text("copyFrom")
    if (expr is None) == (copied is None):
        raise Refusal("arguments", "Exactly one of {expr, copyFrom} must be supplied")
    if expr is not None:
        meta, statement = checked_type(core, expr)
    else:
        constant = core.env.get(str(copied))
        if constant is None:
            raise Refusal("index", f"Symbol not found: {copied}")
        meta, statement = Meta(core.env), constant.type
    root = meta.hole(statement, (), is_goal=True)
    return {"stateId": core.states.add(State(meta, (root,), root)), "root": goal_name(root.id)}


def goal_tactic(core: Core, payload: Payload) -> Json:
    state = core.states.get(payload.number("stateId"))
    index, text = payload.maybe_number("goalId"), payload.maybe_text("tactic")
    if index is not None and index >= len(state.goals):
        raise Refusal("index", f"Invalid goal index {index}")
    if text is None:
        raise Refusal("operation", "simulator: outside its logic: a step that is no tactic")
    if not state.goals:
        raise Refusal("exception", "no goals to be solved")
    goal, meta = state.goals[index or 0], state.meta.copy()
    try:
        made = run_tactics(meta, core.session(), goal, text, core.dialect)
        left = (*made, *(one for one in state.goals if one != goal and one.id not in meta.values))
        after = replace(state, meta=meta, goals=tuple(dict.fromkeys(left)))
        _confirm(after, goal)
    except ParseError as error:
        line = text.count("\n", 0, error.offset) + 1
        column = error.offset - (text.rfind("\n", 0, error.offset) + 1)
        return _failed() | {"parseError": f"<Pantograph>:{line}:{column}: {error.message}"}
    except LeanError as error:
        span = error.span if error.message.startswith(_LOGGED) else None
        return _failed() | {"messages": [tactic_message(error.message, span)]}
    except KernelError as error:
        said = f"simulator: the kernel refuses the term that the step made: {error}"
        return _failed() | {"messages": [tactic_message(said, None)]}
    return {
        "nextStateId": core.states.add(after),
        "goals": core.shapes(meta).goals(after),
        "messages": [],
        "hasSorry": goal.id in meta.values and has_sorry(meta.instantiate(goal)),
        "hasUnsafe": False,
    }


def _confirm(state: State, goal: MVar) -> None:
    """Check what is complete in the kernel: the goal just worked on, and the root when nothing is left."""
    meta = state.meta
    if not state.goals and has_mvar(meta.instantiate(state.root)):
        raise KernelError("a hole of the proof was lost on the way")
    for hole in (goal, state.root):
        term, kind = meta.instantiate(hole), meta.instantiate(meta.holes[hole.id].type)
        if has_mvar(term) or has_mvar(kind):
            continue
        context = {
            local.fvar: meta.instantiate(meta.locals[local.fvar]) for local in meta.holes[hole.id].context
        }
        if not any(has_mvar(fact) for fact in context.values()):
            kernel.check(meta.env, term, kind, context)


def _failed() -> Json:
    return {"hasSorry": False, "hasUnsafe": False}


def goal_subsume(_core: Core, _payload: Payload) -> Json:
    """Refuse: a client tells the dialect by whether the command is known, and never uses it."""
    raise Refusal("operation", "simulator: outside its logic: goal.subsume")


def goal_delete(core: Core, payload: Payload) -> Json:
    core.states.delete(payload.numbers("stateIds"))
    return {}


def goal_print(core: Core, payload: Payload) -> Json:
    state = core.states.get(payload.number("stateId"))
    meta = state.meta.copy()  # printing counts steps and makes names, none of which are the state's
    shapes = core.shapes(meta)
    root = None if state.hides_root else meta.instantiate(state.root)
    if root == state.root:
        root = None
    reply: Json = {
        "goals": shapes.goals(state) if payload.flag("goals") else [],
        "extraMVars": [],
        "rootHasSorry": root is not None and has_sorry(root),
        "rootHasUnsafe": False,
        "rootHasMVar": root is not None and has_mvar(root),
    }
    if payload.flag("rootExpr") and root is not None:
        reply["root"] = shapes.expression(root)
    return reply


GOAL_COMMANDS = {
    "goal.start": goal_start,
    "goal.tactic": goal_tactic,
    "goal.subsume": goal_subsume,
    "goal.delete": goal_delete,
    "goal.print": goal_print,
}
