"""Premises for a goal: a trained retriever's nearest among those accessible to the goal's theorem (`places`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from pipeline.models.adapters import adapters_of, model_for
from pipeline.models.chain import Chain
from pipeline.models.libraries import device_of
from pipeline.models.model_files import DESCRIPTION
from pipeline.models.retriever.baselines import Finder
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import load_ckpt, load_encoder, load_tokens, with_adapter
from pipeline.models.retriever.index import Retriever, top_k
from pipeline.models.retriever.places import Place
from pipeline.models.text import query_text

_AT_ONCE = 64


def load_retriever(
    model: str | Path, *, device: str | torch.device = "auto", repository: str | None = None
) -> Retriever:
    """Load a checkpoint of the chain, another folder, a hub name, or LeanDojo's `.ckpt` file.

    `repository`: the key of the goals' repository, for a checkpoint with an adapter for each.

    Raises:
        LearningError: it is missing or damaged, or no encoder; it differs by repository, and none is named; or there is
            no such device.
    """
    folder = Path(model)
    lengths: dict[str, int] = {}
    if (folder / DESCRIPTION).is_file():
        config = Chain(folder.parent).read(folder.name, verify=True).config
        lengths = {
            "document_length": int(config["max_seq_len"]),
            "query_length": int(config["data_max_seq_len"]),
        }
    of_leandojo = folder.suffix == ".ckpt"
    name = RetrieverConfig().model_name if of_leandojo else model_for(model, repository)
    encoder, tokens = load_encoder(name), load_tokens(name)
    if of_leandojo:
        load_ckpt(encoder, folder, name)
    torch.nn.Module.to(encoder, device_of(str(device)))
    encoder.train(False)
    return Retriever(encoder, tokens, **lengths)


class Retrievers:
    """The retrievers of a checkpoint, on one device: one for all, or one for each repository.

    Those share the weights of their base, which serves repositories without an adapter.
    """

    def __init__(self, model: str | Path, *, device: str | torch.device = "auto") -> None:
        """Load the base, or the one for all; arguments and errors as `load_retriever`'s."""
        self._base = load_retriever(model, device=device, repository="")
        self._adapters = adapters_of(model)
        self._own: dict[str, Retriever] = {}

    @property
    def by_repository(self) -> bool:
        return bool(self._adapters)

    def of(self, repository: str) -> Retriever:
        """Return a repository's retriever, loaded at the first call.

        Raises:
            CheckpointError: its adapter is damaged.
        """
        if repository not in self._adapters:
            return self._base
        if repository not in self._own:
            encoder = with_adapter(self._base.encoder, self._adapters[repository])
            self._own[repository] = replace(self._base, encoder=encoder)
        return self._own[repository]


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
        self._vectors, _ = retriever.premises(corpus, retriever.index(indices))

    @classmethod
    def of_checkpoint(
        cls,
        chain: Path,
        checkpoint: str,
        corpus: Corpus,
        *,
        repository: str | None = None,
        indices: Path | None = None,
        premises: int = 10,
        device: str | torch.device = "cpu",
    ) -> PremiseFinder:
        """Load a checkpoint of the retriever's chain, with the lengths of its training.

        `repository`: the key of the corpus's.

        Raises:
            LearningError: it is missing or damaged; or it differs by repository, and none is named.
        """
        folder = chain / checkpoint
        if not (folder / DESCRIPTION).is_file():
            Chain(chain).read(checkpoint)  # raises the error that names the missing file
        retriever = load_retriever(folder, device=device, repository=repository)
        return cls(retriever, corpus, indices=indices, premises=premises)

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
