"""Large payloads in events.db, named by the SHA-256 of their bytes and stored zlib-compressed.

The writer's transaction belongs to `store.log.log`; this module packs, checks and fetches.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store.errors import BlobCorruptError, BlobMissingError, InvalidAppendError

# Level 6 halves a scan's JSON again over level 1 and costs the daemon a few milliseconds a file.
_LEVEL = 6
_DIGEST = re.compile(r"[0-9a-f]{64}")
MOST_BYTES = 256 * 2**20
"""The largest payload to take in. The log's own are read, whatever the limit at their record."""
_MOST_OF_A_BYTE = 1032
"""The most bytes from one byte of zlib: a row with more is damaged."""


@dataclass(frozen=True, slots=True)
class PackedBlob:
    """A payload with a checked hash, compressed and ready to be stored."""

    sha256: str
    size_bytes: int
    content: bytes


def pack(sha256: str, payload: bytes, *, where: str) -> PackedBlob:
    """Check a payload against its name, and compress it.

    Raises:
        BlobCorruptError: it hashes to something else.
        InvalidAppendError: the name is no SHA-256 in lower-case hex.
    """
    if not _DIGEST.fullmatch(sha256):
        raise InvalidAppendError(
            f"{where}: {sha256!r} is no SHA-256 in lower-case hex; name a blob by its hash"
        )
    actual = hashlib.sha256(payload).hexdigest()
    if actual != sha256:
        raise BlobCorruptError(sha256, actual=actual, where=where)
    return PackedBlob(sha256, len(payload), zlib.compress(payload, _LEVEL))


def pack_file(sha256: str, path: Path) -> PackedBlob:
    """Read a staged file and `pack` it.

    Raises:
        BlobMissingError: it cannot be read.
        BlobCorruptError: it hashes to something else.
        InvalidAppendError: it is larger than `MOST_BYTES`, or its name is no SHA-256.
    """
    try:
        with path.open("rb") as file:
            payload = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BlobMissingError(sha256, reason=f"its file {path} cannot be read ({error.strerror})") from error
    if len(payload) > MOST_BYTES:
        raise InvalidAppendError(
            f"{path}: more than {MOST_BYTES // 2**20} MiB; a payload of that size is no trace of a file"
        )
    return pack(sha256, payload, where=str(path))


def unpack(sha256: str, size_bytes: int, content: bytes, *, where: str) -> bytes:
    """Decompress a stored payload and check it against its name.

    Raises:
        BlobCorruptError: the stored bytes are not the payload any more.
    """
    # A damaged row must not make us allocate more than its recorded size.
    decompressor = zlib.decompressobj()
    if not 0 <= size_bytes <= _MOST_OF_A_BYTE * len(content):
        raise BlobCorruptError(
            sha256, actual=f"nothing (it says that it has {size_bytes} bytes)", where=where
        )
    try:
        payload = decompressor.decompress(content, size_bytes + 1)
    except zlib.error as error:
        raise BlobCorruptError(sha256, actual=f"nothing ({error})", where=where) from error
    actual = hashlib.sha256(payload).hexdigest()
    if actual != sha256 or len(payload) != size_bytes:
        raise BlobCorruptError(sha256, actual=f"{actual} ({len(payload)} bytes)", where=where)
    return payload


def cited(data: str) -> frozenset[str]:
    """Return the hashes of all `BlobRef`s in an event's JSON."""
    if '"sha256"' not in data:
        return frozenset()
    return frozenset(_references(json.loads(data)))


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if value.keys() == {"sha256", "size_bytes"}:
            yield value["sha256"]
        else:
            for item in value.values():
                yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def missing(connection: sqlite3.Connection, digests: Iterable[str]) -> set[str]:
    """Return the digests missing in the log."""
    targets = set(digests)
    rows = connection.execute(
        "SELECT sha256 FROM blobs WHERE sha256 IN (SELECT value FROM json_each(?))",
        (json.dumps(sorted(targets)),),
    )
    return targets - {row[0] for row in rows}


def collect(
    connection: sqlite3.Connection, *, cited_digests: frozenset[str], files: Mapping[str, Path]
) -> list[PackedBlob]:
    """Return the blobs for an append to store: those given and not held yet.

    Raises:
        BlobMissingError: an event cites a payload neither held nor given.
    """
    absent = missing(connection, cited_digests | files.keys())
    for digest in sorted(absent - files.keys()):
        raise BlobMissingError(digest, reason="an event cites it, and it is neither in the log nor given")
    return [pack_file(digest, files[digest]) for digest in sorted(absent)]


Row = tuple[int, str, int, bytes]
"""A row of the table: id, sha256, size_bytes, content."""


def rows(packed: Iterable[PackedBlob], *, after: int) -> list[Row]:
    """Return the rows of blobs behind the blob `after`."""
    return [
        (number, item.sha256, item.size_bytes, item.content)
        for number, item in enumerate(packed, start=after + 1)
    ]


def insert(connection: sqlite3.Connection, new: Sequence[Row]) -> None:
    """Store blobs inside the caller's transaction."""
    if new:
        connection.executemany("INSERT INTO blobs VALUES (?, ?, ?, ?)", new)


def fetch(connection: sqlite3.Connection, sha256: str, *, where: str) -> bytes:
    """Return a payload, checked.

    Raises:
        BlobMissingError: the log does not hold it.
        BlobCorruptError: the stored bytes are damaged.
    """
    row = connection.execute("SELECT size_bytes, content FROM blobs WHERE sha256 = ?", (sha256,)).fetchone()
    if row is None:
        raise BlobMissingError(sha256)
    return unpack(sha256, row[0], row[1], where=where)
