"""Charts of what happened when: rows of columns, one row a series on one scale for all; and rows of marks in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.report.charts import along
from pipeline.report.svg import LIGHT, cut, label_width, picture, safe, text

_WIDTH = 520
_WIDEST = 44
_ROW, _HIGH = 54, 36
_LANE = 34

SHAPES = {
    "in use": "M-9 0a9 9 0 1 0 18 0a9 9 0 1 0-18 0zM-7 0a7 7 0 1 0 14 0a7 7 0 1 0-14 0z"
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
    "was in use": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
    "refused": "M-5-5L5 5M-5 5L5-5",
    "undecided": "M-4.5-4.5h9v9h-9z",
    "failed or interrupted": "M0-6L6 5H-6z",
}
"""What became of a training run, as a mark: shape tells, not colour."""
_FILLED = frozenset({"in use", "was in use"})


@dataclass(frozen=True, slots=True)
class Columns:
    """A row of columns: a value for each period. `colour` is a number of `svg.LIGHT`; a simulated row is hollow."""

    name: str
    values: tuple[float, ...]
    colour: int = 0
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """Something at a time: its shape (`SHAPES`), and what it is called where it is pointed at."""

    at: float
    shape: str
    told: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of marks."""

    name: str
    marks: tuple[Mark, ...]
    colour: int = 0


def column_chart(
    identity: str,
    title: str,
    *,
    positions: Sequence[str],
    rows: Sequence[Columns],
    form: Callable[[float], str],
    per: str,
) -> str:
    """Return rows of columns over the same periods, all on one scale; behind each its sum and its highest column.

    Args:
        identity: an id that no other picture of the page has.
        title: what is shown.
        positions: labels of the periods; as many are written as there is room for.
        rows: the series, from the top.
        form: how a value is written.
        per: what a column stands for: "day".
    """
    labels = [cut(row.name, 30) for row in rows]
    left = label_width(labels)
    highest = max((value for row in rows for value in row.values), default=0.0) or 1.0
    step = min(_WIDEST, _WIDTH / max(1, len(positions)))
    gap = min(4.0, step / 5)
    wide = step * len(positions)
    parts = []
    for number, row in enumerate(rows):
        base = _ROW * number + _HIGH + 8
        parts.append(text(left - 10, base - 10, labels[number], anchor="end"))
        for index, value in enumerate(row.values):
            if value:
                high = max(1.5, _HIGH * value / highest)
                told = f"<title>{safe(f'{row.name}, {positions[index]}: {form(value)}')}</title>"
                css = "made-up" if row.simulated else f"column c{row.colour % len(LIGHT)}"
                place = f'x="{left + step * index + gap / 2:.1f}" y="{base - high:.1f}"'
                parts.append(
                    f'<rect class="{css}" {place} width="{step - gap:.1f}" height="{high:.1f}">{told}</rect>'
                )
        parts.append(f'<path class="axis" d="M{left:g} {base}h{wide:g}"/>')
        parts.append(text(left + wide + 12, base - 14, form(sum(row.values))))
        peak = f"most in a {per}: {form(max(row.values, default=0.0))}"
        parts.append(text(left + wide + 12, base, peak, css="small dim"))
    bottom = _ROW * len(rows) + 4
    parts += along(positions, [left + step * (index + 0.5) for index in range(len(positions))], bottom)
    described = f"{len(rows)} rows of columns, one a {per}, on one scale; the table has the numbers."
    return picture(identity, title, described, left + wide + 190, bottom + 28, parts)


def lane_chart(identity: str, title: str, *, lanes: Sequence[Lane], ends: tuple[str, str]) -> str:
    """Return marks in time, a row for each lane; `ends` are the labels of the first and the last moment of all."""
    labels = [cut(lane.name, 40) for lane in lanes]
    left = label_width(labels)
    times = [mark.at for lane in lanes for mark in lane.marks]
    begins, span = min(times, default=0.0), (max(times, default=0.0) - min(times, default=0.0)) or 1.0
    right = left + _WIDTH
    parts = []
    for number, lane in enumerate(lanes):
        y = _LANE * number + 22
        parts.append(text(left - 14, y + 4, labels[number], anchor="end"))
        parts.append(f'<path class="grid" d="M{left:g} {y}H{right:g}"/>')
        for mark in lane.marks:
            x = left + 10 + (_WIDTH - 20) * (mark.at - begins) / span
            parts.append(_shape(mark.shape, lane.colour, x, y, mark.told))
    bottom = _LANE * len(lanes) + 12
    parts += along(ends, [left + 10, right - 10], bottom)
    x = left
    for shape in SHAPES:
        parts += [_shape(shape, 0, x + 10, bottom + 44, shape), text(x + 26, bottom + 48, shape, css="small")]
        x += 44 + 6.4 * len(shape)
    count = len(times)
    described = f"{count} training runs in the order of time; the table has them."
    return picture(identity, title, described, max(right, x) + 20, bottom + 64, parts)


def _shape(shape: str, colour: int, x: float, y: float, told: str) -> str:
    css = f"{'ring' if shape not in _FILLED else 'ring full'} c{colour % len(LIGHT)}"
    place = f'transform="translate({x:.1f} {y:.1f})"'
    return f'<path class="{css}" {place} d="{SHAPES[shape]}"><title>{safe(told)}</title></path>'
