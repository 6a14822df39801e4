"""Rank the premises of steps with a retriever, and rate the rankings."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from pipeline.models.errors import NothingToMeasureError
from pipeline.models.measures import Evaluation, by_theorem, metrics_of, rate, summarise
from pipeline.models.retriever.batches import Example, dataset_digest
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import Encoder, Tokens, query_ids
from pipeline.models.retriever.index import (
    EmbeddingIndex,
    accessible_masks,
    embed_premises,
    embed_texts,
    top_k,
)

_COUNTED = "recall@10"
"""What promotion looks at."""


def evaluate(
    encoder: Encoder,
    tokens: Tokens,
    corpus: Corpus,
    examples: Sequence[Example],
    *,
    index: EmbeddingIndex | None = None,
    max_seq_len: int = 512,
    query_length: int = 1024,
    retrieved: int = 100,
    batch_size: int = 64,
    seed: int = 3407,
    rankings: list[list[int]] | None = None,
    on_batch: Callable[[int, int], object] = lambda _done, _total: None,
) -> Evaluation:
    """Rank the accessible premises of every step that has a positive, and rate the rankings.

    Args:
        encoder: put into evaluation mode meanwhile.
        tokens: makes ids of texts.
        corpus: the premises; examples are indices of it.
        examples: the steps; those without a positive are left out.
        index: stores the premises' embeddings; None: they are computed and not stored.
        max_seq_len: tokens of the longest document. Training on longer ones would be another truncation.
        query_length: tokens of the longest query.
        retrieved: length of a ranking.
        batch_size: queries at a time.
        seed: of the intervals.
        rankings: is given each step's ranking.
        on_batch: takes (steps done, steps in all).

    Raises:
        NothingToMeasureError: no step has a positive.
        DivergedError: the encoder's weights are no finite numbers.
    """
    started = time.monotonic()
    asked = [example for example in examples if example.positives]
    if not asked:
        raise NothingToMeasureError(
            f"no step uses a premise of {corpus.source}, so there is nothing to measure. Is the corpus of the same "
            "export?"
        )
    vectors, new = embed_premises(encoder, tokens, corpus, max_seq_len, index)
    rated: list[tuple[float, ...]] = []
    names = metrics_of(retrieved)
    for start in range(0, len(asked), batch_size):
        part = asked[start : start + batch_size]
        queries = embed_texts(encoder, partial(query_ids, tokens), [one.query for one in part], query_length)
        ranked = _ranked(queries, vectors, corpus, part, retrieved)
        rated += [
            rate(one.positives, ranking, retrieved=retrieved)
            for one, ranking in zip(part, ranked, strict=True)
        ]
        if rankings is not None:
            rankings += ranked
        on_batch(start + len(part), len(asked))
    theorems = [(example.file_path, example.full_name, example.start) for example in asked]
    return Evaluation(
        metrics=summarise(rated, theorems, seed=seed, names=names),
        n=len(asked),
        theorems=len(set(theorems)),
        dataset=dataset_digest(corpus, asked),
        scores=by_theorem(
            [one[names.index(_COUNTED)] for one in rated], [(one.file_path, one.full_name) for one in asked]
        ),
        new_embeddings=new,
        seconds=time.monotonic() - started,
    )


def _ranked(
    queries: Tensor, vectors: Tensor, corpus: Corpus, examples: Sequence[Example], retrieved: int
) -> list[list[int]]:
    allowed = accessible_masks(
        corpus, [(example.file_path, example.start) for example in examples], queries.device
    )
    return [indices.tolist() for indices, _ in top_k(queries, vectors, allowed, retrieved)]
