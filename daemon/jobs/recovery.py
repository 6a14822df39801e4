"""Clean up after a dead daemon, before the next one starts anything.

Ends orphaned attempts (processes first, then the log), and sweeps worktrees, half-made mirrors, staging
folders, old job folders and unneeded inputs. Runs at start-up, under the daemon's lock, so nothing here can
belong to a living daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import structlog

from daemon.jobs.engine import Engine
from daemon.place.paths import Paths
from daemon.state.store_service import StoreService
from pipeline.jobs.inputs import InputStore
from pipeline.lean.build.trees import remove_tree
from store.domain.identity import event_id
from store.events.jobs import JobInterrupted
from store.log.envelope import NewEvent
from store.view import queries

_INPUTS_STAY_S = 14 * 24 * 3600.0
INPUTS = "inputs"
"""The folder of a job's inputs (`pipeline.jobs.inputs`), beside those of its attempts."""

log = structlog.get_logger("daemon.jobs.recovery")


KEPT = 200
"""Folders of ended jobs: days of them on a busy machine, and some megabytes."""


async def recover(*, store: StoreService, engine: Engine, paths: Paths) -> int:
    """End every attempt running by the log; sweep; return the number of attempts.

    Raises:
        StoreFailedError: the log cannot be written.
    """
    rows = await store.ask(partial(queries.jobs, state="running"))
    for row in rows:
        directory = paths.jobs / row.job / str(row.attempt)
        killed = await engine.reap(directory)
        body = JobInterrupted(
            job=row.job, attempt=row.attempt, reason="the daemon died while this attempt ran"
        )
        event = NewEvent(
            f"job:{row.job}",
            body,
            event_id=event_id(body.type, row.job, str(row.attempt)),
            correlation_id=row.job,
            actor="recovery",
            # Not now: the time without a daemon is no work, and no day's budget pays for it.
            occurred_at=await asyncio.to_thread(last_sign, directory),
        )
        await store.append([event], wait=True)
        log.warning("job_interrupted", job=row.job, attempt=row.attempt, processes_killed=killed)
        await asyncio.to_thread(shutil.rmtree, directory / "staging", ignore_errors=True)
    await asyncio.to_thread(_sweep_half_made_mirrors, paths.mirrors)
    await asyncio.to_thread(_sweep_worktrees, paths.worktrees)
    inputs = InputStore(paths.inputs)
    await asyncio.to_thread(drop_old_job_folders, paths.jobs, inputs=inputs, running=frozenset())
    await asyncio.to_thread(inputs.sweep)
    return len(rows)


def last_sign(directory: Path) -> datetime | None:
    """Return the last known write of an attempt; None if nothing of it is there."""
    times = []
    for name in ("spec.json", "stderr.log"):
        with contextlib.suppress(FileNotFoundError):
            times.append((directory / name).stat().st_mtime)
    return datetime.fromtimestamp(max(times), UTC) if times else None


def _sweep_worktrees(worktrees: Path) -> None:
    for folder in _children(worktrees):
        try:
            remove_tree(folder)
        except OSError as error:
            log.warning("worktree_left", path=str(folder), reason=str(error))


def _sweep_half_made_mirrors(mirrors: Path) -> None:
    for mirror in _children(mirrors):
        if mirror.suffix == ".tmp":  # the name of an unfinished mirror in `daemon.polling.git`
            shutil.rmtree(mirror, ignore_errors=True)


def drop_old_job_folders(jobs: Path, *, inputs: InputStore, running: frozenset[str]) -> int:
    """Remove the job folders beyond the newest; the log keeps their results. Return their number.

    A folder with inputs belongs to a job to retry, and stays for two weeks.
    """
    waited_for = time.time() - _INPUTS_STAY_S
    folders: list[tuple[float, str]] = []
    # At each job's end, so no folder is looked at if all may stay.
    with contextlib.suppress(FileNotFoundError), os.scandir(jobs) as entries:
        there = list(entries)
        for entry in there if len(there) > KEPT else ():
            with contextlib.suppress(FileNotFoundError):
                folders.append((entry.stat().st_mtime, entry.name))
    old = [
        jobs / name
        for at, name in sorted(folders, reverse=True)[KEPT:]
        if name not in running and (at < waited_for or not (jobs / name / INPUTS).exists())
    ]
    for folder in old:
        inputs.forget(folder / INPUTS)
        shutil.rmtree(folder, ignore_errors=True)
    return len(old)


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
