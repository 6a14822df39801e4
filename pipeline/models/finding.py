"""Loads premise finders for every caller. BM25 alone loads no torch."""

from __future__ import annotations

from pipeline.jobs.specs import RetrieverSpec
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.finder import Finder


def load_finder(retriever: RetrieverSpec, corpus: Corpus, *, repository: str) -> Finder:
    """Load a specification's finder, with the premises of a repository.

    Raises:
        LearningError: the checkpoint is missing or damaged; or there is no such device.
    """
    if not retriever.trained:
        return Finder(corpus, premises=retriever.premises)
    from pipeline.models.retriever.index import load_retriever

    trained = load_retriever(retriever.chain / retriever.trained, device=retriever.device)
    return Finder(
        corpus,
        premises=retriever.premises,
        retriever=trained.of(repository),
        words=retriever.checkpoint != retriever.trained,
        indices=retriever.indices,
    )
