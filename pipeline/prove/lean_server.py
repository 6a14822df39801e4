"""Lean for scripts: REPL processes behind one object that takes no event loop.

    with Server(project="/path/to/repository", imports=["Mathlib"]) as server:
        result, tactics = prover.search(server, goal="∀ p : Prop, p → p")

It stands where LeanDojo-v2's scripts have PyPantograph's `Server`. Several searches may run on one server at once, from
several threads: each has states of its own, and processes are shared between them.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from pipeline.lean.backend import LeanBackend, find_leans
from pipeline.lean.pool.pool import PoolLimits, ReplKey, ReplPool, Setup
from pipeline.lean.sandbox.command import SandboxError
from pipeline.lean.source.lexer import tokens_of
from pipeline.lean.source.scanner import Located, SourceFile, locate, parse
from pipeline.lean.source.splice import Declaration, Replacement, splice
from pipeline.lean.toolchain.toolchains import ToolchainError
from pipeline.loop_thread import LoopThread
from pipeline.models.tactics.goals import NAME, SourcePlaces, statement
from pipeline.prove.retrieval import Place

T = TypeVar("T")


class ServerError(Exception):
    """There is no Lean to be had as wanted; the message says what to do."""


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
            "pipeline.prove.Server instead: Server(project=PROJECT_PATH, imports=IMPORTS) takes the same "
            "folder and modules, and starts the pantograph-repl that PyPantograph brought"
        )
    raise TypeError(
        f"server is a {type(server).__qualname__}; it takes a pipeline.prove.Server, made with the "
        "folder of the project"
    )


def _toolchains() -> Path:
    """Return where `unsorry toolchain install` puts them unless the settings say otherwise."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "unsorry" / "toolchains"


# ---- A theorem as something to prove
# Its statement with one sorry for a proof, where it stands in its file.
# Whatever comes (a statement, a goal as Lean prints it, a traced theorem) becomes a declaration with a sorry, so that
# what a search finds is tried as a whole text afterwards, as the prove job does. Of a theorem whose file is there,
# that file up to the theorem is the context; a proof that the theorem has already is not looked at.


PROVABLE = frozenset({"theorem", "lemma", "example"})
_SORRY = "by\n{indent}sorry"


class StatementError(Exception):
    """There is nothing here that could be proved; the message says what to give instead."""


@dataclass(frozen=True, slots=True)
class Restated:
    """A declaration with one sorry, and what stands before it.

    Attributes:
        declaration: see `pipeline.prove.declaration`.
        imports: of its file; none: the server's.
        setup: the file's text before it.
        place: where it stands, for retrieval.
        whole_file: whether its own file is the context.
    """

    declaration: Declaration
    imports: tuple[str, ...] = ()
    setup: Setup = Setup()  # noqa: RUF009 - frozen
    place: Place = Place()  # noqa: RUF009 - frozen
    whole_file: bool = False

    @property
    def context(self) -> str:
        """The text of the file before the declaration."""
        return self.declaration.data[: self.declaration.byte_start].decode("utf-8", "replace")

    def proof(self, replacement: Replacement) -> str:
        """Return what stands behind the `:=` with the replacement in the sorry's place."""
        (sorry,) = self.declaration.sorries
        data = self.declaration.data
        begin = data.rindex(b"by", 0, sorry.byte_start)
        end = self.declaration.byte_end - len(data)
        patched = splice(data, replacement)
        return patched[begin : len(patched) + end].decode("utf-8", "replace").rstrip()


def of_goal(goal: str, imports: Sequence[str] = ()) -> Restated:
    """Return a theorem that states a goal: a proposition of Lean, or a goal as Lean prints it.

    Raises:
        StatementError: it is empty, has several goals, or mentions hypotheses that have no name to write.
    """
    text = goal.strip()
    if not text:
        raise StatementError("the goal is empty; give a proposition, or a goal as Lean prints it")
    if "⊢" not in text:
        return _bare(f"theorem {NAME} : {text}", Place(imports=tuple(imports) or None))
    stated = statement(text)
    if stated is None:
        raise StatementError(
            f"{text[:200]!r} cannot be written as a theorem: it has local definitions, hypotheses without a name, or "
            "no target. Give the theorem itself"
        )
    return _bare(stated.header, Place(imports=tuple(imports) or None))


def of_theorem(theorem: Any, server: Server | None) -> Restated:
    """Return a theorem as it stands in the server's project; by its statement alone where its file is not there.

    Args:
        theorem: a record of `store.leandojo`, or anything with `theorem_statement`, or `full_name` and `file_path`;
            or its text.
        server: whose project has the file; None: no file is looked for.

    Raises:
        StatementError: it has neither, or its kind cannot be proved.
    """
    if isinstance(theorem, str):
        return _of_text(theorem, Place())
    name, path = getattr(theorem, "full_name", None), getattr(theorem, "file_path", None)
    if name and path is not None and server is not None:
        found = _in_file(server, str(path), str(name), getattr(theorem, "start", None))
        if found is not None:
            return found
    said = getattr(theorem, "theorem_statement", None)
    if not said:
        where = "no project was named" if server is None else f"{server.project} has no such theorem"
        raise StatementError(
            f"{name or type(theorem).__name__} cannot be stated: its record has no theorem_statement, and {where} in "
            f"{path}. Make the server with the folder of its repository, at the commit of the record"
        )
    start = getattr(theorem, "start", None)
    position = None if start is None else (int(next(iter(start))), int(tuple(start)[1]))
    place = Place() if path is None else Place(str(path), position, str(name or ""), ())
    return _of_text(str(said), place)


def _of_text(text: str, place: Place) -> Restated:
    """Read a theorem's text, with or without its proof; or a proposition."""
    data = text.encode("utf-8", "replace")
    found = locate(data).declarations
    if not found:
        return of_goal(text)
    header = _header(data, found[0])
    if found[0].record.kind not in PROVABLE:
        raise StatementError(
            f"{found[0].record.name} is a {found[0].record.kind}, and only theorems are proved"
        )
    return _bare(header, place)


def _header(data: bytes, located: Located) -> str:
    end = locate(data).positions.byte(located.stated)
    return data[:end].decode("utf-8", "replace").rstrip()


def _bare(header: str, place: Place) -> Restated:
    data = f"{header} := {_SORRY.format(indent='  ')}\n".encode("utf-8", "replace")
    source = parse(data)
    if len(source.commands) != 1 or len(source.scanned.sorries) != 1:
        raise StatementError(f"{header[:200]!r} is not the statement of one theorem")
    return Restated(_declaration(data, source, 0, ""), place=place)


def _in_file(server: Server, path: str, name: str, start: Any) -> Restated | None:
    """Return a theorem of a file, its proof made a sorry; None where the project has no such file or theorem."""
    file = server.project / path
    if not file.is_file() or not file.resolve().is_relative_to(server.project):
        return None
    data = file.read_bytes()
    located = locate(data)
    named = [item for item in located.declarations if item.record.name == name]
    if not named:
        return None
    line = None if start is None else next(iter(start))
    chosen = min(named, key=lambda item: abs(item.record.line - line) if line is not None else 0)
    record = chosen.record
    if record.kind not in PROVABLE:
        raise StatementError(f"{name} is a {record.kind}, and only theorems are proved")
    begin, end = located.positions.byte(chosen.stated), record.byte_end
    proof = _SORRY.format(indent=" " * (record.column + 2))
    kept = data[:begin].rstrip()
    patched = kept + f" := {proof}\n".encode() + data[end:]
    source = parse(patched)
    number = next(
        (n for n, item in enumerate(source.commands) if item.byte_start <= record.byte_start < item.byte_end),
        None,
    )
    found = SourcePlaces(server.backend, server.project)(
        {"path": path, "start": (record.line, record.column + 1)}
    )
    if number is None or found is None:
        return None
    declaration = _declaration(patched, source, number, found.preamble)
    beside = sum(
        declaration.byte_start <= one.byte_start < declaration.byte_end for one in source.scanned.declarations
    )
    if beside != 1 or len(declaration.sorries) != 1:
        raise StatementError(
            f"{name} shares its command with other declarations (mutual), or its statement has a sorry"
        )
    position = (record.line, record.column + 1)
    return Restated(
        declaration,
        found.key.imports,
        found.setup,
        Place(path, position, name, found.key.imports),
        whole_file=True,
    )


def _declaration(data: bytes, source: SourceFile, number: int, preamble: str) -> Declaration:
    command = source.commands[number]
    start, end = command.byte_start, command.byte_end
    return Declaration(
        data=data,
        byte_start=start,
        byte_end=end,
        preamble=preamble,
        tokens=tokens_of(data, start, end),
        sorries=tuple(one for one in source.scanned.sorries if start <= one.byte_start < end),
    )
