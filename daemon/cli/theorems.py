"""`everlean theorems`: the theorems of the watched repositories, and the history of each."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

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
from store.documents.document import of_row
from store.documents.lookup import resolve
from store.text import ago, clean, listed
from store.view.rows import DeclarationRow, TheoremRow, TooLargeRow, too_large_said

if TYPE_CHECKING:
    from store.view.rows import TheoremVersionRow

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
class Place(DeclarationRow):
    SHOWN: ClassVar = ("path", "line", "column", "end_line", "end_column", "n_sorries")


@dataclass(frozen=True, slots=True)
class Version:
    steps: list[str]
    seq: int
    sha: str
    recorded_at: str
    name: str
    path: str
    statement: str
    statement_hash: str
    text_hash: str
    n_sorries: int


@dataclass(frozen=True, slots=True)
class LifeThere(TheoremRow):
    place: Place | None
    """null once deleted"""
    history: list[Version]
    """oldest first"""


@dataclass(frozen=True, slots=True)
class Life:
    theorem: str
    """its id for life"""
    branches: list[LifeThere]
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

    from store.view import queries

    instance = locate(config, as_of)
    with view(instance) as database:
        found = []
        for row in _chosen(database, theorem):
            spot = queries.theorem_place(database, row)
            versions = queries.theorem_history(
                database, row.theorem, repository=row.repository, branch=row.branch
            )
            found.append((row, spot, versions))
    if as_json:
        branches = [
            of_row(
                LifeThere,
                row,
                place=of_row(Place, spot) if spot else None,
                history=[of_row(Version, one, steps=one.steps.split(",")) for one in versions],
            )
            for row, spot, versions in found
        ]
        emit_json(Life(found[0][0].theorem, branches), instance.head)
        return
    for row, spot, versions in found:
        _show_one(row, spot, versions)


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


def _show_one(row: TheoremRow, spot: DeclarationRow | None, versions: list[TheoremVersionRow]) -> None:
    say(f"{styled(row.theorem, 'bold')}  {row.state}")
    fields(
        (
            # In the source it may be a lemma since its newest version: that is no step.
            ("name", clean(f"{(spot or row).kind} {row.name}")),
            ("place", clean(f"{spot.path}:{spot.line}:{spot.column}" if spot else f"was in {row.path}")),
            ("repository", f"{row.repository} ({row.branch})"),
            ("statement", clean(row.statement)),
            ("sorries", str(spot.n_sorries) if spot and spot.n_sorries else ""),
        )
    )
    say(styled("history", "bold"))
    before: TheoremVersionRow | None = None
    for version in versions:
        steps = version.steps.replace(",", ", ")
        say(f"  {ago(version.recorded_at):<10} {version.sha[:10]}  {steps}")
        for line in _changes(before, version):
            say(f"    {clean(line)}")
        before = version


def _changes(before: TheoremVersionRow | None, version: TheoremVersionRow) -> list[str]:
    """Return the differences of a version from the one before it, one line each."""
    if before is None:
        return [f"{version.name} in {version.path}", version.statement]
    changes = [
        f"{old} -> {new}"
        for old, new in ((before.name, version.name), (before.path, version.path))
        if old != new
    ]
    if before.statement != version.statement:  # a line each: arrows are what statements are made of
        changes += [f"- {before.statement}", f"+ {version.statement}"]
    if before.n_sorries != version.n_sorries and version.steps != "deleted":
        changes.append(f"sorries: {before.n_sorries} -> {version.n_sorries}")
    return changes


def _most(limit: int | None, *, as_json: bool) -> int:
    return (0 if as_json else SHOWN_TO_PEOPLE) if limit is None else limit


def _say_more(more: bool, most: int) -> None:
    if more:
        note(f"everlean: only the first {most}; --limit 0 shows all")
