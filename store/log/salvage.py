"""The rows of a damaged log, found page by page, however little SQLite can read of it.

SQLite reads a table from its root: damage in the header, the schema, or an upper page hides everything below,
and it ends a -wal at the first damaged frame. But rows of a log never change: each page still has its rows as
first written. All pages are read, those of the file before the frames of the -wal, and every likely row of
ours is kept in a scratch file. The chain decides whether it is one:

    an event counts if its hash, made of its content and of the recorded hash of the event before, is its
        recorded one;
    events with lost hashes count if the hashes made of their contents lead to a recorded one

A row of a rolled-back transaction, or one with a flipped bit, fails this test.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from store.errors import BlobCorruptError
from store.log import blobs as blob_table
from store.log import chain
from store.log.chain import START, Column, Link
from store.log.envelope import COLUMNS
from store.sqlite import connect_writable

PAGE_BYTES = 4096
_WAL_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_LEAF_OF_A_TABLE = 0x0D
_MOST_LOCAL = PAGE_BYTES - 35
_LEAST_LOCAL = (PAGE_BYTES - 12) * 32 // 255 - 23
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)
_TABLES = """
CREATE TABLE events (seq INTEGER, columns TEXT, digest BLOB UNIQUE);
CREATE INDEX by_seq ON events (seq);
CREATE TABLE chain (seq INTEGER, blobs INTEGER, hash BLOB, UNIQUE (seq, blobs, hash));
CREATE TABLE blobs (id INTEGER PRIMARY KEY, sha256 TEXT, size_bytes INTEGER, content BLOB);
CREATE INDEX by_sha256 ON blobs (sha256);
"""
_DATA, _RECORDED_AT = COLUMNS.index("data"), COLUMNS.index("recorded_at")

Event = tuple[Column, ...]


class Sound(NamedTuple):
    """One number of the log: its event, None if lost, and the rows of the event's own blobs."""

    seq: int
    event: Event | None
    blobs: Sequence[blob_table.Row] = ()


class Finds:
    """The finds in a log. The scratch file is the caller's to remove."""

    def __init__(self, log_path: Path, scratch: Path) -> None:
        self._rows = connect_writable(scratch, pragmas=("journal_mode = OFF", "synchronous = OFF"))
        self._rows.executescript(f"BEGIN;\n{_TABLES}")
        for rowid, columns in _likely_rows(log_path):
            self._keep(rowid, columns)
        self._rows.execute("COMMIT")

    def close(self) -> None:
        """Close the scratch file."""
        self._rows.close()

    def last(self) -> int:
        """Return the largest number of a likely event."""
        return int(self._rows.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0])

    def length(self) -> int:
        """Return the log's length, if only the rows can tell: up to the last event confirmed by the chain.

        And further, while each number has an event or a hash; a single one may be made of damage.
        """
        seq = max((one.seq for one in self.sound(self.last(), None) if one.event is not None), default=0)
        while self._events(seq + 1) or self._links(seq + 1, None):
            seq += 1
        return seq

    def blob(self, sha256: str) -> blob_table.Row | None:
        """Return the row of a payload whose content has this hash."""
        row: blob_table.Row | None = self._rows.execute(
            "SELECT id, sha256, size_bytes, content FROM blobs WHERE sha256 = ?", (sha256,)
        ).fetchone()
        return row

    def sound(self, upto: int, end: Link | None) -> Iterator[Sound]:
        """Yield each number up to `upto`, with its event if the chain confirms it.

        Args:
            end: the last acknowledged link, if known: it confirms the events before it.
        """
        befores: Sequence[Link] = (START,)
        unconfirmed: list[Sound] = []
        recorded_at: Column = None
        for seq in range(1, min(upto, self.last()) + 1):
            events, links = self._events(seq), self._links(seq, end)
            result = self._confirm(befores, events, links)
            if result is not None:
                one, link = result
                yield from (*unconfirmed, one)
                unconfirmed, befores = [], (link,)
            elif befores and events and not links:
                # The next recorded hash will confirm the missing one.
                held = self._came_with(befores[0], events[0], recorded_at)
                unconfirmed.append(Sound(seq, events[0], held))
                befores = (chain.linked(befores[0], events[0], held),)
            else:
                yield from (Sound(lost.seq, None) for lost in (*unconfirmed, Sound(seq, None)))
                unconfirmed, befores = [], links
            recorded_at = events[0][_RECORDED_AT] if events else None
        yield from (Sound(lost.seq, None) for lost in unconfirmed)

    def _confirm(
        self, befores: Sequence[Link], events: Sequence[Event], links: Sequence[Link]
    ) -> tuple[Sound, Link] | None:
        for link in links:
            for before in befores:
                held = chain.covered(self._rows, before.blobs, link.blobs)
                for event in events:
                    if chain.linked(before, event, held) == link:
                        return Sound(link.seq, event, held), link
        return None

    def _came_with(self, before: Link, event: Event, recorded_at: Column) -> list[blob_table.Row]:
        """Return the blobs an event covers as the first of its batch: the next ones cited by the batch."""
        if event[_RECORDED_AT] == recorded_at:
            return []
        batch = self._rows.execute("SELECT columns FROM events WHERE seq >= ? ORDER BY seq", event[:1])
        cited: set[str] = set()
        for (text,) in batch:
            columns = json.loads(text)
            if columns[_RECORDED_AT] != event[_RECORDED_AT]:
                break
            cited |= blob_table.cited(columns[_DATA])
        held = chain.covered(self._rows, before.blobs, before.blobs + len(cited))
        return list(itertools.takewhile(lambda row: row[1] in cited, held))

    def _events(self, seq: int) -> list[Event]:
        rows = self._rows.execute("SELECT columns FROM events WHERE seq = ? ORDER BY rowid", (seq,))
        return [tuple(json.loads(text)) for (text,) in rows]

    def _links(self, seq: int, end: Link | None) -> list[Link]:
        rows = self._rows.execute("SELECT seq, blobs, hash FROM chain WHERE seq = ? ORDER BY rowid", (seq,))
        links = [Link(*row) for row in rows]
        return [*links, end] if end is not None and end.seq == seq and end not in links else links

    def _keep(self, rowid: int, columns: Sequence[Column]) -> None:
        row = (rowid, *columns[1:])
        match columns:
            case [None, int(), bytes(hashed)] if len(hashed) == 32:
                self._rows.execute("INSERT OR IGNORE INTO chain VALUES (?, ?, ?)", row)
            case [None, str(name), int(size_bytes), bytes(content)]:
                try:
                    blob_table.unpack(name, size_bytes, content, where="")
                except BlobCorruptError:
                    return
                self._rows.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?, ?, ?)", row)
            case [
                None,
                str(),
                str(),
                int(),
                str(),
                int(),
                str(),
                str(),
                None | str(),
                None | str(),
                None | str(),
                str(),
            ]:
                digest = hashlib.sha256(chain.encoded(row)).digest()
                self._rows.execute(
                    "INSERT OR IGNORE INTO events VALUES (?, ?, ?)", (rowid, json.dumps(row), digest)
                )


# ---- Pages, in SQLite's file format


def _likely_rows(log_path: Path) -> Iterator[tuple[int, list[Column]]]:
    """Yield the number and the columns of every likely row of a table."""
    with _Pages(log_path) as pages:
        for page in pages.all():
            if page[0] != _LEAF_OF_A_TABLE or len(page) < PAGE_BYTES:
                continue
            (cells,) = struct.unpack_from(">H", page, 3)
            for (at,) in struct.iter_unpack(">H", page[8 : min(8 + 2 * cells, PAGE_BYTES)]):
                try:
                    yield _row(page, at, pages)
                except (ValueError, IndexError, struct.error):
                    continue  # damaged: no row


class _Pages:
    """The pages of a file and of the frames of its -wal."""

    def __init__(self, log_path: Path) -> None:
        self._file = _open(log_path)
        self._wal = _open(log_path.with_name(f"{log_path.name}-wal"))
        self._frames: dict[int, int] = {}
        """By page, the place of its newest frame."""
        for at in self._places():
            number = int.from_bytes(self._read(self._wal, at - _FRAME_HEADER_BYTES, 4), "big")
            self._frames[number] = at

    def __enter__(self) -> _Pages:
        return self

    def __exit__(self, *_exc: object) -> None:
        for file in (self._file, self._wal):
            if file is not None:
                file.close()

    def all(self) -> Iterator[bytes]:
        """Yield every page, first the file's committed ones; its very first has no rows of ours."""
        at = PAGE_BYTES
        while page := self._read(self._file, at, PAGE_BYTES):
            yield page
            at += PAGE_BYTES
        for at in self._places():
            yield self._read(self._wal, at, PAGE_BYTES)

    def overflow(self, number: int) -> bytes:
        """Return a page by its number, as it is now."""
        if number in self._frames:
            return self._read(self._wal, self._frames[number], PAGE_BYTES)
        return self._read(self._file, (number - 1) * PAGE_BYTES, PAGE_BYTES)

    def _places(self) -> Iterator[int]:
        if self._wal is None:
            return
        step = _FRAME_HEADER_BYTES + PAGE_BYTES
        size_bytes = self._wal.seek(0, 2)
        first = _WAL_HEADER_BYTES + _FRAME_HEADER_BYTES
        yield from range(first, size_bytes - PAGE_BYTES + 1, step)

    @staticmethod
    def _read(file: BinaryIO | None, at: int, length: int) -> bytes:
        if file is None or at < 0:
            return b""
        file.seek(at)
        return file.read(length)


def _open(path: Path) -> BinaryIO | None:
    return path.open("rb") if path.is_file() else None


def _row(page: bytes, at: int, pages: _Pages) -> tuple[int, list[Column]]:
    size_bytes, at = _varint(page, at)
    rowid, at = _varint(page, at)
    if size_bytes > 2 * blob_table.MOST_BYTES:
        raise ValueError("no row of ours is so long")
    local = size_bytes
    if size_bytes > _MOST_LOCAL:
        local = _LEAST_LOCAL + (size_bytes - _LEAST_LOCAL) % (PAGE_BYTES - 4)
        if local > _MOST_LOCAL:
            local = _LEAST_LOCAL
    parts, have = [page[at : at + local]], local
    (following,) = struct.unpack_from(">I", page, at + local) if have < size_bytes else (0,)
    while have < size_bytes:
        more = pages.overflow(following)
        (following,) = struct.unpack_from(">I", more, 0)
        parts.append(more[4 : 4 + size_bytes - have])
        have += PAGE_BYTES - 4
    return rowid, _columns(b"".join(parts), size_bytes)


def _columns(record: bytes, size_bytes: int) -> list[Column]:
    header_bytes, at = _varint(record, 0)
    types = []
    while at < header_bytes:
        kind, at = _varint(record, at)
        types.append(kind)
    columns = []
    at = header_bytes
    for kind in types:
        value, at = _value(record, at, kind)
        columns.append(value)
    if at != size_bytes or len(record) != size_bytes:
        raise ValueError("its columns do not fill it")
    return columns


def _value(record: bytes, at: int, kind: int) -> tuple[Column, int]:
    if kind == 0:
        return None, at
    if kind in (8, 9):
        return kind - 8, at
    if kind < 7:
        end = at + _INTEGER_BYTES[kind]
        return int.from_bytes(record[at:end], "big", signed=True), end
    if kind < 12:
        raise ValueError("no column of ours is of this type")
    end = at + (kind - 12) // 2
    return (record[at:end].decode() if kind % 2 else record[at:end]), end


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for number in range(8):
        byte = content[at + number]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + number + 1
    return value << 8 | content[at + 8], at + 9
