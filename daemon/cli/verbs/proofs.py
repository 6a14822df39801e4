"""`everlean proofs`: each proof with its sorry, checks, patch, search and pull request."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from daemon.cli.answer import Answer, Column, Listing, nothing, place
from daemon.cli.completion import PROOFS, SORRIES, ids
from daemon.cli.context import GROUPS, Call, verb
from daemon.cli.options import ProofId, Repo
from daemon.cli.render import fields, note, say, styled, table
from store.documents.attempts import Attempt
from store.documents.document import of_row
from store.documents.grades import doubt_reason
from store.documents.lookup import proof_named, resolve, search_named, sorries_named
from store.documents.proofs import Proof, best_of_each_sorry, describe_proofs, of_each_text, proof_label
from store.text import ago, clean, clean_block, counted
from store.view.rows import PROOF_STATES, ProofRow, ProofState

if TYPE_CHECKING:
    import sqlite3

    from daemon.results.local_clone import AppliedProofs
    from daemon.results.proposals import Plan
    from pipeline.prove.tree import Tree
    from store.log.reader import LogReader

GROUPS["proofs"] = "List proofs; show one, its patch or its search."
COLUMNS: list[Column[tuple[Proof, int]]] = [
    Column("ID", lambda one: one[0].proof, id=True),
    Column(
        "STATE", lambda one: one[0].label + (f", stale: {one[0].stale}" if one[0].stale else ""), shrink=True
    ),
    Column(
        "DECLARATION",
        lambda one: one[0].declaration + (f" ({counted(one[1], 'sorry')})" if one[1] > 1 else ""),
        shrink=True,
        name=True,
    ),
    Column("REPLACEMENT", lambda one: one[0].replacement, shrink=True),
    Column("PATCH", lambda one: "yes" if one[0].patch_sha256 else "-", spare=1),
    Column("FOUND", lambda one: ago(one[0].found_at).removesuffix(" ago"), spare=2),
]


@dataclass(frozen=True, slots=True)
class Proofs:
    proofs: list[Proof]
    """oldest first"""


@dataclass(frozen=True, slots=True)
class OneProof:
    proof: Proof


@dataclass(frozen=True, slots=True)
class Patch(ProofRow):
    patch: str
    """the text, for the checked commit `sha`"""
    SHOWN: ClassVar = ("proof", "state", "repository", "sha", "patch")


@dataclass(frozen=True, slots=True)
class Search:
    sorry: str
    """its id"""
    proof: str | None
    """its id, or null for a named sorry"""
    attempt: Attempt
    """of the sorry"""
    tree: Tree
    """with its `version`"""


@dataclass(frozen=True, slots=True)
class Proposal:
    proof: str
    """its id"""
    repository: str
    outcome: str
    """`opened`; `found` (GitHub had it already); `recorded` (the log had it); `dry_run`"""
    url: str | None
    """of the pull request"""
    branch: str | None
    """as `owner:branch`"""
    head: str | None
    """the proposed commit"""
    base: str | None
    """the default branch's commit below it"""
    title: str | None
    """with `--dry-run`"""
    body: str | None
    """with `--dry-run`"""


@verb("proofs", Proofs, past=True)
def list_(
    call: Call,
    repo: Repo = None,
    state: Annotated[
        ProofState | None,
        typer.Option("--state", metavar="S", help=f"Only: {', '.join(PROOF_STATES)}."),
    ] = None,
    sorry: Annotated[
        str | None,
        typer.Option(
            "--sorry",
            metavar="ID",
            help="Only for this sorry: its id, or its beginning.",
            autocompletion=ids(SORRIES),
        ),
    ] = None,
    rests_on: Annotated[
        str | None,
        typer.Option(
            "--rests-on",
            metavar="NAME",
            help="Only verified ones that rest on this: a declaration (a private one too) or a module, however far"
            " below, a toolchain, or a kernel as `proofs show` names it.",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Stale proofs too, and all of a sorry instead of its best.")
    ] = False,
) -> Listing[tuple[Proof, int]]:
    """List proofs."""
    from store.view import queries

    with call.view() as database:
        if sorry is not None:
            sorry = sorries_named(database, sorry)[0].sorry
        rows = queries.proofs(database, state=state, sorry=sorry, repository=resolve(database, repo))
        untold = 0
        if rests_on is not None:
            with call.log() as log:
                answers = [(row, _rests_on(row, rests_on, log)) for row in rows if row.state == "verified"]
            rows = [row for row, answer in answers if answer]
            untold = sum(answer is None for _, answer in answers)
        result = describe_proofs(database, rows)
    best = result if everything else best_of_each_sorry(result)
    pairs = [(row, 1) for row in best] if everything else of_each_text(best)
    left = len(result) - len(best)
    stale = sum(row.stale is not None for row in result) if left else 0
    surpassed = f"; not shown: {stale} stale, {left - stale} that others of their sorry surpass (--all)"
    total = counted(len(best), "proof") + (surpassed if left else "")
    if untold:
        total += f"; what {counted(untold, 'other verified one')} rests on was not recorded"
    return Listing(
        sorted(pairs, key=lambda one: (one[0].repository, one[0].branch, one[0].path)),
        COLUMNS,
        Proofs(best),
        empty=total if result else nothing("proof", repo, state, sorry),
        group=lambda one: place(one[0]),
        total=total,
    )


def _rests_on(row: ProofRow, name: str, log: LogReader) -> bool | None:
    """Return whether a verified proof rests on this name; None if its check recorded no such names."""
    if name in (row.judge, row.judge.rpartition(":")[2], *row.kernel.split(", ")):
        return True
    if row.rests_on_sha256 is None:
        return None
    # In JSON's form, quotes and all: parsing each would take most of the time.
    names, known = log.blob(row.rests_on_sha256), json.dumps(name, ensure_ascii=False).encode()
    if known in names:
        return True
    # Lean's own name of a private declaration begins with its module's.
    return re.search(rb'"_private\.[^"]*\.0\.' + re.escape(known[1:]), names) is not None


@verb("proofs show", OneProof, past=True)
def show(call: Call, proof: ProofId) -> Answer:
    """Show one proof: text, checks and their evidence, axioms."""
    from store.view import queries

    with call.view() as database:
        row = _one(database, proof)
        others = queries.proofs(database, sorry=row.sorry)
    return Answer(OneProof(row), lambda: _show(call, row, others))


def _one(database: sqlite3.Connection, prefix: str) -> Proof:
    return describe_proofs(database, [proof_named(database, prefix)])[0]


def _show(call: Call, row: Proof, others: Sequence[ProofRow]) -> None:
    say(f"{styled(row.proof, 'bold')}  {row.label}")
    fields(
        (
            ("for sorry", row.sorry),
            ("declaration", clean(row.declaration)),
            ("place", clean(f"{row.path} bytes {row.byte_start}-{row.byte_end}")),
            ("repository", f"{row.repository} ({row.branch}) at {row.sha}"),
            ("fits", "" if row.stale else f"the tip of {row.branch}"),
            ("found", ago(row.found_at)),
            ("found again", _why_again(row, others)),
            ("checked", ago(row.checked_at, never="")),
            *((name, clean(text)) for name, text in row.facts.items() if name != "in doubt"),
            ("in doubt", _doubt(row)),
            ("patch", f"everlean proofs patch {row.proof}" if row.patch_sha256 else "none"),
        )
    )
    _show_text(call, row)
    if row.checks:
        say(styled("checks", "bold"))
        table(
            ("STEP", "VERDICT", "BY", "EVIDENCE"),
            [(item["step"], item["verdict"], item["by"], item["evidence"]) for item in row.checks],
            shrink=(3,),
        )


def _why_again(row: ProofRow, others: Sequence[ProofRow]) -> str:
    """Return why a sorry with a proof was searched again; "" if it had none."""
    before = [one for one in others if one.branch == row.branch and one.found_at < row.found_at]
    if not before:
        return ""
    last = before[-1]
    if last.blob == row.blob:
        return f"after proof {last.proof}, which is {proof_label(last)}, for the same version of the file"
    return f"after proof {last.proof}: {clean(row.path)} changed, and a proof is of one version of a file"


def _doubt(row: ProofRow) -> str:
    """Return the reason of a doubt, and a line for each advisory known to this version."""
    if not row.doubts:
        return ""
    from pipeline.gate.advisories import shipped

    titles = {one.id: f"{one.id}: {one.title}" for one in shipped()}
    return "\n".join([doubt_reason(row.state), *(titles.get(one, clean(one)) for one in row.doubts)])


def _show_text(call: Call, row: ProofRow) -> None:
    """Show a proof's change as a diff; without a patch, its text."""
    from daemon.results.mail import changed_lines

    if row.patch_sha256 is None:
        say(styled("replacement", "bold"))
        for line in clean_block(row.replacement).splitlines():
            say(f"  {line}", wrap=False)
        return
    with call.log() as log:
        changed = changed_lines(log.blob(row.patch_sha256))
    say(styled("change", "bold"))
    for line in clean_block(changed).splitlines():
        say("  " + styled(line, *_OF_MARK.get(line[:1], ())), wrap=False)


_OF_MARK = {"+": ("green",), "-": ("red",)}


# ---- Its patch, into a clone, as a pull request


@verb("proofs patch", Patch, past=True)
def patch(call: Call, proof: ProofId) -> Answer:
    """Print the patch of a proof, for `git am` or `git apply`."""
    from daemon.place.paths import author_from_config
    from daemon.results.mail import patch_mail

    with call.view() as database:
        row = _one(database, proof)
    with call.log() as log:
        data = patch_mail(row, log, author_from_config(call.instance.config))
    text = data.decode("utf-8", errors="replace")

    def write() -> None:
        if row.stale:
            note(f"everlean: stale, {row.stale}: it does not fit the tip of {row.branch}")
        # As bytes: a patch must reach git exactly as it was made.
        sys.stdout.buffer.write(data)

    return Answer(of_row(Patch, row, sha=row.checked_sha, patch=text), write)


@verb("proofs apply", "daemon.results.local_clone:AppliedProofs")
def apply(
    call: Call,
    proofs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID]...", help="Proofs' ids, or their beginnings.", autocompletion=ids(PROOFS)
        ),
    ] = None,
    all_verified: Annotated[
        bool, typer.Option("--verified", help="Every verified proof of this repository that fits.")
    ] = False,
    candidate: Annotated[
        bool, typer.Option("--candidate", help="Take the named proofs also where they are not verified.")
    ] = False,
    branch: Annotated[
        str | None,
        typer.Option(
            "--branch", metavar="NAME", help="Make this branch; default: the one that is checked out."
        ),
    ] = None,
    clone: Annotated[
        Path,
        typer.Option(
            "--clone",
            metavar="PATH",
            show_default=False,
            help="A clone of the repository; default: this folder.",
        ),
    ] = Path(),
) -> Answer:
    """Commit proofs to your clone, one commit each, all or none."""
    from daemon.results.local_clone import apply_proofs

    if bool(proofs) == all_verified:
        raise typer.BadParameter("name proofs' ids, or --verified for all that fit")
    if candidate and not proofs:
        raise typer.BadParameter("goes with ids: name each unverified proof", param_hint="--candidate")
    with call.view(quiet=True) as database:
        result = apply_proofs(
            database, call.instance, clone, prefixes=proofs or (), candidate=candidate, branch=branch
        )
    return Answer(result, lambda: _show_applied(result))


def _show_applied(done: AppliedProofs) -> None:
    for left in done.left_out:
        if not left.there:
            note(f"everlean: left out: proof {left.proof} of {clean(left.declaration)}: {left.reason}")
    where = "the branch that is checked out" if done.branch is None else f"the new branch {done.branch}"
    say(f"{done.clone}: {counted(len(done.applied), 'proof')} applied on {where}, after {done.head[:12]}")
    table(
        ("COMMIT", "PROOF", "FILE", "DECLARATION"),
        [(one.commit[:12], one.proof, one.path, one.declaration) for one in done.applied],
        shrink=(3, 2),
        names=(3,),
    )
    if unverified := [one.proof for one in done.applied if one.state != "verified"]:
        note(f"everlean: not verified, and so no proof yet: {', '.join(unverified)}")
    if any(one.checked_sha != done.head for one in done.applied):
        note(
            "everlean: the commit here is not the one that was checked, and no Lean has seen these there; build before"
            " you push"
        )


@verb("proofs pr", Proposal)
def pull_request(
    call: Call,
    proof: ProofId,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Ask GitHub and show the pull request; write nothing."),
    ] = False,
) -> Answer:
    """Open a pull request with a verified proof, if the owners agreed."""
    from daemon.results import proposals

    instance, settings = call.instance, call.settings
    with call.view(quiet=True) as database:
        row = _one(database, proof)
        what = f"proof {row.proof} of {clean(row.declaration)}"
        if row.pull_request_url is not None:
            text = f"{what} was proposed there already, {ago(row.pull_request_at)}; nothing was done"
            recorded = Proposal(
                row.proof, row.repository, "recorded", row.pull_request_url, None, None, None, None, None
            )
            return Answer(recorded, f"{clean(row.pull_request_url)}: {text}")
        with call.log() as log:
            proposals.check(settings, database, log, row)
    if dry_run:
        result = proposals.plan(instance, settings, row)
    else:
        result = proposals.propose(instance, settings, row, purpose="everlean proofs pr")
    if isinstance(result, proposals.Plan):
        return _planned(row, result)
    outcome = "found" if result.found else "opened"
    proposal = Proposal(
        row.proof, row.repository, outcome, result.url, result.branch, result.head, result.base, None, None
    )
    if result.found:
        return Answer(
            proposal, f"{clean(result.url)}: {what} was proposed there already; no second one is opened"
        )
    return Answer(
        proposal, f"{styled(clean(result.url), 'bold')}: opened for {what}, from {clean(result.branch)}"
    )


def _planned(row: Proof, plan: Plan) -> Answer:
    ground, text = plan.ground, plan.text
    branch = plan.branch_of(row)
    proposal = Proposal(
        row.proof, row.repository, "dry_run", None, branch, None, ground.head, text.title, text.body
    )

    def write() -> None:
        import difflib

        way = "a branch there" if ground.may_push else f"a fork of {ground.login}"
        target = f"{clean(ground.name)} {clean(ground.base)} by {clean(way)}: {clean(branch)}"
        say(f"would open a pull request to {target}")
        say(styled(clean(text.title), "bold"))
        for line in clean_block(text.body).splitlines():
            say(f"  {line}")
        before, now = (data.decode(errors="replace").splitlines() for data in (ground.data, plan.after))
        for line in difflib.unified_diff(before, now, f"a/{row.path}", f"b/{row.path}", lineterm=""):
            say(clean_block(line), wrap=False)

    return Answer(proposal, write)


# ---- The search behind a proof, or behind an attempt without one


@verb("proofs tree", Search, past=True)
def tree(
    call: Call,
    which: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A proof's or a sorry's id, or its beginning.",
            autocompletion=ids(PROOFS, SORRIES),
        ),
    ],
    attempt: Annotated[
        int | None,
        typer.Option(
            "--attempt",
            metavar="N",
            help="Of a sorry: which attempt, as `everlean sorries show` counts them.",
        ),
    ] = None,
) -> Answer:
    """Show a search: every state, and the tactics tried on it."""
    from daemon.cli import search_tree

    with call.view() as database, call.log() as log:
        row, proof = search_named(database, which, attempt)
        result = _tree_of(row, log)
    what = f"{clean(proof.declaration) if proof else f'sorry {row.sorry}'}, {row.by}"

    def write() -> None:
        say(styled(f"{what}, attempt {row.number}", "bold"))
        say(search_tree.text(result))

    return Answer(Search(row.sorry, proof.proof if proof else None, row, result), write)


def _tree_of(attempt: Attempt, log: LogReader) -> Tree:
    """Return the tree kept by an attempt.

    Raises:
        TreeError: it kept none, or another version's.
    """
    from pipeline.prove.tree import Tree, TreeError

    if attempt.tree_sha256 is None:
        why = f": {clean(attempt.detail)}" if attempt.detail else ""
        raise TreeError(
            f"attempt {attempt.number} on sorry {attempt.sorry} ({attempt.by}) kept no tree; it ended with"
            f" {attempt.outcome}{why}. There is one only where tactics were searched, and none from before trees were"
            " kept"
        )
    data = log.blob(attempt.tree_sha256)
    try:
        return Tree.from_json(json.loads(data))
    except ValueError as error:
        raise TreeError(
            f"the tree of attempt {attempt.number} on sorry {attempt.sorry} cannot be read: {error}; a newer everlean"
            " may have written it"
        ) from error
