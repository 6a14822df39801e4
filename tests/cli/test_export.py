"""`everlean export leandojo`: output, beside a running daemon too, and when it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from store.log.log import EventLog
from store.view.view import View
from tests.support.state_folder import ROOT, StateFolder, record_traced
from tests.support.traced_repository import make_traced_repository
from tests.support.verbs import hold_to_schema


def trace(folder: StateFolder, *, seed: int = 0, **head: Any) -> int:
    """Record a made-up trace; return the position of the log."""
    return record_traced(folder, list(make_traced_repository(seed, 6, 4)), **head)


def theorems(out: Path, split: str = "random") -> list[Any]:
    return [
        item
        for side in ("train", "val", "test")
        for item in json.loads((out / split / f"{side}.json").read_text())
    ]


def test_an_export_says_what_it_wrote(folder: StateFolder) -> None:
    position = trace(folder)
    answer = folder.everlean("export", "leandojo", "out", "--json")
    assert answer.code == 0
    document = answer.json
    assert document["path"] == str(folder.root / "out")
    assert (document["mode"], document["position"]) == ("for life", position)
    assert document["repositories"] == [
        {"url": "https://example.org/demo/one", "commit": "1" * 40, "in_dataset": True}
    ]
    assert sum(document["theorems"][f"random/{side}"] for side in ("train", "val", "test")) == 24
    assert document["corpus_files"] == 6
    hold_to_schema("export leandojo", document)
    assert len(theorems(folder.root / "out")) == 24
    shown = folder.everlean("export", "leandojo", "out")
    assert shown.code == 0
    assert "random/train" in shown.out
    assert folder.everlean("export", "leandojo", "out", "--compat", "--json").json["mode"] == "compat"
    assert f"1 repository as of event {position}" in shown.out


def test_it_works_beside_a_running_writer(folder: StateFolder) -> None:
    trace(folder)
    with (
        EventLog.open(folder.state / "events.db") as log,
        log.reader() as reader,
        View.open(folder.state / "database.db", reader),
    ):
        assert folder.everlean("export", "leandojo", "out").code == 0
    assert theorems(folder.root / "out")


def test_as_of_exports_what_was_known_then(folder: StateFolder) -> None:
    position = trace(folder, seed=0)
    trace(folder, seed=1, repository="example.org/demo/two")
    answer = folder.everlean("export", "leandojo", "out", "--as-of", str(position), "--json")
    assert answer.code == 0, answer.err
    assert answer.json["as_of"]["seq"] == position
    assert [item["url"] for item in answer.json["repositories"]] == ["https://example.org/demo/one"]


def test_a_repository_is_chosen_by_a_part_that_only_it_has(folder: StateFolder) -> None:
    trace(folder)
    trace(folder, seed=1, repository="example.org/demo/two")
    assert folder.everlean("export", "leandojo", "out", "--repo", "o/Two").code == 0
    assert {item["url"] for item in theorems(folder.root / "out")} == {"https://example.org/demo/two"}
    answer = folder.everlean("export", "leandojo", "out", "--repo", "three")
    assert answer.code == 1
    assert 'no repository is called "three"; `everlean curriculum` lists them' in answer.err


def test_an_import_comes_back_as_it_was_or_as_json_that_every_parser_reads(folder: StateFolder) -> None:
    source = ROOT / "examples" / "leandojo" / "dynamic_database.json"
    text = source.read_text(encoding="utf-8").rstrip("\n")
    assert "Infinity" in text
    assert folder.everlean("import", "leandojo", str(source)).code == 0
    for options, expected in ((["--compat"], text), ([], text.replace("Infinity", "null"))):
        assert folder.everlean("export", "leandojo", "out", "--as-imported", *options).code == 0
        assert (folder.root / "out" / "dynamic_database.json").read_text(encoding="utf-8") == expected


@pytest.mark.parametrize("options", [["--as-imported", "--every-commit"], ["--compat", "--every-commit"]])
def test_options_that_exclude_each_other_are_refused(folder: StateFolder, options: list[str]) -> None:
    trace(folder)
    assert folder.everlean("export", "leandojo", "out", *options).code == 2
    assert not (folder.root / "out").exists()


def test_without_a_database_the_error_says_what_to_do(folder: StateFolder) -> None:
    answer = folder.everlean("export", "leandojo", "out")
    assert answer.code == 1
    assert "nothing recorded there yet; start the daemon" in answer.err
