"""The view follows from the log: batches, restarts, rebuilds and verifies all lead to the same rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from store.errors import (
    DatabaseLockedError,
    DatabaseMissingError,
    LogClosedError,
    LogError,
    MalformedEventError,
    UnknownEventError,
    ViewError,
)
from store.events.base import EventBody
from store.events.service import DaemonStopped
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.view import queries
from store.view.counts import count_all
from store.view.reading import read
from store.view.rebuild import rebuild, verify
from store.view.rows import TheoremRow
from store.view.view import View, catch_up, open_view
from tests.store.conftest import Place
from tests.support.events import (
    BRANCH,
    PATCH,
    REPOSITORY,
    Story,
    commit_scanned,
    declaration,
    digest,
    file_scanned,
    observed,
    record,
    record_story,
    sample_steps,
    scanned,
    sha,
    theorems_followed,
    watched,
)


def dump(path: Path) -> dict[str, list[str]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        names = [
            row[0]
            for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1")
        ]
        return {
            name: sorted(repr(row) for row in connection.execute(f"SELECT * FROM {name}")) for name in names
        }


def ask(path: Path, question: Callable[[sqlite3.Connection], object]) -> object:
    with closing(queries.connect(path)) as connection:
        return question(connection)


@pytest.mark.parametrize("seed", range(3))
def test_s10_batches_of_any_size_and_restarts_lead_to_the_rows_of_a_rebuild(it: Place, seed: int) -> None:
    story = Story(seed)
    for number in range(25):
        bodies, payloads = story.tell()
        record(it.log, bodies, folder=it.folder / "staging", payloads=payloads)
        if number % (seed + 2) == 0:
            with View.open(it.paths[1], it.reader) as view:
                assert view.catch_up() == it.reader.position()
    with closing(open_view(it.paths[1])) as connection:
        catch_up(connection, it.reader, batch=seed + 1)
    live = dump(it.paths[1])
    assert any(live["sorry_steps"])
    report = verify(*it.paths)
    assert report.differences == ()
    assert report.rows["commits"] > 3
    rebuild(*it.paths)
    assert dump(it.paths[1]) == live
    it.paths[1].unlink()
    rebuild(*it.paths)
    assert dump(it.paths[1]) == live


def test_s10_catching_up_again_changes_nothing(it: Place) -> None:
    record_story(it.log, it.folder, batches=30)
    with View.open(it.paths[1], it.reader) as view:
        position = view.catch_up()
        before = dump(it.paths[1])
        assert view.catch_up() == position == it.reader.position()
    assert dump(it.paths[1]) == before


def test_s08_an_unknown_type_stops_the_view_before_it_and_the_reason_can_be_asked(it: Place) -> None:
    record(it.log, [watched(), observed(sha(1))], folder=it.folder)
    from_the_future(it.log, "theorem_dreamt", version=1)
    record(it.log, [observed(sha(2), parent=sha(1))], folder=it.folder)
    with View.open(it.paths[1], it.reader) as view:
        for _ in range(2):
            with pytest.raises(UnknownEventError) as caught:
                view.catch_up()
            assert (caught.value.seq, caught.value.type, caught.value.version) == (3, "theorem_dreamt", 1)
        assert view.checkpoint().seq == 2
    with closing(queries.connect(it.paths[1])) as connection:
        checkpoint = queries.checkpoint(connection)
        assert checkpoint is not None
        assert (checkpoint.seq, checkpoint.stopped_seq) == (2, 3)
        assert "theorem_dreamt" in checkpoint.stopped_reason
        assert [commit.sha for commit in queries.commits(connection)] == [sha(1)]
    report = rebuild(*it.paths)
    assert report.position == 2
    assert report.stopped is not None
    assert "newer" in report.stopped
    assert verify(*it.paths).ok


def test_s08_a_newer_version_of_a_known_type_stops_the_view_too(it: Place) -> None:
    from_the_future(it.log, "daemon_stopped", version=2)
    with (
        View.open(it.paths[1], it.reader) as view,
        pytest.raises(UnknownEventError, match="newest known"),
    ):
        view.catch_up()


def test_s08_an_event_without_the_shape_of_its_type_stops_the_view(it: Place) -> None:
    record(it.log, [watched()], folder=it.folder)
    from_the_future(it.log, "daemon_stopped", version=1)  # its data are {}
    with View.open(it.paths[1], it.reader) as view:
        with pytest.raises(MalformedEventError, match=r"event 2: .*reason: Field required"):
            view.catch_up()
        assert view.checkpoint().stopped_seq == 2


def test_s09_a_scan_whose_payload_is_no_scan_leaves_none_of_its_rows(it: Place) -> None:
    body, _ = file_scanned(scanned("A.lean", [declaration("a")]), commit=sha(1), blob=sha("b"))
    payload = b'{"path": "A.lean"}'
    body = body.model_copy(update={"scan": digest(payload)})
    record(it.log, [watched(), body], folder=it.folder, payloads=[payload])
    with View.open(it.paths[1], it.reader) as view, pytest.raises(MalformedEventError, match="KeyError"):
        view.catch_up()
    assert ask(it.paths[1], queries.files) == []
    assert ask(it.paths[1], queries.position) == 1


def from_the_future(log: EventLog, event_type: str, *, version: int) -> None:
    """Add an event as a later version of the program would."""
    later = type("Later", (EventBody,), {"type": event_type, "schema_version": version})
    log.append([NewEvent("future", later())], expect={"future": 0})


def test_s12_verify_names_the_table_the_key_and_the_columns_that_differ(it: Place) -> None:
    record_story(it.log, it.folder, batches=30)
    record(it.log, [watched(), observed(sha("x"))], folder=it.folder)
    with View.open(it.paths[1], it.reader) as view:
        view.catch_up()
    with closing(sqlite3.connect(it.paths[1])) as connection, connection:
        connection.execute("UPDATE commits SET author = 'Eve' WHERE sha = ?", (sha("x"),))
        connection.execute("DELETE FROM branches")
        connection.execute("INSERT INTO tallies VALUES ('r', 'b', 'theorem', 1)")
        connection.execute("DROP INDEX jobs_by_start")
    report = verify(*it.paths)
    assert not report.ok
    assert [str(difference) for difference in report.differences] == [
        "sqlite_schema jobs_by_start: missing",
        f"branches {REPOSITORY} {BRANCH}: missing",
        f"commits {REPOSITORY} {BRANCH} {sha('x')}: changed (author)",
        "tallies r b theorem: surplus",
    ]
    rebuild(*it.paths)
    assert verify(*it.paths).ok


def test_s12_verify_names_twenty_rows_of_a_table_and_counts_them_all(it: Place) -> None:
    record(it.log, [observed(sha(number)) for number in range(50)], folder=it.folder)
    with View.open(it.paths[1], it.reader) as view:
        view.catch_up()
    with closing(sqlite3.connect(it.paths[1])) as connection, connection:
        connection.execute("DELETE FROM commits")
    report = verify(*it.paths)
    assert report.n_differences == 50
    assert len(report.differences) == 20


def test_s12_verify_compares_at_the_position_of_the_view(it: Place) -> None:
    with View.open(it.paths[1], it.reader) as view:
        record(it.log, [watched(), observed(sha(1))], folder=it.folder)
        view.catch_up()
        record(it.log, [observed(sha(2), parent=sha(1))], folder=it.folder)
        report = verify(*it.paths)  # while the view is open for writing
    assert report.ok
    assert report.position == 2
    assert sorted(path.name for path in it.folder.glob("database.db.verify*")) == []


def test_poll_states_survive_a_rebuild_and_are_no_matter_of_verify(it: Place) -> None:
    record(it.log, [watched()], folder=it.folder)
    with View.open(it.paths[1], it.reader) as view:
        view.catch_up()
        for etag in (None, '"e"'):
            view.set_poll_state(REPOSITORY, checked_at="t1", next_due_at="t2", outcome="unchanged", etag=etag)
    assert verify(*it.paths).ok
    assert rebuild(*it.paths).poll_states == 1
    with closing(queries.connect(it.paths[1])) as connection:
        row = queries.repositories(connection)[0]
    assert (row.checked_at, row.next_due_at, row.poll_outcome, row.etag) == ("t1", "t2", "unchanged", '"e"')


def test_a_view_that_is_no_database_is_refused_and_mended_by_a_rebuild(it: Place) -> None:
    record(it.log, [watched()], folder=it.folder)
    it.paths[1].write_bytes(b"this is no database at all, and never was one" * 200)
    with pytest.raises(ViewError, match="everlean db rebuild"):
        View.open(it.paths[1], it.reader)
    rebuild(*it.paths)
    assert verify(*it.paths).ok


def test_a_view_of_another_version_is_refused_and_mended_by_a_rebuild(it: Place) -> None:
    record(it.log, [watched()], folder=it.folder)
    View.open(it.paths[1], it.reader).close()
    with closing(sqlite3.connect(it.paths[1])) as connection:
        connection.execute("PRAGMA user_version = 12345")
    with pytest.raises(ViewError, match="another version"):
        View.open(it.paths[1], it.reader)
    assert not verify(*it.paths).ok
    rebuild(*it.paths)
    assert verify(*it.paths).ok


def test_a_view_of_another_log_is_refused(it: Place) -> None:
    record(it.log, [watched()], folder=it.folder)
    with View.open(it.paths[1], it.reader) as view:
        view.catch_up()
    with EventLog.open(it.folder / "other.db") as other, other.reader() as other_reader:
        with pytest.raises(ViewError, match="ends before it"):
            View.open(it.paths[1], other_reader)
        record(other, [watched()], folder=it.folder)
        with pytest.raises(ViewError, match="another log"):
            View.open(it.paths[1], other_reader)


@pytest.mark.parametrize("way", ["rebuild", "catch up"])
def test_the_wal_of_a_removed_view_is_not_replayed_into_the_new_one(it: Place, way: str) -> None:
    record_story(it.log, it.folder, batches=5)
    view = View.open(it.paths[1], it.reader)
    view.catch_up()
    wal = it.paths[1].with_name("database.db-wal")
    left = wal.read_bytes()
    view.close()
    assert left
    record_story(it.log, it.folder, batches=20, seed=1)
    it.paths[1].unlink()
    wal.write_bytes(left)
    if way == "rebuild":
        rebuild(*it.paths)
    else:
        with View.open(it.paths[1], it.reader) as again:
            assert again.checkpoint().seq == 0
            again.catch_up()
    assert ask(it.paths[1], queries.position) == it.reader.position()
    assert verify(*it.paths).ok


def test_s11_a_reader_that_stays_connected_sees_the_old_rows_and_then_the_rebuilt_ones(it: Place) -> None:
    record_story(it.log, it.folder, batches=30)
    with View.open(it.paths[1], it.reader) as view:
        view.catch_up()
    with closing(queries.connect(it.paths[1])) as connection:
        connection.execute("BEGIN")
        before = queries.commits(connection)
        with closing(sqlite3.connect(it.paths[1])) as vandal, vandal:
            vandal.execute("DELETE FROM commits")
        rebuild(*it.paths)
        assert queries.commits(connection) == before
        connection.execute("COMMIT")
        assert queries.commits(connection) == before
    assert verify(*it.paths).ok


def test_s18_the_view_has_one_writer(it: Place) -> None:
    with View.open(it.paths[1], it.reader):
        with pytest.raises(DatabaseLockedError):
            View.open(it.paths[1], it.reader)
        with pytest.raises(DatabaseLockedError):
            rebuild(*it.paths)
    rebuild(*it.paths)


def test_a_closed_view_says_so(it: Place) -> None:
    view = View.open(it.paths[1], it.reader)
    view.close()
    view.close()
    with pytest.raises(LogClosedError):
        view.catch_up()


def test_verify_without_a_view_names_the_file(log: EventLog, paths: tuple[Path, Path]) -> None:
    with pytest.raises(DatabaseMissingError, match=r"database\.db"):
        verify(*paths)


def test_s11_a_rebuild_that_fails_leaves_the_old_view(it: Place) -> None:
    record(it.log, [watched()], folder=it.folder)
    with View.open(it.paths[1], it.reader) as view:
        view.catch_up()
    before = dump(it.paths[1])
    with pytest.raises(DatabaseMissingError):
        rebuild(it.folder / "nothing.db", it.paths[1])
    assert dump(it.paths[1]) == before


def test_s11_a_rebuild_of_a_damaged_log_leaves_the_old_view_that_goes_further(it: Place) -> None:
    record_story(it.log, it.folder, batches=30)
    rebuild(*it.paths)
    before = dump(it.paths[1])
    with closing(sqlite3.connect(it.paths[0])) as vandal, vandal:
        vandal.execute("DROP TRIGGER blobs_no_update")
        vandal.execute("UPDATE blobs SET content = x'00'")
    with pytest.raises(
        LogError, match=f"left as it is, up to event {it.reader.position()}.*was changed or cut short"
    ):
        rebuild(*it.paths)
    assert dump(it.paths[1]) == before
    assert list(it.folder.glob("database.db.rebuild-*")) == []
    it.paths[1].rename(it.folder / "aside.db")  # as the message says, for whoever wants the shorter one
    report = rebuild(*it.paths)
    assert report.stopped is not None
    assert 0 < report.position < it.reader.position()


@pytest.mark.parametrize(
    "scanned_too", [False, True], ids=["the step alone", "with another file that is known"]
)
def test_steps_whose_earlier_events_were_lost_are_projected_with_one_version_a_theorem(
    it: Place, scanned_too: bool
) -> None:
    """A disk that lied about its writes took the scans that these steps follow: "a" moved to A.lean, and "b" went."""
    followed, payload = theorems_followed(sample_steps(), commit=sha(1))
    bodies: list[EventBody] = [watched(), observed(sha(1))]
    payloads = [payload]
    if scanned_too:
        # It has a theorem with the name and the statement of the one that went.
        body, payload = file_scanned(scanned("C.lean", [declaration("b")]), commit=sha(1), blob=sha("blob"))
        bodies.append(body)
        payloads.append(payload)
    record(it.log, [*bodies, followed], folder=it.folder, payloads=payloads)

    with View.open(it.paths[1], it.reader) as view:
        assert view.catch_up() == it.reader.position()
    with closing(queries.connect(it.paths[1])) as database:
        lives = read(database, TheoremRow, "theorems", equal={"repository": REPOSITORY})
    there = [("b", "C.lean", "present", 1)] if scanned_too else []
    assert sorted((row.name, row.path, row.state, row.versions) for row in lives) == sorted(
        [("a", "A.lean", "present", 1), ("b", "Old.lean", "deleted", 1), *there]
    )


def test_a_large_scan_is_projected_and_counted(it: Place) -> None:
    names = [f"t{number}" for number in range(500)]
    body, payload = file_scanned(
        scanned("A.lean", [declaration(name, line=3 * i) for i, name in enumerate(names)]),
        commit=sha(1),
        blob=sha("b"),
    )
    record(
        it.log,
        [watched(), observed(sha(1)), body, commit_scanned(sha(1))],
        folder=it.folder,
        payloads=[payload, PATCH],
    )
    it.log.append([NewEvent("daemon", DaemonStopped(reason="r", pid=1))], expect={"daemon": Expect.ANY})
    with View.open(it.paths[1], it.reader) as view:
        view.catch_up()
    with closing(queries.connect(it.paths[1])) as connection:
        counts = count_all(connection)
        assert counts.theorems == 500
        plan = " ".join(
            row[3]
            for row in connection.execute("EXPLAIN QUERY PLAN SELECT kind, sum(declarations) FROM tallies")
        )
        assert "declarations" not in plan
