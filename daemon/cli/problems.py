"""What `unsorry status` calls a problem: each with its code, its severity, what it is about, and a remedy.

Of Lean, the cache, the repositories and the jobs; problems of the log, the view and the daemon itself are
`status_report`'s, which meets them while it reads.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from daemon.cli.jobs import try_again
from daemon.cli.render import ago, counted, size, span
from daemon.cli.repos import HEALTHY_STATES, because

if TYPE_CHECKING:
    from store.view.queries.reports import NotifierRow
    from store.view.rows import JobRow

FAILED_JOBS_NAMED = 5
BRANCHES_NAMED = 3

Problem = dict[str, Any]


def problem(
    code: str, message: str, remedy: str, *, severity: str = "error", subject: str | None = None, **more: Any
) -> Problem:
    return {
        "code": code,
        "severity": severity,
        "subject": subject,
        "message": message,
        "remedy": remedy,
        **more,
    }


def lean_problems(lean: str, detail: str) -> list[Problem]:
    if lean == "simulator":
        return [
            problem(
                "simulator",
                "the simulator stands in for Lean: nothing here was checked by Lean",
                'write [lean] backend = "auto" once a toolchain is installed (unsorry toolchain install)',
                severity="warning",
            )
        ]
    if lean == "none":
        return [
            problem(
                "no_lean",
                f"no Lean: sorrys are found, none is filled ({detail or 'no reason was given'})",
                "unsorry doctor",
                severity="warning",
            )
        ]
    return []


def lacking_problem(lacking: dict[str, Any]) -> Problem:
    """A Lean version that watched branches need and nothing here runs: their sorrys are found and never tried."""
    branches: list[str] = lacking["branches"]
    more = f" and {len(branches) - BRANCHES_NAMED} more" if len(branches) > BRANCHES_NAMED else ""
    named = f"{', '.join(branches[:BRANCHES_NAMED])}{more}"
    version = lacking["version"]
    return problem(
        "toolchain_missing",
        f"{named}: nothing is built, traced or proved there: {lacking['detail']}",
        f"unsorry toolchain install {version}" if version else "unsorry toolchain list",
        severity="warning",
        subject=lacking["toolchain"],
    )


def cache_problems(cache: dict[str, int]) -> list[Problem]:
    if cache.get("bytes", 0) <= cache.get("limit_bytes", 0):
        return []
    text = (
        f"builds and packages take {size(cache['bytes'])}, more than the {size(cache['limit_bytes'])} of [cache] size:"
        " what is left is in use or about to be"
    )
    return [problem("cache_over_limit", text, "raise [cache] size", severity="warning")]


def clock_problems(jump: dict[str, Any] | None) -> list[Problem]:
    """What the clocks did within the last hour, as the living daemon noticed it."""
    found = []
    if jump is not None and jump["set_s"]:
        way = "back" if jump["set_s"] < 0 else "forward"
        text = (
            f"the clock was set {way} by {span(abs(jump['set_s']))} at {jump['noticed_at']}: times in the log"
            " before and after do not compare, their order does"
        )
        remedy = (
            "nothing to be done here: intervals and deadlines do not hang on it; look at the time service"
        )
        found.append(problem("clock_set", text, remedy, severity="warning"))
    if jump is not None and jump["slept_s"]:
        text = (
            f"the machine slept for {span(jump['slept_s'])}, until {jump['noticed_at']}: nobody was watching"
        )
        remedy = "nothing to be done: what was due is caught up with, and running jobs have their time left"
        found.append(problem("machine_slept", text, remedy, severity="warning"))
    return found


def repository_problems(repositories: list[dict[str, Any]]) -> list[Problem]:
    return [
        problem(
            f"repository_{item['state']}",
            because(item),
            item["remedy"] or "unsorry poll " + item["repository"],
            subject=item["repository"],
        )
        for item in repositories
        if item["watched"] and item["enabled"] and item["state"] not in HEALTHY_STATES
    ]


def notify_problems(notifiers: list[NotifierRow]) -> list[Problem]:
    return [
        problem(
            "notify_failing",
            f"nobody was told by {row.channel} since {ago(row.failing_since)}: {row.reason}",
            f"{row.remedy}; what waits is told as soon as it is taken",
            severity="warning",
            subject=row.channel,
        )
        for row in notifiers
        if row.kinds and row.problem
    ]


def left_branches(repositories: list[dict[str, Any]]) -> set[tuple[str | None, str | None]]:
    return {
        (item["repository"], head["branch"])
        for item in repositories
        for head in item["heads"]
        if head["state"] != "live" or not (item["watched"] and item["enabled"])
    }


def still_failed(jobs: list[JobRow], *, left: Container[tuple[str | None, str | None]] = ()) -> list[JobRow]:
    """The failed jobs after which none of their kind succeeded on the branch: the rest is history.

    So is what failed on a branch that is deleted or not watched any more: nobody will try it again.
    """
    healed: set[tuple[str, str | None, str | None]] = set()
    found = []
    for job in sorted(jobs, key=lambda row: row.started_at, reverse=True):
        what = (job.kind, job.repository, job.branch)
        if job.state == "succeeded":
            healed.add(what)
        elif job.state == "failed" and what not in healed and (job.repository, job.branch) not in left:
            found.append(job)
    return found


def job_problems(failed: list[JobRow]) -> list[Problem]:
    problems = [
        problem(
            "job_failed",
            f"{job.describes}: {job.reason}: {job.message}",
            _job_remedy(job),
            # One that will be tried again may pass by itself.
            severity="error" if job.retry_at is None else "warning",
            subject=job.job,
        )
        for job in failed[:FAILED_JOBS_NAMED]
    ]
    if len(failed) > FAILED_JOBS_NAMED:
        rest = len(failed) - FAILED_JOBS_NAMED
        problems.append(
            problem("job_failed", f"{counted(rest, 'more job')} failed", "unsorry jobs --state failed")
        )
    return problems


def _job_remedy(job: JobRow) -> str:
    remedy = job.remedy or f"unsorry jobs logs {job.job}"
    # What failed for good stays so after it is mended, until somebody asks.
    return remedy if job.retry_at is not None else f"{remedy}; {try_again(job.job)}"
