from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.models.retriever.batches import Example, NegativeSampler
from pipeline.models.retriever.corpus import Corpus

OWN_PREMISES = 12
THEOREM = (9, 1)
"""Where the theorem of these tests begins: after eight of its own file's twelve premises."""


def corpus_of(folder: Path, sizes: list[int], imports: list[int]) -> Corpus:
    """Files 0, 1, … of these sizes, and the theorem's own, the last, which imports some of them."""

    def line(number: int, size: int, imported: list[int]) -> str:
        premises = [
            {"full_name": f"p{number}.{i}", "code": "x", "start": [i + 1, 1], "end": [i + 1, 9]}
            for i in range(size)
        ]
        paths = [f"{other}.lean" for other in imported]
        return json.dumps({"path": f"{number}.lean", "imports": paths, "premises": premises})

    lines = [line(number, size, []) for number, size in enumerate(sizes)]
    lines.append(line(len(sizes), OWN_PREMISES, imports))
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    return Corpus(folder / "corpus.jsonl")


def step(corpus: Corpus, positive: int) -> Example:
    return Example(corpus.files[-1].path, "t", THEOREM, "⊢", (positive,), (positive,))


def pools(corpus: Corpus, positive: int) -> tuple[set[int], set[int]]:
    """What a theorem may use of the positive's file, and of others; by looking at every premise."""
    own = corpus.files[-1]
    usable = {
        index
        for index, premise in enumerate(corpus)
        if (premise.path == own.path and premise.end <= THEOREM) or premise.path in own.imports
    }
    near = {index for index in usable if corpus[index].path == corpus[positive].path}
    return near - {positive}, usable - near - {positive}


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_negatives_are_what_the_theorem_may_use_whatever_the_corpus(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sizes = data.draw(st.lists(st.sampled_from([0, 1, 2, 5, 40]), min_size=1, max_size=12))
    imports = sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1))))
    corpus = corpus_of(tmp_path_factory.mktemp("corpus"), sizes, imports)
    positive = data.draw(st.integers(0, len(corpus) - 1))
    negatives = data.draw(st.integers(0, 9))
    in_file = data.draw(st.integers(0, negatives))
    near, far = pools(corpus, positive)
    sampler = NegativeSampler(corpus, negatives=negatives, in_file=in_file)
    for seed in range(3):
        drawn = sampler.draw(step(corpus, positive), positive, np.random.default_rng(seed))
        assert len(drawn) == negatives
        if not near | far:
            assert set(drawn) <= {positive}
            continue
        assert set(drawn) <= near | far
        assert len(set(drawn)) == min(negatives, len(near | far))
        # As many from the positive's file as were asked for, and more only where nothing else is left.
        from_near = min(in_file, len(near))
        assert len(near & set(drawn)) == max(from_near, min(negatives - len(far), len(near)))


def test_where_other_files_have_too_few_the_positives_file_gives_the_rest_and_none_twice(
    tmp_path: Path,
) -> None:
    corpus = corpus_of(tmp_path, [2], [0])
    positive = 4
    near, far = pools(corpus, positive)
    sampler = NegativeSampler(corpus, negatives=6, in_file=2)
    for seed in range(20):
        drawn = sampler.draw(step(corpus, positive), positive, np.random.default_rng(seed))
        assert len(set(drawn)) == 6
        assert far <= set(drawn) <= near | far


SHAPES = [
    pytest.param([10] * 40, [0, 39], 0, id="two files of forty, far apart"),
    pytest.param([10] * 40, [0, 20, 39], 20, id="three files of forty, the positive in the middle one"),
    pytest.param([2, 60, 3, 5], [0, 1, 2, 3], 1, id="nearly all in the positive's file"),
    pytest.param([20, 20, 20], [], 3, id="nothing but the theorem's own file"),
    pytest.param([20, 20, 20], [0, 2], 3, id="the positive in the theorem's own file"),
    pytest.param([20, 20, 20, 20], [0, 1, 2, 3], 2, id="everything"),
    pytest.param([3, 3], [0, 1], 0, id="a handful"),
]


@pytest.mark.parametrize(("sizes", "imports", "home"), SHAPES)
def test_draws_are_uniform_however_the_accessible_files_lie(
    tmp_path: Path, sizes: list[int], imports: list[int], home: int
) -> None:
    corpus = corpus_of(tmp_path, sizes, imports)
    positive = int(np.flatnonzero(corpus.file_of_premise == home)[1])
    near, far = pools(corpus, positive)
    # Where the positive's file is all that there is, it has to do.
    assert_uniform(corpus, positive, far or near, in_file=0)


@pytest.mark.parametrize(("sizes", "imports", "home"), SHAPES)
def test_draws_from_the_positives_file_are_uniform_too(
    tmp_path: Path, sizes: list[int], imports: list[int], home: int
) -> None:
    corpus = corpus_of(tmp_path, sizes, imports)
    positive = int(np.flatnonzero(corpus.file_of_premise == home)[1])
    assert_uniform(corpus, positive, pools(corpus, positive)[0], in_file=1)


def assert_uniform(corpus: Corpus, positive: int, pool: set[int], *, in_file: int) -> None:
    sampler = NegativeSampler(corpus, negatives=1, in_file=in_file)
    rng = np.random.default_rng(5)
    counts = Counter(sampler.draw(step(corpus, positive), positive, rng)[0] for _ in range(25 * len(pool)))
    assert counts.keys() == pool
    # Chi squared over len(pool) - 1 degrees of freedom: mean that, standard deviation sqrt(2 (len(pool) - 1)).
    chi2 = sum((counts[index] - 25) ** 2 / 25 for index in pool)
    assert chi2 < len(pool) - 1 + 5 * (2 * (len(pool) - 1)) ** 0.5
