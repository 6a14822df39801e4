"""Whether a model can be trained on this machine: are the libraries there, and the GPU where one is asked for?

Looks for them, and imports none.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from daemon.settings_models import Train

_LIBRARIES = ("torch", "transformers", "pytorch_lightning", "safetensors", "yaml")
_NVIDIA = "nvidiactl"


def why_not_trainable(train: Train, *, devices: Path = Path("/dev")) -> str:
    """Return what is missing, with the remedy; "" where nothing is.

    `devices` is the folder of the device files: where CUDA's is not there, or is hidden by a sandbox, so is the GPU.
    """
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed: install unsorry with its extra `train` (docs/install.md)"
    if train.device == "cuda" and not (devices / _NVIDIA).exists():
        return (
            f"no GPU is to be seen ({devices / _NVIDIA} is not there): give the service access to one"
            ' (docs/install.md), or write device = "cpu" under [train]'
        )
    return ""
