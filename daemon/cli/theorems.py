"""`everlean theorems`: the theorems of the watched repositories, and the history of each."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Annotated

import typer

from daemon.cli.completion import THEOREMS, ids, one_of
from daemon.cli.context import (
    AsOf,
    CliError,
    Config,
    Json,
    Repo,
    count_or_all,
    locate,
    view,
)
from daemon.cli.render import (
    check_choice,
    emit_json,
    fields,
    listing_group,
    note,
    places,
    say,
    short_ids,
    styled,
    table,
)
from daemon.cli.sorries import Branch, Every
from store.documents.lookup import resolve
from store.documents.theorems import Theorem, Version, describe_theorems
from store.text import ago, clean, listed
from store.view.rows import DeclarationRow, TheoremRow, TooLargeRow, too_large_said

SHOWN_TO_PEOPLE = 100
STATES = ("present", "deleted")
State = Annotated[
    str | None,
    typer.Option("--state", metavar="S", help=f"Only: {', '.join(STATES)}.", autocompletion=one_of(STATES)),
]
Name = Annotated[
    str | None,
    typer.Option("--name", metavar="N", help="Only this full name, or names that fit a pattern (*, ?, [)."),
]
EveryKind = Annotated[
    bool, typer.Option("--all-kinds", help="Also definitions, instances, structures, axioms, …")
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        parser=count_or_all,
        help="At most N; 0 is all. Default: 100, with --json all.",
    ),
]


def register(app: typer.Typer) -> None:
    group = listing_group(
        list_,
        help_text="List theorems and lemmas, or show the whole life of one.",
        list_help="List the theorems of the source (the same as no verb).",
    )
    group.command("lives", help="List theorems with their ids for life, also deleted ones.")(lives)
    group.command("show", help="Show one theorem: its place, and every version of it.")(show)
    app.add_typer(group, name="theorems")


@dataclass(frozen=True, slots=True)
class Theorems:
    theorems: list[DeclarationRow]
    """at the newest scanned commits of watched branches"""
    truncated: bool
    """whether `--limit` left some out"""
    too_large: list[TooLargeRow]
    """where the limits of `[scan]` left declarations out"""


@dataclass(frozen=True, slots=True)
class Lives:
    lives: list[TheoremRow]
    """of every theorem one for each branch"""
    truncated: bool
    """whether `--limit` left some out"""


@dataclass(frozen=True, slots=True)
class Life:
    theorem: str
    """its id for life"""
    branches: list[Theorem]
    """the life on each branch"""


def list_(
    repo: Repo = None,
    name: Name = None,
    every_kind: EveryKind = False,
    limit: Limit = None,
    every: Every = False,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from store.view import queries

    instance = locate(config, as_of)
    most = _most(limit, as_json=as_json)
    with view(instance) as database:
        kinds = () if every_kind else queries.THEOREM_KINDS
        repository = resolve(database, repo)
        too_large = [row for row in queries.too_large(database, repository=repository) if row.declarations]
        rows = queries.theorems(
            database,
            repository=repository,
            name=name,
            kinds=kinds,
            watched_only=not every,
            limit=most + 1 if most else None,
        )
    more = bool(most) and len(rows) > most
    rows = rows[:most] if more else rows
    if as_json:
        emit_json(Theorems(rows, more, too_large), instance.head)
        return
    for where, said in too_large_said(too_large).items():
        say(clean(f"{where} {said}"))
    if not rows:
        say("no theorem matches" if repo or name else "no theorem is known yet")
        return
    table(
        ("LINE", "KIND", "NAME", "SORRIES", "STATEMENT"),
        [
            (str(row.line), row.kind, row.name, str(row.n_sorries) if row.n_sorries else "-", row.statement)
            for row in rows
        ],
        shrink=(4, 2),
        names=(2,),
        indent=4,
        groups=places(rows),
    )
    _say_more(more, most)


def lives(
    repo: Repo = None,
    branch: Branch = None,
    state: State = None,
    name: Name = None,
    limit: Limit = None,
    every: Every = False,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:

    from store.view import queries

    check_choice(state, STATES, option="--state")
    instance = locate(config, as_of)
    most = _most(limit, as_json=as_json)
    with view(instance) as database:
        rows = queries.theorem_lives(
            database,
            repository=resolve(database, repo),
            branch=branch,
            state=state,
            name=name,
            watched_only=not every,
            limit=most + 1 if most else None,
        )
    more = bool(most) and len(rows) > most
    rows = rows[:most] if more else rows
    if as_json:
        emit_json(Lives(rows, more), instance.head)
        return
    if not rows:
        say("no theorem matches" if repo or branch or state or name else "no theorem was followed yet")
        return
    short = short_ids(row.theorem for row in rows)
    table(
        ("ID", "STATE", "NAME", "VERSIONS", "FIRST SEEN", "STATEMENT"),
        [
            (
                short[row.theorem],
                row.state,
                row.name,
                str(row.versions),
                ago(row.first_seen_at),
                row.statement,
            )
            for row in rows
        ],
        shrink=(5, 2),
        spare=(4,),
        names=(2,),
        indent=4,
        groups=places(rows),
    )
    _say_more(more, most)


def show(
    theorem: Annotated[
        str,
        typer.Argument(
            metavar="ID|NAME",
            help="A theorem's id or its beginning, or its name or the end of it.",
            autocompletion=ids(THEOREMS),
        ),
    ],
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    instance = locate(config, as_of)
    with view(instance) as database:
        found = describe_theorems(database, _chosen(database, theorem))
    if as_json:
        emit_json(Life(found[0].theorem, found), instance.head)
        return
    for item in found:
        _show_one(item)


def _chosen(database: sqlite3.Connection, asked: str) -> list[TheoremRow]:
    """The one theorem, on each branch that has or had it: by id, by its present identity, or by name."""

    from store.view import queries

    rows = (
        queries.theorem_by_name(database, asked)
        or queries.theorem_by_prefix(database, asked)
        or queries.theorem_by_identity(database, asked)
        or queries.theorem_by_earlier_name(database, asked)
        or queries.theorem_by_ending(database, asked)
    )
    exact = [row for row in rows if row.theorem == asked]
    if exact:
        return exact
    present = [row for row in rows if row.state == "present"]
    ids = sorted({row.theorem for row in rows})
    if len({row.theorem for row in present}) == 1:
        ids = [present[0].theorem]
    if len(ids) == 1:
        return [row for row in rows if row.theorem == ids[0]]
    if ids:
        shown = listed([f"{row.theorem} ({row.state}, {row.path})" for row in rows], 5)
        raise CliError(f'"{asked}" may be any of several theorems; name one by its id: {shown}')
    if queries.theorems(database, name=asked, limit=1):
        raise CliError(
            f"{asked}: it stands in the source and was not followed yet: its history begins with the next scanned "
            "commit that changes a theorem of its branch"
        )
    near = [] if set(asked) & set("*?[") else queries.theorems(database, name=f"*.{asked}", limit=3)
    if near:
        named = " or ".join(dict.fromkeys(row.name for row in near))
        raise CliError(f'no theorem has the name or the id "{asked}"; did you mean {named}?')
    raise CliError(f'no theorem has the name or the id "{asked}"; `everlean theorems lives` lists them')


def _show_one(item: Theorem) -> None:
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
        )
    )
    say(styled("history", "bold"))
    before: Version | None = None
    for version in item.history:
        say(f"  {ago(version.recorded_at):<10} {version.sha[:10]}  {', '.join(version.steps)}")
        for line in version.changes(before):
            say(f"    {clean(line)}")
        before = version


def _most(limit: int | None, *, as_json: bool) -> int:
    return (0 if as_json else SHOWN_TO_PEOPLE) if limit is None else limit


def _say_more(more: bool, most: int) -> None:
    if more:
        note(f"everlean: only the first {most}; --limit 0 shows all")
