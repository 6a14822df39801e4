"""The protocol: one request object to one reply object, over states, options and the environment.

Speaks the newer dialect of `pantograph-repl`. Nothing in here knows logic; nothing outside knows the wire.
"""

from __future__ import annotations

import bisect
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pipeline.lean.simulator import VERSION, kernel
from pipeline.lean.simulator.elaborator import Elaborator
from pipeline.lean.simulator.frontend import Command, Frontend, Note, byte_offsets, line_starts, read_header
from pipeline.lean.simulator.kernel import Environment, KernelError
from pipeline.lean.simulator.meta import Interrupted, LeanError, Meta
from pipeline.lean.simulator.modules import ImportFailure, Modules
from pipeline.lean.simulator.printer import Printer
from pipeline.lean.simulator.scope import Scope, Session
from pipeline.lean.simulator.syntax import ParseError
from pipeline.lean.simulator.tactic_parser import parse_tactics, parse_term
from pipeline.lean.simulator.tactics import Runner
from pipeline.lean.simulator.terms import MVar, Sorry, Term, constants, has_mvar, has_sorry

Json = dict[str, object]
T = TypeVar("T")


class Refusal(Exception):  # noqa: N818 - named by what happened
    """An error object: kind and description."""

    def __init__(self, kind: str, desc: str) -> None:
        super().__init__(desc)
        self.kind = kind
        self.desc = desc


@dataclass(frozen=True, slots=True)
class State:
    """A goal state: holes, the goals that are shown, the root that they serve.

    `dormant` are the siblings that steps without `autoResume` have put aside: still open, no longer shown.
    """

    meta: Meta
    goals: tuple[MVar, ...]
    root: MVar
    dormant: tuple[MVar, ...] = ()


@dataclass(slots=True)
class Options:
    """The REPL's options, by their wire names and with their defaults."""

    values: dict[str, bool | int]

    @classmethod
    def default(cls) -> Options:
        return cls(
            {
                "printJsonPretty": False,
                "printExprPretty": True,
                "printExprAST": False,
                "printDependentMVars": False,
                "noRepeat": False,
                "printAuxDecls": False,
                "printImplementationDetailHyps": False,
                "automaticMode": True,
                "timeout": 0,
            }
        )


class Server:
    """One REPL: its environment, scope, options and goal states."""

    def __init__(self, modules: Modules, env: Environment) -> None:
        self.modules = modules
        self.env = env
        self.scope = Scope()
        self.options = Options.default()
        self.states: dict[int, State] = {}
        self.next_id = 0
        self.commands: dict[str, Callable[[Json], Json]] = {
            "reset": self.reset,
            "stat": self.stat,
            "options.set": self.options_set,
            "options.print": self.options_print,
            "env.describe": self.env_describe,
            "env.inspect": self.env_inspect,
            "goal.start": self.goal_start,
            "goal.tactic": self.goal_tactic,
            "goal.print": self.goal_print,
            "goal.delete": self.goal_delete,
            "frontend.process": self.frontend_process,
            "frontend.distil": self.frontend_distil,
        }

    def answer(self, command: str, payload: Json) -> Json:
        """Serve one request."""
        method = self.commands.get(command)
        try:
            if method is None:
                raise Refusal("command", f"Unknown command {command}")
            return method(payload)
        except Refusal as error:
            return {"error": error.kind, "desc": error.desc}
        except Interrupted:
            return {"error": "io", "desc": "interrupt"}
        except RecursionError:
            return {"error": "io", "desc": "maximum recursion depth has been reached (simulator)"}
        except Exception as error:  # noqa: BLE001 - the loop's border: one bad request must not end the process
            traceback.print_exc()
            return {"error": "io", "desc": f"unexpected internal error: {error!r} (simulator)"}

    def _deadline(self) -> float | None:
        limit_ms = self.options.values["timeout"]
        return time.monotonic() + limit_ms / 1000 if limit_ms else None

    # ---- service

    def reset(self, _payload: Json) -> Json:
        count = len(self.states)
        self.states.clear()
        self.next_id = 0
        return {"nGoals": count}

    def stat(self, _payload: Json) -> Json:
        return {"nGoals": len(self.states), "simulator": VERSION}

    def options_set(self, payload: Json) -> Json:
        for name, value in payload.items():
            if name not in self.options.values or value is None:
                continue
            if type(value) is not type(self.options.values[name]):
                wanted = "Natural number" if name == "timeout" else "Bool"
                raise Refusal(
                    "command",
                    f"Unable to parse json: Pantograph.Protocol.OptionsSet.{name}?: {wanted} expected",
                )
            assert isinstance(value, bool | int)
            self.options.values[name] = value
        return {}

    def options_print(self, _payload: Json) -> Json:
        return dict(self.options.values)

    def env_describe(self, _payload: Json) -> Json:
        loaded = self.modules.loaded()
        return {"imports": loaded, "modules": loaded}

    def env_inspect(self, payload: Json) -> Json:
        name = _required(payload, "name", str, "EnvInspect")
        constant = self.env.get(name)
        if constant is None:
            raise Refusal("index", f"Symbol not found {name}")
        meta = Meta(self.env)
        reply: Json = {"type": self._expression(Printer(meta), constant.type), "isUnsafe": False}
        shows_value = payload.get("value")
        if constant.module:
            reply["module"] = constant.module
        if constant.value is not None and (shows_value or (shows_value is None and not constant.is_theorem)):
            reply["value"] = self._expression(Printer(meta), constant.value)
        if payload.get("dependency"):
            reply["typeDependency"] = constants(constant.type)
            if "value" in reply and constant.value is not None:
                found = constants(constant.value)
                reply["valueDependency"] = [*found, *(["sorryAx"] if has_sorry(constant.value) else [])]
        return reply

    # ---- goals

    def _store(self, state: State) -> int:
        number = self.next_id
        self.next_id += 1
        self.states[number] = state
        return number

    def _state(self, payload: Json, command: str) -> State:
        number = _required(payload, "stateId", int, command)
        state = self.states.get(number)
        if state is None:
            raise Refusal("index", f"Invalid state index {number}")
        return state

    def goal_start(self, payload: Json) -> Json:
        expr, copied = payload.get("expr"), payload.get("copyFrom")
        if (expr is None) == (copied is None):
            raise Refusal("command", "Exactly one of {expr, copyFrom} must be supplied")
        meta = Meta(self.env)
        if copied is not None:
            constant = self.env.get(str(copied))
            if constant is None:
                raise Refusal("index", f"Symbol not found: {copied}")
            statement = constant.type
        else:
            try:
                stx = parse_term(str(expr))
            except ParseError as error:
                raise Refusal("parse", f"<input>:1:{error.offset}: {error.message}") from None
            try:
                elaborator = Elaborator(meta, Session(self.scope))
                statement = elaborator.finished(elaborator.type(stx))
                kernel.check(self.env, Sorry(statement), statement)
            except (LeanError, KernelError) as error:
                raise Refusal("elab", str(error)) from None
        root = meta.hole(statement, (), is_goal=True)
        return {"stateId": self._store(State(meta, (root,), root)), "root": f"_uniq.{root.id}"}

    def goal_tactic(self, payload: Json) -> Json:
        state = self._state(payload, "GoalTactic")
        forms = [f for f in ("tactic", "mode", "expr", "have", "let", "draft") if payload.get(f) is not None]
        if len(forms) != 1:
            raise Refusal("command", "Exactly one of {tactic, mode, expr, have, let, draft} must be supplied")
        if forms != ["tactic"]:
            raise Refusal("command", f"simulator: outside its protocol: goal.tactic with {forms[0]}")
        text = _required(payload, "tactic", str, "GoalTactic")
        focus, put_aside = self._site(state, payload)
        dormant = (*state.dormant, *put_aside)
        try:
            block = parse_tactics(text)
        except ParseError as error:
            line = text.count("\n", 0, error.offset) + 1
            column = error.offset - (text.rfind("\n", 0, error.offset) + 1)
            return _failed() | {"parseError": f"<Pantograph>:{line}:{column}: {error.message}"}
        meta = state.meta.copy()
        runner = Runner(meta, Session(self.scope, deadline_s=self._deadline()))
        try:
            made = runner.block(block, list(focus[:1]))
            goals = tuple(made) + tuple(goal for goal in focus[1:] if goal.id not in meta.values)
            self._confirm(meta, focus[0], state.root, open_goals=bool(goals or dormant))
        except LeanError as error:
            return _failed() | {"messages": [_tactic_message(error.message, error.span)]}
        except KernelError as error:
            text = f"simulator: the kernel refuses the term that the tactic made: {error}"
            return _failed() | {"messages": [_tactic_message(text, None)]}
        step = meta.instantiate(focus[0])
        number = self._store(State(meta, goals, state.root, dormant))
        return {
            "nextStateId": number,
            "goals": [self._goal(meta, goal) for goal in goals],
            "messages": [],
            "hasSorry": has_sorry(step),
            "hasUnsafe": False,
        }

    def _site(self, state: State, payload: Json) -> tuple[tuple[MVar, ...], tuple[MVar, ...]]:
        """Return the goals that stay, the one to act on first, and the siblings that go dormant."""
        if not state.goals:
            raise Refusal("exception", "no goals to be solved")
        number = payload.get("goalId")
        index = 0 if number is None else number
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(state.goals):
            raise Refusal("index", f"Invalid goal index {index}")
        resume = payload.get("autoResume")
        automatic = self.options.values["automaticMode"] if resume is None else resume
        chosen = state.goals[index]
        others = state.goals[:index] + state.goals[index + 1 :]
        return ((chosen, *others), ()) if automatic else ((chosen,), others)

    def _confirm(self, meta: Meta, goal: MVar, root: MVar, *, open_goals: bool) -> None:
        """Have the kernel check what is complete: the goal just worked on, and the root when nothing is left."""
        if not open_goals and has_mvar(meta.instantiate(root)):
            raise KernelError("a hole of the proof was lost on the way")
        for hole in (goal, root):
            term, kind = meta.instantiate(hole), meta.instantiate(meta.holes[hole.id].type)
            if has_mvar(term) or has_mvar(kind):
                continue
            context = {}
            for local in meta.holes[hole.id].context:
                context[local.fvar] = meta.instantiate(meta.locals[local.fvar])
            if not any(has_mvar(fact) for fact in context.values()):
                kernel.check(meta.env, term, kind, context)

    def goal_print(self, payload: Json) -> Json:
        state = self._state(payload, "GoalPrint")
        meta, root = state.meta, state.meta.instantiate(state.root)
        assigned = root != state.root
        reply: Json = {
            "goals": [self._goal(meta, goal) for goal in state.goals] if payload.get("goals") else [],
            "extraMVars": [],
            "rootHasSorry": assigned and has_sorry(root),
            "rootHasUnsafe": False,
            "rootHasMVar": assigned and has_mvar(root),
        }
        if payload.get("rootExpr") and assigned:
            reply["root"] = self._expression(Printer(meta), root)
        if payload.get("parentExprs"):
            reply["parentExprs"] = [self._expression(Printer(meta), root)] if assigned else []
        return reply

    def goal_delete(self, payload: Json) -> Json:
        for number in _required(payload, "stateIds", list, "GoalDelete"):
            self.states.pop(number, None)
        return {}

    # ---- files

    def frontend_process(self, payload: Json) -> Json:
        name, text = payload.get("fileName"), payload.get("file")
        if (name is None) == (text is None):
            raise Refusal("command", "Exactly one of {fileName, file} must be supplied")
        header = _required(payload, "readHeader", bool, "FrontendProcess")
        inherit = _required(payload, "inheritEnv", bool, "FrontendProcess")
        new_constants = _required(payload, "newConstants", bool, "FrontendProcess")
        if payload.get("invocations") is not None:
            raise Refusal("command", "simulator: outside its protocol: invocations")
        text = self._read(str(name)) if text is None else str(text)
        env, start = self.env, 0
        if header:
            try:
                head = read_header(text)
                env, start = self.modules.environment(head.imports), head.end
            except (ImportFailure, ParseError) as error:
                raise Refusal("io", str(error)) from None
        frontend = Frontend(env, deadline_s=self._deadline())
        commands = frontend.run(text, start=start)
        if inherit:
            self.env, self.scope = frontend.env, frontend.scope
        shown = Shower(text, str(name) if name is not None else "<anonymous>")
        return {"units": [shown.unit(command, new_constants=new_constants) for command in commands]}

    def _read(self, name: str) -> str:
        try:
            return Path(name).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Refusal("io", f"{name}: {error}") from None

    def frontend_distil(self, payload: Json) -> Json:
        text = _required(payload, "file", str, "FrontendDistil")
        ignore = _required(payload, "ignoreValues", bool, "FrontendDistil")
        frontend = Frontend(self.env, distil="ignore" if ignore else "keep")
        commands = frontend.run(text)
        shown = Shower(text, "<anonymous>")
        errors = [
            shown.line(note) for command in commands for note in command.notes if note.severity == "error"
        ]
        if errors:
            raise Refusal("io", "\n".join(errors))
        targets: list[Json] = []
        for target in frontend.targets:
            number = self._store(State(target.meta, target.goals, target.root))
            targets.append(
                {"stateId": number, "goals": [self._goal(target.meta, goal) for goal in target.goals]}
            )
        return {"targets": targets}

    # ---- shapes

    def _expression(self, printer: Printer, term: Term) -> Json:
        return {"pp": printer.show(term)} if self.options.values["printExprPretty"] else {}

    def _goal(self, meta: Meta, goal: MVar) -> Json:
        hole = meta.holes[goal.id]
        printer = Printer(meta, hole.context)
        shown: Json = {
            "name": f"_uniq.{goal.id}",
            "fragment": "tactic",
            "target": self._expression(printer, hole.type),
            "vars": [
                {
                    "name": f"_uniq.{local.fvar}",
                    "userName": local.name,
                    "isInaccessible": local.name.endswith("✝"),
                    "type": self._expression(printer, meta.locals[local.fvar]),
                }
                for local in hole.context
            ],
        }
        if hole.tag:
            shown["userName"] = hole.tag
        return shown


class Shower:
    """Turns code points of one text into the wire's positions and byte ranges."""

    def __init__(self, text: str, file_name: str) -> None:
        self.file_name = file_name
        self.starts = list(line_starts(text))
        self.bytes = byte_offsets(text)

    def position(self, offset: int) -> Json:
        line = bisect.bisect_right(self.starts, offset)
        return {"line": line, "column": offset - self.starts[line - 1]}

    def message(self, note: Note) -> Json:
        return {
            "fileName": self.file_name,
            "pos": self.position(note.start),
            "endPos": self.position(note.end),
            "keepFullRange": False,
            "severity": note.severity,
            "isSilent": False,
            "caption": "",
            "data": note.text,
            "kind": note.kind,
        }

    def line(self, note: Note) -> str:
        line = bisect.bisect_right(self.starts, note.start)
        return f"{self.file_name}:{line}:{note.start - self.starts[line - 1]}: {note.severity}: {note.text}"

    def unit(self, command: Command, *, new_constants: bool) -> Json:
        shown: Json = {
            "boundary": [self.bytes(command.start), self.bytes(command.end)],
            "messages": [self.message(note) for note in command.notes],
        }
        if new_constants:
            shown["newConstants"] = command.new_constants
        return shown


def _failed() -> Json:
    return {"hasSorry": False, "hasUnsafe": False}


def _tactic_message(text: str, span: tuple[int, int] | None) -> Json:
    column = span[0] if span else 0
    return {
        "fileName": "<Pantograph>",
        "pos": {"line": 0, "column": column},
        "endPos": {"line": 0, "column": span[1]} if span else None,
        "keepFullRange": False,
        "severity": "error",
        "isSilent": False,
        "caption": "",
        "data": text,
        "kind": "[anonymous]",
    }


_NAMES = {str: "String", int: "Natural number", bool: "Bool", list: "Array"}


def _required(payload: Mapping[str, object], key: str, kind: type[T], command: str) -> T:
    value = payload.get(key)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Refusal(
            "command", f"Unable to parse json: Pantograph.Protocol.{command}.{key}: {_NAMES[kind]} expected"
        )
    return value
