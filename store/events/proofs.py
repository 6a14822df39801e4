"""Event types of proving: attempts, the proofs that they found, and what the checks said of these.

Streams: `repository:<key>`, `proof:<id>`, `work`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import AwareDatetime

from store.events.base import BlobRef, Digest, EventBody, Part, Sha

StepName = Literal["text", "shape", "compile", "axioms", "statement", "kernel"]
CheckVerdict = Literal["passed", "failed", "not_checked"]
Grade = Literal["L0", "L1", "L2"]
"""How far a verified proof was judged, in the field's words.

`L0`: axioms and what the kernel does not see, so that the Lean that compiled it is the only witness; `L1`: a kernel
replayed, or judged the export of, its module and every one below it but the toolchain's and those of trusted packages;
`L2`: each kernel that comes with its Lean accepts the export of the proof with all that it rests on.
"""


AGENT = "agent"
"""The prover's name of what an agent submitted; the model is the agent's own name for itself."""
AGENT_RUNG = 5
"""Its rung, above those of the ladder."""


class AttemptFinished(EventBody):
    """One prover worked on one sorry with one budget. What `outcome` "found" led to is a `proof_found`.

    `blob` is the version of the file: the same attempt is not repeated until the file, the prover, its model or the
    budget changes. Outcomes: found; disproved (Lean took a proof of the negation: it is false as it stands); exhausted
    (no tactic left to try); budget (a limit ended it); unsupported (the goal cannot be attempted, `detail` says why);
    error.

    `model` is the id of what was asked ("" where the prover has none). `best` says how far it got, in a line for
    people ("" where nothing was tried), and `goals_left` how many goals were open in the state that came nearest to a
    proof (None where none was reached): the plan goes on first where there are fewest. `tree` is the search's tree
    (`pipeline.prove.tree`), None without a search. Tokens are those of the model's prompts and answers for this sorry,
    0 where no one counts them; `usd` is what they cost, None where no one says.
    """

    type: ClassVar[str] = "attempt_finished"
    alone: ClassVar[bool] = True
    repository: str
    branch: str
    sha: Sha
    sorry: str
    blob: Sha
    prover: str
    rung: int
    model: str
    seed: int
    budget: str
    outcome: Literal["found", "disproved", "exhausted", "budget", "unsupported", "error"]
    detail: str
    best: str
    goals_left: int | None
    nodes: int
    repl_calls: int
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    usd: float | None
    tree: BlobRef | None
    job: str


class ProofFound(EventBody):
    """A search ended with no goals: a candidate, nothing more.

    `replacement` takes the place of the bytes `byte_start`..`byte_end` of `path` at `sha`: the sorry's own, or,
    where the several sorries of a declaration are filled together, those from the first to the last of them.
    `declaration_text_hash` is the scanner's `text_hash` of the patched declaration: a later commit with the
    same hash is "filled by us", where the proof is verified.
    """

    type: ClassVar[str] = "proof_found"
    proof: str
    sorry: str
    repository: str
    branch: str
    sha: Sha
    path: str
    blob: Sha
    byte_start: int
    byte_end: int
    declaration: str
    declaration_text_hash: str
    replacement: str
    tactics: tuple[str, ...]
    prover: str
    rung: int
    toolchain: str
    job: str


class Check(Part):
    """One verdict of the gate. `evidence` is what a person can look at; `by` names the program that judged."""

    step: StepName
    verdict: CheckVerdict
    by: str
    evidence: str


class ProofChecked(EventBody):
    """No check failed, but a required one could not be made: the proof stays a candidate.

    `patch` is the patch file's text. `disagreement` names the kernels that refuse what others accept, "" where all that
    judged agree: then the proof is in doubt.
    """

    type: ClassVar[str] = "proof_checked"
    proof: str
    sorry: str
    checks: tuple[Check, ...]
    not_checked: tuple[str, ...]
    disagreement: str
    patch: BlobRef
    job: str


class Accepted(Part):
    """What a kernel accepted: the key that hashes all that it read (`pipeline.gate.accepted`), and its name with its
    version. `what` is for people: the module, or the theorem whose export it is.
    """

    key: Digest
    kernel: str
    what: str


class ClosureJudged(EventBody):
    """What a check found below a proof.

    `rests_on` are the names of the constants that it rests on, as far down as it goes, by their modules: a JSON object
    of lists. `accepted` is what kernels accepted that no check knew, so that later ones do not ask them again; of what
    a kernel refused a part of, nothing. `replayed` counts the modules that were replayed, the proof's own among them,
    `known` those below it that were accepted before.
    """

    type: ClassVar[str] = "closure_judged"
    alone: ClassVar[bool] = True
    proof: str
    sorry: str
    repository: str
    sha: Sha
    toolchain: str
    rests_on: BlobRef
    accepted: tuple[Accepted, ...]
    replayed: int
    known: int
    job: str


class CheckedVersion(Part):
    """The version of a file in which a proof was checked: its commit, its blob, and where the sorry begins there."""

    sha: Sha
    blob: Sha
    byte_start: int


class FileHash(Part):
    """A file by its path in the repository and its SHA-256."""

    path: str
    sha256: Digest


class ConstantBelow(Part):
    """A constant of the project that a statement rests on: with the text of its type, cut where it is long."""

    kind: str
    module: str
    name: str
    type: str


class LeanStatement(Part):
    """What Lean made of a theorem's words, as text: every name whole, every argument and universe level written.

    `name` has the universe parameters; `type` is cut where it is not `whole`, and `sha256` is of the whole type.
    `not_in_header` are the variables that it begins with and the source's own header does not write, as what `variable`
    brought; None where nobody could tell. `below` are the project's constants that it rests on, `more` how many of
    these are not here.
    """

    name: str
    type: str
    whole: bool
    sha256: Digest
    not_in_header: tuple[str, ...] | None
    below: tuple[ConstantBelow, ...]
    more: int

    @property
    def text(self) -> str:
        """The statement for people."""
        cut = "" if self.whole else f" … (cut; SHA-256 of the whole type: {self.sha256})"
        return f"{self.name} : {self.type}{cut}"


class Material(Part):
    """What a verdict is about. All hashes are SHA-256.

    `statement` is the theorem's as its source has it, `lean` what Lean made of it, None where what judged did not say;
    `statement_sha256` is of the export of that with all that it rests on in its module; `file_sha256` of the patched
    file; `inputs` are the files that name Lean and the packages. `modules` counts the modules below the proof's own
    that the project or its packages bring, `modules_sha256` is of the hashes of their compiled files.
    """

    statement: str
    lean: LeanStatement | None
    statement_sha256: Digest
    file_sha256: Digest
    inputs: tuple[FileHash, ...]
    modules: int
    modules_sha256: Digest

    @property
    def told(self) -> tuple[str, str, list[str] | None, list[dict[str, str]], int]:
        """Both statements, what is not in the header, what they speak of and how much more, as the view has it."""
        lean = self.lean
        if lean is None:
            return self.statement, "", None, [], 0
        missing = None if lean.not_in_header is None else list(lean.not_in_header)
        return (
            self.statement,
            lean.text,
            missing,
            [one.model_dump(mode="json") for one in lean.below],
            lean.more,
        )


class ProofVerified(EventBody):
    """Lean accepted it: every required check passed.

    `kernel` names the programs that replayed it or judged its export, each with its version or the toolchain's, commas
    between, "" where none did. `version` is what was checked, since a proof is checked again
    where its branch has gone on. `toolchain` is the Lean that judged. `material` is what the verdict is about, None
    where not all of it could be read.
    """

    type: ClassVar[str] = "proof_verified"
    proof: str
    sorry: str
    checks: tuple[Check, ...]
    not_checked: tuple[str, ...]
    axioms: tuple[str, ...]
    grade: Grade
    kernel: str
    version: CheckedVersion
    patch: BlobRef
    job: str
    toolchain: str
    material: Material | None


class ProofDoubted(EventBody):
    """Every kernel that vouches for a verified proof has a known fault, named by the `advisories`: it is in doubt.

    It counts for the verdict of `job` alone: the next one ends it. Without advisories it is over: the faults that were
    known then are no longer said of these kernels. `reason` is for people.
    """

    type: ClassVar[str] = "proof_doubted"
    proof: str
    sorry: str
    job: str
    advisories: tuple[str, ...]
    reason: str


class ProofRejected(EventBody):
    """A check failed. `conditional_on` names the sorries that it rests on, where that is the reason."""

    type: ClassVar[str] = "proof_rejected"
    alone: ClassVar[bool] = True
    proof: str
    sorry: str
    step: str
    reason: str
    checks: tuple[Check, ...]
    conditional_on: tuple[str, ...]
    job: str


class SorryClaimed(EventBody):
    """An agent works on a sorry until a time; until then nobody else does, and the daemon neither.

    The same `claim` once more means a longer lease, or a shorter one. `agent` is what it calls itself, `by` the user
    who asked.
    """

    type: ClassVar[str] = "sorry_claimed"
    repository: str
    sorry: str
    claim: str
    agent: str
    by: str
    until: AwareDatetime


class ClaimReleased(EventBody):
    """A claim was given back before its time."""

    type: ClassVar[str] = "claim_released"
    repository: str
    sorry: str
    claim: str
    by: str


class PullRequestOpened(EventBody):
    """A verified proof was proposed to the repository's people: the pull request is there, whatever becomes of it.

    `branch` is where it comes from, as "owner:branch"; `head` is its commit and `base` the one of the default branch
    that it is made on.
    """

    type: ClassVar[str] = "pull_request_opened"
    alone: ClassVar[bool] = True
    proof: str
    repository: str
    number: int
    url: str
    branch: str
    head: Sha
    base: Sha
