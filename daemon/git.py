"""The one wrapper of the git command: ls-remote, bare mirrors, histories, worktrees.

Owns how git is called: no prompt, no hooks, no configuration but ours, no submodules, no LFS, a deadline, and
the token in the environment of the one process that needs it. Every failure is a GitError with a remedy and
without credentials. Knows nothing of events or settings.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import shutil
import signal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from daemon.git_errors import GitError, classify
from daemon.redact import redact
from pipeline.lean.build.trash import remove_tree

KEEP = "refs/unsorry/keep/"
REMOTE = "refs/remotes/origin/"
_MOST_OUTPUT_BYTES = 256 * 2**20
_MOST_REFS_BYTES = 16 * 2**20
"""Some 200,000 branches; a remote is a stranger, and its answer must fit into a small daemon's memory."""
_MOST_ERROR_BYTES = 2**20
_CHUNK_BYTES = 2**16
_LAST_READ_S = 5.0
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_NO_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)")
_PASSED_ON = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "SSH_AUTH_SOCK",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "all_proxy",
    "ALL_PROXY",
)
_CONFIG = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    # A symlink of a hostile repository must not lead a job that reads a worktree out of it.
    ("core.symlinks", "false"),
    ("core.protectNTFS", "true"),
    ("core.protectHFS", "true"),
    ("protocol.ext.allow", "never"),
    ("credential.helper", ""),
    ("submodule.recurse", "false"),
    ("filter.lfs.smudge", ""),
    ("filter.lfs.process", ""),
    ("filter.lfs.required", "false"),
    # Commits that events cite must stay readable: nothing is collected behind our back.
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("http.lowSpeedLimit", "1000"),
    ("http.lowSpeedTime", "30"),
    ("advice.detachedHead", "false"),
)
_ENVIRONMENT = {
    "LC_ALL": "C",  # messages are matched
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_ASKPASS": "",  # set and empty: asks nobody
    "SSH_ASKPASS": "",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=20",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ALLOW_PROTOCOL": "file:https:http:ssh:git",
}


@dataclass(frozen=True, slots=True)
class RemoteRefs:
    """What a remote says of itself. `default_branch` is None where it was not asked or HEAD is detached."""

    default_branch: str | None
    heads: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """What git says of a commit, as far as an event wants it."""

    sha: str
    parents: tuple[str, ...]
    author: str
    committed_at: datetime
    subject: str


def is_branch_name(name: str) -> bool:
    """Whether git could store `refs/heads/<name>` (git-check-ref-format), and UTF-8 can spell it."""
    parts = name.split("/")
    return bool(
        name
        and len(name.encode(errors="replace")) <= 250
        and not _NO_REF.search(name)
        and all(part and not part.startswith(".") for part in parts)
        and not name.endswith((".", "/"))
        and name != "@"
        and "�" not in name
    )


def is_sha(text: str) -> bool:
    """Whether this is a git object id in full."""
    return _SHA.fullmatch(text) is not None


class Git:
    """Runs git. At most `parallel` processes at a time; `token` gives the secret for a URL's host, or None."""

    def __init__(
        self,
        *,
        timeout_s: float = 60.0,
        parallel: int = 4,
        token: Callable[[str], str | None] = lambda _url: None,
    ) -> None:
        self.timeout_s = timeout_s
        self._token = token
        self._slots = asyncio.Semaphore(parallel)

    # --- remotes ------------------------------------------------------------------------------------------

    async def ls_remote(self, url: str, *, symref: bool = True) -> RemoteRefs:
        """Ask the remote for its branches. Without `symref` the server may send branches only, which is less.

        Raises:
            GitError: the remote cannot be read.
        """
        arguments = ["--symref", "--", url, "HEAD", "refs/heads/*"] if symref else ["--heads", "--", url]
        out = await self._run("ls-remote", *arguments, url=url, most_bytes=_MOST_REFS_BYTES)
        default: str | None = None
        heads: dict[str, str] = {}
        for line in out.decode(errors="replace").splitlines():
            value, _, name = line.partition("\t")
            if value.startswith("ref: refs/heads/") and name == "HEAD":
                default = value.removeprefix("ref: refs/heads/")
            elif name.startswith("refs/heads/") and _SHA.fullmatch(value):
                heads[name.removeprefix("refs/heads/")] = value
        return RemoteRefs(default, heads)

    async def ensure_mirror(self, mirror: Path, *, sha256: bool = False) -> None:
        """Create an empty bare repository at `mirror` unless one stands there."""
        if (mirror / "HEAD").is_file():
            return
        temporary = mirror.with_name(f"{mirror.name}.{os.getpid()}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.parent.mkdir(parents=True, exist_ok=True)
        object_format = "sha256" if sha256 else "sha1"
        await self._run(
            "init",
            "--quiet",
            "--bare",
            "--template=",
            f"--object-format={object_format}",
            "--",
            str(temporary),
        )
        temporary.rename(mirror)

    async def fetch(self, mirror: Path, url: str, *, branches: Collection[str]) -> None:
        """Bring exactly these branches of the remote into `refs/remotes/origin/`; other branches leave it.

        Raises:
            GitError: the remote cannot be read, or a name is no branch name.
        """
        for name in branches:
            _check_branch(name)
        gone = [name for name in await self.tips(mirror) if name not in branches]
        # Before the fetch: a deleted branch "a" is in the way of a new branch "a/b".
        await self.forget(mirror, gone)
        await self._run(
            "fetch",
            "--quiet",
            "--prune",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
            "--force",
            # Thousands of branches would not fit into an argument list.
            "--stdin",
            "--",
            url,
            mirror=mirror,
            url=url,
            text="".join(f"+refs/heads/{name}:{REMOTE}{name}\n" for name in sorted(branches)),
            timeout_s=max(self.timeout_s, 60.0) * 10,
        )

    # --- mirrors ------------------------------------------------------------------------------------------

    async def tips(self, mirror: Path) -> dict[str, str]:
        """Return the branches that the mirror holds, and their tips."""
        out = await self._run(
            "for-each-ref", "--format=%(objectname) %(refname)", REMOTE.rstrip("/"), mirror=mirror
        )
        lines = (line.partition(" ") for line in out.decode(errors="replace").splitlines())
        return {name.removeprefix(REMOTE): sha for sha, _, name in lines}

    async def forget(self, mirror: Path, branches: Iterable[str]) -> None:
        """Delete the mirror's refs of these branches; the commits stay where a keep ref holds them."""
        for name in branches:
            await self._run("update-ref", "--no-deref", "-d", f"{REMOTE}{_check_branch(name)}", mirror=mirror)

    async def keep(self, mirror: Path, shas: Iterable[str]) -> None:
        """Pin commits that events cite, so that no garbage collection takes them."""
        for sha in shas:
            await self._run("update-ref", f"{KEEP}{_check_sha(sha)}", sha, mirror=mirror)

    async def has_commit(self, mirror: Path, sha: str) -> bool:
        """Whether the mirror holds this commit."""
        done = await self._try("cat-file", "-e", f"{_check_sha(sha)}^{{commit}}", mirror=mirror)
        return done.status == 0

    async def is_ancestor(self, mirror: Path, old: str, new: str) -> bool:
        """Whether `new` has `old` in its history."""
        done = await self._try("merge-base", "--is-ancestor", _check_sha(old), _check_sha(new), mirror=mirror)
        if done.status not in (0, 1):
            raise done.error("merge-base")
        return done.status == 0

    async def merge_base(self, mirror: Path, one: str, other: str) -> str | None:
        """Return the best common ancestor, None for unrelated histories."""
        done = await self._try("merge-base", _check_sha(one), _check_sha(other), mirror=mirror)
        if done.status not in (0, 1):
            raise done.error("merge-base")
        return done.out.decode().split()[0] if done.status == 0 else None

    async def first_parent(self, mirror: Path, new: str, *, after: str | None) -> tuple[CommitFacts, ...]:
        """Return the first-parent commits of `new` that `after` does not reach, oldest first.

        Without `after` it is the one commit `new`: the baseline of a branch.
        """
        limits = ["--max-count=1"] if after is None else [f"^{_check_sha(after)}"]
        out = await self._run(
            "log",
            "--first-parent",
            "--reverse",
            "-z",
            "--no-show-signature",
            "--encoding=UTF-8",
            "--format=%H%x00%P%x00%an%x00%ct%x00%s",
            *limits,
            _check_sha(new),
            "--",
            mirror=mirror,
        )
        fields = out.decode(errors="replace").split("\0")
        return tuple(
            CommitFacts(sha, tuple(parents.split()), author, _time(seconds), subject)
            for sha, parents, author, seconds, subject in zip(*[iter(fields)] * 5, strict=False)
        )

    async def first_parent_shas(
        self, mirror: Path, new: str, *, after: str | None, limit: int
    ) -> tuple[str, ...]:
        """Return up to `limit` first-parent commits of `new` that `after` does not reach, newest first."""
        limits = [] if after is None else [f"^{_check_sha(after)}"]
        out = await self._run(
            "rev-list",
            "--first-parent",
            f"--max-count={limit}",
            _check_sha(new),
            *limits,
            "--",
            mirror=mirror,
        )
        return tuple(out.decode().split())

    async def last_authors(
        self, mirror: Path, sha: str, path: str, *, first: int, last: int
    ) -> frozenset[tuple[str, str]]:
        """Return who wrote these lines (from 1, inclusive) of a file as a commit has it: names and e-mail addresses.

        Raises:
            GitError: the mirror has no such commit or file, or the file not so many lines.
        """
        out = await self._run(
            "blame", "--line-porcelain", f"-L{first},{last}", _check_sha(sha), "--", path, mirror=mirror
        )
        authors: set[tuple[str, str]] = set()
        name = ""
        # The file's own text has a tab before each of its lines.
        for line in out.decode(errors="replace").split("\n"):
            if line.startswith("author "):
                name = line.removeprefix("author ")
            elif line.startswith("author-mail "):
                authors.add((name, line.removeprefix("author-mail ").strip("<>")))
        return frozenset(authors)

    # --- worktrees ----------------------------------------------------------------------------------------

    async def worktree_add(self, mirror: Path, path: Path, sha: str) -> None:
        """Check the commit out, detached, into the new folder `path`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        await self._run(
            "worktree",
            "add",
            "--quiet",
            "--force",
            "--detach",
            "--",
            str(path),
            _check_sha(sha),
            mirror=mirror,
            timeout_s=max(self.timeout_s, 60.0) * 10,
        )

    async def worktree_remove(self, mirror: Path, path: Path) -> None:
        """Remove the folder, whatever a job left in it, and the mirror's record of it."""
        try:
            await asyncio.to_thread(remove_tree, path)
        except OSError as error:
            raise GitError(
                "invalid",
                f"{path}: the worktree could not be removed: {error}",
                remedy=f"remove the folder by hand: rm -rf {path}",
            ) from error
        await self.worktree_prune(mirror)

    async def worktree_prune(self, mirror: Path) -> None:
        """Forget the worktrees of this mirror whose folders are gone."""
        if await asyncio.to_thread((mirror / "HEAD").is_file):
            await self._run("worktree", "prune", mirror=mirror)

    # --- the process --------------------------------------------------------------------------------------

    async def _run(
        self,
        *arguments: str,
        mirror: Path | None = None,
        url: str | None = None,
        timeout_s: float | None = None,
        text: str = "",
        most_bytes: int = _MOST_OUTPUT_BYTES,
    ) -> bytes:
        done = await self._try(
            *arguments, mirror=mirror, url=url, timeout_s=timeout_s, text=text, most_bytes=most_bytes
        )
        if done.status != 0:
            raise done.error(url or str(mirror or arguments[-1]), remote=url is not None)
        return done.out

    async def _try(
        self,
        *arguments: str,
        mirror: Path | None = None,
        url: str | None = None,
        timeout_s: float | None = None,
        text: str = "",
        most_bytes: int = _MOST_OUTPUT_BYTES,
    ) -> _Done:
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        token = self._token(url) if url else None
        argv = ["git", *(["--git-dir", str(mirror)] if mirror else []), *arguments]
        async with self._slots:
            try:
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    stdin=asyncio.subprocess.PIPE if text else asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    env=environment(url=url, token=token),
                    start_new_session=True,
                )
            except FileNotFoundError as error:
                raise GitError(
                    "invalid", "git: not found on PATH", remedy="install git (Debian: apt install git)"
                ) from error
            try:
                async with asyncio.timeout(timeout_s):
                    out, err = await _communicate(process, text.encode(), most_bytes=most_bytes)
            except _TooMuchError:
                raise GitError(
                    "invalid",
                    f"git {arguments[0]} of {url or mirror}: more than {most_bytes // 2**20} MiB of output",
                    remedy="check that the url is that of a repository of ordinary size",
                ) from None
            except TimeoutError:
                raise GitError(
                    "unreachable",
                    f"git {arguments[0]} of {url or mirror}: no end after {timeout_s:g} s",
                    remedy="check the network, or raise [poll] timeout",
                ) from None
            finally:
                await _end(process)
        secrets = (token, _basic(token)) if token else ()
        return _Done(process.returncode or 0, out, redact(err.decode(errors="replace"), secrets=secrets))


@dataclass(frozen=True, slots=True)
class _Done:
    status: int
    out: bytes
    err: str

    def error(self, what: str, *, remote: bool = False) -> GitError:
        return classify(self.err, status=self.status, what=redact(what), remote=remote)


def environment(*, url: str | None = None, token: str | None = None) -> dict[str, str]:
    """Return the whole environment of a git process: an allow-list, our switches, and our configuration.

    The token goes to the host of `url` only, in a header that git reads from here: not from its arguments, which
    every user of the machine can see, and not from a file, which would outlive it.
    """
    variables = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | _ENVIRONMENT
    config = list(_CONFIG)
    if token and url:
        parts = urlsplit(url)
        if parts.scheme == "https" and parts.netloc:
            config.append(
                (f"http.https://{parts.netloc}/.extraHeader", f"Authorization: Basic {_basic(token)}")
            )
    variables["GIT_CONFIG_COUNT"] = str(len(config))
    for index, (key, value) in enumerate(config):
        variables[f"GIT_CONFIG_KEY_{index}"] = key
        variables[f"GIT_CONFIG_VALUE_{index}"] = value
    return variables


def _basic(token: str) -> str:
    return base64.b64encode(f"x-access-token:{token}".encode()).decode()


class _TooMuchError(Exception):
    """git prints without end."""


async def _communicate(
    process: asyncio.subprocess.Process, text: bytes, *, most_bytes: int
) -> tuple[bytes, bytes]:
    """Like `Process.communicate`, with bounds: a remote can make git print for as long as it likes.

    Raises:
        _TooMuchError: standard output is longer; standard error is cut, and drained.
    """

    async def read(stream: asyncio.StreamReader | None, *, most: int, cut: bool) -> bytes:
        kept = bytearray()
        while stream is not None and (chunk := await stream.read(_CHUNK_BYTES)):
            if len(kept) + len(chunk) > most and not cut:
                raise _TooMuchError
            kept += chunk[: max(0, most - len(kept))]
        return bytes(kept)

    async def write() -> None:
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(text)
                await process.stdin.drain()
            process.stdin.close()

    out = asyncio.create_task(read(process.stdout, most=most_bytes, cut=False))
    err = asyncio.create_task(read(process.stderr, most=_MOST_ERROR_BYTES, cut=True))
    into = asyncio.create_task(write())
    try:
        await asyncio.gather(out, err, into)
    finally:
        for task in (out, err, into):
            task.cancel()
        await asyncio.gather(out, err, into, return_exceptions=True)
    await process.wait()
    return out.result(), err.result()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Leave nobody behind: git's helpers (ssh, git-remote-https) live in its process group."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    # asyncio's wait ends only after its pipes do, and a pipe that is not read to its end stays open for good.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LAST_READ_S):
            for stream in (process.stdout, process.stderr):
                while stream is not None and await stream.read(_CHUNK_BYTES):  # noqa: ASYNC110 - reads, and does not poll
                    await asyncio.sleep(0)  # a full pipe never yields, and the timeout needs a turn
            await process.wait()


def _check_sha(sha: str) -> str:
    if not _SHA.fullmatch(sha):
        raise GitError("invalid", f"{sha!r} is no git object id", remedy="report this as a defect")
    return sha


def _check_branch(name: str) -> str:
    if not is_branch_name(name):
        raise GitError(
            "invalid", f"{name!r} is no valid branch name", remedy="rename the branch at its remote"
        )
    return name


def _time(seconds: str) -> datetime:
    # Commits with absurd dates exist; a date that no calendar has becomes the epoch.
    value = int(seconds) if seconds.isdecimal() else 0
    return datetime.fromtimestamp(value if value < 253_402_300_800 else 0, tz=UTC)


__all__: Sequence[str] = ("CommitFacts", "Git", "GitError", "RemoteRefs", "environment", "is_branch_name")
