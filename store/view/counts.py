"""The numbers of sorries and theorems, once for all branches, and of proofs and jobs.

A repository's number of sorries is that of its default branch. Further ones in the source of its other
watched branches are a second number beside it: a branch without differences changes neither. Without a
watched and known default branch, every watched branch counts, and a sorry of several counts once. Theorems
are those of the default branch too; without one, of the branch with the most.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from store.domain.keywords import THEOREM_KINDS
from store.view import queries
from store.view.queries import on_watched_branch
from store.view.rows import IN_SOURCE, JOB_STATES, PROOF_STATES, SORRY_STATES, STATES_IN_SOURCE


@dataclass(frozen=True, slots=True)
class SorryCounts:
    """The sorries of one or several repositories: by state (every state is a key), and those elsewhere.

    `elsewhere` are in the source of another watched branch and not in that of the default branch.
    """

    by_state: dict[str, int]
    elsewhere: int

    @property
    def in_source(self) -> int:
        """Return the number in the source, with a verified proof or not."""
        return sum(self.by_state[state] for state in STATES_IN_SOURCE)


NO_SORRIES = SorryCounts(dict.fromkeys(SORRY_STATES, 0), 0)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts by state. Every known state is a key, with 0 for an empty one.

    The sorries of a deleted or unwatched branch are kept and listed, but are no one's open work, and not
    counted. `theorems` are the declarations of kind theorem or lemma. Sorries are `SorryCounts`.
    """

    sorries: dict[str, int]
    sorries_elsewhere: int
    proofs: dict[str, int]
    jobs: dict[str, int]
    theorems: int


def elsewhere_text(number: int) -> str:
    """Return ", and 3 more on other branches", to follow a number of sorries; "" for none."""
    return f", and {number:,} more on other branches" if number else ""


def on_counted_branch(table: str) -> str:
    """Return a condition: the row is on a counted branch, by the rule of this module."""
    return (
        f"{on_watched_branch(table)} AND NOT EXISTS (SELECT 1 FROM repositories AS home JOIN branches AS line "
        "ON line.repository = home.repository AND line.branch = home.default_branch AND line.state = 'live' "
        f"WHERE home.repository = {table}.repository AND home.default_branch <> {table}.branch)"
    )


def counted_branches(db: sqlite3.Connection) -> set[tuple[str, str]]:
    """Return the counted branches, each with its repository."""
    rows = db.execute(f"SELECT repository, branch FROM branches AS b WHERE {on_counted_branch('b')}")
    return {(repository, branch) for repository, branch in rows}


def sorry_counts(db: sqlite3.Connection) -> dict[str, SorryCounts]:
    """Count the sorries of each repository with any on a watched branch, by its key."""
    rank = f"instr('{' '.join(SORRY_STATES)}', {{}})"
    rows = db.execute(
        # The conditions are tested on branches, not on every sorry.
        "WITH lines AS MATERIALIZED (SELECT DISTINCT repository, branch FROM sorries), "
        f"counted AS MATERIALIZED (SELECT * FROM lines WHERE {on_counted_branch('lines')}), "
        f"others AS MATERIALIZED (SELECT * FROM lines WHERE {on_watched_branch('lines')} "
        "AND (repository, branch) NOT IN (SELECT * FROM counted)), "
        "alone AS (SELECT repository FROM counted GROUP BY repository HAVING count(*) = 1) "
        # One branch is counted from an index alone; for several, each sorry is looked at.
        "SELECT repository, state, count(*) FROM counted CROSS JOIN sorries USING (repository, branch) "
        "WHERE repository IN alone GROUP BY repository, state "
        "UNION ALL SELECT repository, state, count(*) FROM ("
        # Beside one min(), SQLite takes a bare column from the row of the minimum: `state`.
        f"SELECT s.repository, s.state, min({rank.format('s.state')}) "
        "FROM counted CROSS JOIN sorries AS s USING (repository, branch) WHERE repository NOT IN alone "
        "GROUP BY s.repository, s.sorry) "
        "GROUP BY repository, state "
        "UNION ALL SELECT repository, 'elsewhere', count(DISTINCT s.sorry) "
        "FROM others CROSS JOIN sorries AS s USING (repository, branch) "
        f"WHERE s.{IN_SOURCE} AND NOT EXISTS (SELECT 1 FROM counted CROSS JOIN sorries AS c "
        "USING (repository, branch) WHERE counted.repository = s.repository AND c.sorry = s.sorry "
        f"AND c.{IN_SOURCE}) GROUP BY repository ORDER BY repository"
    )
    result: dict[str, dict[str, int]] = {}
    for repository, state, n in rows:
        result.setdefault(repository, {})[state] = n
    return {
        repository: SorryCounts({state: n.get(state, 0) for state in SORRY_STATES}, n.get("elsewhere", 0))
        for repository, n in result.items()
    }


def added_up(counts: Iterable[SorryCounts]) -> SorryCounts:
    """Return the sum over repositories."""
    rows = [*counts]
    by_state = {state: sum(row.by_state[state] for row in rows) for state in SORRY_STATES}
    return SorryCounts(by_state, sum(row.elsewhere for row in rows))


def disproved(db: sqlite3.Connection) -> int:
    """Return the number of counted open sorries with a disproof in the present version of the file."""
    false, counted = queries.disproved(db), counted_branches(db)
    return len(
        {(repository, sorry) for repository, branch, sorry in false if (repository, branch) in counted}
    )


def theorem_counts(db: sqlite3.Connection) -> dict[str, int]:
    """Count the theorems and lemmas of each repository, by its key."""
    of_branches = (
        f"SELECT repository, branch, sum(declarations) AS n FROM tallies WHERE kind IN {THEOREM_KINDS!r} "
        f"AND {on_counted_branch('tallies')} GROUP BY repository, branch"
    )
    return dict(
        _pairs(db, f"SELECT repository, max(n) FROM ({of_branches}) GROUP BY repository ORDER BY repository")
    )


def count_all(db: sqlite3.Connection) -> Counts:
    """Count everything, without reading the declarations themselves."""
    sorries = added_up(sorry_counts(db).values())
    return Counts(
        sorries=sorries.by_state,
        sorries_elsewhere=sorries.elsewhere,
        proofs=_by_state(db, "proofs", PROOF_STATES),
        jobs=_by_state(db, "jobs", JOB_STATES),
        theorems=sum(theorem_counts(db).values()),
    )


def _by_state(db: sqlite3.Connection, table: str, states: Iterable[str]) -> dict[str, int]:
    return dict.fromkeys(states, 0) | dict(_pairs(db, f"SELECT state, count(*) FROM {table} GROUP BY state"))


def _pairs(db: sqlite3.Connection, statement: str) -> list[tuple[str, int]]:
    return [(row[0], row[1]) for row in db.execute(statement)]
