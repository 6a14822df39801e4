"""Event types of scanning: the scanned files of a commit, and the steps of its sorries.

Streams: `repository:<key>`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import AwareDatetime

from store.events.base import BlobRef, EventBody, Part, Sha
from store.events.places import SorryPlace
from store.events.projects import Project

Went = Literal["deleted", "restated", "became an axiom", "unchecked", "hidden"]
"""The end of a sorry other than being filled."""


class FileScanned(EventBody):
    """The scanner read one file at one commit. `scan` is a `store.domain.records.ScannedFile` as JSON.

    Only files that differ from the previous scanned commit of the branch have an event. `exercise_words`
    counts the word "exercise" in the file's text, comments too. `n_declarations` and `n_sorries` are the
    file's totals. Above a limit, `scan` has the first `declarations_taken`, and `sorries_taken` of its
    sorries are followed; None: all. `marked` names the declarations with a sorry and an attribute for
    intended ones (`exercise`, `challenge`), cut at the limit of a file's sorries.
    """

    type: ClassVar[str] = "file_scanned"
    repository: str
    branch: str
    sha: Sha
    path: str
    blob: Sha
    error: str | None
    n_declarations: int
    n_sorries: int
    exercise_words: int
    declarations_taken: int | None
    sorries_taken: int | None
    marked: tuple[str, ...]
    scan: BlobRef


class ScanBegun(EventBody):
    """A scan recorded in parts begins. Nothing of it counts until its `commit_scanned`.

    An attempt without one counts for nothing. A scan in one batch has no such event.
    """

    type: ClassVar[str] = "scan_begun"
    repository: str
    branch: str
    sha: Sha


class FileRemoved(EventBody):
    """A file of the previous scanned commit is gone (deleted, renamed away, or excluded)."""

    type: ClassVar[str] = "file_removed"
    repository: str
    branch: str
    sha: Sha
    path: str


class CommitScanned(EventBody):
    """All Lean files of a commit are accounted for; the sorry events of the commit stand before this one.

    `include` and `exclude` are the path patterns of the scan: with others it is scanned again. `projects` are
    its Lake projects, by folder, `challenges` the modules named as challenges by a comparator.json in any
    folder: their sorries are there by design.
    """

    type: ClassVar[str] = "commit_scanned"
    repository: str
    branch: str
    sha: Sha
    base: Sha | None
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    projects: tuple[Project, ...]
    files_scanned: int
    files_removed: int
    files_failed: int
    seconds: float
    challenges: tuple[str, ...]


class TheoremsFollowed(EventBody):
    """The changes of a branch's theorems from one scanned commit to the next, thousands in one event at most.

    `steps` is a JSON list of `store.domain.life.TheoremStep`; `counts` is the number of each step. A commit
    that only moves lines has no steps and no such event. Stands behind the `file_scanned` of its commit.
    `baseline`: the first scan of the branch, in which every theorem appeared; the scans have their names, and
    `steps` is an empty list. `unread`: files without a readable earlier version; `steps` leaves out the
    theorems that appeared in or left them, and their theorems are the present ones.
    """

    type: ClassVar[str] = "theorems_followed"
    repository: str
    branch: str
    sha: Sha
    baseline: bool
    unread: tuple[str, ...]
    counts: dict[str, int]
    steps: BlobRef


class SorryEvent(EventBody):
    """Common to every step of a sorry's life."""

    repository: str
    branch: str
    sha: Sha
    sorry: str


class SorryOpened(SorryEvent):
    """First sight, or the return of a filled or removed sorry (`reopened`)."""

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
    """The declaration, its statement unchanged with everything below it, has a proof in the sorry's place.

    `by` is "us" if the text is that of a proof of ours, verified by then. `rests_on` are the declarations
    with a sorry cited by the proof.
    """

    type: ClassVar[str] = "sorry_filled"
    by: Literal["people", "us"]
    proof: str | None
    rests_on: tuple[str, ...] = ()


class SorryRemoved(SorryEvent):
    """It went, and nothing proves its declaration's statement.

    `how`: the declaration went (`deleted`), has another statement (`restated`), needs no proof (`became an
    axiom`), rests on something unseen by the kernel or that may admit the goal (`unchecked`), or the sorry is
    in a macro or an unknown command (`hidden`). `detail` is the change. The statements are those of the
    declaration, if it still stands.
    """

    type: ClassVar[str] = "sorry_removed"
    how: Went = "deleted"
    detail: str = ""
    statement_before: str | None = None
    statement_after: str | None = None


class SorryWritten(EventBody):
    """Git named the commit behind the line of a sorry.

    `author` is a name, without an address; `authored_at` is the author's time, earlier than the commit's
    after a rebase, and null if no clock can have set it. `pull_request` is the number in the subject of the
    commit, or of its merge. With a null `sha` git does not know, for the given `reason`.
    """

    type: ClassVar[str] = "sorry_written"
    repository: str
    branch: str
    sorry: str
    sha: Sha | None
    author: str
    authored_at: AwareDatetime | None
    pull_request: int | None
    reason: str


class PastCommit(Part):
    """A commit from before the first sight of a branch; `begins`: the history begins in its week."""

    sha: Sha
    committed_at: AwareDatetime
    begins: bool


class PastListed(EventBody):
    """Git listed the commits of a branch before its first sight: of each week the last one, the newest first.

    The first of them is that of the first sight. Their Lean files are in the mirror, to be counted. If the
    history begins in none of their weeks, more lies before.
    """

    type: ClassVar[str] = "past_listed"
    repository: str
    branch: str
    commits: tuple[PastCommit, ...]


class PastCounted(EventBody):
    """A commit from before the first sight of a branch was scanned, and its sorries were counted.

    It is history: nothing of it is followed, and its changes are no steps of any life.
    """

    type: ClassVar[str] = "past_counted"
    repository: str
    branch: str
    sha: Sha
    sorries: int
    files: int
    files_failed: int
