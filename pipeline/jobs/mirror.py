"""Reading objects straight out of a bare mirror, for jobs that need no worktree.

Owns the plumbing commands (`ls-tree`, `diff-tree`, `cat-file --batch`) and their parsing. It fetches nothing and
writes nothing; the daemon keeps the mirrors. Nothing here trusts a path, a size or a number of files that a repository
chose: git itself hands out what a server made up, such as `../x`, or ten folders of ten folders of ten …
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from pipeline.jobs.protocol import JobError
from pipeline.lean.source.worktree import safe_path

_REGULAR = frozenset({"100644", "100755", "100664"})
_STRANGE = {"120000": "a symbolic link", "160000": "a submodule"}
_CHUNK = 1 << 20
_MOST_LISTED_BYTES = 256 << 20
"""Some two million files; no repository of Lean has a hundredth of it."""
_LONGEST_PATH_BYTES = 4096
_SHOWN_BYTES = 200


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A regular file of a tree. `problem` says why its path is none that can be used, and so the file is not read.

    `path` has `\\xNN` for bytes that are no UTF-8; of one that is too long it has the beginning and a hash.
    """

    path: str
    blob: str
    problem: str = ""

    @property
    def readable(self) -> bool:
        return not self.problem


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences between two commits, regular files only.

    `present` are those of the second, `gone` those that it has not any more, `before` all that the first had.
    `strange` are what the second has and is none: symbolic links and submodules, with a `problem` that says so.
    """

    present: tuple[TreeFile, ...]
    gone: tuple[str, ...]
    before: tuple[TreeFile, ...]
    strange: tuple[TreeFile, ...] = ()


class Mirror:
    """One bare repository. Close it (or use `with`) to end the reading process."""

    def __init__(self, path: Path) -> None:
        if not (path / "HEAD").is_file():
            raise JobError(
                "mirror_missing",
                f"{path} is no bare git repository",
                remedy="run `unsorry poll` so that the daemon clones the mirror again",
            )
        self.path = path
        self._batch: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Mirror:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._batch:
            batch, self._batch = self._batch, None
            for pipe in (batch.stdin, batch.stdout):
                if pipe:
                    pipe.close()
            batch.wait()

    def require_commit(self, sha: str, *, reason: str) -> None:
        """Raise a JobError unless the mirror has this commit."""
        try:
            self._git("cat-file", "-e", f"{sha}^{{commit}}")
        except JobError as error:
            raise JobError(
                reason,
                f"{self.path} has no commit {sha}: {error}",
                remedy="run `unsorry poll` to fetch again; a commit that was force-pushed away may be gone for good",
            ) from error

    def files(self, sha: str) -> Iterator[TreeFile]:
        """Every regular file at a commit; symbolic links and submodules are left out."""
        for entry in _fields(self._git("ls-tree", "-r", "-z", "--full-tree", sha)):
            about, _, path = entry.partition(b"\t")
            mode, _, blob = about.decode("ascii").split(" ")
            if mode in _REGULAR:
                yield _tree_file(path, blob)

    def at_root(self, sha: str, name: str) -> TreeFile | None:
        """The regular file of this name at a commit's root, if there is one."""
        for entry in _fields(self._git("ls-tree", "-z", "--full-tree", sha, "--", name)):
            about, _, path = entry.partition(b"\t")
            mode, _, blob = about.decode("ascii").split(" ")
            if mode in _REGULAR:
                return _tree_file(path, blob)
        return None

    def changes(self, base: str, sha: str) -> Changes:
        """Return the changes from `base` to `sha`; a rename is one file gone and one present."""
        return _changes(self._git("diff-tree", "-r", "-z", "--no-renames", "--no-ext-diff", base, sha))

    def staged(self, base: str) -> Changes:
        """Return the changes from `base` to what is staged for the next commit."""
        return _changes(
            self._git(
                "-c",
                "core.fsmonitor=false",
                "diff-index",
                "--cached",
                "-z",
                "--no-renames",
                "--no-ext-diff",
                base,
            )
        )

    def commit_of(self, name: str) -> str | None:
        """Return the id of the commit that a person's name for it (branch, tag, `HEAD~2`, …) means here."""
        try:
            said = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        except JobError:
            return None
        return said.decode("ascii").strip()

    def merge_base(self, one: str, other: str) -> str | None:
        """Return the newest commit that both come from, as far as the history is here."""
        try:
            return self._git("merge-base", one, other).decode("ascii").split()[0]
        except JobError:
            return None

    def empty_tree(self) -> str:
        """Return the id of a tree without files, in the repository's own hash."""
        return self._git("hash-object", "-t", "tree", "--stdin").decode("ascii").strip()

    def shallow(self) -> bool:
        """Return whether the history ends before its beginning, as in a clone with a depth."""
        return self._git("rev-parse", "--is-shallow-repository").strip() == b"true"

    def read(self, blob: str, *, most_bytes: int) -> bytes | int:
        """A blob's bytes, or its size where that is over `most_bytes` (it is then never held in memory).

        Raises:
            JobError: The mirror does not have it.
        """
        stdin, stdout = self._pipes()
        stdin.write(blob.encode("ascii") + b"\n")
        stdin.flush()
        header = stdout.readline().split()
        if len(header) != 3 or header[1] != b"blob":
            said = b" ".join(header).decode("ascii", "replace") or "nothing"
            raise JobError(
                "object_missing",
                f"{self.path}: git cat-file said {said!r} of the blob {blob}",
                remedy="run `unsorry poll`; if it stays, delete the mirror and it is cloned again",
            )
        size = int(header[2])
        if size <= most_bytes:
            data = stdout.read(size)
            stdout.read(1)
            return data
        left = size + 1
        while left:
            chunk = stdout.read(min(left, _CHUNK))
            if not chunk:
                raise JobError("git_failed", f"{self.path}: git cat-file ended inside the blob {blob}")
            left -= len(chunk)
        return size

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._batch is None:
            self._batch = subprocess.Popen(
                [*self._command(), "cat-file", "--batch"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=_environment(),
            )
        stdin, stdout = self._batch.stdin, self._batch.stdout
        if stdin is None or stdout is None:
            raise JobError("git_failed", f"{self.path}: git cat-file was started without pipes")
        return stdin, stdout

    def _command(self) -> list[str]:
        return ["git", f"--git-dir={self.path}", "-c", "core.quotePath=false"]

    def _git(self, *arguments: str) -> bytes:
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                [*self._command(), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_environment(),
            ) as git,
        ):
            output = git.stdout.read(_MOST_LISTED_BYTES + 1) if git.stdout else b""
            if len(output) > _MOST_LISTED_BYTES:
                git.kill()
                raise JobError(
                    "too_many_files",
                    f"{self.path}: git {arguments[0]} lists more than {_MOST_LISTED_BYTES >> 20} MiB of file names",
                    remedy="no project has that much Lean; set enabled = false for this repository",
                    deterministic=True,
                )
            status = git.wait()
            errors.seek(0)
            said = errors.read(_CHUNK).decode("utf-8", "replace").strip()
        if status:
            raise JobError(
                "git_failed",
                f"{self.path}: git {arguments[0]} ended with {status}: {said}",
                remedy="run `unsorry poll`; if it stays, delete the mirror and it is cloned again",
            )
        return output


def _environment() -> dict[str, str]:
    """No prompts, no locks, no replaced objects, no lazy fetches: the mirror's own objects and nothing else."""
    return {
        **os.environ,
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        # Versions before 2.44 do not know it; without a protocol they cannot fetch either.
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
    }


def _fields(output: bytes) -> Iterator[bytes]:
    return iter(output.split(b"\0")[:-1])


def _changes(output: bytes) -> Changes:
    fields = _fields(output)
    present, gone, before, strange = [], [], [], []
    for about in fields:
        old_mode, new_mode, old_blob, blob, _ = about.decode("ascii").removeprefix(":").split(" ")
        path = next(fields)
        old = _tree_file(path, old_blob)
        if new_mode in _REGULAR:
            present.append(_tree_file(path, blob))
        elif old_mode in _REGULAR:
            gone.append(old.path)
        if new_mode in _STRANGE:
            strange.append(TreeFile(old.path, blob, _STRANGE[new_mode]))
        if old_mode in _REGULAR:
            before.append(old)
    return Changes(tuple(present), tuple(gone), tuple(before), tuple(strange))


def _tree_file(path: bytes, blob: str) -> TreeFile:
    if len(path) > _LONGEST_PATH_BYTES:
        shown = path[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
        digest = hashlib.sha256(path).hexdigest()[:12]
        return TreeFile(f"{shown}…{digest}", blob, "the file's path is too long")
    try:
        name = path.decode("utf-8")
    except UnicodeDecodeError:
        shown = path.decode("utf-8", "backslashreplace")
        return TreeFile(shown, blob, "the file's name is not valid UTF-8")
    return TreeFile(name, blob, "" if safe_path(name) else "the file's path leads out of the repository")
