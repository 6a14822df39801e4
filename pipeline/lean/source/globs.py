"""Match the paths of a repository against the globs of its watchlist entry.

`*` and `?` stop at `/`, `[a-z]` and `[!a-z]` are one character, `**/` is any number of folders, also none, and a
`**` at the end is everything below. So `**/*.lean` means every Lean file, `*.lean` only those at the root,
`Foo/**` everything in `Foo`. A pattern must match the whole path; upper and lower case differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

EVERY_LEAN_FILE = "**/*.lean"
LAKEFILE = "lakefile.lean"
_PIECE = re.compile(r"(?:\*\*/)+|\*\*|\*|\?|\[!?[^\]/]+\]|.", re.DOTALL)


def translate(pattern: str) -> str:
    """Return the regex of one pattern."""
    parts = []
    for piece in _PIECE.findall(pattern.removeprefix("./")):
        match piece:
            case _ if piece.endswith("**/"):
                # Not possessive: the folders that come next in the pattern may be any of these.
                parts.append("(?:[^/]+/)*")
            case "**":
                parts.append(".*")
            case "*":
                parts.append("[^/]*")
            case "?":
                parts.append("[^/]")
            case _ if len(piece) > 1:
                negated = "^" if piece.startswith("[!") else ""
                inside = (
                    piece[1:-1].removeprefix("!").replace("\\", r"\\").replace("^", r"\^").replace("[", r"\[")
                )
                parts.append(f"[{negated}{inside}]")
            case _:
                parts.append(re.escape(piece))
    return "".join(parts)


def path_filter(include: Sequence[str], exclude: Sequence[str]) -> Callable[[str], bool]:
    """Return a filter for paths that match one of `include` (by default every Lean file) and none of `exclude`.

    A `lakefile.lean` is a program for lake and no source of the library: only its own path takes it.

    Raises:
        ValueError: A pattern is malformed; the message names it.
    """
    wanted = _compile(include or (EVERY_LEAN_FILE,))
    unwanted = _compile(exclude)

    def meant(path: str) -> bool:
        if path.rpartition("/")[2] == LAKEFILE and path not in include:
            return False
        return any(item.fullmatch(path) for item in wanted) and not any(
            item.fullmatch(path) for item in unwanted
        )

    return meant


def _compile(patterns: Sequence[str]) -> list[re.Pattern[str]]:
    return [_compiled(pattern) for pattern in patterns]


@lru_cache(maxsize=1024)  # every plan needs the watchlist's patterns
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(translate(pattern), re.DOTALL)
    except re.error as error:
        raise ValueError(f"path pattern {pattern!r}: {error}") from error
