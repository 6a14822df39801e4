"""The theorems of several repositories in one dataset: which are the same, and in which file each belongs.

A `Merger` is told of every theorem once and answers at the end with the numbers of each list, "random/train" and so
on, in their order. The numbers are those of the spool that holds the records.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from store.domain.splits import SIDES, SPLITS
from store.leandojo import compat
from store.leandojo.choosing import Chosen
from store.leandojo.opened import TheoremFacts

LISTS = tuple(f"{split}/{side}" for split in SPLITS for side in SIDES)


class Merger(Protocol):
    """How theorems come together."""

    def add(
        self, chosen: Chosen, path: str, data: Mapping[str, Any], facts: TheoremFacts, number: int, /
    ) -> None:
        """Take a theorem of a trace, whose file is called `path` in the export and whose record has this number."""

    def end_of_trace(self, lists: Sequence[Sequence[int]], /) -> None:
        """Learn the numbers of a trace's proven theorems, its proved sorrys and its other sorrys, in order."""

    def lists(self) -> Iterator[tuple[str, Sequence[int]]]:
        """Yield each list of the dataset by its name."""


class ForLife:
    """Each theorem on the side where it stands for life, once.

    Of one that several commits of a repository have, known by its name and statement, or several repositories in what
    is the same file to all of them, the record traced last is taken. `shared` are the paths that several traces have;
    `repeated` the repositories of which there are several.
    """

    def __init__(self, *, shared: frozenset[str], repeated: frozenset[str]) -> None:
        self._shared = shared
        self._repeated = repeated
        self._numbers = array("Q")
        self._sides = [array("b") for _ in SPLITS]
        self._places: dict[tuple[Any, ...], tuple[int, int]] = {}  # (our number, when it was traced)

    def add(
        self, chosen: Chosen, path: str, data: Mapping[str, Any], facts: TheoremFacts, number: int, /
    ) -> None:
        """See `Merger.add`."""
        keys = self._keys(chosen, path, data, facts)
        seq = chosen.row.seq
        found = next((self._places[key] for key in keys if key in self._places), None)
        if found is None or found[1] == seq:  # within one trace two of a kind are two
            place = len(self._numbers)
            self._numbers.append(number)
            for sides, side in zip(self._sides, facts.sides, strict=True):
                sides.append(_side_number(side))
        elif found[1] > seq:
            return
        else:
            place = found[0]
            self._numbers[place] = number
            for sides, side in zip(self._sides, facts.sides, strict=True):
                sides[place] = _side_number(side)
        for key in keys:
            self._places[key] = (place, seq)

    def end_of_trace(self, _lists: Sequence[Sequence[int]], /) -> None:
        """Nothing: the order is that in which they came."""

    def lists(self) -> Iterator[tuple[str, Sequence[int]]]:
        """See `Merger.lists`."""
        for split, sides in zip(SPLITS, self._sides, strict=True):
            for code, side in enumerate(SIDES):
                numbers = (
                    number for number, found in zip(self._numbers, sides, strict=True) if found == code
                )
                yield f"{split}/{side}", array("Q", numbers)

    def withheld(self) -> dict[str, int]:
        """Count the theorems that are in no file, by split."""
        return {split: sides.count(-1) for split, sides in zip(SPLITS, self._sides, strict=True)}

    def _keys(
        self, chosen: Chosen, path: str, data: Mapping[str, Any], facts: TheoremFacts
    ) -> list[tuple[Any, ...]]:
        keys: list[tuple[Any, ...]] = []
        name = data["full_name"]
        if chosen.row.repository in self._repeated:
            keys.append((chosen.row.repository, name, facts.split_key))
        if path in self._shared:
            keys.append((path, name, *data["start"], *data["end"]))
        return keys


class AsLeanDojo:
    """LeanDojo-v2's own merge and its splits, drawn anew at each export."""

    def __init__(self) -> None:
        self._of_trace: dict[int, compat.CompatTheorem[int]] = {}
        self._all: list[compat.CompatTheorem[int]] = []

    def add(
        self, chosen: Chosen, path: str, data: Mapping[str, Any], _facts: TheoremFacts, number: int, /
    ) -> None:
        """See `Merger.add`."""
        self._of_trace[number] = compat.CompatTheorem(
            full_name=data["full_name"],
            file_path=path,
            start=(data["start"][0], data["start"][1]),
            end=(data["end"][0], data["end"][1]),
            premises=tuple(
                use["full_name"] for step in data["traced_tactics"] for use in step["annotated_tactic"][1]
            ),
            processed=chosen.head["metadata"]["date_processed"],
            item=number,
        )

    def end_of_trace(self, lists: Sequence[Sequence[int]], /) -> None:
        """Put the trace's theorems behind each other as theirs does."""
        self._all += [self._of_trace[number] for numbers in lists for number in numbers]
        self._of_trace = {}

    def lists(self) -> Iterator[tuple[str, Sequence[int]]]:
        """See `Merger.lists`."""
        for split, sides in compat.split(self._all).items():
            for side, theorems in sides.items():
                yield f"{split}/{side}", [theorem.item for theorem in theorems]


def _side_number(side: str | None) -> int:
    return -1 if side is None else SIDES.index(side)
