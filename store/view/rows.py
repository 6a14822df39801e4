"""Rows of the view: frozen dataclasses, a table's columns as attributes.

A class under `table` declares one: see `store.view.schema`. A row that adds to a table's (a file's path, say) is a
subclass of it. Standard library only: see `store.view.queries`.
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
    """The daemon's last word on itself and its configuration, in one row (`id` 1)."""

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
    """A repository that is or was watched.

    `failing_since` is when the first of the polls that have failed since did so, `failing_told` whether there is a
    `repository_failing` of it.
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
    """The configured folders of Lake projects; none: the root, or all where it has none."""
    default_branch: str | None
    state: str
    """`new`, `ok`, or what is wrong (the problems of `everlean status`)."""
    reason: str
    remedy: str
    failing_since: str | None
    failing_told: bool
    archived: bool
    """Its forge accepts no changes to it."""
    private: bool
    """Its forge hides it from strangers: its texts stay within it."""
    replaced_by: int | None
    """The number of another repository that its forge has under its name; nothing is done until a person says which."""
    first_seen_at: str


@dataclass(frozen=True, slots=True)
class PolledRepository(RepositoryRow):
    """A repository with the state of its poll when it was last polled; None where that is not known."""

    checked_at: str | None
    """When it was last polled."""
    next_due_at: str | None
    poll_outcome: str | None
    etag: str | None


@table("branches", key=("repository", "branch"))
class BranchRow:
    """A branch of a repository.

    `scanned_seq` is the log position of the newest scan, `scanned_include_json` and
    `scanned_exclude_json` the path patterns that it had, `projects_json` its Lake projects; None before the first scan.
    """

    repository: str
    branch: str
    state: str
    """`live`, `deleted`, or `unwatched` (it is there and the watchlist does not ask for it)"""
    tip: str
    """the newest observed commit"""
    scanned: str | None
    """the newest scanned one"""
    scanned_seq: int | None
    scanned_include: list[str]
    scanned_exclude: list[str]
    projects: list[dict[str, str]] | None
    """its Lake projects: `folder` (`""` for the root), `toolchain` (the text of its `lean-toolchain`) and `manifest`
    (the blob of its `lake-manifest.json`)"""
    challenges: list[str]
    """the modules that a comparator.json names as challenges"""
    rewrites: int
    """how many force-pushes"""

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
    """A commit of the time before the first sight of a branch, the last of its week.

    `begins`: in its week the history does. `sorries` is NULL until they are counted.
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

    Where it has more than the limits allow, `declarations_taken` and `sorries_taken` say how many are known of it.
    `marked` names declarations whose sorry an attribute says to be there by design.
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
"""What to do where the limits leave something out."""


@dataclass(frozen=True, slots=True)
class TooLargeRow:
    """What the limits left out of a branch's newest scan: of `files` with more than they allow, how much is taken."""

    repository: str
    branch: str
    path: str
    """of the file of which most is left out"""
    files: int
    declarations: int
    declarations_taken: int
    sorries: int
    sorries_taken: int

    @property
    def said(self) -> str:
        """Return it for people: "too large: 2,000 of 300,000 sorries taken (S.lean)"."""
        parts = [
            f"{taken:,} of {there:,} {what}"
            for what, taken, there in (
                ("sorries", self.sorries_taken, self.sorries),
                ("declarations", self.declarations_taken, self.declarations),
            )
            if there
        ]
        return f"too large: {', '.join(parts)} taken ({self.path}{and_more(self.files - 1)})"


def too_large_text(rows: Iterable[TooLargeRow]) -> dict[str, str]:
    """Return it for people, by repository: of the first branch, and how many branches more."""
    result = {}
    for repository, branches in groupby(rows, key=lambda row: row.repository):
        first, *others = branches
        more = f"; so on {counted(len(others), 'more branch')}" if others else ""
        result[repository] = f"{first.branch}: {first.said}{more}"
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
    """A theorem or lemma of a branch, through all its versions; all is as in the newest of them."""

    repository: str
    branch: str
    theorem: str
    """Its id for life, given at its first sight."""
    identity: str
    """The id of its present name and statement, which the declaration there has too."""
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
    """How many differ in more than lines."""


@table("theorem_versions", key=("repository", "branch", "theorem", "seq"))
class TheoremVersionRow:
    """One version of a theorem, and `steps`, what made it one.

    `steps` is a comma-separated list of: appeared, returned, renamed, file_moved, restated, reproved (the same
    statement with another proof), deleted.
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
"""Those of a sorry that the source has."""
IN_SOURCE = f"state IN {STATES_IN_SOURCE!r}"
"""Of a sorry: the source has it."""
UNWRITTEN = f"written_sha IS NULL AND {IN_SOURCE}"
"""Of a sorry in the source: nobody has asked git who wrote it."""


SorryState = Literal["open", "verified", "filled", "removed"]
SORRY_STATES: tuple[str, ...] = get_args(SorryState)
TURNS = ("opened", "reopened", "filled", "removed", "restated", "became an axiom", "unchecked", "hidden")
"""The steps at which a sorry comes into the source, or goes."""


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
    """Its id, which survives moves and edits."""
    state: str
    """`open` (no verified proof), `verified` (a proof that Lean accepted waits), `filled` (its declaration says what it
    said, and has a proof there), `removed` (it went otherwise: `went` says how). A candidate leaves it open."""
    declaration: str
    kind: str
    statement: str
    statement_hash: str
    ordinal: int
    """Which one inside its declaration, from 0."""
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
    """The commit that it was first seen in."""
    opened_at: str
    """When that commit was made."""
    updated_sha: str
    closed_sha: str | None
    filled_by: str | None
    """`people` or `us`."""
    went: str
    """How it was removed: `deleted` with its declaration, `restated` (that says something else), `became an axiom`,
    `unchecked` (what took its place the kernel does not see, or it may admit the goal), `hidden` (a macro or a command
    that no one knows holds it); else empty."""
    rests_on: list[str]
    """The declarations with a sorry that the proof in its place cites."""
    verified_proof: str | None
    """The proof that waits."""
    written_sha: str | None
    """The commit that wrote its line, by git; empty where git does not know, null before git was asked."""
    written_by: str
    """The author's name."""
    written_at: str | None
    """When the author wrote it."""
    pull_request: int | None
    """The number of the pull request that brought it."""

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
    """`opened`, `reopened`, `moved`, `changed`, `verified`, `refuted` (a verified proof was rejected later, or kernels
    do not agree on it), `filled`,
    `removed`, or how else it went: `restated`, `became an axiom`, `unchecked`, `hidden`"""
    sha: str
    at: str
    """When its commit was made; of a step of a proof or a trace, when it was recorded."""
    recorded_at: str
    """When the daemon saw it."""
    author: str
    """The author of its commit; empty for a step of a proof or a trace."""
    pull_request: int | None
    """The number of the pull request in the subject of its commit."""
    filled_by: str | None
    """Of a step `filled`: `people` or `us`."""
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
    """The id of the model that was asked; empty where there is none."""
    budget: str
    repository: str
    branch: str
    sha: str
    outcome: str
    """`found`, `disproved` (Lean took a proof of its negation), `exhausted` (nothing was left to try),
    `budget`, `unsupported` or `error`."""
    detail: str
    """Why."""
    nodes: int
    """States expanded; of whole proofs, texts that Lean judged."""
    repl_calls: int
    seconds: float
    seed: int
    best: str
    """How far it got, in words."""
    goals_left: int | None
    """Open goals of the state that came nearest to a proof."""
    prompt_tokens: int
    """0 where they are not counted."""
    completion_tokens: int
    usd: float | None
    """Null where the cost is not known."""
    tree_sha256: str | None
    """The search's tree in the log, where there is one."""
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
    """The commit at which it was found; `blob` and `byte_start` are of the file there."""
    path: str
    blob: str
    byte_start: int
    byte_end: int
    """`replacement` takes the place of the bytes from `byte_start` to here."""
    declaration: str
    declaration_text_hash: str
    replacement: str
    tactics: list[str]
    prover: str
    rung: int
    toolchain: str
    state: str
    """`candidate` (with `checked_at`: nothing failed, and not all could be judged), `verified`, `rejected` or
    `conditional`."""
    checks: list[dict[str, str]]
    """The gate's, each with `step`, `verdict`, `by` and `evidence`."""
    not_checked: list[str]
    """What could not be judged here."""
    axioms: list[str]
    grade: str
    """How far kernels judged what it rests on: `L0`, `L1` or `L2`; empty until it is verified."""
    kernel: str
    """The programs that replayed it."""
    judge: str
    """The Lean that verified it last; empty before."""
    rests_on_sha256: str | None
    """The payload in the log that names all that it rests on, by module; null where nobody told."""
    statement: str
    """The verified statement in the words of its source; empty before, or where it was not recorded."""
    lean_statement: str
    """What Lean made of these words, every name, argument and universe level written; empty where it is unknown."""
    not_in_header: list[str] | None
    """The variables of Lean's statement that the source's own header does not write; null where nobody could tell."""
    speaks_of: list[dict[str, str]]
    """The project's constants that the statement rests on, each with `kind`, `module`, `name` and `type`."""
    speaks_of_more: int
    """How many of these are left out."""
    doubts: list[str]
    """The advisories on all kernels that vouch for it, or that kernels do not agree: it is in doubt until it is checked
    again."""
    checked_sha: str
    """The commit at which it was last verified; `checked_blob` and `checked_start` are the file and the place
    there."""
    checked_blob: str
    checked_start: int
    conditional_on: list[str]
    """Declarations with a sorry that it rests on."""
    reason: str
    patch_sha256: str | None
    """The patch in the log."""
    pull_request_url: str | None
    """Where it was proposed."""
    pull_request_at: str | None
    found_at: str
    checked_at: str | None
    job: str
    """The one that found it first."""
    checked_job: str | None
    """The one that judged it last."""


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
    """The kind's own; a build's `modules_failed` names what it did without."""


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
    """A sort of work that a user paused and none has resumed, why ("" where none said why), and since when."""

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
    """Its id, by which it is renewed and given back."""
    agent: str
    """What the agent calls itself."""
    by: str
    """The user who asked."""
    since: str
    """When it was last taken or renewed."""
    until: str
    """When its lease ends."""


@table("triggers", key=("work", "repository"))
class TriggerRow:
    """The newest trigger of a sort of work in a repository.

    `job` is the first one that began after it, if any; `ended` is why none had to.
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
    """A model that a user gives, to be measured on a repository; see `store.events.models.ModelOffered`."""

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

    `problem` is "" where the last message was taken; otherwise `failing_since` says since when none is. `digest_at` is
    when the last digest was taken, or, before the first, when the channel was switched on.
    """

    channel: str
    kinds: dict[str, int]
    """each kind of event that it sends, with the position behind which its news begin; empty: off"""
    position: int
    messages: int
    """that it took"""
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
    """The position up to which the view has read the log; committed in the same transaction as its rows.

    `event_id` is that of the event at `seq`, so that a view is not read on with another log. `stopped_seq` is
    the event that could not be projected, where there is one, and `stopped_reason` why.
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

    Its files are those of `traced_files` with the same repository and line, from_seq <= seq and until_seq NULL or
    > seq. `manifest_sha256` names the import's order in the log. The counts are of the whole commit.
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
        """The share of its files, 0..1, of which all could be extracted; 1 for a commit without files."""
        return 1 - self.files_failed / self.files_traced if self.files_traced else 1.0


@dataclass(frozen=True, slots=True)
class FileOfTrace:
    """A file of a trace; `error` says what could not be extracted. `sha` is the commit that brought this version."""

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
    """Something that a trace lacks (`store.domain.records.TraceGap`), and the file that it lacks it of."""

    path: str
    kind: str
    """`file` (not traced at all), `elaboration` (Lean refused it), `theorem` (Lean made no such theorem), `tactics` (no
    steps reported), `generated` (constants that a macro declares), `premise_site` (constants whose definition is not
    known) or `sorry_goal` (no goal for a sorry)"""
    declaration: str
    """empty: the whole file"""
    reason: str


@table("sorry_goals", key=("repository", "branch", "sorry"))
class SorryGoalRow:
    """The last goal that Lean printed for a sorry, and its commit; see `store.events.traces.SorryStated`."""

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
    """A file that a line has now, its commit's trace closed or not. `seen` is `store.domain.records.Seen` as a list,
    None for an import; `gaps` are lists of kind, declaration, reason."""

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
    """A theorem of a trace. `statement` is None where the tracer gave none.

    `split_key` is `store.domain.identity.split_key`; `has_sorry`: a step of its proof is a sorry. `url` and `commit`
    are None where they are the trace's own.
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
    """A declaration that proofs may use; see `store.domain.records.Premise`.

    `code` is a theorem's statement, the whole text of anything else.
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
    """A proof to learn from, step by step. `split_key` is what its theorem states: copies of a theorem share it."""

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

    No one decided on it yet where `promoted_at` and `refused_at` are both NULL.
    """

    checkpoint: str
    """Its id."""
    model: str
    parent: str | None
    """The checkpoint that training started from."""
    base: str
    """What the first of its chain started from."""
    data_seq: int
    """The log's position of the training data."""
    config: dict[str, Any]
    seed: int
    steps: int
    weights: str
    """SHA-256 of the file."""
    size_bytes: int
    """Of the weights."""
    """SHA-256 of a file that earlier versions kept; else null."""
    curve: str | None
    """SHA-256 of the blob with the training's losses; null where none was kept."""
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
    """When the rule kept it out of use, unless it was promoted since."""
    refused_reason: str
    removed_at: str | None
    """When its files were removed; what is known of it stays."""
    removed_reason: str


@table("evaluations", key=("evaluation",), indexes=(Index("evaluations_by_checkpoint", ("checkpoint",)),))
class EvaluationRow:
    """The evaluation of a checkpoint on one dataset; see `store.events.models.EvaluationFinished`."""

    evaluation: str
    """Its id."""
    model: str
    checkpoint: str
    repository: str | None
    """Null where it is of several."""
    split: str
    dataset: str
    """SHA-256 of the examples."""
    metrics: dict[str, float]
    """`recall@1`, `@5`, `@10`, `@32`, `@100`, `mrr`, `ndcg@10`, those of the baselines with `bm25 ` or `mepo ` before,
    of the ranking fused with BM25's with `fused `;
    `tactic@1`, `tactic@8`, `token_accuracy`; `mae` and `mse` in steps, `within_1`."""
    n: int
    """How many examples."""
    seconds: float
    job: str
    recorded_at: str
    scores: str | None = None
    """SHA-256 of the blob with each theorem's score; null where none are kept."""
