"""LeanDojo-v2's `PremiseRetriever`: its names for our encoder, corpus, index and search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.models.datasets import Position
from pipeline.models.errors import CheckpointError, CorpusError
from pipeline.models.retriever.corpus import Corpus, Premise
from pipeline.models.retriever.encoder import (
    load_ckpt,
    load_encoder,
    load_tokens,
    query_ids,
    save_encoder,
)
from pipeline.models.retriever.index import accessible_masks, embed_texts, top_k
from pipeline.models.text import query_text


class PremiseRetriever(nn.Module):
    """An encoder that finds in a corpus which premises a tactic state needs. `RetrievalTrainer` trains one."""

    def __init__(
        self,
        model_name: str | Path,
        lr: float = 0.0,
        warmup_steps: int = 0,
        max_seq_len: int = 512,
        num_retrieved: int = 100,
        *,
        query_length: int = 1024,
    ) -> None:
        """Load the encoder of a folder or a hub name.

        Args:
            model_name: where the weights are from.
            lr, warmup_steps: of LeanDojo's own training; here without effect.
            max_seq_len: tokens of the longest document.
            num_retrieved: how many premises an evaluation ranks.
            query_length: tokens of the longest query.

        Raises:
            CheckpointError: there is no such encoder.
        """
        super().__init__()
        self.model_name = str(model_name)
        self.encoder = load_encoder(model_name)
        self.tokens = load_tokens(model_name)
        self.lr = lr
        self.warmup_steps = warmup_steps
        self.max_seq_len = max_seq_len
        self.num_retrieved = num_retrieved
        self.query_length = query_length
        self.corpus: Corpus | None = None
        self._vectors: Tensor | None = None

    @classmethod
    def load(
        cls, ckpt_path: str | Path, device: torch.device | str, freeze: bool, config: Mapping[str, Any]
    ) -> PremiseRetriever:
        """Return the retriever of a checkpoint: a folder, a hub name, or a `.ckpt` file that LeanDojo wrote.

        Args:
            ckpt_path: the checkpoint. Of a `.ckpt` file only tensors are read, never code.
            device: where to put it.
            freeze: whether to freeze its weights.
            config: the constructor's arguments (`RetrieverConfig.model_arguments`).

        Raises:
            CheckpointError: it cannot be used.
        """
        arguments = dict(config)
        name = arguments.pop("model_name", ckpt_path)
        path = Path(ckpt_path)
        if path.suffix == ".ckpt":
            model = cls(name, **arguments)
            load_ckpt(model.encoder, path, name)
        else:
            model = cls(ckpt_path, **arguments)
        model.to(device)
        return model.requires_grad_(False).eval() if freeze else model

    @classmethod
    def load_hf(
        cls,
        ckpt_path: str | Path,
        max_seq_len: int,
        device: torch.device | str,
        dtype: torch.dtype | None = None,
    ) -> PremiseRetriever:
        """Return the retriever of a folder or hub name, for inference.

        Raises:
            CheckpointError: it cannot be used.
        """
        model = cls(ckpt_path, max_seq_len=max_seq_len).to(device).eval()
        return model if dtype is None else model.to(dtype)

    def save(self, folder: Path) -> None:
        """Write the encoder and its tokenizer into a folder, made if need be, from which they can be loaded.

        Raises:
            OSError: the disk refused, or transformers has no tokenizer to copy; `safetensors.SafetensorError` likewise.
        """
        save_encoder(self.encoder, folder, tokens_of=self.model_name)

    def load_corpus(self, path_or_corpus: str | Path | Corpus) -> None:
        """Set the corpus to retrieve from: a `corpus.jsonl` or a `Corpus`.

        Raises:
            CorpusError: the file cannot be used.
        """
        self.corpus = path_or_corpus if isinstance(path_or_corpus, Corpus) else Corpus(path_or_corpus)
        self._vectors = None

    def reindex_corpus(self, batch_size: int | None = None) -> None:  # noqa: ARG002 - LeanDojo's signature
        """Embed the corpus with the present weights. `batch_size` is ignored: batches are made by length."""
        documents = [premise.serialize() for premise in self._known_corpus().all_premises]
        self._vectors = embed_texts(self.encoder, self.tokens, documents, self.max_seq_len)

    def retrieve(
        self,
        state: Sequence[str],
        file_name: Sequence[str],
        theorem_full_name: Sequence[str],
        theorem_pos: Sequence[Position],
        k: int,
    ) -> tuple[list[list[Premise]], list[list[float]]]:
        """Return the k best accessible premises of each state and their scores, best first.

        Args:
            state: tactic states, as Lean prints them.
            file_name: the file of each state's theorem, a path of the corpus.
            theorem_full_name: its name, on which the accessible premises do not depend.
            theorem_pos: where it begins: (line, column) from 1.
            k: how many. A theorem that may use fewer gets those.

        Raises:
            CheckpointError: no corpus was loaded.
            CorpusError: it has no such file.
            ValueError: there are not as many files, names and positions as states.
        """
        corpus = self._known_corpus()
        counts = [len(each) for each in (state, file_name, theorem_full_name, theorem_pos)]
        if len(set(counts)) > 1:
            raise ValueError(
                "{} states, {} files, {} names and {} positions: a state takes one of each".format(*counts)
            )
        unknown = [path for path in file_name if corpus.file(path) is None]
        if unknown:
            raise CorpusError(
                f"{corpus.source} has no file {unknown[0]}, so nothing is known to be accessible there. Paths are as "
                "in the corpus; a new file needs a new export"
            )
        if self._vectors is None:
            self.reindex_corpus()
        assert self._vectors is not None
        if not state:
            return [], []
        queries = [query_text(one) for one in state]
        asked = embed_texts(self.encoder, partial(query_ids, self.tokens), queries, self.query_length)
        allowed = accessible_masks(corpus, list(zip(file_name, theorem_pos, strict=True)), asked.device)
        found = top_k(asked, self._vectors, allowed, k)
        return (
            [[corpus[place] for place in places.tolist()] for places, _ in found],
            [scores.tolist() for _, scores in found],
        )

    def _known_corpus(self) -> Corpus:
        if self.corpus is None:
            raise CheckpointError(
                "the retriever has no corpus to search; call load_corpus with a corpus.jsonl"
            )
        return self.corpus
