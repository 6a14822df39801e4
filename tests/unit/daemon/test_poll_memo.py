"""What a poll leaves for the next one, and what of it is believed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from daemon.polling.poller import PollMemory, load_memo, seconds_since


def test_what_is_stored_is_read_back() -> None:
    memo = PollMemory(basis="b", etags={"branches": '"e"'}, default="main", moved=True, failures=3)
    assert load_memo(memo.model_dump_json()) == memo


@pytest.mark.parametrize(
    "stored",
    [
        None,
        "",
        "no json",
        "[]",
        '{"etags": 3}',
        '{"etags": {"branches": 3}}',
        '{"failures": "x"}',
        '{"default": 1}',
        '{"basis": null}',
    ],
)
def test_what_cannot_be_read_is_forgotten(stored: str | None) -> None:
    assert load_memo(stored) == PollMemory()


def test_what_an_earlier_version_stored_is_taken_as_far_as_it_goes() -> None:
    assert load_memo('{"basis": "b", "etags": {}, "default": "main", "unknown": 1}') == PollMemory(
        basis="b", default="main"
    )


def test_a_time_in_the_future_is_none() -> None:
    now = datetime(2026, 5, 1, tzinfo=UTC)
    assert seconds_since("2026-04-30T23:59:00+00:00", now) == 60
    assert seconds_since("2026-05-01T00:01:00+00:00", now) is None
    assert seconds_since("", now) is None
    assert seconds_since("2026-04-30", now) is None
