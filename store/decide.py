"""What an append may do: pure decisions, shared by the SQLite log and the one in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from store.envelope import Appended, Expect, Prepared, content_hash, meets
from store.errors import ConcurrencyError, IdempotencyError, InvalidAppendError

Recorded = tuple[int, int, str, str, int, str, str | None]
"""Of an event in the log: seq, version, stream, type, schema_version, data, occurred_at."""


def check_batch(prepared: Sequence[Prepared], expect: Mapping[str, int | Expect]) -> None:
    """Refuse what could never be appended.

    Raises:
        InvalidAppendError: nothing to append, a stream without an expectation, or one id twice.
    """
    if not prepared:
        raise InvalidAppendError("an append needs at least one event")
    seen: set[str] = set()
    for event in prepared:
        if not event.stream:
            raise InvalidAppendError(f"{event.type}: its stream has no name")
        if event.stream not in expect:
            raise InvalidAppendError(
                f"{event.type}: no expected version was given for stream {event.stream!r}; name it, or Expect.ANY"
            )
        if event.event_id in seen:
            raise InvalidAppendError(
                f"{event.type}: event id {event.event_id} stands twice in one batch; make its natural key unique"
            )
        seen.add(event.event_id)


def check_expectations(versions: Mapping[str, int], expect: Mapping[str, int | Expect]) -> None:
    """Compare the streams with what was expected of them.

    Raises:
        ConcurrencyError: the first stream that differs.
    """
    for stream, expected in expect.items():
        if not meets(versions[stream], expected):
            wanted = f"version {expected}" if isinstance(expected, int) else expected.value
            raise ConcurrencyError(stream, expected=wanted, actual=versions[stream])


def recorded_before(prepared: Sequence[Prepared], found: Mapping[str, Recorded]) -> Appended | None:
    """Decide whether a batch is a repetition: None if it is new, its positions if all of it is recorded.

    Raises:
        IdempotencyError: an id was recorded with other content, only a part is recorded, or out of order.
    """
    if not found:
        return None
    other = tuple(
        event.event_id
        for event in prepared
        if event.event_id in found and event.content_hash() != content_hash(*found[event.event_id][2:])
    )
    if other:
        raise IdempotencyError(other, "recorded before with other content")
    if len(found) < len(prepared):
        raise IdempotencyError(
            tuple(event.event_id for event in prepared if event.event_id in found),
            f"{len(found)} of the {len(prepared)} events of this batch are recorded and the others are not",
        )
    positions = [found[event.event_id][0] for event in prepared]
    if positions != sorted(positions):
        raise IdempotencyError(
            tuple(event.event_id for event in prepared), "recorded before in another order than now"
        )
    return Appended(
        first_seq=positions[0],
        last_seq=positions[-1],
        repeated=True,
        versions={event.stream: found[event.event_id][1] for event in prepared},
    )
