"""What stands before every route, from the outside in: counting, whose page asks, token, queue, time, body."""

from __future__ import annotations

from starlette.middleware import Middleware

from pipeline.serve.auth import HereGuard, TokenGuard
from pipeline.serve.limits import BodyLimit, QueueLimit, TimeLimit, share
from pipeline.serve.measures import Measures, MeasuringGuard
from pipeline.serve.order import ServeOrder


def guards(order: ServeOrder, *, token: str | None, measures: Measures) -> list[Middleware]:
    """Return the middlewares of an application, the outermost first. `token` is what `auth.read_token` found."""
    limits = order.limits
    return [
        Middleware(MeasuringGuard, measures=measures),
        Middleware(HereGuard, alone=not order.open),
        Middleware(TokenGuard, token=token),
        Middleware(QueueLimit, most=limits.queue, most_lean=share(limits), inside=measures.queued),
        Middleware(TimeLimit, seconds=limits.seconds, lean_seconds=limits.lean_seconds),
        Middleware(BodyLimit, most_bytes=limits.body_bytes),
    ]
