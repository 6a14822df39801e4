"""Premises for a goal: a trained retriever's nearest among all that the goal's theorem may use (`places`)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from pipeline.models.chain import Chain
from pipeline.models.model_files import DESCRIPTION
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus, Premise
from pipeline.models.retriever.encoder import Encoder, Tokens, load_encoder, load_tokens, query_ids
from pipeline.models.retriever.index import EmbeddingIndex, embed_premises, embed_texts, top_k
from pipeline.models.retriever.places import Place, accessible
from pipeline.models.retriever.retriever import PremiseRetriever
from pipeline.models.text import query_text

_MASKS = 64
_AT_ONCE = 64


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
        return embed_texts(self.encoder, partial(query_ids, self.tokens), texts, self.query_length)


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
        ranked = self.rank(asked, self._premises)
        return [tuple(self.corpus[number] for number in numbers) for numbers in ranked]

    def rank(self, asked: Sequence[tuple[str, Place]], k: int) -> list[list[int]]:
        """Return the numbers of the k nearest premises of each (state, place), the nearest first.

        Raises:
            DivergedError: the retriever's weights are damaged.
        """
        if len(self.corpus) == 0:
            return [[]] * len(asked)
        parts = (asked[at : at + _AT_ONCE] for at in range(0, len(asked), _AT_ONCE))
        return [found for part in parts for found in self._ranked(part, k)]

    def _ranked(self, asked: Sequence[tuple[str, Place]], k: int) -> list[list[int]]:
        states = [query_text(state) for state, _ in asked]
        vectors = self._retriever.embed(states)
        allowed = torch.stack([self._allowed(place) for _, place in asked])
        return [numbers.tolist() for numbers, _ in top_k(vectors, self._vectors, allowed, k)]

    def _allowed(self, place: Place) -> Tensor:
        if place not in self._masks:
            made = torch.from_numpy(accessible(self.corpus, place)).to(self._vectors.device)
            self._masks[place] = made
            if len(self._masks) > _MASKS:
                self._masks.popitem(last=False)
        self._masks.move_to_end(place)
        return self._masks[place]
