"""Find the programs that can run Lean here: `pantograph-repl`, Lean's language server, or nothing.

Starts no process. A REPL serves exactly the Lean version of its build, so the choice is made for each project by its
`lean-toolchain`: `find_leans(…).for_toolchain(text)`. The order: the configured path, the REPL inside an installed
PyPantograph (found through its files, not by importing it), `pantograph-repl` on PATH; then, for versions without a
REPL here, elan's toolchains, each with a language server. The package index's `pantograph` is a library for HTML5
canvases; it is recognised and named. Without bubblewrap there is no sandboxed Lean. A stand-in for tests never counts
as Lean (`pipeline.lean.toolchain.standins`).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pipeline.lean.sandbox.command import bubblewrap_path
from pipeline.lean.toolchain import standins
from pipeline.lean.toolchain.versions import VersionError, elan_home, parse_version

Kind = Literal["pantograph", "server", "none"]
Sandbox = Literal["bubblewrap", "none"]

INSTALL_PYPANTOGRAPH = "pip install git+https://github.com/stanford-centaur/PyPantograph"
NO_BUBBLEWRAP = (
    "repositories' code may only run in a sandbox and bwrap is not on PATH;"
    ' install bubblewrap, or write sandbox = "none" under [lean]'
)
NOT_AS_ROOT = (
    "Lean is not run as root, since what escapes its sandbox would be root too;"
    " run everlean as another user, or, in a container, write as_root = true under [lean]"
)
REPL_NAME = "pantograph-repl"
REPL_FAILED_REMEDY = (
    "a REPL runs only with the Lean version that it was built with: see `everlean doctor`, or"
    " [lean] repl where that is set"
)
SLOW_START = "raise [lean] start_timeout if the imports are large or the disk is slow"
START_TIMEOUT_S = 300.0
"""Seconds for a process to be ready. Mathlib's compiled files are some 6 GB: five minutes on a disk of 20 MB a second,
with none of them in memory yet; several processes start side by side."""
CHOICES = ("auto", "none")
GET_LEAN = "run `everlean setup`"


@dataclass(frozen=True, slots=True)
class LeanBackend:
    """The program that runs Lean. `detail` is one sentence for people; for kind "none" it is the reason and the remedy.

    `toolchain` is the content of the REPL's `lean-toolchain` ("" when unknown), `sysroot` elan's folder of that
    toolchain ("" when not found). `start_timeout_s`: until a process has its imports.
    """

    kind: Kind
    argv: tuple[str, ...]
    detail: str
    toolchain: str
    sandbox: Sandbox
    sysroot: str = ""
    start_timeout_s: float = START_TIMEOUT_S

    @property
    def is_lean(self) -> bool:
        """Return whether there is one."""
        return self.kind != "none"

    @property
    def library(self) -> Path | None:
        """The folder of the oleans of Lean's own library; None if the toolchain's folder is unknown."""
        return Path(self.sysroot) / "lib" / "lean" if self.sysroot else None

    @property
    def program(self) -> LeanBackend | None:
        """Lean's own program, also its language server; None if the toolchain's folder is unknown."""
        if self.kind == "server":
            return self
        if not self.sysroot:
            return None
        server = _server(Path(self.sysroot), self.toolchain, self.sandbox)
        return replace(server, start_timeout_s=self.start_timeout_s)

    def reading(self, header: str) -> LeanBackend:
        """Return the backend for searches below a header of a `module` file ("" for other files).

        A REPL starts with the names of modules and knows no such header. The language server of the same toolchain
        does, if its folder is known.
        """
        return (self.program if header else None) or self

    def stand_in_problem(self) -> str:
        """Return "" or why this must not be taken for Lean: one of its programs is a stand-in for tests.

        A REPL is also asked for its version, which gives away a stand-in behind another script.

        Raises:
            pipeline.lean.sandbox.command.SandboxError: it cannot be asked for its version in a sandbox.
        """
        if not self.is_lean:
            return ""
        if (refused := _refusal(self)) or self.kind == "server":
            return refused
        sandboxed = self.sandbox == "bubblewrap"
        return standins.refusal_of_answer(self.argv, sysroot=self.sysroot, sandboxed=sandboxed)


@dataclass(frozen=True, slots=True)
class Leans:
    """The Lean backends of this machine: one for every project (`fixed`), or `builds` of single versions.

    `builds` are in the order of preference; a REPL of an unknown version has `toolchain` "". `configured` is the
    program named by [lean] repl. `problems` has the reason against each unusable REPL.
    """

    fixed: LeanBackend | None
    builds: tuple[LeanBackend, ...] = ()
    configured: str = ""
    problems: tuple[str, ...] = ()
    sandbox: Sandbox = "bubblewrap"

    def for_toolchain(self, toolchain: str) -> LeanBackend:
        """Return the backend for a project whose `lean-toolchain` holds this text ("" without one).

        Kind "none" carries the reason and the remedy.
        """
        if self.fixed is not None:
            return self.fixed
        named = next((build for build in self.builds if build.argv[0] == self.configured), None)
        if not toolchain.strip():
            # Elan would take its default of the day; only a configured REPL is a decision.
            if named is not None:
                return _because_configured(named, "the project has no lean-toolchain file")
            return self._none(
                "the project has no lean-toolchain file, so the Lean version that it needs is not known; the"
                " repository has to add one, or set lean.repl"
            )
        try:
            version = parse_version(toolchain)
        except VersionError as error:
            return self._none(f"lean-toolchain: {error}")
        for build in self.builds:
            if build.toolchain == version.toolchain:
                return build
        if named is not None and not named.toolchain:
            return _because_configured(named, f"the project needs {version.toolchain}")
        others = ", ".join(filter(None, (_short(build.toolchain) for build in self.builds)))
        there = f" (there is {others})" if others else ""
        return self._none(f"toolchain {version.toolchain} is not installed{there}; {GET_LEAN}")

    @property
    def summary(self) -> LeanBackend:
        """One backend to represent all of them in a status line: its `toolchain` is "" for several."""
        if self.fixed is not None:
            return self.fixed
        if not self.builds:
            why = f" ({'; '.join(self.problems)})" if self.problems else ""
            return self._none(f"no Lean is installed here; {GET_LEAN}{why}")
        first = self.builds[0]
        if len(self.builds) == 1:
            return first
        versions = [
            _short(build.toolchain) or f"an unknown version ({build.argv[0]})" for build in self.builds
        ]
        return replace(first, toolchain="", sysroot="", detail=f"Lean for {', '.join(versions)}")

    def _none(self, reason: str) -> LeanBackend:
        return _nothing(reason, self.sandbox)


def find_leans(
    *,
    backend: str,
    repl: str,
    sandbox: str,
    start_timeout_s: float = START_TIMEOUT_S,
    as_root: bool = True,
) -> Leans:
    """Return all programs that can run Lean under the settings of `[lean]`.

    Without `as_root` there are none if this process is root.

    Raises:
        ValueError: a setting has none of its words.
    """
    box = _box(backend, sandbox)
    fixed = _fixed(backend, box)
    if fixed is not None:
        return Leans(fixed, sandbox=box)
    if refusal := _unconfined(box, as_root=as_root):
        return Leans(_nothing(refusal, box), sandbox=box)
    builds: list[LeanBackend] = []
    problems: list[str] = []
    if repl:
        configured, reason = _configured_repl(repl, box)
        if configured is None:
            # A configured program is not silently replaced by something else.
            return Leans(_nothing(reason, box), sandbox=box)
        builds.append(configured)
    bundled, problem = _bundled_repl(box)
    if bundled is not None:
        builds.append(bundled)
    elif problem:
        problems.append(problem)
    on_path = shutil.which(REPL_NAME)
    if on_path is not None and all(build.argv[0] != on_path for build in builds):
        other = _backend_of(Path(on_path).absolute(), box)
        if refused := _refusal(other):
            problems.append(refused)
        elif other.toolchain:
            builds.append(other)
        else:
            problems.append(
                f"{on_path}: no lean-toolchain beside it says its Lean version; name it as lean.repl"
            )
    have = {build.toolchain for build in builds}
    builds += [server for server in _servers(box) if server.toolchain not in have]
    return Leans(
        None,
        tuple(replace(build, start_timeout_s=start_timeout_s) for build in builds),
        configured=builds[0].argv[0] if repl else "",
        problems=tuple(problems),
        sandbox=box,
    )


def _servers(sandbox: Sandbox) -> Iterator[LeanBackend]:
    """Yield the language server of each of elan's toolchains, the newest names last."""
    for folder in sorted((elan_home() / "toolchains").glob("*---*")):
        with suppress(VersionError):
            version = parse_version(folder.name.replace("---", ":").replace("--", "/"))
            server = _server(folder, version.toolchain, sandbox)
            if Path(server.argv[0]).is_file() and not _refusal(server):
                yield server


def _server(folder: Path, toolchain: str, sandbox: Sandbox) -> LeanBackend:
    return LeanBackend(
        kind="server",
        argv=(str(folder / "bin" / "lean"),),
        detail=f"Lean's language server for {toolchain} at {folder}",
        toolchain=toolchain,
        sandbox=sandbox,
        sysroot=str(folder),
    )


def _because_configured(build: LeanBackend, why: str) -> LeanBackend:
    """Note in the detail that only the setting claims this REPL fits."""
    known = build.toolchain or "an unknown Lean version (no lean-toolchain beside it)"
    return replace(build, detail=f"{build.argv[0]} for {known}, because lean.repl names it; {why}")


def _short(toolchain: str) -> str:
    return toolchain.rpartition(":")[2]


def _backend_of(repl: Path, sandbox: Sandbox) -> LeanBackend:
    """Describe a REPL built by someone else; complete its toolchain's name if it is one of Lean's own."""
    toolchain, sysroot = _toolchain_of(repl), ""
    with suppress(VersionError):
        version = parse_version(toolchain)
        toolchain = version.toolchain
        if (version.sysroot / "bin" / "lean").exists():
            sysroot = str(version.sysroot)
    named = f" for {toolchain}" if toolchain else ""
    return LeanBackend(
        kind="pantograph",
        argv=(str(repl),),
        detail=f"pantograph-repl{named} at {repl}",
        toolchain=toolchain,
        sandbox=sandbox,
        sysroot=sysroot,
    )


def _box(backend: str, sandbox: str) -> Sandbox:
    if backend not in CHOICES:
        raise ValueError(f"lean.backend: {backend!r} is none of {', '.join(CHOICES)}")
    if sandbox not in ("bubblewrap", "none"):
        raise ValueError(f"lean.sandbox: {sandbox!r} is neither bubblewrap nor none")
    return "bubblewrap" if sandbox == "bubblewrap" else "none"


def _unconfined(sandbox: Sandbox, *, as_root: bool) -> str:
    """Return why code of repositories may not be run here at all; "" if it may."""
    if not as_root and os.geteuid() == 0:
        return NOT_AS_ROOT
    if sandbox == "bubblewrap" and bubblewrap_path() is None:
        return f"no sandbox for Lean: {NO_BUBBLEWRAP}"
    return ""


def _fixed(backend: str, sandbox: Sandbox) -> LeanBackend | None:
    """Return the backend decided by the setting alone, or None."""
    if backend == "none":
        return _nothing("Lean is switched off by the settings (lean.backend = none)", sandbox)
    return None


def _nothing(reason: str, sandbox: Sandbox) -> LeanBackend:
    return LeanBackend("none", (), reason, "", sandbox=sandbox)


def _configured_repl(configured: str, sandbox: Sandbox) -> tuple[LeanBackend | None, str]:
    """Return the REPL named by lean.repl, or None and the reason against it."""
    named = Path(configured).expanduser()
    if "/" not in configured:  # a name, as the setting's page has it
        found_on_path = shutil.which(configured)
        if found_on_path is None:
            return None, f"{configured}: not on PATH (lean.repl); give its path, or leave it empty"
        named = Path(found_on_path)
    path = named.absolute()
    if not path.is_file():
        return None, f"{path}: no such file (lean.repl); name a pantograph-repl, or leave it empty"
    if not os.access(path, os.X_OK):
        return None, f"{path}: not executable (lean.repl); chmod +x it"
    backend = _backend_of(path, sandbox)
    if refused := _refusal(backend):
        return None, f"{refused} (lean.repl); name a pantograph-repl, or leave it empty"
    return backend, ""


def _bundled_repl(sandbox: Sandbox) -> tuple[LeanBackend | None, str]:
    """Return the REPL of the installed PyPantograph, or None and the reason."""
    spec = importlib.util.find_spec("pantograph")
    if spec is None:
        return None, ""
    for folder in map(Path, spec.submodule_search_locations or ()):
        candidate = folder / REPL_NAME
        if candidate.is_file() and os.access(candidate, os.X_OK):
            backend = _backend_of(candidate.absolute(), sandbox)
            refused = _refusal(backend)
            return (None, f"{refused}; {INSTALL_PYPANTOGRAPH}") if refused else (backend, "")
        if (folder / "server.py").is_file() and (folder / "expr.py").is_file():
            return None, (
                f"{folder}: PyPantograph is installed without its pantograph-repl, which its build makes with lake;"
                f" install elan, then: {INSTALL_PYPANTOGRAPH}"
            )
    return None, (
        f"the installed package pantograph{_version_of_pantograph()} is a library for HTML5 canvases, not Lean's"
        f" Pantograph; pip uninstall pantograph, then: {INSTALL_PYPANTOGRAPH}"
    )


def _refusal(found: LeanBackend) -> str:
    """Return "" or why this must not be taken for Lean: one of its programs, or one beside it, is a stand-in."""
    return standins.refusal((Path(found.argv[0]), *_tools(found.sysroot)))


def _tools(sysroot: str) -> Iterator[Path]:
    """Yield the programs that build and compile beside a REPL; without a toolchain's folder those on PATH."""
    for name in ("lake", "lean"):
        if sysroot:
            yield Path(sysroot, "bin", name)
        elif (result := shutil.which(name)) is not None:
            yield Path(result)


def _version_of_pantograph() -> str:
    import importlib.metadata  # only here: most jobs have their REPL named, and it loads the parser of mails

    try:
        return " " + importlib.metadata.version("pantograph")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _toolchain_of(repl: Path) -> str:
    """Read the `lean-toolchain` left by PyPantograph's build beside the REPL, or lake's above `.lake`.

    No further up: files there belong to something else.
    """
    target = repl.resolve()
    folders = [repl.parent, target.parent]
    if target.parts[-4:-1] == (".lake", "build", "bin"):
        folders.append(target.parents[3])
    for folder in folders:
        marker = folder / "lean-toolchain"
        if marker.is_file():
            return marker.read_text("utf-8", errors="replace").strip()
    return ""
