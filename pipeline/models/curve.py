"""The curve of a training: its measures by step. `curve.json` beside the weights, a payload of the log.

    {"loss": [[1, 2.31], [2, 2.2]], "learning_rate": [[1, 0.0001], [2, 0.0002]]}

Each measure has at most `MOST` points; in a longer run a point is the mean over several steps, at the last of them.
Standard library only: the command line and the report read it.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

CURVE = "curve.json"
MOST = 512
LOSS = "loss"
Point = tuple[int, float]

# Of a trainer's log: no measures of a step.
_NO_MEASURES = frozenset({"epoch", "step", "total_flos", "train_loss", "num_tokens", "num_input_tokens_seen"})
_TIMES = ("_runtime", "_per_second", "step_time")


class Curve:
    """The measures of a training, by name."""

    def __init__(self, history: Iterable[Mapping[str, Any]] = ()) -> None:
        """`history`: the log of a trainer of transformers or TRL."""
        self.measured: dict[str, list[Point]] = {}
        for row in history:
            for name, value in row.items():
                # JSON has no number that is not finite.
                if _is_measure(name, value) and math.isfinite(value):
                    self.measured.setdefault(name, []).append((int(row["step"]), float(value)))

    def as_json(self) -> dict[str, list[Point]]:
        return {name: _shortened(points) for name, points in sorted(self.measured.items())}

    def write(self, folder: Path) -> None:
        """Write `curve.json` into a folder."""
        (folder / CURVE).write_text(json.dumps(self.as_json()), encoding="utf-8")


def _shortened(points: Sequence[Point]) -> list[Point]:
    every = math.ceil(len(points) / MOST)
    parts = (points[first : first + every] for first in range(0, len(points), every))
    return [(part[-1][0], statistics.fmean(value for _, value in part)) for part in parts]


def read_curve(content: bytes) -> dict[str, list[Point]]:
    """Return the measures in the content of a `curve.json`, by name: (step, value), by step.

    Raises:
        ValueError: it is none.
    """
    try:
        return {
            str(name): [(int(step), float(value)) for step, value in points]
            for name, points in json.loads(content).items()
        }
    except (AttributeError, TypeError) as error:
        raise ValueError(f"this is no curve of a training ({error})") from error


def _is_measure(name: str, value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and name not in _NO_MEASURES and not name.endswith(_TIMES)
