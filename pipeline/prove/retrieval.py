"""Premises for a goal: the retriever's nearest among all that the goal's theorem may use.

As in training, a theorem may use the premises of all files that its file imports, and those above it in its own. They
are marked code (`pipeline.models.text.document_text`), the nearest first. The queries of all open searches are embedded
in one batch, in a thread of their own.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipeline.models.chain import DESCRIPTION, Chain
from pipeline.models.errors import CorpusError, DatasetError
from pipeline.models.libraries import tensors_digest
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import Encoder, Tokens, load_encoder, load_tokens
from pipeline.models.retriever.index import EmbeddingIndex, embed_texts, top_k
from pipeline.models.retriever.retriever import PremiseRetriever
from pipeline.models.tactics.service import Batching
from pipeline.models.text import query_text, state_of
from pipeline.prove.graph import TacticRequest
from store.domain.identity import short_hash
from store.domain.records import Position
from store.errors import LogError
from store.leandojo.choosing import ChosenTrace, ImportCycleError, NothingToExportError, choose
from store.leandojo.exporting import Mode, export_chosen, one_moment
from store.log.reader import LogReader
from store.view import queries

_BATCH = 32
_MASKS = 64


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a goal's theorem.

    Attributes:
        path: of its file, as in the corpus; None: no file.
        position: of its beginning: (line, column) from 1; None: no premise of its own file counts.
        name: its full name. A theorem that the corpus has in that file keeps its traced position, however lines have
            moved since.
        imports: modules that its file imports, for a file that the corpus lacks. None, with a path of None: every
            premise counts.
    """

    path: str | None = None
    position: Position | None = None
    name: str = ""
    imports: tuple[str, ...] | None = None


class PremiseFinder:
    """One retriever with one corpus. For one thread at a time; `Retrieval` serves many searches."""

    def __init__(
        self,
        encoder: Encoder,
        tokens: Tokens,
        corpus: Corpus,
        *,
        indices: Path | None = None,
        premises: int = 10,
        document_length: int = 512,
        query_length: int = 1024,
    ) -> None:
        """Embed the new premises of the corpus.

        Args:
            encoder: the retriever's, on its device.
            tokens: its tokenizer.
            corpus: of the premises.
            indices: the folder of embedding indices; None: embeddings are not stored.
            premises: the number for a goal.
            document_length: the maximum of tokens in a document, as in training.
            query_length: the maximum of tokens in a query, as in training.

        Raises:
            LearningError: the index cannot be written, or the weights are damaged.
        """
        encoder.train(False)
        self.corpus = corpus
        self._premises = premises
        self._query_length = query_length
        self._encoder = encoder
        self._tokens = tokens
        self._documents = [premise.serialize() for premise in corpus.all_premises]
        if indices is None:
            self._vectors = embed_texts(encoder, self._tokens, self._documents, document_length)
        else:
            index = EmbeddingIndex(
                indices,
                weights=tensors_digest(encoder.state_dict()),
                max_seq_len=document_length,
                d_model=encoder.config.d_model,
            )
            stored, _ = index.vectors(self._documents, encoder, self._tokens)
            self._vectors = torch.from_numpy(stored).to(encoder.device)
        self._masks: OrderedDict[Place, Tensor] = OrderedDict()

    @classmethod
    def load(
        cls, model: str | Path, corpus: Corpus, *, device: str | torch.device = "cpu", **settings: Any
    ) -> PremiseFinder:
        """Load a retriever: a folder, a hub name, or a `.ckpt` file that LeanDojo wrote.

        Args:
            model: a checkpoint's folder gives the lengths of its training.
            corpus: of the premises.
            device: of the encoder.
            settings: of the constructor.

        Raises:
            LearningError: it cannot be loaded.
        """
        folder = Path(model)
        if (folder / DESCRIPTION).is_file():
            about = Chain(folder.parent).read(folder.name, verify=True)
            trained = RetrieverConfig()
            settings = {
                "document_length": int(about.config.get("max_seq_len", trained.max_seq_len)),
                "query_length": int(about.config.get("data_max_seq_len", trained.data_max_seq_len)),
                **settings,
            }
        if folder.suffix == ".ckpt":
            found = PremiseRetriever.load(model, device, True, RetrieverConfig().model_arguments())
            return cls(found.encoder, found.tokens, corpus, **settings)
        encoder = load_encoder(model)
        torch.nn.Module.to(encoder, device)
        return cls(encoder, load_tokens(model), corpus, **settings)

    @classmethod
    def of_checkpoint(
        cls,
        chain: Path,
        checkpoint: str,
        corpus: Corpus,
        *,
        indices: Path | None = None,
        premises: int = 10,
        device: str | torch.device = "cpu",
    ) -> PremiseFinder:
        """Load a checkpoint of the retriever's chain, with the lengths of its training.

        Raises:
            LearningError: it is missing or damaged.
        """
        folder = chain / checkpoint
        if not (folder / DESCRIPTION).is_file():
            Chain(chain).read(checkpoint)  # raises the error that names the missing file
        return cls.load(folder, corpus, device=device, indices=indices, premises=premises)

    def find(self, asked: Sequence[tuple[str, Place]]) -> list[tuple[str, ...]]:
        """Return the marked code of the nearest premises of each (state, place), the nearest first.

        A theorem that may use fewer gets all of them.

        Raises:
            DivergedError: the retriever's weights are damaged.
        """
        if not asked or not self._documents:
            return [()] * len(asked)
        states = [query_text(state) for state, _ in asked]
        vectors = embed_texts(self._encoder, self._tokens, states, self._query_length)
        allowed = torch.stack([self._allowed(place) for _, place in asked])
        found = top_k(vectors, self._vectors, allowed, self._premises)
        return [tuple(self._documents[number] for number in numbers) for numbers, _ in found]

    def _allowed(self, place: Place) -> Tensor:
        if place not in self._masks:
            made = torch.from_numpy(accessible(self.corpus, place)).to(self._vectors.device)
            self._masks[place] = made
            if len(self._masks) > _MASKS:
                self._masks.popitem(last=False)
        self._masks.move_to_end(place)
        return self._masks[place]


class Retrieval:
    """A finder for all the searches of a job. A context, on one event loop."""

    def __init__(self, finder: PremiseFinder) -> None:
        """Hold a finder for exclusive use while the context is open."""
        self._service: Batching[tuple[str, Place], tuple[str, ...]] = Batching(
            finder.find, at_once=_BATCH, name="retriever"
        )

    async def premises(self, state: str, place: Place) -> tuple[str, ...]:
        """Return the marked code of the premises nearest to a state.

        Raises:
            GenerationStoppedError: the service is closed. LearningError: the retriever failed.
        """
        return await self._service.ask((state, place))

    def at(self, place: Place) -> Callable[[TacticRequest], Coroutine[Any, Any, tuple[str, ...]]]:
        """Return the premise lookup for a proposer at that place (`generator.Retrieve`)."""

        async def premises(request: TacticRequest) -> tuple[str, ...]:
            return await self.premises(state_of(request.goals), place)

        return premises

    async def __aenter__(self) -> Retrieval:
        await self._service.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._service.close()


def accessible(corpus: Corpus, place: Place) -> npt.NDArray[np.bool_]:
    """Return a mask of the premises that a theorem at a place may use: bool, shape (len(corpus),)."""
    if place.path is not None and place.path in corpus:
        mask: npt.NDArray[np.bool_] = corpus.imported_files(place.path)[corpus.file_of_premise]
        position = _as_traced(corpus, place)
        if position is not None:
            mask[corpus.before(place.path, position)] = True
        return mask
    if place.imports is None and place.path is None:
        return np.ones(len(corpus), dtype=np.bool_)
    files = np.zeros(corpus.num_files, dtype=np.bool_)
    wanted = {f"{module.replace('.', '/')}.lean" for module in place.imports or ()}
    for number, file in enumerate(corpus.files):
        # A library's files are below its own folder: ".lake/packages/mathlib/Mathlib/Order/Basic.lean".
        if file.path in wanted or any(file.path.endswith(f"/{path}") for path in _ends(file.path, wanted)):
            files |= corpus.imported_files(file.path)
            files[number] = True
    found: npt.NDArray[np.bool_] = files[corpus.file_of_premise]
    return found


def _as_traced(corpus: Corpus, place: Place) -> Position | None:
    assert place.path is not None
    known = (premise.start for premise in corpus.get_premises(place.path) if premise.full_name == place.name)
    return next(known, place.position)


def _ends(path: str, wanted: set[str]) -> list[str]:
    """Return the wanted paths with the same last part, the only ones that this path could end with."""
    last = path.rpartition("/")[2]
    return [one for one in wanted if one.rpartition("/")[2] == last]


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
