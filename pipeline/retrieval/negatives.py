"""Draw premises that a step could have used and did not, in time that does not grow with the corpus.

As LeanDojo: of a pair's negatives at most `in_file` come from the file that defines the positive (if that is the
theorem's own, from before the theorem), the others are uniform over what else the theorem may use, none twice. What a
theorem may use is never listed: an index below its last accessible one is drawn until the file's bit says yes. Where
that would rarely happen, the imported files are laid end to end once, and a place on that line is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.corpus import Corpus
from pipeline.retrieval.examples import Example

_WORTH_REJECTING = 1 / 8
_FEW = 4
"""Times as many as are wanted: so few are shuffled, of more some are drawn until none is there twice."""
_AT_ONCE = 4
"""Random numbers that are made together, times as many as are wanted."""


@dataclass(frozen=True, slots=True)
class _Reach:
    """What a file's imports hold: `count` premises below index `upper`."""

    count: int
    upper: int


@dataclass(frozen=True, slots=True)
class _Line:
    """Imported files laid end to end: where on the line each ends, and its first index in the corpus."""

    ends: npt.NDArray[np.int64]
    firsts: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Without:
    """A sequence of indices as if the one at `skip` were not in it."""

    indices: Sequence[int] | npt.NDArray[np.intp]
    skip: int | None

    def __len__(self) -> int:
        return len(self.indices) - (self.skip is not None)

    def __getitem__(self, place: int) -> int:
        return int(self.indices[place + (self.skip is not None and place >= self.skip)])


class NegativeSampler:
    """Draws the negatives of (step, positive) pairs from a corpus.

    Keeps two numbers for each file asked about, and the line of those whose premises are scattered.
    """

    def __init__(self, corpus: Corpus, *, negatives: int, in_file: int) -> None:
        """Args:
            corpus: where to draw from.
            negatives: how many a pair gets.
            in_file: how many of them come from the positive's file, where it has so many.

        Raises:
            ValueError: not 0 <= in_file <= negatives.
        """
        if not 0 <= in_file <= negatives:
            raise ValueError(
                f"{in_file} in-file of {negatives} negatives: it takes 0 <= in-file <= negatives"
            )
        self.negatives = negatives
        self._in_file = in_file
        self._corpus = corpus
        self._sizes = np.array([len(file.premises) for file in corpus.files], dtype=np.int64)
        self._firsts = np.array([file.first for file in corpus.files], dtype=np.int64)
        self._reaches: dict[str, _Reach] = {}
        self._lines: dict[str, _Line] = {}

    def draw(self, example: Example, positive: int, rng: np.random.Generator) -> list[int]:
        """Return the indices of `self.negatives` premises, none the positive and none twice.

        Where the theorem may use fewer, those that there are come first and are then repeated; where it may use the
        positive alone, it is the positive itself, whose label says so.
        """
        home = int(self._corpus.file_of_premise[positive])
        own = self._corpus.before(example.file_path, example.start)
        near = self._near(example, positive, home, own)
        taken = [near[place] for place in _distinct(rng, len(near), self._in_file)]
        wanted = self.negatives - len(taken)
        if wanted:
            taken += self._far(example, home, own, wanted, rng)
        if len(taken) < self.negatives:
            more = [near[place] for place in _distinct(rng, len(near), self.negatives)]
            taken += [index for index in more if index not in taken][: self.negatives - len(taken)]
        known = taken or [positive]
        return [known[i % len(known)] for i in range(self.negatives)]

    def _near(self, example: Example, positive: int, home: int, own: npt.NDArray[np.intp]) -> _Without:
        """Return what the theorem may use of the positive's file, but for the positive."""
        file = self._corpus.files[home]
        if _is_of(example, file.path):
            place = int(np.searchsorted(own, positive))
            return _Without(own, place if place < len(own) and own[place] == positive else None)
        if self._corpus.imports(example.file_path, home):
            return _Without(range(file.first, file.first + len(file.premises)), positive - file.first)
        return _Without((), None)

    def _far(
        self, example: Example, home: int, own: npt.NDArray[np.intp], wanted: int, rng: np.random.Generator
    ) -> list[int]:
        """Return `wanted` of what the theorem may use outside the positive's file, or all where it is less."""
        path = example.file_path
        file = self._corpus.files[home]
        if _is_of(example, file.path):
            own = own[:0]
        reach = self._reach(path)
        size = len(file.premises) if self._corpus.imports(path, home) else 0
        imported, spread = reach.count - size, reach.upper - size
        total = imported + len(own)
        if total <= _FEW * wanted or imported < spread * _WORTH_REJECTING:
            line = self._line(path)
            # Where the positive's file begins on the line: what lies behind it is moved up.
            gap = int(line.ends[np.searchsorted(line.firsts, file.first)]) - size if size else imported
            return [
                int(own[place - imported])
                if place >= imported
                else _on(line, place + (size if place >= gap else 0))
                for place in _distinct(rng, total, wanted)
            ]
        found: list[int] = []
        for place in _endless(rng, spread + len(own), wanted):
            if place >= spread:
                index = int(own[place - spread])
            else:
                index = place + (size if place >= file.first else 0)
                if not self._corpus.imports(path, int(self._corpus.file_of_premise[index])):
                    continue
            if index not in found:
                found.append(index)
                if len(found) == wanted:
                    break
        return found

    def _reach(self, path: str) -> _Reach:
        if path not in self._reaches:
            numbers = self._imported(path)
            ends = self._firsts[numbers] + self._sizes[numbers]
            self._reaches[path] = _Reach(int(self._sizes[numbers].sum()), int(ends.max(initial=0)))
        return self._reaches[path]

    def _line(self, path: str) -> _Line:
        if path not in self._lines:
            numbers = self._imported(path)
            self._lines[path] = _Line(np.cumsum(self._sizes[numbers]), self._firsts[numbers])
        return self._lines[path]

    def _imported(self, path: str) -> npt.NDArray[np.intp]:
        """Return the numbers of the imported files that have a premise."""
        return np.flatnonzero(self._corpus.imported_files(path) & (self._sizes > 0))


def _is_of(example: Example, path: str) -> bool:
    return path == example.file_path.removeprefix("./")


def _on(line: _Line, place: int) -> int:
    """Return the index of what lies at a place on the line."""
    file = int(np.searchsorted(line.ends, place, side="right"))
    before = int(line.ends[file - 1]) if file else 0
    return int(line.firsts[file]) + place - before


def _distinct(rng: np.random.Generator, below: int, wanted: int) -> list[int]:
    """Return `wanted` different numbers from 0 to `below` - 1, or all of them where they are fewer, shuffled."""
    if not wanted or not below:
        return []
    if below <= _FEW * wanted:
        return [int(place) for place in rng.permutation(below)[:wanted]]
    found: dict[int, None] = {}
    for place in _endless(rng, below, wanted):
        found[place] = None
        if len(found) == wanted:
            break
    return list(found)


def _endless(rng: np.random.Generator, below: int, wanted: int) -> Iterator[int]:
    """Yield numbers from 0 to `below` - 1 without end, with repetition."""
    while True:
        yield from rng.integers(0, below, size=_AT_ONCE * wanted).tolist()
