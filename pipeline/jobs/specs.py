"""The specifications of jobs, one frozen class a kind.

The daemon and the server for editors construct them; `pipeline.jobs.protocol.run_job` reads them in the job. The place
of a job (its folder, its worktree, its GPU) belongs to `pipeline.jobs.protocol.JobSpec`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from pipeline.jobs.spec import KeyPlace, Spec, hub_key
from pipeline.lean.backend import LeanBackend
from pipeline.lean.pool import PoolLimits
from store.documents.ladder import PROVERS
from store.domain.life import GivenProof
from store.domain.matching import LivingSorry
from store.domain.records import Seen, TraceGap
from store.events.projects import Project
from store.events.proofs import ProofFound

_Count = Annotated[int, Field(ge=0)]
_Positive = Annotated[int, Field(ge=1)]
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Temperature = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_ModuleName = Annotated[str, Field(pattern=r"^[^\W\d][\w'!?«»]*(\.[\w'!?«»]+)*$")]
_Sha = Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]


# ---- scan: read a commit's Lean files


class ScanKnown(Spec):
    """The view's knowledge of a branch when its scan starts.

    Attributes:
        files: blobs by path, if `ScanSpec.base` is of no use: it was scanned with other patterns, or the mirror has
            lost it. None: compare with `base`.
        sorries: the sorries in the branch's source.
        closed: ids of filled and removed sorries; one that returns is reopened.
        proofs: our proofs of the repository's sorries, without rejected ones.
        sorries_of_others: sorries in the source of the repository's other branches.
        declarations: of all of the repository's branches.
        projects: the Lake projects, as of the last scan.
        challenges: the modules named by a comparator.json, as of the last scan.
    """

    files: dict[str, str] | None = None
    sorries: tuple[LivingSorry, ...] = ()
    closed: frozenset[str] = frozenset()
    proofs: tuple[GivenProof, ...] = ()
    sorries_of_others: int = 0
    declarations: int = 0
    projects: tuple[Project, ...] = ()
    challenges: tuple[str, ...] = ()


class ScanLimits(Spec):
    """How much of a file, of a branch, of one commit and of a repository a scan takes; the rest is counted.

    Attributes:
        sorries_per_file: sorries of one file.
        sorries: followed sorries of a branch at one time.
        sorries_of_repository: those of all branches.
        declarations_per_file: declarations of one file.
        declarations: declarations of the files read by one scan.
        declarations_of_repository: those of all files of all branches.
    """

    sorries_per_file: int = 2000
    sorries: int = 8000
    sorries_of_repository: int = 24_000
    declarations_per_file: int = 10_000
    declarations: int = 600_000
    declarations_of_repository: int = 3_000_000


class ScanSpec(Spec):
    """Scan one commit.

    Attributes:
        base: the previously scanned commit of the branch; None: read every file.
        include, exclude: path patterns (`pipeline.lean.source.globs`).
        by_files: the scan needs `known.files`.
        limits: the scan's maxima.
        then: later commits of the branch, oldest first; the job goes on with them for some seconds.
        alike: other unscanned branches at this commit: theirs is the same scan.
        known: filled in when the job starts.
    """

    repository: str
    branch: str
    sha: str
    base: str | None
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    by_files: bool = False
    limits: ScanLimits = ScanLimits()
    then: tuple[_Sha, ...] = ()
    alike: tuple[str, ...] = ()
    known: ScanKnown = ScanKnown()


# ---- count: count the sorries of past commits


class CountSpec(Spec):
    """Count the sorries of commits before a branch's first scan.

    Attributes:
        commits: in their order.
        include, exclude: path patterns (`pipeline.lean.source.globs`).
    """

    repository: str
    branch: str
    commits: tuple[_Sha, ...]
    include: tuple[str, ...]
    exclude: tuple[str, ...]


# ---- build: build a commit with its own toolchain


class BuildSpec(Spec):
    """Fetch a commit's packages, build it, and keep the result in the cache.

    Attributes:
        lean: for the commit's toolchain.
        cache: the cache folder.
        memory_bytes: of lake and its processes.
        disk_bytes: of the packages and the project together.
        hosts: names and globs reachable by the step with a network.
        modules: what to build; () is the default targets.
        schemes: allowed in packages' URLs.
        folder: of the Lake project; "" is the root.
    """

    repository: str
    branch: str
    sha: _Sha
    folder: str = ""
    lean: LeanBackend
    cache: Path
    timeout_s: _Seconds
    memory_bytes: _Positive
    disk_bytes: _Positive
    hosts: tuple[str, ...]
    modules: tuple[_ModuleName, ...] = ()
    schemes: tuple[str, ...] = ("https",)


# ---- trace: Lean's account of every file of a commit

TRACER_VERSION = "4"
"""Raise it with each change of the trace of an unchanged file: everything is then traced again."""


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A line's file: the key of its trace, and the trace's contents."""

    key: str
    theorems: int
    premises: int
    tactics: int
    failed: bool
    seen: Seen | None
    gaps: tuple[TraceGap, ...]


@dataclass(frozen=True, slots=True)
class StatedGoal:
    """The last recorded goal of a sorry, with its text's hashes."""

    goal: str
    statement_hash: str
    context_hash: str


@dataclass(frozen=True, slots=True)
class OpenSorry:
    """A sorry of the branch, from the view."""

    sorry: str
    path: str
    blob: str
    byte_start: int
    statement_hash: str
    context_hash: str
    stated: StatedGoal | None


class TraceKnown(Spec):
    """The view's knowledge of a branch when its trace starts.

    Attributes:
        line: the line's name.
        after: its last position in the log.
        files: its files, by path.
        sorries: the branch's open sorries with their goals so far.
    """

    line: str = ""
    after: int = 0
    files: dict[str, KnownFile] = Field(default_factory=dict)
    sorries: tuple[OpenSorry, ...] = ()


class TraceSpec(Spec):
    """Trace one commit, as far as it differs from its line's files.

    Attributes:
        url, name: of the repository, for the record; the name is like "owner/repo".
        include, exclude: path patterns (`pipeline.lean.source.globs`).
        file_timeout_s: Lean's time for one file.
        limits: of Lean's processes; each works on one file.
        folder: of the Lake project; "" is the root.
        without: the folders in it with projects of their own.
        known: filled in when the job starts.
    """

    repository: str
    branch: str
    sha: str
    folder: str = ""
    without: tuple[str, ...] = ()
    lean: LeanBackend
    url: str
    name: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    file_timeout_s: _Seconds
    limits: PoolLimits
    known: TraceKnown = TraceKnown()


# ---- prove: one rung of the ladder on some sorries of one commit

UNANSWERED = "unanswered"
"""Reason of a job's failure if its model or endpoint answered no request since a failure."""
OF_AN_ENDPOINT = frozenset(
    {
        "auth_failed",
        "no_such_model",
        "no_credit",
        "redirected",
        "unreachable",
        "bad_credential",
        "bad_spending",
        "answers_not_kept",
        "spending_cap",
        "above_cap",
    }
)
"""Reasons of an endpoint to answer no request at all. Too many requests, a server error, no answer or an unreadable one
may concern one request: the sorry's attempt fails, and the others continue; if all fail, the reason is `UNANSWERED`.
"""
OF_THE_JOB = OF_AN_ENDPOINT | {UNANSWERED, "model_not_loaded", "bad_model", "program_missing"}
"""Reasons that fail a job with any sorries: its model, its endpoint or its program is out of use."""
OF_THE_MACHINE = OF_THE_JOB | {"lean_does_not_start", "database"}
"""Reasons that may pass in hours: the sorries are fine, and the job is worth another try."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a search for one sorry: states expanded, seconds, and seconds of one tactic.

    The seconds are the clock's: they include waiting for a model or for a process. `calls` bounds the tactics sent to
    Lean; replays after a crash or a restart are not counted.
    """

    nodes: int
    seconds: float
    tactic_timeout_s: float
    calls: int | None = None


@dataclass(frozen=True, slots=True)
class SorryToProve:
    """A sorry for a prove job, from the view."""

    sorry: str
    path: str
    blob: str
    byte_start: int
    byte_end: int
    declaration: str
    kind: str
    ordinal: int


MOST_LEMMAS = 1000
"""Maximum of a branch's lemmas, the newest first; a search takes those nearest to its goal."""


@dataclass(frozen=True, slots=True)
class KnownProof:
    """A known proof: its description for people, and its tactics, in order."""

    said: str
    tactics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stated:
    """A proved theorem with the same statement as a sorry's declaration (`store.view.transfers`).

    Attributes:
        name: the full name.
        place: repository and file, for people.
        citable: the sorry's file may cite its name.
        statement: the theorem as its source has it, up to its proof; "" if unknown.
        goal: Lean's text of it; "" if unknown.
        proof: the text after its `:=`; "" if unknown.
    """

    name: str
    place: str
    citable: bool
    statement: str
    goal: str
    proof: str


@dataclass(frozen=True, slots=True)
class Lemma:
    """The statement of a sorry still in the source, with a proof accepted by the gate.

    Attributes:
        sorry: its id.
        proof: the proof's.
        declaration: the full name.
        statement: the declaration's binders and type, as its source has them.
        goal: of the tactics, as Lean prints it; "" if unknown.
        tactics: the proof's, in order.
    """

    sorry: str
    proof: str
    declaration: str
    statement: str
    goal: str
    tactics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EarlierAttempt:
    """An earlier attempt, as a program gets it."""

    by: str
    """The author, such as "tactics, rung 0"; "this program" for a run of the same attempt"""
    outcome: str
    """`exhausted`, `budget`, `disproved`, `unsupported` or `error`; `refused` for a run of the same attempt"""
    text: str
    """The text in the sorry's place; empty if unknown"""
    messages: list[str]
    """Objections of Lean or the rules, or the progress made"""


class ProveKnown(Spec):
    """The view's knowledge of a branch at the first start of a prove job: its input `known.json`.

    Attributes:
        proofs: the repository's known proofs by sorry, without duplicates.
        stated: by sorry, theorems with the same statement; the nearest first.
        lemmas: those citable by the branch's searches, one proof a sorry, the newest first.
        attempts: the earlier attempts by sorry, the newest last; for a program alone.
    """

    proofs: dict[str, tuple[KnownProof, ...]] = Field(default_factory=dict)
    stated: dict[str, tuple[Stated, ...]] = Field(default_factory=dict)
    lemmas: tuple[Lemma, ...] = ()
    attempts: dict[str, tuple[EarlierAttempt, ...]] = Field(default_factory=dict)


KNOWN, CORPUS, NO_CORPUS, DATASET = "known.json", "corpus.jsonl", "no-corpus.txt", "dataset/"
ACCEPTED_KEYS = "accepted-keys.txt"
"""Names of inputs; `DATASET` is a prefix (`pipeline.freeze`)."""


class GeneratorSpec(Spec):
    """A model that runs in the job, and the sampling of its answers. `path`: a folder, or a name on the hub."""

    path: str
    device: str = "auto"
    candidates: _Positive = 8
    temperature: _Temperature = 0.7


WORDS = "bm25"
"""The premise finder without a trained retriever, or beside one."""


class RetrieverSpec(Spec):
    """A premise finder: a retriever's checkpoint in its chain, BM25 (`WORDS`), or both ("<checkpoint>+bm25").

    A prove job searches the premises of its input `CORPUS`, a training those of its dataset. `premises` is their number
    for a goal.
    """

    chain: Path
    checkpoint: str
    indices: Path
    device: str = "auto"
    premises: _Count = 10

    @property
    def trained(self) -> str:
        """The checkpoint's id alone; "" for BM25 alone."""
        return "" if self.checkpoint == WORDS else self.checkpoint.removesuffix(f"+{WORDS}")


class ProgressSpec(Spec):
    """A progress model, and its weight in the order of the search."""

    path: str
    weight: Annotated[float, Field(ge=0, le=1)] = 0.5


class WholeSpec(Spec):
    """Whole proofs: the number a turn, the turns after the first, the tokens of each, and whether a local model thinks
    before it answers.
    """

    proofs: _Positive = 4
    repairs: _Count = 2
    max_tokens: _Positive = 8192
    enable_thinking: bool = True


class EndpointTactics(Spec):
    """Tactics from an endpoint: the number a state, and their sampling."""

    candidates: _Positive = 4
    temperature: _Temperature = 0.7
    max_tokens: _Positive = 1024


class EndpointSpec(Spec):
    """A model behind an OpenAI-compatible endpoint.

    Attributes:
        base_url: its address before "/chat/completions".
        credential, key_variable: the name of the key's place; "" for none.
        timeout_s: of one request, from its start to its answer's last byte.
        retries: of a request to an overloaded or unreachable endpoint.
        ledger: the record of its cost (`pipeline.endpoint.spending`).
        answers: a folder of paid answers, shared by all jobs: a restarted job does not pay twice. None: keeps none.
        cap_usd: in a UTC day; None: no cap.
    """

    base_url: str
    model: str
    credential: str = ""
    key_variable: str = ""
    timeout_s: _Seconds = 120.0
    retries: _Count = 4
    ledger: Path | None = None
    answers: Path | None = None
    cap_usd: _Dollars | None = None
    usd_per_million_prompt: _Dollars | None = None
    usd_per_million_completion: _Dollars | None = None


class ProgramSpec(Spec):
    """A program that edits the file with the sorry.

    Attributes:
        name: for the record.
        run: the program, by name or path, and its arguments.
        seconds: for one sorry.
        readable: its sandbox's further readable paths, beside the system's folders, Lean and the checkout.
        network: the hosts it may reach.
        repairs: runs after the first, with Lean's errors.
        key: the name of its key's place; None: no key.
        key_variable: the environment variable for the key.
        ledger, cap_usd: as an endpoint's.
        usd_per_run: the minimum cost of a run towards the cap.
    """

    name: str
    run: tuple[str, ...]
    seconds: _Seconds
    readable: tuple[Path, ...] = ()
    network: tuple[str, ...] = ()
    repairs: _Count = 0
    key: KeyPlace | None = None
    key_variable: str = ""
    ledger: Path | None = None
    cap_usd: _Dollars | None = None
    usd_per_run: _Dollars = 0.0


class RungSpec(Spec):
    """A rung of the ladder: its number and its models.

    `retriever` finds premises for its goals; None: no premises.
    """

    number: int
    retriever: RetrieverSpec | None = None

    @property
    def prover(self) -> str:
        return PROVERS[self.number]


class CuratedRung(RungSpec):
    """The curated tactics."""

    number: Literal[0] = 0


class RetrievalRung(RungSpec):
    """A generator made for premises, which it needs."""

    number: Literal[1] = 1
    generator: GeneratorSpec
    retriever: RetrieverSpec
    progress: ProgressSpec | None = None


class GeneratorRung(RungSpec):
    """The tactic model in use."""

    number: Literal[2] = 2
    generator: GeneratorSpec
    progress: ProgressSpec | None = None


class WholeProofRung(RungSpec):
    """A model that writes whole proofs."""

    number: Literal[3] = 3
    generator: GeneratorSpec
    whole: WholeSpec = WholeSpec()


class EndpointRung(RungSpec):
    """An endpoint that writes whole proofs, or the tactics of a search."""

    number: Literal[4] = 4
    endpoint: EndpointSpec
    whole: WholeSpec | None = None
    tactics: EndpointTactics | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.whole is None) == (self.tactics is None):
            raise ValueError("either whole or tactics is given, and not both")
        return self


class ProgramRung(RungSpec):
    """A program, such as an agent, in a sandbox with a checkout."""

    number: Literal[5] = 5
    program: ProgramSpec


LocalRung = RetrievalRung | GeneratorRung | WholeProofRung
"""The rungs whose models run in the job."""
AnyRung = Annotated[
    CuratedRung | RetrievalRung | GeneratorRung | WholeProofRung | EndpointRung | ProgramRung,
    Field(discriminator="number"),
]


class Rung(Spec):
    """A rung ready for use (`pipeline.jobs.ladder`). Attempts with another `model` or `budget_key` are tried again.

    Attributes:
        model: the model's id in the record of attempts; "" for rung 0.
        budget_key: the budget's name in the record of attempts; the judging Lean is part of it (`with_judge`).
        memory_bytes: of each process of a job.
    """

    spec: AnyRung
    model: str = ""
    budget: Budget
    budget_key: str
    memory_bytes: _Positive = 2**32

    def with_judge(self, lean: LeanBackend) -> Rung:
        """Return the rung with the attempts' key for this Lean."""
        return self.model_copy(update={"budget_key": f"{self.budget_key}/{lean.kind}"})

    @property
    def number(self) -> int:
        return self.spec.number

    @property
    def prover(self) -> str:
        return self.spec.prover

    @property
    def gpu(self) -> bool:
        """Whether a model runs on the GPU, if the machine has one."""
        return isinstance(self.spec, LocalRung) and self.spec.generator.device != "cpu"

    @property
    def cap_usd(self) -> float | None:
        """Maximum cost of a day, for all that share its ledger; None: no limit."""
        match self.spec:
            case EndpointRung(endpoint=spends) | ProgramRung(program=spends):
                return spends.cap_usd
        return None

    @property
    def key(self) -> KeyPlace | None:
        """The place of the job's one key."""
        match self.spec:
            case EndpointRung(endpoint=endpoint):
                return KeyPlace(endpoint.credential, endpoint.key_variable)
            case ProgramRung(program=program):
                return program.key
            case CuratedRung():
                return None
        return hub_key(self.spec.generator.path)


class ProveSpec(Spec):
    """Search for proofs of some sorries of one commit, on one rung.

    Attributes:
        limits: of the REPL processes.
        model: the model's id in the record of attempts; "" for rung 0.
        budget_key: the budget's name in the record of attempts.
        parallel: files at once.
        folder: of the sorries' Lake project; "" is the root.

    Its input `KNOWN` has the proofs of the same statements and the lemmas; without it neither is used.
    """

    repository: str
    branch: str
    sha: str
    folder: str = ""
    lean: LeanBackend
    limits: PoolLimits
    rung: AnyRung
    model: str = ""
    seed: int = 0
    budget: Budget
    budget_key: str
    parallel: _Positive
    sorries: tuple[SorryToProve, ...]

    @property
    def prover(self) -> str:
        return self.rung.prover


# ---- bump: a newer Lean's or package's breaks, and their mends


class BumpSpec(Spec):
    """Raise a commit, build it, and mend the broken proofs.

    Attributes:
        build: the build of the raised commit; `lean` is for its toolchain.
        bump: the trial's id.
        toolchain: the new `lean-toolchain`; "": unchanged.
        package, rev: a package of the manifest and its new full commit id; "": none.
        renames: present full names of declarations by their former ones, from the log's lives of the theorems of this
            repository and its packages.
        tries: maximum of texts for one broken proof to compile.
        rungs: the ladder's rungs for the open gaps, in order; none needs a key.
        limits: of the REPL processes.
        second_kernel: from `[lean]`.
        advisories: from `[certificates]`.

    If a rung has a retriever, its input `CORPUS` is from the repository's newest trace.
    """

    build: BuildSpec
    bump: str
    toolchain: str = ""
    package: str = ""
    rev: str = ""
    renames: dict[str, str] = Field(default_factory=dict)
    tries: _Positive = 60
    rungs: tuple[Rung, ...]
    limits: PoolLimits
    second_kernel: str = "auto"
    advisories: str = ""


# ---- check: judge a found proof


class SearchOrigin(Spec):
    """The search that found a proof, for the patch's header.

    `weights` is the SHA-256 of a checkpoint of ours, "" of another model.
    """

    model: str
    seed: int
    nodes: int
    repl_calls: int
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    usd: float | None
    weights: str = ""


class Candidate(Spec):
    """A found proof. `search`: None if unknown."""

    proof: ProofFound
    search: SearchOrigin | None = None


class JudgedText(Candidate):
    """A text to judge.

    `alike`: the same text's records for the declaration's other sorries; the verdict holds for each. They agree in
    `what_is_judged`.
    """

    alike: tuple[Candidate, ...] = ()

    @property
    def proofs(self) -> tuple[Candidate, ...]:
        """All proofs of its verdict."""
        return (self, *self.alike)


class CheckSpec(JudgedText):
    """Judge one proof. `second_kernel`: from `[lean]`; `folder`: of the Lake project ("" is the root).

    `then`: further texts of the commit, each judged by itself after this one, in a build of its own from the `cache`;
    the `cache` also keeps the meaning of Lean's own constants. Its input `ACCEPTED_KEYS` lists earlier verdicts of
    kernels.
    """

    lean: LeanBackend
    folder: str = ""
    second_kernel: str = "auto"
    then: tuple[JudgedText, ...] = ()
    cache: Path | None = None

    @property
    def texts(self) -> tuple[JudgedText, ...]:
        """All texts, in the order of judging."""
        return (self, *self.then)


def what_is_judged(proof: ProofFound) -> tuple[object, ...]:
    """Return the basis of a verdict: proofs of several sorries share a verdict only if they agree in all of it."""
    return (
        (proof.repository, proof.branch, proof.sha, proof.path, proof.blob),
        (proof.byte_start, proof.byte_end, proof.replacement, proof.parts),
        (proof.declaration, proof.declaration_text_hash),
        proof.toolchain,
    )


# ---- train: one task on top of a checkpoint; measurements


class LearnedTask(Spec):
    """An earlier task of a chain: the repository's key, the frozen dataset, and whether its rows may be replayed."""

    name: str
    dataset: Path
    replayed: bool = True


class TrainSpec(Spec):
    """Train a model on one repository's trace, and measure it on all tasks so far.

    Attributes:
        repository: the task: the key of the trace's repository.
        trace: the id of the trace; None: the repository's newest.
        chain: the folder of checkpoints (`pipeline.models.chain`).
        parent: the checkpoint to start from; None: from the configuration's `model_name`.
        config: fields of the model's configuration; the others keep their defaults.
        refused: the number of this task's refused checkpoints; added to the seed of the training.
        tasks: the earlier tasks.
        tensorboard: the folder for TensorBoard's files, with one for each training; None: no such files.
        taken: the folder of a model to take instead of training; None: train one.
        learned: whether the taken model was trained on the trace.

    Its inputs `DATASET`… are the dataset.
    """

    repository: str
    trace: str | None = None
    chain: Path
    parent: str | None
    config: dict[str, JsonValue] = Field(default_factory=dict)
    refused: int = 0
    tasks: tuple[LearnedTask, ...] = ()
    tensorboard: Path | None = None
    taken: Path | None = None
    learned: bool = False


class TrainRetrieverSpec(TrainSpec):
    """Train the retriever. `indices`: the folder of the premises' embeddings."""

    indices: Path


class TrainTacticsSpec(TrainSpec):
    """Train a tactic model.

    Attributes:
        retriever: the premise finder for its rows; None: no premises.
        proofs_of: the repositories whose accepted proofs to learn, the task's own among them or not.
    """

    retriever: RetrieverSpec | None = None
    proofs_of: tuple[str, ...] = ()


class GrpoSpec(Spec):
    """Training of a tactic model with Lean's reward (GRPO): settings of `pipeline.models.tactics.grpo`.

    Attributes:
        lr: the highest learning rate; it falls to 0 in a line.
        batch_size: answers in one step.
        num_generations: answers to each goal.
        temperature: of sampling.
        kl_beta: the weight of the distance from the initial model.
        max_steps: of the optimiser; None: one pass over the goals.
        trl: further arguments of TRL's `GRPOConfig`, by name.
    """

    lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-6
    batch_size: _Positive = 8
    num_generations: Annotated[int, Field(ge=2)] = 8
    temperature: _Temperature = 1.0
    kl_beta: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    max_steps: _Positive | None = 200
    trl: dict[str, bool | int | float | str] = Field(default_factory=dict)


class TrainGrpoSpec(TrainTacticsSpec):
    """Train a tactic model with Lean's reward, in a built worktree of the trace's commit.

    `lean` judges, in processes with these `limits`, in the Lake project in this `folder`.
    """

    lean: LeanBackend
    folder: str = ""
    limits: PoolLimits
    grpo: GrpoSpec = GrpoSpec()
