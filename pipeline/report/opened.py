"""Every sorry that is in the source: its goal, what was tried, how far that got, and its line at its commit.

`open_sorries` reads them from the view; `sheets` lays them out on pages, a repository after the other.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from urllib.parse import quote

from store.documents.by_design import by_design
from store.documents.grades import grade_text
from store.domain.blueprint import Statement
from store.text import counted
from store.view import queries, report_queries, trace_queries
from store.view.impact import MOST_COUNTED, Declared, Impact, impacts
from store.view.report_queries import Found, Spot, Tried
from store.view.rows import SorryRow

MOST_ON_A_SHEET = 1000
"""Sorries on a page; a repository with more has several."""
MOST_SHOWN = 20_000
"""Sorries on all pages together; the rest is counted."""
_MOST_TRIED = 8


@dataclass(frozen=True, slots=True)
class OpenSorry:
    """A sorry in the source. `goal` is Lean's text of what is to be proved there, "" where Lean did not say.

    `known_at` is when it was first seen, `baseline` whether it was there before. `proof` is the verified proof that
    waits, if there is one, `graded` how far a kernel replayed it, in words; `by_design` why it is never filled, ""
    where it is. `found` are the texts that no check rejected; `blob` is the version of its file: what was tried on or
    found for another one is of an earlier text. `impact` is what rests on its declaration.
    """

    spot: Spot
    blob: str
    kind: str
    column: int
    statement: str
    goal: str
    goal_simulated: bool
    known_at: str
    baseline: bool
    proof: str | None
    graded: str
    by_design: str
    tried: tuple[Tried, ...]
    found: tuple[Found, ...]
    impact: Impact

    @property
    def resting(self) -> str:
        """Say what rests on it: "1 theorem rests"; "" where that is unknown."""
        of, theorems, statements = self.impact, self.impact.theorems, self.impact.statements
        said = [] if theorems is None else [counted(theorems, "theorem")]
        if statements is not None:
            said.append(counted(statements, "statement of the blueprint", "statements of the blueprint"))
        return f"{' and '.join(said)} {'rests' if of.resting == 1 else 'rest'}" if said else ""

    @property
    def shown_false(self) -> tuple[Tried, ...]:
        """Return the attempts that proved its negation as it stands now."""
        return tuple(one for one in self.tried if one.outcome == "disproved" and one.blob == self.blob)


Blueprints = Callable[[str, str | None], Sequence[Statement]]
"""Returns the statements of the blueprint of a repository at a commit."""


def no_blueprints(_repository: str, _sha: str | None) -> Sequence[Statement]:
    """Return none, where no mirrors are at hand."""
    return ()


def open_sorries(view: sqlite3.Connection, blueprints: Blueprints = no_blueprints) -> tuple[OpenSorry, ...]:
    """Read the sorries of watched branches that are in the source, by repository, file and place, each once."""
    goals = {(row.repository, row.branch, row.sorry): row for row in trace_queries.sorry_goals(view)}
    baselines = report_queries.baselines(view)
    tried: defaultdict[str, list[Tried]] = defaultdict(list)
    for one in report_queries.tried(view):
        tried[one.sorry].append(one)
    found: defaultdict[str, list[Found]] = defaultdict(list)
    for text in report_queries.found(view):
        found[text.sorry].append(text)
    graded = {one.proof: grade_text(one.grade, one.doubts) for one in report_queries.ready(view)}
    design = by_design(view)

    def described(row: SorryRow) -> OpenSorry:
        goal = goals.get((row.repository, row.branch, row.sorry))
        # What Lean said of an earlier text may be another goal.
        stands = goal is not None and (goal.statement_hash, goal.context_hash) == (
            row.statement_hash,
            row.context_hash,
        )
        return OpenSorry(
            spot=Spot(
                row.repository, row.branch, row.sorry, row.declaration, row.path, row.line, row.updated_sha
            ),
            blob=row.blob,
            kind=row.kind,
            column=row.column,
            statement=row.statement,
            goal=goal.goal if goal is not None and stands else "",
            goal_simulated=goal is not None and stands and goal.simulated,
            known_at=row.opened_at,
            baseline=(row.repository, row.branch, row.opened_sha) in baselines,
            proof=row.verified_proof,
            graded=graded.get(row.verified_proof or "", ""),
            by_design=design(row),
            tried=tuple(tried.get(row.sorry, ())[-_MOST_TRIED:]),
            found=tuple(found.get(row.sorry, ())),
            impact=resting[row.repository, row.branch][Declared(row.path, row.declaration)],
        )

    rows = report_queries.sorries_here(view)
    rows.sort(key=lambda row: (row.repository, row.path, row.branch, row.byte_start, row.sorry))
    declared: defaultdict[tuple[str, str], list[Declared]] = defaultdict(list)
    for row in rows:
        declared[row.repository, row.branch].append(Declared(row.path, row.declaration))
    tips = {(row.repository, row.branch): row.scanned for row in queries.branches(view)}
    resting = {
        (repository, branch): impacts(
            view, repository, branch, its,
            most_theorems=MOST_COUNTED, blueprint=blueprints(repository, tips.get((repository, branch))),
        )
        for (repository, branch), its in declared.items()
    }  # fmt: skip
    return tuple(map(described, rows))


# ---- on pages


@dataclass(frozen=True, slots=True)
class OfFile:
    """The sorries of one file, and the anchor of its heading."""

    path: str
    anchor: str
    sorries: tuple[OpenSorry, ...]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A page of one repository's sorries: its file's name, and the number of the page."""

    name: str
    number: int
    files: tuple[OfFile, ...]


@dataclass(frozen=True, slots=True)
class OfRepository:
    """The pages of a repository. `sorries` counts all, `left_out` those that are on none."""

    repository: str
    branches: tuple[str, ...]
    sorries: int
    ready: int
    left_out: int
    sheets: tuple[Sheet, ...]


def weightiest(found: Sequence[OpenSorry], most: int) -> list[OpenSorry]:
    """Return the sorries on which most rests, one of each declaration; those on which nothing is known to rest are left
    out."""
    first: dict[tuple[str, str, str, str], OpenSorry] = {}
    for one in sorted((one for one in found if one.impact.resting), key=lambda one: one.impact.order):
        spot = one.spot
        first.setdefault((spot.repository, spot.branch, spot.path, spot.declaration), one)
    return [*first.values()][:most]


def sheets(
    found: Sequence[OpenSorry], *, most: int = MOST_SHOWN, on_a_sheet: int = MOST_ON_A_SHEET
) -> list[OfRepository]:
    """Lay sorries, in their order, out on pages; the repository with the most comes first."""
    made = []
    for repository, of_repository in groupby(found, key=lambda one: one.spot.repository):
        rows = list(of_repository)
        shown = rows[: max(0, most)]
        most -= len(shown)
        stem = file_stem(repository)
        pages = []
        for number, at in enumerate(range(0, len(shown), on_a_sheet), start=1):
            files = tuple(
                OfFile(path, f"file-{place}", tuple(of_file))
                for place, (path, of_file) in enumerate(
                    groupby(shown[at : at + on_a_sheet], key=lambda one: one.spot.path), start=1
                )
            )
            pages.append(Sheet(f"{stem}{f'-{number}' if number > 1 else ''}.html", number, files))
        made.append(
            OfRepository(
                repository,
                tuple(sorted({row.spot.branch for row in rows})),
                len(rows),
                sum(row.proof is not None for row in rows),
                len(rows) - len(shown),
                tuple(pages),
            )
        )
    return sorted(made, key=lambda one: (-one.sorries, one.repository))


def places(of: Sequence[OfRepository]) -> Mapping[tuple[str, str, str], str]:
    """Return the address of each sorry on its page, by repository, branch and sorry."""
    return {
        (one.spot.repository, one.spot.branch, one.spot.sorry): f"{sheet.name}#{anchor(one.spot, repository)}"
        for repository in of
        for sheet in repository.sheets
        for file in sheet.files
        for one in file.sorries
    }


def anchor(spot: Spot, of: OfRepository) -> str:
    """Return the anchor of a sorry: its id, and where there are several branches the branch."""
    return (
        spot.sorry
        if len(of.branches) == 1
        else f"{spot.sorry}-{quote(spot.branch, safe='')}".replace("%", ".")
    )


SHEET = r"sorries-[A-Za-z0-9.-]+-[0-9a-f]{8}(-\d+)?"
"""A regular expression for the names of these pages, without .html."""


def file_stem(repository: str) -> str:
    """Return the name of a repository's pages, without .html: readable, safe in an address, and of no other's."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", repository)[:60].strip("-.")
    return f"sorries-{plain}-{hashlib.sha256(repository.encode()).hexdigest()[:8]}"
