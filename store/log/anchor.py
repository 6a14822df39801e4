"""The anchor: a file of its own, events.db-anchor, with the end of the log at the last acknowledged batch.

A log cannot know that its end is gone: SQLite ends a -wal at its first damaged frame, without a word.
Therefore the last link of the chain is written here too, as durably, before an append is acknowledged; a log
behind it is refused.

Two waits for the disk, one after the other, would take single appends below 60% of SQLite's own rate.
Therefore the record is made durable beside the commit, as begun, and marked as settled when both are on the
disk. A begun, unsettled record is an unacknowledged batch, and its absence is no loss. Nothing waits for the
mark: it survives the end of the process, and the power's from the next append on (or when the system writes
back, after seconds). After a power cut the anchor thus cannot tell whether the very last batch before it was
acknowledged.

The file has 4,096 bytes. Records of 72 bytes lie at 0 and 512, written in turn: a torn write leaves the other
one; at 1024 lies the link at the end of the chain's last check. A record, big-endian:

    8 bytes "everlean", 8 bytes seq, 8 bytes blobs, 32 bytes hash, 8 bytes: 1 if settled; 8 bytes: the first
        of the
    SHA-256 of the 64 before
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

from store.errors import DatabaseMissingError, LogDamagedError, LogError, is_damage, without_remedy
from store.files import write_whole
from store.log import chain
from store.log.chain import START, Link, link_at
from store.log.identity import check_identity
from store.sqlite import connect_readonly, translated

_RECORD = struct.Struct(">8sQQ32sQ")
_LENGTH = _RECORD.size + 8
_MAGIC = b"everlean"
_SLOTS = (0, 512)
_CHECKED = 1024
_SIZE = 4096
_NEWEST = 500


def anchor_path(log_path: Path) -> Path:
    """Return the path of a log's anchor."""
    return log_path.with_name(f"{log_path.name}-anchor")


def _record(link: Link, *, settled: bool = True) -> bytes:
    text = _RECORD.pack(_MAGIC, *link, settled)
    return text + hashlib.sha256(text).digest()[:8]


def _read(record: bytes) -> tuple[Link, bool] | None:
    """Return a record's link and whether it is settled; None if the record was never written whole."""
    text, seal = record[: _RECORD.size], record[_RECORD.size :]
    if hashlib.sha256(text).digest()[:8] != seal:
        return None
    magic, seq, blobs, hash_, settled = _RECORD.unpack(text)
    return (Link(seq, blobs, hash_), bool(settled)) if magic == _MAGIC else None


def read_anchor(log_path: Path) -> Link | None:
    """Return the last acknowledged link; None if the log has no anchor.

    Raises:
        LogDamagedError: the file is there, and neither of its records can be read.
        LogError: the file cannot be read.
    """
    path = anchor_path(log_path)
    with translated(path):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
    links = [result[0] for at in _SLOTS if (result := _read(content[at : at + _LENGTH])) and result[1]]
    if not links:
        raise LogDamagedError(log_path, None, f"{path.name} is damaged: nobody knows where the log ended")
    return max(links)


def check_end(log_path: Path) -> None:
    """Refuse a log that ends before its anchor, or another log. Changes nothing.

    Raises:
        LogDamagedError: an acknowledged event is missing.
        LogError: the log cannot be read.
    """
    anchor = read_anchor(log_path)
    if anchor is None or anchor.seq == 0:
        return
    try:
        last, held = _end(log_path, anchor.seq)
    except DatabaseMissingError:
        raise LogDamagedError(log_path, 1, _missing(0, anchor.seq)) from None
    except LogError as error:
        if not is_damage(error):
            raise
        text = f"cannot be read ({without_remedy(error)}), and event {anchor.seq} was acknowledged"
        raise LogDamagedError(log_path, None, text) from error
    if last < anchor.seq:
        raise LogDamagedError(log_path, last + 1, _missing(last, anchor.seq))
    if held != anchor:
        raise LogDamagedError(
            log_path,
            anchor.seq,
            f"event {anchor.seq} is not the one that was acknowledged: the log is another than its anchor's, "
            "or its chain is damaged there",
        )


def _end(log_path: Path, seq: int) -> tuple[int, Link | None]:
    """Return a log's last event, and the link of its anchor's event."""
    with closing(connect_readonly(log_path, check=check_identity)) as connection, translated(log_path):
        last = connection.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0]
        return last, link_at(connection, seq)


def _missing(last: int, anchor: int) -> str:
    if last == 0:
        return f"missing or empty, and event {anchor} was acknowledged: {anchor} events are missing"
    return f"it ends at event {last}, and event {anchor} was acknowledged: {anchor - last} events are missing"


class Anchor:
    """The open anchor of the writer's log. `begin`, then `settle` or `abandon`."""

    def __init__(self, descriptor: int, slot: int) -> None:
        self._descriptor = descriptor
        self._slot = slot
        self._begun = threading.Semaphore(0)
        self._synced = threading.Semaphore(0)
        self._waited_for = False
        self._closing = False
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._sync, name="log-anchor", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, log_path: Path, link: Link) -> Anchor:
        """Open a log's anchor and bring it up to the log's last link; make a missing file."""
        before = read_anchor(log_path)
        if before is None:
            replace(log_path, link)
            before = link
        descriptor = os.open(anchor_path(log_path), os.O_RDWR | os.O_CLOEXEC)
        # The next write must not replace the newest settled record.
        newest = _read(os.pread(descriptor, _LENGTH, _SLOTS[0])) == (before, True)
        anchor = cls(descriptor, 1 if newest else 0)
        if before != link:
            anchor.begin(link)
            anchor.settle(link)
        return anchor

    def begin(self, link: Link) -> None:
        """Begin to make a link durable, beside the commit of its batch."""
        os.pwrite(self._descriptor, _record(link, settled=False), _SLOTS[self._slot])
        self._waited_for = True
        self._begun.release()

    def settle(self, link: Link) -> None:
        """Wait until the link is durable; the batch may be acknowledged then.

        Raises:
            OSError: the disk refused.
        """
        self._wait()
        os.pwrite(self._descriptor, _record(link), _SLOTS[self._slot])
        self._slot ^= 1

    def abandon(self) -> None:
        """Wait for a begun link, if any: its batch was not committed, and the next one takes its place."""
        if self._waited_for:
            with suppress(OSError):
                self._wait()

    def close(self) -> None:
        """Give the file back."""
        self._closing = True
        self._begun.release()
        self._thread.join()
        os.close(self._descriptor)

    def _wait(self) -> None:
        self._synced.acquire()
        self._waited_for = False
        if self._failure is not None:
            raise self._failure

    def _sync(self) -> None:
        while True:
            self._begun.acquire()
            if self._closing:
                return
            try:
                # Not `store.files.sync`: each append waits for this, and the file's constant length need not
                # be flushed.
                os.fdatasync(self._descriptor)
                self._failure = None
            except OSError as error:
                self._failure = error
            self._synced.release()


def replace(log_path: Path, link: Link) -> None:
    """Write a log's anchor anew, whole or not at all."""
    path = anchor_path(log_path)
    write_whole(path, _record(link).ljust(_SIZE, b"\0"))


def check_part(log_path: Path, *, seconds: float) -> bool:
    """Check the next part of the chain, from the end of the last check; return whether it is the last part.

    Raises:
        LogDamagedError: an event or a payload differs from its record.
    """
    with chain.raw(log_path) as connection:
        after = _read_checked(log_path)
        if link_at(connection, after.seq) != after:
            after = START
        last = chain.last(connection).seq
        link = chain.require(
            chain.walk(connection, after=after, deadline=time.monotonic() + seconds), log_path
        )
    ended = link.seq >= last
    _write_checked(log_path, START if ended else link)
    return ended


def check_newest(log_path: Path, *, seconds: float) -> None:
    """Check the newest events of the chain.

    Raises:
        LogDamagedError: one of them differs from its record.
    """
    with chain.raw(log_path) as connection:
        after = link_at(connection, max(0, chain.last(connection).seq - _NEWEST)) or START
        chain.require(chain.walk(connection, after=after, deadline=time.monotonic() + seconds), log_path)


def _read_checked(log_path: Path) -> Link:
    """Return the link at the end of the chain's last check; the start if unknown."""
    with suppress(OSError), anchor_path(log_path).open("rb") as file:
        result = _read(os.pread(file.fileno(), _LENGTH, _CHECKED))
        return result[0] if result else START
    return START


def _write_checked(log_path: Path, link: Link) -> None:
    """Store the end of the chain's check; a lost or torn record costs one more check."""
    with suppress(OSError), anchor_path(log_path).open("r+b") as file:
        os.pwrite(file.fileno(), _record(link), _CHECKED)
