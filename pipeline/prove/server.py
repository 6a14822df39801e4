"""The Lean server for provers' searches, and their theorems: PyPantograph's place for programs.

with Server(project="/path/to/repository", imports=["Mathlib"]) as server: ...
"""

from __future__ import annotations

import tempfile
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pipeline.lean.backend import LeanBackend, find_leans
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.pool import ReplKey, ReplPool, Setup
from pipeline.lean.pool.session import Session
from pipeline.lean.sandbox.command import SandboxError
from pipeline.lean.source.scanner import locate, parse
from pipeline.lean.source.splice import Declaration, Replacement, splice
from pipeline.loop_thread import LoopThread
from pipeline.models.retriever.finder import Place
from pipeline.models.tactics.goals import NAME, SourcePlaces, statement
from pipeline.prove.whole_proof import WholeAsk
from store.domain.keywords import PROVABLE_KINDS

_SORRY = "by\n{indent}sorry"
T = TypeVar("T")

# ---- Lean


class ServerError(Exception):
    """No Lean here fits the request; the message gives the remedy."""


class Server:
    """REPL processes of one project, in the place of PyPantograph's `Server`. A context; `close` ends them.

    Several threads may search on one server at once: each search has its own states, and they share the processes.

    Attributes:
        project: the folder of the Lake project; an empty one if the caller named none.
        imports: modules for a bare goal's use.
        backend: runs Lean.
    """

    def __init__(
        self,
        project: str | Path | None = None,
        imports: Sequence[str] = ("Init",),
        lean: str | LeanBackend = "auto",
        *,
        repl: str = "",
        sandbox: str = "bubblewrap",
        limits: PoolLimits | None = None,
    ) -> None:
        """Find the backend of the project's toolchain. Processes start with the first search.

        Args:
            project: the folder of a Lake project, built; None for Lean's own modules alone.
            imports: modules.
            lean: "auto" (Lean, by the project's lean-toolchain), or a backend of `pipeline.lean.backend`.
            repl: path of a pantograph-repl; "" looks for one, as `[lean] repl` of the settings.
            sandbox: "bubblewrap", or "none" for trusted projects.
            limits: of the processes.

        Raises:
            ServerError: the folder does not exist, or no Lean fits it; the message gives the remedy.
        """
        self._attached = ExitStack()
        if project is None:
            self.project = Path(
                self._attached.enter_context(tempfile.TemporaryDirectory(prefix="everlean-lean-"))
            )
        else:
            self.project = Path(project).resolve()
            if not self.project.is_dir():
                raise ServerError(
                    f"project is {project}: there is no such folder. Name one of a Lake project"
                )
        self.imports = tuple(imports) or ("Init",)
        try:
            if not isinstance(lean, LeanBackend):
                leans = find_leans(backend=lean, repl=repl, sandbox=sandbox)
                # Without a project any Lean will do.
                lean = leans.summary if project is None else leans.for_toolchain(_toolchain_of(self.project))
            self.backend = lean
            if self.backend.kind == "none":
                raise ServerError(f"no Lean for {self.project}: {self.backend.detail}")
            if refused := self.backend.stand_in_problem():
                raise ServerError(refused)
        except (ValueError, SandboxError, ServerError) as error:
            self._attached.close()
            raise ServerError(str(error)) from error
        self._pool = ReplPool(limits)
        self._loop: LoopThread | None = LoopThread("lean-server")

    def session(self, theorem: RestatedTheorem) -> Session:
        """Return a session with a theorem stated; use it within `run`."""
        key = theorem.key or ReplKey(self.backend, self.project, self.imports)
        return Session(self._pool, key, theorem.setup)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the server's loop and return the result.

        Raises:
            ServerError: the server is closed.
        """
        if self._loop is None:
            work.close()
            raise ServerError("the server was closed; make another one")
        return self._loop.run(work)

    def close(self) -> None:
        """End the processes for good."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.run(self._pool.close())
            loop.close()
        self._attached.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _toolchain_of(project: Path) -> str:
    file = project / "lean-toolchain"
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


def checked(server: object) -> Server:
    """Return the server, if it is one of ours.

    Raises:
        TypeError: it is PyPantograph's, or no server.
    """
    if isinstance(server, Server):
        return server
    if type(server).__module__.partition(".")[0] == "pantograph":
        raise TypeError(
            "this is a Server of PyPantograph, which runs one search at a time and leaves a dead REPL dead. Use "
            "pipeline.prove.Server instead: Server(project=PROJECT_PATH, imports=IMPORTS) takes the same "
            "folder and modules, and starts the pantograph-repl that PyPantograph brought"
        )
    raise TypeError(
        f"server is a {type(server).__qualname__}; it takes a pipeline.prove.Server, made with the "
        "folder of the project"
    )


# ---- A theorem to prove
# A statement, a printed goal or a traced theorem becomes a declaration with a sorry for its proof, so that a found
# proof is tried as a whole text, as the prove job does. A theorem from a file of the project has that file up to the
# theorem as its context; its own proof is dropped.


class StatementError(Exception):
    """The input states no theorem to prove; the message gives the remedy."""


@dataclass(frozen=True, slots=True)
class RestatedTheorem:
    """A declaration with one sorry, and its context.

    Attributes:
        declaration: see `pipeline.prove.declaration`.
        key: of its file's processes; None: the server's.
        setup: the file's text before it.
        place: in its file, for retrieval.
        whole_file: whether its own file is the context.
    """

    declaration: Declaration
    key: ReplKey | None = None
    setup: Setup = Setup()  # noqa: RUF009 - frozen
    place: Place = Place()  # noqa: RUF009 - frozen
    whole_file: bool = False

    def asked(self, *, seed: int) -> WholeAsk:
        """Return the request for whole proofs of it."""
        (sorry,) = self.declaration.sorries
        return WholeAsk(self.declaration, sorry, seed=seed)

    def proof(self, replacement: Replacement) -> str:
        """Return the text behind the `:=` with the replacement in the sorry's place."""
        (sorry,) = self.declaration.sorries
        data = self.declaration.data
        begin = data.rindex(b"by", 0, sorry.byte_start)
        end = self.declaration.byte_end - len(data)
        patched = splice(data, replacement)
        return patched[begin : len(patched) + end].decode("utf-8", "replace").rstrip()


def restate_goal(goal: str, imports: Sequence[str] = ()) -> RestatedTheorem:
    """Return a theorem with a goal as its statement: a proposition, or a goal as Lean prints it.

    Raises:
        StatementError: the goal is empty, is several, or mentions hypotheses without a writable name.
    """
    text = goal.strip()
    if not text:
        raise StatementError("the goal is empty; give a proposition, or a goal as Lean prints it")
    header = f"theorem {NAME} : {text}"
    if "⊢" in text:
        stated = statement(text)
        if stated is None:
            raise StatementError(
                f"{text[:200]!r} cannot be written as a theorem: it has local definitions, hypotheses without a name, "
                "or no target. Give the theorem itself"
            )
        header = stated.header
    return _bare(header, Place(imports=tuple(imports) or None))


def restate_theorem(theorem: Any, server: Server | None) -> RestatedTheorem:
    """Return a theorem in its file's context; by its statement alone if the server's project has no such file.

    Args:
        theorem: a record of `store.leandojo`, or anything with `theorem_statement`, or `full_name` and `file_path`; or
            its text.
        server: whose project has the file; None: look for no file.

    Raises:
        StatementError: it has neither, or its kind cannot be proved.
    """
    if isinstance(theorem, str):
        return _of_text(theorem, Place())
    name, path = getattr(theorem, "full_name", None), getattr(theorem, "file_path", None)
    place = place_of(theorem)
    if name and path is not None and server is not None:
        result = _in_file(server, str(path), str(name), place.position)
        if result is not None:
            return result
    text = getattr(theorem, "theorem_statement", None)
    if not text:
        where = "no project was named" if server is None else f"{server.project} has no such theorem"
        raise StatementError(
            f"{name or type(theorem).__name__} cannot be stated: its record has no theorem_statement, and {where} in "
            f"{path}. Make the server with the folder of its repository, at the commit of the record"
        )
    return _of_text(str(text), place)


def place_of(theorem: Any) -> Place:
    """Return the place named by a record; any place without a file."""
    path, start = getattr(theorem, "file_path", None), getattr(theorem, "start", None)
    if path is None:
        return Place()
    position = None
    if start is not None:
        line, column = start
        position = (int(line), int(column))
    return Place(str(path), position, str(getattr(theorem, "full_name", None) or ""), ())


def _of_text(text: str, place: Place) -> RestatedTheorem:
    """Read a theorem's text, with or without its proof; or a proposition."""
    data = text.encode("utf-8", "replace")
    located = locate(data)
    if not located.declarations:
        return restate_goal(text)
    first = located.declarations[0]
    if first.record.kind not in PROVABLE_KINDS:
        raise StatementError(f"{first.record.name} is a {first.record.kind}, and only theorems are proved")
    return _bare(data[: located.positions.byte(first.stated)].decode("utf-8", "replace").rstrip(), place)


def _bare(header: str, place: Place) -> RestatedTheorem:
    data = f"{header} := {_SORRY.format(indent='  ')}\n".encode("utf-8", "replace")
    source = parse(data)
    if len(source.commands) != 1 or len(source.scanned.sorries) != 1:
        raise StatementError(f"{header[:200]!r} is not the statement of one theorem")
    return RestatedTheorem(Declaration.cut(data, source, source.commands[0]), place=place)


def _in_file(server: Server, path: str, name: str, start: tuple[int, int] | None) -> RestatedTheorem | None:
    """Return a theorem of a file with a sorry for its proof; None if the project has no such file or theorem."""
    file = server.project / path
    if not file.is_file() or not file.resolve().is_relative_to(server.project):
        return None
    data = file.read_bytes()
    located = locate(data)
    named = [item for item in located.declarations if item.record.name == name]
    if not named:
        return None
    chosen = min(named, key=lambda item: 0 if start is None else abs(item.record.line - start[0]))
    record = chosen.record
    if record.kind not in PROVABLE_KINDS:
        raise StatementError(f"{name} is a {record.kind}, and only theorems are proved")
    stated = data[: located.positions.byte(chosen.stated)].rstrip()
    proof = _SORRY.format(indent=" " * (record.column + 2))
    patched = stated + f" := {proof}\n".encode() + data[record.byte_end :]
    source = parse(patched)
    command = source.command_at(record.byte_start)
    position = (record.line, record.column + 1)
    result = SourcePlaces(server.backend, server.project)({"path": path, "start": position})
    if command is None or result is None:
        return None
    declaration = Declaration.cut(patched, source, command)
    if source.declarations_in(command) != 1 or len(declaration.sorries) != 1:
        raise StatementError(
            f"{name} shares its command with other declarations (mutual), or its statement has a sorry"
        )
    place = Place(path, position, name, result.key.imports)
    return RestatedTheorem(declaration, result.key, result.setup, place, whole_file=True)
