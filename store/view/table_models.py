"""The tables of database.db, the view of the log, as models: one class a table, columns typed for STRICT SQLite.

`make docs` writes them to schema.sql, which `store.view.tables` makes the tables of: to import SQLModel takes half a
second, and no process needs the models.

These are read models: the projector fills them and no one else writes. SQLModel does not validate table rows;
validation happened when the event was made. Times are UTC ISO-8601 text, booleans are 0 and 1, and
`*_json` columns hold JSON. Every primary key is natural, so that a rebuild gives the same rows.
"""

from __future__ import annotations

from types import NoneType, new_class
from typing import Any, ClassVar, get_args, get_type_hints

from sqlalchemy import REAL, Index, Integer, Text, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlmodel import Field, SQLModel

from store.view import bumps, rows

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


Repository = of_row(rows.RepositoryRow, "repositories", key=("repository",))


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


File = of_row(
    rows.FileRow,
    "files",
    key=("repository", "branch", "path"),
    indices=(
        Index(
            "files_too_large",
            "repository",
            "branch",
            sqlite_where=text("declarations_taken IS NOT NULL OR sorries_taken IS NOT NULL"),
        ),
        Index("files_marked", "repository", "branch", "path", sqlite_where=text("marked_json <> '[]'")),
    ),
)


class UnfinishedScan(SQLModel, table=True):
    """A scan that is recorded in parts and not closed yet: its attempt, by the event that began it."""

    __tablename__: ClassVar[str] = "unfinished_scans"
    repository: str = Field(primary_key=True, sa_type=Text)
    branch: str = Field(primary_key=True, sa_type=Text)
    attempt: str = Field(sa_type=Text)
    version: int = Field(sa_type=Integer)


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


Premise = of_row(
    rows.PremiseRow, "premises", key=("content", "index"), indices=(Index("premises_by_name", "full_name"),)
)


TracedTheorem = of_row(
    rows.TracedTheoremRow,
    "traced_theorems",
    key=("content", "index"),
    indices=(
        Index("traced_theorems_by_name", "full_name"),
        Index("traced_theorems_by_split", "split_key", "content"),
    ),
)


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
    """A constant that a traced theorem's whole proof uses; the columns of its site are NULL where no one knows it."""

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


Measure = of_row(rows.MeasureRow, "trace_measures", key=("repository", "line", "simulated"))


SorryGoal = of_row(rows.SorryGoalRow, "sorry_goals", key=("repository", "branch", "sorry"))


class SplitMember(SQLModel, table=True):
    """The side of a split that a theorem is on, for life. `side`: train, val, test.

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


Pause = of_row(rows.PauseRow, "pauses", key=("work",))


Trigger = of_row(rows.TriggerRow, "triggers", key=("work", "repository"))


Bump = of_row(bumps.BumpRow, "bumps", key=("repository", "bump"))


Claim = of_row(rows.ClaimRow, "claims", key=("sorry",))


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
    """The number of attempts of a kind of job by outcome and duration: see `store.view.projections.jobs`.

    `bucket` is the number of an interval of seconds, -1 where no one timed them. `seconds` is their sum.
    """

    __tablename__: ClassVar[str] = "job_tallies"
    kind: str = Field(primary_key=True, sa_type=Text)
    outcome: str = Field(primary_key=True, sa_type=Text)
    simulated: int = Field(primary_key=True, sa_type=Integer)
    bucket: int = Field(primary_key=True, sa_type=Integer)
    n: int = Field(sa_type=Integer)
    seconds: float = Field(sa_type=REAL)


Notifier = of_row(rows.NotifierRow, "notifiers", key=("channel",))


def schema() -> str:
    """Return the text of schema.sql. SQLAlchemy compiles the statements; STRICT is ours to add."""
    dialect = sqlite.dialect()
    named = {cls.__tablename__ for cls in SQLModel.__subclasses__() if cls.__module__ == __name__}
    made = []
    for name, table in sorted(SQLModel.metadata.tables.items()):
        if name not in named:
            continue
        statement = str(CreateTable(table).compile(dialect=dialect)).strip()
        made.append(f"{statement}, STRICT" if statement.endswith("WITHOUT ROWID") else f"{statement} STRICT")
        indices = sorted(table.indexes, key=lambda index: index.name or "")
        made.extend(str(CreateIndex(index).compile(dialect=dialect)).strip() for index in indices)
    lines = (line.rstrip() for statement in made for line in f"{statement};\n".split("\n"))
    return "-- Written by `make docs` from store/view/table_models.py.\n\n" + "\n".join(lines)
