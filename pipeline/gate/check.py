"""The check job: runs the gate on proofs of one commit.

`python -m pipeline.gate.check --spec spec.json`, with a `CheckSpec` as parameters, emits one of proof_verified,
proof_checked (nothing failed, something could not be judged) and proof_rejected for each sorry a text fills. The
commit's further texts share the worktree, reset before each.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.gate.patch import PatchHeader, build_patch
from pipeline.gate.verdict import Gate, Verdict
from pipeline.jobs.child import LONGEST_LINE_BYTES
from pipeline.jobs.lean import hold_that_it_is_lean
from pipeline.jobs.protocol import JobError, JobSpec, Recorded, Reporter, run_job
from pipeline.jobs.specs import ACCEPTED_KEYS, CheckSpec, JudgedText, SearchOrigin, what_is_judged
from pipeline.lean.build.build_cache import BuildInUse, BuildKey, BuildMissingError, attach
from pipeline.lean.sandbox.command import SandboxError
from pipeline.lean.source.worktree import read_inside
from store.documents.statements import statement_facts
from store.domain.identity import git_blob
from store.events.base import BlobRef
from store.events.projects import inside
from store.events.proofs import (
    CheckedVersion,
    ClosureJudged,
    ProofChecked,
    ProofFound,
    ProofRejected,
    ProofVerified,
)
from store.text import cut

_IN_A_PATCH = 600
"""Characters of a statement: the patch becomes a commit's message."""
TOGETHER_S = 20.0
"""Seconds in which further texts begin: other repositories wait for the slot."""
_AT_ONCE = 5000
"""Keys of accepted modules and exports in one event: a megabyte."""


def work(spec: JobSpec[CheckSpec], reporter: Reporter) -> dict[str, Any]:
    """Check the texts one after the other, and record each verdict at once.

    The job belongs to the first text, and fails if that cannot be judged. Other texts without a verdict, and those out
    of time, each get a job of their own.
    """
    parameters = spec.parameters
    for text in parameters.texts:
        _hold_that_it_is_one_text(text)
    hold_that_it_is_lean(parameters.lean)
    ends = time.monotonic() + TOGETHER_S
    reporter.progress(0, len(parameters.texts), parameters.proof.declaration)
    known = set(spec.input(ACCEPTED_KEYS).read_text("ascii").split() if ACCEPTED_KEYS in spec.inputs else ())
    first = _judge(spec, reporter, parameters, known)
    judged = 1
    for number, text in enumerate(parameters.then, start=1):
        if time.monotonic() >= ends:
            break
        reporter.progress(number, len(parameters.texts), text.proof.declaration)
        try:
            with _build_of_its_own(spec):
                _judge(spec, reporter, text, known)
        except JobError as error:
            print(f"left to a job of its own: {error}", file=sys.stderr)  # noqa: T201 - the job's log
        else:
            judged += 1
    reporter.progress(judged, len(parameters.texts), parameters.proof.declaration)
    return {**first, "judged": judged}


def _build_of_its_own(spec: JobSpec[CheckSpec]) -> BuildInUse:
    """Restore the commit's build as for a new job: a build runs code, which may write all over `.lake`.

    The sandbox lets it write nowhere else, and the file itself is restored already.
    """
    parameters = spec.parameters
    if parameters.cache is None:
        raise JobError("no_cache", "the job was not told where the build is", deterministic=True)
    key = BuildKey(parameters.proof.repository, parameters.proof.sha, parameters.folder)
    try:
        return attach(spec.place, parameters.cache, key)
    except BuildMissingError as error:
        raise JobError("build_missing", str(error), remedy="nothing: it is built again") from error


def _hold_that_it_is_one_text(text: JudgedText) -> None:
    for other in text.alike:
        if what_is_judged(other.proof) != what_is_judged(text.proof):
            raise JobError(
                "other_text",
                f"proof {other.proof.proof} is not the text of proof {text.proof.proof}: one verdict cannot be of both",
                remedy="check each by itself",
                deterministic=True,
            )


def _judge(spec: JobSpec[CheckSpec], reporter: Reporter, text: JudgedText, known: set[str]) -> dict[str, Any]:
    """Judge a text and record its verdict for each sorry it fills; return a summary.

    `known` are the keys kernels accepted before; new ones are added.
    """
    given, proof = spec.parameters, text.proof
    before = _file_at_commit(spec.place, proof)
    # The gate asks about a file of the project; the records have the repository's paths.
    in_project = proof.model_copy(update={"path": inside(proof.path, given.folder)})
    gate = Gate(
        in_project,
        given.lean,
        spec.project(given.folder),
        before,
        given.second_kernel,
        given.folder,
        frozenset(known),
        given.cache,
    )
    try:
        verdict = gate.run()
    except SandboxError as error:
        raise JobError(
            "lean_failed", f"proof {proof.proof} could not be judged: {error}", remedy="see `everlean doctor`"
        ) from error
    verdicts = [
        _conclusion(spec, reporter, replace(gate, proof=one.proof), verdict, model_of(one.search))
        for one in text.proofs
    ]
    below = enumerate(_found_below(spec, reporter, text, verdict))
    bodies: list[tuple[tuple[str, ...], ProofVerified | ProofChecked | ProofRejected | ClosureJudged]] = []
    bodies += [((one.proof, spec.job), one) for one in verdicts]
    bodies += [((one.proof, spec.job, str(number)), one) for number, one in below]
    # In one batch where they fit: a proof without its verdict for a moment would be planned for another check.
    longest = max(len(json.dumps(one.model_dump(mode="json"))) for _, one in bodies)
    at_once = max(1, LONGEST_LINE_BYTES // 2 // longest)
    for start in range(0, len(bodies), at_once):
        reporter.events(
            Recorded(f"proof:{one.proof}", one, key) for key, one in bodies[start : start + at_once]
        )
    known.update(one.key for one in verdict.facts.accepted)
    return {"proof": proof.proof, "verdict": verdicts[0].type, "not_checked": list(verdict.not_checked)}


def _found_below(
    spec: JobSpec[CheckSpec], reporter: Reporter, text: JudgedText, verdict: Verdict
) -> Iterator[ClosureJudged]:
    """Yield the events about the constants below a text; none if Lean did not come so far."""
    if verdict.facts.rests is None:
        return
    payload = json.dumps(verdict.facts.rests, ensure_ascii=False, separators=(",", ":")).encode()
    first = ClosureJudged(
        proof=text.proof.proof,
        sorry=text.proof.sorry,
        repository=text.proof.repository,
        sha=text.proof.sha,
        toolchain=spec.parameters.lean.toolchain,
        rests_on=reporter.stage(payload),
        accepted=verdict.facts.accepted[:_AT_ONCE],
        replayed=verdict.facts.replayed,
        known=verdict.facts.known,
        job=spec.job,
    )
    yield first
    nothing_more = {"accepted": (), "replayed": 0, "known": 0}
    for start in range(_AT_ONCE, len(verdict.facts.accepted), _AT_ONCE):
        yield first.model_copy(
            update={**nothing_more, "accepted": verdict.facts.accepted[start : start + _AT_ONCE]}
        )
    for one in text.alike:
        about = {"proof": one.proof.proof, "sorry": one.proof.sorry}
        yield first.model_copy(update={**nothing_more, **about})


def _file_at_commit(project: Path, proof: ProofFound) -> bytes:
    """Read the file, and refuse another version than the proof's."""
    file = project / proof.path
    if not file.resolve().is_relative_to(project.resolve()):
        raise JobError("outside_worktree", f"{proof.path} leaves the worktree", deterministic=True)
    if any(
        one.is_symlink() for one in (file, *file.parents) if one.is_relative_to(project) and one != project
    ):
        raise JobError(
            "linked_file",
            f"{proof.path} is a link, or lies behind one: what would be built is not what the commit has there",
            remedy="fill the sorry in the file itself",
            deterministic=True,
        )
    try:
        data = read_inside(project, proof.path)
    except OSError as error:
        raise JobError(
            "no_file", f"{file}: {error.strerror}", remedy="the worktree has to be made anew"
        ) from error
    if git_blob(data, like=proof.blob) != proof.blob:
        raise JobError(
            "other_version",
            f"{proof.path} in the worktree is not blob {proof.blob}",
            remedy=f"check out commit {proof.sha}",
        )
    return data


def model_of(search: SearchOrigin | None) -> str:
    """Return the name of a proof's model, for its patch; "" without one."""
    if search is None or not search.weights:  # a model without our checkpoint is known by its name alone
        return "" if search is None else search.model
    return f"{search.model} (weights{' of the retriever' if '+' in search.model else ''} sha256:{search.weights})"


def _conclusion(
    spec: JobSpec[CheckSpec], reporter: Reporter, gate: Gate, verdict: Verdict, model: str
) -> ProofVerified | ProofChecked | ProofRejected:
    proof = gate.proof
    checks = tuple(verdict.checks)
    if verdict.failed is not None:
        return ProofRejected(
            proof=proof.proof,
            sorry=proof.sorry,
            step=verdict.failed.step,
            reason=verdict.failed.evidence,
            checks=checks,
            conditional_on=verdict.conditional_on,
            job=spec.job,
        )
    verified = verdict.all_required_passed and gate.backend.is_lean
    patch = _patch(reporter, gate, verdict, model, verified=verified)
    if verified:
        return ProofVerified(
            proof=proof.proof,
            sorry=proof.sorry,
            checks=checks,
            not_checked=verdict.not_checked,
            axioms=verdict.facts.axioms,
            grade=verdict.facts.grade,
            kernel=verdict.kernel,
            version=CheckedVersion(sha=proof.sha, blob=proof.blob, byte_start=proof.byte_start),
            patch=patch,
            job=spec.job,
            toolchain=gate.backend.toolchain,
            material=verdict.facts.material,
        )
    return ProofChecked(
        proof=proof.proof,
        sorry=proof.sorry,
        checks=checks,
        not_checked=verdict.not_checked,
        disagreement=verdict.facts.disagreement,
        patch=patch,
        job=spec.job,
    )


def _statements(verdict: Verdict) -> tuple[tuple[str, str], ...]:
    """Return the patch's lines on the statement: its words, and Lean's reading of them. The event has all of it."""
    if verdict.facts.material is None:
        return ()
    facts = statement_facts(*verdict.facts.material.statement_parts)
    return tuple((name[0].upper() + name[1:], cut(text, _IN_A_PATCH)) for name, text in facts.items())


def _patch(
    reporter: Reporter,
    gate: Gate,
    verdict: Verdict,
    model: str,
    *,
    verified: bool,
) -> BlobRef:
    proof = gate.proof
    # The Lean that judged, not always the one of the search.
    judge = gate.backend.toolchain if gate.backend.is_lean else "none: no Lean judged it"
    header = PatchHeader(
        sorry=proof.sorry,
        proof=proof.proof,
        repository=proof.repository,
        sha=proof.sha,
        declaration=proof.declaration,
        prover=f"{proof.prover}, rung {proof.rung}, job {proof.job}",
        statements=_statements(verdict),
        model=model,
        toolchain=judge,
        verified=verified,
        grade=verdict.facts.grade,
        kernel=verdict.kernel,
        axioms=verdict.facts.axioms,
        not_checked=verdict.not_checked,
    )
    after = gate.after
    blobs = (proof.blob, git_blob(after, like=proof.blob))
    return reporter.stage(build_patch(header, path=proof.path, before=gate.before, after=after, blobs=blobs))


if __name__ == "__main__":
    sys.exit(run_job(CheckSpec, work))
