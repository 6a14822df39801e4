"""May this proof be proposed, where does it go, and what is said of it: all but the requests.

A proof is proposed only where Lean verified it, the watchlist says that the repository's people agreed, nobody whose
lines it replaces opted out, and it is no exercise.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass

from daemon.paths import Paths, slug
from daemon.polling.errors import GitError
from daemon.polling.git import Git
from daemon.polling.git_process import is_branch_name
from daemon.polling.github import ProposalError
from daemon.proving import exercises
from daemon.pull_requests import Ground, PullRequests, Text
from daemon.settings import Repo, Settings
from pipeline.gate.patch import RefusedPatchError, refuse_simulated
from pipeline.lean.source.scanner import scan_source
from pipeline.lean.source.splice import Replacement, splice
from store.domain.records import Declaration
from store.view.queries import models as model_queries
from store.view.queries import proofs as proof_queries
from store.view.rows import AttemptRow, ProofRow

_TOKENS = (b"sorry", b"admit")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+|\.(?=\.|$)")
_LONGEST_SLUG = 80
_LONGEST_EVIDENCE = 300
_LONGEST_TITLE = 200

_BY_A_PROGRAM = (
    "The proof was found by a program, unsorry, and verified by Lean. No person wrote it, and perhaps none has read it"
    " yet."
)
_NO_MORE = (
    "If you want no more of these, close this and say so here. Whoever runs the program then sets `opt_out = true` for"
    " this repository, or puts an author's name or e-mail address into `opt_out_authors`, and none is opened from then"
    " on. A pull request that was closed is never opened again."
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a proof's making beside its row.

    `weights` is the hash of its model's, "" where none is kept; `judge` the Lean that judged, as its patch says it.
    """

    attempt: AttemptRow | None
    weights: str
    judge: str


def check_proof(row: ProofRow, patch: bytes | None) -> None:
    """Refuse what Lean did not verify; `patch` is its patch file, None where it has none.

    Raises:
        ProposalError: it may be proposed to nobody.
    """
    if row.simulated:
        raise ProposalError(
            f"proof {row.proof}: is SIMULATED, Lean never saw it, and it is proposed to nobody; run the daemon with"
            " Lean"
        )
    if row.state == "conditional":
        raise ProposalError(
            f"proof {row.proof}: rests on sorrys that are still open ({', '.join(row.conditional_on)}); it can be"
            " proposed once they are proved and it was verified"
        )
    if row.state != "verified" or patch is None:
        raise ProposalError(
            f"proof {row.proof}: is {row.state}, and only what Lean verified is proposed;"
            f" `unsorry proofs show {row.proof}` says what is missing"
        )
    try:
        refuse_simulated(patch)
    except RefusedPatchError as error:
        raise ProposalError(f"proof {row.proof}: {error}") from error


def check_consent(view: sqlite3.Connection, row: ProofRow, settings: Settings) -> Repo:
    """Refuse where the configuration does not say that the repository's people agreed; return its entry.

    Raises:
        ProposalError: no entry, no consent, opted out, or an exercise.
    """
    repo = next((repo for repo in settings.repos if repo.key == row.repository), None)
    if repo is None:
        raise ProposalError(
            f"{row.repository}: is not in the watchlist of {settings.path}; a pull request needs an entry there with"
            " pull_requests = true"
        )
    if repo.opt_out:
        raise ProposalError(f"{row.repository}: has opted out (opt_out = true in {settings.path})")
    if not repo.pull_requests:
        raise ProposalError(
            f"{row.repository}: nobody there is known to want pull requests of a program; ask its maintainers, and when"
            f" they agree write pull_requests = true below its url in {settings.path}"
        )
    if exercises(view, repo, row.branch)(row.path):
        raise ProposalError(
            f"{row.path} in {row.repository}: is an exercise, left for people to solve; `exercises` in {settings.path}"
            " says which files are"
        )
    return repo


async def check_authors(
    git: Git, row: ProofRow, *, then: bytes, paths: Paths, opted_out: Collection[str]
) -> None:
    """Refuse where somebody who opted out wrote the lines that would be replaced, of the file as it was checked.

    Raises:
        ProposalError: one did, or who did cannot be told.
    """
    if not opted_out:
        return
    mirror = paths.mirrors / f"{slug(row.repository)}.git"
    first, last = (then.count(b"\n", 0, at) + 1 for at in (row.byte_start, row.byte_end))
    try:
        authors = await git.last_authors(mirror, row.sha, row.path, first=first, last=last)
    except GitError as error:
        raise ProposalError(
            f"{row.path} in {row.repository}: who wrote the lines is not known ({error}), and [prove] opt_out_authors"
            " must hold; run `unsorry poll`, then the same command again"
        ) from error
    refused = {one.strip().casefold() for one in opted_out}
    for name, mail in sorted(authors):
        if not refused.isdisjoint((name.strip().casefold(), mail.strip().casefold())):
            raise ProposalError(
                f"{row.path} lines {first} to {last} in {row.repository}: last touched by {name}, who is in [prove]"
                " opt_out_authors; the proof is not proposed"
            )


def evidence_of(view: sqlite3.Connection, row: ProofRow, patch: bytes) -> Evidence:
    """Return what is recorded of the search that found a proof, and of its check."""
    attempt = proof_queries.attempt_behind(view, row)
    judge = re.search(rb"^Toolchain: (.+)$", patch.partition(b"\ndiff --git ")[0], flags=re.MULTILINE)
    return Evidence(
        attempt,
        "" if attempt is None else model_queries.weights_of(view, attempt.model),
        judge[1].decode(errors="replace") if judge else row.toolchain,
    )


async def file_then(requests: PullRequests, row: ProofRow, ground: Ground) -> bytes:
    """Return the file as the proof was checked in it.

    Raises:
        ProposalError: the repository does not have it any more, or cannot be asked.
    """
    if ground.blob == row.blob:
        return ground.data
    try:
        return await requests.blob(ground.name, row.blob)
    except ProposalError as error:
        if error.status != 404:
            raise
        raise _changed(row, ground, "the file changed") from error


def patched(row: ProofRow, *, then: bytes, ground: Ground) -> bytes:
    """Return the file with the proof as it would be on the default branch; `then` is the one it was checked in.

    Raises:
        ProposalError: the declaration is not the same any more.
    """
    place = row.byte_start if then == ground.data else _moved(row, then, ground)
    end = place + row.byte_end - row.byte_start
    if not ground.data[place:end].startswith(_TOKENS):
        raise _changed(row, ground, f"there is no sorry at byte {place}")
    return splice(ground.data, Replacement(place, end, row.replacement))


def _moved(row: ProofRow, then: bytes, ground: Ground) -> int:
    """Where the sorry stands now, in a file that changed around its declaration only."""
    before = [one for one in _declarations(then) if one.byte_start <= row.byte_start < one.byte_end]
    if not before:
        raise _changed(row, ground, "the file changed")
    # The innermost: a `mutual` block and the like have theirs inside.
    old = max(before, key=lambda one: one.byte_start)
    text = then[old.byte_start : old.byte_end]
    same = [one for one in _declarations(ground.data) if one.name == old.name]
    if not same:
        raise _changed(row, ground, f"{old.name} is not there any more")
    same = [one for one in same if one.text_hash == old.text_hash]
    if not same:
        raise _changed(row, ground, f"{old.name} was changed")
    same = [one for one in same if ground.data[one.byte_start : one.byte_end] == text]
    if len(same) != 1:
        raise _changed(row, ground, f"{old.name} is laid out in another way, or there twice")
    return same[0].byte_start + row.byte_start - old.byte_start


def _declarations(data: bytes) -> tuple[Declaration, ...]:
    return scan_source(data, path="").declarations


def _changed(row: ProofRow, ground: Ground, what: str) -> ProposalError:
    return ProposalError(
        f"{row.path} on {ground.name}'s branch {ground.base} at {ground.head[:12]}: {what} since proof {row.proof} was"
        f" checked at {row.sha[:12]}; the daemon looks again after its next poll (`unsorry poll`)"
    )


def branch_name(row: ProofRow) -> str:
    """Return the branch that a proof has for itself: the same one at every try."""
    name = _UNSAFE.sub("_", row.declaration).strip("._-")[:_LONGEST_SLUG].strip("._-") or "proof"
    branch = f"unsorry/{name}-{_UNSAFE.sub('_', row.proof)}"
    if not is_branch_name(branch):
        raise ProposalError(f"proof {row.proof}: {branch!r} is no branch name; report this as a defect")
    return branch


def text_of(row: ProofRow, ground: Ground, evidence: Evidence) -> Text:
    """Return what people read: plain words, and every value in a code span, where no name calls anybody."""
    # Of "@name" and "fixes #1" a forge makes a call, and a Lean name may hold either.
    name = "".join("_" if one in "@# " or not one.isprintable() else one for one in row.declaration)
    title = f"Fill the sorry in {name}"[:_LONGEST_TITLE]
    message = f"{title}\n\nFound by unsorry, a program, and verified by Lean."
    found = evidence.attempt
    model = found.model if found is not None else ""
    whose = "weights of the retriever" if "+" in model else "weights"
    weights = f" ({whose} {_code(f'sha256:{evidence.weights}')})" if evidence.weights else ""
    again = (
        "" if ground.head == row.sha else "; the declaration reads the same there, and was not verified again"
    )
    facts = [
        ("Proof", _code(row.proof)),
        ("Lean toolchain", _code(evidence.judge or "unknown")),
        ("Verified at commit", _code(row.sha)),
        ("Proposed on top of", f"{_code(ground.head)} ({_code(ground.base)}){again}"),
        ("Prover", f"{_code(row.prover)}, rung {row.rung}"),
        ("Model", f"{_code(model)}{weights}" if model else "none"),
        ("Seed", "unknown" if found is None else str(found.seed)),
        ("Axioms", ", ".join(map(_code, row.axioms)) or "none"),
        ("Cost", _cost(found)),
        ("Not checked", ", ".join(map(_code, row.not_checked)) or "nothing"),
    ]
    checks = [
        f"- {_code(item['step'])}: {item['verdict']} (by {_code(item['by'])}): {_code(item['evidence'])}"
        for item in row.checks
    ]
    lines = [
        f"This fills the sorry in {_code(row.declaration)} ({_code(row.path)}). Nothing else is changed.",
        "",
        _BY_A_PROGRAM,
        "",
        *(f"- {name}: {value}" for name, value in facts),
        "",
        "What was checked:",
        "",
        *checks,
        "",
        _NO_MORE,
    ]
    return Text(title, message, "\n".join(lines) + "\n")


def _cost(found: AttemptRow | None) -> str:
    if found is None:
        return "unknown"
    tokens = found.prompt_tokens + found.completion_tokens
    parts = [
        f"{found.seconds:.1f} s of search",
        f"{found.nodes} states",
        f"{found.repl_calls} calls of Lean",
        *([f"{tokens} tokens"] if tokens else []),
        *([f"{found.usd:.4f} USD"] if found.usd is not None else []),
    ]
    return ", ".join(parts)


def _code(text: str) -> str:
    """Return a code span that no content can leave."""
    told = " ".join(text.split())[:_LONGEST_EVIDENCE]
    fence = "`" * (max((len(run) for run in re.findall("`+", told)), default=0) + 1)
    pad = " " if told.startswith("`") or told.endswith("`") or not told else ""
    return f"{fence}{pad}{told}{pad}{fence}"
