"""`everlean export parquet`: what the library datasets reads of it, and whose ids it has."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from store.domain.splits import SIDES, SPLITS
from store.view import queries
from tests.support.state_folder import StateFolder, record_traced
from tests.support.traced_repository import make_traced_repository

pytest.importorskip("pyarrow")


def rows(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return found


@pytest.fixture
def exported(folder: StateFolder) -> StateFolder:
    """A traced repository, written both ways."""
    record_traced(folder, list(make_traced_repository(0, 8, 6)))
    for form in ("leandojo", "parquet"):
        answer = folder.everlean("export", form, f"as-{form}", "--json")
        assert answer.code == 0, answer.err
    return folder


def test_every_theorem_and_premise_is_there_on_its_side_with_its_key(exported: StateFolder) -> None:
    theirs, ours = exported.root / "as-leandojo", exported.root / "as-parquet"
    with closing(queries.connect(exported.state / "database.db")) as view:
        keys = dict(view.execute("SELECT full_name, split_key FROM traced_theorems"))
    seen = 0
    for split in SPLITS:
        for side in SIDES:
            wanted = json.loads((theirs / split / f"{side}.json").read_text())
            found = rows(ours / split / f"{side}.parquet")
            assert [row["full_name"] for row in found] == [theorem["full_name"] for theorem in wanted]
            for row, theorem in zip(found, wanted, strict=True):
                assert row["id"] == keys[row["full_name"]]
                steps = theorem["traced_tactics"]
                assert [step["state_before"] for step in row["traced_tactics"]] == [
                    step["state_before"] for step in steps
                ]
                assert [[use["full_name"] for use in step["premises"]] for step in row["traced_tactics"]] == [
                    [use["full_name"] for use in step["annotated_tactic"][1]] for step in steps
                ]
                seen += 1
    assert seen > 10
    lines = [json.loads(line) for line in (theirs / "corpus.jsonl").read_text().splitlines()]
    assert [(row["path"], row["full_name"]) for row in rows(ours / "corpus.parquet")] == [
        (line["path"], premise["full_name"]) for line in lines for premise in line["premises"]
    ]
    assert rows(ours / "files.parquet") == [
        {"path": line["path"], "imports": line["imports"]} for line in lines
    ]
    assert {path.name for path in ours.iterdir()} - {".everlean-export.json"} == {
        "README.md", "corpus.parquet", "files.parquet", "novel_premises", "random",
    }  # fmt: skip


def test_datasets_loads_it_by_the_names_on_its_card(exported: StateFolder, tmp_path: Path) -> None:
    import datasets

    place = str(exported.root / "as-parquet")
    loaded = datasets.load_dataset(place, "random", cache_dir=str(tmp_path / "cache"))
    assert set(loaded) == {"train", "validation", "test"}
    assert loaded["train"].num_rows == len(rows(exported.root / "as-parquet" / "random" / "train.parquet"))
    corpus = datasets.load_dataset(place, "corpus", cache_dir=str(tmp_path / "cache"), split="train")
    assert "code" in corpus.column_names


def test_a_second_export_takes_the_place_of_the_first_and_of_nothing_else(exported: StateFolder) -> None:
    assert exported.everlean("export", "parquet", "as-parquet").code == 0
    foreign = exported.root / "foreign"
    foreign.mkdir()
    (foreign / "mine").write_text("x")
    refused = exported.everlean("export", "parquet", "foreign")
    assert refused.code != 0
    assert "no export made it" in refused.err
    assert [path.name for path in foreign.iterdir()] == ["mine"]
