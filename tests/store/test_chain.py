"""The log knows its own end and its own content: the chain over the events, and the anchor beside the file."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from store.errors import DatabaseCorruptError, LogDamagedError, LogError, LogVersionError
from store.events.service import DaemonStopped
from store.log import anchor, chain
from store.log.backup import backup, check
from store.log.envelope import Expect, NewEvent, StoredEvent
from store.log.log import EventLog
from store.log.reader import LogReader
from store.log.recover import recover
from store.log.salvage import PAGE_BYTES
from store.view.rebuild import rebuild
from store.view.view import refuse_lost_end
from tests.support.daemon import warm
from tests.support.events import record_story


def write(folder: Path, batches: int = 12, *, seed: int = 3) -> Path:
    path = folder / "events.db"
    with EventLog.open(path) as log:
        record_story(log, folder, seed=seed, batches=batches)
    return path


def append(path: Path, number: int) -> None:
    with EventLog.open(path) as log:
        log.append([NewEvent("daemon", DaemonStopped(reason="r", pid=number))], expect={"daemon": Expect.ANY})


def as_a_kill_leaves_it(folder: Path, batches: int = 12) -> Path:
    """A log, all of it in its -wal, as it lies there while its writer lives."""
    work, left = folder / "work", folder / "left"
    left.mkdir()
    work.mkdir()
    with EventLog.open(work / "events.db") as log:
        record_story(log, work, seed=3, batches=batches)
        for name in ("events.db", "events.db-wal", "events.db-anchor"):
            shutil.copy(work / name, left)
    return left / "events.db"


def test_the_hash_of_an_event_is_what_the_module_says_it_is(tmp_path: Path) -> None:
    """Computed here by hand: whoever reads the log without everlean can check it by that text."""
    import hashlib

    path = write(tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        events = connection.execute("SELECT * FROM events ORDER BY seq").fetchall()
        links = connection.execute("SELECT seq, blobs, hash FROM chain ORDER BY seq").fetchall()
        blobs = connection.execute("SELECT * FROM blobs ORDER BY id").fetchall()
    assert len(events) == len(links) > 12
    assert len(blobs) > 2
    before, covered = bytes(32), 0
    for event, (seq, upto, recorded) in zip(events, links, strict=True):
        text = ""
        for value in event:
            text += (
                "N" if value is None else f"I{value};" if isinstance(value, int) else f"T{len(value)}:{value}"
            )
        hashed = hashlib.sha256(before + text.encode())
        for number, name, size, content in blobs[covered:upto]:
            row = f"I{number};T64:{name}I{size};B{len(content)}:{hashlib.sha256(content).hexdigest()}"
            hashed.update(hashlib.sha256(row.encode()).digest())
        assert (seq, hashed.digest()) == (event[0], recorded)
        before, covered = recorded, upto
    assert covered == len(blobs)


def places(path: Path) -> list[tuple[str, int]]:
    """Every byte of a file in which a value of a column of a table or of an index lies, by column."""
    content = path.read_bytes()
    found: list[tuple[str, int]] = []

    def note(name: str, start: int, length: int) -> None:
        found.extend((name, at) for at in range(start, start + length))

    with closing(sqlite3.connect(path)) as connection:
        for row in connection.execute("SELECT * FROM events"):
            # The columns behind seq lie side by side: a text by its length, a number from 2 on in a byte or two.
            at = content.find(f"{row[1]}{row[2]}".encode())
            if at < 0:
                continue
            for name, value in zip(
                ("event_id", "stream", "version", "type", "schema", "data"), row[1:7], strict=True
            ):
                length = (
                    len(value.encode())
                    if isinstance(value, str)
                    else 0
                    if value < 2
                    else 1
                    if value < 128
                    else 2
                )
                if name == "data" and length > 1500:
                    break  # goes on in pages of its own
                note(name, at, length)
                at += length
            else:
                note("recorded_at", at, 27)
        for (digest,) in connection.execute("SELECT hash FROM chain"):
            note("hash", content.index(digest), 32)
        for _, name, size, payload in connection.execute("SELECT * FROM blobs"):
            at = content.find(
                name.encode() + size.to_bytes(1 if size < 128 else 2 if size < 32768 else 3, "big")
            )
            if at >= 0:
                note("sha256", at, 64)
            start = content.find(payload[:600])
            if start >= 0:
                note("content", start, min(len(payload), 600))
    return found


@pytest.mark.harness
@pytest.mark.parametrize("flips", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_every_single_bit_that_flips_in_a_column_or_a_payload_is_found(
    tmp_path: Path, tell: Callable[[str, str], None], flips: int
) -> None:
    path = write(tmp_path)
    assert check(path).ok
    sound = path.read_bytes()
    rng = random.Random(19)
    by_column: dict[str, list[int]] = {}
    for name, at in places(path):
        by_column.setdefault(name, []).append(at)
    assert by_column.keys() == {
        *("event_id", "stream", "version", "type", "data", "recorded_at", "hash", "sha256", "content"),
    } | ({"schema"} & by_column.keys())
    missed = []
    for number in range(flips):
        name = sorted(by_column)[number % len(by_column)]
        at, bit = rng.choice(by_column[name]), rng.randrange(8)
        flip(path, at, bit)
        try:
            found = not check(path).ok
        except LogDamagedError:
            found = True
        if not found:
            missed.append((name, at, bit))
        path.write_bytes(sound)
    tell(f"{flips} single bits flipped in a log", f"not found: {len(missed)}")
    assert missed == []


def flip(path: Path, at: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0] ^ 1 << bit
        file.seek(at)
        file.write(bytes([byte]))


@pytest.mark.parametrize("seed", range(4))
def test_a_bit_that_flips_in_the_wal_is_found_and_the_writer_refuses_and_leaves_the_files(
    tmp_path: Path, seed: int
) -> None:
    path = as_a_kill_leaves_it(tmp_path)
    wal = path.with_name("events.db-wal")
    with LogReader.open(path) as reader:
        whole = reader.position()
    assert check(path).ok
    rng = random.Random(seed)
    flip(wal, rng.randrange(wal.stat().st_size), rng.randrange(8))
    before = path.read_bytes(), wal.read_bytes()
    report = check(path) if seed < 3 else None
    assert report is None or f"event {whole} was acknowledged" in " ".join(report.problems)
    for _ in range(2):  # and the refusal changes nothing that a second one would need
        with pytest.raises(
            LogDamagedError, match=f"event {whole} was acknowledged: .* events are missing.*db recover"
        ):
            EventLog.open(path)
    assert (path.read_bytes(), wal.read_bytes()) == before
    view = path.with_name("database.db")
    view.write_bytes(b"the last witness")
    with pytest.raises(LogDamagedError):
        rebuild(path, view)
    assert view.read_bytes() == b"the last witness"


@pytest.mark.parametrize("gone", [("-wal",), ("", "-wal")], ids=["the -wal of a young log", "all of it"])
def test_a_log_without_tables_beside_its_anchor_is_not_begun_anew(
    tmp_path: Path, gone: tuple[str, ...]
) -> None:
    path = as_a_kill_leaves_it(tmp_path)
    for suffix in gone:
        path.with_name(path.name + suffix).unlink()
    with pytest.raises(LogDamagedError, match="missing or empty, and event"):
        EventLog.open(path)


def test_a_log_that_ends_before_its_view_is_refused_though_the_anchor_is_gone_too(tmp_path: Path) -> None:
    path, view = write(tmp_path), tmp_path / "database.db"
    rebuild(path, view)
    refuse_lost_end(path, view)
    (early := tmp_path / "early").mkdir()
    anchor.anchor_path(path).unlink()
    path.unlink()
    with pytest.raises(
        LogDamagedError, match=r"missing or empty, while database\.db, which is made of it, stands at"
    ):
        refuse_lost_end(path, view)
    write(early, 3, seed=3).rename(path)
    with pytest.raises(LogDamagedError, match=r"it ends at event \d+, while database.db"):
        refuse_lost_end(path, view)


def test_the_check_goes_on_where_it_ended_and_begins_anew_behind_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        data = connection.execute("SELECT data FROM events WHERE seq = 5").fetchone()[0]
        (seq, blobs, digest) = connection.execute("SELECT * FROM chain WHERE seq = 9").fetchone()
    flip(path, path.read_bytes().index(data.encode()) + 12, 1)
    monkeypatch.setattr(anchor, "_NEWEST", 3)
    anchor.check_newest(path, seconds=10)  # the damage lies before
    anchor._write_checked(path, chain.Link(seq, blobs, digest))
    assert not anchor.check_part(path, seconds=0), "no time, nothing checked, nothing forgotten"
    assert anchor._read_checked(path).seq == 9
    assert anchor.check_part(path, seconds=10), "the rest is sound"
    for _ in range(2):
        with pytest.raises(LogDamagedError, match="event 5: its content"):
            anchor.check_part(path, seconds=10)


def test_a_log_put_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    (other := tmp_path / "other").mkdir()
    write(other, 30, seed=8).replace(path)
    with pytest.raises(LogDamagedError, match="is not the one that was acknowledged"):
        EventLog.open(path)


def test_one_torn_record_of_the_anchor_is_harmless_and_two_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    append(path, 1)
    append(path, 2)
    with EventLog.open(path) as log:
        for number in (3, 4):
            log.append(
                [NewEvent("daemon", DaemonStopped(reason="r", pid=number))], expect={"daemon": Expect.ANY}
            )
    last = anchor.read_anchor(path)
    assert last is not None
    assert last.seq == 4
    sound = anchor.anchor_path(path).read_bytes()
    for at in (0, 512):
        flip(anchor.anchor_path(path), at + 20, 3)
        left = anchor.read_anchor(path)
        assert left is not None
        assert left.seq in {3, 4}
        EventLog.open(path).close()
        anchor.anchor_path(path).write_bytes(sound)
    flip(anchor.anchor_path(path), 20, 3)
    flip(anchor.anchor_path(path), 532, 3)
    with pytest.raises(LogDamagedError, match=r"events\.db-anchor is damaged"):
        EventLog.open(path)


KILLED = """
import os, signal, sys
from pathlib import Path
from store.events.service import DaemonStopped
from store.log.envelope import NewEvent
from store.log.log import EventLog
log = EventLog.open(Path(sys.argv[1]) / "events.db")
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def append(number):
    log.append([NewEvent("daemon", DaemonStopped(reason="r", pid=number))], expect={"daemon": number - 1})
append(1)
"""
MOMENTS = {
    "before the commit": ("log._put = lambda *a, f=log._put, **k: (f(*a, **k), die())", 1),
    "between the commit and the anchor": ("log._anchor.settle = die", 2),
    "before the anchor's disk": ("import os as o; o.fdatasync = die", 1),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_between_the_commit_and_the_anchor_the_log_opens_and_goes_on(
    tmp_path: Path, moment: str
) -> None:
    code, least = MOMENTS[moment]
    said = tmp_path.with_name(f"{tmp_path.name}.said")
    status = warm.start(f"{KILLED}{code}\nappend(2)\n", str(tmp_path), output=said).wait(timeout=100)
    assert status == -signal.SIGKILL, said.read_text()
    path = tmp_path / "events.db"
    with LogReader.open(path) as reader:
        assert least <= reader.position() <= 2
    append(path, 9)
    assert check(path).ok


@pytest.mark.harness
@pytest.mark.parametrize("restored", [False, True])
def test_a_bit_that_flips_in_the_first_page_is_found_and_costs_no_event(
    tmp_path: Path, restored: bool, tell: Callable[[str, str], None]
) -> None:
    """The header and the schema: what SQLite cannot read, or reads as another database, is refused and recovered."""
    (work := tmp_path / "work").mkdir()
    path = write(work)
    if restored:
        backup(path, work / "backup.db")
        (work / "backup.db").replace(path)
    sound, said = path.read_bytes(), anchor.anchor_path(path).read_bytes()
    before = events_of(path)
    rng = random.Random(19)
    flips = [(0, 1), (18, 2), (19, 3), (47, 0), (60, 7), (63, 0), (63, 1), (68, 2), (104, 0)]
    flips += [(rng.randrange(2500, 4000), bit) for bit in (1, 3, 5, 7)]
    found = 0
    for number, (at, bit) in enumerate(flips):
        (folder := tmp_path / str(number)).mkdir()
        log = folder / "events.db"
        log.write_bytes(sound)
        anchor.anchor_path(log).write_bytes(said)
        flip(log, at, bit)
        try:
            hurt = "" if check(log).ok else "damaged"
        except LogError as error:
            hurt = str(error)
        done = recover(log, folder / "database.db", reached=0)
        assert (done is not None) == bool(hurt), (at, bit, hurt)
        if done is not None:
            found += 1
            assert (done.kept, done.lost) == (len(before), 0), (at, bit, done.reason)
            assert (events_of(log)[:-1], check(log).ok) == (before, True)
            assert recover(log, folder / "database.db", reached=0) is None
            assert list(folder.glob("*.recovered*")) == []
    assert found > 6
    tell(f"{len(flips)} bits flipped in a log's first page", "events lost: 0")


@pytest.mark.parametrize("damaged", ["the header", "the last page of events"])
def test_of_a_log_that_has_no_anchor_and_cannot_be_read_the_rows_say_how_far_it_went(
    tmp_path: Path, damaged: str
) -> None:
    """As of a backup on a bad disk: neither an anchor nor a view knows its end."""
    path = write(tmp_path)
    before = events_of(path)
    anchor.anchor_path(path).unlink()
    content = bytearray(path.read_bytes())
    at = 0 if damaged == "the header" else content.rindex(before[-1].data_json.encode()) // PAGE_BYTES
    content[at * PAGE_BYTES + 20 : (at + 1) * PAGE_BYTES] = bytes(PAGE_BYTES - 20)
    path.write_bytes(content)
    done = recover(path, tmp_path / "database.db", reached=0)
    assert done is not None
    assert events_of(path)[:-1] == before[: done.kept]
    if damaged == "the header":
        assert (done.kept, done.lost) == (len(before), 0)
    else:
        assert 0 < done.kept < len(before) == done.lost


def test_a_recovery_killed_before_the_new_log_has_its_place_leaves_none_that_lacks_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no anchor tells that the -wal, which lies in the folder by then, held the end."""
    (work := tmp_path / "work").mkdir()
    path = tmp_path / "events.db"
    append(work / "events.db", 1)
    with EventLog.open(work / "events.db") as log:
        for name in ("events.db", "events.db-wal"):
            shutil.copy(work / name, tmp_path)
        log.append([NewEvent("daemon", DaemonStopped(reason="r", pid=2))], expect={"daemon": Expect.ANY})
        shutil.copy(work / "events.db-wal", tmp_path)
    before, move = events_of(work / "events.db"), Path.replace
    flip(path, 18, 0)

    def killed(source: Path, target: Path) -> Path:
        if target == path:
            raise KeyboardInterrupt
        return move(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            recover(path, tmp_path / "database.db", reached=0)
    assert not path.with_name("events.db-wal").exists()
    then = path.stat().st_mtime_ns
    flip(path, 18, 0)  # as if the damage were such as a writer does not see
    os.utime(path, ns=(then, then))
    with pytest.raises(LogDamagedError, match="was acknowledged"):
        EventLog.open(path)
    assert recover(path, tmp_path / "database.db", reached=0) is not None
    assert events_of(path)[:-1] == before
    assert not [*tmp_path.glob("damaged-*/*-anchor")], "none that nobody found there"


def test_a_schema_that_is_no_utf8_is_refused_as_damage_by_the_writer_too(tmp_path: Path) -> None:
    path = write(tmp_path)
    anchor.anchor_path(path).unlink()
    flip(path, path.read_bytes().index(b"BEFORE DELETE"), 7)
    with pytest.raises(DatabaseCorruptError, match=r"near .*\\xc2EFORE"):
        EventLog.open(path)


def test_a_damaged_index_is_made_anew_by_a_recovery_and_a_log_of_a_newer_version_is_left(
    tmp_path: Path,
) -> None:
    path = write(tmp_path)
    before = events_of(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_schema WHERE name = 'events_by_type'")
        connection.commit()
    done = recover(path, tmp_path / "database.db", reached=0)
    assert done is not None
    assert (done.kept, done.lost) == (len(before), 0)
    assert check(path).ok
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 7")
        connection.execute("CREATE TABLE newer (column)")
    with pytest.raises(LogVersionError):
        recover(path, tmp_path / "database.db", reached=0)
    assert sorted(tmp_path.glob("damaged-*")) == [done.aside]


KILLED_IN_THE_SWAP = """
import os, signal, sys
from pathlib import Path
from store.log import recover
folder, left = Path(sys.argv[1]), int(sys.argv[2])
def counted(work):
    def step(*arguments, **options):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return work(*arguments, **options)
    return step
def swap(*arguments, work=recover._swap):
    os.link, recover.sync = counted(os.link), counted(recover.sync)
    Path.mkdir, Path.unlink, Path.replace = map(counted, (Path.mkdir, Path.unlink, Path.replace))
    work(*arguments)
recover._swap = swap
recover.recover(folder / "events.db", folder / "database.db", reached=0)
"""


def events_of(path: Path) -> list[StoredEvent]:
    with LogReader.open(path) as reader:
        return list(reader.read())


@pytest.mark.harness
def test_killed_at_any_step_of_a_recovery_the_next_one_ends_it_and_keeps_as_much(
    tmp_path: Path, tell: Callable[[str, str], None]
) -> None:
    """All of the log lies in the -wal, as a kill leaves it: without its -wal nothing of it can be read."""
    path = as_a_kill_leaves_it(tmp_path)
    wal = path.with_name("events.db-wal")
    flip(wal, wal.stat().st_size // 2, 3)
    path.with_name("database.db").write_bytes(b"the last witness")
    hurt = {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}
    last = anchor.read_anchor(path)
    before = events_of(path)
    told = []
    for step in itertools.count():
        folder = tmp_path / f"step-{step}"
        shutil.copytree(path.parent, folder)
        log = folder / "events.db"
        said = tmp_path / "said"
        status = warm.start(KILLED_IN_THE_SWAP, str(folder), str(step), output=said).wait(timeout=100)
        assert status in (0, -signal.SIGKILL), said.read_text()
        try:
            EventLog.open(log).close()
        except LogDamagedError:
            found = recover(log, folder / "database.db", reached=0)
            assert found is not None
        assert recover(log, folder / "database.db", reached=0) is None
        assert check(log).ok
        *kept, recovered = events_of(log)
        assert kept[: len(before)] == before
        told.append([recovered.type, *(recovered.data[name] for name in ("kept", "behind", "lost"))])
        aside = Path(recovered.data["aside"])
        assert {name: (aside / name).read_bytes() for name in hurt} == hurt
        assert list(folder.glob("*.recovered*")) == []
        shutil.rmtree(folder)
        if status == 0:
            break
    assert step > 12, "every step was one to die at"
    assert last is not None
    kind, first, behind, lost = told[0]
    assert told == [told[0]] * len(told)
    assert (kind, lost) == ("log_recovered", last.seq)
    assert len(before) < first + behind < lost, "more than SQLite reads"
    tell(f"kill -9 of a recovery at each of {step} steps", "other outcomes than of one that is not killed: 0")


def test_a_log_that_went_on_after_a_killed_recovery_is_not_taken_back_to_it(tmp_path: Path) -> None:
    path = as_a_kill_leaves_it(tmp_path)
    wal = path.with_name("events.db-wal")
    flip(wal, wal.stat().st_size // 2, 3)
    folder, said = path.parent, tmp_path / "said"
    assert warm.start(KILLED_IN_THE_SWAP, str(folder), "4", output=said).wait(timeout=100) == -signal.SIGKILL
    assert path.with_name("events.db.recovered").exists()
    anchor.anchor_path(path).unlink()  # by somebody who would rather go on
    for number in range(3):
        append(path, number)
    before = events_of(path)
    assert recover(path, folder / "database.db", reached=0) is None
    assert events_of(path) == before
    assert not path.with_name("events.db.recovered").exists()
