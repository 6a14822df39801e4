"""The system calls that a sandboxed program does not get: what namespaces, mounts and limits leave open.

Namespaces do not separate everything. A socket of AF_VSOCK speaks to the machine's host from any network namespace,
key rings and io_uring belong to the user and not to the sandbox, and System V shared memory is memory that no process
has to hold, so that no watch over processes sees it. bubblewrap gets a filter that refuses these, whatever makes
further namespaces or mounts, and a few calls that only attacks on the kernel want. Lean, lake, git, curl and the C
compiler need none of them. Files, threads, processes, pipes and sockets (unix, internet, netlink) stay as they are.
"""

from __future__ import annotations

import errno
import functools
import os
import platform
import socket
import struct
from dataclasses import dataclass

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE = 0, 4
_FIRST, _SECOND = 16, 24
"""Offsets of the low words of a call's first two arguments; both machines below are little-endian."""
_NEW_NAMESPACES = 0x7E020000
"""The CLONE_NEW… bits: mount, cgroup, uts, ipc, user, pid, net."""
_FAKED_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, with which a program types into its terminal."""
_X32 = 0x40000000
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)


@dataclass(frozen=True, slots=True)
class _Machine:
    """The numbers of one architecture's calls. `refused` are refused whatever their arguments are."""

    audit: int
    socket: int
    socketpair: int
    ioctl: int
    clone: int
    refused: tuple[int, ...]
    clone3: int = 435


# Of all machines alike: io_uring (3), open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr.
_NEWER = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442)
_MACHINES = {
    "x86_64": _Machine(
        audit=0xC000003E,
        socket=41,
        socketpair=53,
        ioctl=16,
        clone=56,
        # shmget; ptrace; pivot_root, chroot, mount, umount2, unshare, setns; the key rings (3); perf_event_open,
        # bpf, userfaultfd; open_by_handle_at
        refused=(29, 101, 155, 161, 165, 166, 272, 308, 248, 249, 250, 298, 321, 323, 304, *_NEWER),
    ),
    "aarch64": _Machine(
        audit=0xC00000B7,
        socket=198,
        socketpair=199,
        ioctl=29,
        clone=220,
        refused=(194, 117, 41, 51, 40, 39, 97, 268, 217, 218, 219, 241, 280, 282, 265, *_NEWER),
    ),
}


@functools.cache
def _descriptor(machine: str) -> int | None:
    known = _MACHINES.get(machine)
    if known is None:
        return None
    descriptor = os.memfd_create("unsorry-seccomp", os.MFD_CLOEXEC)
    os.write(descriptor, program(known))
    return descriptor


def filter_path() -> str | None:
    """Return a file that holds the filter for this machine, or None where its calls are not known here.

    It can be opened for as long as this process lives.
    """
    descriptor = _descriptor(platform.machine())
    return None if descriptor is None else f"/proc/{os.getpid()}/fd/{descriptor}"


def program(machine: _Machine) -> bytes:
    """Return the filter in the form that the kernel reads. Refused calls say EPERM, sockets EAFNOSUPPORT."""
    refuse = (_RETURN, 0, 0, _REFUSE | errno.EPERM)
    allow = (_RETURN, 0, 0, _ALLOW)
    # Calls in the numbers of another architecture would be other calls.
    code = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, machine.audit), refuse]
    code += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), refuse]
    for number in machine.refused:
        code += [(_EQUAL, 0, 1, number), refuse]
    # Its arguments lie in memory, where no filter can look; programs fall back to clone.
    code += [(_EQUAL, 0, 1, machine.clone3), (_RETURN, 0, 0, _REFUSE | errno.ENOSYS)]
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
