"""One daemon's configuration file and folders for any other process: the lock's holder, the view, the daemon.

For the command line and the servers beside the daemon. Standard library only. Readers open the view
read-only, whether the daemon runs or not.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon.place import control_client, lock
from daemon.place.paths import ConfigNotFoundError, Paths, find_config, paths_from_config

if TYPE_CHECKING:
    from daemon.place.answers import LiveStatus
    from store.documents.live import JobProgress, QueuedJob
    from store.log.envelope import Moment


class InstanceError(Exception):
    """The folders cannot be read; the message names the thing, the reason and the remedy."""


class NoConfigError(InstanceError):
    """There is no configuration file, or it cannot be read."""


LONG_EVENTS = 20_000
"""Making a view of this many events takes long enough to announce it first."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One daemon's configuration file and folders, and its process, if it runs.

    `held` is the command that keeps the daemon away for the moment. `moment` is --as-of's, None for now:
    present facts (progress, the queue, whether a daemon runs) do not belong into an answer about it.
    """

    config: Path
    paths: Paths
    pid: int | None
    held: lock.Holder | None = None
    moment: Moment | None = None

    @property
    def running(self) -> bool:
        return self.pid is not None

    @property
    def head(self) -> dict[str, object]:
        """The first fields of almost every document: the present `daemon`, and `as_of` if given."""
        daemon = {"running": self.running, "pid": self.pid}
        return {"daemon": daemon} if self.moment is None else {"daemon": daemon, "as_of": self.moment}


def find_instance(config: Path | None) -> Instance:
    """Find the configuration and the folders, and ask the lock for its holder.

    Args:
        config: the file; None: by `daemon.place.paths.find_config`.

    Raises:
        NoConfigError: no configuration.
        InstanceError: the lock may not be read.
    """
    try:
        path = find_config(config)
        paths = paths_from_config(path)
    except ConfigNotFoundError as error:
        raise NoConfigError(str(error)) from error
    except OSError as error:
        raise NoConfigError(
            f"{error.filename}: {error.strerror or error}; check the path and its permissions"
        ) from error
    result = holder(paths)
    if result is not None and result.purpose != lock.DAEMON:
        return Instance(config=path, paths=paths, pid=None, held=result)
    return Instance(config=path, paths=paths, pid=None if result is None else result.pid)


def holder(paths: Paths) -> lock.Holder | None:
    """Return the process that holds these folders: the daemon, or a command that must be alone."""
    try:
        return lock.who_holds(paths.lock)
    except PermissionError as error:
        raise InstanceError(
            f"{paths.lock}: permission denied; join the group that owns {paths.state}, or ask its owner"
        ) from error


@contextmanager
def open_view(
    instance: Instance, *, tell: Callable[[str], None] | None = None
) -> Iterator[sqlite3.Connection]:
    """Open the view, as it is now or at the instance's moment.

    Args:
        tell: gets a line for people about each difference from the present state.

    Raises:
        InstanceError: nothing is recorded there yet, or the view is missing.
        LogError: it cannot be read.
    """
    from store.sqlite import translated
    from store.view import queries

    path = instance.paths.database_db
    if instance.moment is None and not path.exists():
        raise InstanceError(no_view(instance))
    with ExitStack() as stack:
        if instance.moment is not None:
            connection, path = _earlier_view(instance, instance.moment, tell=tell)
        else:
            if tell is not None and not instance.running:
                left = f"this is the database as it left it ({instance.paths.state})"
                what = "the daemon is not running"
                if instance.held is not None and instance.held.purpose == lock.STANDBY:
                    what, left = "this is a standby", "what it follows may be ahead (`everlean status`)"
                tell(f"everlean: {what}; {left}")
            connection = queries.connect(path)
        stack.enter_context(closing(connection))
        stack.enter_context(translated(path))
        reached = queries.checkpoint(connection)
        stopped = reached is not None and reached.stopped_seq is not None
        if reached is not None and stopped and tell is not None and instance.moment is None:
            tell(f"everlean: this is the state up to event {reached.seq}: {reached.stopped_reason}")
        yield connection


def _earlier_view(
    instance: Instance, moment: Moment, *, tell: Callable[[str], None] | None
) -> tuple[sqlite3.Connection, Path]:
    from store.log.reader import LogReader
    from store.view.asof import Copies

    if tell is not None:
        tell(f"everlean: this is the state as of event {moment.seq} ({moment.recorded_at})")
    with LogReader.open(instance.paths.events_db) as log:
        copies = Copies.of_user(instance.paths.copies, log, moment)
        ready = copies.ready(log, moment) is not None
        if tell is not None and not ready and moment.seq - copies.start(log, moment) >= LONG_EVENTS:
            tell("everlean: making the database as it was then; it is kept for the next question")
        return copies.open(log, moment), copies.folder


def no_view(instance: Instance) -> str:
    """Return why there is nothing to read, and the remedy."""
    if instance.paths.events_db.exists():
        return f"{instance.paths.database_db}: missing, and its log is there; run `everlean db rebuild`"
    remedy = f"start the daemon with `everlean run --config {instance.config}`"
    return f"{instance.paths.state}: nothing recorded there yet; {remedy}"


TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class DaemonAnswer:
    """The daemon's answer to GET /status; without `status` if no daemon answers."""

    status: LiveStatus | None = None
    error: str | None = None
    permitted: bool = True

    @property
    def queued(self) -> Sequence[QueuedJob]:
        """Return the daemon's waiting jobs."""
        return self.status.queued if self.status is not None else ()

    @property
    def more_queued(self) -> int:
        """Return the number of waiting jobs beyond the described ones."""
        return self.status.more_queued if self.status is not None else 0

    @property
    def progress(self) -> Mapping[str, JobProgress]:
        """Return the progress of the running jobs with a report."""
        jobs = self.status.jobs if self.status is not None else ()
        return {item.job: item.progress for item in jobs if item.progress is not None}


def ask(instance: Instance) -> DaemonAnswer:
    """Query the daemon, if one runs and the question is about now."""
    if not instance.running or instance.moment is not None:
        return DaemonAnswer()
    try:
        status, answer = control_client.request(instance.paths, "GET", "/status", timeout_s=TIMEOUT_S)
    except control_client.NotPermittedError as error:
        return DaemonAnswer(error=str(error), permitted=False)
    except control_client.ControlError as error:
        return DaemonAnswer(error=str(error))
    if status != 200:
        return DaemonAnswer(
            error=f"{instance.paths.socket}: GET /status answered {status}; restart the daemon, which may be of another"
            " version than this command"
        )
    from daemon.place.answers import LiveStatus

    return DaemonAnswer(LiveStatus.from_json(answer))


def command(instance: Instance, route: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send the daemon a request to act; return its answer.

    Raises:
        ControlError: no daemon listens, or it refused, with its reason.
    """
    status, answer = control_client.request(instance.paths, "POST", route, body, timeout_s=10)
    if status >= 400:
        raise control_client.RefusedError(
            str(answer.get("error") or answer.get("message") or f"the daemon answered {status}")
        )
    return answer
