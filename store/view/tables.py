"""The tables of database.db, the view of the log. One class a table, columns typed for STRICT SQLite.

These are read models: the projector fills them and nobody else writes. SQLModel does not validate table rows;
validation happened when the event was made. Times are UTC ISO-8601 text, booleans are 0 and 1, and
`*_json` columns hold JSON. Every primary key is natural, so that a rebuild gives the same rows.
"""

from __future__ import annotations

from types import NoneType, new_class
from typing import Any, ClassVar, get_args, get_type_hints

from sqlalchemy import REAL, Index, Integer, Text
from sqlmodel import Field, SQLModel

from store.view import rows

# sa_type keeps the DDL to types that STRICT tables accept; key columns are declared in key order.


def of_row(
    row: type[Any], name: str, *, key: tuple[str, ...], indices: tuple[Index, ...] = ()
) -> type[SQLModel]:
    """Derive a table from its row type, which declares the columns; add the key and the indices."""
    kinds: dict[Any, Any] = {str: Text, int: Integer, bool: Integer, float: REAL}
    hints = get_type_hints(row)
    columns: dict[str, Any] = {}
    annotations: dict[str, Any] = {}
    for column, hint in zip(rows.columns(row), hints.values(), strict=True):
        given = [kind for kind in get_args(hint) if kind is not NoneType]
        optional = NoneType in get_args(hint)
        plain = given[0] if optional else hint
        annotations[column] = str | None if optional else str
        columns[column] = Field(primary_key=column in key, nullable=optional, sa_type=kinds.get(plain, Text))
    body = {
        "__module__": __name__,
        "__doc__": row.__doc__,
        "__tablename__": name,
        "__table_args__": indices,
        "__annotations__": annotations,
        **columns,
    }
    made = new_class(
        row.__name__.removesuffix("Row"), (SQLModel,), {"table": True}, lambda names: names.update(body)
    )
    assert issubclass(made, SQLModel)
    return made


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


Branch = of_row(rows.BranchRow, "branches", key=("repository", "branch"))


Commit = of_row(
    rows.CommitRow,
    "commits",
    key=("repository", "branch", "sha"),
    indices=(Index("commits_by_state", "repository", "branch", "state", "seq"),),
)


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


File = of_row(rows.FileRow, "files", key=("repository", "branch", "path"))


Declaration = of_row(
    rows.DeclarationRow,
    "declarations",
    key=("repository", "branch", "path", "index"),
    indices=(Index("ix_declarations_name", "name"),),
)


Theorem = of_row(
    rows.TheoremRow,
    "theorems",
    key=("repository", "branch", "theorem"),
    indices=(
        Index("theorems_by_identity", "repository", "branch", "identity"),
        Index("theorems_by_name", "name"),
    ),
)


TheoremVersion = of_row(
    rows.TheoremVersionRow, "theorem_versions", key=("repository", "branch", "theorem", "seq")
)


class Tally(SQLModel, table=True):
    """The number of declarations of a kind on a branch: `status` must not count half a million rows."""

    __tablename__: ClassVar[str] = "tallies"
    repository: str = Field(primary_key=True, sa_type=Text)
    branch: str = Field(primary_key=True, sa_type=Text)
    kind: str = Field(primary_key=True, sa_type=Text)
    declarations: int = Field(sa_type=Integer)


Sorry = of_row(
    rows.SorryRow,
    "sorries",
    key=("repository", "branch", "sorry"),
    indices=(
        Index("sorries_by_path", "repository", "branch", "path"),
        Index("sorries_by_branch", "repository", "branch", "state"),
        Index("sorries_by_id", "sorry"),
        Index("ix_sorries_state", "state"),
    ),
)


SorryStep = of_row(rows.SorryStepRow, "sorry_steps", key=("repository", "branch", "sorry", "seq"))


Service = of_row(rows.ServiceRow, "service", key=("id",))


class SplitTally(SQLModel, table=True):
    """The number of theorems that `novel_premises` has put on a side by the premises of their proofs.

    Kept so that closing a small commit need not count all members. Not in it: theorems without premises, and those
    whose side followed from a name that was known.
    """

    __tablename__: ClassVar[str] = "split_tallies"
    split: str = Field(primary_key=True, sa_type=Text)
    side: str = Field(primary_key=True, sa_type=Text)
    theorems: int = Field(sa_type=Integer)


ViewPosition = of_row(rows.PositionRow, "view_position", key=("projection",))


class PollState(SQLModel, table=True):
    """The last and the next poll of a repository. A cache beside the view, no projection.

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


Trace = of_row(
    rows.TraceRow, "traces", key=("trace",), indices=(Index("traces_by_repository", "repository", "sha"),)
)


class TracedFileRow(SQLModel, table=True):
    """The content of a path on a branch, from event `from_seq` until just before `until_seq` (NULL: still).

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
    """The completeness of a branch's newest trace, Lean's and the simulator's each; see `TraceMeasured`.

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
    """The last goal that Lean printed for a sorry; see `store.events.traces.SorryStated`."""

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


Attempt = of_row(rows.AttemptRow, "attempts", key=("sorry", "blob", "prover", "rung", "model", "budget"))


Proof = of_row(
    rows.ProofRow,
    "proofs",
    key=("proof",),
    indices=(
        Index("ix_proofs_sorry", "sorry"),
        Index("ix_proofs_state", "state"),
    ),
)


class ProofTally(SQLModel, table=True):
    """The number of proofs found, and of first verdicts of each kind.

    `verdict`: found, checked (nothing failed, not all could be judged), verified, rejected. What the simulator found is
    never verified.
    """

    __tablename__: ClassVar[str] = "proof_tallies"
    verdict: str = Field(primary_key=True, sa_type=Text)
    simulated: int = Field(primary_key=True, sa_type=Integer)
    n: int = Field(sa_type=Integer)


Checkpoint = of_row(
    rows.CheckpointRow,
    "checkpoints",
    key=("checkpoint",),
    indices=(
        Index("checkpoints_in_use", "model", "promoted"),
        Index("checkpoints_undecided", "promoted_at", "refused_at"),
    ),
)


Evaluation = of_row(
    rows.EvaluationRow,
    "evaluations",
    key=("evaluation",),
    indices=(Index("evaluations_by_checkpoint", "checkpoint"),),
)


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


Job = of_row(
    rows.JobRow,
    "jobs",
    key=("job",),
    indices=(
        Index("jobs_by_start", "started_at"),
        Index("jobs_by_state", "state", "kind"),
    ),
)


class JobAttempt(SQLModel, table=True):
    """The begin, end and outcome of one attempt of a job; `jobs` has the newest attempt only."""

    __tablename__: ClassVar[str] = "job_attempts"
    __table_args__ = (Index("job_attempts_by_end", "ended_at"),)
    job: str = Field(primary_key=True, sa_type=Text)
    attempt: int = Field(primary_key=True, sa_type=Integer)
    kind: str = Field(sa_type=Text)
    started_at: str = Field(sa_type=Text)
    ended_at: str | None = Field(default=None, sa_type=Text)
    outcome: str | None = Field(default=None, sa_type=Text)


class JobTally(SQLModel, table=True):
    """The number of attempts of a kind of job by outcome and duration: see `store.view.projections.tallies`.

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
