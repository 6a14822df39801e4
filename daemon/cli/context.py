"""What every verb needs first: the options --config and --json, the folders, the daemon's pulse, the view.

Standard library only. A verb that reads opens the view read-only, whether the daemon runs or not, and says on
standard error when it does not.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from daemon import lock
from daemon.cli.exits import CliError, ExitCode
from daemon.cli.render import note
from daemon.paths import ConfigNotFoundError, Paths, find_config, paths_from_config

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="The configuration; default: $UNSORRY_CONFIG, ./config.toml, …"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output (docs/cli.md).")]
Repo = Annotated[
    str | None, typer.Option("--repo", metavar="R", help="Only this repository: its key or the end of it.")
]


@dataclass(frozen=True, slots=True)
class Place:
    """One daemon's configuration file and folders, and its process, if it runs.

    `rebuilding` is the process of a command that keeps the daemon away for the moment.
    """

    config: Path
    paths: Paths
    pid: int | None
    rebuilding: int | None = None

    @property
    def running(self) -> bool:
        return self.pid is not None

    def daemon_json(self) -> dict[str, Any]:
        """The `daemon` object that every document of a reading verb carries."""
        return {"running": self.running, "pid": self.pid}


def locate(config: Path | None) -> Place:
    """Find the configuration and the folders; ask the lock who runs there."""
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
        return Place(config=path, paths=paths, pid=None, rebuilding=found.pid)
    return Place(config=path, paths=paths, pid=None if found is None else found.pid)


def holder(paths: Paths) -> lock.Holder | None:
    """The process that holds these folders: the daemon, or a command that must be alone."""
    try:
        return lock.who_holds(paths.lock)
    except PermissionError as error:
        raise CliError(
            f"{paths.lock}: permission denied; join the group that owns {paths.state}, or ask its owner"
        ) from error


@contextmanager
def view(place: Place, *, quiet: bool = False) -> Iterator[sqlite3.Connection]:
    """Open the view for one reading verb; an absent or foreign file is an error with its remedy."""
    from store import queries
    from store.errors import translated

    if not place.paths.database_db.exists():
        raise CliError(no_view(place))
    if not (place.running or quiet):
        note(f"unsorry: the daemon is not running; this is the database as it left it ({place.paths.state})")
    with translated(place.paths.database_db):
        connection = queries.connect(place.paths.database_db)
        try:
            yield connection
        finally:
            connection.close()


def no_view(place: Place) -> str:
    """Say why there is nothing to read, and what to do."""
    if place.paths.events_db.exists():
        return f"{place.paths.database_db}: missing, and its log is there; run `unsorry db rebuild`"
    remedy = f"start the daemon with `unsorry run --config {place.config}`"
    return f"{place.paths.state}: nothing recorded there yet; {remedy}"


def merged_json(context: typer.Context, own: bool) -> bool:
    """`unsorry proofs --json show ID` and `unsorry proofs show ID --json` mean the same."""
    return own or bool(above(context, "as_json"))


def merged_config(context: typer.Context, own: Path | None) -> Path | None:
    """Like `merged_json`, for --config."""
    if own is not None:
        return own
    given = above(context, "config")
    return Path(given) if given is not None else None


def above(context: typer.Context, name: str) -> Any:
    """What was given for an option before the verb of a group, as in `unsorry proofs --state verified list`."""
    return context.parent.params.get(name) if context.parent else None


def one_match(rows: list[Any], prefix: str, *, what: str, key: str) -> Any:
    """Return the row whose id starts with `prefix`; none or several are errors that say so.

    An id that is itself the beginning of another one is still that one.
    """
    exact = [row for row in rows if getattr(row, key) == prefix]
    if len(exact) == 1:
        return exact[0]
    if not rows:
        raise CliError(f'no {what} has an id that starts with "{prefix}"; `unsorry {what}s` lists them')
    ids = sorted({getattr(row, key) for row in rows})
    if len(ids) > 1:
        shown = ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")
        raise CliError(f'"{prefix}" is the beginning of several {what} ids ({shown}); write more of it')
    return rows[0]
