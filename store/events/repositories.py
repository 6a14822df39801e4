"""The events of repositories, their branches and their commits."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import AwareDatetime

from store.events.base import EventBody, Sha


class RepositoryWatched(EventBody):
    """A watchlist entry took effect, for the first time or changed. `repository` is host/owner/name."""

    type: ClassVar[str] = "repository_watched"
    repository: str
    url: str
    branches: tuple[str, ...]
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    projects: tuple[str, ...]
    every_s: float
    enabled: bool
    opt_out: bool


class RepositoryUnwatched(EventBody):
    """The entry left the watchlist. The repository's facts stay."""

    type: ClassVar[str] = "repository_unwatched"
    repository: str


RepositoryProblem = Literal[
    "unreachable",
    "not_found",
    "gone",
    "auth_failed",
    "other_owner",
    "rate_limited",
    "empty",
    "invalid",
    "replaced",
]
"""`not_found`: nothing is there, nor ever was, as far as is known; `gone`: it was there, or so its forge
says; `other_owner`: a path with another user's files, which git does not read without permission; `replaced`:
its forge has another repository under the same name."""


class RepositoryFailed(EventBody):
    """Polling began to fail, or fails for another reason than before. Nothing else stops because of it."""

    type: ClassVar[str] = "repository_failed"
    repository: str
    problem: RepositoryProblem
    reason: str
    remedy: str


class RepositoryFailing(EventBody):
    """Polling has failed since `since` without a break, for a day. Once for each such time.

    `problem`, `reason` and `remedy` are those of now.
    """

    type: ClassVar[str] = "repository_failing"
    repository: str
    since: AwareDatetime
    problem: RepositoryProblem
    reason: str
    remedy: str


class RepositoryRecovered(EventBody):
    """Polling works again."""

    type: ClassVar[str] = "repository_recovered"
    repository: str


class RepositoryRenamed(EventBody):
    """The forge moved the repository; its history here continues under its old key."""

    type: ClassVar[str] = "repository_renamed"
    repository: str
    new_url: str
    forge_id: int | None


class RepositoryIdentified(EventBody):
    """The forge's number for the repository, kept for life.

    `private`: whether the forge hides it from strangers; a change is another event. `by`: the user who chose
    this one in place of the one before; "" for the first sight.
    """

    type: ClassVar[str] = "repository_identified"
    repository: str
    forge_id: int
    private: bool
    by: str


class RepositoryReplaced(EventBody):
    """The forge has another repository under the name, by its number. Nothing of it is used.

    `before`: the number of the watched one; `forge_id`: that of the other one.
    """

    type: ClassVar[str] = "repository_replaced"
    repository: str
    before: int
    forge_id: int
    reason: str
    remedy: str


class RepositoryArchived(EventBody):
    """The forge archived the repository: no one can change it; with `archived` false, it is open again."""

    type: ClassVar[str] = "repository_archived"
    repository: str
    archived: bool


class BranchCreated(EventBody):
    """A branch of the watchlist was seen for the first time, or again after its deletion or unwatching."""

    type: ClassVar[str] = "branch_created"
    repository: str
    branch: str
    tip: Sha
    is_default: bool


class BranchRewritten(EventBody):
    """A force-push: `old` is no ancestor of `new`. `base` is their merge base, None if they have none.

    `dropped` lists the first-parent commits from `old` down to `base` (newest first, at most 1000).
    """

    type: ClassVar[str] = "branch_rewritten"
    repository: str
    branch: str
    old: Sha
    new: Sha
    base: Sha | None
    dropped: tuple[Sha, ...]


class BranchDeleted(EventBody):
    type: ClassVar[str] = "branch_deleted"
    repository: str
    branch: str
    last: Sha


class BranchUnwatched(EventBody):
    """The branch still exists but left the watchlist: `branches` or the default branch changed.

    Its facts stay, and no work is done for it. Its return is a `branch_created`.
    """

    type: ClassVar[str] = "branch_unwatched"
    repository: str
    branch: str
    last: Sha


class CommitObserved(EventBody):
    """A commit of a watched branch. First-parent order, oldest first, one event a commit and branch.

    `baseline` marks the tip at first sight; its ancestors are not imported.
    """

    type: ClassVar[str] = "commit_observed"
    repository: str
    branch: str
    sha: Sha
    parents: tuple[Sha, ...]
    author: str
    committed_at: AwareDatetime
    subject: str
    baseline: bool
