"""`unsorry proofs`: what was found for which sorry, what its checks said, the patch, the search, the pull request.

A simulated proof was never seen by Lean. Every output says SIMULATED beside it, in words and not by colour.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.cli.completion import PROOFS, SORRIES, ids, one_of
from daemon.cli.context import (
    AsOf,
    CliError,
    Config,
    Json,
    Place,
    Repo,
    locate,
    one_match,
    view,
)
from daemon.cli.listing import check_choice, listing_group
from daemon.cli.proof_pull_request import pull_request
from daemon.cli.proof_tree import tree
from daemon.cli.render import (
    ago,
    clean,
    clean_block,
    counted,
    emit_json,
    fields,
    note,
    row_json,
    say,
    styled,
    table,
)
from daemon.cli.repos import resolve

if TYPE_CHECKING:
    from store.view.rows import ProofRow

STATES = ("candidate", "verified", "rejected", "conditional")
WARNING = "SIMULATED: the simulator accepted this, Lean never saw it. It is no proof."
State = Annotated[
    str | None,
    typer.Option("--state", metavar="S", help=f"Only: {', '.join(STATES)}.", autocompletion=one_of(STATES)),
]
Sorry = Annotated[
    str | None,
    typer.Option(
        "--sorry", metavar="ID", help="Only for this sorry (whole id).", autocompletion=ids(SORRIES)
    ),
]
ProofId = Annotated[
    str, typer.Argument(metavar="ID", help="A proof's id, or its beginning.", autocompletion=ids(PROOFS))
]


def register(app: typer.Typer) -> None:
    group = listing_group(
        list_,
        help_text="List proofs, show one with its checks, its patch, or its search.",
        list_help="List proofs (the same as no verb).",
    )
    group.command("show", help="Show one proof: text, checks with their evidence, axioms.")(show)
    group.command("patch", help="Print the patch file's text; `git apply` takes it on the commit it names.")(
        patch
    )
    group.command("tree", help="Show a search, found or in vain: every state and what was tried on it.")(tree)
    group.command("pr", help="Propose a verified proof as a pull request, where its people agreed to it.")(
        pull_request
    )
    app.add_typer(group, name="proofs")


def list_(
    repo: Repo = None,
    state: State = None,
    sorry: Sorry = None,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from store.view import queries

    check_choice(state, STATES, option="--state")
    place = locate(config, as_of)
    with view(place) as database:
        rows = queries.proofs(database, state=state, sorry=sorry, repository=resolve(database, repo))
    if as_json:
        emit_json({**place.head, "proofs": [described(row) for row in rows]})
        return
    if not rows:
        say("no proof matches" if repo or state or sorry else "no proof was found yet")
        return
    table(
        ("ID", "STATE", "SORRY", "DECLARATION", "REPLACEMENT", "PATCH", "FOUND"),
        [
            (
                row.proof,
                state_word(row),
                row.sorry,
                row.declaration,
                row.replacement,
                "yes" if row.patch_sha256 else "-",
                ago(row.found_at),
            )
            for row in rows
        ],
        shrink=4,
    )
    simulated = sum(row.simulated for row in rows)
    say(
        counted(len(rows), "proof")
        + (f", of which {simulated} SIMULATED: no proofs at all" if simulated else "")
    )


def show(proof: ProofId, as_of: AsOf = None, config: Config = None, as_json: Json = False) -> None:
    place = locate(config, as_of)
    row = _find(place, proof)
    if as_json:
        emit_json({**place.head, "proof": described(row)})
        return
    if row.simulated:
        say(styled(WARNING, "yellow", "bold"))
    say(f"{styled(row.proof, 'bold')}  {state_word(row)}")
    fields(
        (
            ("for sorry", row.sorry),
            ("declaration", clean(row.declaration)),
            ("place", clean(f"{row.path} bytes {row.byte_start}-{row.byte_end}")),
            ("repository", f"{row.repository} ({row.branch}) at {row.sha}"),
            ("found by", f"{row.prover}, rung {row.rung}, {row.toolchain or 'no toolchain'}, job {row.job}"),
            ("found", ago(row.found_at)),
            ("reason", clean(row.reason)),
            ("rests on", ", ".join(row.conditional_on)),
            ("axioms", ", ".join(row.axioms)),
            ("not checked", ", ".join(row.not_checked)),
            ("patch", f"unsorry proofs patch {row.proof}" if row.patch_sha256 else "none"),
            (
                "proposed",
                f"{clean(row.pull_request_url)}, {ago(row.pull_request_at)}" if row.pull_request_url else "",
            ),
        )
    )
    say(styled("replacement", "bold"))
    for line in clean_block(row.replacement).splitlines():
        say(f"  {line}")
    if row.checks:
        say(styled("checks", "bold"))
        table(
            ("STEP", "VERDICT", "BY", "EVIDENCE"),
            [(item["step"], item["verdict"], item["by"], item["evidence"]) for item in row.checks],
            shrink=3,
        )


def patch(proof: ProofId, as_of: AsOf = None, config: Config = None, as_json: Json = False) -> None:
    from store.log.reader import LogReader

    place = locate(config, as_of)
    row = _find(place, proof)
    if row.patch_sha256 is None:
        why = f": {clean(row.reason)}" if row.reason else ""
        raise CliError(
            f"proof {row.proof} has no patch, it is {row.state}{why}; `unsorry proofs show {row.proof}` says more"
        )
    with LogReader.open(place.paths.events_db) as log:
        data = log.blob(row.patch_sha256)
    if as_json:
        emit_json(
            {
                **place.head,
                "proof": row.proof,
                "state": row.state,
                "simulated": row.simulated,
                "repository": row.repository,
                "sha": row.sha,
                "patch": data.decode("utf-8", errors="replace"),
            }
        )
        return
    if row.simulated:
        note(f"unsorry: {WARNING}")
    # As bytes: a patch must reach `git apply` exactly as it was made.
    sys.stdout.buffer.write(data)


def described(row: ProofRow) -> dict[str, Any]:
    """Return a proof as `--json` shows it; `label` is what people are shown."""
    return {**row_json(row), "label": state_word(row)}


def state_word(row: ProofRow) -> str:
    """The state, and the word that no simulated proof goes without."""
    return f"{row.state} SIMULATED" if row.simulated else row.state


def _find(place: Place, prefix: str) -> ProofRow:

    from store.view import queries

    with view(place) as database:
        found: ProofRow = one_match(
            queries.proofs_by_prefix(database, prefix), prefix, what="proof", key="proof"
        )
    return found
