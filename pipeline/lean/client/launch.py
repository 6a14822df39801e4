"""How a REPL process is started: its argument list, environment and sandbox, for a backend and a project."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from pipeline.lean.backend import LeanBackend
from pipeline.lean.build.dependencies import package_folders
from pipeline.lean.client.errors import ReplStartError
from pipeline.lean.sandbox.command import Limits, SandboxError, bubblewrap, unconfined

# By this variable the daemon finds what a job that is gone has left behind; its value is a folder's name.
_ATTEMPT = "UNSORRY_ATTEMPT"
_FOLDER_BYTES = 256 * 2**20
"""A side file is as long as a reply, which may have as much."""


def lean_path(project: Path) -> str:
    """Return LEAN_PATH for a built project: its own oleans and its packages', read off the folders.

    `lake env` would evaluate the project's lakefile, which is code; the layout is fixed, so nobody has to. It ends
    in no newline, with which the last folder would not be found.
    """
    roots = [project, *package_folders(project), *sorted((project / ".lake" / "packages").glob("*"))]
    folders = [root / ".lake" / "build" / "lib" / leaf for root in roots for leaf in ("lean", "")]
    # Older lakes have no `lean` below `lib`; with it, `lib` itself holds no oleans.
    return ":".join(
        str(folder.absolute())
        for folder in folders
        if folder.is_dir() and not (folder.name == "lib" and (folder / "lean").is_dir())
    )


def command_line(
    backend: LeanBackend,
    *,
    arguments: Sequence[str],
    project: Path,
    folder: Path,
    memory_bytes: int | None,
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the argument list and the whole environment. The argument list sets the memory cap.

    No variable of ours leaks into the environment but the one by which the daemon finds a job's remains. `folder` is
    private to the process and writable to it, in the sandbox as a folder in memory. The process dies with the thread
    that starts it, sandboxed or not.

    Raises:
        ReplStartError: there is no backend, no such project, no sandbox, or no util-linux.
    """
    if backend.kind == "none":
        raise ReplStartError(f"no Lean: {backend.detail}")
    if not project.is_dir():
        raise ReplStartError(f"{project}: no such folder to run the REPL in")
    command = (*backend.argv, *arguments)
    limits = Limits(memory_bytes=memory_bytes)
    environment = {"LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"}
    attempt = {name: os.environ[name] for name in (_ATTEMPT,) if name in os.environ}
    if backend.kind == "simulator":
        return _alone(command, limits), {**environment, **attempt}
    environment["LEAN_PATH"] = lean_path(project)
    readable = [Path(backend.argv[0])]
    if backend.sysroot:
        environment["LEAN_SYSROOT"] = backend.sysroot
        environment["PATH"] = f"{backend.sysroot}/bin:{environment['PATH']}"
        readable.append(Path(backend.sysroot))
    if backend.sandbox == "none":
        home = {name: os.environ[name] for name in ("HOME", "ELAN_HOME") if name in os.environ}
        return _alone(command, limits), {**home, **environment, **attempt}
    try:
        argv = bubblewrap(
            command,
            project=project,
            readable=readable,
            # In memory and of limited size, because what a file's `#eval` writes there nobody watches.
            scratch={folder: _FOLDER_BYTES},
            environment=environment,
            limits=limits,
        )
    except SandboxError as error:
        raise ReplStartError(str(error)) from error
    return argv, attempt


def _alone(command: Sequence[str], limits: Limits) -> tuple[str, ...]:
    """Return the argument list for a process without a sandbox, which the kernel kills when we die.

    The end of its input is no end while it hangs. bwrap asks for this by itself (`--die-with-parent`); here setpriv
    does, because `preexec_fn` would copy our page tables for every start, with the event loop standing still. If we
    die before setpriv has asked, the process finds its input at its end before it was sent anything.
    """
    program = shutil.which("setpriv")
    if program is None:
        raise ReplStartError("setpriv: not on PATH; install util-linux, which brings it")
    try:
        return (program, "--pdeathsig", "KILL", "--", *unconfined(command, limits=limits))
    except SandboxError as error:
        raise ReplStartError(str(error)) from error


def module_names(imports: Sequence[str]) -> tuple[str, ...]:
    """Hold that these are module names and no options.

    Raises:
        ReplStartError: one begins like an option, is empty or holds white space.
    """
    for name in imports:
        if not name or name.startswith("-") or any(character.isspace() for character in name):
            raise ReplStartError(f"import {name!r}: no module name")
    return tuple(imports)
