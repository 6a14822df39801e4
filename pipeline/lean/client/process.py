"""One REPL process as bytes: a line goes in, a line comes out, and nothing of the process outlives it.

Owns the three pipes, the time limit of an exchange and the end of the process group. Knows no command and no JSON.
Pipes are read as data arrives, standard error into a small ring all the time, so that the process never blocks on us
and a `PANIC` is seen before the answer it spoils is returned. Unasked output, and a second line after an answer, end
the process: later answers could not be matched to their requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import select
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self, cast

from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.errors import ReplDied, ReplProtocolError, ReplStartError, ReplTimeout
from pipeline.lean.sandbox.command import LEAN_RESERVES, Limits, SandboxError, bubblewrap, unconfined
from pipeline.lean.source.manifest import package_folders

MAX_LINE_BYTES = 256 * 1024 * 1024
# The most unasked output of a process; it serves only for an error's text.
_UNASKED_BYTES = 64 * 1024
_MOST_HEADER_BYTES = 64 * 1024
_LATE_S = 1.0
"""Output that came in time may be read this much later."""
_SMALL_FRAME_BYTES = 256
"""A frame's count beside its content: a flood of empty frames is a flood too."""
_MOST_UNSENT_BYTES = 64 * 1024 * 1024
STDERR_KEPT_BYTES = 64 * 1024
_CLOSE_S = 2.0
_PAGE_BYTES = resource.getpagesize()
_NO_MEMORY = re.compile(r"out of memory|bad_alloc|cannot allocate memory|MemoryError", re.IGNORECASE)


class _Pipes(asyncio.SubprocessProtocol):
    """The output of the process and its readers. Called by the event loop alone."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.output = bytearray()
        self.errors = bytearray()
        self.panicked = False
        self.asked = True  # it owes a line; the first is its greeting
        self.framed = False  # it speaks in frames, also unasked
        self.flooded = False
        self.eof = False
        self.deaf = False
        self.waiter: asyncio.Future[None] | None = None
        self.exited: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            # The word counts also across two reads.
            if b"PANIC" in self.errors[-4:] + data:
                self.panicked = True
            self.errors += data
            del self.errors[:-STDERR_KEPT_BYTES]
            return
        self.output += data
        if self.framed or (self.asked and b"\n" in data):
            self.wake()
            most = MAX_LINE_BYTES + _MOST_HEADER_BYTES if self.framed else None
        else:
            most = MAX_LINE_BYTES if self.asked else _UNASKED_BYTES
        if most is not None and len(self.output) > most and not self.flooded:
            self.flooded = True
            pipe = None if self._transport is None else self._transport.get_pipe_transport(1)
            if pipe is not None:
                pipe.close()
            self.wake()

    def pipe_connection_lost(self, fd: int, _exc: Exception | None) -> None:
        if fd == 1:
            self.eof = True
        elif fd == 0:
            self.deaf = True
        else:
            return
        self.wake()

    def process_exited(self) -> None:
        # Its id is free from now on; its group's is not while children live: the last moment to kill them.
        if self._transport is not None:
            kill_group(self._transport.get_pid())
        if not self.exited.done():
            self.exited.set_result(None)

    def connection_lost(self, _exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def wake(self, error: BaseException | None = None) -> None:
        if self.waiter is not None and not self.waiter.done():
            if error is None:
                self.waiter.set_result(None)
            else:
                self.waiter.set_exception(error)


class ReplProcess:
    """A running process that talks in lines. Make it with `start`; end it with `close`."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        pipes: _Pipes,
        memory_bytes: int | None,
    ) -> None:
        self._transport = transport
        self._pipes = pipes
        self._stdin = cast(asyncio.WriteTransport, transport.get_pipe_transport(0))
        self._loop = asyncio.get_running_loop()
        self._poll = select.poll()
        output = cast(asyncio.ReadTransport, transport.get_pipe_transport(1))
        pipe = output.get_extra_info("pipe")
        if not pipe.closed:  # it is closed if the process is gone already
            self._poll.register(pipe, select.POLLIN)
        self._memory_bytes = memory_bytes
        self._killed = False
        self.pid = transport.get_pid()
        self.dead: ReplDied | None = None

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        memory_bytes: int | None = None,
    ) -> Self:
        """Start the program in a session of its own.

        Args:
            argv, cwd, environment: the program, its folder, and its whole environment.
            memory_bytes: the cap on memory set by `argv`, None without one; for the text of errors.

        Raises:
            ReplStartError: it cannot be run.
        """
        try:
            transport, pipes = await asyncio.get_running_loop().subprocess_exec(
                _Pipes, *argv, cwd=cwd, env=dict(environment), start_new_session=True
            )
        except OSError as error:
            raise ReplStartError(f"{argv[0]}: cannot be started in {cwd}: {error}") from error
        return cls(transport, pipes, memory_bytes)

    @property
    def returncode(self) -> int | None:
        return self._transport.get_returncode()

    @property
    def running(self) -> bool:
        """Return True if an exchange can begin or is in progress."""
        pipes = self._pipes
        unasked = bool(pipes.output) and not pipes.asked
        return self.dead is None and self.returncode is None and not (pipes.eof or pipes.deaf or unasked)

    @property
    def panicked(self) -> bool:
        return self._pipes.panicked

    @property
    def stderr(self) -> str:
        """The last lines of its standard error."""
        return self._pipes.errors.decode("utf-8", errors="replace")

    def rss_bytes(self) -> int:
        """Return the resident size of the process and all below it, 0 when it is gone.

        Read from /proc. Compiled modules shared by several processes count in each; processes given away to init
        (impossible in a sandbox) count in none.
        """
        return 0 if self.returncode is not None else sum(map(_resident, _tree(self.pid)))

    # ---- lines

    async def exchange(self, data: bytes, limit_s: float, what: str) -> bytes:
        """Write one line (with its end; nothing when empty) and return the line of answer, without its end.

        Cancelling it ends the process, because the answer would otherwise be taken for the next one's.

        Args:
            data: the line.
            limit_s: seconds until the process is killed.
            what: a name of the request, for the errors.

        Raises:
            ReplTimeout, ReplProtocolError, ReplDied: the process is gone.
        """
        pipes = self._pipes
        unread = False
        if data and self.dead is None:
            unread = self._unread()
            # The event loop delivers data already read in its next turn.
            await asyncio.sleep(0)
        if self.dead is not None:
            raise self.dead
        if data:
            if pipes.asked:
                # The last caller was cancelled where nobody could end the process for it.
                raise await self.fatal(ReplDied, f"{what}: an earlier answer is still outstanding")
            if pipes.output or unread or self._unread():
                text = excerpt(pipes.output) if pipes.output else "something"
                raise await self.fatal(ReplProtocolError, f"{what}: it wrote {text} without being asked")
            pipes.asked = True
            self._stdin.write(data)
        if b"\n" not in pipes.output:
            await self._wait(limit_s, what)
            if self.dead is not None:
                raise ReplDied(f"{what}: {self.dead}")
        if pipes.deaf and b"\n" not in pipes.output:
            # It is most likely about to end; its last words explain more than that it does not read.
            await self._within(pipes.closed, 1.0)
        output = pipes.output
        end = output.find(b"\n")
        if end < 0:
            if pipes.flooded:
                raise await self.fatal(
                    ReplProtocolError, f"{what}: the answer is longer than {MAX_LINE_BYTES} bytes"
                )
            rest = f" after {excerpt(output)}" if output else ""
            closed = "output" if pipes.eof else "input"
            raise await self.fatal(ReplDied, f"{what}: the REPL closed its {closed}{rest}", wait=True)
        if end + 1 < len(output):
            text = excerpt(output[end + 1 : end + 200])
            raise await self.fatal(ReplProtocolError, f"{what}: it wrote {text} after its answer")
        with memoryview(output) as whole:
            line = bytes(whole[:end])
        # Give back a buffer grown by one large answer.
        pipes.output = bytearray()
        pipes.asked = False
        return line

    def _unread(self) -> bool:
        """Return whether the process has output not yet read by the event loop."""
        return not self._pipes.eof and any(event & select.POLLIN for _, event in self._poll.poll(0))

    async def _wait(self, limit_s: float, what: str) -> None:
        """Wait for the end of a line or of the process: one future and one timer, no task."""
        pipes = self._pipes
        if pipes.eof or pipes.deaf or pipes.flooded:
            return
        waiter = pipes.waiter = self._loop.create_future()
        timer = self._loop.call_later(limit_s, pipes.wake, TimeoutError())
        try:
            await waiter
        except TimeoutError:
            raise await self.fatal(ReplTimeout, f"{what}: no answer in {limit_s:g} s") from None
        except asyncio.CancelledError:
            await self.fatal(ReplDied, f"{what}: given up with its answer outstanding")
            raise
        finally:
            timer.cancel()
            pipes.waiter = None

    # ---- the end

    async def fatal(self, kind: type[ReplDied], what: str, *, wait: bool = False) -> ReplDied:
        """Kill the process, remember why, and return the error to raise. `wait`: it is ending by itself."""
        self.dead = kind(what)
        if wait:
            # Its own exit status says more than our SIGKILL.
            await self._within(self._pipes.exited, 1.0)
        await self._kill()
        code = self.returncode
        self.dead = kind(
            f"{what} (exit status {code}){self._cause()}{self.said()}", returncode=code, stderr=self.stderr
        )
        return self.dead

    async def close(self, *, grace_s: float = _CLOSE_S) -> None:
        """End the process by the end of its input, `grace_s` later by force, with all its children.

        A process that owes an answer is ended at once; its caller gets a `ReplDied`.
        """
        if self.dead is None:
            self.dead = ReplDied("the REPL was closed")
        self._stdin.close()
        if not self._pipes.asked:
            await self._within(self._pipes.exited, grace_s)
        await self._kill()

    def said(self) -> str:
        """Return the content of standard error, as the end of an error's text."""
        text = self.stderr.strip()
        return f"; standard error: {text[-2000:]}" if text else "; nothing on standard error"

    def _cause(self) -> str:
        """Return memory as the error's cause, if something shows that."""
        if self._memory_bytes is not None and _NO_MEMORY.search(self.stderr):
            return f"; it ran into its memory cap of {self._memory_bytes} bytes: raise it, or ask for less at once"
        if not self._killed and self.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL):
            return "; killed by another than this program, most often the kernel for want of memory"
        return ""

    async def _kill(self) -> None:
        # The whole group: a REPL in a sandbox, or with children, is more than one process.
        if self.returncode is None:
            self._killed = True
            kill_group(self.pid)
        await self._within(self._pipes.exited, _CLOSE_S)
        # A child in a session of its own may hold the pipes open; do not wait for it.
        await self._within(self._pipes.closed, _CLOSE_S)
        self._transport.close()

    @staticmethod
    async def _within(event: asyncio.Future[None], limit_s: float) -> None:
        if not event.done():
            await asyncio.wait([event], timeout=limit_s)


class ServerProcess(ReplProcess):
    """A process that talks in frames, each after a header with its length, and may talk at any time."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        pipes: _Pipes,
        memory_bytes: int | None,
    ) -> None:
        super().__init__(transport, pipes, memory_bytes)
        pipes.framed = True
        self._taken = 0
        """Bytes of frames since the last request: like a line, an answer has a bound."""

    def write(self, data: bytes) -> None:
        """Send a frame that asks for a new answer; if the process is gone, reading raises."""
        self._taken = 0
        self.respond(data)

    def respond(self, data: bytes) -> None:
        """Send a frame that asks for nothing."""
        if self.dead is None and self._stdin.get_write_buffer_size() < _MOST_UNSENT_BYTES:
            self._stdin.write(data)

    async def frame(self, header: re.Pattern[bytes], limit_s: float, what: str) -> bytes | None:
        """Return the next frame's content; None if it has not come in time.

        Args:
            header: matches a frame's header, with the length of its content as first group.
            limit_s: seconds to wait.
            what: a name of the request, for the errors.

        Raises:
            ReplDied, ReplProtocolError: the process is gone.
        """
        pipes = self._pipes
        ends = time.monotonic() + limit_s
        while True:
            if self.dead is not None:
                raise ReplDied(f"{what}: {self.dead}")
            if time.monotonic() > ends + _LATE_S:
                return None  # however much more it sends
            match = header.match(pipes.output)
            if match is not None:
                length = int(match[1]) if len(match[1]) < 18 else MAX_LINE_BYTES + 1
                if self._taken + length > MAX_LINE_BYTES:
                    raise await self.fatal(
                        ReplProtocolError, f"{what}: the answer is longer than {MAX_LINE_BYTES} bytes"
                    )
                end = match.end() + length
                if len(pipes.output) >= end:
                    data = bytes(pipes.output[match.end() : end])
                    del pipes.output[:end]
                    self._taken += len(data) + _SMALL_FRAME_BYTES
                    return data
            elif len(pipes.output) > _MOST_HEADER_BYTES:
                raise await self.fatal(ReplProtocolError, f"{what}: {excerpt(pipes.output)} is no header")
            if pipes.flooded:
                raise await self.fatal(ReplProtocolError, f"{what}: more than {MAX_LINE_BYTES} bytes at once")
            if pipes.eof:
                raise await self.fatal(ReplDied, f"{what}: the server closed its output", wait=True)
            if (left_s := ends - time.monotonic()) <= 0:
                return None
            waiter = pipes.waiter = self._loop.create_future()
            timer = self._loop.call_later(left_s, pipes.wake)
            try:
                await waiter
            finally:
                timer.cancel()
                pipes.waiter = None


def kill_group(pid: int) -> None:
    """Kill every process of a group, if any is left."""
    # PermissionError is macOS's answer for a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def excerpt(line: bytes | bytearray) -> str:
    """Return the beginning of a line for an error's text."""
    text = bytes(line[:120]).decode("utf-8", errors="replace")
    return repr(text) + ("…" if len(line) > 120 else "")


def _tree(pid: int) -> list[int]:
    """Return the process and its descendants, as far as they live."""
    result, todo = [], [pid]
    while todo:
        one = todo.pop()
        result.append(one)
        try:
            threads = list(Path(f"/proc/{one}/task").iterdir())
        except (FileNotFoundError, ProcessLookupError):
            continue
        for thread in threads:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                todo += map(int, (thread / "children").read_bytes().split())
    return result


def _resident(pid: int) -> int:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE_BYTES
    return 0


# ---- The start of a REPL process
# Its argument list, environment and sandbox, for a backend and a project.


# By this variable the daemon finds the remains of a dead job; its value is a folder's name.
_ATTEMPT = "EVERLEAN_ATTEMPT"


def lean_path(project: Path, *, library: Path | None = None) -> str:
    """Return LEAN_PATH for a built project: the toolchain's library, the project's oleans, its packages'.

    `library` is first, so that no module built by a project can hide one of Lean's own; Lean itself would look there
    last. `lake env` would run the project's lakefile; the layout is fixed, so it is not needed. A newline at the end
    would make Lean miss the last folder, so there is none.
    """
    first = () if library is None else (library,)
    return ":".join(str(folder.absolute()) for folder in (*first, *built_folders(project)))


def built_folders(project: Path) -> list[Path]:
    """Return the folders of a built project's oleans and its packages'."""
    roots = [project, *package_folders(project), *sorted((project / ".lake" / "packages").glob("*"))]
    folders = [root / ".lake" / "build" / "lib" / leaf for root in roots for leaf in ("lean", "")]
    # Older lakes have no `lean` below `lib`; otherwise `lib` itself holds no oleans.
    return [
        folder
        for folder in folders
        if folder.is_dir() and not (folder.name == "lib" and (folder / "lean").is_dir())
    ]


def command_line(
    backend: LeanBackend,
    *,
    arguments: Sequence[str],
    project: Path,
    memory_bytes: int | None,
    modules: Path | None = None,
    compiles: bool = False,
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the argument list, which sets the memory cap, and the whole environment.

    Of our own variables only the daemon's mark for a job's remains is in it. `modules` is a further folder of compiled
    modules, writable for a process that `compiles`. The process dies with the thread that starts it, sandboxed or not.

    Raises:
        ReplStartError: no backend, project, sandbox or util-linux.
    """
    if backend.kind == "none":
        raise ReplStartError(f"no Lean: {backend.detail}")
    if not project.is_dir():
        raise ReplStartError(f"{project}: no such folder to run the REPL in")
    command = (*backend.argv, *arguments)
    limits = Limits(memory_bytes=memory_bytes)
    environment = {"LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"}
    attempt = {name: os.environ[name] for name in (_ATTEMPT,) if name in os.environ}
    environment |= LEAN_RESERVES
    environment["LEAN_PATH"] = lean_path(project, library=backend.library)
    readable = [Path(backend.argv[0])]
    writable: list[Path] = []
    if modules is not None:
        environment["LEAN_PATH"] += f":{modules}"
        (writable if compiles else readable).append(modules)
    if backend.sysroot:
        environment["LEAN_SYSROOT"] = backend.sysroot
        environment["PATH"] = f"{backend.sysroot}/bin:{environment['PATH']}"
        readable.append(Path(backend.sysroot))
    # The language server has lake set up each file, which runs the lakefile and builds: without a lake it takes
    # LEAN_PATH and the options of our command line.
    environment["LAKE"] = "/nonexistent/lake"
    if backend.sandbox == "none":
        home = {name: os.environ[name] for name in ("HOME", "ELAN_HOME") if name in os.environ}
        return _alone(command, limits), {**home, **environment, **attempt}
    try:
        argv = bubblewrap(
            command,
            project=project,
            readable=readable,
            writable=writable,
            environment=environment,
            limits=limits,
        )
    except SandboxError as error:
        raise ReplStartError(str(error)) from error
    return argv, attempt


async def run_to_end(
    backend: LeanBackend,
    arguments: Sequence[str],
    *,
    project: Path,
    folder: Path,
    memory_bytes: int | None,
    limit_s: float,
) -> tuple[int | None, str]:
    """Run the backend's program once, with `folder` writable; return its exit status and the end of its output.

    The status is None after the time limit.

    Raises:
        ReplStartError: as `command_line`, or the program cannot be started.
    """
    argv, environment = command_line(
        backend,
        arguments=arguments,
        project=project,
        memory_bytes=memory_bytes,
        modules=folder,
        compiles=True,
    )
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=project,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise ReplStartError(f"{argv[0]}: {error}") from error
    assert process.stdout is not None
    text = b""
    try:
        async with asyncio.timeout(limit_s):
            while piece := await process.stdout.read(STDERR_KEPT_BYTES):
                text = (text + piece)[-STDERR_KEPT_BYTES:]
            await process.wait()
    except TimeoutError:
        return None, text.decode(errors="replace")
    finally:
        if process.returncode is None:
            kill_group(process.pid)
            await process.wait()
    return process.returncode, text.decode(errors="replace")


def _alone(command: Sequence[str], limits: Limits) -> tuple[str, ...]:
    """Return the argument list for a process without a sandbox, killed by the kernel when we die.

    A hanging process does not notice the end of its input. bwrap asks for this by itself (`--die-with-parent`); here
    setpriv does, because `preexec_fn` would copy our page tables for every start, with the event loop standing still.
    If we die before setpriv has asked, the process finds its input empty and at its end.
    """
    program = shutil.which("setpriv")
    if program is None:
        raise ReplStartError("setpriv: not on PATH; install util-linux, which brings it")
    try:
        return (program, "--pdeathsig", "KILL", "--", *unconfined(command, limits=limits))
    except SandboxError as error:
        raise ReplStartError(str(error)) from error


def module_names(imports: Sequence[str]) -> tuple[str, ...]:
    """Check that these are module names, not options.

    Raises:
        ReplStartError: one begins like an option, is empty or holds white space.
    """
    for name in imports:
        if not name or name.startswith("-") or any(character.isspace() for character in name):
            raise ReplStartError(f"import {name!r}: no module name")
    return tuple(imports)
