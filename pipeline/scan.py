"""The scan job: `python -m pipeline.scan --spec spec.json`.

Reads a commit's Lean files out of the bare mirror, as far as they differ from the previously scanned commit, and
asks for one batch of events: file_scanned, file_removed, the steps of the sorrys' lives, commit_scanned. It needs
no Lean, no worktree and no network. Parameters:

    mirror      the bare repository
    repository, branch, sha
    base        the previously scanned commit of the branch; null reads every file
    include, exclude
                path patterns (`pipeline.globs`)
    files       the branch's files as they are known now: [path, blob] (optional). Given where `base` cannot be
                compared with: it was scanned with other patterns, or the mirror has lost it
    sorries     the sorrys now in the branch's source: {"sorry": id, …the fields of SorryPlace}
    closed      ids of the branch's sorrys that were filled or removed (optional): one that comes back is reopened
    proofs      our proofs of those sorrys: {"proof", "sorry", "declaration", "declaration_text_hash"}

Each file's scan is staged as soon as it is read; in memory stay only names and hashes. With a null `base` files that
went while nobody looked are known only by their sorrys, so only those have a file_removed.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.gitread import Mirror, TreeFile
from pipeline.globs import path_filter
from pipeline.lean.scanner import scan_source
from pipeline.protocol import JobError, JobSpec, Recorded, Reporter, run_job
from store.events import CommitScanned, FileRemoved, FileScanned, SorryEvent, SorryPlace
from store.scanned import ScannedFile
from store.sorrylife import (
    Commit,
    Decl,
    GivenProof,
    LivingSorry,
    declarations_before,
    declarations_now,
    live,
)

MOST_BYTES = 16 * 1024 * 1024
"""A larger file is reported and not read: no source that people write is so long."""
_PROGRESS_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Parameters:
    """The job's parameters, checked."""

    mirror: Path
    commit: Commit
    base: str | None
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    living: tuple[LivingSorry, ...]
    closed: frozenset[str]
    proofs: tuple[GivenProof, ...]
    files: dict[str, str] | None

    @classmethod
    def read(cls, raw: dict[str, Any]) -> Parameters:
        return cls(
            mirror=Path(raw["mirror"]),
            commit=Commit(repository=raw["repository"], branch=raw["branch"], sha=raw["sha"]),
            base=raw["base"],
            include=tuple(raw["include"]),
            exclude=tuple(raw["exclude"]),
            living=tuple(_living(item) for item in raw["sorries"]),
            closed=frozenset(raw.get("closed", ())),
            proofs=tuple(
                GivenProof(item["proof"], item["sorry"], item["declaration_text_hash"])
                for item in raw["proofs"]
            ),
            files=dict(raw["files"]) if raw.get("files") is not None else None,
        )


def _living(raw: dict[str, Any]) -> LivingSorry:
    place = {name: raw[name] for name in SorryPlace.model_fields}
    return LivingSorry(sorry=raw["sorry"], place=SorryPlace(**place))


@dataclass(slots=True)
class _Work:
    """What is to be read and what is gone."""

    present: list[TreeFile] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


def scan_commit(spec: JobSpec, reporter: Reporter) -> dict[str, Any]:
    """Scan one commit of a branch out of its bare mirror."""
    started = time.monotonic()
    parameters = Parameters.read(spec.parameters)
    with Mirror(parameters.mirror) as mirror:
        mirror.require_commit(parameters.commit.sha, reason="commit_missing")
        if parameters.base is not None and parameters.files is None:
            mirror.require_commit(parameters.base, reason="base_missing")
        work = _work(mirror, parameters)
        batch: list[Recorded] = []
        now: list[Decl] = []
        counts: Counter[str] = Counter()
        for item, scan in _scans(mirror, work.present, reporter):
            batch.append(_file_event(parameters.commit, item, scan, reporter))
            counts.update(
                files_failed=scan.error is not None,
                declarations=len(scan.declarations),
                sorries=len(scan.sorries),
            )
            now.extend(_kept(scan, item, parameters))
        affected = {item.path for item in work.present} | set(work.gone)
        changed = [item for item in parameters.living if item.place.path in affected]
        before = declarations_before(changed, _earlier(mirror, changed))
    batch += (_removed_event(parameters.commit, path) for path in work.gone)
    steps = live(
        parameters.commit,
        before=before,
        now=now,
        proofs=parameters.proofs,
        elsewhere={item.sorry for item in parameters.living if item.place.path not in affected},
        closed=parameters.closed,
    )
    batch += (_sorry_event(parameters.commit, step) for step in steps)
    seconds = round(time.monotonic() - started, 3)
    batch.append(_commit_event(parameters, work, failed=counts["files_failed"], seconds=seconds))
    reporter.events(batch)
    lives = Counter(step.type.removeprefix("sorry_") for step in steps)
    return {
        "files_scanned": len(work.present),
        "files_removed": len(work.gone),
        "files_failed": counts["files_failed"],
        "declarations": counts["declarations"],
        "sorries": counts["sorries"],
        **{step: lives[step] for step in ("opened", "moved", "changed", "filled", "removed")},
        "seconds": seconds,
    }


def _work(mirror: Mirror, parameters: Parameters) -> _Work:
    """The files to read and those that are gone, in the order of their paths."""
    try:
        meant = path_filter(parameters.include, parameters.exclude)
    except ValueError as error:
        raise JobError(
            "bad_pattern", str(error), remedy="correct include/exclude in config.toml", deterministic=True
        ) from error
    sha, base = parameters.commit.sha, parameters.base
    lived_in = {item.place.path for item in parameters.living}
    if parameters.files is not None:
        stand = {item.path: item for item in mirror.files(sha) if meant(item.path)}
        present = [item for item in stand.values() if parameters.files.get(item.path) != item.blob]
        gone = (set(parameters.files) | lived_in) - set(stand)
    elif base is None:
        present = [item for item in mirror.files(sha) if meant(item.path)]
        gone = lived_in - {item.path for item in present}
    else:
        changes = mirror.changes(base, sha)
        present = [item for item in changes.present if meant(item.path)]
        gone = {path for path in changes.gone if meant(path)}
        gone |= {path for path in lived_in if not meant(path)}  # the patterns changed
    return _Work(sorted(present, key=lambda item: item.path), sorted(gone))


def _scans(
    mirror: Mirror, files: Sequence[TreeFile], reporter: Reporter
) -> Iterator[tuple[TreeFile, ScannedFile]]:
    said = -_PROGRESS_EVERY_S
    for done, item in enumerate(files):
        if time.monotonic() - said >= _PROGRESS_EVERY_S:
            said = time.monotonic()
            reporter.progress(done, len(files), item.path)
        yield item, _scan(mirror, item)
    reporter.progress(len(files), len(files))


def _scan(mirror: Mirror, item: TreeFile) -> ScannedFile:
    if not item.readable:
        return _unread(item, "the file's name is not valid UTF-8; not scanned")
    data = mirror.read(item.blob, most_bytes=MOST_BYTES)
    if isinstance(data, int):
        return _unread(item, f"{data} bytes, more than {MOST_BYTES}; not scanned")
    return scan_source(data, path=item.path)


def _unread(item: TreeFile, reason: str) -> ScannedFile:
    return ScannedFile(path=item.path, error=reason, imports=(), declarations=(), sorries=())


def _earlier(mirror: Mirror, living: Sequence[LivingSorry]) -> dict[tuple[str, str], ScannedFile]:
    """The files of these sorrys as they were, where the mirror still has them."""
    scans: dict[tuple[str, str], ScannedFile] = {}
    for path, blob in sorted({(item.place.path, item.place.blob) for item in living}):
        try:
            data = mirror.read(blob, most_bytes=MOST_BYTES)
        except JobError as error:
            if error.reason != "object_missing":
                raise
            continue  # force-pushed away and collected: the places alone say what there was
        if isinstance(data, bytes):
            scans[path, blob] = scan_source(data, path=path)
    return scans


def _kept(scan: ScannedFile, item: TreeFile, parameters: Parameters) -> list[Decl]:
    """What matching needs; where nothing lived before, only the declarations with a sorry."""
    declarations = declarations_now(scan, path=item.path, blob=item.blob)
    return declarations if parameters.living else [item for item in declarations if item.places]


def _file_event(commit: Commit, item: TreeFile, scan: ScannedFile, reporter: Reporter) -> Recorded:
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
        scan=reporter.stage(payload),
    )
    return _recorded(commit, body, item.path)


def _removed_event(commit: Commit, path: str) -> Recorded:
    body = FileRemoved(repository=commit.repository, branch=commit.branch, sha=commit.sha, path=path)
    return _recorded(commit, body, path)


def _sorry_event(commit: Commit, step: SorryEvent) -> Recorded:
    return _recorded(commit, step, step.sorry)


def _commit_event(parameters: Parameters, work: _Work, *, failed: int, seconds: float) -> Recorded:
    commit = parameters.commit
    body = CommitScanned(
        repository=commit.repository,
        branch=commit.branch,
        sha=commit.sha,
        base=parameters.base,
        include=parameters.include,
        exclude=parameters.exclude,
        files_scanned=len(work.present),
        files_removed=len(work.gone),
        files_failed=failed,
        seconds=seconds,
    )
    return _recorded(commit, body)


def _recorded(
    commit: Commit, body: FileScanned | FileRemoved | SorryEvent | CommitScanned, *key: str
) -> Recorded:
    return Recorded(
        stream=f"repository:{commit.repository}",
        body=body,
        natural_key=(commit.repository, commit.branch, commit.sha, *key),
    )


def main() -> int:
    """Run the job that `--spec` names."""
    return run_job(scan_commit)


if __name__ == "__main__":
    sys.exit(main())
