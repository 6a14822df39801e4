"""`everlean theorems`: the theorems of the watched repositories, and the history of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from daemon.cli.answer import Answer, Column, Listing, limited, nothing, place
from daemon.cli.completion import THEOREMS, ids
from daemon.cli.context import GROUPS, Call, verb
from daemon.cli.options import Every, Limit, Repo, Text, most
from daemon.cli.render import fields, say, styled
from store.documents.lookup import resolve, theorems_called
from store.documents.theorems import Theorem, Version, describe_theorems
from store.text import ago, clean
from store.view.rows import DeclarationRow, TooLargeRow, too_large_text
from store.view.transfers import UpstreamRow

GROUPS["theorems"] = "List theorems and lemmas, or show one with its history."
COLUMNS: list[Column[DeclarationRow]] = [
    Column("LINE", lambda row: str(row.line)),
    Column("KIND", lambda row: row.kind),
    Column("NAME", lambda row: row.name, shrink=True, name=True),
    Column("SORRIES", lambda row: str(row.n_sorries or "-")),
    Column("STATEMENT", lambda row: row.statement, shrink=True),
]

UPSTREAM: list[Column[UpstreamRow]] = [
    Column("LINE", lambda row: str(row.line)),
    Column("NAME", lambda row: row.name, shrink=True, name=True),
    Column("UPSTREAM", lambda row: row.upstream, shrink=True),
    Column("THERE IN", lambda row: row.upstream_path, shrink=True),
]


@dataclass(frozen=True, slots=True)
class Theorems:
    theorems: list[DeclarationRow]
    """at the newest scanned commits of watched branches"""
    truncated: bool
    """whether `--limit` left some out"""
    too_large: list[TooLargeRow]
    """where the limits of `[scan]` left declarations out"""


@dataclass(frozen=True, slots=True)
class Upstream:
    theorems: list[UpstreamRow]


@dataclass(frozen=True, slots=True)
class Life:
    theorem: str
    """its id for life"""
    branches: list[Theorem]
    """the life on each branch"""


@verb("theorems", Theorems, past=True)
def list_(
    call: Call,
    repo: Repo = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="N", help="Only this full name, or names that fit a pattern (*, ?, [)."
        ),
    ] = None,
    text: Text = "",
    every_kind: Annotated[
        bool, typer.Option("--all-kinds", help="Also definitions, instances, structures, axioms, …")
    ] = False,
    limit: Limit = None,
    every: Every = False,
) -> Listing[DeclarationRow]:
    """List theorems and lemmas."""
    from store.view import queries

    at_most = most(limit, as_json=call.as_json)
    with call.view() as database:
        repository = resolve(database, repo)
        too_large = [row for row in queries.too_large(database, repository=repository) if row.declarations]
        result = queries.theorems(
            database,
            repository=repository,
            name=name,
            text=text,
            kinds=() if every_kind else queries.THEOREM_KINDS,
            watched_only=not every,
            limit=at_most + 1 if at_most else None,
        )
    rows, more = limited(result, at_most)
    return Listing(
        rows,
        COLUMNS,
        Theorems(rows, bool(more), too_large),
        empty=nothing("theorem", repo, name, text),
        group=place,
        above=[f"{where} {sentence}" for where, sentence in too_large_text(too_large).items()],
        more=more,
    )


@verb("theorems upstream", Upstream, past=True)
def upstream(call: Call, repo: Repo = None) -> Listing[UpstreamRow]:
    """List your theorems that a package or Lean has too."""
    from store.view import transfers

    with call.view() as database:
        rows = transfers.upstream(database, repository=resolve(database, repo))
    return Listing(rows, UPSTREAM, Upstream(rows), empty=nothing("theorem", repo), group=place)


@verb("theorems show", Life, past=True)
def show(
    call: Call,
    theorem: Annotated[
        str,
        typer.Argument(
            metavar="ID|NAME",
            help="A theorem's id or its beginning, or its name or the end of it.",
            autocompletion=ids(THEOREMS),
        ),
    ],
) -> Answer:
    """Show one theorem: its place and all its versions."""
    with call.view() as database:
        result = describe_theorems(database, theorems_called(database, theorem))
    return Answer(Life(result[0].theorem, result), lambda: _show(result))


def _show(theorems: list[Theorem]) -> None:
    for item in theorems:
        spot = item.place
        say(f"{styled(item.theorem, 'bold')}  {item.state}")
        fields(
            (
                # In the source it may be a lemma since its newest version: that is no step.
                ("name", clean(f"{(spot or item).kind} {item.name}")),
                ("place", clean(f"{spot.path}:{spot.line}:{spot.column}" if spot else f"was in {item.path}")),
                ("repository", f"{item.repository} ({item.branch})"),
                ("statement", clean(item.statement)),
                ("sorries", str(spot.n_sorries) if spot and spot.n_sorries else ""),
                ("upstream too", clean("; ".join(item.upstream))),
            )
        )
        say(styled("history", "bold"))
        before: Version | None = None
        for version in item.history:
            say(f"  {ago(version.recorded_at):<10} {version.sha[:10]}  {', '.join(version.steps)}")
            for line in version.changes(before):
                say(f"    {clean(line)}")
            before = version
