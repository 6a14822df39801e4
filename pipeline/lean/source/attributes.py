"""Git attributes that make a checkout of a file differ from its commit.

`ident` writes text, a filter or an encoding anything, `eol=crlf` other line ends: Lean reads the checkout, and a reader
of a mirror's objects something else.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from pathlib import PurePosixPath

NAME = ".gitattributes"
MOST_BYTES = 1 << 20
"""A longer file is not read."""
_ALTERING = re.compile(r"(?:ident|filter=.+|working-tree-encoding=.+|eol=crlf)\Z")


class Attributes:
    """The attributes of a commit's files.

    Args:
        text_of: the text of the file with a path, None without one.
    """

    def __init__(self, text_of: Callable[[str], str | None]) -> None:
        self._text_of = text_of
        self._rules: dict[str, list[tuple[str, list[str]]]] = {}

    def altered(self, path: str) -> str:
        """Return the difference between a file's checkout and its commit, as a sentence; "" for none."""
        set_by: dict[str, tuple[str, str]] = {}
        for folder in reversed(PurePosixPath(path).parents):
            above = "" if folder == PurePosixPath() else f"{folder}/"
            for pattern, words in self._of_folder(above):
                if _matches(path.removeprefix(above), pattern):
                    for word in words:
                        name = word.lstrip("-!").partition("=")[0]
                        set_by[name] = word, f"{above}{NAME}"
        if set_by.get("text", ("", ""))[0] == "-text" or "binary" in set_by:
            set_by.pop("eol", None)
        altering = [(word, where) for word, where in set_by.values() if _ALTERING.match(word)]
        if not altering:
            return ""
        listed = ", ".join(word for word, _ in altering)
        return f"{altering[-1][1]} has git write it with {listed}: what is built is not what was read"

    def _of_folder(self, above: str) -> list[tuple[str, list[str]]]:
        if above not in self._rules:
            lines = (line.split() for line in (self._text_of(above + NAME) or "").splitlines())
            self._rules[above] = [(words[0], words[1:]) for words in lines if words and words[0][0] != "#"]
        return self._rules[above]


def _matches(path: str, pattern: str) -> bool:
    """Return whether a pattern takes a path; one without a slash takes the names in every folder."""
    if "/" not in pattern:
        return fnmatch.fnmatchcase(PurePosixPath(path).name, pattern)
    return fnmatch.fnmatchcase(path, pattern.lstrip("/").replace("**/", "*"))
