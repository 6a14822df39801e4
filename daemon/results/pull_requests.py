"""Open one pull request through GitHub's REST API: one file, one commit, one branch, never a second time.

Owns the order of the requests. `look` only reads: our account, the default branch of this moment, the file
there, and an earlier pull request. `open` writes: a fork if we may not push, then blob, tree, commit, branch
and pull request. Killed or refused anywhere, it goes on when it is called again: blobs and trees are named by
their content, the branch by the proof, and GitHub is asked for both before either is made.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import sqlite3
import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote

from daemon.place.paths import Paths
from daemon.planning.proving import exercises
from daemon.polling.errors import RemoteError
from daemon.polling.git import Git
from daemon.polling.git_process import is_branch_name
from daemon.polling.github import Calls, ProposalError
from daemon.results.mail import in_doubt, title_of
from daemon.settings import Repo, Settings
from daemon.state.store_service import StoreService
from pipeline.lean.source.splice import Replacement, splice
from store.documents.by_design import by_design
from store.documents.grades import JUDGED, doubt_text
from store.documents.proofs import Proof
from store.domain.identity import event_id, git_blob, slug
from store.errors import IdempotencyError
from store.events.proofs import PullRequestOpened
from store.log.envelope import NewEvent
from store.view import queries
from store.view.rows import ProofRow

_FORK_WAIT_S = 120.0
_FORK_EVERY_S = 2.0
_FILES = frozenset({"100644", "100755"})
_MARK = "Everlean-Proof: "
"""Begins the line of our commits with the branch's proof."""


@dataclass(frozen=True, slots=True)
class NewPullRequest:
    """A pull request to open. `name` is owner/name, `branch` ours, `path` the one file that changes.

    `forge_id`: the repository's required number at its forge, if known.
    """

    proof: str
    name: str
    path: str
    branch: str
    forge_id: int | None = None


@dataclass(frozen=True, slots=True)
class OpenedPullRequest:
    """An existing pull request. `branch` is "owner:branch"; `found`: it was there before."""

    number: int
    url: str
    branch: str
    head: str
    base: str
    found: bool


@dataclass(frozen=True, slots=True)
class TargetState:
    """GitHub's present state of the repository and the file.

    `head` is the tip of the default branch `base`, `data` the file's content there and `blob` its id.
    `opened` is the pull request, if there is one; then the file was not read.
    """

    login: str
    name: str
    may_push: bool
    base: str
    head: str = ""
    tree: str = ""
    mode: str = ""
    blob: str = ""
    data: bytes = b""
    opened: OpenedPullRequest | None = None


@dataclass(frozen=True, slots=True)
class PullRequestText:
    """The text of the pull request."""

    title: str
    message: str
    body: str


class PullRequests:
    """One conversation with one API."""

    def __init__(
        self, calls: Calls, *, fork_wait_s: float = _FORK_WAIT_S, fork_every_s: float = _FORK_EVERY_S
    ) -> None:
        self._calls = calls
        self._fork_wait_s = fork_wait_s
        self._fork_every_s = fork_every_s

    async def look(self, proposal: NewPullRequest) -> TargetState:
        """Read the present state at GitHub; writes nothing.

        Raises:
            ProposalError: GitHub cannot be asked, the repository is another owner's by now or archived, or
                the file is gone.
        """
        calls = self._calls
        what = "who the token belongs to"
        login = calls.text(await calls.ask("GET", "/user", what=what), "login", what=what)
        what = proposal.name
        about = await calls.ask("GET", _repo(proposal.name), what=what)
        name, base = (calls.text(about, key, what=what) for key in ("full_name", "default_branch"))
        if name.split("/")[0].casefold() != proposal.name.split("/")[0].casefold():
            raise ProposalError(
                f"{proposal.name}: belongs to others now, as {name}, and it is not known that they agree; ask them,"
                " then watch it by its new address, with pull_requests = true"
            )
        if proposal.forge_id is not None and about.get("id") not in (None, proposal.forge_id):
            raise ProposalError(
                f"{proposal.name}: is another repository by now, with number {about.get('id')} in place of"
                f" {proposal.forge_id}, and it is not known that its people agree; ask them, then"
                " `everlean repos accept`"
            )
        if about.get("archived") is True:
            raise ProposalError(f"{name}: is archived, and takes no pull requests; nothing can be done")
        permissions = about.get("permissions")
        may_push = isinstance(permissions, dict) and permissions.get("push") is True
        ground = TargetState(login, name, may_push, base)
        opened = await self._existing(ground, proposal)
        if opened is not None:
            return TargetState(login, name, may_push, base, opened=opened)
        what = f"the branch {base} of {name}"
        head = calls.sha(await self._ref(name, base, what), "object", "sha", what=what)
        commit = await calls.ask("GET", f"{_repo(name)}/git/commits/{head}", what=what)
        tree = calls.sha(commit, "tree", "sha", what=what)
        mode, blob = await self._file(name, tree, proposal.path, base)
        return TargetState(login, name, may_push, base, head, tree, mode, blob, await self._blob(name, blob))

    async def _blob(self, name: str, sha: str) -> bytes:
        """Return a version of a file.

        Raises:
            ProposalError: the repository does not have it, or with another content.
        """
        what = f"the file version {sha[:12]} in {name}"
        content = await self._calls.ask("GET", f"{_repo(name)}/git/blobs/{sha}", what=what)
        try:
            data = base64.b64decode(self._calls.field(content, "content", what=what))
        except (binascii.Error, ValueError, TypeError) as error:
            raise self._calls.strange(what) from error
        if git_blob(data, like=sha) != sha:
            raise self._calls.strange(what)
        return data

    async def open(
        self, proposal: NewPullRequest, ground: TargetState, *, after: bytes, text: PullRequestText
    ) -> OpenedPullRequest:
        """Make the missing parts of the branch and the pull request, on the ground from `look`.

        Raises:
            ProposalError: GitHub refused a step; the steps before it stay done.
        """
        home = ground.name if ground.may_push else await self._fork(ground)
        head = await self._commit(proposal, ground, home, after=after, text=text)
        owner = home.split("/")[0]
        what = f"the pull request of {owner}:{proposal.branch} to {ground.name}"
        body = {
            "title": text.title,
            "head": f"{owner}:{proposal.branch}",
            "base": ground.base,
            "body": text.body,
            "maintainer_can_modify": True,
        }
        try:
            result = await self._calls.ask("POST", f"{_repo(ground.name)}/pulls", what=what, body=body)
        except ProposalError as error:
            # Another run of the same command may have been faster.
            opened = await self._existing(ground, proposal) if error.status == 422 else None
            if opened is None:
                raise
            return opened
        return self._opened(result, f"{owner}:{proposal.branch}", head=head, base=ground.head, found=False)

    # --- reading ------------------------------------------------------------------------------------------

    async def _ref(self, name: str, branch: str, what: str) -> Any:
        return await self._calls.ask("GET", f"{_repo(name)}/git/ref/heads/{quote(branch)}", what=what)

    async def _existing(self, ground: TargetState, proposal: NewPullRequest) -> OpenedPullRequest | None:
        """Find the pull request among the open and the closed ones: a closed one is an answer too."""
        owner = ground.name.split("/")[0] if ground.may_push else ground.login
        branch = f"{owner}:{proposal.branch}"
        what = f"the pull requests of {ground.name}"
        address = f"{_repo(ground.name)}/pulls?state=all&head={quote(branch, safe='')}"
        result = self._calls.items(await self._calls.ask("GET", address, what=what), what)
        if not result:
            return None
        first, what = result[0], f"a pull request of {ground.name}"
        head = self._calls.sha(first, "head", "sha", what=what)
        base = self._calls.sha(first, "base", "sha", what=what)
        return self._opened(first, branch, head=head, base=base, found=True)

    def _opened(self, content: Any, branch: str, *, head: str, base: str, found: bool) -> OpenedPullRequest:
        what = "the pull request"
        number = self._calls.field(content, "number", what=what)
        url = self._calls.text(content, "html_url", what=what)
        if type(number) is not int or not url.startswith(("https://", "http://")):
            raise self._calls.strange(what)
        return OpenedPullRequest(number, url, branch, head, base, found)

    async def _file(self, name: str, tree: str, path: str, base: str) -> tuple[str, str]:
        """Walk down to a file; return its mode and its blob."""
        what = f"{path} on {name}'s branch {base}"
        *folders, last = path.split("/")
        for folder in folders:
            entry = await self._entry(name, tree, folder, what)
            if entry.get("type") != "tree":
                raise _not_there(what)
            tree = self._calls.sha(entry, "sha", what=what)
        entry = await self._entry(name, tree, last, what)
        if entry.get("mode") not in _FILES:
            raise _not_there(what)
        return str(entry["mode"]), self._calls.sha(entry, "sha", what=what)

    async def _entry(self, name: str, tree: str, part: str, what: str) -> dict[str, Any]:
        content = await self._calls.ask("GET", f"{_repo(name)}/git/trees/{tree}", what=what)
        items = self._calls.items(self._calls.field(content, "tree", what=what), what)
        for item in items:
            if item.get("path") == part:
                return item
        if content.get("truncated"):
            raise ProposalError(
                f"{what}: its folder is too large for the API; propose it by hand (`everlean proofs patch`)"
            )
        raise _not_there(what)

    # --- writing ------------------------------------------------------------------------------------------

    async def _fork(self, ground: TargetState) -> str:
        """Return our fork, made if there is none, and wait until it has our base commit."""
        calls, what = self._calls, f"a fork of {ground.name}"
        # GitHub answers the same for a fork that is there already.
        result = await calls.ask(
            "POST", f"{_repo(ground.name)}/forks", what=what, body={"default_branch_only": True}
        )
        fork = calls.text(result, "full_name", what=what)
        ref = f"{_repo(fork)}/git/ref/heads/{quote(ground.base)}"
        until = time.monotonic() + self._fork_wait_s
        while (tip := await calls.ask("GET", ref, what=fork, absent=(404, 409))) is None:
            if time.monotonic() >= until:
                raise ProposalError(
                    f"{fork}: has no branch {ground.base} after {self._fork_wait_s:g} s; GitHub makes a fork in the"
                    " background and may take minutes: run the same command again then. If it is an old one, without"
                    " this branch, sync it on GitHub first"
                )
            await asyncio.sleep(self._fork_every_s)
        if calls.sha(tip, "object", "sha", what=fork) != ground.head:
            await self._sync(ground, fork)
        return fork

    async def _sync(self, ground: TargetState, fork: str) -> None:
        """Bring an older fork forward: GitHub makes no branch on a commit that the fork does not have."""
        owner = fork.split("/")[0]
        between = f"{quote(ground.base)}...{owner}:{quote(ground.base)}"
        what = f"how far {fork} is from {ground.name}"
        compared = await self._calls.ask("GET", f"{_repo(ground.name)}/compare/{between}", what=what)
        ahead = self._calls.field(compared, "ahead_by", what=what)
        if ahead:
            raise ProposalError(
                f"{fork}: its branch {ground.base} has {ahead} commits that {ground.name} has not, so it is not brought"
                " forward for you; sync it on GitHub, then run the same command again"
            )
        await self._calls.ask(
            "POST", f"{_repo(fork)}/merge-upstream", what=f"syncing {fork}", body={"branch": ground.base}
        )

    async def _commit(
        self, proposal: NewPullRequest, ground: TargetState, home: str, *, after: bytes, text: PullRequestText
    ) -> str:
        """Bring the branch to a commit that changes the one file on the default branch's tip; return it."""
        calls, at = self._calls, _repo(home)
        what = f"the branch {proposal.branch} of {home}"
        before = await calls.ask(
            "GET", f"{at}/git/ref/heads/{quote(proposal.branch)}", what=what, absent=(404,)
        )
        standing = None if before is None else await self._ours(proposal, home, before, what)
        blob = await self._create(f"{at}/git/blobs", "the new text", _blob(after))
        if blob != git_blob(after, like=blob):
            raise calls.strange("the new text")
        entry = {"path": proposal.path, "mode": ground.mode, "type": "blob", "sha": blob}
        tree = await self._create(
            f"{at}/git/trees", "the new tree", {"base_tree": ground.tree, "tree": [entry]}
        )
        if standing is not None and (standing.tree, standing.parents) == (tree, (ground.head,)):
            return standing.sha
        mark = f"{_MARK}{proposal.proof}"
        # The patch has it among its trailers, but for one of an earlier version.
        message = text.message if mark in text.message.splitlines() else f"{text.message}\n\n{mark}\n"
        commit = await self._create(
            f"{at}/git/commits", "the commit", {"message": message, "tree": tree, "parents": [ground.head]}
        )
        if standing is None:
            ref = {"ref": f"refs/heads/{proposal.branch}", "sha": commit}
            await calls.ask("POST", f"{at}/git/refs", what=what, body=ref)
        else:
            # It is ours and unpublished: an earlier try, on an older tip.
            address = f"{at}/git/refs/heads/{quote(proposal.branch)}"
            await calls.ask("PATCH", address, what=what, body={"sha": commit, "force": True})
        return commit

    async def _create(self, address: str, what: str, body: dict[str, Any]) -> str:
        return self._calls.sha(await self._calls.ask("POST", address, what=what, body=body), "sha", what=what)

    async def _ours(self, proposal: NewPullRequest, home: str, ref: Any, what: str) -> _Standing:
        sha = self._calls.sha(ref, "object", "sha", what=what)
        commit = await self._calls.ask("GET", f"{_repo(home)}/git/commits/{sha}", what=what)
        message = self._calls.field(commit, "message", what=what)
        if f"{_MARK}{proposal.proof}" not in str(message).splitlines():
            raise ProposalError(
                f"{what}: is there and does not hold this proof; rename or delete it, then run the same command again"
            )
        parents = self._calls.items(self._calls.field(commit, "parents", what=what), what)
        return _Standing(
            sha,
            self._calls.sha(commit, "tree", "sha", what=what),
            tuple(self._calls.sha(parent, "sha", what=what) for parent in parents),
        )


@dataclass(frozen=True, slots=True)
class _Standing:
    """The commit of our branch, from an earlier try."""

    sha: str
    tree: str
    parents: tuple[str, ...]


def _repo(name: str) -> str:
    return "/repos/" + quote(name)


def _blob(data: bytes) -> dict[str, str]:
    return {"content": base64.b64encode(data).decode(), "encoding": "base64"}


def _not_there(what: str) -> ProposalError:
    return ProposalError(f"{what}: is not there any more; the daemon looks again after its next poll")


# ---- The proposal without its requests: permission, target and text
# A proof is proposed only if Lean verified it, the watchlist records its maintainers' consent, no author of
# the replaced lines opted out, and it is no exercise.


_TOKENS = (b"sorry", b"admit")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+|\.(?=\.|$)")
_LONGEST_SLUG = 80
_LONGEST_EVIDENCE = 300

_BY_A_PROGRAM = (
    "The proof was found by a program, everlean, and {judged}. No person wrote it, and perhaps none has read it"
    " yet."
)
_NO_MORE = (
    "If you want no more of these, close this and say so here. Its administrator then sets `opt_out = true` for"
    " this repository, or puts an author's name or e-mail address into `opt_out_authors`, and none is opened from then"
    " on. A pull request that was closed is never opened again."
)


def check_proof(row: ProofRow) -> None:
    """Refuse an unverified proof.

    Raises:
        ProposalError: it may not be proposed.
    """
    if row.state == "conditional":
        raise ProposalError(
            f"proof {row.proof}: rests on sorries that are still open ({', '.join(row.conditional_on)}); it can be"
            " proposed once they are proved and it was verified"
        )
    if row.state != "verified":
        raise ProposalError(
            f"proof {row.proof}: is {row.state}, and only what Lean verified is proposed;"
            f" `everlean proofs show {row.proof}` says what is missing"
        )


def check_consent(view: sqlite3.Connection, row: ProofRow, settings: Settings) -> Repo:
    """Refuse without the repository's consent in the configuration; return its entry.

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
            f"{row.repository}: its maintainers have not agreed to such pull requests; ask them, and when"
            f" they agree write pull_requests = true below its url in {settings.path}"
        )
    if exercises(view, repo, row.branch)(row.path):
        raise ProposalError(
            f"{row.path} in {row.repository}: is an exercise, left for people to solve; `exercises` in {settings.path}"
            " says which files are"
        )
    design = by_design(view, row.repository)
    if any(design(one) for one in queries.sorries_by_prefix(view, row.sorry) if one.branch == row.branch):
        raise ProposalError(
            f"{row.declaration} in {row.repository}: its sorry is there by design (comparator.json, "
            "@[exercise], or answer(sorry))"
        )
    return repo


async def check_authors(
    git: Git, row: ProofRow, ground: TargetState, *, paths: Paths, opted_out: Collection[str]
) -> None:
    """Refuse if an author who opted out wrote the replaced lines.

    Raises:
        ProposalError: one did, or the authors are unknown.
    """
    if not opted_out:
        return
    mirror = paths.mirrors / f"{slug(row.repository)}.git"
    start, end = row.checked_start, row.checked_start + row.byte_end - row.byte_start
    first, last = (ground.data.count(b"\n", 0, at) + 1 for at in (start, end))
    try:
        authors = await git.last_authors(mirror, row.checked_sha, row.path, first=first, last=last)
    except RemoteError as error:
        raise ProposalError(
            f"{row.path} in {row.repository}: who wrote the lines is not known ({error}), and [prove] opt_out_authors"
            " must hold; run `everlean poll`, then the same command again"
        ) from error
    refused = {one.strip().casefold() for one in opted_out}
    for name, mail in sorted(authors):
        if not refused.isdisjoint((name.strip().casefold(), mail.strip().casefold())):
            raise ProposalError(
                f"{row.path} lines {first} to {last} in {row.repository}: last touched by {name}, who is in [prove]"
                " opt_out_authors; the proof is not proposed"
            )


def patched(row: ProofRow, ground: TargetState) -> bytes:
    """Return the file with the proof on the default branch, whose tip must be the checked commit.

    Raises:
        ProposalError: the proof was checked at another commit, or the file is another one there.
    """
    if ground.head != row.checked_sha:
        raise ProposalError(
            f"proof {row.proof}: was checked at {row.checked_sha[:12]}, and {ground.name}'s branch {ground.base} is at"
            f" {ground.head[:12]}, where no Lean has checked it; the daemon does so after its next poll"
            " (`everlean poll`), if the sorry is still there and the branch is watched: run the same command again then"
        )
    end = row.checked_start + row.byte_end - row.byte_start
    if ground.blob != row.checked_blob or not ground.data[row.checked_start : end].startswith(_TOKENS):
        raise ProposalError(
            f"{row.path} in {ground.name} at {ground.head[:12]}: is not the file that was checked there; report this"
            " as a defect"
        )
    return splice(ground.data, Replacement(row.checked_start, end, row.replacement))


def branch_name(row: ProofRow) -> str:
    """Return a proof's own branch: the same one at every try."""
    name = _UNSAFE.sub("_", row.declaration).strip("._-")[:_LONGEST_SLUG].strip("._-") or "proof"
    branch = f"everlean/{name}-{_UNSAFE.sub('_', row.proof)}"
    if not is_branch_name(branch):
        raise ProposalError(f"proof {row.proof}: {branch!r} is no branch name; report this as a defect")
    return branch


def text_of(row: Proof, ground: TargetState) -> PullRequestText:
    """Return text for a pull request: plain words, and every value in a code span, where no name mentions a
    user."""
    title = title_of(row)
    judged = "; ".join(filter(None, (JUDGED[row.grade], doubt_text(row.doubts))))
    message = f"{title}\n\nFound by everlean, a program, and {judged}."
    facts = {"proof": row.proof, **row.facts}
    checks = [
        f"- {_code(item['step'])}: {item['verdict']} (by {_code(item['by'])}): {_code(item['evidence'])}"
        for item in row.checks
    ]
    lines = [
        f"This fills the sorry in {_code(row.declaration)} ({_code(row.path)}). Nothing else is changed.",
        "",
        _BY_A_PROGRAM.format(judged=judged),
        "",
        f"The pull request is made on {_code(row.checked_sha)} ({_code(ground.base)}), which was checked.",
        "",
        *(f"- {name}: {_code(text)}" for name, text in facts.items()),
        *((f"- {in_doubt(row)}",) if row.doubts else ()),
        "",
        "What was checked:",
        "",
        *checks,
        "",
        _NO_MORE,
    ]
    return PullRequestText(title, message, "\n".join(lines) + "\n")


def _code(text: str) -> str:
    """Return a code span that no content can leave."""
    line = " ".join(text.split())[:_LONGEST_EVIDENCE]
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{pad}{line}{pad}{fence}"


# ---- The record of a proposal
# The one writer of `pull_request_opened`, for the daemon and for commands without one.


class PullRequestStateError(Exception):
    """A pull request cannot be recorded, for the reason in the message."""


async def record(store: StoreService, opened: PullRequestOpened) -> None:
    """Remember a pull request; the same one twice is one event.

    Raises:
        KeyError: no such proof.
        PullRequestStateError: the proof is of another repository or not verified, or has another pull request
            already.
    """
    rows = await store.ask(partial(queries.proofs_by_prefix, prefix=opened.proof))
    row = {row.proof: row for row in rows}[opened.proof]
    if row.repository != opened.repository:
        raise PullRequestStateError(f"proof {row.proof}: is of {row.repository}, not of {opened.repository}")
    if row.state != "verified" and row.pull_request_url is None:
        raise PullRequestStateError(f"proof {row.proof}: is {row.state}, and only a verified one is proposed")
    event = NewEvent(f"proof:{row.proof}", opened, event_id=event_id(opened.type, row.proof), actor="control")
    try:
        await store.append([event])
    except IdempotencyError as error:
        raise PullRequestStateError(
            f"proof {row.proof}: another pull request is recorded, {row.pull_request_url}"
        ) from error
