"""Reading objects straight out of a bare mirror, for jobs that need no worktree.

Owns the plumbing commands (`ls-tree`, `diff-tree`, `cat-file --batch`) and their parsing. It fetches nothing and
writes nothing; the daemon keeps the mirrors. Nothing here trusts a path or a size that a repository chose.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from pipeline.protocol import JobError

_REGULAR = frozenset({"100644", "100755", "100664"})
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A regular file of a tree. `path` has `\\xNN` for bytes that are no UTF-8; then `readable` is false."""

    path: str
    blob: str
    readable: bool


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs between two commits, regular files only.

    `present` are those of the second, `gone` those that it has not any more, `before` all that the first had.
    """

    present: tuple[TreeFile, ...]
    gone: tuple[str, ...]
    before: tuple[TreeFile, ...]


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
        """What changed from `base` to `sha`; a rename is one file gone and one present."""
        output = self._git("diff-tree", "-r", "-z", "--no-renames", "--no-ext-diff", base, sha)
        fields = _fields(output)
        present, gone, before = [], [], []
        for about in fields:
            old_mode, new_mode, old_blob, blob, _ = about.decode("ascii").removeprefix(":").split(" ")
            path = next(fields)
            old = _tree_file(path, old_blob)
            if new_mode in _REGULAR:
                present.append(_tree_file(path, blob))
            elif old_mode in _REGULAR:
                gone.append(old.path)
            if old_mode in _REGULAR:
                before.append(old)
        return Changes(present=tuple(present), gone=tuple(gone), before=tuple(before))

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
        done = subprocess.run(
            [*self._command(), *arguments],
            capture_output=True,
            check=False,
            env=_environment(),
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise JobError(
                "git_failed",
                f"{self.path}: git {arguments[0]} ended with {done.returncode}: {said}",
                remedy="run `unsorry poll`; if it stays, delete the mirror and it is cloned again",
            )
        return done.stdout


def _environment() -> dict[str, str]:
    """No prompts, no locks, no replaced objects, no lazy fetches: the mirror's own objects and nothing else."""
    return {
        **os.environ,
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
    }


def _fields(output: bytes) -> Iterator[bytes]:
    return iter(output.split(b"\0")[:-1])


def _tree_file(path: bytes, blob: str) -> TreeFile:
    try:
        return TreeFile(path.decode("utf-8"), blob, readable=True)
    except UnicodeDecodeError:
        return TreeFile(path.decode("utf-8", "backslashreplace"), blob, readable=False)
