"""Every event type by its name, and those of the service and of repositories: frozen, versioned, documented.

An event's `type` is snake_case past tense and never a Python path; renaming a class here changes nothing on
disk. A change of shape is a new `schema_version` and an upcast in `upcast.py`; old rows are never rewritten.
Every field name ends in its unit where it has one. `simulated` is true on every fact that the simulator, and
not Lean, is the source of.

Streams: `repository:<key>` (watching, commits, scans, sorrys), `job:<id>`, `proof:<id>`, `work`, `notify:<channel>`,
`config`, `daemon`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

from pydantic import AwareDatetime

from store.build_events import ProjectBuilt
from store.event_body import BlobRef, Digest, EventBody, Part, Sha
from store.model_events import CheckpointPromoted, CheckpointRefused, CheckpointSaved, EvaluationFinished
from store.notify_events import NotificationFailed, NotificationSent, NotificationsSwitched
from store.proof_events import (
    AttemptFinished,
    Check,
    ProofChecked,
    ProofFound,
    ProofRejected,
    ProofVerified,
    PullRequestOpened,
)
from store.scan_events import (
    CommitScanned,
    FileRemoved,
    FileScanned,
    SorryChanged,
    SorryEvent,
    SorryFilled,
    SorryMoved,
    SorryOpened,
    SorryPlace,
    SorryRemoved,
    TheoremsFollowed,
)
from store.trace_events import (
    CommitTraced,
    FileTraced,
    SorryStated,
    TracedFileRemoved,
    TraceMeasured,
    TraceWithdrawn,
)
from store.work_events import (
    JobCancelled,
    JobFailed,
    JobInterrupted,
    JobReleased,
    JobStarted,
    JobSucceeded,
    TriggerEnded,
    WorkPaused,
    WorkResumed,
    WorkTriggered,
)

__all__ = [
    "AttemptFinished",
    "BlobRef",
    "Check",
    "CommitScanned",
    "Digest",
    "EventBody",
    "FileRemoved",
    "FileScanned",
    "JobFailed",
    "JobInterrupted",
    "JobReleased",
    "JobStarted",
    "JobSucceeded",
    "Part",
    "ProofChecked",
    "ProofFound",
    "ProofRejected",
    "ProofVerified",
    "PullRequestOpened",
    "Sha",
    "SorryChanged",
    "SorryEvent",
    "SorryFilled",
    "SorryMoved",
    "SorryOpened",
    "SorryPlace",
    "SorryRemoved",
    "TheoremsFollowed",
]

# --- the service ----------------------------------------------------------------------------------------


class DaemonStarted(EventBody):
    """The log is open, the view is caught up, work begins."""

    type: ClassVar[str] = "daemon_started"
    version: str
    pid: int
    host: str
    lean: Literal["pantograph", "simulator", "none"]
    lean_detail: str
    sqlite: str


class DaemonStopped(EventBody):
    """The daemon ended on purpose. A daemon that was killed leaves no such event."""

    type: ClassVar[str] = "daemon_stopped"
    reason: str
    pid: int


class ConfigLoaded(EventBody):
    """Settings took effect. `settings` is the whole of them, without secrets."""

    type: ClassVar[str] = "config_loaded"
    path: str
    digest: Digest
    settings: dict[str, Any]


class ConfigRejected(EventBody):
    """A changed file was not valid; the earlier settings stay in force."""

    type: ClassVar[str] = "config_rejected"
    path: str
    digest: Digest
    errors: tuple[str, ...]


# --- repositories -----------------------------------------------------------------------------------------


class RepositoryWatched(EventBody):
    """A watchlist entry took effect, for the first time or changed. `repository` is host/owner/name."""

    type: ClassVar[str] = "repository_watched"
    repository: str
    url: str
    branches: tuple[str, ...]
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    every_s: float
    enabled: bool
    opt_out: bool


class RepositoryUnwatched(EventBody):
    """The entry left the watchlist. What was learnt of the repository stays."""

    type: ClassVar[str] = "repository_unwatched"
    repository: str


RepositoryProblem = Literal["unreachable", "gone", "auth_failed", "rate_limited", "empty", "invalid"]


class RepositoryFailed(EventBody):
    """Polling began to fail, or fails for another reason than before. Nothing else stops because of it."""

    type: ClassVar[str] = "repository_failed"
    repository: str
    problem: RepositoryProblem
    reason: str
    remedy: str


class RepositoryFailing(EventBody):
    """Polling has failed since `since` without a break, longer than `[notify] failing_for`. Once for each such time.

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


class RepositoryArchived(EventBody):
    """The forge says that the repository is archived, so nobody can change it; with `archived` false, not any more."""

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
    """A commit stands on a watched branch. First-parent order, oldest first, one event a commit and branch.

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


AnyEvent = (
    DaemonStarted
    | DaemonStopped
    | ConfigLoaded
    | ConfigRejected
    | RepositoryWatched
    | RepositoryUnwatched
    | RepositoryFailed
    | RepositoryFailing
    | RepositoryRecovered
    | RepositoryRenamed
    | RepositoryArchived
    | BranchCreated
    | BranchRewritten
    | BranchDeleted
    | BranchUnwatched
    | CommitObserved
    | FileScanned
    | FileRemoved
    | CommitScanned
    | TheoremsFollowed
    | FileTraced
    | TracedFileRemoved
    | CommitTraced
    | TraceMeasured
    | SorryStated
    | TraceWithdrawn
    | CheckpointSaved
    | CheckpointPromoted
    | CheckpointRefused
    | EvaluationFinished
    | SorryOpened
    | SorryMoved
    | SorryChanged
    | SorryFilled
    | SorryRemoved
    | JobStarted
    | JobSucceeded
    | JobFailed
    | JobInterrupted
    | JobReleased
    | JobCancelled
    | WorkPaused
    | WorkResumed
    | WorkTriggered
    | TriggerEnded
    | ProjectBuilt
    | AttemptFinished
    | ProofFound
    | ProofChecked
    | ProofVerified
    | ProofRejected
    | PullRequestOpened
    | NotificationsSwitched
    | NotificationSent
    | NotificationFailed
)

EVENT_TYPES: dict[str, type[EventBody]] = {cls.type: cls for cls in get_args(AnyEvent)}
"""Every event type that this version writes, by name."""
