"""Specifications of jobs for tests: made of plain values, read as the job reads them; and those of planned jobs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import RootModel
from pydantic_core import to_jsonable_python

from daemon.jobs.due import DueJob
from pipeline.jobs.protocol import JobSpec
from pipeline.jobs.spec import Spec
from pipeline.jobs.specs import Budget, CuratedRung, ProveSpec, SorryToProve
from pipeline.lean.backend import LeanBackend
from pipeline.lean.pool import PoolLimits
from tests.support.events import BRANCH, REPOSITORY

S = TypeVar("S", bound=Spec)
A_LEAN = LeanBackend("server", ("/nonexistent/lean",), "a Lean", "", sandbox="none")
"""Nothing starts it."""


class Raw(RootModel[dict[str, Any]]):
    """Parameters as a specification file has them, malformed ones among them."""


def raw_spec(
    kind: str, parameters: Mapping[str, Any], folder: Path, *, job: str = "", attempt: int = 1
) -> JobSpec[Raw]:
    """Return a specification with these parameters; "worktree" and "mirror" among them are the job's places."""
    plain = to_jsonable_python(dict(parameters))
    worktree, mirror = (Path(plain.pop(name)) if name in plain else None for name in ("worktree", "mirror"))
    return JobSpec(job or f"{kind}-1", kind, attempt, folder, Raw(plain), worktree=worktree, mirror=mirror)


def job_spec(
    cls: type[S], kind: str, parameters: Mapping[str, Any], folder: Path, *, job: str = "", attempt: int = 1
) -> JobSpec[S]:
    """Return the specification as the job of this class reads it.

    Raises:
        JobError: it cannot be read.
    """
    spec = raw_spec(kind, parameters, folder, job=job, attempt=attempt)
    plain = spec.parameters.root
    about = (spec.job, spec.kind, spec.attempt, spec.directory)
    return JobSpec(*about, plain, worktree=spec.worktree, mirror=spec.mirror).of(cls)


def search_spec(*sorries: SorryToProve, sha: str) -> ProveSpec:
    """Return a search of rung 0."""
    return ProveSpec(
        repository=REPOSITORY,
        branch=BRANCH,
        sha=sha,
        lean=A_LEAN,
        limits=PoolLimits(),
        rung=CuratedRung(),
        budget=Budget(1, 1.0, 1.0),
        budget_key="small",
        parallel=1,
        sorries=sorries,
    )


def asked(job: DueJob, cls: type[S]) -> S:
    """Return the specification of a planned job, which is of this class."""
    assert isinstance(job.spec, cls)
    return job.spec
