"""The events of jobs and of the work as a whole: starts and ends, pauses, triggers, builds."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import AwareDatetime

from store.events.base import EventBody, Sha

PausedWork = Literal["poll", "train", "prove", "all"]
TriggeredWork = Literal["trace", "train", "prove"]


class JobStarted(EventBody):
    """An attempt begins; written before the process is spawned: no attempt goes unrecorded."""

    type: ClassVar[str] = "job_started"
    job: str
    kind: str
    attempt: int
    repository: str | None
    branch: str | None
    sha: Sha | None
    describes: str


class JobSucceeded(EventBody):
    type: ClassVar[str] = "job_succeeded"
    job: str
    attempt: int
    seconds: float
    peak_rss_bytes: int | None
    summary: dict[str, Any]


class JobFailed(EventBody):
    """An attempt failed. `deterministic`: the same inputs would fail again, so it is not repeated."""

    type: ClassVar[str] = "job_failed"
    job: str
    attempt: int
    reason: str
    message: str
    remedy: str
    deterministic: bool
    retry_at: AwareDatetime | None
    seconds: float
    peak_rss_bytes: int | None


class JobInterrupted(EventBody):
    """The daemon stopped or died while the attempt ran, or the attempt was preempted by other work.

    The plan decides anew whether the work is due.
    """

    type: ClassVar[str] = "job_interrupted"
    job: str
    attempt: int
    reason: str


class JobReleased(EventBody):
    """A user asked for another attempt of a job failed for good, cancelled, or waiting for its next one."""

    type: ClassVar[str] = "job_released"
    job: str


class JobCancelled(EventBody):
    """A user ended a job, or took one off the queue; only a user's release makes it due again.

    `attempt` is the ended one, 0 before the first; then `seconds` and `peak_rss_bytes` are None.
    """

    type: ClassVar[str] = "job_cancelled"
    job: str
    kind: str
    attempt: int
    repository: str | None
    branch: str | None
    sha: Sha | None
    describes: str
    by: str
    seconds: float | None
    peak_rss_bytes: int | None


class WorkPaused(EventBody):
    """From here on no work of this sort begins, until a user resumes it. `all` is every job and every poll."""

    type: ClassVar[str] = "work_paused"
    work: PausedWork
    by: str
    reason: str


class WorkResumed(EventBody):
    """Work of this sort begins again. `all` ends every pause."""

    type: ClassVar[str] = "work_resumed"
    work: PausedWork
    by: str


class WorkTriggered(EventBody):
    """A user wants this work done once in a repository, though nothing there is new enough to make it due."""

    type: ClassVar[str] = "work_triggered"
    work: TriggeredWork
    repository: str
    by: str


class TriggerEnded(EventBody):
    """Nothing began for a trigger, and nothing is left to do for it; `trigger` is its log position."""

    type: ClassVar[str] = "trigger_ended"
    work: TriggeredWork
    repository: str
    trigger: int
    reason: str


class ProjectBuilt(EventBody):
    """A Lake project of a commit was built with its own toolchain and its manifest's dependencies.

    `project` is its folder ("" is the root), `toolchain` the text of its `lean-toolchain`, `dependencies` the
    key of the fetched packages ("" without any). `modules_failed` names the modules without a build. The
    compiled files lie in the cache and are no part of the log: `size_bytes` is their size there.
    """

    type: ClassVar[str] = "project_built"
    repository: str
    branch: str
    sha: Sha
    project: str
    toolchain: str
    dependencies: str
    modules_failed: tuple[str, ...]
    size_bytes: int
    seconds: float
    job: str
