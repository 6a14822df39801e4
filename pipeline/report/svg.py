"""What every picture is made of: SVG text that is complete by itself, with its own light and dark and its own title.

Nothing is told by colour alone: cells carry their numbers, lines their own dashes and marks, what was simulated its
word. Long labels are cut in the picture; the table beside it has them whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

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
