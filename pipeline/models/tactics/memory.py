"""Whether a model can be trained in the available memory: arithmetic, before hours of download and loading."""

from __future__ import annotations

import resource

import psutil
import torch

from pipeline.models.errors import ConfigError
from store.text import gigabytes

_COPIES = 4
"""For a trained weight: itself, its gradient, and AdamW's two moments: ZeRO's model states (Rajbhandari et al. 2020,
arXiv:1910.02054, section 3.1), all in the type of the weights. Under an adapter the weights alone count: its own are
some hundredths of them.
"""


def memory_of(device: torch.device) -> int:
    """Return the memory of a GPU, or this process's limit of the machine's, in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    total = int(psutil.virtual_memory().total)
    return total if limit == resource.RLIM_INFINITY else min(total, limit)


def hold_that_it_fits(
    name: str, weights: int, *, device: torch.device, dtype: torch.dtype, adapter: bool
) -> None:
    """Check that a device has memory for a model's training, without its activations. `weights`: their number.

    Raises:
        ConfigError: it does not fit; the message has a remedy.
    """
    there, needed = memory_of(device), weights * dtype.itemsize * (1 if adapter else _COPIES)
    if needed <= there:
        return
    half = weights * torch.bfloat16.itemsize
    adapted = (
        "an adapter (lora_config; of the daemon's jobs [train.tactics] lora = true) on a GPU, in bfloat16"
    )
    ways = {'every weight in bfloat16 (dtype="bfloat16")': half * _COPIES, adapted: half}
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
