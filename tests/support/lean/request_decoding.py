"""The way back from JSON to typed requests, and from typed replies to JSON, for recorded and hand-written exchanges.

An object that no well-formed client sends is decoded as a `RawRequest`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.lean.client.messages import StateRef
from pipeline.lean.client.requests import (
    EnvDescribe,
    EnvInspect,
    FrontendDistil,
    FrontendProcess,
    FrontendTrack,
    GoalDelete,
    GoalPrint,
    GoalStart,
    GoalTactic,
    OptionsSet,
    Request,
    Reset,
    Stat,
)

TYPES: tuple[type[Request[Any]], ...] = (
    Reset,
    Stat,
    OptionsSet,
    EnvDescribe,
    EnvInspect,
    GoalStart,
    GoalTactic,
    GoalDelete,
    GoalPrint,
    FrontendProcess,
    FrontendDistil,
    FrontendTrack,
)


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A request that no typed one describes: an unknown command, or fields that the REPL must refuse."""

    command: str
    fields: Mapping[str, object]

    def payload(self) -> dict[str, object]:
        return dict(self.fields)


def decode(command: str, payload: Mapping[str, object], *, generation: int) -> Request[Any] | RawRequest:
    """Return the typed request with this payload; its `payload()` is the same object again.

    Unknown fields and explicit nulls are kept in `extra`. `generation` goes into the states that it names.
    """
    for kind in TYPES:
        if kind.command != command:
            continue
        found = _typed(kind, payload, generation)
        if found is not None:
            return found
    return RawRequest(command, dict(payload))


def reply_json(command: str, reply: Any) -> dict[str, object]:
    """Return the wire's object for a reply that a request of this command decoded."""
    match command:
        case "frontend.process":
            return {"units": [unit.to_json() for unit in reply]}
        case "frontend.distil":
            return {"targets": [target.to_json() for target in reply]}
    found: dict[str, object] = reply.to_json()
    return found


def _typed(kind: type[Request[Any]], payload: Mapping[str, object], generation: int) -> Request[Any] | None:
    fields: dict[str, Any] = {}
    rest = dict(payload)
    for one in dataclasses.fields(kind):
        if "wire" not in one.metadata:
            continue
        name = one.metadata["wire"]
        if payload.get(name) is None:
            if not one.metadata["optional"]:
                return None
            continue
        value = _value(one.metadata["kind"], rest.pop(name), generation)
        if value is None:
            return None
        fields[one.name] = value
    try:
        return kind(**fields, extra=tuple(rest.items()))
    except ValueError:
        # Fields that contradict each other: what a RawRequest is for.
        return None


def _value(kind: str, raw: object, generation: int) -> object:
    """Return the field's value, or None when the JSON is of another type."""
    match kind, raw:
        case ("text", str()) | ("bool", bool()):
            return raw
        case ("natural" | "state", int()) if not isinstance(raw, bool) and raw >= 0:
            return StateRef(raw, generation) if kind == "state" else raw
        case "texts", list() if all(isinstance(item, str) for item in raw):
            return tuple(raw)
        case "states", list() if all(type(item) is int for item in raw):
            return tuple(StateRef(item, generation) for item in raw)
    return None
