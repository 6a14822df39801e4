"""The sorrys over time, and how those that are filled were filled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date

from pipeline.report.periods import day_of
from store.view.queries.reports import Turn

MOST_MOMENTS = 60
"""Moments of the history of sorrys that are shown; of more, the last of each of so many equal parts."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The sorrys at one time: how many were opened, filled and removed until then, and how many are left.

    `open` are those still in the source, with a verified proof or not. `by_simulation` were filled with the text of a
    simulated proof and are counted in no other field than `opened`.
    """

    at: str
    opened: int = 0
    by_people: int = 0
    by_us: int = 0
    by_simulation: int = 0
    removed: int = 0
    open: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """What `followed` returns: the moments, and by repository how its sorrys that stand filled now were filled.

    `filled` maps (repository, "by_people" | "by_us" | "by_simulation") to a number of sorrys, `days` each day to what
    happened on it: "opened", "removed", or one of those three.
    """

    moments: tuple[Moment, ...]
    filled: Counter[tuple[str, str]]
    days: Mapping[date, Counter[str]]


def followed(turns: Iterable[Turn], most: int = MOST_MOMENTS) -> History:
    """Follow the sorrys through their turns, which come in the log's order; keep at most `most` moments.

    A sorry that stands on two branches counts twice, as everywhere.
    """
    total: Counter[str] = Counter()
    present: set[tuple[str, str, str]] = set()
    filled: dict[tuple[str, str, str], str] = {}
    moments: dict[str, tuple[Counter[str], int]] = {}
    days: dict[date, Counter[str]] = {}
    at = ""
    for turn in turns:
        if turn.recorded_at != at:
            if at:
                moments[at] = (total.copy(), len(present))
            at = turn.recorded_at
            today = days.setdefault(day_of(at), Counter())
        sorry = turn[:3]
        what = _counted(turn)
        total[what] += 1
        today[what] += 1
        filled.pop(sorry, None)
        if what == "opened":
            present.add(sorry)
            continue
        present.discard(sorry)
        if what != "removed":
            filled[sorry] = what
    if at:
        moments[at] = (total, len(present))
    kept = _thinned(list(moments), most)
    return History(
        tuple(Moment(at=time, open=moments[time][1], **moments[time][0]) for time in kept),
        Counter((repository, what) for (repository, _, _), what in filled.items()),
        days,
    )


def _counted(turn: Turn) -> str:
    if turn.step in ("opened", "reopened"):
        return "opened"
    if turn.step == "removed":
        return "removed"
    # The view keeps who filled a sorry as its state now; of an earlier filling only the step's words tell.
    if "SIMULATED proof" in turn.detail:
        return "by_simulation"
    return "by_us" if turn.detail.startswith("by us") else "by_people"


def _thinned(times: list[str], most: int) -> list[str]:
    if len(times) <= most:
        return times
    # Moments are cumulative, so the last of a part has all that happened in it; the first one keeps the beginning.
    first, *rest = times
    return [first, *(rest[(index + 1) * len(rest) // (most - 1) - 1] for index in range(most - 1))]
