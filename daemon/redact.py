"""Keep secrets out of logs, events and errors.

Two nets: the secrets that the caller holds, in each form in which they travel, and the shapes that tokens have.
Everything that git or an HTTP library says of a failure goes through here before it becomes an error.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

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
        for form in forms(secret) if secret else ():
            text = text.replace(form, HIDDEN)
    for shape, replacement in _SHAPES:
        text = shape.sub(replacement, text)
    return text


@lru_cache(maxsize=64)
def forms(secret: str) -> tuple[str, ...]:
    """Return the secret as it is, as a URL has it, and as HTTP headers have it (base64, also with git's user name)."""
    found = {secret, quote(secret), quote(secret, safe="")}
    for said in (secret, f"x-access-token:{secret}"):
        # Without its padding: what follows may be joined to it.
        for encode in (base64.standard_b64encode, base64.urlsafe_b64encode):
            found.add(encode(said.encode()).decode().rstrip("="))
    return tuple(sorted(found, key=len, reverse=True))
