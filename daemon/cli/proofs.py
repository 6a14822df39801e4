"""`everlean proofs`: what was found for which sorry, what its checks said, the patch, the search, the pull request.

A simulated proof was never seen by Lean. Every output says SIMULATED beside it, in words and not by colour.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from daemon.cli.completion import PROOFS, SORRIES, ids, one_of
from daemon.cli.context import AsOf, CliError, Config, Json, Repo, locate, view
from daemon.cli.render import (
    check_choice,
    emit_json,
    fields,
    given_before,
    listing_group,
    note,
    places,
    say,
    short_ids,
    styled,
    table,
)
from daemon.instance import Instance
from store.documents.attempts import Attempt, describe_attempts
from store.documents.document import of_row
from store.documents.grades import DOUBT, kernel_text
from store.documents.lookup import one_match, resolve
from store.documents.proofs import Proof, describe_proofs, proof_label, worth
from store.text import ago, clean, clean_block, counted
from store.view.rows import ProofRow

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from daemon.results.local_clone import LeftOut
    from daemon.results.proposals import Plan
    from daemon.results.pull_requests import OpenedPullRequest
    from pipeline.prove.tree import Tree


SEARCH_WARNING = "SIMULATED: the simulator answered this search, Lean never saw it."
Searched = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A proof's or a sorry's id, or its beginning.", autocompletion=ids(PROOFS, SORRIES)
    ),
]
Number = Annotated[
    int | None,
    typer.Option(
        "--attempt", metavar="N", help="Of a sorry: which attempt, as `everlean sorries show` counts them."
    ),
]


# ---- The search behind a proof, or behind an attempt that found none, as text


@dataclass(frozen=True, slots=True)
class Search:
    sorry: str
    """its id"""
    proof: str | None
    """its id, or null where a sorry was named"""
    attempt: Attempt
    """of the sorry"""
    tree: Tree
    """with its `version`"""


def tree(
    which: Searched,
    attempt: Number = None,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from daemon.cli import search_tree

    instance = locate(config, as_of)
    with view(instance) as database:
        row, proof = _attempt(database, which, attempt)
    found = _read(instance, row)
    what = f"{clean(proof.declaration) if proof else f'sorry {row.sorry}'}, {row.by}"
    if as_json:
        emit_json(Search(row.sorry, proof.proof if proof else None, row, found), instance.head)
        return
    if row.simulated:
        say(styled(SEARCH_WARNING, "yellow", "bold"))
    say(styled(f"{what}, attempt {row.number}", "bold"))
    say(search_tree.text(found))


def _attempt(database: sqlite3.Connection, which: str, number: int | None) -> tuple[Attempt, ProofRow | None]:
    """Return the attempt of this id, and the proof if that was named."""
    from store.view import queries

    proofs, sorries = queries.proofs_by_prefix(database, which), queries.sorries_by_prefix(database, which)
    if not proofs and not sorries:
        raise CliError(
            f'no proof and no sorry has an id that starts with "{which}"; `everlean proofs` and `everlean sorries` list'
            " them"
        )
    if proofs and sorries:
        ids = sorted({*(row.proof for row in proofs), *(row.sorry for row in sorries)})
        raise CliError(
            f'"{which}" is the beginning of proofs and sorries ({", ".join(ids[:5])}); write more of it'
        )
    if sorries:
        sorry = one_match(sorries, which, what="sorry", key="sorry").sorry
        attempts = describe_attempts(database, [sorry]).get(sorry, [])
        if not attempts:
            raise CliError(f"sorry {sorry} was not tried yet; `everlean status` says what is due")
        if number is None:
            number = len(attempts)
        if not 1 <= number <= len(attempts):
            raise CliError(
                f"sorry {sorry} has no attempt {number}, it has {len(attempts)}; `everlean sorries show {sorry}` lists"
                " them"
            )
        return attempts[number - 1], None
    (proof,) = describe_proofs(database, [one_match(proofs, which, what="proof", key="proof")])
    if number is not None:
        raise CliError(f"--attempt is for a sorry's id, and {proof.proof} is a proof: it has its own attempt")
    if proof.attempt is not None:
        return proof.attempt, proof
    raise CliError(
        f"no attempt of job {proof.job} is recorded that found proof {proof.proof}; how that job ended says"
        f" `everlean jobs show {proof.job}`"
    )


def _read(instance: Instance, row: Attempt) -> Tree:
    from pipeline.prove.tree import Tree, TreeError
    from store.log.reader import LogReader

    if row.tree_sha256 is None:
        why = f": {clean(row.detail)}" if row.detail else ""
        raise CliError(
            f"attempt {row.number} on sorry {row.sorry} ({row.by}) kept no tree; it ended with"
            f" {row.outcome}{why}. There is one only where tactics were searched, and none from before trees were kept"
        )
    with LogReader.open(instance.paths.events_db) as log:
        data = log.blob(row.tree_sha256)
    try:
        return Tree.from_json(json.loads(data))
    except (TreeError, ValueError) as error:
        raise CliError(
            f"the tree of attempt {row.number} on sorry {row.sorry} cannot be read: {error}; a newer everlean may"
            " have written it"
        ) from error


Which = Annotated[
    str, typer.Argument(metavar="ID", help="A proof's id, or its beginning.", autocompletion=ids(PROOFS))
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Ask GitHub and show what would be opened; write nothing anywhere.")
]


# ---- A pull request


def pull_request(
    context: typer.Context,
    proof: Which,
    dry_run: DryRun = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from daemon.cli.config import loaded
    from daemon.polling.github import ProposalError
    from daemon.results import proposals

    if given_before(context, "as_of"):
        raise typer.BadParameter("what is past cannot be proposed; leave it out", param_hint="--as-of")
    instance = locate(config)
    settings = loaded(instance.config)
    try:
        with view(instance, quiet=True) as database:
            row = _one_proof(database, proof)
            if row.pull_request_url is not None:
                _tell(instance, row, "recorded", as_json=as_json)
                return
            proposals.check(instance, settings, database, row)
        if dry_run:
            done = proposals.plan(instance, settings, row)
        else:
            done = proposals.propose(instance, settings, row, purpose="everlean proofs pr")
    except ProposalError as error:
        raise CliError(str(error)) from error
    if isinstance(done, proposals.Plan):
        _tell_plan(instance, row, done, as_json=as_json)
    else:
        outcome = "found" if done.found else "opened"
        _tell(instance, row, outcome, opened=done, as_json=as_json)


def _one_proof(database: sqlite3.Connection, prefix: str) -> Proof:
    from store.view import queries

    row = one_match(queries.proofs_by_prefix(database, prefix), prefix, what="proof", key="proof")
    return describe_proofs(database, [row])[0]


def _tell(
    instance: Instance, row: ProofRow, outcome: str, *, opened: OpenedPullRequest | None = None, as_json: bool
) -> None:
    url = opened.url if opened is not None else row.pull_request_url or ""
    if as_json:
        branch, head, base = (None,) * 3 if opened is None else (opened.branch, opened.head, opened.base)
        proposal = Proposal(row.proof, row.repository, outcome, url, branch, head, base, None, None)
        emit_json(proposal, instance.head)
        return
    what = f"proof {row.proof} of {clean(row.declaration)}"
    match outcome:
        case "recorded":
            say(
                f"{clean(url)}: {what} was proposed there already, {ago(row.pull_request_at)}; nothing was done"
            )
        case "found":
            say(f"{clean(url)}: {what} was proposed there already; no second one is opened")
        case _:
            origin = clean(opened.branch) if opened is not None else ""
            say(f"{styled(clean(url), 'bold')}: opened for {what}, from {origin}")


def _tell_plan(instance: Instance, row: ProofRow, plan: Plan, *, as_json: bool) -> None:
    import difflib

    from daemon.results.pull_requests import branch_name

    ground, text = plan.ground, plan.text
    owner = ground.name.split("/")[0] if ground.may_push else ground.login
    branch = f"{owner}:{branch_name(row)}"
    if as_json:
        proposal = Proposal(
            row.proof, row.repository, "dry_run", None, branch, None, ground.head, text.title, text.body
        )
        emit_json(proposal, instance.head)
        return
    way = "a branch there" if ground.may_push else f"a fork of {ground.login}"
    say(
        f"would open a pull request to {clean(ground.name)} {clean(ground.base)} by {clean(way)}: {clean(branch)}"
    )
    say(styled(clean(text.title), "bold"))
    for line in clean_block(text.body).splitlines():
        say(f"  {line}")
    before, now = (data.decode(errors="replace").splitlines() for data in (ground.data, plan.after))
    for line in difflib.unified_diff(before, now, f"a/{row.path}", f"b/{row.path}", lineterm=""):
        say(clean_block(line))


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
    """the commit that is proposed"""
    base: str | None
    """the default branch's commit that it is made on"""
    title: str | None
    """with `--dry-run`"""
    body: str | None
    """with `--dry-run`"""


# ---- Into a local clone
# What fits and how a commit comes to be is `daemon.results.local_clone`'s.


Chosen = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]...", help="Proofs' ids, or their beginnings.", autocompletion=ids(PROOFS)),
]
AllVerified = Annotated[
    bool, typer.Option("--verified", help="Every verified proof of this repository that fits.")
]
EvenCandidates = Annotated[
    bool, typer.Option("--candidate", help="Take the named proofs also where they are not verified.")
]
NewBranch = Annotated[
    str | None,
    typer.Option("--branch", metavar="NAME", help="Make this branch; default: the one that is checked out."),
]
Clone = Annotated[
    Path,
    typer.Option(
        "--clone", metavar="PATH", show_default=False, help="A clone of the repository; default: this folder."
    ),
]


def apply(
    context: typer.Context,
    proofs: Chosen = None,
    all_verified: AllVerified = False,
    candidate: EvenCandidates = False,
    branch: NewBranch = None,
    clone: Clone = Path(),
    config: Config = None,
    as_json: Json = False,
) -> None:
    from daemon.paths import author_from_config
    from daemon.results.local_clone import CloneError, LocalClone, best_first, check_named
    from daemon.results.mail import messages_of
    from store.log.reader import LogReader
    from store.view import queries

    if given_before(context, "as_of"):
        raise typer.BadParameter("a clone takes what is known now; leave it out", param_hint="--as-of")
    if bool(proofs) == all_verified:
        raise typer.BadParameter("name proofs' ids, or --verified for all that fit")
    if candidate and not proofs:
        raise typer.BadParameter(
            "goes with ids: what is not verified has to be named", param_hint="--candidate"
        )
    instance = locate(config)
    try:
        local = LocalClone.open(clone)
        if branch is not None:
            local.check_branch(branch)
        with view(instance, quiet=True) as database:
            key = local.repository({row.repository: row.url for row in queries.repositories(database)})
            if proofs:
                named: dict[str, ProofRow] = {}
                for prefix in proofs:
                    row = _one_proof(database, prefix)
                    check_named(row, key, candidate=candidate)
                    named[row.proof] = row
                rows = list(named.values())
            else:
                rows = best_first(queries.proofs(database, state="verified", repository=key))
        changes, left = local.fitting(rows)
        if proofs and left:
            raise CliError(
                "; ".join(
                    f"proof {one.row.proof} of {clean(one.row.declaration)}: {one.reason}" for one in left
                )
                + "; nothing was changed: leave it out, or run the command again when the daemon has checked a proof"
                " on the newest commit"
            )
        _tell_left_out(left)
        if not rows:
            raise CliError(
                f"{key}: no proof is verified yet; `everlean proofs` lists candidates, which --candidate takes by id"
            )
        if not changes:
            raise CliError(
                f"{local.path}: no verified proof of {key} is new there"
                f" ({counted(len(rows), 'verified proof')}, {sum(one.there for one in left)} of them there already);"
                " `everlean proofs --all` says more"
            )
        taken = [row for change in changes for row in (change.row, *change.others)]
        with LogReader.open(instance.paths.events_db) as log:
            evidence = messages_of(taken, log)
        applied = local.apply(changes, evidence, author=author_from_config(instance.config), branch=branch)
    except CloneError as error:
        raise CliError(str(error)) from error
    if as_json:
        done = [
            of_row(AppliedProof, one.row, commit=one.commit, others=[row.proof for row in one.others])
            for one in applied
        ]
        not_done = [of_row(ProofLeftOut, one.row, reason=one.reason) for one in left]
        emit_json(Applied(key, local.path, branch, local.head, done, not_done), instance.head)
        return
    where = f"on the new branch {branch}" if branch is not None else "on the branch that is checked out"
    say(f"{local.path}: {counted(len(applied), 'proof')} applied {where}, after {local.head[:12]}")
    table(
        ("COMMIT", "PROOF", "FILE", "DECLARATION"),
        [(one.commit[:12], one.row.proof, one.row.path, one.row.declaration) for one in applied],
        shrink=(3, 2),
        names=(3,),
    )
    if any(one.row.checked_sha != local.head for one in applied):
        note(
            "everlean: the commit here is not the one that was checked, and no Lean has seen these there; build before"
            " you push"
        )


@dataclass(frozen=True, slots=True)
class AppliedProof(ProofRow):
    commit: str
    others: list[str]
    """proofs that put the same text there"""
    SHOWN: ClassVar = ("proof", "sorry", "declaration", "path", "commit", "checked_sha", "others")


@dataclass(frozen=True, slots=True)
class ProofLeftOut(ProofRow):
    SHOWN: ClassVar = ("proof", "sorry", "declaration", "path", "reason")


@dataclass(frozen=True, slots=True)
class Applied:
    repository: str
    clone: Path
    """its folder"""
    branch: str | None
    """the new branch, or null"""
    head: str
    """the commit that the clone was on"""
    applied: list[AppliedProof]
    """one commit each"""
    left_out: list[ProofLeftOut]
    """with `--verified`"""


def _tell_left_out(left: Sequence[LeftOut]) -> None:
    for one in left:
        if not one.there:
            note(f"everlean: left out: proof {one.row.proof} of {clean(one.row.declaration)}: {one.reason}")


STATES = ("candidate", "verified", "rejected", "conditional")
WARNING = "SIMULATED: the simulator accepted this, Lean never saw it. It is no proof."
State = Annotated[
    str | None,
    typer.Option("--state", metavar="S", help=f"Only: {', '.join(STATES)}.", autocompletion=one_of(STATES)),
]
Sorry = Annotated[
    str | None,
    typer.Option(
        "--sorry",
        metavar="ID",
        help="Only for this sorry: its id, or its beginning.",
        autocompletion=ids(SORRIES),
    ),
]
Everything = Annotated[
    bool, typer.Option("--all", help="Stale proofs too, and all of a sorry instead of its best.")
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
    group.command(
        "patch", help="Print the patch of a proof; `git am` and `git apply` take it on the commit it names."
    )(patch)
    group.command("apply", help="Commit proofs that fit in a local clone, one commit for each, all or none.")(
        apply
    )
    group.command("tree", help="Show a search, found or in vain: every state and what was tried on it.")(tree)
    group.command("pr", help="Propose a verified proof as a pull request, where its people agreed to it.")(
        pull_request
    )
    app.add_typer(group, name="proofs")


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
    """the text, for the commit `sha`, which was checked"""
    SHOWN: ClassVar = ("proof", "state", "simulated", "repository", "sha", "patch")


def list_(
    repo: Repo = None,
    state: State = None,
    sorry: Sorry = None,
    everything: Everything = False,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from store.view import queries

    check_choice(state, STATES, option="--state")
    instance = locate(config, as_of)
    with view(instance) as database:
        if sorry is not None:
            sorry = one_match(
                queries.sorries_by_prefix(database, sorry), sorry, what="sorry", key="sorry"
            ).sorry
        matching = queries.proofs(database, state=state, sorry=sorry, repository=resolve(database, repo))
        found = describe_proofs(database, matching)
    rows = found if everything else best_of_each_sorry(found)
    if as_json:
        emit_json(Proofs(rows), instance.head)
        return
    if not found:
        say("no proof matches" if repo or state or sorry else "no proof was found yet")
        return
    if rows:
        short = short_ids(row.proof for row in rows)
        shown = [(row, 1) for row in rows] if everything else _of_each_text(rows)
        shown.sort(key=lambda one: (one[0].repository, one[0].branch, one[0].path))
        table(
            ("ID", "STATE", "DECLARATION", "REPLACEMENT", "PATCH", "FOUND"),
            [
                (
                    short[row.proof],
                    row.label + (f", stale: {row.stale}" if row.stale else ""),
                    row.declaration + (f" ({counted(n_sorries, 'sorry')})" if n_sorries > 1 else ""),
                    row.replacement,
                    "yes" if row.patch_sha256 else "-",
                    ago(row.found_at).removesuffix(" ago"),
                )
                for row, n_sorries in shown
            ],
            shrink=(3, 2, 1),
            spare=(4, 5),
            names=(2,),
            indent=4,
            groups=places(row for row, _ in shown),
        )
    simulated = sum(row.simulated for row in rows)
    left = len(found) - len(rows)
    n_stale = sum(row.stale is not None for row in found) if left else 0
    say(
        counted(len(rows), "proof")
        + (f", of which {simulated} SIMULATED: no proofs at all" if simulated else "")
        + (
            f"; not shown: {n_stale} stale, {left - n_stale} that others of their sorry surpass (--all)"
            if left
            else ""
        )
    )


def best_of_each_sorry(proofs: Iterable[Proof]) -> list[Proof]:
    """Return of each sorry the best proof that fits its branch's tip, in the order given."""
    best: dict[tuple[str, str, str], Proof] = {}
    for row in proofs:
        key = (row.repository, row.branch, row.sorry)
        if row.stale is None and (key not in best or worth(best[key]) <= worth(row)):
            best[key] = row
    return sorted(best.values(), key=lambda row: (row.found_at, row.proof))


def _of_each_text(rows: Iterable[Proof]) -> list[tuple[Proof, int]]:
    """Return each text that fills a place once, and how many sorries it fills: a declaration's are filled together."""
    texts: dict[tuple[str, ...], tuple[Proof, int]] = {}
    for row in rows:
        place = (
            row.repository,
            row.branch,
            row.path,
            row.checked_blob,
            str(row.byte_start),
            str(row.byte_end),
        )
        first, number = texts.get((*place, row.replacement, row.state), (row, 0))
        texts[*place, row.replacement, row.state] = first, number + 1
    return list(texts.values())


def show(proof: ProofId, as_of: AsOf = None, config: Config = None, as_json: Json = False) -> None:
    from store.view import queries

    instance = locate(config, as_of)
    with view(instance) as database:
        row = _one_proof(database, proof)
        others = queries.proofs(database, sorry=row.sorry)
    if as_json:
        emit_json(OneProof(row), instance.head)
        return
    if row.simulated:
        say(styled(WARNING, "yellow", "bold"))
    say(f"{styled(row.proof, 'bold')}  {row.label}")
    fields(
        (
            ("for sorry", row.sorry),
            ("declaration", clean(row.declaration)),
            ("place", clean(f"{row.path} bytes {row.byte_start}-{row.byte_end}")),
            ("repository", f"{row.repository} ({row.branch}) at {row.sha}"),
            (
                "fits",
                f"no, it is stale: {row.stale}" if row.stale else f"the tip of {row.branch}",
            ),
            ("found by", _finder(row)),
            ("found", ago(row.found_at)),
            ("found again", _why_again(row, others)),
            ("checked by", _judge(row)),
            ("reason", clean(row.reason)),
            ("rests on", ", ".join(row.conditional_on)),
            ("axioms", ", ".join(row.axioms)),
            ("kernel", kernel_text(row.grade, row.kernel)),
            ("in doubt", _doubt(row)),
            ("not checked", ", ".join(row.not_checked)),
            ("patch", f"everlean proofs patch {row.proof}" if row.patch_sha256 else "none"),
            (
                "proposed",
                f"{clean(row.pull_request_url)}, {ago(row.pull_request_at)}" if row.pull_request_url else "",
            ),
        )
    )
    _show_text(instance, row)
    if row.checks:
        say(styled("checks", "bold"))
        table(
            ("STEP", "VERDICT", "BY", "EVIDENCE"),
            [(item["step"], item["verdict"], item["by"], item["evidence"]) for item in row.checks],
            shrink=(3,),
        )


def _doubt(row: ProofRow) -> str:
    """Say what puts a proof in doubt, a line for each advisory that this version knows."""
    if not row.doubts:
        return ""
    from pipeline.gate.advisories import shipped

    known = {one.id: f"{one.id}: {one.title}" for one in shipped()}
    return "\n".join(
        [
            DOUBT,
            *(known.get(one, clean(one)) for one in row.doubts),
        ]
    )


def _show_text(instance: Instance, row: ProofRow) -> None:
    """Show the change that a proof makes as a diff; without a patch, what it puts there."""
    from daemon.results.mail import changed_lines
    from store.log.reader import LogReader

    if row.patch_sha256 is None:
        say(styled("replacement", "bold"))
        for line in clean_block(row.replacement).splitlines():
            say(f"  {line}")
        return
    with LogReader.open(instance.paths.events_db) as log:
        changed = changed_lines(log.blob(row.patch_sha256))
    say(styled("change", "bold"))
    for line in clean_block(changed).splitlines():
        say("  " + styled(line, *_OF_MARK.get(line[:1], ())))


_OF_MARK = {"+": ("green",), "-": ("red",)}


def patch(proof: ProofId, as_of: AsOf = None, config: Config = None, as_json: Json = False) -> None:
    from daemon.paths import author_from_config
    from daemon.results.mail import mail
    from store.log.reader import LogReader

    instance = locate(config, as_of)
    with view(instance) as database:
        row = _one_proof(database, proof)
    if row.patch_sha256 is None:
        why = f": {clean(row.reason)}" if row.reason else ""
        raise CliError(
            f"proof {row.proof} has no patch, it is {row.state}{why}; `everlean proofs show {row.proof}` says more"
        )
    with LogReader.open(instance.paths.events_db) as log:
        data = mail(row, log.blob(row.patch_sha256), author_from_config(instance.config))
    if as_json:
        text = data.decode("utf-8", errors="replace")
        emit_json(of_row(Patch, row, sha=row.checked_sha, patch=text), instance.head)
        return
    if row.simulated:
        note(f"everlean: {WARNING}")
    if row.stale:
        note(f"everlean: stale, {row.stale}: it does not fit the tip of {row.branch}")
    # As bytes: a patch must reach git exactly as it was made.
    sys.stdout.buffer.write(data)


def _finder(row: Proof) -> str:
    attempt = row.attempt
    model = f", model {clean(attempt.model)}" if attempt is not None and attempt.model else ""
    told = f"; {clean(attempt.detail)}" if attempt is not None and attempt.detail else ""
    return f"{row.prover}, rung {row.rung}{model}, {row.toolchain or 'no toolchain'}, job {row.job}{told}"


def _judge(row: ProofRow) -> str:
    if row.checked_job is None:
        return ""
    by = dict.fromkeys(item["by"] for item in row.checks if item["verdict"] != "not_checked")
    return clean(f"{', '.join(by) or 'nobody'}, job {row.checked_job}, {ago(row.checked_at)}")


def _why_again(row: ProofRow, others: Sequence[ProofRow]) -> str:
    """Say why a sorry was searched again that had a proof; "" where it had none."""
    before = [one for one in others if one.branch == row.branch and one.found_at < row.found_at]
    if not before:
        return ""
    last = before[-1]
    if last.blob == row.blob:
        return f"after proof {last.proof}, which is {proof_label(last)}, for the same version of the file"
    return f"after proof {last.proof}: {clean(row.path)} changed, and a proof is of one version of a file"
