"""Which names and ids git could store: what a remote says goes into no command before it was held against these."""

from __future__ import annotations

import re

from daemon.git_errors import GitError

_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_NO_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)")


def is_branch_name(name: str) -> bool:
    """Whether git could store `refs/heads/<name>` (git-check-ref-format), and UTF-8 can spell it."""
    parts = name.split("/")
    return bool(
        name
        and len(name.encode(errors="replace")) <= 250
        and not _NO_REF.search(name)
        and all(part and not part.startswith(".") for part in parts)
        and not name.endswith((".", "/"))
        and name != "@"
        and "�" not in name
    )


def is_sha(text: str) -> bool:
    """Whether this is a git object id in full."""
    return _SHA.fullmatch(text) is not None


def check_sha(sha: str) -> str:
    """Return a git object id in full.

    Raises:
        GitError: it is none.
    """
    if not _SHA.fullmatch(sha):
        raise GitError("invalid", f"{sha!r} is no git object id", remedy="report this as a defect")
    return sha


def check_branch(name: str) -> str:
    """Return a branch's name.

    Raises:
        GitError: git could not store it.
    """
    if not is_branch_name(name):
        raise GitError(
            "invalid", f"{name!r} is no valid branch name", remedy="rename the branch at its remote"
        )
    return name
