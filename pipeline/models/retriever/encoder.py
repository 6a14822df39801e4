"""The encoder of states and premises: a text model with its token vectors pooled into a unit vector.

One encoder serves queries and documents; the score of a pair is the inner product of its vectors, the cosine (LeanDojo,
arXiv:2306.15626). Any encoder of transformers will do: T5's (ByT5 among them), BERT's kin, a decoder such as
Qwen3-Embedding. Its own files, in sentence-transformers' form, choose its pooling (`pooling_of`). `byte_ids` makes ids
of texts for ByT5, the same in training, index and search.
"""

from __future__ import annotations

import copy
import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    ByT5Tokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    T5Config,
    T5EncoderModel,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)
from transformers.utils.hub import cached_file

from pipeline.models.adapters import OF_RETRIEVERS, base_of, name_base, new_adapter
from pipeline.models.batching import by_length, goes_together, padded
from pipeline.models.errors import ModelError
from pipeline.models.libraries import load_tokenizer, load_weights, loading, quiet_libraries
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.text import fitting_state

PAD_ID = 0
EOS_ID = 1
_BYTE_OFFSET = 3
Ids: TypeAlias = npt.NDArray[np.int32]


def byte_ids(text: str, max_length: int) -> Ids:
    """Return ByT5's ids of a text: each UTF-8 byte plus 3, then the end mark 1; at most `max_length` of them.

    A long text loses its end but not the end mark, as in transformers' tokenizer with `truncation=True`. Unlike there,
    a text like "</s>" or "<extra_id_0>" is its bytes: it came from Lean and is no mark.

    Returns:
        int32, shape (length,).
    """
    # A lone surrogate cannot come out of a file, but may be in a JSON escape.
    data = text.encode("utf-8", "surrogatepass")[: max_length - 1]
    ids = np.empty(len(data) + 1, dtype=np.int32)
    ids[:-1] = np.frombuffer(data, dtype=np.uint8)
    ids[:-1] += _BYTE_OFFSET
    ids[-1] = EOS_ID
    return ids


_PROBE = "theorem"
Tokens = Callable[[str, int], Ids]
"""Makes ids of a text, at most a number of them with the end mark."""


def query_ids(tokens: Tokens, text: str, max_length: int) -> Ids:
    """Return the ids of a query: a long state loses goals and the oldest hypotheses before its goal.

    A document loses its end.
    """
    # A text with all ids that the model takes may be a cut one.
    longest = min(max_length, tokens.longest - 1) if isinstance(tokens, _OwnTokens) else max_length

    @cache
    def ids(shorter: str) -> Ids:
        return tokens(shorter, longest + 1)

    cut = fitting_state(text, lambda shorter: len(ids(shorter)) <= longest)
    return ids(cut) if len(ids(cut)) <= longest else tokens(cut, longest)


Encoder: TypeAlias = PreTrainedModel
"""The retriever's network, of any architecture. Its width is `config.hidden_size`, T5's too."""
Pooling = Literal["mean", "cls", "last"]
"""The token vectors a text's own is made of: their mean, the first, or the last."""
POOLING = "retriever_pooling"
"""The field of config.json with the pooling."""
_MODES: dict[str, Pooling] = {
    "mean": "mean",
    "cls": "cls",
    "lasttoken": "last",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
"""sentence-transformers' names, the present ones and the earlier ones."""
_CKPT = ".ckpt"
_OF_CKPT = "encoder."
_HEAD = "pooler"
"""The layer of BERT's kin above the first token; the retriever does not use it."""


def load_encoder(model: str | Path) -> Encoder:
    """Return the encoder of a folder, LeanDojo's `.ckpt` file, or a hub name (fetched only where the hub may be asked).

    Raises:
        ModelError: it is missing, damaged, an encoder-decoder other than T5's, or has layers above its pooling.
    """
    path = Path(model)
    base, weights = _read_ckpt(path) if path.suffix == _CKPT else (base_of(model), None)
    with loading(str(model), model):
        config = AutoConfig.from_pretrained(base)
        t5 = isinstance(config, T5Config)
        if config.is_encoder_decoder and not t5:
            raise ModelError(
                f"{model} is a {config.model_type} model, an encoder-decoder; the retriever takes encoders, and of "
                "encoder-decoders T5's"
            )
        pooling = pooling_of(base, config)
        found, lacks = load_weights(T5EncoderModel if t5 else AutoModel, base, dtype=torch.float32)
        if weights is not None:
            found.load_state_dict(weights)
    encoder: Encoder = found
    # A half random retriever must not pass for a trained one.
    missing = [
        name for name in lacks if name != "encoder.embed_tokens.weight" and not name.startswith(f"{_HEAD}.")
    ]
    if missing:
        raise ModelError(
            f"{model} lacks {len(missing)} of the encoder's weights ({missing[0]}, …): it is not a whole checkpoint"
        )
    if getattr(encoder, _HEAD, None) is not None:
        setattr(encoder, _HEAD, None)
    if not t5:
        encoder.config.use_cache = False
    setattr(encoder.config, POOLING, pooling)
    return encoder if base == str(model) or weights is not None else with_adapter(encoder, model)


def with_adapter(encoder: Encoder, folder: str | Path) -> Encoder:
    """Return an encoder with an adapter on it, whose layers share its weights; it stays what it is.

    Raises:
        ModelError: the adapter is missing, damaged, or of another model.
    """
    kept = {id(tensor): tensor for tensor in (*encoder.parameters(), *encoder.buffers())}
    result: Encoder = copy.deepcopy(encoder, kept)
    with loading(f"the adapter {folder}", folder):
        result.load_adapter(str(folder))
    return result.to(encoder.device).train(encoder.training)


def train_adapter(encoder: Encoder, *, rank: int, seed: int) -> None:
    """Restrict a training to an adapter: the encoder's, else a new one.

    The seed draws a new one, which changes no vector before training.
    """
    if has_adapter(encoder):
        encoder.set_adapter(encoder.active_adapters())
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encoder.add_adapter(new_adapter(rank, OF_RETRIEVERS))
    name_base(encoder, encoder.name_or_path)


def has_adapter(encoder: Encoder) -> bool:
    return bool(getattr(encoder, "peft_config", None))


def save_encoder(encoder: Encoder, source: str | Path, folder: Path) -> None:
    """Write an encoder and the tokenizer of its source into a folder, made if need be.

    Of an encoder with an adapter it writes the adapter alone.

    Raises:
        OSError: the disk refused, or transformers has no tokenizer to copy; `safetensors.SafetensorError` likewise.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with quiet_libraries():
        encoder.save_pretrained(folder)
        if not has_adapter(encoder):
            AutoTokenizer.from_pretrained(source_of(source)).save_pretrained(folder)


def _read_ckpt(path: Path) -> tuple[str, dict[str, Tensor]]:
    """Return the model named in LeanDojo's `.ckpt` file, and the encoder's weights, without running its code.

    Raises:
        ModelError: it is no such file.
    """
    with loading(str(path), path):
        # `torch.load` ignores the checksums.
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise zipfile.BadZipFile(f"{damaged} in it is damaged")
        saved = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        own = {
            name.removeprefix(_OF_CKPT): value
            for name, value in saved["state_dict"].items()
            if name.startswith(_OF_CKPT)
        }
        # Some versions of transformers wrote the embeddings under one of their two names only.
        own.setdefault("encoder.embed_tokens.weight", own["shared.weight"])
        return str(saved["hyper_parameters"].get("model_name", RetrieverConfig().model_name)), own


def source_of(model: str | Path) -> str:
    """Return the folder or hub name of a model's architecture and tokenizer: an adapter's base, a `.ckpt` file's model.

    Raises:
        ModelError: an adapter's base or the `.ckpt` file cannot be read.
    """
    path = Path(model)
    return _read_ckpt(path)[0] if path.suffix == _CKPT else base_of(model)


def pooling_of(model: str | Path, config: Any) -> Pooling:
    """Return a model's pooling, from its config.json or sentence-transformers' files beside it.

    Without either: the last token of a model that reads from left to right, else the mean.

    Raises:
        ModelError: the files name a layer or a pooling the retriever does not have.
    """
    kept: Pooling | None = getattr(config, POOLING, None)
    if kept is not None:
        return kept
    modules = _beside(model, "modules.json")
    if modules is None:
        kind = str(config.model_type)
        causal = kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in MODEL_FOR_MASKED_LM_MAPPING_NAMES
        return "last" if causal else "mean"
    paths = {str(module["type"]).rpartition(".")[2]: module["path"] for module in modules}
    if others := ", ".join(paths.keys() - {"Transformer", "Pooling", "Normalize"}):
        raise ModelError(
            f"{model} has a layer {others} above its encoder (modules.json), which the retriever would leave out: take "
            "a model without one"
        )
    said = _beside(model, f"{paths.get('Pooling')}/config.json") or {}
    # A name, or a switch for each one.
    modes = [said.get("pooling_mode")] if "pooling_mode" in said else []
    modes += [name for name, value in said.items() if name.startswith("pooling_mode_") and value is True]
    if len(modes) != 1 or modes[0] not in _MODES:
        raise ModelError(
            f"{model} pools by {' and '.join(map(str, modes)) or 'nothing'} (modules.json); the retriever takes one of "
            f"{', '.join(get_args(Pooling))}"
        )
    return _MODES[modes[0]]


def _beside(model: str | Path, name: str) -> Any:
    """Return the content of a JSON file of a folder or hub name; None if it has no such file."""
    path = cached_file(
        str(model),
        name,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if path is None else json.loads(Path(path).read_text(encoding="utf-8"))


def load_tokens(model: str | Path) -> Tokens:
    """Return the function from texts to a model's ids: bytes for ByT5, else the model's own tokenizer.

    It cuts texts to the model's positions.

    Raises:
        ModelError: the model has no tokenizer, or one that cannot read; or an adapter's base cannot be read.
    """
    model = source_of(model)
    tokenizer = load_tokenizer(model)
    if isinstance(tokenizer, ByT5Tokenizer):
        return byte_ids
    with loading(str(model), model):
        config = AutoConfig.from_pretrained(model)
    # If its files are missing, transformers makes a tokenizer with an empty vocabulary: all texts are equal.
    if tokenizer.unk_token_id in tokenizer(_PROBE)["input_ids"]:
        raise ModelError(
            f"the tokenizer of {model} does not know the letters of {_PROBE!r}: its vocabulary is missing. Copy the "
            "tokenizer's files from where the weights are from"
        )
    longest = tokenizer.model_max_length
    return _OwnTokens(tokenizer, min(longest, getattr(config, "max_position_embeddings", longest)))


@dataclass(frozen=True, slots=True)
class _OwnTokens:
    """The function from texts to ids of a model's own tokenizer, for the processes of a loader too."""

    tokenizer: PreTrainedTokenizerBase
    longest: int

    def __call__(self, text: str, max_length: int) -> Ids:
        row = self.tokenizer(text, truncation=True, max_length=min(max_length, self.longest))["input_ids"]
        return np.asarray(row, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts as ids and mask, padded at the right: int64, shape (n, longest). Their lengths are known without a GPU."""

    ids: Tensor
    mask: Tensor
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, rows: Sequence[Ids]) -> Texts:
        return cls(*padded(rows, PAD_ID), tuple(map(len, rows)))

    def each(self, change: Callable[[Tensor], Tensor]) -> Texts:
        """Return the same texts with changed tensors."""
        return Texts(change(self.ids), change(self.mask), self.lengths)


def embed(encoder: Encoder, texts: Texts, *, recompute: bool = False, unit: bool = True) -> Tensor:
    """Return the vectors of texts, computed in groups of like length, so that little is padding.

    Args:
        encoder: the retriever's.
        texts: on its device.
        recompute: whether a group's activations are computed again for its gradient, as GradCache does (Gao et al.
            2021, arXiv:2101.06983): a step then holds those of one group and not of all, for a third more time.
        unit: whether vectors are scaled to length 1.

    Returns:
        shape (n, hidden_size), the encoder's dtype; under autocast float32.
    """
    device = texts.ids.device
    order: list[int] = []
    parts: list[Tensor] = []
    for rows in by_length(texts.lengths, goes_together):
        at = torch.tensor(rows, device=device)
        longest = max(texts.lengths[row] for row in rows)
        part = texts.ids[at, :longest], texts.mask[at, :longest]
        parts.append(
            cast(Tensor, checkpoint(pooled, encoder, *part, use_reentrant=False))
            if recompute and torch.is_grad_enabled()
            else pooled(encoder, *part)
        )
        order += rows
    made = torch.cat(parts)[torch.tensor(np.argsort(order), device=device)]
    return torch.nn.functional.normalize(made, dim=1) if unit else made


def pooled(encoder: Encoder, ids: Tensor, mask: Tensor) -> Tensor:
    """Return the vectors of texts before they are scaled to length 1, all in one pass."""
    hidden: Tensor = encoder(input_ids=ids, attention_mask=mask).last_hidden_state.to(encoder.dtype)
    pooling: Pooling = getattr(encoder.config, POOLING, "mean")
    if pooling == "mean":
        return (hidden * mask.unsqueeze(2)).sum(dim=1) / mask.sum(dim=1, keepdim=True)
    ends = mask.sum(dim=1) - 1 if pooling == "last" else torch.zeros_like(mask[:, 0])
    return hidden[torch.arange(len(ids), device=ids.device), ends]
