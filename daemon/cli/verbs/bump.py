"""`everlean bump`: try a repository with a newer Lean or package, and get patches for its breaks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from daemon.cli.answer import Answer
from daemon.cli.context import Call, verb
from daemon.cli.options import RepositoryKey
from daemon.place.paths import author_from_config
from daemon.results.bumps import FailedBump, newest_series, trial_lines, trials_of, write_series
from store.documents.lookup import repository_named
from store.text import clean
from store.view.bumps import BumpRow


@dataclass(frozen=True, slots=True)
class Bumps:
    repository: str
    asked: str | None
    """the id of the requested trial, or null"""
    waits: str | None
    """why the requested trial has not begun, or null"""
    trials: list[BumpRow]
    """the repository's trials, the newest first; empty after a request"""
    failed: list[FailedBump]
    """its failed or cancelled jobs, the newest first"""
    files: list[Path]
    """the files written; empty without `--out`"""


@verb("bump", Bumps)
def bump(
    call: Call,
    repository: RepositoryKey,
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
) -> Answer:
    """Try a newer Lean or package, and get patches for what breaks."""
    if to or package:
        if out is not None:
            raise typer.BadParameter("give --to and --package, or --out")
        return _ask(call, repository, to, package)
    with call.view() as database:
        key = repository_named(database, repository)
        trials = trials_of(database, key)
    written: list[Path] = []
    if out is not None:
        with call.log() as log:
            author = author_from_config(call.instance.config)
            written = write_series(newest_series(trials, key), out, author=author, log=log)
    text = "\n".join(map(str, written))
    if not trials.trials and not trials.failed:
        text = f"no bump of {key} was tried; `everlean bump {key} --to VERSION` has one tried"
    elif out is None:
        text = "\n\n".join("\n".join(lines) for lines in trial_lines(trials))
    return Answer(Bumps(key, None, None, trials.trials, trials.failed, written), text)


def _ask(call: Call, repository: str, to: str, package: str) -> Answer:
    toolchain, name, rev = _target(to, package)
    key = call.key(repository)
    answer = call.command("/bump", repository=key, toolchain=toolchain, package=name, rev=rev)
    trial, waits = str(answer["bump"]), answer["waits"]
    state = "is due" if waits is None else f"waits: {clean(waits)}"
    return Answer(
        Bumps(key, trial, waits, [], [], []),
        f"bump {trial} of {key} {state}; `everlean bump {key}` shows the result",
    )


def _target(to: str, package: str) -> tuple[str, str, str]:
    """Return the toolchain, or the package and its commit, that a bump raises to."""
    from pipeline.lean.toolchain.versions import VersionError, parse_version

    name, equals, rev = package.partition("=")
    if package and not (name and equals and len(rev) in (40, 64) and set(rev) <= set("0123456789abcdef")):
        raise typer.BadParameter(f'"{package}" is not NAME=REV with a full commit id', param_hint="--package")
    try:
        return (parse_version(to).toolchain if to else ""), name, rev
    except VersionError as error:
        raise typer.BadParameter(str(error), param_hint="--to") from error
