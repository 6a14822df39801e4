"""The semantics of what follows from the log: projections, rebuilds, restore points, the outbox, artifacts.

`s06` to `s19` in the names are the numbers of the log's semantics (tests/store/test_numbers.py lists them all).
More of s08 to s12 is in test_view.py, of s16 to s18 in tests/daemon, and what concerns a log alone in
test_log_conformance.py.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pipeline.jobs.protocol import JobSpec, Reporter
from store.errors import BlobCorruptError
from store.events.jobs import JobSucceeded
from store.events.repositories import RepositoryUnwatched
from store.events.service import ConfigLoaded
from store.log.backup import backup
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.view import queries
from store.view.asof import Copies, find
from store.view.rebuild import rebuild, verify
from store.view.tables import NOT_PROJECTED
from store.view.view import View, catch_up, open_view
from tests.store.conftest import Place
from tests.support.events import (
    PATCH,
    REPOSITORY,
    Story,
    attempt,
    declaration,
    job_started,
    observed,
    place,
    proof_found,
    proof_rejected,
    proof_verified,
    record,
    record_story,
    samples,
    scanned,
    sha,
    watched,
)

Answer = TypeVar("Answer")


def ask(path: Path, question: Callable[[sqlite3.Connection], Answer]) -> Answer:
    with closing(queries.connect(path)) as connection:
        return question(connection)


def dump(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Every row that a projection wrote, by table."""
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {
        name: sorted(repr(tuple(row)) for row in connection.execute(f'SELECT * FROM "{name}"'))
        for name in names
        if name not in NOT_PROJECTED
    }


def test_s06_a_wrong_fact_is_taken_back_by_another_one_and_both_stay_recorded(it: Place) -> None:
    scan = scanned("A.lean", [declaration("a")], with_sorry=["a"])
    found = proof_found("5" * 16, place(scan, scan.sorries[0], blob=sha("b")), commit=sha(1))
    record(it.log, [found, proof_verified(found)], folder=it.folder, payloads=[PATCH])
    with View.open(it.paths[1], it.reader) as view:
        view.catch_up()
        assert [row.state for row in ask(it.paths[1], queries.proofs)] == ["verified"]
        record(it.log, [proof_rejected(found)], folder=it.folder)
        view.catch_up()
    assert [row.state for row in ask(it.paths[1], queries.proofs)] == ["rejected"]
    assert [event.type for event in it.reader.read()] == ["proof_found", "proof_verified", "proof_rejected"]


def test_s09_at_every_moment_of_a_catch_up_rows_and_checkpoint_are_those_of_one_event(it: Place) -> None:
    record(it.log, [watched()], folder=it.folder)
    for number in range(1, 40):
        record(it.log, [observed(sha(number), parent=sha(number - 1))], folder=it.folder)
    moments: list[tuple[int, int]] = []
    with closing(open_view(it.paths[1])) as writing, closing(queries.connect(it.paths[1])) as other:

        def look(_statement: str) -> None:
            # SQLite calls this before each statement of the writer; `other` sees what is committed.
            commits = other.execute("SELECT count(*) FROM commits").fetchone()[0]
            moments.append((queries.position(other), commits))

        writing.set_trace_callback(look)
        catch_up(writing, it.reader, batch=7)
        writing.set_trace_callback(None)
    assert {position for position, _ in moments} >= {0, 7, 14, 35}
    assert {(position, max(position - 1, 0)) for position, _ in moments} == set(moments)


def test_s11_a_cancelled_rebuild_leaves_the_old_view_and_no_file(
    it: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_story(it.log, it.folder)
    with View.open(it.paths[1], it.reader) as view:
        view.catch_up()
    before = it.paths[1].read_bytes()

    def ctrl_c(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as while_it_builds:
        while_it_builds.setattr("store.view.view.apply", ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            rebuild(*it.paths)
    assert it.paths[1].read_bytes() == before
    assert list(it.folder.glob("database.db.rebuild-*")) == []
    assert rebuild(*it.paths).position == it.reader.position()


def test_s12_the_hashes_of_a_verify_are_those_of_any_other_view_of_the_same_log(it: Place) -> None:
    record_story(it.log, it.folder)
    other = it.folder / "other" / "database.db"
    other.parent.mkdir()
    rebuild(*it.paths)
    with closing(open_view(other)) as connection:
        catch_up(connection, it.reader, batch=3)
    one, two = verify(*it.paths), verify(it.paths[0], other)
    assert one.ok
    assert two.ok
    assert (one.hashes, one.rows, one.position) == (two.hashes, two.rows, it.reader.position())


WATCHED = """
import os, sys
from pathlib import Path
from store.log.reader import LogReader
from store.view.rebuild import rebuild, verify
from store.view.view import View

folder = Path(sys.argv[1])
scratch = folder / "scratch"
scratch.mkdir()
allowed = (str(folder / "database.db"), str(scratch))
done = []

def look(event, arguments):
    if event.startswith(("subprocess.", "socket.", "urllib.", "http.", "smtplib.", "ftplib.", "webbrowser.")):
        done.append((event, arguments))
    elif event in ("os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.kill"):
        done.append((event, arguments))
    elif event in ("os.remove", "os.rename", "os.mkdir", "os.chmod", "os.link", "shutil.rmtree"):
        named = [str(path) for path in arguments if isinstance(path, (str, os.PathLike))]
        done.extend((event, path) for path in named if not path.startswith(allowed))
    elif event == "open":
        path, mode, flags = arguments
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and not str(path).startswith(allowed):
            done.append((event, arguments))

def all_of_it():
    with LogReader.open(folder / "events.db") as log, View.open(folder / "database.db", log) as view:
        view.catch_up()
    rebuild(folder / "events.db", folder / "database.db")
    assert verify(folder / "events.db", folder / "database.db", scratch=scratch).ok

all_of_it()  # everything is imported now
for path in folder.glob("database.db*"):
    path.unlink()
sys.addaudithook(look)
all_of_it()
print(done)
"""


def test_s13_a_projection_and_a_rebuild_have_no_effect_but_on_the_view(
    paths: tuple[Path, Path], tmp_path: Path
) -> None:
    """Of a log with jobs, candidates, proofs and patches: nothing is started, sent, or written elsewhere.

    A verification writes into its scratch folder alone.
    """
    with EventLog.open(paths[0]) as log:
        record_story(log, tmp_path)
        record_story(log, tmp_path, seed=1)
    before = hashlib.sha256(paths[0].read_bytes()).hexdigest()
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(tmp_path)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
    assert hashlib.sha256(paths[0].read_bytes()).hexdigest() == before


def test_s14_a_backup_is_a_restore_point_the_view_of_its_position_and_the_log_has_no_snapshots(
    it: Place,
) -> None:
    record_story(it.log, it.folder)
    with View.open(it.paths[1], it.reader) as view:
        view.catch_up()
    then = ask(it.paths[1], dump)
    restored = it.folder / "restored"
    restored.mkdir()
    report = backup(it.paths[0], restored / "events.db")
    assert report.position == it.reader.position()
    record_story(it.log, it.folder, seed=1)
    rebuild(restored / "events.db", restored / "database.db")
    assert ask(restored / "database.db", dump) == then
    with closing(sqlite3.connect(restored / "events.db")) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert tables == {"events", "blobs", "chain", "sqlite_sequence"}


def test_s15_the_view_as_of_an_event_is_what_it_was_when_that_event_was_the_last(it: Place) -> None:
    story = Story(5)
    lived: dict[int, dict[str, list[str]]] = {}
    with View.open(it.paths[1], it.reader) as view:
        for _ in range(8):
            bodies, payloads = story.tell()
            record(it.log, bodies, folder=it.folder / "staging", payloads=payloads)
            position = view.catch_up()
            lived[position] = ask(it.paths[1], dump)
    copies = Copies(it.folder / "copies")
    for position in reversed(lived):
        with closing(copies.open(it.reader, find(it.reader, position))) as connection:
            assert dump(connection) == lived[position]


def test_s15_a_log_that_was_restored_and_went_another_way_is_not_answered_from_the_copies_of_before(
    it: Place,
) -> None:
    copies = Copies(it.folder / "copies")
    record_story(it.log, it.folder, batches=6)
    common = backup(it.paths[0], it.folder / "restored.db").position
    record_story(it.log, it.folder, seed=1)
    moment = find(it.reader, common + 5)
    copies.make(it.reader, find(it.reader, common))
    copies.make(it.reader, moment)
    with EventLog.open(it.folder / "restored.db") as restored, restored.reader() as other:
        record_story(restored, it.folder, seed=2)
        assert copies.ready(other, find(other, common)) is not None  # so far they are one log
        assert copies.ready(other, find(other, moment.seq)) is None
        assert copies.start(other, find(other, moment.seq + 1)) == common
        with (
            closing(copies.open(other, find(other, moment.seq))) as as_of,
            closing(Copies(it.folder / "own").open(other, find(other, moment.seq))) as built,
        ):
            assert dump(as_of) == dump(built)


def test_s16_the_log_is_the_outbox_a_started_attempt_is_recorded_once_and_open_until_its_end_is(
    it: Place,
) -> None:
    key = ("job_started", "scan-1", "1")
    start = job_started("scan-1")
    assert not record(it.log, [start], folder=it.folder, stream="job:scan-1", keys=["-".join(key)]).repeated
    # Whoever claims the same attempt again (a runner that was killed, or does not know) claims nothing new.
    assert record(it.log, [start], folder=it.folder, stream="job:scan-1", keys=["-".join(key)]).repeated
    with View.open(it.paths[1], it.reader) as view:
        view.catch_up()

        def running(database: sqlite3.Connection) -> list[tuple[str, int]]:
            return [(row.job, row.attempt) for row in queries.jobs(database, state="running")]

        assert ask(it.paths[1], running) == [("scan-1", 1)]
        record(it.log, [job_started("scan-1", attempt=2)], folder=it.folder, stream="job:scan-1")
        end = JobSucceeded(job="scan-1", attempt=1, seconds=1.0, peak_rss_bytes=None, summary={})
        record(it.log, [end], folder=it.folder, stream="job:scan-1")
        view.catch_up()
        assert ask(it.paths[1], running) == [("scan-1", 2)]  # the late end of attempt 1 ends attempt 1 alone
        record(it.log, [end.model_copy(update={"attempt": 2})], folder=it.folder, stream="job:scan-1")
        view.catch_up()
        assert ask(it.paths[1], running) == []
    assert [event.version for event in it.reader.read_stream("job:scan-1")] == [1, 2, 3, 4]


def test_s16_what_an_attempt_learnt_is_recorded_once_however_often_it_is_requested(it: Place) -> None:
    scan = scanned("A.lean", [declaration("a")], with_sorry=["a"])
    learnt = attempt("5" * 16, place(scan, scan.sorries[0], blob=sha("b")), commit=sha(1))
    for number in range(3):
        again = record(it.log, [learnt], folder=it.folder, keys=["job-1/attempt-1"])
        assert (again.first_seq, again.repeated) == (1, number > 0)
    assert it.reader.position() == 1


def test_s17_an_artifact_has_its_hash_for_a_name_only_when_it_is_complete_and_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = JobSpec("train-1", "train", 1, tmp_path, None)
    payload = b"weights" * 1000
    name = hashlib.sha256(payload).hexdigest()
    at_sync: list[tuple[list[str], int]] = []
    fsync = os.fsync

    def look(descriptor: int) -> None:
        names = [path.name for path in spec.staging.iterdir()]
        at_sync.append((names, os.fstat(descriptor).st_size))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    reference = Reporter(spec, StringIO()).stage(payload)
    ((names, size),) = at_sync
    assert name not in names
    assert size == len(payload)
    assert (reference.sha256, reference.size_bytes) == (name, len(payload))
    assert [path.name for path in spec.staging.iterdir()] == [name]


def test_s17_an_artifact_cut_short_on_its_way_is_never_recorded(it: Place) -> None:
    spec = JobSpec("train-1", "train", 1, it.folder, None)
    reference = Reporter(spec, StringIO()).stage(PATCH)
    staged = spec.staging / reference.sha256
    staged.write_bytes(PATCH[:-1])
    citing = samples()["proof_verified"]
    with pytest.raises(BlobCorruptError):
        it.log.append(
            [NewEvent("p", citing)], expect={"p": Expect.NO_STREAM}, blobs={reference.sha256: staged}
        )
    assert it.reader.position() == 0


def test_s19_the_watchlist_and_the_configuration_in_force_are_known_as_of_any_event(it: Place) -> None:
    def loaded(letter: str, settings: dict[str, Any]) -> ConfigLoaded:
        return ConfigLoaded(path="config.toml", digest=letter * 64, settings=settings)

    record(it.log, [loaded("a", {"poll": {"every_s": 60.0}})], folder=it.folder, stream="config")
    record(it.log, [watched(every_s=60.0)], folder=it.folder)
    record(it.log, [loaded("b", {"poll": {"every_s": 90.0}})], folder=it.folder, stream="config")
    record(it.log, [watched(every_s=90.0)], folder=it.folder)
    record(it.log, [RepositoryUnwatched(repository=REPOSITORY)], folder=it.folder)
    copies = Copies(it.folder / "copies")

    def as_of(position: int) -> tuple[str, list[tuple[float, bool]]]:
        with closing(copies.open(it.reader, find(it.reader, position))) as view:
            service = queries.service(view)
            assert service is not None
            entries = [(row.every_s, row.watched) for row in queries.repositories(view)]
            return service.config_digest[0], entries

    assert [as_of(position) for position in range(1, 6)] == [
        ("a", []),
        ("a", [(60.0, True)]),
        ("b", [(60.0, True)]),
        ("b", [(90.0, True)]),
        ("b", [(90.0, False)]),
    ]
