"""The place of a sorry, in events: a plain class, so that comparing sources needs no pydantic."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

OBJECT_ID = r"[0-9a-f]{40}([0-9a-f]{24})?"
"""A git object id, SHA-1 or SHA-256, in full."""
_OBJECT_ID = re.compile(OBJECT_ID)


@dataclass(frozen=True, slots=True)
class SorryPlace:
    """The place of a sorry at a commit. Line from 1, column from 0 in code points, bytes half open.

    Raises:
        ValueError: `blob` is no git object id.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}
    path: str
    blob: str
    line: int
    column: int
    byte_start: int
    byte_end: int
    declaration: str
    kind: str
    statement: str
    statement_hash: str
    ordinal: int
    token: Literal["sorry", "admit", "stop"]
    mode: Literal["term", "tactic"]
    context_hash: str

    def __post_init__(self) -> None:
        if not _OBJECT_ID.fullmatch(self.blob):
            raise ValueError(f"the blob of a sorry's place is {self.blob!r}; a git object id is expected")
