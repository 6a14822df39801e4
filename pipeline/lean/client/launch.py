"""How a REPL process is started: its argument list, environment and sandbox, for a backend and a project."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.errors import ReplStartError
from pipeline.lean.sandbox.command import Limits, SandboxError, bubblewrap


def lean_path(project: Path) -> str:
    """Return LEAN_PATH for a built project: its own oleans and its packages', read off the folders.

    `lake env` would evaluate the project's lakefile, which is code; the layout is fixed, so nobody has to. It ends
    in no newline, with which the last folder would not be found.
    """
    roots = [project, *sorted((project / ".lake" / "packages").glob("*"))]
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
) -> tuple[tuple[str, ...], dict[str, str], bool]:
    """Return the argument list, the whole environment, and whether the argument list sets the memory cap.

    No variable of ours leaks into the environment. `folder` is private to the process and writable to it.

    Raises:
        ReplStartError: there is no backend, no such project, or no sandbox.
    """
    if backend.kind == "none":
        raise ReplStartError(f"no Lean: {backend.detail}")
    if not project.is_dir():
        raise ReplStartError(f"{project}: no such folder to run the REPL in")
    command = (*backend.argv, *arguments)
    environment = {"LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"}
    if backend.kind == "simulator":
        return command, environment, False
    environment["LEAN_PATH"] = lean_path(project)
    readable = [Path(backend.argv[0])]
    if backend.sysroot:
        environment["LEAN_SYSROOT"] = backend.sysroot
        environment["PATH"] = f"{backend.sysroot}/bin:{environment['PATH']}"
        readable.append(Path(backend.sysroot))
    if backend.sandbox == "none":
        home = {name: os.environ[name] for name in ("HOME", "ELAN_HOME") if name in os.environ}
        return command, {**home, **environment}, False
    try:
        argv = bubblewrap(
            command,
            project=project,
            readable=readable,
            writable=[folder],
            environment=environment,
            limits=Limits(memory_bytes=memory_bytes),
        )
    except SandboxError as error:
        raise ReplStartError(str(error)) from error
    return argv, {}, memory_bytes is not None


def module_names(imports: Sequence[str]) -> tuple[str, ...]:
    """Hold that these are module names and no options.

    Raises:
        ReplStartError: one begins like an option, is empty or holds white space.
    """
    for name in imports:
        if not name or name.startswith("-") or any(character.isspace() for character in name):
            raise ReplStartError(f"import {name!r}: no module name")
    return tuple(imports)
