"""Event types of bumps: trials of a repository with a newer Lean, or a newer package.

Streams: `repository:<key>`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from store.events.base import BlobRef, EventBody, Part, Sha
from store.events.proofs import Grade

BreakKind = Literal["proof", "statement", "definition", "import", "command"]
"""What of the source broke: a proof; a theorem's statement; a definition, instance or other declaration; an import, so
that Lean reads nothing of the file; a command that declares nothing."""
BreakReason = Literal[
    "unknown_name",
    "deprecated",
    "type_mismatch",
    "unsolved_goals",
    "rewrite_failed",
    "no_progress",
    "timeout",
    "syntax",
    "instance",
    "universe",
    "import",
    "other",
]
"""What the compiler's message says, by its words."""


class Break(Part):
    """A place that Lean no longer accepts. `line` is that of the message in the commit's file, from 1.

    `declaration` is its full name, "" where the place is in none. `follows`: it is a consequence of another break whose
    command is left out: that one's declaration, or its place without one.
    """

    path: str
    line: int
    declaration: str
    kind: BreakKind
    reason: BreakReason
    message: str
    follows: str


class Mend(Part):
    """A text in place of a broken proof, with the gate's verdict on the commit as it is handed over.

    Verified, or checked: nothing failed, and not all could be judged; `reason` says why. `how` it was found. Of a
    verified one: its `axioms`, the `grade` with the `kernel`s that made it, as of a proof (`ProofVerified`), and the
    advisories that put it in doubt.
    """

    path: str
    declaration: str
    how: str
    verdict: Literal["checked", "verified"]
    reason: str
    axioms: tuple[str, ...]
    grade: Grade | Literal[""]
    kernel: str
    doubts: tuple[str, ...]


class BumpAsked(EventBody):
    """A user wants to know what a newer Lean, or a newer package, breaks in a repository, and have it mended.

    `toolchain` is given (a `lean-toolchain`'s text), or `package` and its full commit id `rev`, or all three.
    """

    type: ClassVar[str] = "bump_asked"
    repository: str
    bump: str
    toolchain: str
    package: str
    rev: str
    by: str


class BumpBuilt(EventBody):
    """A raised commit was built until nothing new broke. `modules_failed` could not be built whatever was put aside."""

    type: ClassVar[str] = "bump_built"
    repository: str
    branch: str
    sha: Sha
    bump: str
    toolchain: str
    package: str
    rev: str
    broken: tuple[Break, ...]
    modules_failed: tuple[str, ...]
    job: str


class BumpTried(EventBody):
    """One text was tried in place of a broken proof.

    Of a trial with very many of them some are not recorded (`BumpFinished.unrecorded`); their `number`s are missing.
    `text_cut`: the text was longer than what is recorded of it. `verdict`: refused (Lean says no; the gate was not
    asked), rejected (by the gate, at `step`), checked (the gate could not judge all of it), verified.
    """

    type: ClassVar[str] = "bump_tried"
    repository: str
    branch: str
    sha: Sha
    bump: str
    path: str
    declaration: str
    number: int
    how: str
    text: str
    text_cut: bool
    verdict: Literal["refused", "rejected", "checked", "verified"]
    step: str
    reason: str
    seconds: float
    job: str


class BumpFinished(EventBody):
    """A bump's trial is over: what was mended, what is left, and which modules fail with the patches applied.

    `series` are the patches, JSON: a list of {"title", "message", "diff"}, in the order in which they apply. `tried`
    counts all texts that were tried; `unrecorded` of them have no `bump_tried`.
    """

    type: ClassVar[str] = "bump_finished"
    repository: str
    branch: str
    sha: Sha
    bump: str
    toolchain: str
    package: str
    rev: str
    mended: tuple[Mend, ...]
    left: tuple[Break, ...]
    modules_failed: tuple[str, ...]
    series: BlobRef
    tried: int
    unrecorded: int
    seconds: float
    job: str
