"""The log is shipped as segments: a store of them is checked alone, and made a log again with the same hashes."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from store.errors import DatabaseCorruptError, EpochTakenError, LogError, SegmentError, SegmentStoreError
from store.log import chain, segments
from store.log.backup import check
from store.log.chain import START
from store.log.log import EventLog
from store.log.segments import NOTHING, Epoch, SegmentStore
from tests.support.events import record_story


def ship(log_path: Path, url: str, *, most_bytes: int = 3_000, epoch: int = 0) -> SegmentStore:
    store = SegmentStore(url)
    spool = log_path.with_name("spool")
    end = segments.end(store, log_path)
    while made := segments.write(log_path, end, spool, most_bytes=most_bytes, epoch=epoch):
        segment, end = made
        store.put(segment, spool)
    return store


def rows(path: Path, upto: int = 2**62) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(path)) as connection:
        blobs = connection.execute("SELECT max(blobs) FROM chain WHERE seq <= ?", (upto,)).fetchone()[0]
        return {
            table: connection.execute(
                f"SELECT * FROM {table} WHERE {key} <= ? ORDER BY {key}",
                (blobs if table == "blobs" else upto,),
            ).fetchall()
            for table, key in (("events", "seq"), ("blobs", "id"), ("chain", "seq"))
        }


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    path = tmp_path / "events.db"
    with EventLog.open(path) as log:
        record_story(log, tmp_path, seed=3, batches=12)
    return path


@pytest.mark.parametrize("kind", ["folder", "file", "memory"])
def test_a_log_restored_from_its_segments_has_the_same_rows_and_hashes_and_goes_on(
    log_path: Path, tmp_path: Path, kind: str
) -> None:
    url = {
        "folder": str(tmp_path / "a"),
        "file": f"file://{tmp_path}/b",
        "memory": f"memory://{tmp_path.name}",
    }[kind]
    store = ship(log_path, url)
    found = segments.verify(store)
    assert found.segments > 3
    with chain.raw(log_path) as connection:
        assert found.end.link == chain.last(connection)
    restored = tmp_path / "restored.db"
    assert segments.restore(store, restored) == found.end.link
    assert rows(restored) == rows(log_path)
    assert check(restored).ok
    with EventLog.open(restored) as log:
        record_story(log, tmp_path, seed=4, batches=2)
    # The restored log is the same one: its next events follow in the same store.
    assert segments.verify(ship(restored, url)).end.link.seq > found.end.link.seq


def test_a_log_is_restored_up_to_any_event(log_path: Path, tmp_path: Path) -> None:
    store = ship(log_path, str(tmp_path / "store"))
    last = segments.verify(store).end.link.seq
    for upto in (1, 2, last // 2, last):
        target = tmp_path / f"{upto}.db"
        segments.restore(store, target, upto=upto)
        assert rows(target) == rows(log_path, upto)
        assert check(target).ok
    with pytest.raises(SegmentError, match=f"restore up to event {last}"):
        segments.restore(store, tmp_path / "more.db", upto=last + 1)
    with pytest.raises(LogError, match="exists already"):
        segments.restore(store, tmp_path / "1.db")


def test_a_missing_a_doubled_and_a_changed_segment_are_refused_by_name_and_leave_no_log(
    log_path: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    store = ship(log_path, str(folder))
    second = store.segments()[1]
    path = folder / second.name
    content = path.read_bytes()

    def refused(reason: str, name: str = second.name) -> None:
        for act in (segments.verify, lambda store: segments.restore(store, tmp_path / "new.db")):
            with pytest.raises(SegmentError, match=reason) as caught:
                act(store)
            assert caught.value.name == name
        assert not (tmp_path / "new.db").exists()

    path.unlink()
    refused(f"the events {second.first} to {second.last} before it are missing", store.segments()[1].name)
    for at in range(0, len(content), 97):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        refused("its file was changed")
    path.write_bytes(content)
    double = folder / second._replace(first=second.first + 1, last=second.last + 1).name
    double.write_bytes(content)
    refused("holds events that .* holds too", double.name)
    double.unlink()
    # One whose name was made to fit the changed content.
    text = gzip.decompress(content).replace(b'"actor":"', b'"actor":"x', 1)
    forged = gzip.compress(text)
    path.unlink()
    name = second._replace(sha256=hashlib.sha256(forged).hexdigest()).name
    (folder / name).write_bytes(forged)
    refused("its events are not those of its header", name)
    (folder / name).unlink()
    path.write_bytes(content)
    assert segments.verify(store).segments > 3


def test_a_store_of_another_log_and_one_that_goes_further_are_refused(log_path: Path, tmp_path: Path) -> None:
    store = ship(log_path, str(tmp_path / "store"))
    segments.restore(store, tmp_path / "short.db", upto=3)
    with pytest.raises(SegmentError, match="the log ends at event 3, before it"):
        ship(tmp_path / "short.db", store.url)
    with EventLog.open(tmp_path / "short.db") as log:
        record_story(log, tmp_path, seed=9, batches=20)
    with pytest.raises(SegmentError, match="another branch of its history; name an empty folder"):
        ship(tmp_path / "short.db", store.url)
    with pytest.raises(SegmentError, match="another branch of its history"):
        segments.verify(store, tmp_path / "short.db")


def test_an_event_that_is_not_what_was_recorded_is_not_shipped(log_path: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(log_path)) as connection, connection:
        connection.execute("DROP TRIGGER events_no_update")
        connection.execute("UPDATE events SET actor = 'other' WHERE seq = 4")
    with pytest.raises(LogError, match="event 4: its content is not what was recorded"):
        ship(log_path, str(tmp_path / "store"))


def test_pages_of_the_log_that_cannot_be_read_are_said_to_be_the_log_s(
    log_path: Path, tmp_path: Path
) -> None:
    with log_path.open("r+b") as file:
        file.seek(2 * 4096)
        file.write(b"\xff" * (log_path.stat().st_size - 2 * 4096))
    with pytest.raises(DatabaseCorruptError, match=rf"^{re.escape(str(log_path))}: "):
        segments.write(log_path, NOTHING, tmp_path / "spool", most_bytes=2**20)


def test_a_store_that_cannot_be_used_says_why_and_what_to_do(log_path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for url in (f"{tmp_path}/file", "nosuchkind://bucket/folder"):
        with pytest.raises(SegmentStoreError, match="check that it is there"):
            ship(log_path, url)
    with pytest.raises(SegmentError, match="no segment lies there"):
        segments.verify(SegmentStore(str(tmp_path / "empty")))


def test_killed_while_it_ships_again_and_again_nothing_is_lost_or_doubled(
    log_path: Path, tmp_path: Path
) -> None:
    url = str(tmp_path / "store")
    for round_ in range(8):
        child = os.fork()
        if child == 0:
            ship(log_path, url, most_bytes=1)
            os._exit(0)
        time.sleep(0.004 * (round_ + 1))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    store = SegmentStore(url)
    store.clear()
    ship(log_path, url)
    segments.restore(store, tmp_path / "restored.db")
    assert rows(tmp_path / "restored.db") == rows(log_path)
    assert not list(Path(url).glob("*.part"))


def follow(store: SegmentStore, path: Path) -> None:
    with EventLog.open(path) as log:
        for _ in segments.follow(store, log):
            pass


def test_what_a_replaced_daemon_ships_too_late_is_void_and_the_history_is_the_new_one_s(
    log_path: Path, tmp_path: Path
) -> None:
    store = ship(log_path, str(tmp_path / "store"))
    new, other = tmp_path / "new.db", tmp_path / "other.db"
    follow(store, new)
    assert rows(new) == rows(log_path)
    with EventLog.open(log_path) as log:
        record_story(log, tmp_path, seed=5, batches=3)
    ship(log_path, store.url)
    follow(store, other)
    with EventLog.open(new) as log:
        store.begin(Epoch(1, "token", "host", "now", log.head))
        record_story(log, tmp_path, seed=6, batches=3)
    assert store.segments()[-1].last == store.epochs()[0].after.seq
    ship(new, store.url, epoch=1)
    segments.verify(store, new)
    segments.restore(store, tmp_path / "restored.db")
    assert rows(tmp_path / "restored.db") == rows(new)
    for path in (log_path, other):
        with pytest.raises(SegmentError, match="no segment of the same history does"):
            follow(store, path)
    one = store.segments()[-1]
    Path(store.url, one.name).rename(Path(store.url, one._replace(epoch=2).name))
    with pytest.raises(SegmentError, match="another epoch than its header"):
        segments.verify(store)


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_of_many_that_take_over_at_once_one_does(tmp_path: Path, kind: str) -> None:
    (tmp_path / "store").mkdir()
    url = str(tmp_path / "store") if kind == "folder" else f"memory://{tmp_path.name}"

    def begin(number: int) -> bool:
        try:
            SegmentStore(url).begin(Epoch(1, str(number), "host", "now", START))
        except EpochTakenError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        won = [number for number, did in enumerate(threads.map(begin, range(40))) if did]
    store = SegmentStore(url)
    (epoch,) = store.epochs()
    assert won == [int(epoch.token)]
    assert store.epoch(2) is None


def test_a_store_that_replaces_what_it_was_asked_to_make_cannot_be_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, files = SegmentStore(f"memory://{tmp_path.name}"), MemoryFileSystem
    make = files.pipe_file
    monkeypatch.setattr(files, "pipe_file", lambda self, path, value, mode="": make(self, path, value))
    with pytest.raises(SegmentStoreError, match="two machines could take over at once"):
        store.begin(Epoch(1, "token", "host", "now", START))
    assert store.epochs() == []


def test_a_follower_killed_again_and_again_has_the_same_log(log_path: Path, tmp_path: Path) -> None:
    store, copy = ship(log_path, str(tmp_path / "store"), most_bytes=1), tmp_path / "copy.db"
    for round_ in range(8):
        child = os.fork()
        if child == 0:
            follow(store, copy)
            os._exit(0)
        time.sleep(0.008 * (round_ + 1))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    follow(store, copy)
    assert rows(copy) == rows(log_path)
    assert check(copy).ok


def test_merged_segments_are_the_same_log_also_after_a_kill_and_for_who_follows(
    log_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "MOST_SEGMENTS", 30)
    store = ship(log_path, str(tmp_path / "store"), most_bytes=1)
    before, spool = store.segments(), tmp_path / "spool"
    link = segments.verify(store, log_path).end.link
    assert len(before) > 100
    monkeypatch.setattr(segments, "MERGED_BYTES", sum(store.sizes(before)) // 3)
    copies = {}
    for upto in (1, len(before) // 2, len(before)):
        copies[upto] = tmp_path / f"copy-{upto}.db"
        segments.restore(store, copies[upto], upto=upto)

    left = 4

    def merge_all(may: Callable[[], None]) -> None:
        while segments.merge(store, log_path, spool, epoch=0, may=may):
            pass

    def may() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise StoppedError

    with pytest.raises(StoppedError):  # some of the merged ones are there, and all small ones
        merge_all(may)
    assert segments.verify(store, log_path).end.link == link
    merge_all(lambda: None)
    after = store.segments()
    assert len(after) < 10
    assert after[-3:] == before[-3:], "the newest stay"
    assert len([*(tmp_path / "store").iterdir()]) == len(after)
    assert segments.verify(store, log_path).end.link == link
    whole = rows(log_path)
    segments.restore(store, tmp_path / "new.db")
    assert rows(tmp_path / "new.db") == whole
    for copy in copies.values():  # each ends within a segment now, but for the last
        with EventLog.open(copy) as log:
            *_, reached = segments.follow(store, log)
            assert reached.link == link
        assert rows(copy) == whole


def test_segments_that_are_merged_while_they_are_read_are_read_on_in_the_larger_ones(
    log_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "MOST_SEGMENTS", 10)
    whole = SegmentStore.whole
    for act, name in (
        (lambda store: segments.verify(store, log_path), "verified"),
        (lambda store: segments.restore(store, tmp_path / "new.db"), "restored"),
    ):
        store = ship(log_path, str(tmp_path / name))
        left = 5

        def merge_then(self: SegmentStore, segment: segments.Segment) -> Any:
            nonlocal left
            left -= 1
            while left == 0 and segments.merge(self, log_path, tmp_path / "spool", epoch=0, may=lambda: None):
                pass
            return whole(self, segment)

        monkeypatch.setattr(SegmentStore, "whole", merge_then)
        act(store)
        assert left < 0
        assert len(store.segments()) < 10
    assert rows(tmp_path / "new.db") == rows(log_path)


def test_of_what_a_replaced_daemon_and_the_new_one_merged_one_counts(log_path: Path, tmp_path: Path) -> None:
    store = ship(log_path, str(tmp_path / "store"))
    late, spool = SegmentStore(str(tmp_path / "late")), tmp_path / "spool"
    shutil.copytree(store.url, late.url)
    with EventLog.open(log_path) as log:
        link = log.head
        store.begin(Epoch(1, "token", "host", "now", link))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segments, "MOST_SEGMENTS", 10)
        segments.merge(store, log_path, spool, epoch=1, may=lambda: None)
        segments.merge(late, log_path, spool, epoch=0, may=lambda: None)
    old, new = late.segments()[0], store.segments()[0]
    assert (old[:2], old.epoch, new.epoch) == (new[:2], 0, 1)
    shutil.copy(Path(late.url, old.name), store.url)
    assert store.segments()[0] == new
    assert segments.verify(store, log_path).end.link == link
    store.remove_merged()
    assert not Path(store.url, old.name).exists()


class StoppedError(Exception):
    """What ends a merge in between."""
