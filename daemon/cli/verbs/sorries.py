"""`everlean sorries`: every sorry with its place, its state and its history."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from daemon.cli.answer import Answer, Column, Listing, nothing, place
from daemon.cli.context import GROUPS, Call, time_option, verb
from daemon.cli.options import Branch, Every, Repo, SorryId, Text
from daemon.cli.render import fields, note, say, styled, table
from daemon.place.paths import Paths
from store.documents.attempts import Attempt, describe_attempts
from store.documents.lookup import one_match, resolve, sorries_named
from store.documents.proofs import Proof, describe_proofs
from store.documents.sorries import (
    Change,
    Impacts,
    Sorry,
    by_impact,
    describe_changes,
    describe_sorries,
    distinct,
)
from store.log.envelope import utc_text
from store.text import ago, by_state, clean, clean_block, counted, cut
from store.view.counts import counted_branches, elsewhere_text
from store.view.impact import Impact
from store.view.rows import SORRY_STATES, SorryState, too_large_text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from store.view.rows import SorryRow, TooLargeRow

GROUPS["sorries"] = "List sorries, or show one with its history."
AROUND = 4
"""Lines of the source shown above a sorry, and below it."""


def _since(item: Sorry) -> str:
    """Return a sorry's age and author."""
    age = ago(item.since).removesuffix(" ago")
    return f"{age}, {cut(item.written_by, 24)}" if item.written_by else age


STATEMENT: Column[Sorry] = Column("STATEMENT", lambda item: item.statement, shrink=True)
DECLARATION: Column[Sorry] = Column("DECLARATION", lambda item: item.declaration, shrink=True, name=True)
BY_PLACE: list[Column[Sorry]] = [
    Column("ID", lambda item: item.sorry, id=True),
    Column("LINE", lambda item: str(item.line)),
    Column("STATE", lambda item: item.state_text, shrink=True),
    DECLARATION,
    STATEMENT,
    Column("TRIED", lambda item: item.tried.text if item.tried else "-", spare=1),
    Column("SINCE", _since, spare=2),
]
PLACE: Column[Sorry] = Column("PLACE", lambda item: f"{item.path}:{item.line}", shrink=True, name=True)
BY_COMMIT: list[Column[Sorry]] = [
    Column("ID", lambda item: item.sorry, id=True),
    Column("STATE", lambda item: item.state_text),
    DECLARATION,
    PLACE,
    Column("STATEMENT", lambda item: item.statement, shrink=True, spare=1),
]
BY_IMPACT: list[Column[Sorry]] = [
    Column("ID", lambda item: item.sorry, id=True),
    Column("RESTS ON IT", lambda item: _resting(item.impact)),
    Column("STATE", lambda item: item.state_text, spare=2),
    DECLARATION,
    Column("STATEMENT", lambda item: item.statement, shrink=True, spare=1),
    PLACE,
]


@dataclass(frozen=True, slots=True)
class Sorries:
    sorries: list[Sorry]
    """of every state, unless `--state` names one; each once, with its branches"""
    changes: list[Change]
    """the commits in which they came or went, the newest first; empty without `--since`"""
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


@dataclass(frozen=True, slots=True)
class Released:
    sorry: str
    """its id"""
    claim: str
    """the ended claim"""


@verb("sorries", Sorries, past=True)
def list_(
    call: Call,
    repo: Repo = None,
    branch: Branch = None,
    state: Annotated[
        Literal[SorryState, "disproved"] | None,
        typer.Option(
            "--state",
            metavar="S",
            help=f"Only: {', '.join(SORRY_STATES)}, disproved. Default: open and disproved, with --json or "
            "--since all.",
        ),
    ] = None,
    text: Text = "",
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            show_default=False,
            help="Only sorries new, gone, verified or false since then: 7d, yesterday, ISO 8601.",
        ),
    ] = "",
    by: Annotated[
        Literal["place", "impact"],
        typer.Option(
            "--by",
            metavar="ORDER",
            help="Order: place (repository, branch, file) or impact (most theorems that rest on it first).",
        ),
    ] = "place",
    every: Every = False,
) -> Listing[Sorry]:
    """List sorries, each once for all its branches."""
    from store.view import queries

    begins = utc_text(time_option(since, "--since")) if since else ""
    with call.view() as database:
        repository = resolve(database, repo)
        rows, branches = distinct(
            database,
            queries.sorries(
                database,
                repository=repository,
                branch=branch,
                state="open" if state == "disproved" else state,
                text=text,
                since=begins,
                watched_only=not every,
            ),
        )
        result = describe_sorries(
            database,
            rows,
            moment=call.instance.moment,
            impacts=_resting_on(database, rows, call.instance.paths) if by == "impact" else {},
            branches=branches,
            histories=call.as_json or bool(since),
        )
        too_large = [
            row
            for row in queries.too_large(database, repository=repository)
            if branch in (None, row.branch) and row.sorries
        ]
        home = counted_branches(database)
        changes = describe_changes(database, result, since=begins) if since else []
    if state in ("open", "disproved"):
        result = [item for item in result if item.disproved == (state == "disproved")]
    if by == "impact":
        result = by_impact(result)
    sorries = [item for item in result if call.as_json or state or every or since or item.state == "open"]
    left = Counter(item.state for item in result) - Counter(item.state for item in sorries)
    hint = f"; {by_state(left)} (--all lists them)" if left else ""
    elsewhere = 0 if branch else sum((item.repository, item.branch) not in home for item in sorries)
    listed, columns = sorries, BY_PLACE
    group: Callable[[Sorry], tuple[str, ...]] = place
    if by == "impact":
        columns, group = BY_IMPACT, lambda item: place(item)[:1]
    elif since:
        columns = BY_COMMIT
        listed, group = _by_commit(sorries, changes)
    return Listing(
        listed,
        columns,
        Sorries(sorries, changes, too_large),
        empty=f"no sorry is open{hint}" if left else nothing("sorry", repo, branch, state, text, since),
        group=group,
        above=[f"{where} {sentence}" for where, sentence in too_large_text(too_large).items()],
        total=counted(len(sorries) - elsewhere, "sorry") + elsewhere_text(elsewhere) + hint,
    )


@verb("sorries show", OneSorry, past=True)
def show(call: Call, sorry: SorryId) -> Answer:
    """Show one sorry: place, history, attempts, proofs."""
    from store.view import queries

    with call.view() as database:
        rows = sorries_named(database, sorry)
        sorry_id = rows[0].sorry
        result = OneSorry(
            sorry_id,
            describe_sorries(
                database,
                rows,
                moment=call.instance.moment,
                impacts=_resting_on(database, rows, call.instance.paths),
                histories=True,
                elsewhere=True,
            ),
            describe_attempts(database, [sorry_id]).get(sorry_id, []),
            describe_proofs(database, queries.proofs(database, sorry=sorry_id)),
        )
    return Answer(result, lambda: _show(result, call.instance.paths))


@verb("sorries release", Released)
def release(call: Call, sorry: SorryId) -> Answer:
    """End an agent's claim on a sorry before its time."""
    from store.log.envelope import now_text
    from store.view import queries

    with call.view() as database:
        standing = [row for row in queries.claims(database, now=now_text()) if row.sorry.startswith(sorry)]
    lease = one_match(standing, sorry, what="claimed sorry", key="sorry", verb="sorries")
    call.command("/release", claim=lease.claim)
    return Answer(Released(lease.sorry, lease.claim), f"{lease.sorry}: {clean(lease.agent)} has it no longer")


def _resting_on(database: sqlite3.Connection, rows: Sequence[SorryRow], paths: Paths) -> Impacts:
    """Return the impact of sorries; without a request it costs a listing no time to load."""
    from pipeline.jobs.blueprint import Blueprints, resting_on

    blueprints = Blueprints(paths.mirrors, lambda problem: note(f"everlean: {clean(problem)}"))
    return resting_on(database, rows, blueprints)


# ---- For people


def _by_commit(
    sorries: Sequence[Sorry], changes: Sequence[Change]
) -> tuple[list[Sorry], Callable[[Sorry], tuple[str, ...]]]:
    """Return sorries in the order of their commits, the newest first in each repository, and a function for
    headings."""
    commits = {
        (one.repository, one.branch, sorry): (number, one)
        for number, one in enumerate(changes)
        for sorry in one.sorries
    }

    def commit_of(item: Sorry) -> tuple[int, Change | None]:
        return commits.get((item.repository, item.branch, item.sorry), (len(changes), None))

    def headings(item: Sorry) -> tuple[str, ...]:
        _, one = commit_of(item)
        if one is None:
            return *place(item)[:1], "by Lean, in no commit"
        text = f"{one.sha[:10]} {one.subject} ({one.author}, {ago(one.committed_at)})"
        return *place(item)[:1], text, *([one.url] if one.url else [])

    return sorted(sorries, key=lambda item: (item.repository, item.branch, commit_of(item)[0])), headings


def _resting(impact: Impact | None) -> str:
    if impact is None:
        return "-"
    lines = []
    if impact.theorems is not None:
        lines.append(counted(impact.theorems, "theorem"))
    if impact.statements is not None:
        lines.append(f"{counted(impact.statements, 'statement')} of the blueprint")
    return ", ".join(lines) or "unknown"


def _rests(impact: Impact | None) -> str:
    """Return the impact of a sorry in words, with its trace."""
    if impact is None:
        return ""
    if impact.theorems is None:
        return f"{_resting(impact)}: {impact.unknown}"
    directly = f"{impact.direct:,} directly, " if impact.theorems else ""
    return f"{_resting(impact)} ({directly}trace of {(impact.sha or '')[:10]})"


def _show(document: OneSorry, paths: Paths) -> None:
    for item in document.branches:
        proof = next((one for one in document.proofs if one.proof == item.verified_proof), None)
        _show_one(item, paths, proof)
    if document.attempts:
        say()
        say(styled("attempts", "bold"))
        for attempt in document.attempts:
            _show_attempt(attempt)
        if any(attempt.tree_sha256 for attempt in document.attempts):
            say(f"  `everlean proofs tree {document.sorry} --attempt N` shows a search")
    if document.proofs:
        say()
        say(styled("proofs", "bold"))
        table(
            ("ID", "STATE", "REPLACEMENT"),
            [
                (row.proof, row.label + (", stale" if row.stale else ""), row.replacement)
                for row in document.proofs
            ],
            shrink=(2,),
        )


def _show_one(item: Sorry, paths: Paths, proof: Proof | None) -> None:
    from pipeline.jobs.written import Sources

    false = ": the statement is false as it stands, by a proof of its negation" if item.disproved else ""
    goal, written = item.goal, Sources(paths.mirrors)(item)
    by = f"at {goal.sha[:10]}" if goal else ""
    say(f"{styled(item.sorry, 'bold')}  {item.state_text}{false}")
    fields(
        (
            ("place", clean(f"{item.path}:{item.line}:{item.column}")),
            ("link", item.url if item.in_source else ""),
            ("repository", f"{item.repository} ({item.branch})"),
            ("declaration", clean(f"{item.kind} {item.declaration}")),
            ("about", clean_block(written.doc) if written else ""),
            ("statement", clean_block(written.statement if written else item.statement)),
            ("word", f"{item.token}, {item.mode} mode"),
            ("since", f"{item.since[:10]}, {item.written_text or 'or earlier'}"),
            (
                "goal",
                "\n".join([*map(_goal_line, clean_block(goal.goal).split("\n")), f"({by})"]) if goal else "",
            ),
            ("rests on it", _rests(item.impact)),
            ("proved too as", "\n".join(one.text for one in item.elsewhere)),
            ("proof", item.verified_proof or ""),
            *(
                (name, clean(text))
                for name, text in (proof.statements if proof else {}).items()
                if name != "statement"
            ),
        )
    )
    if item.in_source and (source := _source(item, paths)):
        say(styled("source", "bold"))
        for line in source:
            say(f"  {line}", wrap=False)
    say(styled("history", "bold"))
    for step in item.history:
        if step.step == "moved" and not {"file", "rename"} & set(step.detail.partition(":")[0].split(", ")):
            continue  # within its file: a branch has thousands of these
        by = f" ({step.by})" if step.by else ""
        seen = f" (seen {ago(step.recorded_at)})" if step.noticed else ""
        line = f"  {ago(step.at):<10} {step.step:<8} {step.sha[:10]}  {clean(step.detail)}{by}{seen}"
        say(clean_block(line).rstrip())


def _goal_line(line: str) -> str:
    """Return a line of a goal: the conclusion stands out from the hypotheses."""
    return styled(line, "bold" if "⊢" in line else "dim")


def _source(item: Sorry, paths: Paths) -> list[str]:
    """Return the lines around a sorry, numbered, its own marked; none if the mirror lacks the file."""
    from pipeline.jobs.mirror import file_of

    data = file_of(paths.mirrors, item.repository, item.blob) or b""
    lines = data.decode("utf-8", errors="replace").splitlines()
    first, last = max(item.line - AROUND, 1), min(item.line + AROUND, len(lines))
    return [
        f"{'>' if number == item.line else ' '} {number:>5}  {clean_block(lines[number - 1])}".rstrip()
        for number in range(first, last + 1)
    ]


def _show_attempt(row: Attempt) -> None:
    say(f"  {row.number}  {row.by}  {styled(row.outcome, 'bold')}  {ago(row.recorded_at)}")
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
