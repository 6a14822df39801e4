"""Silence for what training libraries say about themselves, so that a job's log holds what the job says."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging as transformers_logging

_LOGGERS = ("pytorch_lightning", "lightning_fabric", "lightning.pytorch")
_KNOWN = (
    # Batches follow from a step's number, so nothing has to be restored.
    r".*your dataloader is not resumable",
    r".*does not have many workers which may be a bottleneck",
    r".*You have overridden `transfer_batch_to_device` in `LightningModule`",
    r".*smaller than the logging interval",
    # Of an attempt that began at the same step.
    r".*Experiment logs directory",
    # Lightning's own use of PyTorch.
    r".*`isinstance\(treespec, LeafSpec\)` is deprecated",
    # PEFT's own use of transformers.
    r"`is_gradient_checkpointing` is deprecated",
)


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Keep Lightning to warnings, without those that do not apply here; no progress bars where nobody looks."""
    before = {name: logging.getLogger(name).level for name in _LOGGERS}
    bars = transformers_logging.is_progress_bar_enabled() and not sys.stderr.isatty()
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    if bars:
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            for message in _KNOWN:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
        if bars:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
