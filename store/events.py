"""Every event type: frozen, versioned, documented.

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
    WorkPaused,
    WorkResumed,
    WorkTriggered,
)

__all__ = [
    "BlobRef",
    "Digest",
    "EventBody",
    "JobFailed",
    "JobInterrupted",
    "JobReleased",
    "JobStarted",
    "JobSucceeded",
    "Part",
    "Sha",
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


# --- scanning ---------------------------------------------------------------------------------------------


class FileScanned(EventBody):
    """The scanner read one file at one commit. `scan` is a `store.scanned.ScannedFile` as JSON.

    Only files that differ from the previous scanned commit of the branch have an event. `exercise_words` is how often
    the word stands in the file's text, comments too; None where an older version did not look.
    """

    type: ClassVar[str] = "file_scanned"
    schema_version: ClassVar[int] = 2
    repository: str
    branch: str
    sha: Sha
    path: str
    blob: Sha
    error: str | None
    n_declarations: int
    n_sorries: int
    exercise_words: int | None = None
    scan: BlobRef


class FileRemoved(EventBody):
    """A file that was there at the previous scanned commit is gone (deleted, renamed away, or excluded)."""

    type: ClassVar[str] = "file_removed"
    repository: str
    branch: str
    sha: Sha
    path: str


class CommitScanned(EventBody):
    """All Lean files of a commit are accounted for; the sorry events of the commit stand before this one.

    `include` and `exclude` are the path patterns that it was scanned with: with others it is scanned again.
    `toolchain` is the text of the `lean-toolchain` at the root ("" without one), `manifest` the git blob of
    `lake-manifest.json` ("" without one); None where an older version did not look.
    """

    type: ClassVar[str] = "commit_scanned"
    schema_version: ClassVar[int] = 3
    repository: str
    branch: str
    sha: Sha
    base: Sha | None
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    toolchain: str | None
    manifest: str | None
    files_scanned: int
    files_removed: int
    files_failed: int
    seconds: float


class TheoremsFollowed(EventBody):
    """What became of a branch's theorems from one scanned commit to the next, all of a commit in one event.

    `steps` is a JSON list of `store.theoremlife.TheoremStep`; `counts` says how many there are of each step.
    A commit that only moves lines has no steps and no such event. Stands behind the `file_scanned` of its commit.

    `baseline`: nothing was scanned on the branch before, so every theorem appeared; the scans say which, and
    `steps` is an empty list. `unread`: files whose earlier version can not be read any more; `steps` leaves out
    what appeared in and went from them, and their theorems are those that stand in them now.
    """

    type: ClassVar[str] = "theorems_followed"
    repository: str
    branch: str
    sha: Sha
    baseline: bool
    unread: tuple[str, ...]
    counts: dict[str, int]
    steps: BlobRef


class SorryPlace(Part):
    """Where a sorry stands at a commit. Line from 1, column from 0 in code points, bytes half open."""

    path: str
    blob: Sha
    line: int
    column: int
    byte_start: int
    byte_end: int
    declaration: str
    kind: str
    statement: str
    statement_hash: str
    ordinal: int
    token: Literal["sorry", "admit"]
    mode: Literal["term", "tactic"]
    context_hash: str


class SorryEvent(EventBody):
    """Common to every step of a sorry's life."""

    repository: str
    branch: str
    sha: Sha
    sorry: str


class SorryOpened(SorryEvent):
    """First sight, or back again after it was filled or removed (`reopened`)."""

    type: ClassVar[str] = "sorry_opened"
    place: SorryPlace
    reopened: bool


class SorryMoved(SorryEvent):
    """Same goal, other place: lines shifted, the file moved, or the declaration was renamed."""

    type: ClassVar[str] = "sorry_moved"
    place: SorryPlace
    what: tuple[Literal["line", "file", "rename", "context"], ...]


class SorryChanged(SorryEvent):
    """The statement of its declaration changed."""

    type: ClassVar[str] = "sorry_changed"
    place: SorryPlace
    statement_before: str


class SorryFilled(SorryEvent):
    """The declaration is still there and this sorry is not. `by` is "us" where the text is our proof's."""

    type: ClassVar[str] = "sorry_filled"
    by: Literal["people", "us"]
    proof: str | None


class SorryRemoved(SorryEvent):
    """The declaration itself went."""

    type: ClassVar[str] = "sorry_removed"


# --- proving ----------------------------------------------------------------------------------------------


class AttemptFinished(EventBody):
    """One prover worked on one sorry with one budget. What `outcome` "found" led to is a `proof_found`.

    `blob` is the version of the file: the same attempt is not repeated until the file, the prover, its model or the
    budget changes. Outcomes: found; disproved (Lean took a proof of the negation: it is false as it stands); exhausted
    (no tactic left to try); budget (a limit ended it); unsupported (the goal cannot be attempted, `detail` says why);
    error.

    `model` is the id of what was asked ("" where the prover has none). `best` says how far it got, in a line for
    people ("" where nothing was tried), and `goals_left` how many goals were open in the state that came nearest to a
    proof (None where none was reached): the plan goes on first where there are fewest. `tree` is the search's tree
    (`pipeline.prove.tree`), None without a search. Tokens are those of the model's prompts and answers for this sorry,
    0 where nobody counts them; `usd` is what they cost, None where nobody says.
    """

    type: ClassVar[str] = "attempt_finished"
    schema_version: ClassVar[int] = 2
    repository: str
    branch: str
    sha: Sha
    sorry: str
    blob: Sha
    prover: str
    rung: int
    model: str
    seed: int
    budget: str
    outcome: Literal["found", "disproved", "exhausted", "budget", "unsupported", "error"]
    detail: str
    best: str
    goals_left: int | None
    nodes: int
    repl_calls: int
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    usd: float | None
    tree: BlobRef | None
    simulated: bool
    job: str


class ProofFound(EventBody):
    """A search ended with no goals: a candidate, nothing more.

    `replacement` takes the place of the bytes `byte_start`..`byte_end` of `path` at `sha`: the sorry's own, or,
    where the several sorrys of a declaration are filled together, those from the first to the last of them.
    `declaration_text_hash` is the scanner's `text_hash` of the patched declaration: a later commit with the
    same hash is "filled by us".
    """

    type: ClassVar[str] = "proof_found"
    proof: str
    sorry: str
    repository: str
    branch: str
    sha: Sha
    path: str
    blob: Sha
    byte_start: int
    byte_end: int
    declaration: str
    declaration_text_hash: str
    replacement: str
    tactics: tuple[str, ...]
    prover: str
    rung: int
    toolchain: str
    simulated: bool
    job: str


class Check(Part):
    """One verdict of the gate. `evidence` is what a person can look at; `by` names the program that judged."""

    step: Literal["text", "shape", "compile", "axioms", "statement", "kernel"]
    verdict: Literal["passed", "failed", "not_checked"]
    by: str
    evidence: str


class ProofChecked(EventBody):
    """Nothing failed, but not every required check could be made: the proof stays a candidate.

    This is where every simulated proof ends. `patch` is the patch file's text.
    """

    type: ClassVar[str] = "proof_checked"
    proof: str
    sorry: str
    checks: tuple[Check, ...]
    not_checked: tuple[str, ...]
    patch: BlobRef
    simulated: bool
    job: str


class ProofVerified(EventBody):
    """Lean accepted it: every required check passed. Never simulated, so it has no such field."""

    type: ClassVar[str] = "proof_verified"
    proof: str
    sorry: str
    checks: tuple[Check, ...]
    not_checked: tuple[str, ...]
    axioms: tuple[str, ...]
    patch: BlobRef
    job: str


class ProofRejected(EventBody):
    """A check failed. `conditional_on` names the sorrys that it rests on, where that is the reason."""

    type: ClassVar[str] = "proof_rejected"
    proof: str
    sorry: str
    step: str
    reason: str
    checks: tuple[Check, ...]
    conditional_on: tuple[str, ...]
    simulated: bool
    job: str


class PullRequestOpened(EventBody):
    """A verified proof was proposed to the repository's people: the pull request is there, whatever becomes of it.

    `branch` is where it comes from, as "owner:branch"; `head` is its commit and `base` the one of the default branch
    that it is made on.
    """

    type: ClassVar[str] = "pull_request_opened"
    proof: str
    repository: str
    number: int
    url: str
    branch: str
    head: Sha
    base: Sha


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
