"""Premises for a goal: a trained retriever's nearest among all that the goal's theorem may use (`places`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipeline.models.chain import Chain
from pipeline.models.model_files import DESCRIPTION
from pipeline.models.retriever.baselines import Finder
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import Encoder, Tokens, load_ckpt, load_encoder, load_tokens, query_ids
from pipeline.models.retriever.index import EmbeddingIndex, embed_premises, embed_texts, top_k
from pipeline.models.retriever.places import Place
from pipeline.models.text import query_text

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
        name = RetrieverConfig().model_name if folder.suffix == ".ckpt" else model
        encoder, tokens = load_encoder(name), load_tokens(name)
        if name != model:
            load_ckpt(encoder, folder, name)
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


class PremiseFinder(Finder):
    """A trained retriever over one corpus."""

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
        super().__init__(corpus, premises)
        self._retriever = retriever
        encoder, length = retriever.encoder, retriever.document_length
        index = None if indices is None else EmbeddingIndex.of(indices, encoder, length)
        self._vectors, _ = embed_premises(encoder, retriever.tokens, corpus, length, index)

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

    def rank(self, asked: Sequence[tuple[str, Place]], k: int) -> list[list[int]]:
        if len(self.corpus) == 0:
            return [[]] * len(asked)
        parts = (asked[at : at + _AT_ONCE] for at in range(0, len(asked), _AT_ONCE))
        return [found for part in parts for found in self._ranked(part, k)]

    def _ranked(self, asked: Sequence[tuple[str, Place]], k: int) -> list[list[int]]:
        states = [query_text(state) for state, _ in asked]
        vectors = self._retriever.embed(states)
        masks = torch.from_numpy(np.stack([self._allowed(place) for _, place in asked]))
        allowed = masks.to(self._vectors.device)
        return [numbers.tolist() for numbers, _ in top_k(vectors, self._vectors, allowed, k)]
