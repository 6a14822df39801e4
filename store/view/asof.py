"""The view as it was: at an event, or at a time.

Owns finding a moment of the log (`find`) and the copies of the view as of one (`Copies`). A copy is an
ordinary view, built from the log's beginning, or from an earlier copy, up to one event. It is made under a
temporary name and renamed: a kill leaves nothing readable, and two processes with the same one at once each
leave a whole file. The folder is a cache: anything in it may be deleted at any time.

No pydantic and no SQLAlchemy at the top: finding a moment is cheap, only making a copy is not.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import sqlite3
import stat
import tempfile
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from store.errors import DatabaseCorruptError, DatabaseMissingError, LogError, NotALogError
from store.files import sync
from store.log.envelope import Moment, StoredEvent, utc_text
from store.log.reader import LogReader
from store.sqlite import UNFINISHED, connect_readonly, connect_writable, translated
from store.view.tables import fingerprint

KEPT = 4
"""The number of copies kept in a folder; the least recently used ones go first."""

_NAME = re.compile(r"(?P<tables>[0-9a-f]{8})-(?P<seq>\d+)-(?P<prefix>[0-9a-f]{16})\.db")
_UNFINISHED = re.compile(r".+\.db\.making-(?P<pid>\d+)-\d+")
_TRIES = 3


class NoSuchMomentError(LogError):
    """The log has no such event, or had none yet at the time."""


@dataclass(frozen=True, slots=True)
class _Copy:
    path: Path
    tables: str
    seq: int
    prefix: str
    used_ns: int


def find(log: LogReader, when: int | datetime) -> Moment:
    """Return the event with a seq, or the last one recorded at or before a time.

    Raises:
        NoSuchMomentError: it lies before the first event or after the last one, or in the future.
    """
    last = log.position()
    if isinstance(when, int):
        seq, moment = when, f"event {when}"
        if seq > last:
            raise NoSuchMomentError(f"{log.path}: there is no {moment} yet, the log ends at event {last}")
    else:
        moment = utc_text(when)
        if when > datetime.now(UTC):
            raise NoSuchMomentError(f"{moment} lies in the future; name a time that has passed")
        seq = log.position_at(moment)
    event = next(log.read(after=seq - 1, limit=1), None) if seq >= 1 else None
    if event is None:
        first = next(log.read(limit=1), None)
        begins = f"it begins with event 1 at {first.recorded_at}" if first is not None else "it is empty"
        raise NoSuchMomentError(f"{log.path}: nothing was recorded as of {moment}, {begins}")
    return Moment(event.seq, event.recorded_at)


class Copies:
    """The copies of views in one folder, most of them for later; safe for any number of processes at once."""

    def __init__(self, folder: Path, *, kept: int = KEPT) -> None:
        self.folder = folder
        self._kept = kept

    @classmethod
    def of_user(cls, cache: Path, log: LogReader, moment: Moment) -> Copies:
        """Return the daemon's cache if this user may write it or the copy is there; else a folder of this user's own.

        Raises:
            LogError: another user can reach into this user's folder.
        """
        shared = cls(cache)
        nearest = next(folder for folder in (cache, *cache.parents) if folder.exists())
        if os.access(nearest, os.W_OK | os.X_OK):
            return shared
        if os.access(nearest, os.X_OK) and shared.ready(log, moment) is not None:
            return shared
        own = Path(tempfile.gettempdir(), f"everlean-as-of-{os.geteuid()}")
        own.mkdir(mode=0o700, exist_ok=True)
        result = own.lstat()
        if not stat.S_ISDIR(result.st_mode) or result.st_uid != os.geteuid() or result.st_mode & 0o077:
            raise LogError(
                f"{own}: not a private folder of this user; remove it, or set TMPDIR to another place"
            )
        return cls(own)

    def open(self, log: LogReader, moment: Moment) -> sqlite3.Connection:
        """Return a read-only connection to the view as of a moment; make a missing copy.

        Raises:
            LogError: an event up to the moment cannot be read; the folder cannot be written; the disk is
                full.
        """
        for _ in range(_TRIES):
            path = self.ready(log, moment) or self.make(log, moment)
            try:
                return connect_readonly(path)
            except DatabaseMissingError:
                continue  # someone else's sweep came first; on an open file a sweep does no harm
            except (DatabaseCorruptError, NotALogError):
                path.unlink(missing_ok=True)
        raise LogError(
            f"{self.folder}: its copies are removed as soon as they are made; ask again when fewer others ask"
        )

    def ready(self, log: LogReader, moment: Moment) -> Path | None:
        """Return the copy for this moment if it is there, and count it as used now."""
        path = self._path(log, moment.seq)
        if not path.is_file():
            return None
        # Another user's copy can be read and not touched: its owner's queries decide how long it stays.
        with contextlib.suppress(PermissionError, FileNotFoundError):
            os.utime(path)
        return path

    def start(self, log: LogReader, moment: Moment) -> int:
        """Return the event before the first one to apply for a copy: the nearest earlier copy's, or 0."""
        nearest = self._nearest(log, moment.seq)
        return nearest.seq if nearest is not None else 0

    def make(self, log: LogReader, moment: Moment) -> Path:
        """Make the copy for this moment, from the nearest earlier one if there is any; return its path.

        Raises:
            LogError: as `open`.
        """
        from store.view.rebuild import remove

        target = self._path(log, moment.seq)
        temporary = target.with_name(f"{target.name}.making-{os.getpid()}-{threading.get_ident()}")
        with translated(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._sweep_unfinished()
            try:
                nearest = self._nearest(log, moment.seq)
                if nearest is None or not _extend(temporary, nearest, log, upto=moment.seq):
                    _build(temporary, log, upto=moment.seq)
                temporary.replace(target)
            finally:
                remove(temporary)
            self._sweep_unused(but=target)
        return target

    def _path(self, log: LogReader, seq: int) -> Path:
        return self.folder / f"{fingerprint():08x}-{seq}-{_prefix(log, seq)}.db"

    def _nearest(self, log: LogReader, seq: int) -> _Copy | None:
        tables = f"{fingerprint():08x}"
        earlier = [copy for copy in self._all() if copy.tables == tables and copy.seq < seq]
        for copy in sorted(earlier, key=lambda item: item.seq, reverse=True):
            if copy.prefix == _prefix(log, copy.seq):
                return copy
        return None

    def _all(self) -> list[_Copy]:
        result = []
        for path in self.folder.glob("*.db"):
            name = _NAME.fullmatch(path.name)
            # A copy removed at this moment does not count.
            with contextlib.suppress(FileNotFoundError):
                if name is not None:
                    used_ns = path.stat().st_mtime_ns
                    result.append(_Copy(path, name["tables"], int(name["seq"]), name["prefix"], used_ns))
        return result

    def _sweep_unused(self, *, but: Path) -> None:
        others = sorted((copy for copy in self._all() if copy.path != but), key=lambda copy: -copy.used_ns)
        for copy in others[max(self._kept - 1, 0) :]:
            copy.path.unlink(missing_ok=True)

    def _sweep_unfinished(self) -> None:
        """Remove the files of killed processes; those of living ones stay."""
        for path in self.folder.iterdir():
            owner = _UNFINISHED.match(path.name)
            if owner is not None and not Path("/proc", owner["pid"]).exists():
                path.unlink(missing_ok=True)


def _prefix(log: LogReader, seq: int) -> str:
    """Name the log's first `seq` events: by the first and the last of them, a pair of no other log."""
    ends = (_event(log, 1), _event(log, seq))
    text = "\n".join(f"{event.event_id} {event.recorded_at}" for event in ends)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _event(log: LogReader, seq: int) -> StoredEvent:
    event = next(log.read(after=seq - 1, limit=1), None)
    if event is None or event.seq != seq:
        raise NoSuchMomentError(f"{log.path}: there is no event {seq}; run `everlean db check`")
    return event


def _build(target: Path, log: LogReader, *, upto: int) -> None:
    from store.view.rebuild import build

    stopped = build(target, log, upto=upto, polls=[])
    if stopped is not None:
        raise LogError(f"no answer as of event {upto}: {stopped}")


def _extend(target: Path, earlier: _Copy, log: LogReader, *, upto: int) -> bool:
    """Bring a copy of an earlier copy up; False if the earlier one is gone or no sound view."""
    from store.errors import ViewError
    from store.view.view import catch_up, check_log

    try:
        shutil.copyfile(earlier.path, target)
    except FileNotFoundError:
        return False
    connection = connect_writable(target, mode="rw")
    try:
        for pragma in UNFINISHED:  # here, as the first of them detects a file of another kind
            connection.execute(f"PRAGMA {pragma}")
        check_log(connection, log)
        catch_up(connection, log, upto=upto)
    except ViewError:
        earlier.path.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
        return False
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF not in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
            raise
        earlier.path.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
        return False
    finally:
        connection.close()
    sync(target)
    return True
