"""`unsorry pause`: keep a sort of work from beginning, until `unsorry resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from daemon.cli.completion import one_of
from daemon.cli.context import Config, Json, command, locate
from daemon.cli.render import emit_json, say

WORK = ("poll", "train", "prove", "all")
Work = Annotated[
    str, typer.Argument(metavar="[WORK]", help=f"One of {', '.join(WORK)}.", autocompletion=one_of(WORK))
]
_WHAT = {
    "poll": "no repository is polled by itself",
    "train": "no training begins",
    "prove": "no search and no check begins",
    "all": "nothing begins",
}


def register(app: typer.Typer) -> None:
    app.command("pause", help="Keep work from beginning: poll, train, prove or all.")(pause)


def checked(work: str) -> str:
    """Return the name of a sort of work that can be paused; refuse another one."""
    if work not in WORK:
        raise typer.BadParameter(f'"{work}" is none of {", ".join(WORK)}', param_hint="WORK")
    return work


def pause(
    work: Work = "all",
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="The reason, shown by `unsorry status`.")
    ] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    place = locate(config)
    answer = command(place, "/pause", {"work": checked(work), "reason": reason})
    paused = bool(answer["paused"])
    if as_json:
        emit_json({"daemon": place.daemon_json, "work": work, "paused": paused})
        return
    if paused:
        say(f"{work} is paused: {_WHAT[work]} until `unsorry resume {work}`")
    else:
        say(f"{work} was paused before, and stays so; `unsorry status` says by whom")
