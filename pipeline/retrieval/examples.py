"""What a dataset's split file has to learn from: tactic steps with the premises that they use.

Reads train.json, val.json and test.json of LeanDojo's datasets, one theorem at a time. A premise of a step is a
positive if the corpus has a declaration where the step says that it is defined.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.retrieval.corpus import Corpus
from pipeline.retrieval.errors import DatasetError, EmptySplitError
from pipeline.retrieval.text import query_text
from store.domain.records import Position, TracedTheorem
from store.errors import LogError
from store.leandojo.records import Flaw, ImportFormatError, items, theorem


@dataclass(frozen=True, slots=True)
class Example:
    """A tactic step: the query is its state before, `positives` are the premises that it uses.

    `proof` are those of the whole proof, its own among them. Both are indices of the corpus, ascending. `tactic` is
    the step's number in the proof, `start` where the theorem begins.
    """

    file_path: str
    full_name: str
    start: Position
    tactic: int
    query: str
    positives: tuple[int, ...]
    proof: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Examples:
    """The steps of a split file, in its order. `unplaced` counts uses of premises that the corpus does not have."""

    steps: tuple[Example, ...]
    theorems: int
    unplaced: int

    @property
    def with_premises(self) -> tuple[Example, ...]:
        """The steps that use a premise: all that can be trained or measured on."""
        return tuple(step for step in self.steps if step.positives)


def read_examples(path: Path, corpus: Corpus) -> Examples:
    """Read a split file.

    Raises:
        DatasetError: the file is not there, is no split file, or has a theorem of a file that the corpus does not
            have; EmptySplitError: it has no theorem.
    """
    steps: list[Example] = []
    theorems = unplaced = 0
    try:
        for number, data in enumerate(items(path)):
            try:
                file_path, proved = theorem(data, form="dataset")
            except Flaw as flaw:
                place = "".join((f"theorem {number}", *flaw.place))
                raise DatasetError(f"{path}: {place}: {flaw.reason}. Export the dataset again") from flaw
            if corpus.file(file_path) is None:
                # Nothing would be accessible to it: it could neither be learned nor measured.
                raise DatasetError(
                    f"{path}: theorem {number} ({proved.full_name}) is of {file_path}, which has no line in "
                    f"{corpus.source}. Export the dataset again, or add a line without premises for the file"
                )
            found, lost = _steps(file_path, proved, corpus)
            steps += found
            unplaced += lost
            theorems += 1
    except ImportFormatError as error:
        raise DatasetError(f"{path}: {error.place}: {error.reason}. Export the dataset again") from error
    except LogError as error:
        raise DatasetError(f"{error}") from error
    if theorems == 0:
        raise EmptySplitError(f"{path} has no theorem. Export the dataset again once theorems are traced")
    return Examples(tuple(steps), theorems, unplaced)


def _steps(file_path: str, proved: TracedTheorem, corpus: Corpus) -> tuple[list[Example], int]:
    used: list[tuple[int, ...]] = []
    unplaced = 0
    for step in proved.tactics:
        places = [corpus.locate(use.def_path, use.def_pos) for use in step.premises]
        unplaced += places.count(None)
        used.append(tuple(sorted({place for place in places if place is not None})))
    proof = tuple(sorted(set().union(*used)))
    return [
        Example(
            file_path=file_path,
            full_name=proved.full_name,
            start=proved.start,
            tactic=number,
            query=query_text(step.state_before),
            positives=positives,
            proof=proof,
        )
        for number, (step, positives) in enumerate(zip(proved.tactics, used, strict=True))
    ], unplaced
