"""Questions about proofs and about sorries to prove. Read-only, with the standard library alone."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from store.sqlite import statements
from store.view.queries import basic as queries
from store.view.rows import AttemptRow, ProofRow


@dataclass(frozen=True, slots=True)
class KnownProofRow:
    """A proof that stood the gate, of what a sorry asks too. `of` is the sorry that it was found for."""

    sorry: str
    proof: str
    of: str
    tactics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CitableProofRow:
    """A proof that stood the gate, of a sorry that is still in the source of a branch as it was proved.

    `goal` is what Lean says is to be proved there, "" where it did not say; `statement` is the declaration's.
    """

    sorry: str
    proof: str
    declaration: str
    statement: str
    goal: str
    tactics: tuple[str, ...]


def known_proofs(
    db: sqlite3.Connection, *, repository: str, sorries: Iterable[str], simulated: bool
) -> list[KnownProofRow]:
    """Return proofs of the same statement, or of a goal that reads the same, as these sorries have; the newest first.

    The same means: the sorry with the same number in a declaration of the repository with the same statement, whatever
    its name, file and branch; or one of which Lean said the same goal. It need not be provable in the same way: its
    context may differ.

    Args:
        db: the view.
        repository: whose sorries.
        sorries: ids.
        simulated: False: what Lean verified. True: what the simulator found nothing against; never both.
    """
    rows = db.execute(
        statements("view/queries/basic")["known_proofs"],
        {"repository": repository, "sorries": json.dumps(sorted(sorries)), "simulated": int(simulated)},
    )
    return [KnownProofRow(row[0], row[1], row[2], tuple(json.loads(row[3]))) for row in rows]


def citable_proofs(
    db: sqlite3.Connection, *, repository: str, branch: str, simulated: bool, most: int
) -> list[CitableProofRow]:
    """Return the proofs of a branch's theorems whose sorry still stands there as it was proved; the newest first.

    Not there: what was rejected, what is conditional on another sorry, what nobody checked yet, a sorry whose statement
    or surroundings are others since (for the simulator: whose file is), and a text that fills several sorries at once,
    which proves none of them alone.

    Args:
        db: the view.
        repository: whose theorems.
        branch: of it.
        simulated: as in `known_proofs`.
        most: how many at most.
    """
    rows = db.execute(
        statements("view/queries/basic")["citable_proofs"],
        {"repository": repository, "branch": branch, "simulated": int(simulated), "most": most},
    )
    return [
        CitableProofRow(row[0], row[1], row[2], row[3], row[4], tuple(json.loads(row[5]))) for row in rows
    ]


def attempt_behind(db: sqlite3.Connection, proof: ProofRow) -> AttemptRow | None:
    """Return the attempt that found a proof; None where it is not recorded (its job ended between the two).

    A proof that was judged names the job that judged it: then it is the first attempt that ended so after it was found.
    """
    key = (proof.blob, proof.prover, proof.rung)
    tried = [
        row for row in queries.attempts(db, sorry=proof.sorry) if (row.blob, row.prover, row.rung) == key
    ]
    of_its_job = [row for row in tried if row.job == proof.job]
    after = [row for row in tried if row.outcome == "found" and row.recorded_at >= proof.found_at]
    return next(iter(of_its_job or after), None)


@dataclass(frozen=True, slots=True)
class Reached:
    """The progress on an open sorry in the present version of its file.

    `rungs` are those that were tried, with whatever model and budget; `goals_left` is the newest attempt's that has it.
    `proved`: it has a proof that no check rejected, or its negation has one: nothing is left to find.
    """

    rungs: frozenset[int]
    goals_left: int | None
    proved: bool


def reached(db: sqlite3.Connection, *, repository: str, branch: str, simulated: bool) -> dict[str, Reached]:
    """Return how far the open sorries of a branch got, by id, with Lean or with the simulator.

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
    """Return the files of a branch in which so many sorries stand, or stood, whose text says "exercise" anywhere.

    Of a file that an older version scanned the text is not known: there the sorries count whose declarations are called
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
