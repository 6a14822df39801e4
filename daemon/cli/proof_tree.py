"""`unsorry proofs tree`: the search behind a proof, or behind an attempt that found none, as text or as a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.completion import PROOFS, SORRIES, ids
from daemon.cli.context import (
    AsOf,
    CliError,
    Config,
    Json,
    Place,
    locate,
    one_match,
    view,
)
from daemon.cli.render import clean, emit_json, row_json, say, styled

if TYPE_CHECKING:
    import sqlite3

    from pipeline.prove.tree import Tree
    from store.view.rows import AttemptRow, ProofRow

WARNING = "SIMULATED: the simulator answered this search, Lean never saw it."
Which = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A proof's or a sorry's id, or its beginning.", autocompletion=ids(PROOFS, SORRIES)
    ),
]
Number = Annotated[
    int | None,
    typer.Option(
        "--attempt", metavar="N", help="Of a sorry: which attempt, as `unsorry sorries show` counts them."
    ),
]
Page = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write a page with a picture instead.")
]


def tree(
    which: Which,
    attempt: Number = None,
    html: Page = None,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from pipeline.report import tree as search_tree

    place = locate(config, as_of)
    with view(place) as database:
        number, row, proof = _attempt(database, which, attempt)
    found = _read(place, row, number)
    what = f"{clean(proof.declaration) if proof else f'sorry {row.sorry}'}, {described(row)}"
    if html is not None:
        _write(
            html,
            search_tree.html(found, title=("SIMULATED: " if row.simulated else "") + f"Search for {what}"),
        )
    if as_json:
        emit_json(
            {
                **place.head,
                "sorry": row.sorry,
                "proof": proof.proof if proof else None,
                "number": number,
                "attempt": row_json(row),
                "html": None if html is None else str(html.absolute()),
                "tree": found.as_json(),
            }
        )
        return
    if row.simulated:
        say(styled(WARNING, "yellow", "bold"))
    if html is not None:
        say(f"{html}: the search for {what}")
        return
    say(styled(f"{what}, attempt {number}", "bold"))
    say(search_tree.text(found))


def described(row: AttemptRow) -> str:
    """Say by what a sorry was tried: "tactics, rung 0" or "generator tactics-3, rung 2"."""
    return f"{row.prover}{f' {clean(row.model)}' if row.model else ''}, rung {row.rung}"


def _attempt(
    database: sqlite3.Connection, which: str, number: int | None
) -> tuple[int, AttemptRow, ProofRow | None]:
    """Return the attempt that is meant, its number among its sorry's, and the proof if that was named."""
    from store.view import queries

    proofs, sorries = queries.proofs_by_prefix(database, which), queries.sorries_by_prefix(database, which)
    if not proofs and not sorries:
        raise CliError(
            f'no proof and no sorry has an id that starts with "{which}"; `unsorry proofs` and `unsorry sorries` list'
            " them"
        )
    if proofs and sorries:
        ids = sorted({*(row.proof for row in proofs), *(row.sorry for row in sorries)})
        raise CliError(
            f'"{which}" is the beginning of proofs and sorries ({", ".join(ids[:5])}); write more of it'
        )
    if sorries:
        sorry = one_match(sorries, which, what="sorry", key="sorry").sorry
        attempts = queries.attempts(database, sorry=sorry)
        if not attempts:
            raise CliError(f"sorry {sorry} was not tried yet; `unsorry status` says what is due")
        if number is None:
            number = len(attempts)
        if not 1 <= number <= len(attempts):
            raise CliError(
                f"sorry {sorry} has no attempt {number}, it has {len(attempts)}; `unsorry sorries show {sorry}` lists"
                " them"
            )
        return number, attempts[number - 1], None
    proof: ProofRow = one_match(proofs, which, what="proof", key="proof")
    if number is not None:
        raise CliError(f"--attempt is for a sorry's id, and {proof.proof} is a proof: it has its own attempt")
    found = queries.attempt_behind(database, proof)
    if found is not None:
        return queries.attempts(database, sorry=proof.sorry).index(found) + 1, found, proof
    raise CliError(
        f"no attempt of job {proof.job} is recorded that found proof {proof.proof}; how that job ended says"
        f" `unsorry jobs show {proof.job}`"
    )


def _read(place: Place, row: AttemptRow, number: int) -> Tree:
    from pipeline.prove.tree import Tree, TreeError
    from store.log.reader import LogReader

    if row.tree_sha256 is None:
        why = f": {clean(row.detail)}" if row.detail else ""
        raise CliError(
            f"attempt {number} on sorry {row.sorry} ({described(row)}) kept no tree; it ended with {row.outcome}{why}."
            " There is one only where tactics were searched, and none from before trees were kept"
        )
    with LogReader.open(place.paths.events_db) as log:
        data = log.blob(row.tree_sha256)
    try:
        return Tree.from_json(json.loads(data))
    except (TreeError, ValueError) as error:
        raise CliError(
            f"the tree of attempt {number} on sorry {row.sorry} cannot be read: {error}; a newer version of unsorry may"
            " have written it"
        ) from error


def _write(page: Path, text: str) -> None:
    try:
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(
            f"{page}: {error.strerror or error}; name a file that can be written with --html"
        ) from error
