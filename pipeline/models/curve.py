"""The curve of a training: what it measured at which step. `curve.json` beside the weights, a payload of the log.

    {"loss": [[1, 2.31], [2, 2.2]], "learning_rate": [[1, 0.0001], [2, 0.0002]]}

Each measure has at most `MOST` points; of a longer run a point is the mean over so many steps, of which it has the
last. Standard library only: the command line and the report read it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

CURVE = "curve.json"
MOST = 512
LOSS = "loss"
Point = tuple[int, float]

# Of a trainer's log: no measures of a step.
_NO_MEASURES = frozenset({"epoch", "step", "total_flos", "train_loss", "num_tokens", "num_input_tokens_seen"})
_TIMES = ("_runtime", "_per_second", "step_time")


@dataclass(slots=True)
class _Line:
    """One measure: its points, each the mean of `every` values, and what was added since the last."""

    points: list[Point] = field(default_factory=list)
    every: int = 1
    step: int = 0
    total: float = 0.0
    n: int = 0

    def add(self, step: int, value: float) -> None:
        self.step, self.total, self.n = step, self.total + value, self.n + 1
        if self.n < self.every:
            return
        self.points, self.total, self.n = self.known, 0.0, 0
        if len(self.points) == MOST:
            pairs = zip(self.points[::2], self.points[1::2], strict=True)
            self.points = [(later[0], (earlier[1] + later[1]) / 2) for earlier, later in pairs]
            self.every *= 2

    @property
    def known(self) -> list[Point]:
        return [*self.points, (self.step, self.total / self.n)] if self.n else self.points


class Curve:
    """The measures of a training, by name."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Curve) and self.as_json() == other.as_json()

    __hash__ = None  # type: ignore[assignment]  # it grows

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add what was measured at a step. What is no finite number is left out: JSON has none."""
        for name, value in values.items():
            if math.isfinite(value):
                self._lines.setdefault(name, _Line()).add(step, float(value))

    def points(self, name: str) -> Sequence[Point]:
        """Return a measure's (step, value), by step; none of a measure that there is not."""
        return self._lines[name].known if name in self._lines else ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._lines)

    def as_json(self) -> dict[str, list[Point]]:
        return {name: line.known for name, line in sorted(self._lines.items())}

    def state(self) -> dict[str, Any]:
        """Return what `of_state` makes it of, to go on."""
        return {
            name: (line.points, line.every, line.step, line.total, line.n)
            for name, line in self._lines.items()
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Self:
        found = cls()
        for name, (points, *rest) in state.items():
            found._lines[name] = _Line([(step, value) for step, value in points], *rest)
        return found

    @classmethod
    def of_history(cls, history: Iterable[Mapping[str, Any]]) -> Self:
        """Return the curve of the log of a trainer of transformers or TRL."""
        found = cls()
        for row in history:
            found.add(int(row["step"]), {name: row[name] for name in row if _is_measure(name, row[name])})
        return found

    def write(self, folder: Path) -> None:
        """Write `curve.json` into a folder."""
        (folder / CURVE).write_text(json.dumps(self.as_json()), encoding="utf-8")


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
