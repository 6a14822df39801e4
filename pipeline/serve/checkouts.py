"""Commits on the disk for requests: the server's own folder, worktrees from the mirrors, and the sorries of a file.

Cleanup is always awaited: a cancelled request leaves neither a process nor a file behind.

Each server has a private scratch folder in the cache, owned by the holder of its lock (flock); the kernel releases the
lock at the server's end. A starting server kills the processes and removes the files of unlocked folders.

A checkout has the commit's files (`pipeline.jobs.checkout`), its build, and the client's text in place of one file. The
mirror and the build cache are only read.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from pipeline.jobs.checkout import place, worktree
from pipeline.jobs.child import kill_marked
from pipeline.jobs.mirror import Mirror
from pipeline.jobs.protocol import JobError
from pipeline.jobs.specs import SorryToProve
from pipeline.lean.backend import LeanBackend, Leans
from pipeline.lean.build.build_cache import (
    BuildKey,
    BuildMissingError,
    all_builds,
    attach,
    empty_lake,
)
from pipeline.lean.build.trees import remove_tree
from pipeline.lean.source.projects import LAKEFILES
from pipeline.lean.source.scanner import read_file
from pipeline.lean.source.worktree import MOST_SOURCE_BYTES, read_inside, safe_path
from pipeline.serve.schemas import WHOLE, Problem
from pipeline.serve.spec import LeanSpec, RepositorySpec
from store.documents.by_design import why_by_design
from store.domain.identity import git_blob, sorry_id
from store.domain.records import ScannedFile, Sorry
from store.errors import LogError
from store.files import HeldError, Lock, lock
from store.view import queries
from store.view.rows import BranchRow, SorryRow

BY_HAND = "by-hand-"
"""Prefix of the folders of servers started by hand: each has one of its own."""
PATIENCE_S = 15.0
"""A server's wait for its predecessor to shut down."""
_AGAIN_S = 0.05

_log = logging.getLogger(__name__)


class ScratchTakenError(Exception):
    """Another server has the folder."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """A folder that is ours until it is given back. Made with `own`."""

    folder: Path
    _lock: Lock

    def give_back(self) -> None:
        """Remove the folder, and end the processes left there.

        Raises:
            OSError: something in it cannot be removed.
        """
        try:
            _clear(self.folder)
        finally:
            self._lock.release()


def own(folder: Path, *, patience_s: float = PATIENCE_S) -> Scratch:
    """Make an empty folder for this user alone, and remove folders of ended servers started by hand.

    Raises:
        ScratchTakenError: another server holds it.
        OSError: the folder cannot be made or emptied.
    """
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for other in folder.parent.glob(f"{BY_HAND}*"):
        if other != folder:
            _sweep(other)
    deadline = time.monotonic() + patience_s
    while (held := _own_lock(folder)) is None:
        if time.monotonic() >= deadline:
            raise ScratchTakenError(f"{folder}: another server has it; end that one")
        time.sleep(_AGAIN_S)
    return Scratch(folder, held)


def _own_lock(folder: Path) -> Lock | None:
    """Return the lock of the folder, created anew; None if another server holds it."""
    if folder.exists() and not _swept(folder):
        return None
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    held = _locked(folder)
    # Another server may have removed it between mkdir and lock.
    if held is None or held.is_of(folder):
        return held
    held.release()
    return None


def _sweep(folder: Path) -> None:
    """Remove the folder of an ended server. A failure keeps no other server from starting."""
    try:
        if _swept(folder):
            _log.info("%s was left by a server that is no more, and is removed", folder)
    except OSError as error:
        _log.warning("%s was left by a server that is no more, and stays: %s", folder, error)


def _swept(folder: Path) -> bool:
    """Remove a folder unless it is locked; return True if it no longer exists."""
    held = _locked(folder)
    if held is None:
        return not folder.exists()
    with held:
        _clear(folder)
    return True


def _clear(folder: Path) -> None:
    # First kill the processes that may write there.
    kill_marked(folder, below=True)
    remove_tree(folder)


def _locked(folder: Path) -> Lock | None:
    """Return the folder's lock; None if it is locked or missing."""
    try:
        # Opened here: a link in its place is refused.
        return lock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW), wait_s=0)
    except (FileNotFoundError, HeldError):
        return None


_TOOLCHAIN_BYTES = 1000
_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of a watched repository.

    Attributes:
        branch: the watched branch with this newest commit; "" if none.
        chosen: a client named a commit other than a watched branch's newest: a mirror may hold anyone's commits.
    """

    repository: RepositorySpec
    branch: str
    sha: str
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Checkout:
    """A commit on the disk.

    Attributes:
        worktree: its files.
        path: the requested file.
        data: that file's bytes: the client's if it sent a text, else the commit's.
        sent: whether the client sent it.
        lean: the backend of Lean; with kind "none", the reason why there is none.
    """

    commit: Commit
    worktree: Path
    path: str
    data: bytes
    sent: bool
    lean: LeanBackend


def watched(spec: LeanSpec, repository: str) -> RepositorySpec:
    """Return a repository by its key.

    Raises:
        Problem: 404, it is none of the watchlist.
    """
    for one in spec.repositories:
        if one.key == repository:
            return one
    there = ", ".join(one.key for one in spec.repositories[:10]) or "there are none"
    raise Problem(
        404,
        "unknown_repository",
        f"{repository!r} is no repository of the watchlist",
        f"name one of it ({there}), or add it to config.toml",
    )


def find_commit(
    view: Path, spec: LeanSpec, *, repository: str, branch: str | None, sha: str | None
) -> Commit:
    """Return the requested commit: the named one, else the newest built, else the newest scanned.

    Raises:
        Problem: the repository, the branch or the commit is unknown.
    """
    known = watched(spec, repository)
    rows = _branches(view, repository)
    if branch is not None:
        rows = [row for row in rows if row.branch == branch]
        if not rows:
            raise Problem(
                404,
                "unknown_branch",
                f"{repository} has no branch {branch!r} that is watched",
                "see `everlean repos`, or leave it out",
            )
    if sha is not None:
        _require(known, sha)
        newest_of = next((row.branch for row in rows if sha in (row.tip, row.scanned)), "")
        return Commit(known, newest_of, sha, chosen=not newest_of)
    tips = {row.scanned or row.tip: row for row in rows}
    if spec.built:
        builds = [
            build
            for build, _ in all_builds(spec.cache)
            if (build.repository, build.project) == (repository, "")
        ]
        builds = [build for build in builds if branch is None or build.sha in tips]
        if builds:
            sha = max(builds, key=lambda one: one.built_at).sha
            return Commit(known, tips[sha].branch if sha in tips else "", sha)
    if not rows:
        raise Problem(
            409,
            "not_polled",
            f"no commit of {repository} is known yet",
            "start the daemon, or run `everlean poll`; or name a commit",
        )
    newest = max(rows, key=lambda row: row.scanned_seq or -1)
    return Commit(known, newest.branch, newest.scanned or newest.tip)


def source_path(path: str) -> str:
    """Return a path after checking that it may be a Lean file of a project.

    Raises:
        Problem: 422, it leads out, into a hidden folder, or to a file other than the project's source.
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
    spec: LeanSpec,
    leans: Leans,
    folder: Path,
    path: str,
    text: bytes | None,
    left: threading.Event,
) -> Iterator[Checkout]:
    """Put the commit into `folder`, with the client's text if it sent one; both are gone after the block.

    A missing build is no error: `lean` is then of kind "none", with the reason. Once `left` is set no further file is
    written, and there is no checkout.

    Raises:
        Problem: the commit or the file cannot be read.
    """
    source_path(path)
    with ExitStack() as held:
        try:
            held.enter_context(worktree(folder, mirror=commit.repository.mirror, sha=commit.sha, left=left))
        except JobError as error:
            raise _problem(error) from error
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
        if below := _project_below(folder, path):
            raise Problem(
                409,
                "project_below_root",
                f"{path} belongs to the Lake project in {below}, and this server works in one at a repository's root",
                "have the daemon search there: `everlean trigger prove`",
            )
        lean = leans.for_toolchain(_toolchain(folder))
        empty_lake(folder)
        if lean.is_lean and spec.built:
            try:
                held.enter_context(attach(folder, spec.cache, BuildKey(commit.repository.key, commit.sha)))
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
        503, "no_view", f"the view cannot be read: {error}", "start the daemon; see `everlean doctor`"
    )


def _require(repository: RepositorySpec, sha: str) -> None:
    try:
        with Mirror(repository.mirror) as mirror:
            mirror.require_commit(sha, reason="unknown_commit")
    except JobError as error:
        raise _problem(error) from error


def _problem(error: JobError) -> Problem:
    status = 404 if error.reason == "unknown_commit" else 503
    return Problem(status, error.reason, str(error), error.remedy or "run `everlean poll`")


def _put(folder: Path, path: str, text: bytes) -> None:
    try:
        place(folder, path).write_bytes(text)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise Problem(
            422, "bad_path", f"{path}: a file and a folder of the commit have this name", "name another file"
        ) from error


def _project_below(folder: Path, path: str) -> str:
    """Return the folder of a file's Lake project if the root has none; "" if the root has one."""
    around = (str(one) for one in PurePosixPath(path).parents)
    result = next((one for one in around if any((folder / one / name).is_file() for name in LAKEFILES)), ".")
    return "" if any((folder / name).is_file() for name in LAKEFILES) or result == "." else result


def _toolchain(folder: Path) -> str:
    try:
        return read_inside(folder, "lean-toolchain", most_bytes=_TOOLCHAIN_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _no_build(lean: LeanBackend, why: str) -> LeanBackend:
    return LeanBackend("none", (), why, "", sandbox=lean.sandbox)


_SHOWN = 10


class SorryPlace(BaseModel):
    """Selects a sorry of the file by its id, its declaration, or its place. All given fields have to fit."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] | None = Field(
        default=None, description="As `everlean sorries` has it; then the path may be left out."
    )
    declaration: Annotated[str, Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="The full name of its declaration."
    )
    ordinal: Annotated[int, Field(ge=0), WHOLE] | None = Field(
        default=None, description="Which one of the declaration's sorries, from 0."
    )
    line: Annotated[int, Field(ge=1), WHOLE] | None = Field(default=None, description="From 1.")
    column: Annotated[int, Field(ge=1), WHOLE] | None = Field(
        default=None, description="From 1, in code points: any column of the word."
    )


class SorryFound(BaseModel):
    """A sorry of the file. Lines and columns from 1, columns in code points."""

    model_config = ConfigDict(frozen=True)

    id: str
    declaration: str
    ordinal: int
    line: int
    column: int
    byte_start: int
    byte_end: int


def challenges_on(view: Path, commit: Commit) -> frozenset[str]:
    """Return the modules that the comparator.json files of the commit's branch name; without a branch, those of all
    branches.

    Raises:
        Problem: 503, the view is unreadable.
    """
    rows = _branches(view, commit.repository.key)
    modules = [row.challenges for row in rows if commit.branch in ("", row.branch)]
    return frozenset(module for some in modules for module in some)


@dataclass(frozen=True, slots=True)
class File:
    """A file with its sorries. `known` is the view's row of the sorry named by its id."""

    repository: str
    path: str
    data: bytes
    scanned: ScannedFile
    marked: tuple[str, ...]
    known: SorryRow | None = None

    @classmethod
    def read(cls, repository: str, path: str, data: bytes, *, known: SorryRow | None = None) -> File:
        """Scan a file.

        Raises:
            Problem: 422, it cannot be read as Lean.
        """
        read = read_file(data, path=path)
        scanned = read.scan
        if scanned.error is not None:
            raise Problem(
                422, "unreadable_file", f"{path}: {scanned.error}", "send a file that Lean could read"
            )
        return cls(repository, path, data, scanned, read.marked, known)

    def one(self, place: SorryPlace | None) -> Sorry:
        """Return the sorry named in the request.

        Raises:
            Problem: it names none, or several.
        """
        fitting = self.fitting(place)
        if len(fitting) == 1:
            return fitting[0]
        known = self.known
        if (
            not fitting
            and known is not None
            and any(_stands_as(known, sorry) for sorry in self.scanned.sorries)
        ):
            raise Problem(
                409,
                "other_statement",
                f"{self.path} states {known.declaration} otherwise than it was when sorry {known.sorry} was seen",
                "send the file with the statement as it was, or name the sorry by its declaration or its line",
            )
        some = fitting or self.scanned.sorries
        there = ", ".join(f"{one.declaration} (line {one.line})" for one in some[:_SHOWN]) or "none"
        if fitting:
            raise Problem(
                409,
                "which_sorry",
                f"{self.path} has {len(fitting)} sorries that may be meant: {there}",
                "say which: sorry.declaration and sorry.ordinal, or sorry.line and sorry.column",
            )
        raise Problem(
            404,
            "no_such_sorry",
            f"{self.path} has no sorry there; it has {there}",
            "name one of these, or send the text of the file that you mean",
        )

    def fitting(self, place: SorryPlace | None) -> list[Sorry]:
        """Return the sorries that fit a place; without one, all."""
        asked = place or SorryPlace()
        known = self.known
        return [
            sorry
            for sorry in self.scanned.sorries
            if (known is None or self._is(known, sorry))
            and asked.declaration in (None, sorry.declaration)
            and asked.ordinal in (None, sorry.ordinal)
            and asked.line in (None, sorry.line)
            and (
                asked.column is None
                or 0 <= asked.column - 1 - sorry.column < sorry.byte_end - sorry.byte_start
            )
        ]

    def by_design(self, sorry: Sorry, *, challenges: Collection[str]) -> str:
        """Return why a sorry is there by design, to stay; "" where it is not (`why_by_design`)."""
        return why_by_design(
            self.path,
            declaration=sorry.declaration,
            statement=self.scanned.declarations[sorry.index].statement,
            challenges=challenges,
            marked=self.marked,
        )

    def id_of(self, sorry: Sorry) -> str:
        """Return the sorry's id: the view's for the known one, else the one that a scan would give it."""
        if self.known is not None and self._is(self.known, sorry):
            return self.known.sorry
        return sorry_id(self.repository, sorry.declaration, self._statement_hash(sorry), sorry.ordinal)

    def _is(self, known: SorryRow, sorry: Sorry) -> bool:
        # The same name is not enough: the text may be a client's, with any statement.
        return _stands_as(known, sorry) and self._statement_hash(sorry) == known.statement_hash

    def _statement_hash(self, sorry: Sorry) -> str:
        return self.scanned.declarations[sorry.index].statement_hash

    def described(self, sorry: Sorry) -> SorryFound:
        return SorryFound(
            id=self.id_of(sorry),
            declaration=sorry.declaration,
            ordinal=sorry.ordinal,
            line=sorry.line,
            column=sorry.column + 1,
            byte_start=sorry.byte_start,
            byte_end=sorry.byte_end,
        )

    def wanted(self, sorry: Sorry, *, blob: str) -> SorryToProve:
        """Return the sorry as a prove job takes it."""
        return SorryToProve(
            sorry=self.id_of(sorry),
            path=self.path,
            blob=blob,
            byte_start=sorry.byte_start,
            byte_end=sorry.byte_end,
            declaration=sorry.declaration,
            kind=self.scanned.declarations[sorry.index].kind,
            ordinal=sorry.ordinal,
        )

    def blob(self, *, like: str) -> str:
        """Return git's id of the file, in the same hash as `like`."""
        return git_blob(self.data, like=like)


def _stands_as(known: SorryRow, sorry: Sorry) -> bool:
    return (sorry.declaration, sorry.ordinal) == (known.declaration, known.ordinal)


def known_sorry(view: Path, *, repository: str, sorry: str, branch: str | None) -> SorryRow:
    """Return the view's row of a sorry on a branch, or on any branch if `branch` is None.

    Raises:
        Problem: 404, no sorry has this id; 409, it is not the same one on every branch; 503, the view cannot be
            read.
    """
    try:
        with closing(queries.connect(view)) as db:
            rows: Sequence[SorryRow] = queries.sorries_by_prefix(db, sorry)
    except LogError as error:
        raise no_view(error) from error
    rows = [
        row for row in rows if row.repository == repository and branch in (None, row.branch) and row.in_source
    ]
    if not rows:
        where = repository if branch is None else f"branch {branch} of {repository}"
        raise Problem(
            404,
            "unknown_sorry",
            f"{where} has no sorry {sorry} that is open",
            "see `everlean sorries`; give the whole id",
        )
    if len({(row.path, row.declaration, row.ordinal, row.statement_hash) for row in rows}) > 1:
        branches = ", ".join(row.branch for row in rows[:_SHOWN])
        raise Problem(
            409,
            "which_branch",
            f"sorry {sorry} of {repository} is not the same on each of {branches}",
            "name the branch",
        )
    return rows[0]
