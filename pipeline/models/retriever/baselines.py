"""Selectors that learn nothing, BM25 and MePo by the overlap of symbols; and rankings fused with a retriever's.

Both rank a theorem's accessible premises by the same texts: a premise's name and code, a step's state. They are
measured on the same steps as a retriever. A retriever that does not beat BM25 finds no premises in its place; if both
together are better, both do (`store.promotion.finds_premises`). Imports no torch.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.models.measures import metrics_of, rate, summarise
from pipeline.models.retriever.corpus import Corpus
from store.files import write_whole

if TYPE_CHECKING:
    from pipeline.models.retriever.batches import Example

_NAME = re.compile(r"[^\W\d][\w'!?]*(?:\.[^\W\d][\w'!?]*)*")
_WORD = re.compile(r"[^\W\d_]+|\d+|[^\w\s(){}\[\]⟨⟩,:.«»]")
_SIGN = re.compile(r"[^\w\s(){}\[\]⟨⟩,:;.«»'\"`|]")
# Left out by Meng and Paulson: almost every statement has these signs.
_LOGIC = frozenset({*"∀∃→↔∧∨¬=≠⊢λ↦-<>", "Prop", "Type", "Sort"})


class _Postings:
    """The documents of each term, with counts: all in three arrays, a term's documents side by side, ascending.

    Attributes:
        size: the number of documents.
        lengths: terms of each document.
        documents, times: for each place, a document's number and the term's count in it.
        terms: the number of each term's documents, in the order of their places.
    """

    def __init__(self, documents: Iterable[Iterable[str]]) -> None:
        numbers: defaultdict[str, int] = defaultdict()
        numbers.default_factory = numbers.__len__
        terms, ends = array("i"), array("q", [0])
        for document in documents:
            terms.extend(map(numbers.__getitem__, document))
            ends.append(len(terms))
        # From here on it learns no further term.
        self._numbers = dict(numbers)
        self.size = len(ends) - 1
        self.lengths = np.diff(np.asarray(ends))
        of = np.repeat(np.arange(self.size), self.lengths)
        places, self.times = np.unique(np.asarray(terms) * np.int64(self.size) + of, return_counts=True)
        self.documents = (places % max(1, self.size)).astype(np.int32)
        self.terms = np.bincount(places // max(1, self.size), minlength=len(numbers))
        self._ends = [0, *np.cumsum(self.terms).tolist()]

    def of(self, term: str) -> slice:
        """Return the slice of a term's documents; an empty one for an unknown term."""
        number = self._numbers.get(term)
        return slice(0) if number is None else slice(self._ends[number], self._ends[number + 1])


class BM25:
    """Okapi BM25 over the words of texts, with names split: "Nat.add_comm" has three.

    The score of a document is the sum over the query's words of idf * f (k1 + 1) / (f + k1 (1 - b + b l / mean l)),
    with f the word's count in the document, l the document's length, and idf = log(1 + (N - n + 0.5) / (n + 0.5))
    where n of N documents have the word (Robertson and Zaragoza 2009, with Lucene's idf, which is never negative).
    """

    k1 = 1.2
    b = 0.75

    def __init__(self, corpus: Corpus) -> None:
        result = _Postings(words_of(f"{one.full_name} {one.code}") for one in corpus.all_premises)
        mean = float(result.lengths.mean()) if result.size else 0.0
        weight = self.k1 * (1 - self.b + self.b * result.lengths / (mean or 1.0))
        idf = np.log(1 + (result.size - result.terms + 0.5) / (result.terms + 0.5))
        self._postings = result
        self._scores = np.repeat(idf, result.terms)
        self._scores *= result.times * (self.k1 + 1) / (result.times + weight[result.documents])

    @property
    def nbytes(self) -> int:
        """Memory of the index, without the words."""
        return int(self._scores.nbytes + self._postings.documents.nbytes + self._postings.times.nbytes)

    def rank(self, state: str, allowed: npt.NDArray[np.bool_], k: int) -> list[int]:
        """Return at most k indices of `allowed` premises, best first, without those sharing nothing with the state."""
        return best(self.scores(state), allowed, k)

    def scores(self, state: str) -> npt.NDArray[np.float64]:
        """Return the score of each premise; 0 without a word of the state."""
        scores = np.zeros(self._postings.size)
        for word, asked in Counter(words_of(state)).items():
            places = self._postings.of(word)
            scores[self._postings.documents[places]] += asked * self._scores[places]
        return scores


class MePo:
    """The relevance filter of Meng and Paulson (2009), on the symbols of texts in place of terms.

    A premise's mark is the weight of its relevant symbols, over that plus the number of its others; a rare symbol
    weighs more, 1 + 2 / log(1 + n) where n premises have it. Round by round, premises with a mark above p are taken,
    their symbols become relevant, and p rises by (1 - p) / c. Premises never taken follow by their last mark.

    A symbol is a name the corpus declares, by any end of it (a file may have opened a namespace), another name with a
    leading capital, or a sign outside logic.
    """

    p = 0.6
    c = 2.4

    def __init__(self, corpus: Corpus) -> None:
        self._known = {end for one in corpus.all_premises for end in _ends(one.full_name)}
        self._symbols = [
            sorted(self.symbols(one.code) - set(_ends(one.full_name))) for one in corpus.all_premises
        ]
        self._postings = _Postings(self._symbols)
        self._sizes = np.array([len(symbols) for symbols in self._symbols], dtype=np.float64)

    def symbols(self, text: str) -> set[str]:
        """Return the symbols of a text."""
        names = {name for name in _NAME.findall(text) if name in self._known or name[0].isupper()}
        return (names | set(_SIGN.findall(text))) - _LOGIC

    def rank(self, state: str, allowed: npt.NDArray[np.bool_], k: int) -> list[int]:
        """Rank as `BM25.rank` does."""
        weight, shared = np.zeros(len(self._symbols)), np.zeros(len(self._symbols))
        left, ranked, passes = allowed.copy(), list[int](), self.p
        relevant: set[str] = set()
        new = self.symbols(state)
        while True:
            # Sums of floats depend on their order.
            for symbol in sorted(new):
                places = self._postings.documents[self._postings.of(symbol)]
                if len(places):
                    weight[places] += 1 + 2 / math.log(1 + len(places))
                    shared[places] += 1
            relevant |= new
            marks = weight / np.maximum(weight + self._sizes - shared, 1e-9)
            taken = best(np.where(marks >= passes, marks, 0.0), left, k - len(ranked))
            ranked += taken
            if not taken or len(ranked) == k:
                return [*ranked, *best(marks, left, k - len(ranked))]
            left[taken] = False
            new = {symbol for index in taken for symbol in self._symbols[index]} - relevant
            passes += (1 - passes) / self.c


def words_of(text: str) -> list[str]:
    """Return the words of a text, in lower case, and its signs."""
    return _WORD.findall(text.lower())


def _ends(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[at:]) for at in range(len(parts))]


def best(scores: npt.NDArray[np.float64], allowed: npt.NDArray[np.bool_], k: int) -> list[int]:
    """Return the allowed indices with the k highest scores above 0, ties to the lower index."""
    result = np.flatnonzero(allowed & (scores > 0))
    if len(result) > k:
        lowest = np.partition(scores[result], len(result) - k)[len(result) - k] if k else math.inf
        result = result[scores[result] >= lowest]
    order = np.argsort(-scores[result], kind="stable")[:k]
    return [int(index) for index in result[order]]


FUSED = 100
"""The length of the rankings to fuse."""
_LATE = 60


def fused(rankings: Iterable[Sequence[int]], k: int) -> dict[int, float]:
    """Return the k best of rankings together with their scores, the best first.

    A score is the sum of 1 / (60 + rank) (Cormack, Clarke and Büttcher 2009).
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, number in enumerate(ranking, start=1):
            scores[number] = scores.get(number, 0.0) + 1 / (_LATE + rank)
    return dict(sorted(scores.items(), key=lambda one: (-one[1], one[0]))[:k])


SELECTORS: Mapping[str, type[BM25] | type[MePo]] = {"bm25": BM25, "mepo": MePo}
"""By their names in `measures.BASELINES`."""


def rank_baselines(
    corpus: Corpus, asked: Sequence[Example], *, retrieved: int, kept: Path | None = None
) -> dict[str, list[list[int]]]:
    """Return each baseline's ranking of each step, by the baseline's name.

    `retrieved` is their length; `kept` is a file for the rankings of these very steps, which are then made once.
    """
    if kept is not None and kept.is_file():
        known: dict[str, list[list[int]]] = json.loads(kept.read_bytes())
        return known
    selectors = {name: make(corpus) for name, make in SELECTORS.items()}
    result: dict[str, list[list[int]]] = {name: [] for name in selectors}
    for example in asked:
        allowed = corpus.accessible(example.file_path, example.start)
        for name, selector in selectors.items():
            result[name].append(selector.rank(example.query, allowed, retrieved))
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_whole(kept, json.dumps(result))
    return result


def rate_rankings(
    rankings: Mapping[str, Sequence[Sequence[int]]], asked: Sequence[Example], *, retrieved: int, seed: int
) -> dict[str, float]:
    """Rate the rankings of steps, each with a positive: "recall@10", "bm25 recall@10", "mepo mrr", and so on.

    Args:
        rankings: of each step, by a baseline's name; "" for the model's own.
        asked: the steps.
        retrieved: length of a ranking.
        seed: of the intervals.
    """
    theorems = [(example.file_path, example.full_name, example.start) for example in asked]
    result: dict[str, float] = {}
    for name, of in rankings.items():
        rated = [
            rate(one.positives, ranking, retrieved=retrieved) for one, ranking in zip(asked, of, strict=True)
        ]
        metrics = summarise(rated, theorems, seed=seed, names=metrics_of(retrieved))
        result |= {f"{name} {metric}".lstrip(): value for metric, value in metrics.items()}
    return result
