"""Old events are read as what they mean today, and what is not understood is never skipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from store.errors import MalformedEventError, UnknownEventError
from store.events.registry import EVENT_TYPES
from store.log.envelope import StoredEvent
from store.log.upcast import read_body, upcast

GOLDEN = Path(__file__).parents[2] / "store" / "golden"


def stored(event_type: str, version: int, data: dict[str, Any]) -> StoredEvent:
    return StoredEvent(7, "id", "s", 1, event_type, version, json.dumps(data), "now", None, None, None, "me")


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.name)
def test_every_event_ever_written_can_still_be_read(path: Path) -> None:
    event_type, version = path.name.removesuffix(".json").split(".v")
    data = json.loads(path.read_text(encoding="utf-8"))
    body = read_body(stored(event_type, int(version), data))
    assert type(body) is EVENT_TYPES[event_type]
    if int(version) == body.schema_version:
        assert json.loads(body.model_dump_json()) == data


def test_every_type_and_version_has_its_golden_file() -> None:
    wanted = {
        f"{name}.v{v}.json" for name, cls in EVENT_TYPES.items() for v in range(1, cls.schema_version + 1)
    }
    assert wanted == {path.name for path in GOLDEN.glob("*.json")}


@pytest.mark.parametrize("event_type", ["checkpoint_saved", "checkpoint_promoted", "evaluation_finished"])
def test_what_was_recorded_of_models_before_there_was_a_mark_is_of_lean(event_type: str) -> None:
    data = json.loads((GOLDEN / f"{event_type}.v1.json").read_text(encoding="utf-8"))
    body = read_body(stored(event_type, 1, data))
    assert body.schema_version >= 2
    assert body.model_dump()["simulated"] is False


def test_a_mend_that_was_not_judged_in_the_commit_as_it_is_handed_over_is_not_called_verified() -> None:
    data = json.loads((GOLDEN / "bump_finished.v1.json").read_text(encoding="utf-8"))
    (mend,) = data["mended"]
    said = {**mend, "verdict": "verified"}
    body = read_body(stored("bump_finished", 1, {**data, "mended": [mend, said]}))
    why = "not judged in the commit as it is handed over"
    mended = body.model_dump()["mended"]
    assert [tuple(one[name] for name in ("verdict", "axioms", "grade", "reason")) for one in mended] == [
        ("checked", (), "", why)
    ] * 2
    assert {one["follows"] for one in body.model_dump()["left"]} == {""}
    data = json.loads((GOLDEN / "bump_tried.v1.json").read_text(encoding="utf-8"))
    for size, is_cut in ((19_999, False), (20_000, True)):
        body = read_body(stored("bump_tried", 1, {**data, "text": "x" * size}))
        assert body.model_dump()["text_cut"] is is_cut


def test_steps_are_walked_in_order_up_to_the_current_version() -> None:
    steps = {
        ("t", 1): lambda data: data | {"b": data["a"] + 1},
        ("t", 2): lambda data: data | {"c": data["b"] + 1},
    }
    assert upcast("t", 1, {"a": 1}, seq=1, current={"t": 3}, steps=steps) == {"a": 1, "b": 2, "c": 3}
    assert upcast("t", 2, {"b": 5}, seq=1, current={"t": 3}, steps=steps) == {"b": 5, "c": 6}
    assert upcast("t", 3, {"c": 5}, seq=1, current={"t": 3}, steps=steps) == {"c": 5}


@pytest.mark.parametrize(
    ("event_type", "version", "known"),
    [("nothing", 1, None), ("t", 4, 3), ("t", 1, 3)],
    ids=["unknown type", "newer version", "missing step"],
)
def test_what_cannot_be_read_is_an_error_that_names_the_event(
    event_type: str, version: int, known: int | None
) -> None:
    with pytest.raises(UnknownEventError, match=f"event 9: {event_type} version {version}") as caught:
        upcast(event_type, version, {}, seq=9, current={"t": 3}, steps={("t", 2): dict})
    error = caught.value
    assert (error.seq, error.type, error.version, error.known) == (9, event_type, version, known)


def test_a_stored_event_of_another_shape_is_named_with_its_field() -> None:
    with pytest.raises(MalformedEventError, match=r"event 7: daemon_stopped version 1 .*pid"):
        read_body(stored("daemon_stopped", 1, {"reason": "r", "pid": "seven"}))
    with pytest.raises(MalformedEventError, match="Extra inputs"):
        read_body(stored("daemon_stopped", 1, {"reason": "r", "pid": 7, "mood": "good"}))
