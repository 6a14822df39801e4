"""Says what is amiss with what a killed daemon left: in its log, its view, and among the processes.

`faults` looks at the files alone, so that it may be asked while nothing runs.
"""

from __future__ import annotations

import sqlite3
import subprocess
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import psutil

from daemon.place.paths import Paths
from pipeline.jobs.child import MARK
from store.errors import DatabaseMissingError, LogError
from store.log.envelope import StoredEvent
from store.log.reader import LogReader
from store.view import queries
from store.view.rebuild import verify

ENDS = ("job_succeeded", "job_failed", "job_interrupted", "job_cancelled")


def read(paths: Paths) -> list[StoredEvent]:
    """The whole log; empty if the file is missing."""
    try:
        with LogReader.open(paths.events_db) as log:
            return list(log.read())
    except LogError:
        return []


def faults(events: Sequence[StoredEvent], *, before: Sequence[StoredEvent]) -> list[str]:
    """Say what is wrong with a log of which `before` was read earlier: gaps, changed or lost events, doubles."""
    found = []
    if list(events[: len(before)]) != list(before):
        found.append("what was read before is not a prefix of the log any more")
    if [event.seq for event in events] != list(range(1, len(events) + 1)):
        found.append("the sequence has gaps")
    versions: Counter[str] = Counter()
    for event in events:
        versions[event.stream] += 1
        if event.version != versions[event.stream]:
            found.append(
                f"{event.stream} has version {event.version} as its event number {versions[event.stream]}"
            )
    found += [
        f"{event_id} twice" for event_id, times in Counter(e.event_id for e in events).items() if times > 1
    ]
    for kind in ("job_started", "job_succeeded"):
        # An attempt begins once, and a job succeeds once.
        keys = [
            (event.stream, event.data["attempt"] if kind == "job_started" else 0)
            for event in events
            if event.type == kind
        ]
        found += [f"{kind} {key} {times} times" for key, times in Counter(keys).items() if times > 1]
    return found


def open_attempts(events: Sequence[StoredEvent]) -> set[tuple[str, int]]:
    """The attempts that began and have no end."""
    began = {(event.stream, event.data["attempt"]) for event in events if event.type == "job_started"}
    return began - {(event.stream, event.data["attempt"]) for event in events if event.type in ENDS}


def differences(paths: Paths) -> list[str]:
    """What a rebuild of the view has otherwise than the view; nothing where they agree, or where no view was made yet.

    A kill while the view is created leaves a file without tables, and the next start creates it.
    """
    if not (paths.events_db.exists() and paths.database_db.exists()):
        return []
    with closing(sqlite3.connect(f"file:{paths.database_db}?mode=ro", uri=True)) as view:
        if view.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
            return []
    return [str(difference) for difference in verify(paths.events_db, paths.database_db).differences]


def settled(paths: Paths, tip: str) -> bool:
    """Whether the tip is scanned and traced, each sorry of it was tried, and nothing is under way or due."""
    events = read(paths)
    of_tip = {event.type for event in events if event.data.get("sha") == tip}
    found = {event.data["proof"] for event in events if event.type == "proof_found"}
    judged = {
        event.data["proof"]
        for event in events
        if event.type in ("proof_checked", "proof_verified", "proof_rejected")
    }
    tried = {event.data["sorry"] for event in events if event.type == "attempt_finished"}
    try:
        with closing(queries.connect(paths.database_db)) as view:
            still_open = {row.sorry for row in queries.sorries(view) if row.state == "open"}
    except (sqlite3.OperationalError, DatabaseMissingError):
        return False  # the daemon makes the view at this moment
    return (
        {"commit_scanned", "commit_traced"} <= of_tip
        and found <= judged
        and still_open <= tried
        and not open_attempts(events)
    )


def orphans(paths: Paths) -> list[int]:
    """The processes, wherever they went, that were started for any attempt of a job."""
    found = []
    for process in psutil.process_iter():
        try:
            mark = process.environ().get(MARK, "")
        except (psutil.Error, OSError):
            continue
        if mark and Path(mark).is_relative_to(paths.jobs):
            found.append(process.pid)
    return found


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL, and reap."""
    process.kill()
    process.wait()
