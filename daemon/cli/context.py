"""Context of every verb: its options, exit codes, and the folders and the view that it works on.

Standard library only. A verb that reads says on standard error when no daemon runs. With --as-of, `locate` finds the
moment, `view` opens the view as it was then, and `Instance.head` begins the JSON document with it:

    instance = locate(config, as_of)
    with view(instance) as database: ...
    emit_json(Theorems(...), instance.head)
"""

from __future__ import annotations

import enum
import sqlite3
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from daemon.cli.completion import repositories
from daemon.cli.render import note
from daemon.instance import Instance, find_instance, open_view
from store.text import moment


class ExitCode(enum.IntEnum):
    """The exit status of the process. A code that is not listed here means failure."""

    OK = 0
    """done; of `status`: running with at most warnings, or as of a moment"""
    FAILURE = 1
    """it could not be done; the message says why and what to do. Of `status`: the daemon runs, and something is
    wrong"""
    USAGE = 2
    """the command line is wrong"""
    NOT_RUNNING = 3
    """the verb needs a running daemon (as `poll`, `pause`, `jobs retry`, `models promote` do). Of `status`: the
    daemon does not run"""
    DIFFERENCES = 6
    """`db verify` found differences; of `diff`: it found what `--fail-on` names"""
    ALREADY_RUNNING = 75
    """another daemon holds the state folder (`run`, `db rebuild`, `db recover`, `import`), or another command does
    (also `proofs pr`), or another process the builds (`toolchain`, `setup`); the message names its process. Of `run`
    also: another machine took the log over"""
    BAD_CONFIG = 78
    """the configuration has mistakes, or the named file is missing; `serve` has no token where it needs one"""
    OUTPUT_CLOSED = 141
    """what reads standard output was closed before its end, as `| head` does"""


class CliError(Exception):
    """A verb cannot go on; the message names the thing, the reason and the remedy."""

    def __init__(self, message: str, *, code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.code = code


MOST = 10**9
"""The largest number of rows that can be asked for; SQLite takes no number beyond 64 bits."""

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The configuration; default: $EVERLEAN_CONFIG, /etc/everlean/config.toml, ~/.config/everlean/config.toml.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output (docs/cli.md).")]
Repo = Annotated[
    str | None,
    typer.Option(
        "--repo",
        metavar="R",
        help="Only this repository: its key, or a part that only it has.",
        autocompletion=repositories,
    ),
]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="SEQ|TIME",
        help="As it was at this event, or at this time: 2d, yesterday, ISO 8601 (UTC).",
    ),
]


def locate(config: Path | None, as_of: str | None = None) -> Instance:
    """Find the configuration and the folders; ask the lock who runs there, and the log which moment is meant."""
    instance = find_instance(config)
    if as_of is None:
        return instance
    from store.log.reader import LogReader
    from store.view import asof

    when = moment_option(as_of, "--as-of")
    with LogReader.open(instance.paths.events_db) as log:
        return replace(instance, moment=asof.find(log, when))


def view(instance: Instance, *, quiet: bool = False) -> AbstractContextManager[sqlite3.Connection]:
    """Open the view for one reading verb; how it is not the present state goes to standard error, unless `quiet`."""
    return open_view(instance, tell=None if quiet else note)


def moment_option(text: str, option: str) -> int | datetime:
    """Read an option's value that names an event by its number, or a time (`store.text.moment`)."""
    if text.isascii() and text.isdigit():
        return int(text)
    return time_option(text, option, or_else="neither the number of an event nor a time")


def time_option(text: str, option: str, *, now: datetime | None = None, or_else: str = "no time") -> datetime:
    """Read an option's value that names a time, a relative one before `now`; None is the present."""
    try:
        return moment(text, now or datetime.now(UTC))
    except ValueError as error:
        raise typer.BadParameter(f'"{text}" is {or_else} {error}', param_hint=option) from error


def count(text: str) -> int:
    """Read an option's value that is a number from 1 on."""
    return _whole(text, 1)


def count_or_all(text: str) -> int:
    """Read an option's value that is a number from 1 on, or 0, which is all."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    number = int(text) if str(text).isdecimal() else -1
    if not least <= number <= MOST:
        raise typer.BadParameter(f'"{text}" is no whole number from {least} to {MOST:,}')
    return number
