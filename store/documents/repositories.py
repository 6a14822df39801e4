"""A repository, with its branches, and the completeness of their traces."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from store.documents.document import of_row
from store.events.projects import worked_on
from store.text import listed
from store.view import queries, trace_queries
from store.view.counts import NO_SORRIES, elsewhere_text, sorry_counts
from store.view.rows import BranchRow, GapRow, PolledRepository, TooLargeRow

HEALTHY_STATES = frozenset({"new", "ok"})


@dataclass(frozen=True, slots=True)
class Head(BranchRow):
    SHOWN: ClassVar = ("branch", "state", "tip", "scanned", "projects", "rewrites")


@dataclass(frozen=True, slots=True)
class TooLarge(TooLargeRow):
    SHOWN: ClassVar = (
        *(name for name in TooLargeRow.__dataclass_fields__ if name != "repository"),
        "text",
    )


@dataclass(frozen=True, slots=True)
class Trace:
    branch: str
    project: str
    """the folder of the Lake project; `""` for the root"""
    trace: str
    sha: str
    files_seen: int
    files_traced: int
    theorems_seen: int
    theorems_traced: int
    tactics_seen: int
    tactics_traced: int
    n_dependencies: int
    """files of dependencies"""
    measured_at: str
    lacking: dict[str, int]
    """gaps by kind"""
    gaps: list[GapRow] | None = None
    """only with `--gaps`"""


@dataclass(frozen=True, slots=True)
class Repository(PolledRepository):
    heads: list[Head]
    """Its branches."""
    traces: list[Trace]
    """The newest of each branch and Lake project."""
    sorries: dict[str, int]
    """By state, of the [default branch](glossary.md)."""
    sorries_elsewhere: int
    """The number of further ones in the source of other watched branches."""
    too_large: list[TooLarge]
    """The branches cut by the limits of `[scan]`."""
    # `failing_*` is for notifications alone.
    SHOWN: ClassVar = (
        *(name for name in PolledRepository.__dataclass_fields__ if not name.startswith("failing_")),
        *("heads", "traces", "sorries", "sorries_elsewhere", "too_large"),
    )

    @property
    def in_source(self) -> int:
        """The number of sorries in the default branch's source."""
        return self.sorries["open"] + self.sorries["verified"]

    @property
    def sorries_text(self) -> str:
        """Return this number, and the further ones of other branches: "36, and 3 more on other branches"."""
        return f"{self.in_source:,}{elsewhere_text(self.sorries_elsewhere)}"


def described_repositories(database: sqlite3.Connection, *, gaps: bool = False) -> list[Repository]:
    """Return every repository with its branches and the completeness of their traces, for `--json`."""
    heads: dict[str, list[Head]] = defaultdict(list)
    for branch in queries.branches(database):
        heads[branch.repository].append(of_row(Head, branch))
    too_large: dict[str, list[TooLarge]] = defaultdict(list)
    for large in queries.too_large(database):
        too_large[large.repository].append(of_row(TooLarge, large))
    traces, counts = _traces(database, gaps=gaps), sorry_counts(database)
    return [
        of_row(
            Repository,
            row,
            heads=heads[row.repository],
            traces=traces[row.repository],
            sorries=number.by_state,
            sorries_elsewhere=number.elsewhere,
            too_large=too_large[row.repository],
        )
        for row in queries.repositories(database)
        for number in [counts.get(row.repository, NO_SORRIES)]
    ]


def _traces(database: sqlite3.Connection, *, gaps: bool) -> dict[str, list[Trace]]:
    """Return the completeness of each branch's newest trace, by repository; with `gaps` also each missing part."""
    result: dict[str, list[Trace]] = defaultdict(list)
    for row in trace_queries.newest_measures(database):
        named = trace_queries.gaps_of_trace(database, row.trace) if gaps else None
        branch, project = trace_queries.place_of_line(row.line)
        result[row.repository].append(
            of_row(Trace, row, branch=branch, project=project, lacking=row.gaps, gaps=named)
        )
    return result


def because(item: Repository) -> str:
    """Describe the problem, beginning with the repository."""
    reason = item.reason or item.state
    return reason if reason.startswith(f"{item.repository}:") else f"{item.repository}: {reason}"


def projects_text(head: Head, chosen: Sequence[str]) -> str:
    """Describe a branch's Lake projects: scanned only, beyond bumps; "" for one at the root alone."""
    projects = head.lake_projects
    if all(not project.folder for project in projects):
        return ""
    worked = worked_on(projects, chosen)
    named = [
        f"{project.name} ({project.toolchain.rpartition(':')[2] or 'no lean-toolchain'})"
        for project in projects
    ]
    rest = [project.name for project in projects if project not in worked]
    only = f"; only scanned, for `projects` does not name them: {listed(rest, 5)}" if rest else ""
    no_bump = "" if any(not one.folder for one in worked) else "; a bump raises only one at the root"
    return f"Lake projects in {listed(named, 5)}{only}{no_bump}"


def projects_missing(head: Head, chosen: Sequence[str]) -> tuple[str, ...]:
    """Return the chosen folders without a Lake project in a scanned branch."""
    have = {lake_project.folder for lake_project in head.lake_projects}
    return tuple(one or "." for one in chosen if one not in have) if head.projects is not None else ()
