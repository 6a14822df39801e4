"""The error of a remote, in the terms of `RepositoryFailed`: one exception with a problem and a remedy.

Owns the reading of git's messages (in English: the wrapper sets LC_ALL=C). The texts are already redacted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from store.events.repositories import RepositoryProblem

REMEDIES: Mapping[RepositoryProblem, str] = {
    "not_found": "check the url in config.toml: no repository is there",
    "gone": "check the url in config.toml; remove the entry if the repository is gone for good",
    "auth_failed": (
        "give the daemon access: a token with read access (see `everlean doctor`), or an ssh key without a passphrase;"
        " forges also answer so for a repository that does not exist"
    ),
    "other_owner": "add the path to [poll] safe_directories, or make the daemon's user the owner of its files",
    "unreachable": "check the network and the url; the daemon tries again",
    "rate_limited": "wait, or configure a token; the daemon tries again",
    "empty": "push a first commit",
    "replaced": "say whether this one is meant (everlean repos accept), or correct the url",
    "invalid": "see the message; if the mirror in the cache folder is damaged, delete it and it is fetched again",
}


class RemoteError(Exception):
    """A repository cannot be read. `problem` is its new state; `retry_at` the remote's own time, if any.

    Without a remedy of its own it has that of its problem.
    """

    def __init__(
        self, problem: RepositoryProblem, message: str, *, remedy: str = "", retry_at: datetime | None = None
    ) -> None:
        super().__init__(message)
        self.problem: RepositoryProblem = problem
        self.remedy = remedy or REMEDIES[problem]
        self.retry_at = retry_at


class ReplacedError(RemoteError):
    """The name belongs to another repository: `before` is the id of the watched one, `forge_id` of the
    other."""

    def __init__(self, key: str, *, before: int, forge_id: int) -> None:
        super().__init__(
            "replaced",
            f"{key}: its forge has another repository under this name: it has number {forge_id}, and number {before} is"
            " watched; nothing of it is taken, and no job works on what was taken before",
            remedy=f"everlean repos accept {key}, if this one is meant; else correct its url, or remove the entry",
        )
        self.before, self.forge_id = before, forge_id


class SlowGitError(RemoteError):
    """git exceeded its time."""


class NoSpaceError(RemoteError):
    """The disk has no room for git's files."""


# The first matching pattern decides, so the specific ones come first.
_PATTERNS: tuple[tuple[RepositoryProblem, re.Pattern[str]], ...] = (
    ("other_owner", re.compile(r"dubious ownership")),
    ("rate_limited", re.compile(r"returned error: 429|too many requests|rate limit", re.IGNORECASE)),
    (
        "auth_failed",
        re.compile(
            r"authentication failed|could not read (?:username|password)|terminal prompts disabled"
            r"|permission denied|returned error: 40[13]|access denied"
            r"|host key verification failed|invalid username or password",
            re.IGNORECASE,
        ),
    ),
    (
        "unreachable",
        re.compile(
            r"could not resolve|connection (?:refused|reset|timed out)|timed out|network is unreachable"
            r"|operation too slow|returned error: 5\d\d|early eof|ssl",
            re.IGNORECASE,
        ),
    ),
    ("gone", re.compile(r"returned error: 4(?:10|51)")),
    (
        "not_found",
        re.compile(
            r"repository .*not found|does not appear to be a git repository|returned error: 404"
            r"|does not exist|no such file or directory|not a git repository",
            re.IGNORECASE,
        ),
    ),
)


_FOLLOWS = "fatal: Could not read from remote repository."


def classify(text: str, *, status: int, what: str, remote: bool) -> RemoteError:
    """Turn git's messages into an error with a remedy. `remote` is false for work on our own mirror."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    messages = [line for line in lines if line.startswith(("fatal:", "error:", "remote:"))] or lines
    # A line that only follows from the one before it adds nothing.
    summary = "; ".join([line for line in messages if line != _FOLLOWS] or messages)
    message = f"{what}: {summary[:500] or f'git ended with status {status} and said nothing'}"
    problem: RepositoryProblem = "invalid"
    if remote:
        result = next(((name, match) for name, pattern in _PATTERNS if (match := pattern.search(text))), None)
        problem = result[0] if result is not None else "unreachable"
        if result is not None and problem == "auth_failed":
            # Repeat only known words about a refused token: the message may contain the token, in any
            # encoding.
            message = f"{what}: {result[1][0].lower()}"
    if "No space left on device" in text:
        return NoSpaceError("invalid", message, remedy="free disk space on the cache folder's disk")
    return RemoteError(problem, message)
