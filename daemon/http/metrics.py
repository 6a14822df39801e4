"""Numbers for Prometheus, from the view and the living daemon."""

from __future__ import annotations

import asyncio
import platform
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, get_args

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from daemon.http.feed import Ask, feed_routes
from daemon.http.report_page import Page, report_routes
from daemon.http.status import RuntimeStatus
from daemon.place.answers import Gpu
from daemon.place.peers import LoopbackServer, PortError
from daemon.results.notifications import Notifications
from daemon.settings.schema import address_of
from daemon.state.context import Context
from daemon.state.store_service import StoreFailedError, StoreService
from pipeline.jobs.kinds import Kind
from pipeline.loopback import names_this_machine
from store.errors import LogError
from store.log.reader import LogReader
from store.view import report_queries
from store.view.counts import NO_SORRIES
from store.view.projections.jobs import JOB_BOUNDS_S, UNTIMED
from store.view.report_queries import ViewNumbers

if TYPE_CHECKING:
    from prometheus_client.core import Metric

# ---- Numbers in Prometheus's text exposition format
# Owns the names: `everlean_`, base units at the end, `_total` on counters; docs/monitoring.md lists them, and
# docs/grafana-dashboard.json draws them. The library of the format is loaded at the first request, so a
# daemon without scrapes does without it.


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
KINDS: tuple[str, ...] = get_args(Kind)
_OUTCOMES = ("succeeded", "failed", "interrupted", "cancelled")
_VERDICTS = ("found", "checked", "verified", "rejected")
_PAUSES = ("poll", "train", "prove", "all")


@dataclass(frozen=True, slots=True)
class QuotaNumbers:
    """The rest of a quota of the forge's API, and the time when it is full again."""

    remaining: int
    limit: int | None
    reset_at: datetime


@dataclass(frozen=True, slots=True)
class LiveNumbers:
    """Numbers of the running daemon alone, at `now`.

    `waiting` counts jobs not begun, by kind and state (queued, held); `requests` those to the forge's API, by
    subject.
    """

    now: datetime
    version: str
    started_at: datetime
    lean: str
    problems: Mapping[str, int]
    """by severity, those of `everlean status`"""
    log_position: int
    waiting: Mapping[tuple[str, str], int]
    gpus: tuple[Gpu, ...]
    quotas: Mapping[str, QuotaNumbers]
    requests: Mapping[str, int]
    cache_bytes: int
    cache_limit_bytes: int
    notification_failures: Mapping[str, int]
    """None: the settings have none."""
    log_shipped: int | None = None
    """None: the log is not shipped, or its store was not asked yet."""


def exposition(view: ViewNumbers, live: LiveNumbers) -> bytes:
    """Return the text for these numbers."""
    from prometheus_client import generate_latest

    class Once:
        """The collector for prometheus_client."""

        def collect(self) -> Iterable[Metric]:
            return families(view, live)

    return generate_latest(Once())


def families(view: ViewNumbers, live: LiveNumbers) -> Iterator[Metric]:
    """Yield every metric; those without a value are left out."""
    yield from _daemon(view, live)
    yield from _repositories(view, live)
    yield from _jobs(view, live)
    yield from _results(view)
    yield from _machine(live)
    yield from _notifications(view, live)


def _gauge(
    name: str, about: str, labels: tuple[str, ...], rows: Iterable[tuple[Iterable[str], float]]
) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"everlean_{name}", about, labels=labels)
    for values, number in rows:
        family.add_metric(list(values), number)
    return family


def _counter(
    name: str, about: str, labels: tuple[str, ...], rows: Iterable[tuple[Iterable[str], float]]
) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(f"everlean_{name}", about, labels=labels)
    for values, number in rows:
        family.add_metric(list(values), number)
    return family


def _one(name: str, about: str, number: float) -> Metric:
    return _gauge(name, about, (), [((), number)])


def _daemon(view: ViewNumbers, live: LiveNumbers) -> Iterator[Metric]:
    yield _gauge(
        "build_info",
        "Versions of everlean, Python and SQLite; lean: pantograph, server or none.",
        ("version", "python", "sqlite", "lean"),
        [((live.version, platform.python_version(), sqlite3.sqlite_version, live.lean), 1)],
    )
    yield _one(
        "start_time_seconds", "Start of the daemon, in seconds since 1970.", live.started_at.timestamp()
    )
    yield _gauge(
        "problems",
        "Problems of `everlean status` by severity.",
        ("severity",),
        [((severity,), live.problems.get(severity, 0)) for severity in ("error", "warning")],
    )
    yield _counter("log_events", "Events in the log.", (), [((), live.log_position)])
    if live.log_shipped is not None:
        yield _one("log_shipped_event", "The last event in the store of [log] ship.", live.log_shipped)
    yield _one("view_lag_events", "Events not in the database yet.", live.log_position - view.position)
    yield _one(
        "view_stopped",
        "1 if the database cannot take an event and stays before it.",
        view.stopped,
    )
    yield _gauge(
        "paused",
        "1 while this work is paused; all: every job and every poll.",
        ("work",),
        [((work,), work in view.paused) for work in _PAUSES],
    )


def _repositories(view: ViewNumbers, live: LiveNumbers) -> Iterator[Metric]:
    rows = view.repositories
    yield _gauge(
        "repository_poll_age_seconds",
        "Seconds since the last poll.",
        ("repository",),
        [((row.repository,), _age_s(row.checked_at, live.now)) for row in rows if row.checked_at is not None],
    )
    yield _gauge(
        "repository_failing_seconds",
        "Seconds of failing polls without a break; 0 after a good one.",
        ("repository",),
        [
            ((row.repository,), 0 if row.failing_since is None else _age_s(row.failing_since, live.now))
            for row in rows
        ],
    )
    yield _gauge(
        "repository_problem",
        "1 for the problem of a failing repository, such as unreachable, gone, auth_failed, rate_limited.",
        ("repository", "problem"),
        [((row.repository, row.state), 1) for row in rows if row.failing_since is not None],
    )
    if live.requests:
        yield _counter(
            "forge_requests",
            "Requests to the forge's API since the daemon connected, by repository or sort of question.",
            ("about",),
            [((about,), number) for about, number in sorted(live.requests.items())],
        )
    if live.quotas:
        quotas = sorted(live.quotas.items())
        yield _gauge(
            "forge_quota_remaining",
            "Requests left of a quota, by the forge's last answer.",
            ("resource",),
            [((name,), quota.remaining) for name, quota in quotas],
        )
        yield _gauge(
            "forge_quota_limit",
            "The whole quota.",
            ("resource",),
            [((name,), quota.limit) for name, quota in quotas if quota.limit is not None],
        )
        yield _gauge(
            "forge_quota_reset_timestamp_seconds",
            "Next reset of the quota, in seconds since 1970.",
            ("resource",),
            [((name,), quota.reset_at.timestamp()) for name, quota in quotas],
        )
    yield _gauge(
        "sorries",
        "Sorries of the default branch by state; verified: Lean accepted a proof, the source still has the sorry.",
        ("repository", "state"),
        [
            ((row.repository, state), number)
            for row in rows
            for state, number in view.sorries.get(row.repository, NO_SORRIES).by_state.items()
        ],
    )
    yield _gauge(
        "sorries_elsewhere",
        "Sorries on other watched branches only.",
        ("repository",),
        [((row.repository,), view.sorries.get(row.repository, NO_SORRIES).elsewhere) for row in rows],
    )
    yield _gauge(
        "theorems",
        "Theorems and lemmas of the default branch.",
        ("repository",),
        [((repository,), number) for repository, number in view.theorems],
    )


def _jobs(view: ViewNumbers, live: LiveNumbers) -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    states = {(row.kind, row.state): row.n for row in view.jobs} | dict(live.waiting)
    kinds = dict.fromkeys((*KINDS, *(kind for kind, _ in states), *(row.kind for row in view.job_ends)))
    yield _gauge(
        "jobs",
        "Jobs by kind and state now: queued, held (by hours, a budget or a pause), running, failed, interrupted, "
        "cancelled. Failed ones may be tried again. everlean_job_ends_total has the successes.",
        ("kind", "state"),
        [
            ((kind, state), states.get((kind, state), 0))
            for kind in kinds
            for state in ("queued", "held", *report_queries.GOING)
        ],
    )
    ends: dict[tuple[str, str], float] = {(kind, outcome): 0 for kind in kinds for outcome in _OUTCOMES}
    timed: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    for row in view.job_ends:
        key = (row.kind, row.outcome)
        ends[key] = ends.get(key, 0) + row.n
        if row.bucket != UNTIMED:
            buckets, seconds = timed.setdefault(key, ([0] * (len(JOB_BOUNDS_S) + 1), [0.0]))
            buckets[row.bucket] += row.n
            seconds[0] += row.seconds
    yield _counter(
        "job_ends",
        "Ended attempts of jobs since the log began.",
        ("kind", "outcome"),
        sorted(ends.items()),
    )
    family = HistogramMetricFamily(
        "everlean_job_duration_seconds",
        "Duration of attempts since the log began; interrupted ones are not timed.",
        labels=("kind", "outcome"),
    )
    for key, (buckets, seconds) in sorted(timed.items()):
        bounds = [*(f"{bound:g}" for bound in JOB_BOUNDS_S), "+Inf"]
        below = [float(sum(buckets[: at + 1])) for at in range(len(buckets))]
        family.add_metric(list(key), buckets=list(zip(bounds, below, strict=True)), sum_value=seconds[0])
    yield family


def _results(view: ViewNumbers) -> Iterator[Metric]:
    verdicts = dict.fromkeys(_VERDICTS, 0) | {row.verdict: row.n for row in view.proofs}
    yield _counter(
        "proofs",
        "Proofs by first verdict since the log began. found: a candidate. verified: "
        "Lean accepted it. checked: nothing failed, but not all could be judged.",
        ("verdict",),
        [((verdict,), number) for verdict, number in sorted(verdicts.items())],
    )
    if view.promoted:
        yield _gauge(
            "model_info",
            "The checkpoint in use of each model.",
            ("model", "checkpoint"),
            [((row.model, row.checkpoint), 1) for row in view.promoted],
        )
    if view.recalls:
        yield _gauge(
            "retriever_recall_ratio",
            "Recall at k (0 to 1) of the retriever in use, on each newest test set.",
            ("task", "k"),
            [((row.repository or "several", str(row.k)), row.recall) for row in view.recalls],
        )


def _machine(live: LiveNumbers) -> Iterator[Metric]:
    yield _one("cache_bytes", "Disk space of builds and packages at the last sweep.", live.cache_bytes)
    yield _one("cache_limit_bytes", "[cache] size.", live.cache_limit_bytes)
    if live.gpus:
        yield _gauge(
            "gpu_state",
            "1 for the state of a GPU: free, lent (to a job), busy (another process), lost.",
            ("gpu", "name", "state"),
            [
                ((gpu.uuid, gpu.name, state), gpu.state == state)
                for gpu in live.gpus
                for state in ("free", "lent", "busy", "lost")
            ],
        )
    sized = [gpu for gpu in live.gpus if gpu.memory_bytes]
    if sized:
        rows = [((gpu.uuid, gpu.name), gpu.used_bytes) for gpu in sized]
        yield _gauge("gpu_memory_used_bytes", "Used memory of a GPU.", ("gpu", "name"), rows)
        rows = [((gpu.uuid, gpu.name), gpu.memory_bytes) for gpu in sized]
        yield _gauge("gpu_memory_bytes", "Memory of a GPU.", ("gpu", "name"), rows)


def _notifications(view: ViewNumbers, live: LiveNumbers) -> Iterator[Metric]:
    if not view.notifiers:
        return
    yield _counter(
        "notifications_sent",
        "Messages taken by a channel since the log began.",
        ("channel",),
        [((row.channel,), row.messages) for row in view.notifiers],
    )
    yield _counter(
        "notification_failures",
        "Failed attempts to send since the daemon started.",
        ("channel",),
        [((row.channel,), live.notification_failures.get(row.channel, 0)) for row in view.notifiers],
    )
    yield _gauge(
        "notifications_failing_seconds",
        "Seconds for which a channel has refused messages; 0 if it took the last one.",
        ("channel",),
        [
            ((row.channel,), 0 if row.failing_since is None else _age_s(row.failing_since, live.now))
            for row in view.notifiers
        ],
    )


def _age_s(moment: str, now: datetime) -> float:
    """Return the seconds since a time of the view, never negative: the clock may have been set back."""
    return max(0.0, (now - datetime.fromisoformat(moment)).total_seconds())


class Metrics:
    """Makes the exposition."""

    def __init__(self, store: StoreService, living: RuntimeStatus, notifications: Notifications) -> None:
        self._store = store
        self._living = living
        self._notifications = notifications

    async def text(self) -> bytes:
        """Return the exposition; the view is queried and the text made on other threads than the loop's.

        Raises:
            LogError, sqlite3.Error: the view cannot be read.
            StoreFailedError: it is closed.
        """
        view = await self._store.ask(report_queries.numbers)
        problems = Counter[str](problem.severity for problem in await self._living.problems())
        live = self._live(await self._store.look_up(LogReader.position), problems)
        return await asyncio.to_thread(exposition, view, live)

    def _live(self, log_position: int, problems: Mapping[str, int]) -> LiveNumbers:
        parts = self._living
        github = parts.forge.github
        waiting = Counter((due.kind, "queued") for due in parts.queued())
        waiting.update((job.due.kind, "held") for job in parts.work.plan.held)
        return LiveNumbers(
            now=datetime.now(UTC),
            version=version("everlean"),
            started_at=parts.context.started_at,
            lean=parts.work.leans.summary.kind,
            problems=problems,
            log_position=log_position,
            log_shipped=parts.shipping.shipped,
            waiting={(str(kind), state): number for (kind, state), number in waiting.items()},
            gpus=parts.work.gpus,
            quotas={
                name: QuotaNumbers(quota.remaining, quota.limit, quota.reset_at)
                for name, quota in (github.limits.quotas.items() if github is not None else ())
            },
            requests=dict(github.requests) if github is not None else {},
            cache_bytes=parts.upkeep.cache_bytes,
            cache_limit_bytes=parts.context.settings.cache.size_bytes,
            notification_failures=dict(self._notifications.failures),
        )


# ---- The addresses: GET /metrics on the control socket, and on TCP if configured
# The TCP listener has that one route and, with `[report] serve`, GET /report (`daemon.http.report_page`). An
# unavailable address is a problem in `status`; it is tried again, and stops nothing. A browser that came by
# another host name (DNS rebinding) is refused, unless other machines may read.


PROBLEM = "metrics"
AGAIN_S = 60.0
_SETTING = "[metrics] listen"

log = structlog.get_logger("daemon.http.metrics")

Numbers = Callable[[], Awaitable[bytes]]
"""Returns the exposition."""


def metrics_route(numbers: Numbers, *, public: Callable[[], bool] = lambda: True) -> Route:
    """Return the route. Unless `public`, a request must name this machine by a loopback address or as
    localhost."""

    async def metrics(request: Request) -> Response:
        if not public() and not names_this_machine(request.headers.get("host", "")):
            return PlainTextResponse(
                "ask for 127.0.0.1 or localhost, or set [metrics] public\n", status_code=421
            )
        try:
            return Response(await numbers(), media_type=CONTENT_TYPE)
        except (LogError, sqlite3.Error, StoreFailedError) as error:
            return PlainTextResponse(f"the numbers cannot be read: {error}\n", status_code=503)

    return Route("/metrics", metrics, methods=["GET"])


class MetricsListener:
    """The TCP listener, by the settings in force: `take_up` again and again, `stop` at the end.

    Args:
        report: returns the page, if [report] serves it; None otherwise.
        ask: asks the view, for the badge and the feed beside the report.
    """

    def __init__(
        self,
        numbers: Numbers,
        context: Context,
        *,
        report: Page | None = None,
        ask: Ask | None = None,
    ) -> None:
        self._context = context
        routes = [metrics_route(numbers, public=self._public)]
        if report is not None:
            routes += report_routes(report, served=self._serves_report, public=self._public)
        if ask is not None:
            routes += feed_routes(ask, served=self._serves_report, public=self._public)
        self._application = Starlette(routes=[Route("/", self._index, methods=["GET"]), *routes])
        self._server: LoopbackServer | None = None
        self._listens = ""

    async def _index(self, _request: Request) -> Response:
        """Name the pages, for a person with a browser at this port."""
        pages = ["/metrics", *(["/report", "/feed.atom", "/badge.svg"] if self._serves_report() else [])]
        links = "".join(f'<li><a href="{page}">{page}</a></li>' for page in pages)
        return HTMLResponse(f"<!doctype html><title>everlean</title><h1>everlean</h1><ul>{links}</ul>\n")

    def _public(self) -> bool:
        return self._context.settings.metrics.public

    def _serves_report(self) -> bool:
        return self._context.settings.report.serve

    @property
    def address(self) -> str:
        """The address it listens on; "" while it does not."""
        return self._listens

    async def take_up(self) -> None:
        """Listen by the settings in force."""
        listen = self._context.settings.metrics.listen
        if listen != self._listens:
            await self.stop()
        if not listen or self._server is not None:
            self._context.problems.clear(PROBLEM)
            return
        host, port = address_of(listen)
        try:
            self._server = await LoopbackServer.start(
                self._application, host=host, port=port, setting=_SETTING
            )
        except PortError as error:
            if self._context.problems.set(PROBLEM, str(error)):
                log.warning("metrics_not_listening", reason=str(error))
            return
        self._listens = listen
        self._context.problems.clear(PROBLEM)
        log.info("metrics_listen", address=listen)

    async def stop(self) -> None:
        """Listen no longer."""
        if self._server is not None:
            # Forgotten only when it has ended: a cancelled request comes here once more.
            await self._server.stop()
            self._server, self._listens = None, ""
