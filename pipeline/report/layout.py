"""The pages of sorries: each sorry's page, one repository after the other, and its anchor."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from urllib.parse import quote

from store.documents.sorries import SorryKey
from store.view.rows import SorryRow

MOST_ON_A_SHEET = 1000
"""Sorries on a page; a repository with more has several."""
MOST_SHOWN = 20_000
"""Sorries on all pages together; the rest is counted."""


@dataclass(frozen=True, slots=True)
class OfFile:
    """The sorries of one file, and the anchor of its heading."""

    path: str
    anchor: str
    sorries: tuple[SorryRow, ...]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A page of one repository's sorries: its file's name, and the number of the page."""

    name: str
    number: int
    files: tuple[OfFile, ...]

    @property
    def sorries(self) -> list[SorryRow]:
        return [row for file in self.files for row in file.sorries]


@dataclass(frozen=True, slots=True)
class OfRepository:
    """The pages of a repository. `sorries` counts all, `left_out` those without a page."""

    repository: str
    branches: tuple[str, ...]
    sorries: int
    ready: int
    left_out: int
    sheets: tuple[Sheet, ...]

    @property
    def files(self) -> list[tuple[str, str, int]]:
        """Return each file with the address of its first sorry and how many it has, the most first."""
        numbers: Counter[str] = Counter()
        addresses: dict[str, str] = {}
        for sheet in self.sheets:
            for file in sheet.files:
                numbers[file.path] += len(file.sorries)
                addresses.setdefault(file.path, f"{sheet.name}#{file.anchor}")
        return sorted(
            ((path, addresses[path], number) for path, number in numbers.items()),
            key=lambda one: (-one[2], one[0]),
        )


def sheets(
    here: Sequence[SorryRow], *, most: int = MOST_SHOWN, on_a_sheet: int = MOST_ON_A_SHEET
) -> list[OfRepository]:
    """Lay sorries, in their order, out on pages; the repository with the most comes first."""
    result = []
    for repository, of_repository in groupby(here, key=lambda row: row.repository):
        rows = list(of_repository)
        shown = rows[: max(0, most)]
        most -= len(shown)
        stem = file_stem(repository)
        pages = []
        for number, at in enumerate(range(0, len(shown), on_a_sheet), start=1):
            files = tuple(
                OfFile(path, f"file-{place}", tuple(of_file))
                for place, (path, of_file) in enumerate(
                    groupby(shown[at : at + on_a_sheet], key=lambda row: row.path), start=1
                )
            )
            pages.append(Sheet(f"{stem}{f'-{number}' if number > 1 else ''}.html", number, files))
        result.append(
            OfRepository(
                repository,
                tuple(sorted({row.branch for row in rows})),
                len(rows),
                sum(row.state == "verified" for row in rows),
                len(rows) - len(shown),
                tuple(pages),
            )
        )
    return sorted(result, key=lambda one: (-one.sorries, one.repository))


def addresses(of: Sequence[OfRepository]) -> Mapping[SorryKey, str]:
    """Return the address of each sorry on its page."""
    return {
        (row.repository, row.branch, row.sorry): f"{sheet.name}#{anchor(row, repository)}"
        for repository in of
        for sheet in repository.sheets
        for row in sheet.sorries
    }


def anchor(row: SorryRow, of: OfRepository) -> str:
    """Return the anchor of a sorry: its id, and where there are several branches the branch."""
    return (
        row.sorry if len(of.branches) == 1 else f"{row.sorry}-{quote(row.branch, safe='')}".replace("%", ".")
    )


SHEET = r"sorries-[A-Za-z0-9.-]+-[0-9a-f]{8}(-\d+)?"
"""A regular expression for the names of these pages, without .html."""


def file_stem(repository: str) -> str:
    """Return the name of a repository's pages, without .html: readable, safe in an address, and of no other's."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", repository)[:60].strip("-.")
    return f"sorries-{plain}-{hashlib.sha256(repository.encode()).hexdigest()[:8]}"
