"""Backends and programs of `scripted_repl.py`, the stand-in for pantograph-repl, with wished-for answers.

script = Script(
    sorries={"theorem swap": ["p q : Prop\\nh : p ∧ q\\n⊢ q ∧ p"]},
    tactics={("q ∧ p", "constructor"): ["q", "p"], ("q", "exact h.2"): [], ("p", "exact h.1"): []},
    errors={"exact h.3": "invalid projection"},
)
backend(script)                       # for a pool or a job; sandbox "none"
write_repl(folder, script)            # an executable for `[lean] repl`, with a lean-toolchain beside it
ReplPool(start=starts(script))        # what a pool starts is an object of this process: for searches
in_process(monkeypatch, script)       # the same, for the pools that a test does not make
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.dialect import Dialect
from pipeline.lean.client.errors import ReplDied, ReplTimeout
from pipeline.lean.client.repl import Repl
from pipeline.lean.pool import pool
from pipeline.lean.pool.pool import ReplKey
from pipeline.models.tactics.goals import GoalContext, Places
from tests.support.lean import scripted_repl
from tests.support.lean.toolchain import VERSION, interpreter_in_usr

Outcome = Sequence[str] | str | Mapping[str, object]
PROGRAM = Path(scripted_repl.__file__)
NOWHERE = LeanBackend("pantograph", ("/nonexistent/repl",), "a script in its place", "", sandbox="none")
"""For pools that start something else."""


def bare_place(lean: LeanBackend, project: Path) -> Places:
    """Return one place for all goals, with nothing imported but `Init`."""
    place = GoalContext(ReplKey(lean, project, ("Init",)))
    return lambda _row: place


@dataclass(frozen=True, slots=True)
class Script:
    """What a scripted REPL answers. Goals are written as Lean prints them; a target alone keeps the hypotheses.

    Attributes:
        sorries: the goals of a declaration with a sorry, by a part of the text that is before the sorry.
        errors: an error message, by the part of a text that it is about; a statement for `goal.start`.
        tactics: what a tactic makes of a goal (a whole one, a target, or "" for any): new goals, why it fails, or
            fields of the reply (`{"goals": [], "hasSorry": True}`, `{"parseError": …}`; `messages` are texts).
    """

    sorries: Mapping[str, Sequence[str]] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    tactics: Mapping[tuple[str, str], Outcome] = field(default_factory=dict)

    def table(self) -> dict[str, Any]:
        """Return it as the program takes it."""
        return {
            "sorries": dict(self.sorries),
            "errors": dict(self.errors),
            "tactics": [[goal, tactic, outcome] for (goal, tactic), outcome in self.tactics.items()],
        }


def arguments(
    script: Script | None = None,
    *,
    dialect: str = "newer",
    seed: int | None = None,
    marker: str = "",
    faults: Mapping[str, float] | None = None,
    start_fault: float = 0.0,
) -> list[str]:
    """Return the program's arguments; without a script it answers by its rule."""
    found = [f"--dialect={dialect}", f"--start-fault={start_fault}"]
    if seed is not None:
        found.append(f"--seed={seed}")
    found += [f"--fault={name}={probability}" for name, probability in (faults or {}).items()]
    if marker:
        found.append(f"--marker={marker}")
    if script is not None:
        found.append(f"--script={json.dumps(script.table(), ensure_ascii=False)}")
    return found


def backend(script: Script | None = None, **options: Any) -> LeanBackend:
    """Return what starts the program in the place of pantograph-repl; the options are those of `arguments`."""
    return LeanBackend(
        kind="pantograph",
        argv=(sys.executable, "-I", "-S", str(PROGRAM), *arguments(script, **options)),
        detail="a scripted stand-in, not Lean",
        toolchain="",
        sandbox="none",
    )


def write_repl(
    folder: Path,
    script: Script | None = None,
    *,
    toolchain: str = f"leanprover/lean4:{VERSION}",
    **options: Any,
) -> Path:
    """Write `folder`/pantograph-repl, which needs no other file of ours, and the lean-toolchain beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "pantograph-repl"
    interpreter = interpreter_in_usr() or sys.executable
    given = arguments(script, **options)
    program.write_text(
        f"#!{interpreter} -IS\n# A stand-in of tests.support, not Lean.\nimport sys\n"
        f"made = {{'__name__': 'scripted_repl'}}\n"
        f"exec({PROGRAM.read_text('utf-8')!r}, made)\nmade['main']({given!r} + sys.argv[1:])\n",
        "utf-8",
    )
    program.chmod(0o755)
    (folder / "lean-toolchain").write_text(f"{toolchain}\n", "utf-8")
    return program


Respond = Callable[[dict[str, Any]], Awaitable[Mapping[str, object]]]


class InProcess:
    """What a `Repl` speaks to where no process is started.

    Attributes:
        sent: every line so far.
    """

    pid = 2**31 - 1  # no process has this one, and no signal to it reaches any
    panicked = False
    stderr = ""

    def __init__(self, respond: Respond) -> None:
        """Take what answers a request, or raises what the process has died of."""
        self._respond = respond
        self.dead: ReplDied | None = None
        self.sent: list[bytes] = []

    @property
    def running(self) -> bool:
        return self.dead is None

    def rss_bytes(self) -> int:
        return 0

    async def exchange(self, data: bytes, _limit_s: float, what: str) -> bytes:
        await asyncio.sleep(0)
        if self.dead is not None:
            raise self.dead
        self.sent.append(data)
        try:
            answer = await self._respond(json.loads(data))
        except ReplDied as error:
            raise await self.fatal(type(error), f"{what}: {error}") from error
        except asyncio.CancelledError:
            await self.fatal(ReplDied, f"{what}: given up with its answer outstanding")
            raise
        return json.dumps(answer, ensure_ascii=False).encode()

    async def fatal(self, kind: type[ReplDied], what: str) -> ReplDied:
        self.dead = kind(what)
        return self.dead

    async def close(self) -> None:
        if self.dead is None:
            self.dead = ReplDied("the REPL was closed")


def repl_on(transport: Any, *, dialect: Dialect = "newer") -> Repl:
    """Return the client of an `InProcess`."""
    return Repl(transport, dialect, call_timeout_s=60.0, grace_s=1.0)


def repl(
    script: Script | None = None,
    *,
    number: int = 1,
    first: Callable[[str], bool] | None = None,
    deaths: dict[str, int] | None = None,
) -> Repl:
    """Return the scripted REPL as an object of this process. Of the faults it has `crash` and `hang`.

    `deaths`: by part of a text, statement or tactic, how often it still ends the process that gets it.
    """
    deadly = {} if deaths is None else deaths
    table = None if script is None else script.table()
    program = scripted_repl.ScriptedRepl(script=table, number=number, first=first)

    async def respond(request: dict[str, Any]) -> Mapping[str, object]:
        given = [str((request["payload"] or {}).get(name) or "") for name in ("file", "expr", "tactic")]
        for part, left in deadly.items():
            if left and any(part in one for one in given):
                deadly[part] -= 1
                raise ReplDied("stack overflow")
        answer = program.answer(request)
        match program.fault(request, answer):
            case ["crash"]:
                raise ReplDied("it ended (exit status -9)")
            case ["hang"]:
                raise ReplTimeout("no answer")
            case [name, *_]:
                raise ValueError(f"fault {name}: takes a process")
        await asyncio.sleep(program.wait_s)
        return answer

    return repl_on(InProcess(respond))


def starts(
    script: Script | None = None, *, deaths: dict[str, int] | None = None, started: list[Repl] | None = None
) -> Callable[..., Coroutine[Any, Any, Repl]]:
    """Return what a pool starts its processes by (`ReplPool`), so that they are objects of this process.

    Each is appended to `started`; for `deaths` see `repl`.
    """
    made = [] if started is None else started
    faults: set[str] = set()

    def first(fault: str) -> bool:
        new = fault not in faults
        faults.add(fault)
        return new

    async def start_repl(_backend: LeanBackend, **_options: Any) -> Repl:
        made.append(repl(script, number=len(made) + 1, first=first, deaths=deaths))
        return made[-1]

    return start_repl


def in_process(monkeypatch: pytest.MonkeyPatch, script: Script | None = None) -> list[Repl]:
    """Have every pool start objects of this process, whatever its backend; return them as they are started."""
    started: list[Repl] = []
    monkeypatch.setattr(pool, "start_repl", starts(script, started=started))
    return started
