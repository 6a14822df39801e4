"""Loads premise finders for provers and for the rows of a training. BM25 alone loads no torch."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.jobs.specs import RetrieverSpec
from pipeline.models.datasets import TaskData
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.finder import Finder, Place
from pipeline.models.tactics.rows import FindPremises, Row, RowPremises


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


def row_premises(retriever: RetrieverSpec) -> RowPremises:
    """Return the finder of premises for the rows of a task, among its dataset's."""

    def of(task: TaskData) -> FindPremises:
        finder = load_finder(retriever, Corpus(task.dataset / "corpus.jsonl"), repository=task.name)

        def find(rows: Sequence[Row]) -> list[tuple[str, ...]]:
            requests = [(row.state, Place(row.path, row.start, row.theorem)) for row in rows]
            return [tuple(premise.serialize() for premise in item) for item in finder.find(requests)]

        return find

    return RowPremises(f"{retriever.checkpoint}/{retriever.premises}", of)
