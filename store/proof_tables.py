"""Tables of proving: what was tried on sorrys, the proofs that were found, and how many of them got which verdict."""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import REAL, Integer, Text
from sqlmodel import Field, SQLModel


class Attempt(SQLModel, table=True):
    """What was tried on a sorry; the key is what must change before it is tried again.

    `model` is "" where the prover has none, `tree_sha256` the blob of the search's tree where there is one.
    """

    __tablename__: ClassVar[str] = "attempts"
    sorry: str = Field(primary_key=True, sa_type=Text)
    blob: str = Field(primary_key=True, sa_type=Text)
    prover: str = Field(primary_key=True, sa_type=Text)
    rung: int = Field(primary_key=True, sa_type=Integer)
    model: str = Field(primary_key=True, sa_type=Text)
    budget: str = Field(primary_key=True, sa_type=Text)
    repository: str = Field(sa_type=Text)
    branch: str = Field(sa_type=Text)
    sha: str = Field(sa_type=Text)
    outcome: str = Field(sa_type=Text)
    detail: str = Field(sa_type=Text)
    nodes: int = Field(sa_type=Integer)
    repl_calls: int = Field(sa_type=Integer)
    seconds: float = Field(sa_type=REAL)
    seed: int = Field(sa_type=Integer)
    best: str = Field(sa_type=Text)
    goals_left: int | None = Field(default=None, sa_type=Integer)
    prompt_tokens: int = Field(sa_type=Integer)
    completion_tokens: int = Field(sa_type=Integer)
    usd: float | None = Field(default=None, sa_type=REAL)
    tree_sha256: str | None = Field(default=None, sa_type=Text)
    simulated: int = Field(sa_type=Integer)
    job: str = Field(sa_type=Text)
    recorded_at: str = Field(sa_type=Text)


class Proof(SQLModel, table=True):
    """A proof text for a sorry. `state`: candidate, verified, rejected, conditional.

    candidate with `checked_at` set means: nothing failed, but `not_checked_json` could not be judged here.
    `patch_sha256` is the patch's blob, `pull_request_url` where it was proposed. `simulated` proofs are never verified.
    """

    __tablename__: ClassVar[str] = "proofs"
    proof: str = Field(primary_key=True, sa_type=Text)
    sorry: str = Field(sa_type=Text, index=True)
    repository: str = Field(sa_type=Text)
    branch: str = Field(sa_type=Text)
    sha: str = Field(sa_type=Text)
    path: str = Field(sa_type=Text)
    blob: str = Field(sa_type=Text)
    byte_start: int = Field(sa_type=Integer)
    byte_end: int = Field(sa_type=Integer)
    declaration: str = Field(sa_type=Text)
    declaration_text_hash: str = Field(sa_type=Text)
    replacement: str = Field(sa_type=Text)
    tactics_json: str = Field(sa_type=Text)
    prover: str = Field(sa_type=Text)
    rung: int = Field(sa_type=Integer)
    toolchain: str = Field(sa_type=Text)
    simulated: int = Field(sa_type=Integer)
    state: str = Field(sa_type=Text, index=True)
    checks_json: str = Field(default="[]", sa_type=Text)
    not_checked_json: str = Field(default="[]", sa_type=Text)
    axioms_json: str = Field(default="[]", sa_type=Text)
    conditional_on_json: str = Field(default="[]", sa_type=Text)
    reason: str = Field(default="", sa_type=Text)
    patch_sha256: str | None = Field(default=None, sa_type=Text)
    pull_request_url: str | None = Field(default=None, sa_type=Text)
    pull_request_at: str | None = Field(default=None, sa_type=Text)
    found_at: str = Field(sa_type=Text)
    checked_at: str | None = Field(default=None, sa_type=Text)
    job: str = Field(sa_type=Text)


class ProofTally(SQLModel, table=True):
    """How often a proof was found, and how often each verdict was given on one for the first time.

    `verdict`: found, checked (nothing failed, not all could be judged), verified, rejected. What the simulator found is
    never verified.
    """

    __tablename__: ClassVar[str] = "proof_tallies"
    verdict: str = Field(primary_key=True, sa_type=Text)
    simulated: int = Field(primary_key=True, sa_type=Integer)
    n: int = Field(sa_type=Integer)
