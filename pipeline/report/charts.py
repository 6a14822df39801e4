"""Charts of lines, as SVG.

Each is complete by itself, as a file or in a page, light or dark like the reader's system. Colour alone tells nothing:
lines have their own dashes and marks. The description gives the first and last number of each line to readers without
the picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate

from store.text import and_more, clean_block, cut

ORIGIN = "made by everlean report"
"""Written near the beginning of every file of a report; without it a file belongs to someone else."""
LIGHT = ("#0b5cad", "#444b57", "#00714f", "#9b2f7d", "#5c4b00", "#b00020", "#006d77", "#7a3b00")
DARK = ("#6cb6ff", "#c3cad6", "#4fd1a5", "#f08fd0", "#e3c64f", "#ff8a80", "#5fd0dd", "#d7a37a")
"""Of series."""

_CHARACTER = 7.2
"""Width of a character in pixels, generous for 12 px letters."""
_TITLE = 34
_LINE_LEFT, _LINE_RIGHT, _LINE_WIDTH, _LINE_HEIGHT = 60, 30, 640, 240
_MOST_SAID = 20
"""Maximum of lines named in a chart's description."""
_MOST_MARKS = 24
"""Marks on a line; beyond it every n-th point has one."""
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4")
_POINTS = ("M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z", "M-3-3h6v6h-6z", "M0-4L4 3H-4z", "M0-4L4 0 0 4-4 0z")


def _colours(inks: Sequence[str]) -> str:
    return "".join(f".pic .c{i}{{stroke:{colour};color:{colour}}}" for i, colour in enumerate(inks))


_STYLE = (
    ".pic text{font:12px system-ui,sans-serif;fill:#1b1f24;pointer-events:none}.pic .title{font-weight:600;"
    "font-size:13px}.pic .axis{stroke:#6a737d;stroke-width:1}.pic .grid{stroke:#dde2e9}"
    ".pic .line{fill:none;stroke-width:2}.pic .ground{fill:#fff}"
    + _colours(LIGHT)
    + ".pic .mark{fill:currentColor;stroke:none}@media screen and (prefers-color-scheme:dark){.pic text{fill:#e6e9ee}"
    ".pic .ground{fill:#15181d}.pic .grid{stroke:#2c333d}.pic .axis{stroke:#8b949e}.pic .made-up{stroke:#ff9a5c}"
    + _colours(DARK)
    + ".pic .mark{stroke:none}}"
)


@dataclass(frozen=True, slots=True)
class Series:
    """A named row of values, one a position; None where nothing was measured."""

    name: str
    values: tuple[float | None, ...]


# ---- text


def safe(words: str) -> str:
    """Return text for HTML and XML: cleaned and escaped."""
    return escape(clean_block(words), quote=True)


def _text(x: float, y: float, words: str, *, anchor: str = "start", css: str = "") -> str:
    """Return a line of text; `anchor` is the part of the text at x: "start", "middle", "end"."""
    named = f' class="{css}"' if css else ""
    at = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:g}" y="{y:g}"{at}{named}>{safe(words)}</text>'


def _picture(
    identity: str, title: str, described: str, width: float, height: float, parts: Sequence[str]
) -> str:
    """Return a whole picture: the title, and the elements below it, their y from 0.

    `identity` is an id unique on the page, `described` the words for a reader without the picture.
    """
    width = max(width, 20 + _CHARACTER * 1.1 * min(len(title), 110))
    size = f"{width:g} {height + _TITLE:g}".split()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="pic" data-origin="{ORIGIN}" role="img" '
        f'aria-labelledby="{identity}-t {identity}-d" viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" '
        f'height="{size[1]}"><title id="{identity}-t">{safe(title)}</title>'
        f'<desc id="{identity}-d">{safe(described)}</desc><style>{_STYLE}</style>'
        # Its own ground: a file opened by itself in the dark may be on white.
        f'<rect class="ground" width="100%" height="100%"/>{_text(8, 20, cut(title, 110), css="title")}'
        f'<g transform="translate(0 {_TITLE})">{"".join(parts)}</g></svg>'
    )


def _x_axis(positions: Sequence[str], across: Sequence[float], base: float) -> list[str]:
    """Return the labels of an x axis: both ends, and between them as many as fit without touching."""
    widths = [_CHARACTER * min(len(name), 24) for name in positions]
    parts, taken = [], -math.inf
    last = len(positions) - 1
    for i, name in enumerate(positions):
        anchor = "middle" if widths[i] < 30 or 0 < i < last else "start" if i == 0 else "end"
        begins = across[i] - {"start": 0.0, "middle": widths[i] / 2, "end": widths[i]}[anchor]
        ends = begins + widths[i]
        last_begins = across[last] - (widths[last] / 2 if widths[last] < 30 else widths[last])
        if i in (0, last) or (begins > taken + 10 and ends + 10 < last_begins):
            if i == last and i > 0 and begins < taken:
                continue  # both ends at one place
            taken = ends
            parts.append(f'<path class="axis" d="M{across[i]:.1f} {base}v4"/>')
            parts.append(_text(across[i], base + 18, cut(name, 24), anchor=anchor))
    return parts


# ---- areas


def area(title: str, described: str, values: Sequence[float], at: Sequence[float]) -> str:
    """Return an area over time, filling its box, without text.

    Args:
        title: the subject.
        described: the words for a reader without the picture.
        values: each holds until the next.
        at: their times; the last one is the end of the picture.
    """
    high, span = max(values, default=0) or 1, (at[-1] - at[0]) or 1
    points = [
        (1000 * (time - at[0]) / span, 98 - 94 * value / high) for time, value in zip(at, values, strict=True)
    ]
    way = _way(points, stairs=True)
    return (
        f'<svg class="area" role="img" aria-label="{safe(title)}: {safe(described)}" viewBox="0 0 1000 100" '
        f'preserveAspectRatio="none"><path class="under" d="{way}V100H0z"/><path d="{way}"/></svg>'
    )


# ---- lines


def line_chart(
    identity: str,
    title: str,
    *,
    positions: Sequence[str],
    lines: Sequence[Series],
    unit: str,
    highest: float | None = None,
    at: Sequence[float] = (),
) -> str:
    """Return a chart of lines over positions, the legend above; a line is broken where a value is missing.

    Args:
        identity: an id unique on the page.
        title: the subject.
        positions: labels of the x axis; written as far as they fit.
        lines: one value a position each.
        unit: written at the y axis.
        highest: the end of the y axis; None: at the highest value.
        at: the time of each position; values hold until the next; one from before the clock was set back is placed with
            its predecessor. Without it positions are evenly spaced.
    """
    known = [value for line in lines for value in line.values if value is not None]
    ticks = _ticks(highest or max(known, default=0.0) or 1.0)
    high = ticks[-1]
    keys, head = _keys(lines)
    base = head + _LINE_HEIGHT
    places = list(accumulate(at, max)) if at else range(len(positions))
    span = (places[-1] - places[0] if places else 0) or 1
    across = [_LINE_LEFT + _LINE_WIDTH * (place - places[0]) / span for place in places]

    def height(value: float) -> float:
        return base - _LINE_HEIGHT * value / high

    parts = [_text(8, head - 12, unit)]
    for tick in ticks:
        y = height(tick)
        parts.append(f'<path class="grid" d="M{_LINE_LEFT} {y:.1f}H{_LINE_LEFT + _LINE_WIDTH}"/>')
        parts.append(_text(_LINE_LEFT - 6, y + 4, f"{tick:g}", anchor="end"))
    parts.append(
        f'<path class="axis" fill="none" d="M{_LINE_LEFT} {head}V{base}H{_LINE_LEFT + _LINE_WIDTH}"/>'
    )
    parts += _x_axis(positions, across, base)
    for number, line in enumerate(lines):
        css = f"line c{number % len(LIGHT)}"
        dash = _DASHES[number % len(_DASHES)]
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        points = [
            None if value is None else (across[i], height(value)) for i, value in enumerate(line.values)
        ]
        parts.append(f'<path class="{css}"{dashes} d="{_way(points, stairs=bool(at))}"/>')
        left, y, name = keys[number]
        parts.append(f'<path class="{css}"{dashes} d="M{left:g} {y - 4:g}h32"/>')
        parts.append(_text(left + 40, y, name))
        drawn = [point for point in points if point is not None]
        every = -(-len(drawn) // _MOST_MARKS) or 1
        parts += [_point(number, x, y) for x, y in [(left + 16.0, y - 4.0), *drawn[::every]]]
    width = _LINE_LEFT + _LINE_WIDTH + _LINE_RIGHT
    return _picture(identity, title, _ends_of(lines, positions), width, base + 28, parts)


def _keys(lines: Sequence[Series]) -> tuple[list[tuple[float, float, str]], float]:
    """Return the place and the name of each line's key, as many side by side as fit, and where the chart begins."""
    result, left, y = [], 8.0, 10.0
    for line in lines:
        name = cut(line.name, 80)
        wide = 40 + _CHARACTER * len(name) + 24
        if left > 8 and left + wide > _LINE_LEFT + _LINE_WIDTH + _LINE_RIGHT:
            left, y = 8.0, y + 20
        result.append((left, y, name))
        left += wide
    return result, y + 44


def _ends_of(lines: Sequence[Series], positions: Sequence[str]) -> str:
    """Describe each line's first and last value."""
    messages = []
    for line in lines[:_MOST_SAID]:
        known = [(value, at) for value, at in zip(line.values, positions, strict=True) if value is not None]
        if known:
            (first, begin), (last, end) = known[0], known[-1]
            messages.append(f"{line.name}: {first:.4g} at {begin}, {last:.4g} at {end}")
    more = and_more(len(lines) - _MOST_SAID)
    return f"Lines over {len(positions)} positions. {'; '.join(messages)}{more}."


def _ticks(high: float) -> list[float]:
    """Return at most seven round numbers from 0 to `high` or above."""
    raw = high / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    return [round(step * index, 10) for index in range(math.ceil(high / step - 1e-9) + 1)]


def _way(points: Sequence[tuple[float, float] | None], *, stairs: bool) -> str:
    known = [point for point in points if point is not None]
    if len(known) == 1:
        # One point alone would be no line: a short one.
        return f"M{known[0][0] - 4:.1f} {known[0][1]:.1f}h8"
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


def _point(number: int, x: float, y: float) -> str:
    place = f'transform="translate({x:.1f} {y:.1f})"'
    return f'<path class="mark c{number % len(LIGHT)}" {place} d="{_POINTS[number % len(_POINTS)]}"/>'
