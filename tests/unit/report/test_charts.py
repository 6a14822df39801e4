"""The charts put marks where the numbers say, and nothing is told by colour alone."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from pipeline.report.charts import (
    DARK,
    LIGHT,
    Series,
    bar_chart,
    change_scale,
    cut_front,
    heat_map,
    ink,
    line_chart,
    luminance,
    rising_scale,
    safe,
)

Values = tuple[float | None, ...]


def nodes(svg: str, tag: str, css: str | None = None) -> list[ET.Element]:
    found = ET.fromstring(svg).iter(f"{{http://www.w3.org/2000/svg}}{tag}")
    return [node for node in found if css is None or node.get("class") == css]


def texts(svg: str) -> list[str | None]:
    return [node.text for node in nodes(svg, "text")]


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
    assert marks(chart(5.0, ends=(0.0, 10.0)))[0][1] == half


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


def test_a_long_line_has_few_marks_a_heavy_one_none_and_a_simulated_one_its_own_stroke() -> None:
    assert 0 < len(marks(chart(*(float(index % 7) for index in range(200))))) <= 24
    lines = [Series("mean", (1.0, 2.0), heavy=True), Series("SIMULATED", (2.0, 3.0), simulated=True)]
    svg = line_chart("i", "t", positions=["1", "2"], lines=lines, unit="u")
    assert marks(svg) == []
    assert [len(nodes(svg, "path", css)) for css in ("mean", "made-up")] == [2, 2], "each, and its legend's"


def test_labels_of_positions_do_not_touch_and_both_ends_are_written() -> None:
    names = [f"2026-{1 + index // 28:02}-{1 + index % 28:02}" for index in range(60)]
    svg = line_chart("i", "t", positions=names, lines=[Series("l", (1.0,) * 60)], unit="u")
    shown = [node for node in nodes(svg, "text") if node.text in names]
    assert (shown[0].text, shown[-1].text) == (names[0], names[-1])
    assert min(after - before for before, after in pairwise(float(node.get("x", "")) for node in shown)) > 72


def test_bars_are_as_long_as_their_values_and_simulated_ones_are_drawn_otherwise() -> None:
    svg = bar_chart("i", "t", bars=[Series("a", (4,)), Series("b", (1,), simulated=True)], form=str)
    ((real,), (made_up,)) = nodes(svg, "rect", "bar"), nodes(svg, "rect", "made-up")
    assert float(real.get("width", "")) == 4 * float(made_up.get("width", ""))
    assert {"a", "4", "b", "1"} <= set(texts(svg))


def heat(*values: float | None) -> str:
    return heat_map(
        "i", "t", rows=["r"], columns=[f"c{index}" for index in range(len(values))], cells=[values],
        scale=rising_scale([value for value in values if value is not None]), form=lambda value: f"{value:.1f}",
        framed=[0],
    )  # fmt: skip


def test_cells_are_darker_where_higher_and_what_was_not_measured_has_no_colour() -> None:
    svg = heat(0.0, None, 100.0)
    cells = [node.get("fill") for node in nodes(svg, "rect") if len(node)]
    assert cells == ["#ecf3fb", "#08306b"]
    letters = {(node.text, node.get("class")) for node in nodes(svg, "text")}
    assert {("0.0", "on-light"), ("100.0", "on-dark")} <= letters
    assert len(nodes(svg, "rect", "none")) == 2, "the cell, and the legend's"


@pytest.mark.parametrize("first", [0.0, 50.0, 100.0])
def test_the_frame_of_the_first_measurement_has_the_letters_colour(first: float) -> None:
    svg = heat(first, 0.0, 100.0)
    frame, _legend = nodes(svg, "rect", "first")
    inks = {"on-light": "#000", "on-dark": "#fff"}
    number = next(
        node for node in nodes(svg, "text") if node.text == f"{first:.1f}" and node.get("class") in inks
    )
    told = inks[number.get("class", "")]
    assert frame.get("style") == f"stroke:{told}"


def test_the_scale_is_written_below_and_spans_what_was_measured() -> None:
    assert {"55.0", "65.0", "75.0", "not measured", "first measurement"} <= set(texts(heat(61.0, 68.0)))
    assert (change_scale([1.0, -7.0]).low, change_scale([1.0, -7.0]).high) == (-10, 10)


def test_many_columns_are_narrow_and_numbered_only() -> None:
    wide, narrow = heat(*[50.0] * 24), heat(*[50.0] * 25)
    assert ("c3" in texts(wide), "c3" in texts(narrow)) == (True, False)
    widths = [float(ET.fromstring(svg).get("width", "")) for svg in (wide, narrow)]
    assert widths[1] < widths[0]


def contrast(one: float, other: float) -> float:
    dark, bright = sorted((one, other))
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("inks", "ground"), [(LIGHT, "#ffffff"), (DARK, "#15181d")])
def test_every_line_stands_out_from_its_ground(inks: tuple[str, ...], ground: str) -> None:
    def light(colour: str) -> float:
        return luminance((int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:], 16)))

    assert [line for line in inks if contrast(light(line), light(ground)) < 4.5] == []


@pytest.mark.parametrize("scale", [rising_scale([0.0, 100.0]), change_scale([20.0])])
def test_letters_stand_out_from_every_colour_of_a_scale(scale: Any) -> None:
    for step in range(101):
        colour = scale.colour(scale.low + (scale.high - scale.low) * step / 100)
        assert contrast(luminance(colour), {"on-light": 0.0, "on-dark": 1.0}[ink(colour)]) >= 4.5, step


def test_names_are_cut_at_their_front() -> None:
    assert cut_front("example.org/some-organisation/a-repository", 26) == "…/a-repository"
    assert cut_front("abcdefgh", 4) == "…fgh"


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
