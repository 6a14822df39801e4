"""The server's numbers in Prometheus' text format: requests and their time, the queue, the batches.

Owns the names: `everlean_serve_`, base units at the end; docs/editors.md lists them. A route is counted by its path in
the schema, so that no client can make new ones; a request without a route counts as "none".
"""

from __future__ import annotations

import time

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LEFT = 499
"""The status counted for a request whose client left before the answer."""
_FAILED = 500
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Measures:
    """The counters of one server. The names of models are those of its specification."""

    def __init__(self) -> None:
        # Avoid a second series for each, which no query of ours needs.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "everlean_serve_requests",
            "Answered requests; status 499: the client left before.",
            ("route", "method", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "everlean_serve_request_seconds",
            "Seconds from a request's first byte to its answer's last.",
            ("route",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._queue = Gauge(
            "everlean_serve_queue_requests", "Requests in work or waiting.", registry=registry
        )
        self._waiting = Gauge(
            "everlean_serve_model_waiting_requests",
            "Requests that use a model or wait for it.",
            ("model",),
            registry=registry,
        )
        self._batches = Histogram(
            "everlean_serve_batch_requests",
            "Requests in one batch of a model.",
            ("model",),
            buckets=_SIZES,
            registry=registry,
        )
        self._swaps = Counter(
            "everlean_serve_swaps",
            "Replacements of a model by another checkpoint.",
            ("model",),
            registry=registry,
        )

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that has ended."""
        self._requests.labels(route, method if method in _METHODS else "other", str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def queued(self, count: int) -> None:
        """Return the number of requests inside now."""
        self._queue.set(count)

    def waiting(self, model: str, count: int) -> None:
        """Set the number of requests waiting for a model."""
        self._waiting.labels(model).set(count)

    def batch(self, model: str, size: int) -> None:
        """Count a batch."""
        self._batches.labels(model).observe(size)

    def swapped(self, model: str) -> None:
        """Count a replaced checkpoint in a model's place."""
        self._swaps.labels(model).inc()

    def text(self) -> bytes:
        """Return the exposition."""
        return generate_latest(self._registry)


class MeasuringGuard:
    """Counts requests, refusals included, and absorbs a client's disconnect."""

    def __init__(self, app: ASGIApp, *, measures: Measures) -> None:
        self._app = app
        self._measures = measures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, begun = _FAILED, time.perf_counter()

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except ClientDisconnect:
            status = LEFT
        finally:
            route = str(getattr(scope.get("route"), "path", "none"))
            self._measures.answered(route, scope["method"], status, time.perf_counter() - begun)
