"""How long until a repository is asked again: pure arithmetic on when it last changed and how often it failed.

A repository that changed lately is asked every `every`; one that has been quiet is asked after a 24th of the time that
it has been quiet, at the most after `slowest`: a day after its last change that is once an hour. So what a poll finds
is seldom older than a 24th of the quiet before it, and hundreds of sleeping repositories cost little. Never is one
asked sooner than `every`.
"""

from __future__ import annotations

import random

_QUIET_SHARE = 24.0
_SLOWEST_AFTER_FAILURES_S = 3600.0


def after_answer(*, every_s: float, slowest_s: float, quiet_s: float, archived: bool = False) -> float:
    """Return the seconds until the next poll of a repository that answered.

    Args:
        quiet_s: how long ago it last changed.
        archived: whether it cannot change at all before it is opened again.
    """
    slowest_s = max(every_s, slowest_s)
    return slowest_s if archived else min(max(every_s, quiet_s / _QUIET_SHARE), slowest_s)


def after_failure(*, every_s: float, failures: int, dice: random.Random) -> float:
    """Return the seconds until the next poll after so many failures in a row: doubled for each, up to an hour."""
    slowest_s = max(_SLOWEST_AFTER_FAILURES_S, every_s)
    return min(every_s * 2.0 ** min(failures, 12), slowest_s) * dice.uniform(0.8, 1.2)


def spread(*, every_s: float, jitter_s: float, dice: random.Random) -> float:
    """Return the seconds that a poll comes later, so that many repositories are not asked in the same second."""
    # More than half an interval of jitter would be another interval.
    return dice.uniform(0.0, min(jitter_s, every_s / 2))
