"""An event, as a line for people."""

from __future__ import annotations

from typing import Any

_TOLD = (
    "repository", "branch", "path", "declaration", "sorry", "proof", "job", "kind", "state", "outcome",
    "problem", "reason", "subject", "describes", "version", "tip", "new", "sha",
)  # fmt: skip


def summary(data: dict[str, Any]) -> str:
    """The few fields of an event that a person looks for, in one line."""
    place = data.get("place")
    shown = []
    for name in _TOLD:
        value = data.get(name, place.get(name) if isinstance(place, dict) else None)
        if value in (None, "", []):
            continue
        text = str(value)
        is_commit = name in ("sha", "tip", "new") and len(text) >= 40
        shown.append(f"{name}={text[:10] if is_commit else text}")
    return " ".join(shown)
