"""`unsorry poll`, `pause`, `resume` and `trigger`: have the running daemon do work now, or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from daemon.cli.completion import one_of, repositories
from daemon.cli.context import Config, Instance, Json, command, locate, view
from daemon.cli.render import clean, emit_json, say
from daemon.cli.repos import resolve


def register(app: typer.Typer) -> None:
    app.command("poll", help="Ask repositories for new commits now.")(poll)
    app.command("pause", help="Start no more of some work: poll, train, prove or all.")(pause)
    app.command("resume", help="Start paused work again: poll, train, prove or all.")(resume)
    app.command("trigger", help="Have a repository traced, learned from or searched once, now.")(trigger)


@dataclass(frozen=True, slots=True)
class Polling:
    polling: list[str]
    """keys of the repositories that are asked"""


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
    instance = locate(config)
    repository = _key(instance, repository) if instance.running else repository
    answer = command(instance, "/poll", {"repository": repository})
    polling = [str(key) for key in answer.get("polling", ())]
    if as_json:
        emit_json(Polling(polling), instance.head)
        return
    if not polling:
        say("nothing to poll: no repository is watched and enabled")
        return
    say(f"polling {', '.join(polling)} now; `unsorry repos` shows what came of it")


def _key(instance: Instance, name: str | None) -> str | None:
    """The whole key where the view knows it; otherwise as written, for the daemon to judge."""
    if name is None or not instance.paths.database_db.exists():
        return name
    with view(instance) as database:
        return resolve(database, name)


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


def checked(work: str) -> str:
    """Return the name of a sort of work that can be paused; refuse another one."""
    if work not in WORK:
        raise typer.BadParameter(f'"{work}" is none of {", ".join(WORK)}', param_hint="WORK")
    return work


@dataclass(frozen=True, slots=True)
class Paused:
    work: str
    paused: bool
    """false where it was paused before"""


def pause(
    work: Work = "all",
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="The reason, shown by `unsorry status`.")
    ] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    instance = locate(config)
    answer = command(instance, "/pause", {"work": checked(work), "reason": reason})
    paused = bool(answer["paused"])
    if as_json:
        emit_json(Paused(work, paused), instance.head)
        return
    if paused:
        say(f"{work} is paused: {_WHAT[work]} until `unsorry resume {work}`")
    else:
        say(f"{work} was paused before, and stays so; `unsorry status` says by whom")


@dataclass(frozen=True, slots=True)
class Resumed:
    work: str
    resumed: bool
    """false where it was not paused"""


def resume(work: Work = "all", config: Config = None, as_json: Json = False) -> None:
    instance = locate(config)
    answer = command(instance, "/resume", {"work": checked(work)})
    resumed = bool(answer["resumed"])
    if as_json:
        emit_json(Resumed(work, resumed), instance.head)
        return
    what = "everything" if work == "all" else work
    if resumed:
        say(f"{what} goes on")
    else:
        say("nothing was paused" if work == "all" else f"{work} was not paused")


TRIGGERED = ("trace", "train", "prove")


@dataclass(frozen=True, slots=True)
class Triggered:
    work: str
    repository: str | None
    triggered: bool
    """false where an earlier trigger waits still"""
    waits: str | None
    """what keeps it from beginning, or null"""


def trigger(
    work: Annotated[
        str,
        typer.Argument(
            metavar="WORK", help=f"One of {', '.join(TRIGGERED)}.", autocompletion=one_of(TRIGGERED)
        ),
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
    if work not in TRIGGERED:
        raise typer.BadParameter(f'"{work}" is none of {", ".join(TRIGGERED)}', param_hint="WORK")
    instance = locate(config)
    key: str | None = repository
    if instance.running and instance.paths.database_db.exists():
        with view(instance) as database:
            key = resolve(database, repository)
    answer = command(instance, "/trigger", {"work": work, "repository": key})
    triggered, waits = bool(answer["triggered"]), answer.get("waits")
    if as_json:
        emit_json(Triggered(work, key, triggered, waits), instance.head)
        return
    done = "is due now" if triggered else "was triggered before, and has not begun yet"
    say(f"{work} {key}: {done}{f'; it waits: {clean(str(waits))}' if waits else ''}")
