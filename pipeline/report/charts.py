"""What every picture is made of: SVG text that is complete by itself, with its own light and dark and its own title.

Nothing is told by colour alone: cells carry their numbers, lines their own dashes and marks, what was simulated its
word. Long labels are cut in the picture; the table beside it has them whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate

ORIGIN = "made by unsorry report"
"""Stands near the beginning of every file that a report writes; without it a file is somebody else's."""

LIGHT = ("#0b5cad", "#444b57", "#00714f", "#9b2f7d", "#5c4b00", "#b00020", "#006d77", "#7a3b00")
DARK = ("#6cb6ff", "#c3cad6", "#4fd1a5", "#f08fd0", "#e3c64f", "#ff8a80", "#5fd0dd", "#d7a37a")
"""Of series; the orange of what was simulated is none of them."""
TITLE_HEIGHT = 34
_CHARACTER = 7.2
"""Width of a character in pixels, generous for 12 px letters."""

# Letters and marks of writing directions; a name that turns the text around it would read as another name.
_TURNING = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

STYLE = (
    ".pic text{font:12px system-ui,sans-serif;fill:#1b1f24;pointer-events:none}.pic .title{font-weight:600;"
    "font-size:13px}.pic .small{font-size:11px}.pic .axis{stroke:#6a737d;stroke-width:1}.pic .grid{stroke:#dde2e9}"
    ".pic .none{fill:none;stroke:#6a737d;stroke-dasharray:3 3}.pic .first{fill:none;stroke:#1b1f24;stroke-width:2}"
    ".pic .line{fill:none;stroke-width:2}.pic .mean{fill:none;stroke:#1b1f24;"
    "stroke-width:3.5}.pic .ground{fill:#fff}.pic .on-light{fill:#000}.pic .on-dark{fill:#fff}"
    ".pic .dim{fill:#57606a}.pic .column{fill:currentColor;stroke:none}.pic .ring{fill:none;stroke:currentColor;"
    "stroke-width:2}.pic path.full{fill:currentColor;fill-rule:evenodd;stroke:none}"
    ".pic .bar{fill:#0b5cad}.pic .made-up{fill:none;stroke:#b3420a;stroke-width:2;stroke-dasharray:4 2}"
    + "".join(f".pic .c{i}{{stroke:{colour};color:{colour}}}" for i, colour in enumerate(LIGHT))
    + ".pic .mark{fill:currentColor;stroke:none}@media screen and (prefers-color-scheme:dark){.pic text{fill:#e6e9ee}"
    ".pic .dim{fill:#a5adb8}"
    ".pic .ground{fill:#15181d}.pic .grid{stroke:#2c333d}.pic .first,.pic .mean{stroke:#e6e9ee}.pic .bar{fill:#6cb6ff}"
    ".pic .axis,.pic .none{stroke:#8b949e}.pic .made-up{stroke:#ff9a5c}"
    + "".join(f".pic .c{i}{{stroke:{colour};color:{colour}}}" for i, colour in enumerate(DARK))
    + ".pic .mark{stroke:none}}"
)


def picture(
    identity: str, title: str, described: str, width: float, height: float, parts: Sequence[str]
) -> str:
    """Return a whole picture; `parts` are drawn below a line of `TITLE_HEIGHT` with the title.

    Args:
        identity: an id that no other picture of the page has.
        title: what is shown; its accessible name, and its first line.
        described: what a reader who does not see it is told.
        width: of what is drawn, in pixels.
        height: of `parts`, in pixels.
        parts: elements, their y from 0.
    """
    width = max(width, 20 + _CHARACTER * 1.1 * min(len(title), 110))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="pic" data-origin="{ORIGIN}" role="img" '
        f'aria-labelledby="{identity}-t {identity}-d" viewBox="0 0 {width:g} {height + TITLE_HEIGHT:g}" '
        f'width="{width:g}" height="{height + TITLE_HEIGHT:g}"><title id="{identity}-t">{safe(title)}</title>'
        f'<desc id="{identity}-d">{safe(described)}</desc><style>{STYLE}</style>'
        # Its own ground: a file opened by itself in the dark may stand on white.
        f'<rect class="ground" width="100%" height="100%"/>{text(8, 20, cut(title, 110), css="title")}'
        f'<g transform="translate(0 {TITLE_HEIGHT})">{"".join(parts)}</g></svg>'
    )


def text(x: float, y: float, words: str, *, anchor: str = "start", css: str = "") -> str:
    """Return a line of text; `anchor` says which of its points stands at x: "start", "middle", "end"."""
    named = f' class="{css}"' if css else ""
    at = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:g}" y="{y:g}"{at}{named}>{safe(words)}</text>'


def safe(words: str) -> str:
    """Return text for HTML and XML: escaped, without what XML cannot hold and what turns the reading direction."""
    return escape("".join(char if _holds(char) else "\ufffd" for char in words), quote=True)


def percent(value: float) -> str:
    """Return a share of 0..1 in percent, to one decimal."""
    return f"{value * 100:.1f}"


def cut(words: str, most: int) -> str:
    """Return text of at most so many characters."""
    return words if len(words) <= most else words[: most - 1] + "…"


def cut_front(words: str, most: int) -> str:
    """Like `cut`, keeping the end, which tells names of repositories apart; from a slash on, where one is near."""
    if len(words) <= most:
        return words
    end = words[-(most - 1) :]
    slash = end.find("/")
    return "…" + (end[slash:] if 0 <= slash < most // 2 else end)


def label_width(labels: Sequence[str]) -> float:
    """Return the pixels that the longest of these labels takes, with room beside it."""
    return 16 + _CHARACTER * max(map(len, labels), default=0)


def _holds(char: str) -> bool:
    if char in "\t\n":
        return True
    control = char < " " or "\x7f" <= char <= "\x9f"
    return not (control or char in "\ufffe\uffff" or "\ud800" <= char <= "\udfff" or char in _TURNING)


# ----------------------------------------------------------------------------------------------------
# Charts of lines and of bars.


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


# ----------------------------------------------------------------------------------------------------
# Charts of what happened when: rows of columns, one row a series on one scale for all; and rows of marks in time.


_STRIPS_WIDTH = 520
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
    step = min(_WIDEST, _STRIPS_WIDTH / max(1, len(positions)))
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
    right = left + _STRIPS_WIDTH
    parts = []
    for number, lane in enumerate(lanes):
        y = _LANE * number + 22
        parts.append(text(left - 14, y + 4, labels[number], anchor="end"))
        parts.append(f'<path class="grid" d="M{left:g} {y}H{right:g}"/>')
        for mark in lane.marks:
            x = left + 10 + (_STRIPS_WIDTH - 20) * (mark.at - begins) / span
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


# ----------------------------------------------------------------------------------------------------
# The heat map: a grid of numbers on a scale of colours that stands below it.


Colour = tuple[int, int, int]

_RISING: tuple[Colour, ...] = ((0xEC, 0xF3, 0xFB), (0x6B, 0xA8, 0xDB), (0x08, 0x30, 0x6B))
_BOTH_WAYS: tuple[Colour, ...] = (
    (0x9A, 0x34, 0x12), (0xF6, 0xB3, 0x7E), (0xF4, 0xF4, 0xF4), (0x86, 0xBC, 0xE6), (0x0B, 0x4F, 0x95),
)  # fmt: skip
_WIDE, _NARROW, _HEAT_HEIGHT = 62, 40, 32
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
        parts.append(text(left - 8, 34 + _HEAT_HEIGHT * (j + 0.5) + 4, name, anchor="end"))
        parts += _row(
            rows[j], columns, cells[j], (left, 34 + _HEAT_HEIGHT * j), width, scale, form, framed[j]
        )
    bottom = 34 + _HEAT_HEIGHT * len(rows)
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
        box = f'x="{x + 1:g}" y="{top + 1:g}" width="{width - 2:g}" height="{_HEAT_HEIGHT - 2}"'
        if value is None:
            parts.append(f'<rect class="none" {box}/>')
            continue
        colour = scale.colour(value)
        told = f"<title>{safe(f'{name}, {columns[i]}: {form(value)}')}</title>"
        parts.append(f'<rect fill="{_hex(colour)}" {box}>{told}</rect>')
        if i == framed:
            # Inside its cell, some of which is left around it: the ground may have the frame's colour.
            inner = f'x="{x + 4:g}" y="{top + 4:g}" width="{width - 8:g}" height="{_HEAT_HEIGHT - 8}"'
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
