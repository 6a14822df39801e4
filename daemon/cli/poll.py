"""`unsorry poll`: wake the poller now, through the control socket."""

from __future__ import annotations

from typing import Annotated

import typer

from daemon.cli.completion import repositories
from daemon.cli.context import Config, Json, Place, command, locate, view
from daemon.cli.render import emit_json, say
from daemon.cli.repos import resolve


def register(app: typer.Typer) -> None:
    app.command("poll", help="Ask repositories for new commits now.")(poll)


def poll(
    repository: Annotated[
        str | None,
        typer.Argument(
            metavar="[REPO]",
            help="Its key, such as github.com/owner/name, or the end of it.",
            autocompletion=repositories,
        ),
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    place = locate(config)
    repository = _key(place, repository) if place.running else repository
    answer = command(place, "/poll", {"repository": repository})
    polling = [str(key) for key in answer.get("polling", ())]
    if as_json:
        emit_json({"daemon": place.daemon_json, "polling": polling})
        return
    if not polling:
        say("nothing to poll: no repository is watched and enabled")
        return
    say(f"polling {', '.join(polling)} now; `unsorry repos` shows what came of it")


def _key(place: Place, name: str | None) -> str | None:
    """The whole key where the view knows it; otherwise as written, for the daemon to judge."""
    if name is None or not place.paths.database_db.exists():
        return name
    with view(place) as database:
        return resolve(database, name)
