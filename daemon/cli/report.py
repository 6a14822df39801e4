"""`everlean report`: HTML pages of what was recorded, and their pictures as files."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from daemon.cli.context import AsOf, CliError, Config, Json, locate, time_option, view
from daemon.cli.render import emit_json, note, say
from daemon.status_report import collect
from store.text import clean, counted, parse_time


def register(app: typer.Typer) -> None:
    app.command("report", help="Write HTML pages: what is new, every open sorry, proofs, models.")(report)


@dataclass(frozen=True, slots=True)
class Written:
    path: Path
    pages: list[Path]
    """all of them; `path` is the first"""
    pictures: list[Path]
    """all of them"""
    since: str
    """when what is new begins"""
    position: int
    simulated: bool
    empty: bool
    """nothing is recorded yet"""


def report(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder to write into; made if it is missing.")
    ] = Path("report"),
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="When what is new begins: 7d, yesterday, ISO 8601.")
    ] = "7d",
    web: Annotated[bool, typer.Option("--web", help="Open the first page in a browser.")] = False,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from pipeline.jobs.blueprint import Blueprints
    from pipeline.report.page import payloads, render
    from pipeline.report.writing import NotOursError, write

    instance = locate(config, as_of)
    now = datetime.now(UTC)
    then = now if instance.moment is None else parse_time(instance.moment.recorded_at)
    begins = time_option(since, "--since", now=then)
    with view(instance) as database:
        blueprints = Blueprints(instance.paths.mirrors, lambda problem: note(f"everlean: {clean(problem)}"))
        with payloads(instance.paths.events_db) as blob:
            made = render(
                database,
                made_at=now,
                since=begins,
                problems=collect(instance).problems,
                blob=blob,
                blueprints=blueprints,
            )
    try:
        page, *others = write(made, out.absolute())
    except NotOursError as error:
        raise CliError(str(error)) from error
    except OSError as error:
        raise CliError(
            f"{error.filename or out}: {error.strerror or error}; name a folder that can be written with --out"
        ) from error
    if as_json:
        written = Written(
            path=page,
            pages=[path for path in (page, *others) if path.suffix == ".html"],
            pictures=[path for path in others if path.suffix == ".svg"],
            since=made.since,
            position=made.position,
            simulated=made.simulated,
            empty=not made.position,
        )
        emit_json(written, instance.head)
    else:
        say(f"{page}: the state at event {made.position}, with {counted(len(others), 'file')} beside it")
        if not made.position:
            say("nothing is recorded yet, and the page says so")
        elif made.simulated:
            say("some of it is SIMULATED, and marked so")
    if web and not webbrowser.open(page.as_uri()):
        note(f"no browser is here to open it; open {page} yourself")
