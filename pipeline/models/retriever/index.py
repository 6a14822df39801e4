"""The embeddings of premises on disk, and the exact search for the best of them.

    <folder>/<weights>-<pooling>-<length>-<block>.npy    records: the SHA-256 of a document, and its vector, float32

A file has the name of its encoder's weights and pooling, of the tokens of the longest document, and of its own
documents. Vectors of a GPU in bfloat16 and of a CPU in float32 lie side by side: their cosines differ by some
thousandths, and a server without a GPU need not embed again after training. Files are written whole, by one process at
a time, and never changed.

A search computes scores, applies the accessibility mask, then takes the k highest, ties to the lower index. No
approximation: a pass over 180,000 vectors costs less than the query's own embedding. The mask is applied before
anything is ranked, so k premises come back wherever k are accessible.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipeline.models.adapters import adapters_of, model_for
from pipeline.models.errors import DivergedError, LearningError
from pipeline.models.libraries import computes_in_bfloat16, device_of, exact_float32, tensors_digest
from pipeline.models.model_files import read_checkpoint
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import (
    POOLING,
    Encoder,
    Texts,
    Tokens,
    embed,
    load_encoder,
    load_tokens,
    query_ids,
    with_adapter,
)
from store.files import lock, written_whole

_BLOCK = 4096
"""Texts tokenized, and vectors written, at a time."""


def stored_vectors(retriever: Retriever, documents: Sequence[str], folder: Path) -> npt.NDArray[np.float32]:
    """Return the vectors of documents: float32, shape (len(documents), hidden_size).

    `folder` has the embeddings of all retrievers; new ones are added.

    Raises:
        LearningError: the disk refused, and whole blocks stay; or a file is damaged.
        DivergedError: an embedding is not finite; its block is not written.
    """
    pooling = getattr(retriever.encoder.config, POOLING)
    place = folder / f"{retriever.weights}-{pooling}-{retriever.document_length}"
    keys = [hashlib.sha256(document.encode("utf-8", "surrogatepass")).digest() for document in documents]
    texts = dict(zip(keys, documents, strict=True))
    try:
        known = _read(place)
        if not texts.keys() <= known.keys():
            folder.mkdir(parents=True, exist_ok=True)
            # Another process may be embedding some of them.
            with lock(place.with_name(f"{place.name}-lock")):
                known = _read(place)
                _write(place, retriever, {key: text for key, text in texts.items() if key not in known})
            known = _read(place)
    except OSError as error:
        raise LearningError(
            f"embeddings cannot be kept as {place}-*.npy ({error}). Make room, or give back the right to write, then "
            "run it again: those that were written before are not computed again"
        ) from error
    result = np.empty((len(keys), retriever.encoder.config.hidden_size), dtype=np.float32)
    for row, key in enumerate(keys):
        result[row] = known[key]
    return result


def _write(place: Path, retriever: Retriever, missing: Mapping[bytes, str]) -> None:
    keys, texts = iter(missing), list(missing.values())
    for made in embed_blocks(retriever.encoder, retriever.tokens, texts, retriever.document_length):
        own = b"".join(islice(keys, len(made)))
        block = np.empty(len(made), [("document", "V32"), ("vector", np.float32, made.shape[1])])
        block["document"] = np.frombuffer(own, "V32")
        block["vector"] = made.cpu().numpy()
        name = f"{place.name}-{hashlib.sha256(own).hexdigest()[:16]}"
        file_path = place.with_name(f"{name}.npy")
        with written_whole(file_path, temporary=place.with_name(f"{name}.part")) as file:
            np.save(file, block)


def _read(place: Path) -> dict[bytes, npt.NDArray[np.float32]]:
    known: dict[bytes, npt.NDArray[np.float32]] = {}
    for path in place.parent.glob(f"{place.name}-*.npy"):
        try:
            block = np.load(path, mmap_mode="r")
        except (ValueError, EOFError) as error:
            raise LearningError(
                f"{path} is damaged ({error}): remove it, and its premises are embedded again"
            ) from error
        known.update(zip(block["document"].tolist(), np.asarray(block["vector"]), strict=True))
    return known


def embed_texts(
    encoder: Encoder,
    tokens: Tokens,
    texts: Sequence[str],
    max_seq_len: int,
    *,
    unit: bool = True,
) -> Tensor:
    """Return the vectors of texts, on the encoder's device: float32, shape (len(texts), hidden_size).

    Arguments and errors as `embed_blocks`'.
    """
    made = [*embed_blocks(encoder, tokens, texts, max_seq_len, unit=unit)]
    return torch.cat(made) if made else torch.empty(0, encoder.config.hidden_size, device=encoder.device)


@torch.no_grad()
def embed_blocks(
    encoder: Encoder,
    tokens: Tokens,
    texts: Sequence[str],
    max_seq_len: int,
    *,
    unit: bool = True,
) -> Iterator[Tensor]:
    """Yield the vectors of some texts after those of the others, while a thread makes the tokens of the next ones.

    Texts of like length are embedded together, so that little is padding. Matrix products are in bfloat16 if the device
    has it in hardware; pooling and vectors are in float32.

    Args:
        encoder: the retriever's.
        tokens: makes ids of a text.
        texts: to embed.
        max_seq_len: tokens of the longest.
        unit: whether vectors are scaled to length 1.

    Raises:
        DivergedError: a vector is not finite: the weights are damaged or diverged.
    """
    device, was_training = encoder.device, encoder.training
    encoder.train(False)
    bfloat16 = computes_in_bfloat16(device)
    blocks = [texts[start : start + _BLOCK] for start in range(0, len(texts), _BLOCK)]
    thread = ThreadPoolExecutor(1, "tokens")
    try:
        tokenized = thread.map(lambda block: [tokens(text, max_seq_len) for text in block], blocks)
        for block, rows in zip(blocks, tokenized, strict=True):
            own = Texts.of(rows).each(lambda tensor: tensor.to(device))
            # Embeddings do not depend on the training's precision.
            with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
                made = embed(encoder, own, unit=unit).float()
            # A row's sum is not finite if one of its numbers is not, and takes no memory of the matrix's size.
            broken = torch.nonzero(~torch.isfinite(made.sum(dim=1)))
            if len(broken):
                raise DivergedError(
                    f"{len(broken)} of {len(block)} embeddings are no finite numbers, the first that of "
                    f"{block[int(broken[0])][:80]!r}: the encoder's weights are damaged or have diverged. Take "
                    "another checkpoint, or train with a smaller learning rate"
                )
            yield made
    finally:
        thread.shutdown(cancel_futures=True)
        encoder.train(was_training)


_AT_ONCE = 64
"""Queries ranked at a time."""


@dataclass(frozen=True, eq=False)
class Retriever:
    """A retriever's encoder on its device, with its tokenizer and the tokens of its longest texts."""

    encoder: Encoder
    tokens: Tokens
    document_length: int = 512
    query_length: int = 1024
    unit: bool = True
    """Scale vectors to length 1."""
    adapters: Mapping[str, Path] = field(default_factory=dict)
    """Each repository's adapter on this encoder, which serves the others."""
    _own: dict[str, Retriever] = field(default_factory=dict, init=False)

    def of(self, repository: str) -> Retriever:
        """Return a repository's retriever, which shares the base's weights; it is loaded at the first call.

        Raises:
            ModelError: its adapter is damaged.
        """
        if repository not in self.adapters:
            return self
        if repository not in self._own:
            encoder = with_adapter(self.encoder, self.adapters[repository])
            self._own[repository] = replace(self, encoder=encoder, adapters={})
        return self._own[repository]

    @cached_property
    def weights(self) -> str:
        """The digest of the encoder's weights."""
        return tensors_digest(self.encoder.state_dict())

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Return the vectors of texts, as of queries, on the encoder's device: shape (len(texts), d).

        Raises:
            DivergedError: a vector is not finite.
        """
        return embed_texts(
            self.encoder, partial(query_ids, self.tokens), texts, self.query_length, unit=self.unit
        )

    def premises(self, corpus: Corpus, indices: Path | None = None) -> Tensor:
        """Return the unit vectors of a corpus's premises, on the encoder's device.

        `indices`: the folder of embedding indices; None: they are not stored.

        Raises:
            DivergedError: the encoder's weights are damaged. LearningError: the index cannot be written.
        """
        documents = [premise.serialize() for premise in corpus]
        if indices is None:
            return embed_texts(self.encoder, self.tokens, documents, self.document_length)
        return torch.from_numpy(stored_vectors(self, documents, indices)).to(self.encoder.device)

    def rank(
        self,
        vectors: Tensor,
        asked: Iterable[tuple[str, npt.NDArray[np.bool_]]],
        k: int,
        on_batch: Callable[[int], object] = lambda _done: None,
    ) -> list[list[int]]:
        """Return for each query the numbers of its k nearest allowed premises, the nearest first (`top_k`).

        Args:
            vectors: of all premises.
            asked: the queries, each with a mask of its allowed premises.
            k: the length of a ranking.
            on_batch: takes the number of queries done.

        Raises:
            DivergedError: the encoder's weights are damaged.
        """
        ranked: list[list[int]] = []
        left = iter(asked)
        while part := list(islice(left, _AT_ONCE)):
            allowed = torch.from_numpy(np.stack([mask for _, mask in part])).to(vectors.device)
            found = top_k(self.embed([query for query, _ in part]), vectors, allowed, k)
            ranked += [numbers.tolist() for numbers, _ in found]
            on_batch(len(ranked))
        return ranked


def load_retriever(
    model: str | Path,
    *,
    device: str | torch.device = "auto",
    config: RetrieverConfig | None = None,
) -> Retriever:
    """Load a checkpoint of the chain, another folder, a hub name, or LeanDojo's `.ckpt` file.

    Of a checkpoint with an adapter for each repository it is their base (`Retriever.of`).

    Args:
        model: the source.
        device: where to compute; "auto" is a GPU if there is one.
        config: has the lengths of texts; None: that of the checkpoint's training, whose files are compared with the
            saved ones.

    Raises:
        LearningError: it is missing or damaged, or no encoder; or there is no such device.
    """
    folder = Path(model)
    found = read_checkpoint(folder, verify=True) if config is None and folder.is_dir() else None
    config = config or RetrieverConfig.of_checkpoint({} if found is None else found.config)
    name = model_for(model, "")
    encoder, tokens = load_encoder(name), load_tokens(name)
    torch.nn.Module.to(encoder, device_of(str(device)))
    lengths = config.document_length, config.data_max_seq_len
    return Retriever(encoder.eval(), tokens, *lengths, adapters=adapters_of(model))


def top_k(
    queries: Tensor, documents: Tensor, allowed: Tensor, k: int
) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
    """Return for each query the indices and scores of its k best allowed documents, best first.

    Args:
        queries: shape (n, d).
        documents: shape (p, d), of the same dtype and device.
        allowed: bool, shape (n, p).
        k: the number; a query with fewer allowed documents gets those.

    Raises:
        DivergedError: a score is not a number: the weights are damaged or diverged.
    """
    n, p = len(queries), len(documents)
    if p == 0 or k <= 0:
        return [(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in range(n)]
    # Under the autocast of a validation scores would be bfloat16, with ties among most of the best.
    with torch.autocast(queries.device.type, enabled=False), exact_float32():
        scores = (queries @ documents.T).float()
    if bool(torch.isnan(scores).any()):
        raise DivergedError(
            "scores are no numbers: the encoder's weights are damaged or have diverged. Take another checkpoint"
        )
    scores.masked_fill_(~allowed, -torch.inf)
    # `topk` breaks ties in no fixed order, but its k-th value is exact: all scores from there on are candidates.
    least = scores.topk(min(k, p), dim=1).values[:, -1]
    found = []
    for row, lowest in zip(scores, least, strict=True):
        places = torch.nonzero((row >= lowest) & (row > -torch.inf)).squeeze(1)
        values = row[places]
        order = torch.argsort(values, descending=True, stable=True)[:k]
        found.append((places[order].cpu().numpy(), values[order].cpu().numpy()))
    return found
