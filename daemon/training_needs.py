"""Whether a model can be trained, or asked, on this machine: are the libraries there, and the GPU where one is wanted?

Looks for them, and imports none.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from daemon.settings.models import Prove, Train

_TO_ASK = ("torch", "transformers", "safetensors", "peft")
_TO_TRAIN = {
    "retriever": ("torch", "transformers", "pytorch_lightning", "safetensors", "yaml"),
    "tactics": (*_TO_ASK, "trl", "datasets", "accelerate"),
    "progress": _TO_ASK,
}
_NVIDIA = "nvidiactl"
_DEVICES = Path("/dev")


def cuda_is_there(*, devices: Path = _DEVICES) -> bool:
    """Return whether a GPU is to be seen: not where it is hidden by a sandbox.

    `devices` is the folder of the device files.
    """
    return (devices / _NVIDIA).exists()


def why_not_trainable(train: Train, *, devices: Path = _DEVICES) -> str:
    """Return what training lacks, with the remedy; "" where nothing is missing."""
    enabled = [name for name in ("tactics", "progress") if getattr(train, name).get("enabled", False)]
    libraries = dict.fromkeys(library for model in ("retriever", *enabled) for library in _TO_TRAIN[model])
    return _missing([*libraries]) or _no_gpu(train.device, "[train]", devices)


def why_no_models(prove: Prove, *, devices: Path = _DEVICES) -> str:
    """Return what the rungs of the ladder that run a model lack here, with the remedy; "" where nothing is missing."""
    return _missing(_TO_ASK) or _no_gpu(prove.generator.device, "[prove.generator]", devices)


def _missing(libraries: Sequence[str]) -> str:
    missing = [name for name in libraries if find_spec(name) is None]
    if not missing:
        return ""
    return f"{', '.join(missing)} not installed: install unsorry with its extra `train` (docs/install.md)"


def _no_gpu(device: str, table: str, devices: Path) -> str:
    if device != "cuda" or cuda_is_there(devices=devices):
        return ""
    return (
        f"no GPU is to be seen ({devices / _NVIDIA} is not there): give the service access to one"
        f' (docs/install.md), or write device = "cpu" under {table}'
    )
