"""Old events are read as what they mean today, and what is not understood is never skipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from store.errors import MalformedEventError, UnknownEventError
from store.events.base import EventBody
from store.events.registry import EVENT_TYPES
from store.log.envelope import StoredEvent
from store.log.upcast import Upcast, read_body, upcast

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


class TheoremDreamt(EventBody):
    """A made-up type at version 3: version 1 knew no hours, version 2 no mood."""

    type: ClassVar[str] = "theorem_dreamt"
    schema_version: ClassVar[int] = 3
    dreamer: str
    hours: float
    mood: str


STEPS: dict[tuple[str, int], Upcast] = {
    ("theorem_dreamt", 1): lambda data: {**data, "hours": 8 * data["nights"]},
    ("theorem_dreamt", 2): lambda data: (
        {key: data[key] for key in data if key != "nights"} | {"mood": "good"}
    ),
}


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (1, {"dreamer": "Ada", "nights": 2}),
        (2, {"dreamer": "Ada", "nights": 3, "hours": 16}),
        (3, {"dreamer": "Ada", "hours": 16, "mood": "good"}),
    ],
)
def test_s07_an_event_of_any_version_is_read_as_of_today_and_stays_as_it_was_written(
    version: int, data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EVENT_TYPES, "theorem_dreamt", TheoremDreamt)
    monkeypatch.setattr("store.log.upcast.UPCASTS", STEPS)
    event = stored("theorem_dreamt", version, data)
    assert read_body(event) == TheoremDreamt(dreamer="Ada", hours=16, mood="good")
    assert event.data == data


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
