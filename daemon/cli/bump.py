"""`everlean bump`: try a repository with a newer Lean or package, see what breaks, and take patches that mend it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from daemon.cli.completion import repositories
from daemon.cli.context import CliError, Config, Json, locate, view
from daemon.cli.render import emit_json, say
from daemon.instance import command
from store.documents.document import of_row
from store.documents.lookup import resolve
from store.text import clean, counted, headline
from store.view.bumps import BumpRow
from store.view.rows import JobRow, told_doubts, told_grade

SUMMARY = "SUMMARY.txt"
_LONGEST_REASON = 100


def register(app: typer.Typer) -> None:
    app.command(
        "bump", help="Try a newer Lean or package, and see or take the patches that mend what breaks."
    )(bump)


@dataclass(frozen=True, slots=True)
class FailedBump:
    job: str
    bump: str | None
    """the id of its trial, or null if it was a weekly trial that failed before it built anything"""
    what: str
    """the commit, and the versions that it raises"""
    state: str
    """`failed` or `cancelled`"""
    attempt: int
    reason: str
    message: str
    remedy: str
    retry_at: str | None
    """when it is tried again by itself, or null"""
    ended_at: str | None


@dataclass(frozen=True, slots=True)
class Bumps:
    repository: str
    asked: str | None
    """the id of the trial that was asked for, or null"""
    waits: str | None
    """why the requested trial has not begun, or null"""
    trials: list[BumpRow]
    """the repository's trials, the newest first; empty where one was asked for"""
    failed: list[FailedBump]
    """its jobs that failed or were cancelled, the newest first"""
    files: list[Path]
    """the files written; empty without `--out`"""


def bump(
    repository: Annotated[
        str,
        typer.Argument(
            metavar="REPO",
            help="Its key, such as github.com/owner/name, or the end of it.",
            autocompletion=repositories,
        ),
    ],
    to: Annotated[
        str, typer.Option("--to", metavar="VERSION", help="Have the default branch tried with this Lean.")
    ] = "",
    package: Annotated[
        str,
        typer.Option(
            "--package", metavar="NAME=REV", help="Have it tried with a git package at this full commit id."
        ),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Write the newest patches, for `git am`, and a summary there."
        ),
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    if (to or package) and out is not None:
        raise typer.BadParameter("give --to and --package, or --out")
    instance = locate(config)
    if to or package:
        toolchain, name, rev = _target(to, package)
        key: str | None = repository
        if instance.running and instance.paths.database_db.exists():
            with view(instance) as database:
                key = resolve(database, repository)
        given = {"repository": key, "toolchain": toolchain, "package": name, "rev": rev}
        answer = command(instance, "/bump", given)
        asked, waits = str(answer["bump"]), answer["waits"]
        if as_json:
            emit_json(Bumps(str(key), asked, waits, [], [], []), instance.head)
        else:
            state = "is due" if waits is None else f"waits: {clean(waits)}"
            say(f"bump {asked} of {key} {state}; `everlean bump {key}` shows what becomes of it")
        return
    from store.view.bumps import bump_jobs, bumps, job_of

    with view(instance) as database:
        key = resolve(database, repository)
        rows = bumps(database, repository=key)
        jobs = {job.job: job for job in bump_jobs(database, repository=str(key))}
    trial_of = {job_of(row): row.bump for row in rows}
    failed = [
        of_row(FailedBump, job, bump=trial_of.get(job.job), what=job.describes)
        for job in jobs.values()
        if job.state in ("failed", "cancelled")
    ]
    files: list[Path] = []
    if out is not None:
        finished = next((row for row in rows if row.series_sha256 is not None), None)
        if finished is None:
            raise CliError(f"{key}: no trial of it is finished, so there are no patches; see `everlean jobs`")
        files = _write(finished, out, instance.config, instance.paths.events_db)
    if as_json:
        emit_json(Bumps(str(key), None, None, rows, failed, files), instance.head)
        return
    for file in files:
        say(str(file))
    if not rows and not failed:
        say(f"no bump of {key} was tried; `everlean bump {key} --to VERSION` has one tried")
    if out is not None:
        return
    told = [summary(row, jobs.get(job_of(row))) for row in rows]
    # What nobody asked for and failed before it was built is no trial in the log.
    told += [[clean(one.what), *_failure(one)] for one in failed if one.bump is None]
    if told:
        say("\n\n".join("\n".join(lines) for lines in told))


def _target(to: str, package: str) -> tuple[str, str, str]:
    """Return the toolchain, or the package and its commit, that a bump raises to."""
    from pipeline.lean.toolchain.toolchains import VersionError, parse_version

    name, equals, rev = package.partition("=")
    if package and not (name and equals and len(rev) in (40, 64) and set(rev) <= set("0123456789abcdef")):
        raise typer.BadParameter(f'"{package}" is not NAME=REV with a full commit id', param_hint="--package")
    try:
        return (parse_version(to).toolchain if to else ""), name, rev
    except VersionError as error:
        raise typer.BadParameter(str(error), param_hint="--to") from error


def summary(row: BumpRow, job: JobRow | None = None) -> list[str]:
    """Return what became of a trial, in lines for people; `job` is its own, where that has begun."""
    at = row.sha or (job.sha if job is not None else None) or "no commit yet"
    lines = [f"{clean(row.repository)}: {clean(row.raises)}, at {at[:10]}"]
    if row.finished_at is None and job is not None and job.state in ("failed", "cancelled"):
        lines += _failure(of_row(FailedBump, job, bump=row.bump, what=job.describes))
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
            told_grade(one["grade"], one["kernel"])
            if is_verified
            else f"not verified: {_short(one['reason'])}"
        )
        told = "; ".join(filter(None, (one["how"], judged, told_doubts(one["doubts"]))))
        lines.append(
            f"  {'mended ' if is_verified else 'checked'} {clean(one['path'])}  {clean(one['declaration'])}  "
            + clean(" ".join(told.split()))
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


def _failure(one: FailedBump) -> list[str]:
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


def _short(reason: str) -> str:
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[: _LONGEST_REASON - 1]}…"


def _unsure(row: BumpRow) -> str:
    number = sum(one["verdict"] != "verified" for one in row.mended)
    return f" ({number} not verified)" if number else ""


def _write(row: BumpRow, folder: Path, config: Path, log_path: Path) -> list[Path]:
    import json

    from daemon.results.mail import series_mail
    from daemon.settings import load
    from store.log.reader import LogReader

    author = load(config).daemon.author
    with LogReader.open(log_path) as log:
        series = json.loads(log.blob(row.series_sha256 or ""))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = [one for one in folder.iterdir() if one.suffix == ".patch"]
        if taken:
            raise CliError(f"{folder}: has patches already ({taken[0].name}); name another folder")
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
        raise CliError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return [*files, folder / SUMMARY]
