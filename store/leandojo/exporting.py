"""Export traces as LeanDojo's files: a folder that ReProver, LeanAgent and LeanDojo-v2 read.

    random/, novel_premises/    train.json, val.json, test.json
    corpus.jsonl, traced_files.jsonl, metadata.json
    dynamic_database.json

Each payload is read from the log once, file after file, and its records are written at once: memory holds some numbers
for each theorem, whatever the size of the export. The folder is replaced whole (`store.leandojo.folder`). Given back as
it was imported, a folder has the files that the import had.
"""

from __future__ import annotations

import enum
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from store.leandojo import dataset
from store.leandojo.choosing import Chosen, choose
from store.leandojo.corpus import ByClosure, PathOnly
from store.leandojo.database_json import DatabaseWriter
from store.leandojo.dataset import DatasetWriter
from store.leandojo.folder import check_replaceable, replaced
from store.leandojo.merging import AsLeanDojo, ForLife
from store.leandojo.opened import OpenTrace
from store.leandojo.reading import DATABASE_FILE
from store.leandojo.spool import Spool
from store.log.errors import LogError, translated
from store.log.reader import LogReader
from store.view.queries import basic as queries

_CACHE_KIB = 32 << 10


class Mode(enum.Enum):
    """How repositories come together: our way, LeanDojo-v2's, or not at all (an import given back)."""

    FOR_LIFE = "for life"
    COMPAT = "compat"
    AS_IMPORTED = "as imported"
    AS_IMPORTED_COMPAT = "as imported, compat"


class NotAnImportError(LogError):
    """What was chosen cannot be given back as an import."""


@dataclass(slots=True)
class ExportReport:
    """What an export wrote. `position` is that of the log which it shows.

    `repositories` are LeanDojo's heads of the traces, each with whether it is in the splits and the corpus.
    `theorems` counts by list ("random/train"), `withheld` by split those that are in no list of it.
    """

    path: Path
    mode: Mode
    position: int
    repositories: tuple[tuple[Mapping[str, Any], bool], ...]
    simulated: bool
    theorems: dict[str, int] = field(default_factory=dict)
    withheld: dict[str, int] = field(default_factory=dict)
    corpus_files: int = 0
    files_renamed: int = 0
    imports_left_out: int = 0
    files_untraced: int = 0
    seconds: float = 0.0


def export_leandojo(
    out: Path,
    *,
    log: LogReader,
    view: sqlite3.Connection,
    mode: Mode = Mode.FOR_LIFE,
    repositories: Collection[str] = (),
    every_commit: bool = False,
    simulated: bool = False,
    trace: str | None = None,
    with_database: bool = True,
) -> ExportReport:
    """Write an export to `out`, in the place of an earlier one. The daemon may be running.

    `view` is a connection for questions (`store.view.queries.basic.connect`), or one to the view as of an earlier
    time. Of `repositories` (keys, or the ends of them) an empty list means all. `every_commit` takes all imported
    commits of a repository into the splits and the corpus, not the newest alone; LeanDojo-v2, and so `Mode.COMPAT`,
    always does. `trace` is the id of the only one that is taken, whatever came after it.
    Without the dynamic_database.json if so asked: LeanDojo's own merged folders have none.

    Raises:
        NothingToExportError: no such trace is known.
        NotAnImportError: an import is to be given back, and a trace is no import, or several do not make one.
        NotReplaceableError: something lies at `out` that no export made.
        LogError: the disk refused, or a payload is damaged; `out` is as it was.
    """
    check_replaceable(out)
    with one_moment(view):
        every = every_commit or mode is not Mode.FOR_LIFE
        chosen = choose(view, repositories, every_commit=every, simulated=simulated, trace=trace)
        return export_chosen(out, chosen, log=log, view=view, mode=mode, with_database=with_database)


def export_chosen(
    out: Path,
    chosen: Sequence[Chosen],
    *,
    log: LogReader,
    view: sqlite3.Connection,
    mode: Mode,
    with_database: bool = True,
) -> ExportReport:
    """Write an export of these traces, of which there is one at least; see `export_leandojo`."""
    started = time.monotonic()
    report = ExportReport(
        path=out,
        mode=mode,
        position=queries.position(view),
        repositories=tuple((item.head, item.in_dataset) for item in chosen),
        simulated=any(item.row.simulated for item in chosen),
    )
    marker = {"made_by": "unsorry export leandojo", "mode": mode.value, "position": report.position}
    with replaced(out, marker) as folder:
        with ExitStack() as held:
            source = _Source(log, view, mode, folder, held)
            if mode in (Mode.AS_IMPORTED, Mode.AS_IMPORTED_COMPAT):
                _give_back(source, chosen, report)
            else:
                _merge(source, chosen, report, with_database=with_database)
        report.seconds = time.monotonic() - started
    return report


def write_database(
    out: BinaryIO, chosen: Sequence[Chosen], *, log: LogReader, view: sqlite3.Connection, infinity: bool
) -> None:
    """Write these traces as a dynamic_database.json into an open file; `infinity` as LeanDojo writes it, else null."""
    with ExitStack() as held:
        source = _Source(log, view, Mode.AS_IMPORTED, None, held)
        _write_database(source, [source.open(item) for item in chosen], out, infinity=infinity)


@contextmanager
def one_moment(view: sqlite3.Connection) -> Iterator[None]:
    """Show one moment's state through `view`, however long it takes and whatever is recorded meanwhile."""
    with translated("the view"):
        # Sides are looked up by hashes, all over the table: what fits here is not read again and again.
        view.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        view.execute("BEGIN")
    try:
        yield
    finally:
        view.execute("ROLLBACK")


@dataclass(frozen=True, slots=True)
class _Source:
    """Where an export reads and writes; files are closed with `held`. `folder` is for temporary files too."""

    log: LogReader
    view: sqlite3.Connection
    mode: Mode
    folder: Path | None
    held: ExitStack

    def open(self, chosen: Chosen) -> OpenTrace:
        return OpenTrace(
            chosen,
            log=self.log,
            view=self.view,
            own_order=self.mode is not Mode.FOR_LIFE,
            by_letters=self.mode is Mode.COMPAT,
            sides=self.mode is Mode.FOR_LIFE,
        )

    def database(self, out: BinaryIO, *, infinity: bool) -> DatabaseWriter:
        return DatabaseWriter(out, (self.spool(), self.spool()), infinity=infinity)

    def spool(self) -> Spool:
        return self.held.enter_context(Spool(self.folder))

    def create(self, name: str) -> BinaryIO:
        assert self.folder is not None
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        return self.held.enter_context(path.open("wb"))

    def write_json(self, name: str, document: Mapping[str, Any]) -> None:
        self.create(name).write(json.dumps(document, indent=2).encode())


def _merge(source: _Source, chosen: Sequence[Chosen], report: ExportReport, *, with_database: bool) -> None:
    compat = source.mode is Mode.COMPAT
    traces = [source.open(item) for item in chosen]
    merge = PathOnly() if compat else ByClosure()
    merger = AsLeanDojo() if compat else _for_life(traces)
    database = source.database(source.create(DATABASE_FILE), infinity=compat) if with_database else None
    records = source.spool()
    files = DatasetWriter(source.create("corpus.jsonl"), records, merge, merger)
    repositories = []
    for trace in traces:
        names = files.begin(trace) if trace.chosen.in_dataset else None
        for file in trace.read():
            if database is not None:
                database.add(trace, file)
            if names is not None:
                files.add(trace, file, names)
        if database is not None:
            database.end_of_trace(trace)
        if names is not None:
            files.end_of_trace(trace, names)
            repositories.append((trace.chosen.head, trace.counts()))
    if database is not None:
        database.finish()
    for name, numbers in merger.lists():
        records.write_list(numbers, source.create(f"{name}.json"))
        report.theorems[name] = len(numbers)
    report.corpus_files = files.corpus_files
    if isinstance(merger, ForLife):
        report.withheld = merger.withheld()
    if isinstance(merge, ByClosure):
        report.files_renamed, report.imports_left_out = merge.renamed, merge.imports_left_out
        report.files_untraced = merge.files_untraced
    dataset.write_traced_files(source.create("traced_files.jsonl"), files.traced)
    ours = {
        "position": report.position,
        "split_rule": report.mode.value,
        "withheld": report.withheld,
        "files_renamed": report.files_renamed,
        "imports_left_out": report.imports_left_out,
        "files_untraced": report.files_untraced,
        "simulated": report.simulated,
    }
    source.write_json("metadata.json", dataset.metadata(repositories, ours))


def _for_life(traces: Sequence[OpenTrace]) -> ForLife:
    merged = [trace for trace in traces if trace.chosen.in_dataset]
    repositories = Counter(trace.chosen.row.repository for trace in merged)
    paths = Counter(path for trace in merged for path in trace.paths)
    return ForLife(
        shared=frozenset(path for path, number in paths.items() if number > 1),
        repeated=frozenset(key for key, number in repositories.items() if number > 1),
    )


def _give_back(source: _Source, chosen: Sequence[Chosen], report: ExportReport) -> None:
    """Write the files that an import had, in its order."""
    traces = [source.open(item) for item in chosen]
    forms = Counter("none" if trace.manifest is None else trace.manifest.form for trace in traces)
    if forms.keys() == {"database"}:
        infinity = source.mode is Mode.AS_IMPORTED_COMPAT
        _write_database(source, traces, source.create(DATABASE_FILE), infinity=infinity)
    elif forms == {"dataset": 1}:
        _give_back_folder(source, traces[0], report)
    else:
        raise NotAnImportError(
            f"cannot be given back as one import: {forms['database']} repositories of imported databases, "
            f"{forms['dataset']} imported folders, {forms['none']} traces of our own; choose with --repo"
        )


def _give_back_folder(source: _Source, trace: OpenTrace, report: ExportReport) -> None:
    manifest = trace.manifest
    assert manifest is not None
    records = source.spool()
    files = DatasetWriter(source.create("corpus.jsonl"), records, PathOnly(), None)
    names = files.begin(trace)
    for file in trace.read():
        files.add(trace, file, names)
    for name in manifest.lists:
        numbers = trace.in_list(name)
        records.write_list(numbers, source.create(f"{name}.json"))
        report.theorems[name] = len(numbers)
    report.corpus_files = files.corpus_files
    dataset.write_traced_files(source.create("traced_files.jsonl"), manifest.files_traced)
    source.write_json("metadata.json", manifest.metadata)


def _write_database(source: _Source, traces: Sequence[OpenTrace], out: BinaryIO, *, infinity: bool) -> None:
    writer = source.database(out, infinity=infinity)
    for trace in traces:
        for file in trace.read():
            writer.add(trace, file)
        writer.end_of_trace(trace)
    writer.finish()
