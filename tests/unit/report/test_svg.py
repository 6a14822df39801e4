"""The pictures put marks where the numbers say."""

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

SVG = "{http://www.w3.org/2000/svg}"


def marks(svg: str) -> list[tuple[float, float]]:
    """Where a chart of one line has its marks, less the one in the legend, which comes first."""
    places = [
        node.get("transform", "") for node in ET.fromstring(svg).iter(f"{SVG}path") if node.get("transform")
    ]
    found = [tuple(map(float, re.findall(r"[\d.]+", place))) for place in places]
    return [(x, y) for x, y in found][1:]


def chart(
    values: tuple[float | None, ...],
    *,
    at: tuple[float, ...] = (),
    ends: tuple[float, float] | None = None,
) -> str:
    names = [str(index) for index in range(len(values))]
    return line_chart("i", "t", positions=names, lines=[Series("l", values)], unit="u", at=at, ends=ends)


def test_a_line_is_as_high_as_its_values() -> None:
    (_, zero), (_, half), (_, whole) = marks(chart((0.0, 5.0, 10.0)))
    assert zero - half == half - whole > 0
    assert marks(chart((5.0,), ends=(0.0, 10.0)))[0][1] == half


def test_moments_stand_where_their_time_is_and_hold_until_the_next() -> None:
    svg = chart((1.0, 2.0, 3.0), at=(0.0, 10.0, 40.0))
    (first, _), (second, _), (last, _) = marks(svg)
    assert second - first == (last - first) / 4
    assert f"H{second:.1f}" in svg
    evenly = [x for x, _ in marks(chart((1.0, 2.0, 3.0)))]
    assert evenly[1] - evenly[0] == evenly[2] - evenly[1]


def test_moments_after_the_clock_was_set_back_stay_within_the_chart_and_in_their_order() -> None:
    places = [x for x, _ in marks(chart((1.0, 2.0, 3.0, 4.0), at=(100.0, 200.0, 50.0, 300.0)))]
    first, before, after, last = places
    assert first < before == after < last
    assert before - first == (last - first) / 2


@pytest.mark.parametrize("values", [(), (None,), (0.0,), (0.0, 0.0)])
def test_a_chart_without_heights_is_still_a_picture(values: tuple[float | None, ...]) -> None:
    at = (7.0,) * len(values)
    assert len(marks(chart(values, at=at))) == sum(value is not None for value in values)


def test_a_line_is_broken_where_nothing_was_measured() -> None:
    drawn = ET.fromstring(chart((1.0, None, 2.0, 3.0))).find(f".//{SVG}path[@class='line c0']")
    assert drawn is not None
    assert re.sub(r"[^MLH]", "", drawn.get("d", "")) == "MML"


def test_a_long_line_has_few_marks_and_the_heavy_one_none() -> None:
    values = tuple(float(index % 7) for index in range(200))
    assert len(marks(chart(values))) <= 24
    svg = line_chart("i", "t", positions=["1", "2"], lines=[Series("mean", (1.0, 2.0), heavy=True)], unit="u")
    assert 'class="mean"' in svg
    assert 'transform="translate(60' not in svg


def test_a_simulated_line_is_drawn_as_all_that_is_simulated() -> None:
    lines = [Series("real", (1.0, 2.0)), Series("SIMULATED", (2.0, 3.0), simulated=True)]
    drawn = ET.fromstring(line_chart("i", "t", positions=["1", "2"], lines=lines, unit="u"))
    assert sum(node.get("class") == "made-up" for node in drawn.iter(f"{SVG}path")) == 2, (
        "it, and the legend's"
    )


def test_labels_of_positions_do_not_touch_and_both_ends_are_written() -> None:
    names = [f"2026-{1 + index // 28:02}-{1 + index % 28:02}" for index in range(60)]
    svg = line_chart("i", "t", positions=names, lines=[Series("l", (1.0,) * 60)], unit="u")
    shown = [node for node in ET.fromstring(svg).iter(f"{SVG}text") if node.text in names]
    assert (shown[0].text, shown[-1].text) == (names[0], names[-1])
    places = [float(node.get("x", "")) for node in shown]
    assert min(after - before for before, after in pairwise(places)) > 72


def test_bars_are_as_long_as_their_values_and_simulated_ones_are_drawn_otherwise() -> None:
    svg = bar_chart("i", "t", bars=[Series("a", (4,)), Series("b", (1,), simulated=True)], form=str)
    drawn = [
        node for node in ET.fromstring(svg).iter(f"{SVG}rect") if node.get("class") in ("bar", "made-up")
    ]
    assert [node.get("class") for node in drawn] == ["bar", "made-up"]
    assert float(drawn[0].get("width", "")) == 4 * float(drawn[1].get("width", ""))


def heat(values: list[float | None]) -> ET.Element:
    known = [value for value in values if value is not None]
    svg = heat_map(
        "i", "t", rows=["r"], columns=[f"c{index}" for index in range(len(values))], cells=[values],
        scale=rising_scale(known), form=lambda value: f"{value:.1f}",
        framed=[0],
    )  # fmt: skip
    return ET.fromstring(svg)


def test_cells_are_darker_where_higher_and_what_was_not_measured_has_no_colour() -> None:
    root = heat([0.0, None, 100.0])
    cells = [node for node in root.iter(f"{SVG}rect") if node.find(f"{SVG}title") is not None]
    assert [node.get("fill") for node in cells] == ["#ecf3fb", "#08306b"]
    letters = [(node.text, node.get("class")) for node in root.iter(f"{SVG}text")]
    assert ("0.0", "on-light") in letters
    assert ("100.0", "on-dark") in letters
    empty = [node for node in root.iter(f"{SVG}rect") if node.get("class") == "none"]
    assert len(empty) == 2, "the cell, and the legend"


@pytest.mark.parametrize("first", [0.0, 50.0, 100.0])
def test_the_frame_of_the_first_measurement_stands_out_from_its_cell(first: float) -> None:
    root = heat([first, 0.0, 100.0])
    (cell, *_), (frame, _) = (
        [node for node in root.iter(f"{SVG}rect") if holds(node)]
        for holds in (
            lambda node: node.find(f"{SVG}title") is not None,
            lambda node: node.get("class") == "first",
        )
    )
    letters = {"on-light": "#000", "on-dark": "#fff"}
    (told,) = {
        letters[node.get("class", "")]
        for node in root.iter(f"{SVG}text")
        if node.text == f"{first:.1f}" and node.get("class") in letters
    }
    assert frame.get("style") == f"stroke:{told}"
    assert cell.get("fill")


def test_the_scale_is_written_below_and_spans_what_was_measured() -> None:
    texts = [node.text for node in heat([61.0, 68.0]).iter(f"{SVG}text")]
    assert {"55.0", "65.0", "75.0", "not measured", "first measurement"} <= set(texts)
    assert (change_scale([1.0, -7.0]).low, change_scale([1.0, -7.0]).high) == (-10, 10)


@pytest.mark.parametrize(("inks", "ground"), [(LIGHT, "#ffffff"), (DARK, "#15181d")])
def test_every_line_stands_out_from_its_ground(inks: tuple[str, ...], ground: str) -> None:
    def light(colour: str) -> float:
        return luminance((int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:], 16)))

    for line in inks:
        bright, dark = sorted((light(line), light(ground)), reverse=True)
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, line


@pytest.mark.parametrize("scale", [rising_scale([0.0, 100.0]), change_scale([20.0])])
def test_letters_stand_out_from_every_colour_of_a_scale(scale: Any) -> None:
    for step in range(101):
        colour = scale.colour(scale.low + (scale.high - scale.low) * step / 100)
        bright, dark = sorted(
            (luminance(colour), {"on-light": 0.0, "on-dark": 1.0}[ink(colour)]), reverse=True
        )
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, step


def test_many_columns_are_narrow_and_numbered_only() -> None:
    wide, narrow = heat([50.0] * 24), heat([50.0] * 25)
    assert "c3" in [node.text for node in wide.iter(f"{SVG}text")]
    assert "c3" not in [node.text for node in narrow.iter(f"{SVG}text")]
    assert float(narrow.get("width", "")) < float(wide.get("width", ""))


def test_names_are_cut_at_their_front_and_text_holds_nothing_that_turns_it_around() -> None:
    assert cut_front("example.org/some-organisation/a-repository", 26) == "…/a-repository"
    assert cut_front("abcdefgh", 4) == "…fgh"
    assert safe("a\u202eb\ud800c\x00<") == "a\ufffdb\ufffdc\ufffd&lt;"
    assert safe("\u05e9\u05dc") == "\u05e9\u05dc"
