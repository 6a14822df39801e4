from __future__ import annotations

from random import Random

import pytest

from store.backoff import Backoff


@pytest.mark.parametrize(
    ("backoff", "waits_s"),
    [
        (Backoff(1.0, 60.0), [1, 2, 4, 8, 16, 32, 60, 60]),
        (Backoff(5.0, 3600.0), [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600]),
        (Backoff(2.0, 100.0, factor=3.0), [2, 6, 18, 54, 100]),
        (Backoff(90.0, 60.0), [60, 60]),
        (Backoff(0.0, 60.0), [0, 0]),
    ],
)
def test_each_failure_in_a_row_makes_the_wait_longer_up_to_the_longest(
    backoff: Backoff, waits_s: list[float]
) -> None:
    assert [backoff.wait_s(failures) for failures in range(1, len(waits_s) + 1)] == waits_s
    assert backoff.wait_s(100_000) == waits_s[-1]


def test_before_a_failure_is_counted_the_wait_is_the_first() -> None:
    assert Backoff(1.0, 60.0).wait_s(0) == 1.0


def test_dice_spread_the_waits_evenly_about_it() -> None:
    dice = Random(1)
    waits = [Backoff(100.0, 3600.0, jitter=0.2).wait_s(2, dice) for _ in range(500)]
    assert 160.0 <= min(waits) < 165.0
    assert 235.0 < max(waits) <= 240.0
