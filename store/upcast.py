"""Old event versions made current: pure functions from dict to dict, one for each (type, from_version).

Rows of the log are never rewritten; a reader walks v1 -> v2 -> ... -> current. To change an event's shape: raise
its `schema_version` in `store.events`, add the step here, and put a golden file of the old version in
tests/store/golden/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from store.errors import MalformedEventError, UnknownEventError

if TYPE_CHECKING:
    from store.envelope import StoredEvent
    from store.events import EventBody

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes the data of one version, returns that of the next; must not change its argument."""


def _commit_scanned_1(data: dict[str, Any]) -> dict[str, Any]:
    # Version 1 did not say which paths were meant. The defaults are the likeliest; where they are wrong, the tip
    # is scanned once more and says it itself.
    return {**data, "include": ["**/*.lean"], "exclude": []}


UPCASTS: Mapping[tuple[str, int], Upcast] = MappingProxyType({("commit_scanned", 1): _commit_scanned_1})
"""All steps that this version knows."""


def upcast(
    event_type: str,
    version: int,
    data: dict[str, Any],
    *,
    seq: int,
    current: Mapping[str, int],
    steps: Mapping[tuple[str, int], Upcast] = UPCASTS,
) -> dict[str, Any]:
    """Return the data as the current version has them. `current` maps each known type to its version.

    Raises:
        UnknownEventError: no such type, a newer version, or a step is missing.
    """
    known = current.get(event_type)
    if known is None or version > known:
        raise UnknownEventError(seq, event_type, version, known=known)
    for step in range(version, known):
        function = steps.get((event_type, step))
        if function is None:
            raise UnknownEventError(seq, event_type, version, known=known)
        data = function(data)
    return data


def read_body(event: StoredEvent) -> EventBody:
    """Return what a stored event says, upcast and validated.

    Raises:
        UnknownEventError: the type or its version is not known here.
        MalformedEventError: the data do not have the shape of their type.
    """
    from pydantic import ValidationError

    from store.events import EVENT_TYPES

    body_type = EVENT_TYPES.get(event.type)
    data = event.data
    if body_type is None or event.schema_version != body_type.schema_version:
        versions = {name: cls.schema_version for name, cls in EVENT_TYPES.items()}
        data = upcast(event.type, event.schema_version, data, seq=event.seq, current=versions)
        body_type = EVENT_TYPES[event.type]
    try:
        # JSON has no tuples and no datetimes: strict=False lets pydantic read both out of lists and text.
        return body_type.model_validate(data, strict=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = f"{where}: {first['msg']}"
        raise MalformedEventError(event.seq, event.type, event.schema_version, reason) from error
