"""Check 2, the shape, as the scanner reads it: only a sorry's bytes change, and no command is added or taken.

What closes the theorem early and declares more, or swallows what follows, shows here; Lean's own view of the
commands is compared in the compile check.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from pipeline.gate.policy import complaints
from pipeline.lean.source.lexer import lex
from pipeline.lean.source.scanner import parse, scan_source
from pipeline.prove.splice import Replacement


def outside_the_sorrys(before: bytes, replacement: Replacement) -> tuple[str, ...]:
    """Hold that the replaced bytes are one sorry, or several with the text between them kept."""
    scanned = scan_source(before, path="")
    byte_start, byte_end = replacement.byte_start, replacement.byte_end
    sorries = [
        sorry for sorry in scanned.sorries if byte_start <= sorry.byte_start and sorry.byte_end <= byte_end
    ]
    if not sorries or (sorries[0].byte_start, sorries[-1].byte_end) != (byte_start, byte_end):
        return (f"bytes {byte_start}..{byte_end} are no sorry at this commit",)
    if len({sorry.index for sorry in sorries}) != 1:
        return ("the replaced bytes reach over more than one declaration",)
    between = [before[one.byte_end : other.byte_start].decode() for one, other in itertools.pairwise(sorries)]
    if not _kept(replacement.text, between):
        return ("the text between the declaration's sorrys was changed",)
    return ()


def dedents(before: bytes, replacement: Replacement) -> tuple[str, ...]:
    """Hold that no line of the replacement begins where the next command would.

    The scanner cannot know a library's own commands; a proof's lines stand further to the right.
    """
    byte_start, byte_end = replacement.byte_start, replacement.byte_end
    at = max((c.byte_start for c in parse(before).commands if c.byte_start <= byte_start), default=0)
    edge = len(before[before.rfind(b"\n", 0, at) + 1 : at].decode())
    line = before[before.rfind(b"\n", 0, byte_start) + 1 : byte_start].decode()
    if len(line) <= edge:
        return ()  # the sorry itself stands there, so the lines of its block do
    had = _lines_up_to(before[byte_start:byte_end].decode(), edge)
    if _lines_up_to(replacement.text, edge) > had:
        return ("a line of the replacement begins at the column of the declaration, like a command",)
    return ()


def in_its_place(before: bytes, after: bytes) -> tuple[str, ...]:
    """Return why the two versions of a file are not the same commands with one of them changed; empty if they are."""
    old, new = parse(before), parse(after)
    if new.scanned.error != old.scanned.error:
        return (f"the patched file does not scan: {new.scanned.error}",)
    if len(old.commands) != len(new.commands):
        return (f"{len(old.commands)} commands before, {len(new.commands)} after",)
    changed = []
    for one, other in zip(old.commands, new.commands, strict=True):
        if (one.kind, one.keyword) != (other.kind, other.keyword):
            return (f"the command {one.keyword!r} became {other.keyword!r}",)
        if before[one.byte_start : one.byte_end] != after[other.byte_start : other.byte_end]:
            changed.append((one, other))
    if len(changed) != 1:
        return (f"{len(changed)} commands changed where one should",)
    ((one, other),) = changed
    # A comment at the proof's end stands outside the command, in front of what followed it.
    same = before[: one.byte_start] == after[: other.byte_start]
    if not same or not after[other.byte_end :].endswith(before[one.byte_end :]):
        return (f"text outside the command {one.keyword!r} changed",)
    return ()


def _lines_up_to(text: str, column: int) -> int:
    """Count the lines after the first whose code begins at this column or left of it."""
    lines = lex(text).bare.split("\n")[1:]
    return sum(bool(line.strip()) and len(line) - len(line.lstrip()) <= column for line in lines)


def _kept(replacement: str, between: Sequence[str]) -> bool:
    """Say whether the replacement is texts for each sorry, each harmless by itself, with what stood between them.

    A text that opens a comment or bracket and closes it after the next sorry would hide what stands between.
    """
    starts = {0}
    for gap in between:
        starts = {
            start + found.start() + len(gap)
            for start in starts
            for found in re.finditer(f"(?={re.escape(gap)})", replacement[start:])
            if not complaints(replacement[start : start + found.start()])
        }
    return any(not complaints(replacement[start:]) for start in starts)
