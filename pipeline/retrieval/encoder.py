"""The encoder of states and premises: a T5 encoder, its mean over a text's tokens, made a unit vector.

One encoder serves queries and documents; the score of a pair is the inner product of its vectors, the cosine
(LeanDojo, arXiv:2306.15626). Owns loading, saving and the hash of weights; `tiny` makes a small one without a network.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer, ByT5Tokenizer, T5Config, T5EncoderModel

from pipeline.retrieval.errors import CheckpointError, first_line
from pipeline.retrieval.quiet import quiet_libraries
from pipeline.retrieval.text import Ids, byte_ids, padded

WEIGHTS = "model.safetensors"

# A config.json may hold anything, and transformers looks at it without asking.
_UNLOADABLE = (
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    RuntimeError,
    SafetensorError,
    StrictDataclassError,
)
_PROBE = "theorem"


class Tokens(Protocol):
    """Makes ids of a text, at most `max_length` of them with the end mark."""

    def __call__(self, text: str, max_length: int) -> Ids: ...


def load_encoder(model: str | Path, *, dtype: torch.dtype = torch.float32) -> T5EncoderModel:
    """Return the encoder of a folder or of a hub name (fetched only where the hub may be asked).

    Raises:
        CheckpointError: there is none, it is damaged, or it is no T5 encoder.
    """
    try:
        config = AutoConfig.from_pretrained(model)
        if not isinstance(config, T5Config):
            raise CheckpointError(
                f"{model} is a {config.model_type} model; the retriever takes T5 encoders (ByT5 among them)"
            )
        with quiet_libraries():
            loaded: Any = T5EncoderModel.from_pretrained(model, dtype=dtype, output_loading_info=True)
    except _UNLOADABLE as error:
        raise _refused(str(model), model, error) from error
    encoder: T5EncoderModel
    encoder, report = loaded
    # transformers starts what a file lacks at random; a retriever that is half random must not pass for a trained one.
    missing = [name for name in report["missing_keys"] if name != "encoder.embed_tokens.weight"]
    if missing:
        raise CheckpointError(
            f"{model} lacks {len(missing)} of the encoder's weights ({missing[0]}, …): it is not a whole checkpoint"
        )
    return encoder


def load_tokens(model: str | Path) -> Tokens:
    """Return what makes ids for a model: bytes for ByT5, else the model's own tokenizer.

    Raises:
        CheckpointError: the model has no tokenizer, or one that cannot read.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except _UNLOADABLE as error:
        raise _refused(f"the tokenizer of {model}", model, error) from error
    if isinstance(tokenizer, ByT5Tokenizer):
        return byte_ids
    # Where its files are missing, transformers makes one without a word in it, and every text is the same.
    if tokenizer.unk_token_id in tokenizer(_PROBE)["input_ids"]:
        raise CheckpointError(
            f"the tokenizer of {model} does not know the letters of {_PROBE!r}: its vocabulary is missing. Copy the "
            "tokenizer's files from where the weights are from"
        )

    def ids(text: str, max_length: int) -> Ids:
        row = tokenizer(text, truncation=True, max_length=max_length)["input_ids"]
        return np.asarray(row, dtype=np.int32)

    return ids


def _refused(what: str, model: str | Path, error: Exception) -> CheckpointError:
    path = Path(model)
    remedy = f"Name a folder with config.json, {WEIGHTS} and a tokenizer, or a model of the hub"
    if path.exists():
        return CheckpointError(f"{what} cannot be loaded ({first_line(error)}). {remedy}")
    # The hub's library takes a path for a bad name.
    if path.is_absolute() or len(path.parts) != 2:
        return CheckpointError(f"{what} cannot be loaded (there is no such folder). {remedy}")
    return CheckpointError(
        f"{what} cannot be loaded ({first_line(error)}). Fetch it where there is a network, with `HF_HUB_OFFLINE=0 hf "
        f"download {model}`, or name a folder with config.json, {WEIGHTS} and a tokenizer"
    )


def embed(encoder: T5EncoderModel, ids: Tensor, mask: Tensor) -> Tensor:
    """Return the unit vectors of texts.

    Args:
        encoder: the T5 encoder.
        ids: token ids, int64, shape (n, length).
        mask: 1 for a token, 0 for padding, int64, shape (n, length).

    Returns:
        shape (n, d_model), the encoder's dtype; under autocast float32.
    """
    hidden = encoder(input_ids=ids, attention_mask=mask).last_hidden_state.to(encoder.dtype)
    summed = (hidden * mask.unsqueeze(2)).sum(dim=1)
    return torch.nn.functional.normalize(summed / mask.sum(dim=1, keepdim=True), dim=1)


def tensors_of(rows: Sequence[Ids], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return rows of ids as padded tensors (ids, mask) on a device: int64, shape (len(rows), longest)."""
    ids, mask = padded(rows)
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


def weights_digest(state: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of weights by what they are: names, dtypes, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        head: list[Any] = [name, str(tensor.dtype), list(tensor.shape)]
        digest.update(json.dumps(head).encode())
        digest.update(tensor.view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
