"""The charts put marks where the numbers say, and nothing is told by colour alone."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from pipeline.report.charts import DARK, LIGHT, Series, line_chart, safe

Values = tuple[float | None, ...]


def nodes(svg: str, tag: str, css: str | None = None) -> list[ET.Element]:
    result = ET.fromstring(svg).iter(f"{{http://www.w3.org/2000/svg}}{tag}")
    return [node for node in result if css is None or node.get("class") == css]


def chart(*values: float | None, at: tuple[float, ...] = (), **options: Any) -> str:
    names = [str(index) for index in range(len(values))]
    return line_chart("i", "t", positions=names, lines=[Series("l", values)], unit="u", at=at, **options)


def marks(svg: str) -> list[tuple[float, float]]:
    """Where a chart of one line has its marks, less the one in the legend, which comes first."""
    places = [node.get("transform", "") for node in nodes(svg, "path") if node.get("transform")]
    return [(float(x), float(y)) for x, y in (re.findall(r"[\d.]+", place) for place in places)][1:]


def across(svg: str) -> list[float]:
    return [x for x, _ in marks(svg)]


def test_a_line_is_as_high_as_its_values_and_as_far_as_its_positions() -> None:
    (first, zero), (second, half), (third, whole) = marks(chart(0.0, 5.0, 10.0))
    assert zero - half == half - whole > 0
    assert second - first == third - second
    assert marks(chart(5.0, highest=10.0))[0][1] == half


def test_moments_are_where_their_time_is_and_hold_until_the_next() -> None:
    svg = chart(1.0, 2.0, 3.0, at=(0.0, 10.0, 40.0))
    first, second, last = across(svg)
    assert second - first == (last - first) / 4
    assert f"H{second:.1f}" in svg
    first, before, after, last = across(chart(1.0, 2.0, 3.0, 4.0, at=(100.0, 200.0, 50.0, 300.0)))
    assert first < before == after < last, "after the clock was set back, within the chart and in order"
    assert before - first == (last - first) / 2


@pytest.mark.parametrize("values", [(), (None,), (0.0,), (0.0, 0.0)])
def test_a_chart_without_heights_is_still_a_picture(values: Values) -> None:
    assert len(marks(chart(*values, at=(7.0,) * len(values)))) == sum(value is not None for value in values)


@pytest.mark.parametrize(
    ("values", "commands"), [((1.0, None, 2.0, 3.0), "MML"), ((1.0, 2.0), "ML"), ((None, 2.0), "Mh")]
)
def test_a_line_is_broken_where_nothing_was_measured_and_one_point_is_seen(
    values: Values, commands: str
) -> None:
    drawn, _legend = nodes(chart(*values), "path", "line c0")
    assert re.sub(r"[^A-Za-z]", "", drawn.get("d", "")) == commands


def test_a_long_line_has_few_marks() -> None:
    assert 0 < len(marks(chart(*(float(index % 7) for index in range(200))))) <= 24


def test_labels_of_positions_do_not_touch_and_both_ends_are_written() -> None:
    names = [f"2026-{1 + index // 28:02}-{1 + index % 28:02}" for index in range(60)]
    svg = line_chart("i", "t", positions=names, lines=[Series("l", (1.0,) * 60)], unit="u")
    shown = [node for node in nodes(svg, "text") if node.text in names]
    assert (shown[0].text, shown[-1].text) == (names[0], names[-1])
    assert min(after - before for before, after in pairwise(float(node.get("x", "")) for node in shown)) > 72


def contrast(one: float, other: float) -> float:
    dark, bright = sorted((one, other))
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("inks", "ground"), [(LIGHT, "#ffffff"), (DARK, "#15181d")])
def test_every_line_stands_out_from_its_ground(inks: tuple[str, ...], ground: str) -> None:
    def light(colour: str) -> float:
        """The relative luminance, by WCAG's formula."""
        shares = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert [line for line in inks if contrast(light(line), light(ground)) < 4.5] == []


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("a\u202eb\ud800c\x00<", "a\ufffdb\ufffdc\ufffd&lt;"),
        ("\x1b[31m\r\x85\ufffe\u2069", "\ufffd[31m\ufffd\ufffd\ufffd\ufffd"),
        ("a\tb\nc", "a\tb\nc"),
        ("\u05e9\u05dc'\"&", "\u05e9\u05dc&#x27;&quot;&amp;"),
    ],
)
def test_text_is_escaped_and_holds_nothing_that_turns_it_around_or_that_xml_cannot_hold(
    words: str, shown: str
) -> None:
    assert safe(words) == shown
