"""Reading what an import is given, streamed and checked: a dynamic_database.json, or a dataset folder.

What becomes of it is `store.leandojo.heads`' business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from store.errors import LogError, translated
from store.leandojo.heads import HEAD_KEYS, REMEDY, database_head, dataset_head
from store.leandojo.jsonstream import ImportFormatError, JsonStream
from store.leandojo.records import (
    Flaw,
    Form,
    encoded,
    premise_file,
    refuse_deep,
    refuse_unusual,
    theorem,
    traced_path,
)
from store.leandojo.staging import Staging
from store.recording import TraceHead

DATABASE_FILE = "dynamic_database.json"
SPLITS = ("random", "novel_premises")
SIDES = ("train", "val", "test")
THEOREM_LISTS = ("proven_theorems", "sorry_theorems_proved", "sorry_theorems_unproved")

_NUMBERS = (
    "total_theorems",
    "num_proven_theorems",
    "num_sorry_theorems",
    "num_sorry_theorems_proved",
    "num_sorry_theorems_unproved",
    "num_premise_files",
    "num_premises",
    "num_files_traced",
)

Progress = Callable[[int, int], object]
"""Called with bytes read so far and bytes in all."""


@dataclass(frozen=True, slots=True)
class Record:
    """One trace to be: its head, its number in the staging, and what its manifest says beside the order."""

    number: int
    place: str
    head: TraceHead
    form: Form
    metadata: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Read:
    """What was read and staged. `beside` holds unknown keys next to "repositories"; `notes` are for people."""

    path: Path
    form: Form
    records: tuple[Record, ...]
    beside: Mapping[str, Any]
    notes: tuple[str, ...]


def read(path: Path, staging: Staging, *, progress: Progress | None = None) -> Read:
    """Read a file or a folder into the staging.

    A folder with a dynamic_database.json (as our own export makes it) is read as that file, which says more than the
    dataset beside it.

    Raises:
        ImportFormatError: it is not what LeanDojo writes.
        LogError: it cannot be read, or the temporary file cannot be written.
    """
    if not path.is_dir():
        return _Reader(staging, progress, total=_size(path)).database(path)
    database = path / DATABASE_FILE
    if database.is_file():
        found = _Reader(staging, progress, total=_size(database)).database(database)
        if not (path / "metadata.json").is_file():
            return found
        note = f"{database} was read, which says more than the dataset beside it; that follows from it"
        return Read(found.path, found.form, found.records, found.beside, (*found.notes, note))
    if not (path / "metadata.json").is_file():
        raise ImportFormatError(
            path,
            "",
            f"neither metadata.json nor {DATABASE_FILE} is in this folder",
            remedy="name a folder that has one of them, as LeanDojo writes it",
        )
    files = [*_split_files(path).values(), path / "corpus.jsonl", path / "traced_files.jsonl"]
    return _Reader(staging, progress, total=sum(_size(file) for file in files if file.is_file())).folder(path)


class _Reader:
    """One reading: where it writes to, how far it has come, what is to be noted."""

    def __init__(self, staging: Staging, progress: Progress | None, *, total: int) -> None:
        self._staging = staging
        self._progress = progress
        self._total = total
        self._before = 0  # bytes of the files that are done
        self._notes: list[str] = []

    def database(self, path: Path) -> Read:
        records: list[Record] = []
        beside: dict[str, Any] = {}
        found = False
        with self._open(path) as stream:
            for key in stream.members():
                if key != "repositories":
                    beside[key] = _plain_value(stream, key)
                    continue
                found = True
                for index in stream.items():
                    record = self._repository(stream, f"repositories[{index}]")
                    same = next((old for old in records if old.head.trace == record.head.trace), None)
                    if same is not None:
                        reason = f"has url, commit, Lean version and LeanDojo version of {same.place}"
                        _refuse(
                            stream, record.place, Flaw(reason), remedy="take one of the two out of the file"
                        )
                    records.append(record)
            stream.end()
            if not found:
                remedy = f"name a {DATABASE_FILE} of LeanDojo-v2 or LeanAgent, or a dataset's folder"
                _refuse(stream, "repositories", Flaw("is missing"), remedy=remedy)
        return Read(path, "database", tuple(records), beside, tuple(self._notes))

    def folder(self, path: Path) -> Read:
        metadata = self._metadata(path / "metadata.json")
        splits = _split_files(path)
        if not splits:
            raise ImportFormatError(
                path,
                "",
                "neither random/ nor novel_premises/ holds a .json file",
                remedy="name the folder that has them beside metadata.json",
            )
        number = self._staging.add_record()
        for name, file in splits.items():
            self._staging.add_list(number, name)
            with self._open(file) as stream:
                self._theorems(stream, number, name, place="", form="dataset")
                stream.end()
        self._lines(path / "corpus.jsonl", lambda data: self._premise_file(number, data))
        self._lines(
            path / "traced_files.jsonl", lambda data: self._staging.add_traced(number, traced_path(data))
        )
        head = dataset_head(path / "metadata.json", metadata)
        record = Record(number=number, place=str(path), head=head, form="dataset", metadata=metadata)
        return Read(path, "dataset", (record,), {}, tuple(self._notes))

    def _repository(self, stream: JsonStream, place: str) -> Record:
        number = self._staging.add_record()
        plain: dict[str, Any] = {}
        for key in stream.members():
            where = f"{place}.{key}"
            if key in THEOREM_LISTS:
                self._staging.add_list(number, key)
                self._theorems(stream, number, key, place=where, form="database")
            elif key == "premise_files":
                for index in stream.items():
                    self._add(
                        stream, f"{where}[{index}]", lambda data: self._premise_file(number, data), but=None
                    )
            elif key == "files_traced":
                for index in stream.items():
                    self._add(stream, f"{where}[{index}]", lambda data: self._traced(number, data), but=None)
            else:
                plain[key] = _plain_value(stream, where)
        lengths = self._staging.lengths(number)
        if not any(name in lengths for name in THEOREM_LISTS):
            remedy = "name a database file; of a merged dataset name the folder, not its metadata.json"
            _refuse(stream, f"{place}.proven_theorems", Flaw("is missing"), remedy=remedy)
        for name in THEOREM_LISTS:
            self._staging.add_list(number, name)
        try:
            head = database_head(plain)
        except Flaw as flaw:
            _refuse(stream, place, flaw)
        self._compare_numbers(place, number, plain)
        known = {*HEAD_KEYS, *_NUMBERS, "metadata", "pr_url"}
        extra = {key: value for key, value in plain.items() if key not in known}
        return Record(number=number, place=place, head=head, form="database", extra=extra)

    def _theorems(self, stream: JsonStream, record: int, name: str, *, place: str, form: Form) -> None:
        def add(data: Any) -> None:
            path, made = theorem(data, form=form)
            self._staging.add_theorem(record, name, path, made)

        but = "difficulty_rating" if form == "database" else None
        for index in stream.items():
            self._add(stream, f"{place}[{index}]", add, but=but)

    def _premise_file(self, record: int, data: Any) -> None:
        self._staging.add_premise_file(record, premise_file(data))

    def _traced(self, record: int, data: Any) -> None:
        if not isinstance(data, str):
            raise Flaw("should be a string, the path of a file")
        self._staging.add_traced(record, data)

    def _lines(self, path: Path, add: Callable[[Any], None]) -> None:
        if not path.is_file():
            self._notes.append(f"{path} is not there: taken as empty")
            return
        with self._open(path) as stream:
            while stream.peek():
                self._add(stream, "", add, but=None)

    @staticmethod
    def _add(stream: JsonStream, place: str, add: Callable[[Any], None], *, but: str | None) -> None:
        """Take the value that stands there; `but` is the key that may hold Infinity."""
        data = stream.value()
        try:
            if stream.unusual:
                refuse_unusual(data, but=but)
            add(data)
        except Flaw as flaw:
            _refuse(stream, place, flaw)

    def _metadata(self, path: Path) -> dict[str, Any]:
        with JsonStream(path) as stream:
            metadata = _plain_value(stream, "")
            stream.end()
            if not isinstance(metadata, dict):
                _refuse(stream, "", Flaw("should be an object"))
            return metadata

    def _open(self, path: Path) -> JsonStream:
        before = self._before
        self._before += _size(path)
        progress = self._progress
        if progress is None:
            return JsonStream(path)
        return JsonStream(path, progress=lambda n_bytes: progress(before + n_bytes, self._total))

    def _compare_numbers(self, place: str, record: int, plain: Mapping[str, Any]) -> None:
        lengths = self._staging.lengths(record)
        proven, proved, unproved = (lengths[name] for name in THEOREM_LISTS)
        actual = (
            proven + proved + unproved,
            proven,
            proved + unproved,
            proved,
            unproved,
            lengths["premise_files"],
            self._staging.counts(record).premises,
            lengths["files_traced"],
        )
        for name, number in zip(_NUMBERS, actual, strict=True):
            if name in plain and plain[name] != number:
                self._notes.append(
                    f"{place}.{name} says {plain[name]}, but the file has {number}: the lists count"
                )


def _plain_value(stream: JsonStream, place: str) -> Any:
    value = stream.value()
    try:
        if stream.unusual:
            refuse_unusual(value)
        refuse_deep(value)
        encoded(value)
    except Flaw as flaw:
        _refuse(stream, place, flaw)
    return value


def _refuse(stream: JsonStream, place: str, flaw: Flaw, *, remedy: str = REMEDY) -> NoReturn:
    named = (place + "".join(flaw.place)).lstrip(".")
    where = f"{named} ({stream.where()})" if named else stream.where()
    raise ImportFormatError(stream.path, where, flaw.reason, remedy=remedy) from None


def _split_files(folder: Path) -> dict[str, Path]:
    """The files of the splits by the name of their list, such as "random/train"; train, val and test first."""
    found: dict[str, Path] = {}
    for split in SPLITS:
        files = sorted(
            (folder / split).glob("*.json"),
            key=lambda file: (SIDES.index(file.stem) if file.stem in SIDES else len(SIDES), file.stem),
        )
        found |= {f"{split}/{file.stem}": file for file in files}
    return found


def _size(path: Path) -> int:
    with translated(path):
        return path.stat().st_size


__all__ = ["ImportFormatError", "LogError", "Read", "Record", "read"]
