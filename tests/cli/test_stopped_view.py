"""A log that a newer version wrote: every verb answers up to the event that is not understood, and says so."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from store.events.repositories import CommitObserved
from store.log import chain
from tests.support.state_folder import REPOSITORY, StateFolder

LATER = "c" * 40
RECORDED = ("2026-01-01T00:00:00.000000Z", None, None, None, "x")


def add_raw(folder: StateFolder, event_type: str, version: int, data: dict[str, Any]) -> int:
    """Add an event as another version of the program would; return its seq."""
    with closing(sqlite3.connect(folder.state / "events.db")) as connection, connection:
        stream = f"repository:{REPOSITORY}"
        seq, stream_version = connection.execute(
            "SELECT (SELECT max(seq) FROM events) + 1, max(version) + 1 FROM events WHERE stream = ?",
            (stream,),
        ).fetchone()
        row = (seq, f"other-{seq}", stream, stream_version, event_type, version, json.dumps(data), *RECORDED)
        connection.execute(f"INSERT INTO events VALUES ({', '.join('?' * len(row))})", row)
        chain.insert(connection, [chain.linked(chain.last(connection), row)])
    return int(seq)


def rows_of_the_log(folder: StateFolder) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder.state / "events.db")) as connection:
        return connection.execute("SELECT * FROM events ORDER BY seq").fetchall()


@pytest.fixture(params=[("theorem_dreamt", 1), ("commit_scanned", 99)], ids=["unknown type", "newer version"])
def stopped(request: pytest.FixtureRequest, filled: StateFolder) -> tuple[StateFolder, int, str]:
    """A folder whose log goes on after an event that this version does not know: folder, its seq, its type."""
    event_type, version = request.param
    seq = add_raw(filled, event_type, version, {"dream": "of sheep"})
    filled.add(f"repository:{REPOSITORY}", CommitObserved.model_validate({
        "repository": REPOSITORY, "branch": "main", "sha": LATER, "parents": ("a" * 40,), "author": "A",
        "committed_at": "2026-01-02T00:00:00Z", "subject": "after it", "baseline": False,
    }))  # fmt: skip
    filled.write(project=False)
    result = filled.everlean("db", "rebuild")
    assert f"event {seq}: {event_type} version {version}" in result.err
    return filled, seq, event_type


def test_s08_status_answers_up_to_the_unknown_event_and_names_position_reason_and_remedy(
    stopped: tuple[StateFolder, int, str],
) -> None:
    folder, seq, event_type = stopped
    document = folder.everlean("status", "--json").json
    (problem,) = [item for item in document["problems"] if item["code"] == "view_stopped"]
    assert problem["severity"] == "error"
    assert f"event {seq}: {event_type}" in problem["message"]
    assert "install" in problem["message"]
    assert not document["healthy"]
    assert document["log"]["view_position"] == seq - 1
    assert document["log"]["position"] == seq + 1
    assert document["sorries"]["verified"] == 1
    assert [item["repository"] for item in document["repositories"]] == [REPOSITORY]


@pytest.mark.parametrize("verb", ["sorries", "theorems", "proofs", "repos", "jobs"])
def test_s08_every_reading_verb_answers_up_to_the_unknown_event_and_says_that_it_stops_there(
    stopped: tuple[StateFolder, int, str], verb: str
) -> None:
    folder, seq, event_type = stopped
    answer = folder.everlean(verb, "--json")
    assert answer.code == 0
    assert answer.json["schema"] >= 1
    assert LATER not in answer.out
    assert f"up to event {seq - 1}: event {seq}: {event_type}" in answer.err


def test_s08_a_verb_as_of_a_moment_answers_before_the_unknown_event_and_refuses_after_it(
    stopped: tuple[StateFolder, int, str],
) -> None:
    folder, seq, event_type = stopped
    before = folder.everlean("sorries", "--all", "--as-of", str(seq - 1), "--json")
    assert len(before.json["sorries"]) == 2
    after = folder.everlean("sorries", "--as-of", str(seq + 1), "--json")
    assert (after.code, after.out) == (1, "")
    assert f"event {seq}: {event_type}" in after.err


def test_s08_the_log_itself_is_shown_whole_with_what_is_not_understood_as_it_was_written(
    stopped: tuple[StateFolder, int, str],
) -> None:
    folder, seq, event_type = stopped
    answer = folder.everlean("events", "--json")
    assert answer.code == 0
    events = [json.loads(line) for line in answer.out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, seq + 2))
    assert (events[seq - 1]["type"], events[seq - 1]["data"]) == (event_type, {"dream": "of sheep"})
    assert folder.everlean("events", "--last", "2").code == 0


def test_s08_the_view_up_to_there_still_verifies_and_the_log_is_sound(
    stopped: tuple[StateFolder, int, str],
) -> None:
    folder, seq, _ = stopped
    answer = folder.everlean("db", "verify", "--json")
    assert (answer.code, answer.json["same"], answer.json["position"]) == (0, True, seq - 1)
    assert folder.everlean("db", "check").code == 0


def test_s08_the_daemon_refuses_to_go_on_with_the_reason_and_records_nothing(
    stopped: tuple[StateFolder, int, str],
) -> None:
    folder, seq, event_type = stopped
    before = rows_of_the_log(folder)
    answer = folder.everlean("run")
    assert answer.code == 1
    assert f"event {seq}: {event_type}" in answer.err + answer.out
    assert "newer everlean" in answer.err + answer.out
    assert rows_of_the_log(folder) == before
