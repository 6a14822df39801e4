"""The tables of the log against clients that are not ours: nothing recorded can be changed or removed.

Only a client that first drops the triggers gets through, and `everlean db check` reports a missing trigger.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from store.errors import LogDamagedError
from store.events.service import DaemonStopped
from store.log.backup import check
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from tests.support.events import PATCH, proof_checked, proof_found, samples, stage

EVENT = "'x', 'daemon', {version}, 'daemon_stopped', 1, '{{}}', 'now', NULL, NULL, NULL, 'me'"
BLOB = "length('abc'), x'00'"

ATTACKS = {
    "update": "UPDATE events SET data = '{}' WHERE seq = 1",
    "update or ignore": "UPDATE OR IGNORE events SET data = '{}' WHERE seq = 1",
    "update or replace the key": "UPDATE OR REPLACE events SET seq = 1 WHERE seq = 2",
    "delete": "DELETE FROM events WHERE seq = 1",
    "delete all": "DELETE FROM events",
    "replace by seq": f"INSERT OR REPLACE INTO events VALUES (1, {EVENT.format(version=3)})",
    "replace by rowid": "INSERT OR REPLACE INTO events (rowid, event_id, stream, version, type, schema_version, data, "
    "recorded_at, actor) VALUES (1, 'x', 'daemon', 3, 't', 1, '{}', 'now', 'me')",
    "replace statement": f"REPLACE INTO events VALUES (1, {EVENT.format(version=3)})",
    "replace by event id": "INSERT OR REPLACE INTO events SELECT NULL, event_id, stream, 3, type, 1, '{}', "
    "recorded_at, NULL, NULL, NULL, actor FROM events WHERE seq = 1",
    "replace by stream version": "INSERT OR REPLACE INTO events SELECT NULL, 'x', stream, version, type, 1, '{}', "
    "recorded_at, NULL, NULL, NULL, actor FROM events WHERE seq = 1",
    "upsert": "INSERT INTO events SELECT NULL, event_id, stream, 3, type, 1, '{}', recorded_at, NULL, NULL, NULL, "
    "actor FROM events WHERE seq = 1 ON CONFLICT (event_id) DO UPDATE SET data = '{}'",
    "gap in seq": f"INSERT INTO events VALUES (99, {EVENT.format(version=3)})",
    "gap in version": f"INSERT INTO events VALUES (NULL, {EVENT.format(version=4)})",
    "negative seq": f"INSERT INTO events VALUES (-1, {EVENT.format(version=3)})",
    "no json": "INSERT INTO events VALUES (NULL, 'x', 'daemon', 3, 't', 1, '{', 'now', NULL, NULL, NULL, 'me')",
    "blob update": "UPDATE blobs SET content = x'00'",
    "blob delete": "DELETE FROM blobs",
    "blob replace by hash": f"INSERT OR REPLACE INTO blobs SELECT NULL, sha256, {BLOB} FROM blobs",
    "blob replace by id": f"INSERT OR REPLACE INTO blobs SELECT id, '{'0' * 64}', {BLOB} FROM blobs",
    "blob upsert": f"INSERT INTO blobs SELECT NULL, sha256, {BLOB} FROM blobs WHERE true "
    "ON CONFLICT (sha256) DO UPDATE SET content = x'00'",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log that no test attacks."""
    folder = tmp_path_factory.mktemp("made")
    _, blobs = stage(folder / "staging", PATCH)
    found = proof_found("s", samples()["sorry_opened"].place, commit="0" * 40)  # type: ignore[attr-defined] # a SorryOpened
    with EventLog.open(folder / "events.db") as log:
        events = [NewEvent("daemon", DaemonStopped(reason="kept", pid=number)) for number in (1, 2)]
        log.append(events, expect={"daemon": 0})
        log.append([NewEvent("proof:p", proof_checked(found))], expect={"proof:p": Expect.ANY}, blobs=blobs)
    return folder


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    for name in ("events.db", "events.db-anchor"):
        shutil.copy(made / name, tmp_path)
    return tmp_path / "events.db"


def content(path: Path) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        events = connection.execute("SELECT * FROM events ORDER BY seq").fetchall()
        return events + connection.execute("SELECT * FROM blobs ORDER BY id").fetchall()
    finally:
        connection.close()


@pytest.mark.parametrize("recursive", ["ON", "OFF"])
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_s06_a_plain_connection_cannot_change_what_is_recorded(
    path: Path, attack: str, recursive: str
) -> None:
    before = content(path)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(f"PRAGMA recursive_triggers = {recursive}")
        with pytest.raises(sqlite3.IntegrityError, match=r"append-only|CHECK constraint failed"):
            connection.execute(attack)
    finally:
        connection.close()
    assert content(path) == before


@pytest.mark.usefixtures("sqlite_shell")
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_s06_the_sqlite_shell_cannot_change_what_is_recorded(path: Path, attack: str) -> None:
    before = content(path)
    script = f"PRAGMA recursive_triggers=OFF;\nPRAGMA foreign_keys=OFF;\n{attack};\n"
    done = subprocess.run(["sqlite3", str(path)], input=script, capture_output=True, text=True, timeout=60)
    assert "append-only" in done.stderr or "CHECK constraint failed" in done.stderr
    assert content(path) == before


def test_s06_an_event_that_another_program_adds_by_the_rules_has_no_hash(path: Path) -> None:
    connection = sqlite3.connect(path)
    try:
        connection.execute(
            "INSERT INTO events SELECT NULL, 'x', stream, 3, type, 1, data, recorded_at, NULL, NULL, NULL, 'me' "
            "FROM events WHERE seq = 1"
        )
        connection.commit()
    finally:
        connection.close()
    assert check(path).problems == ("event 4: has no hash: it was not recorded by everlean",)
    with pytest.raises(LogDamagedError, match="its last event is 4, and its chain ends at event 3"):
        EventLog.open(path)


def test_s06_a_log_whose_triggers_were_dropped_does_not_pass_the_check(path: Path) -> None:
    connection = sqlite3.connect(path)
    try:
        connection.execute("DROP TRIGGER events_no_delete")
        connection.execute("DELETE FROM events WHERE seq = 1")
        connection.commit()
    finally:
        connection.close()
    problems = "\n".join(check(path).problems)
    assert "events_no_delete is gone" in problems
    assert "rows are missing" in problems
    assert "stream daemon" in problems
