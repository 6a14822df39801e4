"""The scan job: `python -m pipeline.scan --spec spec.json`.

Reads a commit's Lean files from the bare mirror, as far as they differ from the last scanned commit, and emits events:
file_scanned, file_removed, the steps of the sorries' lives, theorems_followed, commit_scanned. It needs no Lean, no
worktree and no network. Its specification is `ScanSpec`.

A small scan goes in one batch, with other small commits; a large one goes in parts, after `scan_begun`, and counts once
commit_scanned closes it. The daemon's memory depends on a single part. The limits bound the recorded sorries, not the
compared ones: a followed sorry is recognised anywhere in its file.

Each file's scan is staged right after reading; memory keeps names and hashes alone, of a first scan only sorries. The
earlier version of a changed file is read from the mirror too, so that its declarations are not new. With a null `base`,
unobserved removals are known by their sorries alone, so only those files have a file_removed.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePosixPath
from types import TracebackType
from typing import Any

from pipeline.jobs.mirror import Mirror, TreeFile
from pipeline.jobs.protocol import JobError, JobSpec, Recorded, Reporter, bad_spec, run_job
from pipeline.jobs.specs import ScanKnown, ScanSpec
from pipeline.jobs.version import MOST_TEXT, SHORT_STATEMENT, beginning, content, shortened, unread
from pipeline.lean.source.attributes import MOST_BYTES as MOST_ATTRIBUTES_BYTES
from pipeline.lean.source.attributes import NAME as ATTRIBUTES
from pipeline.lean.source.attributes import Attributes
from pipeline.lean.source.globs import path_filter
from pipeline.lean.source.projects import NAMES
from pipeline.lean.source.scanner import read_file
from pipeline.meaning import Meanings
from pipeline.unchanged import Unchanged
from pipeline.versions import Version, version_of
from store.domain.keywords import THEOREM_KINDS
from store.domain.life import Commit, Lives, TheoremStep, counted, follow, live
from store.domain.matching import (
    Compared,
    Decl,
    LivingSorry,
    Outcome,
    compare,
    declarations_guessed,
    declarations_known,
    declarations_now,
    same_file,
)
from store.domain.records import ReadFile
from store.events.places import SorryPlace
from store.events.projects import Project
from store.events.scans import (
    CommitScanned,
    FileRemoved,
    FileScanned,
    ScanBegun,
    SorryChanged,
    SorryEvent,
    SorryMoved,
    SorryOpened,
    TheoremsFollowed,
)

MOST_SORRIES_LISTED = 100_000
MOST_STEPS = 5000
"""Steps of theorems in one event."""
MOST_EVENTS, MOST_PART_BYTES = 300, 1 << 20
"""A part ends at the first of these limits: events, or bytes with their payloads."""
BYTES_OF_EVENT = 1000
GOES_ON_S = 20.0
"""Seconds after which a job begins no other commit or branch: others wait for its place."""
GATHERS_S = 0.5
"""Seconds for which one commit's events wait for others, to be made durable together."""
_PROGRESS_EVERY_S = 0.5
_MOST_JUDGED = 2000
"""Versions of changed files searched for the meaning of statements."""


def _first(given: ScanSpec) -> bool:
    """Return whether this is the branch's first scan."""
    return given.base is None and given.known.files is None


@dataclass(slots=True)
class _Work:
    """The files to read and the removed ones; `earlier` are the former blobs of these files, by path.

    `projects` and `challenges` are as in `commit_scanned`.
    """

    projects: tuple[Project, ...]
    challenges: tuple[str, ...]
    present: list[TreeFile] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    earlier: dict[str, str] = field(default_factory=dict)


def scan_commit(spec: JobSpec[ScanSpec], reporter: Reporter) -> dict[str, Any]:
    """Scan one commit of a branch from its bare mirror, and its successors within `GOES_ON_S`."""
    started = time.monotonic()
    given = spec.parameters
    if spec.mirror is None:
        raise bad_spec(spec.kind, "mirror: there is none")
    with Mirror(spec.mirror) as mirror, _Outbox(reporter) as outbox:
        said, done = _scan(mirror, given, outbox)
        taken = {"sorries": done.lives.followed.total(), "declarations": done.added}
        commits, branches = 1, 1
        for branch in _with_room(given, **taken):
            if time.monotonic() - started > GOES_ON_S:
                break
            done.parts.again(branch)
            branches += 1
        given = _with_others(given, branches - 1, **taken)
        for sha in given.then:
            if time.monotonic() - started > GOES_ON_S:
                break
            given = _after(given, done, sha=sha)
            try:
                more, done = _scan(mirror, given, outbox)
            except JobError:
                break  # the next job begins with it, and reports why
            for name, number in more.items():
                said[name] = (
                    Counter(said[name]) + Counter(number)
                    if name == "theorems"
                    else said.get(name, 0) + number
                )
            commits += 1
    return {
        **said,
        **({"commits": commits} if commits > 1 else {}),
        **({"branches": branches} if branches > 1 else {}),
        "seconds": round(time.monotonic() - started, 3),
    }


@dataclass(frozen=True, slots=True)
class _Done:
    """State after a scan; `added` is the change in the branch's number of declarations."""

    lives: Lives
    parts: _Parts
    added: int
    projects: tuple[Project, ...]
    challenges: tuple[str, ...]


def _after(given: ScanSpec, done: _Done, *, sha: str) -> ScanSpec:
    """Return the specification for the next commit, after this scan."""
    living = {item.sorry: item for item in given.known.sorries}
    closed = set(given.known.closed)
    for event in done.lives.events:
        if isinstance(event, SorryOpened | SorryMoved | SorryChanged):
            living[event.sorry] = LivingSorry(event.sorry, event.place)
            closed.discard(event.sorry)
        else:
            del living[event.sorry]
            closed.add(event.sorry)
    known = ScanKnown(
        sorries=tuple(living.values()),
        closed=frozenset(closed),
        proofs=given.known.proofs,
        sorries_of_others=given.known.sorries_of_others,
        declarations=given.known.declarations + done.added,
        projects=done.projects,
        challenges=done.challenges,
    )
    return given.model_copy(update={"sha": sha, "base": given.sha, "known": known})


def _with_room(given: ScanSpec, *, sorries: int, declarations: int) -> Sequence[str]:
    """Return the branches at the same commit with room for as many sorries and declarations as the first.

    Each of the others gets a job of its own.
    """
    known, limits = given.known, given.limits
    most = len(given.alike)
    if sorries:
        most = min(most, (limits.sorries_of_repository - known.sorries_of_others) // sorries - 1)
    if declarations:
        most = min(most, (limits.declarations_of_repository - known.declarations) // declarations - 1)
    return given.alike[: max(0, most)]


def _with_others(given: ScanSpec, branches: int, *, sorries: int, declarations: int) -> ScanSpec:
    """Return the specification after as many more branches took as much."""
    counts = {
        "sorries_of_others": given.known.sorries_of_others + branches * sorries,
        "declarations": given.known.declarations + branches * declarations,
    }
    return given.model_copy(update={"known": given.known.model_copy(update=counts)})


class _Room:
    """The declarations that a scan may still take: of its files, and of the repository with those freed."""

    def __init__(self, given: ScanSpec) -> None:
        limits = given.limits
        self._of_file, self._of_commit = limits.declarations_per_file, limits.declarations
        self._of_repository = limits.declarations_of_repository - given.known.declarations
        self.added = 0

    def free(self, declarations: int) -> None:
        """Count the declarations of a file's earlier version as free."""
        self.added -= min(declarations, self._of_file)

    def take(self, declarations: int) -> int:
        """Return how many of a file's declarations to take."""
        taken = max(0, min(declarations, self._of_file, self._of_commit, self._of_repository - self.added))
        self._of_commit -= taken
        self.added += taken
        return taken


def _scan(mirror: Mirror, given: ScanSpec, outbox: _Outbox) -> tuple[dict[str, Any], _Done]:
    """Scan one commit; return its counts, and the state for the next scan."""
    started, reporter = time.monotonic(), outbox.reporter
    commit = Commit(repository=given.repository, branch=given.branch, sha=given.sha)
    mirror.require_commit(commit.sha, reason="commit_missing")
    if given.base is not None and given.known.files is None:
        mirror.require_commit(given.base, reason="base_missing")
    work = _work(mirror, given)
    progress = _Progress(reporter, total=len(work.present) + len(work.gone))
    earlier = _Earlier(mirror, given, work)
    attributes = Attributes(lambda path: mirror.text_at(given.sha, path, most_bytes=MOST_ATTRIBUTES_BYTES))
    files: list[FileScanned] = []
    cut: dict[str, int] = {}
    room = _Room(given)
    before: list[Decl] = []
    now: list[Decl] = []
    counts: Counter[str] = Counter()
    for path in work.gone:
        progress.at(path)
        was = earlier.declarations(path)
        room.free(len(was))
        before += was
    for item in work.present:
        progress.at(item.path)
        read = _read(mirror, item)
        if altered := attributes.altered(item.path):
            problems = "; ".join(filter(None, (read.scan.error, altered)))
            read = replace(read, scan=replace(read.scan, error=problems))
        scan = read.scan
        was, stands = earlier.declarations(item.path), _kept(read, item, given)
        room.free(len(was))
        taken = room.take(len(scan.declarations))
        if taken < len(scan.declarations):
            cut[item.path] = taken
        most = given.limits.sorries_per_file
        files.append(_file_event(commit, item, read, reporter, taken=taken, most_marked=most))
        counts.update(
            files_failed=scan.error is not None,
            declarations=len(scan.declarations),
            sorries=len(scan.sorries),
            theorems=sum(one.kind in THEOREM_KINDS for one in scan.declarations[:taken]),
        )
        if not same_file(was, stands):
            before += was
            now += stands
    progress.end()
    affected = {item.path for item in work.present} | set(work.gone)
    now = _in_few_words(given, now, affected=affected)
    compared = compare(sorted(before, key=lambda old: old.path), now)
    lives = live(
        commit,
        compared,
        judge=_Judge(mirror, given, work, compared, unread=earlier.unread),
        proofs=given.known.proofs,
        elsewhere={item.sorry for item in given.known.sorries if item.place.path not in affected},
        closed=given.known.closed,
        most=min(
            given.limits.sorries,
            given.limits.sorries_of_repository - given.known.sorries_of_others,
        ),
        most_of_file=given.limits.sorries_per_file,
    )
    parts = _Parts(outbox, commit, kept=[] if given.alike else None)
    for file in files:
        followed = lives.followed[file.path]
        if followed < file.n_sorries:
            file = file.model_copy(update={"sorries_taken": followed})
        parts.add(file, file.path, size=file.scan.size_bytes)
    for path in work.gone:
        parts.add(_removed(commit, path), path)
    for step in lives.events:
        parts.add(step, step.sorry)
    if _first(given):
        theorems: list[TheoremStep] = []
        became = {"appeared": counts["theorems"]} if counts["theorems"] else {}
    else:
        most = given.limits.declarations_per_file
        theorems = follow(
            compared, unread=earlier.unread, taken=lambda one: one.index < cut.get(one.path, most)
        )
        became = counted(theorems)
    if became or earlier.unread:
        _add_theorems(parts, given, theorems, became, earlier.unread, reporter)
    seconds = round(time.monotonic() - started, 3)
    parts.close(_commit_closed(given, work, failed=counts["files_failed"], seconds=seconds))
    steps = Counter(step.type.removeprefix("sorry_") for step in lives.events)
    not_taken = sum(file.n_sorries - lives.followed[file.path] for file in files)
    said = {
        "files_scanned": len(work.present),
        "files_removed": len(work.gone),
        "files_failed": counts["files_failed"],
        "declarations": counts["declarations"],
        "sorries": counts["sorries"],
        **({"sorries_not_taken": not_taken} if not_taken else {}),
        **({"files_too_large": len(cut)} if cut else {}),
        **{step: steps[step] for step in ("opened", "moved", "changed", "filled", "removed")},
        "theorems": became,
    }
    return said, _Done(lives, parts, room.added, work.projects, work.challenges)


def _work(mirror: Mirror, given: ScanSpec) -> _Work:
    """Return the files to read and the removed files, ordered by path."""
    try:
        meant = path_filter(given.include, given.exclude)
    except ValueError as error:
        raise JobError(
            "bad_pattern", str(error), remedy="correct include/exclude in config.toml", deterministic=True
        ) from error
    sha, base = given.sha, given.base
    lived_in = {item.place.path for item in given.known.sorries}
    before: dict[str, str] = {}
    changed: set[str] | None = None
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
        changed = {item.path for item in (*changes.present, *changes.before)}
        present = [item for item in changes.present if meant(item.path)]
        if any(PurePosixPath(path).name == ATTRIBUTES for path in changed):
            present = [item for item in mirror.files(sha) if meant(item.path)]
        gone = {path for path in changes.gone if meant(path)}
        gone |= {path for path in lived_in if not meant(path)}  # the patterns changed
        before = {item.path: item.blob for item in present if item.readable and item.path not in changed}
        before |= {item.path: item.blob for item in changes.before if item.readable and meant(item.path)}
    affected = {item.path for item in present if item.readable} | gone
    # The sorries' own blobs take precedence: their sorries were recorded in these versions.
    before = before | {item.place.path: item.place.blob for item in given.known.sorries}
    earlier = {path: blob for path, blob in sorted(before.items()) if path in affected}
    names = None if changed is None else {PurePosixPath(path).name for path in changed}
    return _Work(
        projects=given.known.projects
        if names is not None and names.isdisjoint(NAMES)
        else mirror.projects(sha),
        challenges=_challenges(mirror, given, changed),
        present=sorted(present, key=lambda item: item.path),
        gone=sorted(gone),
        earlier=earlier,
    )


def _challenges(mirror: Mirror, given: ScanSpec, changed: Collection[str] | None) -> tuple[str, ...]:
    """Return the challenge modules named by the commit's configurations of comparator; other programs' files name none.

    Args:
        changed: the paths that differ from the base's, which was scanned; None if unknown.
    """
    if changed is not None and not any(map(_is_comparator, changed)):
        return given.known.challenges
    named: dict[str, None] = {}
    files = [item for item in mirror.files(given.sha) if item.readable and _is_comparator(item.path)]
    # Many a config.json belongs to another program.
    files.sort(key=lambda item: PurePosixPath(item.path).name != "comparator.json")
    for file in files[:_MOST_COMPARATORS]:
        data = mirror.read(file.blob, most_bytes=_MOST_COMPARATOR_BYTES)
        if isinstance(data, int):
            continue
        try:
            read = json.loads(data)
        except (ValueError, RecursionError):
            continue
        if not isinstance(read, dict) or not (
            file.path.endswith("comparator.json") or "solution_module" in read
        ):
            continue
        name = read.get("challenge_module")
        if isinstance(name, str) and _MODULE.fullmatch(name):
            named[name] = None
    return tuple(named)


def _is_comparator(path: str) -> bool:
    """Return whether a file may be a configuration of comparator: it takes any name; its own projects and lean-eval's
    use config.json.
    """
    return PurePosixPath(path).name in ("comparator.json", "config.json")


_MOST_COMPARATORS, _MOST_COMPARATOR_BYTES = 100, 2**20
_MODULE = re.compile(r"[^\W\d][\w'!?]{0,99}(?:\.[^\W\d][\w'!?]{0,99}){0,19}")


class _Progress:
    """Reports of the file in work, at a rate for people."""

    def __init__(self, reporter: Reporter, *, total: int) -> None:
        self._reporter = reporter
        self._done, self._total = 0, total
        self._said = -_PROGRESS_EVERY_S

    def at(self, path: str) -> None:
        """Report the next file."""
        if time.monotonic() - self._said >= _PROGRESS_EVERY_S:
            self._said = time.monotonic()
            self._reporter.progress(self._done, self._total, path)
        self._done += 1

    def end(self) -> None:
        """Report the end."""
        self._reporter.progress(self._total, self._total)


def _read(mirror: Mirror, item: TreeFile) -> ReadFile:
    data = content(mirror, item)
    return unread(item, data) if isinstance(data, str) else shortened(read_file(data, path=item.path))


def _in_few_words(given: ScanSpec, now: list[Decl], *, affected: Collection[str]) -> list[Decl]:
    """Shorten the statements in the sorries' places if their text, with those elsewhere, exceeds the daemon's limit.

    Each sorry's place repeats its statement, and the next scan gets all places.
    """
    text = sum(len(place.statement) for item in now for place in item.places) + sum(
        len(item.place.statement) for item in given.known.sorries if item.place.path not in affected
    )
    if text <= MOST_TEXT:
        return now
    return [
        replace(item, places=tuple(_in_short(place) for place in item.places)) if item.places else item
        for item in now
    ]


def _in_short(place: SorryPlace) -> SorryPlace:
    if len(place.statement) <= SHORT_STATEMENT:
        return place
    return replace(place, statement=beginning(place.statement, SHORT_STATEMENT))


class _Earlier:
    """The declarations of the changed files; `unread` are the files whose earlier version is gone."""

    def __init__(self, mirror: Mirror, given: ScanSpec, work: _Work) -> None:
        self._mirror = mirror
        self._blobs = work.earlier
        self._living: dict[str, list[LivingSorry]] = defaultdict(list)
        for item in given.known.sorries:
            self._living[item.place.path].append(item)
        self.unread: list[str] = []

    def declarations(self, path: str) -> list[Decl]:
        """Return a file's earlier declarations; if it cannot be read, guess them from its sorries."""
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


class _Versions(Mapping[str, Version]):
    """Versions of files, read on demand."""

    def __init__(self, mirror: Mirror, blobs: Mapping[str, str]) -> None:
        self._mirror, self._blobs = mirror, blobs
        self._read: dict[str, Version] = {}

    def __getitem__(self, path: str) -> Version:
        if path not in self._read:
            self._read[path] = version_of(self._mirror, TreeFile(path, self._blobs[path]))
        return self._read[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._blobs)

    def __len__(self) -> int:
        return len(self._blobs)


class _Judge:
    """Judges the end of sorries; the files are read again only if some ended."""

    def __init__(
        self, mirror: Mirror, given: ScanSpec, work: _Work, compared: Compared, *, unread: Collection[str]
    ) -> None:
        self._mirror, self._given, self._compared = mirror, given, compared
        old = {path: blob for path, blob in work.earlier.items() if path not in unread}
        new = {item.path: item.blob for item in work.present if item.readable}
        if len(old) + len(new) > _MOST_JUDGED:
            # Only the sorries' own files are then searched for the meaning of statements.
            alone = {item.path for item in compared.before if item.living}
            alone |= {now.path for old, now in compared.pairs if old.living}
            old, new = ({path: blob for path, blob in side.items() if path in alone} for side in (old, new))
        self._old, self._new = _Versions(mirror, old), _Versions(mirror, new)
        self._affected = old.keys() | new.keys()

    @cached_property
    def _meanings(self) -> Meanings:
        given = self._given
        # Without a base there are no imports to compare.
        unchanged = Unchanged(self._mirror, given.base or given.sha, given.sha)
        return Meanings(
            self._old,
            self._new,
            self._compared,
            beside=unchanged,
            elsewhere=lambda: unchanged.with_a_sorry(self._affected, macros=True),
            sorried={
                item.place.declaration
                for item in given.known.sorries
                if item.place.path not in self._affected
            },
        )

    def outcome(self, old: Decl, now: Decl) -> Outcome:
        return self._meanings.outcome(old, now)

    def hidden_by(self, old: Decl) -> Outcome | None:
        return self._meanings.hidden_by(old)


def _kept(read: ReadFile, item: TreeFile, given: ScanSpec) -> list[Decl]:
    """Return the declarations for matching; at a first scan, without matching, only those with a sorry."""
    declarations = declarations_now(read, path=item.path, blob=item.blob)
    if _first(given) and not given.known.sorries:
        return [item for item in declarations if item.places]
    return declarations


def _file_event(
    commit: Commit, item: TreeFile, read: ReadFile, reporter: Reporter, *, taken: int, most_marked: int
) -> FileScanned:
    scan = read.scan
    kept = scan
    if taken < len(scan.declarations):
        kept = replace(
            scan,
            declarations=scan.declarations[:taken],
            sorries=tuple(one for one in scan.sorries if one.index < taken),
        )
    if len(kept.sorries) > MOST_SORRIES_LISTED:
        kept = replace(kept, sorries=kept.sorries[:MOST_SORRIES_LISTED])
    payload = json.dumps(kept.as_json(), ensure_ascii=False, separators=(",", ":")).encode()
    return FileScanned(
        repository=commit.repository,
        branch=commit.branch,
        sha=commit.sha,
        path=item.path,
        blob=item.blob,
        error=scan.error,
        n_declarations=len(scan.declarations),
        n_sorries=len(scan.sorries),
        exercise_words=read.exercise_words,
        marked=_marked(read, most=most_marked),
        declarations_taken=taken if taken < len(scan.declarations) else None,
        sorries_taken=None,
        scan=reporter.stage(payload),
    )


def _marked(read: ReadFile, *, most: int) -> tuple[str, ...]:
    """Return the declarations whose sorry an attribute marks as intended."""
    unproved = {sorry.declaration for sorry in read.scan.sorries} if read.marked else set()
    return tuple(name for name in read.marked if name in unproved)[:most]


def _removed(commit: Commit, path: str) -> FileRemoved:
    return FileRemoved(repository=commit.repository, branch=commit.branch, sha=commit.sha, path=path)


def _add_theorems(
    parts: _Parts,
    given: ScanSpec,
    steps: Sequence[TheoremStep],
    counts: dict[str, int],
    unread: Sequence[str],
    reporter: Reporter,
) -> None:
    """Add the steps of the theorems, thousands an event, and in the last event the unreadable files."""
    start = 0
    for some in _by_size(steps):
        whole, last = len(some) == len(steps), start + len(some) >= len(steps)
        payload = json.dumps(
            [step.as_json() for step in some], ensure_ascii=False, separators=(",", ":")
        ).encode()
        body = TheoremsFollowed(
            repository=given.repository,
            branch=given.branch,
            sha=given.sha,
            baseline=_first(given),
            unread=tuple(unread) if last else (),
            counts=counts if whole else counted(some),
            steps=reporter.stage(payload),
        )
        parts.add(body, *(() if start == 0 else (str(start),)), size=len(payload))
        start += len(some)


def _by_size(steps: Sequence[TheoremStep]) -> Iterator[Sequence[TheoremStep]]:
    """Yield the steps in runs of limited number and length; without steps, one empty run."""
    start = text = 0
    for at, step in enumerate(steps):
        long = 0 if step.after is None else len(step.after.statement)
        if at > start and (at - start >= MOST_STEPS or text + long > MOST_TEXT):
            yield steps[start:at]
            start, text = at, 0
        text += long
    yield steps[start:]


def _commit_closed(given: ScanSpec, work: _Work, *, failed: int, seconds: float) -> CommitScanned:
    return CommitScanned(
        repository=given.repository,
        branch=given.branch,
        sha=given.sha,
        base=given.base,
        include=given.include,
        exclude=given.exclude,
        projects=work.projects,
        files_scanned=len(work.present),
        files_removed=len(work.gone),
        files_failed=failed,
        seconds=seconds,
        challenges=work.challenges,
    )


_ScanEvent = ScanBegun | FileScanned | FileRemoved | SorryEvent | TheoremsFollowed | CommitScanned


_Added = tuple[_ScanEvent, tuple[str, ...], int]


class _Outbox:
    """Hands the events over to the daemon. Commits that fit in one batch share it: each batch is an fsync."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self._waiting: list[Recorded] = []
        self._bytes = 0
        self._sent = time.monotonic()

    def __enter__(self) -> _Outbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What is found of whole commits holds, whatever became of the next one.
        self.send()

    def put(self, events: Sequence[Recorded], *, size: int) -> None:
        """Take the events of a part or a whole commit, of so many bytes with what they cite."""
        if len(self._waiting) + len(events) > MOST_EVENTS or self._bytes + size > MOST_PART_BYTES:
            self.send()
        self._waiting += events
        self._bytes += size
        if time.monotonic() - self._sent > GATHERS_S:
            self.send()

    def send(self) -> None:
        """Hand over what waits."""
        if self._waiting:
            self.reporter.events(self._waiting)
        self._waiting, self._bytes, self._sent = [], 0, time.monotonic()


class _Parts:
    """Hands the events over: in one batch where they fit, else in parts behind `scan_begun`.

    An event of a part has the attempt in its id: the next attempt knows other proofs, and replaces it whole.
    """

    def __init__(self, outbox: _Outbox, commit: Commit, *, kept: list[_Added] | None = None) -> None:
        self._outbox = outbox
        self._kept = kept
        self._commit = commit
        self._waiting: list[tuple[_ScanEvent, tuple[str, ...]]] = []
        self._bytes = 0
        self._begun = False

    def add(self, body: _ScanEvent, *key: str, size: int = 0) -> None:
        """Add an event; `size` is that of the payload that it cites."""
        if self._kept is not None:
            self._kept.append((body, key, size))
        place = getattr(body, "place", None)
        size += BYTES_OF_EVENT if place is None else BYTES_OF_EVENT + len(place.statement)
        if self._waiting and (len(self._waiting) >= MOST_EVENTS or self._bytes + size > MOST_PART_BYTES):
            if not self._begun:
                self._begun = True
                begun = ScanBegun(
                    repository=self._commit.repository, branch=self._commit.branch, sha=self._commit.sha
                )
                self._waiting.insert(0, (begun, ()))
            self._flush()
        self._waiting.append((body, key))
        self._bytes += size

    def close(self, body: CommitScanned) -> None:
        """Add the event that closes the scan, and hand over what is left."""
        if self._kept is not None:
            self._kept.append((body, (), 0))
        self._waiting.append((body, ()))
        self._flush()

    def again(self, branch: str) -> None:
        """Hand all of it over once more, of another branch at the same commit."""
        parts = _Parts(self._outbox, replace(self._commit, branch=branch))
        for body, key, size in self._kept or ():
            said = body.model_copy(update={"branch": branch})
            if isinstance(said, CommitScanned):
                parts.close(said)
            else:
                parts.add(said, *key, size=size)

    def _flush(self) -> None:
        commit = self._commit
        attempt = (f"attempt {self._outbox.reporter.spec.attempt}",) if self._begun else ()
        events = [
            Recorded(
                stream=f"repository:{commit.repository}",
                body=body,
                natural_key=(commit.repository, commit.branch, commit.sha, *key, *attempt),
            )
            for body, key in self._waiting
        ]
        self._outbox.put(events, size=self._bytes)
        self._waiting, self._bytes = [], 0


def main() -> int:
    """Run the job that `--spec` names."""
    return run_job(ScanSpec, scan_commit)


if __name__ == "__main__":
    sys.exit(main())
