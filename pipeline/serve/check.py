"""POST /check: the gate's verdict on a proof in a file.

The gate is the daemon's check job (`pipeline.gate.check`) with the planner's parameters, in its own process and
sandbox. The response is the job's event; nothing is recorded. The verdict is "accepted" only if that event is
`proof_verified`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pipeline.gate.advisories import FeedError, against, known, witnesses
from pipeline.jobs.lines import Failure
from pipeline.jobs.specs import CheckSpec, SearchOrigin
from pipeline.lean.backend import LeanBackend
from pipeline.lean.source.splice import MOST_TOGETHER, JoinError, Replacement, join_submitted, text_hash_with
from pipeline.serve.checkouts import (
    Checkout,
    Commit,
    File,
    SorryFound,
    SorryPlace,
    known_sorry,
    source_path,
    watched,
)
from pipeline.serve.schemas import Problem
from pipeline.serve.workspace import Workspace, job
from store.documents.grades import doubt_text
from store.domain.identity import proof_id
from store.domain.records import Sorry
from store.events.proofs import Check, Grade, ProofChecked, ProofFound, ProofRejected, ProofVerified
from store.view.rows import SorryRow

Judged = Literal["accepted", "rejected", "unknown"]
Verdict = ProofVerified | ProofChecked | ProofRejected

ADVICE = "advice to the client: nothing of it is recorded, and the daemon judges for itself"
CLIENT = "client"
"""The prover's name for a client's proof."""
MOST_TEXT = 1_000_000


class LeanRequest(BaseModel):
    """A file of a watched repository, as a commit has it or as the client does."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    repository: Annotated[str, Field(min_length=1, max_length=500)] = Field(
        description="Its key, such as github.com/owner/name."
    )
    commit: Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")] | None = Field(
        default=None,
        description="The whole id; without one the newest that is built, else the newest that is scanned.",
    )
    branch: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(
        default=None, description="The branch whose newest commit is used, if `commit` is missing."
    )
    path: Annotated[str, Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="Of the file, relative to the repository's root."
    )
    text: Annotated[str, Field(max_length=MOST_TEXT)] | None = Field(
        default=None,
        description="The whole file as the client has it, the sorry in it; without one, the commit's.",
    )
    sorry: SorryPlace | None = Field(
        default=None, description="Which sorry of the file; may be left out where there is one."
    )


ProofText = Annotated[str, Field(min_length=1, max_length=MOST_TEXT)]


class SorryProof(BaseModel):
    """Another sorry of the same declaration, and its replacement."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    sorry: SorryPlace
    proof: ProofText


class CheckRequest(LeanRequest):
    """A file with a sorry, and the replacement of the sorry; others of its declaration may be filled with it."""

    proof: ProofText = Field(description="Takes the place of the word sorry, byte for byte.")
    others: tuple[SorryProof, ...] = Field(
        default=(),
        max_length=MOST_TOGETHER - 1,
        strict=False,
        description="Proofs of other sorries of the same declaration: one text with all of them is judged.",
    )


class Finding(BaseModel):
    """The finding of one check, and its judge."""

    model_config = ConfigDict(frozen=True)

    step: Literal["text", "shape", "compile", "axioms", "statement", "kernel"]
    verdict: Literal["passed", "failed", "not_checked"]
    by: str
    evidence: str


class Judgement(BaseModel):
    """The gate's verdict on a proof."""

    model_config = ConfigDict(frozen=True)

    verdict: Judged = Field(
        description="accepted: Lean took it and every required check passed; rejected: a check failed; unknown: "
        "nothing failed, and not everything could be judged."
    )
    reason: str = Field(description="Why it was not accepted; empty where it was.")
    remedy: str = Field(description="What to do about that; may be empty.")
    findings: list[Finding] = Field(description="The checks that were made, in their order.")
    not_checked: list[str] = Field(description="Checks that could not be made; their findings say why.")
    axioms: list[str] = Field(description="What the proof rests on, where it was accepted.")
    grade: Grade | None = Field(
        description="How far kernels judged what the proof rests on, where it was accepted: L0, not all of "
        "it; L1, all of it; L2, all kernels that come with its Lean accept it."
    )
    kernel: str = Field(description="The programs that replayed it; empty where none did.")
    in_doubt: str = Field(
        description="Why nobody vouches for a proof: its kernels all have known faults, or do not agree; else empty."
    )
    conditional_on: list[str] = Field(description="Declarations with a sorry that it rests on.")
    toolchain: str = Field(description="Of the Lean that judged; empty where none did.")
    seconds: float


class Judging(BaseModel):
    """The judged proof."""

    model_config = ConfigDict(frozen=True)

    repository: str
    branch: str = Field(description="Empty where the commit is not the newest of one.")
    commit: str
    path: str
    file: Literal["commit", "sent"] = Field(description="Whose text it is.")
    blob: str = Field(description="Git's id of the text.")


class FilledSorry(BaseModel):
    """A sorry filled by the judged text."""

    model_config = ConfigDict(frozen=True)

    sorry: SorryFound
    proof: str = Field(description="The id under which the daemon would know it.")


class CheckResponse(Judgement, Judging, FilledSorry):
    """The gate's verdict on one text."""

    others: list[FilledSorry] = Field(description="The other sorries that it fills, with the same verdict.")
    advisory: str = ADVICE


async def check(workspace: Workspace, asked: CheckRequest) -> CheckResponse:
    """Answer a request.

    Raises:
        Problem: the request names something missing or ambiguous.
    """
    commit, path, known = await place_of(workspace, asked)
    async with workspace.lean, workspace.checkout(commit, path=path, text=asked.text, proof=True) as result:
        # A long file takes a while to read, and others are answered meanwhile.
        file = await asyncio.to_thread(File.read, asked.repository, path, result.data, known=known)
        parts = [(file, file.one(asked.sorry), asked.proof)]
        for other in asked.others:
            row = await _sorry_row(workspace, asked, commit, other.sorry)
            seen_so = replace(file, known=row)
            parts.append((seen_so, seen_so.one(other.sorry), other.proof))
        found = await asyncio.to_thread(_candidates, result, parts)
        judgement = await judge(workspace, result, found[0], search=None)
        filled = [
            FilledSorry(sorry=known_so.described(sorry), proof=one.proof)
            for (known_so, sorry, _), one in zip(parts, found, strict=True)
        ]
        return CheckResponse(
            **judgement.model_dump(),
            **judging(result, file).model_dump(),
            **dict(filled[0]),
            others=filled[1:],
        )


async def place_of(workspace: Workspace, asked: LeanRequest) -> tuple[Commit, str, SorryRow | None]:
    """Find the commit and the file of a request, and the view's row of the sorry if its id is given.

    Raises:
        Problem: the repository, commit or sorry is unknown, or no file is named.
    """
    watched(workspace.spec.lean, asked.repository)
    path = None if asked.path is None else source_path(asked.path)
    if path is None and (asked.sorry is None or asked.sorry.id is None):
        raise Problem(422, "no_path", "no file is named", "give path, or sorry.id")
    commit = await workspace.commit(repository=asked.repository, branch=asked.branch, sha=asked.commit)
    known = await _sorry_row(workspace, asked, commit, asked.sorry)
    if path is None:
        assert known is not None
        path = source_path(known.path)
    return commit, path, known


async def _sorry_row(
    workspace: Workspace, asked: LeanRequest, commit: Commit, place: SorryPlace | None
) -> SorryRow | None:
    """Return the view's row of a sorry with a given id.

    Raises:
        Problem: no sorry has this id.
    """
    if place is None or place.id is None:
        return None
    return await asyncio.to_thread(
        known_sorry,
        workspace.spec.view,
        repository=asked.repository,
        sorry=place.id,
        branch=commit.branch or asked.branch,
    )


def judging(made: Checkout, file: File) -> Judging:
    """Describe the file to be judged."""
    return Judging(
        repository=made.commit.repository.key,
        branch=made.commit.branch,
        commit=made.commit.sha,
        path=made.path,
        file="sent" if made.sent else "commit",
        blob=file.blob(like=made.commit.sha),
    )


def _candidates(made: Checkout, parts: Sequence[tuple[File, Sorry, str]]) -> list[ProofFound]:
    """Return a client's text as candidates for the gate, one for each sorry it fills.

    Raises:
        Problem: 422, the sorries are of several declarations, one is filled twice, or the texts are too large together.
    """
    file, first, _ = parts[0]
    for _, other, _ in parts:
        if other.index != first.index:
            raise Problem(
                422,
                "other_declaration",
                f"a sorry of {other.declaration} (line {other.line}) is none of {first.declaration}",
                "ask about each declaration by itself",
            )
    try:
        text = join_submitted(
            file.data, [Replacement(one.byte_start, one.byte_end, proof) for _, one, proof in parts]
        )
    except JoinError as error:
        raise Problem(422, error.reason, error.message, error.remedy) from error
    text_hash = text_hash_with(file.data, file.path, text)
    blob = file.blob(like=made.commit.sha)
    return [
        _proof(
            made,
            text,
            sorry=seen_so.id_of(sorry),
            declaration=sorry.declaration,
            blob=blob,
            text_hash=text_hash,
        )
        for seen_so, sorry, _ in parts
    ]


def _proof(
    made: Checkout, text: Replacement, *, sorry: str, declaration: str, blob: str, text_hash: str
) -> ProofFound:
    return ProofFound(
        proof=proof_id(sorry, blob, text.text, text.parts),
        sorry=sorry,
        repository=made.commit.repository.key,
        branch=made.commit.branch,
        sha=made.commit.sha,
        path=made.path,
        blob=blob,
        byte_start=text.byte_start,
        byte_end=text.byte_end,
        declaration=declaration,
        declaration_text_hash=text_hash,
        replacement=text.text,
        parts=text.parts,
        tactics=(),
        prover=CLIENT,
        rung=0,
        toolchain=made.lean.toolchain,
        job=CLIENT,
    )


async def judge(
    workspace: Workspace, made: Checkout, proof: ProofFound, *, search: SearchOrigin | None
) -> Judgement:
    """Judge a proof in a checkout by the gate: the check job, with the planner's parameters.

    Args:
        search: the search behind it, for the patch's header.
    """
    kernel = workspace.spec.lean.second_kernel
    spec = CheckSpec(
        lean=made.lean, search=search, proof=proof, second_kernel=kernel, cache=workspace.spec.lean.cache
    )
    began, verdict = time.monotonic(), None
    async with (
        workspace.folder() as folder,
        job(
            spec,
            kind="check",
            commit=made.commit,
            worktree=made.worktree,
            folder=folder,
            memory_bytes=workspace.spec.lean.memory_bytes,
        ) as running,
    ):
        async for body in running.events():
            if isinstance(body, ProofVerified | ProofChecked | ProofRejected):
                verdict = body
    doubt = ""
    if isinstance(verdict, ProofChecked):
        doubt = verdict.disagreement
    elif isinstance(verdict, ProofVerified):
        doubt = await asyncio.to_thread(_doubt, verdict, made.lean.toolchain, workspace.spec.lean.advisories)
    return _judgement(verdict, running.failed, made.lean, doubt=doubt, seconds=time.monotonic() - began)


def _doubt(verdict: ProofVerified, toolchain: str, setting: str) -> str:
    try:
        faults = against(witnesses(verdict.grade, verdict.kernel, toolchain), known(setting))
    except FeedError as error:
        return f"the known faults of kernels cannot be read: {error}"
    return doubt_text([one.id for one in faults])


def _judgement(
    verdict: Verdict | None, failed: Failure | None, lean: LeanBackend, *, doubt: str, seconds: float
) -> Judgement:
    """Translate the end of a check job into a judgement: without a final event the verdict is unknown."""
    judged, reason, remedy = _words(verdict, failed, lean)
    checks: tuple[Check, ...] = () if verdict is None else verdict.checks
    return Judgement(
        verdict=judged,
        reason=reason,
        remedy=remedy,
        findings=[Finding.model_validate(one.model_dump()) for one in checks],
        not_checked=list(dict.fromkeys(one.step for one in checks if one.verdict == "not_checked")),
        axioms=list(verdict.axioms) if isinstance(verdict, ProofVerified) else [],
        grade=verdict.grade if isinstance(verdict, ProofVerified) else None,
        kernel=verdict.kernel if isinstance(verdict, ProofVerified) else "",
        in_doubt=doubt,
        conditional_on=list(verdict.conditional_on) if isinstance(verdict, ProofRejected) else [],
        toolchain=lean.toolchain,
        seconds=round(seconds, 3),
    )


def _words(verdict: Verdict | None, failed: Failure | None, lean: LeanBackend) -> tuple[Judged, str, str]:
    if isinstance(verdict, ProofRejected):
        return "rejected", verdict.reason, ""
    if failed is not None or verdict is None:
        failure = failed or Failure(
            "no_verdict", "the check ended without a verdict", "see `everlean doctor`"
        )
        return "unknown", f"{failure.reason}: {failure.message}", failure.remedy
    if isinstance(verdict, ProofVerified):
        return "accepted", "", ""
    if lean.kind == "none":
        return (
            "unknown",
            f"no Lean judged it: {lean.detail}",
            "ask again when it is there; see `everlean doctor`",
        )
    if verdict.disagreement:
        return "unknown", verdict.disagreement, "the findings say why"
    return "unknown", "nothing failed, and not everything could be judged", "the findings say why"
