"""Measure an encoder on a split: each step asks for its premises among all that its theorem may use."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import T5EncoderModel

from pipeline.models.errors import NothingToMeasureError
from pipeline.models.measures import Interval, rate, summarise
from pipeline.models.retriever.batches import Example
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import Tokens
from pipeline.models.retriever.index import EmbeddingIndex, accessible_masks, embed_texts, top_k


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """How an encoder did on `n` steps of `theorems` theorems: "recall@1", "recall@10", "mrr", in 0..1.

    `dataset` is the SHA-256 of what was asked and what would have been right; `new_embeddings` how many premises had
    to be embedded for it.
    """

    metrics: Mapping[str, Interval]
    n: int
    theorems: int
    dataset: str
    new_embeddings: int
    seconds: float


def evaluate(
    encoder: T5EncoderModel,
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
    on_batch: Callable[[int, int], object] = lambda _done, _total: None,
) -> EvaluationResult:
    """Rank the accessible premises of every step that has a positive, and rate the rankings.

    Args:
        encoder: as it is; put into evaluation mode meanwhile.
        tokens: makes ids of texts.
        corpus: the premises; examples are indices of it.
        examples: the steps; those without a positive are left out.
        index: keeps the premises' embeddings; without one they are computed and forgotten.
        max_seq_len: tokens of the longest document. Training on longer ones would be another truncation.
        query_length: tokens of the longest query.
        retrieved: how long the rankings are.
        batch_size: queries at a time.
        seed: of the intervals.
        on_batch: told (steps done, steps in all).

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
    documents = [premise.serialize() for premise in corpus.all_premises]
    if index is None:
        vectors = embed_texts(encoder, tokens, documents, max_seq_len)
        new = len(documents)
    else:
        stored, new = index.vectors(documents, encoder, tokens)
        vectors = torch.from_numpy(stored).to(encoder.device)
    rated = []
    for start in range(0, len(asked), batch_size):
        part = asked[start : start + batch_size]
        queries = embed_texts(encoder, tokens, [example.query for example in part], query_length)
        rated += _rate(queries, vectors, corpus, part, retrieved)
        on_batch(start + len(part), len(asked))
    theorems = [(example.file_path, example.full_name, example.start) for example in asked]
    return EvaluationResult(
        metrics=summarise(rated, theorems, seed=seed),
        n=len(asked),
        theorems=len(set(theorems)),
        dataset=dataset_digest(corpus, asked),
        new_embeddings=new,
        seconds=time.monotonic() - started,
    )


def dataset_digest(corpus: Corpus, examples: Sequence[Example]) -> str:
    """Return the SHA-256 of the questions, their right answers, and the premises to choose from."""
    digest = hashlib.sha256()
    for file in corpus.files:
        # Imports and positions too: they decide what may be chosen.
        digest.update(json.dumps([file.path, file.imports]).encode())
        for premise in file.premises:
            digest.update(json.dumps([premise.full_name, premise.start, premise.end, premise.code]).encode())
    for example in examples:
        asked = [example.file_path, example.full_name, example.start, example.tactic, example.query]
        digest.update(json.dumps([*asked, example.positives]).encode())
    return digest.hexdigest()


def _rate(
    queries: Tensor, vectors: Tensor, corpus: Corpus, examples: Sequence[Example], retrieved: int
) -> list[tuple[float, float, float]]:
    allowed = accessible_masks(
        corpus, [(example.file_path, example.start) for example in examples], queries.device
    )
    found = top_k(queries, vectors, allowed, retrieved)
    return [
        rate(example.positives, indices.tolist())
        for example, (indices, _) in zip(examples, found, strict=True)
    ]
