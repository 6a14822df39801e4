"""The report in a real browser: nothing loaded, nothing complained of, everything seen, reached and readable."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.browser import Browser

pytestmark = pytest.mark.slow

PAGES = ("year", "few", "empty")
OPEN_ALL = "document.querySelectorAll('details').forEach(one => one.open = true)"
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

CONTRASTS = """(() => {
  const parts = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = node => {
    for (; node; node = node.parentElement) {
      const [r, g, b, a] = parts(getComputedStyle(node).backgroundColor);
      if (a !== 0) return [r, g, b];
    }
    return [255, 255, 255];
  };
  return [...document.body.querySelectorAll(':not(svg):not(svg *)')]
    .filter(node => [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()))
    .map(node => {
      const [ink, paper] = [light(parts(getComputedStyle(node).color)), light(ground(node))];
      const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
      return [Math.round(ratio * 100) / 100, node.tagName + ': ' + node.textContent.slice(0, 40)];
    });
})()"""


def pages_of(first: Path) -> list[Path]:
    """All pages of a report."""
    return sorted(first.parent.glob("*.html"))


FOCUSED = """(() => {
  const node = document.activeElement, box = node.getBoundingClientRect(), style = getComputedStyle(node);
  return {what: node.tagName + '.' + node.className + ' ' + (node.getAttribute('href') || ''),
    seen: box.width > 0 && box.height > 0 && box.right > 0 && box.bottom > 0 && box.top < innerHeight,
    framed: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2};
})()"""


def test_the_watch_notices_a_request_and_a_complaint(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(
        "<script>console.error('so')</script><img src='http://127.0.0.1:9/x.png'>", encoding="utf-8"
    )
    shown = browser.show(page.as_uri())
    assert shown.requests == [page.as_uri(), "http://127.0.0.1:9/x.png"]
    assert any("so" in said for said in shown.complaints)


@pytest.mark.parametrize("name", PAGES)
def test_each_page_asks_for_itself_alone_and_the_console_stays_empty(
    name: str, browser: Browser, reports: dict[str, Path]
) -> None:
    for page in pages_of(reports[name]):
        shown = browser.show(page.as_uri())
        assert (shown.requests, shown.complaints) == ([page.as_uri()], [])
        assert browser.ask("document.title") != "broken"
        filters = page.name.startswith("sorries-")
        assert browser.ask("document.scripts.length") == filters
        if filters:
            assert browser.ask("document.querySelector('.filter').hidden") is False
            browser.ask("box.value = 'no such word';box.dispatchEvent(new Event('input'))")
            assert browser.ask("[...document.querySelectorAll('.sorry')].every(one => one.hidden)")
            assert browser.ask("document.getElementById('matches').value").startswith("0 of ")
    browser.show(reports[name].as_uri())
    assert browser.ask("document.title") == "everlean: report"


def test_the_first_screen_is_a_screen_and_its_links_lead_to_the_sorry(
    browser: Browser, reports: dict[str, Path]
) -> None:
    browser.show(reports["year"].as_uri(), width=1280)
    cards = "[...document.querySelectorAll('.card')].map(one => one.getBoundingClientRect())"
    assert browser.ask(f"Math.max(...{cards}.map(one => one.top))") < 900
    address = browser.ask("document.querySelector('.card li a').href")
    browser.show(address)
    box = browser.ask("document.querySelector(':target').className")
    assert box == "sorry"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_something_is_seen_in_light_and_in_dark(
    name: str, dark: bool, browser: Browser, reports: dict[str, Path]
) -> None:
    browser.show("about:blank")
    blank = len(browser.photograph())
    browser.show(reports[name].as_uri(), dark=dark)
    assert len(browser.photograph()) > (2 if name == "empty" else 8) * blank
    ground = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(21, 24, 29)" if dark else "rgb(255, 255, 255)")


@pytest.mark.parametrize("width", [320, 390, 768])
def test_no_width_scrolls_sideways_with_everything_folded_out(
    width: int, browser: Browser, reports: dict[str, Path]
) -> None:
    for page in pages_of(reports["year"]):
        browser.show(page.as_uri(), width=width)
        assert browser.ask(TOO_WIDE) <= 0, page.name
        browser.ask(OPEN_ALL)
        assert browser.ask(TOO_WIDE) <= 0, page.name


def test_nothing_moves_and_on_paper_it_is_light_and_nothing_is_cut_off(
    browser: Browser, reports: dict[str, Path]
) -> None:
    browser.show(reports["few"].as_uri(), dark=True)
    moving = "style => style.animationName !== 'none' || parseFloat(style.transitionDuration) > 0"
    assert (
        browser.ask(f"[...document.querySelectorAll('*')].map(node => getComputedStyle(node)).some({moving})")
        is False
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark"}
    browser.call("Emulation.setEmulatedMedia", media="print", features=[scheme])
    try:
        assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        grounds = (
            "[...new Set([...document.querySelectorAll('.ground')].map(node => getComputedStyle(node).fill))]"
        )
        assert browser.ask(grounds) == ["rgb(255, 255, 255)"]
        assert browser.ask("getComputedStyle(document.querySelector('nav')).display") == "none"
        boxes = "[...document.querySelectorAll('.scroll')].map(node => getComputedStyle(node).overflow)"
        assert set(browser.ask(boxes)) == {"visible"}
    finally:
        browser.call("Emulation.setEmulatedMedia", media="", features=[])


def test_on_paper_the_lists_of_the_first_page_are_whole(browser: Browser, reports: dict[str, Path]) -> None:
    browser.show(reports["year"].as_uri())
    heights = "[...document.querySelectorAll('.card details')].map(one => one.getBoundingClientRect().height)"
    assert max(browser.ask(heights)) < 50
    browser.call("Emulation.setEmulatedMedia", media="print", features=[])
    try:
        assert min(browser.ask(heights)) > 100
    finally:
        browser.call("Emulation.setEmulatedMedia", media="", features=[])


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_stands_out_from_its_ground(
    dark: bool, browser: Browser, reports: dict[str, Path]
) -> None:
    found = []
    for page in pages_of(reports["few"]):
        browser.show(page.as_uri(), dark=dark)
        browser.ask(OPEN_ALL)
        found += browser.ask(CONTRASTS)
    assert len(found) > 300
    assert [one for one in found if one[0] < 4.5] == []


def test_the_keyboard_reaches_every_link_table_and_picture_and_shows_where_it_is(
    browser: Browser, reports: dict[str, Path]
) -> None:
    browser.show(reports["few"].with_name("models.html").as_uri())
    stops = browser.ask("document.querySelectorAll('a, summary, [tabindex=\"0\"]').length")
    hidden = browser.ask(
        "document.querySelectorAll('details:not([open]) :is(a, summary, [tabindex])').length"
    )
    own = browser.ask("document.querySelectorAll('details:not([open]) > summary').length")
    nested = browser.ask(
        "document.querySelectorAll('details:not([open]) details:not([open]) > summary').length"
    )
    reachable = stops - hidden + own - nested
    seen = []
    for _ in range(reachable):
        browser.press("Tab", 9)
        seen.append(browser.ask(FOCUSED))
    assert seen[0]["what"] == "A.skip #content"
    assert [one for one in seen if not (one["seen"] and one["framed"])] == []
    assert sum("scroll" in one["what"] for one in seen) == 2
    browser.press("Tab", 9)
    assert browser.ask("document.activeElement === document.body")


def test_a_screen_reader_is_told_names_of_pictures_and_sections_and_headings_in_order(
    browser: Browser, reports: dict[str, Path]
) -> None:
    browser.show(reports["few"].as_uri())
    nodes = [node for node in browser.call("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
    named: dict[str, list[str]] = {}
    for node in nodes:
        named.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    pictures = named.get("image", []) + named.get("img", [])
    assert len(pictures) == 1 + 3, "one over time, and one of each repository"
    for role in ("region", "navigation"):
        assert named[role], role
        assert all(named[role]), role
    assert all(pictures)
    groups = browser.ask(
        "[...document.querySelectorAll('[role=group]')].map(node => node.getAttribute('aria-label'))"
    )
    assert groups
    assert all(groups)
    levels = browser.ask("[...document.querySelectorAll('h1, h2, h3')].map(node => +node.tagName[1])")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_each_picture_is_a_file_that_opens_by_itself(browser: Browser, reports: dict[str, Path]) -> None:
    for picture in sorted(reports["few"].parent.glob("*.svg")):
        shown = browser.show(picture.as_uri(), dark=True)
        assert (shown.requests, shown.complaints) == ([picture.as_uri()], []), picture.name
        assert browser.ask("document.documentElement.tagName") == "svg", picture.name
