"""Queries of database.db about bumps, and their rows. Standard library only: see `store.view.queries`."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from store.domain.identity import job_id
from store.view import queries
from store.view.reading import read
from store.view.rows import JobRow
from store.view.schema import table

_MOST_RENAMES = 20_000


@table("bumps", key=("repository", "bump"))
class BumpRow:
    """A trial of a repository with a newer Lean or package; the later columns are of its newest attempt."""

    repository: str
    bump: str
    """Its id."""
    seq: int
    """The position of its first event."""
    toolchain: str
    package: str
    rev: str
    by: str
    """The user behind it; "" for the plan (`try_bumps`)."""
    since: str
    branch: str | None
    sha: str | None
    job: str | None
    broken: list[dict[str, str]]
    """The breaks (`store.events.bumps.Break`)."""
    mended: list[dict[str, str]]
    """Their replacements: verified by the gate, with the grade and the doubts, or checked (`Mend`)."""
    left: list[dict[str, str]]
    modules_failed: list[str]
    """The failing modules: before any mending, and in the end with the patches applied."""
    tried: int
    """The number of texts so far."""
    unrecorded: int
    """The number of them missing in the log, for their multitude."""
    series_sha256: str | None
    finished_at: str | None

    @property
    def raises(self) -> str:
        """The raised thing and its new version, for people."""
        return raises(self.toolchain, self.package, self.rev)


def raises(toolchain: str, package: str, rev: str) -> str:
    """Return the raised thing and its new version, for people."""
    result = (f"Lean to {toolchain}" if toolchain else "", f"{package} to {rev[:12]}" if package else "")
    return ", ".join(filter(None, result))


def bumps(db: sqlite3.Connection, *, repository: str | None = None) -> list[BumpRow]:
    """Return the trials of newer Leans and packages, the newest first."""
    return read(db, BumpRow, "bumps", equal={"repository": repository}, order="seq DESC")


def job_of(row: BumpRow) -> str:
    """Return the id of a trial's job, also before its begin."""
    return row.job or job_id("bump", row.repository, row.bump)


def bump_jobs(db: sqlite3.Connection, *, repository: str) -> list[JobRow]:
    """Return a repository's jobs of bumps, the newest first; an early failure leaves no trial."""
    return [row for row in queries.jobs(db, kind="bump") if row.repository == repository]


def renames(db: sqlite3.Connection, repositories: Sequence[str]) -> dict[str, str]:
    """Map full names that no theorem has any more to the present name of the same theorem.

    Only these repositories are read: the names of a private one must not appear in the texts of another. A
    former name of several theorems is left out.
    """
    of = ", ".join("?" * len(repositories))
    result = db.execute(
        "SELECT v.name, min(t.name) FROM theorem_versions AS v JOIN theorems AS t USING (repository, branch, theorem)"
        f" WHERE v.repository IN ({of}) AND v.name <> t.name AND t.state = 'present'"
        " AND NOT EXISTS (SELECT 1 FROM theorems AS o"
        f" WHERE o.name = v.name AND o.state = 'present' AND o.repository IN ({of}))"
        " GROUP BY v.name HAVING count(DISTINCT t.name) = 1 ORDER BY v.name LIMIT ?",
        (*repositories, *repositories, _MOST_RENAMES),
    )
    return dict(result.fetchall())
