"""A log on a disk that is full, for real: an append writes all or nothing, and goes on when there is room."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from store.errors import DatabaseFullError
from store.events.service import DaemonStopped
from store.log.backup import backup, check
from store.log.envelope import NewEvent
from store.log.log import EventLog
from store.log.reader import LogReader
from store.view.rebuild import rebuild, verify
from tests.support.daemon.disk import SmallDisk, small_disk
from tests.support.events import declaration, file_scanned, scanned, sha

SIZE_BYTES = 2 * 2**20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", size_bytes=SIZE_BYTES) as made:
        if not isinstance(made, SmallDisk):
            pytest.skip("nothing may be mounted here; the limit on the size of files is tested below")
        yield made


def event(number: int) -> NewEvent:
    return NewEvent("daemon", DaemonStopped(reason="x" * 4000, pid=number))


def fill(log: EventLog) -> int:
    """Append until the disk refuses; return how many were acknowledged."""
    for number in range(SIZE_BYTES // 4000 + 1):
        try:
            log.append([event(number)], expect={"daemon": number})
        except DatabaseFullError:
            return number
    raise AssertionError("the disk never filled up")


def test_an_append_to_a_full_disk_writes_nothing_and_the_next_one_with_room_succeeds(
    tmp_path: Path, disk: SmallDisk
) -> None:
    path = tmp_path / "disk" / "events.db"
    with EventLog.open(path) as log:
        log.append([event(0)], expect={"daemon": 0})
        disk.refuse(os.getpid())
        with pytest.raises(DatabaseFullError, match="free some space"):
            log.append([event(number) for number in range(1, 100)], expect={"daemon": 1})
        with LogReader.open(path) as reader:
            assert [item.data["pid"] for item in reader.read()] == [0]
        disk.mend()
        appended = log.append([event(number) for number in range(1, 100)], expect={"daemon": 1})
        assert (appended.first_seq, appended.last_seq) == (2, 100)
    assert check(path).ok


@pytest.mark.usefixtures("disk")
def test_a_log_that_fills_its_disk_keeps_every_acknowledged_event(tmp_path: Path) -> None:
    path = tmp_path / "disk" / "events.db"
    log = EventLog.open(path)
    acknowledged = fill(log)
    assert acknowledged > 10
    # Closing needs room for the -wal's pages in the file; without it the -wal stays, and is whole.
    with suppress(DatabaseFullError):
        log.close()
    with LogReader.open(path) as reader:
        assert [item.data["pid"] for item in reader.read()] == list(range(acknowledged))
    # Room on another disk, and life goes on there.
    copy = backup(path, tmp_path / "backup.db")
    assert copy.position == acknowledged
    with EventLog.open(tmp_path / "backup.db") as moved:
        moved.append([event(acknowledged)], expect={"daemon": acknowledged})


@pytest.mark.usefixtures("disk")
def test_a_payload_that_does_not_fit_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "disk" / "events.db"
    noise = os.urandom(SIZE_BYTES).hex()
    scan = scanned("A.lean", [declaration("a", statement=noise)])
    body, payload = file_scanned(scan, commit=sha(1), blob=sha("blob"))
    staged = tmp_path / "payload"
    staged.write_bytes(payload)
    digest = hashlib.sha256(payload).hexdigest()
    with suppress(DatabaseFullError), EventLog.open(path) as log:
        with pytest.raises(DatabaseFullError):
            log.append([NewEvent("repository:r", body)], expect={"repository:r": 0}, blobs={digest: staged})
        log.append([event(0)], expect={"daemon": 0})
    report = check(path)
    assert (report.ok, report.events, report.blobs) == (True, 1, 0)


def test_a_rebuild_that_finds_no_room_leaves_the_old_view(tmp_path: Path, disk: SmallDisk) -> None:
    path, view = tmp_path / "disk" / "events.db", tmp_path / "disk" / "database.db"
    with EventLog.open(path) as log:
        log.append([event(number) for number in range(3)], expect={"daemon": 0})
    rebuild(path, view)
    disk.refuse(os.getpid())
    with pytest.raises(DatabaseFullError):
        rebuild(path, view)
    assert [item.name for item in view.parent.glob("database.db.rebuild-*")] == []
    disk.mend()
    assert verify(path, view).ok


LIMITED = """
import json, resource, sys
from pathlib import Path
from store.errors import LogError
from store.events.service import DaemonStopped
from store.log.log import EventLog
from store.log.reader import LogReader
from store.log.envelope import NewEvent

path, unlimited = Path(sys.argv[1]), resource.getrlimit(resource.RLIMIT_FSIZE)
event = lambda number: NewEvent("daemon", DaemonStopped(reason="x" * 4000, pid=number))
with EventLog.open(path) as log:
    log.append([event(0)], expect={"daemon": 0})
    largest = max(item.stat().st_size for item in path.parent.iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, unlimited[1]))
    try:
        log.append([event(number) for number in range(1, 100)], expect={"daemon": 1})
        refused = ""
    except LogError as error:
        refused = str(error)
    with LogReader.open(path) as reader:
        kept = [item.data["pid"] for item in reader.read()]
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    after = log.append([event(1)], expect={"daemon": 1}).last_seq
print(json.dumps({"refused": refused, "kept": kept, "after": after}))
"""


def test_a_limit_on_the_size_of_files_refuses_the_append_whole(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "events.db")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert str(tmp_path / "events.db") in answer["refused"]
    assert (answer["kept"], answer["after"]) == ([0], 2)
    assert check(tmp_path / "events.db").ok
