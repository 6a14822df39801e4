"""Work on log and view that needs the daemon stopped: rebuild, recover, import.

Each holds the state folder's lock to its end, so that no daemon starts on files about to be replaced, or
writes the same log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from daemon.place.lock import DaemonLock
from daemon.place.paths import Paths
from daemon.results.patches import without_proof
from daemon.state.standby import require_own
from store.leandojo.reading import Imported
from store.leandojo.reading import import_leandojo as import_into
from store.log.recover import Recovered as RecoveredLog
from store.log.recover import recover as recover_log
from store.view import queries
from store.view.rebuild import RebuildReport, beside, projects
from store.view.rebuild import rebuild as rebuild_view
from store.view.view import reached


@contextmanager
def alone(paths: Paths, purpose: str) -> Iterator[None]:
    """Hold the state folder's lock.

    Args:
        purpose: the command, for others that find the lock held.

    Raises:
        AlreadyRunningError: a daemon, or another command, holds it.
    """
    lock = DaemonLock.acquire(paths.lock, purpose=purpose)
    try:
        yield
    finally:
        lock.release()


def rebuild(paths: Paths) -> RebuildReport:
    """Make the view anew from the log.

    Raises:
        AlreadyRunningError: see `alone`.
        LogError: the log cannot be read.
    """
    with alone(paths, "everlean db rebuild"):
        return rebuild_view(paths.events_db, paths.database_db)


@dataclass(frozen=True, slots=True)
class Recovered:
    """A log continued from its sound part, and the patches on disk without a proof in it."""

    log: RecoveredLog
    patches_without_proof: list[Path]


def recover(paths: Paths) -> Recovered | None:
    """Continue a damaged log from its sound part, and make the view anew; return None for a sound one.

    Raises:
        AlreadyRunningError: see `alone`.
        LogError: it cannot be recovered, or is a standby's.
    """
    with alone(paths, "everlean db recover"):
        require_own(paths)
        result = recover_log(
            paths.events_db,
            paths.database_db,
            reached=reached(paths.database_db),
            projects=partial(projects, scratch=beside(paths.database_db)),
        )
        if result is None:
            return None
        rebuild_view(paths.events_db, paths.database_db)
    with closing(queries.connect(paths.database_db)) as database:
        return Recovered(result, without_proof(database, paths.patches))


def import_leandojo(
    paths: Paths, source: Path, *, progress: Callable[[str, int, int], None] | None
) -> Imported:
    """Import LeanDojo's files.

    Raises:
        AlreadyRunningError: see `alone`.
        LogError: it cannot be imported, or the log is a standby's.
    """
    with alone(paths, "everlean import"):
        require_own(paths)
        return import_into(
            source,
            events_db=paths.events_db,
            database_db=paths.database_db,
            stage=paths.state / "import",
            progress=progress,
        )
