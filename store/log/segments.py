"""Segments: the log as a folder of closed files, copied off the machine, from which it can be made again.

A segment holds events n to m with their payloads. It is JSON lines, gzipped, written once, and named

    <n, 12 digits>-<m, 12 digits>-<SHA-256 of the file>.jsonl.gz

for `sha256sum` to check. Its first line is the header:

    {"format": 1, "epoch": <number>, "previous": <SHA-256 of the segment shipped before, or 64 zeros>,
     "before": {"seq", "blobs", "hash"}, "after": {"seq", "blobs", "hash"}}

with the links of the log's own chain (`store.log.chain`) before its first event and at its last. Each further
line is one event, with the payloads it covers, their content in base64 as in the log:

    {"event": {<the twelve columns>}, "blobs": [{"id", "sha256", "size_bytes", "content"}]}

Readers compute the log's chain anew, and a restored log has the same hashes. Segments alone cannot reveal the
removal of the last ones or the forgery of all; the log can, by its hash at the last event.

Small segments are merged, as a restore opens each: a new segment takes the place of several, and segments
whole inside another count no more. The links give the order.

An epoch begins when another daemon takes the log over: it creates the file epoch-<number, 12 digits>.json
with the last event it had. Only one daemon can create this file. A segment of epoch e > 0 is named

    <n, 12 digits>-<m, 12 digits>-<SHA-256 of the file>-<e, 12 digits>.jsonl.gz

A segment is void if a later epoch began before its last event: its daemon did not know of its replacement
yet.

A store is a folder or any URL of fsspec's (s3://bucket/folder, sftp://…). Credentials come from the
environment or from fsspec's own configuration. One log has one store; another log, or another branch of its
history, is refused.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import secrets
import shutil
import sqlite3
import tempfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from store.errors import EpochTakenError, LogDamagedError, SegmentError, SegmentGoneError, SegmentStoreError
from store.files import sync
from store.log import blobs as blob_table
from store.log import chain
from store.log.backup import new_file
from store.log.chain import START, Entry, Link
from store.log.envelope import COLUMNS
from store.log.log import EventLog, new_log, put

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

FORMAT = 1
_NAME = re.compile(r"(\d{12})-(\d{12})-([0-9a-f]{64})(?:-(\d{12}))?\.jsonl\.gz", re.ASCII)
_EPOCH = re.compile(r"epoch-(\d{12})\.json", re.ASCII)
_TEMPORARY = ".part"
_NONE = "0" * 64
_WHOLE_OR_NOT = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "memory"}
"""Stores with whole files only. In the others a file has another name until all of it is sent."""
_CREATES = {"s3", "s3a", "gs", "gcs", "memory"}
"""Stores beside folders where fsspec can create a file only if it does not exist."""
_ROW_BYTES = 400
"""The approximate size of an event's columns without `data`."""
_READ_AT_ONCE = 500
MOST_SEGMENTS = 1_000
"""Above this number segments are merged, but for the newest tenth, which a follower is about to read."""
MERGED_BYTES = 2**26
"""The largest size of a merged segment; larger ones are never merged."""
_CHUNK = 2**20
_BLOB = ("id", "sha256", "size_bytes", "content")


class Segment(NamedTuple):
    """A segment's name in parts: first and last event, SHA-256 of the file, epoch of its daemon."""

    first: int
    last: int
    sha256: str
    epoch: int = 0

    @property
    def name(self) -> str:
        epoch = f"-{self.epoch:012d}" if self.epoch else ""
        return f"{self.first:012d}-{self.last:012d}-{self.sha256}{epoch}.jsonl.gz"


class Epoch(NamedTuple):
    """One take-over of a log: host, time, last event before it. Only its daemon knows `token`."""

    number: int
    token: str
    host: str
    taken_at: str
    after: Link

    @property
    def name(self) -> str:
        return f"epoch-{self.number:012d}.json"


class End(NamedTuple):
    """Where a store ends: the log's link at its last event, and the SHA-256 of its last segment."""

    link: Link
    segment: str


NOTHING = End(START, _NONE)
"""The end of a store without segments."""


class SegmentStore:
    """A folder or URL with segments.

    Raises, from each method:
        SegmentStoreError: it cannot be reached, refuses, or has no program for its kind here.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        with self._as_one_error("opened"):
            from fsspec.core import url_to_fs

            self._files: AbstractFileSystem
            self._files, self._root = url_to_fs(url)
        kind = self._files.protocol
        self._kinds = {kind} if isinstance(kind, str) else set(kind)
        self._local = bool(self._kinds & {"file", "local"})
        self._epochs: dict[int, Epoch] = {}

    def segments(self) -> list[Segment]:
        """Return the segments of the store, by their first event.

        Without void segments, those merged into another, and files of other names.
        """
        return self._list()[0]

    def _list(self) -> tuple[list[Segment], list[Segment]]:
        """Return the segments, and those inside others."""
        names = [*self._sizes()]
        epochs = self._epochs_of(names)
        result = [match for name in names if (match := _NAME.fullmatch(name))]
        valid = [
            one
            for one in (Segment(int(m[1]), int(m[2]), m[3], int(m[4] or 0)) for m in result)
            if all(one.last <= later.after.seq for later in epochs if later.number > one.epoch)
        ]
        kept: list[Segment] = []
        merged: list[Segment] = []
        for one in sorted(valid, key=lambda one: (one.first, -one.last, -one.epoch, one.sha256)):
            before = kept[-1] if kept else None
            # The same events twice in one epoch are a mistake for a person to look at. In two epochs they are
            # a merge at the moment of the replacement, and one by the new daemon.
            twice = before is not None and (one[:2], one.epoch) == (before[:2], before.epoch)
            whole = before is None or one.last > before.last or twice
            (kept if whole else merged).append(one)
        return kept, merged

    def sizes(self, segments: Iterable[Segment]) -> list[int]:
        """Return the size of each of the segments in bytes."""
        sizes = self._sizes()
        return [sizes.get(segment.name, 0) for segment in segments]

    def remove_merged(self) -> None:
        """Remove the segments inside others."""
        for one in self._list()[1]:
            with self._as_one_error("removed", one.name):
                self._files.rm_file(self._path(one.name))

    def epochs(self) -> list[Epoch]:
        """Return the epochs so far, the oldest first.

        Raises:
            SegmentError: the file of one cannot be read.
        """
        return self._epochs_of(self._sizes())

    def epoch(self, number: int) -> Epoch | None:
        """Return one epoch, None if it has not begun. Asks for one file and lists nothing.

        Raises:
            SegmentError: its file cannot be read.
        """
        if number in self._epochs:
            return self._epochs[number]
        name = Epoch(number, "", "", "", START).name
        with self._as_one_error("read", name):
            try:
                text = self._files.cat_file(self._path(name))
            except FileNotFoundError:
                return None
        try:
            data = json.loads(text)
            result = Epoch(number, data["token"], data["host"], data["taken_at"], _link(data["after"]))
        except (ValueError, KeyError, TypeError) as error:
            raise SegmentError(
                self.url, name, f"it cannot be read ({error})", "put it back from a copy of the folder"
            ) from error
        self._epochs[number] = result
        return result

    def begin(self, epoch: Epoch) -> None:
        """Begin an epoch.

        Raises:
            EpochTakenError: another daemon began it.
            SegmentStoreError: the store cannot rule out two daemons doing so.
        """
        text = _json({**epoch._asdict(), "after": _link_text(epoch.after)})
        if not self._local:
            self._require_create(f"create-{epoch.token}{_TEMPORARY}")
        if not self._create(epoch.name, text):
            raise EpochTakenError(
                f"{self.url}: another machine began {epoch.name} at this moment; look at it with `everlean standby`"
            )

    def _require_create(self, name: str) -> None:
        """Check that the store refuses to replace a file: some kinds cannot, some only claim to."""
        if self._kinds & _CREATES and self._create(name, b"{}"):
            second = self._create(name, b"{}")
            with self._as_one_error("removed", name):
                self._files.rm_file(self._path(name))
            if not second:
                return
        raise SegmentStoreError(
            f"{self.url}: it cannot be taken over: this store, or fsspec's program for it, replaces a file that it was "
            "asked to make only if there is none, so that two machines could take over at once; ship to a folder or to "
            "a store with conditional writes (S3, Google Cloud Storage)"
        )

    def _create(self, name: str, content: bytes) -> bool:
        """Make a file with its content in one step; return whether it was not there before."""
        target = self._path(name)
        with self._as_one_error("written", name):
            try:
                if self._local:
                    _create_in_folder(content, Path(target))
                else:
                    self._files.pipe_file(target, content, mode="create")
            except FileExistsError:
                return False
        return True

    def _epochs_of(self, names: Iterable[str]) -> list[Epoch]:
        numbers = sorted(int(match[1]) for name in names if (match := _EPOCH.fullmatch(name)))
        return [result for number in numbers if (result := self.epoch(number))]

    def clear(self) -> None:
        """Remove the temporary files of an interrupted `put`."""
        for name in self._sizes():
            if name.endswith(_TEMPORARY):
                with self._as_one_error("removed", name):
                    self._files.rm_file(self._path(name))

    def put(self, segment: Segment, file: Path) -> None:
        """Add a segment, whole or not at all; to repeat it changes nothing."""
        name, target = segment.name, self._path(segment.name)
        with self._as_one_error("written", name):
            if self._local:
                _put_in_folder(file, Path(target))
                return
            if self._kinds & _WHOLE_OR_NOT:
                self._files.put_file(str(file), target)
            else:
                self._files.makedirs(self._root, exist_ok=True)
                self._files.put_file(str(file), target + _TEMPORARY)
                self._files.mv(target + _TEMPORARY, target)
            size_bytes = self._files.info(target)["size"]
        if size_bytes != file.stat().st_size:
            raise SegmentStoreError(
                f"{self.url}: it says that {name} has {size_bytes} bytes, of {file.stat().st_size}; it is sent again"
            )

    @contextmanager
    def whole(self, segment: Segment) -> Iterator[IO[bytes]]:
        """Give a copy of a segment's file, checked against its name.

        Raises:
            SegmentGoneError: it is gone.
            SegmentError: it has another hash.
        """
        hashed = hashlib.sha256()
        with tempfile.TemporaryFile() as copy:
            with (
                self._as_one_error("read", segment.name),
                self._files.open(self._path(segment.name), "rb") as file,
            ):
                while chunk := file.read(_CHUNK):
                    hashed.update(chunk)
                    copy.write(chunk)
            if hashed.hexdigest() != segment.sha256:
                raise SegmentError(
                    self.url, segment.name, f"its file was changed: it hashes to {hashed.hexdigest()}"
                )
            copy.seek(0)
            yield copy

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _sizes(self) -> dict[str, int]:
        with self._as_one_error("listed"):
            self._files.invalidate_cache()
            try:
                result = self._files.ls(self._root, detail=True)
            except FileNotFoundError:
                return {}
        return {str(one["name"]).rstrip("/").rpartition("/")[2]: int(one["size"] or 0) for one in result}

    @contextmanager
    def _as_one_error(self, what: str, name: str = "") -> Iterator[None]:
        """Turn any exception of a store's own program into one error."""
        try:
            yield
        except Exception as error:
            raise (SegmentGoneError if isinstance(error, FileNotFoundError) else SegmentStoreError)(
                f"{self.url}: {name or 'it'} cannot be {what} ({type(error).__name__}: {error}); check that it is "
                "there, the credentials in the environment, the network, and that the package for its kind of URL "
                "is installed (s3fs for s3://)"
            ) from error


def _put_in_folder(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(target.name + _TEMPORARY)
    shutil.copyfile(file, temporary)
    sync(temporary)
    temporary.replace(target)
    sync(target.parent)


def _create_in_folder(content: bytes, target: Path) -> None:
    temporary = target.with_name(f"{target.name}-{secrets.token_hex(8)}{_TEMPORARY}")
    temporary.write_bytes(content)
    try:
        sync(temporary)
        os.link(temporary, target)  # unlike a rename it fails if the target exists
    finally:
        temporary.unlink(missing_ok=True)
    sync(target.parent)


# ---- Write


def end(store: SegmentStore, log_path: Path) -> End:
    """Return the end of a store, after a check that it belongs to this log.

    Looks at the names of all segments and the content of the last one; `verify` looks at everything.

    Raises:
        SegmentError: a segment is missing, doubled or damaged, or the store is another log's.
        SegmentStoreError: the store cannot be read.
    """
    segments = store.segments()
    _require_order(store, segments)
    if not segments:
        return NOTHING
    last = segments[-1]
    shipped = START
    for line in _lines(store, last, None):
        shipped = line.link
    _require_log(store, last, shipped, log_path)
    return End(shipped, last.sha256)


def _require_log(store: SegmentStore, last: Segment, shipped: Link, log_path: Path) -> None:
    """Check that the log has the link at the end of a store's last segment."""
    with chain.raw(log_path) as connection:
        held = chain.link_at(connection, shipped.seq)
        position = chain.last(connection).seq
    if held is None:
        raise SegmentError(
            store.url,
            last.name,
            f"the log ends at event {position}, before it",
            "restore the log from the store (`everlean db restore`), or name an empty folder for this log",
        )
    if held != shipped:
        raise SegmentError(
            store.url,
            last.name,
            f"its event {shipped.seq} is not the log's: the store has another log, or another branch of its history",
            "name an empty folder for this log",
        )


def merge(store: SegmentStore, log_path: Path, spool: Path, *, epoch: int, may: Callable[[], None]) -> bool:
    """Replace the oldest small segments by one larger; return whether there were any.

    A kill at any point loses nothing: a segment goes only when its replacement is complete.

    Args:
        spool: the local file of the segment before its upload.
        may: raises if this daemon may not write the store any more.

    Raises:
        SegmentError: the store's segments do not follow one another, or go further than the log.
        SegmentStoreError: the store cannot be read or written.
        LogError: the log cannot be read.
    """
    segments = store.segments()
    _require_order(store, segments)
    group = _fit_for_one(store, segments[: -MOST_SEGMENTS // 10])
    if group:
        with chain.raw(log_path) as connection:
            before, last = (chain.link_at(connection, seq) for seq in (group[0].first - 1, group[-1].last))
        if before is None or last is None:
            raise SegmentError(store.url, group[-1].name, f"{log_path} ends before it")
        result = write(log_path, End(before, _NONE), spool, most_bytes=0, epoch=epoch, upto=last)
        assert result is not None
        may()
        store.put(result[0], spool)
        spool.unlink()
    may()
    store.remove_merged()
    return bool(group)


def _fit_for_one(store: SegmentStore, segments: Sequence[Segment]) -> list[Segment]:
    """Return the first consecutive segments that fit into one; none if no two do."""
    group: list[Segment] = []
    total = 0
    for one, size_bytes in zip(segments, store.sizes(segments), strict=True):
        if group and (total + size_bytes > MERGED_BYTES or len(group) == MOST_SEGMENTS):
            if len(group) > 1:
                break
            group, total = [], 0
        group.append(one)
        total += size_bytes
    return group if len(group) > 1 else []


def write(
    log_path: Path, after: End, target: Path, *, most_bytes: int, epoch: int = 0, upto: Link | None = None
) -> tuple[Segment, End] | None:
    """Write the next segment of a log to a file; None if there is nothing more.

    It takes about `most_bytes` and at least one event, or the events up to a link.

    Raises:
        LogDamagedError: an event differs from its record: it is not shipped.
        LogError: the log cannot be read, or the file not be written.
    """
    with chain.raw(log_path) as connection:
        last = upto or _upto(connection, after.link, most_bytes)
        if last.seq == after.link.seq:
            return None
        header = {
            "format": FORMAT,
            "epoch": epoch,
            "previous": after.segment,
            "before": _link_text(after.link),
            "after": _link_text(last),
        }
        with target.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
            packed.write(_json(header))
            for item in chain.read(connection, after=after.link, upto=last.seq):
                if isinstance(item, chain.Damage):
                    raise LogDamagedError(log_path, item.seq, str(item))
                packed.write(
                    _json(
                        {
                            "event": dict(zip(COLUMNS, item.event, strict=True)),
                            "blobs": [
                                {**dict(zip(_BLOB, row, strict=True)), "content": _base64(row[-1])}
                                for row in item.blobs
                            ],
                        }
                    )
                )
        with target.open("rb") as written:
            sha256 = hashlib.file_digest(written, "sha256").hexdigest()
    return Segment(after.link.seq + 1, last.seq, sha256, epoch), End(last, sha256)


def _upto(connection: sqlite3.Connection, after: Link, most_bytes: int) -> Link:
    """Return the link of a segment's last event."""
    link, size_bytes = after, 0
    while True:
        rows = connection.execute(
            "SELECT c.seq, c.blobs, c.hash, length(e.data) FROM events e JOIN chain c ON c.seq = e.seq "
            "WHERE e.seq > ? ORDER BY e.seq LIMIT ?",
            (link.seq, _READ_AT_ONCE),
        ).fetchall()
        for *result, data in rows:
            before, link = link, Link(*result)
            size_bytes += data + _ROW_BYTES
            if link.blobs > before.blobs:
                size_bytes += connection.execute(
                    "SELECT coalesce(sum(length(content)), 0) FROM blobs WHERE id > ? AND id <= ?",
                    (before.blobs, link.blobs),
                ).fetchone()[0]
            if size_bytes >= most_bytes:
                return link
        if len(rows) < _READ_AT_ONCE:
            return link


# ---- Read


@dataclass(frozen=True, slots=True)
class Verified:
    """A store of whole, consecutive segments, and its end."""

    segments: int
    end: End


def verify(store: SegmentStore, log_path: Path | None = None) -> Verified:
    """Read all segments of a store once and compute the log's chain from its first event.

    Args:
        log_path: the log they should be a beginning of; None: any.

    Raises:
        SegmentError: a segment is missing, doubled, or changed; the store is empty, or another log's.
        SegmentStoreError: the store cannot be read.
    """
    segments = store.segments()
    reached = NOTHING
    for after, _line in _history(store, segments):
        reached = after
    if log_path is not None:
        _require_log(store, segments[-1], reached.link, log_path)
    return Verified(len(segments), reached)


def restore(store: SegmentStore, target: Path, *, upto: int | None = None) -> Link:
    """Make a log of a store's segments at `target`, a new file; return its last link.

    Args:
        upto: the last event to take; None: all.

    Raises:
        SegmentError: a segment is missing, doubled, or changed; the store ends before `upto`.
        SegmentStoreError: the store cannot be read.
        LogError: the target exists, or cannot be written.
    """
    segments = [segment for segment in store.segments() if upto is None or segment.first <= upto]
    if segments and upto is not None and segments[-1].last < upto:
        raise SegmentError(
            store.url,
            segments[-1].name,
            f"it is the last one, and event {upto} lies behind it",
            f"restore up to event {segments[-1].last}",
        )
    link = START
    with new_file(target) as temporary, new_log(temporary) as log:
        for _end, line in _history(store, segments):
            if upto is not None and line.link.seq > upto:
                break
            link = line.link
            put(log, link, line.event, line.blobs)
    return link


def follow(store: SegmentStore, log: EventLog, reached: End | None = None) -> Iterator[End]:
    """Append a store's further events to a log by segment; yield each end reached, first the present one.

    Args:
        reached: the end reached by the previous call; None checks that the store is this log's.

    Raises:
        SegmentError: a segment is missing, doubled, or changed; the log does not end where one of them does,
            or is another.
        SegmentStoreError: the store cannot be read.
        LogError: the log cannot be written.
    """
    segments = store.segments()
    _require_order(store, segments)
    # The segment in which the log ends, or the last to end before: a merged one goes further.
    last = next((one for one in reversed(segments) if one.first <= log.head.seq), None)
    if reached is None or last is None or last.last > log.head.seq:
        reached = NOTHING
        for line in _lines(store, last, None) if last else ():
            if line.link.seq <= log.head.seq:
                reached = End(line.link, last.sha256 if last else _NONE)
    if reached.link != log.head:
        raise SegmentError(
            store.url,
            last.name if last else "",
            f"{log.path} ends at event {log.head.seq}, and no segment of the same history does: it is another log, or "
            "has events that were never shipped before another machine took over",
            "move events.db* and database.db* to another folder, to begin with a copy",
        )
    yield reached
    for segment in segments:
        if segment.last <= log.head.seq:
            continue
        held, follows = log.head.seq, reached if segment.first == log.head.seq + 1 else None
        log.copy((line.event, line.blobs) for line in _lines(store, segment, follows) if line.link.seq > held)
        reached = End(log.head, segment.sha256)
        yield reached


def _history(store: SegmentStore, segments: Sequence[Segment]) -> Iterator[tuple[End, Entry]]:
    """Yield the events of consecutive segments from the first on, each with the store's end behind it."""
    if not segments:
        raise SegmentError(store.url, "", "no segment lies there", "name the folder or URL of `[log] ship`")
    _require_order(store, segments)
    left, reached = deque(segments), NOTHING
    while left:
        segment, held = left.popleft(), reached.link
        try:
            for line in _lines(store, segment, reached if segment.first == held.seq + 1 else None):
                if line.link.seq > held.seq:
                    reached = End(line.link, segment.sha256)
                    yield reached, line
                elif line.link.seq == held.seq and line.link != held:
                    raise SegmentError(store.url, segment.name, "it does not follow the segment before it")
        except SegmentGoneError:
            now = store.segments()
            if segment in now:
                raise
            # It was merged since: another segment holds its events, and some already read.
            _require_order(store, now)
            left = deque(one for one in now if held.seq < one.last and one.first <= segments[-1].last)
            if not left:
                raise


def _require_order(store: SegmentStore, segments: Iterable[Segment]) -> None:
    before: Segment | None = None
    for segment in segments:
        first = before.last + 1 if before else 1
        if segment.first > first:
            raise SegmentError(
                store.url,
                segment.name,
                f"the events {first} to {segment.first - 1} before it are missing",
                "put the missing segment back from a copy of the folder"
                + (f", or restore up to event {first - 1} (--upto)" if before else "")
                + "; for shipping name an empty folder",
            )
        if segment.first < first:
            assert before is not None
            raise SegmentError(
                store.url,
                segment.name,
                f"it holds events that {before.name} holds too",
                "move one of the two away: the right one is that which `everlean db verify --segments` accepts",
            )
        before = segment


def _lines(store: SegmentStore, segment: Segment, before: End | None) -> Iterator[Entry]:
    """Yield the events of a segment; with `before` only if it follows that end."""
    try:
        with store.whole(segment) as file, gzip.GzipFile(fileobj=file, mode="rb") as lines:
            header = json.loads(next(lines))
            if header["format"] != FORMAT:
                raise SegmentError(
                    store.url,
                    segment.name,
                    f"it has format {header['format']}, this program reads {FORMAT}",
                    "install a newer everlean",
                )
            link, after = _link(header["before"]), _link(header["after"])
            if header.get("epoch", 0) != segment.epoch:
                raise SegmentError(store.url, segment.name, "its name says another epoch than its header")
            if before is not None and link != before.link:
                raise SegmentError(store.url, segment.name, "it does not follow the segment before it")
            if link.seq + 1 != segment.first or after.seq != segment.last:
                raise SegmentError(store.url, segment.name, "its name says other events than its header")
            for text in lines:
                line = _line(json.loads(text), link)
                link = line.link
                yield line
            if link != after:
                raise SegmentError(
                    store.url,
                    segment.name,
                    "its events are not those of its header: their hashes lead elsewhere",
                )
    except (ValueError, KeyError, TypeError, EOFError, StopIteration, OSError, zlib.error) as error:
        raise SegmentError(
            store.url, segment.name, f"it cannot be read ({type(error).__name__}: {error})"
        ) from error


def _line(data: dict[str, Any], before: Link) -> Entry:
    event = tuple(data["event"][name] for name in COLUMNS)
    rows: list[blob_table.Row] = [
        (row["id"], row["sha256"], row["size_bytes"], base64.b64decode(row["content"], validate=True))
        for row in data["blobs"]
    ]
    if event[0] != before.seq + 1:
        raise ValueError(f"event {event[0]} follows event {before.seq}")
    return Entry(chain.linked(before, event, rows), event, rows)


def _link_text(link: Link) -> dict[str, int | str]:
    return {"seq": link.seq, "blobs": link.blobs, "hash": link.hash.hex()}


def _link(data: dict[str, Any]) -> Link:
    return Link(data["seq"], data["blobs"], bytes.fromhex(data["hash"]))


def _base64(content: Any) -> str:
    return base64.b64encode(content).decode("ascii")


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"
