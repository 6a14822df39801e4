"""One version of a file in a mirror: its bytes, or why it is not scanned, and its scan within the limits of events."""

from __future__ import annotations

from dataclasses import replace

from pipeline.jobs.mirror import Mirror, TreeFile
from pipeline.lean.source.worktree import MOST_SOURCE_BYTES
from store.domain.identity import short_hash
from store.domain.records import ReadFile, ScannedFile

LONGEST_NAME, LONGEST_STATEMENT = 1000, 16_384
"""Characters of a declaration's name and statement; longer ones are cut to a beginning."""
_LFS = b"version https://git-lfs.github.com/spec/"
MOST_TEXT, SHORT_STATEMENT = 2 << 20, 300
"""Maximum characters of the statements of a file, of a branch's sorries, and of one event's steps. Beyond it, each
statement keeps its beginning (the steps: go in several events).
"""


def content(mirror: Mirror, item: TreeFile) -> bytes | str:
    """Return a file's bytes, or why it is not scanned.

    Raises:
        JobError: the mirror lacks it.
    """
    if not item.readable:
        return f"{item.problem}; not scanned"
    data = mirror.read(item.blob, most_bytes=MOST_SOURCE_BYTES)
    if isinstance(data, int):
        return f"{data} bytes, more than {MOST_SOURCE_BYTES}; not scanned"
    return "a pointer of Git LFS, whose content is not here; not scanned" if data.startswith(_LFS) else data


def shortened(read: ReadFile) -> ReadFile:
    """Cut names and statements longer than any that people write to their beginnings.

    Each event about a sorry repeats them. The hash of a statement is still that of all of it.
    """
    scan = read.scan
    longest = LONGEST_STATEMENT
    if sum(len(one.statement) for one in scan.declarations) > MOST_TEXT:
        longest = SHORT_STATEMENT
    if all(len(one.statement) <= longest and len(one.name) <= LONGEST_NAME for one in scan.declarations):
        return read
    declarations = tuple(
        one._replace(name=beginning(one.name, LONGEST_NAME), statement=beginning(one.statement, longest))
        for one in scan.declarations
    )
    sorries = tuple(
        replace(one, declaration=beginning(one.declaration, LONGEST_NAME)) for one in scan.sorries
    )
    marked = tuple(beginning(name, LONGEST_NAME) for name in read.marked)
    return replace(read, scan=replace(scan, declarations=declarations, sorries=sorries), marked=marked)


def beginning(text: str, longest: int) -> str:
    """Return a text, or the beginning of a long one with its length and a hash of the whole."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}… ({len(text)} characters, {short_hash('long', text)})"


def unread(item: TreeFile, reason: str) -> ReadFile:
    """Return the scan of an unread file."""
    return ReadFile(ScannedFile(item.path, error=reason, imports=(), declarations=(), sorries=()), ())
