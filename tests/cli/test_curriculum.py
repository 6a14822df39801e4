"""`everlean curriculum`: the table, the limits, and what it says where nothing is traced."""

from __future__ import annotations

import math
import re

import pytest

from store.log.log import EventLog
from store.recording import record_trace
from tests.support.state_folder import StateFolder, make_folder
from tests.support.traced_repository import head, make_traced_repository, record_made_up
from tests.support.verbs import hold_to_schema


def trace(folder: StateFolder, *repositories: str, sha: str = "1" * 40) -> None:
    """Record made-up traces and bring the view up to them."""
    folder.state.mkdir(exist_ok=True)
    with EventLog.open(folder.state / "events.db") as log:
        for seed, repository in enumerate(repositories):
            record_made_up(
                log, folder.root, repository=repository, seed=seed, n_files=8 + seed, sha=sha)  # fmt: skip
    folder.write()


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> StateFolder:
    """Three repositories, of which tests only read."""
    folder = make_folder(tmp_path_factory.mktemp("traced"))
    trace(folder, "example.org/demo/one", "example.org/demo/two", "example.org/other/two")
    return folder


def test_the_repository_with_most_easy_theorems_comes_first(traced: StateFolder) -> None:
    document = traced.everlean("curriculum", "--json").json
    rows = document["repositories"]
    assert [row["order"] for row in rows] == [1, 2, 3]
    easy = [row["easy"] for row in rows]
    assert easy == sorted(easy, reverse=True)
    for row in rows:
        assert row["easy"] + row["medium"] + row["hard"] == row["theorems"]
        assert (row["completeness"], row["no_proof"]) == (1, 0)
    assert document["compat"] is False
    limits = document["thresholds"]
    assert limits["easy"] == {"steps": 3, "difficulty": math.exp(3), "text": "e^3"}
    hold_to_schema("curriculum", document)


def test_the_table_has_a_line_for_each_repository_and_the_limits(traced: StateFolder) -> None:
    answer = traced.everlean("curriculum")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0].split() == (
        ["REPOSITORY", "COMMIT", "THEOREMS", "EASY", "MEDIUM", "HARD", "SORRIES", "NO", "STEPS", "FILES"]
    )  # fmt: skip
    assert re.match(r"  1  example\.org/\S+ +1111111111 +\d+ ", lines[1])
    assert lines[1].endswith("(100%)")
    narrow = traced.everlean("curriculum", env={"COLUMNS": "80"}).out.splitlines()
    assert max(map(len, narrow[:2])) <= 80
    assert "EASY" in narrow[0]
    assert "easy: proofs of up to 3 steps (e^3 = 20.09); medium: up to 3 steps" in answer.out


def test_of_one_repository_the_order_stays_that_of_all(traced: StateFolder) -> None:
    everything = traced.everlean("curriculum", "--json").json
    one = traced.everlean("curriculum", "--repo", "demo/one", "--json").json
    expected = [row for row in everything["repositories"] if row["repository"] == "example.org/demo/one"]
    assert one["repositories"] == expected
    assert one["thresholds"] == everything["thresholds"]


def test_a_name_that_fits_two_repositories_or_none_is_refused(traced: StateFolder) -> None:
    both = traced.everlean("curriculum", "--repo", "two")
    assert (both.code, both.out) == (1, "")
    assert "example.org/demo/two, example.org/other/two; write the whole key" in both.err
    none = traced.everlean("curriculum", "--repo", "three")
    assert none.code == 1
    assert 'no repository is called "three"; `everlean curriculum` lists them' in none.err


def test_compat_is_leandojos_own(traced: StateFolder) -> None:
    document = traced.everlean("curriculum", "--compat", "--json").json
    assert document["compat"] is True
    assert any(row["no_proof"] for row in document["repositories"])
    for row in document["repositories"]:
        assert row["no_proof"] == row["sorries"]
    answer = traced.everlean("curriculum", "--compat")
    assert "NO PROOF" in answer.out
    assert "LeanDojo-v2's buckets" in answer.out


def test_what_could_not_be_extracted_is_said(folder: StateFolder) -> None:
    folder.state.mkdir()
    files = list(make_traced_repository(n_files=6))
    with EventLog.open(folder.state / "events.db") as log:
        record_trace(
            log, trace=head(), files=files, stage=folder.root, errors={files[2].path: "no such module"}
        )  # fmt: skip
    folder.write()
    assert "6 (83.3%, 1 failed)" in folder.everlean("curriculum").out
    assert folder.everlean("curriculum", "--json").json["repositories"][0]["files_failed"] == 1


def test_without_a_trace_it_says_what_to_do(filled: StateFolder) -> None:
    for option in ([], ["--compat"], ["--repo", "demo/one"]):
        answer = filled.everlean("curriculum", *option)
        assert answer.code == 0
        assert answer.out.startswith("no repository is traced yet; `everlean import leandojo")
    assert filled.everlean("curriculum", "--json").json["repositories"] == []


def test_a_trace_without_theorems_is_one_that_leandojo_leaves_out(folder: StateFolder) -> None:
    folder.state.mkdir()
    with EventLog.open(folder.state / "events.db") as log:
        record_trace(log, trace=head(), files=[], stage=folder.root)
    folder.write()
    # LeanDojo's order leaves such a repository out.
    assert folder.everlean("curriculum", "--compat").out.startswith("no repository is traced yet")
    assert "example.org/demo/logic" in folder.everlean("curriculum").out


def test_as_of_an_earlier_event_there_was_less(folder: StateFolder) -> None:
    trace(folder, "example.org/demo/one")
    position = folder.everlean("status", "--json").json["log"]["position"]
    trace(folder, "example.org/demo/late", sha="2" * 40)
    assert len(folder.everlean("curriculum", "--json").json["repositories"]) == 2
    then = folder.everlean("curriculum", "--as-of", str(position), "--json").json
    assert len(then["repositories"]) == 1
    assert then["as_of"]["seq"] == position
