"""Premises for goals at their places, by words, a trained retriever, or both. Imports no torch without a retriever.

As in training, a theorem may use the premises of all files its file imports, and those above it in its own: never
itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.models.datasets import Position
from pipeline.models.retriever.baselines import BM25, FUSED, fused
from pipeline.models.retriever.corpus import Corpus, Premise
from pipeline.models.text import query_text

if TYPE_CHECKING:
    from pipeline.models.retriever.index import Retriever

_PLACES = 64


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a goal's theorem.

    Attributes:
        path: of its file, as in the corpus; None: no file.
        position: of its beginning: (line, column) from 1; None: no premise of its own file counts.
        name: its full name. A theorem of that file in the corpus keeps its traced position, however lines have
            moved since.
        imports: modules its file imports, for a file missing in the corpus. None, with a path of None: every premise
            counts.
    """

    path: str | None = None
    position: Position | None = None
    name: str = ""
    imports: tuple[str, ...] | None = None


_NOWHERE = (0, 0)
"""Before every premise of a file."""


def accessible(corpus: Corpus, place: Place) -> npt.NDArray[np.bool_]:
    """Return a mask of the premises accessible to a theorem at a place: bool, shape (len(corpus),)."""
    file = None if place.path is None else corpus.file(place.path)
    if file is not None:
        traced = (premise.start for premise in file.premises if premise.full_name == place.name)
        return corpus.accessible(file.path, next(traced, place.position) or _NOWHERE)
    if place.imports is None and place.path is None:
        return np.ones(len(corpus), dtype=np.bool_)
    files = np.zeros(len(corpus.files), dtype=np.bool_)
    targets = {f"{module.replace('.', '/')}.lean" for module in place.imports or ()}
    for number, file in enumerate(corpus.files):
        # A library's files are below its own folder: ".lake/packages/mathlib/Mathlib/Order/Basic.lean".
        parts = file.path.split("/")
        if any("/".join(parts[at:]) in targets for at in range(len(parts))):
            files |= corpus.imported_files(file.path)
            files[number] = True
    result: npt.NDArray[np.bool_] = files[corpus.file_of_premise]
    return result


class Finder:
    """Finds the premises of goals in one corpus: by words, by a retriever, or by both. For one thread at a time."""

    def __init__(
        self,
        corpus: Corpus,
        *,
        premises: int = 10,
        retriever: Retriever | None = None,
        words: bool = True,
        indices: Path | None = None,
    ) -> None:
        """Embed the new premises of the corpus, if there is a retriever.

        Args:
            corpus: of the premises.
            premises: the number for a goal.
            retriever: a trained one; None: BM25 alone finds them.
            words: whether BM25's rankings are fused with the retriever's.
            indices: the folder of embedding indices; None: embeddings are not stored.

        Raises:
            LearningError: the index cannot be written, or the weights are damaged.
        """
        self.corpus = corpus
        self._premises = premises
        self._allowed = lru_cache(maxsize=_PLACES)(lambda place: accessible(corpus, place))
        self._words = BM25(corpus) if words or retriever is None else None
        self._retriever = retriever
        if retriever is not None:
            self._vectors = retriever.premises(corpus, indices)

    def find(self, asked: Sequence[tuple[str, Place]]) -> list[tuple[Premise, ...]]:
        """Return the premises of each (state, place), best first; if a theorem may use fewer, all of those.

        Raises:
            DivergedError: the retriever's weights are damaged.
        """
        ranked = self.rank(asked, self._premises)
        return [tuple(self.corpus[number] for number in numbers) for numbers in ranked]

    def rank(self, asked: Sequence[tuple[str, Place]], k: int) -> list[list[int]]:
        """Return the numbers of the k best premises of each (state, place), the best first.

        Raises:
            DivergedError: the retriever's weights are damaged.
        """
        if self._words is None:
            return self._nearest(asked, k)
        deep = k if self._retriever is None else FUSED
        result = [self._words.rank(query_text(state), self._allowed(place), deep) for state, place in asked]
        if self._retriever is None:
            return result
        both = zip(result, self._nearest(asked, deep), strict=True)
        return [[*fused(rankings, k)] for rankings in both]

    def _nearest(self, asked: Sequence[tuple[str, Place]], k: int) -> list[list[int]]:
        assert self._retriever is not None
        queries = ((query_text(state), self._allowed(place)) for state, place in asked)
        return self._retriever.rank(self._vectors, queries, k)
