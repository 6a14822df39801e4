"""The scan job: `python -m pipeline.scan --spec spec.json`.

Reads a commit's Lean files out of the bare mirror, as far as they differ from the previously scanned commit, and
asks for one batch of events: file_scanned, file_removed, the steps of the sorries' lives, theorems_followed,
commit_scanned. It needs no Lean, no worktree and no network. Its specification is `ScanSpec`.

Each file's scan is staged as soon as it is read; in memory stay only names and hashes, and of a first scan only
sorries. The earlier version of a changed file is read from the mirror too, so that old declarations are not new.
With a null `base` files that went while no one looked are known only by their sorries, so only those have a
file_removed.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.jobs.mirror import Mirror, TreeFile
from pipeline.jobs.protocol import JobError, JobSpec, Recorded, Reporter, bad_spec, run_job
from pipeline.jobs.specs import ScanSpec
from pipeline.lean.source.globs import path_filter
from pipeline.lean.source.scanner import read_file
from pipeline.lean.source.worktree import MOST_SOURCE_BYTES
from store.domain.life import Commit, TheoremStep, counted, follow, live
from store.domain.matching import (
    Decl,
    LivingSorry,
    compare,
    declarations_guessed,
    declarations_known,
    declarations_now,
    same_file,
)
from store.domain.records import THEOREM_KINDS, ReadFile, ScannedFile
from store.events.scans import (
    CommitScanned,
    FileRemoved,
    FileScanned,
    SorryEvent,
    TheoremsFollowed,
)

MOST_BYTES = MOST_SOURCE_BYTES
"""A larger file is reported and not read."""
MOST_TOOLCHAIN_BYTES = 1024
_PROGRESS_EVERY_S = 0.5


def _first(given: ScanSpec) -> bool:
    """Return whether this is the branch's first scan."""
    return given.base is None and given.known.files is None


@dataclass(slots=True)
class _Work:
    """The files to read and the removed ones; `earlier` are the former blobs of these files, by path.

    `toolchain` and `manifest` are as in `commit_scanned`.
    """

    toolchain: str
    manifest: str
    present: list[TreeFile] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    earlier: dict[str, str] = field(default_factory=dict)


def scan_commit(spec: JobSpec[ScanSpec], reporter: Reporter) -> dict[str, Any]:
    """Scan one commit of a branch out of its bare mirror."""
    started = time.monotonic()
    given = spec.parameters
    commit = Commit(repository=given.repository, branch=given.branch, sha=given.sha)
    if spec.mirror is None:
        raise bad_spec(spec.kind, "mirror: there is none")
    with Mirror(spec.mirror) as mirror:
        mirror.require_commit(commit.sha, reason="commit_missing")
        if given.base is not None and given.known.files is None:
            mirror.require_commit(given.base, reason="base_missing")
        work = _work(mirror, given)
        progress = _Progress(reporter, total=len(work.present) + len(work.gone))
        earlier = _Earlier(mirror, given, work)
        batch: list[Recorded] = []
        before: list[Decl] = []
        now: list[Decl] = []
        counts: Counter[str] = Counter()
        for item in work.present:
            progress.at(item.path)
            read = _read(mirror, item)
            scan = read.scan
            batch.append(_file_event(commit, item, read, reporter))
            counts.update(
                files_failed=scan.error is not None,
                declarations=len(scan.declarations),
                sorries=len(scan.sorries),
                theorems=sum(declaration.kind in THEOREM_KINDS for declaration in scan.declarations),
            )
            was, stands = earlier.declarations(item.path), _kept(read, item, given)
            if not same_file(was, stands):
                before += was
                now += stands
        for path in work.gone:
            progress.at(path)
            before += earlier.declarations(path)
        progress.end()
    batch += (_removed_event(commit, path) for path in work.gone)
    affected = {item.path for item in work.present} | set(work.gone)
    compared = compare(sorted(before, key=lambda old: old.path), now)
    steps = live(
        commit,
        compared,
        proofs=given.known.proofs,
        elsewhere={item.sorry for item in given.known.sorries if item.place.path not in affected},
        closed=given.known.closed,
    )
    batch += (_sorry_event(commit, step) for step in steps)
    if _first(given):
        followed: list[TheoremStep] = []
        became = {"appeared": counts["theorems"]} if counts["theorems"] else {}
    else:
        followed = follow(compared, unread=earlier.unread)
        became = counted(followed)
    if became or earlier.unread:
        batch.append(_theorems_event(given, followed, became, earlier.unread, reporter))
    seconds = round(time.monotonic() - started, 3)
    batch.append(_commit_event(given, work, failed=counts["files_failed"], seconds=seconds))
    reporter.events(batch)
    lives = Counter(step.type.removeprefix("sorry_") for step in steps)
    return {
        "files_scanned": len(work.present),
        "files_removed": len(work.gone),
        "files_failed": counts["files_failed"],
        "declarations": counts["declarations"],
        "sorries": counts["sorries"],
        **{step: lives[step] for step in ("opened", "moved", "changed", "filled", "removed")},
        "theorems": became,
        "seconds": seconds,
    }


def _work(mirror: Mirror, given: ScanSpec) -> _Work:
    """The files to read and those that are gone, in the order of their paths."""
    try:
        meant = path_filter(given.include, given.exclude)
    except ValueError as error:
        raise JobError(
            "bad_pattern", str(error), remedy="correct include/exclude in config.toml", deterministic=True
        ) from error
    sha, base = given.sha, given.base
    lived_in = {item.place.path for item in given.known.sorries}
    before: dict[str, str] = {}
    if given.known.files is not None:
        stand = {item.path: item for item in mirror.files(sha) if meant(item.path)}
        present = [item for item in stand.values() if given.known.files.get(item.path) != item.blob]
        gone = (set(given.known.files) | lived_in) - set(stand)
        before = given.known.files
    elif base is None:
        present = [item for item in mirror.files(sha) if meant(item.path)]
        gone = lived_in - {item.path for item in present}
    else:
        changes = mirror.changes(base, sha)
        present = [item for item in changes.present if meant(item.path)]
        gone = {path for path in changes.gone if meant(path)}
        gone |= {path for path in lived_in if not meant(path)}  # the patterns changed
        before = {item.path: item.blob for item in changes.before if item.readable and meant(item.path)}
    affected = {item.path for item in present if item.readable} | gone
    # What the sorries say goes before all: it is the version that they were recorded in.
    before = before | {item.place.path: item.place.blob for item in given.known.sorries}
    earlier = {path: blob for path, blob in sorted(before.items()) if path in affected}
    manifest = mirror.at_root(sha, "lake-manifest.json")
    return _Work(
        toolchain=_toolchain(mirror, sha),
        manifest="" if manifest is None else manifest.blob,
        present=sorted(present, key=lambda item: item.path),
        gone=sorted(gone),
        earlier=earlier,
    )


def _toolchain(mirror: Mirror, sha: str) -> str:
    """The text of the commit's `lean-toolchain`; a file that is not one line of text names no toolchain."""
    file = mirror.at_root(sha, "lean-toolchain")
    data = b"" if file is None else mirror.read(file.blob, most_bytes=MOST_TOOLCHAIN_BYTES)
    text = "" if isinstance(data, int) else data.decode("utf-8", "replace").strip()
    return text if text.isprintable() else ""


class _Progress:
    """Says which file is being read, not more often than a person can look."""

    def __init__(self, reporter: Reporter, *, total: int) -> None:
        self._reporter = reporter
        self._done, self._total = 0, total
        self._said = -_PROGRESS_EVERY_S

    def at(self, path: str) -> None:
        """Report what is read next."""
        if time.monotonic() - self._said >= _PROGRESS_EVERY_S:
            self._said = time.monotonic()
            self._reporter.progress(self._done, self._total, path)
        self._done += 1

    def end(self) -> None:
        """Report that all is read."""
        self._reporter.progress(self._total, self._total)


def _read(mirror: Mirror, item: TreeFile) -> ReadFile:
    if not item.readable:
        return _unread(item, f"{item.problem}; not scanned")
    data = mirror.read(item.blob, most_bytes=MOST_BYTES)
    if isinstance(data, int):
        return _unread(item, f"{data} bytes, more than {MOST_BYTES}; not scanned")
    return read_file(data, path=item.path)


def _unread(item: TreeFile, reason: str) -> ReadFile:
    return ReadFile(ScannedFile(item.path, error=reason, imports=(), declarations=(), sorries=()), ())


class _Earlier:
    """The declarations of the changed files; `unread` are the files that cannot be read any more as they were."""

    def __init__(self, mirror: Mirror, given: ScanSpec, work: _Work) -> None:
        self._mirror = mirror
        self._blobs = work.earlier
        self._living: dict[str, list[LivingSorry]] = defaultdict(list)
        for item in given.known.sorries:
            self._living[item.place.path].append(item)
        self.unread: list[str] = []

    def declarations(self, path: str) -> list[Decl]:
        """The declarations of a file as they were; of one that can not be read, what its sorries say."""
        if path not in self._blobs:
            return []
        living = self._living[path]
        read = self._read(TreeFile(path, self._blobs[path]))
        known = declarations_known(living, read, path=path) if read else None
        if known is None:
            self.unread.append(path)
            return declarations_guessed(living, path=path)
        return known

    def _read(self, item: TreeFile) -> ReadFile | None:
        try:
            return _read(self._mirror, item)
        except JobError as error:
            if error.reason != "object_missing":
                raise
            return None  # force-pushed away and collected


def _kept(read: ReadFile, item: TreeFile, given: ScanSpec) -> list[Decl]:
    """Return the declarations for matching; at a first scan, without matching, only those with a sorry."""
    declarations = declarations_now(read, path=item.path, blob=item.blob)
    if _first(given) and not given.known.sorries:
        return [item for item in declarations if item.places]
    return declarations


def _file_event(commit: Commit, item: TreeFile, read: ReadFile, reporter: Reporter) -> Recorded:
    scan = read.scan
    payload = json.dumps(scan.as_json(), ensure_ascii=False, separators=(",", ":")).encode()
    body = FileScanned(
        repository=commit.repository,
        branch=commit.branch,
        sha=commit.sha,
        path=item.path,
        blob=item.blob,
        error=scan.error,
        n_declarations=len(scan.declarations),
        n_sorries=len(scan.sorries),
        exercise_words=read.exercise_words,
        scan=reporter.stage(payload),
    )
    return _recorded(commit, body, item.path)


def _removed_event(commit: Commit, path: str) -> Recorded:
    body = FileRemoved(repository=commit.repository, branch=commit.branch, sha=commit.sha, path=path)
    return _recorded(commit, body, path)


def _sorry_event(commit: Commit, step: SorryEvent) -> Recorded:
    return _recorded(commit, step, step.sorry)


def _theorems_event(
    given: ScanSpec,
    steps: Sequence[TheoremStep],
    counts: dict[str, int],
    unread: Sequence[str],
    reporter: Reporter,
) -> Recorded:
    commit = Commit(repository=given.repository, branch=given.branch, sha=given.sha)
    payload = json.dumps(
        [step.as_json() for step in steps], ensure_ascii=False, separators=(",", ":")
    ).encode()
    body = TheoremsFollowed(
        repository=commit.repository,
        branch=commit.branch,
        sha=commit.sha,
        baseline=_first(given),
        unread=tuple(unread),
        counts=counts,
        steps=reporter.stage(payload),
    )
    return _recorded(commit, body)


def _commit_event(given: ScanSpec, work: _Work, *, failed: int, seconds: float) -> Recorded:
    commit = Commit(repository=given.repository, branch=given.branch, sha=given.sha)
    body = CommitScanned(
        repository=commit.repository,
        branch=commit.branch,
        sha=commit.sha,
        base=given.base,
        include=given.include,
        exclude=given.exclude,
        toolchain=work.toolchain,
        manifest=work.manifest,
        files_scanned=len(work.present),
        files_removed=len(work.gone),
        files_failed=failed,
        seconds=seconds,
    )
    return _recorded(commit, body)


def _recorded(
    commit: Commit,
    body: FileScanned | FileRemoved | SorryEvent | TheoremsFollowed | CommitScanned,
    *key: str,
) -> Recorded:
    return Recorded(
        stream=f"repository:{commit.repository}",
        body=body,
        natural_key=(commit.repository, commit.branch, commit.sha, *key),
    )


def main() -> int:
    """Run the job that `--spec` names."""
    return run_job(ScanSpec, scan_commit)


if __name__ == "__main__":
    sys.exit(main())
