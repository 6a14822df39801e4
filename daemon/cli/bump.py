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
from daemon.results.bumps import FailedBump, SeriesError, failure, summary, write_series
from store.documents.document import of_row
from store.documents.lookup import resolve
from store.text import clean
from store.view.bumps import BumpRow


def register(app: typer.Typer) -> None:
    app.command(
        "bump", help="Try a newer Lean or package, and see or take the patches that mend what breaks."
    )(bump)


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
    from daemon.settings import load
    from store.log.reader import LogReader
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
        try:
            with LogReader.open(instance.paths.events_db) as log:
                files = write_series(finished, out, author=load(instance.config).daemon.author, log=log)
        except SeriesError as error:
            raise CliError(str(error)) from error
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
    told += [[clean(one.what), *failure(one)] for one in failed if one.bump is None]
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
