"""Checks of a proof's source text without Lean: its shape, its place, and the names it takes from the file.

They read commands and names as the scanner does, on the safe side. Lean decides whether it is a proof.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from pipeline.lean.source.lexer import lex, tokens_of_text
from pipeline.lean.source.scanner import Command, parse, scan_source
from pipeline.lean.source.splice import Replacement, join
from store.domain.records import Declaration, Sorry
from store.text import counted


def parts_of(before: bytes, replacement: Replacement) -> list[tuple[Sorry, Replacement]] | str:
    """Return the sorries in the replaced bytes, each with its part of the text; or the reason of a failure."""
    start, end = replacement.byte_start, replacement.byte_end
    scanned = scan_source(before, path="")
    sorries = [one for one in scanned.sorries if start <= one.byte_start and one.byte_end <= end]
    if not sorries or (sorries[0].byte_start, sorries[-1].byte_end) != (start, end):
        return f"bytes {start}..{end} are no sorry at this commit"
    if len({sorry.index for sorry in sorries}) != 1:
        return "the replaced bytes reach over more than one declaration"
    lengths = replacement.parts or (len(replacement.text),)
    if len(lengths) != len(sorries):
        said = f"{counted(len(lengths), 'text')} for {counted(len(sorries), 'sorry')}"
        return f"{said} in bytes {start}..{end}; submit one for each"
    result, at = [], 0
    for sorry, length in zip(sorries, lengths, strict=True):
        at += len(before[start : sorry.byte_start].decode())
        text = replacement.text[at : at + length]
        result.append((sorry, Replacement(sorry.byte_start, sorry.byte_end, text)))
        at, start = at + length, sorry.byte_end
    if join(before, [part for _, part in result]) != replacement:
        return (
            "the text between the declaration's sorries was changed, or does not begin and end where the text's parts"
            " say; submit the proof of each sorry by itself"
        )
    return result


def ends_its_line(before: bytes, replacement: Replacement) -> bool:
    """Return whether nothing of the source stands behind the replaced bytes on their last line."""
    end = before.find(b"\n", replacement.byte_end)
    return not before[replacement.byte_end : None if end < 0 else end].strip()


def dedents(before: bytes, commands: Sequence[Command], replacement: Replacement) -> tuple[str, ...]:
    """Check that no line of the replacement begins where the next command would.

    The scanner cannot know a library's own commands; a proof's lines are indented further.
    """
    byte_start, byte_end = replacement.byte_start, replacement.byte_end
    at = max((c.byte_start for c in commands if c.byte_start <= byte_start), default=0)
    edge = len(before[before.rfind(b"\n", 0, at) + 1 : at].decode())
    line = before[before.rfind(b"\n", 0, byte_start) + 1 : byte_start].decode()
    if len(line) <= edge:
        return ()  # the sorry itself is there, so the lines of its block are
    had = _lines_up_to(before[byte_start:byte_end].decode(), edge)
    if _lines_up_to(replacement.text, edge) > had:
        return ("a line of the replacement begins at the column of the declaration, like a command",)
    return ()


def in_its_place(before: bytes, after: bytes) -> tuple[str, ...]:
    """Return why the two versions of a file differ in more than one command; empty if they do not."""
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
    # A comment at the proof's end is outside the command, before the text behind it.
    same = before[: one.byte_start] == after[: other.byte_start]
    if not same or not after[other.byte_end :].endswith(before[one.byte_end :]):
        return (f"text outside the command {one.keyword!r} changed",)
    return ()


def _lines_up_to(text: str, column: int) -> int:
    """Count the lines after the first whose code begins at this column or left of it."""
    lines = lex(text).bare.split("\n")[1:]
    return sum(bool(line.strip()) and len(line) - len(line.lstrip()) <= column for line in lines)


# ---- names


_PART = re.compile(r"«([^»]*)»|([^.«»]+)")
_SCOPES = frozenset({"namespace", "open", "export"})


def parts_below(names: Iterable[str], declaration: str) -> set[str]:
    """Return the parts behind the declaration's name of the constants below it."""
    own = _parts(declaration)
    result = (_parts(name) for name in names)
    return {part for parts in result if parts[: len(own)] == own for part in parts[len(own) :]}


def taken_further_down(
    declared: Collection[str], *, file: bytes, declaration: Declaration
) -> tuple[str, ...]:
    """Return a proof's own declarations that change the meaning of names further down in the file.

    Lean puts `go` of a proof of `mine` below it, as `mine.go`: in a scope of that name the file's own `go` is hidden.
    """
    if not declared:
        return ()
    own = _parts(declaration.name)[-1]
    later = [command for command in parse(file).commands if command.byte_start >= declaration.byte_end]
    used, scoped = set[str](), False
    for command in later:
        parts = [_parts(token.text) for token in tokens_of_text(command.text)[0]]
        used |= {part for some in parts for part in some}
        scoped |= any(own in (some if command.keyword in _SCOPES else some[:-1]) for some in parts)
    return tuple(sorted(used.intersection(declared))) if scoped else ()


def _parts(name: str) -> list[str]:
    """Return the parts of a name, without the quotes of quoted parts."""
    return [quoted or bare for quoted, bare in _PART.findall(name)] or [name]
