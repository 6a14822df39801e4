"""A sorry, with its goal, what was tried on it, who claims it, and its history."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from store.documents.document import of_row
from store.log.envelope import now_text
from store.view import queries, trace_queries
from store.view.impact import Impact
from store.view.rows import AttemptRow, ClaimRow, SorryGoalRow, SorryRow, SorryStepRow

if TYPE_CHECKING:
    from store.view.asof import Moment

Goals = dict[tuple[str, str, str], SorryGoalRow]
Lives = dict[tuple[str, str, str], list["Step"]]
Resting = dict[tuple[str, str, str], Impact]


@dataclass(frozen=True, slots=True)
class SorryFacts:
    """What the view has of sorries, or of one, beside their rows.

    `goals` is what Lean last said is to be proved, by repository, branch and sorry; `tried` the attempts by sorry,
    oldest first; `doubts` what puts verified proofs in doubt, by proof; `claims` the agents' that stand, by sorry.
    """

    goals: Goals
    tried: Mapping[str, list[AttemptRow]]
    doubts: Mapping[str, list[str]]
    claims: Mapping[str, ClaimRow]
    design: Callable[[SorryRow], str]

    @classmethod
    def of(
        cls, database: sqlite3.Connection, sorry: str | None = None, *, moment: Moment | None = None
    ) -> SorryFacts:
        tried: dict[str, list[AttemptRow]] = defaultdict(list)
        for row in queries.attempts(database, sorry=sorry):
            tried[row.sorry].append(row)
        goals = trace_queries.sorry_goals(database, sorry=sorry)
        return cls(
            goals={(row.repository, row.branch, row.sorry): row for row in goals},
            tried=tried,
            doubts={row.proof: row.doubts for row in queries.doubted_proofs(database)},
            claims={
                row.sorry: row
                for row in queries.claims(database, now=moment.recorded_at if moment else now_text())
            },
            design=queries.by_design(database),
        )


@dataclass(frozen=True, slots=True)
class Goal(SorryGoalRow):
    SHOWN: ClassVar = ("goal", "sha", "simulated", "stated_at")


@dataclass(frozen=True, slots=True)
class Tried(AttemptRow):
    attempts: int
    """how many; the rest is of the newest"""
    SHOWN: ClassVar = (
        *("attempts", "prover", "rung", "model", "outcome", "best", "goals_left", "simulated", "recorded_at"),
    )


@dataclass(frozen=True, slots=True)
class Claim(ClaimRow):
    SHOWN: ClassVar = ("claim", "agent", "by", "since", "until")


@dataclass(frozen=True, slots=True)
class Step(SorryStepRow):
    SHOWN: ClassVar = ("seq", "step", "sha", "recorded_at", "detail")


@dataclass(frozen=True, slots=True)
class Sorry(SorryRow):
    disproved: Literal["lean", "simulator"] | None
    """Null, or who accepted a proof of the negation; `state` is `open` then."""
    goal: Goal | None
    """What was last stated; null before a trace did so."""
    tried: Tried | None
    """Null before the first attempt."""
    doubts: list[str]
    """The advisories that put its verified proof in doubt."""
    claim: Claim | None
    """Null, or the agent that works on it now."""
    by_design: str
    """Why it is there by design and never filled: `challenge`, `exercise`, `answer`, or empty."""
    impact: Impact | None
    """What rests on its declaration; null without `--by impact`, and where it is not in the source."""
    history: list[Step]
    """Oldest first."""


def described_sorry(
    row: SorryRow, facts: SorryFacts, lives: Lives | None = None, resting: Resting | None = None
) -> Sorry:
    """Return a sorry as `--json` shows it."""
    key = (row.repository, row.branch, row.sorry)
    goal, rows, claim = facts.goals.get(key), facts.tried.get(row.sorry, []), facts.claims.get(row.sorry)
    false = [
        one for one in rows if one.outcome == "disproved" and one.blob == row.blob and row.state == "open"
    ]
    return of_row(
        Sorry,
        row,
        disproved=None if not false else "simulator" if all(one.simulated for one in false) else "lean",
        goal=None if goal is None else of_row(Goal, goal),
        tried=of_row(Tried, rows[-1], attempts=len(rows)) if rows else None,
        doubts=facts.doubts.get(row.verified_proof or "", []),
        claim=None if claim is None else of_row(Claim, claim),
        by_design=facts.design(row),
        impact=(resting or {}).get(key),
        history=(lives or {}).get(key, []),
    )


def histories(steps: Iterable[SorryStepRow]) -> Lives:
    """Return the steps, oldest first, by repository, branch and sorry."""
    lives: Lives = defaultdict(list)
    for step in steps:
        lives[step.repository, step.branch, step.sorry].append(of_row(Step, step))
    return lives
