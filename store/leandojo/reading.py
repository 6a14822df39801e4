"""Import LeanDojo's files: all is read and checked first, then recorded, then the view catches up.

A faulty file leaves no event. A kill while recording leaves an unclosed, invisible trace, completed by the
same import. Content already in the log, word for word, is not written again; a repository with a changed
record is the same trace, closed anew with the differences.

The head of a trace:

- A **database** has a trace for each of its repositories: their url, name, commit, lean_version, metadata and
  pr_url, the tracer "lean_dojo" with their lean_dojo_version. The lists are "proven_theorems",
  "sorry_theorems_proved" and "sorry_theorems_unproved". Its counts are not read but compared, and a
  contradiction is a note.
- A **folder** has one trace, by the tracer "lean_dojo dataset" (a dataset leaves out some tactics and every
  difficulty: it must not take the place of the same repository's trace from a database). Its lists are
  "random/train" and so on. Fields missing in its metadata.json are "unknown". If that names one repository
  (`from_repo`, or `repositories` with one entry), the trace is of that one.
- A **merged folder** of several repositories has one corpus without their names. Its trace is of the dataset
  itself: the repository `leandojo.import/<12 hex digits>`, made of its urls and commits, so that the same
  repositories merged again are the same trace, newly closed. Each theorem keeps its own url and commit.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from store.domain.identity import repository_key
from store.domain.records import Manifest, TracedFile, TracedTheorem
from store.leandojo.records import (
    FILE,
    OPTIONAL,
    THEOREM,
    THEOREM_LISTS,
    TRACED,
    Flaw,
    Form,
    ImportFormatError,
    Kind,
    Shape,
    Style,
    count,
    each,
    encoded,
    foreign,
    items,
    json_lines,
    load,
    read,
    read_text,
)
from store.log.log import EventLog
from store.recording import TraceHead, record_trace
from store.sqlite import translated
from store.text import counted
from store.view import queries
from store.view.view import View

DATABASE_FILE = "dynamic_database.json"
SPLITS = ("random", "novel_premises")
SIDES = ("train", "val", "test")

MERGED_HOST = "leandojo.import"
TRACER = "lean_dojo"
DATASET_TRACER = "lean_dojo dataset"
UNKNOWN = "unknown"

Progress = Callable[[str, int, int], object]
"""Called with the phase ("reading", "recording", "projecting"), the amount done, and the whole."""


@dataclass(frozen=True, slots=True)
class Totals:
    theorems: int
    tactics: int
    premises: int
    files: int


@dataclass(frozen=True, slots=True)
class ImportedRepository:
    repository: str
    """its key; `leandojo.import/…` of a merged dataset"""
    url: str
    name: str
    commit: str
    lean_version: str
    lean_dojo_version: str
    trace: str
    already_imported: bool
    files_changed: int
    files_removed: int
    theorems: int
    tactics: int
    premises: int
    files: int

    @property
    def outcome(self) -> str:
        """Return the import's changes."""
        if self.already_imported:
            return "already imported"
        parts = [(self.files_changed, "changed"), (self.files_removed, "removed")]
        text = ", ".join(f"{counted(number, 'file')} {what}" for number, what in parts if number)
        return text or "order changed"


@dataclass(frozen=True, slots=True)
class Imported:
    path: Path
    form: str
    """`database` or `dataset`"""
    already_imported: bool
    """the log had all of it: nothing was written"""
    repositories: list[ImportedRepository]
    """one for each commit"""
    totals: Totals
    """counts"""
    notes: tuple[str, ...]
    """harmless oddities"""
    seconds: float
    position: int


def import_leandojo(
    path: Path, *, events_db: Path, database_db: Path, stage: Path, progress: Progress | None = None
) -> Imported:
    """Record a dynamic_database.json or a dataset folder; the caller keeps the daemon away meanwhile.

    The log and its view are made if missing, but not for a faulty file. `stage` is a folder for payloads on
    their way into the log: its content is deleted, before and after. The whole import is held in memory; a
    dynamic_database.json of more than `records.MAX_FILE_BYTES` is refused.

    Raises:
        ImportFormatError: the file or folder is not in LeanDojo's format; nothing was recorded.
        LogError: a file cannot be read, or the log or its view cannot be written.
    """
    started = time.monotonic()
    report = progress or _silent
    result = read_all(path, progress=lambda done, total: report("reading", done, total))
    with EventLog.open(events_db) as log, log.reader() as reader, View.open(database_db, reader) as view:
        view.catch_up()
        with closing(queries.connect(database_db)) as questions:
            _clear(stage)
            try:
                repositories = [
                    _record(log, result, record, stage=stage, view=questions, progress=report)
                    for record in result.records
                ]
            finally:
                _clear(stage)
        report("projecting", 0, 1)
        position = view.catch_up()
    names = [one.name for one in fields(Totals)]
    return Imported(
        path=result.path,
        form=result.form,
        already_imported=bool(repositories)
        and all(repository.already_imported for repository in repositories),
        repositories=repositories,
        totals=Totals(*(sum(getattr(repository, name) for repository in repositories) for name in names)),
        notes=tuple(result.notes),
        seconds=round(time.monotonic() - started, 3),
        position=position,
    )


def _record(
    log: EventLog, content: Read, record: Record, *, stage: Path, view: sqlite3.Connection, progress: Progress
) -> ImportedRepository:
    manifest, head = record.manifest(content), record.head

    def files() -> Iterator[TracedFile]:
        for done, file in enumerate(record.files()):
            progress("recording", done, len(manifest.files))
            yield file

    result = record_trace(
        log, trace=head, files=files(), stage=stage, manifest=manifest, view=view, actor="import"
    )
    return ImportedRepository(
        repository=head.repository,
        url=head.url,
        name=head.name,
        commit=head.sha,
        lean_version=head.lean_version,
        lean_dojo_version=head.tracer_version,
        trace=result.trace,
        already_imported=result.repeated,
        files_changed=result.files_changed,
        files_removed=result.files_removed,
        theorems=result.n_theorems,
        tactics=result.n_tactics,
        premises=result.n_premises,
        files=result.files_traced,
    )


def _clear(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _silent(_what: str, _done: int, _total: int) -> None:
    """Do nothing."""


# Sorted by content, not by order of reading: a shuffled list gives the same file.
_Key = tuple[int, int, int, int, str, bytes]


class Record:
    """One trace to be: its head, and its theorems by file. A theorem in two lists is kept once."""

    head: TraceHead

    def __init__(self, form: Form) -> None:
        self.form: Form = form
        self.metadata: Mapping[str, Any] = {}
        self.extra: Mapping[str, Any] = {}
        self.corpus: dict[str, TracedFile] = {}
        self.traced: list[str] = []
        self.lists: dict[str, list[tuple[str, _Key]]] = {}
        self._theorems: dict[str, dict[_Key, bytes]] = {}

    def add_theorem(self, name: str, data: Any) -> None:
        """Append a theorem to a list.

        Raises:
            Flaw: it is not in LeanDojo's format.
        """
        values = read(THEOREM[self.form], data)
        path, difficulty = values.pop("file_path"), values.pop("difficulty_rating", None)
        result = TracedTheorem.from_json({**values, "difficulty": difficulty})
        encoded(path)
        body = encoded(result.as_json())
        digest = hashlib.blake2b(body, digest_size=16).digest()
        key = (*result.start, *result.end, result.full_name, digest)
        self._theorems.setdefault(path, {})[key] = body
        self.lists[name].append((path, key))

    def add_premise_file(self, data: Any) -> None:
        """Append a file to the corpus.

        Raises:
            Flaw: it is not in LeanDojo's format, or its path is there already.
        """
        file = TracedFile.from_json({**read(FILE, data), "theorems": (), "in_corpus": True})
        if file.path in self.corpus:
            first = list(self.corpus).index(file.path)
            raise Flaw(
                f"stands there already, as number {first} of the files (from 0), and each file stands there once",
                ".path",
            )
        encoded(file.as_json())
        self.corpus[file.path] = file

    def add_traced(self, path: Any) -> None:
        """Append a path to the list of traced files.

        Raises:
            Flaw: it is no text.
        """
        encoded(read_text(path))
        self.traced.append(path)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files: those of the corpus in its order, then the others by name."""
        return (*self.corpus, *sorted(self._theorems.keys() - self.corpus.keys()))

    def manifest(self, content: Read) -> Manifest:
        """Return the order of everything in the record."""
        paths = self.paths
        place = {
            (path, key): (number, index)
            for number, path in enumerate(paths)
            for index, key in enumerate(sorted(self._theorems.get(path, {})))
        }
        return Manifest(
            form=self.form,
            files=paths,
            lists={name: tuple(place[entry] for entry in entries) for name, entries in self.lists.items()},
            files_traced=tuple(self.traced),
            metadata=self.metadata,
            extra=self.extra,
            beside=content.beside,
        )

    def files(self) -> Iterator[TracedFile]:
        """Yield the files, in the order of `paths`; None stands for the head's url and commit."""
        for path in self.paths:
            bodies = [body for _, body in sorted(self._theorems.get(path, {}).items())]
            theorems = tuple(self._theorem(body) for body in bodies)
            file = self.corpus.get(path)
            if file is None:
                yield TracedFile(path, (), (), theorems, in_corpus=False)
            else:
                yield TracedFile(path, file.imports, file.premises, theorems, extra=file.extra)

    def _theorem(self, body: bytes) -> TracedTheorem:
        data = json.loads(body)
        for key, value in (("url", self.head.url), ("commit", self.head.sha)):
            if data.get(key) == value:
                del data[key]
        return TracedTheorem.from_json(data)


@dataclass(frozen=True, slots=True)
class Read:
    """The content of a file or folder. `beside` holds unknown keys next to "repositories"; `notes` are for people."""

    path: Path
    form: Form
    records: list[Record] = field(default_factory=list)
    beside: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_all(path: Path, *, progress: Callable[[int, int], object]) -> Read:
    """Read a file or a folder; `progress` gets the bytes read so far, and the total.

    A folder with a dynamic_database.json (as in our own export) is read as that file, richer than the dataset
    beside it.

    Raises:
        ImportFormatError: it is not in LeanDojo's format.
        LogError: it cannot be read.
    """
    if not path.is_dir():
        return _read_database(path, progress)
    database = path / DATABASE_FILE
    is_dataset = (path / "metadata.json").is_file()
    if database.is_file():
        result = _read_database(database, progress)
        if is_dataset:
            result.notes.append(
                f"{database} was read, which says more than the dataset beside it; that follows from it"
            )
        return result
    if not is_dataset:
        raise ImportFormatError(
            path,
            "",
            f"neither metadata.json nor {DATABASE_FILE} is in this folder",
            remedy="name a folder that has one of them, as LeanDojo writes it",
        )
    return _read_folder(path, progress)


def _read_database(path: Path, progress: Callable[[int, int], object]) -> Read:
    size = _size(path)
    data = load(path)
    progress(size, size)
    result = Read(path, "database")
    if not isinstance(data, dict) or "repositories" not in data:
        remedy = f"name a {DATABASE_FILE} of LeanDojo-v2 or LeanAgent, or a dataset's folder"
        raise ImportFormatError(path, "repositories", "is missing", remedy=remedy)
    place = ""
    try:
        repositories = data.pop("repositories")
        result.beside.update(foreign(data))
        place = "repositories"
        if not isinstance(repositories, list):
            raise Flaw("should be a list")
        for index in range(len(repositories)):
            place = f"repositories[{index}]"
            # Each is freed before the next.
            plain, repositories[index] = repositories[index], None
            record = _repository(plain, place, result.notes)
            for number, earlier in enumerate(result.records):
                if earlier.head.trace == record.head.trace:
                    reason = f"has url, commit, Lean version and LeanDojo version of repositories[{number}]"
                    remedy = "take one of the two out of the file"
                    raise ImportFormatError(path, place, reason, remedy=remedy)
            result.records.append(record)
    except Flaw as flaw:
        raise flaw.of(path, place) from None
    return result


def _repository(data: Any, place: str, notes: list[str]) -> Record:
    if not isinstance(data, dict):
        raise Flaw("should be an object")
    if not any(name in data for name in THEOREM_LISTS):
        raise Flaw(
            "is missing; of a merged dataset name the folder, not its metadata.json", ".proven_theorems"
        )
    record = Record("database")
    for name in THEOREM_LISTS:
        record.lists[name] = []
        _each(data, name, partial(record.add_theorem, name))
    _each(data, "premise_files", record.add_premise_file)
    _each(data, "files_traced", record.add_traced)
    lists = {*THEOREM_LISTS, "premise_files", "files_traced"}
    head = foreign(read(HEAD, {key: value for key, value in data.items() if key not in lists}))
    record.head = TraceHead(
        repository=repository_key(head["url"]),
        sha=head["commit"],
        url=head["url"],
        name=head["name"],
        lean_version=head["lean_version"],
        tracer=TRACER,
        tracer_version=head["lean_dojo_version"],
        source="import",
        metadata=head["metadata"],
        pr_url=head["pr_url"],
    )
    counts = count(
        *(len(record.lists[name]) for name in THEOREM_LISTS),
        premise_files=len(record.corpus),
        premises=sum(len(file.premises) for file in record.corpus.values()),
        files_traced=len(record.traced),
    )
    record.extra = extra = head.get("extra", {})
    for name, number in counts.items():
        if extra.pop(name, number) != number:
            notes.append(f"{place}.{name} says {data[name]}, but the file has {number}: the lists count")
    return record


def _each(data: Mapping[str, Any], name: str, add: Callable[[Any], None]) -> None:
    try:
        each(data.get(name, []), add)
    except Flaw as flaw:
        raise flaw.below(f".{name}") from None


def _read_folder(path: Path, progress: Callable[[int, int], object]) -> Read:
    metadata = load(path / "metadata.json")
    if not isinstance(metadata, dict):
        raise ImportFormatError(path / "metadata.json", "", "should be an object")
    splits = _split_files(path)
    if not splits:
        raise ImportFormatError(
            path,
            "",
            "neither random/ nor novel_premises/ holds a .json file",
            remedy="name the folder that has them beside metadata.json",
        )
    result = Read(path, "dataset")
    record = Record("dataset")
    lines: dict[Path, Callable[[Any], None]] = {
        path / "corpus.jsonl": record.add_premise_file,
        path / "traced_files.jsonl": lambda item: record.add_traced(_read_traced_path(item)),
    }
    total = sum(_size(file) for file in (*splits.values(), *lines) if file.is_file())
    done = 0
    for name, file in splits.items():
        record.lists[name] = []
        _add_all(file, items(file), partial(record.add_theorem, name))
        done += _size(file)
        progress(done, total)
    for file, add in lines.items():
        if not file.is_file():
            result.notes.append(f"{file} is not there: taken as empty")
            continue
        _add_all(file, json_lines(file), add)
        done += _size(file)
        progress(done, total)
    try:
        record.metadata = foreign(metadata)
    except Flaw as flaw:
        raise flaw.of(path / "metadata.json") from None
    record.head = dataset_head(path / "metadata.json", metadata)
    result.records.append(record)
    return result


def _add_all(file: Path, values: Iterable[Any], add: Callable[[Any], None]) -> None:
    for index, item in enumerate(values):
        try:
            add(item)
        except Flaw as flaw:
            raise flaw.of(file, f"[{index}]") from None


def _read_traced_path(item: Any) -> str:
    """Return the file named by a line; a trace has no place for another key of it."""
    values = read(TRACED, item)
    for key in values.get("extra", ()):
        raise Flaw("is a key that such a line does not have", f".{key}")
    path: str = values["traced_file_path"]
    return path


def _split_files(folder: Path) -> dict[str, Path]:
    """Return the files of the splits by the name of their list, such as "random/train"; train, val, test first."""
    result: dict[str, Path] = {}
    for split in SPLITS:
        files = sorted(
            (folder / split).glob("*.json"),
            key=lambda file: (SIDES.index(file.stem) if file.stem in SIDES else len(SIDES), file.stem),
        )
        result |= {f"{split}/{file.stem}": file for file in files}
    return result


def _size(path: Path) -> int:
    with translated(path):
        return path.stat().st_size


# The origin of an imported record.


def _read_name(value: Any) -> str:
    if not read_text(value).strip():
        raise Flaw("is empty")
    return str(value)


def _read_url(value: Any) -> str:
    url = _read_name(value)
    try:
        key = repository_key(url)
    except ValueError as error:
        raise Flaw(f"is no URL ({error})") from None
    if not key.strip("/"):
        raise Flaw("names no repository")
    return url


def _read_metadata(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Flaw("should be an object")
    date = value.get("date_processed")
    try:
        if not isinstance(date, datetime):  # possible from a script
            datetime.fromisoformat(date)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise Flaw("should be the time of the trace, as in 2025-01-31T12:00:00", ".date_processed") from None
    return foreign(value)


def _write_metadata(metadata: Mapping[str, Any], _style: Style) -> dict[str, Any]:
    return {
        key: value.isoformat() if isinstance(value, datetime) else value for key, value in metadata.items()
    }


_NAME = Kind(_read_name)
_ORIGIN: Shape = {"url": Kind(_read_url), "commit": _NAME}
HEAD: Shape = {
    "url": _ORIGIN["url"],
    "name": _NAME,
    "commit": _NAME,
    "lean_version": _NAME,
    "lean_dojo_version": _NAME,
    "metadata": Kind(_read_metadata, _write_metadata),
    "pr_url": OPTIONAL,
}
"""The keys of a database's repository beside its lists and counts."""


def _check_origin(item: Any) -> None:
    # Its other keys are the metadata's, and checked there.
    read(_ORIGIN, {key: item[key] for key in _ORIGIN if key in item} if type(item) is dict else item)


def dataset_head(path: Path, metadata: Mapping[str, Any]) -> TraceHead:
    """Return the head of a dataset folder; `path` is of its metadata.json.

    Raises:
        ImportFormatError: it does not name the traced repository.
    """
    origin, repositories = metadata.get("from_repo"), metadata.get("repositories")
    place = "repositories"
    try:
        if not isinstance(repositories, list) or not repositories:
            place = ""
            if not isinstance(origin, dict):
                raise Flaw("says neither from_repo nor repositories, so what was traced is unknown")
            place, created = "from_repo", metadata.get("creation_time")
            _check_origin(origin)
            versions = {name.replace("leandojo", "lean_dojo"): value for name, value in metadata.items()}
            dated = {"date_processed": created} if isinstance(created, str) else {}
            repositories = [{**versions, **origin, "metadata": dated}]
        else:
            each(repositories, _check_origin)
    except Flaw as flaw:
        raise flaw.of(path, place) from None
    lines = [
        repository["metadata"] if isinstance(repository.get("metadata"), dict) else {}
        for repository in repositories
    ]
    if len(repositories) == 1:
        url, sha = repositories[0]["url"], repositories[0]["commit"]
        key, name = repository_key(url), "/".join(url.removesuffix(".git").rstrip("/").split("/")[-2:])
        dated = lines[0]
    else:
        dates = [line["date_processed"] for line in lines if isinstance(line.get("date_processed"), str)]
        dated = {"date_processed": max(dates)} if dates else {}
        parts = sorted({(repository["url"], repository["commit"]) for repository in repositories})
        digest = hashlib.sha256("\x1f".join(text for part in parts for text in part).encode()).hexdigest()
        key = url = name = f"{MERGED_HOST}/{digest[:12]}"
        sha = digest[:40]
    return TraceHead(
        repository=key,
        sha=sha,
        url=url,
        name=name,
        lean_version=_common(repository.get("lean_version") for repository in repositories),
        tracer=DATASET_TRACER,
        tracer_version=_common(repository.get("lean_dojo_version") for repository in repositories),
        source="import",
        metadata=dated,
    )


def _common(values: Iterable[Any]) -> str:
    result = {value if isinstance(value, str) and value else UNKNOWN for value in values}
    return result.pop() if len(result) == 1 else UNKNOWN
