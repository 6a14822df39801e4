"""What questions about traces and models answer with: frozen dataclasses, columns as attributes.

As in `store.rows`; `store.trace_tables` and `store.model_tables` say what columns mean. Positions are (line, column)
from 1. A `content` with an `index` names a theorem or premise in every trace that has this version of its file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # `unsorry status` loads these rows; the module of the two takes a tenth of its time.
    from store.traced import Position, TracedTactic


@dataclass(frozen=True, slots=True)
class TraceRow:
    """A closed trace of a commit."""

    trace: str
    repository: str
    line: str
    sha: str
    seq: int
    state: str
    url: str
    name: str
    lean_version: str
    tracer: str
    tracer_version: str
    source: str
    simulated: bool
    pr_url: str | None
    metadata: dict[str, Any]
    manifest_sha256: str | None
    files_traced: int
    files_failed: int
    n_theorems: int
    n_premises: int
    n_tactics: int
    traced_at: str

    @property
    def completeness(self) -> float:
        """The share of its files, 0..1, of which all could be extracted; 1 for a commit without files."""
        return 1 - self.files_failed / self.files_traced if self.files_traced else 1.0


@dataclass(frozen=True, slots=True)
class FileOfTrace:
    """A file of a trace; `error` says what could not be extracted. `sha` is the commit that brought this version."""

    path: str
    content: int
    error: str | None
    sha: str


@dataclass(frozen=True, slots=True)
class MeasureRow:
    """How complete a trace is: what there was, and how much of it the trace has. `gaps` maps kinds to counts."""

    trace: str
    repository: str
    line: str
    sha: str
    seq: int
    files_seen: int
    files_traced: int
    theorems_seen: int
    theorems_traced: int
    tactics_seen: int
    tactics_traced: int
    n_dependencies: int
    gaps: dict[str, int]
    simulated: bool
    measured_at: str


@dataclass(frozen=True, slots=True)
class GapRow:
    """Something that a trace lacks (`store.traced.TraceGap`), and the file that it lacks it of."""

    path: str
    kind: str
    declaration: str
    reason: str


@dataclass(frozen=True, slots=True)
class SorryGoalRow:
    """What Lean last said is to be proved at a sorry, and at which commit it said so."""

    repository: str
    branch: str
    sorry: str
    goal: str
    sha: str
    statement_hash: str
    context_hash: str
    simulated: bool
    stated_at: str


@dataclass(frozen=True, slots=True)
class LineFile:
    """A file that a line has now, its commit's trace closed or not. `seen` is `store.traced.Seen` as a list, None for
    an import; `gaps` are lists of kind, declaration, reason."""

    path: str
    key: str
    error: str | None
    n_theorems: int
    n_premises: int
    n_tactics: int
    seen: list[int] | None
    gaps: list[list[str]]


@dataclass(frozen=True, slots=True)
class TheoremOfTrace:
    """A theorem. `statement` is None where the tracer gave none; `url` and `commit` where they are the trace's own."""

    path: str
    content: int
    index: int
    full_name: str
    statement: str | None
    split_key: str
    line: int
    column: int
    end_line: int
    end_column: int
    n_tactics: int
    has_sorry: bool
    url: str | None
    commit: str | None

    @property
    def start(self) -> Position:
        return self.line, self.column

    @property
    def end(self) -> Position:
        return self.end_line, self.end_column


@dataclass(frozen=True, slots=True)
class PremiseOfTrace:
    """A declaration that proofs may use; `code` is a theorem's statement, the whole text of anything else."""

    path: str
    content: int
    index: int
    full_name: str | None
    kind: str
    code: str
    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def start(self) -> Position:
        return self.line, self.column

    @property
    def end(self) -> Position:
        return self.end_line, self.end_column


@dataclass(frozen=True, slots=True)
class PremiseUser:
    """A theorem whose proof uses a premise, in `n_uses` places."""

    path: str
    content: int
    index: int
    full_name: str
    n_uses: int


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """One tactic step to learn from. `premises` are full names, each once, in the order of the tactic."""

    path: str
    theorem: str
    state_before: str
    tactic: str
    premises: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrainingProof:
    """A proof to learn from, step by step. `split_key` is what its theorem states: copies of a theorem share it."""

    path: str
    theorem: str
    split_key: str
    steps: tuple[TracedTactic, ...]


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A trained checkpoint; `promoted`: it is the one in use, since `promoted_at`, for `reason`.

    `refused_at` and `refused_reason`: the rule kept it out of use, and nobody has promoted it since.
    """

    checkpoint: str
    model: str
    parent: str | None
    base: str
    data_seq: int
    config: dict[str, Any]
    seed: int
    steps: int
    weights: str
    size_bytes: int
    fisher: str | None
    versions: dict[str, str]
    device: str
    seconds: float
    job: str
    simulated: bool
    saved_at: str
    promoted: bool
    promoted_at: str | None
    reason: str
    refused_at: str | None
    refused_reason: str


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """How a checkpoint did on one dataset of `n` examples; `metrics` maps names like "recall@10" to 0..1."""

    evaluation: str
    model: str
    checkpoint: str
    repository: str | None
    split: str
    dataset: str
    metrics: dict[str, float]
    n: int
    seconds: float
    job: str
    simulated: bool
    recorded_at: str
