from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from store.domain.matching import align

_hashes = st.lists(st.text("ab", min_size=16, max_size=16), max_size=8)


@given(_hashes, _hashes)
def test_a_pairing_keeps_order_and_is_never_empty_without_need(before: list[str], now: list[str]) -> None:
    pairs = align(before, now)
    assert bool(pairs) == bool(before and now)
    assert pairs == sorted(set(pairs))
    assert len({old for old, _ in pairs}) == len({new for _, new in pairs}) == len(pairs)


@given(_hashes)
def test_what_did_not_change_is_paired_with_itself(hashes: list[str]) -> None:
    assert align(hashes, hashes) == [(index, index) for index in range(len(hashes))]


def test_one_filled_and_one_added_elsewhere_are_not_taken_for_one_that_was_edited() -> None:
    assert align(["a" * 16, "b" * 16], ["b" * 16, "c" * 16]) == [(1, 0)]


def test_of_very_many_each_is_paired_by_its_place() -> None:
    before, now = (
        [f"{number:016x}" for number in range(1001)],
        [f"{number:016x}" for number in range(5001, 6003)],
    )
    assert align(before, now) == [(index, index) for index in range(1001)]


def test_likeness_decides_who_stays() -> None:
    assert align(["a" * 16, "b" * 16, "c" * 16], ["b" * 16]) == [(1, 0)]
    assert align(["a" * 16, "x" * 8 + "b" * 8], ["y" * 8 + "b" * 8]) == [(1, 0)]
