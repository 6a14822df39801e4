"""The commands about whole texts: `frontend.*`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence

from pipeline.lean.simulator.conformity import conformity_failure
from pipeline.lean.simulator.core import SORRY_TEXTS, Core, read_text, write_text
from pipeline.lean.simulator.frontend import Frontend
from pipeline.lean.simulator.kernel import Environment
from pipeline.lean.simulator.modules import EMPTY, ImportFailure
from pipeline.lean.simulator.protocol import Json, Payload, Refusal
from pipeline.lean.simulator.scope import Invocation
from pipeline.lean.simulator.shapes import Shower
from pipeline.lean.simulator.states import State
from pipeline.lean.simulator.syntax import ParseError
from pipeline.lean.simulator.units import Command, SorryTarget, read_header

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


def frontend_refactor(_core: Core, _payload: Payload) -> Json:
    raise Refusal(
        "frontend", "simulator: outside its logic: frontend.refactor makes subtypes, which it has not"
    )


FRONTEND_COMMANDS = {
    "frontend.process": frontend_process,
    "frontend.distil": frontend_distil,
    "frontend.track": frontend_track,
    "frontend.refactor": frontend_refactor,
}
