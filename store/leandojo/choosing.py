"""The traces of an export, their order, and LeanDojo's name for each of them.

The order is that of their lines' first events in the log: it does not change as repositories grow.

A chosen trace is opened as an `OpenTrace`: its files in writing order, and its theorems by number, counted
through the trace in that order. Any list of theorems is thus a list of numbers.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import Any, NamedTuple

from pydantic_core import from_json

from store.domain.records import Manifest
from store.domain.splits import SPLITS, exported_side
from store.errors import LogError
from store.leandojo.reading import DATASET_TRACER, TRACER
from store.leandojo.records import THEOREM_LISTS, count
from store.log.reader import LogReader
from store.view.rows import TraceRow
from store.view.trace_queries import imports_of, traces


class NothingToExportError(LogError):
    """No trace matches the request."""


@dataclass(frozen=True, slots=True)
class ChosenTrace:
    """A trace of an export. `in_dataset`: its theorems and files are in the splits and the corpus too."""

    row: TraceRow
    in_dataset: bool

    @property
    def head(self) -> dict[str, Any]:
        """The first keys of LeanDojo's repository record."""
        row = self.row
        theirs = row.tracer in {TRACER, DATASET_TRACER}
        return {
            "url": row.url,
            "name": row.name,
            "commit": row.sha,
            "lean_version": row.lean_version,
            "lean_dojo_version": row.tracer_version if theirs else f"{row.tracer} {row.tracer_version}",
            "metadata": self._metadata(),
        }

    def _metadata(self) -> dict[str, Any]:
        metadata = dict(json.loads(self.row.metadata_json))
        if "date_processed" not in metadata:
            # Their loader refuses a repository without it, and compares it with times without a zone.
            moment = datetime.fromisoformat(self.row.traced_at).replace(tzinfo=None)
            metadata["date_processed"] = moment.isoformat()
        return metadata


def choose(
    db: sqlite3.Connection,
    repositories: Collection[str],
    *,
    every_commit: bool,
    trace: str | None = None,
    also: Collection[str] = (),
) -> list[ChosenTrace]:
    """Return all imports and the newest trace of our own of each repository; of some repositories, or of all.

    With `trace`, that one alone. `also` are ids of older traces of our own to take too, unless the same
    commit is taken anyway. The dataset has only the newest trace of each repository, unless `every_commit` is
    set. An imported dataset folder is left out if the same commit was imported from a database, which is
    richer.

    Raises:
        NothingToExportError: no trace is known, or none of a named repository; or the trace is unknown,
            withdrawn, or not of such a repository.
    """
    rows = traces(db)
    if not rows:
        raise NothingToExportError(
            "no traced commit is known: trace one, or import one with `everlean import leandojo`"
        )
    keys = {row.repository for row in rows}
    if missing := sorted({*repositories} - keys):
        raise NothingToExportError(
            f'no trace of "{missing[0]}" is known; there are traces of {", ".join(sorted(keys))}'
        )
    rows = [row for row in rows if not repositories or row.repository in repositories]
    if trace is not None:
        result = [ChosenTrace(row, in_dataset=True) for row in rows if row.trace == trace]
        if not result:
            raise NothingToExportError(
                f"no trace {trace} is known of {', '.join(sorted(repositories)) or 'anything'}"
            )
        return result
    database_commits = {_commit(row) for row in rows if row.tracer == TRACER}
    rows = [row for row in rows if not (row.tracer == DATASET_TRACER and _commit(row) in database_commits)]
    newest: dict[str, str] = {}
    newest_of_ours: dict[str, str] = {}
    for row in rows:  # the newest first
        newest.setdefault(row.repository, row.trace)
        if row.source == "lean":
            newest_of_ours.setdefault(row.repository, row.trace)
    kept = [row for row in rows if row.source == "import" or newest_of_ours[row.repository] == row.trace]
    commits = {_commit(row) for row in kept}
    kept += [row for row in rows if row.trace in also and _commit(row) not in commits]
    return in_order(db, [(row, every_commit or newest[row.repository] == row.trace) for row in kept])


def in_order(db: sqlite3.Connection, rows: Sequence[tuple[TraceRow, bool]]) -> list[ChosenTrace]:
    """Return traces, each with its place in the dataset or not, in the order of their lines' first events."""
    first = {
        (repository, line): seq
        for repository, line, seq in db.execute(
            "SELECT repository, line, min(from_seq) FROM traced_files GROUP BY repository, line"
        )
    }
    ordered = sorted(
        rows, key=lambda item: (first.get((item[0].repository, item[0].line), item[0].seq), item[0].seq)
    )
    return [ChosenTrace(row, in_dataset) for row, in_dataset in ordered]


def _commit(row: TraceRow) -> tuple[str, str]:
    return row.url, row.sha


PROVEN, _, SORRY_UNPROVED = THEOREM_LISTS


class TheoremFacts(NamedTuple):
    """The view's facts on a theorem; a side (of each of `store.domain.splits.SPLITS`) is None if withheld.

    `sides` is empty if the caller did not request them.
    """

    split_key: str
    has_sorry: bool
    sides: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file of a trace: its parsed `file_traced` payload, and the facts of its theorems, in order.

    `digest` is the payload's hash, `first` the number of its first theorem.
    """

    path: str
    digest: str
    in_corpus: bool
    first: int
    data: Mapping[str, Any]
    facts: Sequence[TheoremFacts]


@dataclass(frozen=True, slots=True)
class _File:
    content: int
    digest: str
    in_corpus: bool
    n_theorems: int
    n_premises: int


class OpenTrace:
    """See the module. `by_letters`: a theorem with "sorry" in a tactic's text is unproved, as in LeanDojo."""

    def __init__(
        self,
        chosen: ChosenTrace,
        *,
        log: LogReader,
        view: sqlite3.Connection,
        own_order: bool,
        by_letters: bool,
        sides: bool,
    ) -> None:
        """Open a trace; `own_order` keeps an import's order of files, even one refused by a loader.

        `sides`: look up the theorems' sides of the splits.

        Raises:
            ImportCycleError: the files have no acceptable order.
        """
        self.chosen = chosen
        self._log = log
        self._view = view
        self._by_letters = by_letters
        self._columns = ["split_key", "has_sorry"]
        if sides:
            self._columns += [exported_side(split, theorem="t") for split in SPLITS]
        digest = chosen.row.manifest_sha256
        self.manifest = None if digest is None else Manifest.from_json(json.loads(log.blob(digest)))
        self._files = self._list_files()
        self.paths = list(self._files)
        if self.manifest is not None:
            self.paths = list(self.manifest.files)
        if not (own_order and self.manifest is not None):
            self.paths = self._imports_first(self.paths)
        self._first: dict[str, int] = {}
        number = 0
        for path in self.paths:
            self._first[path] = number
            number += self._files[path].n_theorems
        self._lists: dict[str, list[int]] = {name: [] for name in THEOREM_LISTS}

    @cached_property
    def outside_corpus(self) -> Mapping[str, str]:
        """The files outside the corpus, with the hashes of their payloads."""
        return {path: file.digest for path, file in self._files.items() if not file.in_corpus}

    @property
    def corpus_paths(self) -> list[str]:
        """The files of the corpus, in the import's order, if any."""
        paths = self.paths if self.manifest is None else self.manifest.files
        return [path for path in paths if self._files[path].in_corpus]

    @property
    def files_traced(self) -> Sequence[str]:
        """LeanDojo's list of traced files."""
        return self.paths if self.manifest is None else self.manifest.files_traced

    def read(self) -> Iterator[ReadFile]:
        """Read the files from the log, one after the other."""
        for path in self.paths:
            file = self._files[path]
            data = self.data(path)
            facts = self._facts(file.content)
            for index, (theorem, fact) in enumerate(zip(data["theorems"], facts, strict=True)):
                name = SORRY_UNPROVED if self._is_unproved(theorem, fact) else PROVEN
                self._lists[name].append(self._first[path] + index)
            yield ReadFile(path, file.digest, file.in_corpus, self._first[path], data, facts)

    def has_in_corpus(self, path: str) -> bool:
        """Return whether the trace has this file in its corpus."""
        return path in self._files and self._files[path].in_corpus

    def data(self, path: str) -> Any:
        """Read the payload of a file of the trace from the log."""
        return from_json(self._log.blob(self._files[path].digest))

    def in_list(self, name: str) -> list[int]:
        """Return the numbers of a list's theorems: the import's list, or `read`'s."""
        if self.manifest is None or name not in self.manifest.lists:
            # A dataset folder has no lists of proven theorems.
            return self._lists[name]
        first = [self._first[path] for path in self.manifest.files]
        return [first[file] + index for file, index in self.manifest.lists[name]]

    def counts(self) -> dict[str, int]:
        """Count the trace as LeanDojo counts a repository; after `read`."""
        corpus = [file for file in self._files.values() if file.in_corpus]
        return count(
            *(len(self.in_list(name)) for name in THEOREM_LISTS),
            premise_files=len(corpus),
            premises=sum(file.n_premises for file in corpus),
            files_traced=len(self.files_traced),
        )

    def _list_files(self) -> dict[str, _File]:
        row = self.chosen.row
        rows = self._view.execute(
            "SELECT f.path, f.content, c.sha256, c.in_corpus, c.n_theorems, c.n_premises FROM traced_files AS f "
            "JOIN traced_contents AS c ON c.content = f.content WHERE f.repository = :repository AND f.line = :line "
            "AND f.from_seq <= :seq AND (f.until_seq IS NULL OR f.until_seq > :seq) ORDER BY f.path",
            {"repository": row.repository, "line": row.line, "seq": row.seq},
        )
        return {
            path: _File(content, digest, bool(in_corpus), n_theorems, n_premises)
            for path, content, digest, in_corpus, n_theorems, n_premises in rows
        }

    def _imports_first(self, paths: Sequence[str]) -> list[str]:
        corpus = [path for path in paths if self._files[path].in_corpus]
        imports = {path: imports_of(self._view, self._files[path].content) for path in corpus}
        row = self.chosen.row
        ordered = imports_first(corpus, imports, trace=f"{row.url} at {row.sha}")
        return [*ordered, *(path for path in paths if not self._files[path].in_corpus)]

    def _facts(self, content: int) -> list[TheoremFacts]:
        rows = self._view.execute(
            f'SELECT {", ".join(self._columns)} FROM traced_theorems AS t WHERE content = ? ORDER BY "index"',
            (content,),
        )
        return [TheoremFacts(key, bool(has_sorry), tuple(result)) for key, has_sorry, *result in rows]

    def _is_unproved(self, theorem: Mapping[str, Any], facts: TheoremFacts) -> bool:
        if self._by_letters:
            return any("sorry" in step["tactic"] for step in theorem["traced_tactics"])
        return facts.has_sorry


class ImportCycleError(LogError):
    """Files of a trace import each other, so there is no order to write them in."""

    def __init__(self, trace: str, paths: Sequence[str]) -> None:
        super().__init__(
            f"{trace}: its files import each other in a circle ({' -> '.join(paths)}), which Lean does not allow and "
            "no loader accepts. Trace the commit again, or leave the repository out with --repo"
        )
        self.paths = tuple(paths)


def imports_first(paths: Iterable[str], imports: Mapping[str, Sequence[str]], *, trace: str) -> list[str]:
    """Return the paths with each behind its imports, else in the given order.

    `imports` has the direct imports of each path; others than `paths` do not count.

    Raises:
        ImportCycleError: no such order exists. `trace` names the owner of the files.
    """
    sequence = list(paths)
    place = {path: number for number, path in enumerate(sequence)}
    sorter = TopologicalSorter(
        {path: [one for one in imports.get(path, ()) if one in place] for path in sequence}
    )
    try:
        sorter.prepare()
    except CycleError as error:
        raise ImportCycleError(trace, error.args[1][::-1]) from None
    ready: list[int] = []
    ordered: list[str] = []
    while sorter.is_active():
        for path in sorter.get_ready():
            heappush(ready, place[path])
        ordered.append(sequence[heappop(ready)])
        sorter.done(ordered[-1])
    return ordered
