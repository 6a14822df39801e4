"""The retriever for all the searches of a job, and the premises that it searches: those of a repository's newest trace.

The queries of all open searches are embedded in one batch, in a thread of their own.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType

from pipeline.models.errors import CorpusError, DatasetError
from pipeline.models.retriever.corpus import Corpus, Premise
from pipeline.models.retriever.finder import Place, PremiseFinder
from pipeline.models.tactics.service import Batching
from store.domain.identity import short_hash
from store.errors import LogError
from store.leandojo.choosing import ChosenTrace, ImportCycleError, NothingToExportError, choose
from store.leandojo.exporting import Mode, export_chosen, one_moment
from store.log.reader import LogReader
from store.view import queries

_BATCH = 32


class Retrieval:
    """A finder for all the searches of a job. A context, on one event loop."""

    def __init__(self, finder: PremiseFinder) -> None:
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


# ---- The corpus: of a repository's newest trace, or of a given file
# Writing a trace's corpus reads all of the trace, which takes half a minute at Mathlib's size; reading the corpus takes
# three seconds. So one corpus for each repository is kept until its next trace.


_CORPUS = "corpus.jsonl"
_VERSION = "1"
"""The version of the export's output for the same traces."""
_SCRATCH = "new-"
_LEFT_S = 24 * 3600.0


def corpus_of_log(
    events_db: Path, database_db: Path, *, repository: str, simulated: bool, kept: Path
) -> Corpus:
    """Return the premises of a repository's newest trace, as training has them.

    Args:
        events_db: the log, read only; the daemon may be running.
        database_db: its view, read only.
        repository: a key.
        simulated: whether the simulator's traces count.
        kept: a folder for corpora, shared by jobs; its files may be removed at any time.

    Raises:
        DatasetError: the repository has no trace.
        CorpusError: its files import each other in a circle.
        LogError: the log or the view cannot be read, or the disk has no room for the corpus.
    """
    try:
        # One transaction: the file of a key has exactly its traces, whatever is recorded meanwhile.
        with closing(queries.connect(database_db)) as view, one_moment(view):
            chosen = choose(view, (repository,), every_commit=False, simulated=simulated)
            path = kept / f"{short_hash('corpora', repository, str(simulated))}-{_key(chosen)}.jsonl"
            if path.is_file():
                # Another job may remove it meanwhile, and a damaged one is written anew.
                with suppress(CorpusError):
                    return Corpus(path)
            return _written(path, chosen, events_db, view)
    except NothingToExportError as error:
        raise DatasetError(str(error)) from error
    except ImportCycleError as error:
        raise CorpusError(str(error)) from error


def _key(chosen: Sequence[ChosenTrace]) -> str:
    """Return a key of these traces, different for later ones of the repository."""
    return short_hash("corpus", _VERSION, *(f"{one.row.trace}@{one.row.seq}" for one in chosen))


def _written(path: Path, chosen: Sequence[ChosenTrace], events_db: Path, view: sqlite3.Connection) -> Corpus:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=path.parent) as scratch,
            LogReader.open(events_db) as log,
        ):
            out = Path(scratch) / "dataset"
            export_chosen(out, chosen, log=log, view=view, mode=Mode.FOR_LIFE, with_database=False)
            corpus = Corpus(out / _CORPUS)
            (out / _CORPUS).replace(path)
        for leftover in path.parent.glob(f"{_SCRATCH}*"):
            if time.time() - leftover.stat().st_mtime > _LEFT_S:  # of a job that was killed
                shutil.rmtree(leftover, ignore_errors=True)
        prefix, _, _ = path.name.partition("-")
        for other in path.parent.glob(f"{prefix}-*.jsonl"):
            if other != path:
                other.unlink(missing_ok=True)
    except OSError as error:
        raise LogError(
            f"the corpus {path} cannot be kept: {error.strerror or error}; make room there"
        ) from error
    return corpus


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
