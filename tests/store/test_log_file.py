"""events.db as a file: what is refused, what is durable, and how failures of the disk are told."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from store.errors import (
    DatabaseFullError,
    DatabaseIOError,
    DatabaseLockedError,
    DatabaseMissingError,
    LogError,
    LogVersionError,
    NotALogError,
)
from store.events.service import DaemonStopped
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.log.reader import LogReader


def stopped(number: int, *, reason: str = "test") -> list[NewEvent]:
    return [NewEvent("daemon", DaemonStopped(reason=reason, pid=number))]


def pragma(log: EventLog, name: str) -> object:
    return log._connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_the_writer_uses_wal_and_waits_for_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    for _ in range(2):  # new, and opened again
        with EventLog.open(path) as log:
            assert pragma(log, "journal_mode") == "wal"
            assert pragma(log, "synchronous") == 2  # FULL


def test_the_name_of_a_new_log_is_made_durable_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def look(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    EventLog.open(tmp_path / "events.db").close()
    anchor = (tmp_path / "events.db-anchor").stat().st_ino
    assert synced == [tmp_path.stat().st_ino, anchor, tmp_path.stat().st_ino]


def test_no_other_writer_can_come_between_what_an_append_reads_and_what_it_writes(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    with EventLog.open(path) as log:
        other = sqlite3.connect(path, isolation_level=None, timeout=0)
        refused: list[str] = []

        def look(statement: str) -> None:
            # SQLite calls this before each statement of the append.
            if statement.startswith("SELECT coalesce(max(version)"):
                try:
                    other.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError as error:
                    refused.append(str(error))

        log._connection.set_trace_callback(look)
        try:
            log.append(stopped(1), expect={"daemon": 0})
        finally:
            log._connection.set_trace_callback(None)
            other.close()
    assert refused == ["database is locked"]


def test_the_table_is_strict_and_its_sequence_is_never_used_again(tmp_path: Path) -> None:
    with EventLog.open(tmp_path / "events.db") as log:
        sql = log._connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'events'").fetchone()[0]
    assert sql.endswith("STRICT")
    assert "AUTOINCREMENT" in sql


def test_what_was_appended_is_there_after_opening_again(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    with EventLog.open(path) as log:
        log.append(stopped(1), expect={"daemon": 0})
    with EventLog.open(path) as log, log.reader() as reader:
        assert log.append(stopped(2), expect={"daemon": 1}).first_seq == 2
        assert [event.data["pid"] for event in reader.read()] == [1, 2]


def test_after_a_clean_stop_the_file_alone_is_the_whole_log(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    with EventLog.open(path) as log:
        log.append(stopped(1), expect={"daemon": 0})
    assert not path.with_name("events.db-wal").exists()


def test_a_log_of_a_newer_version_is_refused_by_writer_and_reader(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    EventLog.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 3")
    connection.close()
    with pytest.raises(LogVersionError, match="log format 3, this program reads up to 1"):
        EventLog.open(path)
    with pytest.raises(LogVersionError):
        LogReader.open(path)


@pytest.mark.parametrize("foreign", ["tables", "application"])
def test_the_database_of_another_program_is_refused_and_left_alone(tmp_path: Path, foreign: str) -> None:
    path = tmp_path / "events.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (a)" if foreign == "tables" else "PRAGMA application_id = 7")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(NotALogError):
        EventLog.open(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    path.write_bytes(b"not a database, and long enough to be read as one" * 100)
    with pytest.raises(NotALogError, match="restore a backup"):
        EventLog.open(path)
    with pytest.raises(NotALogError):
        LogReader.open(path)


def test_a_missing_folder_and_a_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatabaseIOError, match=r"create .*nowhere"):
        EventLog.open(tmp_path / "nowhere" / "events.db")
    with pytest.raises(DatabaseMissingError, match="everlean run"):
        LogReader.open(tmp_path / "events.db")


def test_s18_a_second_writer_is_refused_with_the_first_one_s_process(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    with EventLog.open(path):
        with pytest.raises(DatabaseLockedError, match=f"process {os.getpid()} writes it"):
            EventLog.open(path)
        code = (
            "import sys\nfrom pathlib import Path\nfrom store.errors import LogError\n"
            "from store.log.log import EventLog\n"
            "try:\n    EventLog.open(Path(sys.argv[1]))\nexcept LogError as error:\n    print(error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60
        )
        assert f"process {os.getpid()} writes it" in done.stdout
    EventLog.open(path).close()


def test_a_file_system_without_locks_is_named_and_no_other_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_descriptor: int, _kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.raises(
        DatabaseIOError, match=r"events\.db\.lock: cannot be locked: No locks available; put "
    ):
        EventLog.open(tmp_path / "events.db")


def test_a_full_disk_is_reported_and_costs_nothing_acknowledged(tmp_path: Path) -> None:
    with EventLog.open(tmp_path / "events.db") as log, log.reader() as reader:
        log.append(stopped(1), expect={"daemon": 0})
        pages = pragma(log, "page_count")
        pragma(log, f"max_page_count = {pages}")
        with pytest.raises(DatabaseFullError, match="free some space"):
            log.append(stopped(2, reason="x" * 100_000), expect={"daemon": 1})
        assert reader.position() == 1
        pragma(log, "max_page_count = 1000000")
        assert log.append(stopped(2), expect={"daemon": 1}).first_seq == 2


def test_a_file_size_limit_is_an_error_that_costs_nothing_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    code = """
import resource, sys
from pathlib import Path
from store.events.service import DaemonStopped
from store.log.log import EventLog
from store.log.envelope import Expect, NewEvent
from store.errors import LogError
log = EventLog.open(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
done = 0
try:
    while True:
        log.append([NewEvent("daemon", DaemonStopped(reason="x" * 5000, pid=done))], expect={"daemon": Expect.ANY})
        done += 1
except LogError as error:
    print(done, type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    acknowledged, kind = done.stdout.split()
    assert kind in {"DatabaseIOError", "DatabaseFullError"}
    assert int(acknowledged) > 0
    with LogReader.open(path) as reader:
        assert [event.data["pid"] for event in reader.read()] == list(range(int(acknowledged)))


def test_a_database_that_another_program_locks_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.db"
    monkeypatch.setattr("store.sqlite.BUSY_TIMEOUT_S", 0.05)
    with EventLog.open(path) as log:
        other = sqlite3.connect(path, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(DatabaseLockedError, match="stop the other program"):
                log.append(stopped(1), expect={"daemon": 0})
            other.execute("ROLLBACK")
        finally:
            other.close()
        assert log.append(stopped(1), expect={"daemon": 0}).first_seq == 1


def test_a_failed_append_leaves_no_transaction_open(tmp_path: Path) -> None:
    with EventLog.open(tmp_path / "events.db") as log:
        with pytest.raises(LogError):
            log.append(stopped(1), expect={"daemon": 4})
        assert not log._connection.in_transaction
        log.append(stopped(1), expect={"daemon": Expect.ANY})


def test_the_reader_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    with EventLog.open(path) as log:
        log.append(stopped(1), expect={"daemon": 0})
        with log.reader() as reader, pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader._connection.execute("CREATE TABLE t (a)")


def test_reading_does_not_hold_a_transaction_between_batches(tmp_path: Path) -> None:
    with EventLog.open(tmp_path / "events.db") as log, log.reader() as reader:
        log.append([event for number in range(3) for event in stopped(number)], expect={"daemon": 0})
        iterator = reader.read()
        next(iterator)
        busy, _, _ = log._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert busy == 0


def test_a_file_in_which_no_log_was_begun_yet_is_called_so_and_the_next_start_begins_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "events.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")  # what a daemon leaves that is killed here
    connection.close()
    with pytest.raises(DatabaseMissingError, match="no log was begun"):
        LogReader.open(path)
    EventLog.open(path).close()
    LogReader.open(path).close()
