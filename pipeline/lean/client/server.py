"""Search through Lean's own language server, part of every toolchain, by the REPL's requests and answers.

`ServerRepl` takes the commands of `repl.py` and answers as `pantograph-repl` does, so that the pool, sessions and
searches do not know the difference. The server knows texts and no states: a state here is a text with holes, each with
the steps taken in it. A tactic is one more step, and the whole text is sent again; Lean elaborates from the first
difference to the last text. The goals left are asked for at an `all_goals sorry` behind the steps.

Going from one branch of a search to another costs the steps below their fork. Each command before the text (a
session's prefix) costs some time with every request, so a prefix of more than a few is compiled and imported.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from pipeline.lean.backend import SLOW_START, LeanBackend
from pipeline.lean.client import CALL_TIMEOUT_S, GRACE_S, wire
from pipeline.lean.client.connection import launched
from pipeline.lean.client.dialect import Dialect
from pipeline.lean.client.errors import (
    ImportsRefused,
    ReplDied,
    ReplError,
    ReplProtocolError,
    ReplStartError,
    ReplTimeout,
)
from pipeline.lean.client.process import (
    MAX_LINE_BYTES,
    ServerProcess,
    module_names,
    run_to_end,
)
from pipeline.lean.client.repl import Repl
from pipeline.lean.client.wire import Json
from pipeline.lean.source.imports import lean_options
from pipeline.lean.source.scanner import SourceFile, parse

_DELAY = "server.reportDelayMs"
"""Without this option at 0 each answer waits for 200 ms, in case there is more. An older Lean may not know it: with an
unknown option the server or its worker ends."""
_URI = "file:///nonexistent/Search.lean"
"""The document, which exists nowhere."""
_FATAL_PROGRESS = 2
"""The kind of `$/lean/fileProgress` that ends a file; answers may still be on their way."""
_AFTER_FATAL_S = 2.0
_HEADER = re.compile(rb"Content-Length: *(\d+)\r\n(?:[^\r\n]+\r\n)*\r\n", re.IGNORECASE)
_SEVERITIES = {1: "error", 2: "warning", 3: "information", 4: "information"}
_NO_PARSE = re.compile(r"(?:<input>:\d+:\d+: )?(?:unexpected|expected|unterminated) ")
_LIMITS = ("(deterministic) timeout", "maximum recursion depth", "heartbeats")
_MOST_ABOVE = 8
"""Commands above the text; more are compiled. Each costs about 0.7 ms a request, starting anew 200 ms once."""
_PRIVATE = re.compile(r"\bprivate\b")
_REST = "all_goals sorry"
_AS_IT_IS = "set_option autoImplicit false in\n"
"""A statement by itself has no names but its own bound ones."""
_SCOPE = re.compile(r"^.*?\b(?:namespace|section)\b")


_Object = dict[str, Any]
"""A JSON object of the server's protocol, or of the REPL's, in the making."""


class _Refused(Exception):  # noqa: N818 - becomes an error object of the protocol
    def __init__(self, kind: str, desc: str) -> None:
        super().__init__(desc)
        self.reply: _Object = {"error": kind, "desc": desc}


@dataclass(frozen=True, slots=True)
class _Hole:
    """A `sorry` of a state's text: its offsets in code points, the steps in its place, the goals after them."""

    start: int
    end: int
    term: bool
    steps: tuple[str, ...]
    goals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _State:
    text: str
    holes: tuple[_Hole, ...]

    @property
    def goals(self) -> list[_Object]:
        """The goals as the REPL has them: goals of an untouched hole keep their names."""
        return [
            {**_goal(goal), "name": f"{number}.{hash(hole.steps):x}.{at}"}
            for number, hole in enumerate(self.holes)
            for at, goal in enumerate(hole.goals)
        ]

    def rendered(self) -> tuple[str, tuple[int, ...]]:
        """Return the text with the steps in their holes, and the offset behind the steps of each hole."""
        parts, at, length, ends = [], 0, 0, []
        for hole in self.holes:
            before = self.text[at : hole.start]
            # Further to the right than all around it: a field's value must not stand left of the field.
            indent = " " * (hole.start - self.text.rfind("\n", 0, hole.start) + 1)
            filled, end = _filled(hole, indent) if hole.steps else (self.text[hole.start : hole.end], 0)
            parts += [before, filled]
            ends.append(length + len(before) + end)
            length += len(before) + len(filled)
            at = hole.end
        return "".join([*parts, self.text[at:]]), tuple(ends)


@dataclass(frozen=True, slots=True)
class _Message:
    """A diagnostic: lines and columns from 0, columns in code points."""

    severity: str
    data: str
    start: tuple[int, int]
    end: tuple[int, int]

    def to_json(self) -> _Object:
        """Return it in the REPL's form, with lines from 1."""
        (line, column), (end_line, end_column) = self.start, self.end
        return {
            "severity": self.severity,
            "data": self.data,
            "pos": {"line": line + 1, "column": column},
            "endPos": {"line": end_line + 1, "column": end_column},
        }


async def start_repl(
    backend: LeanBackend,
    *,
    imports: Sequence[str],
    project: Path,
    header: str = "",
    ready_timeout_s: float | None = None,
    call_timeout_s: float = CALL_TIMEOUT_S,
    grace_s: float = GRACE_S,
    memory_bytes: int | None = None,
    dialect: Dialect | None = None,
) -> Repl:
    """Start the backend's language server or REPL. Arguments and errors are those of their `start`."""
    if backend.kind == "server":
        return await ServerRepl.start(
            backend,
            imports=imports,
            header=header,
            project=project,
            ready_timeout_s=ready_timeout_s,
            call_timeout_s=call_timeout_s,
            grace_s=grace_s,
            memory_bytes=memory_bytes,
        )
    return await Repl.start(
        backend,
        imports=imports,
        project=project,
        ready_timeout_s=ready_timeout_s,
        call_timeout_s=call_timeout_s,
        grace_s=grace_s,
        memory_bytes=memory_bytes,
        dialect=dialect,
    )


_delayed: set[LeanBackend] = set()
"""Servers without the option `_DELAY`, by their failed starts."""


class ServerRepl(Repl):
    """One running language server with one document, under the REPL's commands."""

    _process: ServerProcess

    def __init__(
        self,
        process: ServerProcess,
        compiler: _Compiler,
        *,
        imports: tuple[str, ...],
        header: str,
        call_timeout_s: float,
        grace_s: float,
    ) -> None:
        super().__init__(process, "newer", call_timeout_s=call_timeout_s, grace_s=grace_s)
        self._version = 0
        self._ids = itertools.count(1)
        self._header = header or "".join(f"import {name}\n" for name in imports)
        self._is_module = header.startswith("module")
        self._prefix = ""
        self._above = 0
        self._compiler = compiler
        self._states: dict[int, _State] = {}
        self._next_state = 0
        self._answers: dict[str, Callable[[_Object, float], Coroutine[Any, Any, _Object]]] = {
            "frontend.process": self._on_process,
            "frontend.distil": self._on_distil,
            "goal.start": self._on_start,
            "goal.tactic": self._on_tactic,
        }

    @classmethod
    async def start(
        cls,
        backend: LeanBackend,
        *,
        imports: Sequence[str],
        project: Path,
        header: str = "",
        ready_timeout_s: float | None = None,
        call_timeout_s: float = CALL_TIMEOUT_S,
        grace_s: float = GRACE_S,
        memory_bytes: int | None = None,
        dialect: Dialect | None = None,  # noqa: ARG003 - there is one
    ) -> Self:
        """Start the server in `project` and load the imports. Arguments and errors are those of `Repl.start`.

        `header` is that of a file with `module` or `prelude` at its beginning: it has the same imports.
        """
        names = module_names(imports)
        options = tuple(f"-D{option}" for option in await asyncio.to_thread(lean_options, project))

        async def started(*own: str) -> Self:
            return await cls._started(
                backend,
                own,
                options,
                project=project,
                names=names,
                header=header,
                ready_timeout_s=backend.start_timeout_s if ready_timeout_s is None else ready_timeout_s,
                call_timeout_s=call_timeout_s,
                grace_s=grace_s,
                memory_bytes=memory_bytes,
            )

        if backend in _delayed:
            return await started()
        try:
            return await started(f"-D{_DELAY}=0")
        except ReplStartError as error:
            if _DELAY not in str(error):
                raise
            _delayed.add(backend)
            return await started()

    @classmethod
    async def _started(
        cls,
        backend: LeanBackend,
        own: tuple[str, ...],
        options: tuple[str, ...],
        *,
        project: Path,
        names: tuple[str, ...],
        header: str,
        ready_timeout_s: float,
        call_timeout_s: float,
        grace_s: float,
        memory_bytes: int | None,
    ) -> Self:
        compiler = _Compiler(backend, project, options, memory_bytes)
        try:
            process = await launched(
                backend,
                ("--server", *own, *options),
                project=project,
                memory_bytes=memory_bytes,
                kind=ServerProcess,
                modules=compiler.folder,
            )
        except BaseException:
            compiler.close()
            raise
        repl = cls(
            process, compiler, imports=names, header=header, call_timeout_s=call_timeout_s, grace_s=grace_s
        )
        try:
            ends = time.monotonic() + ready_timeout_s
            await repl._request(
                "initialize",
                {"processId": None, "rootUri": _uri(project), "capabilities": {}},
                ends,
            )
            repl._notify("initialized", {})
            messages = await repl._elaborated("", ends)
        except ReplTimeout:
            compiler.close()
            raise ReplStartError(
                f"{backend.argv[0]} --server: not ready after {ready_timeout_s:g} s{process.said()};"
                f" {SLOW_START}"
            ) from None
        except ReplDied as error:
            compiler.close()
            raise ReplStartError(f"{backend.argv[0]} --server: {error}") from error
        except BaseException:
            await repl.close()
            raise
        wrong = next((one for one in messages or () if one.severity == "error"), None)
        if messages is None or wrong is not None:
            await repl.close()
            text = f"{backend.argv[0]} --server: import {' '.join(names)}:"
            if wrong is not None:
                raise ImportsRefused(f"{text} {wrong.data}")
            raise ReplStartError(f"{text} no end of loading after {ready_timeout_s:g} s")
        return repl

    async def close(self) -> None:
        """End the server and remove the modules compiled for it."""
        await super().close()
        self._compiler.close()

    # ---- the protocol

    def _notify(self, method: str, params: _Object) -> None:
        self._process.write(_framed({"jsonrpc": "2.0", "method": method, "params": params}))

    async def _receive(self, ends: float, what: str) -> _Object | None:
        """Return the next message; None if none came in time."""
        while True:
            data = await self._process.frame(_HEADER, ends - time.monotonic(), what)
            if data is None:
                return None
            # Take turns with others, even if the server never stops talking.
            await asyncio.sleep(0)
            try:
                message = wire.loads(data)
            except (ValueError, RecursionError) as error:
                raise await self._process.fatal(ReplProtocolError, f"{what}: no JSON ({error})") from error
            if not isinstance(message, dict):
                raise await self._process.fatal(ReplProtocolError, f"{what}: no object")
            if "method" in message and "id" in message:  # the server asks for what we do not have
                self._process.respond(_framed({"jsonrpc": "2.0", "id": message["id"], "result": None}))
                continue
            return message

    async def _request(self, method: str, params: _Object, ends: float) -> Any:
        """Send a request and return its result, skipping other messages.

        Raises:
            ReplTimeout: no answer; the process is gone.
            ReplDied: the server answered with an error.
        """
        number = next(self._ids)
        self._process.write(_framed({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
        while (message := await self._receive(ends, method)) is not None:
            if message.get("id") == number:
                if "error" in message:
                    raise await self._process.fatal(ReplDied, f"{method}: {_error(message)}")
                return message.get("result")
        raise await self._process.fatal(ReplTimeout, f"{method}: no answer")

    async def _elaborated(self, text: str, ends: float) -> list[_Message] | None:
        """Send the document and return Lean's messages on it; None if it has not ended in time."""
        whole = self._header + self._prefix + text
        self._version += 1
        version = {"uri": _URI, "version": self._version}
        if self._version == 1:
            self._notify(
                "textDocument/didOpen", {"textDocument": {**version, "languageId": "lean4", "text": whole}}
            )
        else:
            self._notify(
                "textDocument/didChange", {"textDocument": version, "contentChanges": [{"text": whole}]}
            )
        number, what = next(self._ids), "textDocument/waitForDiagnostics"
        self._process.write(_framed({"jsonrpc": "2.0", "id": number, "method": what, "params": version}))
        async with self._shaped(what):
            return await self._said_of(whole, number, ends, what)

    @asynccontextmanager
    async def _shaped(self, what: str) -> AsyncIterator[None]:
        """Turn the errors of an answer in an unknown shape into one typed error."""
        try:
            yield
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            text = f"{what}: an answer of another shape ({type(error).__name__}: {error})"
            raise await self._process.fatal(ReplProtocolError, text[:500]) from error

    async def _said_of(self, whole: str, number: int, ends: float, what: str) -> list[_Message] | None:
        """Return the messages about the document's present version, up to the answer with this number."""
        result: list[_Object] = []
        fatal = False
        while (message := await self._receive(ends, what)) is not None:
            params = message.get("params")
            if message.get("method") == "$/lean/fileProgress" and isinstance(params, dict):
                if any(one.get("kind") == _FATAL_PROGRESS for one in params.get("processing", ())):
                    fatal, ends = True, min(ends, time.monotonic() + _AFTER_FATAL_S)
            elif message.get("method") == "textDocument/publishDiagnostics" and isinstance(params, dict):
                if params.get("version") == self._version:
                    if not params.get("isIncremental"):
                        result.clear()
                    result.extend(params["diagnostics"])
            elif message.get("id") == number:
                if "error" in message:
                    raise await self._process.fatal(ReplDied, f"the server's worker: {_error(message)}")
                lines = whole.split("\n")
                return [_message(one, lines) for one in result]
        if fatal:
            raise await self._process.fatal(ReplDied, "the server's worker ended")
        return None

    async def _told(self, text: str, limit_s: float) -> list[_Message]:
        """Return Lean's messages on a text, without those on the text above it; withdraw a text after its limit.

        Raises:
            _Refused: it took too long.
            ReplTimeout: the server did not come back either; the process is gone.
        """
        messages = await self._elaborated(text, time.monotonic() + limit_s)
        if messages is None:
            if await self._elaborated("", time.monotonic() + self._grace_s) is None:
                raise await self._process.fatal(
                    ReplTimeout, f"no answer in {limit_s:g} s, nor to its withdrawal"
                )
            raise _Refused("io", f"interrupt: no end after {limit_s:g} s")
        above = (self._header + self._prefix).count("\n")
        return [
            replace(one, start=(one.start[0] - above, one.start[1]), end=(one.end[0] - above, one.end[1]))
            for one in messages
            if one.start[0] >= above
        ]

    async def _goals_at(self, text: str, offset: int, *, term: bool, limit_s: float) -> list[str] | None:
        """Return Lean's text of the goals at an offset of the last text; None if there is no proof there."""
        line, column = _place(self._header + self._prefix + text, len(self._header + self._prefix) + offset)
        params = {"textDocument": {"uri": _URI}, "position": {"line": line, "character": column}}
        method = "$/lean/plainTermGoal" if term else "$/lean/plainGoal"
        result = await self._request(method, params, time.monotonic() + limit_s)
        if result is None:
            return None
        async with self._shaped(method):
            return [str(result["goal"])] if term else [str(goal) for goal in result["goals"]]

    # ---- the commands

    async def _exchange(self, command: str, payload: Json, limit_s: float) -> Json:
        self._calls += 1
        options: _Object = dict(payload)
        if self._process.dead is not None:
            raise self._process.dead
        try:
            match command:
                case "options.set":
                    return {}
                case "stat":
                    return {"nGoals": len(self._states)}
                case "reset":
                    held = len(self._states)
                    self._states.clear()
                    return {"nGoals": held}
                case "goal.delete":
                    for number in options["stateIds"]:
                        self._states.pop(number, None)
                    return {}
                case "goal.print":
                    return {"goals": self._state(options["stateId"]).goals}
            try:
                return await self._answers[command](options, max(0.1, limit_s - self._grace_s))
            except asyncio.CancelledError:
                # Its answer would be taken for the next one's.
                await self._process.fatal(ReplDied, f"{command}: given up with its answer outstanding")
                raise
        except _Refused as error:
            return error.reply

    def _state(self, number: int) -> _State:
        try:
            return self._states[number]
        except KeyError:
            raise _Refused("index", f"Invalid state index {number}") from None

    def _kept(self, state: _State) -> int:
        number, self._next_state = self._next_state, self._next_state + 1
        self._states[number] = state
        return number

    async def _on_process(self, payload: _Object, limit_s: float) -> _Object:
        text = str(payload["file"])
        messages = await self._told(text, limit_s)
        source = parse(text.encode())
        starts = [0, *(command.byte_start for command in source.commands[1:]), len(text.encode())]
        units: list[_Object] = [
            {"boundary": [start, end], "messages": []} for start, end in itertools.pairwise(starts)
        ]
        lines = text.split("\n")
        begins = list(itertools.accumulate((len(line.encode()) + 1 for line in lines[:-1]), initial=0))
        for one in messages:
            row = min(one.start[0], len(lines) - 1)
            byte = begins[row] + len(lines[row][: one.start[1]].encode())
            unit = next((unit for unit in reversed(units) if unit["boundary"][0] <= byte), units[0])
            unit["messages"].append(one.to_json())
        if payload.get("inheritEnv"):
            self._prefix += _closed(text, source)
            self._above += len(source.commands)
            # A private constant keeps its name in its own file only, and under a `module` file's `import all`.
            hides = not self._is_module and _PRIVATE.search(self._prefix)
            if self._above > _MOST_ABOVE and not hides:
                await self._compile(limit_s)
        return {"units": units}

    async def _compile(self, limit_s: float) -> None:
        """Compile the text above into a module; it stays above if it does not compile."""
        module = await self._compiler.compile(self._header + self._prefix, limit_s)
        if module is not None:
            own = f"public import {module}\nimport all {module}\n"
            self._header += own if self._is_module else f"import {module}\n"
            self._prefix = ""
        self._above = 0

    async def _on_distil(self, payload: _Object, limit_s: float) -> _Object:
        return {"targets": [await self._opened(str(payload["file"]), limit_s)]}

    async def _on_start(self, payload: _Object, limit_s: float) -> _Object:
        text = f"{_AS_IT_IS}theorem everlean_goal : {payload['expr']} := by\n  sorry\n"
        try:
            opened = await self._opened(text, limit_s)
        except _Refused as error:
            if error.reply["error"] == "frontend":
                raise _Refused("elab", str(error)) from error
            raise
        return {"stateId": opened["stateId"]}

    async def _opened(self, text: str, limit_s: float) -> _Object:
        """Make a state of a text's sorries."""
        messages = await self._told(text, limit_s)
        errors = [one.data for one in messages if one.severity == "error"]
        if errors:
            raise _Refused("frontend", "\n".join(errors))
        data = text.encode()
        holes = []
        for sorry in parse(data).scanned.sorries:
            start, end = (len(data[:at].decode()) for at in (sorry.byte_start, sorry.byte_end))
            term = sorry.mode == "term"
            goals = await self._goals_at(text, start, term=term, limit_s=limit_s)
            if goals is None:
                raise _Refused("frontend", f"no goal at the sorry on line {sorry.line}")
            holes.append(_Hole(start, end, term, (), tuple(goals[:1])))
        state = _State(text, tuple(holes))
        return {"stateId": self._kept(state), "goals": state.goals}

    async def _on_tactic(self, payload: _Object, limit_s: float) -> _Object:
        tactic = str(payload["tactic"])
        ends = time.monotonic() + limit_s
        state = self._state(payload["stateId"])
        at, goal = 0, int(payload.get("goalId") or 0)
        while at < len(state.holes) and goal >= len(state.holes[at].goals):
            goal -= len(state.holes[at].goals)
            at += 1
        if at == len(state.holes):
            raise _Refused("index", f"Invalid goal index {payload.get('goalId')}")
        hole = state.holes[at]
        steps = (*hole.steps, *_steps(tactic, goal=goal, goals=len(hole.goals)))
        tried = _State(
            state.text,
            tuple(replace(hole, steps=steps) if n == at else one for n, one in enumerate(state.holes)),
        )
        text, behind = tried.rendered()
        messages = await self._told(text, limit_s)
        errors = [one for one in messages if one.severity == "error"]
        if errors:
            if any(mark in errors[0].data for mark in _LIMITS):
                raise _Refused("io", errors[0].data)
            unread = next((one.data for one in errors if _NO_PARSE.match(one.data)), None)
            if unread is not None:
                return {"parseError": unread, "hasSorry": False, "hasUnsafe": False}
            return {"messages": [one.to_json() for one in errors], "hasSorry": False, "hasUnsafe": False}
        left = await self._goals_at(text, behind[at], term=False, limit_s=max(1.0, ends - time.monotonic()))
        if left is None:
            reason = "the text ends the proof that it stands in"
            return {"parseError": reason, "hasSorry": False, "hasUnsafe": False}
        made = _State(
            state.text,
            tuple(replace(one, goals=tuple(left)) if n == at else one for n, one in enumerate(tried.holes)),
        )
        # While there are goals, the sorry behind the steps has Lean say so anyway.
        sorried = not made.goals and any(one.data.startswith("declaration uses ") for one in messages)
        return {
            "nextStateId": self._kept(made),
            "goals": made.goals,
            "messages": [],
            "hasSorry": sorried,
            "hasUnsafe": False,
        }


class _Compiler:
    """Compiles texts into modules of a folder for the server, in a sandbox of their own."""

    def __init__(
        self, backend: LeanBackend, project: Path, options: tuple[str, ...], memory_bytes: int | None
    ) -> None:
        self._backend = backend
        self._project = project
        self._options = options
        self._memory_bytes = memory_bytes
        self._modules = tempfile.TemporaryDirectory(prefix="everlean-modules-", ignore_cleanup_errors=True)
        self._numbers = itertools.count(1)
        self.folder = Path(self._modules.name).resolve()

    async def compile(self, text: str, limit_s: float) -> str | None:
        """Return the name of the text's module; None if it does not compile, or not in time."""
        name = f"EverleanAbove{next(self._numbers)}"
        source, compiled = (self.folder / f"{name}.{ending}" for ending in ("lean", "olean"))
        await asyncio.to_thread(source.write_text, text, "utf-8")
        status, _ = await run_to_end(
            self._backend,
            (*self._options, "-R", str(self.folder), "-o", str(compiled), str(source)),
            project=self._project,
            folder=self.folder,
            memory_bytes=self._memory_bytes,
            limit_s=limit_s,
        )
        return name if status == 0 else None

    def close(self) -> None:
        self._modules.cleanup()


# ---- texts


def _uri(path: Path) -> str:
    return path.absolute().as_uri()


def _framed(message: _Object) -> bytes:
    try:
        data = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the request holds a lone surrogate, which is no text: {error}") from error
    if len(data) > MAX_LINE_BYTES:
        raise ReplError(f"a text of {len(data)} bytes is longer than {MAX_LINE_BYTES}")
    return b"Content-Length: %d\r\n\r\n" % len(data) + data


def _error(message: _Object) -> str:
    error = message["error"]
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)


def _closed(text: str, source: SourceFile) -> str:
    """Return a text with its open scopes closed and its settings kept inside, so that later text starts afresh."""
    scopes: list[str] = []
    for command in source.commands:
        if command.closes:
            del scopes[-command.closes :]
        elif command.opens:
            names = (_SCOPE.sub("", line).strip() for line in command.preamble.splitlines())
            scopes.extend(names)
    ends = "".join(f"end {name}\n" if name else "end\n" for name in reversed(scopes))
    return f"section\n{text}\n{ends}end\n"


def _steps(tactic: str, *, goal: int, goals: int) -> tuple[str, ...]:
    """Return the steps to run a tactic on one of several goals, with the others in their places."""
    body = "\n".join(f"  {line}" if line.strip() else "" for line in tactic.split("\n"))
    # In brackets, so that an unfinished tactic cannot take the text behind it for its own.
    step = f"focus (\n{body}\n)" if goals > 1 else f"(\n{body}\n)"
    return (f"rotate_left {goal}", step, f"rotate_right {goal}") if goal else (step,)


def _filled(hole: _Hole, indent: str) -> tuple[str, int]:
    """Return a hole with its steps, and the offset in it behind them."""
    lines = [f"{indent}{line}" if line else "" for step in hole.steps for line in step.split("\n")]
    # A sorry takes the first goal; the text behind it has the others.
    start, end = ("(by\n", ")") if hole.term else ("(focus (\n", "))")
    body = start + "\n".join(lines) + "\n" + indent
    return f"{body}{_REST}{end}", len(body)


def _place(text: str, offset: int) -> tuple[int, int]:
    """Return line and column, both from 0, the column in UTF-16 units."""
    start = text.rfind("\n", 0, offset) + 1
    return text.count("\n", 0, start), len(text[start:offset].encode("utf-16-le")) // 2


def _message(raw: _Object, lines: Sequence[str]) -> _Message:
    places = []
    span = raw.get("fullRange") or raw["range"]
    for end in ("start", "end"):
        line, units = int(span[end]["line"]), int(span[end]["character"])
        text = lines[line] if line < len(lines) else ""
        column = len(text.encode("utf-16-le")[: 2 * units].decode("utf-16-le", "ignore"))
        places.append((line, column))
    return _Message(
        _SEVERITIES.get(raw.get("severity", 1), "error"), str(raw["message"]), places[0], places[1]
    )


def _goal(text: str) -> _Object:
    """Return Lean's text of one goal as the REPL's object."""
    entries: list[str] = []
    for line in text.split("\n"):
        if line.startswith(" ") and entries:
            entries[-1] += "\n" + line
        else:
            entries.append(line)
    result: _Object = {"name": "", "vars": []}
    for entry in entries:
        if entry.startswith("case ") and not result["vars"]:
            result["userName"] = entry.removeprefix("case ")
        elif entry.startswith(("⊢ ", "| ")):
            result["target"] = {"pp": entry[2:]}
            result["fragment"] = "tactic" if entry.startswith("⊢") else "conv"
        else:
            names, _, said = entry.partition(" : ")
            kind, assigned, value = said.partition(" := ")
            for name in names.split():
                one: _Object = {
                    "name": name,
                    "userName": name,
                    "isInaccessible": "✝" in name,
                    "type": {"pp": kind},
                }
                result["vars"].append({**one, "value": {"pp": value}} if assigned else one)
    return result
