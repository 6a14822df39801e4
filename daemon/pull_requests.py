"""Open one pull request through GitHub's REST API: one file, one commit, one branch, never a second time.

Owns the order of the requests. `look` only reads: who we are, the default branch of this moment, the file there, and
whether the pull request is there already. `open` writes: a fork where we may not push, then blob, tree, commit, branch
and pull request. Killed or refused anywhere, it goes on when it is called again: blobs and trees are named by their
content, the branch by the proof, and GitHub is asked for both before either is made.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from daemon.polling.github import Calls, ProposalError
from store.domain.identity import git_blob

_FORK_WAIT_S = 120.0
_FORK_EVERY_S = 2.0
_FILES = frozenset({"100644", "100755"})
_MARK = "Unsorry-Proof: "
"""Begins the line of our commits that says whose branch it is."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be proposed. `name` is owner/name, `branch` ours, `path` the one file that changes."""

    proof: str
    name: str
    path: str
    branch: str


@dataclass(frozen=True, slots=True)
class Opened:
    """A pull request that is there. `branch` is "owner:branch"; `found`: it was there before."""

    number: int
    url: str
    branch: str
    head: str
    base: str
    found: bool


@dataclass(frozen=True, slots=True)
class Ground:
    """What GitHub says now of the repository and the file.

    `head` is the tip of the default branch `base`, `data` the file's content there and `blob` its id. `opened` is the
    pull request where there is one; then nothing was asked of the file.
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
    opened: Opened | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """What people read of it."""

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

    async def look(self, wanted: Wanted) -> Ground:
        """Ask what is there now; writes nothing.

        Raises:
            ProposalError: it cannot be asked, is another owner's by now or archived, or the file is not there any more.
        """
        calls = self._calls
        what = "who the token belongs to"
        login = calls.text(await calls.ask("GET", "/user", what=what), "login", what=what)
        what = wanted.name
        about = await calls.ask("GET", _repo(wanted.name), what=what)
        name, base = (calls.text(about, key, what=what) for key in ("full_name", "default_branch"))
        if name.split("/")[0].casefold() != wanted.name.split("/")[0].casefold():
            raise ProposalError(
                f"{wanted.name}: belongs to others now, as {name}, and it is not known that they agree; ask them, then"
                " watch it by its new address, with pull_requests = true"
            )
        if about.get("archived") is True:
            raise ProposalError(f"{name}: is archived, and takes no pull requests; nothing can be done")
        permissions = about.get("permissions")
        may_push = isinstance(permissions, dict) and permissions.get("push") is True
        ground = Ground(login, name, may_push, base)
        opened = await self._existing(ground, wanted)
        if opened is not None:
            return Ground(login, name, may_push, base, opened=opened)
        what = f"the branch {base} of {name}"
        head = calls.sha(await self._ref(name, base, what), "object", "sha", what=what)
        commit = await calls.ask("GET", f"{_repo(name)}/git/commits/{head}", what=what)
        tree = calls.sha(commit, "tree", "sha", what=what)
        mode, blob = await self._file(name, tree, wanted.path, base)
        return Ground(login, name, may_push, base, head, tree, mode, blob, await self.blob(name, blob))

    async def blob(self, name: str, sha: str) -> bytes:
        """Return a version of a file.

        Raises:
            ProposalError: the repository does not have it, or not as it says.
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

    async def open(self, wanted: Wanted, ground: Ground, *, after: bytes, text: Text) -> Opened:
        """Make what is missing of the branch and the pull request, on the ground that `look` found.

        Raises:
            ProposalError: GitHub refused a step; the steps before it stay done.
        """
        home = ground.name if ground.may_push else await self._fork(ground)
        head = await self._commit(wanted, ground, home, after=after, text=text)
        owner = home.split("/")[0]
        what = f"the pull request of {owner}:{wanted.branch} to {ground.name}"
        body = {
            "title": text.title,
            "head": f"{owner}:{wanted.branch}",
            "base": ground.base,
            "body": text.body,
            "maintainer_can_modify": True,
        }
        try:
            made = await self._calls.ask("POST", f"{_repo(ground.name)}/pulls", what=what, body=body)
        except ProposalError as error:
            # Somebody who ran the same command may have been faster.
            opened = await self._existing(ground, wanted) if error.status == 422 else None
            if opened is None:
                raise
            return opened
        return self._opened(made, f"{owner}:{wanted.branch}", head=head, base=ground.head, found=False)

    # --- reading ------------------------------------------------------------------------------------------

    async def _ref(self, name: str, branch: str, what: str) -> Any:
        return await self._calls.ask("GET", f"{_repo(name)}/git/ref/heads/{quote(branch)}", what=what)

    async def _existing(self, ground: Ground, wanted: Wanted) -> Opened | None:
        """Look for the pull request among the open and the closed ones: one that was closed is an answer too."""
        owner = ground.name.split("/")[0] if ground.may_push else ground.login
        branch = f"{owner}:{wanted.branch}"
        what = f"the pull requests of {ground.name}"
        address = f"{_repo(ground.name)}/pulls?state=all&head={quote(branch, safe='')}"
        found = self._calls.items(await self._calls.ask("GET", address, what=what), what)
        if not found:
            return None
        first, what = found[0], f"a pull request of {ground.name}"
        head = self._calls.sha(first, "head", "sha", what=what)
        base = self._calls.sha(first, "base", "sha", what=what)
        return self._opened(first, branch, head=head, base=base, found=True)

    def _opened(self, content: Any, branch: str, *, head: str, base: str, found: bool) -> Opened:
        what = "the pull request"
        number = self._calls.field(content, "number", what=what)
        url = self._calls.text(content, "html_url", what=what)
        if type(number) is not int or not url.startswith(("https://", "http://")):
            raise self._calls.strange(what)
        return Opened(number, url, branch, head, base, found)

    async def _file(self, name: str, tree: str, path: str, base: str) -> tuple[str, str]:
        """Walk down to a file: its mode and its blob."""
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
                f"{what}: its folder is too large for the API; propose it by hand (`unsorry proofs patch`)"
            )
        raise _not_there(what)

    # --- writing ------------------------------------------------------------------------------------------

    async def _fork(self, ground: Ground) -> str:
        """Return our fork, made if there is none, and wait until it has the commit that we build on."""
        calls, what = self._calls, f"a fork of {ground.name}"
        # GitHub answers the same for a fork that is there already.
        made = await calls.ask(
            "POST", f"{_repo(ground.name)}/forks", what=what, body={"default_branch_only": True}
        )
        fork = calls.text(made, "full_name", what=what)
        ref = f"{_repo(fork)}/git/ref/heads/{quote(ground.base)}"
        until = time.monotonic() + self._fork_wait_s
        while (found := await calls.ask("GET", ref, what=fork, absent=(404, 409))) is None:
            if time.monotonic() >= until:
                raise ProposalError(
                    f"{fork}: has no branch {ground.base} after {self._fork_wait_s:g} s; GitHub makes a fork in the"
                    " background and may take minutes: run the same command again then. If it is an old one, without"
                    " this branch, sync it on GitHub first"
                )
            await asyncio.sleep(self._fork_every_s)
        if calls.sha(found, "object", "sha", what=fork) != ground.head:
            await self._sync(ground, fork)
        return fork

    async def _sync(self, ground: Ground, fork: str) -> None:
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

    async def _commit(self, wanted: Wanted, ground: Ground, home: str, *, after: bytes, text: Text) -> str:
        """Bring the branch to a commit that changes the one file on the default branch's tip; return it."""
        calls, at = self._calls, _repo(home)
        what = f"the branch {wanted.branch} of {home}"
        before = await calls.ask(
            "GET", f"{at}/git/ref/heads/{quote(wanted.branch)}", what=what, absent=(404,)
        )
        standing = None if before is None else await self._ours(wanted, home, before, what)
        blob = await self._made(f"{at}/git/blobs", "the new text", _blob(after))
        if blob != git_blob(after, like=blob):
            raise calls.strange("the new text")
        entry = {"path": wanted.path, "mode": ground.mode, "type": "blob", "sha": blob}
        tree = await self._made(
            f"{at}/git/trees", "the new tree", {"base_tree": ground.tree, "tree": [entry]}
        )
        if standing is not None and (standing.tree, standing.parents) == (tree, (ground.head,)):
            return standing.sha
        message = f"{text.message}\n\n{_MARK}{wanted.proof}\n"
        commit = await self._made(
            f"{at}/git/commits", "the commit", {"message": message, "tree": tree, "parents": [ground.head]}
        )
        if standing is None:
            ref = {"ref": f"refs/heads/{wanted.branch}", "sha": commit}
            await calls.ask("POST", f"{at}/git/refs", what=what, body=ref)
        else:
            # It is ours and nobody was shown it: an earlier try, on an older tip.
            address = f"{at}/git/refs/heads/{quote(wanted.branch)}"
            await calls.ask("PATCH", address, what=what, body={"sha": commit, "force": True})
        return commit

    async def _made(self, address: str, what: str, body: dict[str, Any]) -> str:
        return self._calls.sha(await self._calls.ask("POST", address, what=what, body=body), "sha", what=what)

    async def _ours(self, wanted: Wanted, home: str, ref: Any, what: str) -> _Standing:
        sha = self._calls.sha(ref, "object", "sha", what=what)
        commit = await self._calls.ask("GET", f"{_repo(home)}/git/commits/{sha}", what=what)
        message = self._calls.field(commit, "message", what=what)
        if f"{_MARK}{wanted.proof}" not in str(message).splitlines():
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
    """The commit that our branch stands at from an earlier try."""

    sha: str
    tree: str
    parents: tuple[str, ...]


def _repo(name: str) -> str:
    return "/repos/" + quote(name)


def _blob(data: bytes) -> dict[str, str]:
    return {"content": base64.b64encode(data).decode(), "encoding": "base64"}


def _not_there(what: str) -> ProposalError:
    return ProposalError(f"{what}: is not there any more; the daemon looks again after its next poll")
