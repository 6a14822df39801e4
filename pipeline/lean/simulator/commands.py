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
    symbol,
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
    FORMS,
    Made,
    Shapes,
    Shower,
    Step,
    goal_name,
    goal_number,
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
    nodes,
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


def env_catalog(core: Core, payload: Payload) -> Json:
    if core.dialect == "old":
        return {"symbols": [symbol(constant) for constant in core.env.table.values()]}
    prefix, inverted = payload.maybe_text("modulePrefix"), payload.flag("invertFilter")
    chosen = [
        constant
        for constant in core.env.table.values()
        if prefix is None or _within(constant.module, prefix) != inverted
    ]
    write_text(payload.text("filename"), "".join(f"{symbol(constant)}\n" for constant in chosen))
    return {"nSymbols": len(chosen)}


def _within(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(f"{prefix}.")


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
    "env.catalog": env_catalog,
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
    sorrys = core.dialect == "old" and (payload.flag("sorrys") or payload.flag("typeErrorsAsGoals"))
    side_file = payload.maybe_text("invocations")
    frontend = Frontend(
        env,
        distil="units" if sorrys else "",
        deadline_s=core.deadline(),
        sorry_text=SORRY_TEXTS[core.dialect],
        records=side_file is not None,
    )
    commands = frontend.run(text, start=start)
    if core.dialect == "old" and payload.flag("typeErrorsAsGoals") and any(map(_fails, commands)):
        raise Refusal("io", "simulator: outside its logic: typeErrorsAsGoals of a text with errors")
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


def _fails(command: Command) -> bool:
    return any(note.severity == "error" for note in command.notes)


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
    forms = [form for form in FORMS if payload.has(form)]
    goal, siblings, put_aside = _site(core, state, payload, check_only=len(forms) != 1)
    if len(forms) != 1:
        raise Refusal("operation", f"Exactly one of {{{', '.join(FORMS)}}} must be supplied")
    meta = state.meta.copy()
    step = Step(
        meta,
        core.session(),
        goal,
        state.fragments.get(goal.id),
        payload.text(forms[0]),
        payload.maybe_text("binderName") or "[anonymous]",
        core.dialect,
    )
    try:
        made = FORMS[forms[0]](step)
        after = _after(state, meta, step, made, siblings, put_aside)
        _confirm(after, goal)
    except ParseError as error:
        line = step.text.count("\n", 0, error.offset) + 1
        column = error.offset - (step.text.rfind("\n", 0, error.offset) + 1)
        return _failed() | {"parseError": f"<Pantograph>:{line}:{column}: {error.message}"}
    except LeanError as error:
        span = error.span if error.message.startswith(_LOGGED) else None
        return _failed() | {"messages": [tactic_message(error.message, span)]}
    except KernelError as error:
        text = f"simulator: the kernel refuses the term that the step made: {error}"
        return _failed() | {"messages": [tactic_message(text, None)]}
    return {
        "nextStateId": core.states.add(after),
        "goals": core.shapes(meta).goals(after),
        "messages": [],
        "hasSorry": goal.id in meta.values and has_sorry(meta.instantiate(goal)),
        "hasUnsafe": False,
    }


def _site(
    core: Core, state: State, payload: Payload, *, check_only: bool
) -> tuple[MVar, tuple[MVar, ...], tuple[MVar, ...]]:
    """Return the goal to act on, the siblings that stay, and those that go dormant."""
    index, resume = payload.maybe_number("goalId"), payload.maybe_flag("autoResume")
    automatic = core.options["automaticMode"] if resume is None else resume
    if index is not None and index >= len(state.goals):
        raise Refusal("index", f"Invalid goal index {index}")
    if not state.goals:
        if check_only:
            return state.root, (), ()
        if automatic:
            raise Refusal("exception", "no goals to be solved")
        raise Refusal("index", "No goals to be solved")
    chosen = state.goals[index or 0]
    others = tuple(goal for goal in state.goals if goal != chosen)
    return (chosen, others, ()) if automatic else (chosen, (), others)


def _after(
    state: State,
    meta: Meta,
    step: Step,
    made: Made,
    siblings: tuple[MVar, ...],
    put_aside: tuple[MVar, ...],
) -> State:
    if made.alone:
        siblings, put_aside = (), (*siblings, *put_aside)
    changed = {**state.fragments, **made.fragments}
    goals = (*made.goals, *(goal for goal in siblings if goal.id not in meta.values))
    return State(
        meta,
        tuple(dict.fromkeys(goals)),
        state.root,
        tuple(goal for goal in (*state.dormant, *put_aside) if goal.id not in meta.values),
        (step.goal,),
        {number: mode for number, mode in changed.items() if mode is not None and number not in meta.values},
        state.broken_root or made.breaks_root,
        state.hides_root,
    )


def _confirm(state: State, goal: MVar) -> None:
    """Check what is complete in the kernel: the goal just worked on, and the root when nothing is left."""
    meta = state.meta
    holes = (goal,) if state.broken_root else (goal, state.root)
    if not (state.goals or state.dormant or state.broken_root) and has_mvar(meta.instantiate(state.root)):
        raise KernelError("a hole of the proof was lost on the way")
    for hole in holes:
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


def goal_subsume(core: Core, payload: Payload) -> Json:
    """Fill a goal with another one that is at least as general: same target, no more hypotheses.

    Only candidates that this state has, and whose hypotheses are among the goal's own, count here; Lean looks
    further.
    """
    state = core.states.get(payload.number("stateId"))
    source_id = payload.maybe_number("srcStateId")
    source = state if source_id is None else core.states.get(source_id)
    goal = _known(state, payload.text("goal"))
    for name in payload.texts("candidates"):
        candidate = _known(source, name)
        if candidate == goal or not _covers(source, candidate, state, goal):
            continue
        holder = state if candidate.id in state.meta.holes else source
        value = holder.meta.instantiate(candidate)
        if any(node == goal for node in nodes(value)):
            return {"result": "cycle", "subsumptor": name}
        if not _makes_sense(state, value):
            continue
        meta = state.meta.copy()
        meta.assign(goal, value)
        left = replace(
            state,
            meta=meta,
            goals=tuple(g for g in state.goals if g != goal),
            dormant=tuple(g for g in state.dormant if g != goal),
            parents=(goal,),
        )
        try:
            # What fills a candidate need not be a proof of it: its state may have taken a step of the form `have`.
            _confirm(left, goal)
        except KernelError:
            continue
        return {"result": "subsumed", "subsumptor": name, "stateId": core.states.add(left)}
    return {"result": "none"}


def _known(state: State, name: str) -> MVar:
    number = goal_number(name)
    if number is None or number not in state.meta.holes:
        raise Refusal("index", f"Goal not found {name}")
    return MVar(number)


def _covers(source: State, candidate: MVar, state: State, goal: MVar) -> bool:
    wide, narrow = source.meta.holes[candidate.id], state.meta.holes[goal.id]
    known = {local.fvar for local in narrow.context}
    left, right = source.meta.instantiate(wide.type), state.meta.instantiate(narrow.type)
    same = left == right or (not (has_mvar(left) or has_mvar(right)) and state.meta.copy().unify(left, right))
    return same and all(local.fvar in known for local in wide.context)


def _makes_sense(state: State, value: Term) -> bool:
    """Return whether a term's holes are open ones of this state."""
    open_goals = {*state.goals, *state.dormant}
    return all(node in open_goals for node in nodes(value) if isinstance(node, MVar))


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
        "extraMVars": [_extra(shapes, name) for name in payload.texts("extraMVars")],
        "rootHasSorry": root is not None and has_sorry(root),
        "rootHasUnsafe": False,
        "rootHasMVar": root is not None and has_mvar(root),
    }
    if payload.flag("rootExpr") and root is not None:
        reply["root"] = shapes.expression(root)
    if payload.flag("parentExprs"):
        reply["parentExprs"] = [
            shapes.expression(meta.instantiate(parent), meta.holes[parent.id].context)
            if parent.id in meta.values
            else None
            for parent in state.parents
        ]
    return reply


def _extra(shapes: Shapes, name: str) -> Json:
    """Return what fills a hole; nothing for one that is open or unknown."""
    number, meta = goal_number(name), shapes.meta
    if number is None or number not in meta.values:
        return {}
    return shapes.expression(meta.instantiate(MVar(number)), meta.holes[number].context)


GOAL_COMMANDS = {
    "goal.start": goal_start,
    "goal.tactic": goal_tactic,
    "goal.subsume": goal_subsume,
    "goal.delete": goal_delete,
    "goal.print": goal_print,
}
