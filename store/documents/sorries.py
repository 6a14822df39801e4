"""A sorry, with its goal, attempts, claim and history."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from store.documents.attempts import Attempt, describe_attempts
from store.documents.by_design import by_design
from store.documents.document import of_row
from store.documents.grades import IN_DOUBT
from store.domain.identity import commit_url, line_url
from store.log.envelope import Moment, now_text
from store.text import clean, parse_time
from store.view import queries, transfers
from store.view.counts import counted_branches
from store.view.impact import Impact
from store.view.reading import read
from store.view.rows import SORRY_STATES, TURNS, ClaimRow, CommitRow, SorryGoalRow, SorryRow, SorryStepRow
from store.view.schema import Row
from store.view.transfers import Transfer

SorryKey = tuple[str, str, str]
"""Repository, branch and sorry."""
Impacts = Mapping[SorryKey, Impact]
Branches = Mapping[SorryKey, list[str]]
_NOTICED_AT_ONCE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Goal(SorryGoalRow):
    stands: bool
    """Lean printed it for the present statement and context, not for an earlier text."""
    SHOWN: ClassVar = ("goal", "sha", "stands", "stated_at")


@dataclass(frozen=True, slots=True)
class Claim(ClaimRow):
    SHOWN: ClassVar = ("claim", "agent", "by", "since", "until")


@dataclass(frozen=True, slots=True)
class StatedElsewhere(Transfer):
    """A proved theorem with the declaration's statement."""

    SHOWN: ClassVar = ("full_name", "repository", "path", "imported", "package")

    @property
    def text(self) -> str:
        """Its name and where it is, in one line."""
        if not self.package:
            return clean(f"{self.full_name} in {self.path} of {self.repository}")
        return clean(f"{self.full_name} in {self.path}{'' if self.imported else ', to be imported'}")


@dataclass(frozen=True, slots=True)
class Step(SorryStepRow):
    SHOWN: ClassVar = (
        "seq",
        "step",
        "sha",
        "at",
        "recorded_at",
        "author",
        "pull_request",
        "filled_by",
        "detail",
    )

    @property
    def noticed(self) -> bool:
        """Whether the daemon saw it so much later as to show both times."""
        return parse_time(self.recorded_at) - parse_time(self.at) > _NOTICED_AT_ONCE

    @property
    def by(self) -> str:
        """The author of its commit and the pull request."""
        return by_text(self.author, self.pull_request)


@dataclass(frozen=True, slots=True)
class Change(CommitRow):
    """A commit that opened or closed sorries."""

    url: str
    """Its address; empty for an unknown forge."""
    sorries: list[str]
    """Their ids."""
    SHOWN: ClassVar = ("repository", "branch", "sha", "author", "subject", "committed_at", "url", "sorries")


@dataclass(frozen=True, slots=True)
class Sorry(SorryRow):
    disproved: bool
    """Lean accepted a proof of the negation; `state` is `open` then."""
    goal: Goal | None
    """The last goal from a trace; null before the first."""
    tried: Attempt | None
    """The newest attempt; null before the first."""
    doubts: list[str]
    """The advisories against its verified proof."""
    claim: Claim | None
    """The agent at work on it; null without one."""
    by_design: str
    """Why it is there by design and never filled: `challenge`, `exercise`, `answer`, or empty."""
    impact: Impact | None
    """What rests on its declaration; null without `--by impact`, and if it is not in the source."""
    branches: list[str]
    """The branches of a listing with the sorry, `branch` first."""
    url: str
    """Address of its line at its commit; empty for an unknown forge."""
    elsewhere: list[StatedElsewhere]
    """Where its declaration's statement is proved, the nearest first; empty in a listing."""
    history: list[Step]
    """Oldest first."""

    @property
    def since(self) -> str:
        """Its author's time, by git; if unknown, the time of the first commit seen with it."""
        return self.written_at or self.opened_at

    @property
    def written_text(self) -> str:
        """Its author, commit and pull request; "" if unknown."""
        if not self.written_sha:
            return ""
        return by_text(f"{self.written_by} in {self.written_sha[:10]}", self.pull_request)

    @property
    def state_text(self) -> str:
        """The state for people, qualified: how it went, by whom, in doubt, by design, claimed."""
        if self.disproved:
            return "disproved"
        if self.went not in ("", "deleted"):
            return self.went
        by = f" by {self.filled_by}" if self.filled_by else ""
        by += f", rests on {clean(', '.join(self.rests_on))}" if self.rests_on else ""
        doubt = f", {IN_DOUBT}" if self.doubts and self.state == "verified" else ""
        design = f", by design ({self.by_design})" if self.by_design and self.state == "open" else ""
        claim = f", claimed by {clean(self.claim.agent)}" if self.claim and self.state == "open" else ""
        return f"{self.state}{by}{doubt}{design}{claim}"


def by_text(author: str, pull_request: int | None) -> str:
    """Return an author and a pull request in one text: "Ada, #7"; "" if both are unknown."""
    number = "" if pull_request is None else f"#{pull_request}"
    return ", ".join(one for one in (clean(author), number) if one)


def describe_sorries(
    view: sqlite3.Connection,
    sorries: Sequence[SorryRow],
    *,
    moment: Moment | None = None,
    impacts: Impacts | None = None,
    branches: Branches | None = None,
    histories: bool = False,
    elsewhere: bool = False,
) -> list[Sorry]:
    """Return the documents of sorries, in their order, with a fixed number of queries.

    Args:
        view: the database.
        sorries: their rows.
        moment: of valid claims; None: now.
        impacts: of their declarations, if computed.
        branches: those of each row of distinct sorries: see `distinct`.
        histories: with the steps of their lives.
        elsewhere: with proved theorems of the same statement.
    """
    ids = json.dumps(sorted({row.sorry for row in sorries}))
    goals: dict[SorryKey, SorryGoalRow] = {
        (row.repository, row.branch, row.sorry): row
        for row in _of_sorries(view, SorryGoalRow, "sorry_goals", ids, order="sorry")
    }
    tried = describe_attempts(view, (row.sorry for row in sorries))
    waits = any(row.verified_proof for row in sorries)
    doubts = {row.proof: row.doubts for row in queries.doubted_proofs(view)} if waits else {}
    claims = {
        row.sorry: row
        for row in queries.claims(view, now=now_text() if moment is None else moment.recorded_at)
    }
    disproved = queries.disproved(view, {row.sorry for row in sorries})
    design = by_design(view)
    lives: dict[SorryKey, list[Step]] = defaultdict(list)
    if histories:
        order = "seq, repository, branch"
        for step in _of_sorries(view, SorryStepRow, "sorry_steps", ids, order=order):
            lives[step.repository, step.branch, step.sorry].append(of_row(Step, step))
    matches = transfers.transfers(view, sorries={row.sorry for row in sorries}) if elsewhere else {}

    def document(row: SorryRow) -> Sorry:
        key = row.repository, row.branch, row.sorry
        goal, attempts, claim = goals.get(key), tried.get(row.sorry), claims.get(row.sorry)
        return of_row(
            Sorry,
            row,
            disproved=key in disproved,
            goal=None if goal is None else of_row(Goal, goal, stands=_stands(goal, row)),
            tried=attempts[-1] if attempts else None,
            doubts=doubts.get(row.verified_proof or "", []),
            claim=None if claim is None else of_row(Claim, claim),
            by_design=design(row),
            impact=(impacts or {}).get(key),
            branches=(branches or {}).get(key, [row.branch]),
            url=line_url(row.repository, row.updated_sha, row.path, row.line),
            elsewhere=[of_row(StatedElsewhere, one) for one in matches.get(row.sorry, [])],
            history=lives.get(key, []),
        )

    return [document(row) for row in sorries]


def describe_changes(view: sqlite3.Connection, sorries: Sequence[Sorry], *, since: str) -> list[Change]:
    """Return the commits that last opened or closed these sorries, from their histories, the newest first.

    Without sorries touched only by earlier commits or by their branch's first scan.
    """
    last = {
        (one.repository, one.branch, one.sorry): step
        for one in sorries
        for step in one.history
        if step.step in TURNS and step.at >= since
    }
    rows = queries.commits_named(
        view, ((repository, branch, step.sha) for (repository, branch, _), step in last.items())
    )
    of_each: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for (repository, branch, sorry), step in last.items():
        row = rows.get((repository, branch, step.sha))
        if row is not None and not (row.baseline and step.step == "opened"):
            of_each[repository, branch, step.sha].append(sorry)
    changes = [
        of_row(Change, rows[key], url=commit_url(key[0], key[2]), sorries=result)
        for key, result in of_each.items()
    ]
    return sorted(changes, key=lambda one: (one.committed_at, one.seq), reverse=True)


def place_text(declaration: str, path: str, line: int, repository: str) -> str:
    """Return a sorry's place in one line: "Demo.alpha, Demo.lean:3 in github.com/owner/name"."""
    return f"{declaration or 'outside declarations'}, {path}:{line} in {repository}"


def distinct(view: sqlite3.Connection, sorries: Sequence[SorryRow]) -> tuple[list[SorryRow], Branches]:
    """Return each sorry once, in the same order, and the branches of its rows.

    Its row is the counted one (`store.view.counts`): one in the source, on the default branch before others.
    """
    counted = counted_branches(view)

    def rank(row: SorryRow) -> tuple[bool, bool, int, str]:
        elsewhere = (row.repository, row.branch) not in counted
        return not row.in_source, elsewhere, SORRY_STATES.index(row.state), row.branch

    of_each: dict[tuple[str, str], list[SorryRow]] = defaultdict(list)
    for row in sorries:
        of_each[row.repository, row.sorry].append(row)
    branches: dict[SorryKey, list[str]] = {}
    for (repository, sorry), rows in of_each.items():
        first = min(rows, key=rank)
        others = (row.branch for row in rows if row is not first)
        branches[repository, first.branch, sorry] = [first.branch, *others]
    return [row for row in sorries if (row.repository, row.branch, row.sorry) in branches], branches


def by_impact(sorries: Sequence[Sorry]) -> list[Sorry]:
    """Return the sorries with the largest impact first and those with an unknown one last."""
    return sorted(sorries, key=lambda item: (item.impact is None, item.impact.order if item.impact else ()))


def _stands(goal: SorryGoalRow, row: SorryRow) -> bool:
    # Lean's goal for an earlier text may be another goal.
    return (goal.statement_hash, goal.context_hash) == (row.statement_hash, row.context_hash)


def _of_sorries(view: sqlite3.Connection, cls: type[Row], table: str, ids: str, *, order: str) -> list[Row]:
    condition = "sorry IN (SELECT value FROM json_each(?))"
    return read(view, cls, table, conditions=[condition], parameters=[ids], order=order)
