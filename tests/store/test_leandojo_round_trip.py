"""Import, then export, gives back what was imported, key for key; and LeanDojo-v2's own code writes and reads it.

Its code is loaded in a process of its own, with stubs for its heavy imports: `pip install --no-deps
lean-dojo-v2==1.0.9`, or name the folder that holds `lean_dojo_v2` in $LEANDOJO_V2.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.leandojo.exporting import ExportReport, Mode, export_leandojo
from store.leandojo.reading import ImportReport, import_leandojo
from store.log.reader import LogReader
from store.view import queries
from tests.support.leandojo import database, write_dataset

ROOT = Path(__file__).resolve().parents[2]
POSITIONS = ("start", "end", "def_pos", "def_end_pos")


class Store:
    """A state folder to import into and to export from."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def take(self, path: Path) -> ImportReport:
        return import_leandojo(
            path,
            events_db=self.root / "events.db",
            database_db=self.root / "database.db",
            stage=self.root / "import",
        )

    def give_back(self, *repositories: str) -> Path:
        self.export(self.root / "back", Mode.AS_IMPORTED_COMPAT, *repositories)
        return self.root / "back"

    def export(self, out: Path, mode: Mode, *repositories: str) -> ExportReport:
        with (
            LogReader.open(self.root / "events.db") as log,
            closing(queries.connect(self.root / "database.db")) as view,
        ):
            return export_leandojo(out, log=log, view=view, mode=mode, repositories=repositories)


@contextmanager
def new_store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        yield Store(Path(folder))


def write(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False), encoding="utf-8")
    return path


def read(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def as_written(data: Any) -> Any:
    """A database with every position in the form in which LeanDojo-v2 writes it; nothing else changed."""
    if isinstance(data, list):
        return [as_written(item) for item in data]
    if isinstance(data, dict):
        return {
            key: f"({', '.join(re.findall('[0-9]+', str(value)))})" if key in POSITIONS else as_written(value)
            for key, value in data.items()
        }
    return data


MANY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@MANY
@given(random=st.randoms(use_true_random=False), repositories=st.integers(1, 3))
def test_a_database_comes_back_key_for_key(random: Random, repositories: int) -> None:
    data = database(random, repositories=repositories)
    with new_store() as store:
        store.take(write(store.root / "db.json", data))
        back = store.give_back()
        assert [path.name for path in back.iterdir() if not path.name.startswith(".")] == [
            "dynamic_database.json"
        ]
        assert read(back / "dynamic_database.json") == as_written(data)


@MANY
@given(random=st.randoms(use_true_random=False), merged=st.none() | st.integers(1, 3))
def test_a_dataset_folder_comes_back_file_for_file_and_key_for_key(
    random: Random, merged: int | None
) -> None:
    with new_store() as store:
        files = write_dataset(store.root / "dataset", random, merged=merged)
        store.take(store.root / "dataset")
        back = store.give_back()
        found = {
            str(path.relative_to(back)): read(path)
            for path in back.rglob("*.json*")
            if not path.name.startswith(".")
        }
        assert found == files


@MANY
@given(random=st.randoms(use_true_random=False))
def test_what_came_back_is_the_same_import_again(random: Random) -> None:
    with new_store() as store:
        first = store.take(write(store.root / "db.json", database(random, odd=False)))
        again = store.take(store.give_back())
        assert (again.repeated, again.position) == (True, first.position)


def test_a_changed_database_comes_back_as_it_is_now(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for seed in (1, 2, 3):
        data = database(Random(seed), repositories=2)
        store.take(write(tmp_path / "db.json", data))
    assert read(store.give_back() / "dynamic_database.json") == as_written(data)


def test_of_two_imports_each_comes_back_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    data = database(Random(6), repositories=1)
    store.take(write(tmp_path / "db.json", data))
    files = write_dataset(tmp_path / "dataset", Random(7), merged=2)
    merged = store.take(tmp_path / "dataset").traces[0].head.repository
    assert read(store.give_back("github.com/Demo/r0") / "dynamic_database.json") == as_written(data)
    store.export(tmp_path / "folder", Mode.AS_IMPORTED_COMPAT, merged)
    assert read(tmp_path / "folder/random/train.json") == files["random/train.json"]


# With LeanDojo-v2's own code

THEIRS = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from store_peer import database_module
module = database_module(Path(sys.argv[2]))
if sys.argv[3] == "write":
    database = module.DynamicDatabase("theirs.json")
    for data in json.loads(Path("input.json").read_text())["repositories"]:
        database.add_repository(module.Repository.from_dict(data))
    database.to_json("theirs.json")
    database.export_merged_data(database.repositories, Path("merged"))
else:
    module.DynamicDatabase.from_json(sys.argv[4]).to_json("again.json")
"""


def peer_folder() -> Path | None:
    """The folder that holds `lean_dojo_v2`; None where there is none."""
    if given := os.environ.get("LEANDOJO_V2"):
        return Path(given)
    spec = importlib.util.find_spec("lean_dojo_v2")
    return None if spec is None or spec.origin is None else Path(spec.origin).parents[1]


def theirs(folder: Path, *arguments: str) -> None:
    peer = peer_folder()
    assert peer is not None
    command = [sys.executable, "-c", THEIRS, str(ROOT / "benchmarks"), str(peer), *arguments]
    # In a folder of its own: merely opening a database of theirs empties ./dynamic_database.json.
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def written_by_them(tmp_path: Path) -> Path:
    """A folder with theirs.json (a database) and merged/ (a dataset), written by their code."""
    if peer_folder() is None:
        pytest.skip("LeanDojo-v2 is not here")
    write(tmp_path / "input.json", database(Random(11), repositories=3, odd=False))
    theirs(tmp_path, "write")
    return tmp_path


def test_a_database_that_their_code_wrote_comes_back_and_their_code_reads_it(written_by_them: Path) -> None:
    store = Store(written_by_them)
    report = store.take(written_by_them / "theirs.json")
    assert report.notes == ()
    back = store.give_back() / "dynamic_database.json"
    assert read(back) == read(written_by_them / "theirs.json")
    theirs(written_by_them, "read", "back/dynamic_database.json")
    assert (written_by_them / "again.json").read_bytes() == (written_by_them / "theirs.json").read_bytes()


def test_a_dataset_that_their_code_merged_comes_back(written_by_them: Path) -> None:
    store = Store(written_by_them)
    store.take(written_by_them / "merged")
    back = store.give_back()
    names = sorted(
        str(path.relative_to(written_by_them / "merged"))
        for path in (written_by_them / "merged").rglob("*.json*")
    )
    assert "novel_premises/val.json" in names
    for name in names:
        assert read(back / name) == read(written_by_them / "merged" / name), name


def test_our_own_export_of_their_database_is_read_by_their_code(written_by_them: Path) -> None:
    store = Store(written_by_them)
    store.take(written_by_them / "theirs.json")
    store.export(written_by_them / "ours", Mode.FOR_LIFE)
    theirs(written_by_them, "read", "ours/dynamic_database.json")
    found, given = read(written_by_them / "again.json"), read(written_by_them / "theirs.json")
    assert [item["url"] for item in found["repositories"]] == [item["url"] for item in given["repositories"]]
    for ours, own in zip(found["repositories"], given["repositories"], strict=True):
        assert ours["total_theorems"] == own["total_theorems"]
        assert ours["premise_files"] == own["premise_files"]
