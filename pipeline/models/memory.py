"""Whether a model can be trained in the memory that there is: arithmetic, before hours of download and loading."""

from __future__ import annotations

import resource

import psutil
import torch

from pipeline.models.errors import ConfigError
from store.text import gigabytes

_COPIES = 4
"""Of a weight that is trained: itself, its gradient, and AdamW's two moments."""


def training_bytes(weights: int, dtype: torch.dtype, *, adapter: bool) -> int:
    """Return the least memory that a training takes, without activations, in bytes.

    Where every weight is trained, four numbers a weight: itself, its gradient, and the two moments of AdamW. These are
    the model states of ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054, section 3.1), here all of one type: PyTorch's
    AdamW keeps its moments in the type of the weights. So a weight takes 16 bytes in float32 and 8 in bfloat16. Under
    an adapter the weights alone; the adapter's own are some hundredths of them and left out.

    Args:
        weights: how many the model has.
        dtype: their type.
        adapter: whether an adapter is trained, and not every weight.
    """
    return weights * dtype.itemsize * (1 if adapter else _COPIES)


def memory_of(device: torch.device) -> int:
    """Return the memory of a GPU, or what this process may take of the machine's, in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    total = int(psutil.virtual_memory().total)
    return total if limit == resource.RLIM_INFINITY else min(total, limit)


def hold_that_it_fits(
    name: str, weights: int, *, device: torch.device, dtype: torch.dtype, adapter: bool
) -> None:
    """Check that a model of so many weights can be trained on a device.

    Args:
        name: of the model, for the message.
        weights: how many it has.
        device: where it would be trained.
        dtype: of its weights.
        adapter: whether an adapter is trained.

    Raises:
        ConfigError: it does not fit; the message says what would.
    """
    there, needed = memory_of(device), training_bytes(weights, dtype, adapter=adapter)
    if needed <= there:
        return
    ways = {
        'every weight in bfloat16 (dtype="bfloat16")': training_bytes(weights, torch.bfloat16, adapter=False),
        "an adapter (lora_config; of the daemon's jobs [train.tactics] lora = true) on a GPU, in bfloat16": (
            training_bytes(weights, torch.bfloat16, adapter=True)
        ),
    }
    fits = [f"{way}: {gigabytes(size)}" for way, size in ways.items() if size <= there]
    whole = "the weights alone" if adapter else "weights, gradients and AdamW's two moments"
    raise ConfigError(
        f"{name} has {weights / 1e9:.1f} billion weights, and training it needs at least {gigabytes(needed)} ({whole}, "
        f"{str(dtype).removeprefix('torch.')}), where {device} has {gigabytes(there)}. "
        + (
            f"What fits: {'; '.join(fits)}"
            if fits
            else "Take a smaller model: none of its weights' types fits"
        )
    )
