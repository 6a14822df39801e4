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

    `index` is its position in the file. `theorem` is its identity (store.identity.theorem_id).
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

    `identity` is `store.identity.theorem_id` of its present name and statement, which `declarations.theorem` has too:
    the place is there. `state`: present, deleted. `versions` counts what differed in more than lines.
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
