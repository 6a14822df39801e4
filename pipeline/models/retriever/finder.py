"""Premises for a goal: the retriever's nearest among all that the goal's theorem may use.

As in training, a theorem may use the premises of all files that its file imports, and those above it in its own: never
itself. Whoever is shown premises, a row of fine-tuning or a prover, has them from here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipeline.models.chain import Chain
from pipeline.models.datasets import Position
from pipeline.models.model_files import DESCRIPTION
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus, Premise
from pipeline.models.retriever.encoder import Encoder, Tokens, load_encoder, load_tokens
from pipeline.models.retriever.index import EmbeddingIndex, embed_premises, embed_texts, top_k
from pipeline.models.retriever.retriever import PremiseRetriever
from pipeline.models.text import query_text

_MASKS = 64
_AT_ONCE = 64


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


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Retriever:
    """A retriever's encoder on its device, with its tokenizer and the tokens of texts that it was trained with."""

    encoder: Encoder
    tokens: Tokens
    document_length: int = 512
    query_length: int = 1024

    @classmethod
    def load(cls, model: str | Path, *, device: str | torch.device = "cpu") -> Retriever:
        """Load a checkpoint of the chain, another folder, a hub name, or a `.ckpt` file that LeanDojo wrote.

        Raises:
            LearningError: it is missing or damaged, or no encoder.
        """
        folder = Path(model)
        lengths: dict[str, int] = {}
        if (folder / DESCRIPTION).is_file():
            config = Chain(folder.parent).read(folder.name, verify=True).config
            lengths = {
                "document_length": int(config["max_seq_len"]),
                "query_length": int(config["data_max_seq_len"]),
            }
        if folder.suffix == ".ckpt":
            found = PremiseRetriever.load(model, device, True, RetrieverConfig().model_arguments())
            encoder, tokens = found.encoder, found.tokens
        else:
            encoder, tokens = load_encoder(model), load_tokens(model)
            torch.nn.Module.to(encoder, device)
        encoder.train(False)
        return cls(encoder, tokens, **lengths)

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the unit vectors of texts, as of queries.

        Raises:
            DivergedError: one is no finite number.
        """
        made: list[list[float]] = self.embed(texts).cpu().tolist()
        return made

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Return the unit vectors of texts, as of queries, on the encoder's device: shape (len(texts), d).

        Raises:
            DivergedError: one is no finite number.
        """
        return embed_texts(self.encoder, self.tokens, texts, self.query_length)


class PremiseFinder:
    """One retriever with one corpus. For one thread at a time."""

    def __init__(
        self, retriever: Retriever, corpus: Corpus, *, indices: Path | None = None, premises: int = 10
    ) -> None:
        """Embed the new premises of the corpus.

        Args:
            retriever: finds them.
            corpus: of the premises.
            indices: the folder of embedding indices; None: embeddings are not stored.
            premises: the number for a goal.

        Raises:
            LearningError: the index cannot be written, or the weights are damaged.
        """
        self.corpus = corpus
        self._premises = premises
        self._retriever = retriever
        encoder, length = retriever.encoder, retriever.document_length
        index = None if indices is None else EmbeddingIndex.of(indices, encoder, length)
        self._vectors, _ = embed_premises(encoder, retriever.tokens, corpus, length, index)
        self._masks: OrderedDict[Place, Tensor] = OrderedDict()

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
        return cls(Retriever.load(folder, device=device), corpus, indices=indices, premises=premises)

    def find(self, asked: Sequence[tuple[str, Place]]) -> list[tuple[Premise, ...]]:
        """Return the nearest premises of each (state, place), the nearest first.

        A theorem that may use fewer gets all of them.

        Raises:
            DivergedError: the retriever's weights are damaged.
        """
        if len(self.corpus) == 0:
            return [()] * len(asked)
        parts = (asked[at : at + _AT_ONCE] for at in range(0, len(asked), _AT_ONCE))
        return [found for part in parts for found in self._found(part)]

    def _found(self, asked: Sequence[tuple[str, Place]]) -> list[tuple[Premise, ...]]:
        states = [query_text(state) for state, _ in asked]
        vectors = self._retriever.embed(states)
        allowed = torch.stack([self._allowed(place) for _, place in asked])
        found = top_k(vectors, self._vectors, allowed, self._premises)
        return [tuple(self.corpus[int(number)] for number in numbers) for numbers, _ in found]

    def _allowed(self, place: Place) -> Tensor:
        if place not in self._masks:
            made = torch.from_numpy(accessible(self.corpus, place)).to(self._vectors.device)
            self._masks[place] = made
            if len(self._masks) > _MASKS:
                self._masks.popitem(last=False)
        self._masks.move_to_end(place)
        return self._masks[place]


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
