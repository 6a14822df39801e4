"""An asyncio client of one `pantograph-repl` process (or of the simulator, which speaks the same).

One request is in flight at a time, under a lock. Requests go in object form with every Bool spelt out, in raw
UTF-8. Standard error is drained all the time into a small ring; a `PANIC` there poisons the process, because
Lean goes on after it with made-up values. Two timeouts guard a call: the REPL's own interrupt, and a kill a few
seconds above it. After any error but `ReplRefused` the process is gone; starting another is the caller's (the
pool's) business. Not here: which REPL to start (`backend.py`) and what a result is worth (`pipeline.gate`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from pipeline.lean import messages
from pipeline.lean.backend import LeanBackend
from pipeline.lean.errors import (
    MalformedReply,
    ReplDied,
    ReplError,
    ReplProtocolError,
    ReplRefused,
    ReplStartError,
    ReplTimeout,
    StaleState,
)
from pipeline.lean.messages import (
    Constant,
    Message,
    StatePrint,
    StateRef,
    T,
    TacticFailed,
    TacticResult,
    Target,
    Unit,
)
from pipeline.lean.sandbox import SandboxError, bubblewrap

__all__ = [
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

MAX_LINE_BYTES = 256 * 1024 * 1024
STDERR_KEPT_BYTES = 64 * 1024
READY_TIMEOUT_S = 120.0
CALL_TIMEOUT_S = 60.0
GRACE_S = 3.0
_CLOSE_S = 2.0
_CHUNK_BYTES = 256 * 1024
# Limits that Lean's `try` does not catch come back as error objects of these kinds (older and newer names).
_LIMIT_KINDS = frozenset({"io", "core", "internal"})
_generations = itertools.count(1)


class Repl:
    """One running REPL. Make it with `Repl.start`; it is also an async context manager that closes it."""

    def __init__(self, process: asyncio.subprocess.Process, *, call_timeout_s: float, grace_s: float) -> None:
        self._process = process
        self._call_timeout_s = call_timeout_s
        self._grace_s = grace_s
        self._lock = asyncio.Lock()
        self._buffer = bytearray()
        self._stderr = bytearray()
        self._poison: str | None = None
        self._dead: ReplDied | None = None
        self._interrupt_ms: int | None = None
        self._calls = 0
        self.generation = next(_generations)
        self._drain = asyncio.create_task(self._drain_stderr(), name=f"repl-stderr-{process.pid}")

    @classmethod
    async def start(
        cls,
        backend: LeanBackend,
        *,
        imports: Sequence[str],
        project: Path,
        ready_timeout_s: float = READY_TIMEOUT_S,
        call_timeout_s: float = CALL_TIMEOUT_S,
        grace_s: float = GRACE_S,
    ) -> Repl:
        """Start the backend's REPL in `project` with these modules imported, and wait until it is ready.

        Raises:
            ReplStartError: there is no backend, it could not be run, or it ended or stayed silent; the text has
                what it said on standard error.
        """
        argv, environment = _command(backend, imports=imports, project=project)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=project,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise ReplStartError(f"{argv[0]}: cannot be started in {project}: {error}") from error
        repl = cls(process, call_timeout_s=call_timeout_s, grace_s=grace_s)
        try:
            async with asyncio.timeout(ready_timeout_s):
                line = await repl._read_line()
        except TimeoutError:
            await repl._kill()
            raise ReplStartError(
                f"{argv[0]}: not ready after {ready_timeout_s:g} s{repl._said()};"
                " raise the time-out if the imports are large"
            ) from None
        except ReplDied as error:
            raise ReplStartError(f"{argv[0]}: ended before it was ready: {error}") from error
        except BaseException:
            await repl._kill()
            raise
        if line.strip() != b"ready.":
            await repl._kill()
            raise ReplStartError(
                f"{argv[0]}: said {_excerpt(line)} where `ready.` was expected{repl._said()}"
            )
        return repl

    # ---- what the process is

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Say whether another call can succeed; False once dead, killed or poisoned by a panic."""
        return self._dead is None and self._poison is None and self._process.returncode is None

    @property
    def calls(self) -> int:
        """The number of requests sent so far; a pool recycles by it."""
        return self._calls

    @property
    def stderr(self) -> str:
        """The last lines of the process's standard error."""
        return self._stderr.decode("utf-8", errors="replace")

    # ---- commands

    async def process(
        self,
        text: str,
        *,
        read_header: bool = False,
        inherit_env: bool = False,
        new_constants: bool = False,
        timeout_s: float | None = None,
    ) -> tuple[Unit, ...]:
        """Elaborate a file's text (`frontend.process`); errors in it are messages of its units."""
        payload = {
            "file": text,
            "readHeader": read_header,
            "inheritEnv": inherit_env,
            "newConstants": new_constants,
        }
        return self._decoded(
            messages.units, await self.call("frontend.process", payload, timeout_s=timeout_s)
        )

    async def distil(
        self,
        text: str,
        *,
        ignore_values: bool = False,
        binder_name: str | None = None,
        timeout_s: float | None = None,
    ) -> tuple[Target, ...]:
        """Turn declarations with sorrys into goal states (`frontend.distil`); `example`s are never targets.

        Raises:
            ReplRefused: kind `io` when the text does not compile; `desc` joins the messages.
        """
        payload: dict[str, object] = {"file": text, "ignoreValues": ignore_values}
        if binder_name is not None:
            payload["binderName"] = binder_name
        raw = await self.call("frontend.distil", payload, timeout_s=timeout_s)
        return self._decoded(lambda reply: messages.targets(reply, generation=self.generation), raw)

    async def goal_start(self, expr: str, *, timeout_s: float | None = None) -> StateRef:
        """Open a goal for a closed statement."""
        raw = await self.call("goal.start", {"expr": expr}, timeout_s=timeout_s)
        return StateRef(
            self._decoded(lambda reply: messages.number(reply, "stateId", command="goal.start"), raw),
            self.generation,
        )

    async def goal_tactic(
        self, state: StateRef, tactic: str, *, goal: int | None = None, timeout_s: float | None = None
    ) -> TacticResult:
        """Run a tactic on the first goal, or on the one with index `goal`; the others stay (automatic mode).

        A time, heartbeat or recursion limit inside Lean comes back as `TacticFailed(interrupted=True)`.
        """
        payload: dict[str, object] = {"stateId": self._id(state), "tactic": tactic}
        if goal is not None:
            payload["goalId"] = goal
        try:
            raw = await self.call("goal.tactic", payload, timeout_s=timeout_s)
        except ReplRefused as error:
            if error.kind not in _LIMIT_KINDS:
                raise
            return TacticFailed((Message("error", error.desc, kind=error.kind),), interrupted=True)
        return self._decoded(lambda reply: messages.tactic_result(reply, generation=self.generation), raw)

    async def goal_print(
        self,
        state: StateRef,
        *,
        goals: bool = True,
        root: bool = True,
        parents: bool = False,
        timeout_s: float | None = None,
    ) -> StatePrint:
        """Print a state's goals and its root's term."""
        payload = {"stateId": self._id(state), "goals": goals, "rootExpr": root, "parentExprs": parents}
        return self._decoded(
            StatePrint.from_json, await self.call("goal.print", payload, timeout_s=timeout_s)
        )

    async def goal_delete(self, states: Iterable[StateRef]) -> None:
        """Free states; those of another process or of before a reset are free already."""
        ids = [state.id for state in states if state.generation == self.generation]
        if ids:
            await self.call("goal.delete", {"stateIds": ids})

    async def options_set(self, **options: bool | int) -> None:
        """Set REPL options by their wire names. `printJsonPretty` would break the framing and is refused.

        `timeout` (milliseconds) is managed by this client for each call; give `timeout_s` to the call instead.
        """
        if "printJsonPretty" in options or "timeout" in options:
            raise ValueError(
                "options_set: printJsonPretty breaks the one-line framing and timeout is set for each call;"
                " leave out the first, pass timeout_s= to the call for the second"
            )
        await self.call("options.set", options)

    async def stat(self) -> int:
        """Return the number of goal states that the process holds."""
        raw = await self.call("stat", {})
        return self._decoded(lambda reply: messages.number(reply, "nGoals", command="stat"), raw)

    async def reset(self) -> int:
        """Drop all goal states and return how many there were. Ids start again, so older refs become stale."""
        raw = await self.call("reset", {})
        self.generation = next(_generations)
        return self._decoded(lambda reply: messages.number(reply, "nGoals", command="reset"), raw)

    async def env_inspect(self, name: str, *, value: bool = False, dependency: bool = False) -> Constant:
        """Describe a constant of the environment; an unknown one is `ReplRefused` of kind `index`."""
        payload = {"name": name, "value": value, "dependency": dependency, "source": False}
        return self._decoded(Constant.from_json, await self.call("env.inspect", payload))

    async def close(self) -> None:
        """End the process: by the end of its input, then by force, with everything it started."""
        async with self._lock:
            if self._dead is None:
                self._dead = ReplDied("the REPL was closed")
            if self._process.stdin is not None:
                self._process.stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._process.wait()
            await self._kill()

    async def __aenter__(self) -> Repl:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---- one call

    async def call(
        self,
        command: str,
        payload: Mapping[str, object],
        *,
        timeout_s: float | None = None,
    ) -> messages.Json:
        """Send one request and return its reply object; commands without a method of their own go here.

        Raises:
            ReplRefused: the reply is an error object.
            ReplTimeout, ReplDied, ReplProtocolError: the process is gone.
        """
        limit_s = self._call_timeout_s if timeout_s is None else timeout_s
        async with self._lock:
            if self._dead is None and self._poison is not None:
                await self._fatal(ReplDied, self._poison)
            if self._dead is not None:
                raise self._dead
            # The interrupt belongs to the process: change it only when this call's limit differs.
            wanted_ms = min(max(1, int(limit_s * 1000)), 2**31 - 1)
            if wanted_ms != self._interrupt_ms:
                _refuse(await self._exchange("options.set", {"timeout": wanted_ms}, limit_s), "options.set")
                self._interrupt_ms = wanted_ms
            reply = await self._exchange(command, payload, limit_s)
            # A panic is written before the answer that it spoils; let the drain see what has arrived.
            await asyncio.sleep(0)
            if self._poison is not None:
                raise await self._fatal(ReplDied, f"{command}: {self._poison}")
        _refuse(reply, command)
        return reply

    async def _exchange(self, command: str, payload: object, limit_s: float) -> messages.Json:
        assert self._process.stdin is not None
        try:
            text = json.dumps({"cmd": command, "payload": payload}, ensure_ascii=False, separators=(",", ":"))
            data = text.encode("utf-8") + b"\n"
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{command}: the request holds a lone surrogate, which is no text: {error}"
            ) from error
        self._calls += 1
        try:
            async with asyncio.timeout(limit_s + self._grace_s):
                self._process.stdin.write(data)
                await self._process.stdin.drain()
                line = await self._read_line()
        except TimeoutError:
            raise await self._fatal(
                ReplTimeout, f"{command}: no answer in {limit_s + self._grace_s:g} s"
            ) from None
        except (BrokenPipeError, ConnectionResetError) as error:
            raise await self._fatal(ReplDied, f"{command}: the REPL is gone") from error
        except BaseException:
            # Cancelled with an answer outstanding: the next call would read it as its own.
            if self._dead is None:
                await self._fatal(ReplDied, f"{command}: given up with its answer outstanding")
            raise
        try:
            reply = json.loads(line)
        except ValueError as error:
            raise await self._fatal(
                ReplProtocolError, f"{command}: the answer {_excerpt(line)} is no JSON ({error})"
            ) from error
        if not isinstance(reply, dict):
            raise await self._fatal(ReplProtocolError, f"{command}: the answer {_excerpt(line)} is no object")
        return reply

    def _decoded(self, decode: Callable[[messages.Json], T], raw: messages.Json) -> T:
        try:
            return decode(raw)
        except MalformedReply as error:
            # Framing is intact, but a REPL that answers in unknown shapes is not one this client can drive.
            self._poison = f"it answered outside the protocol: {error}"
            raise ReplProtocolError(str(error), stderr=self.stderr) from error

    def _id(self, state: StateRef) -> int:
        if state.generation != self.generation:
            raise StaleState(
                f"state {state.id} belongs to REPL generation {state.generation}, this is {self.generation};"
                " start the goal again here and replay its tactics"
            )
        return state.id

    # ---- bytes

    async def _read_line(self) -> bytes:
        """Return the next line without its end. The cap is on one line; asyncio's own 64 kB limit is not used."""
        assert self._process.stdout is not None
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > MAX_LINE_BYTES:
                raise await self._fatal(ReplProtocolError, f"an answer is longer than {MAX_LINE_BYTES} bytes")
            chunk = await self._process.stdout.read(_CHUNK_BYTES)
            if not chunk:
                rest = f" after {_excerpt(bytes(self._buffer))}" if self._buffer else ""
                raise await self._fatal(ReplDied, f"the REPL closed its output{rest}", wait=True)
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    async def _drain_stderr(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(_CHUNK_BYTES):
            seam = self._stderr[-4:] + chunk
            self._stderr += chunk
            del self._stderr[:-STDERR_KEPT_BYTES]
            if b"PANIC" in seam:
                self._poison = "Lean panicked, so its answers cannot be trusted"

    def _said(self) -> str:
        text = self.stderr.strip()
        return f"; standard error: {text[-2000:]}" if text else "; nothing on standard error"

    async def _fatal(self, kind: type[ReplDied], what: str, *, wait: bool = False) -> ReplDied:
        """Kill the process, remember why, and return the error to raise."""
        if wait:
            # It is ending by itself: its own exit status says more than our SIGKILL.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._process.wait()
        await self._kill()
        code = self._process.returncode
        error = kind(f"{what} (exit status {code}){self._said()}", returncode=code, stderr=self.stderr)
        self._dead = error
        return error

    async def _kill(self) -> None:
        # The whole group: a REPL in a sandbox, or one that has started something, is more than one process.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._process.wait()
                await asyncio.shield(self._drain)
        self._drain.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._drain


def lean_path(project: Path) -> str:
    """Return LEAN_PATH for a built project: its own oleans and its packages', read off the folders.

    `lake env` would evaluate the project's lakefile, which is code; the layout is fixed, so nobody has to.
    """
    roots = [project, *sorted((project / ".lake" / "packages").glob("*"))]
    folders = [root / ".lake" / "build" / "lib" / leaf for root in roots for leaf in ("lean", "")]
    # Older lakes have no `lean` below `lib`; with it, `lib` itself holds no oleans.
    return ":".join(
        str(folder.absolute())
        for folder in folders
        if folder.is_dir() and not (folder.name == "lib" and (folder / "lean").is_dir())
    )


def _command(
    backend: LeanBackend, *, imports: Sequence[str], project: Path
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the argument list and the whole environment of the REPL. No variable of ours leaks into it."""
    if backend.kind == "none":
        raise ReplStartError(f"no Lean: {backend.detail}")
    if not project.is_dir():
        raise ReplStartError(f"{project}: no such folder to run the REPL in")
    if bad := [name for name in imports if name.startswith("-")]:
        raise ReplStartError(f"import {bad[0]!r}: no module name")
    command = (*backend.argv, *imports)
    environment = {"LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"}
    if backend.kind == "simulator":
        return command, environment
    environment["LEAN_PATH"] = lean_path(project)
    readable = [Path(backend.argv[0])]
    if backend.sysroot:
        environment["LEAN_SYSROOT"] = backend.sysroot
        environment["PATH"] = f"{backend.sysroot}/bin:{environment['PATH']}"
        readable.append(Path(backend.sysroot))
    if backend.sandbox == "none":
        home = {name: os.environ[name] for name in ("HOME", "ELAN_HOME") if name in os.environ}
        return command, {**home, **environment}
    try:
        return bubblewrap(command, project=project, readable=readable, environment=environment), {}
    except SandboxError as error:
        raise ReplStartError(str(error)) from error


def _refuse(reply: messages.Json, command: str) -> None:
    if "error" in reply:
        raise ReplRefused(str(reply["error"]), str(reply.get("desc", "")), command=command)


def _excerpt(line: bytes) -> str:
    text = line[:120].decode("utf-8", errors="replace")
    return repr(text) + ("…" if len(line) > 120 else "")
