"""`everlean sorries`: every sorry with its place, its state and its history."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.completion import SORRIES, ids, one_of
from daemon.cli.context import AsOf, Config, Json, Repo, locate, view
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
from daemon.instance import command
from daemon.paths import Paths
from store.documents.attempts import Attempt, describe_attempts
from store.documents.lookup import one_match, resolve
from store.documents.proofs import Proof, describe_proofs
from store.documents.sorries import Goal, Sorry, by_impact, describe_sorries
from store.domain.identity import line_url
from store.text import ago, by_state, clean, clean_block, counted, cut
from store.view.impact import Impact
from store.view.rows import too_large_said

if TYPE_CHECKING:
    from pipeline.jobs.blueprint import Blueprints
    from store.view.rows import TooLargeRow


STATES = ("open", "disproved", "verified", "filled", "removed")
State = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="S",
        help=f"Only: {', '.join(STATES)}. Default: open and disproved, with --json all.",
        autocompletion=one_of(STATES),
    ),
]
Branch = Annotated[str | None, typer.Option("--branch", metavar="B", help="Only this branch.")]
Every = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Of every state, and also those on branches and in repositories that are watched no more.",
    ),
]
ORDERS = ("place", "impact")
By = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="ORDER",
        help="Order: place (repository, branch, file) or impact (most theorems that rest on it first).",
        autocompletion=one_of(ORDERS),
    ),
]
AROUND = 4
"""Lines of the source that are shown above a sorry, and below it."""


def register(app: typer.Typer) -> None:
    group = listing_group(
        list_,
        help_text="List sorries, or show the whole life of one.",
        list_help="List sorries (the same as no verb).",
    )
    group.command("show", help="Show one sorry: place, history, attempts, proofs.")(show)
    group.command("release", help="End an agent's claim on a sorry before its time.")(release)
    app.add_typer(group, name="sorries")


def list_(
    repo: Repo = None,
    state: State = None,
    branch: Branch = None,
    every: Every = False,
    by: By = "place",
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from pipeline.jobs.blueprint import resting_on
    from store.view import queries

    check_choice(state, STATES, option="--state")
    check_choice(by, ORDERS, option="--by")
    instance = locate(config, as_of)
    with view(instance) as database:
        repository = resolve(database, repo)
        rows = queries.sorries(
            database,
            repository=repository,
            branch=branch,
            state="open" if state == "disproved" else state,
            watched_only=not every,
        )
        impacts = resting_on(database, rows, _blueprints(instance.paths)) if by == "impact" else {}
        found = describe_sorries(database, rows, moment=instance.moment, impacts=impacts, histories=as_json)
        too_large = [
            row
            for row in queries.too_large(database, repository=repository)
            if branch in (None, row.branch) and row.sorries
        ]
    if state in ("open", "disproved"):
        found = [item for item in found if bool(item.disproved) == (state == "disproved")]
    if by == "impact":
        found = by_impact(found)
    if as_json:
        emit_json(Sorries(found, too_large), instance.head)
        return
    for where, said in too_large_said(too_large).items():
        say(clean(f"{where} {said}"))
    shown = [item for item in found if state or every or item.state == "open"]
    left = Counter(item.state for item in found) - Counter(item.state for item in shown)
    hint = f"; {by_state(left)} (--all lists them)" if left else ""
    if not shown:
        nothing = "no sorry matches" if repo or state or branch else "no sorry is known yet"
        say(f"no sorry is open{hint}" if left else nothing)
        return
    short = short_ids(item.sorry for item in shown)
    if by == "impact":
        table(
            ("ID", "RESTS ON IT", "STATE", "DECLARATION", "STATEMENT", "PLACE"),
            [
                (
                    short[item.sorry],
                    impact_said(item.impact),
                    item.state_text,
                    item.declaration,
                    item.statement,
                    f"{item.path}:{item.line}",
                )
                for item in shown
            ],
            shrink=(4, 5, 3),
            spare=(4, 2),
            names=(3, 5),
            indent=4,
            groups=[(f"{item.repository} ({item.branch})",) for item in shown],
        )
        say(counted(len(shown), "sorry") + hint)
        return
    table(
        ("ID", "LINE", "STATE", "DECLARATION", "STATEMENT", "TRIED", "SINCE"),
        [
            (
                short[item.sorry],
                str(item.line),
                item.state_text,
                item.declaration,
                item.statement,
                item.tried.text if item.tried else "-",
                _since(item),
            )
            for item in shown
        ],
        shrink=(4, 3, 2),
        spare=(5, 6),
        names=(3,),
        indent=4,
        groups=places(shown),
    )
    say(counted(len(shown), "sorry") + hint)


def show(
    sorry: Annotated[
        str, typer.Argument(metavar="ID", help="A sorry's id, or its beginning.", autocompletion=ids(SORRIES))
    ],
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from pipeline.jobs.blueprint import resting_on
    from store.view import queries

    instance = locate(config, as_of)
    with view(instance) as database:
        matching = queries.sorries_by_prefix(database, sorry)
        chosen = one_match(matching, sorry, what="sorry", key="sorry").sorry
        rows = [row for row in matching if row.sorry == chosen]
        attempts = describe_attempts(database, [chosen]).get(chosen, [])
        proofs = describe_proofs(database, queries.proofs(database, sorry=chosen))
        impacts = resting_on(database, rows, _blueprints(instance.paths))
        found = describe_sorries(database, rows, moment=instance.moment, impacts=impacts, histories=True)
        tips = {(row.repository, row.branch): row.scanned for row in queries.branches(database)}
    if as_json:
        emit_json(OneSorry(chosen, found, attempts, proofs), instance.head)
        return
    for item in found:
        _show_one(item, tip=tips.get((item.repository, item.branch)), paths=instance.paths)
    if attempts:
        say()
        say(styled("attempts", "bold"))
        for row in attempts:
            _show_attempt(row)
        if any(row.tree_sha256 for row in attempts):
            say(f"  `everlean proofs tree {chosen} --attempt N` shows a search")
    if proofs:
        say()
        say(styled("proofs", "bold"))
        table(
            ("ID", "STATE", "REPLACEMENT"),
            [
                (
                    row.proof,
                    row.label + (", stale" if row.stale else ""),
                    row.replacement,
                )
                for row in proofs
            ],
            shrink=(2,),
        )


@dataclass(frozen=True, slots=True)
class Released:
    sorry: str
    """its id"""
    claim: str
    """the claim that was ended"""


def release(
    sorry: Annotated[
        str, typer.Argument(metavar="ID", help="A sorry's id, or its beginning.", autocompletion=ids(SORRIES))
    ],
    config: Config = None,
    as_json: Json = False,
) -> None:
    from store.log.envelope import now_text
    from store.view import queries

    instance = locate(config)
    with view(instance) as database:
        standing = [row for row in queries.claims(database, now=now_text()) if row.sorry.startswith(sorry)]
    held = one_match(standing, sorry, what="claimed sorry", key="sorry", verb="sorries")
    command(instance, "/release", {"claim": held.claim})
    if as_json:
        emit_json(Released(held.sorry, held.claim), instance.head)
        return
    say(f"{held.sorry}: {clean(held.agent)} has it no longer")


def _blueprints(paths: Paths) -> Blueprints:
    from pipeline.jobs.blueprint import Blueprints

    return Blueprints(paths.mirrors, lambda problem: note(f"everlean: {clean(problem)}"))


def impact_said(impact: Impact | None) -> str:
    """Say for people what rests on a sorry."""
    if impact is None:
        return "-"
    said = []
    if impact.theorems is not None:
        said.append(counted(impact.theorems, "theorem") + (" SIMULATED" if impact.simulated else ""))
    if impact.statements is not None:
        said.append(f"{counted(impact.statements, 'statement')} of the blueprint")
    return ", ".join(said) or "unknown"


@dataclass(frozen=True, slots=True)
class Sorries:
    sorries: list[Sorry]
    """of every state, where `--state` names none"""
    too_large: list[TooLargeRow]
    """where the limits of `[scan]` left something out"""


@dataclass(frozen=True, slots=True)
class OneSorry:
    sorry: str
    """its id"""
    branches: list[Sorry]
    """the sorry on each branch"""
    attempts: list[Attempt]
    """oldest first"""
    proofs: list[Proof]
    """oldest first"""


def _since(item: Sorry) -> str:
    """Say for how long a sorry has been there, and by whom."""
    age = ago(item.since).removesuffix(" ago")
    return f"{age}, {cut(item.written_by, 24)}" if item.written_by else age


def _goal(said: Goal | None) -> str:
    """Lean's text of what is to be proved, below one another; nothing where no trace said it yet."""
    if said is None:
        return ""
    by = f"{'SIMULATED, ' if said.simulated else ''}at {said.sha[:10]}"
    return clean_block(f"{said.goal}\n({by})")


def _rests(impact: Impact | None) -> str:
    """Say what rests on a sorry, and which trace says so."""
    if impact is None:
        return ""
    if impact.theorems is None:
        return f"{impact_said(impact)}: {impact.unknown}"
    directly = f"{impact.direct:,} directly, " if impact.theorems else ""
    return f"{impact_said(impact)} ({directly}trace of {(impact.sha or '')[:10]})"


def _show_attempt(row: Attempt) -> None:
    say(f"  {row.number}  {row.by}  {styled(row.outcome_text, 'bold')}  {ago(row.recorded_at)}")
    fields(
        (
            ("why", clean(row.detail)),
            ("how far", clean(row.how_far)),
            ("took", row.took),
            ("budget", clean(row.budget)),
            ("tree", "" if row.tree_sha256 else "none"),
        ),
        indent=5,
    )


def _source(item: Sorry, paths: Paths) -> list[str]:
    """Return the lines around a sorry, numbered, its own marked; none where the mirror does not have the file."""
    from pipeline.jobs.mirror import file_of

    lines = (
        (file_of(paths.mirrors, item.repository, item.blob) or b"")
        .decode("utf-8", errors="replace")
        .splitlines()
    )
    first, last = max(item.line - AROUND, 1), min(item.line + AROUND, len(lines))
    return [
        f"{'>' if number == item.line else ' '} {number:>5}  {clean_block(lines[number - 1])}".rstrip()
        for number in range(first, last + 1)
    ]


def _show_one(item: Sorry, *, tip: str | None, paths: Paths) -> None:
    there = item.state in ("open", "verified")
    false = ": the statement is false as it stands, by a proof of its negation" if item.disproved else ""
    say(f"{styled(item.sorry, 'bold')}  {item.state_text}{false}")
    link = line_url(item.repository, tip, item.path, item.line) if there and tip else ""
    fields(
        (
            ("place", clean(f"{item.path}:{item.line}:{item.column}")),
            ("link", link),
            ("repository", f"{item.repository} ({item.branch})"),
            ("declaration", clean(f"{item.kind} {item.declaration}")),
            ("statement", clean(item.statement)),
            ("word", f"{item.token}, {item.mode} mode"),
            ("since", f"{item.since[:10]}, {item.written_text or 'or earlier'}"),
            ("goal", _goal(item.goal)),
            ("rests on it", _rests(item.impact)),
            ("proof", item.verified_proof or ""),
        )
    )
    if there and (source := _source(item, paths)):
        say(styled("source", "bold"))
        for line in source:
            say(f"  {line}")
    say(styled("history", "bold"))
    for step in item.history:
        seen = f" (seen {ago(step.recorded_at)})" if step.noticed else ""
        line = f"  {ago(step.at):<10} {step.step:<8} {step.sha[:10]}  {clean(step.detail)}{seen}"
        say(clean_block(line).rstrip())
