"""Import, then export, gives back what was imported, key for key; and LeanDojo-v2's own code writes and reads it."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.leandojo import LeanDojoFolder, database, read_json, without_circles, write_dataset
from tests.support.leandojo_peer import needs_peer, peer

POSITIONS = ("start", "end", "def_pos", "def_end_pos")


@contextmanager
def new_store() -> Iterator[LeanDojoFolder]:
    with tempfile.TemporaryDirectory() as folder:
        yield LeanDojoFolder(Path(folder))


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


def without_infinity(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_infinity(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_infinity(item) for item in value]
    return None if value == math.inf else value


MANY = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@MANY
@given(random=st.randoms(use_true_random=False), repositories=st.integers(1, 3))
def test_a_database_comes_back_key_for_key(random: Random, repositories: int) -> None:
    data = database(random, repositories=repositories)
    with new_store() as store:
        store.take_data(data)
        back = store.give_back()
        assert [path.name for path in back.iterdir() if not path.name.startswith(".")] == [
            "dynamic_database.json"
        ]
        assert read_json(back / "dynamic_database.json") == as_written(data)


@MANY
@given(random=st.randoms(use_true_random=False), repositories=st.integers(1, 3))
def test_an_export_of_a_dataset_has_the_database_key_for_key_with_null_for_infinity(
    random: Random, repositories: int
) -> None:
    data = without_circles(database(random, repositories=repositories))
    with new_store() as store:
        store.take_data(data)
        store.export()
        assert store.json("dynamic_database.json") == without_infinity(as_written(data))


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
            str(path.relative_to(back)): read_json(path)
            for path in back.rglob("*.json*")
            if not path.name.startswith(".")
        }
        assert found == files


@MANY
@given(random=st.randoms(use_true_random=False))
def test_what_came_back_is_the_same_import_again(random: Random) -> None:
    with new_store() as store:
        first = store.take_data(database(random, odd=False))
        again = store.take(store.give_back())
        assert (again.already_imported, again.position) == (True, first.position)


def test_a_changed_database_comes_back_as_it_is_now(store: LeanDojoFolder) -> None:
    for seed in (1, 2, 3):
        data = database(Random(seed), repositories=2)
        store.take_data(data)
    assert read_json(store.give_back() / "dynamic_database.json") == as_written(data)


def test_of_two_imports_each_comes_back_alone(store: LeanDojoFolder) -> None:
    data = database(Random(6), repositories=1)
    store.take_data(data)
    files = write_dataset(store.root / "dataset", Random(7), merged=2)
    merged = store.take(store.root / "dataset").repositories[0].repository
    assert read_json(store.give_back("github.com/Demo/r0") / "dynamic_database.json") == as_written(data)
    assert read_json(store.give_back(merged) / "random/train.json") == files["random/train.json"]


# With LeanDojo-v2's own code


@pytest.fixture
def theirs(store: LeanDojoFolder) -> Iterator[Any]:
    """Write theirs.json (a database) and merged/ (a dataset) with their code; give their module."""
    with peer() as module:
        database_of_theirs = module.DynamicDatabase(str(store.root / "theirs.json"))
        for data in database(Random(11), repositories=3, odd=False)["repositories"]:
            database_of_theirs.add_repository(module.Repository.from_dict(data))
        database_of_theirs.to_json(str(store.root / "theirs.json"))
        database_of_theirs.export_merged_data(database_of_theirs.repositories, store.root / "merged")
        yield module


@needs_peer
def test_a_database_that_their_code_wrote_comes_back_and_their_code_reads_it(
    store: LeanDojoFolder, theirs: Any
) -> None:
    report = store.take(store.root / "theirs.json")
    assert report.notes == ()
    back = store.give_back() / "dynamic_database.json"
    assert read_json(back) == read_json(store.root / "theirs.json")
    theirs.DynamicDatabase.from_json(str(back)).to_json(str(store.root / "again.json"))
    assert (store.root / "again.json").read_bytes() == (store.root / "theirs.json").read_bytes()


@needs_peer
@pytest.mark.usefixtures("theirs")
def test_a_dataset_that_their_code_merged_comes_back(store: LeanDojoFolder) -> None:
    merged = store.root / "merged"
    store.take(merged)
    back = store.give_back()
    names = sorted(str(path.relative_to(merged)) for path in merged.rglob("*.json*"))
    assert "novel_premises/val.json" in names
    for name in names:
        assert read_json(back / name) == read_json(merged / name), name


@needs_peer
def test_our_own_export_of_their_database_is_read_by_their_code(store: LeanDojoFolder, theirs: Any) -> None:
    store.take(store.root / "theirs.json")
    store.export()
    read_by_them = theirs.DynamicDatabase.from_json(str(store.out / "dynamic_database.json")).to_dict()
    given = read_json(store.root / "theirs.json")
    for ours, own in zip(read_by_them["repositories"], given["repositories"], strict=True):
        for key in ("url", "total_theorems", "premise_files"):
            assert ours[key] == own[key]
