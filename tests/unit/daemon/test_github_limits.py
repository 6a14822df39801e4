"""What GitHub's answers say of its limits, and what may be asked after them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from httpx2 import Headers

from daemon.polling.errors import RemoteError
from daemon.polling.github_transport import Limits
from pipeline.http_client import Answer

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


class World:
    """Limits with clocks that a test sets: `clock` is the one that no one else sets."""

    def __init__(self) -> None:
        self.now, self.clock = NOW, 1000.0
        self.limits = Limits(now=lambda: self.now, elapsed=lambda: self.clock)

    def answer(self, status: int, *, said: str = "", **headers: str) -> RemoteError | None:
        answer = Answer(
            status, headers=Headers({name.replace("_", "-"): text for name, text in headers.items()})
        )
        try:
            self.limits.heed(answer, what="o/n", said=said)
        except RemoteError as error:
            return error
        return None


def reset(seconds: float) -> str:
    return str(int((NOW + timedelta(seconds=seconds)).timestamp()))


def test_the_last_request_of_a_quota_is_an_answer_and_the_next_one_waits_for_the_reset() -> None:
    world = World()
    assert world.answer(200, x_ratelimit_remaining="0", x_ratelimit_reset=reset(600)) is None
    assert world.limits.blocked_s() == 600
    with pytest.raises(RemoteError, match="12:10:00 UTC") as caught:
        world.limits.check(what="o/n")
    assert caught.value.retry_at == NOW + timedelta(seconds=600)
    world.clock += 600
    world.limits.check(what="o/n")


def test_a_quota_is_its_own_resources_and_no_others() -> None:
    world = World()
    used_up = {"x_ratelimit_remaining": "0", "x_ratelimit_reset": reset(600)}
    world.answer(200, x_ratelimit_resource="search", **used_up)
    assert world.limits.blocked_s() == 0
    assert world.limits.quotas["search"].remaining == 0


def test_a_secondary_limit_stops_everything_for_as_long_as_it_says() -> None:
    world = World()
    error = world.answer(429, said="secondary rate limit", retry_after="90")
    assert error is not None
    assert error.problem == "rate_limited"
    assert world.limits.blocked_s() == 90


def test_a_secondary_limit_that_says_nothing_is_waited_out_twice_as_long_each_time() -> None:
    world = World()
    waits = []
    for _ in range(8):
        assert world.answer(403, said="You have exceeded a secondary rate limit") is not None
        waits.append(world.limits.blocked_s())
        world.clock += waits[-1]
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert world.answer(200) is None
    world.answer(403, said="You have triggered an abuse detection mechanism")
    assert world.limits.blocked_s() == 60


def test_a_403_about_access_is_no_limit() -> None:
    assert World().answer(403, said="Resource protected by organization SAML enforcement") is None


def test_a_reset_in_the_past_or_in_years_is_neither_believed() -> None:
    world = World()
    world.answer(403, x_ratelimit_remaining="0", x_ratelimit_reset=reset(-50))
    assert world.limits.blocked_s() == 1
    world.answer(403, x_ratelimit_remaining="0", x_ratelimit_reset=reset(10**8))
    assert world.limits.blocked_s() == 7200


def test_a_wall_clock_that_is_set_back_makes_no_wait_longer() -> None:
    world = World()
    world.answer(429, retry_after="90")
    world.now -= timedelta(hours=1)
    assert world.limits.blocked_s() == 90


def test_nonsense_in_the_headers_is_no_quota() -> None:
    world = World()
    assert world.answer(200, x_ratelimit_remaining="-1", x_ratelimit_reset="soon") is None
    assert world.answer(200, x_ratelimit_remaining="5", x_ratelimit_reset="9" * 30) is None
    assert world.limits.quotas == {}
