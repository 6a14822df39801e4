"""config.toml changed -> validate -> swap, all or nothing.

`reload` decides whether the changed file may take effect; `ConfigWatcher` notices its changes. `service.py`
applies the new settings to the running parts, and records `config_loaded` or `config_rejected`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from daemon.settings import ConfigError, Settings, load

DEBOUNCE_S = 0.5
RESCAN_S = 10.0

_Fingerprint = tuple[int, int, int] | None
# A mere read emits `opened` and `closed_no_write`; reacting to those would make every reader a trigger.
_CHANGES = ("created", "modified", "closed", "moved", "deleted")


def reload(current: Settings, path: Path) -> Settings | ConfigError:
    """Return the settings to replace `current`, or the reason why `current` stays in force.

    Also refused are other folders, since the running daemon's databases are open, and another engine, since
    it has running jobs.
    """
    try:
        new = load(path)
    except ConfigError as error:
        return error
    errors = []
    for name, setting in (("state", "state_dir"), ("cache", "cache_dir"), ("runtime", "runtime_dir")):
        before, after = getattr(current.paths, name), getattr(new.paths, name)
        if before != after:
            line = new.line(("daemon", setting)) or new.line(("daemon",)) or 1
            errors.append(
                f"{path.name}:{line}: daemon.{setting}: cannot change while the daemon runs ({before} -> {after});"
                " restart the daemon, or put the old value back"
            )
    if current.engine != new.engine:
        line = new.line(("engine",)) or 1
        errors.append(
            f"{path.name}:{line}: engine: cannot change while the daemon runs; restart the daemon, or put the old"
            " values back"
        )
    return ConfigError(tuple(errors), path=path, digest=new.digest) if errors else new


class ConfigWatcher:
    """Calls `changed` in the event loop, once for each burst of changes to one file.

    Watches the folder and not the file: editors replace files by renaming. `look_again` backs it up, because
    the folder itself may be deleted and made again (watchdog then falls silent) and because a file behind a
    symlink changes without an event in this folder.
    """

    def __init__(
        self,
        path: Path,
        *,
        changed: Callable[[], None],
        debounce_s: float = DEBOUNCE_S,
    ) -> None:
        self._path = path.absolute()
        self._changed = changed
        self._debounce_s = debounce_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._observer: BaseObserver | None = None
        self._debounce: asyncio.TimerHandle | None = None
        self._seen: _Fingerprint = None

    def start(self) -> None:
        """Begin; call it in a running event loop."""
        self._loop = asyncio.get_running_loop()
        self._seen = self._fingerprint()
        self._observe()

    def stop(self) -> None:
        """End: no call of `changed` comes after this."""
        if self._debounce is not None:
            self._debounce.cancel()
            self._debounce = None
        self._unobserve()
        self._loop = None

    def _observe(self) -> None:
        folder = self._path.parent
        if not folder.is_dir():
            return  # the rescan sees it come back
        observer = Observer()
        observer.schedule(_Handler(self._path.name, self._from_thread), str(folder), recursive=False)
        observer.start()
        self._observer = observer

    def _unobserve(self) -> None:
        if self._observer is not None:
            self._observer.stop()
            self._observer.join(timeout=5)
            self._observer = None

    def _from_thread(self) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._touched)

    def _touched(self) -> None:
        if self._loop is None:
            return
        if self._debounce is not None:
            self._debounce.cancel()
        self._debounce = self._loop.call_later(self._debounce_s, self._settle)

    def _settle(self) -> None:
        self._debounce = None
        now = self._fingerprint()
        if now != self._seen:
            self._seen = now
            self._changed()

    async def look_again(self) -> None:
        """Find changes without an event; call it every RESCAN_S."""
        if self._observer is None or not all(emitter.is_alive() for emitter in self._observer.emitters):
            self._unobserve()
            self._observe()
        if self._debounce is None:
            self._settle()

    def _fingerprint(self) -> _Fingerprint:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino


class _Handler(FileSystemEventHandler):
    """Runs on watchdog's thread: decides by name only and hands over."""

    def __init__(self, name: str, touched: Callable[[], None]) -> None:
        self._name = name
        self._touched = touched

    def on_any_event(self, event: FileSystemEvent) -> None:
        if event.event_type not in _CHANGES:
            return
        names = {Path(str(path)).name for path in (event.src_path, event.dest_path) if path}
        if self._name in names:
            self._touched()
