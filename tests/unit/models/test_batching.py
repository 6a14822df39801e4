"""Rows of tokens put together by like length, and padded."""

from __future__ import annotations

import pytest

from pipeline.models.batching import by_length, padded


@pytest.mark.parametrize(
    ("left", "ids", "mask"),
    [
        (False, [[5, 6, 7], [8, 9, 9]], [[1, 1, 1], [1, 0, 0]]),
        (True, [[5, 6, 7], [9, 9, 8]], [[1, 1, 1], [0, 0, 1]]),
    ],
)
def test_shorter_rows_are_padded_on_one_side_and_masked(
    left: bool, ids: list[list[int]], mask: list[list[int]]
) -> None:
    made, masked = padded([[5, 6, 7], [8]], 9, left=left)
    assert (made.tolist(), masked.tolist()) == (ids, mask)


def test_rows_of_like_length_go_together_as_long_as_they_fit() -> None:
    lengths = [9, 2, 30, 3, 2, 10]
    assert list(by_length(lengths, lambda rows, _, longest: rows * longest <= 20)) == [[1, 4, 3], [0, 5], [2]]


def test_a_batch_is_told_its_shortest_and_its_longest_row() -> None:
    lines: list[tuple[int, int, int]] = []

    def fits(rows: int, shortest: int, longest: int) -> bool:
        lines.append((rows, shortest, longest))
        return True

    list(by_length([3, 1, 2], fits))
    assert lines == [(2, 1, 2), (3, 1, 3)]
