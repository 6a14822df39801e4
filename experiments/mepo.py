"""The relevance filter of Meng and Paulson (2009), an arm of the experiments on proving."""

from __future__ import annotations

import math
import re
from collections import defaultdict

import numpy as np
import numpy.typing as npt

from pipeline.models.retriever.baselines import best
from pipeline.models.retriever.corpus import Corpus

_NAME = re.compile(r"[^\W\d][\w'!?]*(?:\.[^\W\d][\w'!?]*)*")
_SIGN = re.compile(r"[^\w\s(){}\[\]⟨⟩,:;.«»'\"`|]")
# Left out by Meng and Paulson: almost every statement has these signs.
_LOGIC = frozenset({*"∀∃→↔∧∨¬=≠⊢λ↦-<>", "Prop", "Type", "Sort"})


class MePo:
    """MePo on the symbols of texts in place of terms.

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
        self._symbols = [self.symbols(one.code) - set(_ends(one.full_name)) for one in corpus.all_premises]
        self._sizes = np.array([len(symbols) for symbols in self._symbols], dtype=np.float64)
        self._premises_of: defaultdict[str, list[int]] = defaultdict(list)
        for number, symbols in enumerate(self._symbols):
            for symbol in symbols:
                self._premises_of[symbol].append(number)

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


def _ends(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[at:]) for at in range(len(parts))]
