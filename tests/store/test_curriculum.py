"""The curriculum: difficulty in steps, limits that are always numbers, sorries and term proofs dealt out evenly."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.curriculum import (
    CompatError,
    CurriculumRepository,
    Thresholds,
    curriculum,
    difficulty,
    rating,
    thresholds,
)
from store.domain.records import TracedFile, TracedTactic, TracedTheorem
from store.recording import TraceHead, record_trace
from store.view.view import catch_up
from tests.support.memory_log import MemoryLog
from tests.support.traced_repository import head, record_made_up
from tests.support.views import empty_view


class Store:
    """A log in memory and its view."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.view = empty_view()

    def trace(self, *steps: int | str, of: str = "a", sha: str = "1" * 40) -> None:
        """Trace a repository whose theorems have so many steps, or one "sorry"."""
        commit = head(sha, repository=f"example.org/demo/{of}")
        self.record(commit, [theorem(f"{of}{n}", length) for n, length in enumerate(steps)])

    def record(self, commit: TraceHead, theorems: Iterable[TracedTheorem]) -> None:
        with tempfile.TemporaryDirectory() as stage:
            file = TracedFile("A.lean", (), (), tuple(theorems))
            record_trace(self.log, trace=commit, files=[file], stage=Path(stage))
        self.catch_up()

    def catch_up(self) -> None:
        with self.log.reader() as reader:
            catch_up(self.view, reader)

    def rows(self, *, compat: bool = False) -> dict[str, CurriculumRepository]:
        found = curriculum(self.view, compat=compat)
        return {row.repository.rpartition("/")[2]: row for row in found.repositories}


def theorem(name: str, steps: int | str) -> TracedTheorem:
    texts = [steps] if isinstance(steps, str) else ["simp"] * steps
    tactics = tuple(TracedTactic(text, text, (), "⊢ a", "no goals") for text in texts)
    return TracedTheorem(name, f"theorem {name}", (1, 1), (2, 1), tactics)


def test_difficulty_is_e_to_the_steps_and_never_overflows() -> None:
    assert (difficulty(3, has_sorry=False), rating(3)) == (3, math.exp(3))
    assert difficulty(0, has_sorry=False) is None
    assert difficulty(3, has_sorry=True) is None
    assert rating(None) is None
    assert rating(709) == math.exp(709)
    assert rating(710) is None
    assert rating(math.nan) is None


def test_limits_are_percentiles_between_lengths() -> None:
    assert thresholds({1: 1, 2: 1, 3: 1, 4: 1}) == Thresholds(easy=1.99, medium=3.01)
    assert thresholds({5: 10}) == Thresholds(5, 5)
    assert thresholds({}) is None


@settings(deadline=None)
@given(st.dictionaries(st.integers(1, 5000), st.integers(1, 10**6), min_size=1))
def test_limits_are_always_finite_and_in_order(counted: dict[int, int]) -> None:
    found = thresholds(counted)
    assert found is not None
    assert min(counted) <= found.easy <= found.medium <= max(counted)


def test_theorems_fall_into_buckets_of_all_repositories() -> None:
    store = Store()
    store.trace(1, 1, 2, 9, of="a")
    store.trace(1, 2, 2, 3, 8, of="b")
    found = curriculum(store.view)
    assert found.thresholds == Thresholds(easy=1.64, medium=2.36)
    rows = store.rows()
    assert (rows["a"].easy, rows["a"].medium, rows["a"].hard) == (2, 1, 1)
    assert (rows["b"].easy, rows["b"].medium, rows["b"].hard) == (1, 2, 2)
    assert [row.repository for row in found.repositories] == ["example.org/demo/a", "example.org/demo/b"]
    assert [row.order for row in found.repositories] == [1, 2]


def test_repositories_with_as_many_easy_theorems_stand_by_name() -> None:
    store = Store()
    for name in ("z", "m", "a"):
        store.trace(1, 5, of=name)
    assert list(store.rows()) == ["a", "m", "z"]


def test_a_proof_of_a_thousand_steps_is_hard_and_stops_nothing() -> None:
    store = Store()
    store.trace(1, 2, 1000)
    assert store.rows()["a"].hard == 1
    with pytest.raises(CompatError, match="1000 steps"):
        store.rows(compat=True)


@pytest.mark.parametrize("what", [0, "exact sorry"])
def test_sorries_and_proofs_without_steps_are_dealt_out_evenly(what: int | str) -> None:
    store = Store()
    store.trace(*[what] * 900)
    row = store.rows()["a"]
    assert (row.sorries, row.proofless) == ((900, 0) if what else (0, 900))
    assert (row.easy, row.medium, row.hard) == pytest.approx((300, 300, 300), abs=45)
    assert row.no_proof == 0
    assert curriculum(store.view).thresholds is None


def test_a_theorem_that_comes_moves_no_other_to_another_third() -> None:
    store = Store()
    store.trace(*[0] * 30, sha="1" * 40)
    before = store.rows()["a"]
    store.trace(*[0] * 31, sha="2" * 40)
    after = store.rows()["a"]
    moved = [getattr(after, name) - getattr(before, name) for name in ("easy", "medium", "hard")]
    assert sorted(moved) == [0, 0, 1]


def test_however_many_sorries_there_are_the_limits_are_those_of_the_proofs() -> None:
    store = Store()
    store.trace(1, 2, 3, 4, *["sorry"] * 96)
    assert curriculum(store.view).thresholds == Thresholds(easy=1.99, medium=3.01)


def test_a_name_with_sorry_in_it_is_no_sorry_except_to_leandojo() -> None:
    store = Store()
    store.trace("exact sorry_free", 1)
    assert store.rows()["a"].sorries == 0
    assert store.rows(compat=True)["a"].sorries == 1


def test_an_empty_database_has_an_empty_curriculum() -> None:
    store = Store()
    for compat in (False, True):
        assert curriculum(store.view, compat=compat).repositories == ()


def test_a_repository_without_theorems_is_last() -> None:
    store = Store()
    store.trace(of="a")
    store.trace(1, of="b")
    assert list(store.rows()) == ["b", "a"]
    assert list(store.rows(compat=True)) == ["b"]


def test_of_each_repository_the_newest_trace_counts_and_for_leandojo_each() -> None:
    store = Store()
    store.trace(1, 1, sha="1" * 40)
    store.trace(1, sha="2" * 40)
    assert {name: row.theorems for name, row in store.rows().items()} == {"a": 1}
    assert [row.sha[0] for row in curriculum(store.view, compat=True).repositories] == ["1", "2"]


def test_counts_add_up_for_made_up_repositories(tmp_path: Path) -> None:
    store = Store()
    for seed in range(3):
        record_made_up(store.log, tmp_path, seed=seed, repository=f"example.org/demo/r{seed}", n_files=20)
    store.catch_up()
    for row in store.rows().values():
        assert row.easy + row.medium + row.hard == row.theorems == 100
        assert row.sorries > 0
        assert row.proofless > 0
        assert row.completeness == 1
