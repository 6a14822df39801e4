"""A scan that is recorded in parts counts once it is closed, and then as if it had been one batch."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from store.domain.identity import sorry_id
from store.events.base import EventBody
from store.events.scans import FileScanned, ScanBegun, SorryOpened
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.log.reader import LogReader
from store.view import queries
from store.view.rebuild import verify
from store.view.tables import NOT_PROJECTED, table_list
from store.view.view import View
from tests.support.events import (
    BRANCH,
    REPOSITORY,
    STREAM,
    commit_scanned,
    declaration,
    file_scanned,
    observed,
    place,
    scanned,
    sha,
    stage,
    watched,
)

NAMES = ("a", "b", "c", "d")
BEGUN = ScanBegun(repository=REPOSITORY, branch=BRANCH, sha=sha(1))


def a_scan(names: Sequence[str]) -> tuple[FileScanned, list[EventBody], bytes]:
    """Return the events of a file with one sorry a declaration, and its payload."""
    scan = scanned("A.lean", [declaration(name) for name in names], with_sorry=names)
    body, payload = file_scanned(scan, commit=sha(1), blob=sha("blob", 1))
    opened: list[EventBody] = []
    for sorry in scan.sorries:
        spot = place(scan, sorry, blob=sha("blob", 1))
        identity = sorry_id(REPOSITORY, sorry.declaration, spot.statement_hash, 0)
        opened.append(
            SorryOpened(
                repository=REPOSITORY,
                branch=BRANCH,
                sha=sha(1),
                sorry=identity,
                place=spot,
                reopened=False,
            )
        )
    return body, opened, payload


def append(
    log: EventLog, bodies: Sequence[EventBody], *, attempt: str, folder: Path, payload: bytes = b""
) -> None:
    blobs = stage(folder, payload)[1] if payload else {}
    events = [NewEvent(STREAM, body, causation_id=f"attempt {attempt}") for body in bodies]
    log.append(events, expect={STREAM: Expect.ANY}, blobs=blobs)


def rows(view: sqlite3.Connection) -> dict[str, list[tuple[Any, ...]]]:
    """Return what the view says of the source, without the positions in the log and its times."""
    tables = ("files", "declarations", "tallies", "sorries", "commits", "branches")
    left = {"seq", "scanned_seq", "opened_at", "first_seen_at", "observed_at", "recorded_at"}
    found = {}
    for table in table_list():
        if table.name in tables and table.name not in NOT_PROJECTED:
            columns = ", ".join(f'"{column}"' for column in table.columns if column not in left)
            select = f"SELECT {columns} FROM {table.name}"
            found[table.name] = sorted(map(tuple, view.execute(select)), key=repr)
    return found


def story(folder: Path, *, parts: bool, abandoned: bool = False) -> dict[str, list[tuple[Any, ...]]]:
    folder.mkdir()
    staging = folder / "staging"
    body, opened, payload = a_scan(NAMES)
    with (
        EventLog.open(folder / "events.db") as log,
        LogReader.open(folder / "events.db") as reader,
        View.open(folder / "database.db", reader) as view,
    ):
        log.append(
            [NewEvent(STREAM, one) for one in (watched(), observed(sha(1)))], expect={STREAM: Expect.ANY}
        )
        if abandoned:
            other, came, wrong = a_scan(("x", "y"))
            append(log, [BEGUN, other, *came], attempt="1", folder=staging, payload=wrong)
        if parts:
            append(log, [BEGUN, body], attempt="2", folder=staging, payload=payload)
            append(log, opened[:2], attempt="2", folder=staging)
            view.catch_up()
            with closing(queries.connect(folder / "database.db")) as half:
                assert not any(rows(half)[table] for table in ("files", "declarations", "sorries", "tallies"))
            append(log, [*opened[2:], commit_scanned(sha(1))], attempt="2", folder=staging)
        else:
            append(log, [body, *opened, commit_scanned(sha(1))], attempt="1", folder=staging, payload=payload)
        view.catch_up()
        with closing(queries.connect(folder / "database.db")) as whole:
            assert whole.execute("SELECT count(*) FROM unfinished_scans").fetchone()[0] == 0
            found = rows(whole)
    assert verify(folder / "events.db", folder / "database.db").differences == ()
    return found


def test_parts_change_nothing_before_they_are_closed_and_then_give_the_rows_of_one_batch(
    tmp_path: Path,
) -> None:
    assert story(tmp_path / "parts", parts=True) == story(tmp_path / "whole", parts=False)


def test_what_an_attempt_left_unfinished_counts_for_nothing_in_the_next(tmp_path: Path) -> None:
    whole = story(tmp_path / "whole", parts=False)
    assert story(tmp_path / "parts", parts=True, abandoned=True) == whole
