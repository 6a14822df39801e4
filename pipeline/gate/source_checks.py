"""Checks of a proof's source text that need no Lean: its shape and its place, and which names it takes from the file.

They read commands and names as the scanner does, on the safe side. Whether it is a proof is Lean's to say.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Sequence

from pipeline.lean.source.forbidden import complaints
from pipeline.lean.source.lexer import lex, tokens_of_text
from pipeline.lean.source.scanner import Command, parse, scan_source
from pipeline.lean.source.splice import Replacement
from store.domain.records import Declaration, Sorry


def outside_the_sorries(before: bytes, replacement: Replacement) -> tuple[str, ...]:
    """Check that the replaced bytes are one sorry, or several with the text between them kept."""
    byte_start, byte_end = replacement.byte_start, replacement.byte_end
    sorries = _sorries_in(before, replacement)
    if not sorries or (sorries[0].byte_start, sorries[-1].byte_end) != (byte_start, byte_end):
        return (f"bytes {byte_start}..{byte_end} are no sorry at this commit",)
    if len({sorry.index for sorry in sorries}) != 1:
        return ("the replaced bytes reach over more than one declaration",)
    ends_line = ends_its_line(before, replacement)
    told = _told_apart(replacement.text, _between(before, sorries), ends_line=ends_line)
    return (told,) if isinstance(told, str) else ()


def parts_of(before: bytes, replacement: Replacement) -> list[tuple[Sorry, Replacement]] | str:
    """Return the sorries with the text for each; of several readings the first harmless one, else the first.

    Empty where the text between the sorries is not in the replacement. A string says why it could not be read.
    """
    sorries = _sorries_in(before, replacement)
    between = _between(before, sorries)
    ends_line = ends_its_line(before, replacement)
    told = _told_apart(replacement.text, between, ends_line=ends_line)
    if told == _TOO_LONG:
        return _TOO_LONG
    texts = _cut(replacement.text, between) if isinstance(told, str) else told
    return [
        (sorry, Replacement(sorry.byte_start, sorry.byte_end, text))
        for sorry, text in zip(sorries, texts, strict=False)
    ]


def ends_its_line(before: bytes, replacement: Replacement) -> bool:
    """Return whether nothing of the source stands behind the replaced bytes on their last line."""
    end = before.find(b"\n", replacement.byte_end)
    return not before[replacement.byte_end : None if end < 0 else end].strip()


def _sorries_in(before: bytes, replacement: Replacement) -> list[Sorry]:
    start, end = replacement.byte_start, replacement.byte_end
    scanned = scan_source(before, path="")
    return [one for one in scanned.sorries if start <= one.byte_start and one.byte_end <= end]


def _between(before: bytes, sorries: Sequence[Sorry]) -> list[str]:
    return [before[one.byte_end : other.byte_start].decode() for one, other in itertools.pairwise(sorries)]


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
    # A comment at the proof's end is outside the command, in front of what followed it.
    same = before[: one.byte_start] == after[: other.byte_start]
    if not same or not after[other.byte_end :].endswith(before[one.byte_end :]):
        return (f"text outside the command {one.keyword!r} changed",)
    return ()


def _lines_up_to(text: str, column: int) -> int:
    """Count the lines after the first whose code begins at this column or left of it."""
    lines = lex(text).bare.split("\n")[1:]
    return sum(bool(line.strip()) and len(line) - len(line.lstrip()) <= column for line in lines)


_MOST_READ = 500_000
"""So many characters are read again to tell the texts of several sorries apart: they may repeat the text between as
often as they like."""
_CHANGED = "the text between the declaration's sorries was changed"
_TOO_LONG = (
    "the proofs are too long to be told apart: they repeat the text between the declaration's sorries too often;"
    " write them shorter"
)


def _told_apart(replacement: str, between: Sequence[str], *, ends_line: bool) -> tuple[str, ...] | str:
    """Return one harmless text for each sorry, with the source's own text between them, or why there is none.

    A text that opens a comment or bracket and closes it after the next sorry would hide the text between.
    """
    # The first text read for each sorry is free: a long proof is no reason to refuse it.
    left, seen, begun = _MOST_READ, {(0, 0)}, -1
    # The texts so far, where the next begins, and from where on its end is searched.
    todo: list[tuple[tuple[str, ...], int, int]] = [((), 0, 0)]
    while todo:
        if left <= 0:
            return _TOO_LONG
        texts, start, search = todo.pop()
        last = len(texts) == len(between)
        end = len(replacement) if last else replacement.find(between[len(texts)], search)
        if end < 0:
            continue
        if not last:
            todo.append((texts, start, end + 1))
        behind = end if last else end + len(between[len(texts)])
        if not last and (len(texts) + 1, behind) in seen:
            continue
        if len(texts) > begun:
            begun = len(texts)
        else:
            left -= end - start + 1
        alone = ends_line if last else between[len(texts)].lstrip(" \t\r").startswith("\n")
        if complaints(replacement[start:end], ends_line=alone):
            continue
        if last:
            return (*texts, replacement[start:])
        seen.add((len(texts) + 1, behind))
        todo.append(((*texts, replacement[start:end]), behind, behind))
    return _CHANGED


def _cut(replacement: str, between: Sequence[str]) -> list[str]:
    """Cut a text at the first places that may be the source's own; return nothing where there are none."""
    texts, start = [], 0
    for gap in between:
        end = replacement.find(gap, start)
        if end < 0:
            return []
        texts.append(replacement[start:end])
        start = end + len(gap)
    return [*texts, replacement[start:]]


# ---- names


_PART = re.compile(r"«([^»]*)»|([^.«»]+)")
_SCOPES = frozenset({"namespace", "open", "export"})


def parts_below(names: Iterable[str], declaration: str) -> set[str]:
    """Return the parts behind the declaration's name of those constants that are below it."""
    own = _parts(declaration)
    result = (_parts(name) for name in names)
    return {part for parts in result if parts[: len(own)] == own for part in parts[len(own) :]}


def taken_further_down(
    declared: Collection[str], *, file: bytes, declaration: Declaration
) -> tuple[str, ...]:
    """Return what a proof declares and the file would mean by a name of its own further down.

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
