"""An import put in order before anything is recorded: a private file on disk, gone with the process.

LeanDojo's lists are shuffled, the log wants one file after the other. Everything that was read waits in a temporary
SQLite database (deleted by the system as soon as it is open; SQLITE_TMPDIR says where, it takes about as much
room as the input) and is taken out by file. Nothing here knows JSON files or the log.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from types import TracebackType
from typing import Any

from store.errors import translated
from store.leandojo.records import Flaw, Form, encoded
from store.traced import Manifest, Premise, TracedFile, TracedTheorem

_TABLES = """
CREATE TABLE corpus (file INTEGER PRIMARY KEY, position INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TABLE theorems (
    id INTEGER PRIMARY KEY, file INTEGER NOT NULL, line INTEGER NOT NULL, "column" INTEGER NOT NULL,
    end_line INTEGER NOT NULL, end_column INTEGER NOT NULL, name TEXT NOT NULL, digest BLOB NOT NULL,
    UNIQUE (file, digest)
);
CREATE TABLE bodies (id INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE entries (record INTEGER NOT NULL, list TEXT NOT NULL, position INTEGER NOT NULL, theorem INTEGER NOT NULL);
CREATE TABLE traced (record INTEGER NOT NULL, position INTEGER NOT NULL, path TEXT NOT NULL);
"""
# By content, not by the order in which they were read: the same theorems are the same file however a list is shuffled.
_ORDER = 'line, "column", end_line, end_column, name, digest'
_PREPARED = f"""
CREATE TABLE places AS
    SELECT id, row_number() OVER (PARTITION BY file ORDER BY {_ORDER}) - 1 AS "index" FROM theorems;
CREATE UNIQUE INDEX places_by_id ON places (id, "index");
CREATE INDEX entries_in_order ON entries (record, list, position);
"""


@dataclass(slots=True)
class Counts:
    """What was staged of one record: different theorems (one may stand in several lists), and what they hold."""

    theorems: int = 0
    tactics: int = 0
    premises: int = 0


@dataclass(slots=True)
class _Record:
    """What is kept in memory of a record: its files by path, the order of its corpus, the names of its lists."""

    counts: Counts = field(default_factory=Counts)
    files: dict[str, int] = field(default_factory=dict)
    corpus: list[str] = field(default_factory=list)
    in_corpus: set[str] = field(default_factory=set)
    lists: dict[str, int] = field(default_factory=dict)
    n_traced: int = 0


class Staging:
    """What was read of a file, by record (one repository of a database, or one dataset folder).

    First everything is added, then `manifest` and `files` are asked, record by record.
    """

    def __init__(self) -> None:
        """Open the temporary database.

        Raises:
            LogError: there is no folder for it.
        """
        self._records: list[_Record] = []
        self._n_files = 0
        self._n_theorems = 0
        self._prepared = False
        with self._disk():
            # The empty name means: a file in the folder for temporary files, already unlinked.
            self._db = sqlite3.connect("", isolation_level=None)
            self._db.executescript(
                "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA temp_store = FILE; "
                "PRAGMA cache_size = -32768;" + _TABLES
            )
            self._db.execute("BEGIN")

    def __enter__(self) -> Staging:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._db.close()

    def add_record(self) -> int:
        """Begin a record; return its number, from 0."""
        self._records.append(_Record())
        return len(self._records) - 1

    def add_list(self, record: int, name: str) -> None:
        """Note that the record has a list of this name, be it empty."""
        self._records[record].lists.setdefault(name, 0)

    def add_theorem(self, record: int, list_name: str, path: str, theorem: TracedTheorem) -> None:
        """Append a theorem to a list. One that is the same, word for word, is stored once.

        Raises:
            Flaw: it holds text that is no valid Unicode.
            LogError: the disk refused.
        """
        body = encoded(theorem.as_json())
        digest = hashlib.blake2b(body, digest_size=16).digest()
        found = self._records[record]
        file = self._file(found, path)
        with self._disk():
            known = self._db.execute(
                "SELECT id FROM theorems WHERE file = ? AND digest = ?", (file, digest)
            ).fetchone()
            if known is None:
                self._n_theorems += 1
                number = self._n_theorems
                key = (number, file, *theorem.start, *theorem.end, theorem.full_name, digest)
                self._db.execute("INSERT INTO theorems VALUES (?, ?, ?, ?, ?, ?, ?, ?)", key)
                self._db.execute("INSERT INTO bodies VALUES (?, ?)", (number, body.decode()))
                found.counts.theorems += 1
                found.counts.tactics += len(theorem.tactics)
            else:
                number = known[0]
            position = found.lists[list_name]
            found.lists[list_name] = position + 1
            self._db.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", (record, list_name, position, number))

    def add_premise_file(self, record: int, file: TracedFile) -> None:
        """Append a file to the record's corpus.

        Raises:
            Flaw: the path is there already, or it holds text that is no valid Unicode.
            LogError: the disk refused.
        """
        found = self._records[record]
        if file.path in found.in_corpus:
            first = found.corpus.index(file.path)
            raise Flaw(
                f"stands there already, as number {first} of the files (from 0), and each file stands there once",
                ".path",
            )
        body = encoded(file.as_json())
        number = self._file(found, file.path)
        with self._disk():
            self._db.execute(
                "INSERT INTO corpus VALUES (?, ?, ?)", (number, len(found.corpus), body.decode())
            )
        found.corpus.append(file.path)
        found.in_corpus.add(file.path)
        found.counts.premises += len(file.premises)

    def add_traced(self, record: int, path: str) -> None:
        """Append a path to the record's list of traced files.

        Raises:
            Flaw: the path is no valid Unicode.
            LogError: the disk refused.
        """
        encoded(path)
        found = self._records[record]
        with self._disk():
            self._db.execute("INSERT INTO traced VALUES (?, ?, ?)", (record, found.n_traced, path))
        found.n_traced += 1

    def counts(self, record: int) -> Counts:
        """Return what was staged of a record."""
        return self._records[record].counts

    def lengths(self, record: int) -> Mapping[str, int]:
        """Return how many entries each of the record's lists has, with "premise_files" and "files_traced"."""
        found = self._records[record]
        return {**found.lists, "premise_files": len(found.corpus), "files_traced": found.n_traced}

    def paths(self, record: int) -> tuple[str, ...]:
        """Return the record's files: those of the corpus in its order, then the others by name."""
        found = self._records[record]
        return (*found.corpus, *sorted(found.files.keys() - found.in_corpus))

    def manifest(
        self,
        record: int,
        *,
        form: Form,
        metadata: Mapping[str, Any],
        extra: Mapping[str, Any],
        beside: Mapping[str, Any],
    ) -> Manifest:
        """Return the order in which the record had everything."""
        self._prepare()
        found = self._records[record]
        files = self.paths(record)
        index_of = {found.files[path]: index for index, path in enumerate(files)}
        lists: dict[str, tuple[tuple[int, int], ...]] = dict.fromkeys(found.lists, ())
        with self._disk():
            rows = self._db.execute(
                'SELECT list, file, "index" FROM entries JOIN theorems ON theorems.id = entries.theorem '
                "JOIN places ON places.id = entries.theorem WHERE record = ? ORDER BY list, position",
                (record,),
            )
            for name, entries in groupby(rows, key=lambda row: row[0]):
                lists[name] = tuple((index_of[file], index) for _, file, index in entries)
            traced = self._db.execute("SELECT path FROM traced WHERE record = ? ORDER BY position", (record,))
            files_traced = tuple(path for (path,) in traced)
        return Manifest(
            form=form,
            files=files,
            lists=lists,
            files_traced=files_traced,
            metadata=metadata,
            extra=extra,
            beside=beside,
        )

    def files(self, record: int, *, url: str, commit: str) -> Iterator[TracedFile]:
        """Yield the record's files, in the order of `paths`.

        A theorem whose `url` or `commit` is the record's own (as given here) has None there.
        """
        self._prepare()
        found = self._records[record]
        own = {"url": url, "commit": commit}
        for path in self.paths(record):
            number = found.files[path]
            with self._disk():
                row = self._db.execute("SELECT body FROM corpus WHERE file = ?", (number,)).fetchone()
                bodies = self._db.execute(
                    f"SELECT body FROM theorems JOIN bodies USING (id) WHERE file = ? ORDER BY {_ORDER}",
                    (number,),
                ).fetchall()
            theorems = tuple(_theorem(body, own) for (body,) in bodies)
            if row is None:
                yield TracedFile(path, (), (), theorems, in_corpus=False)
            else:
                yield _premise_file(row[0], theorems)

    def _file(self, record: _Record, path: str) -> int:
        number = record.files.get(path)
        if number is None:
            encoded(path)
            self._n_files += 1
            number = record.files[path] = self._n_files
        return number

    def _prepare(self) -> None:
        if not self._prepared:
            with self._disk():
                self._db.execute("COMMIT")
                self._db.executescript(_PREPARED)
            self._prepared = True

    @staticmethod
    def _disk() -> Any:
        return translated("the temporary file of the import (SQLITE_TMPDIR names the folder for it)")


def _theorem(body: str, own: Mapping[str, str]) -> TracedTheorem:
    data = json.loads(body)
    for key, value in own.items():
        if data.get(key) == value:
            del data[key]
    return TracedTheorem.from_json(data)


def _premise_file(body: str, theorems: tuple[TracedTheorem, ...]) -> TracedFile:
    data = json.loads(body)
    return TracedFile(
        path=data["path"],
        imports=tuple(data["imports"]),
        premises=tuple(Premise.from_json(item) for item in data["premises"]),
        theorems=theorems,
        extra=data.get("extra", {}),
    )
