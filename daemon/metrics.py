"""Numbers for Prometheus: what the view says, and what only the living daemon knows.

How they are written is `daemon.exposition`'s, where they are fetched `daemon.metrics_server`'s.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version

from daemon.exposition import GpuNumbers, LiveNumbers, QuotaNumbers, exposition
from daemon.ledger import Ledger
from daemon.living import Living
from store.log.reader import LogReader
from store.view.queries import reports as report_queries


class Metrics:
    """Answers the question for numbers."""

    def __init__(self, ledger: Ledger, living: Living, failures: Callable[[], Mapping[str, int]]) -> None:
        self._ledger = ledger
        self._living = living
        self._failures = failures

    async def text(self) -> bytes:
        """Return the exposition; the view is asked and the text made on other threads than the loop's.

        Raises:
            LogError, sqlite3.Error: the view cannot be read.
            StoreFailedError: it is closed.
        """
        view = await self._ledger.ask(report_queries.numbers)
        live = self._live(await self._ledger.look_up(LogReader.position))
        return await asyncio.to_thread(exposition, view, live)

    def _live(self, log_position: int) -> LiveNumbers:
        parts = self._living
        github = parts.forge.github
        waiting = Counter((due.kind, "queued") for due in parts.queued())
        waiting.update((held.due.kind, "held") for held in parts.work.plan.held)
        return LiveNumbers(
            now=datetime.now(UTC),
            version=version("unsorry"),
            started_at=parts.started_at,
            lean=parts.work.leans.summary.kind,
            problems=len(parts.health()["problems"]),
            log_position=log_position,
            waiting={(str(kind), state): number for (kind, state), number in waiting.items()},
            gpus=tuple(
                GpuNumbers(gpu.uuid, gpu.name, gpu.state, gpu.used_bytes, gpu.memory_bytes)
                for gpu in parts.work.gpus.now
            ),
            quotas={
                name: QuotaNumbers(quota.remaining, quota.limit, quota.reset_at)
                for name, quota in (github.quotas.items() if github is not None else ())
            },
            requests=dict(github.requests) if github is not None else {},
            cache_bytes=parts.upkeep.cache_bytes,
            cache_limit_bytes=parts.settings().cache.size_bytes,
            notification_failures=dict(self._failures()),
        )
