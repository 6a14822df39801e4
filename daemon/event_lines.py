"""Recorded events as lines of the daemon's log: one for each thing that a person waits for or has to know of.

A line has the event's type as its word, its particulars as fields, and `sentence`, which says it for people. What is
recorded in masses (the first scan of a library opens thousands of sorries) becomes one line with the number. Names that
an event lacks are read from the view, where it is already when its line is written.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog

from daemon.context import Context
from daemon.store_service import StoreFailedError, StoreService
from store.documents.grades import grade_text
from store.events.base import EventBody
from store.events.bumps import BumpFinished
from store.events.jobs import JobFailed
from store.events.models import CheckpointPromoted, CheckpointRefused, CheckpointRemoved, CheckpointSaved
from store.events.proofs import (
    AGENT,
    AttemptFinished,
    ProofChecked,
    ProofDoubted,
    ProofFound,
    ProofRejected,
    ProofVerified,
    PullRequestOpened,
)
from store.events.scans import CommitScanned, ScanBegun, SorryFilled, SorryOpened
from store.events.service import LeanChosen
from store.log.envelope import NewEvent
from store.text import counted
from store.view import queries
from store.view.bumps import raises

MOST_OF_ONE_TYPE = 10
"""More events of one type in one append are one line with their number."""

log = structlog.get_logger("daemon.event_lines")


Field = str | int | float | None


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the log."""

    sentence: str
    fields: Mapping[str, Field]
    warns: bool = False


class EventLines:
    """Writes the lines of what is appended, in its order and away from the one who appended."""

    def __init__(self, store: StoreService, context: Context) -> None:
        self._store = store
        self._context = context
        self._waiting: list[Sequence[EventBody]] = []
        self._unclosed: dict[tuple[str, str], tuple[str | None, list[EventBody]]] = {}
        """By repository and branch: the attempt whose scan is recorded in parts, and what it recorded so far."""
        self._writes = False
        store.subscribe(self._on_append)

    def _on_append(self, events: Sequence[NewEvent]) -> None:
        bodies = [body for body in self._that_count(events) if _is_told(body)]
        if not bodies:
            return
        self._waiting.append(bodies)
        if not self._writes:
            self._writes = True
            self._context.spawn(self._write(), name="event-lines")

    def _that_count(self, events: Sequence[NewEvent]) -> Iterator[EventBody]:
        """Yield what was appended; the parts of a scan only when the scan is closed."""
        for event in events:
            body = event.body
            if isinstance(body, ScanBegun):
                self._unclosed[body.repository, body.branch] = (event.causation_id, [])
            elif isinstance(body, CommitScanned):
                attempt, parts = self._unclosed.pop((body.repository, body.branch), (None, []))
                yield from parts if attempt == event.causation_id else ()
            elif isinstance(body, SorryOpened | SorryFilled):
                attempt, parts = self._unclosed.get((body.repository, body.branch), (None, []))
                if attempt is not None and attempt == event.causation_id:
                    parts.append(body)
                else:
                    yield body
            else:
                yield body

    async def _write(self) -> None:
        try:
            while self._waiting:
                bodies = self._waiting.pop(0)
                for kind, line in await self._store.ask(partial(lines_of, bodies=bodies)):
                    level = logging.WARNING if line.warns else logging.INFO
                    log.log(level, kind, sentence=line.sentence, **line.fields)
        except (StoreFailedError, sqlite3.Error) as error:
            log.warning("events_not_told", reason=str(error))
        finally:
            self._writes = False


def lines_of(view: sqlite3.Connection, *, bodies: Sequence[EventBody]) -> list[tuple[str, Line]]:
    """Return the lines of what was appended at once, each with its word."""
    together: dict[tuple[str, str], list[EventBody]] = {}
    for body in filter(_is_told, bodies):
        together.setdefault((body.type, str(getattr(body, "repository", ""))), []).append(body)
    lines: list[tuple[str, Line]] = []
    for (kind, repository), several in together.items():
        if len(several) > MOST_OF_ONE_TYPE:
            lines.append((kind, _marked(several[0], _many(kind, repository, len(several)))))
        else:
            lines += [(kind, _marked(body, _LINES[type(body)](view, body))) for body in several]
    return lines


def _is_told(body: EventBody) -> bool:
    return type(body) in _LINES and (not isinstance(body, AttemptFinished) or body.outcome == "disproved")


def _marked(body: EventBody, line: Line) -> Line:
    if not getattr(body, "simulated", False):
        return line
    return replace(line, sentence=f"{line.sentence} [SIMULATED]", fields={**line.fields, "simulated": True})


def _many(kind: str, repository: str, number: int) -> Line:
    what, verb = kind.split("_", 1)
    where = f" in {repository}" if repository else ""
    return Line(f"{verb}: {counted(number, what)}{where}", {"repository": repository, "events": number})


# ---- The line of each type


def _opened(_view: sqlite3.Connection, body: SorryOpened) -> Line:
    spot = body.place
    verb = "opened again" if body.reopened else "opened"
    return Line(
        f"{verb}: {_where(spot.declaration, spot.path, spot.line, body.repository)}",
        {**_sorry(body.repository, body.sorry), "path": spot.path, "line": spot.line},
    )


def _filled(view: sqlite3.Connection, body: SorryFilled) -> Line:
    by = "everlean" if body.by == "us" else "people"
    return Line(
        f"filled by {by}: {_named(view, body.sorry)}", {**_sorry(body.repository, body.sorry), "by": body.by}
    )


def _disproved(view: sqlite3.Connection, body: AttemptFinished) -> Line:
    return Line(
        f"disproved: {_named(view, body.sorry)} is false as it stands", _sorry(body.repository, body.sorry)
    )


def _found(view: sqlite3.Connection, body: ProofFound) -> Line:
    by = "submitted by an agent" if body.prover == AGENT else f"found by rung {body.rung}"
    return Line(
        f"{by}, to be checked: {_named(view, body.sorry)}",
        {**_sorry(body.repository, body.sorry), "proof": body.proof, "rung": body.rung},
    )


def _verified(view: sqlite3.Connection, body: ProofVerified) -> Line:
    return Line(
        f"verified by Lean ({grade_text(body.grade)}): {_named(view, body.sorry)}",
        {"sorry": body.sorry, "proof": body.proof, "grade": body.grade},
    )


def _doubted(view: sqlite3.Connection, body: ProofDoubted) -> Line:
    what = "in doubt" if body.advisories else "no longer in doubt"
    return Line(
        f"{what}: the verified proof of {_named(view, body.sorry)}: {body.reason}",
        {"sorry": body.sorry, "proof": body.proof, "advisories": ", ".join(body.advisories)},
    )


def _checked(view: sqlite3.Connection, body: ProofChecked) -> Line:
    missing = ", ".join(body.not_checked)
    return Line(
        f"checked, not verified: {_named(view, body.sorry)}; could not be judged: {missing}",
        {"sorry": body.sorry, "proof": body.proof, "not_checked": missing},
    )


def _rejected(view: sqlite3.Connection, body: ProofRejected) -> Line:
    return Line(
        f"rejected at {body.step}: {_named(view, body.sorry)}: {body.reason}",
        {"sorry": body.sorry, "proof": body.proof, "step": body.step, "reason": body.reason},
    )


def _proposed(_view: sqlite3.Connection, body: PullRequestOpened) -> Line:
    return Line(
        f"proposed: {body.url}", {"repository": body.repository, "proof": body.proof, "url": body.url}
    )


def _bumped(_view: sqlite3.Connection, body: BumpFinished) -> Line:
    what = raises(body.toolchain, body.package, body.rev)
    counts = {"mended": len(body.mended), "left": len(body.left)}
    return Line(
        f"bumped {body.repository}, {what}: {counts['mended']} mended, {counts['left']} left",
        {"repository": body.repository, "bump": body.bump, **counts},
        warns=bool(body.left),
    )


def _trained(_view: sqlite3.Connection, body: CheckpointSaved) -> Line:
    return Line(
        f"trained: {body.model} {body.checkpoint}, {body.steps:,} steps in {body.seconds:.0f} s",
        {"model": body.model, "checkpoint": body.checkpoint, "steps": body.steps, "seconds": body.seconds},
    )


def _promoted(_view: sqlite3.Connection, body: CheckpointPromoted) -> Line:
    return Line(
        f"promoted: {body.model} {body.checkpoint}: {body.reason}",
        {
            "model": body.model,
            "checkpoint": body.checkpoint,
            "previous": body.previous,
            "reason": body.reason,
        },
    )


def _refused(_view: sqlite3.Connection, body: CheckpointRefused) -> Line:
    return Line(
        f"not promoted: {body.model} {body.checkpoint}: {body.reason}",
        {"model": body.model, "checkpoint": body.checkpoint, "reason": body.reason},
    )


def _removed(_view: sqlite3.Connection, body: CheckpointRemoved) -> Line:
    return Line(
        f"removed: {body.model} {body.checkpoint}: {body.reason}",
        {"model": body.model, "checkpoint": body.checkpoint, "reason": body.reason},
    )


def _failed(view: sqlite3.Connection, body: JobFailed) -> Line:
    rows = queries.jobs_by_prefix(view, body.job)
    describes = rows[0].describes if rows else body.job
    return Line(
        f"failed: {describes}: {body.message} -> {body.remedy}",
        {"job": body.job, "attempt": body.attempt, "reason": body.message, "remedy": body.remedy},
        warns=True,
    )


def _lean(_view: sqlite3.Connection, body: LeanChosen) -> Line:
    said = lean_said(body.lean, body.lean_detail)
    return Line(f"Lean is now {said}", {"lean": body.lean, "lean_detail": body.lean_detail})


def lean_said(kind: str, detail: str) -> str:
    """Say for people what runs Lean."""
    return "none" + (f": {detail}" if detail else "") if kind == "none" else detail or kind


def _named(view: sqlite3.Connection, sorry: str) -> str:
    rows = queries.sorries_by_prefix(view, sorry)
    if not rows:
        return f"sorry {sorry[:8]}"
    return _where(rows[0].declaration, rows[0].path, rows[0].line, rows[0].repository)


def _where(declaration: str, path: str, line: int, repository: str) -> str:
    return f"{declaration}, {path}:{line} in {repository}"


def _sorry(repository: str, sorry: str) -> dict[str, Field]:
    return {"repository": repository, "sorry": sorry}


_LINES: dict[type[EventBody], Callable[[sqlite3.Connection, Any], Line]] = {
    SorryOpened: _opened,
    SorryFilled: _filled,
    AttemptFinished: _disproved,
    ProofFound: _found,
    ProofVerified: _verified,
    ProofDoubted: _doubted,
    ProofChecked: _checked,
    ProofRejected: _rejected,
    PullRequestOpened: _proposed,
    BumpFinished: _bumped,
    CheckpointSaved: _trained,
    CheckpointPromoted: _promoted,
    CheckpointRefused: _refused,
    CheckpointRemoved: _removed,
    JobFailed: _failed,
    LeanChosen: _lean,
}
