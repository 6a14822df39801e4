"""Identify the peer of a control-socket connection, and decide about its rights.

The kernel identifies the peer of each connection (SO_PEERCRED and SO_PEERGROUPS in socket(7)), at the moment
of the connect and whatever it sends. The daemon's own user and root may read and act; members of the socket's
group may read; members of `[daemon] control_group` may do both. The socket's mode is the first lock, this is
the second: it also holds for a socket that was passed on, or whose mode was changed.
"""

from __future__ import annotations

import grp
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from starlette.types import ASGIApp

from pipeline.connections import BoundedProtocol, Serving, ServingError

_SO_PEERGROUPS = 59
"""asm-generic/socket.h; Python has no name for it."""
_MOST_BYTES = 1024
"""The longest option that Python reads: 256 groups."""
_CREDENTIALS = struct.Struct("=iII")
_UNMAPPED = 65534
"""The id of every unmapped user and group in a user namespace: it identifies none of them."""


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
    """Return the connected process, as the kernel identifies it.

    Raises:
        OSError: the kernel does not.
    """
    result = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(result)
    return Peer(pid, uid, frozenset({gid, *_further_groups(connection)}))


def _further_groups(connection: Connection) -> tuple[int, ...]:
    try:
        data = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MOST_BYTES)
    except OSError:
        # A kernel before 4.13, or more groups than can be read: admission by the own group alone still works.
        return ()
    return struct.unpack(f"={len(data) // 4}I", data)


@dataclass(frozen=True, slots=True)
class Doorkeeper:
    """Decides by user and groups. `group` is the socket's; `control_group` (None: no other) may act as
    well."""

    owner: int
    group: int
    control_group: int | None = None

    @classmethod
    def here(cls, *, group: int, control_group: int | None = None) -> Doorkeeper:
        """Return the one for this process."""
        return cls(os.geteuid(), group, control_group)

    def refusal(self, peer: Peer, *, acts: bool) -> str | None:
        """Return why this peer may not read (or act); None if it may."""
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
    """Return whether this process sees real user ids: it is in no user namespace with a map of its own."""
    return Path("/proc/self/uid_map").read_text(encoding="ascii").split() == ["0", "0", "4294967295"]


# ---- An HTTP server on a port of 127.0.0.1, started and stopped on the service's loop


ADDRESS = "127.0.0.1"
_BACKLOG = 128


class PortError(Exception):
    """The port cannot be listened on; the message has the reason and the remedy."""


class LoopbackServer:
    """A listening port. Made with `start`, ended with `stop`."""

    def __init__(self, port: int, serving: Serving) -> None:
        self.port = port
        self._serving = serving

    @classmethod
    async def start(
        cls,
        application: ASGIApp,
        *,
        port: int,
        setting: str,
        host: str = ADDRESS,
        protocol: type[BoundedProtocol] = BoundedProtocol,
    ) -> LoopbackServer:
        """Listen; port 0 is any free one. `setting` names the port's setting in the error.

        Another `host`, an IP address, is for a server configured to listen there.

        Raises:
            PortError: another process listens there, or this user may not use it.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            raise PortError(
                f"{setting}: {host}:{port} cannot be listened on: {error.strerror or error}; choose another"
                f" port for {setting}, or end what listens there"
            ) from error
        try:
            serving = await Serving.start(application, listener, protocol=protocol, name=f"loopback:{port}")
        except ServingError as error:
            raise PortError(
                f"{setting}: {host}:{port}: {error}; choose another port for {setting}"
            ) from error
        return cls(listener.getsockname()[1] if port == 0 else port, serving)

    async def stop(self) -> None:
        """Finish the answers under way, and close."""
        await self._serving.stop()
