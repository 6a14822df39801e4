"""Compose the command line that runs a program in a sandbox: bubblewrap, no network, nothing to write.

The program sees the system's own libraries, the toolchain, the project (all read-only), a private `/tmp` of
limited size and an environment that lists exactly what it is given. No home directory, no other process, no
network device but its own loopback. This module starts nothing; callers run the argument list it returns.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

TMP_BYTES = 256 * 1024 * 1024
# What a dynamically linked program needs of the machine; each is bound only where it exists.
_SYSTEM_READABLE = ("/usr", "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime")
# On merged-/usr systems these are links into /usr, elsewhere folders.
_SYSTEM_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")


class SandboxError(Exception):
    """The sandbox cannot be composed; the message says what is missing and what to do."""


def bubblewrap_path() -> str | None:
    """Return where `bwrap` is, or None."""
    return shutil.which("bwrap")


def bubblewrap(
    command: Sequence[str],
    *,
    project: Path,
    readable: Sequence[Path] = (),
    environment: Mapping[str, str],
    tmp_bytes: int = TMP_BYTES,
) -> tuple[str, ...]:
    """Return the argument list that runs `command` with the project as working directory.

    Args:
        command: the program and its arguments, by absolute path.
        project: bound read-only at its own path.
        readable: further files and folders (toolchain, REPL), read-only at their own paths; missing ones are an
            error, because a toolchain that silently is not there gives a baffling one later.
        environment: the whole environment of the program.
        tmp_bytes: the size of the private /tmp.

    Raises:
        SandboxError: bwrap is not installed, or something to bind is not there.
    """
    program = bubblewrap_path()
    if program is None:
        raise SandboxError(
            "bubblewrap: the program bwrap is not on PATH; install it (Debian: apt install bubblewrap),"
            ' or write sandbox = "none" under [lean] to run repository code without one'
        )
    argv = [program, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    for name, value in sorted(environment.items()):
        argv += ["--setenv", name, value]
    argv += ["--proc", "/proc", "--dev", "/dev", "--size", str(tmp_bytes), "--tmpfs", "/tmp"]  # noqa: S108
    for system in _SYSTEM_READABLE:
        argv += ["--ro-bind-try", system, system]
    for link in map(Path, _SYSTEM_LINKS):
        if link.is_symlink():
            argv += ["--symlink", str(link.readlink()), str(link)]
        elif link.is_dir():
            argv += ["--ro-bind", str(link), str(link)]
    for path in (*readable, project):
        resolved = path.absolute()
        if not resolved.exists():
            raise SandboxError(f"{resolved}: not there, so it cannot be bound into the sandbox")
        argv += ["--ro-bind", str(resolved), str(resolved)]
    # The root, where bwrap has made the mount points, closes last: only /tmp stays writable.
    argv += ["--remount-ro", "/", "--chdir", str(project.absolute()), "--", *command]
    return tuple(argv)
