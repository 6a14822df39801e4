"""Read objects from a bare mirror, for jobs without a worktree.

Owns the plumbing commands (`ls-tree`, `diff-tree`, `cat-file --batch`) and their parsing. Two lasting processes of git
answer a scan's questions about each commit: a new process takes 3 ms a question, an answer 0.1. It fetches nothing and
writes nothing; the daemon keeps the mirrors. Nothing here trusts a path, a size or a number of files from a repository:
git itself passes on a server's inventions, such as `../x`, or ten folders of ten folders of ten …
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import IO, cast

from pipeline.jobs.protocol import JobError
from pipeline.lean.source.projects import NAMES, find_projects
from pipeline.lean.source.worktree import safe_path
from store.domain.identity import slug
from store.events.projects import Project

_EXECUTABLE = "100755"
_REGULAR = frozenset({"100644", _EXECUTABLE, "100664"})
_STRANGE = {"120000": "a symbolic link", "160000": "a submodule"}
_CHUNK = 1 << 20
_MOST_LISTED_BYTES = 256 << 20
"""Some two million files; no Lean repository has a hundredth of it."""
_LONGEST_PATH_BYTES = 4096
_SHOWN_BYTES = 200
_MOST_PROJECT_BYTES = 4 << 20
"""A larger project file is ignored."""
LARGEST_SHOWN_BYTES = 4 << 20
"""A larger file is not shown."""


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A regular file of a tree. `problem` is the reason why its path cannot be used, so the file is not read.

    `path` has `\\xNN` for bytes outside UTF-8; a path too long is its beginning and a hash. `executable` is set for a
    commit's files (`Mirror.files`) alone.
    """

    path: str
    blob: str
    problem: str = ""
    executable: bool = False

    @property
    def readable(self) -> bool:
        return not self.problem


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences between two commits, regular files only.

    `present` are files of the second, `gone` files missing in it, `before` all changed files of the first. `strange`
    are entries of the second other than files: symbolic links and submodules, each with its `problem`.
    """

    present: tuple[TreeFile, ...]
    gone: tuple[str, ...]
    before: tuple[TreeFile, ...]
    strange: tuple[TreeFile, ...] = ()


class _Git:
    """A process of git that answers lines."""

    def __init__(self, command: list[str], name: str) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(),
        )
        self.stdin, self.stdout = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)

    def ask(self, line: str) -> None:
        """Write a line."""
        # A process's end shows in its answer.
        with contextlib.suppress(BrokenPipeError):
            self.stdin.write(line.encode())
            self.stdin.flush()

    def close(self, *, kill: bool = False) -> str:
        """End the process; return its standard error."""
        if kill:
            self._process.kill()
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        self._process.wait()
        with self._errors as errors:
            errors.seek(0)
            return errors.read(_CHUNK).decode("utf-8", "replace").strip()


class Mirror:
    """One bare repository. Close it (or use `with`) to end its processes."""

    def __init__(self, path: Path) -> None:
        if not (path / "HEAD").is_file():
            raise JobError(
                "mirror_missing",
                f"{path} is no bare git repository",
                remedy="run `everlean poll` so that the daemon clones the mirror again",
            )
        self.path = path
        self._processes: dict[str, _Git] = {}
        self._root: tuple[str, str, dict[bytes, str]] | None = None

    def __enter__(self) -> Mirror:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        while self._processes:
            self._processes.popitem()[1].close()

    def require_commit(self, sha: str, *, reason: str) -> None:
        """Raise a JobError unless the mirror has this commit."""
        result = self._object(f"{sha}^{{commit}}", most_bytes=0)
        if result is None or result[1] != "commit":
            raise JobError(
                reason,
                f"{self.path} has no commit {sha}",
                remedy="run `everlean poll` to fetch again; a commit that was force-pushed away may be gone for good",
            )

    def files(self, sha: str) -> Iterator[TreeFile]:
        """Yield every regular file at a commit; symbolic links and submodules are left out."""
        for entry in _fields(self._git("ls-tree", "-r", "-z", "--full-tree", sha)):
            about, _, path = entry.partition(b"\t")
            mode, _, blob = about.decode("ascii").split(" ")
            if mode in _REGULAR:
                result = _tree_file(path, blob)
                yield replace(result, executable=True) if mode == _EXECUTABLE else result

    def staged_files(self) -> Iterator[TreeFile]:
        """Yield every staged regular file."""
        for entry in _fields(self._git("ls-files", "--stage", "-z", "--full-name")):
            about, _, path = entry.partition(b"\t")
            mode, blob, _ = about.decode("ascii").split(" ")
            if mode in _REGULAR:
                yield _tree_file(path, blob)

    def saying(self, words: Iterable[str], sha: str | None) -> list[str]:
        """Return the text files with one of these words, at a commit or staged.

        Files without content here, as in a partial clone, are left out.
        """
        where = ["--cached"] if sha is None else [sha]
        try:
            asked = (part for word in words for part in ("-e", word))
            said = self._git("grep", "-z", "-l", "-I", "-w", "--full-name", "-F", *asked, *where)
        except JobError:
            return []  # git ends with 1 if no file has it
        prefix = "" if sha is None else f"{sha}:"
        return [name.decode("utf-8", "replace").removeprefix(prefix) for name in _fields(said)]

    def projects(self, sha: str, files: Iterable[TreeFile] | None = None) -> tuple[Project, ...]:
        """Return the Lake projects of a commit; `files` are all its files, if listed already."""
        every = self.files(sha) if files is None else files
        named = {
            file.path: file.blob for file in every if file.readable and PurePosixPath(file.path).name in NAMES
        }

        def read(blob: str) -> bytes:
            data = self.read(blob, most_bytes=_MOST_PROJECT_BYTES)
            return b"" if isinstance(data, int) else data

        return find_projects(named, read)

    def at_root(self, sha: str, name: str) -> TreeFile | None:
        """Return the regular file of this name at a commit's root, if any."""
        path = name.encode()
        blob = self._root_of(sha)[1].get(path)
        return None if blob is None else _tree_file(path, blob)

    def text_at(self, sha: str, path: str, *, most_bytes: int) -> str | None:
        """Return the text of a commit's file; None if it is missing or longer."""
        if "\n" in path:  # it would end the question
            return None
        result = self._object(f"{sha}:{path}", most_bytes=most_bytes)
        if result is None or result[1] != "blob" or isinstance(result[2], int):
            return None
        return result[2].decode("utf-8", "replace")

    def changes(self, base: str, sha: str) -> Changes:
        """Return the changes from `base` to `sha`; a rename is one file gone and one present."""
        old, new = self._root_of(base)[0], self._root_of(sha)[0]
        git = self._kept("diff-tree", "-r", "-z", "--no-renames", "--no-ext-diff", "--stdin")
        begins, ends = f"{old} {new}\n".encode(), f"end {secrets.token_hex(16)}\n".encode()
        # A line other than a hash comes back unchanged, and flushes the answers before it. No repository can know it,
        # to name a file so.
        git.ask(f"{old} {new}\n{ends.decode()}")
        answer = bytearray()
        while not answer.endswith(ends):
            chunk = os.read(git.stdout.fileno(), _CHUNK)
            answer += chunk
            if not chunk or len(answer) > _MOST_LISTED_BYTES:
                said = self._processes.pop(git.name).close(kill=True)
                raise self._failed(git.name, f"ended: {said}") if not chunk else self._too_many(git.name)
        if not answer.startswith(begins):
            raise self._failed(git.name, f"does not compare {base} with {sha}")
        return _changes(bytes(answer[len(begins) : -len(ends)]))

    def staged(self, base: str) -> Changes:
        """Return the changes from `base` to the staged files."""
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
        """Return the commit id of a person's name for it (branch, tag, `HEAD~2`, …)."""
        try:
            said = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        except JobError:
            return None
        return said.decode("ascii").strip()

    def merge_base(self, one: str, other: str) -> str | None:
        """Return the newest common ancestor of two commits, as far as the history is here."""
        try:
            return self._git("merge-base", one, other).decode("ascii").split()[0]
        except JobError:
            return None

    def first_parents(self, name: str) -> list[tuple[str, int]]:
        """Return a commit and its first-parent ancestors present here, oldest first, with the committers' times."""
        said = self._git("log", "--first-parent", "--reverse", "--format=%H %ct", "--end-of-options", name)
        return [(sha, int(seconds)) for sha, seconds in (line.split() for line in said.decode().splitlines())]

    def empty_tree(self) -> str:
        """Return the id of a tree without files, in the repository's own hash."""
        return self._git("hash-object", "-t", "tree", "--stdin").decode("ascii").strip()

    def shallow(self) -> bool:
        """Return whether the history ends before its beginning, as in a clone with a depth."""
        return self._git("rev-parse", "--is-shallow-repository").strip() == b"true"

    def read(self, blob: str, *, most_bytes: int) -> bytes | int:
        """Return a blob's bytes, or its size if over `most_bytes` (it is then never held in memory).

        Raises:
            JobError: the mirror lacks it.
        """
        result = self._object(blob, most_bytes=most_bytes)
        if result is None or result[1] != "blob":
            raise self._lacks(blob, result)
        return result[2]

    def copy(self, blob: str, target: Path, *, most_bytes: int) -> int:
        """Write a blob into a new file, piece by piece; return its size. One of more than `most_bytes` is not written.

        Raises:
            JobError: the mirror lacks it.
            OSError: the file exists, or the system refused; close this mirror then.
        """
        about = self._ask(blob)
        if about is None or about[1] != "blob":
            raise self._lacks(blob, about)
        size = about[2]
        if size > most_bytes:
            self._pass_over(blob, size)
            return size
        with target.open("xb") as file:
            for chunk in self._chunks(blob, size):
                file.write(chunk)
        return size

    def _root_of(self, sha: str) -> tuple[str, dict[bytes, str]]:
        """Return the tree of a commit, and the blobs of the regular files at its root."""
        if self._root is None or self._root[0] != sha:
            result = self._object(f"{sha}^{{tree}}", most_bytes=_MOST_LISTED_BYTES)
            if result is None or result[1] != "tree":
                raise self._failed("cat-file", f"has no tree of {sha}")
            tree, _, data = result
            if isinstance(data, int):
                raise self._too_many("cat-file")
            self._root = sha, tree, _regular(data, hash_bytes=len(tree) // 2)
        return self._root[1:]

    def _object(self, name: str, *, most_bytes: int) -> tuple[str, str, bytes | int] | None:
        """Return an object's id, kind and bytes, or its size if over `most_bytes`."""
        about = self._ask(name)
        if about is None:
            return None
        digest, kind, size = about
        if size > most_bytes:
            self._pass_over(name, size)
            return digest, kind, size
        return digest, kind, b"".join(self._chunks(name, size))

    def _ask(self, name: str) -> tuple[str, str, int] | None:
        """Return an object's id, kind and size; read its bytes (`_chunks`) before the next question."""
        git = self._kept("cat-file", "--batch")
        git.ask(f"{name}\n")
        header = git.stdout.readline().decode("ascii", "replace").split()
        if not header:
            said = self._processes.pop(git.name).close(kill=True)
            raise self._failed(git.name, f"ended: {said}")
        if len(header) != 3:
            return None  # "missing", or "ambiguous" for a short name
        return header[0], header[1], int(header[2])

    def _chunks(self, name: str, size: int) -> Iterator[bytes]:
        """Yield the bytes of the requested object."""
        git = self._kept("cat-file", "--batch")
        while size:
            chunk = git.stdout.read(min(size, _CHUNK))
            if not chunk:
                raise self._failed(git.name, f"ended inside {name}")
            size -= len(chunk)
            yield chunk
        git.stdout.read(1)

    def _pass_over(self, name: str, size: int) -> None:
        for _ in self._chunks(name, size):
            pass

    def _lacks(self, blob: str, found: tuple[str, str, object] | None) -> JobError:
        text = "nothing" if found is None else f"a {found[1]}"
        return JobError(
            "object_missing",
            f"{self.path}: git cat-file has {text} of the name {blob}",
            remedy="run `everlean poll`; if it stays, delete the mirror and it is cloned again",
        )

    def _kept(self, name: str, *arguments: str) -> _Git:
        if name not in self._processes:
            self._processes[name] = _Git([*self._command(), name, *arguments], name)
        return self._processes[name]

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
                raise self._too_many(arguments[0])
            status = git.wait()
            errors.seek(0)
            text = errors.read(_CHUNK).decode("utf-8", "replace").strip()
        if status:
            raise self._failed(arguments[0], f"ended with {status}: {text}")
        return output

    def _failed(self, command: str, said: str) -> JobError:
        return JobError(
            "git_failed",
            f"{self.path}: git {command} {said}",
            remedy="run `everlean poll`; if it stays, delete the mirror and it is cloned again",
        )

    def _too_many(self, command: str) -> JobError:
        return JobError(
            "too_many_files",
            f"{self.path}: git {command} lists more than {_MOST_LISTED_BYTES >> 20} MiB of file names",
            remedy="no project has that much Lean; set enabled = false for this repository",
            deterministic=True,
        )


def _environment() -> dict[str, str]:
    """No prompts, no locks, no replaced objects, no lazy fetches: only the mirror's own objects."""
    return {
        **os.environ,
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        # Versions before 2.44 ignore it; without a protocol they cannot fetch either.
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
    }


def _fields(output: bytes) -> Iterator[bytes]:
    return iter(output.split(b"\0")[:-1])


def _regular(tree: bytes, *, hash_bytes: int) -> dict[bytes, str]:
    """Return the blobs of a tree object's regular files, by name; gitformat-object(5): mode, name, NUL, hash."""
    files: dict[bytes, str] = {}
    at = 0
    while (end := tree.find(b"\0", at)) >= 0:
        mode, _, name = tree[at:end].partition(b" ")
        at = end + 1 + hash_bytes
        if mode.decode("ascii", "replace") in _REGULAR:
            files.setdefault(name, tree[end + 1 : at].hex())
    return files


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


def file_of(mirrors: Path, repository: str, blob: str) -> bytes | None:
    """Return a version of a file, for display; None if the repository's mirror lacks it, or it is large."""
    mirror = mirrors / f"{slug(repository)}.git"
    if not os.access(mirror / "HEAD", os.R_OK):
        return None
    try:
        with Mirror(mirror) as opened:
            data = opened.read(blob, most_bytes=LARGEST_SHOWN_BYTES)
    except (JobError, OSError):
        return None
    return data if isinstance(data, bytes) else None
