"""Event types of scanning: what the scanner read in a commit, and what became of its sorries.

Streams: `repository:<key>`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import AwareDatetime

from store.events.base import BlobRef, EventBody, Part, Sha
from store.events.places import SorryPlace
from store.events.projects import Project

Went = Literal["deleted", "restated", "became an axiom", "unchecked", "hidden"]
"""How a sorry went that is not filled."""


class FileScanned(EventBody):
    """The scanner read one file at one commit. `scan` is a `store.domain.records.ScannedFile` as JSON.

    Only files that differ from the previous scanned commit of the branch have an event. `exercise_words` is how often
    the word stands in the file's text, comments too.

    `n_declarations` and `n_sorries` are all that the file has. Where it has more than the limits allow, `scan` has the
    first `declarations_taken`, and `sorries_taken` of its sorries are followed; None: all.

    `marked` names the declarations with a sorry that an attribute (`exercise`, `challenge`) says to be there by design,
    the first ones where they are more than a file's sorries may be.
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
    """A scan that is recorded in parts begins. Nothing of it counts until its `commit_scanned`; an attempt that ends
    without one counts for nothing. A scan that fits into one batch has no such event.
    """

    type: ClassVar[str] = "scan_begun"
    repository: str
    branch: str
    sha: Sha


class FileRemoved(EventBody):
    """A file that was there at the previous scanned commit is gone (deleted, renamed away, or excluded)."""

    type: ClassVar[str] = "file_removed"
    repository: str
    branch: str
    sha: Sha
    path: str


class CommitScanned(EventBody):
    """All Lean files of a commit are accounted for; the sorry events of the commit stand before this one.

    `include` and `exclude` are the path patterns that it was scanned with: with others it is scanned again.
    `projects` are its Lake projects, by folder, `challenges` the modules that a comparator.json, in whatever folder,
    names as challenges, whose sorries are there by design.
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

    `steps` is a JSON list of `store.domain.life.TheoremStep`; `counts` says how many there are of each step.
    A commit that only moves lines has no steps and no such event. Stands behind the `file_scanned` of its commit.

    `baseline`: nothing was scanned on the branch before, so every theorem appeared; the scans say which, and
    `steps` is an empty list. `unread`: files whose earlier version can not be read any more; `steps` leaves out
    what appeared in and went from them, and their theorems are those that stand in them now.
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
    """First sight, or back again after it was filled or removed (`reopened`)."""

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
    """The declaration says what it said, with all that its statement depends on, and has a proof in the sorry's place.

    `by` is "us" where the text is that of a proof of ours that was verified by then. `rests_on` are the declarations
    with a sorry that the proof cites.
    """

    type: ClassVar[str] = "sorry_filled"
    by: Literal["people", "us"]
    proof: str | None
    rests_on: tuple[str, ...] = ()


class SorryRemoved(SorryEvent):
    """It went, and nothing proves what its declaration said.

    `how`: the declaration went (`deleted`), says something else (`restated`), needs no proof (`became an axiom`), rests
    on what the kernel does not see or on what may admit the goal (`unchecked`), or a macro or a command that no one
    here knows holds the sorry (`hidden`). `detail` says what changed. The statements are those of the declaration,
    where it still stands.
    """

    type: ClassVar[str] = "sorry_removed"
    how: Went = "deleted"
    detail: str = ""
    statement_before: str | None = None
    statement_after: str | None = None


class SorryWritten(EventBody):
    """Git said which commit wrote the line of a sorry.

    `author` is a name, without an address; `authored_at` is when it was written, which is before it was made a commit
    where it was rebased, and null where no clock can have said so. `pull_request` is the number in the subject of the
    commit, or of the merge that brought it. With a null `sha` git does not know, and `reason` says why.
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
    """A commit of the time before the first sight of a branch; `begins`: in its week the history does."""

    sha: Sha
    committed_at: AwareDatetime
    begins: bool


class PastListed(EventBody):
    """Git said which commits a branch had before its first sight: of each week the last one, the newest first.

    The first of them is that of the first sight. Their Lean files are in the mirror, to be counted. Where in none of
    their weeks the history begins, more lies before.
    """

    type: ClassVar[str] = "past_listed"
    repository: str
    branch: str
    commits: tuple[PastCommit, ...]


class PastCounted(EventBody):
    """A commit of the time before the first sight of a branch was scanned, and its sorries were counted.

    It is history: nothing of it is followed, and what came or went there is no step of any life.
    """

    type: ClassVar[str] = "past_counted"
    repository: str
    branch: str
    sha: Sha
    sorries: int
    files: int
    files_failed: int
