"""How long until a repository is asked again."""

from __future__ import annotations

import random

import pytest

from daemon.polling.poller import after_answer, after_failure, spread

HOUR = 3600.0


@pytest.mark.parametrize(
    ("quiet_s", "expected_s"),
    [
        (0.0, 300.0),
        (HOUR, 300.0),
        (2 * HOUR, 300.0),
        (24 * HOUR, HOUR),
        (48 * HOUR, 2 * HOUR),
        (1000 * 24 * HOUR, 6 * HOUR),
    ],
)
def test_the_longer_it_has_been_quiet_the_less_often_it_is_asked(quiet_s: float, expected_s: float) -> None:
    assert after_answer(every_s=300.0, slowest_s=6 * HOUR, quiet_s=quiet_s) == expected_s


def test_an_archived_repository_is_asked_as_seldom_as_there_is() -> None:
    assert after_answer(every_s=300.0, slowest_s=HOUR, quiet_s=0.0, archived=True) == HOUR


def test_never_sooner_than_every_also_where_slowest_is_less() -> None:
    assert after_answer(every_s=300.0, slowest_s=60.0, quiet_s=1e9) == 300.0


def test_each_failure_in_a_row_doubles_the_wait_up_to_an_hour() -> None:
    dice = random.Random(1)
    waits = [after_failure(every_s=60.0, failures=n, dice=dice) / 60.0 for n in (1, 2, 3, 50)]
    for wait, expected in zip(waits, (2, 4, 8, 60), strict=True):
        assert 0.8 * expected <= wait <= 1.2 * expected


def test_the_spread_makes_a_poll_later_by_a_small_part_of_the_interval_and_at_most_ten_seconds() -> None:
    dice = random.Random(1)
    for every_s, most_s in ((30.0, 1.0), (300.0, 10.0), (86400.0, 10.0)):
        spreads = [spread(every_s=every_s, dice=dice) for _ in range(200)]
        assert min(spreads) >= 0.0
        assert 0.9 * most_s < max(spreads) <= most_s
