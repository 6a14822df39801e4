"""`everlean report`: HTML pages of the recorded facts, and their pictures as files."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from daemon.cli.answer import Answer
from daemon.cli.context import Call, files, time_option, verb
from daemon.cli.render import note
from daemon.health.status_report import collect
from store.text import clean, counted, parse_time


@dataclass(frozen=True, slots=True)
class Written:
    path: Path
    pages: list[Path]
    """all of them; `path` is the first"""
    pictures: list[Path]
    """all of them"""
    since: str
    """the beginning of the news"""
    position: int
    empty: bool
    """nothing is recorded yet"""


@verb("report", Written, past=True)
def report(
    call: Call,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder to write into; made if it is missing.")
    ] = Path("report"),
    since: Annotated[
        str,
        typer.Option("--since", metavar="TIME", help="The beginning of the news: 7d, yesterday, ISO 8601."),
    ] = "7d",
    web: Annotated[bool, typer.Option("--web", help="Open the first page in a browser.")] = False,
) -> Answer:
    """Write HTML pages: news, open sorries, proofs, models."""
    from pipeline.jobs.blueprint import Blueprints
    from pipeline.jobs.written import Sources
    from pipeline.report.page import payloads, render
    from pipeline.report.writing import write

    instance = call.instance
    now = datetime.now(UTC)
    then = now if instance.moment is None else parse_time(instance.moment.recorded_at)
    begins = time_option(since, "--since", now=then)
    with call.view() as database:
        blueprints = Blueprints(instance.paths.mirrors, lambda problem: note(f"everlean: {clean(problem)}"))
        with payloads(instance.paths.events_db) as blob:
            result = render(
                database,
                made_at=now,
                since=begins,
                problems=collect(instance).problems,
                blob=blob,
                blueprints=blueprints,
                written=Sources(instance.paths.mirrors),
            )
    with files("name a folder that can be written with --out"):
        page, *others = write(result, out.absolute())
    text = f"{page}: the state at event {result.position}, with {counted(len(others), 'file')} beside it"
    if not result.position:
        text += "\nnothing is recorded yet, and the page says so"
    if web and not webbrowser.open(page.as_uri()):
        note(f"no browser is here to open it; open {page} yourself")
    written = Written(
        path=page,
        pages=[path for path in (page, *others) if path.suffix == ".html"],
        pictures=[path for path in others if path.suffix == ".svg"],
        since=result.since,
        position=result.position,
        empty=not result.position,
    )
    return Answer(written, text)
