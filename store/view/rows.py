"""Rows of the view: frozen dataclasses, a table's columns as attributes.

A class under `table` declares one: see `store.view.schema`. A row with more columns than its table (a file's
path, say) is a subclass. Standard library only: see `store.view.queries`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, get_args

from store.events.projects import Project
from store.text import and_more, counted
from store.view.schema import Index, table

if TYPE_CHECKING:
    from store.domain.records import Position, TracedTactic


@table("service", key=("id",))
class ServiceRow:
    """The daemon's last report on itself and its configuration, in one row (`id` 1)."""

    id: int
    version: str
    pid: int | None
    host: str
    lean: str
    lean_detail: str
    started_at: str | None
    stopped_at: str | None
    stop_reason: str
    config_path: str
    config_digest: str
    config_loaded_at: str | None
    config_errors: list[str]
    config_rejected_at: str | None


@table("repositories", key=("repository",))
class RepositoryRow:
    """A repository, watched now or earlier.

    `failing_since` is the time of the first poll in the present run of failures, `failing_told` whether
    `repository_failing` is recorded for it.
    """

    repository: str
    """Its key."""
    url: str
    forge_id: int | None
    watched: bool
    enabled: bool
    opt_out: bool
    every_s: float
    branches: list[str]
    """The configured names and globs."""
    include: list[str]
    exclude: list[str]
    projects: list[str]
    """The configured folders of Lake projects; empty: the root, or every project if the root has none."""
    default_branch: str | None
    state: str
    """`new`, `ok`, or a problem of `everlean status`."""
    reason: str
    remedy: str
    failing_since: str | None
    failing_told: bool
    archived: bool
    """Its forge accepts no changes to it."""
    private: bool
    """Its forge hides it from strangers: its texts must not leave it."""
    replaced_by: int | None
    """The number of another repository under its name at the forge; work stops until a person chooses one."""
    first_seen_at: str


@dataclass(frozen=True, slots=True)
class PolledRepository(RepositoryRow):
    """A repository with the state of its last poll; None where unknown."""

    checked_at: str | None
    """When it was last polled."""
    next_due_at: str | None
    poll_outcome: str | None
    etag: str | None


@table("branches", key=("repository", "branch"))
class BranchRow:
    """A branch of a repository.

    `scanned_seq` is the log position of the newest scan, `scanned_include_json` and `scanned_exclude_json`
    its path patterns, `projects_json` its Lake projects; None before the first scan.
    """

    repository: str
    branch: str
    state: str
    """`live`, `deleted`, or `unwatched` (it exists, outside the watchlist)"""
    tip: str
    """the newest observed commit"""
    scanned: str | None
    """the newest scanned commit"""
    scanned_seq: int | None
    scanned_include: list[str]
    scanned_exclude: list[str]
    projects: list[dict[str, str]] | None
    """its Lake projects: `folder` (`""` for the root), `toolchain` (the text of its `lean-toolchain`) and `manifest`
    (the blob of its `lake-manifest.json`)"""
    challenges: list[str]
    """the modules named as challenges by a comparator.json"""
    rewrites: int
    """the number of force-pushes"""

    @property
    def lake_projects(self) -> tuple[Project, ...]:
        """Its Lake projects, by folder; none before the first scan."""
        return tuple(Project(**one) for one in self.projects or ())


@table(
    "commits",
    key=("repository", "branch", "sha"),
    indexes=(Index("commits_by_state", ("repository", "branch", "state", "seq")),),
)
class CommitRow:
    """A commit observed on a branch; `seq` is the log position of its observation and orders the scans.

    `state`: observed, scanned, or dropped (a force-push took it off the branch).
    """

    repository: str
    branch: str
    sha: str
    seq: int
    parent: str | None
    author: str
    subject: str
    committed_at: str
    observed_at: str
    baseline: bool
    state: str
    files_scanned: int | None
    files_failed: int | None
    seconds: float | None


@table(
    "past_commits",
    key=("repository", "branch", "sha"),
    indexes=(Index("past_uncounted", ("repository",), where="sorries IS NULL"),),
)
class PastCommitRow:
    """A commit older than the first sight of its branch, the last of its week.

    `begins`: the history begins in its week. `sorries` is NULL until they are counted.
    """

    repository: str
    branch: str
    sha: str
    committed_at: str
    begins: bool
    sorries: int | None


@table(
    "files",
    key=("repository", "branch", "path"),
    indexes=(
        Index(
            "files_too_large",
            ("repository", "branch"),
            where="declarations_taken IS NOT NULL OR sorries_taken IS NOT NULL",
        ),
        Index("files_marked", ("repository", "branch", "path"), where="marked_json <> '[]'"),
    ),
)
class FileRow:
    """A Lean file at the newest scanned commit of a branch. `blob` is its git object id.

    Above a limit, `declarations_taken` and `sorries_taken` are the numbers taken. `marked` names declarations
    whose sorry an attribute calls intended.
    """

    repository: str
    branch: str
    path: str
    blob: str
    sha: str
    error: str | None
    imports: list[str]
    n_declarations: int
    n_sorries: int
    exercise_words: int
    declarations_taken: int | None
    sorries_taken: int | None
    marked: list[str]


LARGER = "raise the limit under [scan], which counts for a file from its next change on, or exclude the file"
"""The remedy where the limits leave something out."""


@dataclass(frozen=True, slots=True)
class TooLargeRow:
    """A branch whose newest scan was cut by the limits: `files` above a limit, and the numbers taken."""

    repository: str
    branch: str
    path: str
    """of the file with the most left out"""
    files: int
    declarations: int
    declarations_taken: int
    sorries: int
    sorries_taken: int

    @property
    def text(self) -> str:
        """Return the row for people: "too large: 2,000 of 300,000 sorries taken (S.lean)"."""
        parts = [
            f"{number:,} of {there:,} {what}"
            for what, number, there in (
                ("sorries", self.sorries_taken, self.sorries),
                ("declarations", self.declarations_taken, self.declarations),
            )
            if there
        ]
        return f"too large: {', '.join(parts)} taken ({self.path}{and_more(self.files - 1)})"


def too_large_text(rows: Iterable[TooLargeRow]) -> dict[str, str]:
    """Return the rows for people, by repository: the first branch, and the number of further ones."""
    result = {}
    for repository, branches in groupby(rows, key=lambda row: row.repository):
        first, *others = branches
        more = f"; so on {counted(len(others), 'more branch')}" if others else ""
        result[repository] = f"{first.branch}: {first.text}{more}"
    return result


@table(
    "declarations",
    key=("repository", "branch", "path", "index"),
    indexes=(Index("ix_declarations_name", ("name",)),),
)
class DeclarationRow:
    """A declaration at the newest scanned commit of a branch; theorems are those of kind theorem or lemma."""

    repository: str
    branch: str
    path: str
    index: int
    """Its position in the file."""
    theorem: str
    """The id of its name and statement (store.domain.identity.theorem_id)."""
    name: str
    kind: str
    statement: str
    statement_hash: str
    text_hash: str
    line: int
    column: int
    end_line: int
    end_column: int
    n_sorries: int


@table(
    "theorems",
    key=("repository", "branch", "theorem"),
    indexes=(
        Index("theorems_by_identity", ("repository", "branch", "identity")),
        Index("theorems_by_name", ("name",)),
    ),
)
class TheoremRow:
    """A theorem or lemma of a branch, through all its versions; the columns are of the newest one."""

    repository: str
    branch: str
    theorem: str
    """Its id for life, given at its first sight."""
    identity: str
    """The id of its present name and statement, shared with its declaration."""
    state: str
    """`present` or `deleted`."""
    name: str
    kind: str
    statement: str
    statement_hash: str
    text_hash: str
    path: str
    first_sha: str
    first_seen_at: str
    last_sha: str
    """The commit of its newest version."""
    versions: int
    """The number of versions with more than other lines."""


@table("theorem_versions", key=("repository", "branch", "theorem", "seq"))
class TheoremVersionRow:
    """One version of a theorem; `steps` are its changes.

    `steps` is a comma-separated list of: appeared, returned, renamed, file_moved, restated, reproved (the
    same statement with another proof), deleted.
    """

    repository: str
    branch: str
    theorem: str
    seq: int
    steps: str
    sha: str
    recorded_at: str
    name: str
    path: str
    statement: str
    statement_hash: str
    text_hash: str
    n_sorries: int


STATES_IN_SOURCE = ("open", "verified")
"""The states of a sorry in the source."""
IN_SOURCE = f"state IN {STATES_IN_SOURCE!r}"
"""A condition on sorries: in the source."""
UNWRITTEN = f"written_sha IS NULL AND {IN_SOURCE}"
"""A condition on sorries in the source: git was not asked for the author yet."""


SorryState = Literal["open", "verified", "filled", "removed"]
SORRY_STATES: tuple[str, ...] = get_args(SorryState)
TURNS = ("opened", "reopened", "filled", "removed", "restated", "became an axiom", "unchecked", "hidden")
"""The steps at which a sorry enters or leaves the source."""


@table(
    "sorries",
    key=("repository", "branch", "sorry"),
    indexes=(
        Index("sorries_by_path", ("repository", "branch", "path")),
        Index("sorries_by_branch", ("repository", "branch", "state")),
        Index("sorries_by_id", ("sorry",)),
        Index("ix_sorries_state", ("state",)),
        Index("sorries_unwritten", ("repository", "branch"), where=UNWRITTEN),
    ),
)
class SorryRow:
    """A sorry and its state on a branch. Its place is the last known one."""

    repository: str
    branch: str
    sorry: str
    """Its id, stable through moves and edits."""
    state: str
    """`open` (no verified proof), `verified` (a verified proof waits), `filled` (its declaration has the same
    statement and a proof), `removed` (gone otherwise: see `went`). A candidate leaves it open."""
    declaration: str
    kind: str
    statement: str
    statement_hash: str
    ordinal: int
    """Its number inside its declaration, from 0."""
    token: str
    """`sorry` or `admit`."""
    mode: str
    """`term` or `tactic`."""
    path: str
    blob: str
    """git's id of the file."""
    line: int
    """From 1."""
    column: int
    """From 0, in code points."""
    byte_start: int
    byte_end: int
    context_hash: str
    opened_sha: str
    """The commit at its first sight."""
    opened_at: str
    """The time of that commit."""
    updated_sha: str
    closed_sha: str | None
    filled_by: str | None
    """`people` or `us`."""
    went: str
    """How it was removed: `deleted` with its declaration, `restated` (with another statement), `became an
    axiom`, `unchecked` (by something unseen by the kernel, or that may admit the goal), `hidden` (in an
    unknown macro or command); else empty."""
    rests_on: list[str]
    """The declarations with a sorry cited by the proof in its place."""
    verified_proof: str | None
    """The waiting proof."""
    written_sha: str | None
    """The commit of its line, by git; empty if git does not know, null before git was asked."""
    written_by: str
    """The author's name."""
    written_at: str | None
    """When the author wrote it."""
    pull_request: int | None
    """The number of the pull request behind it."""

    @property
    def in_source(self) -> bool:
        return self.state in STATES_IN_SOURCE


@table("sorry_steps", key=("repository", "branch", "sorry", "seq"))
class SorryStepRow:
    """One step of a sorry's life."""

    repository: str
    branch: str
    sorry: str
    seq: int
    step: str
    """`opened`, `reopened`, `moved`, `changed`, `verified`, `refuted` (a verified proof was rejected later,
    or kernels do not agree on it), `filled`, `removed` or another end: `restated`, `became an axiom`,
    `unchecked`, `hidden`"""
    sha: str
    at: str
    """The time of its commit; for a step of a proof or a trace, of the record."""
    recorded_at: str
    """The time at which the daemon saw it."""
    author: str
    """The author of its commit; empty for a step of a proof or a trace."""
    pull_request: int | None
    """The number of the pull request in the subject of its commit."""
    filled_by: str | None
    """For a step `filled`: `people` or `us`."""
    detail: str
    """a line for people"""


@table("attempts", key=("sorry", "blob", "prover", "rung", "model", "budget"))
class AttemptRow:
    """An attempt on a sorry; a part of its key must change before it is repeated."""

    sorry: str
    blob: str
    """git's id of the file."""
    prover: str
    rung: int
    model: str
    """The id of its model; empty without one."""
    budget: str
    repository: str
    branch: str
    sha: str
    outcome: str
    """`found`, `disproved` (Lean took a proof of its negation), `exhausted` (nothing left to try), `budget`,
    `unsupported` or `error`."""
    detail: str
    """Why."""
    nodes: int
    """Expanded states; for whole proofs, texts judged by Lean."""
    repl_calls: int
    seconds: float
    seed: int
    best: str
    """How far it got, in words."""
    goals_left: int | None
    """Open goals of the state nearest to a proof."""
    prompt_tokens: int
    """0 if not counted."""
    completion_tokens: int
    usd: float | None
    """Null if the cost is unknown."""
    tree_sha256: str | None
    """The search's tree in the log, if it has one."""
    job: str
    recorded_at: str


ProofState = Literal["rejected", "conditional", "candidate", "verified"]
"""The best last."""
PROOF_STATES: tuple[str, ...] = get_args(ProofState)


@table(
    "proofs",
    key=("proof",),
    indexes=(
        Index("ix_proofs_sorry", ("sorry",)),
        Index("ix_proofs_state", ("state",)),
    ),
)
class ProofRow:
    """A proof text for a sorry."""

    proof: str
    """Its id."""
    sorry: str
    repository: str
    branch: str
    sha: str
    """The commit of its discovery, with `blob` and `byte_start`."""
    path: str
    blob: str
    byte_start: int
    byte_end: int
    """`replacement` takes the place of the bytes from `byte_start` to here."""
    declaration: str
    declaration_text_hash: str
    replacement: str
    parts: list[int]
    """Where it fills several sorries: the lengths of their texts in characters, in the file's order."""
    tactics: list[str]
    prover: str
    rung: int
    toolchain: str
    state: str
    """`candidate` (with `checked_at`: nothing failed, something could not be judged), `verified`, `rejected`
    or `conditional`."""
    checks: list[dict[str, str]]
    """The gate's, each with `step`, `verdict`, `by` and `evidence`."""
    not_checked: list[str]
    """The steps without a judgement here."""
    axioms: list[str]
    grade: str
    """How far kernels judged the proof and everything below it: `L0`, `L1` or `L2`; empty until it is
    verified."""
    kernel: str
    """The programs behind its kernel replay."""
    judge: str
    """The last Lean that verified it; empty before."""
    rests_on_sha256: str | None
    """The payload in the log with the constants below it, by module; null if unknown."""
    statement: str
    """The verified statement in the words of its source; empty before, or if it was not recorded."""
    lean_statement: str
    """The same statement elaborated by Lean, with every name, argument and universe level; empty if
    unknown."""
    not_in_header: list[str] | None
    """The variables of Lean's statement missing in the source's own header; null if unknown."""
    speaks_of: list[dict[str, str]]
    """The project's constants below the statement, each with `kind`, `module`, `name` and `type`."""
    speaks_of_more: int
    """The number of further ones, left out."""
    doubts: list[str]
    """Why it is in doubt until checked again: an advisory on every kernel behind it, or a disagreement of
    kernels."""
    checked_sha: str
    """The commit of its last verification, with the file `checked_blob` and the place `checked_start`."""
    checked_blob: str
    checked_start: int
    conditional_on: list[str]
    """Declarations with a sorry below it."""
    reason: str
    patch_sha256: str | None
    """The patch in the log."""
    pull_request_url: str | None
    """Where it was proposed."""
    pull_request_at: str | None
    found_at: str
    checked_at: str | None
    job: str
    """The job that found it first."""
    checked_job: str | None
    """The job of its last verdict."""


JobState = Literal["running", "succeeded", "failed", "interrupted", "cancelled", "released"]
JOB_STATES: tuple[str, ...] = get_args(JobState)


@table(
    "jobs",
    key=("job",),
    indexes=(
        Index("jobs_by_start", ("started_at",)),
        Index("jobs_by_state", ("state", "kind")),
    ),
)
class JobRow:
    """A job at its newest attempt."""

    job: str
    """Its id."""
    kind: str
    state: str
    """`running`, `succeeded`, `failed`, `interrupted`, `cancelled` or `released`."""
    attempt: int
    repository: str | None
    branch: str | None
    sha: str | None
    describes: str
    started_at: str
    ended_at: str | None
    seconds: float | None
    peak_rss_bytes: int | None
    reason: str
    message: str
    """May have several lines."""
    remedy: str
    deterministic: bool
    """The same inputs would fail again."""
    retry_at: str | None
    """When it is tried again by itself."""
    summary: dict[str, Any]
    """The kind's own; `modules_failed` of a build names the modules left out."""


@table("job_attempts", key=("job", "attempt"), indexes=(Index("job_attempts_by_end", ("ended_at",)),))
class JobAttemptRow:
    """One attempt of a job, with its begin, end and outcome."""

    job: str
    attempt: int
    kind: str
    started_at: str
    ended_at: str | None
    outcome: str | None


@table("pauses", key=("work",))
class PauseRow:
    """A sort of work paused by a user, the reason ("" if none was given), and the start."""

    work: str
    by: str
    reason: str
    since: str


@table("claims", key=("sorry",))
class ClaimRow:
    """An agent's claim on a sorry, the newest; it stands until its lease ends."""

    sorry: str
    repository: str
    claim: str
    """Its id, for renewing and returning it."""
    agent: str
    """The agent's name for itself."""
    by: str
    """The user behind it."""
    since: str
    """When it was last taken or renewed."""
    until: str
    """When its lease ends."""


@table("triggers", key=("work", "repository"))
class TriggerRow:
    """The newest trigger of a sort of work in a repository.

    `job` is the first job after it, if any; `ended` is the reason if none was needed.
    """

    work: str
    repository: str
    seq: int
    by: str
    triggered_at: str
    job: str | None
    ended: str | None

    @property
    def waits(self) -> bool:
        """Return whether work is left for the trigger."""
        return self.job is None and self.ended is None


@table("offers", key=("model", "weights", "repository"))
class OfferRow:
    """A user's model, to be measured on a repository; see `store.events.models.ModelOffered`."""

    model: str
    weights: str
    repository: str
    folder: str
    trace: str | None
    learned: bool
    by: str
    offered_at: str


@table("notifiers", key=("channel",))
class NotifierRow:
    """A channel, as its events left it (`store.events.service`). Events up to `position` are not sent again.

    `problem` is "" after a delivery; otherwise `failing_since` is the time of the first refusal. `digest_at`
    is the time of the last delivered digest, before the first one of the channel's activation.
    """

    channel: str
    kinds: dict[str, int]
    """its kinds of events, each with the position at which its news begin; empty: off"""
    position: int
    messages: int
    """delivered"""
    told: int
    """events in them"""
    problem: str
    reason: str
    remedy: str
    failing_since: str | None
    sent_at: str | None
    digest_at: str | None


@table("view_position", key=("projection",))
class PositionRow:
    """The view's position in the log, committed in the same transaction as its rows.

    `event_id` is the id of the event at `seq`: a view must not continue with another log. `stopped_seq` is
    the event at which projection failed, if any, and `stopped_reason` the reason.
    """

    projection: str
    version: int
    seq: int
    event_id: str
    stopped_seq: int | None
    stopped_reason: str


@table("traces", key=("trace",), indexes=(Index("traces_by_repository", ("repository", "sha")),))
class TraceRow:
    """A traced commit, closed. `seq` is the log position of its `commit_traced`. `state`: current, withdrawn.

    Its files are those of `traced_files` with the same repository and line, from_seq <= seq and until_seq
    NULL or > seq. `manifest_sha256` names the import's order in the log. The counts are of the whole commit.
    """

    trace: str
    repository: str
    line: str
    sha: str
    seq: int
    state: str
    url: str
    name: str
    lean_version: str
    tracer: str
    tracer_version: str
    source: str
    pr_url: str | None
    metadata_json: str
    """LeanDojo's metadata of the commit: JSON."""
    manifest_sha256: str | None
    files_traced: int
    files_failed: int
    n_theorems: int
    n_premises: int
    n_tactics: int
    traced_at: str

    @property
    def completeness(self) -> float:
        """The share of its files extracted in full, 0..1; 1 for a commit without files."""
        return 1 - self.files_failed / self.files_traced if self.files_traced else 1.0


@dataclass(frozen=True, slots=True)
class FileOfTrace:
    """A file of a trace; `error` is the reason if extraction failed. `sha` is the commit of this version."""

    path: str
    content: int
    error: str | None
    sha: str


@table("trace_measures", key=("repository", "line"))
class MeasureRow:
    """The completeness of a branch's newest trace; see `TraceMeasured`.

    By line and not by trace: two branches may have the same commit, and so the same trace. `gaps` maps kinds to
    counts.
    """

    repository: str
    line: str
    trace: str
    sha: str
    seq: int
    files_seen: int
    files_traced: int
    theorems_seen: int
    theorems_traced: int
    tactics_seen: int
    tactics_traced: int
    n_dependencies: int
    gaps: dict[str, int]
    measured_at: str


@dataclass(frozen=True, slots=True)
class GapRow:
    """A gap of a trace (`store.domain.records.TraceGap`), with its file."""

    path: str
    kind: str
    """`file` (not traced at all), `elaboration` (refused by Lean), `theorem` (missing in Lean), `tactics` (no
    steps reported), `generated` (constants declared by a macro), `premise_site` (constants with unknown
    definition) or `sorry_goal` (no goal for a sorry)"""
    declaration: str
    """empty: the whole file"""
    reason: str


@table("sorry_goals", key=("repository", "branch", "sorry"))
class SorryGoalRow:
    """The last goal printed by Lean for a sorry, and its commit; see `store.events.traces.SorryStated`."""

    repository: str
    branch: str
    sorry: str
    goal: str
    sha: str
    statement_hash: str
    context_hash: str
    stated_at: str


@dataclass(frozen=True, slots=True)
class LineFile:
    """A present file of a line, its commit's trace closed or not.

    `seen` is `store.domain.records.Seen` as a list, None for an import; `gaps` are lists of kind,
    declaration, reason.
    """

    path: str
    key: str
    error: str | None
    n_theorems: int
    n_premises: int
    n_tactics: int
    seen: list[int] | None
    gaps: list[list[str]]


@table(
    "traced_theorems",
    key=("content", "index"),
    indexes=(
        Index("traced_theorems_by_name", ("full_name",)),
        Index("traced_theorems_by_split", ("split_key", "content")),
    ),
)
class TracedTheoremRow:
    """A theorem of a trace. `statement` is None if the tracer gave none.

    `split_key` is `store.domain.identity.split_key`; `has_sorry`: a step of its proof is a sorry. `url` and
    `commit` are None if they equal the trace's.
    """

    content: int
    index: int
    full_name: str
    statement: str | None
    split_key: str
    line: int
    column: int
    end_line: int
    end_column: int
    n_tactics: int
    has_sorry: bool
    url: str | None
    commit: str | None

    @property
    def start(self) -> Position:
        return self.line, self.column

    @property
    def end(self) -> Position:
        return self.end_line, self.end_column


@table("premises", key=("content", "index"), indexes=(Index("premises_by_name", ("full_name",)),))
class PremiseRow:
    """A declaration usable in proofs; see `store.domain.records.Premise`.

    `code` is a theorem's statement, or the whole text of anything else.
    """

    content: int
    index: int
    full_name: str | None
    kind: str
    code: str
    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def start(self) -> Position:
        return self.line, self.column

    @property
    def end(self) -> Position:
        return self.end_line, self.end_column


@dataclass(frozen=True, slots=True)
class TrainingProof:
    """A proof to learn from, step by step. `split_key` is of its statement: copies of a theorem share it."""

    path: str
    theorem: str
    split_key: str
    steps: tuple[TracedTactic, ...]


@table(
    "checkpoints",
    key=("checkpoint",),
    indexes=(
        Index("checkpoints_in_use", ("model", "promoted")),
        Index("checkpoints_undecided", ("promoted_at", "refused_at")),
    ),
)
class CheckpointRow:
    """A trained checkpoint; see `store.events.models.CheckpointSaved`.

    While `promoted_at` and `refused_at` are both NULL, it waits for a decision.
    """

    checkpoint: str
    """Its id."""
    model: str
    parent: str | None
    """The checkpoint before its training."""
    base: str
    """The base of the first checkpoint in its chain."""
    data_seq: int
    """The log's position of the training data."""
    config: dict[str, Any]
    seed: int
    steps: int
    weights: str
    """SHA-256 of the file."""
    size_bytes: int
    """Of the weights."""
    """SHA-256 of a file kept by earlier versions; else null."""
    curve: str | None
    """SHA-256 of the blob with the training's losses; null if none was kept."""
    versions: dict[str, str]
    """Of the libraries."""
    device: str
    seconds: float
    job: str
    saved_at: str
    promoted: bool
    """It is in use."""
    promoted_at: str | None
    reason: str
    """Why it was promoted."""
    refused_at: str | None
    """When the rule refused it; a later promotion overrides."""
    refused_reason: str
    removed_at: str | None
    """When its files were removed; its row stays."""
    removed_reason: str


@table("evaluations", key=("evaluation",), indexes=(Index("evaluations_by_checkpoint", ("checkpoint",)),))
class EvaluationRow:
    """The evaluation of a checkpoint on one dataset; see `store.events.models.EvaluationFinished`."""

    evaluation: str
    """Its id."""
    model: str
    checkpoint: str
    repository: str | None
    """Null if it covers several."""
    split: str
    dataset: str
    """SHA-256 of the examples."""
    metrics: dict[str, float]
    """`recall@1`, `@5`, `@10`, `@32`, `@100`, `mrr`, `ndcg@10`, those of the baselines with `bm25 ` or `mepo
    ` before, of the ranking fused with BM25's with `fused `; `tactic@1`, `tactic@8`; `mae` and
    `mse` in steps, `within_1`."""
    n: int
    """The number of examples."""
    seconds: float
    job: str
    recorded_at: str
    scores: str | None = None
    """SHA-256 of the blob with each theorem's score; null if none are kept."""
