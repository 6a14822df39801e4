"""`everlean new`, `search`, `open`, `logs`: what changed, where a word stands, a line at its forge, the journal."""

from __future__ import annotations

import os
import webbrowser
from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from daemon.cli.completion import SORRIES, ids
from daemon.cli.context import CliError, Config, Json, Repo, count, locate, time_option, view
from daemon.cli.render import emit_json, note, places, say, short_ids, table
from daemon.paths import SYSTEM_CONFIG
from store.documents.document import of_row
from store.documents.grades import doubt_text
from store.documents.lookup import one_match, resolve
from store.documents.news import describe_news, describe_waiting
from store.documents.sorries import Sorry, describe_sorries
from store.text import ago, clean, counted
from store.view.rows import DeclarationRow, TooLargeRow, too_large_said


def register(app: typer.Typer) -> None:
    app.command("new", help="Show what changed: sorries that came and went, proofs, statements shown false.")(
        new
    )
    app.command("search", help="Find sorries and theorems by a part of their name, file or statement.")(
        search
    )
    app.command("open", help="Open a sorry's line at its forge in a browser.")(open_)
    app.command("logs", help="Show the log of the daemon that systemd runs.")(logs)


@dataclass(frozen=True, slots=True)
class Turn:
    what: str
    """`opened`, `removed`, `filled by people`, `filled by everlean`, `proof verified`, `disproved`; with `SIMULATED`"""
    at: str
    repository: str
    branch: str
    sorry: str
    declaration: str
    path: str
    line: int
    sha: str
    url: str
    grade: str = ""
    """of a verified proof; else empty"""


@dataclass(frozen=True, slots=True)
class News:
    since: str
    """from when on"""
    news: list[Turn]
    """what changed; what the first commit of a branch brought is not new"""


def new(
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            show_default=False,
            help="From when on: 7d, yesterday, ISO 8601; default 7d.",
        ),
    ] = "7d",
    repo: Repo = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from store.log.envelope import utc_text
    from store.view import report_queries

    begins = utc_text(time_option(since, "--since"))
    instance = locate(config)
    with view(instance) as database:
        repository = resolve(database, repo)
        waiting = describe_waiting(database, report_queries.sorries_here(database))
        # What the first commit of a branch brought is not new.
        turns = report_queries.turns_since(database, begins, every_branch=True)
        news = describe_news(database, [one for one in turns if not one.first_read])
    found = [(one, one.state_text, one.tried.recorded_at, "", "") for one in waiting.disproved if one.tried]
    found += [
        (one.sorry, "proof verified", one.proof.checked_at or "", one.proof.grade, one.proof.graded)
        for one in waiting.ready
    ]
    found = [one for one in found if one[2] >= begins]
    found += [(one.sorry, one.text, one.at, "", "") for one in news]
    shown = [one for one in found if repository in (None, one[0].repository)]
    if as_json:
        told = [
            of_row(Turn, sorry, what=what, at=at, sha=sorry.updated_sha, grade=grade)
            for sorry, what, at, grade, _ in shown
        ]
        emit_json(News(begins, told), instance.head)
        return
    if not shown:
        say(f"nothing is new since {begins[:16]}Z")
        return
    short = short_ids(sorry.sorry for sorry, *_ in shown)
    ordered = sorted(shown, key=lambda one: (one[0].repository, one[0].branch, one[0].path, one[0].line))
    table(
        ("ID", "LINE", "WHAT", "WHEN", "DECLARATION"),
        [
            (
                short[sorry.sorry],
                str(sorry.line),
                f"{what}, {graded}" if graded else what,
                ago(at),
                sorry.declaration,
            )
            for sorry, what, at, _, graded in ordered
        ],
        shrink=(4,),
        spare=(3,),
        names=(4,),
        indent=4,
        groups=places([sorry for sorry, *_ in ordered]),
    )
    say(f"{counted(len(shown), 'change')} since {begins[:16]}Z")


@dataclass(frozen=True, slots=True)
class SorryHit(Sorry):
    SHOWN: ClassVar = (
        *("sorry", "state", "disproved", "repository", "branch", "path", "line", "declaration", "statement"),
    )


@dataclass(frozen=True, slots=True)
class TheoremHit(DeclarationRow):
    SHOWN: ClassVar = ("name", "kind", "repository", "branch", "path", "line", "statement")


@dataclass(frozen=True, slots=True)
class Hits:
    sorries: list[SorryHit]
    """those in the source"""
    theorems: list[TheoremHit]
    """those of watched branches"""
    too_large: list[TooLargeRow]
    """where the limits of `[scan]` left something out, which is not searched"""


def search(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A part of a name, a path or a statement.")],
    repo: Repo = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", metavar="N", parser=count, show_default=False, help="At most N of each; default 50."
        ),
    ] = 50,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from store.view import queries

    instance = locate(config)
    with view(instance) as database:
        repository = resolve(database, repo)
        sorries = queries.sorries_with(database, text, repository=repository, limit=limit)
        theorems = queries.theorems_with(database, text, repository=repository, limit=limit)
        too_large = queries.too_large(database, repository=repository)
        found = describe_sorries(database, sorries)
    if as_json:
        theorem_hits = [of_row(TheoremHit, row) for row in theorems]
        emit_json(Hits([of_row(SorryHit, row) for row in found], theorem_hits, too_large), instance.head)
        return
    for where, said in too_large_said(too_large).items():
        note(f"everlean: not all is searched: {clean(where)} {clean(said)}")
    if not found and not theorems:
        say(f"nothing has {clean(text)} in its name, path or statement")
        return
    if found:
        short = short_ids(row.sorry for row in found)
        table(
            ("SORRY", "LINE", "STATE", "DECLARATION", "STATEMENT"),
            [
                (short[row.sorry], str(row.line), row.state_text, row.declaration, row.statement)
                for row in found
            ],
            shrink=(4, 3),
            names=(3,),
            indent=4,
            groups=places(found),
        )
    if theorems:
        table(
            ("LINE", "THEOREM", "STATEMENT"),
            [(str(row.line), row.name, row.statement) for row in theorems],
            shrink=(2, 1),
            names=(1,),
            indent=4,
            groups=places(theorems),
        )
    for what, number in (("sorry", len(found)), ("theorem", len(theorems))):
        if number == limit:
            note(f"everlean: only the first {counted(limit, what)}; --limit N shows more")


@dataclass(frozen=True, slots=True)
class Address:
    sorry: str
    """its id"""
    url: str
    """of its line"""
    doubts: list[str]
    """the advisories that put its verified proof in doubt"""


def open_(
    sorry: Annotated[
        str, typer.Argument(metavar="ID", help="A sorry's id, or its beginning.", autocompletion=ids(SORRIES))
    ],
    config: Config = None,
    as_json: Json = False,
) -> None:
    from store.domain.identity import line_url
    from store.view import queries

    instance = locate(config)
    with view(instance) as database:
        row = one_match(queries.sorries_by_prefix(database, sorry), sorry, what="sorry", key="sorry")
        proofs = queries.doubted_proofs(database) if row.verified_proof else []
    doubts = next((one.doubts for one in proofs if one.proof == row.verified_proof), [])
    address = line_url(row.repository, row.updated_sha, row.path, row.line)
    if not address:
        raise CliError(
            f"{row.repository}: unknown forge: no web link (known: GitHub, GitLab, Codeberg); the place is"
            f" {row.path}:{row.line} at {row.updated_sha}"
        )
    if as_json:
        emit_json(Address(row.sorry, address, doubts), instance.head)
        return
    say(address)
    if doubts:
        note(f"everlean: its verified proof is {clean(doubt_text(doubts))}")
    if not webbrowser.open(address):
        note("everlean: no browser is here to open it")


def logs(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more until Ctrl-C.")] = False,
    lines: Annotated[
        int,
        typer.Option(
            "--lines", "-n", metavar="N", parser=count, show_default=False, help="The newest N; default 50."
        ),
    ] = 50,
    config: Config = None,
) -> None:
    instance = locate(config)
    scope = [] if instance.config == SYSTEM_CONFIG else ["--user"]
    command = ["journalctl", *scope, "--unit", "everlean", "--lines", str(lines), *(["-f"] if follow else [])]
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell; the journal's own program
    except OSError as error:
        raise CliError(
            f"journalctl: {error.strerror or error}; a daemon that systemd does not run writes its log where it was"
            " started. `everlean events` shows what it recorded"
        ) from error
