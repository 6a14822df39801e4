"""`everlean report`: its files, the browser, and what it says of an empty or unwritable place."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import datetime, timedelta

import pytest

from pipeline.report.layout import file_stem
from tests.support.models import checkpoint_promoted, checkpoint_saved, evaluation_finished
from tests.support.state_folder import REPOSITORY, ROOT, StateFolder, fill
from tests.support.verbs import hold_to_schema


def test_it_writes_one_page_and_its_pictures_and_says_where(folder: StateFolder) -> None:
    fill(folder)
    for body in (checkpoint_saved(), checkpoint_promoted(), evaluation_finished()):
        folder.add("model:retriever", body)
    folder.write()
    before = (folder.state / "database.db").read_bytes()
    document = folder.everlean("report", "--out", "out/page", "--json").json
    where = folder.root / "out" / "page"
    assert document["path"] == str(where / "index.html")
    assert sorted(path.name for path in where.iterdir()) == [
        "index.html", "models.html", "proofs.html", f"{file_stem(REPOSITORY)}.html"
    ]  # fmt: skip
    assert sorted(document["pictures"]) == sorted(str(path) for path in where.glob("*.svg"))
    assert sorted(document["pages"]) == sorted(str(path) for path in where.glob("*.html"))
    page = (where / "index.html").read_text(encoding="utf-8")
    whole = "".join(path.read_text(encoding="utf-8") for path in where.glob("*.html"))
    for picture in where.glob("*.svg"):
        assert picture.read_text(encoding="utf-8").strip() in whole
    assert document["empty"] is False
    assert f"As of event {document['position']}; made" in page
    assert "Lean, as the daemon last said: pantograph (at /opt/repl)." in page
    assert (folder.state / "database.db").read_bytes() == before
    hold_to_schema("report", document)


def test_a_second_report_replaces_the_first_and_leaves_other_files_alone(filled: StateFolder) -> None:
    where = filled.root / "report"
    assert filled.everlean("report", "--as-of", "2").code == 0
    (where / "notes.txt").write_text("mine")
    first = (where / "index.html").read_text(encoding="utf-8")
    answer = filled.everlean("report")
    assert answer.code == 0, answer.err
    assert f"{where / 'index.html'}: the state at event" in answer.out
    assert (where / "index.html").read_text(encoding="utf-8") != first
    assert sorted(path.name for path in where.iterdir()) == [
        "index.html", "notes.txt", "proofs.html", f"{file_stem(REPOSITORY)}.html"
    ]  # fmt: skip


def test_a_page_that_no_report_wrote_is_not_overwritten(filled: StateFolder) -> None:
    where = filled.root / "site"
    where.mkdir()
    (where / "index.html").write_text("<h1>my project</h1>")
    answer = filled.everlean("report", "--out", "site")
    assert answer.code == 1
    assert f"{where / 'index.html'}: no report wrote it, so it is not overwritten" in answer.err
    assert "--out" in answer.err
    assert [path.read_text() for path in where.iterdir()] == ["<h1>my project</h1>"]


def test_an_empty_database_gives_a_page_that_says_so(folder: StateFolder) -> None:
    folder.write()
    answer = folder.everlean("report", "--out", "out")
    assert answer.code == 0, answer.err
    assert "nothing is recorded yet" in answer.out
    assert "Nothing is recorded yet" in (folder.root / "out" / "index.html").read_text(encoding="utf-8")


def test_it_can_be_made_as_of_an_earlier_event(filled: StateFolder) -> None:
    document = filled.everlean("report", "--as-of", "2", "--json").json
    assert (document["position"], document["as_of"]["seq"], document["pictures"]) == (2, 2, [])


def test_what_is_new_begins_where_since_says_and_before_an_earlier_event_by_its_time(
    filled: StateFolder,
) -> None:
    page = filled.root / "report" / "index.html"
    assert filled.everlean("report", "--since", "1h").code == 0
    assert "2 were there when their branches were first read" in page.read_text(encoding="utf-8")
    assert filled.everlean("report", "--since", "0m").code == 0
    assert "no new sorry; none filled." in page.read_text(encoding="utf-8")
    document = filled.everlean("report", "--since", "1d", "--as-of", "2", "--json").json
    assert datetime.fromisoformat(document["as_of"]["recorded_at"]) - datetime.fromisoformat(
        document["since"]
    ) == timedelta(days=1)
    answer = filled.everlean("report", "--since", "a while")
    assert (answer.code, "such as 7d, yesterday" in answer.err) == (2, True)


def test_web_opens_the_page_in_a_browser_and_says_where_it_is_if_there_is_none(
    filled: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, told = filled.root / "report" / "index.html", filled.root / "told"
    browser = filled.root / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >{told}\n', encoding="utf-8")
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    assert filled.installed("report", "--web").code == 0
    assert told.read_text(encoding="utf-8") == f"{page.as_uri()}\n"
    monkeypatch.setenv("BROWSER", str(filled.root / "none"))
    monkeypatch.setenv("PATH", str(filled.root))
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    answer = filled.installed("report", "--web")
    assert answer.code == 0
    assert f"no browser is here to open it; open {page} yourself" in answer.err


def test_a_folder_that_cannot_be_made_is_an_error_with_its_remedy(filled: StateFolder) -> None:
    (filled.root / "file").write_text("in the way")
    answer = filled.everlean("report", "--out", "file/below")
    assert answer.code == 1
    assert "--out" in answer.err
    assert "Traceback" not in answer.err


def test_no_database_is_an_error_and_writes_nothing(folder: StateFolder) -> None:
    answer = folder.everlean("report", "--out", "out")
    assert answer.code == 1
    assert "nothing recorded there yet" in answer.err
    assert not (folder.root / "out").exists()


def test_it_loads_neither_a_training_library_nor_a_plotting_one(filled: StateFolder) -> None:
    program = (
        "import sys, json\nfrom datetime import UTC, datetime\n"
        "from pipeline.report.page import render\n"
        "from pipeline.report.writing import write\nfrom pathlib import Path\n"
        "from store.view import queries\n"
        "write(render(queries.connect(Path(sys.argv[1])), made_at=datetime.now(UTC)), Path(sys.argv[2]))\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    arguments = [sys.executable, "-c", program, str(filled.state / "database.db"), str(filled.root / "out")]
    result = subprocess.run(arguments, capture_output=True, text=True, check=True, cwd=ROOT)
    heavy = {"torch", "numpy", "transformers", "matplotlib", "pydantic", "sqlalchemy"}
    assert heavy & set(json.loads(result.stdout)) == set()


def test_a_view_of_another_schema_is_an_error_in_words(filled: StateFolder) -> None:
    with closing(sqlite3.connect(filled.state / "database.db")) as database, database:
        database.execute("DROP TABLE attempts")
    answer = filled.everlean("report")
    assert answer.code == 1
    assert "Traceback" not in answer.err
