"""The questions that the plan of proving asks: how far each sorry got, and what searching has cost.

Read-only and light, like `store.queries`, whose `connect` makes the connection.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reached:
    """What became of an open sorry in the version of its file that stands there now.

    `rungs` are those that were tried, with whatever model and budget; `goals_left` is the newest attempt's that has it.
    `proved`: it has a proof that no check rejected, or its negation has one: nothing is left to find.
    """

    rungs: frozenset[int]
    goals_left: int | None
    proved: bool


def reached(db: sqlite3.Connection, *, repository: str, branch: str, simulated: bool) -> dict[str, Reached]:
    """Return how far the open sorrys of a branch got, by id, with Lean or with the simulator.

    One that was neither tried nor proved is not among them.
    """
    here = {"repository": repository, "branch": branch, "simulated": int(simulated)}
    rungs: dict[str, set[int]] = {}
    goals: dict[str, int] = {}
    for sorry, rung, goals_left in db.execute(_ATTEMPTS, here):
        rungs.setdefault(sorry, set()).add(rung)
        if goals_left is not None:
            goals[sorry] = goals_left
    proved = {sorry for (sorry,) in db.execute(_PROVED, here)}
    return {
        sorry: Reached(frozenset(rungs.get(sorry, ())), goals.get(sorry), sorry in proved)
        for sorry in (*rungs, *(proved - set(rungs)))
    }


def files_with_exercises(db: sqlite3.Connection, *, repository: str, branch: str, at_least: int) -> set[str]:
    """Return the files of a branch in which so many sorrys stand, or stood, whose text says "exercise" anywhere.

    Of a file that an older version scanned the text is not known: there the sorrys count whose declarations are called
    so.
    """
    rows = db.execute(_EXERCISES, {"repository": repository, "branch": branch, "at_least": at_least})
    return {path for (path,) in rows}


def seconds_since(db: sqlite3.Connection, moment: str) -> float:
    """Return the seconds of search above rung 0 that were recorded since a moment (as the view writes times)."""
    row = db.execute(
        "SELECT coalesce(sum(seconds), 0) FROM attempts WHERE rung > 0 AND recorded_at >= ?", (moment,)
    ).fetchone()
    return float(row[0])


_EXERCISES = """
SELECT path FROM sorries WHERE repository = :repository AND branch = :branch
  AND (declaration LIKE '%exercise%' OR EXISTS (
    SELECT 1 FROM files WHERE files.repository = sorries.repository AND files.branch = sorries.branch
      AND files.path = sorries.path AND files.exercise_words > 0))
GROUP BY path HAVING count(*) >= :at_least
"""
_OPEN = (
    "FROM sorries AS s CROSS JOIN {} AS t ON t.sorry = s.sorry AND t.blob = s.blob "
    "WHERE s.repository = :repository AND s.branch = :branch AND s.state = 'open' AND t.simulated = :simulated"
)
_ATTEMPTS = f"SELECT t.sorry, t.rung, t.goals_left {_OPEN.format('attempts')} ORDER BY t.recorded_at, t.rung"
_PROVED = (
    f"SELECT t.sorry {_OPEN.format('proofs')} AND t.state <> 'rejected' "
    f"UNION SELECT t.sorry {_OPEN.format('attempts')} AND t.outcome = 'disproved'"
)
