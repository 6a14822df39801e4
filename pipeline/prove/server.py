"""Lean for scripts: REPL processes behind one object that takes no event loop.

    with Server(project="/path/to/repository", imports=["Mathlib"]) as server:
        result, tactics = prover.search(server, goal="∀ p : Prop, p → p")

It stands where LeanDojo-v2's scripts have PyPantograph's `Server`. Several searches may run on one server at once, from
several threads: each has states of its own, and processes are shared between them.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from pipeline.lean.backend import LeanBackend, find_leans
from pipeline.lean.pool.pool import ReplPool
from pipeline.lean.pool.pooled import PoolLimits, ReplKey
from pipeline.lean.sandbox.command import SandboxError
from pipeline.lean.toolchain.toolchains import ToolchainError

T = TypeVar("T")


class ServerError(Exception):
    """There is no Lean to be had as wanted; the message says what to do."""


class LoopThread:
    """An event loop in a thread of its own, for what lives longer than one call."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the loop and return what comes of it; what interrupts the caller cancels it."""
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    async def of_another_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on this loop what a task of another one waits for."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        """End the loop. What still runs on it is cancelled."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _forever(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self._loop.close()


class Server:
    """REPL processes of one project. A context; `close` ends them.

    Attributes:
        project: the folder of the Lake project: an empty one where none was named.
        imports: modules that a bare goal may use.
        backend: what runs Lean.
    """

    def __init__(
        self,
        project: str | Path | None = None,
        imports: Sequence[str] = ("Init",),
        lean: str | LeanBackend = "auto",
        *,
        repl: str = "",
        sandbox: str = "bubblewrap",
        toolchains: str | Path | None = None,
        limits: PoolLimits | None = None,
    ) -> None:
        """Find what runs Lean for the project's toolchain. Processes are started when they are needed.

        Args:
            project: the folder of a Lake project, built; None for what is installed with Lean alone.
            imports: modules.
            lean: "auto" (Lean, by the project's lean-toolchain), "pantograph", "simulator" (proves nothing: for trying
                things out), or what `pipeline.lean.backend` found.
            repl: path of a pantograph-repl; "" looks for one, as `[lean] repl` of the settings.
            sandbox: "bubblewrap", or "none" for projects whose code is trusted.
            toolchains: the folder of `unsorry toolchain install`; None for where that puts them by default.
            limits: of the processes.

        Raises:
            ServerError: there is no such folder, or no Lean for it; the message says what to do.
        """
        self._held = ExitStack()
        self._loop: LoopThread | None = None
        if project is None:
            self.project = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="unsorry-lean-")))
        else:
            self.project = Path(project).resolve()
            if not self.project.is_dir():
                raise ServerError(
                    f"project is {project}: there is no such folder. Name one of a Lake project"
                )
        self.imports = tuple(imports) or ("Init",)
        try:
            self.backend = self._found(lean, project, repl, sandbox, toolchains)
            self._held.enter_context(self.backend.in_use())
        except (ValueError, ToolchainError, SandboxError) as error:
            self._held.close()
            raise ServerError(str(error)) from error
        self._limits = limits
        self._pool: ReplPool | None = None
        self._starting = threading.Lock()

    @property
    def simulated(self) -> bool:
        """Whether the simulator stands in for Lean: nothing that it accepts is a proof."""
        return self.backend.simulated

    def key(self, imports: Sequence[str] = ()) -> ReplKey:
        """Return what a process with these imports (none: the server's) is started with."""
        return ReplKey(self.backend, self.project, tuple(imports) or self.imports)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the server's loop, where its pool's sessions live, and return what comes of it.

        Raises:
            ServerError: the server is closed.
        """
        try:
            loop = self._running()
        except ServerError:
            work.close()
            raise
        return loop.run(work)

    async def pool(self) -> ReplPool:
        """Return the processes; for work that `run` runs."""
        if self._pool is None:
            self._pool = ReplPool(self._limits)
        return self._pool

    def close(self) -> None:
        """End the processes. A closed server is of no more use."""
        with self._starting:
            loop, self._loop, self._closed = self._loop, None, True
        if loop is not None:
            pool, self._pool = self._pool, None
            if pool is not None:
                loop.run(pool.close())
            loop.close()
        self._held.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    _closed = False

    def _running(self) -> LoopThread:
        with self._starting:
            if self._closed:
                raise ServerError("the server was closed; make another one")
            if self._loop is None:
                self._loop = LoopThread("lean-server")
            return self._loop

    def _found(
        self,
        lean: str | LeanBackend,
        project: str | Path | None,
        repl: str,
        sandbox: str,
        toolchains: str | Path | None,
    ) -> LeanBackend:
        if isinstance(lean, LeanBackend):
            found = lean
        else:
            folder = _toolchains() if toolchains is None else Path(toolchains)
            leans = find_leans(backend=lean, repl=repl, sandbox=sandbox, toolchains=folder)
            named = self.project / "lean-toolchain"
            text = named.read_text(encoding="utf-8", errors="replace") if named.is_file() else ""
            # Without a project any Lean will do.
            found = leans.summary if project is None else leans.for_toolchain(text)
        if found.kind == "none":
            raise ServerError(
                f"no Lean for {self.project}: {found.detail}. To try things out without Lean: lean='simulator'"
            )
        return found


def checked(server: object) -> Server:
    """Return a server of ours.

    Raises:
        TypeError: it is PyPantograph's, or something else.
    """
    if isinstance(server, Server):
        return server
    made_by = type(server).__module__.partition(".")[0]
    if made_by == "pantograph":
        raise TypeError(
            "this is a Server of PyPantograph, which runs one search at a time and leaves a dead REPL dead. Use "
            "pipeline.prove.server.Server instead: Server(project=PROJECT_PATH, imports=IMPORTS) takes the same folder "
            "and modules, and starts the pantograph-repl that PyPantograph brought"
        )
    raise TypeError(
        f"server is a {type(server).__qualname__}; it takes a pipeline.prove.server.Server, made with the folder of "
        "the project"
    )


def _toolchains() -> Path:
    """Return where `unsorry toolchain install` puts them unless the settings say otherwise."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "unsorry" / "toolchains"
