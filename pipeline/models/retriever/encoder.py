"""The encoder of states and premises: a T5 encoder, its mean over a text's tokens, made a unit vector; and its losses.

One encoder serves queries and documents; the score of a pair is the inner product of its vectors, the cosine
(LeanDojo, arXiv:2306.15626). `byte_ids` makes ids of texts, the same in training, index and search. In a loss a row is
a query, a column a premise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer, ByT5Tokenizer, T5Config, T5EncoderModel

from pipeline.models.batching import padded
from pipeline.models.errors import CheckpointError, first_line
from pipeline.models.libraries import UNLOADABLE, quiet_libraries
from pipeline.models.retriever.config import Loss

if TYPE_CHECKING:
    import numpy.typing as npt

PAD_ID = 0
EOS_ID = 1
_BYTE_OFFSET = 3
Ids: TypeAlias = "npt.NDArray[np.int32]"


def byte_ids(text: str, max_length: int) -> Ids:
    """Return ByT5's ids of a text: each UTF-8 byte plus 3, then the end mark 1; at most `max_length` of them.

    A long text loses its end but not the end mark, as in transformers' tokenizer with `truncation=True`. Unlike there,
    a text like "</s>" or "<extra_id_0>" is its bytes: it came from Lean and is no mark.

    Returns:
        int32, shape (length,).
    """
    import numpy as np

    # A lone surrogate cannot come out of a file, but may be in a JSON escape.
    data = text.encode("utf-8", "surrogatepass")[: max_length - 1]
    ids = np.empty(len(data) + 1, dtype=np.int32)
    ids[:-1] = np.frombuffer(data, dtype=np.uint8)
    ids[:-1] += _BYTE_OFFSET
    ids[-1] = EOS_ID
    return ids


WEIGHTS = "model.safetensors"
_PROBE = "theorem"


class Tokens(Protocol):
    """Makes ids of a text, at most `max_length` of them with the end mark."""

    def __call__(self, text: str, max_length: int) -> Ids: ...


Encoder = T5EncoderModel
"""The retriever's network. Other modules use only this name, so replacing it changes only this file."""


def load_encoder(model: str | Path, *, dtype: torch.dtype = torch.float32) -> Encoder:
    """Return the encoder of a folder or of a hub name (fetched only where the hub may be asked).

    Raises:
        CheckpointError: it is missing, damaged, or it is no T5 encoder.
    """
    try:
        config = AutoConfig.from_pretrained(model)
        if not isinstance(config, T5Config):
            raise CheckpointError(
                f"{model} is a {config.model_type} model; the retriever takes T5 encoders (ByT5 among them)"
            )
        with quiet_libraries():
            loaded: Any = T5EncoderModel.from_pretrained(model, dtype=dtype, output_loading_info=True)
    except UNLOADABLE as error:
        raise _not_loadable(str(model), model, error) from error
    encoder: Encoder
    encoder, report = loaded
    # transformers initialises missing weights at random; a half random retriever must not pass for a trained one.
    missing = [name for name in report["missing_keys"] if name != "encoder.embed_tokens.weight"]
    if missing:
        raise CheckpointError(
            f"{model} lacks {len(missing)} of the encoder's weights ({missing[0]}, …): it is not a whole checkpoint"
        )
    return encoder


def load_tokens(model: str | Path) -> Tokens:
    """Return the function that makes a model's ids: bytes for ByT5, else the model's own tokenizer.

    Raises:
        CheckpointError: the model has no tokenizer, or one that cannot read.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except UNLOADABLE as error:
        raise _not_loadable(f"the tokenizer of {model}", model, error) from error
    if isinstance(tokenizer, ByT5Tokenizer):
        return byte_ids
    # If its files are missing, transformers makes a tokenizer with an empty vocabulary: all texts are equal.
    if tokenizer.unk_token_id in tokenizer(_PROBE)["input_ids"]:
        raise CheckpointError(
            f"the tokenizer of {model} does not know the letters of {_PROBE!r}: its vocabulary is missing. Copy the "
            "tokenizer's files from where the weights are from"
        )

    def ids(text: str, max_length: int) -> Ids:
        row = tokenizer(text, truncation=True, max_length=max_length)["input_ids"]
        return np.asarray(row, dtype=np.int32)

    return ids


def _not_loadable(what: str, model: str | Path, error: Exception) -> CheckpointError:
    path = Path(model)
    remedy = f"Name a folder with config.json, {WEIGHTS} and a tokenizer, or a model of the hub"
    if path.exists():
        return CheckpointError(f"{what} cannot be loaded ({first_line(error)}). {remedy}")
    # The hub's library rejects a path as a bad name.
    if path.is_absolute() or len(path.parts) != 2:
        return CheckpointError(f"{what} cannot be loaded (there is no such folder). {remedy}")
    return CheckpointError(
        f"{what} cannot be loaded ({first_line(error)}). Fetch it where there is a network, with `HF_HUB_OFFLINE=0 hf "
        f"download {model}`, or name a folder with config.json, {WEIGHTS} and a tokenizer"
    )


def embed(encoder: Encoder, ids: Tensor, mask: Tensor) -> Tensor:
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


def tensors_of(rows: Sequence[Ids], device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Return rows of ids as padded tensors (ids, mask) on a device: int64, shape (len(rows), longest)."""
    return padded(rows, PAD_ID, device)


RowLosses = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(scores, label, ignore), each (B, C), to the loss of each row: float32, shape (B,)."""
# Low enough to vanish in a softmax, and finite, so that a row without negatives has a gradient.
_NEVER = -1e4


def row_losses(loss: Loss, *, temperature: float) -> RowLosses:
    """Return a loss by its name; `temperature` divides the scores of "contrastive"."""
    if loss == "mse":
        return squared_error

    def contrast(scores: Tensor, label: Tensor, ignore: Tensor) -> Tensor:
        return contrastive(scores, label, ignore, temperature=temperature)

    return contrast


def squared_error(scores: Tensor, label: Tensor, ignore: Tensor) -> Tensor:
    """Return each row's mean squared difference of score and label: LeanDojo's loss (arXiv:2306.15626)."""
    difference = (scores.float() - label).square().masked_fill(ignore, 0.0)
    return difference.sum(dim=1) / (~ignore).sum(dim=1).clamp(min=1)


def contrastive(scores: Tensor, label: Tensor, ignore: Tensor, *, temperature: float) -> Tensor:
    """Return each row's mean, over its positives, of -log of the positive's share against the negatives.

    InfoNCE (van den Oord et al. 2018, arXiv:1807.03748) with several positives: a positive is compared with the
    negatives and not with the other positives, and columns to ignore are neither (the masked loss of Zhu et al. 2025,
    arXiv:2506.07477). A row without a positive costs nothing.
    """
    logits = scores.float() / temperature
    positive = (label > 0) & ~ignore
    negatives = logits.masked_fill(positive | ignore, _NEVER).logsumexp(dim=1, keepdim=True)
    each = torch.nn.functional.softplus(negatives - logits).masked_fill(~positive, 0.0)
    return each.sum(dim=1) / positive.sum(dim=1).clamp(min=1)
