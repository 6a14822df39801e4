"""The git operations of the daemon: ls-remote, partial bare mirrors, histories, worktrees.

A mirror is a partial clone (`--filter=blob:none`): every commit and folder listing, and files' contents only
for the commits passed to `complete`. So the first sight of a repository with 500,000 commits does not bring
half a million versions of its files. A remote that cannot filter sends everything, which is as good.

Every failure is a RemoteError with a remedy and without credentials. Knows nothing of events or settings;
`daemon.polling.git_process` runs git.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from daemon.polling.errors import RemoteError
from daemon.polling.git_process import LONG, GitProcess, check_branch, check_sha, is_sha

KEEP = "refs/everlean/keep/"
UNFINISHED = "everlean-unfinished"
"""A file in a new mirror, while it lacks objects of an earlier one."""
REMOTE = "refs/remotes/origin/"
_MOST_REFS_BYTES = 16 * 2**20
"""Some 200,000 branches; a remote is a stranger, and its answer must fit into a small daemon's memory."""
_MOST_RENAMES = 8
"""The most renames followed in the history of a file."""
_ORIGIN = "origin"
_CONTENTS_LATER = "--filter=blob:none"


@dataclass(frozen=True, slots=True)
class RemoteRefs:
    """The refs of a remote. `default_branch` is None if HEAD is detached or names no branch."""

    default_branch: str | None
    heads: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RemoteState:
    """The state of a remote, from the forge's API or from git.

    Attributes:
        heads: None if no branch changed.
        asked: whether the repository itself was asked about. Without news, the names, the number, `archived`
            and `private` are None, and the default branch is the caller's.
        moved: whether the address redirects to another.
    """

    heads: Mapping[str, str] | None
    default_branch: str | None
    full_name: str | None = None
    number: int | None = None
    clone_url: str | None = None
    archived: bool | None = None
    private: bool | None = None
    asked: bool = False
    moved: bool = False
    etags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit's author and date; `parents` is empty without a request for them."""

    sha: str
    author: str
    mail: str
    authored_at: datetime
    committed_at: datetime
    subject: str
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DatedCommit:
    """A commit, its folder listing and its date; `root`: it has no parent."""

    sha: str
    tree: str
    at: datetime
    root: bool


class Git(GitProcess):
    """The questions and orders; see `GitProcess` for the arguments."""

    # --- remotes ------------------------------------------------------------------------------------------

    async def ls_remote(self, url: str) -> RemoteRefs:
        """List the remote's branches, and the default one.

        Raises:
            RemoteError: the remote cannot be read.
        """
        heads_and_default = ("--symref", "--", url, "HEAD", "refs/heads/*")
        out = await self._run("ls-remote", *heads_and_default, url=url, most_bytes=_MOST_REFS_BYTES)
        default: str | None = None
        heads: dict[str, str] = {}
        for line in out.decode(errors="replace").splitlines():
            value, _, name = line.partition("\t")
            if value.startswith("ref: refs/heads/") and name == "HEAD":
                default = value.removeprefix("ref: refs/heads/")
            elif name.startswith("refs/heads/") and is_sha(value):
                heads[name.removeprefix("refs/heads/")] = value
        return RemoteRefs(default, heads)

    async def shallow_clone(self, url: str, *, folder: Path, contents: str = "blob:none") -> Path:
        """Make a bare clone in `folder` of the newest commit of the remote's default branch; return its path.

        `contents`: git's filter of the files whose contents are fetched. With another one than the default,
        the other contents are simply missing: git would try to fetch them, and end.

        Raises:
            RemoteError: the remote cannot be read.
        """
        clone = folder / "clone.git"
        shallow = ("--quiet", "--bare", "--depth", "1", f"--filter={contents}", "--no-tags")
        await self._run("clone", *shallow, "--", url, str(clone), url=url, timeout_s=self._long_s)
        if contents != "blob:none":
            await self._run("config", "--remove-section", f"remote.{_ORIGIN}", mirror=clone)
        return clone

    async def file_of(self, url: str, path: str, *, folder: Path) -> str | None:
        """Return a small text file of the remote's default branch, None if missing; nothing else is fetched.

        Raises:
            RemoteError: the remote cannot be read.
        """
        clone = await self.shallow_clone(url, folder=folder)
        result = await self._try("show", f"HEAD:{path}", mirror=clone, url=url)
        return result.out.decode(errors="replace") if result.status == 0 else None

    async def ensure_mirror(self, mirror: Path, *, sha256: bool = False) -> None:
        """Create an empty bare repository at `mirror` unless one exists."""
        if (mirror / "HEAD").is_file():
            return
        temporary = mirror.with_name(f"{mirror.name}.{os.getpid()}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.parent.mkdir(parents=True, exist_ok=True)
        of = f"--object-format={'sha256' if sha256 else 'sha1'}"
        await self._run("init", "--quiet", "--bare", "--template=", of, "--", str(temporary))
        (temporary / UNFINISHED).touch()
        temporary.rename(mirror)

    async def fetch(self, mirror: Path, url: str, *, branches: Collection[str]) -> None:
        """Bring exactly these branches of the remote into `refs/remotes/origin/`; other branches leave it.

        The files' contents need not come along; `complete` brings them.

        Raises:
            RemoteError: the remote cannot be read, or a name is no branch name.
        """
        for name in branches:
            check_branch(name)
        # Git would fetch the missing part of a cut-off history from there, without end.
        if (mirror / UNFINISHED).exists() and (cut_off := _shallow(url)):
            raise RemoteError(
                "invalid",
                f"{url}: is a shallow clone, whose history is cut off",
                remedy=f"complete it: git -C {cut_off} fetch --unshallow",
            )
        gone = [name for name in await self.tips(mirror) if name not in branches]
        # Before the fetch: a deleted branch "a" is in the way of a new branch "a/b".
        await self.forget(mirror, gone)
        await self._come_from(mirror, url)
        await self._fetch(
            mirror,
            url,
            "--prune",
            "--force",
            text="".join(f"+refs/heads/{name}:{REMOTE}{name}\n" for name in sorted(branches)),
        )

    async def _fetch(
        self, mirror: Path, url: str, *options: str, text: str, in_background: bool = False
    ) -> None:
        """Fetch the text's refs or objects, line by line: thousands of branches would not fit into an
        argument list."""
        await self._run(
            "fetch", "--quiet", _CONTENTS_LATER, "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head",
            "--no-auto-maintenance", *options, "--stdin", "--", _ORIGIN,
            mirror=mirror, url=url, text=text, timeout_s=self._long_s, in_background=in_background,
        )  # fmt: skip
        self._keep_origin(mirror, url)

    async def complete(self, mirror: Path, shas: Iterable[str]) -> int:
        """Bring the missing contents of all files of these commits; return their number.

        Raises:
            RemoteError: the remote cannot be read, or does not give them.
        """
        # The folder listings are there, so this reads no more than the commits' own.
        trees = "".join(f"{check_sha(sha)}^{{tree}}\n" for sha in shas)
        if not trees:
            return 0
        return await self.bring(mirror, await self._missing(mirror, trees))

    # --- mirrors ------------------------------------------------------------------------------------------

    async def tips(self, mirror: Path) -> dict[str, str]:
        """Return the mirror's branches and their tips."""
        out = await self._run(
            "for-each-ref", "--format=%(objectname) %(refname)", REMOTE.rstrip("/"), mirror=mirror
        )
        lines = (line.partition(" ") for line in out.decode(errors="replace").splitlines())
        return {name.removeprefix(REMOTE): sha for sha, _, name in lines}

    async def forget(self, mirror: Path, branches: Iterable[str]) -> None:
        """Delete the mirror's refs of these branches; commits with a keep ref stay."""
        lines = [f"option no-deref\ndelete {REMOTE}{check_branch(name)}\n" for name in branches]
        await self._update_refs(mirror, lines)

    async def keep(self, mirror: Path, shas: Iterable[str]) -> None:
        """Pin commits cited in events, so that no garbage collection takes them."""
        await self._update_refs(mirror, [f"update {KEEP}{check_sha(sha)} {sha}\n" for sha in shas])

    async def _update_refs(self, mirror: Path, lines: Sequence[str]) -> None:
        if lines:
            await self._run("update-ref", "--stdin", mirror=mirror, text="".join(lines))

    async def has_commit(self, mirror: Path, sha: str) -> bool:
        """Return whether the mirror holds this commit."""
        result = await self._try("cat-file", "-e", f"{check_sha(sha)}^{{commit}}", mirror=mirror)
        return result.status == 0

    async def is_ancestor(self, mirror: Path, old: str, new: str) -> bool:
        """Return whether `old` is in the history of `new`."""
        return await self._merge_base(mirror, "--is-ancestor", check_sha(old), check_sha(new)) is not None

    async def merge_base(self, mirror: Path, one: str, other: str) -> str | None:
        """Return the best common ancestor, None for unrelated histories."""
        result = await self._merge_base(mirror, check_sha(one), check_sha(other))
        return None if result is None else result.split()[0]

    async def _merge_base(self, mirror: Path, *arguments: str) -> str | None:
        """Return the output of `git merge-base`; None for "no"."""
        result = await self._try("merge-base", *arguments, mirror=mirror)
        if result.status not in (0, 1):
            raise result.error("merge-base")
        return result.out.decode() if result.status == 0 else None

    async def first_parent(self, mirror: Path, new: str, *, after: str | None) -> Sequence[Commit]:
        """Return the first-parent commits of `new` beyond `after`, oldest first.

        Without `after` it is the one commit `new`: the baseline of a branch.
        """
        limits = ["--max-count=1"] if after is None else [f"^{check_sha(after)}"]
        return await self._log(mirror, "--first-parent", "--reverse", *limits, check_sha(new), "--")

    async def _log(self, mirror: Path, *options: str, **process: Any) -> list[Commit]:
        out = await self._run(
            "log", "-z", "--no-show-signature", "--encoding=UTF-8",
            "--format=%H%x00%P%x00%aN%x00%aE%x00%at%x00%ct%x00%s", *options, mirror=mirror, **process,
        )  # fmt: skip
        fields = out.decode(errors="replace").split("\0")
        return [
            Commit(sha, author, mail, _time(authored), _time(committed), subject, tuple(parents.split()))
            for sha, parents, author, mail, authored, committed, subject in zip(
                *[iter(fields)] * 7, strict=False
            )
        ]

    async def first_parent_shas(
        self, mirror: Path, new: str, *, after: str | None, limit: int
    ) -> tuple[str, ...]:
        """Return up to `limit` first-parent commits of `new` beyond `after`, newest first."""
        limits = [] if after is None else [f"^{check_sha(after)}"]
        options = ("--first-parent", f"--max-count={limit}", check_sha(new), *limits)
        out = await self._run("rev-list", *options, "--", mirror=mirror)
        return tuple(out.decode().split())

    async def history(self, mirror: Path, tip: str, *, most: int) -> list[DatedCommit]:
        """Return the first-parent history of a commit, the newest first, at most `most` commits.

        Raises:
            RemoteError: the mirror has no such commit.
        """
        return await self._dated(mirror, [tip], "--first-parent", f"--max-count={most}")

    async def dated(self, mirror: Path, shas: Sequence[str]) -> list[DatedCommit]:
        """Return these commits.

        Raises:
            RemoteError: the mirror lacks one.
        """
        return await self._dated(mirror, shas, "--no-walk=unsorted") if shas else []

    async def _dated(self, mirror: Path, shas: Sequence[str], *options: str) -> list[DatedCommit]:
        out = await self._run(
            "log", *options, "--no-show-signature", "--format=%H %T %ct %P", "--stdin", mirror=mirror,
            text="".join(f"{check_sha(sha)}\n" for sha in shas), timeout_s=self._long_s, in_background=True,
        )  # fmt: skip
        lines = (line.split(" ", 3) for line in out.decode().splitlines())
        return [DatedCommit(sha, tree, _time(at), not parents) for sha, tree, at, parents in lines]

    async def differences(self, mirror: Path, trees: Sequence[str]) -> list[dict[str, str]]:
        """Return for each folder listing but the first its files new since the one before: blobs by path.

        Raises:
            RemoteError: the mirror lacks one.
        """
        pairs = pairwise(map(check_sha, trees))
        out = await self._run(
            "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", "--stdin", mirror=mirror,
            text="".join(f"{old} {new}\n" for old, new in pairs), timeout_s=self._long_s, in_background=True,
        )  # fmt: skip
        return await asyncio.to_thread(_differences, out, len(trees) - 1)

    async def missing_contents(self, mirror: Path, trees: Iterable[str]) -> set[str]:
        """Return the contents of files of these folder listings missing in the mirror.

        Raises:
            RemoteError: the mirror lacks one.
        """
        lines = "".join(f"{check_sha(tree)}\n" for tree in trees)
        return set(await self._missing(mirror, lines, in_background=True)) if lines else set()

    async def earlier_names(self, mirror: Path, sha: str, paths: Collection[str]) -> set[str]:
        """Return all names of files in the history of a commit, their present ones among them.

        To find renames, git compares the other files of the commits in which a name begins, and fetches their
        contents if it must.

        Raises:
            RemoteError: the mirror has no such commit, or the remote cannot be read.
        """
        names, begun = set(paths), set(paths)
        origin = await self._origin(mirror)
        for _ in range(_MOST_RENAMES):
            out = await self._run(
                "log", "--no-renames", "--diff-filter=A", "--format=%H", "--stdin",
                mirror=mirror, text=_of_paths(sha, begun), timeout_s=self._long_s, in_background=True,
            )  # fmt: skip
            if not out:
                break
            out = await self._run(
                "log", "--no-walk", "-M", "--diff-filter=R", "--name-status", "-z", "--format=", "--stdin",
                mirror=mirror, lazily_from=origin, text=out.decode(), timeout_s=self._long_s, in_background=True,
            )  # fmt: skip
            fields = [one.lstrip("\n") for one in out.decode(errors="replace").split("\0")]
            pairs = zip(*[iter([one for one in fields if one])] * 3, strict=False)
            begun = {old for _, old, new in pairs if new in begun and old.isprintable()} - names
            if not begun:
                break
            names |= begun
        return names

    async def missing_versions(self, mirror: Path, sha: str, paths: Collection[str]) -> list[str]:
        """Return the versions of files, in the history of a commit, whose contents the mirror lacks.

        Raises:
            RemoteError: the mirror has no such commit.
        """
        return await self._missing(mirror, _of_paths(sha, paths), in_background=True)

    async def blame(
        self, mirror: Path, sha: str, path: str, ranges: Iterable[tuple[int, int]]
    ) -> dict[int, Commit]:
        """Return the authors of lines in a commit's version of a file, by line.

        Changed white space has no author, nor has a text's move to another place of its file. Git fetches
        contents not brought before, one request at a time.

        Args:
            ranges: first and last lines, from 1, inclusive.

        Raises:
            SlowGitError: it takes too long.
            RemoteError: the mirror has no such commit or file, or the file has too few lines.
        """
        lines = (f"-L{first},{last}" for first, last in ranges)
        out = await self._run(
            "blame", "--porcelain", "-w", "-M", *lines, check_sha(sha), "--", path,
            mirror=mirror, lazily_from=await self._origin(mirror), in_background=True,
        )  # fmt: skip
        return _blamed(out.decode(errors="replace"))

    async def last_authors(
        self, mirror: Path, sha: str, path: str, *, first: int, last: int
    ) -> frozenset[tuple[str, str]]:
        """Return the authors of these lines (from 1, inclusive) of a commit's file: names and e-mail
        addresses.

        Raises:
            RemoteError: the mirror has no such commit or file, or the file has too few lines.
        """
        # One request for all missing versions of the file; blame would make one for each.
        await self.bring(mirror, await self.missing_versions(mirror, sha, [path]))
        lines = await self.blame(mirror, sha, path, [(first, last)])
        return frozenset((line.author, line.mail) for line in lines.values())

    async def commits(self, mirror: Path, shas: Iterable[str]) -> dict[str, Commit]:
        """Return these commits, in one process.

        Raises:
            RemoteError: the mirror lacks one.
        """
        text = "".join(f"{check_sha(sha)}\n" for sha in shas)
        if not text:
            return {}
        result = await self._log(mirror, "--no-walk=unsorted", "--stdin", text=text, in_background=True)
        return {one.sha: one for one in result}

    async def merges_of(
        self, mirror: Path, tip: str, shas: Collection[str], *, most_commits: int
    ) -> dict[str, str]:
        """Map each of these commits to the merge behind it among the first parents of `tip`, if there is one.

        Args:
            most_commits: the most commits of the history to read, from the newest.

        Raises:
            RemoteError: the mirror has no such commit.
        """
        out = await self._run(
            "rev-list", "--parents", f"--max-count={most_commits}", check_sha(tip), "--",
            mirror=mirror, timeout_s=self._long_s, in_background=True,
        )  # fmt: skip
        return await asyncio.to_thread(_merges, out.decode(), tip, shas)

    # --- missing contents -----------------------------------------------------------------------------------

    @property
    def _long_s(self) -> float:
        """Return the timeout of an operation that depends on a repository's size."""
        return max(self.timeout_s, 60.0) * LONG

    async def _come_from(self, mirror: Path, url: str) -> None:
        if await self._origin(mirror) != url:
            await self._run("config", f"remote.{_ORIGIN}.url", url, mirror=mirror)
            self._keep_origin(mirror, url)

    def _keep_origin(self, mirror: Path, url: str) -> None:
        """Remember the URL, so that `_origin` need not ask a process; each fetch writes the configuration
        anew."""
        self._origins[mirror] = _version(mirror / "config"), url

    async def _origin(self, mirror: Path) -> str | None:
        """Return the URL of the mirror's last fetch; None for a fetch from before partial mirrors."""
        version, entry = _version(mirror / "config"), self._origins.get(mirror)
        if version is None or entry is None or entry[0] != version:
            result = await self._try("config", "--get", f"remote.{_ORIGIN}.url", mirror=mirror)
            url = result.out.decode(errors="replace").rstrip("\n") if result.status == 0 else None
            entry = self._origins[mirror] = version, url
        return entry[1]

    async def _missing(self, mirror: Path, revisions: str, *, in_background: bool = False) -> list[str]:
        """Return the objects that `git rev-list` misses for these revisions, one a line, then "--" and
        paths."""
        out = await self._run(
            "rev-list", "--objects", "--no-object-names", "--ignore-missing", "--missing=print", "--stdin",
            mirror=mirror, text=revisions, timeout_s=self._long_s, in_background=in_background,
        )  # fmt: skip
        return [line[1:] for line in out.decode().split() if line.startswith("?")]

    async def bring(self, mirror: Path, objects: Sequence[str], *, in_background: bool = False) -> int:
        """Fetch objects, all in one request; return their number.

        Raises:
            RemoteError: the remote cannot be read, or does not give them.
        """
        if not objects:
            return 0
        url = await self._origin(mirror)
        if url is None:
            raise RemoteError(
                "invalid",
                f"{mirror}: lacks {len(objects)} objects and does not know where it was fetched from",
                remedy=f"delete it, and it is fetched again: rm -rf {mirror}",
            )
        text = "".join(f"{check_sha(one)}\n" for one in objects)
        await self._fetch(mirror, url, text=text, in_background=in_background)
        return len(objects)


def _differences(out: bytes, number: int) -> list[dict[str, str]]:
    """Read the output of git diff-tree --stdin -z for `number` pairs: a line names each before its first
    difference."""
    result: list[dict[str, str]] = [{} for _ in range(number)]
    at = -1
    fields = iter(out.split(b"\0"))
    for about in fields:
        *pairs, entry = about.split(b"\n")
        at += len(pairs)
        if entry:
            _, mode, _, blob, _ = entry.decode().split(" ")
            path = next(fields)
            if mode.startswith("100"):
                result[at][path.decode(errors="surrogateescape")] = blob
    return result


def _shallow(url: str) -> Path | None:
    """Return the folder of a shallow clone on this machine; None for anything else."""
    folder = Path(url.removeprefix("file://"))
    if not folder.is_absolute():
        return None
    return folder if any((folder / name).is_file() for name in ("shallow", ".git/shallow")) else None


def _of_paths(sha: str, paths: Iterable[str]) -> str:
    """Return the `--stdin` form of the history of files."""
    return "\n".join((check_sha(sha), "--", *sorted(paths), ""))


def _blamed(out: str) -> dict[int, Commit]:
    """Read the output of git blame --porcelain: a commit's details come with its first line."""
    about: dict[str, dict[str, str]] = defaultdict(dict)
    lines: dict[int, str] = {}
    sha = ""
    for line in out.split("\n"):
        if line.startswith("\t"):  # the file's own text
            sha = ""
        elif not sha:
            sha, _, rest = line.partition(" ")
            if is_sha(sha):
                lines[int(rest.split(" ")[1])] = sha
        else:
            name, _, value = line.partition(" ")
            about[sha][name] = value
    commits = {
        sha: Commit(
            sha,
            of.get("author", ""),
            of.get("author-mail", "").strip("<>"),
            _time(of.get("author-time", "")),
            _time(of.get("committer-time", "")),
            of.get("summary", ""),
        )
        for sha in lines.values()
        for of in [about[sha]]
    }
    return {number: commits[sha] for number, sha in lines.items()}


def _merges(out: str, tip: str, shas: Collection[str]) -> dict[str, str]:
    """Map these commits to the merges behind them among the first parents of the tip, from a list of commits
    with parents."""
    parents = {sha: rest for sha, *rest in (line.split() for line in out.splitlines())}
    line = []
    commit: str | None = tip
    while commit in parents:
        line.append(commit)
        commit = next(iter(parents[commit]), None)
    seen, result = set(line), {}
    for merge in reversed(line):
        waiting = [one for one in parents[merge][1:] if one not in seen]
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            if one in shas:
                result[one] = merge
            waiting += parents.get(one, ())
    return result


def _version(file: Path) -> tuple[int, int, int] | None:
    """Return a value that changes with each write of the file; None without a file."""
    try:
        about = file.stat()
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns, about.st_size


def _time(seconds: str) -> datetime:
    # Commits with absurd dates exist; a date outside every calendar becomes the epoch.
    value = int(seconds) if seconds.isdecimal() else 0
    return datetime.fromtimestamp(value if value < 253_402_300_800 else 0, tz=UTC)
