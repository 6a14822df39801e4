"""The commands of one `pantograph-repl` process used by this program, as methods.

Lean's decoder does not honour the defaults of its structures, so every Bool is in the payload. `Repl.dialect` holds the
findings on the REPL's version. After any `ReplDied` the process is gone; starting another is up to the caller (the
pool). `connection.py` carries requests, `backend.py` chooses the REPL, and `pipeline.gate` judges results.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from pipeline.lean.client import messages, wire
from pipeline.lean.client.connection import Connection
from pipeline.lean.client.dialect import process_fields
from pipeline.lean.client.errors import (
    InputRejected,
    LimitReached,
    ReplRefused,
    StaleState,
    UnsupportedByDialect,
    is_failed_tactic,
)
from pipeline.lean.client.messages import (
    Goal,
    Message,
    StateRef,
    TacticFailed,
    TacticResult,
    Target,
    Unit,
)


class Repl(Connection):
    """One running REPL. Make it with `Repl.start`; as an async context manager it closes itself."""

    async def process(
        self, text: str, *, inherit_env: bool = False, timeout_s: float | None = None
    ) -> tuple[Unit, ...]:
        """Elaborate a text; errors in it are messages of its units.

        Its scope is fresh: an earlier text's `open`s and variables are not in effect, even under its inherited
        environment.
        """
        return await self._process_text(text, inherit_env=inherit_env, sorrys=False, timeout_s=timeout_s)

    async def open_sorries(self, text: str, *, timeout_s: float | None = None) -> tuple[Target, ...]:
        """Turn declarations with sorries into goal states; `example`s may be left out.

        Raises:
            InputRejected: the text does not compile; `desc` has the messages.
            UnsupportedByDialect: this REPL makes no goals of sorries.
        """
        if self.dialect != "older":
            return await self.ask(
                "frontend.distil", {"file": text, "ignoreValues": False}, messages.targets, timeout_s
            )
        units = await self._process_text(text, inherit_env=False, sorrys=True, timeout_s=timeout_s)
        complaint = messages.first_error(units)
        if complaint is not None:
            raise InputRejected("frontend", complaint.data, command="frontend.process")
        sorried = [unit for unit in units if unit.uses_sorry]
        if sorried and all(unit.goal_state is None for unit in sorried):
            raise UnsupportedByDialect(
                "frontend.process with sorries: this REPL took the field and made no goals; use a pantograph-repl"
                " of version 0.3.6 or later with frontend.distil, or one of 0.3.4 or earlier"
            )
        return tuple(
            Target(unit.goal_state, unit.goals or ()) for unit in units if unit.goal_state is not None
        )

    async def goal_start(self, expr: str, *, timeout_s: float | None = None) -> StateRef:
        """Open a goal for a closed statement.

        Raises:
            InputRejected: it does not elaborate.
        """
        return await self.ask("goal.start", {"expr": expr}, messages.started, timeout_s)

    async def goal_tactic(
        self, state: StateRef, tactic: str, *, goal: int | None = None, timeout_s: float | None = None
    ) -> TacticResult:
        """Run a tactic on the first goal, or on the one with index `goal`; the others stay (automatic mode).

        A time, heartbeat or recursion limit inside Lean comes back as `TacticFailed(interrupted=True)`. The REPL has
        other forms of a step, and none is sent: some are wrong in Pantograph.
        """
        payload = {"stateId": state.id, "tactic": tactic} | ({} if goal is None else {"goalId": goal})
        try:
            return await self.ask("goal.tactic", payload, messages.tactic_result, timeout_s, states=(state,))
        except ReplRefused as error:
            if not is_failed_tactic(error):
                raise
            message = Message("error", error.desc, kind=error.kind)
            return TacticFailed((message,), interrupted=isinstance(error, LimitReached))

    async def goal_print(self, state: StateRef) -> tuple[Goal, ...]:
        """Return a state's goals."""
        payload = {"stateId": state.id, "goals": True, "rootExpr": False}
        return await self.ask("goal.print", payload, messages.printed, states=(state,))

    async def goal_delete(self, states: Iterable[StateRef]) -> None:
        """Free states; those of another process or of before a reset are free already."""
        mine = tuple(state for state in states if state.generation == self.generation)
        if mine:
            payload = {"stateIds": [state.id for state in mine]}
            # A reset on its way already frees them as well.
            with contextlib.suppress(StaleState):
                await self.ask("goal.delete", payload, lambda _raw, _generation: None, states=mine)

    async def stat(self) -> int:
        """Return the number of goal states in the process."""
        return await self._count("stat")

    async def reset(self) -> int:
        """Drop all goal states and return their number. Ids start again, so older refs become stale."""
        return await self._count("reset")

    async def _count(self, command: str) -> int:
        return await self.ask(command, {}, lambda raw, _generation: wire.natural(raw, "nGoals", command))

    async def _process_text(
        self, text: str, *, inherit_env: bool, sorrys: bool, timeout_s: float | None
    ) -> tuple[Unit, ...]:
        payload = {"file": text, "readHeader": False, "inheritEnv": inherit_env, "newConstants": False}
        payload |= process_fields(self.dialect, sorrys=sorrys)
        return await self.ask("frontend.process", payload, messages.units, timeout_s)
