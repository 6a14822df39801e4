"""`unsorry trigger`: have a repository traced, learned from or searched once, though nothing there is new enough."""

from __future__ import annotations

from typing import Annotated

import typer

from daemon.cli.completion import one_of, repositories
from daemon.cli.context import Config, Json, command, locate, view
from daemon.cli.render import clean, emit_json, say
from daemon.cli.repos import resolve

WORK = ("trace", "train", "prove")


def register(app: typer.Typer) -> None:
    app.command("trigger", help="Have a repository traced, learned from or searched once, now.")(trigger)


def trigger(
    work: Annotated[
        str, typer.Argument(metavar="WORK", help=f"One of {', '.join(WORK)}.", autocompletion=one_of(WORK))
    ],
    repository: Annotated[
        str,
        typer.Argument(
            metavar="REPO",
            help="Its key, such as github.com/owner/name, or the end of it.",
            autocompletion=repositories,
        ),
    ],
    config: Config = None,
    as_json: Json = False,
) -> None:
    if work not in WORK:
        raise typer.BadParameter(f'"{work}" is none of {", ".join(WORK)}', param_hint="WORK")
    place = locate(config)
    key: str | None = repository
    if place.running and place.paths.database_db.exists():
        with view(place) as database:
            key = resolve(database, repository)
    answer = command(place, "/trigger", {"work": work, "repository": key})
    triggered, waits = bool(answer["triggered"]), answer.get("waits")
    if as_json:
        came = {"work": work, "repository": key, "triggered": triggered, "waits": waits}
        emit_json({"daemon": place.daemon_json, **came})
        return
    done = "is due now" if triggered else "was triggered before, and has not begun yet"
    say(f"{work} {key}: {done}{f'; it waits: {clean(str(waits))}' if waits else ''}")
