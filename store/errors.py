"""Errors of the store, under one base class.

Each class carries its data as attributes; the message names the thing, the reason and the remedy.
"""

from __future__ import annotations

from store.text import listed


class LogError(Exception):
    """The store cannot do the request. Nothing was written."""


class InvalidAppendError(LogError):
    """An append without any chance: empty, without an expectation, or not storable as JSON text."""


class ConcurrencyError(LogError):
    """A stream is not at the caller's expected version; nothing was written."""

    def __init__(self, stream: str, *, expected: object, actual: int) -> None:
        super().__init__(
            f"stream {stream!r} is at version {actual}, expected {expected}; nothing was written. "
            "Read the stream again and decide anew"
        )
        self.stream = stream
        self.expected = expected
        self.actual = actual


class IdempotencyError(LogError):
    """An event id is in the log with other content, or only a part of the batch is there."""

    def __init__(self, event_ids: tuple[str, ...], reason: str) -> None:
        super().__init__(
            f"events {listed(event_ids, 3)}: {reason}; nothing was written. The log keeps what it recorded first"
        )
        self.event_ids = event_ids


class UnknownEventError(LogError):
    """An event type, or a version of it, unknown to this program. It is never skipped."""

    def __init__(self, seq: int, event_type: str, version: int, *, known: int | None) -> None:
        why = "no such type" if known is None else f"the newest known version is {known}"
        super().__init__(
            f"event {seq}: {event_type} version {version} cannot be read ({why}). It was written by a newer "
            "everlean: install that version or a later one; what lies before it can still be read"
        )
        self.seq = seq
        self.type = event_type
        self.version = version
        self.known = known


class MalformedEventError(LogError):
    """A stored event has not the shape of its type and version."""

    def __init__(self, seq: int, event_type: str, version: int, reason: str) -> None:
        super().__init__(
            f"event {seq}: {event_type} version {version} has not the shape of its type ({reason}). Check the "
            "file with `everlean db check`, restore a backup, or add the missing upcast"
        )
        self.seq = seq
        self.type = event_type
        self.version = version


class BlobMissingError(LogError):
    """A payload cited by an event is neither in the log nor given with the append."""

    def __init__(self, sha256: str, *, reason: str = "it is not in the log") -> None:
        super().__init__(
            f"blob {sha256}: {reason}. Give its file with the append; the job that staged it can be run again"
        )
        self.sha256 = sha256


class BlobCorruptError(LogError):
    """A payload has another hash than its name."""

    def __init__(self, sha256: str, *, actual: str, where: str) -> None:
        super().__init__(
            f"blob {sha256} in {where} hashes to {actual}: it was changed or cut short. Stage it again, or restore "
            "the log from a backup if it is the log's own copy"
        )
        self.sha256 = sha256
        self.actual = actual


class LogVersionError(LogError):
    """The file was written by a newer version of this program."""


class NotALogError(LogError):
    """The file is no database, or another program's."""


class DatabaseMissingError(LogError):
    """There is no such database file."""


class DatabaseReadOnlyError(LogError):
    """The file or its folder cannot be written."""


class DatabaseLockedError(LogError):
    """Another process holds the database."""


class DatabaseFullError(LogError):
    """The disk, or the quota, is full. Acknowledged events are safe."""


class DatabaseCorruptError(LogError):
    """SQLite finds the file damaged."""


class LogDamagedError(LogError):
    """The log differs from its record: its end is gone, or an event in it has another hash.

    `seq` is the first such event, None if unknown.
    """

    def __init__(self, path: object, seq: int | None, what: str) -> None:
        super().__init__(
            f"{path}: {what}. Nothing was changed: copy the folder aside, then restore the last backup if it goes "
            "further; otherwise `everlean db recover` keeps what is sound as a new branch of history"
        )
        self.seq = seq
        self.what = what


class SegmentError(LogError):
    """A segment of a shipped log is missing, doubled, or changed; `name` is the segment."""

    def __init__(self, url: str, name: str, what: str, remedy: str = "") -> None:
        remedy = remedy or (
            "put the segment back from a copy of the folder, or restore up to the event before its first (--upto)"
        )
        super().__init__(f"{url}: {f'segment {name}: ' if name else ''}{what}; {remedy}")
        self.name = name


class SegmentStoreError(LogError):
    """The folder or URL of segments cannot be read or written."""


class SegmentGoneError(SegmentStoreError):
    """A file of the store is not there any more: its events may lie in a larger segment now."""


class EpochTakenError(LogError):
    """Another daemon has taken the log over."""


class DatabaseIOError(LogError):
    """The operating system failed to read or write the file."""


class LogClosedError(LogError):
    """The log was used after `close`."""


class ViewError(LogError):
    """database.db does not have this version's tables. It is only a view and can be made again."""


def is_damage(error: LogError) -> bool:
    """Return whether an unreadable file is damaged or gone; not: newer, locked, closed to this user."""
    damage = DatabaseCorruptError | DatabaseMissingError | LogDamagedError | NotALogError
    return (
        isinstance(error, damage) or type(error) is LogError
    )  # the consequences of a damaged schema have no class


def without_remedy(error: LogError) -> str:
    """Return the problem without the remedy, for a message with another remedy."""
    return error.what if isinstance(error, LogDamagedError) else str(error.__cause__ or error)
