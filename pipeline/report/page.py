"""The pages of a report: the first screen, the sorries of each repository, proofs, and models.

Empty parts have no page and no heading. A page has a bounded number of entries, each of a bounded size. The prose is in
`templates/`.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import groupby
from os.path import commonpath, dirname
from pathlib import Path
from typing import Any

from pipeline.front import MOST_LINES, age, changes, front, lead
from pipeline.jobs.blueprint import ReadBlueprint, no_blueprint, resting_on
from pipeline.jobs.written import ReadWritten, nothing_written
from pipeline.report import FIRST, layout, models, sections
from pipeline.report.html import Section, environment, short
from pipeline.report.layout import OfRepository, Sheet
from pipeline.report.models import Blob
from store.documents.news import News, describe_news
from store.documents.problems import Problem
from store.documents.proofs import Proof, describe_proofs
from store.documents.repositories import HEALTHY_STATES, Repository, described_repositories
from store.documents.sorries import Impacts, Sorry, describe_sorries
from store.errors import LogError
from store.log.envelope import utc_text
from store.log.reader import LogReader
from store.view import queries, report_queries
from store.view.impact import MOST_COUNTED
from store.view.reading import read
from store.view.rows import ProofRow, ServiceRow, SorryRow, too_large_text

WEEK = timedelta(days=7)
_MOST_REPOSITORIES, _MOST_FILES = 500, 12
"""On the first page, and of each repository there."""
_MOST_BESIDE = 5
"""Of the oldest sorries at the head of a repository's page."""


@dataclass(frozen=True, slots=True)
class Report:
    """The report as text: its pages and its pictures, by file name, and its position and times."""

    html: Mapping[str, str]
    pictures: Mapping[str, str]
    position: int
    """The view's last event; 0 if nothing is recorded."""
    since: str


@dataclass(frozen=True, slots=True)
class _Chapter:
    """A page made of sections, with the tables of which one must have a row."""

    title: str
    of: tuple[str, ...]
    sections: Callable[[sqlite3.Connection, Blob | None], Iterable[Section | None]]


_CHAPTERS = {
    "proofs.html": _Chapter(
        "Proofs",
        ("proofs", "attempts"),
        lambda view, _: (sections.proofs(view),),
    ),
    "models.html": _Chapter(
        "Models and learning",
        ("checkpoints",),
        lambda view, blob: (models.training(view), *models.losses(view, blob)),
    ),
}
NAMES = re.compile(
    rf"({'|'.join(map(re.escape, _CHAPTERS))}|{layout.SHEET}\.html"
    rf"|({'|'.join(sections.PICTURES)}|{models.PICTURE})\.svg)"
)
"""The names of a report's files, except for the first page."""


def render(
    view: sqlite3.Connection,
    *,
    made_at: datetime,
    since: datetime | None = None,
    problems: Sequence[Problem] = (),
    blob: Blob | None = None,
    blueprints: ReadBlueprint = no_blueprint,
    written: ReadWritten = nothing_written,
    only: str | None = None,
    served: bool = False,
) -> Report:
    """Make the pages of the view at one moment, whatever is recorded meanwhile.

    They load nothing: no font, no picture from elsewhere, and no script but the filter's.

    Args:
        view: opened by `queries.connect`, or a copy of an earlier moment.
        made_at: the time of the report.
        since: the start of its first screen's time; None: a week before.
        problems: those of the status.
        blob: reads the curves of trainings from the log; None: no log is at hand.
        blueprints: reads the blueprints from the mirrors.
        written: reads declarations as written, also from the mirrors.
        only: the one page to make; the result is empty if the report has no such page.
        served: link to the daemon's own addresses, the first page at /report and the others below it.
    """
    view.execute("BEGIN")
    try:
        report = _Report(view, made_at, since or made_at - WEEK, problems, blob, blueprints, written, served)
        return report.made(only)
    finally:
        # A disk error may have ended the transaction already; that error must be reported.
        if view.in_transaction:
            view.execute("ROLLBACK")


@contextmanager
def payloads(events_db: Path) -> Iterator[Blob | None]:
    """Yield a reader of payloads of the log at this path; None if the log cannot be opened (`log_unreadable`)."""
    try:
        log = LogReader.open(events_db)
    except LogError:
        yield None
        return
    with log:
        yield log.blob


class _Report:
    def __init__(
        self,
        view: sqlite3.Connection,
        made_at: datetime,
        since: datetime,
        problems: Sequence[Problem],
        blob: Blob | None,
        blueprints: ReadBlueprint,
        written: ReadWritten,
        served: bool,
    ) -> None:
        self.view, self.blob, self.blueprints, self.written, self.problems = (
            view, blob, blueprints, written, problems,
        )  # fmt: skip
        self.made_at, self.since = utc_text(made_at), utc_text(since)
        self.home, self.below = ("../report", "report/") if served else (FIRST, "")
        self.chapters = {
            name: one for name, one in _CHAPTERS.items() if report_queries.has_rows(view, one.of)
        }
        self.service = queries.service(view)
        self.position = queries.position(view)
        self.here = report_queries.sorries_here(view)
        self.laid_out = layout.sheets(self.here)
        self.resting: dict[str, Impacts] = {}

    @cached_property
    def addresses(self) -> Mapping[Any, str]:
        return layout.addresses(self.laid_out)

    @cached_property
    def repositories(self) -> Mapping[str, Repository]:
        return {one.repository: one for one in described_repositories(self.view)}

    @cached_property
    def by_repository(self) -> Mapping[str, list[SorryRow]]:
        return {name: [*rows] for name, rows in groupby(self.here, key=lambda row: row.repository)}

    @cached_property
    def recent(self) -> Mapping[str, list[report_queries.Turn]]:
        """New and ended sorries since the report's time begins, by repository."""
        result: defaultdict[str, list[report_queries.Turn]] = defaultdict(list)
        for turn in report_queries.turns_since(self.view, self.since):
            if not turn.first_read:
                result[turn.repository].append(turn)
        return result

    @cached_property
    def histories(self) -> Mapping[str, sections.Past]:
        """The numbers of sorries of each repository over time."""
        return sections.pasts(*self.followed, self.made_at)

    @cached_property
    def followed(self) -> tuple[Sequence[report_queries.Turn], Sequence[report_queries.PastNumber]]:
        """All new and ended sorries, and the earlier numbers."""
        return report_queries.turns(self.view), report_queries.past(self.view)

    def impacts(self, repository: str) -> Impacts:
        """Return the impact of a repository's sorries, counted once."""
        if repository not in self.resting:
            self.resting[repository] = resting_on(
                self.view, self.by_repository[repository], self.blueprints, most_theorems=MOST_COUNTED
            )
        return self.resting[repository]

    def made(self, only: str | None) -> Report:
        makers: dict[str, Callable[[], tuple[str, Sequence[Section]]]] = {FIRST: self._first}
        for of in self.laid_out:
            for sheet in of.sheets:
                makers[sheet.name] = lambda of=of, sheet=sheet: self._sheet(of, sheet)  # type: ignore[misc]
        for name, chapter in self.chapters.items():
            makers[name] = lambda chapter=chapter, name=name: self._chapter(name, chapter)  # type: ignore[misc]
        result = {name: make() for name, make in makers.items() if only in (None, name)}
        return Report(
            {name: html for name, (html, _) in result.items()},
            {
                f"{picture.name}.svg": f"{picture.svg}\n"
                for _, shown in result.values()
                for one in shown
                for picture in one.pictures
            },
            self.position,
            self.since,
        )

    def _written(self, template: str, *, name: str, title: str, **parts: Any) -> str:
        below = self.below if name == FIRST else ""
        return environment().get_template(template).render(
            title=title,
            position=self.position,
            made_at=self.made_at,
            service=self.service,
            lean=_lean(self.service),
            home="" if name == FIRST else self.home,
            below=below,
            chapters=[(below + file, one.title, file == name) for file, one in self.chapters.items()],
            **parts,
        )  # fmt: skip

    def _address(self, one: SorryRow) -> str:
        """Return the address of a sorry on its page, from the first page; "" where it is on none."""
        place = self.addresses.get((one.repository, one.branch, one.sorry), "")
        return place and self.below + place

    def _first(self) -> tuple[str, Sequence[Section]]:
        shown = [one for one in (sections.history(*self.followed),) if one is not None]
        screen = front(
            self.view, since=self.since, until=self.made_at, problems=self.problems, here=self.here
        )
        by_key = {of.repository: of for of in self.laid_out}
        rows = sorted(self.repositories.values(), key=lambda row: _urgency(row, by_key.get(row.repository)))
        html = self._written(
            "front.html",
            name=FIRST,
            title="everlean: report",
            front=screen,
            at=self._address,
            lead=lead(screen),
            age=age,
            changes=changes(screen),
            most=MOST_LINES,
            weightiest=self._weightiest(),
            repositories=[
                (row, of, _standing(row), of.files if of else [], self.histories.get(row.repository))
                for row in rows[:_MOST_REPOSITORIES]
                for of in [by_key.get(row.repository)]
            ],
            more_repositories=max(0, len(rows) - _MOST_REPOSITORIES),
            most_files=_MOST_FILES,
            left_out=sum(of.left_out for of in self.laid_out),
            sections=shown,
        )
        return html, shown

    def _weightiest(self) -> list[Sorry]:
        """Return the sorries with the largest impact, one of each declaration; none with unknown or no impact."""
        resting = {
            key: one
            for of in self.laid_out
            for key, one in self.impacts(of.repository).items()
            if one.resting
        }
        first: dict[tuple[str, str, str, str], SorryRow] = {}
        heavy = [row for row in self.here if (row.repository, row.branch, row.sorry) in resting]
        heavy.sort(key=lambda row: resting[row.repository, row.branch, row.sorry].order)
        for row in heavy:
            first.setdefault((row.repository, row.branch, row.path, row.declaration), row)
        return describe_sorries(self.view, [*first.values()][:MOST_LINES], impacts=resting)

    def _sheet(self, of: OfRepository, sheet: Sheet) -> tuple[str, Sequence[Section]]:
        impacts = self.impacts(of.repository)
        described = describe_sorries(self.view, sheet.sorries, impacts=impacts)
        by_path: defaultdict[str, list[Sorry]] = defaultdict(list)
        for one in described:
            by_path[one.path].append(one)
        whys = [one.impact.unknown for one in described if one.impact is not None and one.impact.unknown]
        too_large = too_large_text(self.repositories[of.repository].too_large)
        paths = [row.path for row in self.by_repository[of.repository]]
        html = self._written(
            "sorries.html", name=sheet.name, title=of.repository, of=of, sheet=sheet, by_path=by_path,
            texts=self._texts(described), anchor=lambda one: layout.anchor(one, of), unknown=len(whys),
            whys=sorted(set(whys)), too_large=" ".join(too_large.values()), written=self.written,
            past=self.histories.get(of.repository), news=self._news(of.repository), at=self._beside,
            folder=commonpath(map(dirname, paths)) + "/" if commonpath(map(dirname, paths)) else "",
            namespace=_namespace(row.declaration for row in self.by_repository[of.repository]),
            since=self.since, untried=sum(one.tried is None for one in described),
            unstated=sum(not (one.goal and one.goal.stands) for one in described), patch=self._patch,
            oldest=sorted(described, key=lambda one: (one.since, one.path, one.line))[:_MOST_BESIDE],
        )  # fmt: skip
        return html, ()

    def _beside(self, one: SorryRow) -> str:
        """Return the address of a sorry on its page, from a page beside it; "" where it is on none."""
        return self.addresses.get((one.repository, one.branch, one.sorry), "")

    def _news(self, repository: str) -> Sequence[tuple[str, News]]:
        """Return a repository's new and ended sorries since the report's time begins, with the step: the newest
        first.
        """
        turns = self.recent[repository][:MOST_LINES]
        return [(turn.step, one) for turn, one in zip(turns, describe_news(self.view, turns), strict=True)]

    def _patch(self, proof: Proof) -> Sequence[str]:
        """Return the lines of a proof's patch from its first hunk on; none where it is not at hand."""
        if self.blob is None or proof.patch_sha256 is None:
            return ()
        try:
            lines = self.blob(proof.patch_sha256).decode("utf-8", "replace").splitlines()
        except LogError:
            return ()
        first = next((at for at, line in enumerate(lines) if line.startswith("@@")), len(lines))
        last = next((at for at, line in enumerate(lines) if line == "-- "), len(lines))
        return lines[first + 1 : last]

    def _texts(self, sorries: Sequence[Sorry]) -> Mapping[str, Sequence[Proof]]:
        """Return the sorries' proofs, without rejected ones, by sorry."""
        ids = json.dumps([one.sorry for one in sorries])
        conditions = [
            "state IN ('verified', 'candidate', 'conditional')",
            "sorry IN (SELECT value FROM json_each(?))",
        ]
        rows = read(
            self.view,
            ProofRow,
            "proofs",
            conditions=conditions,
            parameters=[ids],
            order="found_at DESC, proof",
        )
        result: defaultdict[str, list[Proof]] = defaultdict(list)
        for proof in describe_proofs(self.view, rows):
            result[proof.sorry].append(proof)
        return result

    def _chapter(self, name: str, chapter: _Chapter) -> tuple[str, Sequence[Section]]:
        shown = [one for one in chapter.sections(self.view, self.blob) if one is not None]
        html = self._written("chapter.html", name=name, title=chapter.title, sections=shown)
        return html, shown


def _urgency(row: Repository, of: OfRepository | None) -> tuple[bool, bool, int, str]:
    well = not row.enabled or row.state in HEALTHY_STATES
    return not row.watched, well, -of.sorries if of else 0, row.repository


def _namespace(names: Iterable[str]) -> str:
    """Return the namespace shared by all declarations, with its dot; "" if they share none."""
    shared: list[str] = []
    parts = [name.split(".")[:-1] for name in names if name]
    for at in zip(*parts, strict=False):
        if len(set(at)) > 1:
            break
        shared.append(at[0])
    return ".".join([*shared, ""])


def _standing(row: Repository) -> str:
    """Describe a repository's nonzero counts and trouble in a line."""
    words = ["no longer watched"] if not row.watched else [] if row.enabled else ["not enabled"]
    if row.state not in HEALTHY_STATES:
        words.append(f"{row.state}: {row.reason}" if row.reason else row.state)
    words += too_large_text(row.too_large).values()
    ways = {"verified": "with a patch ready", "filled": "filled", "removed": "removed"}
    words += [f"{row.sorries[state]:,} {way}" for state, way in ways.items() if row.sorries[state]]
    if row.sorries_elsewhere:
        words.append(f"{row.sorries_elsewhere:,} more on other branches")
    if row.watched and not row.in_source:
        words.append("no open sorry")
    return "; ".join(short(one, 200) for one in words)


def _lean(service: ServiceRow | None) -> str:
    if service is None:
        return "not known, no daemon has run yet"
    detail = service.lean_detail not in ("", service.lean)
    return f"{service.lean} ({short(service.lean_detail, 200)})" if detail else service.lean
