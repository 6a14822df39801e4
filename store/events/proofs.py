"""Event types of proving: attempts, proofs, and the verdicts of checks.

Streams: `repository:<key>`, `proof:<id>`, `work`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AwareDatetime, Field

from store.events.base import BlobRef, Digest, EventBody, Part, Sha

StepName = Literal["text", "shape", "compile", "axioms", "statement", "kernel"]
CheckVerdict = Literal["passed", "failed", "not_checked"]
Grade = Literal["L0", "L1", "L2"]
"""How far a verified proof was judged, in the field's words.

`L0`: axioms and the parts unseen by the kernel, with the compiling Lean as the only witness; `L1`: a kernel
replayed its module and every one below it, or judged their export, but for modules of the toolchain and of
trusted packages; `L2`: each kernel of its Lean accepts the export of the proof with everything below it.
"""


AGENT = "agent"
"""The prover's name for an agent's submissions; the model is the agent's own name for itself."""
AGENT_RUNG = 5
"""Its rung, above those of the ladder."""


class AttemptFinished(EventBody):
    """One prover worked on one sorry with one budget. With `outcome` "found", a `proof_found` follows.

    `blob` is the version of the file: the same attempt is not repeated until the file, the prover, its model
    or the budget changes. Outcomes: found; disproved (Lean took a proof of the negation: it is false as it
    stands); exhausted (no tactic left to try); budget (a limit ended it); unsupported (the goal cannot be
    attempted, `detail` says why); error.

    `model` is the id of the prover's model ("" without one). `best` describes the progress in a line for
    people ("" without any), and `goals_left` is the number of open goals in the state nearest to a proof
    (None without one): the plan prefers sorries with the fewest. `tree` is the search's tree
    (`pipeline.prove.tree`), None without a search. Tokens are those of the model's prompts and answers for
    this sorry, 0 if not counted; `usd` is their cost, None if unknown.
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

    `replacement` takes the place of the bytes `byte_start`..`byte_end` of `path` at `sha`: the sorry's own,
    or, if several sorries of a declaration are filled together, those from the first to the last of them. `parts` are
    then the lengths in characters of the text for each, in the file's order, with the file's own text between them;
    empty if it is one sorry's. `declaration_text_hash` is the scanner's `text_hash` of the patched declaration: a later
    commit with the same hash is "filled by us", if the proof is verified.
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
    parts: tuple[Annotated[int, Field(ge=0)], ...]
    tactics: tuple[str, ...]
    prover: str
    rung: int
    toolchain: str
    job: str


class Check(Part):
    """One verdict of the gate. `evidence` is for people to look at; `by` names the judging program."""

    step: StepName
    verdict: CheckVerdict
    by: str
    evidence: str


class ProofChecked(EventBody):
    """No check failed, but a required one was impossible: the proof stays a candidate.

    `patch` is the patch file's text. `disagreement` is the reason for a doubt, its kind before a colon: the
    kernels against the others' verdict, or a forged constant in their export; "" without either.
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
    """A module or export accepted by a kernel.

    `key` hashes everything the kernel read (`pipeline.gate.accepted`); `kernel` is its name with its version.
    `what` is for people: the module, or the export's theorem.
    """

    key: Digest
    kernel: str
    what: str


class ClosureJudged(EventBody):
    """A check's findings below a proof.

    `rests_on` names the constants below it, all the way down, by module: a JSON object of lists. `accepted`
    are acceptances new to the log, for later checks to skip; if a kernel refused a part, there are none.
    `replayed` counts the replayed modules, the proof's own among them, `known` those below it accepted
    before.
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
    """The checked version of a file: its commit, its blob, and the start of the sorry."""

    sha: Sha
    blob: Sha
    byte_start: int


class FileHash(Part):
    """A file by its path in the repository and its SHA-256."""

    path: str
    sha256: Digest


class ConstantBelow(Part):
    """A constant of the project below a statement, with the text of its type, cut if long."""

    kind: str
    module: str
    name: str
    type: str


class LeanStatement(Part):
    """A theorem's statement elaborated by Lean: every name whole, every argument and universe level written.

    `name` has the universe parameters; `type` is cut unless `whole`, and `sha256` is of the whole type.
    `not_in_header` are its leading variables missing in the source's own header, such as those of `variable`;
    None if unknown. `below` are the project's constants below it, `more` the number of further ones.
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
    """The subject of a verdict. All hashes are SHA-256.

    `statement` is the theorem's as its source has it, `lean` as elaborated by Lean, None if the judge did not
    report it; `statement_sha256` is of its export with everything below it in its module; `file_sha256` of
    the patched file; `inputs` are the files with the versions of Lean and the packages. `modules` counts the
    modules of the project and its packages below the proof's own, `modules_sha256` is of the hashes of their
    compiled files.
    """

    statement: str
    lean: LeanStatement | None
    statement_sha256: Digest
    file_sha256: Digest
    inputs: tuple[FileHash, ...]
    modules: int
    modules_sha256: Digest

    @property
    def statement_parts(self) -> tuple[str, str, list[str] | None, list[dict[str, str]], int]:
        """The view's columns: both statements, variables outside the header, constants below, how many more."""
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

    `kernel` names the programs behind its replay or the judgement of its export, each with its version or the
    toolchain's, commas between, "" without any. `version` is the checked version: a proof is checked again
    when its branch goes on. `toolchain` is the judging Lean. `material` is the subject of the verdict, None
    if a part was unreadable.
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
    """Every kernel behind a verified proof has a known fault, named by the `advisories`: it is in doubt.

    The doubt is about the verdict of `job` alone and ends with the next one. Without advisories it is over:
    those faults are no longer attributed to these kernels. `reason` is for people.
    """

    type: ClassVar[str] = "proof_doubted"
    proof: str
    sorry: str
    job: str
    advisories: tuple[str, ...]
    reason: str


class ProofRejected(EventBody):
    """A check failed. `conditional_on` names the sorries below it, if they are the reason."""

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
    """An agent works on a sorry until a time; until then nobody else does, nor the daemon.

    The same `claim` once more means a longer or shorter lease. `agent` is its name for itself, `by` its user.
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
    """A verified proof was proposed to the repository's people in a pull request, whatever becomes of it.

    `branch` is its source, as "owner:branch"; `head` is its commit and `base` that of the default branch
    below.
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
