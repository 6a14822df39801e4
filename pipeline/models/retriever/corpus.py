"""The premises of a dataset, file by file, and those a theorem may use.

A theorem may use the premises of all files its file imports, directly or not, and those of its own file that end before
it begins. A file's imports are a row of bits, one a file. Reads `corpus.jsonl` of LeanDojo's datasets. NumPy; no torch.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from pipeline.models.datasets import Position
from pipeline.models.errors import DatasetError, flaw_of
from pipeline.models.text import document_text

Bits = npt.NDArray[np.uint8]
_AGAIN = "Export the dataset again"


@dataclass(frozen=True, slots=True)
class Premise:
    """A declaration for use in proofs: a document of the retriever. Positions are (line, column) from 1."""

    path: str
    full_name: str
    start: Position
    end: Position
    code: str

    def serialize(self) -> str:
        """Return the text to embed (`pipeline.models.text.document_text`)."""
        return document_text(self.full_name, self.code)


@dataclass(frozen=True, slots=True)
class _Declaration:
    full_name: str | None
    start: Position
    end: Position
    code: str


@dataclass(frozen=True, slots=True)
class _Line:
    path: str
    imports: tuple[str, ...]
    premises: tuple[_Declaration, ...]


_LINE = TypeAdapter(_Line)


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """A file and its range of premises in the corpus: `first` to `first + len(premises)`."""

    path: str
    premises: tuple[Premise, ...]
    imports: tuple[str, ...]
    first: int

    @property
    def own(self) -> slice:
        """That range."""
        return slice(self.first, self.first + len(self.premises))


class Corpus:
    """Premises in the order of their files; a premise's index is its row in every embedding matrix."""

    def __init__(self, jsonl_path: str | Path) -> None:
        """Read a `corpus.jsonl`: one file a line, {"path", "imports", "premises"}; any order of the files.

        Of two premises of a file with the same name and start the first counts: for LeanDojo they are equal.

        Raises:
            DatasetError: the file cannot be read, a line is no file's record, a path has two lines, an import has no
                line, or files import each other in a circle.
        """
        self.source = Path(jsonl_path)
        self._files: dict[str, int] = {}
        self.files: list[CorpusFile] = []
        self._premises: list[Premise] = []
        try:
            with self.source.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    self._add(line, f"{self.source}: line {number}")
        except OSError as error:
            raise DatasetError(
                f"{self.source} cannot be read ({error.strerror}). Name the corpus.jsonl of an exported dataset"
            ) from error
        self._lay_out()

    def _lay_out(self) -> None:
        self._closures = self._close()
        sizes = np.array([len(file.premises) for file in self.files], dtype=np.intp)
        self.file_of_premise: npt.NDArray[np.int32] = np.repeat(
            np.arange(len(self.files), dtype=np.int32), sizes
        )
        """The file's number of each premise: int32, shape (len(self),)."""
        self._starts = _keys(premise.start for premise in self._premises)
        self._ends = _keys(premise.end for premise in self._premises)

    def __len__(self) -> int:
        return len(self._premises)

    def __getitem__(self, index: int) -> Premise:
        return self._premises[index]

    def __iter__(self) -> Iterator[Premise]:
        return iter(self._premises)

    def file(self, path: str) -> CorpusFile | None:
        """Return a file by its path ("./A.lean" is "A.lean"); None if the corpus does not have it."""
        number = self._files.get(path.removeprefix("./"))
        return None if number is None else self.files[number]

    def imported_files(self, path: str) -> npt.NDArray[np.bool_]:
        """Return the mask of a file's imports, direct or not: bool, shape (len(self.files),)."""
        number = self._files.get(path.removeprefix("./"))
        if number is None:
            return np.zeros(len(self.files), dtype=np.bool_)
        return np.unpackbits(self._closures[number], count=len(self.files)).astype(np.bool_)

    def before(self, path: str, pos: Position) -> npt.NDArray[np.intp]:
        """Return the indices of a file's own premises ending at `pos` or earlier, ascending."""
        file = self.file(path)
        if file is None:
            return np.empty(0, dtype=np.intp)
        return file.first + np.flatnonzero(self._ends[file.own] <= _key(pos))

    def accessible(
        self, path: str, pos: Position, indices: slice | npt.NDArray[np.intp] = slice(None)
    ) -> npt.NDArray[np.bool_]:
        """Return the mask of the premises, or of some, accessible to a theorem at `pos` of a file."""
        files = self.file_of_premise[indices]
        number = self._files.get(path.removeprefix("./"), -1)
        at_home: npt.NDArray[np.bool_] = (files == number) & (self._ends[indices] <= _key(pos))
        return self.imported_files(path)[files] | at_home

    def locate(self, path: str, pos: Position) -> int | None:
        """Return the index of the first premise of a file around `pos`; None if there is none."""
        file = self.file(path)
        if file is None:
            return None
        around = (self._starts[file.own] <= _key(pos)) & (_key(pos) <= self._ends[file.own])
        return next((file.first + int(place) for place in np.flatnonzero(around)), None)

    def only(self, indices: Sequence[int], paths: Collection[str]) -> Corpus:
        """Return the corpus of some of its premises, in the same order, with their files and those at some paths.

        A theorem of one of the files may use the same premises as here, as far as they are left.
        """
        kept = set(indices)
        named = {path.removeprefix("./") for path in paths}
        premises = [
            tuple(one for index, one in enumerate(file.premises, file.first) if index in kept)
            for file in self.files
        ]
        stays = np.array(
            [bool(own) or file.path in named for own, file in zip(premises, self.files, strict=True)],
            dtype=np.bool_,
        )
        cut = Corpus.__new__(Corpus)
        cut.source, cut._files, cut.files, cut._premises = self.source, {}, [], []
        for number in np.flatnonzero(stays):
            path = self.files[number].path
            # A file may import another through one left out.
            imports = np.flatnonzero(self.imported_files(path) & stays)
            cut._put(path, premises[number], tuple(self.files[other].path for other in imports))
        cut._lay_out()
        return cut

    def _add(self, line: bytes, where: str) -> None:
        try:
            record = _LINE.validate_python(json.loads(line.strip()))
        except (ValueError, RecursionError) as error:
            raise DatasetError(
                f"{where}{flaw_of(error)}. Is it a corpus.jsonl of a LeanDojo dataset? {_AGAIN}"
            ) from error
        if record.path in self._files:
            raise DatasetError(
                f"{where}: {record.path} has a line already (line {self._files[record.path] + 1}); each path has "
                f"one. {_AGAIN}"
            )
        self._put(record.path, tuple(_documents(record)), record.imports)

    def _put(self, path: str, premises: tuple[Premise, ...], imports: tuple[str, ...]) -> None:
        self._files[path] = len(self.files)
        self.files.append(CorpusFile(path, premises, imports, len(self._premises)))
        self._premises.extend(premises)

    def _close(self) -> Bits:
        """Return each file's imports as bits, most significant first: uint8, shape (n, ceil(n / 8))."""
        n = len(self.files)
        closures: Bits = np.zeros((n, (n + 7) // 8), dtype=np.uint8)
        for number in self._imports_first():
            row = closures[number]
            for path in self.files[number].imports:
                other = self._files[path]
                row |= closures[other]
                row[other >> 3] |= 128 >> (other & 7)
        return closures

    def _imports_first(self) -> Iterable[int]:
        graph: dict[int, list[int]] = {}
        for number, file in enumerate(self.files):
            for path in file.imports:
                if path not in self._files:
                    raise DatasetError(
                        f"{self.source}: line {number + 1}: {file.path} imports {path}, which has no line. {_AGAIN}, "
                        "or add a line without premises for it"
                    )
            graph[number] = [self._files[path] for path in file.imports]
        try:
            return [*TopologicalSorter(graph).static_order()]
        except CycleError as error:
            circle = " -> ".join(self.files[number].path for number in reversed(error.args[1]))
            raise DatasetError(
                f"{self.source}: files import each other in a circle: {circle}. Lean allows no such thing: trace the "
                "commit again, then export"
            ) from None


def _documents(record: _Line) -> Iterator[Premise]:
    """Yield a file's premises, without those that are no documents, as LeanDojo's loader."""
    seen: set[tuple[str, Position]] = set()
    for one in record.premises:
        name = one.full_name
        # Nameless, empty, half-parsed ones and `mutual` blocks.
        if (
            name is None
            or one.code == ""
            or "user__.n" in name
            or (name.startswith("[") and name.endswith("]"))
        ):
            continue
        if (name, one.start) not in seen:
            seen.add((name, one.start))
            yield Premise(record.path, name, one.start, one.end, one.code)


def _key(pos: Position) -> int:
    """Return a number in the order of positions."""
    line, column = pos
    return (line << 32) + column


def _keys(positions: Iterable[Position]) -> npt.NDArray[np.int64]:
    return np.fromiter(map(_key, positions), dtype=np.int64)
