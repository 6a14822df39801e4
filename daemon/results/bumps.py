"""Show and write a trial of a newer Lean or package: its outcome in lines for people, its patches as
files."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from daemon.results.mail import series_mail
from store.documents.document import of_row
from store.documents.grades import doubt_text, kernel_text
from store.log.reader import LogReader
from store.text import clean, counted, cut, headline
from store.view.bumps import BumpRow, bump_jobs, bumps, job_of
from store.view.rows import JobRow

SUMMARY = "SUMMARY.txt"
_LONGEST_REASON = 100


class SeriesError(Exception):
    """The patches cannot be written; the message has the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class FailedBump:
    job: str
    bump: str | None
    """the id of its trial, or null for a weekly trial that failed before its build"""
    what: str
    """the commit, and its raised versions"""
    state: str
    """`failed` or `cancelled`"""
    attempt: int
    reason: str
    message: str
    remedy: str
    retry_at: str | None
    """the time of its retry, or null"""
    ended_at: str | None


@dataclass(frozen=True, slots=True)
class Trials:
    """The trials of a repository, newest first, with their jobs by id, and the failed jobs."""

    trials: list[BumpRow]
    jobs: Mapping[str, JobRow]
    failed: list[FailedBump]


def trials_of(view: sqlite3.Connection, repository: str) -> Trials:
    """Return a repository's trials."""
    rows = bumps(view, repository=repository)
    jobs = {job.job: job for job in bump_jobs(view, repository=repository)}
    trial_of = {job_of(row): row.bump for row in rows}
    failed = [
        of_row(FailedBump, job, bump=trial_of.get(job.job), what=job.describes)
        for job in jobs.values()
        if job.state in ("failed", "cancelled")
    ]
    return Trials(rows, jobs, failed)


def trial_lines(history: Trials) -> list[list[str]]:
    """Return the outcome of each trial, in lines for people."""
    lines = [summary(row, history.jobs.get(job_of(row))) for row in history.trials]
    # An unrequested trial that failed before its build is none in the log.
    return lines + [[clean(one.what), *failure(one)] for one in history.failed if one.bump is None]


def newest_series(history: Trials, repository: str) -> BumpRow:
    """Return the newest trial with patches.

    Raises:
        SeriesError: none is finished.
    """
    finished = next((row for row in history.trials if row.series_sha256 is not None), None)
    if finished is None:
        raise SeriesError(
            f"{repository}: no trial of it is finished, so there are no patches; see `everlean jobs`"
        )
    return finished


def summary(row: BumpRow, job: JobRow | None = None) -> list[str]:
    """Return the outcome of a trial, in lines for people; `job` is its own, once begun."""
    at = row.sha or (job.sha if job is not None else None) or "no commit yet"
    lines = [f"{clean(row.repository)}: {clean(row.raises)}, at {at[:10]}"]
    if row.finished_at is None and job is not None and job.state in ("failed", "cancelled"):
        lines += failure(of_row(FailedBump, job, bump=row.bump, what=job.describes))
        if row.sha is None:
            return lines
        state = "before that"
    elif row.sha is None:
        return [*lines, "  is built" if job is not None and job.state == "running" else "  waits"]
    else:
        state = "finished" if row.finished_at else "under way"
    lines.append(
        f"  {state}: {counted(len(row.broken), 'break')}, {len(row.mended)} mended{_unsure(row)}, {len(row.left)} left;"
        f" {counted(row.tried, 'text')} tried{_unrecorded(row)}"
    )
    for one in row.mended:
        is_verified = one["verdict"] == "verified"
        judged = (
            kernel_text(one["grade"], one["kernel"])
            if is_verified
            else f"not verified: {cut(one['reason'], _LONGEST_REASON)}"
        )
        text = "; ".join(filter(None, (one["how"], judged, doubt_text(one["doubts"]))))
        lines.append(
            f"  {'mended ' if is_verified else 'checked'} {clean(one['path'])}  {clean(one['declaration'])}  "
            + clean(" ".join(text.split()))
        )
    for one in row.left:
        what = clean(one["declaration"]) or "no declaration"
        first = clean(one["message"].partition("\n")[0])
        lines.append(
            f"  left    {clean(one['path'])}:{one['line']}  {what}  {one['kind']}, {one['reason']}: {first}"
            + (f" (follows from {clean(one['follows'])})" if one["follows"] else "")
        )
    failed = ", ".join(map(clean, row.modules_failed))
    after = "with the patches applied" if row.finished_at else "before anything is mended"
    return [*lines, f"  modules that fail {after}: {failed or 'none'}"]


def failure(one: FailedBump) -> list[str]:
    """Return a trial's failure and its remedy, in lines for people."""
    lines = [f"  {one.state}, {clean(one.reason)}: {headline(one.message)}"]
    if one.remedy:
        lines.append(f"  {clean(one.remedy)}")
    again = (
        f"is tried again by itself after {one.retry_at}" if one.retry_at else "is not tried again by itself"
    )
    return [
        *lines,
        f"  {again}; `everlean jobs retry {one.job}` has it tried now, `everlean jobs logs {one.job}` says more",
    ]


def _unrecorded(row: BumpRow) -> str:
    return f", {row.unrecorded} of them too many for the log" if row.unrecorded else ""


def _unsure(row: BumpRow) -> str:
    number = sum(one["verdict"] != "verified" for one in row.mended)
    return f" ({number} not verified)" if number else ""


def write_series(row: BumpRow, folder: Path, *, author: str, log: LogReader) -> list[Path]:
    """Write the patches of a finished trial, for `git am`, and its summary; return the files.

    Raises:
        SeriesError: the folder has patches already, or cannot be written.
    """
    series = json.loads(log.blob(row.series_sha256 or ""))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = [one for one in folder.iterdir() if one.suffix == ".patch"]
        if taken:
            raise SeriesError(f"{folder}: has patches already ({taken[0].name}); name another folder")
        files = []
        for number, one in enumerate(series, 1):
            name = "".join(letter if letter.isalnum() or letter in ".-" else "-" for letter in one["title"])[
                :60
            ]
            file = folder / f"{number:04d}-{name}.patch"
            file.write_bytes(series_mail(one, author, f"{number}/{len(series)}"))
            files.append(file)
        (folder / SUMMARY).write_text("\n".join(summary(row)) + "\n", "utf-8")
    except OSError as error:
        raise SeriesError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return [*files, folder / SUMMARY]
