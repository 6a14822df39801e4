"""One request at a time to a REPL process: start and probe, lock, limits, JSON, staleness, errors.

Requests go in object form with a payload, in raw UTF-8; a line break inside a text is escaped by JSON, so no blank
line is ever sent. Two timeouts guard a call: the REPL's own interrupt, and a kill a few seconds above it. Bytes,
the process's start and its end are `process.py`'s; the commands are `repl.py`'s.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from pipeline.lean.backend import SLOW_START, LeanBackend
from pipeline.lean.client import CALL_TIMEOUT_S, GRACE_S, wire
from pipeline.lean.client import dialect as dialects
from pipeline.lean.client.dialect import Dialect
from pipeline.lean.client.errors import (
    MalformedReply,
    ReplDied,
    ReplProtocolError,
    ReplRefused,
    ReplStartError,
    ReplSuspect,
    ReplTimeout,
    StaleState,
    refusal,
)
from pipeline.lean.client.messages import StateRef
from pipeline.lean.client.process import ReplProcess, command_line, excerpt, module_names
from pipeline.lean.client.wire import Json

_PROBE_TIMEOUT_S = 10.0
_generations = itertools.count(1)
R = TypeVar("R")

# The REPL's interrupt does not reach these (they are only killed) …
_NEVER_INTERRUPTED = frozenset({"frontend.distil"})
# … and these end at once, so it does not matter which limit happens to be set.
_LIGHT = frozenset({"stat", "reset", "goal.print", "goal.delete"})
# The greatest lateness of the interrupt, as a share: so limits that shrink a little need no request each.
_LATE = 0.1
_PANICKED = "Lean panicked, so its answers cannot be trusted"


class Connection:
    """A running REPL that answers requests. Make it with `start`; as an async context manager it closes itself.

    Attributes:
        generation: the number in its `StateRef`s; another one after every reset.
        dialect: the REPL's.
    """

    def __init__(
        self,
        process: ReplProcess,
        dialect: Dialect,
        *,
        call_timeout_s: float,
        grace_s: float,
    ) -> None:
        self._process = process
        self._call_timeout_s = call_timeout_s
        self._grace_s = grace_s
        self._lock = asyncio.Lock()
        self._poison = ""
        self._interrupt_ms = 0
        self._calls = 0
        self.generation = next(_generations)
        self.dialect = dialect

    @classmethod
    async def start(
        cls,
        backend: LeanBackend,
        *,
        imports: Sequence[str],
        project: Path,
        ready_timeout_s: float | None = None,
        call_timeout_s: float = CALL_TIMEOUT_S,
        grace_s: float = GRACE_S,
        memory_bytes: int | None = None,
        dialect: Dialect | None = None,
    ) -> Self:
        """Start the backend's REPL in `project` with these modules imported, wait until it is ready, and probe it.

        Args:
            backend: the REPL.
            imports: modules; none at all is an environment without even `Init`.
            project: working directory, with the compiled modules.
            ready_timeout_s: seconds until `ready.`, imports included; None: the backend's.
            call_timeout_s: seconds for a call without a limit of its own.
            grace_s: seconds between the REPL's own interrupt and the kill.
            memory_bytes: cap on the private memory of the process and, separately, of each child (RLIMIT_DATA).
                Compiled modules are mapped read-only and do not count.
            dialect: the REPL's, if known; it is not probed then.

        Raises:
            ReplStartError: there is no backend, it could not be run, it ended or stayed silent, or it is no
                pantograph-repl of a known kind; the text has its standard error.
        """
        names = module_names(imports)
        process = await launched(backend, names, project=project, memory_bytes=memory_bytes, kind=ReplProcess)
        try:
            limit_s = backend.start_timeout_s if ready_timeout_s is None else ready_timeout_s
            await _greeted(process, backend.argv[0], limit_s)
            repl = cls(
                process,
                dialect or "newer",
                call_timeout_s=call_timeout_s,
                grace_s=grace_s,
            )
            if dialect is None:
                repl.dialect = await dialects.probe(repl._probe)
            return repl
        except (ReplDied, MalformedReply) as error:
            await process.close(grace_s=0.0)
            raise ReplStartError(
                f"{backend.argv[0]}: ready, but it does not answer as a pantograph-repl: {error}"
            ) from error
        except BaseException:
            await process.close(grace_s=0.0)
            raise

    # ---- the process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Return whether another call can succeed; False once dead, killed, poisoned by a panic or suspect."""
        return self._process.running and not (self._poison or self._process.panicked)

    @property
    def calls(self) -> int:
        """The number of requests sent so far; a pool recycles by it."""
        return self._calls

    @property
    def stderr(self) -> str:
        """The last lines of the process's standard error."""
        return self._process.stderr

    def rss_bytes(self) -> int:
        """Return the resident size of the process and all below it now, 0 when it is gone.

        Compiled modules shared by several processes count in each, so sums overstate.
        """
        return self._process.rss_bytes()

    async def close(self) -> None:
        """End the process: by the end of its input, then by force, with all its children.

        A process that owes an answer is ended at once, and its caller gets a `ReplDied`.
        """
        await self._process.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---- one call

    async def ask(
        self,
        command: str,
        payload: Json,
        decode: Callable[[Json, int], R],
        timeout_s: float | None = None,
        *,
        states: tuple[StateRef, ...] = (),
    ) -> R:
        """Send one request and return `decode(answer, generation)`.

        `states` are those in the payload.

        Raises:
            StaleState: nothing was sent.
            ReplRefused: the answer is an error object; its class says what to do.
            ReplDied: the process is gone, by one of its subclasses.
        """
        raw, generation = await self._call(command, payload, timeout_s, states)
        try:
            return decode(raw, generation)
        except MalformedReply as error:
            # Framing is intact, but this client cannot drive a REPL that answers in unknown shapes.
            self._poison = f"it answered outside the protocol: {error}"
            raise ReplProtocolError(str(error), stderr=self.stderr) from error

    async def _call(
        self, command: str, payload: Json, timeout_s: float | None, states: tuple[StateRef, ...]
    ) -> tuple[Json, int]:
        limit_s = self._call_timeout_s if timeout_s is None else timeout_s
        async with self._lock:
            self._hold_current(states)
            if command not in _LIGHT and command not in _NEVER_INTERRUPTED:
                await self._set_interrupt(limit_s)
            reply = await self._exchange(command, payload, limit_s + self._grace_s)
            if command == "reset" and "error" not in reply:
                # Before the lock goes: the next caller may hold states whose ids will be given out again.
                self.generation = next(_generations)
            generation = self.generation
        if "error" in reply:
            raise self._refusal(reply, command)
        return reply, generation

    async def _set_interrupt(self, limit_s: float) -> None:
        # The interrupt belongs to the process, and each request leaves a sleeping timer of its length behind: it is
        # kept near the call's own limit, and set again only when it is not.
        wanted = min(max(1, int(limit_s * 1000)), 2**31 - 1)
        late = min(wanted * _LATE, self._grace_s * 500)
        if wanted <= self._interrupt_ms <= wanted + late:
            return
        reply = await self._exchange("options.set", {"timeout": wanted}, limit_s + self._grace_s)
        if "error" in reply:
            raise self._refusal(reply, "options.set")
        self._interrupt_ms = wanted

    async def _exchange(self, command: str, payload: Json, limit_s: float) -> Json:
        process = self._process
        if process.dead is None and (self._poison or process.panicked):
            await process.fatal(ReplDied, f"{command}: {self._poison or _PANICKED}")
        try:
            text = json.dumps({"cmd": command, "payload": payload}, ensure_ascii=False, separators=(",", ":"))
            data = text.encode("utf-8") + b"\n"
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{command}: the request holds a lone surrogate, which is no text: {error}"
            ) from error
        self._calls += 1
        line = await process.exchange(data, limit_s, command)
        if process.panicked:
            raise await process.fatal(ReplDied, f"{command}: {_PANICKED}")
        try:
            reply = wire.loads(line)
        except (ValueError, RecursionError) as error:
            raise await process.fatal(
                ReplProtocolError, f"{command}: the answer {excerpt(line)} is no JSON ({error})"
            ) from error
        if not isinstance(reply, dict):
            raise await process.fatal(
                ReplProtocolError, f"{command}: the answer {excerpt(line)} is no object"
            )
        return reply

    async def _probe(self, command: str, payload: Json) -> Json:
        return await self._exchange(command, payload, _PROBE_TIMEOUT_S)

    def _hold_current(self, states: tuple[StateRef, ...]) -> None:
        for state in states:
            if state.generation != self.generation:
                raise StaleState(
                    f"state {state.id} belongs to REPL generation {state.generation}, this is {self.generation};"
                    " start the goal again here and replay its tactics"
                )

    def _refusal(self, reply: Json, command: str) -> ReplRefused:
        error = refusal(str(reply["error"]), str(reply.get("desc", "")), command=command)
        if isinstance(error, ReplSuspect):
            self._poison = f"it is suspect after an error that escaped: {error}"
        return error


async def _greeted(process: ReplProcess, program: str, limit_s: float) -> None:
    try:
        line = await process.exchange(b"", limit_s, "start")
    except ReplTimeout:
        raise ReplStartError(
            f"{program}: not ready after {limit_s:g} s{process.said()}; {SLOW_START}"
        ) from None
    except ReplDied as error:
        raise ReplStartError(f"{program}: ended before it was ready: {error}") from error
    if line.strip() != b"ready.":
        raise ReplStartError(f"{program}: said {excerpt(line)} where `ready.` was expected{process.said()}")


P = TypeVar("P", bound=ReplProcess)


async def launched(
    backend: LeanBackend,
    arguments: Sequence[str],
    *,
    project: Path,
    memory_bytes: int | None,
    kind: type[P],
    modules: Path | None = None,
) -> P:
    """Start the backend's program; `modules` is a folder of further compiled ones.

    Raises:
        ReplStartError: there is no backend, or it could not be run.
    """
    argv, environment = command_line(
        backend, arguments=arguments, project=project, memory_bytes=memory_bytes, modules=modules
    )
    return await kind.start(argv, cwd=project, environment=environment, memory_bytes=memory_bytes)
