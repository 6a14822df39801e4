"""Keep secrets out of what people read: logs, events, errors.

Two nets: the exact secrets that the caller holds, and the shapes that tokens have. Everything that git or an HTTP
library says of a failure goes through here before it becomes an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "***"
_SHAPES = (
    (re.compile(r"(?i)([a-z][a-z0-9+.-]*://)[^/\s@'\"]+@"), rf"\1{HIDDEN}@"),
    (
        re.compile(r"(?i)(authorization['\"]?\s*[:=]\s*['\"]?)(?:(?:basic|bearer|token)\s+)?[^\s,'\"}]+"),
        rf"\1{HIDDEN}",
    ),
    (
        re.compile(r"\b(?:gh[oprsu]_[A-Za-z0-9]{10,}|github_pat_[A-Za-z0-9_]{10,}|glpat-[A-Za-z0-9_-]{10,})"),
        HIDDEN,
    ),
)


def redact(text: str, *, secrets: Iterable[str] = ()) -> str:
    """Return the text with every known secret, and everything shaped like one, replaced by `***`."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, HIDDEN)
    for shape, replacement in _SHAPES:
        text = shape.sub(replacement, text)
    return text
