"""The commands of one `pantograph-repl` process, as methods.

`Repl.send` takes every typed request of `requests.py`; the methods are the ones that this program uses, with what
has to be kept in mind for each. What was learned of the REPL's version is `Repl.dialect`. After any `ReplDied` the
process is gone; starting another is the caller's (the pool's) business. How requests travel is `connection.py`'s,
which REPL to start `backend.py`'s, and what a result is worth `pipeline.gate`'s.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable

from pipeline.lean.client import CALL_TIMEOUT_S, GRACE_S, messages, requests, wire
from pipeline.lean.client.connection import Connection
from pipeline.lean.client.errors import (
    HeaderNotLoaded,
    InputRejected,
    MalformedReply,
    ReplDied,
    ReplError,
    ReplProtocolError,
    ReplRefused,
    ReplStartError,
    ReplTimeout,
    StaleState,
    UnsupportedByDialect,
)
from pipeline.lean.client.messages import (
    Constant,
    EnvDescription,
    StatePrint,
    StateRef,
    TacticResult,
    Target,
    Track,
    Unit,
)
from pipeline.lean.client.process import MAX_LINE_BYTES, STDERR_KEPT_BYTES, lean_path
from pipeline.lean.source.scanner import parse

__all__ = [
    "CALL_TIMEOUT_S",
    "GRACE_S",
    "MAX_LINE_BYTES",
    "STDERR_KEPT_BYTES",
    "Repl",
    "ReplDied",
    "ReplError",
    "ReplProtocolError",
    "ReplRefused",
    "ReplStartError",
    "ReplTimeout",
    "StaleState",
    "lean_path",
]

_file_numbers = itertools.count(1)


class Repl(Connection):
    """One running REPL. Make it with `Repl.start`; it is also an async context manager that closes it."""

    # ---- commands

    async def process(
        self,
        text: str,
        *,
        read_header: bool = False,
        inherit_env: bool = False,
        new_constants: bool = False,
        sorrys: bool = False,
        invocations: bool = False,
        timeout_s: float | None = None,
    ) -> tuple[Unit, ...]:
        """Elaborate a file's text (`frontend.process`); errors in it are messages of its units.

        Its scope is fresh: what an earlier text opened or declared as variables is not in effect, even where its
        environment was inherited. With `read_header`, imports that fail leave no message; `check_imports` tells.
        `invocations` adds each unit's tactic records. `sorrys` adds each unit's goals, in the older dialect only.

        Raises:
            UnsupportedByDialect: `sorrys` does nothing in this REPL; use `distil`.
            ValueError: with `read_header`, a module that the process was not started with.
        """
        if read_header:
            self._hold_known(parse(text.encode()).imports)
        fields: dict[str, bool] = dict(self.dialect.process_fields)
        if sorrys:
            self.dialect.require_sorry_goals()
            fields["sorrys"] = True
        name = f"invocations-{next(_file_numbers)}.json"
        request = requests.FrontendProcess(
            file=text,
            read_header=read_header,
            inherit_env=inherit_env,
            new_constants=new_constants,
            sorrys=fields.get("sorrys"),
            type_errors_as_goals=fields.get("typeErrorsAsGoals"),
            invocations=str(self.folder / name) if invocations else None,
        )
        units = await self.send(request, timeout_s=timeout_s)
        sorried = [unit for unit in units if sorrys and unit.uses_sorry]
        if sorried and all(unit.goal_state is None for unit in sorried):
            raise UnsupportedByDialect(
                "frontend.process with sorries: this REPL took the field and made no goals; use a pantograph-repl"
                " of version 0.3.6 or later with frontend.distil, or one of 0.3.4 or earlier"
            )
        return self._with_invocations(units, name) if invocations else units

    async def check_imports(self, *, timeout_s: float | None = None) -> EnvDescription:
        """Check that the process has every module that it was started with.

        The environment is asked, and nothing imported again: a second import of a large library takes its size in
        private memory, since Lean maps a compiled file once only.

        Raises:
            HeaderNotLoaded: modules are missing; the REPL says nothing of it by itself.
        """
        loaded = await self.send(requests.EnvDescribe(), timeout_s=timeout_s)
        # Not `imports`: what was asked for may stand there without being loaded.
        there = set(loaded.modules)
        if missing := tuple(name for name in self.imports if name not in there):
            raise HeaderNotLoaded(missing)
        return loaded

    async def distil(
        self,
        text: str,
        *,
        ignore_values: bool = False,
        timeout_s: float | None = None,
    ) -> tuple[Target, ...]:
        """Turn declarations with sorries into goal states (`frontend.distil`); `example`s are never targets.

        Raises:
            InputRejected: the text does not compile; `desc` joins the messages.
            UnsupportedByDialect: the older dialect has `process(…, sorrys=True)` instead.
        """
        request = requests.FrontendDistil(file=text, ignore_values=ignore_values)
        return await self.send(request, timeout_s=timeout_s)

    async def open_sorries(
        self, text: str, *, ignore_values: bool = False, timeout_s: float | None = None
    ) -> tuple[Target, ...]:
        """Turn declarations with sorries into goal states, by whichever command this REPL has for it.

        Raises:
            InputRejected: the text does not compile.
            UnsupportedByDialect: this REPL has neither.
        """
        if not self.dialect.sorry_goals:
            return await self.distil(text, ignore_values=ignore_values, timeout_s=timeout_s)
        units = await self.process(text, sorrys=True, timeout_s=timeout_s)
        complaint = messages.first_error(units)
        if complaint is not None:
            raise InputRejected("frontend", complaint.data, command="frontend.process")
        return tuple(
            Target(unit.goal_state, unit.goals or ()) for unit in units if unit.goal_state is not None
        )

    async def track(self, source: str, result: str, *, timeout_s: float | None = None) -> Track:
        """Compare two texts (`frontend.track`): does `result` keep every statement of `source`, without sorries?"""
        return await self.send(requests.FrontendTrack(src=source, dst=result), timeout_s=timeout_s)

    async def goal_start(self, expr: str, *, timeout_s: float | None = None) -> StateRef:
        """Open a goal for a closed statement."""
        return (await self.send(requests.GoalStart(expr=expr), timeout_s=timeout_s)).state

    async def goal_tactic(
        self, state: StateRef, tactic: str, *, goal: int | None = None, timeout_s: float | None = None
    ) -> TacticResult:
        """Run a tactic on the first goal, or on the one with index `goal`; the others stay (automatic mode).

        A time, heartbeat or recursion limit inside Lean comes back as `TacticFailed(interrupted=True)`.
        """
        request = requests.GoalTactic(state, tactic, goal)
        return await self.send(request, timeout_s=timeout_s)

    async def goal_print(
        self,
        state: StateRef,
        *,
        goals: bool = True,
        root: bool = True,
        timeout_s: float | None = None,
    ) -> StatePrint:
        """Print a state's goals and its root's term."""
        request = requests.GoalPrint(state, root_expr=root, goals=goals)
        return await self.send(request, timeout_s=timeout_s)

    async def goal_delete(self, states: Iterable[StateRef]) -> None:
        """Free states; those of another process or of before a reset are free already."""
        mine = tuple(state for state in states if state.generation == self.generation)
        if mine:
            # A reset that is on its way already frees them as well.
            with contextlib.suppress(StaleState):
                await self.send(requests.GoalDelete(mine))

    async def options_set(self, **options: bool | int) -> None:
        """Set REPL options by their wire names.

        `timeout` (milliseconds) is managed by this client for each call; give `timeout_s` to the call instead.
        `printJsonPretty` would break the framing, and `automaticMode=False` would put sibling goals aside, so that
        no goals left would mean nothing; both are refused.
        """
        await self.call("options.set", options)

    async def stat(self) -> int:
        """Return the number of goal states that the process holds."""
        return (await self.send(requests.Stat())).value

    async def reset(self) -> int:
        """Drop all goal states and return how many there were. Ids start again, so older refs become stale."""
        return (await self.send(requests.Reset())).value

    async def env_inspect(
        self, name: str, *, value: bool | None = False, dependency: bool = False, source: bool = False
    ) -> Constant:
        """Describe a constant of the environment; an unknown one is `BadRequest` of kind `index`."""
        request = requests.EnvInspect(name, value=value, dependency=dependency, source=source)
        return await self.send(request)

    def _hold_known(self, modules: Iterable[str]) -> None:
        """Refuse an import that this process was not started with: if it has an `[init]` declaration, Lean aborts."""
        late = [name for name in modules if name not in self.imports]
        if late:
            raise ValueError(
                f"import {late[0]}: a module with initializers that comes after the start aborts the process;"
                " start one with the file's imports"
            )

    # ---- side files

    def _with_invocations(self, units: tuple[Unit, ...], name: str) -> tuple[Unit, ...]:
        where = "frontend.process: the file of invocations"
        try:
            raw = wire.loads(self._side_file("frontend.process", name))
            records = messages.invocations(raw, where=where)
            if [len(one) for one in records] != [unit.n_invocations for unit in units]:
                raise MalformedReply(f"{where}: its records are not those that the reply counts")
        except (ValueError, RecursionError) as error:
            raise self.outside(MalformedReply(f"{where}: no JSON ({error})")) from error
        except MalformedReply as error:
            raise self.outside(error) from error
        return tuple(
            dataclasses.replace(unit, invocations=one) for unit, one in zip(units, records, strict=True)
        )

    def _side_file(self, command: str, name: str) -> bytes:
        try:
            return self._process.read_private(name)
        except OSError as error:
            raise self.outside(
                MalformedReply(f"{command}: the file it should have written: {error}")
            ) from error
