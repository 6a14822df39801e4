"""How long until a repository is polled again: after an answer, after a failure, and spread over time.

Pure: the poller writes down the time (`poll_states`), the schedule waits for it.
"""

from __future__ import annotations

import random

from store.backoff import Backoff

_QUIET_SHARE = 24.0
_SLOWEST_AFTER_FAILURES_S = 3600.0
# Far too little to be another interval, and enough for hundreds of repositories at one request after the other.
_SPREAD = 1 / 30
_LONGEST_SPREAD_S = 10.0


def after_answer(*, every_s: float, slowest_s: float, quiet_s: float, archived: bool = False) -> float:
    """Return the seconds until the next poll of a repository that answered.

    Args:
        quiet_s: how long ago it last changed.
        archived: whether it cannot change at all before it is opened again.
    """
    slowest_s = max(every_s, slowest_s)
    return slowest_s if archived else min(max(every_s, quiet_s / _QUIET_SHARE), slowest_s)


def after_failure(*, every_s: float, failures: int, dice: random.Random) -> float:
    """Return the seconds until the next poll after so many failures in a row: twice the interval, up to an hour."""
    # No shorter than the interval, which may itself be longer than an hour.
    return Backoff(2 * every_s, max(_SLOWEST_AFTER_FAILURES_S, every_s), jitter=0.2).wait_s(failures, dice)


def spread(*, every_s: float, dice: random.Random) -> float:
    """Return the seconds that a poll comes later, so that many repositories are not asked in the same second."""
    return dice.uniform(0.0, min(_LONGEST_SPREAD_S, _SPREAD * every_s))
