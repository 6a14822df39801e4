"""Try a REPL that was just built, without a network: what version it says it is, and whether it opens a goal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pipeline.lean.backend import Sandbox
from pipeline.lean.build.lake import Bounds, LakeRunner, Outcome
from pipeline.lean.toolchain.toolchains import stand_in_problem

_GOAL = '{"cmd":"goal.start","payload":{"expr":"True → True"}}'
_SCRIPT = 'printf "%s\\n" "$1" | "$0" Init'
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of it. `problem` is "" or why this REPL is not kept; `output` is that of the last step."""

    problem: str
    says: str
    output: Outcome


def try_repl(repl: Path, sysroot: Path, *, sandbox: Sandbox, folder: Path, seconds: float) -> Trial:
    """Run it twice, each time for so many seconds at most, in `folder`, which is made for it.

    Raises:
        pipeline.lean.sandbox.command.SandboxError: there is no sandbox.
    """
    folder.mkdir()
    bounds = Bounds(seconds)
    environment = {"LEAN_SYSROOT": str(sysroot), "PATH": f"{sysroot}/bin:/usr/bin:/bin"}
    runner = LakeRunner(repl, sysroot, sandbox, folder, readable=(repl.parent,), environment=environment)
    said = runner.run("--version", bounds=bounds)
    if not said.ok:
        return Trial(f"the new REPL does not say its version ({said.explain(bounds)})", "", said)
    says = " ".join(said.output.split())[:_SHOWN_CHARACTERS]
    if problem := stand_in_problem(repl, sysroot=sysroot, says=says):
        return Trial(problem, says, said)
    asked = runner.execute(("/bin/sh", "-c", _SCRIPT, str(repl), _GOAL), bounds=bounds)
    if not asked.ok:
        return Trial(f"the new REPL does not start ({asked.explain(bounds)})", says, asked)
    lines = asked.output.splitlines()
    answers = lines[lines.index("ready.") + 1 :] if "ready." in lines else []
    opened = any(_opens_goal(line) for line in answers)
    return Trial("" if opened else "the new REPL did not open a goal", says, asked)


def _opens_goal(line: str) -> bool:
    try:
        reply = json.loads(line)
    except ValueError:
        return False
    return isinstance(reply, dict) and "stateId" in reply and "error" not in reply
