"""The pages: well-formed, hostile text harmless, nothing loaded from elsewhere, nothing empty, every number right."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from sqlite3 import Connection
from urllib.parse import urljoin
from xml.etree import ElementTree as ET

import pytest

from pipeline.report.html import Table, macro
from pipeline.report.page import NAMES, Report, render
from store.documents.status import describe_view
from store.events.base import EventBody
from store.events.repositories import RepositoryFailed
from store.view import model_queries, queries, report_queries
from tests.support.events import STREAM, Story, watched
from tests.support.models import (
    checkpoint_promoted,
    checkpoint_refused,
    checkpoint_saved,
    evaluation_finished,
)
from tests.support.pages import accessible, harmless, read

Fill = Callable[[Sequence[tuple[str, EventBody]]], Connection]
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOSTILE = "example.org/<script>alert('1')</script>/\"&\x00\x1b[31m\ufffe"


def events(repository: str = "example.org/demo/logic") -> list[tuple[str, EventBody]]:
    story = Story(3)
    lines: list[tuple[str, EventBody]] = [(STREAM, watched()), (STREAM, watched(repository=repository))]
    for _ in range(30):
        bodies, _payloads = story._commit()
        lines += [(STREAM, body) for body in bodies if body.type.startswith("sorry_")]
        lines += [(STREAM, body) for body in bodies if body.type in ("proof_found", "proof_rejected")]
    models: list[EventBody] = [
        checkpoint_saved("k0"),
        checkpoint_saved("k1", parent="k0"),
        checkpoint_promoted("k1"),
    ]
    for at, task, recall in (("k0", "0", 0.5), ("k1", "0", 0.375), ("k1", "1", 0.875)):
        body = evaluation_finished(at, recall=recall)
        if at == "k1":
            body.metrics.update({"recall@10_low": recall - 0.125, "recall@10_high": recall + 0.125})
            body.metrics["bm25 recall@10"] = recall / 2
        where = {"repository": f"{repository}{task}", "dataset": task * 64, "split": "test"}
        models.append(body.model_copy(update={"evaluation": f"{at}-{task}", **where}))
    return lines + [("model:retriever", body) for body in models]


def said(html: str) -> str:
    """Return a page's text from its main part on, with single spaces."""
    return " ".join("".join(read(html).words).split())


@pytest.fixture(scope="module")
def made(shared_view_of: Fill) -> tuple[Connection, Report]:
    view = shared_view_of(events())
    return view, render(view, made_at=WHEN)


def test_every_number_is_the_one_that_the_view_answers(made: tuple[Connection, Report]) -> None:
    view, pages = made
    proved, models = read(pages.html["proofs.html"]), read(pages.html["models.html"])
    proofs = Counter(row.state for row in queries.proofs(view))
    shown = {row[0]: int(row[1]) for row in proved.table("Proofs by verdict")}
    assert shown == proofs
    rejected = [row for row in queries.proofs(view) if row.state in ("rejected", "conditional")]
    reasons = Counter((row.reason, row.state) for row in rejected)
    assert {(row[0], row[1]): int(row[2]) for row in proved.table("Verifier rejections")} == reasons
    assert reasons
    saved = model_queries.checkpoints(view)
    assert [(row[0], int(row[7])) for row in models.table("Checkpoints")] == [
        (row.checkpoint, row.steps) for row in saved
    ]
    measured = model_queries.evaluations(view)
    own = [row for row in models.table("Evaluations") if row[3] == "the model"]
    for shown_row, row in zip(own, measured, strict=True):
        assert shown_row[0] == row.checkpoint
        assert f"recall@10 {row.metrics['recall@10']:.4f}" in shown_row[4]
    words = [row for row in models.table("Evaluations") if row[3] == "BM25"]
    assert [(row[0], row[4]) for row in words] == [
        ("k1", f"recall@10 {half:.4f}") for half in (0.375 / 2, 0.875 / 2)
    ]


def test_every_file_but_the_first_page_has_a_name_that_a_later_report_knows_for_its_own(
    made: tuple[Connection, Report],
) -> None:
    _, pages = made
    names = {*pages.html, *pages.pictures} - {"index.html"}
    assert {"models.html", "sorries-over-time.svg"} <= names
    assert [name for name in names if not NAMES.fullmatch(name)] == []


def test_a_checkpoint_says_whether_it_is_in_use_and_why(view_of: Fill) -> None:
    lines = [
        checkpoint_saved("k0"),
        checkpoint_promoted("k0"),
        checkpoint_saved("k1", parent="k0"),
        checkpoint_refused("k1", in_use="k0"),
        checkpoint_saved("k2", parent="k0"),
        checkpoint_promoted("k2", previous="k0"),
        checkpoint_saved("k3", parent="k2"),
    ]
    pages = render(view_of([("model:retriever", body) for body in lines]), made_at=WHEN)
    rows = read(pages.html["models.html"]).table("Checkpoints")
    base = "base: kaiyuy/leandojo-lean4-retriever-byt5-small"
    assert [row[3:6] for row in rows] == [
        [base, "was in use", "recall@10 0.41 > 0.38"],
        ["k0", "refused", "recall@10 0.31 < 0.38"],
        ["k0", "in use", "recall@10 0.41 > 0.38"],
        ["k2", "undecided", ""],
    ]


def test_a_repository_that_is_not_enabled_needs_no_one(view_of: Fill) -> None:
    def failed(name: str) -> list[tuple[str, EventBody]]:
        problem = {"problem": "unreachable", "reason": "no route", "remedy": "check the network"}
        return [(STREAM, RepositoryFailed.model_validate({"repository": name, **problem}))]

    lines: list[tuple[str, EventBody]] = [
        (STREAM, watched(repository="example.org/a/asked")),
        (STREAM, watched(repository="example.org/b/rests", enabled=False)),
        *failed("example.org/a/asked"),
        *failed("example.org/b/rests"),
    ]
    view = view_of(lines)
    text = said(render(view, made_at=WHEN, problems=describe_view(view).problems).html["index.html"])
    needs, standing = text.split("Open sorries, by repository and file")
    assert "error: example.org/a/asked: no route check the network" in needs
    assert "example.org/b/rests" not in needs
    assert "example.org/b/rests not enabled; unreachable: no route" in standing


def test_the_pages_load_nothing_and_every_link_of_theirs_leads_somewhere(
    made: tuple[Connection, Report],
) -> None:
    view, pages = made
    for served in (False, True):
        html = render(view, made_at=WHEN, served=served).html
        readers = {name: harmless(page) for name, page in html.items()}
        ids = {
            name: {value for _, key, value in reader.attributes if key == "id"}
            for name, reader in readers.items()
        }
        linked = set()
        for name, reader in readers.items():
            for _, key, value in reader.attributes:
                if key != "href" or value.startswith(("#", "https://")):
                    continue
                target, _, anchor = urljoin(
                    "/report" if name == "index.html" else f"/report/{name}", value
                ).partition("#")
                if not served:
                    target = f"/report/{value.partition('#')[0]}"
                page = (
                    "index.html"
                    if target in ("/report", "/report/index.html")
                    else target.removeprefix("/report/")
                )
                linked.add(page)
                assert not anchor or anchor in ids[page], value
        assert linked == set(html), "and every page is reached"
    assert set(re.findall(r"https?://[^\"'\s<]+", "".join(pages.html.values()))) == {
        "http://www.w3.org/2000/svg"
    }


def test_every_picture_is_well_formed_named_and_says_its_numbers(
    made: tuple[Connection, Report],
) -> None:
    view, pages = made
    assert sorted(pages.pictures) == ["sorries-over-time.svg"]
    whole = "".join(pages.html.values())
    for svg in pages.pictures.values():
        root = ET.fromstring(svg)
        assert root.get("role") == "img"
        assert svg.strip() in whole
    lines = ET.fromstring(pages.pictures["sorries-over-time.svg"]).findtext(
        "{http://www.w3.org/2000/svg}desc"
    )
    open_ = len(report_queries.sorries_here(view))
    assert f", {open_} at " in (lines or "").partition("Still in the source: ")[2].partition(";")[0]


def test_a_keyboard_and_a_screen_reader_find_their_way(made: tuple[Connection, Report]) -> None:
    _, pages = made
    for html in pages.html.values():
        reader = read(html)
        accessible(reader)
        assert reader.seen["nav"] == 1
        order = [
            reader.attributes.index(one) for one in (("a", "href", "#content"), ("main", "id", "content"))
        ]
        assert order == sorted(order)
        assert "prefers-color-scheme:dark" in html


def test_a_hostile_name_is_shown_and_does_nothing(view_of: Fill) -> None:
    pages = render(view_of(events(HOSTILE.replace("\x00", ""))), made_at=WHEN)
    expected = "example.org/<script>alert('1')</script>/\"&�[31m�"
    for html in pages.html.values():
        harmless(html)
    assert expected in said(pages.html["index.html"])
    measured = read(pages.html["models.html"]).table("Evaluations")
    assert {row[1] for row in measured} == {f"{expected}0 (test)", f"{expected}1 (test)"}


def test_an_empty_database_gives_a_page_that_says_so(view_of: Fill) -> None:
    pages = render(view_of([]), made_at=WHEN)
    reader = read(pages.html["index.html"])
    assert pages.position == 0
    assert list(pages.html) == ["index.html"]
    assert "Nothing is recorded yet" in pages.html["index.html"]
    assert (pages.pictures, reader.seen["table"], reader.seen["svg"]) == ({}, 0, 0)


def test_what_has_nothing_to_show_has_no_page_and_no_heading_and_what_is_unknown_is_said(
    view_of: Fill,
) -> None:
    pages = render(view_of([(STREAM, watched())]), made_at=WHEN)
    assert list(pages.html) == ["index.html"]
    assert re.findall(r"<h2[^>]*>([^<]+)</h2>", pages.html["index.html"]) == [
        "Open sorries, by repository and file"
    ]
    text = said(pages.html["index.html"])
    assert (
        "No sorry is open in 1 watched repository. Seen since 2025-12-26 03:04 UTC: no new sorry; none filled."
        in text
    )
    assert "Lean, as the daemon last said: not known" in text


def test_one_page_can_be_made_alone_and_there_is_none_of_another_name(
    made: tuple[Connection, Report],
) -> None:
    view, pages = made
    for name, html in pages.html.items():
        assert render(view, made_at=WHEN, only=name).html == {name: html}
    assert render(view, made_at=WHEN, only="other.html").html == {}


def test_long_tables_are_folded_in_and_short_ones_are_not(made: tuple[Connection, Report]) -> None:
    _, pages = made
    assert "<summary>Checkpoints" not in pages.html["models.html"]
    rows = [(str(number), number) for number in range(15)]
    assert "<summary>Long: 15 rows" in macro("table", t=Table("Long", ("Name", "Number"), rows))
