"""Context of every verb: its options, exit codes, the folders, the view, and the running daemon.

Standard library only. A verb that reads opens the view read-only, whether the daemon runs or not, and says on
standard error when it does not. With --as-of, `locate` finds the moment, `view` opens the view as it was then, and
`Instance.head` begins the JSON document with it:

    instance = locate(config, as_of)
    with view(instance) as database: ...
    emit_json(Theorems(...), instance.head)
"""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon import lock
from daemon.cli.completion import repositories
from daemon.cli.render import note
from daemon.http import control_client
from daemon.paths import ConfigNotFoundError, Paths, find_config, paths_from_config
from store.text import moment

if TYPE_CHECKING:
    from daemon.answers import JobProgress, LiveStatus, QueuedJob
    from store.view.asof import Moment


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


class CliError(Exception):
    """A verb cannot go on; the message names the thing, the reason and the remedy."""

    def __init__(self, message: str, *, code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.code = code


LONG_EVENTS = 20_000
"""Making a view of this many events takes long enough to say so first."""

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
        help="Only this repository: its key or the end of it.",
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


@dataclass(frozen=True, slots=True)
class Instance:
    """One daemon's configuration file and folders, and its process, if it runs.

    `held` is the command that keeps the daemon away for the moment. `moment` is what --as-of
    names, None for now: nothing that is only true now (progress, the queue, whether a daemon runs) belongs into an
    answer about it.
    """

    config: Path
    paths: Paths
    pid: int | None
    held: lock.Holder | None = None
    moment: Moment | None = None

    @property
    def running(self) -> bool:
        return self.pid is not None

    @property
    def head(self) -> dict[str, object]:
        """The first fields of almost every document: the present `daemon`, and `as_of` if given."""
        daemon = {"running": self.running, "pid": self.pid}
        return {"daemon": daemon} if self.moment is None else {"daemon": daemon, "as_of": self.moment}


def locate(config: Path | None, as_of: str | None = None) -> Instance:
    """Find the configuration and the folders; ask the lock who runs there, and the log which moment is meant."""
    instance = _located(config)
    if as_of is None:
        return instance
    from store.log.reader import LogReader
    from store.view import asof

    when = moment_option(as_of, "--as-of")
    with LogReader.open(instance.paths.events_db) as log:
        return replace(instance, moment=asof.find(log, when))


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


def _located(config: Path | None) -> Instance:
    try:
        path = find_config(config)
        paths = paths_from_config(path)
    except ConfigNotFoundError as error:
        raise CliError(str(error), code=ExitCode.BAD_CONFIG) from error
    except OSError as error:
        raise CliError(
            f"{error.filename}: {error.strerror or error}; check the path and its permissions",
            code=ExitCode.BAD_CONFIG,
        ) from error
    found = holder(paths)
    if found is not None and found.purpose != lock.DAEMON:
        return Instance(config=path, paths=paths, pid=None, held=found)
    return Instance(config=path, paths=paths, pid=None if found is None else found.pid)


def holder(paths: Paths) -> lock.Holder | None:
    """The process that holds these folders: the daemon, or a command that must be alone."""
    try:
        return lock.who_holds(paths.lock)
    except PermissionError as error:
        raise CliError(
            f"{paths.lock}: permission denied; join the group that owns {paths.state}, or ask its owner"
        ) from error


@contextmanager
def view(instance: Instance, *, quiet: bool = False) -> Iterator[sqlite3.Connection]:
    """Open the view for one reading verb; an absent or foreign file is an error with its remedy."""
    from store.sqlite import translated
    from store.view import queries

    path = instance.paths.database_db
    if instance.moment is None and not path.exists():
        raise CliError(no_view(instance))
    with ExitStack() as held:
        if instance.moment is not None:
            connection, path = _earlier_view(instance, instance.moment, quiet=quiet)
        else:
            if not (instance.running or quiet):
                left = f"this is the database as it left it ({instance.paths.state})"
                what = "the daemon is not running"
                if instance.held is not None and instance.held.purpose == lock.STANDBY:
                    what, left = "this is a standby", "what it follows may be ahead (`everlean status`)"
                note(f"everlean: {what}; {left}")
            connection = queries.connect(path)
        held.enter_context(closing(connection))
        held.enter_context(translated(path))
        reached = queries.checkpoint(connection)
        if reached is not None and reached.stopped_seq is not None and not quiet and instance.moment is None:
            note(f"everlean: this is the state up to event {reached.seq}: {reached.stopped_reason}")
        yield connection


def _earlier_view(instance: Instance, moment: Moment, *, quiet: bool) -> tuple[sqlite3.Connection, Path]:
    from store.log.reader import LogReader
    from store.view.asof import Copies

    if not quiet:
        note(f"everlean: this is the state as of event {moment.seq} ({moment.recorded_at})")
    with LogReader.open(instance.paths.events_db) as log:
        copies = Copies.of_user(instance.paths.copies, log, moment)
        if copies.ready(log, moment) is None and moment.seq - copies.start(log, moment) >= LONG_EVENTS:
            note("everlean: making the database as it was then; it is kept for the next question")
        return copies.open(log, moment), copies.folder


def no_view(instance: Instance) -> str:
    """Return why there is nothing to read, and the remedy."""
    if instance.paths.events_db.exists():
        return f"{instance.paths.database_db}: missing, and its log is there; run `everlean db rebuild`"
    remedy = f"start the daemon with `everlean run --config {instance.config}`"
    return f"{instance.paths.state}: nothing recorded there yet; {remedy}"


TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class DaemonAnswer:
    """The daemon's answer to GET /status; without `status` where no daemon answers."""

    status: LiveStatus | None = None
    error: str | None = None
    permitted: bool = True

    @property
    def queued(self) -> Sequence[QueuedJob]:
        """Return what it will start."""
        return self.status.queued if self.status is not None else ()

    @property
    def more_queued(self) -> int:
        """Return how many more it will start than it describes."""
        return self.status.more_queued if self.status is not None else 0

    def progress(self, job: str) -> JobProgress | None:
        """Return how far a running job is, None where it has said nothing."""
        jobs = self.status.jobs if self.status is not None else ()
        return next((item.progress for item in jobs if item.job == job), None)

    def progress_text(self, job: str) -> str:
        """Return "3/10 Basic.lean"."""
        progress = self.progress(job)
        if progress is None:
            return ""
        return f"{progress.count} {progress.note}".strip()


def ask(instance: Instance) -> DaemonAnswer:
    """Query the daemon, if one runs and the question is about now."""
    if not instance.running or instance.moment is not None:
        return DaemonAnswer()
    try:
        status, answer = control_client.request(instance.paths, "GET", "/status", timeout_s=TIMEOUT_S)
    except control_client.NotPermittedError as error:
        return DaemonAnswer(error=str(error), permitted=False)
    except control_client.ControlError as error:
        return DaemonAnswer(error=str(error))
    if status != 200:
        return DaemonAnswer(
            error=f"{instance.paths.socket}: GET /status answered {status}; restart the daemon, which may be of another"
            " version than this command"
        )
    from daemon.answers import LiveStatus

    return DaemonAnswer(LiveStatus.from_json(answer))


def command(instance: Instance, route: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send the daemon a request to act; return its answer.

    Raises:
        CliError: no daemon listens, or it refused, with its reason.
    """
    try:
        status, answer = control_client.request(instance.paths, "POST", route, body, timeout_s=10)
    except control_client.DaemonNotRunningError as error:
        raise CliError(str(error), code=ExitCode.NOT_RUNNING) from error
    except control_client.ControlError as error:
        raise CliError(str(error)) from error
    if status >= 400:
        raise CliError(str(answer.get("error") or answer.get("message") or f"the daemon answered {status}"))
    return answer
