"""Which traces an export has, in which order, and what LeanDojo calls each of them.

The order is that in which their lines first came into the log: it does not change as repositories grow.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from store.leandojo.reading import DATASET_TRACER, TRACER
from store.log.errors import LogError
from store.view.queries.traces import traces
from store.view.rows import TraceRow


class NothingToExportError(LogError):
    """No trace is what was asked for."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A trace of an export. `in_dataset`: its theorems and files are in the splits and the corpus too."""

    row: TraceRow
    in_dataset: bool

    @property
    def head(self) -> dict[str, Any]:
        """The first keys of LeanDojo's repository record."""
        row = self.row
        theirs = row.tracer in {TRACER, DATASET_TRACER}
        return {
            "url": row.url,
            "name": row.name,
            "commit": row.sha,
            "lean_version": row.lean_version,
            "lean_dojo_version": row.tracer_version if theirs else f"{row.tracer} {row.tracer_version}",
            "metadata": self._metadata(),
        }

    def _metadata(self) -> dict[str, Any]:
        metadata = dict(self.row.metadata)
        if "date_processed" not in metadata:
            # Their loader refuses a repository without it, and compares it with times that have no zone.
            moment = datetime.fromisoformat(self.row.traced_at).replace(tzinfo=None)
            metadata["date_processed"] = moment.isoformat()
        return metadata


def choose(
    db: sqlite3.Connection,
    repositories: Collection[str],
    *,
    every_commit: bool,
    simulated: bool,
    trace: str | None = None,
    also: Collection[str] = (),
) -> list[Chosen]:
    """Return all imports and the newest trace of our own of each repository; of some repositories, or of all.

    Or, where `trace` names one, that alone. `also` are ids of traces of our own that are taken although there are
    newer ones, unless the same commit is taken anyway. In the dataset is of each repository the newest one only, unless
    `every_commit` is asked for. An imported dataset folder is left out where the same commit was imported from a
    database, which says more.

    Raises:
        NothingToExportError: there is none, or none of a repository that was named; or the trace is not known, was
            withdrawn, or is not of such a repository.
    """
    rows = [row for row in traces(db) if simulated or not row.simulated]
    if not rows:
        hidden = " (but a simulated one, which is exported with --simulated)" if traces(db) else ""
        raise NothingToExportError(
            f"no traced commit is known{hidden}: trace one, or import one with `unsorry import leandojo`"
        )
    wanted = {_full_key(name, {row.repository for row in rows}) for name in repositories}
    rows = [row for row in rows if not wanted or row.repository in wanted]
    if trace is not None:
        found = [Chosen(row, in_dataset=True) for row in rows if row.trace == trace]
        if not found:
            raise NothingToExportError(
                f"no trace {trace} is known of {', '.join(sorted(wanted)) or 'anything'}"
            )
        return found
    known = {_commit(row) for row in rows if row.tracer == TRACER}
    rows = [row for row in rows if not (row.tracer == DATASET_TRACER and _commit(row) in known)]
    newest: dict[str, str] = {}
    newest_of_ours: dict[str, str] = {}
    for row in rows:  # the newest first
        newest.setdefault(row.repository, row.trace)
        if row.source == "lean":
            newest_of_ours.setdefault(row.repository, row.trace)
    kept = [row for row in rows if row.source == "import" or newest_of_ours[row.repository] == row.trace]
    commits = {_commit(row) for row in kept}
    kept += [row for row in rows if row.trace in also and _commit(row) not in commits]
    return in_order(db, [(row, every_commit or newest[row.repository] == row.trace) for row in kept])


def in_order(db: sqlite3.Connection, rows: Sequence[tuple[TraceRow, bool]]) -> list[Chosen]:
    """Return traces, each with whether it is in the dataset, in the order in which their lines came."""
    first = {
        (repository, line): seq
        for repository, line, seq in db.execute(
            "SELECT repository, line, min(from_seq) FROM traced_files GROUP BY repository, line"
        )
    }
    ordered = sorted(
        rows, key=lambda item: (first.get((item[0].repository, item[0].line), item[0].seq), item[0].seq)
    )
    return [Chosen(row, in_dataset) for row, in_dataset in ordered]


def _commit(row: TraceRow) -> tuple[str, str]:
    return row.url, row.sha


def _full_key(name: str, known: Collection[str]) -> str:
    found = [key for key in known if key == name] or [key for key in known if key.endswith(f"/{name}")]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NothingToExportError(
            f'no trace of "{name}" is known; there are traces of {", ".join(sorted(known))}'
        )
    raise NothingToExportError(f'"{name}" is the end of {", ".join(sorted(found))}; write more of it')
