"""A ladder without the settings that say one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.jobs.ladder import Ladder
from pipeline.jobs.specs import (
    Budget,
    EndpointRung,
    EndpointSpec,
    GeneratorSpec,
    WholeProofRung,
    WholeSpec,
)


def ladder(folder: Path, *rungs: int, seconds: float = 20.0, **changes: Any) -> Ladder:
    """Return a ladder whose checkpoints and indices are below `folder`; rung 0 where none is named."""
    none = GeneratorSpec(path="")
    parts: dict[str, Any] = {
        "budgets": (Budget(8, seconds, 5.0),) * 5,
        "device": "cpu",
        "premises": 10,
        "generator": none,
        "tactics": none,
        "whole": WholeProofRung(generator=none),
        "endpoint": EndpointRung(endpoint=EndpointSpec(base_url="", model=""), whole=WholeSpec()),
        "memory_bytes": 2**32,
        "model_memory_bytes": 2**32,
    }
    return Ladder(
        rungs=rungs or (0,), models=folder / "models", indices=folder / "indices", **parts | changes
    )
