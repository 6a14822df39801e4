"""Loads premise finders for every caller. BM25 alone loads no torch."""

from __future__ import annotations

from pipeline.jobs.specs import RetrieverSpec
from pipeline.models.retriever.baselines import Finder, WordFinder
from pipeline.models.retriever.corpus import Corpus


def load_finder(retriever: RetrieverSpec, corpus: Corpus, *, repository: str) -> Finder:
    """Load a specification's finder, with the premises of a repository.

    Raises:
        LearningError: the checkpoint is missing or damaged; or there is no such device.
    """
    if not retriever.trained:
        return WordFinder(corpus, premises=retriever.premises)
    from pipeline.models.libraries import device_of
    from pipeline.models.retriever.finder import PremiseFinder

    trained = PremiseFinder.of_checkpoint(
        retriever.chain,
        retriever.trained,
        corpus,
        repository=repository,
        indices=retriever.indices,
        premises=retriever.premises,
        device=device_of(retriever.device),
    )
    if retriever.checkpoint == retriever.trained:
        return trained
    return WordFinder(corpus, premises=retriever.premises, beside=trained)
