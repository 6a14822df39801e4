"""Problems: obstacles to the daemon's work, each with its stable code and its remedy.

Every report of problems shows these. Here are those in the view; `daemon.health.problems` has those of the
process or its machine. docs/operations.md lists the codes, generated from the docstrings below them: the
first sentence is the problem, the others the remedy.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from store.documents.grades import doubt_reason, doubt_remedy
from store.documents.jobs import try_again
from store.documents.repositories import HEALTHY_STATES, Repository, because, projects_missing
from store.text import ago, clean, counted, headline, listed
from store.view.rows import (
    LARGER,
    JobRow,
    NotifierRow,
    PauseRow,
    ProofRow,
    ServiceRow,
    too_large_text,
)

FAILED_JOBS_NAMED = 5
PROJECTS_NAMED = 3


class ProblemCode(enum.StrEnum):
    """The problems of a status. Programs may rely on the codes; links go to docs/operations.md."""

    DAEMON_NOT_RUNNING = "daemon_not_running"
    """no process holds the state folder. `sudo systemctl start everlean`; then `journalctl -u everlean -n 50`."""
    DAEMON_SILENT = "daemon_silent"
    """no answer. Wait a minute, then restart it; nothing is lost. With `disk_full` it waits for room."""
    DAEMON_NOT_ASKED = "daemon_not_asked"
    """you may not use the control socket. `sudo -u everlean`; group `everlean` (read), `[daemon] control_group`
    (act)."""
    DAEMON_PROBLEM = "daemon_problem"
    """a problem of the daemon's own. See its message."""
    KEPT_AWAY = "kept_away"
    """another command has the folders. Wait for its end."""
    STANDBY = "standby"
    """this machine [follows](#a-standby) another's log. Nothing."""
    FENCED = "fenced"
    """another machine took the log over. [A standby](#a-standby)."""
    CONFIG_REJECTED = "config_rejected"
    """the file has mistakes; earlier settings hold. Correct the named lines."""
    CONFIG_BROKEN = "config_broken"
    """the file is not TOML. `everlean config check`."""
    REPOSITORY_UNREACHABLE = "repository_unreachable"
    """no connection. Check network, DNS and proxy."""
    REPOSITORY_OTHER_OWNER = "repository_other_owner"
    """another user owns the files. `[poll] safe_directories`, or change the owner."""
    REPOSITORY_NOT_FOUND = "repository_not_found"
    """not found with this token. Correct its `url`, or use a token that may read it."""
    REPOSITORY_GONE = "repository_gone"
    """it is gone. Correct its `url`, or remove the entry."""
    REPOSITORY_AUTH_FAILED = "repository_auth_failed"
    """token refused. [A new token](install.md#a-github-token)."""
    REPOSITORY_RATE_LIMITED = "repository_rate_limited"
    """the forge limits requests. A token, or a larger `[poll] every`."""
    REPOSITORY_EMPTY = "repository_empty"
    """no branch yet. Nothing."""
    REPOSITORY_REPLACED = "repository_replaced"
    """another repository has its name. `everlean repos accept`, if you mean that one."""
    REPOSITORY_INVALID = "repository_invalid"
    """not a repository's answer. See the message."""
    JOB_FAILED = "job_failed"
    """a job failed. `everlean jobs logs JOB`, then `everlean jobs retry JOB`."""
    WORK_PAUSED = "work_paused"
    """you paused polls, training or proving. `everlean resume all`."""
    NO_LEAN = "no_lean"
    """no Lean here. `everlean setup`."""
    TOOLCHAIN_MISSING = "toolchain_missing"
    """a branch's Lean version is not installed. `everlean setup`, or `install = "auto"` under `[lean]`."""
    RUNS_AS_ROOT = "runs_as_root"
    """root runs the daemon and Lean. Use [a user of its own](install.md)."""
    BOUNDS_WATCHED = "bounds_watched"
    """no control group limits memory. Use the shipped unit, with cgroup v2."""
    NO_SANDBOX = "no_sandbox"
    """code of repositories runs unconfined. `[lean] sandbox = "bubblewrap"`."""
    GPU_LOST = "gpu_lost"
    """a GPU does not answer; its jobs wait. `nvidia-smi`, `dmesg`; restart the machine."""
    CACHE_OVER_LIMIT = "cache_over_limit"
    """builds in use are larger than `[cache] size`. Raise it, or watch fewer branches."""
    DISK_FULL = "disk_full"
    """a disk is full. [Free some space](#when-a-disk-fills-up-or-fails)."""
    DISK_READ_ONLY = "disk_read_only"
    """a folder is read-only. [Mount it writable, `fsck`](#when-a-disk-fills-up-or-fails)."""
    PROJECT_MISSING = "project_missing"
    """no Lake project in a folder of `projects`. Correct `projects` in its `[[repos]]`."""
    TOO_LARGE = "too_large"
    """more sorries or declarations than `[scan]` allows. Raise the limit, or exclude files."""
    PROOFS_IN_DOUBT = "proofs_in_doubt"
    """all kernels behind a verified proof have [known faults](certificates.md#recall), or kernels disagree on a
    candidate. Raise the project's Lean version; report a wrong kernel."""
    CLOCK_SET = "clock_set"
    """the clock was set. Let time synchronisation run."""
    MACHINE_SLEPT = "machine_slept"
    """the machine was suspended. Nothing."""
    NOTIFY_FAILING = "notify_failing"
    """a channel of `[notify]` refuses messages. Check address and secret, or the command."""
    VIEW_MISSING = "view_missing"
    """no database. `everlean db rebuild`."""
    VIEW_UNREADABLE = "view_unreadable"
    """a damaged database. Stop the daemon; `everlean db rebuild`."""
    VIEW_BEHIND = "view_behind"
    """the database lags behind the log. Start the daemon; if it runs, `everlean db rebuild`."""
    VIEW_STOPPED = "view_stopped"
    """the log has unknown events. Install the named version."""
    LOG_MISSING = "log_missing"
    """the log is gone, the database is there. [Restore](#restore)."""
    LOG_UNREADABLE = "log_unreadable"
    """a damaged log, or one of a newer version. `everlean db check`; [restore](#restore), or that version."""
    LOG_BEHIND = "log_behind"
    """the log lost its end (power, a bad disk). `everlean db check`; [a damaged log](#a-damaged-log)."""


@dataclass(frozen=True, slots=True)
class Problem:
    code: ProblemCode
    severity: Literal["error", "warning"]
    subject: str | None
    message: str
    remedy: str
    errors: list[str] | None = None
    """only of `config_rejected`"""

    @property
    def text(self) -> str:
        """Return the problem in one line, with the first of the errors."""
        return headline(self.message) + (f": {clean(self.errors[0])}" if self.errors else "")


def problem(
    code: ProblemCode,
    message: str,
    remedy: str,
    *,
    severity: Literal["error", "warning"] = "error",
    subject: str | None = None,
    errors: list[str] | None = None,
) -> Problem:
    return Problem(code, severity, subject, message, remedy, errors)


def service_problems(service: ServiceRow) -> list[Problem]:
    """Return the daemon's last problems of its configuration and of Lean."""
    result = []
    if service.config_errors:
        result.append(
            problem(
                ProblemCode.CONFIG_REJECTED,
                f"{Path(service.config_path).name} changed and was rejected; the earlier settings stay in force",
                "correct these lines; the daemon then reloads the file",
                subject=service.config_path,
                errors=service.config_errors,
            )
        )
    return [*result, *_lean_problems(service.lean, service.lean_detail)]


def _lean_problems(lean: str, detail: str) -> list[Problem]:
    if lean == "none":
        return [
            problem(
                ProblemCode.NO_LEAN,
                f"sorries are found, and none is filled: {detail or 'there is no Lean'}",
                'write [lean] backend = "auto" to search for proofs'
                if "switched off" in detail
                else "everlean doctor"
                if "as root" in detail
                else "everlean setup; everlean doctor says what else is missing",
                severity="warning",
            )
        ]
    return []


def doubt_problems(rows: Sequence[ProofRow]) -> list[Problem]:
    """Return the doubts on verified proofs and the disagreements on candidates, by repository."""
    result = []
    for (repository, state), number in Counter((row.repository, row.state) for row in rows).items():
        message = f"{counted(number, f'{state} proof')} in doubt: {doubt_reason(state)}"
        code = ProblemCode.PROOFS_IN_DOUBT
        result.append(problem(code, message, doubt_remedy(state), severity="warning", subject=repository))
    return result


def repository_problems(repositories: list[Repository]) -> list[Problem]:
    return [
        problem(
            ProblemCode(f"repository_{repository.state}"),
            because(repository),
            repository.remedy or f"everlean poll {repository.repository}",
            subject=repository.repository,
        )
        for repository in repositories
        if repository.watched and repository.enabled and repository.state not in HEALTHY_STATES
    ]


def project_problems(repositories: list[Repository]) -> list[Problem]:
    """Return the configured folders without a Lake project: nothing is built, traced or proved there."""
    return [
        problem(
            ProblemCode.PROJECT_MISSING,
            f"{repository.repository}: {head.branch} has no Lake project in {listed(missing, PROJECTS_NAMED)}, but in"
            f" {listed([one.name for one in head.lake_projects], PROJECTS_NAMED)}",
            "correct `projects` in its [[repos]]",
            severity="warning",
            subject=repository.repository,
        )
        for repository in repositories
        if repository.watched and repository.enabled
        for head in repository.heads
        if head.state == "live" and (missing := projects_missing(head, repository.projects))
    ]


def large_problems(repositories: list[Repository]) -> list[Problem]:
    """Return the cuts by the limits of [scan]."""
    return [
        problem(
            ProblemCode.TOO_LARGE,
            f"{repository.repository} {text}",
            LARGER,
            severity="warning",
            subject=repository.repository,
        )
        for repository in repositories
        for text in too_large_text(repository.too_large).values()
    ]


def notify_problems(notifiers: list[NotifierRow]) -> list[Problem]:
    return [
        problem(
            ProblemCode.NOTIFY_FAILING,
            f"no message was delivered by {row.channel} since {ago(row.failing_since)}: {row.reason}",
            f"{row.remedy}; waiting messages are sent as soon as it accepts them",
            severity="warning",
            subject=row.channel,
        )
        for row in notifiers
        if row.kinds and row.problem
    ]


def left_branches(repositories: list[Repository]) -> set[tuple[str | None, str | None]]:
    return {
        (repository.repository, head.branch)
        for repository in repositories
        for head in repository.heads
        if head.state != "live" or not (repository.watched and repository.enabled)
    }


def still_failed(jobs: list[JobRow], *, left: Container[tuple[str | None, str | None]] = ()) -> list[JobRow]:
    """Return the failed jobs without a later success of their kind on the branch: the rest is history.

    So are failures on a deleted or unwatched branch: they are not tried again.
    """
    healed: set[tuple[str, str | None, str | None]] = set()
    result = []
    for job in sorted(jobs, key=lambda row: row.started_at, reverse=True):
        what = (job.kind, job.repository, job.branch)
        if job.state == "succeeded":
            healed.add(what)
        elif job.state == "failed" and what not in healed and (job.repository, job.branch) not in left:
            result.append(job)
    return result


def job_problems(failed: list[JobRow]) -> list[Problem]:
    problems = [
        problem(
            ProblemCode.JOB_FAILED,
            f"{job.describes}: {job.reason}: {job.message}",
            _job_remedy(job),
            # A job with a retry ahead may pass by itself.
            severity="error" if job.retry_at is None else "warning",
            subject=job.job,
        )
        for job in failed[:FAILED_JOBS_NAMED]
    ]
    if len(failed) > FAILED_JOBS_NAMED:
        rest = len(failed) - FAILED_JOBS_NAMED
        problems.append(
            problem(
                ProblemCode.JOB_FAILED, f"{counted(rest, 'more job')} failed", "everlean jobs --state failed"
            )
        )
    return problems


def _job_remedy(job: JobRow) -> str:
    remedy = job.remedy or f"everlean jobs logs {job.job}"
    # A permanent failure stays one after its cause is mended, until it is retried by hand.
    return remedy if job.retry_at is not None else f"{remedy}; {try_again(job.job)}"


def pause_problems(paused: Sequence[PauseRow]) -> list[Problem]:
    return [
        problem(
            ProblemCode.WORK_PAUSED,
            f"{item.work} is paused by {item.by}, {ago(item.since)}"
            + (f": {item.reason}" if item.reason else ""),
            f"everlean resume {item.work}",
            severity="warning",
            subject=item.work,
        )
        for item in paused
    ]
