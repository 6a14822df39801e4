"""Compose the command line that runs a program of a watched repository: bubblewrap, limits, a listed environment.

The program sees the system's own libraries, its caller's list (toolchain, packages) and the project, all read-only; it
writes into private folders of limited size (`/tmp`, `/dev/shm`, a home) and into the caller's writable folders. It has
no other process, no capability, no further namespace, no network device but its own loopback, and no system call
refused by the seccomp filter below. This module keeps nothing running; callers run the argument list
(`pipeline.lean.build.lake.run_bounded`, or the REPL's client).

Bounds, and how hard they are:
    - one process: RLIMIT_DATA (private memory), RLIMIT_FSIZE, RLIMIT_CPU, set by `prlimit` inside the sandbox as hard
      limits. Shared memory does not count for RLIMIT_DATA.
    - all of them: RLIMIT_NPROC counts the sandbox alone on Linux 5.14 and later, and never binds root. `run_bounded`
      watches the tree's memory, number of processes and writing from outside and samples a few times a second: a
      bound can be passed for a moment. Sockets count there by their greatest content. A hostile program can hold
      shared memory invisible in its processes (/dev/zero mapped, written, dropped from its page tables), and kernel
      memory for names, pipes and TCP. The only wall is the cgroup of the daemon's unit (MemoryMax, TasksMax), around
      everything started below it.
    - memory file systems: their sizes, here.
"""

from __future__ import annotations

import errno
import functools
import os
import platform
import re
import resource
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# ---- seccomp
# Namespaces do not separate everything. AF_VSOCK reaches the host from any network namespace, key rings and io_uring
# belong to the user, and the memory watch misses memory outside of processes: System V shared memory, queues and
# semaphores, and memory files, which can also be in flight between two sockets. The filter refuses these, calls for
# further namespaces or mounts, a few calls used only to attack the kernel, and every mode with a set-uid or set-gid
# bit: a program with one, in a folder writable by a build, would have its owner's rights on the host. Lean, lake, git,
# curl and the C compiler need none of them.


_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_SET_ID = 0o6000
_MAKES_A_FILE = 0o100 | 0o20000000
"""O_CREAT and the bit of O_TMPFILE: without them the mode of an open is a register's chance content."""
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE = 0, 4
_FIRST, _SECOND = 16, 24
"""Offsets of the low words of a call's first two arguments; both machines below are little-endian."""
_WORDS = 8
"""From one argument to the next."""
_NEW_NAMESPACES = 0x7E020000
"""The CLONE_NEW… bits: mount, cgroup, uts, ipc, user, pid, net."""
_FAKED_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: a program could type into its terminal with them."""
_X32 = 0x40000000
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)


@dataclass(frozen=True, slots=True)
class _Machine:
    """The numbers of one architecture's calls. `refused`: with any arguments."""

    audit: int
    socket: int
    socketpair: int
    ioctl: int
    clone: int
    refused: tuple[int, ...]
    modes: tuple[tuple[int, int], ...]
    """Calls with a mode, and the mode's argument (from 0)."""
    opens: tuple[tuple[int, int], ...]
    """Calls that open a file, and the argument of the flags; the mode is the next."""
    clone3: int = 435
    openat2: int = 437


# On all machines: io_uring (3), open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr,
# memfd_secret.
_NEWER = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442, 447)
_FCHMODAT2 = 452
_MACHINES = {
    "x86_64": _Machine(
        audit=0xC000003E,
        socket=41,
        socketpair=53,
        ioctl=16,
        clone=56,
        # shmget, msgget, semget, mq_open, memfd_create; ptrace; pivot_root, chroot, mount, umount2, unshare, setns;
        # the key rings (3); perf_event_open, bpf, userfaultfd; open_by_handle_at
        refused=(
            29,
            68,
            64,
            240,
            319,
            101,
            155,
            161,
            165,
            166,
            272,
            308,
            248,
            249,
            250,
            298,
            321,
            323,
            304,
            *_NEWER,
        ),
        # chmod, fchmod, fchmodat; mknod, mknodat; mkdir, mkdirat; creat
        modes=((90, 1), (91, 1), (268, 2), (_FCHMODAT2, 2), (133, 1), (259, 2), (83, 1), (258, 2), (85, 1)),
        opens=((2, 1), (257, 2)),
    ),
    "aarch64": _Machine(
        audit=0xC00000B7,
        socket=198,
        socketpair=199,
        ioctl=29,
        clone=220,
        refused=(
            194,
            186,
            190,
            180,
            279,
            117,
            41,
            51,
            40,
            39,
            97,
            268,
            217,
            218,
            219,
            241,
            280,
            282,
            265,
            *_NEWER,
        ),
        modes=((52, 1), (53, 2), (_FCHMODAT2, 2), (33, 2), (34, 2)),
        opens=((56, 2),),
    ),
}


@functools.cache
def _descriptor(machine: str) -> int | None:
    known = _MACHINES.get(machine)
    if known is None:
        return None
    descriptor = os.memfd_create("everlean-seccomp", os.MFD_CLOEXEC)
    os.write(descriptor, program(known))
    return descriptor


def filter_path() -> str | None:
    """Return a file with the filter for this machine, or None for an unknown architecture.

    It can be opened while this process lives.
    """
    descriptor = _descriptor(platform.machine())
    return None if descriptor is None else f"/proc/{os.getpid()}/fd/{descriptor}"


def program(machine: _Machine) -> bytes:
    """Return the filter in the kernel's format. Refused calls fail with EPERM, sockets with EAFNOSUPPORT."""
    refuse = (_RETURN, 0, 0, _REFUSE | errno.EPERM)
    allow = (_RETURN, 0, 0, _ALLOW)
    # Another architecture's numbers mean other calls.
    code = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, machine.audit), refuse]
    code += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), refuse]
    for number in machine.refused:
        code += [(_EQUAL, 0, 1, number), refuse]
    # Their arguments lie in memory, out of a filter's sight; programs fall back to clone and openat.
    for number in (machine.clone3, machine.openat2):
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | errno.ENOSYS)]
    for number, at in machine.modes:
        code += [(_EQUAL, 0, 4, number), (_LOAD, 0, 0, _FIRST + at * _WORDS), (_ANY_BIT, 0, 1, _SET_ID)]
        code += [refuse, allow]
    for number, at in machine.opens:
        code += [(_EQUAL, 0, 6, number), (_LOAD, 0, 0, _FIRST + at * _WORDS), (_ANY_BIT, 0, 3, _MAKES_A_FILE)]
        code += [(_LOAD, 0, 0, _FIRST + (at + 1) * _WORDS), (_ANY_BIT, 0, 1, _SET_ID), refuse, allow]
    code += [(_EQUAL, 0, 4, machine.clone), (_LOAD, 0, 0, _FIRST), (_ANY_BIT, 0, 1, _NEW_NAMESPACES)]
    code += [refuse, allow]
    sti, linux = _FAKED_INPUT
    code += [
        (_EQUAL, 0, 5, machine.ioctl),
        (_LOAD, 0, 0, _SECOND),
        (_EQUAL, 1, 0, sti),
        (_EQUAL, 0, 1, linux),
    ]
    code += [refuse, allow]
    for number in (machine.socket, machine.socketpair):
        code += [(_EQUAL, 0, len(_FAMILIES) + 3, number), (_LOAD, 0, 0, _FIRST)]
        code += [(_EQUAL, len(_FAMILIES) - at, 0, family) for at, family in enumerate(_FAMILIES)]
        code += [(_RETURN, 0, 0, _REFUSE | errno.EAFNOSUPPORT), allow]
    code.append(allow)
    return b"".join(struct.pack("<HBBI", *line) for line in code)


TMP_BYTES = 256 * 1024 * 1024
HOME_BYTES = 64 * 1024 * 1024
SHM_BYTES = 64 * 1024 * 1024
PRIVATE_HOME = Path("/home/sandbox")
"""A folder empty at the start of every sandbox and gone at its end; a caller may set HOME to it."""
# The files a dynamically linked program needs; missing ones are not bound.
_SYSTEM_READABLE = ("/usr", "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime")
# A program with TLS needs these too; not all of /etc/ssl, which has private keys.
_CERTIFICATES = (
    "/etc/ssl/certs",
    "/etc/ca-certificates",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
)
# On merged-/usr systems these are links into /usr, elsewhere folders.
_SYSTEM_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
# Not --unshare-all: it asks for a cgroup namespace too, forbidden by the daemon's unit.
_NAMESPACES = (
    "--unshare-user-try",
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-uts",
    "--unshare-net",
    "--die-with-parent",
    "--new-session",
)
_NO_MORE_NAMESPACES = ("--unshare-user", "--disable-userns")
_PACKAGES = re.compile(r"/dependencies/[0-9a-f]{64}/packages")


class SandboxError(Exception):
    """The sandbox cannot be composed; the message names the missing thing and the remedy."""


LEAN_RESERVES = {"LEAN_STACK_SIZE_KB": "65536", "MIMALLOC_ARENA_EAGER_COMMIT": "0"}
"""An environment in which Lean reserves little memory, since RLIMIT_DATA counts reserved memory.

The first: stacks of 64 MiB. Lean 4.35 reserves 1 GiB for each thread's: its server's worker needs more than 8 GiB for
an empty file, and `lean` more than 4, "failed to create thread". The second: memory by the GiB only on use. Measured
with Lean 4.35.0, 300 tactics in a file of 300 lemmas: a server's worker reserves 1.4 GiB (without the second 2.4 GiB),
of which 1 GiB is its first thread's stack, and uses 17 MiB. It starts below a limit of 2 GiB, and not of 1. Tactics
take no longer. Older Leans do not read the variables.
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one sandbox. None keeps the limit of the process that starts it.

    `memory_bytes`, `file_bytes`, `cpu_s` and `descriptors` hold for each process; `processes` (threads count) for all
    together, if the kernel counts them so.
    """

    memory_bytes: int | None = None
    file_bytes: int | None = None
    cpu_s: int | None = None
    processes: int | None = 4096
    descriptors: int | None = 4096


def find_program(run: Sequence[str]) -> Path | str:
    """Return a program's path, by its path or on PATH, or a sentence on why it cannot run."""
    result = shutil.which(run[0])
    if result is not None:
        return Path(result).absolute()
    there = "cannot be executed" if os.sep in run[0] and Path(run[0]).exists() else "is not there"
    where = "" if os.sep in run[0] else " on PATH"
    return f"the program {run[0]} {there}{where}"


def bubblewrap_path() -> str | None:
    """Return the path of `bwrap`, or None."""
    return shutil.which("bwrap")


def bubblewrap_problem() -> str | None:
    """Return why no sandbox can be made here, or None. Runs `bwrap` once."""
    program = bubblewrap_path()
    if program is None:
        return "the program bwrap is not on PATH; install bubblewrap (Debian: apt install bubblewrap)"
    if shutil.which("prlimit") is None:
        return "the program prlimit is not on PATH; install util-linux"
    try:
        # /usr is bound anyhow. The whole command line, because each part can be forbidden by itself.
        probe = bubblewrap(["/bin/true"], project=Path("/usr/bin"), environment={})
        result = subprocess.run(probe, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    except (SandboxError, OSError) as error:
        return f"{program} cannot be tried: {error}"
    if result.returncode == 0:
        return None
    text = result.stderr.decode("utf-8", errors="replace").strip()
    return f"{program} cannot make a sandbox ({text}); allow user namespaces to the daemon's user"


@functools.cache
def _namespaces(program: str) -> tuple[str, ...]:
    """Return the options that forbid user namespaces in the sandbox, if this bwrap and kernel have them.

    In a user namespace of its own a program could mount memory file systems without a size. A bwrap before 0.8, a
    setuid one, or root without user namespaces cannot forbid it, and leaves it to the filter of system calls.
    """
    probe = [program, *_NAMESPACES, *_NO_MORE_NAMESPACES, "--ro-bind", "/", "/", "--", "/bin/true"]
    result = subprocess.run(probe, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    return _NO_MORE_NAMESPACES if result.returncode == 0 else ()


def bubblewrap(
    command: Sequence[str],
    *,
    project: Path,
    readable: Sequence[Path] = (),
    writable: Sequence[Path] = (),
    mounts: Mapping[Path, Path] | None = None,
    environment: Mapping[str, str],
    limits: Limits | None = None,
    secrets: str | None = None,
    certificates: bool = False,
    info_fd: int | None = None,
) -> tuple[str, ...]:
    """Return the argument list to run `command` with the project as working directory.

    No sandbox has a network; `pipeline.lean.sandbox.network` provides a way out, a socket bound into it.

    Args:
        command: the program and its arguments, by absolute path.
        project: bound read-only at its own path, with the packages behind `.lake/packages` if that is a link into a
            dependencies cache.
        readable: further files, folders and sockets (toolchain, REPL), read-only at their own paths; a missing one
            is an error, because a missing toolchain gives a baffling error later.
        writable: folders (in the project or not) writable at their own paths.
        mounts: writable folders at other paths: {path inside: folder outside}.
        environment: the whole environment of the program.
        limits: see `Limits`.
        secrets: a file with more of the environment (`secrets_file`): every user may read a list of arguments.
        certificates: also show the machine's trusted certificates.
        info_fd: an inherited descriptor, to which bwrap writes its child's process id.

    Raises:
        SandboxError: bwrap or prlimit is not installed; a path to bind is missing, leaves the project by a link or
            would show the home folder.
    """
    program = bubblewrap_path()
    if program is None:
        raise SandboxError(
            "bubblewrap: the program bwrap is not on PATH; install it (Debian: apt install bubblewrap),"
            ' or write sandbox = "none" under [lean] to run repository code without one'
        )
    started, options = _opens({"--seccomp": filter_path(), "--args": secrets}, but=info_fd)
    argv = [*started, program, *options.get("--seccomp", ()), *_NAMESPACES, *_namespaces(program)]
    # Root would keep its capabilities in the sandbox, and could make the read-only mounts writable again.
    argv += ["--cap-drop", "ALL", "--clearenv"]
    if info_fd is not None:
        argv += ["--info-fd", str(info_fd)]
    for name, value in sorted(environment.items()):
        argv += ["--setenv", name, value]
    argv += options.get("--args", ())
    # /proc/sys belongs to the whole machine, and to root's own user id it is writable without any capability.
    argv += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]
    argv += ["--size", str(SHM_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
    argv += ["--size", str(TMP_BYTES), "--tmpfs", "/tmp"]  # noqa: S108 - the sandbox's own
    argv += ["--size", str(HOME_BYTES), "--tmpfs", str(PRIVATE_HOME)]
    for system in (*_SYSTEM_READABLE, *(_CERTIFICATES if certificates else ())):
        argv += ["--ro-bind-try", system, system]
    for link in map(Path, _SYSTEM_LINKS):
        if link.is_symlink():
            argv += ["--symlink", str(link.readlink()), str(link)]
        elif link.is_dir():
            argv += ["--ro-bind", str(link), str(link)]
    root = project.absolute()
    linked = linked_packages(root)
    for path in (*readable, root, *((linked,) if linked and linked not in readable else ())):
        argv += ["--ro-bind", *_bindable(path.absolute(), root)]
    for path in writable:
        argv += ["--bind", *_bindable(path.absolute(), root)]
    for inside, outside in (mounts or {}).items():
        argv += ["--bind", _bindable(outside.absolute(), root)[0], str(inside)]
    # The root, with bwrap's mount points, becomes read-only last: only the list stays writable.
    argv += ["--remount-ro", "/", "--chdir", str(root), "--", *_limiter(limits or Limits()), *command]
    return tuple(argv)


def unconfined(command: Sequence[str], *, limits: Limits | None = None) -> tuple[str, ...]:
    """Return the argument list for `sandbox = "none"`: the limits of a process, and no more.

    The number of processes is not limited: without a namespace the user's others would count too.
    """
    limits = limits or Limits()
    alone = Limits(limits.memory_bytes, limits.file_bytes, limits.cpu_s, processes=None)
    return (*_limiter(alone), *command)


def linked_packages(project: Path) -> Path | None:
    """Return the folder in the dependencies cache behind the project's `.lake/packages`, if any.

    Only a link to `…/dependencies/<key>/packages` beside a `dependency.json` counts, so that a repository's own link
    opens nothing else.
    """
    link = project / ".lake" / "packages"
    if not link.is_symlink():
        return None
    target = link.readlink()
    complete = target.is_dir() and (target.parent / "dependency.json").is_file()
    return target if complete and _PACKAGES.search(str(target.resolve())) and target.is_absolute() else None


@contextmanager
def secrets_file(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield a file of this process, on no disk, with these variables for bubblewrap; gone after the block."""
    descriptor = os.memfd_create("everlean-secrets", os.MFD_CLOEXEC)
    try:
        words = [word for name, value in variables.items() for word in ("--setenv", name, value)]
        os.write(descriptor, b"".join(word.encode() + b"\0" for word in words))
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _opens(
    files: Mapping[str, str | None], *, but: int | None
) -> tuple[tuple[str, ...], dict[str, tuple[str, str]]]:
    """Return a prefix that starts bubblewrap with these files open, and each option's descriptor.

    Bubblewrap wants open descriptors. A shell opens them, so that the caller need not.
    """
    free = (number for number in ("9", "8", "7") if number != str(but))
    opened = {option: (path, next(free)) for option, path in files.items() if path is not None}
    if not opened:
        return (), {}
    redirections = " ".join(f"{number}<{path}" for path, number in opened.values())
    return ("/bin/sh", "-c", f'exec "$@" {redirections}', "sh"), {
        option: (option, number) for option, (_, number) in opened.items()
    }


def _bindable(path: Path, project: Path) -> tuple[str, str]:
    """Return source and destination of a bind, after checking that links in it lead nowhere else."""
    if not path.exists():
        raise SandboxError(f"{path}: not there, so it cannot be bound into the sandbox")
    resolved = path.resolve()
    if path.is_relative_to(project) and not resolved.is_relative_to(project.resolve()):
        raise SandboxError(f"{path}: a link that leaves the project; remove it, or make the worktree anew")
    if Path.home().resolve().is_relative_to(resolved):
        raise SandboxError(
            f"{path}: binding it would show the home folder {Path.home()}; name a folder below it"
        )
    return str(resolved), str(path)


def _limiter(limits: Limits) -> tuple[str, ...]:
    """Return the prefix that sets the limits, soft and hard, so that no later program can raise them."""
    program = shutil.which("prlimit")
    if program is None:
        raise SandboxError("prlimit: not on PATH; install util-linux, which brings it")
    memory = limits.memory_bytes
    if memory is None:
        # The daemon gives a job a soft limit; inside, nobody may raise it.
        inherited = resource.getrlimit(resource.RLIMIT_DATA)[0]
        memory = None if inherited == resource.RLIM_INFINITY else inherited
    words = ["--core=0:0"]
    for option, resource_, value in (
        ("data", resource.RLIMIT_DATA, memory),
        ("fsize", resource.RLIMIT_FSIZE, limits.file_bytes),
        ("cpu", resource.RLIMIT_CPU, limits.cpu_s),
        ("nproc", resource.RLIMIT_NPROC, limits.processes),
        ("nofile", resource.RLIMIT_NOFILE, limits.descriptors),
    ):
        if value is not None:
            hard = resource.getrlimit(resource_)[1]  # only root could raise it
            bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
            words.append(f"--{option}={bound}:{bound}")
    # Its real path, not a link's: a sandbox shows /usr, and not the rest of PATH.
    return (os.path.realpath(program), *words, "--")
