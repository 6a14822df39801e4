"""The tables of database.db, the view of the log: those of `store.view.rows` and `bumps`, and the rest here.

The tables here have no queries of whole rows. A view with another fingerprint is made anew from the log.
Every primary key is natural, so that a rebuild gives the same rows. Times are UTC ISO-8601 text.
"""

from __future__ import annotations

import sqlite3
import zlib
from functools import cache

from store.view import bumps, rows
from store.view.schema import Index, Table, declared, table

PROJECTION = "view"
PROJECTION_VERSION = 1
"""Raise it when a projection's output changes without a change of tables."""

NOT_PROJECTED = frozenset({"poll_states", "view_position"})
"""Tables with rows from outside the log (see their rows' docstrings)."""


@table("builds", key=("repository", "sha", "project"))
class BuildRow:
    """A commit built by lake, as of its newest build. The compiled files are cache and may be gone.

    `dependencies` is the key of its packages, `modules_failed` are the modules without a build.
    """

    repository: str
    sha: str
    project: str
    """the folder of the Lake project; `""` for the root"""
    seq: int
    branch: str
    toolchain: str
    dependencies: str
    modules_failed: list[str]
    size_bytes: int
    seconds: float
    built_at: str


@table("accepted", key=("key",), indexes=(Index("accepted_of_toolchain", ("toolchain", "seq")),))
class AcceptedRow:
    """A module or export accepted by a kernel, and the check it was in.

    `key` hashes everything the kernel read (`pipeline.gate.accepted`). `what` is for people: a module, or the
    export's theorem.
    """

    key: str
    kernel: str
    what: str
    toolchain: str
    repository: str
    sha: str
    job: str
    seq: int


@table("unfinished_scans", key=("repository", "branch"))
class UnfinishedScanRow:
    """A scan recorded in parts and not closed yet: its attempt, by its first event."""

    repository: str
    branch: str
    attempt: str
    version: int


@table("tallies", key=("repository", "branch", "kind"))
class TallyRow:
    """The number of declarations of a kind on a branch: `status` must not count half a million rows."""

    repository: str
    branch: str
    kind: str
    declarations: int


@table("split_tallies", key=("split", "side"))
class SplitTallyRow:
    """The number of theorems put on a side by `novel_premises` for the premises of their proofs.

    Kept for closing a small commit without a count of all members. Without theorems with no premises, and
    those on the side of a known name.
    """

    split: str
    side: str
    theorems: int


@table("poll_states", key=("repository",))
class PollStateRow:
    """The last and the next poll of a repository. A cache beside the view, no projection.

    An unchanged poll is no event (500 repositories every five minutes would be 52 million a year), so this
    one table does not follow from the log. Losing it costs one unconditional poll; `db verify` leaves it out.
    `etag` is the poller's note for the next poll, as JSON: ETags, and the history they belong to.
    """

    repository: str
    checked_at: str
    next_due_at: str
    outcome: str
    etag: str | None


@table(
    "traced_files",
    key=("repository", "line", "path", "from_seq"),
    indexes=(
        Index("traced_files_now", ("repository", "line", "until_seq", "from_seq")),
        Index("traced_files_by_content", ("content",)),
    ),
)
class TracedFileRow:
    """The content of a path on a branch, from event `from_seq` until just before `until_seq` (NULL: still).

    `key` is of its last trace (`store.events.traces.FileTraced`).
    """

    repository: str
    line: str
    path: str
    from_seq: int
    until_seq: int | None
    content: int
    sha: str
    error: str | None
    key: str


@table("traced_contents", key=("content",), unique="sha256")
class TracedContentRow:
    """One file's trace, for any number of commits. `sha256` is its payload in the log.

    `seen` is `store.domain.records.Seen` as a list, None for an import; `gaps` a list of [kind, declaration,
    reason].
    """

    content: int
    sha256: str
    in_corpus: bool
    n_theorems: int
    n_premises: int
    n_tactics: int
    seen: list[int] | None
    gaps: list[list[str]]


@table("imports", key=("content", "position"))
class TracedImportRow:
    """A direct import of a traced file, in the order of the source: the path of the imported file."""

    content: int
    position: int
    path: str


@table("traced_tactics", key=("content", "theorem", "index"))
class TracedTacticRow:
    """A tactic step of a traced theorem, in the order of the proof. States are Lean's text of the goals."""

    content: int
    theorem: int
    index: int
    tactic: str
    annotated: str
    state_before: str
    state_after: str


@table(
    "tactic_premises",
    key=("content", "theorem", "tactic", "position"),
    indexes=(Index("tactic_premises_by_name", ("full_name",)),),
)
class TacticPremiseRow:
    """A premise named by a traced tactic, in the order of its marks."""

    content: int
    theorem: int
    tactic: int
    position: int
    full_name: str
    def_path: str
    def_line: int
    def_column: int
    def_end_line: int
    def_end_column: int


@table(
    "theorem_premises",
    key=("content", "theorem", "position"),
    indexes=(Index("theorem_premises_by_name", ("full_name",)),),
)
class TheoremPremiseRow:
    """A constant used in a traced theorem's whole proof; the columns of its site are NULL if unknown."""

    content: int
    theorem: int
    position: int
    full_name: str
    def_path: str | None
    def_line: int | None
    def_column: int | None
    def_end_line: int | None
    def_end_column: int | None


@table(
    "theorem_types",
    key=("content", "theorem", "position"),
    indexes=(
        Index("theorem_types_by_digest", ("digest",), where="proved = 1"),
        Index("theorem_types_open", ("content", "full_name"), where="proved = 0"),
        Index("theorem_types_upstream", ("content",), where="position > 0"),
    ),
)
class TheoremTypeRow:
    """A traced theorem's statement: Lean's type, by a digest equal for equal types.

    `position` is 0 for the theorem itself; from 1 on are the theorems of packages and of Lean with the same
    type, among its file's imports. `proof` is its text, if the trace has it.
    """

    content: int
    theorem: int
    position: int
    digest: str
    full_name: str
    path: str
    proved: bool
    proof: str


@table("split_members", key=("split", "of", "key"), only_key=True)
class SplitMemberRow:
    """A theorem's side of a split, for life. `side`: train, val, test.

    `of` is the sort of `key`: "theorem" (`store.domain.identity.split_key`) or "name" (a full name; a later
    statement of the name takes its side). `seq` is the event behind the decision.
    """

    split: str
    of: str
    key: str
    side: str
    seq: int


@table("reserved_premises", key=("full_name",))
class ReservedPremiseRow:
    """A premise barred from training proofs of novel_premises; `seq` is the event that reserved it."""

    full_name: str
    seq: int


@table("proof_tallies", key=("verdict",))
class ProofTallyRow:
    """The number of proofs found, and of first verdicts of each kind.

    `verdict`: found, checked (nothing failed, something could not be judged), verified, rejected.
    """

    verdict: str
    n: int


@table("job_tallies", key=("kind", "outcome", "bucket"))
class JobTallyRow:
    """The number of attempts of a kind of job by outcome and duration: see `store.view.projections.jobs`.

    `bucket` is the number of an interval of seconds, -1 if they were not timed. `seconds` is their sum.
    """

    kind: str
    outcome: str
    bucket: int
    n: int
    seconds: float


_DECLARING = frozenset({bumps.__name__, rows.__name__, __name__})


@cache
def table_list() -> tuple[Table, ...]:
    """Return all tables of the view, by name."""
    result = declared()
    elsewhere = {one.row.__module__ for one in result} - _DECLARING
    # It would be a table only where its module happens to be imported.
    assert not elsewhere, f"{elsewhere} declares tables; store.view.tables has to import it"
    return result


@cache
def statements() -> tuple[str, ...]:
    """Return the statements for an empty view."""
    return tuple(statement for one in table_list() for statement in one.statements)


@cache
def fingerprint() -> int:
    """Return a number (31 bits, for `user_version`) derived from the tables and the projections' version."""
    whole = "\n".join((*statements(), str(PROJECTION_VERSION)))
    return zlib.crc32(whole.encode()) & 0x7FFF_FFFF or 1


def create(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty view, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements():
            connection.execute(statement)
        connection.execute(
            "INSERT INTO view_position (projection, version, seq, event_id, stopped_reason) VALUES (?, ?, 0, '', '')",
            (PROJECTION, PROJECTION_VERSION),
        )
        connection.execute(f"PRAGMA user_version = {fingerprint()}")
        connection.execute("COMMIT")
    except BaseException:
        # After a disk error SQLite has rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
