"""Import what LeanDojo made: all of it is read and checked first, then it is recorded, then the view catches up.

A file that has a mistake leaves no event. A kill while recording leaves a trace that is not closed, which nobody sees
and which the same import completes. What is in the log already, word for word, is not written again; a repository
whose record changed is the same trace, closed anew with the differences.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from store import queries
from store.leandojo.reading import Read, Record, read
from store.leandojo.records import Form
from store.leandojo.staging import Staging
from store.log import EventLog
from store.recording import RecordedTrace, TraceHead, record_trace
from store.traced import TracedFile
from store.view import View

Progress = Callable[[str, int, int], object]
"""Called with what goes on ("reading", "recording", "projecting"), how much is done, and of how much."""


@dataclass(frozen=True, slots=True)
class ImportedTrace:
    """One repository of an import, and what was recorded of it (`repeated`: the log had all of it)."""

    head: TraceHead
    recorded: RecordedTrace


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did. `path` is the file or folder that was read, `position` the last event of the log."""

    path: Path
    form: Form
    traces: tuple[ImportedTrace, ...]
    notes: tuple[str, ...]
    seconds: float
    position: int

    @property
    def repeated(self) -> bool:
        """Whether there was something, and nothing of it was new."""
        return bool(self.traces) and all(item.recorded.repeated for item in self.traces)


def import_leandojo(
    path: Path, *, events_db: Path, database_db: Path, stage: Path, progress: Progress | None = None
) -> ImportReport:
    """Record a dynamic_database.json or a dataset folder; the caller keeps the daemon away meanwhile.

    The log and its view are made where there are none, but not for a file that has a mistake. `stage` is a folder for
    payloads on their way into the log: what lies there is deleted, before and after.

    Raises:
        ImportFormatError: the file or folder is not what LeanDojo writes; nothing was recorded.
        LogError: a file cannot be read, or the log, its view or the temporary file cannot be written.
    """
    started = time.monotonic()
    told = progress or _silent
    with Staging() as staging:
        found = read(path, staging, progress=lambda done, total: told("reading", done, total))
        with EventLog.open(events_db) as log, log.reader() as reader, View.open(database_db, reader) as view:
            view.catch_up()
            with closing(queries.connect(database_db)) as questions:
                _clear(stage)
                try:
                    traces = tuple(
                        _record(log, staging, found, record, stage=stage, view=questions, progress=told)
                        for record in found.records
                    )
                finally:
                    _clear(stage)
            told("projecting", 0, 1)
            position = view.catch_up()
    return ImportReport(
        path=found.path,
        form=found.form,
        traces=traces,
        notes=found.notes,
        seconds=time.monotonic() - started,
        position=position,
    )


def _record(
    log: EventLog,
    staging: Staging,
    found: Read,
    record: Record,
    *,
    stage: Path,
    view: sqlite3.Connection,
    progress: Progress,
) -> ImportedTrace:
    head, number = record.head, record.number
    manifest = staging.manifest(
        number, form=record.form, metadata=record.metadata, extra=record.extra, beside=found.beside
    )

    def files() -> Iterator[TracedFile]:
        for done, file in enumerate(staging.files(number, url=head.url, commit=head.sha)):
            progress("recording", done, len(manifest.files))
            yield file

    recorded = record_trace(
        log, trace=head, files=files(), stage=stage, manifest=manifest, view=view, actor="import"
    )
    return ImportedTrace(head, recorded)


def _clear(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _silent(_what: str, _done: int, _total: int) -> None:
    """Nobody watches."""
