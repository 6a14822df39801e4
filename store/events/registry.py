"""Every event type by its name: frozen, versioned, documented.

An event's `type` is snake_case past tense and never a Python path; renaming a class here changes nothing on
disk. A change of shape is a new `schema_version` and an upcast in `upcast.py`; old rows are never rewritten.
Every field name ends in its unit where it has one. `simulated` is true on every fact that the simulator, and
not Lean, is the source of.

Streams: `repository:<key>` (watching, commits, scans, sorries), `job:<id>`, `proof:<id>`, `work`, `notify:<channel>`,
`config`, `daemon`, `log`.
"""

from __future__ import annotations

from typing import get_args

from store.events.base import EventBody
from store.events.bumps import BumpAsked, BumpBuilt, BumpFinished, BumpTried
from store.events.jobs import (
    JobCancelled,
    JobFailed,
    JobInterrupted,
    JobReleased,
    JobStarted,
    JobSucceeded,
    ProjectBuilt,
    TriggerEnded,
    WorkPaused,
    WorkResumed,
    WorkTriggered,
)
from store.events.models import (
    CheckpointPromoted,
    CheckpointRefused,
    CheckpointRemoved,
    CheckpointSaved,
    EvaluationFinished,
)
from store.events.proofs import (
    AttemptFinished,
    ClaimReleased,
    ProofChecked,
    ProofDoubted,
    ProofFound,
    ProofRejected,
    ProofVerified,
    PullRequestOpened,
    SorryClaimed,
)
from store.events.repositories import (
    BranchCreated,
    BranchDeleted,
    BranchRewritten,
    BranchUnwatched,
    CommitObserved,
    RepositoryArchived,
    RepositoryFailed,
    RepositoryFailing,
    RepositoryRecovered,
    RepositoryRenamed,
    RepositoryUnwatched,
    RepositoryWatched,
)
from store.events.scans import (
    CommitScanned,
    FileRemoved,
    FileScanned,
    PastCounted,
    PastListed,
    ScanBegun,
    SorryChanged,
    SorryFilled,
    SorryMoved,
    SorryOpened,
    SorryRemoved,
    SorryWritten,
    TheoremsFollowed,
)
from store.events.service import (
    ConfigLoaded,
    ConfigRejected,
    DaemonStarted,
    DaemonStopped,
    LeanChosen,
    LogRecovered,
    NotificationFailed,
    NotificationSent,
    NotificationsSwitched,
)
from store.events.traces import (
    CommitTraced,
    FileTraced,
    SorryStated,
    TracedFileRemoved,
    TraceMeasured,
    TraceWithdrawn,
)

AnyEvent = (
    DaemonStarted
    | DaemonStopped
    | LeanChosen
    | LogRecovered
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
    | ScanBegun
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
    | CheckpointRemoved
    | EvaluationFinished
    | SorryOpened
    | SorryMoved
    | SorryChanged
    | SorryFilled
    | SorryRemoved
    | SorryWritten
    | PastListed
    | PastCounted
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
    | ProofDoubted
    | ProofRejected
    | PullRequestOpened
    | SorryClaimed
    | ClaimReleased
    | BumpAsked
    | BumpBuilt
    | BumpTried
    | BumpFinished
    | NotificationsSwitched
    | NotificationSent
    | NotificationFailed
)


EVENT_TYPES: dict[str, type[EventBody]] = {cls.type: cls for cls in get_args(AnyEvent)}
"""Every event type that this version writes, by name."""
