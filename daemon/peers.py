"""Who is at the other end of the control socket, and what they may do there.

The kernel says of each connection who made it (SO_PEERCRED and SO_PEERGROUPS in socket(7)), at the moment of the
connect and whatever they send. The daemon's own user and root may read and act; members of the socket's group may read;
members of `[daemon] control_group` may do both. The socket's mode is the first lock, this is the second: it also holds
for a socket that was handed on, or whose mode somebody changed.
"""

from __future__ import annotations

import grp
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_SO_PEERGROUPS = 59
"""asm-generic/socket.h; Python has no name for it."""
_MOST_BYTES = 1024
"""The longest option that Python reads: 256 groups."""
_CREDENTIALS = struct.Struct("=iII")
_UNMAPPED = 65534
"""What a user or group that a user namespace does not know looks like from inside: everybody's, so nobody's."""


class Connection(Protocol):
    """A connected unix socket, or asyncio's view of one."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Peer:
    """A process as it was when it connected."""

    pid: int
    uid: int
    groups: frozenset[int]


def peer_of(connection: Connection) -> Peer:
    """Ask the kernel who connected.

    Raises:
        OSError: it does not say.
    """
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(found)
    return Peer(pid, uid, frozenset({gid, *_further_groups(connection)}))


def _further_groups(connection: Connection) -> tuple[int, ...]:
    try:
        data = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MOST_BYTES)
    except OSError:
        # A kernel before 4.13, or more groups than can be read: who is let in by the own group alone still is.
        return ()
    return struct.unpack(f"={len(data) // 4}I", data)


@dataclass(frozen=True, slots=True)
class Doorkeeper:
    """Decides by user and groups. `group` is the socket's; `control_group` (None: no other) may act as well."""

    owner: int
    group: int
    control_group: int | None = None

    @classmethod
    def here(cls, *, group: int, control_group: int | None = None) -> Doorkeeper:
        """One for this process."""
        return cls(os.geteuid(), group, control_group)

    def refusal(self, peer: Peer, *, acts: bool) -> str | None:
        """Say why this peer may not read (or act); None where it may."""
        if peer.uid == 0 or (peer.uid == self.owner and (peer.uid != _UNMAPPED or _whole_map())):
            return None
        groups = peer.groups - {_UNMAPPED}
        if self.control_group is not None and self.control_group in groups:
            return None
        if not acts and self.group in groups:
            return None
        may = f"user {self.owner}, which the daemon runs as, and root may"
        remedy = "ask as one of them (sudo -u), or name a group of this user in [daemon] control_group"
        what = "act through this socket" if acts else "use this socket"
        return f"user {peer.uid} may not {what}: {may}; {remedy}"


def group_id(name: str) -> int:
    """Return a group's number.

    Raises:
        KeyError: there is no such group.
    """
    return grp.getgrnam(name).gr_gid


def _whole_map() -> bool:
    """Whether this process sees all users as they are: it is in no user namespace with a map of its own."""
    return Path("/proc/self/uid_map").read_text(encoding="ascii").split() == ["0", "0", "4294967295"]
