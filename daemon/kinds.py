"""What runs each kind of job, and what a person can do where its limits are too narrow."""

from __future__ import annotations

from collections.abc import Mapping

from daemon.due import Kind

MODULES: Mapping[Kind, str] = {
    "scan": "pipeline.scan",
    "build": "pipeline.build",
    "trace": "pipeline.trace",
    "prove": "pipeline.prove",
    "check": "pipeline.check",
    "train": "pipeline.train",
    "train_tactics": "pipeline.train_tactics",
    "train_progress": "pipeline.train_progress",
    "evaluate": "pipeline.evaluate",
}
_TRAIN_LONGER = (
    "raise [train] timeout; the steps that were saved stay, and the next attempt goes on from there"
)
LONGER: Mapping[Kind, str] = {
    "scan": "raise [jobs] timeout",
    "build": "raise [build] timeout",
    "trace": "raise [jobs] timeout; what is traced stays, and the next attempt goes on from there",
    "prove": "raise [jobs] timeout, or lower [prove] sorries_per_job",
    "check": "raise [jobs] timeout",
    "train": _TRAIN_LONGER,
    "train_tactics": _TRAIN_LONGER,
    "train_progress": _TRAIN_LONGER,
    "evaluate": "raise [train] timeout",
}
"""What to do where a job did not end in time."""
MORE_MEMORY: Mapping[Kind, str] = {
    "scan": "raise [jobs] memory",
    "build": "raise [build] memory, or lower [jobs] max_running",
    "trace": "raise [jobs] memory, or lower [trace] parallel",
    "prove": "raise [jobs] memory ([prove] memory where a model runs in it), or lower [prove] parallel",
    "check": "raise [jobs] memory",
    "train": "raise [train] memory, or lower batch_size under [train.retriever]",
    "train_tactics": "raise [train] memory, or lower batch_size or set lora under [train.tactics]",
    "train_progress": "raise [train] memory, or lower batch_size under [train.progress]",
    "evaluate": "raise [train] memory, or lower eval_batch_size under [train.retriever]",
}
"""What to do where a job may have been killed for its memory."""
