"""Reading while the writer is up, after it was killed, and after a clean stop, with and without write access."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store.errors import DatabaseIOError, DatabaseReadOnlyError
from store.events.service import DaemonStopped
from store.log.backup import backup
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.log.reader import LogReader
from store.view import queries
from store.view.view import View
from tests.support.daemon import warm

WRITER = """
import signal, sys
from pathlib import Path
from store.view.view import View
from store.events.service import DaemonStopped
from store.log.log import EventLog
from store.log.envelope import Expect, NewEvent
# Before any thread exists: a thread that does not block the signal would end the process by it.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
folder = Path(sys.argv[1])
log = EventLog.open(folder / "events.db")
reader = log.reader()
view = View.open(folder / "database.db", reader)
for number in range(20):
    log.append([NewEvent("daemon", DaemonStopped(reason="r", pid=number))], expect={"daemon": Expect.ANY})
view.catch_up()
print("ready", flush=True)
signal.sigwait({signal.SIGTERM})
view.close()
reader.close()
log.close()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user could reach, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="everlean-"))
    path.chmod(0o755)
    yield path
    path.chmod(0o755)
    shutil.rmtree(path)


@pytest.fixture
def writer(folder: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Has both files open; SIGTERM is a clean stop."""
    said = tmp_path / "said"
    process = warm.start(WRITER, str(folder), output=said)
    try:
        while said.read_text() != "ready\n":
            assert process.poll() is None, said.read_text()
            time.sleep(0.001)
        yield process
    finally:
        process.kill()
        process.wait()


def stop(writer: subprocess.Popen[bytes]) -> None:
    writer.terminate()
    assert writer.wait(timeout=60) == 0


def read_both(folder: Path) -> tuple[int, int]:
    with LogReader.open(folder / "events.db") as reader:
        events = len(list(reader.read()))
    view = queries.connect(folder / "database.db")
    try:
        return events, queries.position(view)
    finally:
        view.close()


def without_write_access(folder: Path, work: Callable[[], None]) -> None:
    """Run `work` in a child that may read the folder and not write it."""
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            assert not os.access(folder, os.W_OK)
            work()
            status = 0
        except BaseException:  # noqa: BLE001 - a forked child must end here, whatever happens
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_readers_work_after_the_writer_was_killed(folder: Path, writer: subprocess.Popen[bytes]) -> None:
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert (folder / "events.db-wal").stat().st_size > 0
    assert read_both(folder) == (20, 20)


def test_readers_work_after_a_clean_stop_in_a_folder_that_they_cannot_write(
    folder: Path, writer: subprocess.Popen[bytes]
) -> None:
    stop(writer)
    assert not (folder / "events.db-wal").exists()

    def work() -> None:
        assert read_both(folder) == (20, 20)

    without_write_access(folder, work)


def test_who_may_only_read_can_take_a_backup_elsewhere_after_a_clean_stop(
    folder: Path, writer: subprocess.Popen[bytes]
) -> None:
    stop(writer)

    with tempfile.TemporaryDirectory() as elsewhere:
        Path(elsewhere).chmod(0o777)

        def work() -> None:
            assert backup(folder / "events.db", Path(elsewhere, "backup.db")).position == 20

        without_write_access(folder, work)


def test_of_a_file_that_may_not_be_read_it_is_said(folder: Path) -> None:
    EventLog.open(folder / "events.db").close()

    def work() -> None:
        (folder / "events.db").chmod(0)
        with pytest.raises(DatabaseIOError, match="this user must be allowed to read it"):
            LogReader.open(folder / "events.db")

    if os.getuid() == 0:
        for path in (folder, *folder.iterdir()):
            os.chown(path, 65534, 65534)
    without_write_access(folder, work)


def test_readers_work_after_a_stop_beside_another_reader_in_a_folder_that_they_cannot_write(
    folder: Path,
) -> None:
    path = folder / "events.db"
    with EventLog.open(path) as log, log.reader():
        log.append([NewEvent("daemon", DaemonStopped(reason="r", pid=1))], expect={"daemon": 0})
        log.close()
    (folder / "events.db-shm").unlink()
    assert (folder / "events.db-wal").stat().st_size == 0

    def work() -> None:
        with LogReader.open(path) as reader:
            assert reader.position() == 1

    without_write_access(folder, work)


def test_readers_work_beside_the_writer_in_a_folder_that_they_cannot_write(
    folder: Path, writer: subprocess.Popen[bytes]
) -> None:
    def work() -> None:
        assert read_both(folder) == (20, 20)

    without_write_access(folder, work)


def test_a_wal_that_cannot_be_read_along_is_an_error_and_never_an_old_state(
    folder: Path, writer: subprocess.Popen[bytes]
) -> None:
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    (folder / "events.db-shm").unlink()

    def work() -> None:
        with pytest.raises(DatabaseReadOnlyError, match=r"events\.db-wal holds changes"):
            LogReader.open(folder / "events.db")

    without_write_access(folder, work)


def test_a_reader_follows_a_writer_that_was_killed_and_started_again(folder: Path) -> None:
    path = folder / "events.db"
    log = EventLog.open(path)
    log.append([NewEvent("daemon", DaemonStopped(reason="r", pid=1))], expect={"daemon": 0})
    with log.reader() as reader:
        log.close()
        with EventLog.open(path) as again:
            again.append(
                [NewEvent("daemon", DaemonStopped(reason="r", pid=2))], expect={"daemon": Expect.ANY}
            )
            assert [event.data["pid"] for event in reader.read()] == [1, 2]


def test_the_view_can_be_asked_from_a_read_only_folder_without_leaving_files(folder: Path) -> None:
    with EventLog.open(folder / "events.db") as log, log.reader() as reader:
        View.open(folder / "database.db", reader).close()
    before = sorted(path.name for path in folder.iterdir())

    def work() -> None:
        view = queries.connect(folder / "database.db")
        assert queries.service(view) is None
        view.close()

    without_write_access(folder, work)
    assert sorted(path.name for path in folder.iterdir()) == before
