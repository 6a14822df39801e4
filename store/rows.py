"""What questions answer with: one frozen dataclass a table, its columns as attributes.

`*_json` columns are decoded and lose that suffix, 0 and 1 are booleans, all else is as in `store.tables` and the
modules of tables beside it, whose docstrings say what the columns mean. Standard library only: see `store.queries`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """What the daemon last said of itself and of its configuration."""

    id: int
    version: str
    pid: int | None
    host: str
    lean: str
    lean_detail: str
    started_at: str | None
    stopped_at: str | None
    stop_reason: str
    config_path: str
    config_digest: str
    config_loaded_at: str | None
    config_errors: list[str]
    config_rejected_at: str | None


@dataclass(frozen=True, slots=True)
class RepositoryRow:
    """A repository, and from its poll state when it was last asked (None if that is not known)."""

    repository: str
    url: str
    forge_id: int | None
    watched: bool
    enabled: bool
    opt_out: bool
    every_s: float
    branches: list[str]
    include: list[str]
    exclude: list[str]
    default_branch: str | None
    state: str
    reason: str
    remedy: str
    archived: bool
    first_seen_at: str
    checked_at: str | None
    next_due_at: str | None
    poll_outcome: str | None
    etag: str | None


@dataclass(frozen=True, slots=True)
class BranchRow:
    """A branch."""

    repository: str
    branch: str
    state: str
    tip: str
    scanned: str | None
    scanned_seq: int | None
    scanned_include: list[str]
    scanned_exclude: list[str]
    toolchain: str | None
    manifest: str | None
    rewrites: int


@dataclass(frozen=True, slots=True)
class CommitRow:
    """A commit on a branch."""

    repository: str
    branch: str
    sha: str
    seq: int
    parent: str | None
    author: str
    subject: str
    committed_at: str
    observed_at: str
    baseline: bool
    state: str
    files_scanned: int | None
    files_failed: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file at the newest scanned commit of a branch."""

    repository: str
    branch: str
    path: str
    blob: str
    sha: str
    error: str | None
    imports: list[str]
    n_declarations: int
    n_sorries: int
    exercise_words: int | None


@dataclass(frozen=True, slots=True)
class DeclarationRow:
    """A declaration at the newest scanned commit of a branch."""

    repository: str
    branch: str
    path: str
    index: int
    theorem: str
    name: str
    kind: str
    statement: str
    statement_hash: str
    text_hash: str
    line: int
    column: int
    end_line: int
    end_column: int
    n_sorries: int


@dataclass(frozen=True, slots=True)
class TheoremRow:
    """A theorem of a branch through all its versions, as it is now or was when it was deleted."""

    repository: str
    branch: str
    theorem: str
    identity: str
    state: str
    name: str
    kind: str
    statement: str
    statement_hash: str
    text_hash: str
    path: str
    first_sha: str
    first_seen_at: str
    last_sha: str
    versions: int


@dataclass(frozen=True, slots=True)
class TheoremVersionRow:
    """One version of a theorem; `steps` are comma-separated."""

    repository: str
    branch: str
    theorem: str
    seq: int
    steps: str
    sha: str
    recorded_at: str
    name: str
    path: str
    statement: str
    statement_hash: str
    text_hash: str
    n_sorries: int


@dataclass(frozen=True, slots=True)
class SorryRow:
    """A sorry on a branch."""

    repository: str
    branch: str
    sorry: str
    state: str
    declaration: str
    kind: str
    statement: str
    statement_hash: str
    ordinal: int
    token: str
    mode: str
    path: str
    blob: str
    line: int
    column: int
    byte_start: int
    byte_end: int
    context_hash: str
    opened_sha: str
    opened_at: str
    updated_sha: str
    closed_sha: str | None
    filled_by: str | None
    verified_proof: str | None


@dataclass(frozen=True, slots=True)
class SorryStepRow:
    """One step of a sorry's life."""

    repository: str
    branch: str
    sorry: str
    seq: int
    step: str
    sha: str
    recorded_at: str
    detail: str


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """What was tried on a sorry."""

    sorry: str
    blob: str
    prover: str
    rung: int
    model: str
    budget: str
    repository: str
    branch: str
    sha: str
    outcome: str
    detail: str
    nodes: int
    repl_calls: int
    seconds: float
    seed: int
    best: str
    goals_left: int | None
    prompt_tokens: int
    completion_tokens: int
    usd: float | None
    tree_sha256: str | None
    simulated: bool
    job: str
    recorded_at: str


@dataclass(frozen=True, slots=True)
class ProofRow:
    """A proof text and what was judged of it; `checks` are objects as in `store.events.Check`."""

    proof: str
    sorry: str
    repository: str
    branch: str
    sha: str
    path: str
    blob: str
    byte_start: int
    byte_end: int
    declaration: str
    declaration_text_hash: str
    replacement: str
    tactics: list[str]
    prover: str
    rung: int
    toolchain: str
    simulated: bool
    state: str
    checks: list[dict[str, str]]
    not_checked: list[str]
    axioms: list[str]
    conditional_on: list[str]
    reason: str
    patch_sha256: str | None
    pull_request_url: str | None
    pull_request_at: str | None
    found_at: str
    checked_at: str | None
    job: str


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job at its newest attempt."""

    job: str
    kind: str
    state: str
    attempt: int
    repository: str | None
    branch: str | None
    sha: str | None
    describes: str
    simulated: bool
    started_at: str
    ended_at: str | None
    seconds: float | None
    peak_rss_bytes: int | None
    reason: str
    message: str
    remedy: str
    deterministic: bool
    retry_at: str | None
    summary: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PositionRow:
    """How far the view has read the log; `stopped_reason` says what it could not read, empty if nothing."""

    projection: str
    version: int
    seq: int
    event_id: str
    stopped_seq: int | None
    stopped_reason: str


@dataclass(frozen=True, slots=True)
class Counts:
    """How many of what there is. Every known state is a key, with 0 where there is none.

    Sorrys, theorems, declarations and files count on watched branches only (see `queries.on_watched_branch`): what
    a deleted or unwatched branch had is kept and listed, but is nobody's open work. `theorems` are the declarations
    of kind theorem or lemma; one that stands on two branches counts twice, as files do.
    """

    sorries: dict[str, int]
    proofs: dict[str, int]
    jobs: dict[str, int]
    theorems: int
    declarations: int
    files: int
    simulated_proofs: int


def _decode(value: str) -> Any:
    return json.loads(value)


def columns(cls: type[Any]) -> tuple[str, ...]:
    """Return the columns that a row class is made of, in the order of its fields."""
    return _read_as(cls)[0]  # type: ignore[arg-type] # a class is hashable


def make_all(cls: type[Row], rows: Iterable[sqlite3.Row]) -> list[Row]:
    """Make row objects out of rows that hold `columns(cls)`, in that order."""
    _, conversions = _read_as(cls)  # type: ignore[arg-type] # a class is hashable
    return [
        cls(*(value if to is None else to(value) for to, value in zip(conversions, row, strict=True)))
        for row in rows
    ]


@cache
def _read_as(cls: type[Any]) -> tuple[tuple[str, ...], tuple[Callable[[Any], Any] | None, ...]]:
    """Return a class's columns, and what makes its fields of them: found out once, for plans ask hundreds of times."""
    return (
        tuple(f"{field.name}_json" if _is_json(field.type) else field.name for field in fields(cls)),
        tuple(
            _decode if _is_json(field.type) else bool if field.type == "bool" else None
            for field in fields(cls)
        ),
    )


def _is_json(declared: object) -> bool:
    return str(declared).startswith(("list", "dict"))
