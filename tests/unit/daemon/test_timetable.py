"""What keeps work from beginning: pauses and quiet hours; and when a training makes way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from daemon.planning.schedule import LEAST_S, Timetable, why_yield
from daemon.settings.schema import Schedule
from store.view.rows import PauseRow

NIGHT = datetime(2026, 6, 1, 23, tzinfo=UTC)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def table(*pauses: str, **schedule: Any) -> Timetable:
    rows = [PauseRow(work, "ada", "", "2026-06-01T00:00:00Z") for work in pauses]
    return Timetable(Schedule.model_validate(schedule), NIGHT, rows)


def said(found: Any) -> str | None:
    return None if found is None else found.text


def test_nothing_waits_where_nothing_is_asked() -> None:
    assert table().of_kind("train") is None
    assert table().of_work("poll") is None


def test_quiet_hours_are_of_one_sort_of_work_and_say_until_when() -> None:
    quiet = table(quiet={"train": ["22:00-06:00"]})
    wait = quiet.of_kind("train_tactics")
    assert wait is not None
    assert (wait.because, wait.text) == ("quiet", "quiet hours until 06:00")
    assert wait.until == datetime(2026, 6, 2, 6, tzinfo=UTC)
    assert quiet.of_kind("prove") is None
    assert quiet.of_kind("scan") is None


def test_a_pause_names_its_author_and_the_remedy_and_has_no_end_of_its_own() -> None:
    wait = table("prove").of_kind("check")
    assert wait is not None
    assert (wait.text, wait.until) == ("paused by ada; `everlean resume prove`", None)
    assert table("prove").of_kind("train") is None
    assert said(table("all").of_kind("scan")) == "paused by ada; `everlean resume all`"
    assert said(table("all").of_work("poll")) == "paused by ada; `everlean resume all`"


def yields(timetable: Timetable, kind: Any = "train", **changes: Any) -> str:
    about = {"runs_for_s": LEAST_S, "holds_gpu": True, "waiting_for_gpu": ("prove a",), **changes}
    return why_yield(timetable, kind, **about)


def test_a_training_is_preempted_for_what_the_settings_name_and_for_nothing_else() -> None:
    quiet: dict[str, Any] = {"quiet": {"train": ["22:00-06:00"]}}
    assert yields(table(**quiet)) == "quiet hours until 06:00"
    assert yields(table(**quiet, preempt=[])) == ""
    assert yields(table("train")) == "paused by ada; `everlean resume train`"
    assert yields(table("train", preempt=["quiet"])) == ""
    assert yields(table("train"), "prove") == "", "another sort"


def test_a_search_is_preempted_for_a_pause_and_quiet_hours_and_what_is_short_ends_by_itself() -> None:
    assert yields(table("prove"), "prove") == "paused by ada; `everlean resume prove`"
    assert yields(table("all"), "prove") == "paused by ada; `everlean resume all`"
    assert yields(table(quiet={"prove": ["22:00-06:00"]}), "prove") == "quiet hours until 06:00"
    assert yields(table("prove", preempt=["quiet"]), "prove") == ""
    assert yields(table(preempt=["prove"]), "prove") == "", "it is itself what is waited for"
    for kind in ("check", "scan", "build", "trace"):
        assert yields(table("all"), kind) == ""


def test_a_search_that_asks_an_endpoint_is_preempted_for_nothing() -> None:
    for timetable in (table("prove"), table("all"), table(quiet={"prove": ["22:00-06:00"]})):
        assert yields(timetable, "prove") != ""
        assert yields(timetable, "prove", asks_endpoint=True) == "", "what it asked for is paid"


def test_a_training_is_preempted_for_a_proof_once_it_has_something_to_save() -> None:
    prove = table(preempt=["prove"])
    assert yields(prove) == "prove a waits for its GPU"
    assert yields(prove, runs_for_s=LEAST_S - 1) == ""
    assert yields(prove, holds_gpu=False) == ""
    assert yields(prove, waiting_for_gpu=()) == ""
    assert yields(table()) == "", "by default it goes on"
