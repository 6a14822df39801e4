"""Event versions made current: pure functions from dict to dict, one for each (type, from_version).

Rows of the log are never rewritten; a reader walks v1 -> v2 -> ... -> current. To change an event's shape:
raise its `schema_version` in `store.events`, add the step here, and keep the golden file of the old version
in tests/store/golden/ beside that of the new one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from store.errors import MalformedEventError, UnknownEventError

if TYPE_CHECKING:
    from store.events.base import EventBody
    from store.log.envelope import StoredEvent

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
"""From the data of one version to those of the next, without a change of the argument."""


UPCASTS: Mapping[tuple[str, int], Upcast] = MappingProxyType({})
"""All steps of this program; none yet, since every type is still at version 1."""


def upcast(
    event_type: str,
    version: int,
    data: dict[str, Any],
    *,
    seq: int,
    current: Mapping[str, int],
    steps: Mapping[tuple[str, int], Upcast],
) -> dict[str, Any]:
    """Return the data in the current version. `current` maps each known type to its version.

    Raises:
        UnknownEventError: no such type, a newer version, or a step is missing.
    """
    newest = current.get(event_type)
    if newest is None or version > newest:
        raise UnknownEventError(seq, event_type, version, known=newest)
    for step in range(version, newest):
        function = steps.get((event_type, step))
        if function is None:
            raise UnknownEventError(seq, event_type, version, known=newest)
        data = function(data)
    return data


def read_body(event: StoredEvent) -> EventBody:
    """Return the body of a stored event, upcast and validated.

    Raises:
        UnknownEventError: the type or its version is unknown here.
        MalformedEventError: the data do not have the shape of their type.
    """
    types = _event_types()
    body_type = types.get(event.type)
    try:
        if body_type is not None and event.schema_version == body_type.schema_version:
            # From the text itself: a dict first would take as long again as all the checks.
            return body_type.model_validate_json(event.data_json)
        versions = {name: cls.schema_version for name, cls in types.items()}
        data = upcast(
            event.type, event.schema_version, event.data, seq=event.seq, current=versions, steps=UPCASTS
        )
        return types[event.type].model_validate_json(json.dumps(data))
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEventError(event.seq, event.type, event.schema_version, _fault(error)) from error


@cache
def _event_types() -> Mapping[str, type[EventBody]]:
    # Not at the top of this file: a reader of the log without need of bodies starts without pydantic.
    from store.events.registry import EVENT_TYPES

    return EVENT_TYPES


def _fault(error: Exception) -> str:
    """Return the fault of the data: the first faulty field, or the error of an upcast."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return f"{type(error).__name__}: {error}"
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]
