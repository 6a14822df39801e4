"""`unsorry report`: one HTML page of what was recorded, and its pictures as files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from daemon.cli.context import AsOf, CliError, Config, Json, locate, view
from daemon.cli.render import emit_json, say


def register(app: typer.Typer) -> None:
    app.command("report", help="Write one HTML page of sorries, proofs, training and recall.")(report)


def report(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder to write into; made if it is missing.")
    ] = Path("report"),
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from pipeline.report.gather import gather_at
    from pipeline.report.page import render
    from pipeline.report.writing import NotOursError, write

    instance = locate(config, as_of)
    with view(instance) as database:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        data = gather_at(database, instance.paths.events_db, made_at=now)
    try:
        page, *pictures = write(render(data), out.absolute())
    except NotOursError as error:
        raise CliError(str(error)) from error
    except OSError as error:
        raise CliError(
            f"{error.filename or out}: {error.strerror or error}; name a folder that can be written with --out"
        ) from error
    if as_json:
        emit_json(
            {
                **instance.head,
                "path": page,
                "pictures": pictures,
                "position": data.position,
                "simulated": data.simulated,
                "empty": data.empty,
            }
        )
        return
    say(f"{page}: the state at event {data.position}, {len(pictures)} pictures beside it")
    if data.empty:
        say("nothing is recorded yet, and the page says so")
    elif data.simulated:
        say("some of it is SIMULATED, and marked so")
