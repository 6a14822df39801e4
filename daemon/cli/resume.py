"""`unsorry resume`: let paused work begin again."""

from __future__ import annotations

import typer

from daemon.cli.context import Config, Json, command, locate
from daemon.cli.pause import Work, checked
from daemon.cli.render import emit_json, say


def register(app: typer.Typer) -> None:
    app.command("resume", help="Let paused work begin again: poll, train, prove or all.")(resume)


def resume(work: Work = "all", config: Config = None, as_json: Json = False) -> None:
    place = locate(config)
    answer = command(place, "/resume", {"work": checked(work)})
    resumed = bool(answer["resumed"])
    if as_json:
        emit_json({"daemon": place.daemon_json, "work": work, "resumed": resumed})
        return
    what = "everything" if work == "all" else work
    if resumed:
        say(f"{what} goes on")
    else:
        say("nothing was paused" if work == "all" else f"{work} was not paused")
