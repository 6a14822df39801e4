"""Charts as SVG: lines, bars and the heat map.

Each is complete by itself, a file and a part of the page alike, light or dark as the reader's system is. Colour alone
tells nothing: cells carry their numbers, lines their own dashes and marks, simulated series a hollow or dashed form and
the word. Who does not see a picture is told its numbers, of a line the first and the last.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate

from store.text import cut

ORIGIN = "made by everlean report"
"""Written near the beginning of every file of a report; without it a file belongs to someone else."""
LIGHT = ("#0b5cad", "#444b57", "#00714f", "#9b2f7d", "#5c4b00", "#b00020", "#006d77", "#7a3b00")
DARK = ("#6cb6ff", "#c3cad6", "#4fd1a5", "#f08fd0", "#e3c64f", "#ff8a80", "#5fd0dd", "#d7a37a")
"""Of series; the orange of what was simulated is none of them."""

_CHARACTER = 7.2
"""Width of a character in pixels, generous for 12 px letters."""
_TITLE = 34
_LINE_LEFT, _LINE_RIGHT, _LINE_WIDTH, _LINE_HEIGHT = 60, 30, 640, 240
_MOST_SAID = 20
"""Lines of a chart that its description names."""
_MOST_MARKS = 24
"""Marks on a line; of more points every so many has one."""
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4")
_POINTS = ("M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z", "M-3-3h6v6h-6z", "M0-4L4 3H-4z", "M0-4L4 0 0 4-4 0z")
_CELL_WIDE, _CELL_NARROW, _CELL_HEIGHT = 62, 40, 32
_MANY_COLUMNS = 24
"""More columns than these are narrow, and only numbered."""

# Control characters, which XML cannot hold, and marks of writing directions: a name that turns the text around it would
# read as another name.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def _colours(inks: Sequence[str]) -> str:
    return "".join(f".pic .c{i}{{stroke:{colour};color:{colour}}}" for i, colour in enumerate(inks))


_STYLE = (
    ".pic text{font:12px system-ui,sans-serif;fill:#1b1f24;pointer-events:none}.pic .title{font-weight:600;"
    "font-size:13px}.pic .small{font-size:11px}.pic .axis{stroke:#6a737d;stroke-width:1}.pic .grid{stroke:#dde2e9}"
    ".pic .none{fill:none;stroke:#6a737d;stroke-dasharray:3 3}.pic .first{fill:none;stroke:#1b1f24;stroke-width:2}"
    ".pic .line{fill:none;stroke-width:2}.pic .mean{fill:none;stroke:#1b1f24;"
    "stroke-width:3.5}.pic .ground{fill:#fff}.pic .on-light{fill:#000}.pic .on-dark{fill:#fff}"
    ".pic .bar{fill:#0b5cad}.pic .made-up{fill:none;stroke:#b3420a;stroke-width:2;stroke-dasharray:4 2}"
    + _colours(LIGHT)
    + ".pic .mark{fill:currentColor;stroke:none}@media screen and (prefers-color-scheme:dark){.pic text{fill:#e6e9ee}"
    ".pic .ground{fill:#15181d}.pic .grid{stroke:#2c333d}.pic .first,.pic .mean{stroke:#e6e9ee}"
    ".pic .bar{fill:#6cb6ff}.pic .axis,.pic .none{stroke:#8b949e}.pic .made-up{stroke:#ff9a5c}"
    + _colours(DARK)
    + ".pic .mark{stroke:none}}"
)

Colour = tuple[int, int, int]
Form = Callable[[float], str]
"""Writes a value."""


@dataclass(frozen=True, slots=True)
class Series:
    """A named row of values, one a position; None where nothing was measured.

    `heavy` draws a thicker line. A `simulated` one is drawn as everything simulated is, and its name says so too.
    """

    name: str
    values: tuple[float | None, ...]
    simulated: bool = False
    heavy: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """The colours of values; `low` and `high` are the ends, in the unit of the cells.

    `rising` runs from light to dark; otherwise 0 is grey, below it orange and above it blue.
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


_RISING: tuple[Colour, ...] = ((0xEC, 0xF3, 0xFB), (0x6B, 0xA8, 0xDB), (0x08, 0x30, 0x6B))
_BOTH_WAYS: tuple[Colour, ...] = (
    (0x9A, 0x34, 0x12), (0xF6, 0xB3, 0x7E), (0xF4, 0xF4, 0xF4), (0x86, 0xBC, 0xE6), (0x0B, 0x4F, 0x95),
)  # fmt: skip


# ---- text


def clean(words: str) -> str:
    """Replace what XML cannot hold and what turns the reading direction."""
    return _UNSAFE.sub("\ufffd", words)


def safe(words: str) -> str:
    """Return text for HTML and XML: cleaned and escaped."""
    return escape(clean(words), quote=True)


def cut_front(words: str, most: int) -> str:
    """Like `cut`, keeping the end, which tells names of repositories apart; from a slash on, if one is near."""
    if len(words) <= most:
        return words
    end = words[-(most - 1) :]
    slash = end.find("/")
    return "…" + (end[slash:] if 0 <= slash < most // 2 else end)


def _text(x: float, y: float, words: str, *, anchor: str = "start", css: str = "") -> str:
    """Return a line of text; `anchor` says which of its points is at x: "start", "middle", "end"."""
    named = f' class="{css}"' if css else ""
    at = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:g}" y="{y:g}"{at}{named}>{safe(words)}</text>'


def _label_width(labels: Sequence[str]) -> float:
    return 16 + _CHARACTER * max(map(len, labels), default=0)


def _picture(
    identity: str, title: str, described: str, width: float, height: float, parts: Sequence[str]
) -> str:
    """Return a whole picture: the title, and the elements below it, their y from 0.

    `identity` is an id that no other picture of the page has, `described` the words for a reader who does not see it.
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
    """Return the labels of an x axis: both ends, and between them those that do not touch their neighbours."""
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


# ---- lines


def line_chart(
    identity: str,
    title: str,
    *,
    positions: Sequence[str],
    lines: Sequence[Series],
    unit: str,
    ends: tuple[float, float] | None = None,
    at: Sequence[float] = (),
) -> str:
    """Return a chart of lines over positions, the legend above; a line is broken where a value is missing.

    Args:
        identity: an id that no other picture of the page has.
        title: what is shown.
        positions: labels of the x axis; as many are written as there is room for.
        lines: one value a position each.
        unit: written at the y axis.
        ends: of the y axis; None: 0 and the highest value.
        at: the time of each position; values hold until the next, and one from before the clock was set back is placed
            with the one before it. Without it positions are evenly spaced.
    """
    known = [value for line in lines for value in line.values if value is not None]
    low, high = ends or (0.0, max(known, default=0.0) or 1.0)
    ticks = _ticks(low, high)
    low, high = ticks[0], ticks[-1]
    keys, head = _keys(lines)
    base = head + _LINE_HEIGHT
    places = list(accumulate(at, max)) if at else range(len(positions))
    span = (places[-1] - places[0] if places else 0) or 1
    across = [_LINE_LEFT + _LINE_WIDTH * (place - places[0]) / span for place in places]

    def height(value: float) -> float:
        return base - _LINE_HEIGHT * (value - low) / (high - low)

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
        plain = not (line.heavy or line.simulated)
        css = f"line c{number % len(LIGHT)}" if plain else "mean" if line.heavy else "made-up"
        dash = _DASHES[number % len(_DASHES)] if plain else ""
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        points = [
            None if value is None else (across[i], height(value)) for i, value in enumerate(line.values)
        ]
        parts.append(f'<path class="{css}"{dashes} d="{_way(points, stairs=bool(at))}"/>')
        left, y, name = keys[number]
        parts.append(f'<path class="{css}"{dashes} d="M{left:g} {y - 4:g}h32"/>')
        parts.append(_text(left + 40, y, name))
        if plain:
            drawn = [point for point in points if point is not None]
            every = -(-len(drawn) // _MOST_MARKS) or 1
            parts += [_point(number, x, y) for x, y in [(left + 16.0, y - 4.0), *drawn[::every]]]
    width = _LINE_LEFT + _LINE_WIDTH + _LINE_RIGHT
    return _picture(identity, title, _ends_of(lines, positions), width, base + 28, parts)


def _keys(lines: Sequence[Series]) -> tuple[list[tuple[float, float, str]], float]:
    """Return the place and the name of each line's key, as many side by side as fit, and where the chart begins."""
    found, left, y = [], 8.0, 10.0
    for line in lines:
        name = cut_front(line.name, 80)
        wide = 40 + _CHARACTER * len(name) + 24
        if left > 8 and left + wide > _LINE_LEFT + _LINE_WIDTH + _LINE_RIGHT:
            left, y = 8.0, y + 20
        found.append((left, y, name))
        left += wide
    return found, y + 44


def _ends_of(lines: Sequence[Series], positions: Sequence[str]) -> str:
    """Say what each line begins and ends with."""
    said = []
    for line in lines[:_MOST_SAID]:
        known = [(value, at) for value, at in zip(line.values, positions, strict=True) if value is not None]
        if known:
            (first, begin), (last, end) = known[0], known[-1]
            said.append(f"{line.name}: {first:.4g} at {begin}, {last:.4g} at {end}")
    more = len(lines) - _MOST_SAID
    return (
        f"Lines over {len(positions)} positions. {'; '.join(said)}{f'; and {more} more' if more > 0 else ''}."
    )


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers, at most seven, that begin at or below `low` and end at or above `high`."""
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(step * index, 10) for index in range(first, last + 1)]


def _way(points: Sequence[tuple[float, float] | None], *, stairs: bool) -> str:
    known = [point for point in points if point is not None]
    if len(known) == 1:
        # One point alone would be no line: a short one, since simulated lines have no marks.
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


# ---- bars


def bar_chart(identity: str, title: str, *, bars: Sequence[Series], form: Form) -> str:
    """Return horizontal bars of one value each, from the top, the name before and the value behind each."""
    labels = [cut(bar.name, 60) for bar in bars]
    left = _label_width(labels)
    values = [bar.values[0] or 0.0 for bar in bars]
    highest = max(values, default=0.0) or 1.0
    parts = []
    for j, bar in enumerate(bars):
        length = max(1.0, 300 * values[j] / highest)
        css = "made-up" if bar.simulated else "bar"
        parts += [
            _text(left - 8, 24 * j + 15, labels[j], anchor="end"),
            f'<rect class="{css}" x="{left:g}" y="{24 * j + 3}" width="{length:.1f}" height="16"/>',
            _text(left + length + 8, 24 * j + 15, form(values[j])),
        ]
    described = "; ".join(f"{bar.name}: {form(value)}" for bar, value in zip(bars, values, strict=True))
    return _picture(identity, title, described, left + 400, 24 * len(bars) + 8, parts)


# ---- the heat map


def rising_scale(values: Sequence[float]) -> Scale:
    """Return a scale of percents, from the five below the lowest to the five above the highest, at least 20 wide."""
    low = 5 * (min(values, default=0.0) // 5)
    high = -5 * (-max(values, default=100.0) // 5)
    while high - low < 20:
        low, high = max(0.0, low - 5), min(100.0, high + 5)
    return Scale(low, high, True, f"lightest {low:g} percent or less, darkest {high:g} percent or more")


def error_scale(values: Sequence[float]) -> Scale:
    """Return a scale of errors in steps, from the half step below the lowest to that above the highest, at least 1."""
    low = 0.5 * (min(values, default=0.0) // 0.5)
    high = max(low + 1.0, -0.5 * (-max(values, default=1.0) // 0.5))
    return Scale(low, high, True, f"lightest {low:g} steps or less, darkest {high:g} steps or more")


def change_scale(values: Sequence[float], *, unit: str = "points", step: float = 5.0) -> Scale:
    """Return a scale of losses and gains, symmetric, in whole steps up to the largest of these values."""
    end = max(step, -step * (-max(map(abs, values), default=0.0) // step))
    return Scale(-end, end, False, f"orange is a loss, grey none, blue a gain; the ends are {end:g} {unit}")


def heat_map(
    identity: str,
    title: str,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[float | None]],
    scale: Scale,
    form: Form,
    framed: Sequence[int],
    first: int = 1,
) -> str:
    """Return a grid of numbers over a scale of colours; None is a dashed empty cell.

    Args:
        identity: an id that no other picture of the page has.
        title: what is shown.
        rows: labels, from the top.
        columns: labels, from the left; their number is above each.
        cells: one sequence a row, one value a column.
        scale: the colours.
        form: writes a value.
        framed: for each row the index of the cell that is its first measurement; below 0 if that is not shown.
        first: the number of the first column.
    """
    labels = [cut_front(name, 44) for name in rows]
    left = _label_width(labels)
    wide = len(columns) <= _MANY_COLUMNS
    width = _CELL_WIDE if wide else _CELL_NARROW
    parts: list[str] = []
    for i, name in enumerate(columns):
        parts.append(_text(left + width * (i + 0.5), 12, str(first + i), anchor="middle"))
        if wide:
            parts.append(_text(left + width * (i + 0.5), 27, name[:8], anchor="middle", css="small"))
    for j, label in enumerate(labels):
        y = 34 + _CELL_HEIGHT * j
        parts.append(_text(left - 8, y + _CELL_HEIGHT / 2 + 4, label, anchor="end"))
        for i, value in enumerate(cells[j]):
            words = "" if value is None else f"{rows[j]}, {columns[i]}: {form(value)}"
            parts.append(_cell(left + width * i, y, width, value, words, scale, form, frame=i == framed[j]))
    bottom = 34 + _CELL_HEIGHT * len(rows)
    parts += _legend(left, bottom + 14, scale, form)
    described = f"{len(rows)} rows, {len(columns)} columns, numbers in each cell; {scale.said}."
    # The legend takes more room than few columns do.
    return _picture(
        identity, title, described, left + max(width * len(columns), 520) + 10, bottom + 52, parts
    )


def _cell(
    x: float,
    y: float,
    width: float,
    value: float | None,
    words: str,
    scale: Scale,
    form: Form,
    *,
    frame: bool,
) -> str:
    box = f'x="{x + 1:g}" y="{y + 1:g}" width="{width - 2:g}" height="{_CELL_HEIGHT - 2}"'
    if value is None:
        return f'<rect class="none" {box}/>'
    colour = scale.colour(value)
    framed = ""
    if frame:
        # Inside its cell and of the letters' colour, since the page's ground and ink may be those of frame and cell.
        stroke = "#000" if ink(colour) == "on-light" else "#fff"
        framed = (
            f'<rect class="first" style="stroke:{stroke}" stroke-linejoin="round" x="{x + 4:g}" y="{y + 4:g}" '
            f'width="{width - 8:g}" height="{_CELL_HEIGHT - 8}"/>'
        )
    number = _text(x + width / 2, y + 20, form(value), anchor="middle", css=ink(colour))
    return f'<rect fill="{_hex(colour)}" {box}><title>{safe(words)}</title></rect>{framed}{number}'


def _legend(left: float, top: float, scale: Scale, form: Form) -> list[str]:
    steps, size = 11, 20
    parts = []
    for i in range(steps):
        value = scale.low + (scale.high - scale.low) * i / (steps - 1)
        parts.append(
            f'<rect fill="{_hex(scale.colour(value))}" x="{left + size * i:g}" y="{top:g}" width="{size}" height="14"/>'
        )
        if i in (0, steps // 2, steps - 1):
            parts.append(_text(left + size * (i + 0.5), top + 28, form(value), anchor="middle", css="small"))
    beside = left + size * steps + 24
    return [
        *parts,
        f'<rect class="none" x="{beside:g}" y="{top:g}" width="24" height="14"/>',
        _text(beside + 30, top + 11, "not measured", css="small"),
        f'<rect class="first" x="{beside + 124:g}" y="{top + 1:g}" width="22" height="12"/>',
        _text(beside + 152, top + 11, "first measurement", css="small"),
    ]


def ink(colour: Colour) -> str:
    """Return the class of letters that stand out from a colour: black "on-light", white "on-dark"."""
    return "on-light" if luminance(colour) > 0.18 else "on-dark"


def luminance(colour: Colour) -> float:
    """Return the relative luminance, 0..1, by WCAG's formula."""
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _hex(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
