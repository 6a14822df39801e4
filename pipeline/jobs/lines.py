"""Parse the lines of a job, and refuse forbidden ones: a child's output becomes our data here.

Owns the validation of `pipeline.jobs.protocol`'s lines, for the daemon's records and for the server for editors.
Everything here can run on any thread.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ValidationError

from pipeline.jobs.kinds import KINDS, Kind
from pipeline.jobs.spec import Spec
from pipeline.jobs.specs import BumpSpec, CheckSpec, CountSpec, ProveSpec, ScanSpec, TrainSpec
from store.domain.identity import event_id, proof_id
from store.events.base import BlobRef, EventBody
from store.events.models import CheckpointSaved, EvaluationFinished
from store.events.proofs import AttemptFinished, CheckedVersion, ClosureJudged, ProofFound, ProofVerified
from store.events.registry import EVENT_TYPES
from store.log.envelope import NewEvent
from store.view.projections.proofs import why_not_verified
from store.view.trace_queries import branch_line

_MOST = 2**63 - 1


class BadLineError(Exception):
    """A job printed a forbidden line; the message names it. The job is at fault and is ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A job's assignment: the only things it may report on.

    Attributes:
        branch: of the commit; "" if it is no branch's newest.
        project: the folder of its Lake project; "" is the root.
        spec: None while it waits in a plan.
    """

    job: str
    kind: Kind
    attempt: int
    repository: str
    branch: str
    sha: str
    project: str = ""
    spec: Spec | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Progress:
    done: int
    total: int
    note: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Events to append, all or nothing, and the hashes of their payloads."""

    events: tuple[NewEvent, ...]
    cites: frozenset[str]


@dataclass(frozen=True, slots=True)
class Result:
    summary: dict[str, Any]
    peak_rss_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    reason: str
    message: str
    remedy: str
    deterministic: bool = False
    peak_rss_bytes: int | None = None


Line = Progress | Batch | Result | Failure


def parse_line(raw: bytes, *, job: Assignment, last: Result | Failure | None = None) -> Line:
    """Read one line of the job's standard output.

    Args:
        last: the line that ended its output, if any.

    Raises:
        BadLineError: it breaks `pipeline.jobs.protocol`, or is outside the job's assignment.
    """
    if last is not None:
        raise BadLineError(f"{raw[:120]!r}: comes after the last line (result or failure)")
    try:
        content = json.loads(raw)
        if not isinstance(content, dict):
            raise ValueError("not an object")
        match content.get("line"):
            case "progress":
                return Progress(int(content["done"]), int(content["total"]), str(content["note"])[:200])
            case "result":
                return Result(dict(content["summary"]), _size(content.get("peak_rss_bytes")))
            case "failure":
                return Failure(
                    reason=str(content["reason"])[:100],
                    message=str(content["message"])[:2000],
                    remedy=str(content["remedy"])[:500],
                    deterministic=content["deterministic"] is True,
                    peak_rss_bytes=_size(content.get("peak_rss_bytes")),
                )
            case "events":
                return _batch(content["events"], job=job)
            case other:
                raise ValueError(f"line {str(other)[:50]!r}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        raise BadLineError(f"{raw[:120]!r}: {reason}") from error


def _size(value: Any) -> int | None:
    return None if value is None else int(value)


def _batch(items: Any, *, job: Assignment) -> Batch:
    if not isinstance(items, list) or not items:
        raise ValueError("events is no list, or empty")
    events = tuple(_event(item, job=job) for item in items)
    cites = frozenset(digest for event in events for digest in _cited(event.body))
    return Batch(events, cites)


def _event(item: Any, *, job: Assignment) -> NewEvent:
    kind = str(item["type"])
    if kind not in KINDS[job.kind].may_record:
        raise ValueError(f"a {job.kind} job may not record {kind!r}")
    cls = EVENT_TYPES[kind]
    if item["schema_version"] != cls.schema_version:
        raise ValueError(
            f"{kind} version {item['schema_version']!r}, this version writes {cls.schema_version}"
        )
    try:
        # By way of JSON text: strings become tuples and times exactly as in the log's reading.
        body = cls.model_validate_json(json.dumps(item["data"]))
    except ValidationError as error:
        raise ValueError(f"{kind}: {error}") from error
    _check_body(body, job=job)
    occurred_at = datetime.fromisoformat(item["occurred_at"]) if item.get("occurred_at") else None
    if occurred_at is not None and occurred_at.tzinfo is None:
        raise ValueError(f"{kind}: occurred_at has no time zone")
    return NewEvent(
        _stream(str(item["stream"]), body, job=job),
        body,
        event_id=_occasion(str(UUID(item["event_id"])), job=job),
        occurred_at=occurred_at,
        correlation_id=job.job,
        causation_id=_started(job.job, job.attempt),
        actor=f"job:{job.job}",
    )


@lru_cache(maxsize=512)
def _started(job: str, attempt: int) -> str:
    return event_id("job_started", job, str(attempt))


def _occasion(natural: str, *, job: Assignment) -> str:
    """Distinguish the scans of one commit: a branch forced back to a commit is scanned there again.

    The job's id identifies the scan (it hashes the position of the observation), so a second attempt of the same scan
    repeats the first one's event ids. A prover's finding is the same in any job; a checker names its job itself, since
    a proof is judged again on another commit.
    """
    return event_id("scan", job.job, natural) if job.kind == "scan" else natural


def _check_body(body: EventBody, *, job: Assignment) -> None:
    """Refuse facts beyond the job's repository, commit and self, or better than its means."""
    said = vars(body)  # asking a pydantic model for a missing field is slow
    spoken_of = said.get("repository", job.repository)
    # A new checkpoint is measured on earlier tasks too, from other repositories.
    tasks = job.spec.tasks if isinstance(job.spec, TrainSpec) else ()
    if spoken_of not in {job.repository, *(task.name for task in tasks)}:
        raise ValueError(f"{body.type}: repository is {spoken_of!r} and not {job.repository!r}")
    for name, value in said.items():
        # The database's tables hold no larger number, and the log's numbers go into them unchanged.
        if isinstance(value, int) and not -_MOST <= value <= _MOST:
            raise ValueError(f"{body.type}: {name} is {str(value)[:30]}, more than a table can hold")
    # A scan goes on with the next commits, and counts for other branches at the same commit.
    alike = job.spec.alike if isinstance(job.spec, ScanSpec) else ()
    then = job.spec.then if isinstance(job.spec, ScanSpec) else ()
    if isinstance(job.spec, CountSpec):
        then = job.spec.commits
    for name, ours, more in (
        ("branch", job.branch, alike),
        ("sha", job.sha, then),
        ("job", job.job, ()),
        ("project", job.project, ()),
    ):
        if (spoken := said.get(name, ours)) != ours and spoken not in more:
            raise ValueError(f"{body.type}: {name} is {spoken!r} and not {ours!r}")
    if job.kind in ("scan", "count", "build"):
        return
    if (spoken := said.get("line", line := branch_line(job.branch, job.project))) != line:
        raise ValueError(f"{body.type}: line is {spoken!r} and not {line!r}")
    if body.type == "traced_file_removed":
        return  # it has no facts about Lean
    match job.kind:
        case "prove" | "check":
            _check_proof(body, job=job)
        case "bump":
            _check_bump(body, job=job)
        case "train" | "train_tactics" | "train_grpo" | "train_progress":
            _check_model(body, job=job)


def _check_proof(body: EventBody, *, job: Assignment) -> None:
    """Refuse facts of a prover about other sorries than its own, and of a checker about other proofs."""
    said = vars(body)
    sorry, proof = said.get("sorry"), said.get("proof")
    if job.kind == "prove":
        spec = job.spec
        if not isinstance(spec, ProveSpec):
            raise ValueError(f"{body.type}: the job was given no sorry")
        blob = said.get("blob")
        if not any(one.sorry == sorry and one.blob == blob for one in spec.sorries):
            raise ValueError(f"{body.type}: sorry {sorry!r} of this blob is none that the job was given")
        for name, ours in (
            ("prover", spec.prover),
            ("rung", spec.rung.number),
            ("model", spec.model),
            ("seed", spec.seed),
        ):
            if (spoken := said.get(name, ours)) != ours:
                raise ValueError(f"{body.type}: {name} is {spoken!r} and not {ours!r}")
        if said.get("budget", ours := spec.budget_key) != ours:
            raise ValueError(f"{body.type}: budget is not the one that the job was given, {ours!r}")
        if isinstance(body, AttemptFinished):
            _check_effort(body)
        if isinstance(body, ProofFound) and proof != proof_id(
            body.sorry, body.blob, body.replacement, body.parts
        ):
            raise ValueError(f"{body.type}: {proof!r} is not the id of this replacement")
        return
    texts = job.spec.texts if isinstance(job.spec, CheckSpec) else ()
    known = (one.proof for text in texts for one in text.proofs)
    judged = next((one for one in known if (one.proof, one.sorry) == (proof, sorry)), None)
    if judged is None:
        raise ValueError(
            f"{body.type}: proof {proof!r} of sorry {sorry!r} is not the one that the job was given"
        )
    if isinstance(body, ProofVerified | ClosureJudged):
        if not (isinstance(job.spec, CheckSpec) and job.spec.lean.is_lean):
            raise ValueError(f"{body.type}: the job was given no Lean that could verify it")
        if body.toolchain != job.spec.lean.toolchain:
            raise ValueError(f"{body.type}: {body.toolchain!r} judged, and the job was given another Lean")
    if isinstance(body, ProofVerified):
        _check_verified(body, judged=judged)


def _check_verified(body: ProofVerified, *, judged: ProofFound) -> None:
    """Refuse a verification of another version, or without every required check."""
    version = CheckedVersion(sha=judged.sha, blob=judged.blob, byte_start=judged.byte_start)
    if body.version != version:
        raise ValueError(f"{body.type}: it is about {body.version}, and the job was given {version}")
    if (why := why_not_verified(body)) is not None:
        raise ValueError(f"{body.type}: {why}")


def _check_bump(body: EventBody, *, job: Assignment) -> None:
    """Refuse facts of a bump about another bump."""
    if not isinstance(job.spec, BumpSpec):
        raise ValueError(f"{body.type}: the job was given no bump")
    for name in ("bump", "toolchain", "package", "rev"):
        if getattr(body, name, ours := getattr(job.spec, name)) != ours:
            raise ValueError(f"{body.type}: {name} is {getattr(body, name)!r} and not {ours!r}")


def _check_effort(body: AttemptFinished) -> None:
    """Refuse negative amounts: they would be credited to the day's budget."""
    for name in ("goals_left", "nodes", "repl_calls", "seconds", "prompt_tokens", "completion_tokens", "usd"):
        value = getattr(body, name)
        if value is not None and value < 0:
            raise ValueError(f"{body.type}: {name} is {value!r}, less than nothing")


def _check_model(body: EventBody, *, job: Assignment) -> None:
    """Refuse facts of a training about another model, or a checkpoint on another parent than its own."""
    if not isinstance(job.spec, TrainSpec):
        raise ValueError(f"{body.type}: the job was given no model")
    for name, ours in (("model", KINDS[job.kind].model), ("parent", job.spec.parent)):
        if getattr(body, name, ours) != ours:
            raise ValueError(f"{body.type}: {name} is {getattr(body, name)!r} and not {ours!r}")


def _stream(stream: str, body: EventBody, *, job: Assignment) -> str:
    if isinstance(body, CheckpointSaved | EvaluationFinished):
        allowed = {f"model:{body.model}"}
    else:
        allowed = {f"repository:{job.repository}"}
    if proof := vars(body).get("proof"):
        allowed.add(f"proof:{proof}")
    if stream not in allowed:
        raise ValueError(f"{body.type}: stream {stream!r} is none of {', '.join(sorted(allowed))}")
    return stream


def _cited(body: BaseModel) -> set[str]:
    return {value.sha256 for value in vars(body).values() if isinstance(value, BlobRef)}
