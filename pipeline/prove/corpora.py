"""The premises that retrieval looks for in: of a repository's newest trace, or of a file that somebody names.

To write a trace's corpus all of the trace is read, which takes half a minute for one of Mathlib's size; to read the
corpus itself takes three seconds. So it is kept, one for each repository, until there is another trace.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from pipeline.models.errors import CorpusError, DatasetError
from pipeline.models.retriever.corpus import Corpus
from store.domain.identity import short_hash
from store.errors import LogError
from store.leandojo.choosing import Chosen, ImportCycleError, NothingToExportError, choose
from store.leandojo.exporting import Mode, export_chosen, one_moment
from store.log.reader import LogReader
from store.view.queries import basic as queries

_CORPUS = "corpus.jsonl"
_VERSION = "1"
"""Of what an export writes of the same traces."""
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
        kept: a folder for corpora, of several jobs; what lies there may be removed at any time.

    Raises:
        DatasetError: the repository has no trace.
        CorpusError: its files import each other in a circle.
        LogError: the log or the view cannot be read, or there is no room for the corpus on the disk.
    """
    try:
        # One moment: what lies under a key is what its traces say, whatever is recorded meanwhile.
        with closing(queries.connect(database_db)) as view, one_moment(view):
            chosen = choose(view, (repository,), every_commit=False, simulated=simulated)
            path = kept / f"{short_hash('corpora', repository, str(simulated))}-{_key(chosen)}.jsonl"
            if path.is_file():
                # Another job may remove it meanwhile, and what is damaged is made anew.
                with suppress(CorpusError):
                    return Corpus(path)
            return _written(path, chosen, events_db, view)
    except NothingToExportError as error:
        raise DatasetError(str(error)) from error
    except ImportCycleError as error:
        raise CorpusError(str(error)) from error


def _key(chosen: Sequence[Chosen]) -> str:
    """Return what tells these traces from later ones of the repository."""
    return short_hash("corpus", _VERSION, *(f"{one.row.trace}@{one.row.seq}" for one in chosen))


def _written(path: Path, chosen: Sequence[Chosen], events_db: Path, view: sqlite3.Connection) -> Corpus:
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
