"""The log behind the library face: repositories as LeanDojo's objects, read from it and recorded in it.

A repository is recorded as an import of its own record, so that there is one way in. What was read or recorded is
remembered by a hash, and what differs from it later is what has changed.
"""

from __future__ import annotations

import fcntl
import gc
import hashlib
import json
import os
import re
import sqlite3
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from store import queries
from store.envelope import Expect, NewEvent
from store.errors import DatabaseLockedError, ViewError, translated
from store.identity import event_id, trace_id
from store.leandojo.choosing import Chosen, choose
from store.leandojo.exporting import one_moment, write_database
from store.leandojo.models import AnnotatedTactic, Theorem
from store.leandojo.reading import TRACER, import_leandojo
from store.leandojo.records import ImportFormatError
from store.leandojo.repository import Repository
from store.log import EventLog
from store.projector import rebuild
from store.reader import LogReader
from store.trace_events import TraceWithdrawn
from store.trace_queries import trace as find_trace
from store.trace_rows import TraceRow
from store.view import View

_GIVEN = "the repositories given"
_CORRECT = "correct that and try again"

Identity = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the log has of a repository: its trace (`ours`: the daemon's own), and a hash of its record."""

    trace: str
    key: str
    seq: int
    ours: bool
    fingerprint: int


class Backing:
    """A state folder: events.db and database.db. It is held for writing only while something is written."""

    def __init__(self, state: Path, also: Collection[str] = ()) -> None:
        """Open the folder; make what is missing in it, and bring its view up to its log.

        Args:
            state: the folder.
            also: ids of the daemon's traces that are read although there are newer ones.

        Raises:
            LogError: the disk refused, or there is a log of a newer version.
        """
        self.state = state
        self._also = also
        self._events_db = state / "events.db"
        self._database_db = state / "database.db"
        self.recorded: dict[Identity, Recorded] = {}
        with translated(state):
            state.mkdir(exist_ok=True)
        # A daemon that holds the log keeps the view up to date itself.
        with suppress(DatabaseLockedError), self._writing():
            pass

    @contextmanager
    def reading(self) -> Iterator[tuple[LogReader, sqlite3.Connection]]:
        """Open the log, and one moment's state of the view."""
        with (
            LogReader.open(self._events_db) as log,
            closing(queries.connect(self._database_db)) as view,
            one_moment(view),
        ):
            yield log, view

    def load(self) -> list[Repository]:
        """Read all repositories, as dynamic_database.json has them."""
        with uncollected(), self.reading() as (log, view), tempfile.TemporaryFile() as file:
            exists = view.execute("SELECT 1 FROM traces WHERE state = 'current' LIMIT 1").fetchone()
            chosen = choose(view, (), every_commit=True, simulated=True, also=self._also) if exists else []
            write_database(file, chosen, log=log, view=view, infinity=True)
            file.seek(0)
            repositories = [Repository.from_dict(item) for item in json.load(file)["repositories"]]
        self.recorded = {
            identity(repo): _recorded(repo, item.row) for repo, item in zip(repositories, chosen, strict=True)
        }
        return repositories

    def record(self, repositories: Sequence[Repository]) -> None:
        """Record repositories, or what is new of them.

        Raises:
            ValueError: one is the daemon's own trace, and was changed.
        """
        for repo in repositories:
            known = self.recorded.get(identity(repo))
            if known is not None and known.ours:
                raise ValueError(
                    f"{repo}: was traced by the daemon ({repo.lean_dojo_version}) and cannot be changed here; the "
                    "next trace of its branch does so"
                )
        if not repositories:
            return
        self.take_in_json({"repositories": [repo.to_dict() for repo in repositories]})
        with self.reading() as (_, view):
            for repo in repositories:
                name = trace_id(repo.url, repo.commit, repo.lean_version, TRACER, repo.lean_dojo_version)
                row = find_trace(view, name)
                assert row is not None, "it was recorded just now"
                self.recorded[identity(repo)] = _recorded(repo, row)

    def record_changes(self, repositories: Sequence[Repository]) -> None:
        """Make the log say what these repositories are now; those that are not among them any more are withdrawn."""
        now = {identity(repo): repo for repo in repositories}
        for gone in self.recorded.keys() - now.keys():
            self.withdraw(gone)
        self.record([repo for name, repo in now.items() if self._differs(name, repo)])

    def withdraw(self, name: Identity) -> None:
        """Take a repository out of the database; the log keeps it."""
        known = self.recorded[name]
        stream = f"repository:{known.key}"
        body = TraceWithdrawn(trace=known.trace, repository=known.key, reason="delete_repository")
        event = NewEvent(
            stream, body, event_id=event_id(body.type, known.trace, str(known.seq)), actor="library"
        )
        with self._writing() as log:
            log.append([event], expect={stream: Expect.ANY})
        del self.recorded[name]

    def chosen(self, view: sqlite3.Connection, repositories: Sequence[Repository]) -> list[Chosen]:
        """Return the traces of recorded repositories, in their order."""
        rows = [find_trace(view, self.recorded[identity(repo)].trace) for repo in repositories]
        return [Chosen(row, in_dataset=True) for row in rows if row is not None]

    def take_in_json(self, data: Mapping[str, Any]) -> None:
        """Import a database that is in memory.

        Raises:
            ImportFormatError: it is none.
        """
        with (
            translated(self.state),
            tempfile.NamedTemporaryFile("w", dir=self.state, suffix=".json", encoding="utf-8") as file,
        ):
            try:
                json.dump(data, file)
            except (TypeError, ValueError) as error:
                raise ImportFormatError(
                    _GIVEN, "", f"cannot be written as JSON ({error})", remedy=_CORRECT
                ) from error
            file.flush()
            try:
                self.take_in(Path(file.name))
            except ImportFormatError as error:
                # Of the temporary file, and lines of it, nobody but us knows.
                place = re.sub(r" ?\(?line \d+, column \d+\)?$", "", error.place)
                raise ImportFormatError(_GIVEN, place, error.reason, remedy=_CORRECT) from None

    def take_in(self, path: Path) -> None:
        """Import a file."""
        stage = self.state / "import"
        import_leandojo(path, events_db=self._events_db, database_db=self._database_db, stage=stage)

    def knows(self, path: Path) -> bool:
        """Say whether a file is, byte for byte, the one that was noted."""
        note = self.state / "json.sha256"
        return note.exists() and note.read_text(encoding="ascii") == _digest_of_file(path)

    def note(self, path: Path) -> None:
        """Note a file as one whose content the log has."""
        with written_whole(self.state / "json.sha256") as out:
            out.write(_digest_of_file(path).encode("ascii"))

    def _differs(self, name: Identity, repo: Repository) -> bool:
        known = self.recorded.get(name)
        return known is None or known.fingerprint != _fingerprint(repo, ratings=not known.ours)

    @contextmanager
    def _writing(self) -> Iterator[EventLog]:
        with EventLog.open(self._events_db) as log, log.reader() as reader:
            try:
                view = View.open(self._database_db, reader)
            except ViewError:
                # Made by another version; all of it follows from the log.
                rebuild(self._events_db, self._database_db)
                view = View.open(self._database_db, reader)
            with view:
                yield log
                view.catch_up()


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep Python's cycle collector away from work that makes no cycles.

    It walks all objects again and again as they become more, and there may be millions of them here: without this the
    time would not be linear in the theorems.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path`, durably, when all of it is written.

    Of two that write it at once the second is refused; what a killed one left is written over.
    """
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.new")
    with _locked(temporary, target) as out:
        out.truncate()
        try:
            yield out
            out.flush()
            os.fsync(out.fileno())
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _locked(temporary: Path, target: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that is ours alone; not truncated, for somebody may have been writing it."""
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666
    while True:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT, mode), "wb") as out:
            try:
                fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DatabaseLockedError(
                    f"{target}: another process writes it; try again when it is done"
                ) from None
            # Who held it until now may have put it into its place, where it must not be written any more.
            if temporary.exists() and os.path.samestat(os.fstat(out.fileno()), temporary.stat()):
                yield out
                return


def identity(repo: Repository) -> Identity:
    """Return what makes two of LeanDojo's repositories equal."""
    return repo.url, repo.name, repo.commit, repo.lean_version, repo.lean_dojo_version


def _recorded(repo: Repository, row: TraceRow) -> Recorded:
    ours = row.source == "lean"
    return Recorded(row.trace, row.repository, row.seq, ours, _fingerprint(repo, ratings=not ours))


def _fingerprint(repo: Repository, *, ratings: bool) -> int:
    """Hash all that a repository's record says, for this process alone: strings remember their hashes.

    Without `ratings` for a trace of our own, which has none; anybody may give them to its theorems.
    """
    return hash(
        (
            identity(repo),
            repr(repo.metadata),
            *(
                tuple(_fingerprint_of_theorem(theorem, ratings=ratings) for theorem in theorems)
                for theorems in (
                    repo.proven_theorems,
                    repo.sorry_theorems_proved,
                    repo.sorry_theorems_unproved,
                )
            ),
            tuple(
                (
                    str(file.path),
                    tuple(file.imports),
                    tuple(
                        (item.full_name, item.code, item.start, item.end, item.kind) for item in file.premises
                    ),
                )
                for file in repo.premise_files
            ),
            tuple(map(str, repo.files_traced)),
            repo.pr_url,
        )
    )


def _fingerprint_of_theorem(theorem: Theorem, *, ratings: bool) -> int:
    return hash(
        (
            theorem.full_name,
            theorem.theorem_statement,
            str(theorem.file_path),
            theorem.start,
            theorem.end,
            theorem.url,
            theorem.commit,
            repr(theorem.difficulty_rating) if ratings else None,
            *(_fingerprint_of_tactic(step) for step in theorem.traced_tactics or ()),
        )
    )


def _fingerprint_of_tactic(step: AnnotatedTactic) -> int:
    text, uses = step.annotated_tactic
    premises = [(item.full_name, item.def_path, item.def_pos, item.def_end_pos) for item in uses]
    return hash((step.tactic, text, *premises, step.state_before, step.state_after))


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
