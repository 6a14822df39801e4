"""The pages of a report: the first screen, the sorries of each repository, proofs, models, and the machine's time.

What has nothing to show has no page and no heading. No page is larger than `MOST_BYTES`: of one made of sections the
largest are left out until it is not, and both its top and the section's place say so; the others have a bounded number
of entries, each of a bounded size. The prose is in `templates/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.report import FIRST, model_sections, opened, sections
from pipeline.report.front import FILLED, FINE, MOST_LINES, SIMULATED, changes, lead, since
from pipeline.report.gather import ReportData, RepositoryState
from pipeline.report.html import Section, environment, section, shortened
from pipeline.report.opened import OfRepository, Sheet
from store.view.report_queries import Spot

MOST_BYTES = 8 << 20
"""Of a page, in UTF-8."""
_REST_BYTES = 1 << 18
"""Kept for what is around the sections."""
_MOST_REPOSITORIES, _MOST_FILES = 500, 12
"""On the first page, and of each repository there."""


@dataclass(frozen=True, slots=True)
class Pages:
    """The report as text: its pages and its pictures, each by the name of its file."""

    html: Mapping[str, str]
    pictures: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Chapter:
    """A page made of sections."""

    title: str
    has: Callable[[ReportData], bool]
    sections: Callable[[ReportData], Iterable[Section | None]]


_CHAPTERS = {
    "proofs.html": _Chapter(
        "Proofs",
        lambda data: bool(data.proofs or data.searches),
        lambda data: (sections.proofs(data), sections.rejections(data)),
    ),
    "models.html": _Chapter(
        "Models and learning",
        lambda data: bool(data.trainings or data.failed_trainings or data.measurements),
        lambda data: (
            *model_sections.matrices(data), model_sections.training(data), *model_sections.losses(data),
            model_sections.evaluations(data),
        ),
    ),
    "machine.html": _Chapter(
        "Machine time", lambda data: bool(data.machine_time), lambda data: (sections.machine_time(data),)
    ),
}  # fmt: skip
NAMES = re.compile(
    rf"({'|'.join(map(re.escape, _CHAPTERS))}|{opened.SHEET}\.html"
    rf"|({'|'.join(sections.PICTURES)}|{model_sections.PICTURE})\.svg)"
)
"""The names that a report gives to its files, but for the first page."""


def render(
    data: ReportData, *, only: str | None = None, served: bool = False, most_bytes: int = MOST_BYTES
) -> Pages:
    """Make the pages. They load nothing: no script, no font, no picture from elsewhere.

    Args:
        data: what they show.
        only: the one page to make; there is none of that name if the result has none.
        served: link to pages as the daemon serves them, the first at /report and the others below it.
        most_bytes: that a page may have.
    """
    return _Report(data, served=served, most_bytes=most_bytes).pages(only)


class _Report:
    def __init__(self, data: ReportData, *, served: bool, most_bytes: int) -> None:
        self.data, self.most_bytes = data, most_bytes
        self.home, self.below = ("../report", "report/") if served else (FIRST, "")
        self.chapters = {name: one for name, one in _CHAPTERS.items() if one.has(data)}
        self.laid_out = opened.sheets(data.open_sorries)
        self.places = opened.places(self.laid_out)

    def pages(self, only: str | None) -> Pages:
        makers: dict[str, Callable[[], tuple[str, Sequence[Section]]]] = {FIRST: self._first}
        for of in self.laid_out:
            for sheet in of.sheets:
                makers[sheet.name] = lambda of=of, sheet=sheet: self._sheet(of, sheet)  # type: ignore[misc]
        for name, chapter in self.chapters.items():
            makers[name] = lambda chapter=chapter, name=name: self._chapter(name, chapter)  # type: ignore[misc]
        made = {name: make() for name, make in makers.items() if only in (None, name)}
        return Pages(
            {name: html for name, (html, _) in made.items()},
            {
                f"{picture.name}.svg": f"{picture.svg}\n"
                for _, shown in made.values()
                for one in shown
                for picture in one.pictures
            },
        )

    def _written(self, template: str, *, name: str, title: str, **parts: Any) -> str:
        below = self.below if name == FIRST else ""
        return environment().get_template(template).render(
            title=title,
            data=self.data,
            front=self.data.front,
            lean=_lean(self.data),
            home="" if name == FIRST else self.home,
            below=below,
            chapters=[(below + file, one.title, file == name) for file, one in self.chapters.items()],
            at=lambda spot: self._at(spot, below),
            **parts,
        )  # fmt: skip

    def _at(self, spot: Spot, below: str) -> str:
        """Return the address of a sorry on its page; "" where it is on none."""
        place = self.places.get((spot.repository, spot.branch, spot.sorry), "")
        return place and below + place

    def _first(self) -> tuple[str, Sequence[Section]]:
        data = self.data
        shown = [one for one in (sections.history(data),) if one is not None]
        by_key = {of.repository: of for of in self.laid_out}
        rows = sorted(data.repositories, key=_urgency)
        html = self._written(
            "front.html",
            name=FIRST,
            title="everlean: report",
            lead=lead(data.front),
            changes=changes(data.front),
            most=MOST_LINES,
            weightiest=opened.weightiest(data.open_sorries, MOST_LINES),
            filled_words=FILLED,
            since=since,
            repositories=[
                (row, of, _files(of) if of else [])
                for row, of in ((row, by_key.get(row.repository)) for row in rows[:_MOST_REPOSITORIES])
            ],
            more_repositories=max(0, len(rows) - _MOST_REPOSITORIES),
            most_files=_MOST_FILES,
            left_out=sum(of.left_out for of in self.laid_out),
            sections=shown,
        )
        return html, shown

    def _sheet(self, of: OfRepository, sheet: Sheet) -> tuple[str, Sequence[Section]]:
        whys = [one.impact.unknown for file in sheet.files for one in file.sorries if one.impact.unknown]
        html = self._written(
            "sorries.html", name=sheet.name, title=of.repository, of=of, sheet=sheet,
            anchor=lambda spot: opened.anchor(spot, of), OUTCOMES=_OUTCOMES, unknown=len(whys),
            whys=sorted(set(whys)),
            too_large=next(row.too_large for row in self.data.repositories if row.repository == of.repository),
        )  # fmt: skip
        return html, ()

    def _chapter(self, name: str, chapter: _Chapter) -> tuple[str, Sequence[Section]]:
        whole = [one for one in chapter.sections(self.data) if one is not None]
        shown, left_out = _bounded(whole, self.most_bytes)
        html = self._written(
            "chapter.html", name=name, title=chapter.title, sections=shown, left_out=left_out,
            most=_mebibytes(self.most_bytes),
        )  # fmt: skip
        return html, shown


_OUTCOMES = {
    "found": "found a text",
    "disproved": "shown false: a proof of its negation was accepted",
    "exhausted": "nothing left to try",
    "budget": "stopped at its limit",
    "unsupported": "cannot be tried",
    "error": "ended in an error",
}


def _files(of: OfRepository) -> list[tuple[str, str, int]]:
    """Return each file with the address of its first sorry and how many it has, the most first."""
    found: dict[str, tuple[str, int]] = {}
    for sheet in of.sheets:
        for file in sheet.files:
            address, n = found.get(file.path, (f"{sheet.name}#{file.anchor}", 0))
            found[file.path] = address, n + len(file.sorries)
    return sorted(((path, *rest) for path, rest in found.items()), key=lambda one: (-one[2], one[0]))


def _urgency(row: RepositoryState) -> tuple[bool, bool, int, str]:
    return not row.watched, not row.enabled or row.state in FINE, -row.left, row.repository


def _bounded(whole: Sequence[Section], most_bytes: int) -> tuple[list[Section], list[str]]:
    """Return the sections, the largest of them left out as far as need be, and the headings of those."""
    found = list(whole)
    bytes_of = [len(one.html.encode()) for one in found]
    left_out: list[str] = []
    for at in sorted(range(len(found)), key=lambda at: -bytes_of[at]):
        if sum(bytes_of) <= most_bytes - _REST_BYTES:
            break
        takes, most = _mebibytes(bytes_of[at]), _mebibytes(most_bytes)
        found[at] = section(found[at].identity, found[at].heading, "too_large", takes=takes, most=most)
        bytes_of[at] = len(found[at].html.encode())
        left_out.append(found[at].heading)
    return found, left_out


def _mebibytes(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.1f}"


def _lean(data: ReportData) -> str:
    service = data.service
    if service is None:
        return "not known, no daemon has run yet"
    lean = f"{SIMULATED}, the simulator" if service.lean == "simulator" else service.lean
    detail = service.lean_detail not in ("", service.lean)
    return f"{lean} ({shortened(service.lean_detail, 200)})" if detail else lean
