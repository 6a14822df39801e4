"""Run lake, lean and other programs of a repository: in the sandbox, bounded, and ended for certain.

Two layers. `run_bounded` runs any argument list: it keeps the output's two ends, has a time limit, watches the memory,
processes and disk of the whole tree, and leaves none of its processes alive. `LakeRunner` composes the command line for
one project: the lake, its rights to read and write, its environment.

`build` makes single modules of a project. Elsewhere: lake's other tasks (`pipeline.build`,
`pipeline.gate.lake_checks`), and toolchains.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.lean.backend import LeanBackend, Sandbox
from pipeline.lean.sandbox.bounded import Bounds, Ending, Outcome, run_bounded
from pipeline.lean.sandbox.command import (
    LEAN_RESERVES,
    PRIVATE_HOME,
    Limits,
    SandboxError,
    bubblewrap,
    secrets_file,
    unconfined,
)
from pipeline.lean.source.projects import LAKEFILES

__all__ = ["Bounds", "Ending", "LakeRunner", "Outcome", "run_bounded"]

MOST_PROCESSES = 1024
"""The processes of lake and all its children, in the bounds of a build: it starts about as many as there are cores.
Threads have a bound of their own, `Limits.processes`."""
BUILD_BOUNDS = Bounds(timeout_s=1500.0, processes=MOST_PROCESSES, disk_bytes=4 * 2**30)
"""For a `lake build` of single modules (`build`) by the gate, a search or a bump. A build job, which fetches packages
and builds the whole project, has those of `[build]` in the settings."""
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class LakeRunner:
    """One project and the lake that works in it.

    `toolchain` is the folder of the toolchain, None for a lake found on PATH. `readable`, `writable` and `mounts` are
    those of `sandbox.bubblewrap`; with nothing writable lake can only read. `wrap` is put before the program inside the
    sandbox (a forwarder for a network). `secrets` are variables hidden from lists of processes.
    """

    program: Path
    toolchain: Path | None
    sandbox: Sandbox
    project: Path
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    mounts: Mapping[Path, Path] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    wrap: tuple[str, ...] = ()
    certificates: bool = False

    @classmethod
    def find(cls, backend: LeanBackend, *, project: Path) -> LakeRunner | str:
        """Return the lake of the backend's toolchain, or a sentence on why it cannot be used."""
        if not backend.is_lean:
            return f"no Lean here: {backend.detail or 'the backend is ' + backend.kind}"
        if not any((project / name).is_file() for name in LAKEFILES):
            return "the project has no lakefile"
        if backend.sysroot:
            own = Path(backend.sysroot) / "bin" / "lake"
            if own.is_file():
                return cls(own, Path(backend.sysroot), backend.sandbox, project)
        result = shutil.which("lake")
        if result is None:
            return "lake is not installed"
        return cls(Path(result), None, backend.sandbox, project)

    @property
    def library(self) -> Path | None:
        """The folder of the oleans of Lean's own library; None if the toolchain's folder is unknown."""
        if self.toolchain is not None:
            return self.toolchain / "lib" / "lean"
        beside = self.program.resolve().parent.parent / "lib" / "lean"
        return beside if (beside / "Init.olean").is_file() else None

    def with_(self, **changes: object) -> LakeRunner:
        """Return the same runner with other fields."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def run(self, *arguments: str, bounds: Bounds, on_line: Callable[[str], None] | None = None) -> Outcome:
        """Run `lake <arguments>` in the project; see `execute`."""
        return self.execute((str(self.program), *arguments), bounds=bounds, on_line=on_line)

    def execute(
        self,
        command: Sequence[str],
        *,
        bounds: Bounds,
        stdin: Path | None = None,
        on_line: Callable[[str], None] | None = None,
        stop: socket.socket | None = None,
    ) -> Outcome:
        """Run a program (by absolute path) like lake, and wait for the end of all its processes.

        `bounds.memory_bytes` also becomes the limit of each process. With `disk_bytes` and nothing `watched`, the
        writable folders are watched. `stdin` is its input, `on_line` gets each line of output; the end of `stop` ends
        it.

        Raises:
            SandboxError: the sandbox cannot be composed; nothing was run.
            StoppedError: `stop` has ended.
        """
        if bounds.disk_bytes is not None and not bounds.watched:
            watched = tuple(folder for folder in self.writable if folder.is_dir())
            bounds = dataclasses.replace(bounds, watched=watched)
        # A single file may grow a little past the bound of all, so that the watch sees it first and names it.
        file_bytes = None if bounds.disk_bytes is None else bounds.disk_bytes + 2**20
        limits = Limits(memory_bytes=bounds.memory_bytes, file_bytes=file_bytes)
        command = (*self.wrap, *command)
        if self.sandbox == "none":
            if self.mounts:
                raise SandboxError("mounts: without a sandbox nothing can be mounted at another path")
            return run_bounded(
                unconfined(command, limits=limits),
                cwd=self.project,
                bounds=bounds,
                environment={**self._environment(), **self.secrets},
                stdin=stdin,
                on_line=on_line,
                stop=stop,
            )

        def compose(info_fd: int) -> Sequence[str]:
            return bubblewrap(
                command,
                project=self.project,
                readable=(self.toolchain or self.program, *self.readable),
                writable=self.writable,
                mounts=self.mounts,
                environment=self._environment(),
                limits=limits,
                secrets=secrets,
                certificates=self.certificates,
                info_fd=info_fd,
            )

        with secrets_file(self.secrets) if self.secrets else nullcontext() as secrets:
            return run_bounded(
                compose, cwd=self.project, bounds=bounds, stdin=stdin, on_line=on_line, stop=stop
            )

    def _environment(self) -> dict[str, str]:
        listed = {
            "LANG": "C.UTF-8",
            "PATH": f"{self.program.parent}:{SYSTEM_PATH}",
            "HOME": str(PRIVATE_HOME),
            # A build's files must be in the project's own folders, which are kept.
            "LAKE_ARTIFACT_CACHE": "false",
            "MATHLIB_NO_CACHE_ON_UPDATE": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_NOSYSTEM": "1",
            **LEAN_RESERVES,
        }
        if self.sandbox == "none":
            listed["HOME"] = str(Path.home())
        return {**listed, **self.environment}


# ---- output of `lake build`
# Lake has had three styles: `[3/9] Building A.B` (before 4.9), `✖ [3/9] Building A.B` with `error: A/B.lean:1:2: …`
# below it, and since then a summary `Some required targets logged failures:` with one `- A.B` a line.


MOST_ERRORS = 20
MOST_FAILED = 10_000
_ERROR_LENGTH = 300
MOST_MESSAGES = 5000
MOST_MESSAGE_LENGTH = 4000
_STEP = re.compile(r"(?P<mark>\S+ )?\[(?P<done>\d{1,6})/(?P<total>\d{1,6})\] (?P<what>.*)")
_MODULE = re.compile(r"[^\W\d][\w'!?«»]*(\.[\w'!?«»]+)*")
_SUMMARY = re.compile(r"Some (required )?\w+ logged failures:")
_DURATION = re.compile(r" \([0-9.]+ ?m?s\)$")
_BAD_IMPORT = re.compile(r"error: (?P<path>[^\s:][^:]*\.lean): (?P<text>bad import .*)")
_FRAME = re.compile(r"(?:error|warning|info|trace): ")
_MESSAGE = re.compile(
    r"(?:(?P<first>error|warning|info): )?(?:\./)*(?P<path>[^\s:][^:]*\.lean):(?P<line>\d{1,9}):(?P<column>\d{1,9}):"
    r" (?:(?P<second>error|warning): )?(?P<text>.*)"
)
_PLACED = re.compile(
    r"(?:error: )?(?P<path>[^\s:][^:]*\.lean):(?P<line>\d+):(?P<column>\d+): (?P<error>error: )?(?P<text>.*)"
)


@dataclass(frozen=True, slots=True)
class Step:
    """`[done/total]`, and lake's work there."""

    done: int
    total: int
    what: str


@dataclass(frozen=True, slots=True)
class BuildMessage:
    """Lean's message on a place in a file. `line` counts from 1, `column` from 0 in code points."""

    severity: str
    path: str
    line: int
    column: int
    text: str


@dataclass(slots=True)
class BuildLog:
    """Collects from lines, in their order. Give each line of output to `line`.

    `failed` holds the modules named as failed by lake; `errors` the first errors, "path:line:column: text"; `messages`
    all messages on places in files, with all their lines, up to a limit. They are hints: a project can print anything.
    """

    failed: dict[str, None] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    messages: list[BuildMessage] = field(default_factory=list)
    _open: bool = False
    _building: str = ""
    _in_summary: bool = False

    def take(self, text: str) -> None:
        """Read the next line."""
        self.line(text)

    def line(self, text: str) -> Step | None:
        """Read the next line; return its step, if it reports one."""
        text = text.rstrip("\r")
        if self._in_summary:
            if text.startswith("- "):
                self._fail(text[2:])
                return None
            self._in_summary = False
        if _SUMMARY.fullmatch(text.strip()):
            self._in_summary = True
            return None
        if step := _STEP.fullmatch(text):
            self._open = False
            return self._step(step)
        self._message(text)
        self._error(text)
        return None

    def _step(self, found: re.Match[str]) -> Step:
        what = _DURATION.sub("", found["what"])
        verb, _, name = what.partition(" ")
        self._building = _module(name) if verb in ("Building", "Compiling", "Running", "Built") else ""
        if (found["mark"] or "").strip() in ("✖", "×"):
            self._fail(name)
        return Step(int(found["done"]), int(found["total"]), what)

    def _message(self, text: str) -> None:
        result = _MESSAGE.fullmatch(text) or _BAD_IMPORT.fullmatch(text)
        if result is not None:
            about = result.groupdict()
            severity = about.get("first") or about.get("second") or "error"
            line, column = int(about.get("line") or 1), int(about.get("column") or 0)
            self._open = len(self.messages) < MOST_MESSAGES
            if self._open:
                said = about["text"][:MOST_MESSAGE_LENGTH]
                self.messages.append(BuildMessage(severity, about["path"], line, column, said))
        elif _FRAME.match(text):
            self._open = False
        elif self._open and len(self.messages[-1].text) < MOST_MESSAGE_LENGTH:
            last = self.messages[-1]
            self.messages[-1] = dataclasses.replace(last, text=f"{last.text}\n{text}"[:MOST_MESSAGE_LENGTH])

    def _error(self, text: str) -> None:
        placed = _PLACED.fullmatch(text)
        if placed is None or not (placed["error"] or text.startswith("error: ")):
            if text.startswith("error: ") and not _is_only_a_frame(text):
                self._note(text.removeprefix("error: "))
            return
        path = placed["path"]
        while path.startswith("./"):
            path = path[2:]
        self._note(f"{path}:{placed['line']}:{placed['column']}: {placed['text']}")
        # Before 4.9 an error is the only sign of a failed module; the module being built has its file's name.
        named = path.removesuffix(".lean").replace("/", ".")
        if self._building and (named == self._building or named.endswith("." + self._building)):
            named = self._building
        self._fail(named)

    def _fail(self, name: str) -> None:
        module = _module(name)
        if module and len(self.failed) < MOST_FAILED:
            self.failed.setdefault(module)

    def _note(self, text: str) -> None:
        if len(self.errors) < MOST_ERRORS:
            self.errors.append(text[:_ERROR_LENGTH])


def _is_only_a_frame(text: str) -> bool:
    """Return whether the line reports a failure without its cause."""
    return text.startswith(
        ("error: build failed", "error: Lean exited", "error: external command", "error: stdout:", "error: >")
    )


def _module(name: str) -> str:
    """Return the module of a target such as `A.B`, `A.B:c.o`, `package/A.B` or `+A.B`; "" for another target."""
    text = _DURATION.sub("", name.strip()).partition(":")[0].rpartition("/")[2].lstrip("+@").partition(" ")[0]
    return text if _MODULE.fullmatch(text) else ""


def build(runner: LakeRunner, *modules: str, on_line: Callable[[str], None] | None = None) -> Outcome:
    """Build modules of the worktree with lake, with the project's own options; `on_line` gets each line it prints."""
    place = runner.project / ".lake"
    place.mkdir(exist_ok=True)
    # `+`: a module, not the library or package of that name.
    return runner.with_(writable=(place,)).run(
        "build", *(f"+{name}" for name in modules), bounds=BUILD_BOUNDS, on_line=on_line
    )
