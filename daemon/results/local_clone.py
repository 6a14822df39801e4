"""Put proofs into a local clone: those that fit its HEAD, one commit for each, all of them or none.

Commits are made beside the work tree, with an index of their own; one command of git's at the end brings the
branch and the files there, or refuses. Until then a person sees no change. A proof fits if its file is the
checked version, or if its declaration and the text in force there are the same byte for byte. Lean is not
asked: a commit on another HEAD than the checked one notes it.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from daemon.place.instance import Instance
from daemon.place.paths import AUTHOR, author_from_config
from daemon.polling.git_process import is_branch_name
from daemon.results.mail import messages_of, title_of
from pipeline.lean.source.scanner import Command, parse, scan_source
from pipeline.lean.source.splice import Replacement, splice
from store.documents.document import of_row
from store.documents.lookup import proof_named
from store.domain.identity import git_blob, repository_key
from store.domain.records import Declaration
from store.log.reader import LogReader
from store.text import clean, counted, listed
from store.view import queries
from store.view.rows import ProofRow

_TIMEOUT_S = 300.0
_FILES = frozenset({"100644", "100755"})
_MOST_NAMED = 5
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY")
"""git's variables for hooks, and others that would lead it to another repository than the named one."""


class CloneError(Exception):
    """A clone does not take proofs; the message names it, the reason and the remedy. It is unchanged."""


class StaleError(Exception):
    """A proof does not fit; the message is the reason. `there`: its text is in the file already."""

    def __init__(self, reason: str, *, there: bool = False) -> None:
        super().__init__(reason)
        self.there = there


@dataclass(frozen=True, slots=True)
class Change:
    """A proof and its replacement in the file at HEAD. `others` are proofs with the same text."""

    row: ProofRow
    replacement: Replacement
    others: tuple[ProofRow, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A proof that does not fit, and the reason; `there` as in `StaleError`."""

    row: ProofRow
    reason: str
    there: bool = False


@dataclass(frozen=True, slots=True)
class Applied:
    """A proof and its commit."""

    row: ProofRow
    commit: str
    others: tuple[ProofRow, ...]


@dataclass(frozen=True, slots=True)
class _File:
    mode: str
    data: bytes


@dataclass(slots=True)
class LocalClone:
    """A work tree of git's without uncommitted changes; `head` is its commit."""

    path: Path
    head: str
    urls: tuple[str, ...]
    _files: dict[str, _File | None] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path) -> LocalClone:
        """Find the work tree around a folder.

        Raises:
            CloneError: there is none, it has no commit, or something in it is not committed.
        """
        clone = cls(folder.absolute(), "", ())
        top = clone._try("rev-parse", "--show-toplevel")
        if top is None:
            raise CloneError(
                f"{folder.absolute()}: is no work tree of git's; run this in a clone of a watched repository, or name"
                " one with --clone"
            )
        clone.path = Path(os.fsdecode(top).removesuffix("\n"))
        head = clone._try("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if head is None:
            raise CloneError(f"{clone.path}: has no commit yet; check out a branch with the sources")
        clone.head = head.decode().strip()
        changed = clone._git("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames")
        names = [os.fsdecode(entry[3:]) for entry in changed.split(b"\0") if entry]
        if names:
            raise CloneError(
                f"{clone.path}: has changes that are not committed ({listed(names, _MOST_NAMED)}); commit"
                " them, or put them aside with `git stash`, and run the same command again"
            )
        remotes = os.fsdecode(clone._git("remote", "--verbose")).splitlines()
        clone.urls = tuple(
            dict.fromkeys(line.partition("\t")[2].rpartition(" ")[0] for line in remotes if "\t" in line)
        )
        return clone

    def repository(self, watched: Mapping[str, str]) -> str:
        """Return the clone's watched repository, by a remote's address or by its own path.

        Args:
            watched: each repository's key and its URL.

        Raises:
            CloneError: it is a clone of none, or of several.
        """
        keys = {key for url in (*self.urls, str(self.path)) if (key := self._key(url)) is not None}
        result = sorted(
            repository for repository, url in watched.items() if not keys.isdisjoint((repository, _key(url)))
        )
        if len(result) == 1:
            return result[0]
        remotes = ", ".join(self.urls) or "none"
        if result:
            raise CloneError(
                f"{self.path}: has remotes of several watched repositories ({', '.join(result)}); use a clone with"
                " one of them"
            )
        raise CloneError(
            f"{self.path}: is no clone of a watched repository (its remotes: {remotes}; watched:"
            f" {', '.join(sorted(watched)) or 'none'}); in a clone of a fork, name the watched one:"
            " `git remote add upstream URL`"
        )

    def check_branch(self, name: str) -> None:
        """Refuse a branch that cannot be made.

        Raises:
            CloneError: git takes no such name, or it is there.
        """
        if not is_branch_name(name) or name.startswith("-"):
            raise CloneError(f"{name!r}: is no name for a branch; write letters, digits, - and /")
        if self._try("show-ref", "--verify", "--quiet", f"refs/heads/{name}") is not None:
            raise CloneError(
                f"{self.path}: has a branch {name} already; name another with --branch, or delete it"
                f" (`git branch -D {name}`)"
            )

    def fitting(self, rows: Iterable[ProofRow]) -> tuple[list[Change], list[LeftOut]]:
        """Return the proofs that fit HEAD, by file and place, and the others with the reasons.

        Of several proofs for one place the first one is taken; the others of the same sorry are not reported.
        """
        changes: list[Change] = []
        left: list[LeftOut] = []
        for row in rows:
            try:
                replacement = self._place(row)
            except StaleError as error:
                left.append(LeftOut(row, str(error), error.there))
                continue
            clash = next((at for at, one in enumerate(changes) if _overlap(one, row, replacement)), None)
            if clash is None:
                changes.append(Change(row, replacement))
                continue
            taken = changes[clash]
            if taken.replacement == replacement:
                changes[clash] = Change(taken.row, replacement, (*taken.others, row))
            elif taken.row.sorry != row.sorry:
                left.append(LeftOut(row, f"proof {taken.row.proof} changes the same lines"))
        sorries = {row.sorry for change in changes for row in (change.row, *change.others)}
        changes.sort(key=lambda one: (one.row.path, one.replacement.byte_start))
        return changes, [one for one in left if one.row.sorry not in sorries]

    def apply(
        self, changes: Sequence[Change], messages: Mapping[str, str], *, author: str, branch: str | None
    ) -> list[Applied]:
        """Make a commit for each and bring the work tree there: on a new branch, else on the current one.

        Args:
            changes: the result of `fitting`.
            messages: each proof's evidence.
            author: of the commits; the committer is the user of the clone.
            branch: to make, None for none.

        Raises:
            CloneError: git refused; the work tree and the branches are unchanged.
        """
        applied: list[Applied] = []
        parent = self.head
        with tempfile.TemporaryDirectory(prefix="everlean-") as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            self._git("read-tree", self.head, env=index)
            texts: dict[str, tuple[bytes, int]] = {}
            for change in changes:
                row, file = change.row, self._file(change.row.path)
                assert file is not None
                data, shift = texts.get(row.path, (file.data, 0))
                there = change.replacement
                moved = Replacement(there.byte_start + shift, there.byte_end + shift, there.text)
                after = splice(data, moved)
                texts[row.path] = after, shift + len(after) - len(data)
                blob = self._git("hash-object", "-w", "--stdin", stdin=after).decode().strip()
                entry = f"{file.mode} {blob}\t".encode() + os.fsencode(row.path) + b"\0"
                self._git("update-index", "-z", "--index-info", stdin=entry, env=index)
                tree = self._git("write-tree", env=index).decode().strip()
                parent = self._commit(row, tree, parent, messages[row.proof], author=author)
                applied.append(Applied(row, parent, change.others))
        if branch is not None:
            self._git("switch", "--quiet", "--create", branch, parent)
        else:
            self._git("merge", "--quiet", "--ff-only", parent)
        return applied

    # ---- does a proof fit, and where

    def _place(self, row: ProofRow) -> Replacement:
        """Return a proof's replacement at HEAD.

        Raises:
            StaleError: it does not fit.
        """
        file = self._file(row.path)
        if file is None:
            raise StaleError(f"{row.path} is no file at HEAD")
        length = row.byte_end - row.byte_start
        if git_blob(file.data, like=row.checked_blob) == row.checked_blob:
            start = row.checked_start
        else:
            start = self._start(row, file.data)
        replacement = Replacement(start, start + length, row.replacement)
        after = scan_source(splice(file.data, replacement), path=row.path)
        if not any(_is_it(one, row) for one in after.declarations):
            raise StaleError(f"with its text {row.declaration} is not the declaration that was checked")
        return replacement

    def _start(self, row: ProofRow, now: bytes) -> int:
        """Return the sorry's first byte in another version of its file than the checked one."""
        source = parse(now, path=row.path)
        if any(_is_it(one, row) for one in source.scanned.declarations):
            raise StaleError("it is there already", there=True)
        since = f"{row.path} changed since {row.checked_sha[:12]}, where it was checked"
        here = [one for one in source.scanned.declarations if one.name == row.declaration]
        if not here:
            raise StaleError(f"{since}: {row.declaration} is not in it any more")
        checked = self._try("cat-file", "blob", row.checked_blob)
        if checked is None:
            raise StaleError(f"{since}, and the clone does not have that version")
        before = parse(checked, path=row.path)
        was = before.command_at(row.checked_start)
        if was is None:
            raise StaleError(f"{since}, in a way that cannot be told")
        # The whole command: `open Int in` stands before the scanner's declaration.
        commands = [result for one in here if (result := source.command_at(one.byte_start)) is not None]
        same = [one for one in commands if _text(now, one) == _text(checked, was)]
        if not same:
            raise StaleError(f"{since}: {row.declaration} reads otherwise")
        in_force = (before.scanned.imports, before.preamble_at(was.byte_start))
        for one in same:
            if (source.scanned.imports, source.preamble_at(one.byte_start)) == in_force:
                return one.byte_start + row.checked_start - was.byte_start
        raise StaleError(f"{since}: what is imported, open or a variable at {row.declaration} is another")

    def _file(self, path: str) -> _File | None:
        if path not in self._files:
            listed = self._git("ls-tree", "-z", self.head, "--", path)
            mode, _, rest = listed.partition(b"\t")[0].decode().partition(" ")
            self._files[path] = None
            if mode in _FILES:
                self._files[path] = _File(mode, self._git("cat-file", "blob", rest.split(" ")[1]))
        return self._files[path]

    # ---- git

    def _key(self, url: str) -> str | None:
        """Return a remote's key; a path of it is relative to the clone."""
        is_path = "://" not in url and not url.startswith(("/", "~")) and (self.path / url).exists()
        return _key(str((self.path / url).resolve()) if is_path else url)

    def _commit(self, row: ProofRow, tree: str, parent: str, evidence: str, *, author: str) -> str:
        named = AUTHOR.fullmatch(author)
        assert named is not None, author
        if self.head != row.checked_sha:
            evidence += f"Applied to: {self.head}, where no Lean has checked it\n"
        env = {"GIT_AUTHOR_NAME": named[1], "GIT_AUTHOR_EMAIL": named[2]}
        message = f"{title_of(row)}\n\n{evidence}".encode()
        return self._git("commit-tree", tree, "-p", parent, stdin=message, env=env).decode().strip()

    def _try(self, *arguments: str) -> bytes | None:
        with suppress(CloneError):
            return self._git(*arguments)
        return None

    def _git(self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
        """Run the user's git, with the user's configuration; `stdin` is its input."""
        kept = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
        try:
            result = subprocess.run(
                ["git", *arguments],
                cwd=self.path,
                env={**kept, "LC_ALL": "C", "GIT_LITERAL_PATHSPECS": "1", **(env or {})},
                input=stdin,
                capture_output=True,
                check=False,
                timeout=_TIMEOUT_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CloneError(
                f"{self.path}: git {arguments[0]} could not be run ({error}); install git, check the folder, and"
                " run the same command again"
            ) from error
        if result.returncode:
            text = " ".join(result.stderr.decode(errors="replace").split())
            raise CloneError(
                f"{self.path}: git {arguments[0]} refused: {text or f'exit status {result.returncode}'}; nothing was"
                " changed: mend that and run the same command again"
            )
        return result.stdout


@dataclass(frozen=True, slots=True)
class AppliedProof(ProofRow):
    commit: str
    others: list[str]
    """proofs with the same text"""
    SHOWN: ClassVar = ("proof", "state", "sorry", "declaration", "path", "commit", "checked_sha", "others")


@dataclass(frozen=True, slots=True)
class ProofLeftOut(ProofRow):
    reason: str
    there: bool
    SHOWN: ClassVar = ("proof", "sorry", "declaration", "path", "reason")


@dataclass(frozen=True, slots=True)
class AppliedProofs:
    repository: str
    clone: Path
    """its folder"""
    branch: str | None
    """the new branch, or null"""
    head: str
    """the clone's commit before"""
    applied: list[AppliedProof]
    """one commit each"""
    left_out: list[ProofLeftOut]
    """with `--verified`"""


def apply_proofs(
    view: sqlite3.Connection,
    instance: Instance,
    folder: Path,
    *,
    prefixes: Sequence[str],
    candidate: bool,
    branch: str | None,
) -> AppliedProofs:
    """Put proofs into the clone around a folder: the named ones, or every fitting verified one.

    Args:
        prefixes: their ids, or beginnings of ids; none: every verified one of the clone's repository.
        candidate: take named unverified ones, too.
        branch: to make, None for none.

    Raises:
        CloneError: the clone does not take them, or there are none; it is unchanged.
    """
    clone = LocalClone.open(folder)
    if branch is not None:
        clone.check_branch(branch)
    key = clone.repository({row.repository: row.url for row in queries.repositories(view)})
    if prefixes:
        rows = [*_choose(view, prefixes, key, candidate=candidate)]
    else:
        rows = _best_first(queries.proofs(view, state="verified", repository=key))
    changes, left = clone.fitting(rows)
    if prefixes and left:
        reasons = (f"proof {one.row.proof} of {clean(one.row.declaration)}: {one.reason}" for one in left)
        raise CloneError(
            "; ".join(reasons)
            + "; nothing was changed: leave it out, or run the command again when the daemon has checked a proof"
            " on the newest commit"
        )
    if not rows:
        raise CloneError(
            f"{key}: no proof is verified yet; `everlean proofs` lists candidates, which --candidate takes by id"
        )
    if not changes:
        nothing = (
            f"{clone.path}: no verified proof of {key} is new there"
            f" ({counted(len(rows), 'verified proof')}, {sum(one.there for one in left)} of them there already);"
            " `everlean proofs --all` says more"
        )
        reasons = (
            f"left out: proof {one.row.proof} of {one.row.declaration}: {one.reason}"
            for one in left
            if not one.there
        )
        raise CloneError("\n".join([nothing, *reasons]))
    taken = [row for change in changes for row in (change.row, *change.others)]
    with LogReader.open(instance.paths.events_db) as log:
        evidence = messages_of(taken, log)
    result = clone.apply(changes, evidence, author=author_from_config(instance.config), branch=branch)
    return AppliedProofs(
        key,
        clone.path,
        branch,
        clone.head,
        [
            of_row(AppliedProof, one.row, commit=one.commit, others=[row.proof for row in one.others])
            for one in result
        ],
        [of_row(ProofLeftOut, one.row, reason=one.reason, there=one.there) for one in left],
    )


def _choose(
    view: sqlite3.Connection, prefixes: Iterable[str], repository: str, *, candidate: bool
) -> Iterator[ProofRow]:
    """Yield the named proofs, each once; refuse one that a clone of this repository does not take."""
    seen = set()
    for prefix in prefixes:
        row = proof_named(view, prefix)
        _check_named(row, repository, candidate=candidate)
        if row.proof not in seen:
            seen.add(row.proof)
            yield row


def _check_named(row: ProofRow, repository: str, *, candidate: bool) -> None:
    """Refuse a proof that a clone of this repository does not take.

    Args:
        candidate: take unverified ones, too.

    Raises:
        CloneError: it is of another repository, or must not be applied.
    """
    if row.repository != repository:
        raise CloneError(
            f"proof {row.proof}: is of {row.repository}, and the clone is one of {repository}; name the other"
            " clone with --clone"
        )
    if row.patch_sha256 is None:
        raise CloneError(
            f"proof {row.proof}: is {row.state} and has no patch; `everlean proofs show {row.proof}` says why"
        )
    if row.state != "verified" and not candidate:
        raise CloneError(
            f"proof {row.proof}: is a {row.state}, and not verified; add --candidate to apply it all the same"
        )


def _best_first(rows: Collection[ProofRow]) -> list[ProofRow]:
    """Return proofs with the one checked last first, for each sorry."""
    return sorted(rows, key=lambda row: (row.checked_at or row.found_at, row.proof), reverse=True)


def _key(url: str) -> str | None:
    try:
        return repository_key(url)
    except ValueError:
        return None


def _is_it(one: Declaration, row: ProofRow) -> bool:
    return (one.name, one.text_hash) == (row.declaration, row.declaration_text_hash)


def _text(data: bytes, one: Command) -> bytes:
    return data[one.byte_start : one.byte_end]


def _overlap(one: Change, row: ProofRow, other: Replacement) -> bool:
    mine = one.replacement
    return one.row.path == row.path and mine.byte_start < other.byte_end and other.byte_start < mine.byte_end
