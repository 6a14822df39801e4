"""Loads premise finders for every caller. BM25 alone loads no torch."""

from __future__ import annotations

from pipeline.jobs.specs import RetrieverSpec
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.finder import Finder, PremiseFinder, WordFinder


def load_finder(retriever: RetrieverSpec, corpus: Corpus, *, repository: str) -> Finder:
    """Load a specification's finder, with the premises of a repository.

    Raises:
        LearningError: the checkpoint is missing or damaged; or there is no such device.
    """
    if not retriever.trained:
        return WordFinder(corpus, premises=retriever.premises)
    from pipeline.models.retriever.index import load_retriever

    trained = PremiseFinder(
        load_retriever(retriever.chain / retriever.trained, device=retriever.device).of(repository),
        corpus,
        indices=retriever.indices,
        premises=retriever.premises,
    )
    if retriever.checkpoint == retriever.trained:
        return trained
    return WordFinder(corpus, premises=retriever.premises, beside=trained)
