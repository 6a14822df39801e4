"""Charts of lines and of bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from pipeline.report.svg import LIGHT, cut, cut_front, label_width, picture, text

_DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4")
_LEFT, _RIGHT, _HEAD, _WIDTH, _HEIGHT = 60, 30, 22, 640, 240
_MARKS = 24
"""Marks on a line; of more points every so many has one."""


@dataclass(frozen=True, slots=True)
class Line:
    """A series: one value a position, None where there is none; the line is broken there.

    `heavy`: it stands out. `simulated`: it is drawn as everything that was, and has no marks.
    """

    name: str
    values: tuple[float | None, ...]
    heavy: bool = False
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar; a simulated one is drawn hollow, and `name` says so too."""

    name: str
    value: float
    simulated: bool


def line_chart(
    identity: str,
    title: str,
    *,
    positions: Sequence[str],
    lines: Sequence[Line],
    unit: str,
    ends: tuple[float, float] | None = None,
    at: Sequence[float] = (),
) -> str:
    """Return a chart of lines over positions, with a legend below.

    Args:
        identity: an id that no other picture of the page has.
        title: what is shown.
        positions: labels of the x axis; as many are written as there is room for.
        lines: one value a position each.
        unit: written at the y axis.
        ends: of the y axis; None: 0 and the highest value.
        at: the time of each position; values hold until the next, and one from before the clock was set back stands
            where the one before it does. Without it positions are evenly spaced.
    """
    known = [value for line in lines for value in line.values if value is not None]
    low, high = ends or (0.0, max(known, default=0.0) or 1.0)
    ticks = _ticks(low, high)
    low, high = ticks[0], ticks[-1]
    base = _HEAD + _HEIGHT
    places = list(accumulate(at, max)) if at else range(len(positions))
    span = (places[-1] - places[0] if places else 0) or 1
    across = [_LEFT + _WIDTH * (place - places[0]) / span for place in places]

    def height(value: float) -> float:
        return base - _HEIGHT * (value - low) / (high - low)

    parts = [text(8, 10, unit)]
    for tick in ticks:
        y = height(tick)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_LEFT + _WIDTH}"/>')
        parts.append(text(_LEFT - 6, y + 4, f"{tick:g}", anchor="end"))
    parts.append(f'<path class="axis" fill="none" d="M{_LEFT} {_HEAD}V{base}H{_LEFT + _WIDTH}"/>')
    parts += along(positions, across, base)
    for number, line in enumerate(lines):
        css, dash = f"line c{number % len(LIGHT)}", _DASHES[number % len(_DASHES)]
        if line.heavy or line.simulated:
            css, dash = "mean" if line.heavy else "made-up", ""
        points = [
            None if value is None else (across[i], height(value)) for i, value in enumerate(line.values)
        ]
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(f'<path class="{css}"{dashes} d="{_path(points, stairs=bool(at))}"/>')
        drawn = [point for point in points if point is not None]
        every = -(-len(drawn) // _MARKS)
        y = base + 44 + 20 * number
        parts.append(f'<path class="{css}"{dashes} d="M{_LEFT} {y - 4}h40"/>')
        parts.append(text(_LEFT + 50, y, cut_front(line.name, 80)))
        if not (line.heavy or line.simulated):
            marked = [(_LEFT + 20, y - 4), *(point for i, point in enumerate(drawn) if i % (every or 1) == 0)]
            parts += [_mark(number, *point) for point in marked]
    described = f"{len(lines)} lines over {len(positions)} positions; the table has the numbers."
    return picture(identity, title, described, _LEFT + _WIDTH + _RIGHT, base + 44 + 20 * len(lines), parts)


def bar_chart(identity: str, title: str, *, bars: Sequence[Bar], form: Callable[[float], str]) -> str:
    """Return horizontal bars from the top, each with its name before and its value, written by `form`, behind it."""
    labels = [cut(bar.name, 60) for bar in bars]
    left = label_width(labels)
    highest = max((bar.value for bar in bars), default=0.0) or 1.0
    parts = []
    for j, bar in enumerate(bars):
        length = max(1.0, 300 * bar.value / highest)
        css = "made-up" if bar.simulated else "bar"
        parts += [
            text(left - 8, 24 * j + 15, labels[j], anchor="end"),
            f'<rect class="{css}" x="{left:g}" y="{24 * j + 3}" width="{length:.1f}" height="16"/>',
            text(left + length + 8, 24 * j + 15, form(bar.value)),
        ]
    described = f"{len(bars)} bars; the table has the numbers."
    return picture(identity, title, described, left + 400, 24 * len(bars) + 8, parts)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers, at most seven, that begin at or below `low` and end at or above `high`."""
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(step * index, 10) for index in range(first, last + 1)]


def along(positions: Sequence[str], across: Sequence[float], base: float) -> list[str]:
    """Return the labels of an x axis: both ends, and between them what does not touch its neighbours."""
    widths = [7.2 * min(len(name), 24) for name in positions]
    parts, taken = [], -math.inf
    last = len(positions) - 1
    for i, name in enumerate(positions):
        anchor = "middle" if widths[i] < 30 else "start" if i == 0 else "end" if i == last else "middle"
        begins = across[i] - {"start": 0.0, "middle": widths[i] / 2, "end": widths[i]}[anchor]
        ends = begins + widths[i]
        last_begins = across[last] - (widths[last] / 2 if widths[last] < 30 else widths[last])
        if i in (0, last) or (begins > taken + 10 and ends + 10 < last_begins):
            if i == last and i > 0 and begins < taken:
                continue  # both ends at one place
            taken = ends
            parts.append(f'<path class="axis" d="M{across[i]:.1f} {base}v4"/>')
            parts.append(text(across[i], base + 18, cut(name, 24), anchor=anchor))
    return parts


def _path(points: Sequence[tuple[float, float] | None], *, stairs: bool) -> str:
    drawn, pen = [], "M"
    for point in points:
        if point is None:
            pen = "M"
            continue
        if stairs and pen == "L":
            drawn.append(f"H{point[0]:.1f}")
        drawn.append(f"{pen}{point[0]:.1f} {point[1]:.1f}")
        pen = "L"
    return "".join(drawn)


def _mark(number: int, x: float, y: float) -> str:
    shapes = ("M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z", "M-3-3h6v6h-6z", "M0-4L4 3H-4z", "M0-4L4 0 0 4-4 0z")
    place = f'transform="translate({x:.1f} {y:.1f})"'
    return f'<path class="mark c{number % len(LIGHT)}" {place} d="{shapes[number % len(shapes)]}"/>'
