"""`unsorry theorems`: what stands in the watched repositories at their newest scanned commits."""

from __future__ import annotations

from typing import Annotated

import typer

from daemon.cli.context import Config, Json, Repo, locate, view
from daemon.cli.render import emit_json, note, row_json, say, table
from daemon.cli.repos import resolve
from daemon.cli.sorries import Every

SHOWN_TO_PEOPLE = 100


def register(app: typer.Typer) -> None:
    app.command("theorems", help="List theorems and lemmas, or all declarations.")(theorems)


def theorems(
    repo: Repo = None,
    name: Annotated[str | None, typer.Option("--name", metavar="N", help="Only this full name.")] = None,
    every_kind: Annotated[
        bool, typer.Option("--all-kinds", help="Also definitions, instances, structures, axioms, …")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", min=0, help="At most N; 0 is all. Default: 100, with --json all."
        ),
    ] = None,
    every: Every = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from store import queries

    place = locate(config)
    most = (0 if as_json else SHOWN_TO_PEOPLE) if limit is None else limit
    with view(place) as database:
        kinds = () if every_kind else queries.THEOREM_KINDS
        rows = queries.theorems(
            database,
            repository=resolve(database, repo),
            name=name,
            kinds=kinds,
            watched_only=not every,
            limit=most + 1 if most else None,
        )
    more = bool(most) and len(rows) > most
    rows = rows[:most] if more else rows
    if as_json:
        emit_json(
            {"daemon": place.daemon_json(), "theorems": [row_json(row) for row in rows], "truncated": more}
        )
        return
    if not rows:
        say("no theorem matches" if repo or name else "no theorem is known yet")
        return
    several = len({row.repository for row in rows}) > 1
    table(
        ("NAME", "KIND", "PLACE", "SORRYS", "STATEMENT"),
        [
            (
                row.name,
                row.kind,
                f"{row.repository} {row.path}:{row.line}" if several else f"{row.path}:{row.line}",
                str(row.n_sorries) if row.n_sorries else "-",
                row.statement,
            )
            for row in rows
        ],
        shrink=4,
    )
    if more:
        note(f"unsorry: only the first {most}; --limit 0 shows all")
