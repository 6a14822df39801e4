"""Maintain patch files, doubts, cache size and checkpoint in use by the log, and Lean if allowed.

Each may be brought up to date at any time, and its failure is a problem in `status` until it succeeds; the
rest of the daemon goes on.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import structlog

from daemon.results.doubts import settle_doubts
from daemon.results.models import Models
from daemon.results.patches import write_missing
from daemon.state.context import Context
from daemon.state.store_service import StoreService
from pipeline.gate.advisories import Advisory, FeedError, known, shipped
from pipeline.lean.build.build_cache import sweep
from store.backoff import Backoff
from store.errors import LogError

log = structlog.get_logger("daemon.scheduling.maintenance")

_INSTALL_AGAIN = Backoff(600.0, 86_400.0)
"""After a failed installation of Lean: each try downloads some hundred megabytes."""


class Maintenance:
    """Keeps them up to date, for one daemon."""

    def __init__(self, store: StoreService, context: Context) -> None:
        self.cache_bytes = 0
        """The disk space of builds and their packages after the last sweep."""
        self.advisories: tuple[Advisory, ...] = shipped()
        """The known faults of kernels, as of the last read."""
        self._store = store
        self._context = context
        self._install_from = 0.0
        self._install_failures = 0

    @property
    def models(self) -> Models:
        """The operations on the trained models."""
        settings = self._context.settings
        return Models(self._store, chain_root=settings.paths.models, tolerance=settings.train.tolerance)

    async def write_patches(self, proofs: frozenset[str] | None) -> None:
        """Write the missing or wrong patches of these proofs, or of all."""
        # A missing patch is safe in the log; the next start writes the file again.
        with self._kept_up("patches", "a patch file could not be written"):
            settings = self._context.settings
            folder, author = settings.paths.patches, settings.daemon.author
            for path in await write_missing(self._store, folder, author=author, proofs=proofs):
                log.info("patch_written", sentence=f"wrote patch {path}", path=str(path))

    @contextmanager
    def _kept_up(self, code: str, not_done: str) -> Iterator[None]:
        """Report a failure of the block as a problem `code`, in words `not_done`, until it succeeds."""
        try:
            yield
        except (OSError, LogError, sqlite3.Error) as error:
            self._context.problems.set(code, f"{not_done}: {error}")
            log.exception(f"{code}_not_kept_up")
        else:
            self._context.problems.clear(code)

    async def settle_doubts(self) -> None:
        """Read the known faults of kernels, and put in doubt the verified proofs that rest on such kernels
        alone."""
        try:
            self.advisories = await asyncio.to_thread(known, self._context.settings.certificates.advisories)
            self._context.problems.clear("advisories")
        except FeedError as error:
            # The faults read before count, or the shipped ones: without any, a proof in doubt would be
            # checked again by the kernel behind the doubt.
            self._context.problems.set("advisories", f"{error}; correct [certificates] advisories")
            log.warning("advisories_not_read", reason=str(error))
        with self._kept_up("doubts", "which proofs are in doubt could not be decided"):
            await settle_doubts(self._store, self.advisories)

    async def settle_models(self) -> None:
        """Decide about the new checkpoints."""
        with self._kept_up("models", "what becomes of a checkpoint could not be decided"):
            settings = self._context.settings
            await self.models.settle()
            await self.models.remove_unneeded(keep=settings.train.keep, embeddings=settings.paths.embeddings)

    def install_lean_soon(self) -> None:
        """Begin to install elan and the missing versions, unless that runs or failed a short while ago."""
        if time.monotonic() >= self._install_from and not self._context.tasks("install"):
            self._context.spawn(self._install_lean(), name="install")

    async def _install_lean(self) -> None:
        # A process of its own, the same as a person's: it locks, sandboxes and bounds its work.
        config = str(self._context.settings.path)
        log.info(
            "lean_install_started", sentence="installing the Lean versions that are lacking: everlean setup"
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "daemon.cli", "setup", "--yes", "--config", config,
            stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            _, stderr = await process.communicate()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
        words = stderr.decode(errors="replace").strip()
        if process.returncode == 0:
            self._install_from, self._install_failures = 0.0, 0
            self._context.problems.clear("lean_install")
            log.info("lean_installed", sentence="installed the Lean versions that were lacking")
        else:
            why = next((line for line in words.splitlines() if line.startswith("everlean: ")), words[-300:])
            self._install_failures += 1
            self._install_from = time.monotonic() + _INSTALL_AGAIN.wait_s(self._install_failures)
            self._context.problems.set(
                "lean_install",
                f"Lean could not be installed: {why.removeprefix('everlean: ')}; everlean setup tries again",
            )
            log.warning("lean_not_installed", reason=words[-2000:])
        # A part of it may be there.
        self._context.requests.look = True
        self._context.requests.wake.set()

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
