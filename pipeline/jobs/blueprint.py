"""Read repositories' blueprints from their mirrors, at a commit, and with them the impact of sorries."""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.jobs.mirror import Mirror
from pipeline.jobs.protocol import JobError
from store.documents.sorries import Impacts, SorryKey
from store.domain.blueprint import Statement, read_latex, read_verso
from store.domain.identity import slug
from store.view import queries
from store.view.impact import Declared, Impact, impacts
from store.view.rows import SorryRow

LARGEST_FILE_BYTES = 4 << 20
LARGEST_BLUEPRINT_BYTES = 64 << 20
"""Files beyond the limit are not read."""


ReadBlueprint = Callable[[str, str | None], Sequence[Statement]]
"""Returns the statements of a repository's blueprint at a commit."""


def no_blueprint(_repository: str, _sha: str | None) -> Sequence[Statement]:
    """Return no statements, if no mirrors are at hand."""
    return ()


@dataclass(frozen=True, slots=True)
class Blueprints:
    """The blueprints of all repositories.

    Attributes:
        mirrors: the folder of the mirrors.
        tell: gets the reason why a blueprint, or a file of it, is not counted.
    """

    mirrors: Path
    tell: Callable[[str], object]

    def newer(self, repository: str, known: str, tip: str) -> str:
        """Return the tip if a blueprint's LaTeX changed since a known commit, else the known commit.

        A verso-blueprint is in Lean files, and every commit changes some of those: it is ignored.
        """
        mirror = self.mirrors / f"{slug(repository)}.git"
        if known == tip or not os.access(mirror / "HEAD", os.R_OK):
            return known
        try:
            with Mirror(mirror) as objects:
                changes = objects.changes(known, tip)
        except (JobError, OSError) as error:
            self.tell(f"what changed in the blueprint of {repository} is not known: {error}")
            return known
        changed = (*(file.path for file in changes.present), *changes.gone)
        return tip if any(map(_is_latex, changed)) else known

    def __call__(self, repository: str, sha: str | None) -> Sequence[Statement]:
        """Return the statements of a commit's blueprint; none without a blueprint or a mirror."""
        mirror = self.mirrors / f"{slug(repository)}.git"
        if sha is None or not os.access(mirror / "HEAD", os.R_OK):
            return ()
        try:
            with Mirror(mirror) as objects:
                latex, verso = list[tuple[str, str]](), list[tuple[str, str]]()
                files = [*objects.files(sha)]
                manifests = [one.manifest for one in objects.projects(sha, files) if one.manifest]
                read = (objects.read(blob, most_bytes=LARGEST_FILE_BYTES) for blob in manifests)
                is_verso = any(isinstance(data, bytes) and b"verso-blueprint" in data for data in read)
                left = LARGEST_BLUEPRINT_BYTES
                for file in files:
                    is_latex = _is_latex(file.path)
                    if file.readable and (is_latex or (is_verso and file.path.endswith(".lean"))):
                        data = objects.read(file.blob, most_bytes=min(left, LARGEST_FILE_BYTES))
                        if isinstance(data, int):
                            self.tell(f"{file.path} of {repository} is too large: left out of its blueprint")
                            continue
                        left -= len(data)
                        (latex if is_latex else verso).append((file.path, data.decode("utf-8", "replace")))
        except (JobError, OSError) as error:
            self.tell(f"the blueprint of {repository} is not counted: {error}")
            return ()
        return [*read_latex(latex), *read_verso(verso)]


def _is_latex(path: str) -> bool:
    return "/blueprint/src/" in f"/{path}" and path.endswith(".tex")


def resting_on(
    view: sqlite3.Connection,
    sorries: Iterable[SorryRow],
    blueprints: ReadBlueprint,
    *,
    most_theorems: int | None = None,
) -> Impacts:
    """Return the impact of the sorries in the source, by repository, branch and sorry.

    In a trace with more than `most_theorems` it is unknown.
    """
    tips = {(row.repository, row.branch): row.scanned for row in queries.branches(view)}
    by_branch: dict[tuple[str, str], list[SorryRow]] = defaultdict(list)
    for row in sorries:
        if row.in_source:
            by_branch[row.repository, row.branch].append(row)
    resting: dict[SorryKey, Impact] = {}
    for (repository, branch), its in by_branch.items():
        places = {row.sorry: Declared(row.path, row.declaration) for row in its}
        blueprint = blueprints(repository, tips.get((repository, branch)))
        counts = impacts(
            view, repository, branch, places.values(), most_theorems=most_theorems, blueprint=blueprint
        )
        resting |= {(repository, branch, sorry): counts[place] for sorry, place in places.items()}
    return resting
