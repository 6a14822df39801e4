"""Backups: one consistent file while the daemon writes, and a restore that works."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from store.errors import DatabaseCorruptError, DatabaseMissingError, LogError, NotALogError
from store.events.service import DaemonStopped
from store.log.backup import backup, check
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.log.reader import LogReader
from store.view.rebuild import rebuild, verify
from tests.support.events import Story, record, record_story


def test_a_backup_taken_while_the_log_grows_is_a_whole_prefix_of_it(tmp_path: Path) -> None:
    done, begun = threading.Event(), threading.Event()
    with EventLog.open(tmp_path / "events.db") as log:

        def write() -> None:
            number = 0
            while not done.is_set():
                batch = [NewEvent("daemon", DaemonStopped(reason="r", pid=number + i)) for i in range(10)]
                log.append(batch, expect={"daemon": Expect.ANY})
                number += 10
                begun.set()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            assert begun.wait(60)
            reports = [backup(tmp_path / "events.db", tmp_path / f"backup-{n}.db") for n in range(3)]
        finally:
            done.set()
            thread.join()
    assert reports[-1].position > 0
    for report in reports:
        assert check(report.path).ok
        with LogReader.open(report.path) as reader:
            pids = [event.data["pid"] for event in reader.read()]
        assert pids == list(range(report.position))
        assert report.position % 10 == 0  # never half an append


def test_a_restored_backup_goes_on_where_it_ended(tmp_path: Path) -> None:
    story = Story(1)
    with EventLog.open(tmp_path / "events.db") as log:
        for _ in range(10):
            bodies, payloads = story.tell()
            record(log, bodies, folder=tmp_path / "staging", payloads=payloads)
        report = backup(tmp_path / "events.db", tmp_path / "backup.db")
    restored = tmp_path / "restored"
    restored.mkdir()
    report.path.rename(restored / "events.db")
    assert rebuild(restored / "events.db", restored / "database.db").position == report.position
    with EventLog.open(restored / "events.db") as log:
        bodies, payloads = story.tell()
        assert (
            record(log, bodies, folder=tmp_path / "staging", payloads=payloads).first_seq
            == report.position + 1
        )
    assert check(restored / "events.db").ok
    assert verify(restored / "events.db", restored / "database.db").ok


def test_a_backup_never_overwrites_and_leaves_nothing_behind_when_it_fails(tmp_path: Path) -> None:
    EventLog.open(tmp_path / "events.db").close()
    target = tmp_path / "backup.db"
    target.write_text("precious")
    with pytest.raises(LogError, match="exists already"):
        backup(tmp_path / "events.db", target)
    assert target.read_text() == "precious"
    with pytest.raises(LogError, match="create"):
        backup(tmp_path / "events.db", tmp_path / "nowhere" / "backup.db")
    with pytest.raises(DatabaseMissingError):
        backup(tmp_path / "nothing.db", tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


def test_a_file_that_someone_makes_while_the_backup_is_written_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    EventLog.open(tmp_path / "events.db").close()
    target = tmp_path / "backup.db"

    class Racing(sqlite3.Connection):
        def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
            if statement.startswith("VACUUM"):
                target.write_text("precious")
            return super().execute(statement, *parameters)

    monkeypatch.setattr("store.sqlite.sqlite3.connect", partial(sqlite3.connect, factory=Racing))
    with pytest.raises(LogError, match="exists already"):
        backup(tmp_path / "events.db", target)
    assert target.read_text() == "precious"
    assert [path.name for path in tmp_path.glob(".backup*")] == []


def test_a_copy_that_the_disk_damaged_gets_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EventLog.open(tmp_path / "events.db") as log:
        log.append(
            [NewEvent("d", DaemonStopped(reason="x" * 200, pid=n)) for n in range(200)], expect={"d": 0}
        )

    class Damaging(sqlite3.Connection):
        def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
            cursor = super().execute(statement, *parameters)
            if statement.startswith("VACUUM"):
                (copy,) = tmp_path.glob(".backup*")
                content = bytearray(copy.read_bytes())
                content[4096 * 8 : 4096 * 9] = b"\xff" * 4096
                copy.write_bytes(content)
            return cursor

    monkeypatch.setattr("store.sqlite.sqlite3.connect", partial(sqlite3.connect, factory=Damaging))
    with pytest.raises(DatabaseCorruptError, match=r"damaged|malformed"):
        backup(tmp_path / "events.db", tmp_path / "backup.db")
    assert list(tmp_path.glob("*backup*")) == []


@pytest.mark.parametrize("what", ["a backup", "a rebuilt view"])
def test_content_and_then_name_are_on_the_disk_when_it_returns(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_story(tmp_path / "events.db", tmp_path / "staging")
    synced: list[tuple[int, bool]] = []
    target = tmp_path / ("backup.db" if what == "a backup" else "database.db")
    fsync = os.fsync

    def look(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, target.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    if what == "a backup":
        backup(tmp_path / "events.db", target)
    else:
        rebuild(tmp_path / "events.db", target)
    assert synced == [(target.stat().st_ino, False), (tmp_path.stat().st_ino, True)]


def test_what_is_no_log_is_not_backed_up(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE t (a)")
    with pytest.raises(NotALogError):
        backup(tmp_path / "other.db", tmp_path / "backup.db")


def test_a_damaged_blob_and_a_missing_one_do_not_pass_the_check(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    with EventLog.open(path) as log:
        record_story(log, tmp_path, seed=2, batches=3)
    assert check(path).ok
    with closing(sqlite3.connect(path)) as vandal, vandal:
        for trigger in ("blobs_no_update", "blobs_no_delete"):
            vandal.execute(f"DROP TRIGGER {trigger}")
        vandal.execute("UPDATE blobs SET content = x'00' WHERE id = 1")
        vandal.execute("DELETE FROM blobs WHERE id = 2")
    problems = "\n".join(check(path).problems)
    assert "hashes to" in problems
    assert "is not in the log" in problems


def test_a_damaged_page_does_not_pass_the_check(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    with EventLog.open(path) as log:
        log.append(
            [NewEvent("daemon", DaemonStopped(reason="x" * 200, pid=n)) for n in range(200)],
            expect={"daemon": 0},
        )
    data = bytearray(path.read_bytes())
    data[4096 * 8 : 4096 * 9] = b"\xff" * 4096
    path.write_bytes(data)
    try:
        problems = "\n".join(check(path).problems)
    except LogError as error:
        problems = f"SQLite: {error}"
    assert "SQLite" in problems


def write_story(path: Path, folder: Path) -> int:
    """Write a story to a log and return its last seq."""
    with EventLog.open(path) as log, log.reader() as reader:
        record_story(log, folder, seed=3, batches=5)
        return reader.position()


VANDALS = {
    "a flipped byte of a payload": (
        "blobs_no_update",
        "UPDATE blobs SET content = flipped(content) WHERE id = 1",
        "blob ",
    ),
    "a row in the middle": ("events_no_delete", "DELETE FROM events WHERE seq = 3", "rows are missing"),
    "the last row": (
        "events_no_delete",
        "DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)",
        "but the last row is",
    ),
    "a payload that events cite": ("blobs_no_delete", "DELETE FROM blobs WHERE id = 1", "is not in the log"),
    "a letter of a field's name": (
        "events_no_update",
        "UPDATE events SET data = replace(data, '\"repository\"', '\"repositorz\"') WHERE seq = 1",
        "event 1: repository_watched version 1 has not the shape of its type",
    ),
    "a letter of a time": (
        "events_no_update",
        "UPDATE events SET recorded_at = replace(recorded_at, 'T', 'U') WHERE seq = 2",
        "event 2: its text is damaged",
    ),
    "a byte that is no text": (
        "events_no_update",
        "UPDATE events SET actor = CAST(x'ff64' AS TEXT) WHERE seq = 3",
        "event 3: its text is damaged",
    ),
    "a trigger": ("events_append_only", "SELECT 1", "trigger events_append_only is gone"),
    "an index": ("events_no_update", "DROP INDEX events_by_type", "index events_by_type is gone"),
}


@pytest.mark.parametrize("what", VANDALS)
def test_every_kind_of_loss_is_found_even_where_the_triggers_were_put_back(what: str, tmp_path: Path) -> None:
    trigger, vandalism, finding = VANDALS[what]
    path = tmp_path / "events.db"
    write_story(path, tmp_path / "staging")
    assert check(path).ok
    with closing(sqlite3.connect(path)) as vandal, vandal:
        vandal.create_function("flipped", 1, lambda data: data[:9] + bytes([data[9] ^ 1]) + data[10:])
        made = vandal.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (trigger,)).fetchone()[0]
        vandal.execute(f"DROP TRIGGER {trigger}")
        vandal.execute(vandalism)
        if what != "a trigger":
            vandal.execute(made)
    problems = check(path).problems
    assert [problem for problem in problems if finding in problem], problems
    assert what == "a trigger" or not [problem for problem in problems if "trigger" in problem]


def test_a_trigger_that_was_weakened_under_its_name_is_found(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    write_story(path, tmp_path / "staging")
    with closing(sqlite3.connect(path)) as vandal, vandal:
        vandal.execute("DROP TRIGGER events_no_update")
        vandal.execute("CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN SELECT 1; END")
    assert check(path).problems == (
        "trigger events_no_update is not what it should be: rows may have been changed",
    )
