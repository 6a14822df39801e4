"""Kill the process at the numbered crash points of the store, with SIGKILL, and look at what is left.

A child does real work on real files and dies where the test says: inside SQLite through a trace callback, or
at a random moment. What it acknowledged on standard output must be there, and nothing may be half there.
c01 to c04, c09, c11 and c12 are here; those of the daemon and its jobs in tests/daemon/test_crash_points.py.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from store.errors import LogError
from store.events.service import DaemonStopped
from store.log.backup import backup, check
from store.log.envelope import Appended, Expect, NewEvent
from store.log.log import EventLog
from store.log.reader import LogReader
from store.view.rebuild import rebuild, verify
from store.view.view import View
from tests.support.daemon import warm
from tests.support.events import Story, record, record_story

PRELUDE = """
import os, signal, sys
from pathlib import Path
from store.log.backup import backup
from store.view.view import View
from store.events.service import DaemonStopped
from store.log.log import Batch, EventLog
from store.log.envelope import Expect, NewEvent
from store.view.rebuild import rebuild
from tests.support.events import Story, record

folder = Path(sys.argv[1])

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def die_at(connection, prefix, nth=1):
    # SQLite calls this before it runs a statement.
    left = nth
    def look(statement):
        nonlocal left
        if statement.lstrip().startswith(prefix):
            left -= 1
            if left == 0:
                die()
    connection.set_trace_callback(look)

def event(number):
    return NewEvent("daemon", DaemonStopped(reason="r", pid=number), event_id=f"key-{number}")
"""


def run_until_killed(folder: Path, code: str) -> None:
    said = folder.with_name(f"{folder.name}.said")
    status = warm.start(PRELUDE + code, str(folder), output=said).wait(timeout=100)
    assert status == -signal.SIGKILL, said.read_text()


def append(folder: Path, number: int) -> Appended:
    with EventLog.open(folder / "events.db") as log:
        body = DaemonStopped(reason="r", pid=number)
        return log.append([NewEvent("daemon", body, event_id=f"key-{number}")], expect={"daemon": Expect.ANY})


def pids(folder: Path) -> list[int]:
    with LogReader.open(folder / "events.db") as reader:
        events = list(reader.read())
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.version for event in events] == list(range(1, len(events) + 1))
    return [event.data["pid"] for event in events]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log that has a story."""
    folder = tmp_path_factory.mktemp("told")
    with EventLog.open(folder / "events.db") as log:
        record_story(log, folder, seed=3, batches=40)
    return folder


@pytest.fixture
def folder(told: Path, tmp_path: Path) -> Path:
    """The same, of this test alone."""
    for name in ("events.db", "events.db-anchor"):
        shutil.copy(told / name, tmp_path)
    return tmp_path


def test_c01_killed_before_begin_nothing_is_recorded(tmp_path: Path) -> None:
    append(tmp_path, 1)
    kill_an_append_at(tmp_path, "BEGIN")
    assert pids(tmp_path) == [1]
    assert append(tmp_path, 2) == Appended(2, 2, repeated=False, versions={"daemon": 2})


@pytest.mark.parametrize("point", ["INSERT INTO events", "COMMIT"])
def test_c02_killed_between_insert_and_commit_nothing_is_recorded_and_no_number_is_lost(
    tmp_path: Path, point: str
) -> None:
    append(tmp_path, 1)
    kill_an_append_at(tmp_path, point)
    assert pids(tmp_path) == [1]
    assert append(tmp_path, 2) == Appended(2, 2, repeated=False, versions={"daemon": 2})
    assert check(tmp_path / "events.db").ok


def kill_an_append_at(folder: Path, point: str) -> None:
    run_until_killed(
        folder,
        f"""
log = EventLog.open(folder / "events.db")
die_at(log._connection, {point!r})
log.append([event(2), event(3)], expect={{"daemon": 1}})
""",
    )


def test_c02_killed_at_the_commit_of_several_batches_none_of_them_is_recorded(tmp_path: Path) -> None:
    append(tmp_path, 1)
    run_until_killed(
        tmp_path,
        """
log = EventLog.open(folder / "events.db")
die_at(log._connection, "COMMIT")
log.append_all([Batch([event(number)], {"daemon": number - 1}, {}) for number in (2, 3, 4)])
""",
    )
    assert pids(tmp_path) == [1]
    assert append(tmp_path, 2) == Appended(2, 2, repeated=False, versions={"daemon": 2})
    assert check(tmp_path / "events.db").ok


def test_c03_killed_after_the_commit_a_retry_returns_the_first_result(tmp_path: Path) -> None:
    run_until_killed(
        tmp_path,
        """
log = EventLog.open(folder / "events.db")
log.append([event(1)], expect={"daemon": 0})
die()
""",
    )
    assert append(tmp_path, 1) == Appended(1, 1, repeated=True, versions={"daemon": 1})
    assert pids(tmp_path) == [1]


def test_c02_a_log_killed_while_it_is_made_can_be_opened(tmp_path: Path) -> None:
    run_until_killed(
        tmp_path,
        """
import store.log.log
store.log.log.script = lambda name: "CREATE TABLE events (a); SELECT load_extension('die');"
try:
    EventLog.open(folder / "events.db")
finally:
    die()
""",
    )
    append(tmp_path, 1)
    assert pids(tmp_path) == [1]
    assert check(tmp_path / "events.db").ok


@pytest.mark.parametrize(
    ("statement", "nth"),
    [("INSERT INTO", 1), ("INSERT INTO", 200), ("UPDATE view_position", 3), ("COMMIT", 3)],
)
def test_c04_killed_inside_a_batch_the_rows_and_the_checkpoint_agree(
    folder: Path, statement: str, nth: int
) -> None:
    run_until_killed(
        folder,
        f"""
from store.log.reader import LogReader
from store.view.view import catch_up
log = LogReader.open(folder / "events.db")
view = View.open(folder / "database.db", log)
die_at(view._connection, {statement!r}, {nth})
catch_up(view._connection, log, batch=7)
""",
    )
    report = verify(folder / "events.db", folder / "database.db")
    assert report.differences == ()
    with LogReader.open(folder / "events.db") as log:
        assert report.position < log.position()
        with View.open(folder / "database.db", log) as view:
            assert view.catch_up() == log.position()
    assert verify(folder / "events.db", folder / "database.db").ok


@pytest.mark.parametrize("after_s", [0.0, 0.003, 0.03])
def test_c09_killed_while_a_rebuild_is_put_in_place_the_old_or_the_new_view_is_there(
    folder: Path, after_s: float
) -> None:
    rebuild(folder / "events.db", folder / "database.db")
    with closing(sqlite3.connect(folder / "database.db")) as vandal, vandal:
        vandal.execute("UPDATE commits SET author = 'old'")
        total = vandal.execute("SELECT count(*) FROM commits").fetchone()[0]
    run_until_killed(
        folder,
        f"""
import threading, time
import store.view.rebuild
install = store.view.rebuild._install
def killed_in_between(*arguments):
    threading.Thread(target=lambda: (time.sleep({after_s}), die())).start()
    install(*arguments)
    time.sleep(60)
store.view.rebuild._install = killed_in_between
rebuild(folder / "events.db", folder / "database.db")
""",
    )
    with closing(sqlite3.connect(folder / "database.db")) as view:
        old = view.execute("SELECT count(*) FROM commits WHERE author = 'old'").fetchone()[0]
        assert view.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    assert old in {0, total}
    rebuild(folder / "events.db", folder / "database.db")
    assert list(folder.glob("database.db.rebuild-*")) == []  # what the killed one left is swept
    assert verify(folder / "events.db", folder / "database.db").ok


def test_c09_killed_while_a_rebuild_reads_the_log_the_old_view_is_untouched(folder: Path) -> None:
    rebuild(folder / "events.db", folder / "database.db")
    before = (folder / "database.db").read_bytes()
    run_until_killed(
        folder,
        """
import store.view.rebuild
store.view.rebuild._position = lambda path: die()  # the new one is complete, and not yet in place
rebuild(folder / "events.db", folder / "database.db")
""",
    )
    assert len(list(folder.glob("database.db.rebuild-*"))) == 1
    assert (folder / "database.db").read_bytes() == before
    rebuild(folder / "events.db", folder / "database.db")
    assert list(folder.glob("database.db.rebuild-*")) == []
    assert verify(folder / "events.db", folder / "database.db").ok


@pytest.mark.parametrize(
    "moment",
    [
        # As soon as the copy has a first page: SQLite calls the handler while it works.
        """
import sqlite3
connect = sqlite3.connect
def watched(*arguments, **options):
    connection = connect(*arguments, **options)
    connection.set_progress_handler(look, 20)
    return connection
def look():
    if any(path.stat().st_size for path in folder.glob(".backup.db.*")):
        die()
sqlite3.connect = watched
""",
        # The copy is complete and not yet under its name.
        "os.link = lambda *_: die()\n",
    ],
    ids=["while it is written", "before it gets its name"],
)
def test_c11_killed_during_a_backup_only_a_temporary_name_is_left(folder: Path, moment: str) -> None:
    run_until_killed(folder, moment + 'backup(folder / "events.db", folder / "backup.db")\n')
    assert not (folder / "backup.db").exists()
    assert check(folder / "events.db").ok
    backup(folder / "events.db", folder / "backup.db")
    assert check(folder / "backup.db").ok


@pytest.mark.parametrize("nth", [1, 2])
def test_c11_killed_at_the_checkpoint_of_a_clean_stop_the_log_is_whole(tmp_path: Path, nth: int) -> None:
    run_until_killed(
        tmp_path,
        f"""
log = EventLog.open(folder / "events.db")
for number in range(30):
    log.append([event(number)], expect={{"daemon": number}})
if {nth} == 1:
    die_at(log._connection, "PRAGMA wal_checkpoint")
else:
    log._writer.release = die  # checkpointed and closed, the lock still held
log.close()
""",
    )
    assert pids(tmp_path) == list(range(30))
    assert append(tmp_path, 30) == Appended(31, 31, repeated=False, versions={"daemon": 31})
    assert check(tmp_path / "events.db").ok


@pytest.mark.harness
@pytest.mark.parametrize("seed", range(3))
def test_c02_c11_killed_at_random_moments_of_appends_and_checkpoints_nothing_acknowledged_is_lost(
    tmp_path: Path, seed: int, tell: Callable[[str, str], None]
) -> None:
    rng = random.Random(seed)
    acknowledged = 0
    for run in range(3):
        said = tmp_path.with_name(f"{tmp_path.name}.said-{run}")
        process = warm.start(
            PRELUDE
            + """
log = EventLog.open(folder / "events.db")
log._connection.execute("PRAGMA wal_autocheckpoint = 5")
with log.reader() as reader:
    number = reader.position()
while True:
    log.append([event(number)], expect={"daemon": number})
    number += 1
    print(number, flush=True)
""",
            str(tmp_path),
            output=said,
        )
        wanted = rng.randrange(2, 30)
        while said.read_bytes().count(b"\n") < wanted:
            assert process.poll() is None, said.read_text()
            time.sleep(0.0005)
        time.sleep(rng.random() * 0.01)
        process.kill()
        process.wait()
        acknowledged = max([acknowledged, *map(int, said.read_text().splitlines())])
        recorded = pids(tmp_path)
        assert recorded == list(range(len(recorded)))
        assert acknowledged <= len(recorded) <= acknowledged + 1
    assert acknowledged > 3
    assert check(tmp_path / "events.db").ok
    tell(f"kill -9 of a writer 3 times, seed {seed}", f"of {acknowledged} acknowledged events lost: 0")


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.77, 0.99])
def test_c12_a_wal_cut_short_by_a_power_loss_leaves_a_prefix_of_the_log(tmp_path: Path, keep: float) -> None:
    work, after = tmp_path / "work", tmp_path / "after"
    work.mkdir()
    after.mkdir()
    with EventLog.open(work / "events.db") as log:
        for number in range(30):
            log.append([NewEvent("daemon", DaemonStopped(reason="r", pid=number))], expect={"daemon": number})
        # Files as they lie on the disk while the writer lives; what was not synced is cut off.
        shutil.copy(work / "events.db", after)
        wal = (work / "events.db-wal").read_bytes()
    (after / "events.db-wal").write_bytes(wal[: int(len(wal) * keep)])
    try:
        found = pids(after)
    except LogError:
        # Nothing of the file had reached the disk yet: a new, empty log.
        assert keep == 0.0
        EventLog.open(after / "events.db").close()
        found = []
    assert found == list(range(len(found)))
    assert (len(found) > 0) == (keep > 0.2)
    with EventLog.open(after / "events.db") as log:
        log.append(
            [NewEvent("daemon", DaemonStopped(reason="r", pid=len(found)))], expect={"daemon": len(found)}
        )
    assert check(after / "events.db").ok


def test_c12_a_view_ahead_of_a_log_that_lost_its_end_is_noticed(tmp_path: Path) -> None:
    with EventLog.open(tmp_path / "events.db") as log:
        record_story(log, tmp_path, seed=3, batches=10)
    shutil.copy(tmp_path / "events.db", tmp_path / "early.db")
    story = Story(9)
    with EventLog.open(tmp_path / "events.db") as log:
        bodies, payloads = story.tell()
        record(log, bodies, folder=tmp_path / "staging", payloads=payloads)
    rebuild(tmp_path / "events.db", tmp_path / "database.db")
    os.replace(tmp_path / "early.db", tmp_path / "events.db")  # noqa: PTH105 - over an existing name, on purpose
    report = verify(tmp_path / "events.db", tmp_path / "database.db")
    assert not report.ok
    assert "restored from a backup" in str(report.differences[0])
