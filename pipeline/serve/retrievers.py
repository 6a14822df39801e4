"""A retriever that the server has: it encodes for `/encode`, and finds premises for `/retrieve` and for generation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import T5EncoderModel

from pipeline.learning.checkpoints import DESCRIPTION
from pipeline.retrieval.chain import Chain
from pipeline.retrieval.config import TrainingConfig
from pipeline.retrieval.encoder import Tokens, load_encoder, load_tokens
from pipeline.retrieval.index import embed_texts
from pipeline.serve.encoding import EncodingModel
from pipeline.serve.measures import Measures
from pipeline.serve.order import Limits
from pipeline.serve.swapping import About

T = TypeVar("T")


class Retriever:
    """A retriever's encoder; `document_length` and `query_length` are the tokens that it was trained with."""

    def __init__(
        self, encoder: T5EncoderModel, tokens: Tokens, *, document_length: int, query_length: int
    ) -> None:
        self.encoder = encoder
        self.tokens = tokens
        self.document_length = document_length
        self.query_length = query_length

    @classmethod
    def load(cls, model: str | Path, *, device: torch.device) -> Retriever:
        """Load a checkpoint of the chain, another folder, or a model of the hub.

        Raises:
            RetrievalError: it is missing or damaged, or no T5 encoder.
        """
        folder, trained = Path(model), TrainingConfig()
        config: dict[str, Any] = {}
        if (folder / DESCRIPTION).is_file():
            config = Chain(folder.parent).read(folder.name, verify=True).config
        encoder = load_encoder(model)
        torch.nn.Module.to(encoder, device)
        encoder.train(False)
        return cls(
            encoder,
            load_tokens(model),
            document_length=int(config.get("max_seq_len", trained.max_seq_len)),
            query_length=int(config.get("data_max_seq_len", trained.data_max_seq_len)),
        )

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the unit vectors of texts, as of queries.

        Raises:
            DivergedError: one is no finite number.
        """
        made: list[list[float]] = (
            embed_texts(self.encoder, self.tokens, texts, self.query_length).cpu().tolist()
        )
        return made


class LoadedRetriever(EncodingModel):
    """A retriever for all clients. Its encoder may be asked beside, from other threads too: it only reads."""

    def __init__(
        self, name: str, retriever: Retriever, *, about: About, limits: Limits, measures: Measures
    ) -> None:
        super().__init__(name, retriever, about=about, limits=limits, measures=measures)
        self.encoder = retriever.encoder
        self.tokens = retriever.tokens
        self.document_length = retriever.document_length
        self.query_length = retriever.query_length

    @property
    def checkpoint(self) -> str:
        return self.about.checkpoint

    @property
    def simulated(self) -> bool:
        return self.about.simulated

    async def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the unit vectors of texts, in batches with other clients'.

        Raises:
            Problem: the encoder failed.
        """
        return await asyncio.gather(*map(self.encode, texts))

    async def run(self, work: Callable[[], T]) -> T:
        """Return what the work returns; it has a thread, so that it may take its time."""
        return await asyncio.to_thread(work)
