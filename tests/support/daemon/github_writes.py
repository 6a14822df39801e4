"""What `tests.support.daemon.github` answers to those who write: git objects, branches, forks, pull requests.

Everything goes into the real repositories on disk, through git: an object that git refuses is refused here, and what a
test reads back is what git has. As GitHub documents and does: a fork is made in the background and answered with 202,
also where it is there; no branch is made on a commit that its repository cannot reach; a second pull request of one
branch, and one without commits, are 422.
"""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

Answered = tuple[int, Any]
NOT_FOUND: Answered = (404, {"message": "Not Found"})
_IDENTITY = ("-c", "user.name=Proposer", "-c", "user.email=proposer@example.org")


@dataclass(slots=True)
class Writable:
    """What the forge knows of one repository for writing.

    `fork_of` is the path of the one that it was forked from, `ready_after` how many questions about its branches are
    answered with 404 before it is there.
    """

    name: str
    path: Path
    may_push: bool = True
    fork_of: Path | None = None
    ready_after: int = 0
    pulls: list[dict[str, Any]] = field(default_factory=list)


class Writes:
    """Answers for one repository. `repository.path` is a git repository with or without a work tree."""

    def __init__(self, repository: Writable, *, others: Mapping[str, Writable]) -> None:
        self._repository = repository
        self._others = others

    def answer(self, method: str, rest: list[str], query: str, body: dict[str, Any]) -> Answered:
        """Answer METHOD /repos/OWNER/NAME/REST."""
        match method, rest:
            case "GET", ["git", "ref", "heads", *branch]:
                return self._ref("/".join(branch))
            case "GET", ["git", ("commits" | "trees" | "blobs") as kind, sha]:
                return self._object(kind, sha)
            case "GET", ["pulls"]:
                wanted = parse_qs(query)
                states = {"all": ("open", "closed")}.get(wanted.get("state", ["open"])[0], ("open",))
                head = wanted.get("head", [""])[0]
                pulls = self._repository.pulls
                return 200, [one for one in pulls if one["state"] in states and one["head"]["label"] == head]
            case "GET", ["compare", between]:
                return self._compare(between)
        if not self._repository.may_push and rest != ["pulls"]:
            return 403, {"message": "Resource not accessible by personal access token"}
        match method, rest:
            case "POST", ["git", "blobs"]:
                data = base64.b64decode(body["content"])
                return 201, {"sha": self._git("hash-object", "-w", "--stdin", text=data)}
            case "POST", ["git", "trees"]:
                return self._tree(body)
            case "POST", ["git", "commits"]:
                parents = [word for sha in body["parents"] for word in ("-p", sha)]
                sha = self._git("commit-tree", body["tree"], *parents, "-m", body["message"].strip("\n"))
                return 201, {"sha": sha}
            case "POST", ["git", "refs"]:
                return self._new_ref(body["ref"], body["sha"])
            case "PATCH", ["git", "refs", "heads", *branch]:
                ref = f"refs/heads/{'/'.join(branch)}"
                self._git("update-ref", ref, body["sha"])
                return 200, {"ref": ref, "object": {"sha": body["sha"], "type": "commit"}}
            case "POST", ["merge-upstream"]:
                return self._merge_upstream(body["branch"])
            case "POST", ["pulls"]:
                return self._new_pull(body)
        return NOT_FOUND

    # --- reading ------------------------------------------------------------------------------------------

    def _ref(self, branch: str) -> Answered:
        if self._repository.ready_after > 0:
            self._repository.ready_after -= 1
            return NOT_FOUND
        sha = self._sha(f"refs/heads/{branch}")
        if sha is None:
            return NOT_FOUND
        return 200, {"ref": f"refs/heads/{branch}", "object": {"sha": sha, "type": "commit"}}

    def _object(self, kind: str, sha: str) -> Answered:
        if kind == "blobs":
            found = self._try("cat-file", "blob", sha)
            content = base64.encodebytes(found.stdout).decode()
            return (
                (200, {"sha": sha, "encoding": "base64", "content": content})
                if found.returncode == 0
                else NOT_FOUND
            )
        form = ("ls-tree", "-z", sha) if kind == "trees" else ("log", "-1", "--format=%T%n%P%n%B", sha)
        found = self._try(*form)
        if found.returncode != 0:
            return NOT_FOUND
        text = found.stdout.decode()
        if kind == "trees":
            entries = [line.split("\t", 1) for line in text.split("\0") if line]
            names = ("mode", "type", "sha")
            tree = [dict(zip(names, facts.split(), strict=True), path=path) for facts, path in entries]
            return 200, {"sha": sha, "tree": tree, "truncated": False}
        tree_sha, parents, message = text.split("\n", 2)
        return 200, {
            "sha": sha,
            "message": message.strip("\n"),
            "tree": {"sha": tree_sha},
            "parents": [{"sha": parent} for parent in parents.split()],
        }

    def _compare(self, between: str) -> Answered:
        base, _, head = between.partition("...")
        owner, _, branch = head.partition(":")
        other = self._of(owner)
        theirs = None if other is None else Writes(other, others={})._sha(f"refs/heads/{branch}")
        ours = self._sha(f"refs/heads/{base}")
        if other is None or theirs is None or ours is None:
            return NOT_FOUND
        # The fork borrows our objects, so it can count on both sides.
        counts = Writes(other, others={})._git("rev-list", "--left-right", "--count", f"{ours}...{theirs}")
        behind, ahead = (int(word) for word in counts.split())
        return 200, {"ahead_by": ahead, "behind_by": behind}

    # --- writing ------------------------------------------------------------------------------------------

    def _tree(self, body: dict[str, Any]) -> Answered:
        index = str(self._repository.path.absolute() / "index-of-the-forge")
        environment = {"GIT_INDEX_FILE": index}
        self._git("read-tree", body["base_tree"], environment=environment)
        for entry in body["tree"]:
            place = f"{entry['mode']},{entry['sha']},{entry['path']}"
            self._git("update-index", "--add", "--cacheinfo", place, environment=environment)
        sha = self._git("write-tree", environment=environment)
        Path(index).unlink()
        return 201, {"sha": sha}

    def _new_ref(self, ref: str, sha: str) -> Answered:
        if self._sha(ref) is not None:
            return 422, {"message": "Reference already exists"}
        parents = self._git("log", "-1", "--format=%P", sha).split()
        reached = self._git("rev-list", "--branches").split()
        if not set(parents) <= set(reached):
            return 422, {"message": "Object does not exist"}
        self._git("update-ref", ref, sha)
        return 201, {"ref": ref, "object": {"sha": sha, "type": "commit"}}

    def _merge_upstream(self, branch: str) -> Answered:
        if self._repository.fork_of is None:
            return 422, {"message": "Validation Failed"}
        source = str(self._repository.fork_of.absolute())
        self._git("fetch", "--quiet", source, f"refs/heads/{branch}:refs/heads/{branch}")
        return 200, {"merge_type": "fast-forward", "base_branch": f"upstream:{branch}"}

    def _new_pull(self, body: dict[str, Any]) -> Answered:
        owner, _, branch = body["head"].partition(":")
        home = self._of(owner)
        head = None if home is None else Writes(home, others={})._sha(f"refs/heads/{branch}")
        base = self._sha(f"refs/heads/{body['base']}")
        if head is None or base is None:
            return _invalid(f"head {body['head']} is invalid")
        if head == base:
            return _invalid(f"No commits between {body['base']} and {body['head']}")
        pulls = self._repository.pulls
        if any(one["head"]["label"] == body["head"] and one["state"] == "open" for one in pulls):
            return _invalid(f"A pull request already exists for {body['head']}.")
        number = len(pulls) + 1
        pulls.append(
            {
                "number": number,
                "state": "open",
                "html_url": f"https://github.com/{self._repository.name}/pull/{number}",
                "title": body["title"],
                "body": body["body"],
                "head": {"label": body["head"], "sha": head},
                "base": {"ref": body["base"], "sha": base},
            }
        )
        return 201, pulls[-1]

    # --- git ----------------------------------------------------------------------------------------------

    def _of(self, owner: str) -> Writable | None:
        """The repository of this network that an owner has: ourselves, or a fork of ours."""
        ours = self._repository
        family = [ours, *(one for one in self._others.values() if one.fork_of == ours.path)]
        return next((one for one in family if one.name.split("/")[0] == owner), None)

    def _sha(self, ref: str) -> str | None:
        done = self._try("rev-parse", "--verify", "--quiet", ref)
        return done.stdout.decode().strip() if done.returncode == 0 else None

    def _git(self, *arguments: str, text: bytes = b"", environment: Mapping[str, str] | None = None) -> str:
        done = self._try(*arguments, text=text, environment=environment)
        if done.returncode != 0:
            raise RuntimeError(f"git {' '.join(arguments)}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode().strip()

    def _try(
        self, *arguments: str, text: bytes = b"", environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["git", "-C", str(self._repository.path), *_IDENTITY, *arguments],
            input=text,
            env={"PATH": os.environ["PATH"], **(environment or {})},
            capture_output=True,
            check=False,
        )


def fork(source: Path, target: Path) -> None:
    """Make a bare copy that borrows the objects of its source, as the forks of one network do."""
    subprocess.run(
        ["git", "clone", "--quiet", "--bare", "--shared", str(source), str(target)],
        capture_output=True,
        check=True,
    )


def _invalid(message: str) -> Answered:
    return 422, {"message": "Validation Failed", "errors": [{"resource": "PullRequest", "message": message}]}
