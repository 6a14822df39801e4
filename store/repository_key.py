"""The key of a repository: one short name for every spelling of its URL.

The daemon's watchlist and imported datasets use the same keys, so that an import stands beside what is watched.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

SCP = re.compile(r"(?:(?P<user>[^@/\s]+)@)?(?P<host>[A-Za-z0-9.\-]+):(?P<path>[^\s].*)")
"""git's short form of an ssh address: user@host:path."""
_DEFAULT_PORTS = {"https": 443, "ssh": 22}


def repository_key(url: str) -> str:
    """Return host/owner/name for a URL, local/parent/name for a path or a file URL.

    The host is in lower case, a port other than the scheme's own stays with it, ".git" goes. Two spellings of one
    remote (https, ssh, scp-like) have one key.

    Raises:
        ValueError: the URL's host or port cannot be read.
    """
    scheme, separator, _ = url.partition("://")
    if not separator:
        scp = None if url.startswith(("/", ".", "~")) else SCP.fullmatch(url)
        if scp is None:
            return _local_key(Path(url))
        host, path = scp["host"].lower(), scp["path"]
    elif scheme.lower() == "file":
        return _local_key(Path(unquote(urlsplit(url).path)))
    else:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        if parts.port is not None and parts.port != _DEFAULT_PORTS.get(scheme.lower()):
            host = f"{host}:{parts.port}"
        path = unquote(parts.path)
    names = [part for part in path.strip("/").split("/") if part]
    return "/".join((host, *names[:-1], *(name.removesuffix(".git") for name in names[-1:])))


def _local_key(path: Path) -> str:
    # A bare clone in "name/.git" style: the folder above is what people call the repository.
    parts = [part for part in path.parts if part != "/"]
    if len(parts) > 1 and parts[-1] == ".git":
        parts.pop()
    names = parts[-2:] if len(parts) > 1 else ["root", *parts]
    return "/".join(("local", *names[:-1], *(name.removesuffix(".git") for name in names[-1:])))
