"""Selectors that learn nothing, measured on the same steps as a retriever: BM25, and MePo by the overlap of symbols.

A retriever that does not beat them has learned nothing worth its price. Both rank what a theorem may use, from the same
texts: of a premise its name and code, of a step its state.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pipeline.models.measures import Interval, metrics_of, rate, summarise
from pipeline.models.retriever.batches import Example
from pipeline.models.retriever.corpus import Corpus

_NAME = re.compile(r"[^\W\d][\w'!?]*(?:\.[^\W\d][\w'!?]*)*")
_WORD = re.compile(r"[^\W\d_]+|\d+|[^\w\s(){}\[\]⟨⟩,:.«»]")
_SIGN = re.compile(r"[^\w\s(){}\[\]⟨⟩,:;.«»'\"`|]")
# What Meng and Paulson leave out: it stands in almost every statement and says nothing.
_LOGIC = frozenset({*"∀∃→↔∧∨¬=≠⊢λ↦-<>", "Prop", "Type", "Sort"})


class Selector(Protocol):
    """Ranks the premises of a corpus for a state."""

    def rank(self, state: str, allowed: npt.NDArray[np.bool_], k: int) -> list[int]:
        """Return the indices of at most k of the `allowed` premises, best first; one that has nothing in common with
        the state is in no ranking."""


class _Postings:
    """In which documents each term is, and how often."""

    def __init__(self, documents: Iterable[Mapping[str, int]]) -> None:
        places: dict[str, tuple[list[int], list[int]]] = {}
        self.size = 0
        for number, document in enumerate(documents):
            self.size += 1
            for term, times in document.items():
                numbers, counts = places.setdefault(term, ([], []))
                numbers.append(number)
                counts.append(times)
        self._places = {
            term: (np.array(numbers, dtype=np.int32), np.array(counts, dtype=np.float64))
            for term, (numbers, counts) in places.items()
        }

    def __contains__(self, term: str) -> bool:
        return term in self._places

    def of(self, term: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """Return the documents with a term, ascending, and how often each has it."""
        return self._places[term]


class BM25:
    """Okapi BM25 over the words of texts, of which names are made: "Nat.add_comm" has three.

    The score of a document is the sum over the query's words of idf * f (k1 + 1) / (f + k1 (1 - b + b l / mean l)),
    with f the word's count in the document, l the document's length, and idf = log(1 + (N - n + 0.5) / (n + 0.5))
    where n of N documents have the word (Robertson and Zaragoza 2009, with Lucene's idf, which is never negative).
    """

    k1 = 1.2
    b = 0.75

    def __init__(self, corpus: Corpus) -> None:
        words = [Counter(words_of(f"{one.full_name} {one.code}")) for one in corpus.all_premises]
        self._postings = _Postings(words)
        lengths = np.array([sum(one.values()) for one in words], dtype=np.float64)
        mean = float(lengths.mean()) if len(lengths) else 0.0
        self._weight = self.k1 * (1 - self.b + self.b * lengths / (mean or 1.0))

    def rank(self, state: str, allowed: npt.NDArray[np.bool_], k: int) -> list[int]:
        n = self._postings.size
        scores = np.zeros(n)
        for word, asked in Counter(words_of(state)).items():
            if word in self._postings:
                places, times = self._postings.of(word)
                idf = math.log(1 + (n - len(places) + 0.5) / (len(places) + 0.5))
                scores[places] += asked * idf * times * (self.k1 + 1) / (times + self._weight[places])
        return _best(scores, allowed, k)


class MePo:
    """The relevance filter of Meng and Paulson (2009), on the symbols of texts in place of terms.

    A premise's mark is the weight of its symbols that are relevant, over that plus the number of its others; a rare
    symbol weighs more, 1 + 2 / log(1 + n) where n premises have it. Round by round, those whose mark passes p are
    taken, their symbols become relevant, and p rises by (1 - p) / c. What passes in no round follows by its last mark.

    A symbol is a name that the corpus declares, by any end of it (a file may have opened a namespace), another name
    that begins with a capital, or a sign that is no logic.
    """

    p = 0.6
    c = 2.4

    def __init__(self, corpus: Corpus) -> None:
        self._known = {end for one in corpus.all_premises for end in _ends(one.full_name)}
        self._symbols = [
            sorted(self.symbols(one.code) - set(_ends(one.full_name))) for one in corpus.all_premises
        ]
        self._postings = _Postings(dict.fromkeys(symbols, 1) for symbols in self._symbols)
        self._sizes = np.array([len(symbols) for symbols in self._symbols], dtype=np.float64)

    def symbols(self, text: str) -> set[str]:
        """Return the symbols of a text."""
        names = {name for name in _NAME.findall(text) if name in self._known or name[0].isupper()}
        return (names | set(_SIGN.findall(text))) - _LOGIC

    def rank(self, state: str, allowed: npt.NDArray[np.bool_], k: int) -> list[int]:
        weight, shared = np.zeros(len(self._symbols)), np.zeros(len(self._symbols))
        left, ranked, passes = allowed.copy(), list[int](), self.p
        relevant: set[str] = set()
        new = self.symbols(state)
        while True:
            for symbol in new:
                if symbol in self._postings:
                    places, _ = self._postings.of(symbol)
                    weight[places] += 1 + 2 / math.log(1 + len(places))
                    shared[places] += 1
            relevant |= new
            marks = weight / np.maximum(weight + self._sizes - shared, 1e-9)
            taken = _best(np.where(marks >= passes, marks, 0.0), left, k - len(ranked))
            ranked += taken
            if not taken or len(ranked) == k:
                return [*ranked, *_best(marks, left, k - len(ranked))]
            left[taken] = False
            new = {symbol for index in taken for symbol in self._symbols[index]} - relevant
            passes += (1 - passes) / self.c


def words_of(text: str) -> list[str]:
    """Return the words of a text, in lower case, and its signs."""
    return [word.lower() for word in _WORD.findall(text)]


def _ends(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[at:]) for at in range(len(parts))]


def _best(scores: npt.NDArray[np.float64], allowed: npt.NDArray[np.bool_], k: int) -> list[int]:
    """Return the allowed indices with the k highest scores above 0, ties to the lower index."""
    found = np.flatnonzero(allowed & (scores > 0))
    if len(found) > k:
        lowest = np.partition(scores[found], len(found) - k)[len(found) - k] if k else math.inf
        found = found[scores[found] >= lowest]
    order = np.argsort(-scores[found], kind="stable")[:k]
    return [int(index) for index in found[order]]


SELECTORS: Mapping[str, Callable[[Corpus], Selector]] = {"bm25": BM25, "mepo": MePo}
"""By their names in `measures.BASELINES`."""


def measure_baselines(
    corpus: Corpus,
    examples: Sequence[Example],
    *,
    retrieved: int,
    seed: int,
    on_batch: Callable[[int, int], object] = lambda _done, _total: None,
) -> dict[str, Interval]:
    """Rate each baseline's rankings of the steps that have a positive: "bm25 recall@10", "mepo mrr", and so on.

    Args:
        corpus: the premises; examples are indices of it.
        examples: the steps, at least one with a positive.
        retrieved: length of a ranking.
        seed: of the intervals.
        on_batch: takes (steps done, steps in all).
    """
    asked = [example for example in examples if example.positives]
    theorems = [(example.file_path, example.full_name, example.start) for example in asked]
    selectors = {name: make(corpus) for name, make in SELECTORS.items()}
    rated: dict[str, list[tuple[float, ...]]] = {name: [] for name in selectors}
    for done, example in enumerate(asked, start=1):
        allowed = corpus.accessible(example.file_path, example.start)
        for name, selector in selectors.items():
            rated[name].append(
                rate(example.positives, selector.rank(example.query, allowed, retrieved), retrieved=retrieved)
            )
        on_batch(done, len(asked))
    return {
        f"{name} {metric}": interval
        for name, of in rated.items()
        for metric, interval in summarise(of, theorems, seed=seed, names=metrics_of(retrieved)).items()
    }
