"""Event types of traces: a commit's theorems and premises, from Lean or an imported LeanDojo dataset.

Files are traced along a `line`: a branch, for traces of our own (`branch:<name>`), or one import
(`import:<trace>`). Along a line only files with a changed trace have an event; a `commit_traced` closes the
commit, and only then does any of it count. Stream: `repository:<key>`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from store.events.base import BlobRef, EventBody


class FileTraced(EventBody):
    """One file's premises, theorems and tactics. `trace` is a `store.domain.records.TracedFile` as JSON.

    `path` is relative to the repository's root; a dependency's file begins with `.lake/packages/<package>/`.
    `error` is the reason if a part could not be extracted; the rest is still in `trace`. `sha` is the
    tracer's or the dataset's name of the commit. `key` names everything the trace depends on (the file, its
    toolchain, the manifest, the tracer, its imports): under the same key it is not traced again. A failure's
    names the commit too. "" for an import.
    """

    type: ClassVar[str] = "file_traced"
    repository: str
    line: str
    sha: str
    path: str
    error: str | None
    n_theorems: int
    n_premises: int
    n_tactics: int
    trace: BlobRef
    key: str


class TracedFileRemoved(EventBody):
    """A file of the line's last traced commit is not in this one."""

    type: ClassVar[str] = "traced_file_removed"
    repository: str
    line: str
    sha: str
    path: str


class CommitTraced(EventBody):
    """A commit's trace is complete: its files are those on the line at this event.

    `trace` is `store.domain.identity.trace_id`. `lean_version` is like "v4.29.1". `metadata` is LeanDojo's
    free object (with `date_processed`). `manifest` is a `store.domain.records.Manifest` as JSON, for an
    export in an import's own order. `files_failed` of `files_traced` have an `error`. The counts are of the
    whole commit.
    """

    type: ClassVar[str] = "commit_traced"
    trace: str
    repository: str
    line: str
    sha: str
    url: str
    name: str
    lean_version: str
    tracer: str
    tracer_version: str
    source: Literal["lean", "import"]
    metadata: dict[str, Any]
    pr_url: str | None
    files_traced: int
    files_failed: int
    n_theorems: int
    n_premises: int
    n_tactics: int
    manifest: BlobRef | None
    seconds: float


class TraceMeasured(EventBody):
    """The completeness of a commit's trace, against the scanner's reading of the project's own files.

    `trace` names the `commit_traced` right before. For files, theorems and tactic steps: their number, and
    the number of them whole in the trace. `gaps` counts the missing parts by kind
    (`store.domain.records.GapKind`); `details` is a JSON list of [path, kind, declaration, reason], one for
    each. `n_dependencies` files of the trace are dependencies', with premises only.
    """

    type: ClassVar[str] = "trace_measured"
    trace: str
    repository: str
    line: str
    sha: str
    files_seen: int
    files_traced: int
    theorems_seen: int
    theorems_traced: int
    tactics_seen: int
    tactics_traced: int
    n_dependencies: int
    gaps: dict[str, int]
    details: BlobRef


class SorryStated(EventBody):
    """The goal of an open sorry as Lean prints it, recorded when first known and at each change.

    `goal` is Lean's text of the goals at that place. `before` is the previous one, None without one;
    `same_text`: the declaration's statement and the text around the sorry are unchanged: the goal changed by
    something else (a definition in an imported file).
    """

    type: ClassVar[str] = "sorry_stated"
    repository: str
    branch: str
    sha: str
    sorry: str
    statement_hash: str
    context_hash: str
    goal: str
    before: str | None
    same_text: bool


class TraceWithdrawn(EventBody):
    """A user took a trace out of the database. The log keeps it; queries and exports leave it out."""

    type: ClassVar[str] = "trace_withdrawn"
    trace: str
    repository: str
    reason: str
