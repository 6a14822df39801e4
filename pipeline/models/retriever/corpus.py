"""The premises of a dataset, file by file, and those a theorem may use.

A theorem may use the premises of all files its file imports, directly or not, and those of its own file that end before
it begins. A file's imports are a row of bits, one a file. Reads `corpus.jsonl` of LeanDojo's datasets. NumPy; no torch.
"""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.models.datasets import Position
from pipeline.models.errors import CorpusError
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
class CorpusFile:
    """A file and its range of premises in the corpus: `first` to `first + len(premises)`."""

    path: str
    premises: tuple[Premise, ...]
    imports: tuple[str, ...]
    first: int


class Corpus:
    """Premises in the order of their files; a premise's index is its row in every embedding matrix."""

    def __init__(self, jsonl_path: str | Path) -> None:
        """Read a `corpus.jsonl`: one file a line, {"path", "imports", "premises"}; any order of the files.

        Of two premises of a file with the same name and start the first counts: for LeanDojo they are equal.

        Raises:
            CorpusError: the file cannot be read, a line is no file's record, a path has two lines, an import has no
                line, or files import each other in a circle.
        """
        self.source = Path(jsonl_path)
        self._files: dict[str, int] = {}
        self.files: list[CorpusFile] = []
        self.all_premises: list[Premise] = []
        try:
            with self.source.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    self._add(line, f"{self.source}: line {number}")
        except OSError as error:
            raise CorpusError(
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
        self._ends: npt.NDArray[np.int64] = np.array(
            [premise.end for premise in self.all_premises], dtype=np.int64
        ).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self.all_premises)

    def __getitem__(self, index: int) -> Premise:
        return self.all_premises[index]

    def __contains__(self, path: object) -> bool:
        return path in self._files

    def __iter__(self) -> Iterator[Premise]:
        return iter(self.all_premises)

    @property
    def num_files(self) -> int:
        return len(self.files)

    def file(self, path: str) -> CorpusFile | None:
        """Return a file by its path ("./A.lean" is "A.lean"); None if the corpus does not have it."""
        number = self._files.get(path.removeprefix("./"))
        return None if number is None else self.files[number]

    def get_premises(self, path: str) -> Sequence[Premise]:
        """Return the premises of a file in its order; none for an unknown file."""
        file = self.file(path)
        return () if file is None else file.premises

    def get_dependencies(self, path: str) -> list[str]:
        """Return the paths of a file's imports, direct or not; none for an unknown file."""
        return [self.files[number].path for number in np.flatnonzero(self.imported_files(path))]

    def imported_files(self, path: str) -> npt.NDArray[np.bool_]:
        """Return the mask of a file's imports, direct or not: bool, shape (num_files,)."""
        number = self._files.get(path.removeprefix("./"))
        if number is None:
            return np.zeros(len(self.files), dtype=np.bool_)
        return np.unpackbits(self._closures[number], count=len(self.files)).astype(np.bool_)

    def before(self, path: str, pos: Position) -> npt.NDArray[np.intp]:
        """Return the indices of a file's own premises ending at `pos` or earlier, ascending."""
        file = self.file(path)
        if file is None:
            return np.empty(0, dtype=np.intp)
        own = slice(file.first, file.first + len(file.premises))
        return file.first + np.flatnonzero(_not_after(self._ends[own], pos))

    def accessible(self, path: str, pos: Position) -> npt.NDArray[np.bool_]:
        """Return the mask of the premises accessible to a theorem at `pos` of a file: bool, shape (len(self),)."""
        mask: npt.NDArray[np.bool_] = self.imported_files(path)[self.file_of_premise]
        mask[self.before(path, pos)] = True
        return mask

    def accessible_of(self, path: str, pos: Position, indices: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """Return the mask of `indices` accessible to a theorem at `pos` of a file: bool, shape (len(indices),)."""
        number = self._files.get(path.removeprefix("./"))
        if number is None:
            return np.zeros(len(indices), dtype=np.bool_)
        files = self.file_of_premise[indices]
        imported = self._closures[number, files >> 3] >> (7 - (files & 7)) & 1
        allowed: npt.NDArray[np.bool_] = imported.astype(np.bool_)
        allowed |= (files == number) & _not_after(self._ends[indices], pos)
        return allowed

    def get_accessible_premises(self, path: str, pos: Position) -> list[Premise]:
        return [self.all_premises[index] for index in np.flatnonzero(self.accessible(path, pos))]

    def locate(self, path: str, pos: Position) -> int | None:
        """Return the index of the first premise of a file around `pos`; None if there is none."""
        file = self.file(path)
        if file is None:
            return None
        starts = self._starts[file.path]
        if starts is not None:
            at = bisect.bisect_right(starts, pos) - 1
            return file.first + at if at >= 0 and pos <= file.premises[at].end else None
        return next(
            (
                file.first + i
                for i, premise in enumerate(file.premises)
                if premise.start <= pos <= premise.end
            ),
            None,
        )

    @cached_property
    def _starts(self) -> dict[str, list[Position] | None]:
        """The starts of each file's premises; None if premises overlap."""
        return {
            file.path: [premise.start for premise in file.premises] if _apart(file.premises) else None
            for file in self.files
        }

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
        cut.source, cut._files, cut.files, cut.all_premises = self.source, {}, [], []
        for number in np.flatnonzero(stays):
            path = self.files[number].path
            # A file may import another through one left out.
            imports = np.flatnonzero(self.imported_files(path) & stays)
            cut._put(path, premises[number], tuple(self.files[other].path for other in imports))
        cut._lay_out()
        return cut

    def _add(self, line: bytes, where: str) -> None:
        record = _record(line, where)
        path = record["path"]
        if path in self._files:
            raise CorpusError(
                f"{where}: {path} has a line already (line {self._files[path] + 1}); each path has one. {_AGAIN}"
            )
        self._put(path, tuple(_premises(record, path, where)), tuple(record["imports"]))

    def _put(self, path: str, premises: tuple[Premise, ...], imports: tuple[str, ...]) -> None:
        self._files[path] = len(self.files)
        self.files.append(CorpusFile(path, premises, imports, len(self.all_premises)))
        self.all_premises.extend(premises)

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
                    raise CorpusError(
                        f"{self.source}: line {number + 1}: {file.path} imports {path}, which has no line. {_AGAIN}, "
                        "or add a line without premises for it"
                    )
            graph[number] = [self._files[path] for path in file.imports]
        try:
            return [*TopologicalSorter(graph).static_order()]
        except CycleError as error:
            circle = " -> ".join(self.files[number].path for number in reversed(error.args[1]))
            raise CorpusError(
                f"{self.source}: files import each other in a circle: {circle}. Lean allows no such thing: trace the "
                "commit again, then export"
            ) from None


def _record(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line.strip())
    except (ValueError, RecursionError) as error:
        reason = (
            f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        )
        raise CorpusError(
            f"{where}: no JSON ({reason}). Is it a corpus.jsonl of a LeanDojo dataset?"
        ) from error
    if not (
        isinstance(record, dict)
        and isinstance(record.get("path"), str)
        and isinstance(record.get("imports"), list)
        and all(isinstance(path, str) for path in record["imports"])
        and isinstance(record.get("premises"), list)
    ):
        raise CorpusError(
            f'{where}: no file\'s record; it needs "path", "imports" and "premises": a text, a list of paths, a list. '
            f"{_AGAIN}"
        )
    return record


def _premises(record: dict[str, Any], path: str, where: str) -> Iterator[Premise]:
    seen: set[tuple[str, Position]] = set()
    for number, data in enumerate(record["premises"], start=1):
        try:
            name, code = data["full_name"], data["code"]
            # As LeanDojo's loader: nameless, empty, half-parsed ones and `mutual` blocks are no documents.
            if (
                name is None
                or code == ""
                or "user__.n" in name
                or (name.startswith("[") and name.endswith("]"))
            ):
                continue
            if not isinstance(code, str):
                raise TypeError(f"its code is {code!r}, which is no text")
            start, end = _position(data["start"]), _position(data["end"])
            if end < start:
                raise ValueError(f"it ends at {end}, before it begins at {start}")
        except KeyError as error:
            raise CorpusError(f"{where}: premise {number} of {path} has no {error}. {_AGAIN}") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise CorpusError(
                f"{where}: premise {number} of {path} cannot be read ({error}). {_AGAIN}"
            ) from error
        if (name, start) not in seen:
            seen.add((name, start))
            yield Premise(path, name, start, end, code)


def _position(value: object) -> Position:
    match value:
        case [int(line), int(column)]:
            return line, column
    raise ValueError(f"{value!r} is no position; it needs [line, column]")


def _not_after(ends: npt.NDArray[np.int64], pos: Position) -> npt.NDArray[np.bool_]:
    """Return the mask of the (line, column) pairs up to `pos`."""
    line, column = pos
    before: npt.NDArray[np.bool_] = (ends[:, 0] < line) | ((ends[:, 0] == line) & (ends[:, 1] <= column))
    return before


def _apart(premises: Sequence[Premise]) -> bool:
    return all(one.end < other.start for one, other in itertools.pairwise(premises))
