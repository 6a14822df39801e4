"""Options and arguments of several verbs, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from daemon.cli.completion import CHECKPOINTS, JOBS, PROOFS, SORRIES, ids, repositories

MOST = 10**9
"""The largest number of rows in a request; SQLite takes no number beyond 64 bits."""


def count(text: str) -> int:
    """Read an option's number from 1 on."""
    return _whole(text, 1)


def count_or_all(text: str) -> int:
    """Read an option's number from 1 on, or 0 for all."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    number = int(text) if str(text).isdecimal() else -1
    if not least <= number <= MOST:
        raise typer.BadParameter(f'"{text}" is no whole number from {least} to {MOST:,}')
    return number


def listened_host(host: str, *, option: str = "--host") -> str:
    """Return an option's address to listen on."""
    from daemon.settings.models import checked_host

    try:
        return checked_host(host)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


# ---- Of every verb: `daemon.cli.context.verb` adds them

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The configuration; default: $EVERLEAN_CONFIG, /etc/everlean/config.toml, ~/.config/everlean/config.toml.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output (docs/cli.md).")]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="SEQ|TIME",
        help="As it was at this event, or at this time: 2d, yesterday, ISO 8601 (UTC).",
    ),
]
NoAsOf = Annotated[str | None, typer.Option("--as-of", hidden=True)]
"""For a verb about the present: refused, with the reason."""


# ---- Filters

Repo = Annotated[
    str | None,
    typer.Option(
        "--repo",
        metavar="R",
        help="Only this repository: its key, or a part that only it has.",
        autocompletion=repositories,
    ),
]
Branch = Annotated[str | None, typer.Option("--branch", metavar="B", help="Only this branch.")]
Every = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Of every state, and also those on branches and in repositories that are watched no more.",
    ),
]
Text = Annotated[
    str,
    typer.Option(
        "--text",
        metavar="T",
        show_default=False,
        help="Only matches in name, path or statement, in any case.",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        parser=count_or_all,
        help="At most N; 0 is all. Default: 100, with --json all.",
    ),
]
SHOWN_TO_PEOPLE = 100


def most(limit: int | None, *, as_json: bool) -> int:
    """Return the most rows to show, 0 for all."""
    return (0 if as_json else SHOWN_TO_PEOPLE) if limit is None else limit


# ---- One thing by its id

SorryId = Annotated[
    str, typer.Argument(metavar="ID", help="A sorry's id, or its beginning.", autocompletion=ids(SORRIES))
]
ProofId = Annotated[
    str, typer.Argument(metavar="ID", help="A proof's id, or its beginning.", autocompletion=ids(PROOFS))
]
JobId = Annotated[
    str, typer.Argument(metavar="ID", help="A job's id, or its beginning.", autocompletion=ids(JOBS))
]
CheckpointId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A checkpoint's id, or its beginning.", autocompletion=ids(CHECKPOINTS)
    ),
]
RepositoryKey = Annotated[
    str,
    typer.Argument(
        metavar="REPO",
        help="Its key, such as github.com/owner/name, or a part that only it has.",
        autocompletion=repositories,
    ),
]
