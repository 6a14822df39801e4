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
    """The entry left the watchlist. What was learnt of the repository stays."""

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
"""`not_found`: nothing is there, and never was as far as is known; `gone`: it was there, or its forge says so;
`other_owner`: a path whose files belong to another user, which git does not read unless it is told to; `replaced`: its
forge has another repository under the same name."""


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
    """The forge says that the repository lives elsewhere now; its history here goes on under its old key."""

    type: ClassVar[str] = "repository_renamed"
    repository: str
    new_url: str
    forge_id: int | None


class RepositoryIdentified(EventBody):
    """The number that its forge gives the repository, which it keeps for life.

    `private`: whether it is hidden from strangers there; a change of that is another event. `by`: who said that this
    one is meant from now on, in place of the one before; "" for the first that was seen.
    """

    type: ClassVar[str] = "repository_identified"
    repository: str
    forge_id: int
    private: bool
    by: str


class RepositoryReplaced(EventBody):
    """The forge has another repository under the name, as its number says. Nothing of it is taken.

    `before`: the number of the one that is watched; `forge_id`: that of the other one.
    """

    type: ClassVar[str] = "repository_replaced"
    repository: str
    before: int
    forge_id: int
    reason: str
    remedy: str


class RepositoryArchived(EventBody):
    """The forge says that the repository is archived, so no one can change it; with `archived` false, not any more."""

    type: ClassVar[str] = "repository_archived"
    repository: str
    archived: bool


class BranchCreated(EventBody):
    """A branch that matches the watchlist was seen for the first time, or again after it was deleted or unwatched."""

    type: ClassVar[str] = "branch_created"
    repository: str
    branch: str
    tip: Sha
    is_default: bool


class BranchRewritten(EventBody):
    """A force-push: `old` is no ancestor of `new`. `base` is their merge base, None where there is none.

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
    """The branch is still there and is not asked for any more: `branches` or the default branch changed.

    What was learnt of it stays, and no work is done for it. Its return is a `branch_created`.
    """

    type: ClassVar[str] = "branch_unwatched"
    repository: str
    branch: str
    last: Sha


class CommitObserved(EventBody):
    """A commit of a watched branch. First-parent order, oldest first, one event a commit and branch.

    `baseline` marks the tip at first sight, whose ancestors are not imported.
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
