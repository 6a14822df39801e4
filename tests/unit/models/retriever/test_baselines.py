"""The selectors that learn nothing, alone and beside another ranking."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.models.retriever.baselines import (
    BM25,
    MePo,
    fused,
    words_of,
)
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.finder import Finder, Place

PREMISES = (
    ("Nat.add_comm", "theorem Nat.add_comm (n m : Nat) : n + m = m + n"),
    ("Nat.mul_comm", "theorem Nat.mul_comm (n m : Nat) : n * m = m * n"),
    (
        "List.length_append",
        "theorem List.length_append (a b : List α) : length (a ++ b) = length a + length b",
    ),
    ("List.length", "def List.length : List α → Nat"),
    ("length_is_gcd", "theorem length_is_gcd : length = gcd"),
    ("Nat.gcd_self", "theorem Nat.gcd_self (n : Nat) : gcd n n = n"),
    ("gcd", "def gcd : Nat → Nat → Nat"),
)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    premises = [
        {"full_name": name, "code": code, "start": [line, 1], "end": [line, 90], "kind": ""}
        for line, (name, code) in enumerate(PREMISES, start=1)
    ]
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"path": "A.lean", "imports": [], "premises": premises}))
    return Corpus(path)


def names(corpus: Corpus, ranked: list[int]) -> list[str]:
    return [corpus[index].full_name for index in ranked]


def test_bm25_ranks_by_its_formula(corpus: Corpus) -> None:
    state = "n m : Nat\n⊢ gcd (n + m) n = gcd m n"
    documents = [Counter(words_of(f"{name} {code}")) for name, code in PREMISES]
    mean = sum(document.total() for document in documents) / len(documents)
    scores = []
    for document in documents:
        score = 0.0
        for word, asked in Counter(words_of(state)).items():
            n = sum(word in other for other in documents)
            idf = math.log(1 + (len(documents) - n + 0.5) / (n + 0.5))
            f, length = document[word], document.total()
            score += asked * idf * f * 2.2 / (f + 1.2 * (0.25 + 0.75 * length / mean))
        scores.append(score)
    everything = np.ones(len(PREMISES), dtype=np.bool_)
    expected = sorted((i for i, score in enumerate(scores) if score > 0), key=lambda i: (-scores[i], i))
    assert BM25(corpus).rank(state, everything, 100) == expected
    assert BM25(corpus).rank(state, everything, 2) == expected[:2]


def test_words_are_the_parts_of_names_and_signs() -> None:
    assert words_of("Nat.add_comm (n₁ : ℕ) : a ∣ 12") == ["nat", "add", "comm", "n₁", "ℕ", "a", "∣", "12"]


def test_mepo_takes_what_shares_symbols_and_then_what_shares_theirs(corpus: Corpus) -> None:
    selector, everything = MePo(corpus), np.ones(len(PREMISES), dtype=np.bool_)
    # By any end of its name, a capital, and signs that are no logic; a hypothesis' name is none.
    assert selector.symbols("h : length xs = Foo ∧ a ++ b") == {"length", "Foo", "+"}
    ranked = names(corpus, selector.rank("⊢ gcd a b = c", everything, 100))
    assert "Nat.gcd_self" in ranked[:2]
    # It has no symbol of the state; a premise that was taken has one of its own.
    assert ranked.index("length_is_gcd") < ranked.index("List.length_append")
    assert selector.rank("⊢ p → q", everything, 100) == []


@pytest.mark.parametrize("make", [BM25, MePo])
def test_only_what_is_allowed_is_ranked_and_no_more_than_asked_for(
    corpus: Corpus, make: type[BM25] | type[MePo]
) -> None:
    selector, state = make(corpus), "⊢ gcd a b + List.length xs = Nat"
    allowed = np.array([True, False] * 3 + [False])
    assert set(selector.rank(state, allowed, 100)) <= {0, 2, 4}
    everything = np.ones(len(PREMISES), dtype=np.bool_)
    for k in range(4):
        assert len(selector.rank(state, everything, k)) == k


def test_rankings_are_fused_by_reciprocal_ranks() -> None:
    # 3: 1/61 + 1/62, 1: 1/62 + 1/63, 2: 1/61; what one has alone comes behind what both have.
    assert list(fused([[3, 1], [2, 3, 1]], 3)) == [3, 1, 2]
    assert fused([[], [5, 4]], 1) == {5: 1 / 61}


def test_words_find_premises_alone_and_beside_another(corpus: Corpus) -> None:
    place = Place("A.lean", (50, 1))
    requests = [("1 goal\n⊢ gcd a a = a", place), ("⊢ nothing like it", Place("B.lean", (1, 1)))]
    alone = Finder(corpus, premises=2)
    (ranked, nothing), (result, _) = alone.rank(requests, 5), alone.find(requests)
    assert [one.full_name for one in result] == [corpus[number].full_name for number in ranked[:2]]
    assert nothing == []
    other: Any = SimpleNamespace(
        premises=lambda _corpus, _indices: (None, 0),
        rank=lambda _vectors, asked, _k: [[6, ranked[1]] for _ in asked],
    )
    assert Finder(corpus, retriever=other, words=False).rank(requests, 3) == [[6, ranked[1]]] * 2
    both = Finder(corpus, retriever=other).rank(requests, 3)
    assert both[0] == list(fused([ranked, [6, ranked[1]]], 3))
    assert both[0][0] == ranked[1]
    assert both[1] == [6, ranked[1]]
