"""Event types of bumps: trials of a repository with a newer Lean, or a newer package.

Streams: `repository:<key>`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from store.events.base import BlobRef, EventBody, Part, Sha
from store.events.proofs import Grade

BreakKind = Literal["proof", "statement", "definition", "import", "command"]
"""The broken part of the source: a proof; a theorem's statement; a definition, instance or other declaration;
an import, which stops Lean's reading of the file; a command without a declaration."""
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
"""The meaning of the compiler's message, by its words."""


class Break(Part):
    """A place Lean no longer accepts. `line` is that of the message in the commit's file, from 1.

    `declaration` is its full name, "" outside of any. `follows`: it is a consequence of another break with
    its command left out: the other's declaration, or its place without one.
    """

    path: str
    line: int
    declaration: str
    kind: BreakKind
    reason: BreakReason
    message: str
    follows: str


class Mend(Part):
    """A text in place of a broken proof, with the gate's verdict on the final commit.

    Verified, or checked: nothing failed, something could not be judged; `reason` says why. `how` it was
    found. With a verified one: its `axioms`, the `grade` with the `kernel`s behind it, as for a proof
    (`ProofVerified`), and the advisories against it.
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
    """A user wants a repository's breaks under a newer Lean or package listed and mended.

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
    """A raised commit was built until nothing new broke; `modules_failed` fail whatever is left out."""

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

    Of very many in one trial some are not recorded (`BumpFinished.unrecorded`); their `number`s are missing.
    `text_cut`: the record has only the beginning of the text. `verdict`: refused (by Lean, before the gate),
    rejected (by the gate, at `step`), checked (the gate could not judge all of it), verified.
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
    """A bump's trial is over: breaks mended and left, and the modules that fail with the patches.

    `series` are the patches, JSON: a list of {"title", "message", "diff"}, in order of application. `tried`
    counts all texts; `unrecorded` of them have no `bump_tried`.
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
