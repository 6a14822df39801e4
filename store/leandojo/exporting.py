"""Export traces as LeanDojo's files: a folder for ReProver, LeanAgent and LeanDojo-v2.

    random/, novel_premises/    train.json, val.json, test.json
    corpus.jsonl, traced_files.jsonl, metadata.json
    dynamic_database.json

Each payload is read from the log once, file after file, and its records are written at once: memory holds
some numbers for each theorem, whatever the size of the export. The folder is replaced whole
(`store.leandojo.folder`). A returned import has its original files.
"""

from __future__ import annotations

import enum
import json
import math
import os
import sqlite3
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from store.errors import LogError
from store.leandojo.choosing import ChosenTrace, OpenTrace, ReadFile, choose
from store.leandojo.folder import check_replaceable, replaced
from store.leandojo.merging import AsLeanDojo, ByClosure, ForLife, Merge, Merger, Names, PathOnly, closure_of
from store.leandojo.reading import DATABASE_FILE
from store.leandojo.records import DATABASE, FILE, THEOREM, THEOREM_LISTS, Style, write
from store.log.reader import LogReader
from store.sqlite import translated
from store.view import queries


def indented(value: Any, *, margin: int, ascii_only: bool = False) -> str:
    """Write a value as JSON with its braces at `margin`; the first line has no indentation."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=2)
    return text.replace("\n", "\n" + " " * margin)  # no string has a bare newline in it


_CHUNK = 1 << 20


class Spool:
    """Texts in an unnamed temporary file in `folder` (None: the system's), numbered from 0."""

    def __init__(self, folder: Path | None) -> None:
        # Its own buffer, not shared with readers: they flush it first.
        self._file = tempfile.TemporaryFile(dir=folder, buffering=_CHUNK)  # noqa: SIM115 - closed by __exit__
        self._starts = array("Q", (0,))

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._starts) - 1

    def add(self, text: str) -> int:
        """Append a record; return its number."""
        self._starts.append(self._starts[-1] + self._file.write(text.encode()))
        return len(self) - 1

    def write_list(self, numbers: Iterable[int], out: BinaryIO, *, indent: str = "") -> None:
        """Write records as a JSON array with its closing bracket at `indent`; the texts bring their own."""
        self._file.flush()
        before = b"[\n"
        for number in numbers:
            start, end = self._starts[number : number + 2]
            out.write(before + os.pread(self._file.fileno(), end - start, start))
            before = b",\n"
        out.write(b"[]" if before == b"[\n" else f"\n{indent}]".encode())

    def clear(self) -> None:
        """Forget all records; numbers begin at 0 again."""
        self._file.seek(0)
        self._file.truncate()
        self._starts = array("Q", (0,))


_MARGIN = " " * 8


def database_theorem(data: Mapping[str, Any], *, url: str, commit: str, path: str, infinity: bool) -> str:
    """Return a theorem of a `file_traced` payload as an item of a repository's lists."""
    difficulty = data.get("difficulty")
    if difficulty == "Infinity":
        difficulty = math.inf if infinity else None
    record = {"url": url, "commit": commit, **data, "file_path": path, "difficulty_rating": difficulty}
    return _MARGIN + indented(write(THEOREM["database"], record, DATABASE), margin=8)


def _members(values: Mapping[str, Any]) -> str:
    """Write the inside of a repository's record."""
    return ",\n".join(
        f"      {json.dumps(key, ensure_ascii=False)}: {indented(value, margin=6)}"
        for key, value in values.items()
    )


class DatabaseWriter:
    """Writes a dynamic_database.json into an open file: each trace's files, `end_of_trace`; at last `finish`.

    `spools` are two empty ones, for the records of the trace at hand. `infinity`: see the module.
    """

    def __init__(self, out: BinaryIO, spools: tuple[Spool, Spool], *, infinity: bool) -> None:
        self._out = out
        self._theorems, self._premise_files = spools
        self._infinity = infinity
        self._premise_file_of: dict[str, int] = {}
        self._beside: dict[str, Any] = {}
        self._n_repositories = 0
        out.write(b'{\n  "repositories": [')

    def add(self, trace: OpenTrace, file: ReadFile) -> None:
        """Add a file of a trace."""
        row = trace.chosen.row
        for data in file.data["theorems"]:
            self._theorems.add(
                database_theorem(data, url=row.url, commit=row.sha, path=file.path, infinity=self._infinity)
            )
        if file.in_corpus:
            self._premise_file_of[file.path] = self._premise_files.add(
                _MARGIN + indented(write(FILE, file.data, DATABASE), margin=8)
            )

    def end_of_trace(self, trace: OpenTrace) -> None:
        """Write a trace's record, with its lists in an import's order if it is one."""
        out, head = self._out, trace.chosen.head | trace.counts()
        out.write(b",\n    {\n" if self._n_repositories else b"\n    {\n")
        out.write(_members(head).encode())
        for name in THEOREM_LISTS:
            out.write(f',\n      "{name}": '.encode())
            self._theorems.write_list(trace.in_list(name), out, indent="      ")
        out.write(b',\n      "premise_files": ')
        order = [self._premise_file_of[path] for path in trace.corpus_paths]
        self._premise_files.write_list(order, out, indent="      ")
        extra = {} if trace.manifest is None else trace.manifest.extra
        rest = {"files_traced": list(trace.files_traced), "pr_url": trace.chosen.row.pr_url, **extra}
        out.write(b",\n" + _members(rest).encode() + b"\n    }")
        self._n_repositories += 1
        # If several imported files have keys of their own beside "repositories", the first one's stand.
        self._beside = {**({} if trace.manifest is None else trace.manifest.beside), **self._beside}
        self._premise_file_of = {}
        self._theorems.clear()
        self._premise_files.clear()

    def finish(self) -> None:
        """Write the end of the file."""
        out = self._out
        out.write(b"\n  ]" if self._n_repositories else b"]")
        for key, value in self._beside.items():
            out.write(f",\n  {json.dumps(key, ensure_ascii=False)}: {indented(value, margin=2)}".encode())
        out.write(b"\n}")


BULLET = "·"


def dataset_theorem(
    data: Mapping[str, Any],
    *,
    url: str,
    commit: str,
    path: str,
    paths: Mapping[str, str],
    every_tactic: bool = False,
) -> str:
    """Return a theorem of a `file_traced` payload as an item of train.json.

    `path` is the file's name in the export, `paths` the names of all paths in proofs. LeanDojo leaves out
    tactics that begin at "no goals" or have a bullet in them; `every_tactic` keeps them, for a returned
    import.
    """
    steps = [
        step
        for step in data["traced_tactics"]
        if every_tactic or (step["state_before"] != "no goals" and BULLET not in step["tactic"])
    ]
    record = {"url": url, "commit": commit, **data, "file_path": path, "traced_tactics": steps}
    return "  " + indented(write(THEOREM["dataset"], record, Style(list, paths)), margin=2, ascii_only=True)


def _dataset_metadata(
    repositories: Sequence[tuple[Mapping[str, Any], Mapping[str, int]]], ours: Mapping[str, Any]
) -> dict[str, Any]:
    """Return metadata.json: LeanDojo's merged keys, the `from_repo` of ReProver's loaders, and our own.

    A repository is given by its head and its counts. `from_repo` is the first one.
    """
    first, counts = repositories[0]
    left_out = {"num_sorry_theorems_proved", "num_sorry_theorems_unproved"}
    return {
        "repositories": [dict(item) for item, _ in repositories],
        **{name: sum(item[name] for _, item in repositories) for name in counts if name not in left_out},
        "from_repo": {"url": first["url"], "commit": first["commit"]},
        "everlean": dict(ours),
    }


class DatasetWriter:
    """Writes corpus.jsonl and spools the theorems: `begin` of each trace, its files, `end_of_trace`.

    `merge` names the files, `merger` (None for a returned import) merges the theorems. `traced` has the names
    of all traced files.
    """

    def __init__(self, corpus: BinaryIO, records: Spool, merge: Merge, merger: Merger | None) -> None:
        self.traced: dict[str, None] = {}
        self.corpus_files = 0
        self._corpus = corpus
        self._records = records
        self._merge = merge
        self._merger = merger
        self._first = 0  # the number of the trace's first theorem
        self._closures: dict[str, str] = {}
        self._unclaimed: Iterator[str] = iter(())  # of the corpus, in its order

    def begin(self, trace: OpenTrace) -> Names:
        """Begin a trace; return the names `add` needs with its files."""
        names = Names(
            self._merge,
            trace.chosen.row.repository,
            trace.chosen.row.sha,
            lambda path: self._look_ahead(trace, names, path),
        )
        for path, digest in trace.outside_corpus.items():
            names.claim(path, digest)
        self._first = len(self._records)
        self._closures = {}
        self._unclaimed = iter([path for path in trace.paths if path not in trace.outside_corpus])
        return names

    def add(self, trace: OpenTrace, file: ReadFile, names: Names) -> None:
        """Add a file of the trace."""
        row = trace.chosen.row
        if file.in_corpus:
            self._claim(names, file.path, file.data)
            line = self._merge.line(file.data, names, self._closures)
            if line is not None:
                self._corpus.write(line.encode())
                self.corpus_files += 1
        for data, facts in zip(file.data["theorems"], file.facts, strict=True):
            path = names[file.path]
            number = self._records.add(
                dataset_theorem(
                    data,
                    url=row.url,
                    commit=row.sha,
                    path=path,
                    paths=names,
                    every_tactic=self._merger is None,
                )
            )
            if self._merger is not None:
                self._merger.add(trace.chosen, path, data, facts, number)

    def end_of_trace(self, trace: OpenTrace, names: Names) -> None:
        """Write the untraced files of its proofs; give the merger the trace's lists."""
        for line in self._merge.untraced(names):
            self._corpus.write(line.encode())
            self.corpus_files += 1
        self.traced |= dict.fromkeys(names.get(path, path) for path in trace.files_traced)
        if self._merger is not None:
            lists = [[self._first + number for number in trace.in_list(name)] for name in THEOREM_LISTS]
            self._merger.end_of_trace(lists)

    def _claim(self, names: Names, path: str, data: Mapping[str, Any]) -> None:
        if path in self._closures:
            return  # already claimed ahead
        closure = self._closures[path] = closure_of(data, self._closures) if self._merge.by_closure else ""
        names.claim(path, closure)

    def _look_ahead(self, trace: OpenTrace, names: Names, target: str) -> None:
        """Claim the files of the corpus up to a later one, in their order; nothing if it has no such file."""
        if not self._merge.by_closure or not trace.has_in_corpus(target):
            return
        for path in self._unclaimed:
            if path not in self._closures:
                self._claim(names, path, trace.data(path))
            if path == target:
                return


def _write_traced_files(out: BinaryIO, paths: Iterable[str]) -> None:
    """Write traced_files.jsonl."""
    out.writelines((json.dumps({"traced_file_path": path}) + "\n").encode() for path in paths)


_CACHE_KIB = 32 << 10


class Mode(enum.Enum):
    """The merge of repositories: our way, LeanDojo-v2's, or none (an import given back)."""

    FOR_LIFE = "for life"
    COMPAT = "compat"
    AS_IMPORTED = "as imported"
    AS_IMPORTED_COMPAT = "as imported, compat"


class NotAnImportError(LogError):
    """The chosen traces cannot be given back as an import."""


@dataclass(frozen=True, slots=True)
class ExportedRepository:
    url: str
    commit: str
    in_dataset: bool
    """it is in the splits and the corpus"""


@dataclass(slots=True)
class Exported:
    path: Path
    mode: str
    """`for life`, `compat`, `as imported`, `as imported, compat`"""
    position: int
    repositories: list[ExportedRepository]
    """one for each commit"""
    theorems: dict[str, int] = field(default_factory=dict)
    """number by list, such as `random/train`"""
    withheld: dict[str, int] = field(default_factory=dict)
    """by split, theorems in no list: training on them would give a test away"""
    corpus_files: int = 0
    """files in `corpus.jsonl`"""
    files_renamed: int = 0
    """of these, files of another name than their path"""
    imports_left_out: int = 0
    """imports of files without a trace"""
    files_untraced: int = 0
    """lines of `corpus.jsonl` without premises"""
    seconds: float = 0.0


def export_leandojo(
    out: Path,
    *,
    log: LogReader,
    view: sqlite3.Connection,
    mode: Mode = Mode.FOR_LIFE,
    repositories: Collection[str] = (),
    every_commit: bool = False,
    trace: str | None = None,
    with_database: bool = True,
) -> Exported:
    """Write an export to `out`, in the place of an earlier one. The daemon may be running.

    `view` is a connection for queries (`store.view.queries.connect`), or one to the view as of an earlier
    time. An empty list of `repositories` (keys) means all. `every_commit` takes all imported commits of a
    repository into the splits and the corpus, not the newest alone; LeanDojo-v2, and so `Mode.COMPAT`, always
    does. `trace` is the id of the only one to take, whatever came after it. Without `with_database` no
    dynamic_database.json is written: LeanDojo's own merged folders have none.

    Raises:
        NothingToExportError: no such trace is known.
        NotAnImportError: an import was requested, and a trace is no import, or several do not make one.
        NotReplaceableError: `out` exists and is no export.
        LogError: the disk refused, or a payload is damaged; `out` is unchanged.
    """
    check_replaceable(out)
    with one_moment(view):
        every = every_commit or mode is not Mode.FOR_LIFE
        chosen = choose(view, repositories, every_commit=every, trace=trace)
        return export_chosen(out, chosen, log=log, view=view, mode=mode, with_database=with_database)


def export_chosen(
    out: Path,
    chosen: Sequence[ChosenTrace],
    *,
    log: LogReader,
    view: sqlite3.Connection,
    mode: Mode,
    with_database: bool = True,
) -> Exported:
    """Write an export of at least one trace; see `export_leandojo`."""
    started = time.monotonic()
    report = Exported(
        path=out,
        mode=mode.value,
        position=queries.position(view),
        repositories=[ExportedRepository(item.row.url, item.row.sha, item.in_dataset) for item in chosen],
    )
    marker = {"made_by": "everlean export leandojo", "mode": mode.value, "position": report.position}
    with replaced(out, marker) as folder:
        with ExitStack() as held:
            source = _Source(log, view, mode, folder, held)
            if mode in (Mode.AS_IMPORTED, Mode.AS_IMPORTED_COMPAT):
                _give_back(source, chosen, report)
            else:
                _merge(source, chosen, report, with_database=with_database)
        report.seconds = round(time.monotonic() - started, 3)
    return report


def write_database(
    out: BinaryIO, chosen: Sequence[ChosenTrace], *, log: LogReader, view: sqlite3.Connection, infinity: bool
) -> None:
    """Write these traces as a dynamic_database.json into an open file; `infinity` as LeanDojo writes it, else null."""
    with ExitStack() as held:
        source = _Source(log, view, Mode.AS_IMPORTED, None, held)
        _write_database(source, [source.open(item) for item in chosen], out, infinity=infinity)


@contextmanager
def one_moment(view: sqlite3.Connection) -> Iterator[None]:
    """Show one moment's state through `view`, however long it takes and whatever is recorded meanwhile."""
    with translated("the view"):
        # Sides are looked up by hashes, all over the table: pages in this cache are not read again and again.
        view.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        view.execute("BEGIN")
    try:
        yield
    finally:
        view.execute("ROLLBACK")


@dataclass(frozen=True, slots=True)
class _Source:
    """The sources and files of an export; files are closed with `held`. `folder` is for temporary files too."""

    log: LogReader
    view: sqlite3.Connection
    mode: Mode
    folder: Path | None
    held: ExitStack

    def open(self, chosen: ChosenTrace) -> OpenTrace:
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


def _merge(source: _Source, chosen: Sequence[ChosenTrace], report: Exported, *, with_database: bool) -> None:
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
    _write_traced_files(source.create("traced_files.jsonl"), files.traced)
    shown = ("withheld", "files_renamed", "imports_left_out", "files_untraced")
    said = {name: getattr(report, name) for name in shown}
    ours = {"position": report.position, "split_rule": report.mode, **said}
    source.write_json("metadata.json", _dataset_metadata(repositories, ours))


def _for_life(traces: Sequence[OpenTrace]) -> ForLife:
    merged = [trace for trace in traces if trace.chosen.in_dataset]
    repositories = Counter(trace.chosen.row.repository for trace in merged)
    paths = Counter(path for trace in merged for path in trace.paths)
    return ForLife(
        shared=frozenset(path for path, number in paths.items() if number > 1),
        repeated=frozenset(key for key, number in repositories.items() if number > 1),
    )


def _give_back(source: _Source, chosen: Sequence[ChosenTrace], report: Exported) -> None:
    """Write an import's files, in its order."""
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


def _give_back_folder(source: _Source, trace: OpenTrace, report: Exported) -> None:
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
    _write_traced_files(source.create("traced_files.jsonl"), manifest.files_traced)
    source.write_json("metadata.json", manifest.metadata)


def _write_database(source: _Source, traces: Sequence[OpenTrace], out: BinaryIO, *, infinity: bool) -> None:
    writer = source.database(out, infinity=infinity)
    for trace in traces:
        for file in trace.read():
            writer.add(trace, file)
        writer.end_of_trace(trace)
    writer.finish()
