"""The tables of traces: theorems with their tactics, the premises that these use, and which commit has which.

A file's trace is stored once however many commits share it: `content` numbers it, by the log position of the event
that brought it first, and every content table begins with that number. `traced_files` says from which event to
which a path had which content on a line, so that any traced commit's files can be listed while a commit that changes
one file costs one row. Positions are (line, column) from 1, as LeanDojo has them.
"""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import Index, Integer, Text
from sqlmodel import Field, SQLModel


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

    `key` is the one that it was traced under last (`store.trace_events.FileTraced`).
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

    `seen_json` is `store.traced.Seen` as a list, NULL for an import; `gaps_json` a list of [kind, declaration, reason].
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
    """A declaration that proofs may use; see `store.traced.Premise`."""

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
    """A theorem of a trace. `split_key` is `store.identity.split_key`; `has_sorry`: a step of its proof is a sorry.

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
    """What Lean last said is to be proved at a sorry; see `store.trace_events.SorryStated`."""

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

    `of` says what `key` is: "theorem" (`store.identity.split_key`) or "name" (a full name, whose side a later
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
