"""The heat map: a grid of numbers on a scale of colours that stands below it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.report.svg import cut_front, label_width, picture, safe, text

Colour = tuple[int, int, int]

_RISING: tuple[Colour, ...] = ((0xEC, 0xF3, 0xFB), (0x6B, 0xA8, 0xDB), (0x08, 0x30, 0x6B))
_BOTH_WAYS: tuple[Colour, ...] = (
    (0x9A, 0x34, 0x12), (0xF6, 0xB3, 0x7E), (0xF4, 0xF4, 0xF4), (0x86, 0xBC, 0xE6), (0x0B, 0x4F, 0x95),
)  # fmt: skip
_WIDE, _NARROW, _HEIGHT = 62, 40, 32
_MANY = 24
"""From so many columns on they are narrow, and only numbered."""
_LABEL = 44


@dataclass(frozen=True, slots=True)
class Scale:
    """Which colour a value has: `low` and `high` are the ends, in the unit of the cells.

    `rising` goes from light to dark; otherwise 0 is grey, below it orange and above it blue.
    """

    low: float
    high: float
    rising: bool
    said: str

    def colour(self, value: float) -> Colour:
        """Return red, green and blue in 0..255; values beyond an end have its colour."""
        stops = _RISING if self.rising else _BOTH_WAYS
        share = min(1.0, max(0.0, (value - self.low) / (self.high - self.low))) * (len(stops) - 1)
        at = min(int(share), len(stops) - 2)
        red, green, blue = (
            round(a + (b - a) * (share - at)) for a, b in zip(stops[at], stops[at + 1], strict=True)
        )
        return red, green, blue


def rising_scale(values: Sequence[float]) -> Scale:
    """Return a scale of percents, from the five below the lowest to the five above the highest, at least 20 wide."""
    low = 5 * (min(values, default=0.0) // 5)
    high = -5 * (-max(values, default=100.0) // 5)
    while high - low < 20:
        low, high = max(0.0, low - 5), min(100.0, high + 5)
    said = f"lightest {low:g} percent or less, darkest {high:g} percent or more"
    return Scale(low, high, rising=True, said=said)


def error_scale(values: Sequence[float]) -> Scale:
    """Return a scale of errors in steps, from the half step below the lowest to the one above the highest, at least 1
    wide."""
    low = 0.5 * (min(values, default=0.0) // 0.5)
    high = max(low + 1.0, -0.5 * (-max(values, default=1.0) // 0.5))
    said = f"lightest {low:g} steps or less, darkest {high:g} steps or more"
    return Scale(low, high, rising=True, said=said)


def change_scale(values: Sequence[float], *, unit: str = "points", step: float = 5.0) -> Scale:
    """Return a scale of losses and gains, as wide to both sides as the largest of these values, in whole steps of it,
    at least one."""
    end = max(step, -step * (-max(map(abs, values), default=0.0) // step))
    said = f"orange is a loss, grey none, blue a gain; the ends are {end:g} {unit}"
    return Scale(-end, end, rising=False, said=said)


def heat_map(
    identity: str,
    title: str,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[float | None]],
    scale: Scale,
    form: Callable[[float], str],
    framed: Sequence[int],
    first: int = 1,
) -> str:
    """Return a grid of numbers; None is a dashed empty cell.

    Args:
        identity: an id that no other picture of the page has.
        title: what is shown.
        rows: labels, from the top.
        columns: labels, from the left; their number stands above each.
        cells: one sequence a row, one value a column.
        scale: the colours.
        form: how a value is written.
        framed: for each row the index of the cell that is its first measurement; below 0 where that is not shown.
        first: the number of the first column.
    """
    labels = [cut_front(name, _LABEL) for name in rows]
    left, width = label_width(labels), _WIDE if len(columns) <= _MANY else _NARROW
    parts: list[str] = []
    for i, name in enumerate(columns):
        parts.append(text(left + width * (i + 0.5), 12, str(first + i), anchor="middle"))
        if width == _WIDE:
            parts.append(text(left + width * (i + 0.5), 27, name[:8], anchor="middle", css="small"))
    for j, name in enumerate(labels):
        parts.append(text(left - 8, 34 + _HEIGHT * (j + 0.5) + 4, name, anchor="end"))
        parts += _row(rows[j], columns, cells[j], (left, 34 + _HEIGHT * j), width, scale, form, framed[j])
    bottom = 34 + _HEIGHT * len(rows)
    parts += _legend(left, bottom + 14, scale, form)
    described = f"{len(rows)} rows, {len(columns)} columns, numbers in each cell; {scale.said}; the table has them all."
    # The legend takes more room than few columns do.
    return picture(identity, title, described, left + max(width * len(columns), 520) + 10, bottom + 52, parts)


def _row(
    name: str,
    columns: Sequence[str],
    values: Sequence[float | None],
    corner: tuple[float, float],
    width: float,
    scale: Scale,
    form: Callable[[float], str],
    framed: int,
) -> list[str]:
    left, top = corner
    parts = []
    for i, value in enumerate(values):
        x = left + width * i
        box = f'x="{x + 1:g}" y="{top + 1:g}" width="{width - 2:g}" height="{_HEIGHT - 2}"'
        if value is None:
            parts.append(f'<rect class="none" {box}/>')
            continue
        colour = scale.colour(value)
        told = f"<title>{safe(f'{name}, {columns[i]}: {form(value)}')}</title>"
        parts.append(f'<rect fill="{_hex(colour)}" {box}>{told}</rect>')
        if i == framed:
            # Inside its cell, some of which is left around it: the ground may have the frame's colour.
            inner = f'x="{x + 4:g}" y="{top + 4:g}" width="{width - 8:g}" height="{_HEIGHT - 8}"'
            # Of the letters' colour: the page's own may be the cell's.
            stroke = "#000" if ink(colour) == "on-light" else "#fff"
            parts.append(f'<rect class="first" style="stroke:{stroke}" stroke-linejoin="round" {inner}/>')
        parts.append(text(x + width / 2, top + 20, form(value), anchor="middle", css=ink(colour)))
    return parts


def _legend(left: float, top: float, scale: Scale, form: Callable[[float], str]) -> list[str]:
    steps, size = 11, 20
    values = [scale.low + (scale.high - scale.low) * step / (steps - 1) for step in range(steps)]
    parts = [
        f'<rect fill="{_hex(scale.colour(value))}" x="{left + size * i:g}" y="{top:g}" width="{size}" height="14"/>'
        for i, value in enumerate(values)
    ]
    parts += [
        text(left + size * (i + 0.5), top + 28, form(values[i]), anchor="middle", css="small")
        for i in (0, steps // 2, steps - 1)
    ]
    beside = left + size * steps + 24
    parts += [
        f'<rect class="none" x="{beside:g}" y="{top:g}" width="24" height="14"/>',
        text(beside + 30, top + 11, "not measured", css="small"),
        f'<rect class="first" x="{beside + 124:g}" y="{top + 1:g}" width="22" height="12"/>',
        text(beside + 152, top + 11, "first measurement", css="small"),
    ]
    return parts


def ink(colour: Colour) -> str:
    """Return the class of letters that stand out from a colour: black "on-light", white "on-dark"."""
    return "on-light" if luminance(colour) > 0.18 else "on-dark"


def luminance(colour: Colour) -> float:
    """Return the relative luminance, 0..1, as WCAG has it."""
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _hex(colour: Colour) -> str:
    return f"#{colour[0]:02x}{colour[1]:02x}{colour[2]:02x}"
