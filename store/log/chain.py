"""The chain over the log: each event's hash, made of its content and of the hash of the event before.

The hash of event n is SHA-256 of: the 32 bytes of the hash of event n - 1 (of none: zeros), then the twelve
columns of the event in the order of `store.log.envelope.COLUMNS`, then for each of its blobs the 32 bytes of
the SHA-256 of the blob's four columns (id, sha256, size_bytes, content). A column is written as

    N                      NULL
    I<decimal>;            an integer
    T<length>:<text>       text in UTF-8, its length in characters (a byte of no UTF-8 counts as one, and
        stays)
    B<length>:<hash>       a blob: its length in bytes, the SHA-256 of its bytes in hex
    F<repr>;               a float, never in a sound log

with numbers in decimal. An event covers the blobs behind those of the event before, up to its row's `blobs`
in the table `chain`: the first event of a batch covers those of the batch.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from store.errors import LogDamagedError
from store.log.blobs import Row
from store.log.envelope import COLUMNS
from store.sqlite import connect_readonly, translated

Column = int | str | bytes | float | None
_EVENT = ", ".join(f"e.{name}" for name in COLUMNS)
_BATCH = 500
LAST = 2**63 - 1
"""SQLite has no larger number, so nothing lies behind it."""


class Link(NamedTuple):
    """One event's place in the chain: `blobs` is the last blob covered up to here."""

    seq: int
    blobs: int
    hash: bytes


START = Link(0, 0, bytes(32))
"""The link before the first event."""


@dataclass(frozen=True, slots=True)
class Damage:
    """The first damaged event of a part of the log, and the damage."""

    seq: int
    what: str

    def __str__(self) -> str:
        return f"event {self.seq}: {self.what}"


def encoded(columns: Iterable[Column]) -> bytes:
    """Return the one text of a row's columns, types included, for its hash."""
    parts = []
    for value in columns:
        if value.__class__ is str:
            parts.append(f"T{len(value)}:{value}")
        elif value is None:
            parts.append("N")
        elif value.__class__ is int:
            parts.append(f"I{value};")
        elif isinstance(value, bytes):
            parts.append(f"B{len(value)}:{hashlib.sha256(value).hexdigest()}")
        else:
            parts.append(f"F{value!r};")
    return "".join(parts).encode("utf-8", "surrogateescape")


def linked(before: Link, event: Sequence[Column], blobs: Sequence[Sequence[Column]] = ()) -> Link:
    """Return the link of an event's row with these rows of blobs."""
    hashed = hashlib.sha256(before.hash + encoded(event))
    for row in blobs:
        hashed.update(hashlib.sha256(encoded(row)).digest())
    return Link(before.seq + 1, before.blobs + len(blobs), hashed.digest())


def insert(connection: sqlite3.Connection, links: Iterable[Link]) -> None:
    """Store links inside the caller's transaction."""
    connection.executemany("INSERT INTO chain VALUES (?, ?, ?)", links)


def link_at(connection: sqlite3.Connection, seq: int) -> Link | None:
    """Return the link of an event; None if the chain does not hold it."""
    if seq == 0:
        return START
    row = connection.execute("SELECT seq, blobs, hash FROM chain WHERE seq = ?", (seq,)).fetchone()
    return None if row is None else Link(*row)


def last(connection: sqlite3.Connection) -> Link:
    """Return the chain's last link."""
    row = connection.execute("SELECT seq, blobs, hash FROM chain ORDER BY seq DESC LIMIT 1").fetchone()
    return START if row is None else Link(*row)


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """Give a read-only connection with text as its bytes are, also damaged ones."""
    with translated(path):
        connection = connect_readonly(path)
        try:
            connection.row_factory = None
            connection.text_factory = _as_it_is
            yield connection
        finally:
            connection.close()


def _as_it_is(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Walked:
    """The end of a walk along the chain, and the damage there, if any."""

    link: Link
    damage: Damage | None


def walk(connection: sqlite3.Connection, *, after: Link = START, deadline: float | None = None) -> Walked:
    """Compute the hashes behind a link and compare, until the first damage, the end or a `time.monotonic`."""
    link, events = after, read(connection, after=after)
    while deadline is None or time.monotonic() < deadline:
        try:
            result = next(events, None)
        except sqlite3.DatabaseError as error:
            result = Damage(link.seq + 1, f"cannot be read ({error})")
        if isinstance(result, Damage):
            return Walked(link, result)
        if result is None:
            break
        link = result.link
    return Walked(link, None)


class Entry(NamedTuple):
    """An event's row, its place in the chain, and the rows of its blobs."""

    link: Link
    event: Sequence[Column]
    blobs: Sequence[Row]


def read(
    connection: sqlite3.Connection, *, after: Link = START, upto: int | None = None
) -> Iterator[Entry | Damage]:
    """Yield the events behind a link, up to a number, until the first damage, as the last item.

    Raises:
        sqlite3.DatabaseError: the file cannot be read.
    """
    link, last = after, LAST if upto is None else upto
    while link.seq < last:
        rows = connection.execute(
            f"SELECT {_EVENT}, c.blobs, c.hash FROM events e LEFT JOIN chain c ON c.seq = e.seq "
            "WHERE e.seq > ? AND e.seq <= ? ORDER BY e.seq LIMIT ?",
            (link.seq, last, _BATCH),
        ).fetchall()
        for row in rows:
            result = _check_row(connection, link, row)
            yield result
            if isinstance(result, Damage):
                return
            link = result.link
        if len(rows) < _BATCH:
            break
    if upto is not None and link.seq < upto:
        yield Damage(link.seq + 1, "missing")


def _check_row(connection: sqlite3.Connection, before: Link, row: Sequence[Column]) -> Entry | Damage:
    event, blobs, recorded = row[:-2], row[-2], row[-1]
    if event[0] != before.seq + 1:
        return Damage(before.seq + 1, "missing")
    if not isinstance(blobs, int) or not isinstance(recorded, bytes):
        return Damage(before.seq + 1, "has no hash: it was not recorded by everlean")
    held = covered(connection, before.blobs, blobs)
    link = linked(before, event, held)
    if link == (before.seq + 1, blobs, recorded):
        return Entry(link, event, held)
    with_it = f", or payload {before.blobs + 1} to {blobs}, which came with it," if held else ""
    return Damage(before.seq + 1, f"its content{with_it} is not what was recorded: its hash is another")


def covered(connection: sqlite3.Connection, after: int, upto: int = LAST) -> list[Row]:
    """Return the rows of the blobs behind one up to another."""
    if upto <= after:
        return []
    return connection.execute(
        "SELECT id, sha256, size_bytes, content FROM blobs WHERE id > ? AND id <= ? ORDER BY id",
        (after, upto),
    ).fetchall()


def require(walked: Walked, path: Path) -> Link:
    """Return the end of a walk.

    Raises:
        LogDamagedError: it found damage.
    """
    if walked.damage is not None:
        raise LogDamagedError(path, walked.damage.seq, str(walked.damage))
    return walked.link
