"""PyTorch and transformers as every model uses them: quiet, on a device, with a tokenizer, weights by their hash."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal, get_args
from zipfile import BadZipFile

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import Tensor
from transformers import (
    AutoTokenizer,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from pipeline.models.config import Device
from pipeline.models.errors import ConfigError, DivergedError, ModelError
from store.text import first_line


def tensors_digest(state: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of weights by content: names, dtypes, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        head: list[Any] = [name, str(tensor.dtype), list(tensor.shape)]
        digest.update(json.dumps(head).encode())
        digest.update(tensor.view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


# transformers reads a config.json without checking it.
_UNLOADABLE = (
    *(OSError, ValueError, TypeError, AttributeError, KeyError, RuntimeError, ImportError),
    *(SafetensorError, StrictDataclassError, EOFError, UnpicklingError, BadZipFile),
)
"""Errors of transformers for a model that is missing, damaged, or of another kind."""
_TOKENIZER_FILES = ("tokenizer*", "spiece.model", "vocab.*", "*.tiktoken", "tekken.json")


def not_loadable(what: str, model: str | Path, error: BaseException) -> ModelError:
    """Return the error of a model, or of a part of it, that cannot be loaded from a folder or the hub."""
    path = Path(model)
    remedy = "Name a folder with config.json, model.safetensors and a tokenizer, or one with a LoRA adapter"
    if path.exists():
        return ModelError(f"{what} cannot be loaded ({first_line(error)}). {remedy}, or a model of the hub")
    # The hub's library rejects a path as a bad name.
    if path.is_absolute() or len(path.parts) > 2:
        return ModelError(
            f"{what} cannot be loaded (there is no such file or folder). {remedy}, or a model of the hub"
        )
    return ModelError(
        f"{what} cannot be loaded ({first_line(error)}). Fetch it where there is a network, with `HF_HUB_OFFLINE=0 hf "
        f"download {model}`. {remedy}"
    )


@contextmanager
def loading(what: str, model: str | Path) -> Iterator[None]:
    """Load a model, or a part of it, quietly.

    Raises:
        ModelError: it is missing, damaged, or of another kind.
    """
    try:
        with quiet_libraries():
            yield
    except _UNLOADABLE as error:
        raise not_loadable(what, model, error) from error


def load_tokenizer(model: str | Path) -> PreTrainedTokenizerBase:
    """Return a model's tokenizer; its end mark is also its padding token if it has none.

    Raises:
        ModelError: it is missing, or cannot be loaded.
    """
    path = Path(model)
    if path.is_dir() and not any(item for name in _TOKENIZER_FILES for item in path.glob(name)):
        raise ModelError(
            f"{model} has no tokenizer (no tokenizer.json or tokenizer_config.json). Copy the one of the model that it "
            "was trained from into it"
        )
    with loading(f"the tokenizer of {model}", model):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(model)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_weights(family: Any, model: str | Path, **given: Any) -> tuple[Any, list[str]]:
    """Return a model of one of transformers' families, and the names of missing weights, which are random."""
    loaded, report = family.from_pretrained(model, output_loading_info=True, **given)
    return loaded, sorted(report["missing_keys"])


DType = Literal["auto", "float32", "bfloat16"]


def device_of(name: str) -> torch.device:
    """Return the device of a name: "auto" is a GPU if there is one, and PyTorch's names are its own ("cuda:1").

    Raises:
        ConfigError: it is no name, or there is no GPU.
    """
    cuda = torch.cuda.is_available()
    try:
        result = torch.device(name if name != "auto" else "cuda" if cuda else "cpu")
    except RuntimeError as error:
        raise ConfigError(
            f"device is {name!r}: it takes {', '.join(get_args(Device))}, or one of several GPUs, as cuda:1"
        ) from error
    if result.type == "cuda":
        if not cuda:
            raise ConfigError(f"device is {name!r} and PyTorch finds no GPU here: set it to 'auto' or 'cpu'")
        # TF32 for matrices not in bfloat16; exact computations ask for `exact_float32`.
        torch.set_float32_matmul_precision("high")
    return result


@contextmanager
def exact_float32() -> Iterator[None]:
    """Compute matrix products of float32 in float32, and not in TF32 with its three digits."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def computes_in_bfloat16(device: torch.device) -> bool:
    """Return whether a device has bfloat16 in hardware."""
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def inference_dtype(device: torch.device) -> torch.dtype:
    """Return the type of weights that are never trained."""
    return torch.bfloat16 if computes_in_bfloat16(device) else torch.float32


def dtype_of(wanted: DType, device: torch.device, *, adapter: bool) -> torch.dtype:
    """Return the type of a model's weights; "auto": bfloat16 under an adapter if the device has it."""
    if wanted == "auto":
        return inference_dtype(device) if adapter else torch.float32
    return torch.bfloat16 if wanted == "bfloat16" else torch.float32


def check_finite(model: torch.nn.Module) -> None:
    """Check the trained weights.

    Raises:
        DivergedError: one is not finite.
    """
    for name, value in model.named_parameters():
        if value.requires_grad and not bool(torch.isfinite(value).all()):
            raise diverged(f"the trained weights are no finite numbers ({name})")


def diverged(what: str) -> DivergedError:
    """Return the error of a training with numbers that are not finite."""
    return DivergedError(
        f"{what}: training has diverged. Train with a smaller learning rate, or in float32 throughout"
    )


_KNOWN = (
    r"torch\.distributed\.nn\.functional\.all_gather is deprecated",
    # PEFT's own use of transformers.
    r"`is_gradient_checkpointing` is deprecated",
)


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Limit the libraries to warnings that apply here; transformers draws no progress bars."""
    bars = transformers_logging.is_progress_bar_enabled()
    if bars:
        transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            for message in _KNOWN:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        if bars:
            transformers_logging.enable_progress_bar()
