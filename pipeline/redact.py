"""Keep secrets out of logs, events and errors.

Two nets: the caller's secrets, in each form that contains them, and the shapes of tokens. Every failure message of git
or an HTTP library goes through here before it becomes an error.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

HIDDEN = "***"
_SHAPES = (
    (re.compile(r"(?i)([a-z][a-z0-9+.-]{0,30}://)[^/\s@'\"]+@"), rf"\1{HIDDEN}@"),
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
            text = _spellings(secret).sub(HIDDEN, text)
    for shape, replacement in _SHAPES:
        text = shape.sub(replacement, text)
    return text


_SHORT = 8
"""A shorter secret is looked for only in its plain form: ordinary text would contain the others."""


@lru_cache(maxsize=64)
def _spellings(secret: str) -> re.Pattern[str]:
    """Return a pattern for the secret itself and encodings of it:

    in any case of its letters, with any of them percent-encoded (also twice) or escaped as in JSON; reversed; in
    hexadecimal with or without separators; in base64 at any offset, with line breaks or without.
    """
    if len(secret) < _SHORT:
        return re.compile("|".join(map(re.escape, {secret, quote(secret), quote(secret, safe="")})))
    data = secret.encode()
    pairs = r"(?:[\s:,-]|%(?:25){0,2}|\\{1,4}x|0x){0,4}".join(f"{byte:02x}" for byte in data)
    result = [_spelt(secret), _spelt(secret[::-1]), pairs]
    for before in range(3):
        # The first and the last letters also depend on the neighbouring text: they are removed too.
        whole = base64.standard_b64encode(b"x" * before + data).decode().rstrip("=")
        inner = whole[(8 * before + 5) // 6 : 8 * (before + len(data)) // 6]
        result.append(rf"[\w+/-]?{_spelt(inner, between=chr(92) + 's{0,4}')}[\w+/-]?=*")
    return re.compile("|".join(result), re.IGNORECASE)


def _spelt(text: str, *, between: str = "") -> str:
    """Return a pattern of these letters, each as it is, escaped or percent-encoded; `+/` also as `-_`."""
    return between.join(_letter(letter) for letter in text)


def _letter(letter: str) -> str:
    percent = "".join(f"%(?:25){{0,2}}{byte:02x}" for byte in letter.encode())
    itself = {"+": r"[+-]", "/": r"\\{0,4}[/_]"}.get(letter, re.escape(letter))
    escape = f"|\\\\{{1,4}}u{ord(letter):04x}" if ord(letter) < 0x10000 else ""
    return f"(?:{itself}|{percent}{escape})"
