"""A library of theorems for `benchmarks/store.py`, scanned and traced, in our form and LeanDojo-v2's.

Files of 25 theorems with 3 tactics each (if they have a tactic proof), from
`tests.support.traced_repository`: both databases hold the same theorems, premises and states. A later commit
restates and re-proves 50 theorems, ten in each of five files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.store_history import held
from store.domain.identity import short_hash, trace_id
from store.domain.life import TheoremAfter, TheoremBefore, TheoremStep
from store.domain.records import Declaration, ScannedFile, TracedFile, TracedTheorem
from store.events.base import BlobRef, EventBody
from store.events.projects import Project
from store.events.repositories import BranchCreated, CommitObserved, RepositoryWatched
from store.events.scans import CommitScanned, FileScanned, TheoremsFollowed
from store.events.traces import CommitTraced, FileTraced
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.view.rebuild import rebuild
from tests.support.events import digest, sha
from tests.support.traced_repository import make_traced_repository

REPOSITORY = "example.org/group/library"
URL = f"https://{REPOSITORY}"
STREAM = f"repository:{REPOSITORY}"
LINE = "branch:main"
LEAN = "v4.29.1"
THEOREMS_A_FILE = 25
TACTICS_A_THEOREM = 3
CHANGED_FILES = 5
CHANGED_A_FILE = 10
FILES_A_BATCH = 200


@dataclass(slots=True)
class Library:
    """The databases of one library in a folder, and the files for later commits to change."""

    folder: Path
    n_theorems: int
    n_files: int
    to_change: list[TracedFile] = field(default_factory=list)
    n_commits: int = 1

    @property
    def events_db(self) -> Path:
        return self.folder / "events.db"

    @property
    def database_db(self) -> Path:
        return self.folder / "database.db"

    @property
    def staging(self) -> Path:
        return self.folder / "staging"

    def next_commit(self) -> list[tuple[list[NewEvent], dict[str, Path]]]:
        """Return the batches of the next commit, its scan and its trace, with their payloads staged as jobs do."""
        before, after = sha(self.n_commits), sha(self.n_commits + 1)
        files = [(old, changed(old, self.n_commits)) for old in self.to_change]
        self.to_change = [new for _, new in files]
        self.n_commits += 1
        staged, traced = _Staged(self.staging), _Staged(self.staging)
        scan: list[EventBody] = [_observed(after, before)]
        scan += [_file_scanned(new, after, staged) for _, new in files]
        steps = [step for old, new in files for step in _steps(old, new)]
        payload = json.dumps([step.as_json() for step in steps]).encode()
        scan.append(
            TheoremsFollowed(
                repository=REPOSITORY,
                branch="main",
                sha=after,
                baseline=False,
                unread=(),
                counts={"restated": len(steps)},
                steps=staged.put(payload),
            )
        )
        scan.append(_commit_scanned(after, before, len(files)))
        trace: list[EventBody] = [_file_traced(new, after, traced) for _, new in files]
        trace.append(_commit_traced(after, n_files=self.n_files, n_theorems=self.n_theorems))
        return [
            ([NewEvent(STREAM, body) for body in batch], payloads.files)
            for batch, payloads in ((scan, staged), (trace, traced))
        ]


def files_of(n_theorems: int) -> Iterator[TracedFile]:
    """Yield the files of a library."""
    return make_traced_repository(0, n_theorems // THEOREMS_A_FILE, THEOREMS_A_FILE, TACTICS_A_THEOREM)


def changed(file: TracedFile, number: int) -> TracedFile:
    """Return the file of commit `number`, with its first theorems restated and proved anew."""
    theorems = list(file.theorems)
    for index, old in enumerate(theorems[:CHANGED_A_FILE]):
        steps = tuple(
            replace(step, state_before=f"k{number} : ℕ\n{step.state_before}") for step in old.tactics
        )
        theorems[index] = replace(old, statement=f"{old.statement} -- {number}", tactics=steps)
    return replace(file, theorems=tuple(theorems))


def make_library(folder: Path, n_theorems: int) -> Library:
    """Record the baseline of a library, scanned and traced, and build its view."""
    n_files = n_theorems // THEOREMS_A_FILE
    library = Library(folder, n_theorems, n_files)
    library.staging.mkdir(parents=True)
    commit = sha(1)
    # Spread over the second half, and not in the first files, the imports of the others.
    step = max(1, n_files // 2 // CHANGED_FILES)
    targets = set(range(n_files // 2, n_files, step)[:CHANGED_FILES])
    with EventLog.open(library.events_db) as log:
        _record(log, [_watched(), _created(commit), _observed(commit, None)], _Staged())
        files = files_of(n_theorems)
        number = 0
        while chunk := list(islice(files, FILES_A_BATCH)):
            staged = _Staged()
            _record(log, [_file_scanned(file, commit, staged) for file in chunk], staged)
            staged = _Staged()
            _record(log, [_file_traced(file, commit, staged) for file in chunk], staged)
            library.to_change += [file for index, file in enumerate(chunk, start=number) if index in targets]
            number += len(chunk)
        staged = _Staged()
        end = [
            TheoremsFollowed(
                repository=REPOSITORY,
                branch="main",
                sha=commit,
                baseline=True,
                unread=(),
                counts={"appeared": n_theorems},
                steps=staged.put(b"[]"),
            ),
            _commit_scanned(commit, None, n_files),
            _commit_traced(commit, n_files=n_files, n_theorems=n_theorems),
        ]
        _record(log, end, staged)
    rebuild(library.events_db, library.database_db)
    return library


def write_for_leandojo(n_theorems: int, target: Path) -> None:
    """Write the same theorems, premises and states as a dynamic_database.json."""
    proven: list[dict[str, Any]] = []
    unproved: list[dict[str, Any]] = []
    premise_files: list[dict[str, Any]] = []
    for file in files_of(n_theorems):
        for theorem in file.theorems:
            record = {"file_path": file.path, **theorem.as_json()}
            sorry = any("sorry" in step.tactic for step in theorem.tactics)
            (unproved if sorry else proven).append(record)
        premises = [premise.as_json() for premise in file.premises if premise.full_name is not None]
        premise_files.append({"path": file.path, "imports": list(file.imports), "premises": premises})
    record = {
        "url": URL,
        "name": "group/library",
        "commit": sha(1),
        "lean_version": LEAN,
        "lean_dojo_version": "4.20.0",
        "metadata": {"date_processed": "2026-01-01T00:00:00"},
        "proven_theorems": proven,
        "sorry_theorems_proved": [],
        "sorry_theorems_unproved": unproved,
        "premise_files": premise_files,
        "files_traced": [premise_file["path"] for premise_file in premise_files],
        "pr_url": None,
    }
    with target.open("w", encoding="utf-8") as output:
        json.dump({"repositories": [record]}, output)


class _Staged:
    """Payloads in a folder, as jobs leave them for the daemon; without a folder, in memory."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.files: dict[str, Path] = {}

    def put(self, payload: bytes) -> BlobRef:
        reference = digest(payload)
        if self.folder is None:
            self.files |= held(payload)
        else:
            self.files[reference.sha256] = self.folder / reference.sha256
            self.files[reference.sha256].write_bytes(payload)
        return reference


def _record(log: EventLog, bodies: Sequence[EventBody], staged: _Staged) -> None:
    events = [NewEvent(STREAM, body) for body in bodies]
    log.append(events, expect={STREAM: Expect.ANY}, blobs=staged.files)


def _watched() -> RepositoryWatched:
    return RepositoryWatched(
        projects=(),
        repository=REPOSITORY,
        url=URL,
        branches=(),
        include=("**/*.lean",),
        exclude=(),
        every_s=300.0,
        enabled=True,
        opt_out=False,
    )


def _created(commit: str) -> BranchCreated:
    return BranchCreated(repository=REPOSITORY, branch="main", tip=commit, is_default=True)


def _observed(commit: str, parent: str | None) -> CommitObserved:
    return CommitObserved(
        repository=REPOSITORY,
        branch="main",
        sha=commit,
        parents=() if parent is None else (parent,),
        author="Ada Lovelace",
        committed_at=datetime(2026, 1, 1, tzinfo=UTC),
        subject="feat: a step towards the theorem",
        baseline=parent is None,
    )


def _scan_of(file: TracedFile) -> ScannedFile:
    """Return the scanner's reading of a traced file; theorems only."""
    declarations = tuple(_declaration(theorem) for theorem in file.theorems)
    return ScannedFile(
        path=file.path, error=None, imports=file.imports, declarations=declarations, sorries=()
    )


def _declaration(theorem: TracedTheorem) -> Declaration:
    statement = theorem.statement or ""
    proof = "\n".join(step.tactic + step.state_before for step in theorem.tactics)
    return Declaration(
        name=theorem.full_name,
        kind="theorem",
        line=theorem.start[0],
        column=theorem.start[1] - 1,
        end_line=theorem.end[0],
        end_column=theorem.end[1] - 1,
        byte_start=40 * theorem.start[0],
        byte_end=40 * theorem.end[0],
        statement=statement,
        statement_hash=short_hash(statement),
        text_hash=short_hash(statement, proof),
    )


def _file_scanned(file: TracedFile, commit: str, staged: _Staged) -> FileScanned:
    scan = _scan_of(file)
    return FileScanned(
        repository=REPOSITORY,
        branch="main",
        sha=commit,
        path=file.path,
        blob=_blob(file),
        error=None,
        n_declarations=len(scan.declarations),
        n_sorries=0,
        exercise_words=0,
        declarations_taken=None,
        sorries_taken=None,
        marked=(),
        scan=staged.put(json.dumps(scan.as_json()).encode()),
    )


def _file_traced(file: TracedFile, commit: str, staged: _Staged) -> FileTraced:
    return FileTraced(
        repository=REPOSITORY,
        line=LINE,
        sha=commit,
        path=file.path,
        error=None,
        n_theorems=len(file.theorems),
        n_premises=len(file.premises),
        n_tactics=sum(len(theorem.tactics) for theorem in file.theorems),
        trace=staged.put(json.dumps(file.as_json(), ensure_ascii=False).encode()),
        key="",
    )


def _commit_scanned(commit: str, base: str | None, n_files: int) -> CommitScanned:
    return CommitScanned(
        repository=REPOSITORY,
        branch="main",
        sha=commit,
        base=base,
        include=("**/*.lean",),
        exclude=(),
        projects=(Project("", "", ""),),
        files_scanned=n_files,
        files_removed=0,
        files_failed=0,
        seconds=0.25,
        challenges=(),
    )


def _commit_traced(commit: str, *, n_files: int, n_theorems: int) -> CommitTraced:
    return CommitTraced(
        trace=trace_id(URL, commit, LEAN, "made-up", "1"),
        repository=REPOSITORY,
        line=LINE,
        sha=commit,
        url=URL,
        name="group/library",
        lean_version=LEAN,
        tracer="made-up",
        tracer_version="1",
        source="lean",
        metadata={"date_processed": "2026-01-01T00:00:00"},
        pr_url=None,
        files_traced=n_files,
        files_failed=0,
        n_theorems=n_theorems,
        n_premises=n_theorems + n_files,
        n_tactics=TACTICS_A_THEOREM * n_theorems,
        manifest=None,
        seconds=600.0,
    )


def _steps(old: TracedFile, new: TracedFile) -> Iterator[TheoremStep]:
    for before, after in zip(old.theorems, new.theorems, strict=True):
        if before == after:
            continue
        was, is_ = _declaration(before), _declaration(after)
        yield TheoremStep(
            steps=("restated",),
            before=TheoremBefore(was.name, was.kind, old.path, was.statement_hash, was.text_hash),
            after=TheoremAfter(
                is_.name, is_.kind, new.path, is_.statement, is_.statement_hash, is_.text_hash, n_sorries=0
            ),
        )


def _blob(file: TracedFile) -> str:
    return sha(file.path, *(theorem.statement for theorem in file.theorems[:CHANGED_A_FILE]))
