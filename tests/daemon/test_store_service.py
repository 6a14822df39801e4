"""The daemon's hands on its store: what it refuses once the store has failed it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from daemon.state.store_service import NoRoomError, StoreFailedError, StoreService
from store.errors import (
    BlobMissingError,
    ConcurrencyError,
    DatabaseFullError,
    InvalidAppendError,
    LogError,
)
from store.events.service import DaemonStopped
from store.log.backup import check
from store.log.chain import Link
from store.log.envelope import Appended, Expect, NewEvent
from store.log.log import Batch, EventLog
from store.log.reader import LogReader
from store.sqlite import connect_readonly
from store.view import checking
from store.view.checking import ViewCheck
from store.view.rebuild import rebuild, verify
from store.view.view import View
from tests.support.daemon.deployment import Deployment
from tests.support.events import declaration, file_scanned, record_story, scanned

CITING, PAYLOAD = file_scanned(scanned("A.lean", [declaration("a")]), commit="a" * 40, blob="b" * 40)


def event(number: int) -> NewEvent:
    return NewEvent("daemon", DaemonStopped(reason="test", pid=number))


async def test_after_a_failure_nothing_is_recorded_any_more_even_if_the_store_is_well_again(
    tmp_path: Path,
) -> None:
    """What was refused may be half of a plan; only a start from the log begins a new one."""
    deployment = Deployment(tmp_path)
    settings = deployment.write(repos=[])
    settings.paths.state.mkdir(parents=True)
    store = await StoreService.open(settings.paths)
    try:
        assert (await store.append([event(1)])).versions == {"daemon": 1}
        aside = tmp_path / "aside.db"
        settings.paths.events_db.rename(aside)
        with pytest.raises(StoreFailedError, match="put it back"):
            await store.append([event(2)])
        assert store.failed.is_set()
        aside.rename(settings.paths.events_db)
        with pytest.raises(StoreFailedError, match="nothing is recorded any more"):
            await store.append([event(3)])
        with pytest.raises(StoreFailedError):
            await store.set_poll_state("r", checked_at="", next_due_at="", outcome="", etag=None)
    finally:
        await store.close()
    assert [item.data["pid"] for item in deployment.events()] == [1]


def test_appends_that_wait_share_a_transaction_and_one_that_is_at_fault_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Deployment(tmp_path).write(repos=[])
    settings.paths.state.mkdir(parents=True)
    waits: list[int] = []

    async def scenario() -> list[Appended | BaseException]:
        store = await StoreService.open(settings.paths)
        assert store._log is not None
        begin = store._log._anchor.begin

        def counted(link: Link) -> None:
            waits.append(link.seq)
            begin(link)

        monkeypatch.setattr(store._log._anchor, "begin", counted)
        try:
            appends = [store.append([event(number)], expect={"daemon": Expect.ANY}) for number in range(40)]
            at_fault = [
                store.append([event(99)], expect={"daemon": 7}),
                store.append([]),
                store.append([NewEvent("a", CITING)]),
            ]
            return await asyncio.gather(*appends, *at_fault, return_exceptions=True)
        finally:
            await store.close()

    *good, late, empty, without_payload = asyncio.run(scenario())
    assert [one.first_seq for one in good if isinstance(one, Appended)] == [*range(1, 41)]
    assert isinstance(late, ConcurrencyError)
    assert isinstance(empty, InvalidAppendError)
    assert isinstance(without_payload, BlobMissingError)
    assert waits[-1] == 40
    assert len(waits) < 10, "the disk is waited for once by many"
    assert check(settings.paths.events_db).ok


@pytest.mark.parametrize("ends", ["another append", "record_now", "the time", "close"])
def test_shared_appends_wait_for_others_and_are_recorded_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    settings = Deployment(tmp_path).write(repos=[])
    settings.paths.state.mkdir(parents=True)
    monkeypatch.setattr("daemon.state.store_service._SHARED_S", 0.3 if ends == "the time" else 60.0)
    transactions: list[int] = []

    async def scenario() -> list[Appended]:
        store = await StoreService.open(settings.paths)
        append_all = EventLog.append_all

        def counted(log: EventLog, batches: Sequence[Batch]) -> list[Appended | LogError]:
            transactions.append(len(batches))
            return append_all(log, batches)

        monkeypatch.setattr(EventLog, "append_all", counted)
        try:
            shared = [asyncio.ensure_future(store.append([event(n)], shared=True)) for n in (1, 2, 3)]
            await asyncio.sleep(0.05)
            assert transactions == []
            match ends:
                case "another append":
                    assert (await store.append([event(4)])).first_seq == 4
                case "record_now":
                    store.record_now()
                case "close":
                    await store.close()
            return await asyncio.wait_for(asyncio.gather(*shared), timeout=5)
        finally:
            await store.close()

    assert [one.first_seq for one in asyncio.run(scenario())] == [1, 2, 3]
    assert transactions == [4 if ends == "another append" else 3]


async def test_listeners_hear_of_an_append_whose_caller_was_cancelled(tmp_path: Path) -> None:
    settings = Deployment(tmp_path).write(repos=[])
    settings.paths.state.mkdir(parents=True)
    heard: list[int] = []
    store = await StoreService.open(settings.paths)
    store.subscribe(lambda events: heard.append(len(events)))
    try:
        caller = asyncio.ensure_future(store.append([event(1), event(2)]))
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await store.append([event(3)])
        assert heard == [2, 1], "and those of an append before its caller goes on"
    finally:
        await store.close()


async def test_a_payload_may_come_with_a_batch_that_waits_before(tmp_path: Path) -> None:
    settings = Deployment(tmp_path).write(repos=[])
    settings.paths.state.mkdir(parents=True)
    (tmp_path / "payload").write_bytes(PAYLOAD)
    store = await StoreService.open(settings.paths)
    try:
        options = {CITING.scan.sha256: tmp_path / "payload"}
        await asyncio.gather(
            store.append([NewEvent("repository:a", CITING)], blobs=options),
            store.append([NewEvent("repository:b", CITING)], blobs=options),
            store.append([NewEvent("repository:c", CITING)]),
        )
    finally:
        await store.close()
    assert check(settings.paths.events_db).ok


def test_where_many_find_no_room_together_a_small_one_may_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Deployment(tmp_path).write(repos=[])
    settings.paths.state.mkdir(parents=True)
    real = EventLog.append_all

    def has_room_for_two(log: EventLog, batches: Sequence[Batch]) -> list[Appended | LogError]:
        if sum(len(batch.events) for batch in batches) > 2:
            raise DatabaseFullError("events.db: full")
        return real(log, batches)

    async def scenario() -> list[Appended | BaseException]:
        store = await StoreService.open(settings.paths, patient=True)
        monkeypatch.setattr(EventLog, "append_all", has_room_for_two)
        try:
            sizes = (1, 3, 2)
            appends = (store.append([event(number) for number in range(size)]) for size in sizes)
            return await asyncio.gather(*appends, return_exceptions=True)
        finally:
            await store.close()

    first, large, second = asyncio.run(scenario())
    assert (type(first), type(large), type(second)) == (Appended, NoRoomError, Appended)


def test_an_anchor_that_was_removed_is_made_anew_with_a_warning(tmp_path: Path) -> None:
    settings = Deployment(tmp_path).write(repos=[])
    settings.paths.state.mkdir(parents=True)
    anchor = settings.paths.state / "events.db-anchor"

    async def warned() -> list[str]:
        with capture_logs() as lines:
            store = await StoreService.open(settings.paths)
            await store.append([event(1)])
            await store.close()
        return [line["event"] for line in lines]

    assert asyncio.run(warned()) == []
    anchor.unlink()
    assert asyncio.run(warned()) == ["anchor_made"]
    assert anchor.exists()
    assert asyncio.run(warned()) == []


@pytest.mark.parametrize("full", [(EventLog, "append_all"), (View, "catch_up")], ids=["log", "view"])
async def test_who_waits_outlasts_a_full_disk_and_who_does_not_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: tuple[type, str]
) -> None:
    deployment = Deployment(tmp_path)
    settings = deployment.write(repos=[])
    settings.paths.state.mkdir(parents=True)
    owner, name = full
    real = getattr(owner, name)

    def refuses(*_arguments: object, **_options: object) -> None:
        raise DatabaseFullError("events.db: full; free some space")

    store = await StoreService.open(settings.paths, patient=True)
    store.room._has_room = lambda _: getattr(owner, name) is real
    try:
        monkeypatch.setattr(owner, name, refuses)
        if owner is EventLog:
            with pytest.raises(NoRoomError, match="free some space"):
                await store.append([event(1)])
        else:
            await store.append([event(1)])  # it is in the log, and the view follows later
        assert "free some space" in store.room.problem
        waiting = asyncio.ensure_future(store.append([event(2)], wait=True))
        await asyncio.sleep(1.2)
        await store.check()
        await asyncio.sleep(0)
        assert waiting.done() == (owner is View)
        assert store.failure is None
        monkeypatch.setattr(owner, name, real)
        for _ in range(40):
            await store.check()
            if waiting.done() and not store.room.problem:
                break
            await asyncio.sleep(0.1)
        await asyncio.wait_for(waiting, timeout=5)
        assert store.room.problem == ""
        await store.append([event(3)])
        # Whoever ends does not wait.
        monkeypatch.setattr(owner, name, refuses)
        if owner is EventLog:
            late = asyncio.ensure_future(store.append([event(4)], wait=True))
            await asyncio.sleep(0.1)
            store.hurry()
            with pytest.raises(NoRoomError):
                await asyncio.wait_for(late, timeout=5)
        monkeypatch.setattr(owner, name, real)
    finally:
        await store.close()
    assert sorted(item.data["pid"] for item in deployment.events()) == [1, 2, 3][owner is EventLog :]
    assert verify(settings.paths.events_db, settings.paths.database_db).differences == ()


async def test_to_a_ledger_that_is_not_patient_a_full_disk_is_a_failure_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Deployment(tmp_path).write(repos=[])
    settings.paths.state.mkdir(parents=True)

    def refuses(*_arguments: object, **_options: object) -> None:
        raise DatabaseFullError("events.db: full")

    store = await StoreService.open(settings.paths)
    monkeypatch.setattr(EventLog, "append_all", refuses)
    try:
        with pytest.raises(StoreFailedError) as caught:
            await store.append([event(1)], wait=True)
        assert not isinstance(caught.value, NoRoomError)
        assert store.failure is not None
    finally:
        await store.close()


GOES = (
    "events.db-wal",
    "events.db-shm",
    "events.db-anchor",
    "events.db.lock",
    "database.db-wal",
    "daemon.lock",
    "",
)


@pytest.mark.harness
@pytest.mark.parametrize(
    ("name", "how"),
    [*((name, "removed") for name in GOES), ("events.db-wal", "replaced"), ("events.db", "replaced")],
)
async def test_a_companion_that_goes_while_the_daemon_runs_ends_it_and_costs_nothing(
    tmp_path: Path, name: str, how: str, tell: Callable[[str, str], None]
) -> None:
    """SQLite writes on into a -wal that has no name any more; and a second daemon could take a lock that has none."""
    deployment = Deployment(tmp_path)
    paths = deployment.write(repos=[]).paths
    paths.state.mkdir(parents=True)
    paths.lock.touch()
    lines = []
    store = await StoreService.open(paths)
    await store.append([event(number) for number in range(3)])
    if name:
        (paths.state / name).unlink()
    else:
        paths.state.rename(tmp_path / "moved")
        paths.state.mkdir()
    if how == "replaced" and name:
        (paths.state / name).touch()
    with pytest.raises(StoreFailedError, match="removed or replaced while the daemon runs"):
        await store.append([event(9)])
    assert store.failed.is_set()
    lines.append(str(store.failure))
    # As a kill would end it, but for the descriptors: nothing is folded in.
    for rescued in paths.state.glob("events.db.rescued-*"):
        rescued.rename(tmp_path / "rescued.db")
    await store.close()
    if name in ("events.db", "events.db-wal"):
        assert "everything recorded is in" in lines[0]
        left = tmp_path / "rescued.db"
    elif not name:
        assert f"the log is now {tmp_path / 'moved' / 'events.db'}: put it back" in lines[0]
        left = tmp_path / "moved" / "events.db"
    else:
        assert "the log itself is all there; start the daemon again" in lines[0]
        left = paths.events_db
    with LogReader.open(left) as log:
        assert [one.data["pid"] for one in log.read()] == [0, 1, 2]
    tell(f"{name or 'the state folder'} {how} under a running daemon", "events lost: 0")


async def test_another_program_that_closes_a_database_leaves_its_companions_to_the_daemon(
    tmp_path: Path,
) -> None:
    """SQLite removes a -wal with the last connection, and knows of others by locks that a mere `close` gives back."""
    paths = Deployment(tmp_path).write(repos=[]).paths
    paths.state.mkdir(parents=True)
    code = "import sqlite3, sys\nfor path in sys.argv[1:]:\n    view = sqlite3.connect(path)\n"
    code += "    view.execute('SELECT count(*) FROM sqlite_schema').fetchone()\n    view.close()\n"
    store = await StoreService.open(paths)
    await store.append([event(1)])
    while store.check_pause_s < 3600:  # the log and the view are looked through
        await store.check_next_part()
    files = (str(paths.events_db), str(paths.database_db))
    other = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", code, *files)
    assert await other.wait() == 0
    await store.append([event(2)])
    await store.close()
    with LogReader.open(paths.events_db) as log:
        assert log.position() == 2


@pytest.mark.parametrize("read", [False, True])
async def test_in_a_turn_without_an_append_the_wal_is_folded_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, read: bool
) -> None:
    """A young log lies in its -wal alone, and would be lost with it; who reads it, as a backup does, delays that."""
    paths = Deployment(tmp_path).write(repos=[]).paths
    paths.state.mkdir(parents=True)
    monkeypatch.setattr("daemon.state.store_service._FOLDED_IN_EVERY_S", 0.0)
    store = await StoreService.open(paths)
    await store.append([event(1)])
    with closing(connect_readonly(paths.events_db)) as reader:
        if read:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM events").fetchone()[0] == 1
        await store.append([event(2)])
        await store.check()
        await store.check()
    await store.check()
    (alone := tmp_path / "alone").mkdir()
    shutil.copy(paths.events_db, alone)
    await store.close()
    with LogReader.open(tmp_path / "alone" / "events.db") as log:
        assert log.position() == 2


async def test_a_view_that_is_not_what_the_log_says_is_found_at_rest_made_anew_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows gone, changed and made up, while no daemon ran: nothing that a start looks at."""
    paths = Deployment(tmp_path).write(repos=[]).paths
    paths.state.mkdir(parents=True)
    monkeypatch.setattr(checking, "_EVENTS", 50)
    monkeypatch.setattr("store.view.rebuild.COMPARED_AT_ONCE", 3)
    with EventLog.open(paths.events_db) as log:
        record_story(log, tmp_path, seed=5, batches=40)
    rebuild(paths.events_db, paths.database_db)
    with closing(sqlite3.connect(paths.database_db)) as view, view:
        view.execute("UPDATE proofs SET state = 'verified' WHERE proof IN (SELECT max(proof) FROM proofs)")
        view.execute("DELETE FROM sorries WHERE sorry IN (SELECT min(sorry) FROM sorries)")
        view.execute("INSERT INTO pauses VALUES ('prove', 'nobody', '', '')")
    store = await StoreService.open(paths)
    parts = 0
    with capture_logs() as output:
        while not store.rebuilt:
            await store.check_next_part()
            parts += 1
            assert parts < 1000
    assert store.check_pause_s > 3600
    await store.append([event(1)])
    assert await store.ask(lambda view: view.execute("SELECT count(*) FROM pauses").fetchone()[0]) == 0
    await store.close()
    (line,) = output
    assert line["event"] == "view_rebuilt"
    for table in ("proofs", "sorries", "pauses"):
        assert f"{table} " in line["reason"]
    assert verify(paths.events_db, paths.database_db).ok
    assert not paths.second_view.exists()


def test_a_sound_view_is_looked_through_while_events_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_path, view_path = tmp_path / "events.db", tmp_path / "database.db"
    monkeypatch.setattr("store.view.rebuild.COMPARED_AT_ONCE", 3)
    with EventLog.open(log_path) as log, LogReader.open(log_path) as reader:
        record_story(log, tmp_path, seed=5, batches=10)
        with View.open(view_path, reader) as view:
            view.catch_up()
            check = ViewCheck(log_path, view_path, tmp_path / "second.db")
            for seed in range(60):
                ended = check.check_part(0)
                record_story(log, tmp_path, seed=seed, batches=1)
                view.catch_up()
            assert not ended
            while not check.check_part(0.01):
                pass
            assert check.differences == []
            check.close()
