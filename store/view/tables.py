"""The tables of database.db, the view of the log. One class a table, columns typed for STRICT SQLite.

These are read models: the projector fills them and nobody else writes. SQLModel does not validate table rows;
validation happened when the event was made. Times are UTC ISO-8601 text, booleans are 0 and 1, and
`*_json` columns hold JSON. Every primary key is natural, so that a rebuild gives the same rows.
"""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import REAL, Index, Integer, Text
from sqlmodel import Field, SQLModel

# sa_type keeps the DDL to types that STRICT tables accept; key columns are declared in key order.


class Repository(SQLModel, table=True):
    """A repository that is or was watched. `state`: new, ok, or the problem (see RepositoryFailed).

    `failing_since` is when the first of the polls that have failed since did so, `failing_told` whether there is a
    `repository_failing` of it. `archived`: whether its forge lets nobody change it.
    """

    __tablename__: ClassVar[str] = "repositories"
    repository: str = Field(primary_key=True, sa_type=Text)
    url: str = Field(sa_type=Text)
    forge_id: int | None = Field(default=None, sa_type=Integer)
    watched: int = Field(sa_type=Integer)
    enabled: int = Field(sa_type=Integer)
    opt_out: int = Field(sa_type=Integer)
    every_s: float = Field(sa_type=REAL)
    branches_json: str = Field(sa_type=Text)
    include_json: str = Field(sa_type=Text)
    exclude_json: str = Field(sa_type=Text)
    default_branch: str | None = Field(default=None, sa_type=Text)
    state: str = Field(sa_type=Text)
    reason: str = Field(default="", sa_type=Text)
    remedy: str = Field(default="", sa_type=Text)
    failing_since: str | None = Field(default=None, sa_type=Text)
    failing_told: int = Field(default=0, sa_type=Integer)
    archived: int = Field(default=0, sa_type=Integer)
    first_seen_at: str = Field(sa_type=Text)


class Branch(SQLModel, table=True):
    """A branch of a repository. `tip` is the newest observed commit, `scanned` the newest scanned one.

    `state`: live, deleted, or unwatched (it is there and the watchlist does not ask for it). `rewrites` counts
    force-pushes. `scanned_seq` is the log position of the newest scan, `scanned_include_json` and
    `scanned_exclude_json` the path patterns that it had, `toolchain` the text of its `lean-toolchain` ("" without one)
    and `manifest` the blob of its `lake-manifest.json`; None where nothing was scanned or the scan did not look.
    """

    __tablename__: ClassVar[str] = "branches"
    repository: str = Field(primary_key=True, sa_type=Text)
    branch: str = Field(primary_key=True, sa_type=Text)
    state: str = Field(sa_type=Text)
    tip: str = Field(sa_type=Text)
    scanned: str | None = Field(default=None, sa_type=Text)
    scanned_seq: int | None = Field(default=None, sa_type=Integer)
    scanned_include_json: str = Field(default="[]", sa_type=Text)
    scanned_exclude_json: str = Field(default="[]", sa_type=Text)
    toolchain: str | None = Field(default=None, sa_type=Text)
    manifest: str | None = Field(default=None, sa_type=Text)
    rewrites: int = Field(default=0, sa_type=Integer)


class Commit(SQLModel, table=True):
    """A commit observed on a branch; `seq` is the log position of its observation and orders the scans.

    `state`: observed, scanned, or dropped (a force-push took it off the branch).
    """

    __tablename__: ClassVar[str] = "commits"
    __table_args__ = (Index("commits_by_state", "repository", "branch", "state", "seq"),)
    repository: str = Field(primary_key=True, sa_type=Text)
    branch: str = Field(primary_key=True, sa_type=Text)
    sha: str = Field(primary_key=True, sa_type=Text)
    seq: int = Field(sa_type=Integer)
    parent: str | None = Field(default=None, sa_type=Text)
    author: str = Field(sa_type=Text)
    subject: str = Field(sa_type=Text)
    committed_at: str = Field(sa_type=Text)
    observed_at: str = Field(sa_type=Text)
    baseline: int = Field(sa_type=Integer)
    state: str = Field(sa_type=Text)
    files_scanned: int | None = Field(default=None, sa_type=Integer)
    files_failed: int | None = Field(default=None, sa_type=Integer)
    seconds: float | None = Field(default=None, sa_type=REAL)


class Build(SQLModel, table=True):
    """A commit that lake has built, as of its newest build. The compiled files themselves are cache and may be gone.

    `dependencies` is the key of the packages that it was built with, `modules_failed_json` what did not build.
    """

    __tablename__: ClassVar[str] = "builds"
    repository: str = Field(primary_key=True, sa_type=Text)
    sha: str = Field(primary_key=True, sa_type=Text)
    seq: int = Field(sa_type=Integer)
    branch: str = Field(sa_type=Text)
    toolchain: str = Field(sa_type=Text)
    dependencies: str = Field(sa_type=Text)
    modules_failed_json: str = Field(sa_type=Text)
    size_bytes: int = Field(sa_type=Integer)
    seconds: float = Field(sa_type=REAL)
    built_at: str = Field(sa_type=Text)


class File(SQLModel, table=True):
    """A Lean file at the newest scanned commit of a branch. `blob` is its git object id."""

    __tablename__: ClassVar[str] = "files"
    repository: str = Field(primary_key=True, sa_type=Text)
    branch: str = Field(primary_key=True, sa_type=Text)
    path: str = Field(primary_key=True, sa_type=Text)
    blob: str = Field(sa_type=Text)
    sha: str = Field(sa_type=Text)
    error: str | None = Field(default=None, sa_type=Text)
    imports_json: str = Field(sa_type=Text)
    n_declarations: int = Field(sa_type=Integer)
    n_sorries: int = Field(sa_type=Integer)
    exercise_words: int | None = Field(default=None, sa_type=Integer)


class Declaration(SQLModel, table=True):
    """A declaration at the newest scanned commit of a branch; theorems are those of kind theorem or lemma.

    `index` is its position in the file. `theorem` is its identity (store.domain.identity.theorem_id).
    """

    __tablename__: ClassVar[str] = "declarations"
    repository: str = Field(primary_key=True, sa_type=Text)
    branch: str = Field(primary_key=True, sa_type=Text)
    path: str = Field(primary_key=True, sa_type=Text)
    index: int = Field(primary_key=True, sa_type=Integer)
    theorem: str = Field(sa_type=Text)
    name: str = Field(sa_type=Text, index=True)
    kind: str = Field(sa_type=Text)
    statement: str = Field(sa_type=Text)
    statement_hash: str = Field(sa_type=Text)
    text_hash: str = Field(sa_type=Text)
    line: int = Field(sa_type=Integer)
    column: int = Field(sa_type=Integer)
    end_line: int = Field(sa_type=Integer)
    end_column: int = Field(sa_type=Integer)
    n_sorries: int = Field(sa_type=Integer)


class Theorem(SQLModel, table=True):
    """A theorem or lemma of a branch, through all its versions. `theorem` is its id since its first sight.

    `identity` is `store.domain.identity.theorem_id` of its present name and statement, which `declarations.theorem`
    has too: the place is there. `state`: present, deleted. `versions` counts what differed in more than lines.
    """

    __tablename__: ClassVar[str] = "theorems"
    __table_args__ = (
        Index("theorems_by_identity", "repository", "branch", "identity"),
        Index("theorems_by_name", "name"),
    )
    repository: str = Field(primary_key=True, sa_type=Text)
    branch: str = Field(primary_key=True, sa_type=Text)
    theorem: str = Field(primary_key=True, sa_type=Text)
    identity: str = Field(sa_type=Text)
    state: str = Field(sa_type=Text)
    name: str = Field(sa_type=Text)
    kind: str = Field(sa_type=Text)
    statement: str = Field(sa_type=Text)
    statement_hash: str = Field(sa_type=Text)
    text_hash: str = Field(sa_type=Text)
    path: str = Field(sa_type=Text)
    first_sha: str = Field(sa_type=Text)
    first_seen_at: str = Field(sa_type=Text)
    last_sha: str = Field(sa_type=Text)
    versions: int = Field(sa_type=Integer)


class TheoremVersion(SQLModel, table=True):
    """One version of a theorem, and `steps`, what made it one.

    `steps` is a comma-separated list of: appeared, returned, renamed, file_moved, restated, reproved (the same
    statement with another proof), deleted.
    """

    __tablename__: ClassVar[str] = "theorem_versions"
    repository: str = Field(primary_key=True, sa_type=Text)
    branch: str = Field(primary_key=True, sa_type=Text)
    theorem: str = Field(primary_key=True, sa_type=Text)
    seq: int = Field(primary_key=True, sa_type=Integer)
    steps: str = Field(sa_type=Text)
    sha: str = Field(sa_type=Text)
    recorded_at: str = Field(sa_type=Text)
    name: str = Field(sa_type=Text)
    path: str = Field(sa_type=Text)
    statement: str = Field(sa_type=Text)
    statement_hash: str = Field(sa_type=Text)
    text_hash: str = Field(sa_type=Text)
    n_sorries: int = Field(sa_type=Integer)


class Tally(SQLModel, table=True):
    """How many declarations of a kind stand on a branch: `status` must not count half a million rows."""

    __tablename__: ClassVar[str] = "tallies"
    repository: str = Field(primary_key=True, sa_type=Text)
    branch: str = Field(primary_key=True, sa_type=Text)
    kind: str = Field(primary_key=True, sa_type=Text)
    declarations: int = Field(sa_type=Integer)


class Sorry(SQLModel, table=True):
    """A sorry and where its life stands on a branch. Place columns are the last known ones.

    `state`: open (in the source, no verified proof), verified (in the source, and a proof that Lean accepted
    waits), filled (gone from the source; `filled_by` people or us), removed (its declaration is gone).
    A candidate or simulated proof leaves it open. `verified_proof` names the proof. `blob` is the file's.
    """

    __tablename__: ClassVar[str] = "sorries"
    __table_args__ = (
        Index("sorries_by_path", "repository", "branch", "path"),
        Index("sorries_by_branch", "repository", "branch", "state"),
        Index("sorries_by_id", "sorry"),
    )
    repository: str = Field(primary_key=True, sa_type=Text)
    branch: str = Field(primary_key=True, sa_type=Text)
    sorry: str = Field(primary_key=True, sa_type=Text)
    state: str = Field(sa_type=Text, index=True)
    declaration: str = Field(sa_type=Text)
    kind: str = Field(sa_type=Text)
    statement: str = Field(sa_type=Text)
    statement_hash: str = Field(sa_type=Text)
    ordinal: int = Field(sa_type=Integer)
    token: str = Field(sa_type=Text)
    mode: str = Field(sa_type=Text)
    path: str = Field(sa_type=Text)
    blob: str = Field(sa_type=Text)
    line: int = Field(sa_type=Integer)
    column: int = Field(sa_type=Integer)
    byte_start: int = Field(sa_type=Integer)
    byte_end: int = Field(sa_type=Integer)
    context_hash: str = Field(sa_type=Text)
    opened_sha: str = Field(sa_type=Text)
    opened_at: str = Field(sa_type=Text)
    updated_sha: str = Field(sa_type=Text)
    closed_sha: str | None = Field(default=None, sa_type=Text)
    filled_by: str | None = Field(default=None, sa_type=Text)
    verified_proof: str | None = Field(default=None, sa_type=Text)


class SorryStep(SQLModel, table=True):
    """One step of a sorry's life, and `detail`, a line of it for people.

    Steps: opened, reopened, moved, changed, verified, refuted (a verified proof was rejected later), filled,
    removed.
    """

    __tablename__: ClassVar[str] = "sorry_steps"
    repository: str = Field(primary_key=True, sa_type=Text)
    branch: str = Field(primary_key=True, sa_type=Text)
    sorry: str = Field(primary_key=True, sa_type=Text)
    seq: int = Field(primary_key=True, sa_type=Integer)
    step: str = Field(sa_type=Text)
    sha: str = Field(sa_type=Text)
    recorded_at: str = Field(sa_type=Text)
    detail: str = Field(sa_type=Text)


class Service(SQLModel, table=True):
    """One row (`id` 1): what the daemon last said of itself and of its configuration."""

    __tablename__: ClassVar[str] = "service"
    id: int = Field(primary_key=True, sa_type=Integer)
    version: str = Field(default="", sa_type=Text)
    pid: int | None = Field(default=None, sa_type=Integer)
    host: str = Field(default="", sa_type=Text)
    lean: str = Field(default="none", sa_type=Text)
    lean_detail: str = Field(default="", sa_type=Text)
    started_at: str | None = Field(default=None, sa_type=Text)
    stopped_at: str | None = Field(default=None, sa_type=Text)
    stop_reason: str = Field(default="", sa_type=Text)
    config_path: str = Field(default="", sa_type=Text)
    config_digest: str = Field(default="", sa_type=Text)
    config_loaded_at: str | None = Field(default=None, sa_type=Text)
    config_errors_json: str = Field(default="[]", sa_type=Text)
    config_rejected_at: str | None = Field(default=None, sa_type=Text)


class SplitTally(SQLModel, table=True):
    """How many theorems `novel_premises` has put on a side by the premises of their proofs.

    Kept so that closing a small commit need not count all members. Not in it: theorems without premises, and those
    whose side followed from a name that was known.
    """

    __tablename__: ClassVar[str] = "split_tallies"
    split: str = Field(primary_key=True, sa_type=Text)
    side: str = Field(primary_key=True, sa_type=Text)
    theorems: int = Field(sa_type=Integer)


class ViewPosition(SQLModel, table=True):
    """How far a projection has read the log; committed in the same transaction as its rows.

    `event_id` is that of the event at `seq`, so that a view is not read on with another log. `stopped_seq` is
    the event that could not be projected, where there is one, and `stopped_reason` why.
    """

    __tablename__: ClassVar[str] = "view_position"
    projection: str = Field(primary_key=True, sa_type=Text)
    version: int = Field(sa_type=Integer)
    seq: int = Field(sa_type=Integer)
    event_id: str = Field(default="", sa_type=Text)
    stopped_seq: int | None = Field(default=None, sa_type=Integer)
    stopped_reason: str = Field(default="", sa_type=Text)


class PollState(SQLModel, table=True):
    """When a repository was last polled and is next due. Not a projection: a cache beside the view.

    An unchanged poll is no event (500 repositories every five minutes would be 52 million a year), so this
    one table does not follow from the log. Losing it costs one unconditional poll; `db verify` leaves it out. `etag`
    is what the poller wants to remember for the next poll, as JSON: ETags, and which history they belong to.
    """

    __tablename__: ClassVar[str] = "poll_states"
    repository: str = Field(primary_key=True, sa_type=Text)
    checked_at: str = Field(sa_type=Text)
    next_due_at: str = Field(sa_type=Text)
    outcome: str = Field(sa_type=Text)
    etag: str | None = Field(default=None, sa_type=Text)


class Trace(SQLModel, table=True):
    """A traced commit, closed. `seq` is the log position of its `commit_traced`. `state`: current, withdrawn.

    Its files are those of `traced_files` with the same repository and line, from_seq <= seq and until_seq NULL or
    > seq. `manifest_sha256` names the import's order in the log. The counts are of the whole commit.
    """

    __tablename__: ClassVar[str] = "traces"
    __table_args__ = (Index("traces_by_repository", "repository", "sha"),)
    trace: str = Field(primary_key=True, sa_type=Text)
    repository: str = Field(sa_type=Text)
    line: str = Field(sa_type=Text)
    sha: str = Field(sa_type=Text)
    seq: int = Field(sa_type=Integer)
    state: str = Field(sa_type=Text)
    url: str = Field(sa_type=Text)
    name: str = Field(sa_type=Text)
    lean_version: str = Field(sa_type=Text)
    tracer: str = Field(sa_type=Text)
    tracer_version: str = Field(sa_type=Text)
    source: str = Field(sa_type=Text)
    simulated: int = Field(sa_type=Integer)
    pr_url: str | None = Field(default=None, sa_type=Text)
    metadata_json: str = Field(sa_type=Text)
    manifest_sha256: str | None = Field(default=None, sa_type=Text)
    files_traced: int = Field(sa_type=Integer)
    files_failed: int = Field(sa_type=Integer)
    n_theorems: int = Field(sa_type=Integer)
    n_premises: int = Field(sa_type=Integer)
    n_tactics: int = Field(sa_type=Integer)
    traced_at: str = Field(sa_type=Text)


class TracedFileRow(SQLModel, table=True):
    """Which content a path had on a line, from event `from_seq` until just before `until_seq` (NULL: still).

    `key` is the one that it was traced under last (`store.events.traces.FileTraced`).
    """

    __tablename__: ClassVar[str] = "traced_files"
    __table_args__ = (
        Index("traced_files_now", "repository", "line", "until_seq", "from_seq"),
        Index("traced_files_by_content", "content"),
    )
    repository: str = Field(primary_key=True, sa_type=Text)
    line: str = Field(primary_key=True, sa_type=Text)
    path: str = Field(primary_key=True, sa_type=Text)
    from_seq: int = Field(primary_key=True, sa_type=Integer)
    until_seq: int | None = Field(default=None, sa_type=Integer)
    content: int = Field(sa_type=Integer)
    sha: str = Field(sa_type=Text)
    error: str | None = Field(default=None, sa_type=Text)
    key: str = Field(sa_type=Text)


class TracedContent(SQLModel, table=True):
    """One file's trace, whichever commits have it. `sha256` is its payload in the log.

    `seen_json` is `store.domain.records.Seen` as a list, NULL for an import; `gaps_json` a list of [kind, declaration,
    reason].
    """

    __tablename__: ClassVar[str] = "traced_contents"
    content: int = Field(primary_key=True, sa_type=Integer)
    sha256: str = Field(sa_type=Text, unique=True)
    in_corpus: int = Field(sa_type=Integer)
    n_theorems: int = Field(sa_type=Integer)
    n_premises: int = Field(sa_type=Integer)
    n_tactics: int = Field(sa_type=Integer)
    seen_json: str | None = Field(default=None, sa_type=Text)
    gaps_json: str = Field(sa_type=Text)


class TracedImport(SQLModel, table=True):
    """A direct import of a traced file, in the order of the source: the path of the imported file."""

    __tablename__: ClassVar[str] = "imports"
    content: int = Field(primary_key=True, sa_type=Integer)
    position: int = Field(primary_key=True, sa_type=Integer)
    path: str = Field(sa_type=Text)


class PremiseRow(SQLModel, table=True):
    """A declaration that proofs may use; see `store.domain.records.Premise`."""

    __tablename__: ClassVar[str] = "premises"
    __table_args__ = (Index("premises_by_name", "full_name"),)
    content: int = Field(primary_key=True, sa_type=Integer)
    index: int = Field(primary_key=True, sa_type=Integer)
    full_name: str | None = Field(default=None, sa_type=Text)
    kind: str = Field(sa_type=Text)
    code: str = Field(sa_type=Text)
    line: int = Field(sa_type=Integer)
    column: int = Field(sa_type=Integer)
    end_line: int = Field(sa_type=Integer)
    end_column: int = Field(sa_type=Integer)


class TracedTheoremRow(SQLModel, table=True):
    """A theorem of a trace. `split_key` is `store.domain.identity.split_key`; `has_sorry`: a step of its proof is a
    sorry.

    `url` and `commit` are NULL where they are the trace's own.
    """

    __tablename__: ClassVar[str] = "traced_theorems"
    __table_args__ = (
        Index("traced_theorems_by_name", "full_name"),
        Index("traced_theorems_by_split", "split_key", "content"),
    )
    content: int = Field(primary_key=True, sa_type=Integer)
    index: int = Field(primary_key=True, sa_type=Integer)
    full_name: str = Field(sa_type=Text)
    statement: str | None = Field(default=None, sa_type=Text)
    split_key: str = Field(sa_type=Text)
    line: int = Field(sa_type=Integer)
    column: int = Field(sa_type=Integer)
    end_line: int = Field(sa_type=Integer)
    end_column: int = Field(sa_type=Integer)
    n_tactics: int = Field(sa_type=Integer)
    has_sorry: int = Field(sa_type=Integer)
    url: str | None = Field(default=None, sa_type=Text)
    commit: str | None = Field(default=None, sa_type=Text)


class TracedTacticRow(SQLModel, table=True):
    """A tactic step of a traced theorem, in the order of the proof. States are Lean's text of the goals."""

    __tablename__: ClassVar[str] = "traced_tactics"
    content: int = Field(primary_key=True, sa_type=Integer)
    theorem: int = Field(primary_key=True, sa_type=Integer)
    index: int = Field(primary_key=True, sa_type=Integer)
    tactic: str = Field(sa_type=Text)
    annotated: str = Field(sa_type=Text)
    state_before: str = Field(sa_type=Text)
    state_after: str = Field(sa_type=Text)


class TacticPremise(SQLModel, table=True):
    """A premise that a traced tactic names, in the order of its marks."""

    __tablename__: ClassVar[str] = "tactic_premises"
    __table_args__ = (Index("tactic_premises_by_name", "full_name"),)
    content: int = Field(primary_key=True, sa_type=Integer)
    theorem: int = Field(primary_key=True, sa_type=Integer)
    tactic: int = Field(primary_key=True, sa_type=Integer)
    position: int = Field(primary_key=True, sa_type=Integer)
    full_name: str = Field(sa_type=Text)
    def_path: str = Field(sa_type=Text)
    def_line: int = Field(sa_type=Integer)
    def_column: int = Field(sa_type=Integer)
    def_end_line: int = Field(sa_type=Integer)
    def_end_column: int = Field(sa_type=Integer)


class TheoremPremise(SQLModel, table=True):
    """A constant that a traced theorem's whole proof uses; the columns of its site are NULL where nobody knows it."""

    __tablename__: ClassVar[str] = "theorem_premises"
    __table_args__ = (Index("theorem_premises_by_name", "full_name"),)
    content: int = Field(primary_key=True, sa_type=Integer)
    theorem: int = Field(primary_key=True, sa_type=Integer)
    position: int = Field(primary_key=True, sa_type=Integer)
    full_name: str = Field(sa_type=Text)
    def_path: str | None = Field(default=None, sa_type=Text)
    def_line: int | None = Field(default=None, sa_type=Integer)
    def_column: int | None = Field(default=None, sa_type=Integer)
    def_end_line: int | None = Field(default=None, sa_type=Integer)
    def_end_column: int | None = Field(default=None, sa_type=Integer)


class TraceMeasure(SQLModel, table=True):
    """How complete the newest trace of a line is, Lean's and the simulator's each; see `TraceMeasured`.

    By line and not by trace: two branches may have the same commit, and so the same trace. `gaps_json` maps kinds to
    counts.
    """

    __tablename__: ClassVar[str] = "trace_measures"
    repository: str = Field(primary_key=True, sa_type=Text)
    line: str = Field(primary_key=True, sa_type=Text)
    simulated: int = Field(primary_key=True, sa_type=Integer)
    trace: str = Field(sa_type=Text)
    sha: str = Field(sa_type=Text)
    seq: int = Field(sa_type=Integer)
    files_seen: int = Field(sa_type=Integer)
    files_traced: int = Field(sa_type=Integer)
    theorems_seen: int = Field(sa_type=Integer)
    theorems_traced: int = Field(sa_type=Integer)
    tactics_seen: int = Field(sa_type=Integer)
    tactics_traced: int = Field(sa_type=Integer)
    n_dependencies: int = Field(sa_type=Integer)
    gaps_json: str = Field(sa_type=Text)
    measured_at: str = Field(sa_type=Text)


class SorryGoal(SQLModel, table=True):
    """What Lean last said is to be proved at a sorry; see `store.events.traces.SorryStated`."""

    __tablename__: ClassVar[str] = "sorry_goals"
    repository: str = Field(primary_key=True, sa_type=Text)
    branch: str = Field(primary_key=True, sa_type=Text)
    sorry: str = Field(primary_key=True, sa_type=Text)
    goal: str = Field(sa_type=Text)
    sha: str = Field(sa_type=Text)
    statement_hash: str = Field(sa_type=Text)
    context_hash: str = Field(sa_type=Text)
    simulated: int = Field(sa_type=Integer)
    stated_at: str = Field(sa_type=Text)


class SplitMember(SQLModel, table=True):
    """On which side of a split a theorem stands, for life. `side`: train, val, test.

    `of` says what `key` is: "theorem" (`store.domain.identity.split_key`) or "name" (a full name, whose side a later
    statement of that name takes over). `seq` is the event that decided it.
    """

    __tablename__: ClassVar[str] = "split_members"
    # Asked by its whole key and nothing else: its index can be all of it.
    __table_args__ = ({"sqlite_with_rowid": False},)
    split: str = Field(primary_key=True, sa_type=Text)
    of: str = Field(primary_key=True, sa_type=Text)
    key: str = Field(primary_key=True, sa_type=Text)
    side: str = Field(sa_type=Text)
    seq: int = Field(sa_type=Integer)


class ReservedPremise(SQLModel, table=True):
    """A premise that no training proof of the novel_premises split may use; `seq` is the event that reserved it."""

    __tablename__: ClassVar[str] = "reserved_premises"
    full_name: str = Field(primary_key=True, sa_type=Text)
    seq: int = Field(sa_type=Integer)


class Attempt(SQLModel, table=True):
    """What was tried on a sorry; the key is what must change before it is tried again.

    `model` is "" where the prover has none, `tree_sha256` the blob of the search's tree where there is one.
    """

    __tablename__: ClassVar[str] = "attempts"
    sorry: str = Field(primary_key=True, sa_type=Text)
    blob: str = Field(primary_key=True, sa_type=Text)
    prover: str = Field(primary_key=True, sa_type=Text)
    rung: int = Field(primary_key=True, sa_type=Integer)
    model: str = Field(primary_key=True, sa_type=Text)
    budget: str = Field(primary_key=True, sa_type=Text)
    repository: str = Field(sa_type=Text)
    branch: str = Field(sa_type=Text)
    sha: str = Field(sa_type=Text)
    outcome: str = Field(sa_type=Text)
    detail: str = Field(sa_type=Text)
    nodes: int = Field(sa_type=Integer)
    repl_calls: int = Field(sa_type=Integer)
    seconds: float = Field(sa_type=REAL)
    seed: int = Field(sa_type=Integer)
    best: str = Field(sa_type=Text)
    goals_left: int | None = Field(default=None, sa_type=Integer)
    prompt_tokens: int = Field(sa_type=Integer)
    completion_tokens: int = Field(sa_type=Integer)
    usd: float | None = Field(default=None, sa_type=REAL)
    tree_sha256: str | None = Field(default=None, sa_type=Text)
    simulated: int = Field(sa_type=Integer)
    job: str = Field(sa_type=Text)
    recorded_at: str = Field(sa_type=Text)


class Proof(SQLModel, table=True):
    """A proof text for a sorry. `state`: candidate, verified, rejected, conditional.

    candidate with `checked_at` set means: nothing failed, but `not_checked_json` could not be judged here.
    `patch_sha256` is the patch's blob, `pull_request_url` where it was proposed. `simulated` proofs are never verified.
    """

    __tablename__: ClassVar[str] = "proofs"
    proof: str = Field(primary_key=True, sa_type=Text)
    sorry: str = Field(sa_type=Text, index=True)
    repository: str = Field(sa_type=Text)
    branch: str = Field(sa_type=Text)
    sha: str = Field(sa_type=Text)
    path: str = Field(sa_type=Text)
    blob: str = Field(sa_type=Text)
    byte_start: int = Field(sa_type=Integer)
    byte_end: int = Field(sa_type=Integer)
    declaration: str = Field(sa_type=Text)
    declaration_text_hash: str = Field(sa_type=Text)
    replacement: str = Field(sa_type=Text)
    tactics_json: str = Field(sa_type=Text)
    prover: str = Field(sa_type=Text)
    rung: int = Field(sa_type=Integer)
    toolchain: str = Field(sa_type=Text)
    simulated: int = Field(sa_type=Integer)
    state: str = Field(sa_type=Text, index=True)
    checks_json: str = Field(default="[]", sa_type=Text)
    not_checked_json: str = Field(default="[]", sa_type=Text)
    axioms_json: str = Field(default="[]", sa_type=Text)
    conditional_on_json: str = Field(default="[]", sa_type=Text)
    reason: str = Field(default="", sa_type=Text)
    patch_sha256: str | None = Field(default=None, sa_type=Text)
    pull_request_url: str | None = Field(default=None, sa_type=Text)
    pull_request_at: str | None = Field(default=None, sa_type=Text)
    found_at: str = Field(sa_type=Text)
    checked_at: str | None = Field(default=None, sa_type=Text)
    job: str = Field(sa_type=Text)


class ProofTally(SQLModel, table=True):
    """How often a proof was found, and how often each verdict was given on one for the first time.

    `verdict`: found, checked (nothing failed, not all could be judged), verified, rejected. What the simulator found is
    never verified.
    """

    __tablename__: ClassVar[str] = "proof_tallies"
    verdict: str = Field(primary_key=True, sa_type=Text)
    simulated: int = Field(primary_key=True, sa_type=Integer)
    n: int = Field(sa_type=Integer)


class Checkpoint(SQLModel, table=True):
    """A trained checkpoint; see `store.events.models.CheckpointSaved`. `promoted` is 1 for the one in use.

    Nobody decided on it yet where `promoted_at` and `refused_at` are both NULL.
    """

    __tablename__: ClassVar[str] = "checkpoints"
    __table_args__ = (
        Index("checkpoints_in_use", "model", "promoted"),
        Index("checkpoints_undecided", "promoted_at", "refused_at"),
    )
    checkpoint: str = Field(primary_key=True, sa_type=Text)
    model: str = Field(sa_type=Text)
    parent: str | None = Field(default=None, sa_type=Text)
    base: str = Field(sa_type=Text)
    data_seq: int = Field(sa_type=Integer)
    config_json: str = Field(sa_type=Text)
    seed: int = Field(sa_type=Integer)
    steps: int = Field(sa_type=Integer)
    weights: str = Field(sa_type=Text)
    size_bytes: int = Field(sa_type=Integer)
    fisher: str | None = Field(default=None, sa_type=Text)
    versions_json: str = Field(sa_type=Text)
    device: str = Field(sa_type=Text)
    seconds: float = Field(sa_type=REAL)
    job: str = Field(sa_type=Text)
    simulated: int = Field(sa_type=Integer)
    saved_at: str = Field(sa_type=Text)
    promoted: int = Field(sa_type=Integer)
    promoted_at: str | None = Field(default=None, sa_type=Text)
    reason: str = Field(default="", sa_type=Text)
    refused_at: str | None = Field(default=None, sa_type=Text)
    refused_reason: str = Field(default="", sa_type=Text)


class Evaluation(SQLModel, table=True):
    """How a checkpoint did on one dataset; see `store.events.models.EvaluationFinished`."""

    __tablename__: ClassVar[str] = "evaluations"
    __table_args__ = (Index("evaluations_by_checkpoint", "checkpoint"),)
    evaluation: str = Field(primary_key=True, sa_type=Text)
    model: str = Field(sa_type=Text)
    checkpoint: str = Field(sa_type=Text)
    repository: str | None = Field(default=None, sa_type=Text)
    split: str = Field(sa_type=Text)
    dataset: str = Field(sa_type=Text)
    metrics_json: str = Field(sa_type=Text)
    n: int = Field(sa_type=Integer)
    seconds: float = Field(sa_type=REAL)
    job: str = Field(sa_type=Text)
    simulated: int = Field(sa_type=Integer)
    recorded_at: str = Field(sa_type=Text)


class Pause(SQLModel, table=True):
    """A sort of work that somebody paused and nobody has resumed."""

    __tablename__: ClassVar[str] = "pauses"
    work: str = Field(primary_key=True, sa_type=Text)
    by: str = Field(sa_type=Text)
    reason: str = Field(sa_type=Text)
    since: str = Field(sa_type=Text)


class Trigger(SQLModel, table=True):
    """The newest wish for a sort of work in a repository.

    `job` is the first one that began after it, if any; `ended` is why none had to.
    """

    __tablename__: ClassVar[str] = "triggers"
    work: str = Field(primary_key=True, sa_type=Text)
    repository: str = Field(primary_key=True, sa_type=Text)
    seq: int = Field(sa_type=Integer)
    by: str = Field(sa_type=Text)
    triggered_at: str = Field(sa_type=Text)
    job: str | None = Field(default=None, sa_type=Text)
    ended: str | None = Field(default=None, sa_type=Text)


class Job(SQLModel, table=True):
    """A job at its newest attempt. `state`: running, succeeded, failed, interrupted, cancelled, released."""

    __tablename__: ClassVar[str] = "jobs"
    __table_args__ = (Index("jobs_by_start", "started_at"), Index("jobs_by_state", "state", "kind"))
    job: str = Field(primary_key=True, sa_type=Text)
    kind: str = Field(sa_type=Text)
    state: str = Field(sa_type=Text)
    attempt: int = Field(sa_type=Integer)
    repository: str | None = Field(default=None, sa_type=Text)
    branch: str | None = Field(default=None, sa_type=Text)
    sha: str | None = Field(default=None, sa_type=Text)
    describes: str = Field(sa_type=Text)
    simulated: int = Field(sa_type=Integer)
    started_at: str = Field(sa_type=Text)
    ended_at: str | None = Field(default=None, sa_type=Text)
    seconds: float | None = Field(default=None, sa_type=REAL)
    peak_rss_bytes: int | None = Field(default=None, sa_type=Integer)
    reason: str = Field(default="", sa_type=Text)
    message: str = Field(default="", sa_type=Text)
    remedy: str = Field(default="", sa_type=Text)
    deterministic: int = Field(default=0, sa_type=Integer)
    retry_at: str | None = Field(default=None, sa_type=Text)
    summary_json: str = Field(default="{}", sa_type=Text)


class JobAttempt(SQLModel, table=True):
    """When one attempt of a job began and ended, and how (`outcome`); `jobs` has the newest attempt only."""

    __tablename__: ClassVar[str] = "job_attempts"
    __table_args__ = (Index("job_attempts_by_end", "ended_at"),)
    job: str = Field(primary_key=True, sa_type=Text)
    attempt: int = Field(primary_key=True, sa_type=Integer)
    kind: str = Field(sa_type=Text)
    started_at: str = Field(sa_type=Text)
    ended_at: str | None = Field(default=None, sa_type=Text)
    outcome: str | None = Field(default=None, sa_type=Text)


class JobTally(SQLModel, table=True):
    """How many attempts of a kind of job had an outcome, by how long they took: see `store.view.projections.tallies`.

    `bucket` is the number of an interval of seconds, -1 where nobody timed them. `seconds` is their sum.
    """

    __tablename__: ClassVar[str] = "job_tallies"
    kind: str = Field(primary_key=True, sa_type=Text)
    outcome: str = Field(primary_key=True, sa_type=Text)
    simulated: int = Field(primary_key=True, sa_type=Integer)
    bucket: int = Field(primary_key=True, sa_type=Integer)
    n: int = Field(sa_type=Integer)
    seconds: float = Field(sa_type=REAL)


class Notifier(SQLModel, table=True):
    """A channel, as its events left it (`store.events.service`). What the log has up to `position` is not told again.

    `kinds_json` has, for each kind that it tells of, the position that its news begin behind; without any it is off.
    `messages` counts what it took, `told` the events in them. `problem` is "" where the last message was taken;
    otherwise `failing_since` says since when none is.
    """

    __tablename__: ClassVar[str] = "notifiers"
    channel: str = Field(primary_key=True, sa_type=Text)
    kinds_json: str = Field(sa_type=Text)
    position: int = Field(sa_type=Integer)
    messages: int = Field(default=0, sa_type=Integer)
    told: int = Field(default=0, sa_type=Integer)
    problem: str = Field(default="", sa_type=Text)
    reason: str = Field(default="", sa_type=Text)
    remedy: str = Field(default="", sa_type=Text)
    failing_since: str | None = Field(default=None, sa_type=Text)
    sent_at: str | None = Field(default=None, sa_type=Text)
