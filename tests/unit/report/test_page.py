"""The pages: well-formed, hostile text harmless, nothing loaded from elsewhere, nothing empty, every number right."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from sqlite3 import Connection
from urllib.parse import urljoin
from xml.etree import ElementTree as ET

import pytest

from pipeline.report.gather import ReportData, gather
from pipeline.report.html import Table, macro, shortened
from pipeline.report.page import NAMES, Pages, render
from store.events.base import EventBody
from store.events.jobs import JobFailed
from store.events.models import ModelKind
from store.events.repositories import RepositoryFailed
from store.view import model_queries, queries
from tests.support.events import STREAM, Story, job_started, watched
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
PICTURES = [
    "recall-change.svg", "recall-matrix.svg", "recall-over-time.svg", "rejections.svg", "sorries-over-time.svg"
]  # fmt: skip


def events(repository: str = "example.org/demo/logic") -> list[tuple[str, EventBody]]:
    story = Story(3)
    told: list[tuple[str, EventBody]] = [(STREAM, watched()), (STREAM, watched(repository=repository))]
    for _ in range(30):
        bodies, _payloads = story._commit()
        told += [(STREAM, body) for body in bodies if body.type.startswith("sorry_")]
        told += [(STREAM, body) for body in bodies if body.type in ("proof_found", "proof_rejected")]
    models: list[EventBody] = [
        checkpoint_saved("k0"),
        checkpoint_saved("k1", parent="k0"),
        checkpoint_promoted("k1"),
    ]
    for at, task, recall in (("k0", "0", 0.5), ("k1", "0", 0.375), ("k1", "1", 0.875)):
        body = evaluation_finished(at, recall=recall)
        if at == "k1":
            body.metrics.update({"recall@10_low": recall - 0.125, "recall@10_high": recall + 0.125})
        where = {"repository": f"{repository}{task}", "dataset": task * 64, "split": "test"}
        models.append(body.model_copy(update={"evaluation": f"{at}-{task}", **where}))
    return told + [("model:retriever", body) for body in models]


def said(html: str) -> str:
    """Return a page's text from its main part on, with single spaces."""
    return " ".join("".join(read(html).words).split())


@pytest.fixture(scope="module")
def made(shared_view_of: Fill) -> tuple[Connection, ReportData, Pages]:
    view = shared_view_of(events())
    data = gather(view, made_at=WHEN)
    return view, data, render(data)


def test_every_number_is_the_one_that_the_view_answers(made: tuple[Connection, ReportData, Pages]) -> None:
    view, _, pages = made
    proved, models = read(pages.html["proofs.html"]), read(pages.html["models.html"])
    proofs = Counter((row.state, row.simulated) for row in queries.proofs(view))
    shown = {
        (row[0], row[1].startswith("SIMULATED")): int(row[2]) for row in proved.table("Proofs by verdict")
    }
    assert shown == proofs
    rejected = [row for row in queries.proofs(view) if row.state in ("rejected", "conditional")]
    reasons = Counter((row.reason, row.state, row.simulated) for row in rejected)
    assert {
        (row[0], row[1], row[2].startswith("SIMULATED")): int(row[3])
        for row in proved.table("Verifier rejections")
    } == reasons
    assert reasons
    saved = model_queries.checkpoints(view)
    assert [(row[0], int(row[6])) for row in models.table("Checkpoints")] == [
        (row.checkpoint, row.steps) for row in saved
    ]
    measured = model_queries.evaluations(view)
    assert [row[8].split(" (")[0] for row in models.table("Evaluations")] == [
        f"{row.metrics['recall@10']:.4f}" for row in measured
    ]


def test_every_file_but_the_first_page_has_a_name_that_a_later_report_knows_for_its_own(
    made: tuple[Connection, ReportData, Pages],
) -> None:
    _, _, pages = made
    names = {*pages.html, *pages.pictures} - {"index.html"}
    assert {"models.html", "recall-matrix.svg", "rejections.svg", "sorries-over-time.svg"} <= names
    assert [name for name in names if not NAMES.fullmatch(name)] == []


def test_baselines_stand_once_a_dataset_in_the_table_of_the_checkpoints(view_of: Fill) -> None:
    told: list[tuple[str, EventBody]] = []
    for at in ("k0", "k1"):
        body = evaluation_finished(at, recall=0.5)
        metrics = {**body.metrics, "bm25 recall@10": 0.25, "mepo recall@10": 0.125, "mepo recall@32": 0.375}
        told += [("model:retriever", checkpoint_saved(at))]
        told += [("model:retriever", body.model_copy(update={"evaluation": at, "metrics": metrics}))]
    models = read(render(gather(view_of(told), made_at=WHEN)).html["models.html"])
    assert [(row[0], row[8], row[9]) for row in models.table("Evaluations")] == [
        ("k0", "0.5000", "not recorded"),
        ("BM25 (baseline)", "0.2500", "not recorded"),
        ("MePo (baseline)", "0.1250", "0.3750"),
        ("k1", "0.5000", "not recorded"),
    ]


def test_the_recall_matrix_is_a_picture_with_its_numbers_and_no_table_repeats_it(
    made: tuple[Connection, ReportData, Pages],
) -> None:
    _, _, pages = made
    assert not any("matrix" in caption for caption in read(pages.html["models.html"]).tables)
    grid = ET.fromstring(pages.pictures["recall-matrix.svg"])
    texts = ["".join(node.itertext()) for node in grid.iter("{http://www.w3.org/2000/svg}text")]
    scale = ["35.0", "62.5", "90.0"]
    assert [text for text in texts if re.fullmatch(r"[\d.]+\.\d", text)] == ["50.0", "37.5", "87.5", *scale]
    change = ET.fromstring(pages.pictures["recall-change.svg"])
    texts = ["".join(node.itertext()) for node in change.iter("{http://www.w3.org/2000/svg}text")]
    assert "-12.5" in texts


def test_forgetting_is_shown_in_both_forms_and_undefined_where_it_is(
    made: tuple[Connection, ReportData, Pages],
) -> None:
    _, data, pages = made
    found = data.matrices[0].forgetting
    assert found is not None
    rows = {
        row[0]: row[1:3] for row in read(pages.html["models.html"]).table("Lifelong measures over 2 tasks")
    }

    def shown(form: Mapping[str, float | None], name: str) -> str:
        value = form.get(name, "no such measure")
        return "undefined" if value is None else value if isinstance(value, str) else f"{value:.3f}"

    assert rows == {name: [shown(found.textbook, name), shown(found.leanagent, name)] for name in rows}
    assert rows["FM"][0] == "12.500"
    assert rows["WF5"][1] == "undefined"
    assert rows.keys() == found.textbook.keys() | found.leanagent.keys()
    (first, second) = read(pages.html["models.html"]).table("Forgetting, task by task")
    assert first[1:] == ["50.0", "50.0", "37.5", "-12.5", "12.5"]
    assert second[1:] == ["87.5", "87.5", "87.5", "measured once", "measured once"]


def test_a_checkpoint_says_whether_it_is_in_use_and_why(view_of: Fill) -> None:
    told = [
        checkpoint_saved("k0"),
        checkpoint_promoted("k0"),
        checkpoint_saved("k1", parent="k0"),
        checkpoint_refused("k1", in_use="k0"),
        checkpoint_saved("k2", parent="k0"),
        checkpoint_promoted("k2", previous="k0"),
        checkpoint_saved("k3", parent="k2"),
    ]
    pages = render(gather(view_of([("model:retriever", body) for body in told]), made_at=WHEN))
    rows = {row[0]: (row[3], row[4]) for row in read(pages.html["models.html"]).table("Checkpoints")}
    assert [parent for parent, _ in rows.values()] == [
        "base: kaiyuy/leandojo-lean4-retriever-byt5-small",
        *("k0", "k0", "k2"),
    ]
    standing = [re.sub(r" \d{4}-\S+ [\d:]{8}", "", text) for _, text in rows.values()]
    assert standing == [
        "was put in use: recall@10 0.41 > 0.38",
        "refused: recall@10 0.31 < 0.38",
        "in use since: recall@10 0.41 > 0.38",
        "no decision on it yet",
    ]


def test_a_training_run_that_failed_is_told_with_its_remedy_on_the_first_screen_too(view_of: Fill) -> None:
    started = job_started("t").model_copy(update={"kind": "train"})
    failed = JobFailed(
        job="t", attempt=1, reason="nan_loss", message="loss is NaN", remedy="lower lr", deterministic=True,
        retry_at=None, seconds=1.0, peak_rss_bytes=None,
    )  # fmt: skip
    pages = render(gather(view_of([("job:t", started), ("job:t", failed)]), made_at=WHEN))
    ((job, *_, reason, message, remedy),) = read(pages.html["models.html"]).table("Training runs that failed")
    assert (job, reason, message, remedy) == ("t", "nan_loss", "loss is NaN", "lower lr")
    (kind, _, jobs, failures, running, attempts, *_) = read(pages.html["machine.html"]).table("By kind")[0]
    assert (kind, jobs, failures, running, attempts) == ("train", "1", "1", "0", "1")
    assert "train fails" in said(pages.html["index.html"])
    assert "loss is NaN lower lr" in said(pages.html["index.html"])


def test_a_text_is_cut_by_what_it_takes_once_it_is_escaped() -> None:
    assert shortened("a < b", 8) == "a < b"
    assert shortened("a < b", 7) == "a < … (1 more characters)"
    for words in ("x" * 99, '"' * 99, "<&>'x" * 20):
        kept = shortened(words, 60).partition("…")[0]
        assert words.startswith(kept)
        assert 54 < len(escape(kept)) <= 60


def test_a_repository_that_is_not_enabled_needs_no_one(view_of: Fill) -> None:
    def failed(name: str) -> list[tuple[str, EventBody]]:
        problem = {"problem": "unreachable", "reason": "no route", "remedy": "check the network"}
        return [(STREAM, RepositoryFailed.model_validate({"repository": name, **problem}))]

    told: list[tuple[str, EventBody]] = [
        (STREAM, watched(repository="example.org/a/asked")),
        (STREAM, watched(repository="example.org/b/rests", enabled=False)),
        *failed("example.org/a/asked"),
        *failed("example.org/b/rests"),
    ]
    text = said(render(gather(view_of(told), made_at=WHEN)).html["index.html"])
    needs, standing = text.split("Open sorries, by repository and file")
    assert "repository unreachable in example.org/a/asked: no route check the network" in needs
    assert "example.org/b/rests" not in needs
    assert "example.org/b/rests not enabled; unreachable: no route" in standing


def test_the_pages_load_nothing_and_every_link_of_theirs_leads_somewhere(
    made: tuple[Connection, ReportData, Pages],
) -> None:
    _, data, pages = made
    for served in (False, True):
        html = render(data, served=served).html
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
    made: tuple[Connection, ReportData, Pages],
) -> None:
    _, data, pages = made
    assert sorted(pages.pictures) == PICTURES
    whole = "".join(pages.html.values())
    for svg in pages.pictures.values():
        root = ET.fromstring(svg)
        assert root.get("role") == "img"
        assert svg.strip() in whole
    lines = ET.fromstring(pages.pictures["sorries-over-time.svg"]).findtext(
        "{http://www.w3.org/2000/svg}desc"
    )
    assert (
        f"{data.history[-1].open:g} at "
        in (lines or "").partition("Still in the source: ")[2].partition(";")[0]
    )


def test_a_keyboard_and_a_screen_reader_find_their_way(made: tuple[Connection, ReportData, Pages]) -> None:
    _, _, pages = made
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
    pages = render(gather(view_of(events(HOSTILE.replace("\x00", ""))), made_at=WHEN))
    expected = "example.org/<script>alert('1')</script>/\"&�[31m�"
    for html in pages.html.values():
        harmless(html)
    assert expected in said(pages.html["index.html"])
    for svg in pages.pictures.values():
        ET.fromstring(svg)
    assert [row[0] for row in read(pages.html["models.html"]).table("Forgetting")] == [
        f"{expected}0",
        f"{expected}1",
    ]


MEASURED: Mapping[ModelKind, Mapping[str, float]] = {
    "tactics": {
        "tactic@1": 0.25,
        "tactic@8": 0.5,
        "tactic@8_low": 0.375,
        "tactic@8_high": 0.625,
        "token_accuracy": 0.75,
    },
    "progress": {"mae": 1.5, "mse": 4.0, "within_1": 0.5, "other": 0.125},
}


def test_each_model_s_evaluations_have_a_table_with_its_own_measures_and_their_units(view_of: Fill) -> None:
    told = events()
    for model, metrics in MEASURED.items():
        saved = checkpoint_saved(f"{model}-1", model=model)
        measured = evaluation_finished(f"{model}-1", model=model).model_copy(update={"metrics": metrics})
        told += [(f"model:{model}", saved), (f"model:{model}", measured)]
    pages = render(gather(view_of(told), made_at=WHEN))
    reader = read(pages.html["models.html"])
    tactics, progress = (reader.table(f"Evaluations of the {name} model") for name in ("tactic", "progress"))
    assert [row[6:10] for row in tactics] == [["0.2500", "0.5000 (0.3750 to 0.6250)", "0.7500", "none"]]
    assert [row[6:10] for row in progress] == [["1.5000", "4.0000", "0.5000", "other 0.1250"]]
    for header in ("mae (steps)", "mse (steps squared)", "tactic@8", "recall@10"):
        assert f">{header}</th>" in pages.html["models.html"], header


def test_a_page_of_sections_is_never_larger_than_it_may_be_and_says_what_it_leaves_out(
    made: tuple[Connection, ReportData, Pages], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, data, pages = made
    whole = pages.html["models.html"]
    monkeypatch.setattr("pipeline.report.page._REST_BYTES", 1 << 13)
    most = len(whole.encode()) * 2 // 3
    html = render(data, most_bytes=most).html["models.html"]
    assert len(html.encode()) <= most
    headings = re.findall(r"<h2[^>]*>([^<]+)</h2>", html)
    assert headings == re.findall(r"<h2[^>]*>([^<]+)</h2>", whole)
    told = re.findall(r"<p>Left out, so that the page has no more than [\d.]+ MiB: ([^<]+)\.</p>", html)
    (named,) = told
    assert html.count("<p>Left out: it takes") == len(named.split("; "))
    assert len(read(html).tables) < len(read(whole).tables)
    assert "Left out" not in whole


def simulated_models() -> list[tuple[str, EventBody]]:
    """The same models as in `events`, but learned from what the simulator made."""
    return [
        (stream, body.model_copy(update={"simulated": True}))
        if stream == "model:retriever"
        else (stream, body)
        for stream, body in events()
    ]


def test_what_a_simulated_run_made_is_marked_wherever_it_stands(view_of: Fill) -> None:
    job = job_started("train-0000000000000000", simulated=True)
    data = gather(view_of([*simulated_models(), ("job:train", job)]), made_at=WHEN)
    pages = render(data)
    reader = read(pages.html["models.html"])
    assert all('role="note"><strong>SIMULATED' in html for html in pages.html.values())
    by_kind = read(pages.html["machine.html"]).table("By kind")
    assert [row[1] for row in by_kind] == ["SIMULATED: the simulator"]
    assert [row[2] for row in reader.table("Checkpoints")] == ["SIMULATED: the simulator"] * 2
    assert [row[4] for row in reader.table("Evaluations")] == ["SIMULATED: the simulator"] * 3
    names = [name for name in pages.pictures if name.startswith("recall")]
    assert names == [f"recall-{name}-simulated.svg" for name in ("matrix", "over-time", "change")]
    for name in names:
        texts = ET.fromstring(pages.pictures[name]).iter("{http://www.w3.org/2000/svg}text")
        assert (next(texts).text or "").startswith("SIMULATED: "), "a picture says so by itself too"
    for caption in reader.tables:
        if caption.startswith(("Recall", "Forgetting", "Lifelong")):
            pytest.fail(f"{caption} does not say that it is simulated")


def test_a_simulated_proof_is_marked_in_its_chart_its_tables_and_beside_its_text(view_of: Fill) -> None:
    data = gather(view_of(events()), made_at=WHEN)
    made_up = [one for one in (*data.verified, *data.others) if one.row.simulated]
    assert made_up
    assert not any(one.row.simulated for one in data.verified)
    html = render(data).html["proofs.html"]
    assert html.count(": SIMULATED, ") == len(made_up)
    assert html.count("the simulator made it, and it is no proof") == len(made_up)
    steps = {(row.reason.partition(":")[0], row.conditional) for row in data.rejections if row.simulated}
    assert render(data).pictures["rejections.svg"].count('class="made-up"') == len(steps) > 0


def test_real_training_is_not_called_simulated(made: tuple[Connection, ReportData, Pages]) -> None:
    _, _, pages = made
    assert {row[2] for row in read(pages.html["models.html"]).table("Checkpoints")} == {"Lean"}
    assert not any("SIM" in svg for name, svg in pages.pictures.items() if name.startswith("recall"))


def test_an_empty_database_gives_a_page_that_says_so(view_of: Fill) -> None:
    data = gather(view_of([]), made_at=WHEN)
    pages = render(data)
    reader = read(pages.html["index.html"])
    assert data.empty
    assert list(pages.html) == ["index.html"]
    assert "Nothing is recorded yet" in pages.html["index.html"]
    assert (pages.pictures, reader.seen["table"], reader.seen["svg"]) == ({}, 0, 0)


def test_what_has_nothing_to_show_has_no_page_and_no_heading_and_what_is_unknown_is_said(
    view_of: Fill,
) -> None:
    pages = render(gather(view_of([(STREAM, watched())]), made_at=WHEN))
    assert list(pages.html) == ["index.html"]
    assert re.findall(r"<h2[^>]*>([^<]+)</h2>", pages.html["index.html"]) == [
        "Open sorries, by repository and file"
    ]
    text = said(pages.html["index.html"])
    assert (
        "No sorry is open in 1 watched repository. Since 2025-12-26 03:04 UTC: no new sorry; none filled."
        in text
    )
    assert "Lean, as the daemon last said: not known" in text


def test_one_page_can_be_made_alone_and_there_is_none_of_another_name(
    made: tuple[Connection, ReportData, Pages],
) -> None:
    _, data, pages = made
    for name, html in pages.html.items():
        assert render(data, only=name).html == {name: html}
    assert render(data, only="other.html").html == {}


def test_long_tables_are_folded_in_and_short_ones_are_not(made: tuple[Connection, ReportData, Pages]) -> None:
    _, data, pages = made
    assert len(data.searches) < 15
    assert "<summary>Checkpoints" not in pages.html["models.html"]
    rows = [(str(number), number) for number in range(15)]
    assert "<summary>Long: 15 rows" in macro("table", t=Table("Long", ("Name", "Number"), rows))
