"""A strict reader of a page: its tags, attributes, text, and tables."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser

from pipeline.report import FILTER

VOID = {"meta", "br", "input"}
INLINE = {"a", "bdi", "code", "del", "ins", "span", "strong"}
"""Tags that part no words."""
_ADDRESS = re.compile(r"(\.\./report|(report/)?[A-Za-z0-9.-]+\.html(#[A-Za-z0-9._~-]+)?|https://[^\s\"'<>]+)")
"""Of another page of the report, or elsewhere."""


class Reader(HTMLParser):
    """Follows the tags as a strict reader would, and keeps the tables as rows of text by caption."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.rows: list[list[str]] = []
        self.caption = ""
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in INLINE:
            self.words.append(" ")
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.rows, self.caption = [], ""
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "table":
            self.tables[self.caption] = self.rows

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if "caption" in self.open:
            self.caption += data
        elif {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def table(self, beginning: str) -> list[list[str]]:
        """The rows below the header of the one table with this caption."""
        (found,) = [rows for caption, rows in self.tables.items() if caption.startswith(beginning)]
        return found[1:]


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def harmless(page: str) -> Reader:
    """Read a page, and see that it loads nothing, runs its filter at most, and that ids and links to them fit."""
    page = page.replace(f"<script>{FILTER}</script>", "")
    reader = read(page)
    assert not {"script", "link", "img", "iframe", "object", "base", "image", "use"} & set(reader.seen)
    ids = [value for _, name, value in reader.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    for _, name, value in reader.attributes:
        assert not name.startswith("on")
        assert name not in ("src", "srcset", "action", "xlink:href")
        if name == "href" and value.startswith("#"):
            assert value[1:] in ids
        elif name == "href":
            assert _ADDRESS.fullmatch(value), value
        if name in ("aria-labelledby", "aria-describedby"):
            assert set(value.split()) <= set(ids)
    assert "url(" not in page
    assert "@import" not in page
    assert not set(page) & set("\x00\x1b\u202e\ufffe")
    return reader


def accessible(reader: Reader) -> None:
    """See that a reader's tables have captions and scopes, and that what scrolls has a name and takes the focus."""
    assert ("html", "lang", "en") in reader.attributes
    assert (reader.seen["h1"], reader.seen["main"]) == (1, 1)
    assert reader.seen["caption"] == reader.seen["table"]
    headers = [value for tag, name, value in reader.attributes if (tag, name) == ("th", "scope")]
    assert len(headers) == reader.seen["th"]
    scrolling = [
        value for _, name, value in reader.attributes if name == "class" and "scroll" in value.split()
    ]
    assert len(scrolling) == sum((name, value) == ("tabindex", "0") for _, name, value in reader.attributes)
    named = [
        value for tag, name, value in reader.attributes if name == "aria-label" and tag in ("div", "figure")
    ]
    assert len(named) == len(scrolling)
    assert all(named)
