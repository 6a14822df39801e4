"""What the daemon records of itself: that it started and stopped, which configuration it took and which it refused."""

from __future__ import annotations

import os
import platform
import sqlite3
from importlib.metadata import version

from daemon.ledger import Ledger
from daemon.polling.branch_diff import watchlist_events
from daemon.settings import ConfigError, Settings
from pipeline.lean.backend import LeanBackend
from store.events.service import ConfigLoaded, ConfigRejected, DaemonStarted, DaemonStopped
from store.log.envelope import NewEvent
from store.view.queries import basic as queries


class OwnRecord:
    """`errors` are those of the configuration that was refused last; empty where the last one was taken."""

    def __init__(self, ledger: Ledger) -> None:
        self.errors: tuple[str, ...] = ()
        self._rejected_digest = ""
        self._ledger = ledger

    async def started(self, settings: Settings, lean: LeanBackend) -> None:
        """Record the start, and the configuration with its watchlist, in one."""
        body = DaemonStarted(
            version=version("unsorry"),
            pid=os.getpid(),
            host=platform.node(),
            lean=lean.kind,
            lean_detail=lean.detail,
            sqlite=sqlite3.sqlite_version,
        )
        await self._ledger.append([NewEvent("daemon", body), *await self._loaded(settings)], wait=True)

    async def stopped(self, reason: str) -> None:
        """Record the end."""
        await self._ledger.append([NewEvent("daemon", DaemonStopped(reason=reason, pid=os.getpid()))])

    async def took(self, new: Settings, *, before: Settings) -> bool:
        """Record a configuration that takes effect; return whether it is another than the one before."""
        # A token file may have new content under an unchanged configuration.
        changed = new.digest != before.digest or bool(self.errors)
        if changed:
            await self._ledger.append(await self._loaded(new))
        self.errors, self._rejected_digest = (), ""
        return changed

    async def refused(self, error: ConfigError) -> bool:
        """Record a configuration that does not; return whether it is another than the one that was refused last."""
        if error.digest == self._rejected_digest and error.errors == self.errors:
            return False
        body = ConfigRejected(path=str(error.path), digest=error.digest, errors=error.errors)
        await self._ledger.append([NewEvent("config", body)])
        self.errors, self._rejected_digest = error.errors, error.digest
        return True

    async def _loaded(self, settings: Settings) -> list[NewEvent]:
        body = ConfigLoaded(path=str(settings.path), digest=settings.digest, settings=settings.public())
        rows = await self._ledger.ask(queries.repositories)
        return [NewEvent("config", body), *watchlist_events(settings.repos, rows)]
