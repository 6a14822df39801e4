"""A commit of a watched repository on the disk, for one request: its files as the mirror has them, its build beside
them, and a client's own text in place of one file.

What lies here is a stranger's: no link is ever made, what leads out is left out, and what a commit brings as `.lake` is
never used. The mirror and the cache of builds are read and not written.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pipeline.gitread import Mirror, TreeFile
from pipeline.lean.backend import LeanBackend, Leans
from pipeline.lean.build.build_cache import BuildMissingError, all_builds, attach, empty_lake, remove_tree
from pipeline.lean.build.lake import LAKEFILES
from pipeline.protocol import JobError
from pipeline.serve.order import LeanOrder, RepositoryOrder
from pipeline.serve.problems import Problem
from pipeline.worktree import MOST_SOURCE_BYTES, read_inside, safe_path
from store.log.errors import LogError
from store.view.queries import basic as queries
from store.view.rows import BranchRow

_MOST_FILE_BYTES = 256 * 2**20
_MOST_TREE_BYTES = 4 * 2**30
_TOOLCHAIN_BYTES = 1000
_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of a watched repository.

    Attributes:
        branch: the watched one whose newest it is; "" where it is none's.
        chosen: a client named it, and it is no watched branch's newest: anybody's may lie in a mirror.
    """

    repository: RepositoryOrder
    branch: str
    sha: str
    chosen: bool = False


class _LeftError(Exception):
    """Nobody waits for the commit any more."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """A commit on the disk.

    Attributes:
        worktree: its files.
        path: the file that was asked for.
        data: that file's bytes: the client's where it sent a text, else the commit's.
        sent: which of the two.
        lean: what runs Lean for it; kind "none" says why there is nothing.
    """

    commit: Commit
    worktree: Path
    path: str
    data: bytes
    sent: bool
    lean: LeanBackend


def watched(order: LeanOrder, repository: str) -> RepositoryOrder:
    """Return a repository by its key.

    Raises:
        Problem: 404, it is none of the watchlist.
    """
    for one in order.repositories:
        if one.key == repository:
            return one
    there = ", ".join(one.key for one in order.repositories[:10]) or "there are none"
    raise Problem(
        404,
        "unknown_repository",
        f"{repository!r} is no repository of the watchlist",
        f"name one of it ({there}), or add it to config.toml",
    )


def find_commit(
    view: Path, order: LeanOrder, *, repository: str, branch: str | None, sha: str | None
) -> Commit:
    """Return the commit that is meant: the one that is named, else the newest that is built, else the newest that is
    scanned.

    Raises:
        Problem: the repository, the branch or the commit is not known.
    """
    known = watched(order, repository)
    rows = _branches(view, repository)
    if branch is not None:
        rows = [row for row in rows if row.branch == branch]
        if not rows:
            raise Problem(
                404,
                "unknown_branch",
                f"{repository} has no branch {branch!r} that is watched",
                "see `unsorry repos`, or leave it out",
            )
    if sha is not None:
        _require(known, sha)
        newest_of = next((row.branch for row in rows if sha in (row.tip, row.scanned)), "")
        return Commit(known, newest_of, sha, chosen=not newest_of)
    tips = {row.scanned or row.tip: row for row in rows}
    if order.built and order.backend != "simulator":
        builds = [build for build, _ in all_builds(order.cache) if build.repository == repository]
        builds = [build for build in builds if branch is None or build.sha in tips]
        if builds:
            sha = max(builds, key=lambda one: one.built_at).sha
            return Commit(known, tips[sha].branch if sha in tips else "", sha)
    if not rows:
        raise Problem(
            409,
            "not_polled",
            f"no commit of {repository} is known yet",
            "start the daemon, or run `unsorry poll`; or name a commit",
        )
    newest = max(rows, key=lambda row: row.scanned_seq or -1)
    return Commit(known, newest.branch, newest.scanned or newest.tip)


def source_path(path: str) -> str:
    """Hold that a path may be a Lean file of a project, and return it.

    Raises:
        Problem: 422, it leads out, into a hidden folder, or to what is no source of the project's.
    """
    parts = PurePosixPath(path).parts
    strange = any(part.startswith(".") or len(part.encode()) > _NAME_BYTES for part in parts)
    if (
        not safe_path(path)
        or strange
        or "/".join(parts) != path
        or not path.endswith(".lean")
        or path in LAKEFILES
    ):
        raise Problem(
            422,
            "bad_path",
            f"{path!r} is no path of a Lean file in a project",
            "give it relative to the repository's root, such as Demo/Basic.lean",
        )
    return path


@contextmanager
def checked_out(
    commit: Commit,
    *,
    order: LeanOrder,
    leans: Leans,
    folder: Path,
    path: str,
    text: bytes | None,
    left: threading.Event,
) -> Iterator[Checkout]:
    """Put the commit into `folder`, with the client's text where it sent one; both are gone after the block.

    A build that is missing is no error: `lean` is then of kind "none", and says so. Once `left` is set no further file
    is written, and there is no checkout.

    Raises:
        Problem: the commit or the file cannot be read.
    """
    source_path(path)
    with ExitStack() as held:
        held.callback(remove_tree, folder)
        folder.mkdir(parents=True)
        try:
            _write_out(commit, folder, left)
        except JobError as error:
            raise _told(error) from error
        if text is not None:
            _put(folder, path, text)
        try:
            data = read_inside(folder, path, most_bytes=MOST_SOURCE_BYTES)
        except OSError as error:
            raise Problem(
                404,
                "unknown_file",
                f"{commit.repository.key} at {commit.sha[:10]} has no {path} that can be read: {error.strerror}",
                "name a file of that commit, or send its text",
            ) from error
        lean = leans.for_toolchain(_toolchain(folder))
        empty_lake(folder)
        if lean.kind == "pantograph" and order.built:
            try:
                held.enter_context(attach(folder, order.cache, commit.repository.key, commit.sha))
            except BuildMissingError as error:
                lean = _no_build(lean, str(error))
        yield Checkout(commit, folder, path, data, text is not None, lean)


def _branches(view: Path, repository: str) -> list[BranchRow]:
    try:
        with closing(queries.connect(view)) as db:
            return [row for row in queries.branches(db, repository) if row.state == "live"]
    except LogError as error:
        raise no_view(error) from error


def no_view(error: LogError) -> Problem:
    """Return why nothing can be asked of the view."""
    return Problem(
        503, "no_view", f"the view cannot be read: {error}", "start the daemon; see `unsorry doctor`"
    )


def _require(repository: RepositoryOrder, sha: str) -> None:
    try:
        with Mirror(repository.mirror) as mirror:
            mirror.require_commit(sha, reason="unknown_commit")
    except JobError as error:
        raise _told(error) from error


def _told(error: JobError) -> Problem:
    status = 404 if error.reason == "unknown_commit" else 503
    return Problem(status, error.reason, str(error), error.remedy or "run `unsorry poll`")


def _write_out(commit: Commit, folder: Path, left: threading.Event) -> None:
    taken = 0
    with Mirror(commit.repository.mirror) as mirror:
        mirror.require_commit(commit.sha, reason="unknown_commit")
        for entry in mirror.files(commit.sha):
            if left.is_set():
                raise _LeftError
            if not _is_wanted(entry):
                continue
            data = mirror.read(entry.blob, most_bytes=_MOST_FILE_BYTES)
            if isinstance(data, int):
                continue
            taken += len(data)
            if taken > _MOST_TREE_BYTES:
                raise JobError(
                    "too_large",
                    f"{commit.repository.key} at {commit.sha[:10]} has more than {_MOST_TREE_BYTES >> 30} GiB",
                    remedy="nobody writes that much Lean",
                )
            _put(folder, entry.path, data)


def _is_wanted(entry: TreeFile) -> bool:
    return entry.readable and PurePosixPath(entry.path).parts[0].lower() not in (".git", ".lake")


def _put(folder: Path, path: str, data: bytes) -> None:
    """Write a file below `folder`, in which there is no link (`_write_out` makes none)."""
    file = folder / path
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise Problem(
            422, "bad_path", f"{path}: a file and a folder of the commit have this name", "name another file"
        ) from error


def _toolchain(folder: Path) -> str:
    try:
        return read_inside(folder, "lean-toolchain", most_bytes=_TOOLCHAIN_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _no_build(lean: LeanBackend, why: str) -> LeanBackend:
    return LeanBackend("none", (), why, "", simulated=False, sandbox=lean.sandbox)
