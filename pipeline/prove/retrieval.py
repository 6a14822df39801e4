"""The retriever for all the searches of a job.

The queries of all open searches are embedded in one batch, in a thread of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType

from pipeline.models.errors import CorpusError
from pipeline.models.retriever.baselines import Finder
from pipeline.models.retriever.corpus import Corpus, Premise
from pipeline.models.retriever.places import Place
from pipeline.models.tactics.service import Batching

_BATCH = 32


class Retrieval:
    """A finder for all the searches of a job. A context, on one event loop."""

    def __init__(self, finder: Finder) -> None:
        """Hold a finder for exclusive use while the context is open."""
        self._service: Batching[tuple[str, Place], tuple[Premise, ...]] = Batching(
            finder.find, at_once=_BATCH, name="retriever"
        )

    async def premises(self, state: str, place: Place) -> tuple[Premise, ...]:
        """Return the premises nearest to a state.

        Raises:
            GenerationStoppedError: the service is closed. LearningError: the retriever failed.
        """
        return await self._service.ask((state, place))

    def at(self, place: Place) -> Callable[[str], Awaitable[tuple[Premise, ...]]]:
        """Return the lookup for the states of a declaration at that place (`premises.Find`)."""
        return lambda state: self.premises(state, place)

    async def __aenter__(self) -> Retrieval:
        await self._service.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._service.close()


_CORPUS = "corpus.jsonl"


def read_corpus(path: str | Path) -> Corpus:
    """Return the corpus of a file `corpus.jsonl`, or of a dataset's folder.

    Raises:
        CorpusError: it is LeanDojo's pickled index, whose reading would run code; or it cannot be read.
    """
    path = Path(path)
    if path.suffix in (".pickle", ".pkl"):
        raise CorpusError(
            f"{path} is a pickle, and reading one runs code. Name the corpus.jsonl that it was made from: its premises "
            "are embedded again"
        )
    return Corpus(path / _CORPUS if path.is_dir() else path)
