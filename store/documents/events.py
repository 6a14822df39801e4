"""An event of the log, and its few fields for a line to people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_IN_A_LINE = (
    "repository", "branch", "path", "declaration", "sorry", "proof", "job", "kind", "state", "outcome",
    "problem", "reason", "subject", "describes", "version", "tip", "new", "sha",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    seq: int
    """its position, by which events are ordered"""
    event_id: str
    """a UUID; the same fact has the same id"""
    stream: str
    """`repository:<key>`, `job:<id>`, `proof:<id>`, `model:<name>`, `config` or `daemon`"""
    version: int
    """its position in the stream, from 1"""
    type: str
    schema_version: int
    data: dict[str, Any]
    """the facts, by the classes in `store/events/`"""
    recorded_at: str
    """UTC; information, never order"""
    occurred_at: str | None
    correlation_id: str | None
    """its chain, or null"""
    causation_id: str | None
    """the event that caused it, or null"""
    actor: str
    """its writer"""


def summary(data: dict[str, Any]) -> str:
    """Return the few fields of an event for people, in one line."""
    place = data.get("place")
    shown = []
    for name in _IN_A_LINE:
        value = data.get(name, place.get(name) if isinstance(place, dict) else None)
        if value in (None, "", []):
            continue
        text = str(value)
        is_commit = name in ("sha", "tip", "new") and len(text) >= 40
        shown.append(f"{name}={text[:10] if is_commit else text}")
    return " ".join(shown)
