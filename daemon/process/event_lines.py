"""Write recorded events to the daemon's log: a line for each event of interest to people.

A line has the event's type as its word, a `sentence` for people, and the event's fields with names. Masses of
events (the first scan of a library opens thousands of sorries) become one line with their number. Names
missing in an event are read from the view, which has it before its line is written.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from daemon.state.context import Context
from daemon.state.store_service import StoreFailedError, StoreService
from store.documents.grades import IN_DOUBT, grade_text
from store.documents.sorries import place_text
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
FIELDS = (
    "repository", "sorry", "proof", "path", "line", "rung", "grade", "step", "not_checked", "advisories", "by", "url",
    "bump", "model", "checkpoint", "steps", "job", "attempt", "lean", "lean_detail", "reason", "message", "remedy",
)  # fmt: skip
"""The fields of an event to copy into its line."""

log = structlog.get_logger("daemon.process.event_lines")


Field = str | int | float | None


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the log."""

    sentence: str
    fields: Mapping[str, Field]
    warns: bool = False


class EventLines:
    """Writes the lines of appended events, in their order and apart from the appending task."""

    def __init__(self, store: StoreService, context: Context) -> None:
        self._store = store
        self._context = context
        self._waiting: list[Sequence[EventBody]] = []
        self._unclosed: dict[tuple[str, str], tuple[str | None, list[EventBody]]] = {}
        """By repository and branch: the attempt whose scan is recorded in parts, and its events so far."""
        self._writes = False
        store.subscribe(self._on_append)

    def _on_append(self, events: Sequence[NewEvent]) -> None:
        bodies = [body for body in self._that_count(events) if _has_line(body)]
        if not bodies:
            return
        self._waiting.append(bodies)
        if not self._writes:
            self._writes = True
            self._context.spawn(self._write(), name="event-lines")

    def _that_count(self, events: Sequence[NewEvent]) -> Iterator[EventBody]:
        """Yield the appended events; the parts of a scan only when the scan is closed."""
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
    """Return the lines of one append, each with its word."""
    together: dict[tuple[str, str], list[EventBody]] = {}
    for body in filter(_has_line, bodies):
        together.setdefault((body.type, str(getattr(body, "repository", ""))), []).append(body)
    lines: list[tuple[str, Line]] = []
    for (kind, repository), several in together.items():
        if len(several) > MOST_OF_ONE_TYPE:
            sentence = _many(kind, repository, len(several))
            lines.append((kind, _line(several[0], sentence, repository=repository, events=len(several))))
        else:
            lines += [(kind, _line(one, _SENTENCES[type(one)](view, one), **_fields(one))) for one in several]
    return lines


def _has_line(body: EventBody) -> bool:
    return type(body) in _SENTENCES and (not isinstance(body, AttemptFinished) or body.outcome == "disproved")


def _line(body: EventBody, sentence: str, **fields: Field) -> Line:
    warns = isinstance(body, JobFailed) or (isinstance(body, BumpFinished) and bool(body.left))
    return Line(sentence, fields, warns)


def _fields(body: EventBody) -> dict[str, Field]:
    """Return an event's fields with names and outcomes."""
    spot = getattr(body, "place", None)
    result = {name: getattr(body, name, getattr(spot, name, None)) for name in FIELDS}
    return {
        name: ", ".join(value) if isinstance(value, tuple) else value
        for name, value in result.items()
        if value is not None
    }


def _many(kind: str, repository: str, number: int) -> str:
    what, verb = kind.split("_", 1)
    return f"{verb}: {counted(number, what)}" + (f" in {repository}" if repository else "")


# ---- The sentence of each type


def _opened(_view: sqlite3.Connection, body: SorryOpened) -> str:
    spot = body.place
    verb = "opened again" if body.reopened else "opened"
    return f"{verb}: {place_text(spot.declaration, spot.path, spot.line, body.repository)}"


def _filled(view: sqlite3.Connection, body: SorryFilled) -> str:
    return f"filled by {'everlean' if body.by == 'us' else 'people'}: {_sorry_name(view, body.sorry)}"


def _disproved(view: sqlite3.Connection, body: AttemptFinished) -> str:
    return f"disproved: {_sorry_name(view, body.sorry)} is false as it stands"


def _found(view: sqlite3.Connection, body: ProofFound) -> str:
    by = "submitted by an agent" if body.prover == AGENT else f"found by rung {body.rung}"
    return f"{by}, to be checked: {_sorry_name(view, body.sorry)}"


def _verified(view: sqlite3.Connection, body: ProofVerified) -> str:
    return f"verified by Lean ({grade_text(body.grade)}): {_sorry_name(view, body.sorry)}"


def _doubted(view: sqlite3.Connection, body: ProofDoubted) -> str:
    what = "in doubt" if body.advisories else "no longer in doubt"
    return f"{what}: the verified proof of {_sorry_name(view, body.sorry)}: {body.reason}"


def _checked(view: sqlite3.Connection, body: ProofChecked) -> str:
    missing = ", ".join(body.not_checked)
    if body.disagreement:
        return f"{IN_DOUBT}: {_sorry_name(view, body.sorry)}: {body.disagreement}"
    return f"checked, not verified: {_sorry_name(view, body.sorry)}; could not be judged: {missing}"


def _rejected(view: sqlite3.Connection, body: ProofRejected) -> str:
    return f"rejected at {body.step}: {_sorry_name(view, body.sorry)}: {body.reason}"


def _proposed(_view: sqlite3.Connection, body: PullRequestOpened) -> str:
    return f"proposed: {body.url}"


def _bumped(_view: sqlite3.Connection, body: BumpFinished) -> str:
    what = raises(body.toolchain, body.package, body.rev)
    return f"bumped {body.repository}, {what}: {len(body.mended)} mended, {len(body.left)} left"


def _trained(_view: sqlite3.Connection, body: CheckpointSaved) -> str:
    return f"trained: {body.model} {body.checkpoint}, {body.steps:,} steps in {body.seconds:.0f} s"


def _decided(
    _view: sqlite3.Connection, body: CheckpointPromoted | CheckpointRefused | CheckpointRemoved
) -> str:
    result = body.type.removeprefix("checkpoint_").replace("refused", "not promoted")
    return f"{result}: {body.model} {body.checkpoint}: {body.reason}"


def _failed(view: sqlite3.Connection, body: JobFailed) -> str:
    rows = queries.jobs_by_prefix(view, body.job)
    return f"failed: {rows[0].describes if rows else body.job}: {body.message} -> {body.remedy}"


def _lean(_view: sqlite3.Connection, body: LeanChosen) -> str:
    return f"Lean is now {lean_text(body.lean, body.lean_detail)}"


def lean_text(kind: str, detail: str) -> str:
    """Describe the Lean in use for people."""
    return "none" + (f": {detail}" if detail else "") if kind == "none" else detail or kind


def _sorry_name(view: sqlite3.Connection, sorry: str) -> str:
    rows = queries.sorries_by_prefix(view, sorry)
    if not rows:
        return f"sorry {sorry[:8]}"
    return place_text(rows[0].declaration, rows[0].path, rows[0].line, rows[0].repository)


_SENTENCES: dict[type[EventBody], Callable[[sqlite3.Connection, Any], str]] = {
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
    CheckpointPromoted: _decided,
    CheckpointRefused: _decided,
    CheckpointRemoved: _decided,
    JobFailed: _failed,
    LeanChosen: _lean,
}
