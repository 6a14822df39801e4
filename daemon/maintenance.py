"""Maintain what follows from the log: patch files, the cache's size, the checkpoint in use.

Each is brought up to date as often as one likes, and a failure of one is a problem that `status` shows until it has
gone well again; the rest of the daemon goes on.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Collection

import structlog

from daemon.context import Context
from daemon.results.models import Models
from daemon.results.patches import write_missing
from daemon.store_service import StoreService
from pipeline.lean.build.build_cache import sweep
from store.errors import LogError

log = structlog.get_logger("daemon.maintenance")


class Maintenance:
    """Keeps them up to date, for one daemon."""

    def __init__(self, store: StoreService, context: Context) -> None:
        self.cache_bytes = 0
        """What the builds and their packages took on disk after the last sweep."""
        self._store = store
        self._context = context

    @property
    def models(self) -> Models:
        """The operations on the trained models."""
        settings = self._context.settings
        return Models(self._store, chain_root=settings.paths.models, tolerance=settings.train.tolerance)

    async def write_patches(self, proofs: frozenset[str] | None) -> None:
        """Write the patches of these proofs, or of all, that are not there as they should be."""
        try:
            settings = self._context.settings
            folder, author = settings.paths.patches, settings.daemon.author
            for path in await write_missing(self._store, folder, author=author, proofs=proofs):
                log.info("patch_written", sentence=f"wrote patch {path}", path=str(path))
            self._context.problems.clear("patches")
        except (OSError, LogError) as error:
            # The patch is safe in the log; the next start writes the file again.
            self._context.problems.set("patches", f"a patch file could not be written: {error}")
            log.exception("patch_not_written")

    async def settle_models(self) -> None:
        """Decide which of the new checkpoints is used."""
        try:
            await self.models.settle()
            self._context.problems.clear("models")
        except (OSError, LogError, sqlite3.Error) as error:
            self._context.problems.set(
                "models", f"what becomes of a new checkpoint could not be decided: {error}"
            )
            log.exception("models_not_settled")

    async def sweep_cache(self, about_to_be_used: Collection[tuple[str, str]]) -> None:
        """Reduce builds and dependencies to their bound, except those of these repositories and commits."""
        settings = self._context.settings
        limit = settings.cache.size_bytes
        try:
            swept = await asyncio.to_thread(sweep, settings.paths.cache, limit, about_to_be_used)
        except OSError as error:
            self._context.problems.set("cache", f"the cache of builds cannot be swept: {error}")
            log.exception("sweep_failed")
            return
        self._context.problems.clear("cache")
        before, self.cache_bytes = self.cache_bytes, swept.left_bytes
        if swept.removed_builds or swept.removed_dependencies:
            log.info("cache_swept", builds=len(swept.removed_builds), freed_bytes=swept.freed_bytes)
        if swept.left_bytes > limit and swept.left_bytes != before:
            log.warning("cache_over_limit", left_bytes=swept.left_bytes, limit_bytes=limit)
