"""Context of every verb: its options, exit codes, folders and view.

Standard library only. A verb is a function with its own arguments that returns an answer; `verb` adds the
options of all verbs, and writes the answer in the requested form:

    @verb("jobs show", OneJob, past=True)
    def show(call: Call, job: JobId) -> Answer:
        "Show one job."
        with call.view() as database: ...
        return Answer(OneJob(found), partial(_write, found))

A reading verb prints a note on standard error if no daemon runs. With --as-of, `Call.view` is the view of
that moment, and the document begins with the moment.
"""

from __future__ import annotations

import enum
import inspect
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from daemon.cli.answer import Answer, Listing
from daemon.cli.options import AsOf, Config, Json, NoAsOf
from daemon.cli.render import emit_json, note
from daemon.place.instance import Instance, command, find_instance, open_view
from store.text import clean, moment

if TYPE_CHECKING:
    from daemon.settings import Settings
    from store.log.reader import LogReader


class ExitCode(enum.IntEnum):
    """The exit status of the process. Any other code means failure."""

    OK = 0
    """done; of `status`: running, with warnings at most"""
    FAILURE = 1
    """failed, with the reason and a remedy; of `status`: the daemon runs with errors"""
    USAGE = 2
    """the command line is wrong"""
    NOT_RUNNING = 3
    """the daemon does not run, and the verb needs it"""
    DIFFERENCES = 6
    """`db verify` found differences, or `diff` a finding of `--fail-on`"""
    ALREADY_RUNNING = 75
    """another process holds the state folder, or installs Lean; of `run` also: another machine took the log
    over"""
    BAD_CONFIG = 78
    """the configuration has mistakes or is missing, or `serve` lacks a token"""
    OUTPUT_CLOSED = 141
    """the reader of standard output closed it, as `| head` does"""


class CliError(Exception):
    """A verb cannot go on; the message names the thing, the reason and the remedy."""

    def __init__(self, message: str, *, code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.code = code


class Call:
    """The options of every verb: the configuration, the moment, the form of the answer."""

    def __init__(self, config: Path | None, as_of: str | None, *, as_json: bool) -> None:
        self.config = config
        self.as_json = as_json
        self._as_of = as_of
        self._located = False

    @cached_property
    def instance(self) -> Instance:
        """Find the configuration and the folders; ask the lock for its holder, and the log for the moment."""
        instance = find_instance(self.config)
        self._located = True
        if self._as_of is None:
            return instance
        from store.log.reader import LogReader
        from store.view import asof

        when = moment_option(self._as_of, "--as-of")
        with LogReader.open(instance.paths.events_db) as log:
            return replace(instance, moment=asof.find(log, when))

    @property
    def head(self) -> dict[str, object]:
        """The first fields of the document: none of a verb that looked for no daemon."""
        return self.instance.head if self._located else {}

    @cached_property
    def settings(self) -> Settings:
        """Load the settings; print each mistake in them and exit with their code."""
        from daemon.settings import ConfigError, load

        try:
            return load(self.instance.config)
        except ConfigError as error:
            for line in error.errors:
                note(clean(line))
            raise typer.Exit(ExitCode.BAD_CONFIG) from error

    def view(self, *, quiet: bool = False) -> AbstractContextManager[sqlite3.Connection]:
        """Open the view; notes on its differences from the present go to standard error, unless `quiet`."""
        return open_view(self.instance, tell=None if quiet else note)

    def log(self) -> LogReader:
        """Open the log for reading.

        Raises:
            LogDamagedError: it is damaged; or it is gone, by the anchor or the view beside it.
            LogError: it cannot be read, or nothing was recorded yet.
        """
        from store.errors import DatabaseMissingError
        from store.log.reader import LogReader

        paths = self.instance.paths
        try:
            return LogReader.open(paths.events_db)
        except DatabaseMissingError:
            from store.view.view import refuse_lost_end

            refuse_lost_end(paths.events_db, paths.database_db)
            raise

    def key(self, name: str) -> str:
        """Return the whole key of a repository if the view has it, else the name, for the daemon to judge."""
        from store.documents.lookup import repository_named

        if not self.instance.running or not self.instance.paths.database_db.exists():
            return name
        with self.view() as database:
            return repository_named(database, name)

    def command(self, route: str, **body: Any) -> dict[str, Any]:
        """Send the daemon a request to act; return its answer."""
        return command(self.instance, route, body)


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb for Typer.

    Attributes:
        name: with its group's before it.
        run: has the options of every verb too.
        document: the class of the document for `--json`, or "module:Class"; None: it has no `--json`.
        rest: everything after its first argument belongs to it, options too.
    """

    name: str
    run: Callable[..., None]
    document: type | str | None
    rest: bool = False

    @property
    def help(self) -> str:
        return inspect.cleandoc(self.run.__doc__ or "")

    @property
    def context_settings(self) -> dict[str, Any]:
        """Of its command."""
        return {"ignore_unknown_options": True, "allow_interspersed_args": False} if self.rest else {}


VERBS: dict[str, Verb] = {}
"""The verbs of the modules loaded so far, by name."""
GROUPS: dict[str, str] = {}
"""The help of the groups loaded so far."""


def verb(
    name: str, document: type | str | None = None, *, past: bool = False, rest: bool = False
) -> Callable[[Callable[..., Answer | Listing[Any] | None]], Callable[..., Answer | Listing[Any] | None]]:
    """Make a verb of a function that takes the call and its own arguments, and returns the answer.

    Args:
        name: the words to call it.
        document: see `Verb`.
        past: it answers about an earlier moment too.
        rest: see `Verb`.
    """
    added: dict[str, Any] = {"as_of": AsOf if past else NoAsOf, "config": Config}
    if document is not None:
        added["as_json"] = Json

    def make(
        function: Callable[..., Answer | Listing[Any] | None],
    ) -> Callable[..., Answer | Listing[Any] | None]:
        def run(**values: Any) -> None:
            as_of, config = values.pop("as_of"), values.pop("config")
            if as_of is not None and not past:
                raise typer.BadParameter(
                    f"`everlean {name}` is about the present; leave it out", param_hint="--as-of"
                )
            call = Call(config, as_of, as_json=values.pop("as_json", False))
            answer = function(call, **values)
            if answer is None:
                return
            if call.as_json:
                emit_json(answer.document, call.head)
            else:
                answer.show()
            if answer.code:
                raise typer.Exit(answer.code)

        own = inspect.signature(function, eval_str=True)
        _, *parameters = own.parameters.values()
        options = [
            inspect.Parameter(
                key,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if key == "as_json" else None,
                annotation=kind,
            )
            for key, kind in added.items()
        ]
        run.__signature__ = own.replace(parameters=[*parameters, *options], return_annotation=None)  # type: ignore[attr-defined]
        run.__doc__ = function.__doc__
        VERBS[name] = Verb(name, run, document, rest)
        return function

    return make


@contextmanager
def files(remedy: str) -> Iterator[None]:
    """Have errors of the file system end the verb, with a remedy."""
    try:
        yield
    except OSError as error:
        raise CliError(f"{error.filename}: {error.strerror or error}; {remedy}") from error


def moment_option(text: str, option: str) -> int | datetime:
    """Read an option's event number or time (`store.text.moment`)."""
    if text.isascii() and text.isdigit():
        return int(text)
    return time_option(text, option, or_else="neither the number of an event nor a time")


def time_option(text: str, option: str, *, now: datetime | None = None, or_else: str = "no time") -> datetime:
    """Read an option's time, a relative one before `now`; None is the present."""
    try:
        return moment(text, now or datetime.now(UTC))
    except ValueError as error:
        raise typer.BadParameter(f'"{text}" is {or_else} {error}', param_hint=option) from error
