"""The control socket's file: made for its group, taken over from a daemon that is dead, refused where one lives.

Its mode is 0660 and its folder the daemon's own. What is said through it is `daemon.control`'s.
"""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

from daemon.control_client import short_address
from daemon.peers import Doorkeeper, group_id

_MODE = 0o660


class SocketInUseError(Exception):
    """The control socket cannot be made; the message says why and what to do."""


def listen(path: Path) -> socket.socket:
    """Return the socket, listening; who may use it is nobody but its user and group.

    Raises:
        SocketInUseError: something else is in the way.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # Made without permissions for others from its first moment on.
        before = os.umask(0o777 & ~_MODE)
        try:
            with short_address(path) as address:
                listener.bind(address)
        finally:
            os.umask(before)
        path.chmod(_MODE)
        listener.listen(64)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise SocketInUseError(
            f"{path}: the control socket cannot be made: {error.strerror or error}; check runtime_dir"
        ) from error
    return listener


def admitted(path: Path, control_group: str) -> Doorkeeper:
    """Give the socket to the group, or to our own where there is none; return who lets whom in.

    Raises:
        SocketInUseError: there is no such group, or it cannot be given the socket.
    """
    try:
        wanted = group_id(control_group) if control_group else None
        group = os.getegid() if wanted is None else wanted
        if path.stat().st_gid != group:
            os.chown(path, -1, group)
    except KeyError as error:
        raise SocketInUseError(
            f"[daemon] control_group: there is no group {control_group!r} here; create it, or name another"
        ) from error
    except OSError as error:
        raise SocketInUseError(
            f"[daemon] control_group: {path} cannot be given to the group {control_group!r} ({error.strerror});"
            " make the daemon's user a member of it, or name the daemon's own group"
        ) from error
    return Doorkeeper.here(group=group, control_group=wanted)


def _clear(path: Path) -> None:
    """Remove the socket of a daemon that is dead; refuse one that lives, and what is no socket."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketInUseError(f"{path}: in the way of the control socket and no socket; move it elsewhere")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            with short_address(path) as address:
                probe.connect(address)
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise SocketInUseError(
                f"{path}: cannot tell whether a daemon listens there ({error}); remove the file if none does"
            ) from error
    raise SocketInUseError(
        f"{path}: another daemon listens there; give this one another runtime_dir, or stop that one"
    )
