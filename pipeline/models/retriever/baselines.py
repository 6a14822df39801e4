"""The baselines without training, BM25 and MePo; and rankings fused with a retriever's.

They rank a theorem's accessible premises by the same texts as a retriever: a premise's name and code, a step's state.
They are measured on the same steps. A retriever that does not beat BM25 finds no premises in its place; if both
together are better, both do (`store.promotion.finds_premises`). Imports no torch.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from pipeline.models.retriever.corpus import Corpus

_WORD = re.compile(r"[^\W\d_]+|\d+|[^\w\s(){}\[\]⟨⟩,:.«»]")
_NAME = re.compile(r"[^\W\d][\w'!?]*(?:\.[^\W\d][\w'!?]*)*")
_SIGN = re.compile(r"[^\w\s(){}\[\]⟨⟩,:;.«»'\"`|]")
# Left out by Meng and Paulson: almost every statement has these signs.
_LOGIC = frozenset({*"∀∃→↔∧∨¬=≠⊢λ↦-<>", "Prop", "Type", "Sort"})


class BM25:
    """Okapi BM25 over the words of texts, with names split: "Nat.add_comm" has three.

    The score of a document is the sum over the query's words of idf * f (k1 + 1) / (f + k1 (1 - b + b l / mean l)),
    with f the word's count in the document, l the document's length, and idf = log(1 + (N - n + 0.5) / (n + 0.5))
    where n of N documents have the word (Robertson and Zaragoza 2009, with Lucene's idf, which is never negative).
    """

    k1 = 1.2
    b = 0.75

    def __init__(self, corpus: Corpus) -> None:
        size = len(corpus)
        numbers: defaultdict[str, int] = defaultdict()
        numbers.default_factory = numbers.__len__
        words, ends = array("i"), array("q", [0])
        for one in corpus:
            words.extend(map(numbers.__getitem__, words_of(f"{one.full_name} {one.code}")))
            ends.append(len(words))
        # From here on it learns no further word.
        self._numbers = dict(numbers)
        lengths = np.diff(np.asarray(ends))
        of = np.repeat(np.arange(size), lengths)
        # A word's documents lie side by side, ascending.
        places, times = np.unique(np.asarray(words) * np.int64(size) + of, return_counts=True)
        holding = np.bincount(places // max(1, size), minlength=len(numbers))
        self._size = size
        self._documents = (places % max(1, size)).astype(np.int32)
        self._ends = [0, *np.cumsum(holding).tolist()]
        mean = float(lengths.mean()) if size else 0.0
        weight = self.k1 * (1 - self.b + self.b * lengths / (mean or 1.0))
        self._scores = np.repeat(np.log(1 + (size - holding + 0.5) / (holding + 0.5)), holding)
        self._scores *= times * (self.k1 + 1) / (times + weight[self._documents])

    @property
    def nbytes(self) -> int:
        """Memory of the index, without the words."""
        return int(self._scores.nbytes + self._documents.nbytes)

    def rank(self, state: str, allowed: npt.NDArray[np.bool_], k: int) -> list[int]:
        """Return at most k indices of `allowed` premises, best first, without those sharing nothing with the state."""
        return best(self.scores(state), allowed, k)

    def scores(self, state: str) -> npt.NDArray[np.float64]:
        """Return the score of each premise; 0 without a word of the state."""
        scores = np.zeros(self._size)
        for word, asked in Counter(words_of(state)).items():
            number = self._numbers.get(word)
            if number is not None:
                places = slice(self._ends[number], self._ends[number + 1])
                scores[self._documents[places]] += asked * self._scores[places]
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
        self._known = {end for one in corpus for end in _ends(one.full_name)}
        self._symbols = [self.symbols(one.code) - set(_ends(one.full_name)) for one in corpus]
        self._sizes = np.array([len(symbols) for symbols in self._symbols], dtype=np.float64)
        premises_of: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
        for number, symbols in enumerate(self._symbols):
            for symbol in symbols:
                premises_of[symbol].append(number)
        # NumPy would make an array of a list at each question.
        self._premises_of = {symbol: np.asarray(places) for symbol, places in premises_of.items()}

    def symbols(self, text: str) -> set[str]:
        """Return the symbols of a text."""
        names = {name for name in _NAME.findall(text) if name in self._known or name[0].isupper()}
        return (names | set(_SIGN.findall(text))) - _LOGIC

    def rank(self, state: str, allowed: npt.NDArray[np.bool_], k: int) -> list[int]:
        """Return at most k indices of `allowed` premises, best first, without those sharing nothing with the state."""
        weight, shared = np.zeros(len(self._symbols)), np.zeros(len(self._symbols))
        left, ranked, passes = allowed.copy(), list[int](), self.p
        relevant: set[str] = set()
        new = self.symbols(state)
        while True:
            # Sums of floats depend on their order.
            for symbol in sorted(new & self._premises_of.keys()):
                places = self._premises_of[symbol]
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
