"""A warm standby: follow the log of a daemon on another machine, and take it over.

The standby appends the segments of `[log] ship` to a log of its own and keeps the view current, so every
reading verb answers. It becomes the daemon by a take-over, which begins a new epoch in the store
(`store.log.segments`): a file that only one machine can make. A daemon asks for that file at its start and
before each shipment, and ends if another machine has made it: it is fenced. So two may run at once only until
the first next asks the store.

`standby.json` in the state folder holds this machine's role:

    following: no token; a daemon refuses to start on this folder
    took over: the token that it wrote into its epoch, by which its daemon knows that epoch as its own

It also holds the standby's progress, for `everlean status`.
"""

from __future__ import annotations

import json
import platform
import secrets
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from daemon.place.paths import Paths
from pipeline.redact import redact
from store.errors import EpochTakenError, LogError, SegmentError
from store.files import write_whole
from store.log import chain, segments
from store.log.log import EventLog
from store.log.reader import LogReader
from store.log.segments import End, Epoch, SegmentStore
from store.view.rebuild import opened
from store.view.view import View

if TYPE_CHECKING:
    from daemon.settings import Settings

_NOBODY = "none"
"""The token of a machine that has shipped and neither followed nor taken over."""

log = structlog.get_logger("daemon.state.standby")


class FencedError(LogError):
    """Nothing may be recorded on this machine: it follows the log, or another one has taken it over."""


@dataclass(frozen=True, slots=True)
class Standby:
    """A machine's role for a shipped log. Times are ISO 8601, UTC; "" for none."""

    url: str
    token: str = ""
    """of the epoch begun by this machine; "" while it follows"""
    position: int = 0
    """the last event here"""
    shipped: int = 0
    """the last event in the store, as of the last read"""
    read_at: str = ""
    """the time of the last read to the store's end"""
    problem: str = ""
    """the failure of the last try; "" if it succeeded"""
    fenced: bool = False
    """whether another machine's daemon replaced the one here; `problem` names it"""


def read(paths: Paths) -> Standby | None:
    """Return this machine's role; None if it never followed.

    Raises:
        LogError: the file cannot be read.
    """
    try:
        return Standby(**json.loads(paths.standby.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise LogError(
            f"{paths.standby}: cannot be read ({error}); if this machine is a standby, remove the file and run "
            "`everlean standby`"
        ) from error


def _note(paths: Paths, standby: Standby) -> None:
    write_whole(paths.standby, json.dumps(asdict(standby)))


# ---- Fenced, or not


def check_at_start(settings: Settings) -> None:
    """Check that a daemon may begin on this state folder.

    Raises:
        FencedError: it is a standby's, or another machine took the log over.
        LogError: the store cannot be read.
    """
    paths = settings.paths
    standby = _require_no_follower(paths)
    if settings.log.ship:
        store = SegmentStore(settings.log.ship)
        try:
            require_unfenced(store, epoch_of(store, paths), paths.events_db)
        except FencedError as error:
            note_fenced(paths, settings.log.ship, error)
            raise
    if standby is not None and standby.fenced:
        _note(paths, replace(standby, problem="", fenced=False))


def note_fenced(paths: Paths, url: str, error: FencedError) -> None:
    """Note another machine's take-over of the log, for `everlean status` and the next start here."""
    _note(paths, replace(read(paths) or Standby(url, token=_NOBODY), problem=str(error), fenced=True))


def is_fenced(paths: Paths) -> bool:
    """Return whether a daemon here has found another machine's take-over of the log."""
    standby = read(paths)
    return standby is not None and standby.fenced


def require_own(paths: Paths) -> None:
    """Check that the log is this machine's to write, by the facts known here.

    Raises:
        FencedError: it is a standby's, or a daemon here has found another machine's take-over.
    """
    standby = _require_no_follower(paths)
    if standby is not None and standby.fenced:
        raise FencedError(standby.problem)


def _require_no_follower(paths: Paths) -> Standby | None:
    standby = read(paths)
    if standby is not None and not standby.token:
        raise FencedError(
            f"{paths.state} follows {standby.url} as a standby: run `everlean standby`, or take over with `everlean "
            "standby --take-over`"
        )
    return standby


def epoch_of(store: SegmentStore, paths: Paths) -> int:
    """Return the number of this machine's epoch, 0 if none: the first machine to ship began none."""
    standby = read(paths)
    token = standby.token if standby else ""
    return max((one.number for one in store.epochs() if one.token == token), default=0)


def require_unfenced(store: SegmentStore, epoch: int, log_path: Path) -> None:
    """Check that no epoch began after this machine's.

    Raises:
        FencedError: another machine took the log over; the message names its missing part of this log.
        LogError: the store cannot be read.
    """
    later = store.epoch(epoch + 1)
    if later is not None:
        raise FencedError(
            f"{later.host} took the log over from {store.url} at {later.taken_at}, behind event {later.after.seq}; "
            f"nothing more is recorded or shipped here. {_leftovers(later, log_path)}. To let this machine follow, "
            "run `everlean standby`"
        )


def _leftovers(later: Epoch, log_path: Path) -> str:
    if not log_path.exists():
        return "There is no log here"
    with chain.raw(log_path) as connection:
        last, held = chain.last(connection).seq, chain.link_at(connection, later.after.seq)
    if held is None:
        return f"All {last} events of {log_path} are there"
    if held != later.after:
        return f"{log_path} is of another history and stays as it is"
    if last == later.after.seq:
        return f"All events of {log_path} are there"
    first = later.after.seq + 1
    return (
        f"{last - first + 1} events, {first} to {last}, were acknowledged here and not shipped by then: they stay in "
        f"{log_path}. Keep it: before this machine follows, move events.db* and database.db* to another folder"
    )


# ---- Follow, and take over


class Follower:
    """A standby's copy of a shipped log and its view. Use it in `with`, under the state folder's lock.

    Args:
        hidden: the values to keep out of notes.

    Raises, as it is opened:
        SegmentError: the log here is not the beginning of that log; nothing was changed.
        LogError: the store or the files here cannot be used.
    """

    def __init__(self, url: str, paths: Paths, *, hidden: tuple[str, ...] = ()) -> None:
        self._paths = paths
        self._hidden = hidden
        self._store = SegmentStore(url)
        self._reached: End | None = None
        self._view: View | None = None
        self._held = ExitStack()
        with ExitStack() as held:
            if paths.events_db.exists():
                self._require_other()
            else:
                # Marked before there is a log: a daemon that began on it would be a second one.
                if not self._store.segments():
                    raise SegmentError(
                        url, "", "no segment lies there", "let the daemon ship its log there first"
                    )
                _note(paths, Standby(url))
                segments.restore(self._store, paths.events_db)
            self._log = held.enter_context(EventLog.open(paths.events_db))
            self._reached = next(segments.follow(self._store, self._log))
            self._said = Standby(url, position=self._log.head.seq, shipped=self._log.head.seq)
            _note(paths, self._said)
            self._reader = held.enter_context(closing(LogReader.open(paths.events_db)))
            held.callback(self._close_view)
            self._held = held.pop_all()

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._held.close()

    def turn(self) -> Standby:
        """Append new segments and bring the view up to them; note and return the progress."""
        try:
            self._follow()
        except (LogError, OSError) as error:
            lasts = [one.last for one in self._shipped()]
            self._said = replace(
                self._said,
                position=self._log.head.seq,
                shipped=max([self._log.head.seq, *lasts]),
                problem=redact(str(error), secrets=self._hidden)[:1000],
            )
        else:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self._said = Standby(self._store.url, "", self._log.head.seq, self._log.head.seq, now)
        _note(self._paths, self._said)
        return self._said

    def take_over(self, *, force: bool = False) -> Epoch:
        """Follow to the end and begin an epoch there; then a daemon may start here, and the other is fenced.

        Args:
            force: also after another take-over, if its daemon has shipped nothing yet.

        Raises:
            EpochTakenError: another machine did, at the same moment or just before.
            LogError: the store cannot be read, or cannot make sure that only one takes over; nothing was
                changed.
        """
        self._follow()
        while any(one.last > self._log.head.seq for one in self._store.segments()):
            self._follow()  # the other daemon may ship while a view is made
        before = max(self._store.epochs(), key=lambda one: one.number, default=None)
        if before is not None and before.after == self._log.head and not force:
            raise EpochTakenError(
                f"{self._store.url}: {before.host} took it over at {before.taken_at}, and its daemon has shipped"
                " nothing yet: start the daemon there, or repeat with --force if that machine is lost too"
            )
        number = 1 if before is None else before.number + 1
        now = datetime.now(UTC).isoformat(timespec="seconds")
        epoch = Epoch(number, secrets.token_hex(16), platform.node(), now, self._log.head)
        self._store.begin(epoch)
        # Behind the store: killed in between, this is still a standby, and takes over again.
        _note(self._paths, replace(self._said, token=epoch.token, problem=""))
        return epoch

    def _require_other(self) -> None:
        """Refuse to follow this machine's own daemon: nobody would ship then."""
        before = read(self._paths)
        if before is not None and not before.token:
            return
        if self._store.epoch(epoch_of(self._store, self._paths) + 1) is None:
            raise LogError(
                f"{self._paths.events_db}: the daemon of this machine ships it to {self._store.url}, and no other "
                "took it over; run the daemon here (`everlean run`), or take over on another machine first"
            )

    def _follow(self) -> None:
        for reached in segments.follow(self._store, self._log, self._reached):
            self._reached = reached
        if self._view is None:
            self._view, rebuilt = opened(self._paths.database_db, self._reader)
            if rebuilt:
                log.warning("view_rebuilt", reason=rebuilt)
        self._view.catch_up()

    def _shipped(self) -> list[segments.Segment]:
        try:
            return self._store.segments()
        except LogError:
            return []

    def _close_view(self) -> None:
        if self._view is not None:
            self._view.close()


def follow(
    follower: Follower, every_s: float, ended: threading.Event, tell: Callable[[Standby], None]
) -> None:
    """Follow until the event is set; report each turn with news."""
    before: Standby | None = None
    while not ended.is_set():
        now = follower.turn()
        if before is None or replace(now, read_at="") != replace(before, read_at=""):
            tell(now)
        before = now
        ended.wait(every_s)
