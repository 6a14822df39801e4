"""`everlean db` on real files: verify, rebuild, check, back up, and the exit codes that scripts rely on."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from store.errors import DatabaseFullError
from store.events.service import DaemonStopped
from store.log import segments
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.log.reader import LogReader
from store.view import rebuild
from tests.support.state_folder import StateFolder


def rows(path: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(path)) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {
            name: sorted(map(repr, connection.execute(f'SELECT * FROM "{name}"')))
            for name in names
            if not name.startswith("sqlite_")
        }


def test_a_changed_view_is_a_difference_and_exit_code_6(filled: StateFolder) -> None:
    with closing(sqlite3.connect(filled.state / "database.db")) as connection, connection:
        connection.execute("UPDATE sorries SET state = 'filled' WHERE state = 'open'")
    answer = filled.everlean("db", "verify", "--json")
    assert (answer.code, answer.json["same"]) == (6, False)
    assert [item["table"] for item in answer.json["differences"]] == ["sorries"]
    text = filled.everlean("db", "verify")
    assert text.code == 6
    assert "everlean db rebuild" in text.out


def test_a_verification_writes_nothing_into_the_state_folder_and_leaves_nothing_behind(
    filled: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "everlean-verify-999999999-x").mkdir()
    state = filled.state
    places: list[Path] = []
    new: list[set[str]] = []
    build = rebuild.build

    def watched(target: Path, *arguments: Any, **named: Any) -> str | None:
        places.append(target)
        result = build(target, *arguments, **named)
        new.append({path.name for path in state.iterdir()} - before)
        return result

    monkeypatch.setattr(rebuild, "build", watched)
    before = {path.name for path in state.iterdir()}
    assert rebuild.verify(state / "events.db", state / "database.db", scratch=scratch).ok
    assert [place.is_relative_to(scratch) for place in places] == [True]
    (only,) = new
    assert only <= {"events.db-shm", "events.db-wal", "database.db-shm", "database.db-wal"}
    assert list(scratch.iterdir()) == [], "what a killed one had left is gone too"
    assert filled.everlean("db", "verify", "--scratch", str(scratch)).code == 0


def test_a_verification_asks_for_room_first_and_names_the_option(
    filled: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = filled.everlean("db", "verify", "--scratch", str(tmp_path / "nowhere"))
    assert nowhere.code == 1
    assert "--scratch" in nowhere.err
    monkeypatch.setattr(rebuild, "_LEFT_FREE_BYTES", 10**15)
    monkeypatch.setattr(rebuild, "build", None)
    with pytest.raises(DatabaseFullError, match="name a folder on another disk with --scratch"):
        rebuild.verify(filled.state / "events.db", filled.state / "database.db", scratch=tmp_path)


def test_a_second_view_grows_no_further_than_there_is_room(filled: StateFolder, tmp_path: Path) -> None:
    polls: list[rebuild.PollRow] = [
        (f"repository {number}", "x" * 2000, "", "", None) for number in range(2000)
    ]
    with LogReader.open(filled.state / "events.db") as log:
        assert rebuild.build(tmp_path / "a.db", log, upto=0, polls=polls[:1]) is None
        with pytest.raises(DatabaseFullError):
            rebuild.build(tmp_path / "b.db", log, upto=0, polls=polls, most_bytes=2**20)
    assert (tmp_path / "b.db").stat().st_size <= 2**20


def test_a_deleted_view_is_rebuilt_row_for_row(filled: StateFolder) -> None:
    before = rows(filled.state / "database.db")
    for path in filled.state.glob("database.db*"):
        path.unlink()
    assert filled.everlean("sorries").code == 1
    assert filled.everlean("db", "rebuild").code == 0
    assert rows(filled.state / "database.db") == before
    assert stat.S_IMODE((filled.state / "database.db").stat().st_mode) == 0o600
    assert filled.everlean("db", "verify").code == 0


def test_a_rebuild_is_refused_while_a_daemon_holds_the_state_folder(filled: StateFolder) -> None:
    before = (filled.state / "database.db").read_bytes()
    with filled.held():
        answer = filled.everlean("db", "rebuild")
    assert answer.code == 75
    assert str(os.getpid()) in answer.err
    assert (filled.state / "database.db").read_bytes() == before


def test_a_backup_is_one_private_file_that_restores_to_the_same_view(filled: StateFolder) -> None:
    target = filled.root / "copy.db"
    answer = filled.everlean("db", "backup", "copy.db", "--json")
    assert answer.code == 0
    assert (answer.json["file"], answer.json["size_bytes"]) == (str(target), target.stat().st_size)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [path.name for path in filled.root.iterdir() if path.name.startswith((".copy", "copy"))] == [
        "copy.db"
    ]
    before = rows(filled.state / "database.db")
    for path in filled.state.iterdir():
        if path.is_file():
            path.unlink()
    target.rename(filled.state / "events.db")
    assert filled.everlean("db", "rebuild").code == 0
    assert rows(filled.state / "database.db") == before


def test_what_backup_says_about_restoring_holds_beside_the_wal_that_a_killed_daemon_left(
    filled: StateFolder,
) -> None:
    told = filled.everlean("db", "backup", "copy.db").out
    left = filled.root / "left"
    left.mkdir()
    with EventLog.open(filled.state / "events.db") as log:
        bodies = [NewEvent("daemon", DaemonStopped(reason="x" * 4000, pid=number)) for number in range(30)]
        log.append(bodies, expect={"daemon": Expect.ANY})
        for name in ("events.db", "events.db-wal"):
            shutil.copy(filled.state / name, left)
    for path in left.iterdir():
        path.replace(filled.state / path.name)  # as it lies there after a SIGKILL
    assert filled.everlean("db", "check", "--json").json["events"] > 30
    aside = re.findall(r"events\.db(?:-\w+)?", told.split(" aside ")[0])
    assert aside == ["events.db", "events.db-wal", "events.db-shm", "events.db-anchor"]
    for name in aside:
        (filled.state / name).replace(left / name)
    (filled.root / "copy.db").replace(filled.state / "events.db")
    assert filled.everlean("db", "rebuild").code == 0
    answer = filled.everlean("db", "check", "--json")
    assert (answer.json["sound"], answer.json["events"] < 30) == (True, True)
    assert filled.everlean("db", "verify").code == 0


def test_a_backup_overwrites_nothing(filled: StateFolder) -> None:
    (filled.root / "copy.db").write_text("precious")
    answer = filled.everlean("db", "backup", "copy.db")
    assert answer.code == 1
    assert "exists" in answer.err
    assert (filled.root / "copy.db").read_text() == "precious"
    missing = filled.everlean("db", "backup", "nowhere/copy.db")
    assert missing.code == 1
    assert "create" in missing.err


def test_a_check_compares_the_log_with_its_view_and_says_that_the_anchor_is_gone(filled: StateFolder) -> None:
    log = filled.state / "events.db"
    log.with_name("events.db-anchor").unlink()
    sound = filled.everlean("db", "check")
    assert (sound.code, "events.db-anchor is not there" in sound.err) == (0, True)
    with closing(sqlite3.connect(filled.state / "database.db")) as connection, connection:
        (last,) = connection.execute("SELECT max(seq) FROM view_position").fetchone()
        connection.execute("UPDATE view_position SET seq = seq + 7")
    answer = filled.everlean("db", "check", "--json")
    assert (answer.code, answer.json["sound"]) == (1, False)
    assert f"it ends at event {last}, while database.db" in answer.json["problems"][-1]


@pytest.mark.parametrize("witness", ["the anchor", "the view"])
@pytest.mark.parametrize("left", ["nothing", "an empty file"])
def test_a_log_that_is_gone_is_not_called_one_that_was_never_begun(
    filled: StateFolder, witness: str, left: str
) -> None:
    log = filled.state / "events.db"
    log.unlink()
    if left == "an empty file":
        log.touch()
    if witness == "the view":
        log.with_name("events.db-anchor").unlink()
    for verb in ("db check", "db verify", "events"):
        answer = filled.everlean(*verb.split())
        assert answer.code == 1
        assert "missing or empty" in answer.err
        assert "db recover" in answer.err
        assert "start the daemon" not in answer.err
    assert filled.everlean("db", "recover", "--json").json["kept"] == 0
    assert filled.everlean("db", "check").code == 0


def test_without_a_log_every_verb_says_so(folder: StateFolder) -> None:
    for verb in ("verify", "rebuild", "check"):
        answer = folder.everlean("db", verb)
        assert answer.code == 1
        assert "events.db: no such database; start the daemon" in answer.err


def test_segments_are_checked_with_or_without_a_log_and_restored_to_an_event(
    filled: StateFolder, tmp_path: Path
) -> None:
    store, spool, shipped = (
        segments.SegmentStore(str(tmp_path / "store")),
        tmp_path / "spool",
        segments.NOTHING,
    )
    log_path = filled.state / "events.db"
    while result := segments.write(log_path, shipped, spool, most_bytes=2**16):
        segment, shipped = result
        store.put(segment, spool)
    position = shipped.link.seq
    answer = filled.everlean("db", "verify", "--segments", store.url, "--json")
    assert (answer.code, answer.json["position"], answer.json["log"]) == (0, position, position)
    assert answer.json["hash"] == shipped.link.hash.hex()
    answer = filled.everlean("db", "restore", store.url, str(tmp_path / "new.db"), "--upto", "5", "--json")
    assert (answer.code, answer.json["position"]) == (0, 5)
    with LogReader.open(tmp_path / "new.db") as log, LogReader.open(log_path) as old:
        assert list(log.read()) == list(old.read(upto=5))
    log_path.unlink()
    assert "up to event" in filled.everlean("db", "verify", "--segments", store.url).out
    (tmp_path / "store" / segment.name).rename(tmp_path / "store" / segment._replace(first=position).name)
    refused = filled.everlean("db", "verify", "--segments", store.url)
    assert refused.code == 1
    assert f"{position:012d}-{position:012d}" in refused.err
